use std::path::PathBuf;

use anyhow::Result;
use clap::Args;
use serde::Serialize;

use super::{PostgresServer, Programs};

/// Says that PostgreSQL is missing, and how to install it.
const MISSING: &str = "PostgreSQL is not installed; `apt-get install postgresql` installs it";

/// The place and the content of an instance.
#[derive(Debug, Args)]
pub struct HostedOptions {
    /// Directory on the file system that gets the data.
    #[arg(long)]
    near: PathBuf,
    /// Statement to run first. May be given several times.
    #[arg(long)]
    statement: Vec<String>,
}

/// What the process prints, as JSON in one line.
#[derive(Debug, Serialize)]
#[serde(untagged)]
pub enum Announcement {
    /// The instance has run all statements, and answers.
    Ready {
        /// The address that clients connect to, as `host:port`.
        address: String,
        /// The id of the first process, whose children serve the connections.
        pid: u32,
        /// The release of PostgreSQL.
        release: String,
    },
    /// There is no PostgreSQL.
    Missing {
        /// The reason, and the remedy.
        missing: &'static str,
    },
}

/// Starts an instance, if PostgreSQL is installed, and runs the statements.
///
/// # Errors
/// Returns an error if the instance does not start, and the errors of the statements.
pub async fn start(options: &HostedOptions) -> Result<(Option<PostgresServer>, Announcement)> {
    let Some(programs) = Programs::find() else {
        return Ok((None, Announcement::Missing { missing: MISSING }));
    };
    let server = PostgresServer::start(&programs, &options.near).await?;
    let client = server.connect().await?;
    for statement in &options.statement {
        client.batch_execute(statement).await?;
    }
    let ready = Announcement::Ready {
        address: server.address(),
        pid: server.pid(),
        release: programs.release()?,
    };
    Ok((Some(server), ready))
}
