//! `volary sql`: statements from argument, file, standard input or the keyboard.

/// Rows as a table, CSV or JSON.
pub mod output;
mod shell;
mod splitter;

use std::io::{IsTerminal, Read};
use std::time::Instant;

use tokio::runtime::Handle;
use volary_flight_proto::{Error, Result};

use crate::args::SqlArgs;
use crate::client::Client;
use crate::login::Target;
use crate::terminal;
use output::{Output, Printer};

pub(crate) use splitter::split;

/// How results are shown.
#[derive(Debug, Clone, Copy)]
struct Show {
    output: Output,
    /// Rows that a table shows.
    max_rows: usize,
    timing: bool,
}

/// Runs all statements, or a shell if there is a terminal and no statement.
///
/// # Errors
/// That of the first statement that fails; what comes after it is not run.
pub fn run(args: SqlArgs, io: &Handle) -> Result<()> {
    let show = Show {
        output: args.output,
        max_rows: match usize::try_from(args.max_rows) {
            Ok(0) | Err(_) => usize::MAX,
            Ok(rows) => rows,
        },
        timing: args.timing,
    };
    let target = args.connection.target()?;
    let text = match (args.statement, args.file) {
        (Some(statement), _) => statement,
        (None, Some(path)) => std::fs::read_to_string(&path)
            .map_err(|source| Error::io(format!("cannot read {}", path.display()), source))?,
        (None, None) if std::io::stdin().is_terminal() => return shell::run(&target, show, io),
        (None, None) => {
            let mut text = String::new();
            std::io::stdin()
                .read_to_string(&mut text)
                .map_err(|source| Error::io("cannot read standard input", source))?;
            text
        }
    };
    io.block_on(run_all(&target, &text, show))
}

async fn run_all(target: &Target, text: &str, show: Show) -> Result<()> {
    let (mut statements, rest) = split(text);
    if !splitter::is_blank(rest) {
        statements.push(rest.trim());
    }
    if statements.is_empty() {
        return Err(Error::invalid("there is no statement to run"));
    }
    let mut client = Client::log_in(target).await?;
    for statement in statements {
        run_one(&mut client, statement, show).await?;
    }
    Ok(())
}

/// Rows go to standard output, what is said about them to standard error.
async fn run_one(client: &mut Client, statement: &str, show: Show) -> Result<()> {
    let start = Instant::now();
    let rows = client.run(statement).await?;
    let said = if splitter::is_query(statement) {
        let mut stdout = std::io::stdout().lock();
        let printed = Printer::new(show.output, show.max_rows, terminal::width())
            .print(rows, &mut stdout)
            .await?;
        terminal::plural(printed, "row")
    } else {
        match rows.written().await? {
            0 => "done".to_owned(),
            written => format!("{} written", terminal::plural(written, "row")),
        }
    };
    if show.timing {
        eprintln!("({said}, {})", terminal::duration(start.elapsed()));
    } else if show.output == Output::Table {
        eprintln!("({said})");
    }
    Ok(())
}
