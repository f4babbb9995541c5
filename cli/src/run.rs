use std::future::Future;
use std::process::ExitCode;

use clap::Parser;
use nix::sys::stat::{Mode, umask};
use volary_flight_proto::{Error, Result};
use volary_node::runtimes::OwnedRuntimes;
use volary_node::{Runtimes, open_files, secret};

use crate::args::{Args, Command, GatewayCommand, SecretArgs, SecretCommand, SettingsArgs};
use crate::settings::{Layers, Settings, limits, reference};
use crate::{certificates, demo, gateway, local, logging, sql, status, terminal, worker};

/// Exit code of a command that failed.
const EXIT_FAILED: u8 = 1;
/// Exit code for a wrong command line or wrong settings, in which case nothing was started. clap
/// uses the same code for arguments that it refuses.
const EXIT_WRONG_SETTINGS: u8 = 2;

/// Runs the command that the process was started with. Prints an error as one line on standard
/// error: `volary: CODE: message`.
pub fn run() -> ExitCode {
    let args = Args::parse();
    let settings = match load_settings(&args) {
        Ok(settings) => settings,
        Err(error) => return report_failure(&error, EXIT_WRONG_SETTINGS),
    };
    match dispatch(args.command, settings) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) if terminal::is_closed_output(&error) => ExitCode::SUCCESS,
        Err(error) => report_failure(&error, EXIT_FAILED),
    }
}

fn load_settings(args: &Args) -> Result<Settings> {
    let settings = Settings::load(&Layers {
        file: args.settings.config.clone(),
        environment: crate::settings::process_environment(),
        flags: args.flags()?,
    })?;
    logging::start(&settings.log, default_filter(&args.settings, &args.command))?;
    Ok(settings)
}

fn default_filter(settings: &SettingsArgs, command: &Command) -> &'static str {
    match command {
        Command::Gateway(_) | Command::Worker(_) | Command::Local(_) => "info",
        // A user who chose a log format wants to see logs.
        _ if settings.log_format.is_some() => "info",
        _ => "warn",
    }
}

fn report_failure(error: &Error, code: u8) -> ExitCode {
    eprintln!("volary: {}", one_line(&error.text()));
    ExitCode::from(code)
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn dispatch(command: Command, settings: Settings) -> Result<()> {
    match command {
        Command::Gateway(args) => match args.command {
            Some(GatewayCommand::Recover) => run_on_io(|_| gateway::recover(settings.gateway)),
            None => run_on_io(|runtimes| gateway::run(settings.gateway, runtimes)),
        },
        Command::Worker(_) => run_on_io(|runtimes| worker::run(settings.worker, runtimes)),
        Command::Local(args) => run_on_io(|runtimes| local::run(settings, &args, runtimes)),
        Command::Demo(args) => {
            let options = demo::DemoOptions {
                scale: args.scale,
                exits_after_queries: args.exit,
            };
            run_on_io(|runtimes| demo::run(settings, options, runtimes))
        }
        Command::Status(args) => run_on_io(|_| status::run(args)),
        Command::Sql(args) => {
            let runtimes = OwnedRuntimes::start(Some(1))?;
            sql::run(args, runtimes.handles().io())
        }
        Command::Tpch(args) => demo::data::write(&args.out, args.scale).map(drop),
        Command::Certificates(args) => certificates::run(&args),
        Command::Secret(SecretArgs {
            command: SecretCommand::New,
        }) => terminal::print_line(&secret::generate()),
        Command::Config(args) if args.reference => {
            terminal::print_line(reference::markdown()?.trim_end())
        }
        Command::Config(args) if args.limits => terminal::print_line(limits::markdown().trim_end()),
        Command::Config(_) => terminal::print_line(&format!("{:#}", settings.without_secrets()?)),
    }
}

/// Runs a command on the I/O runtime. Nodes spawn their computations on the other runtimes.
fn run_on_io<F: Future<Output = Result<()>>>(command: impl FnOnce(Runtimes) -> F) -> Result<()> {
    open_files::raise_limit();
    // Some files of a node are created by libraries, for example the files that queries spill to.
    // The mask keeps them private.
    umask(Mode::S_IRWXG | Mode::S_IRWXO);
    let runtimes = OwnedRuntimes::start(None)?;
    let handles = runtimes.handles().clone();
    handles.io().block_on(command(handles.clone()))
}
