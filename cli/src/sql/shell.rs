//! The shell: statements from the keyboard, over as many lines as they take, with a history.

use std::path::PathBuf;

use rustyline::DefaultEditor;
use rustyline::error::ReadlineError;
use tokio::runtime::Handle;
use volary_flight_proto::{Error, ErrorCode, Result};

use super::{Show, run_one, splitter};
use crate::client::Client;
use crate::login::Target;
use crate::terminal;

const PROMPT: &str = "volary> ";
const PROMPT_INSIDE: &str = "   ...> ";
const HELP: &str = "\
A statement ends with a semicolon.
  \\d          tables
  \\d TABLE    columns of a table
  \\timing     time of each statement on or off
  \\q          leave (or Ctrl-D); Ctrl-C ends a running statement";

enum Line {
    Statements(Vec<String>),
    Leave,
}

/// Reads and runs statements until the user leaves. An error of a statement is shown; the shell goes on.
pub(super) fn run(target: &Target, mut show: Show, io: &Handle) -> Result<()> {
    let mut client = io.block_on(Client::log_in(target))?;
    let mut editor = DefaultEditor::new().map_err(terminal_failed)?;
    let history = history_file();
    if let Some(history) = &history {
        // There is none the first time.
        let _ = editor.load_history(history);
    }
    terminal::print_line(&format!(
        "Connected to {}. \\? helps, \\q leaves.",
        target.uri()
    ))?;
    let mut pending = String::new();
    while let Line::Statements(statements) = read(&mut editor, &mut pending, &mut show)? {
        for statement in statements {
            let ended = io.block_on(async {
                tokio::select! {
                    // Dropping the statement ends it on all nodes.
                    _ = tokio::signal::ctrl_c() => Err(Error::new(ErrorCode::Cancelled, "ended by Ctrl-C")),
                    ended = run_one(&mut client, &statement, show) => ended,
                }
            });
            if let Err(error) = ended {
                eprintln!("{error}");
                break;
            }
        }
    }
    if let Some(history) = &history {
        // Not worth an error on the way out.
        let _ = editor.save_history(history);
    }
    Ok(())
}

/// The next line, and the statements that it ends; `pending` is what has begun.
fn read(editor: &mut DefaultEditor, pending: &mut String, show: &mut Show) -> Result<Line> {
    let prompt = if splitter::is_blank(pending) {
        PROMPT
    } else {
        PROMPT_INSIDE
    };
    let line = match editor.readline(prompt) {
        Ok(line) => line,
        Err(ReadlineError::Interrupted) => {
            pending.clear();
            return Ok(Line::Statements(Vec::new()));
        }
        Err(ReadlineError::Eof) => return Ok(Line::Leave),
        Err(source) => return Err(terminal_failed(source)),
    };
    if splitter::is_blank(pending)
        && let Some(command) = line.trim().strip_prefix('\\')
    {
        let _ = editor.add_history_entry(line.trim());
        return own_command(command, show);
    }
    pending.push_str(&line);
    pending.push('\n');
    let (statements, rest) = splitter::split(pending);
    let statements: Vec<String> = statements.into_iter().map(str::to_owned).collect();
    if !statements.is_empty() {
        let rest_length = rest.len();
        let entered = pending[..pending.len() - rest_length].trim();
        // Passwords are not for a file.
        if !entered.to_ascii_lowercase().contains("password") {
            let _ = editor.add_history_entry(entered);
        }
        pending.drain(..pending.len() - rest_length);
    }
    Ok(Line::Statements(statements))
}

fn own_command(command: &str, show: &mut Show) -> Result<Line> {
    let (name, argument) = command.split_once(' ').unwrap_or((command, ""));
    let argument = argument.trim().trim_end_matches(';');
    match name.trim_end_matches(';') {
        "q" => return Ok(Line::Leave),
        "d" if argument.is_empty() => {
            return Ok(Line::Statements(vec!["SHOW TABLES".to_owned()]));
        }
        "d" => return Ok(Line::Statements(vec![format!("DESCRIBE {argument}")])),
        "timing" => {
            show.timing = !show.timing;
            let state = if show.timing { "on" } else { "off" };
            terminal::print_line(&format!("Timing is {state}."))?;
        }
        "?" => terminal::print_line(HELP)?,
        _ => eprintln!("There is no \\{name}; \\? helps."),
    }
    Ok(Line::Statements(Vec::new()))
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
