use std::path::Path;

use config::ValueKind;
use volary_flight_proto::{Error, Result};

use super::{Args, ClusterArgs, Command, DoctorCommand, GatewayFlags, LocalArgs, WorkerArgs};
use crate::logging;
use crate::settings::Flag;

impl Args {
    /// Returns the settings that the command line gives.
    ///
    /// # Errors
    /// Returns an error if the file with the secret cannot be read or is empty.
    pub fn flags(&self) -> Result<Vec<Flag>> {
        let mut flags = Flags::default();
        flags.text(
            "--log-filter",
            "log.filter",
            self.settings.log_filter.as_ref(),
        );
        let format = self.settings.log_format.map(|format| match format {
            logging::LogFormat::Text => "text".to_owned(),
            logging::LogFormat::Json => "json".to_owned(),
        });
        flags.text("--log-format", "log.format", format.as_ref());
        match &self.command {
            Command::Gateway(args) => flags.gateway(&args.gateway)?,
            Command::Worker(args) => flags.worker(args)?,
            Command::Local(args) => flags.local(args)?,
            Command::Doctor(args) => match &args.node {
                DoctorCommand::Gateway(args) => flags.gateway(args)?,
                DoctorCommand::Worker(args) => flags.worker(args)?,
                DoctorCommand::Local(args) => flags.local(args)?,
            },
            Command::Demo(args) => flags.cluster(&args.cluster),
            Command::Status(_)
            | Command::Sql(_)
            | Command::Tpch(_)
            | Command::Certificates(_)
            | Command::Secret(_)
            | Command::Config(_)
            | Command::Completions(_)
            | Command::Man(_) => {}
        }
        Ok(flags.0)
    }
}

#[derive(Default)]
struct Flags(Vec<Flag>);

impl Flags {
    fn set(&mut self, name: &'static str, key: &'static str, value: ValueKind) {
        self.0.push(Flag { name, key, value });
    }

    fn text(&mut self, name: &'static str, key: &'static str, value: Option<&String>) {
        if let Some(value) = value {
            self.set(name, key, value.as_str().into());
        }
    }

    fn path(&mut self, name: &'static str, key: &'static str, value: Option<&Path>) {
        if let Some(value) = value {
            self.set(name, key, value.to_string_lossy().into_owned().into());
        }
    }

    fn list(&mut self, name: &'static str, key: &'static str, values: &[String]) {
        if !values.is_empty() {
            self.set(name, key, values.to_vec().into());
        }
    }

    fn gateway(&mut self, args: &GatewayFlags) -> Result<()> {
        self.text("--listen", "gateway.listen", args.listen.as_ref());
        self.path("--data-dir", "gateway.data_dir", args.data_dir.as_deref());
        self.text("--memory", "gateway.memory.limit", args.memory.as_ref());
        self.list(
            "--allow-root",
            "gateway.load.allowed_roots",
            &args.allow_root,
        );
        self.secret(&["gateway.secret"], args.secret_file.as_deref())
    }

    fn worker(&mut self, args: &WorkerArgs) -> Result<()> {
        self.text("--listen", "worker.listen", args.listen.as_ref());
        self.text("--advertise", "worker.advertise", args.advertise.as_ref());
        self.text("--gateway", "worker.gateway", args.gateway.as_ref());
        self.path("--data-dir", "worker.data_dir", args.data_dir.as_deref());
        self.text("--memory", "worker.memory.limit", args.memory.as_ref());
        self.text("--zone", "worker.zone", args.zone.as_ref());
        self.secret(&["worker.secret"], args.secret_file.as_deref())
    }

    fn local(&mut self, args: &LocalArgs) -> Result<()> {
        self.cluster(&args.cluster);
        self.list(
            "--allow-root",
            "gateway.load.allowed_roots",
            &args.allow_root,
        );
        self.secret(
            &["gateway.secret", "worker.secret"],
            args.secret_file.as_deref(),
        )
    }

    fn cluster(&mut self, args: &ClusterArgs) {
        self.text("--listen", "local.listen", args.listen.as_ref());
        self.path("--data-dir", "local.data_dir", args.data_dir.as_deref());
        self.text("--memory", "local.memory", args.memory.as_ref());
        if let Some(workers) = args.workers {
            self.set("--workers", "local.workers", workers.into());
        }
    }

    /// Sets the secret from a file. There is no flag `--secret`, because every user of a machine
    /// can read the flags of its processes.
    fn secret(&mut self, keys: &[&'static str], file: Option<&Path>) -> Result<()> {
        let Some(file) = file else { return Ok(()) };
        let secret = std::fs::read_to_string(file).map_err(|source| {
            Error::io(
                format!("cannot read --secret-file {}", file.display()),
                source,
            )
        })?;
        let secret = secret.trim();
        if secret.is_empty() {
            return Err(Error::invalid(format!(
                "--secret-file {} is empty",
                file.display()
            )));
        }
        for key in keys {
            self.set("--secret-file", key, secret.into());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::settings::{Layers, Settings};

    #[test]
    fn every_flag_sets_a_setting_that_exists() {
        let dir = tempfile::tempdir().unwrap();
        let secret_file = dir.path().join("secret");
        std::fs::write(&secret_file, "the secret of the nodes\n").unwrap();
        let secret_file = secret_file.to_string_lossy();
        let cluster = "--listen 127.0.0.1:1 --data-dir d --workers 2 --memory 1GiB";
        let lines = [
            format!(
                "volary gateway --listen 127.0.0.1:1 --data-dir d --memory 1GiB --allow-root /a --allow-root /b --secret-file {secret_file}"
            ),
            format!(
                "volary worker --listen 127.0.0.1:1 --advertise a:1 --gateway g:1 --data-dir d --memory 50% --zone a --secret-file {secret_file}"
            ),
            "volary doctor gateway --listen 127.0.0.1:1 --offline".to_owned(),
            "volary doctor --json worker --gateway g:1".to_owned(),
            "volary doctor local --workers 2".to_owned(),
            format!("volary local {cluster} --allow-root /a --secret-file {secret_file}"),
            format!("volary demo {cluster} --scale 0.01 --exit"),
            "volary sql --log-filter debug --log-format json".to_owned(),
        ];
        for line in lines {
            let args = Args::try_parse_from(line.split(' ')).unwrap();
            let layers = Layers {
                flags: args.flags().unwrap(),
                ..Layers::default()
            };
            assert_ne!(
                Settings::load(&layers).unwrap(),
                Settings::default(),
                "{line}"
            );
        }
    }
}
