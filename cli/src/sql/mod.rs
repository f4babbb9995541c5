/// Writes rows as a table, as text, or as a file that other tools read.
pub mod output;
/// Shows text that does not fit the screen in a pager: the one that `VOLARY_PAGER` or `PAGER`
/// names, or less.
mod pager;
/// Shows a bar for statements that take long, with the progress that the gateway reports.
mod progress;
/// Runs the interactive shell, with statements of several lines, a history, completion of names,
/// and its own commands.
mod shell;
/// Splits text into statements.
mod splitter;
/// Runs one statement and shows its result.
mod statement;
/// Asks the gateway for the statistics of a statement.
mod statistics;

use std::io::{IsTerminal, Read};
use std::path::PathBuf;

use parking_lot::Mutex;
use tokio::runtime::Handle;
use volary_flight_proto::{Error, Result};

use crate::args::SqlArgs;
use crate::client::Client;
use crate::login::Target;
use output::OutputFormat;
use statement::run_statement;

pub(crate) use splitter::split;

/// The way in which results are shown.
#[derive(Debug, Clone)]
struct DisplayOptions {
    output: OutputFormat,
    /// The file to which rows are written. Without a file, rows go to standard output.
    to_file: Option<PathBuf>,
    /// The maximum number of rows that a table shows.
    max_rows: usize,
    shows_timing: bool,
    /// Says whether a pager shows text that does not fit the screen.
    uses_pager: bool,
    /// Says whether a bar shows the progress of a statement.
    shows_progress: bool,
}

impl DisplayOptions {
    /// Shows the following rows as a table on the terminal again, if rows went to a file.
    fn forget_file(&mut self) {
        if self.to_file.take().is_some() {
            self.output = OutputFormat::Table;
        }
    }
}

/// Runs all statements, or a shell if there is a terminal and no statement.
///
/// # Errors
/// Returns the error of the first statement that fails. Later statements are not run.
pub fn run(args: SqlArgs, io: &Handle) -> Result<()> {
    let file_format = args.to.as_deref().map(|path| {
        OutputFormat::for_file(path).ok_or_else(|| {
            Error::invalid(format!(
                "the extension of {} does not name a format: use .csv, .json, .parquet, .arrow or .txt, or give --output",
                path.display()
            ))
        })
    });
    let output = match (args.output, file_format) {
        (Some(output), _) => output,
        (None, Some(of_file)) => of_file?,
        (None, None) => OutputFormat::default(),
    };
    let is_terminal = std::io::stdout().is_terminal();
    if output.is_binary() && args.to.is_none() && is_terminal {
        return Err(Error::invalid(
            "this format is binary, so a terminal cannot show it; write to a file: --to rows.parquet",
        ));
    }
    let show = DisplayOptions {
        output,
        to_file: args.to,
        max_rows: match usize::try_from(args.max_rows) {
            Ok(0) | Err(_) => usize::MAX,
            Ok(rows) => rows,
        },
        shows_timing: args.timing,
        uses_pager: false,
        shows_progress: false,
    };
    let target = args.connection.target()?;
    let text = match (args.statement, args.file) {
        (Some(statement), _) => statement,
        (None, Some(path)) => std::fs::read_to_string(&path)
            .map_err(|source| Error::io(format!("cannot read {}", path.display()), source))?,
        (None, None) if std::io::stdin().is_terminal() => {
            let show = DisplayOptions {
                uses_pager: is_terminal,
                shows_progress: std::io::stderr().is_terminal(),
                ..show
            };
            return shell::run(&target, show, io);
        }
        (None, None) => {
            let mut text = String::new();
            std::io::stdin()
                .read_to_string(&mut text)
                .map_err(|source| Error::io("cannot read standard input", source))?;
            text
        }
    };
    io.block_on(run_all(&target, &text, &show))
}

async fn run_all(target: &Target, text: &str, show: &DisplayOptions) -> Result<()> {
    let (mut statements, rest) = split(text);
    if !splitter::is_blank(rest) {
        statements.push(rest.trim());
    }
    if statements.is_empty() {
        return Err(Error::invalid("there is no statement to run"));
    }
    let queries = statements.iter().filter(|it| splitter::is_query(it));
    if show.to_file.is_some() && queries.count() > 1 {
        return Err(Error::invalid(
            "--to takes the rows of one query, but several queries were given; run them one by one",
        ));
    }
    let mut client = Client::log_in(target).await?;
    for statement in statements {
        run_statement(&mut client, statement, show, &Mutex::default()).await?;
    }
    Ok(())
}
