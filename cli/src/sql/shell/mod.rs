/// Parses and runs the commands of the shell, which begin with a backslash.
mod commands;
/// Completes the names of tables, columns and saved queries, and the words of SQL.
mod completion;

use std::path::PathBuf;
use std::sync::Arc;

use arrow_flight::FlightInfo;
use parking_lot::Mutex;
use rustyline::error::ReadlineError;
use rustyline::history::FileHistory;
use rustyline::{CompletionType, Config, Editor};
use tokio::runtime::Handle;
use volary_flight_proto::{Error, ErrorCode, Result};

use super::statement::run_statement;
use super::{DisplayOptions, splitter};
use crate::client::Client;
use crate::login::Target;
use crate::terminal;
use commands::ShellCommand;
use completion::Completion;

const PROMPT: &str = "volary> ";
const PROMPT_INSIDE: &str = "   ...> ";

type LineEditor = Editor<Completion, FileHistory>;

/// What the user typed.
enum Input {
    Statements(Vec<String>),
    Command(ShellCommand),
    Leave,
}

/// Reads and runs statements until the user leaves. Shows the error of a statement and continues.
pub(super) fn run(target: &Target, mut show: DisplayOptions, io: &Handle) -> Result<()> {
    let mut client = io.block_on(Client::log_in(target))?;
    let mut lines = editor()?;
    let names = lines.helper().map(Completion::names).unwrap_or_default();
    io.block_on(completion::fetch_names(&mut client, &names));
    let history = history_file();
    if let Some(history) = &history {
        // The file does not exist the first time.
        let _ = lines.load_history(history);
    }
    terminal::print_line(&format!(
        "Connected to {}. \\? shows help, \\q leaves.",
        target.uri()
    ))?;
    let mut pending = String::new();
    loop {
        let statements = match read_input(&mut lines, &mut pending)? {
            Input::Leave => break,
            Input::Statements(statements) => statements,
            Input::Command(command) => match command.apply(&mut show, target) {
                Ok(statements) => statements,
                Err(error) => {
                    eprintln!("{error}");
                    continue;
                }
            },
        };
        for statement in statements {
            if let Err(error) = run_until_interrupted(&mut client, &statement, &show, io) {
                eprintln!("{error}");
                break;
            }
            if splitter::is_query(&statement) {
                // A file holds the rows of one query only.
                show.forget_file();
            } else {
                io.block_on(completion::fetch_names(&mut client, &names));
            }
        }
    }
    if let Some(history) = &history {
        // A history that cannot be saved is not worth an error on exit.
        let _ = lines.save_history(history);
    }
    Ok(())
}

fn editor() -> Result<LineEditor> {
    let config = Config::builder()
        .completion_type(CompletionType::List)
        .build();
    let mut lines = Editor::with_config(config).map_err(terminal_failed)?;
    lines.set_helper(Some(Completion::default()));
    Ok(lines)
}

/// Runs a statement. Ctrl-C ends the statement on all nodes, but not the shell.
fn run_until_interrupted(
    client: &mut Client,
    statement: &str,
    show: &DisplayOptions,
    io: &Handle,
) -> Result<()> {
    io.block_on(async {
        let running = Arc::new(Mutex::new(None));
        let ended = tokio::select! {
            _ = tokio::signal::ctrl_c() => None,
            ended = run_statement(client, statement, show, &running) => Some(ended),
        };
        if let Some(ended) = ended {
            return ended;
        }
        // Dropping the rows of a query ends it. A query whose rows have not been requested yet must
        // be cancelled explicitly.
        let polled: Option<FlightInfo> = running.lock().take();
        if let Some(info) = polled {
            let _ = client.cancel(info).await;
        }
        Err(Error::new(
            ErrorCode::Cancelled,
            "Ctrl-C cancelled the statement",
        ))
    })
}

/// Reads the next line and returns what it completes. `pending` holds the text of an unfinished
/// statement.
fn read_input(lines: &mut LineEditor, pending: &mut String) -> Result<Input> {
    let prompt = if splitter::is_blank(pending) {
        PROMPT
    } else {
        PROMPT_INSIDE
    };
    let line = match lines.readline(prompt) {
        Ok(line) => line,
        Err(ReadlineError::Interrupted) => {
            pending.clear();
            return Ok(Input::Statements(Vec::new()));
        }
        Err(ReadlineError::Eof) => return Ok(Input::Leave),
        Err(source) => return Err(terminal_failed(source)),
    };
    if splitter::is_blank(pending)
        && let Some(command) = line.trim().strip_prefix('\\')
    {
        let _ = lines.add_history_entry(line.trim());
        return Ok(match commands::parse(command) {
            Ok(ShellCommand::Leave) => Input::Leave,
            Ok(command) => Input::Command(command),
            Err(text) => {
                eprintln!("{text}");
                Input::Statements(Vec::new())
            }
        });
    }
    pending.push_str(&line);
    pending.push('\n');
    let (statements, rest) = splitter::split(pending);
    let statements: Vec<String> = statements.into_iter().map(str::to_owned).collect();
    if !statements.is_empty() {
        let rest_length = rest.len();
        let entered = pending[..pending.len() - rest_length].trim();
        // The history file must not contain passwords.
        if !entered.to_ascii_lowercase().contains("password") {
            let _ = lines.add_history_entry(entered);
        }
        pending.drain(..pending.len() - rest_length);
    }
    Ok(Input::Statements(statements))
}

fn history_file() -> Option<PathBuf> {
    std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".volary_history"))
}

fn terminal_failed(source: ReadlineError) -> Error {
    Error::with_source(
        ErrorCode::Unavailable,
        "the terminal cannot be used; give the statement as an argument or on standard input",
        source,
    )
}
