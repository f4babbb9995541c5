//! A doctor changes nothing, so that it can run as another user than the node, and beside a node
//! that runs. It asks the product's own code: what would make the start of the node fail makes the
//! check fail, with the same words.

/// Checks the addresses that a node listens on or announces.
mod addresses;
/// Checks the catalog of a gateway that does not run.
mod catalog;
/// Checks certificates: files, signatures, names and expiry.
mod certificates;
/// Checks the data directory of a node, and the disk below it.
mod data_dir;
/// Checks how full a disk is, and which kind of file system it has.
mod disk;
/// Checks what the machine lets a process have: open files and memory.
mod limits;
/// Checks other nodes: whether they can be reached from here, and whether they fit.
mod network;
/// Checks the nodes of a cluster, each with the checks that it needs.
mod nodes;
/// Checks the listener for monitoring systems.
mod operations;
/// Collects the results of the checks, and prints them.
mod report;

use volary_flight_proto::{Error, Result};
use volary_node::Runtimes;

use crate::args::{DoctorArgs, DoctorCommand};
use crate::settings::Settings;
use crate::terminal;

use report::Report;

/// Checks a node and prints the report. `settings` are `None` if they cannot be read at all, and
/// `problems` say what is wrong with them. Returns whether a check has failed.
///
/// # Errors
/// Returns the error of writing to standard output.
pub async fn run(
    args: &DoctorArgs,
    settings: Option<Settings>,
    problems: Vec<Error>,
    runtimes: Runtimes,
) -> Result<bool> {
    let mut report = Report::default();
    check_settings(&mut report, &problems);
    if let Some(settings) = settings {
        let scope = nodes::Scope {
            is_offline: args.offline,
            runtimes,
        };
        let _listener = operations::check(&mut report, &settings.operations);
        match args.node {
            DoctorCommand::Gateway(_) => {
                nodes::check_gateway(&mut report, &settings.gateway, &scope).await;
            }
            DoctorCommand::Worker(_) => {
                nodes::check_worker(&mut report, &settings.worker, &scope).await;
            }
            DoctorCommand::Local(_) => nodes::check_local(&mut report, settings).await,
        }
    }
    let node = match args.node {
        DoctorCommand::Gateway(_) => "gateway",
        DoctorCommand::Worker(_) => "worker",
        DoctorCommand::Local(_) => "local",
    };
    let text = if args.json {
        report.json(node)
    } else {
        report.lines()
    };
    terminal::print_line(&text)?;
    Ok(report.has_failed())
}

fn check_settings(report: &mut Report, problems: &[Error]) {
    const NAME: &str = "settings";
    if problems.is_empty() {
        report.ok(NAME, "they are valid");
    }
    for problem in problems {
        report.fail(NAME, problem);
    }
}
