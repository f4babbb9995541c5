use std::future::Future;
use std::process::ExitCode;

use clap::Parser;
use nix::sys::stat::{Mode, umask};
use volary_flight_proto::{Error, Result};
use volary_node::runtimes::OwnedRuntimes;
use volary_node::{Runtimes, kill_point, open_files, secret};

use crate::args::{
    Args, Command, DoctorArgs, GatewayCommand, SecretArgs, SecretCommand, SettingsArgs,
};
use crate::settings::{Layers, Settings, limits, metrics, process_environment, reference};
use crate::traces::Traces;
use crate::{
    certificates, completions, demo, doctor, gateway, local, logging, manual, sql, status,
    terminal, worker,
};

/// Exit code of a command that failed.
const EXIT_FAILED: u8 = 1;
/// Exit code for a wrong command line or wrong settings, in which case nothing was started. clap
/// uses the same code for arguments that it refuses.
const EXIT_WRONG_SETTINGS: u8 = 2;

/// Runs the command that the process was started with. Prints an error as one line on standard
/// error: `volary: CODE: message`.
pub fn run() -> ExitCode {
    let args = Args::parse();
    match &args.command {
        Command::Doctor(doctor) => return end(examine(&args, doctor)),
        Command::Config(config) if config.check => return end(check_settings(&args)),
        _ => {}
    }
    let (settings, traces) = match load_settings(&args) {
        Ok(loaded) => loaded,
        Err(error) => return report_failure(&error, EXIT_WRONG_SETTINGS),
    };
    let done = dispatch(args.command, settings);
    if let Some(traces) = traces {
        traces.finish();
    }
    end(done.map(|()| ExitCode::SUCCESS))
}

/// Returns the exit code of a command, and reports its error.
fn end(ended: Result<ExitCode>) -> ExitCode {
    match ended {
        Ok(code) => code,
        Err(error) if terminal::is_closed_output(&error) => ExitCode::SUCCESS,
        Err(error) => report_failure(&error, EXIT_FAILED),
    }
}

/// Says that the settings are valid, or reports everything that is wrong with them.
fn check_settings(args: &Args) -> Result<ExitCode> {
    let (_, problems) = match layers(args) {
        Ok(layers) => Settings::examine(&layers),
        Err(error) => (None, vec![error]),
    };
    if problems.is_empty() {
        terminal::print_line("the settings are valid")?;
        return Ok(ExitCode::SUCCESS);
    }
    for problem in &problems {
        report_failure(problem, EXIT_WRONG_SETTINGS);
    }
    Ok(ExitCode::from(EXIT_WRONG_SETTINGS))
}

/// Runs `volary doctor`. It does not stop at wrong settings, as other commands do: they are the
/// first thing that it reports.
fn examine(args: &Args, doctor: &DoctorArgs) -> Result<ExitCode> {
    let (settings, problems) = match layers(args) {
        Ok(layers) => Settings::examine(&layers),
        Err(error) => (None, vec![error]),
    };
    // A wrong filter of the log is among the problems.
    if let Some(settings) = &settings
        && settings.log.validate().is_ok()
    {
        let default_filter = default_filter(&args.settings, &args.command);
        logging::start(&settings.log, default_filter, None)?;
    }
    open_files::raise_limit();
    let runtimes = OwnedRuntimes::start(Some(1))?;
    let handles = runtimes.handles().clone();
    let examination = doctor::run(doctor, settings, problems, handles.clone());
    let has_failed = handles.io().block_on(examination)?;
    Ok(if has_failed {
        ExitCode::from(EXIT_FAILED)
    } else {
        ExitCode::SUCCESS
    })
}

fn layers(args: &Args) -> Result<Layers> {
    Ok(Layers {
        file: args.settings.config.clone(),
        environment: process_environment(),
        flags: args.flags()?,
    })
}

/// Reads the settings, and begins to log and to trace. Arms the kill points of a node.
fn load_settings(args: &Args) -> Result<(Settings, Option<Traces>)> {
    let settings = Settings::load(&layers(args)?)?;
    let service = traced_service(&args.command);
    let traces = match service {
        Some(service) => Traces::start(&settings.traces, service)?,
        None => None,
    };
    let default_filter = default_filter(&args.settings, &args.command);
    logging::start(&settings.log, default_filter, traces.as_ref())?;
    if service.is_some() {
        kill_point::arm_from_environment()?;
    }
    Ok((settings, traces))
}

/// Returns the name in traces of a process that runs nodes. Other processes make no traces.
fn traced_service(command: &Command) -> Option<&'static str> {
    match command {
        Command::Gateway(_) => Some("volary-gateway"),
        Command::Worker(_) => Some("volary-worker"),
        Command::Local(_) | Command::Demo(_) => Some("volary-local"),
        _ => None,
    }
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
            None => run_on_io(|runtimes| gateway::run(settings, runtimes)),
        },
        Command::Worker(_) => run_on_io(|runtimes| worker::run(settings, runtimes)),
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
        Command::Config(args) if args.metrics => {
            terminal::print_line(metrics::markdown().trim_end())
        }
        Command::Config(_) => terminal::print_line(&format!("{:#}", settings.without_secrets()?)),
        Command::Completions(args) => completions::run(args.shell),
        Command::Man(args) => manual::run(&args.dir),
        Command::Doctor(_) => Err(Error::internal("the doctor is not run here")),
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
