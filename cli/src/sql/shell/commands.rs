use std::path::{Path, PathBuf};

use clap::ValueEnum;
use volary_flight_proto::{Error, Result};

use super::super::output::OutputFormat;
use super::super::{DisplayOptions, splitter};
use crate::login::Target;
use crate::terminal;

const HELP: &str = "\
A statement ends with a semicolon. Tab completes names. The arrow keys show earlier input.
  \\d            tables and views
  \\d NAME       columns of a table or view
  \\dq           saved queries
  \\dn           nodes
  \\dr           running statements
  \\format NAME  format of the rows: table, vertical, csv, json, parquet, arrow
  \\x            one line per value, on or off
  \\o FILE       write the rows of the next query to a file (.csv, .json, .parquet, .arrow, .txt)
  \\o            write rows to the terminal again
  \\i FILE       run the statements of a file
  \\timing       show time, workers, shards and bytes of each statement, on or off
  \\pager        a pager for results that do not fit the screen, on or off
  \\progress     a progress bar for long statements, on or off
  \\conninfo     the gateway that this shell is connected to
  \\q            leave (or Ctrl-D); Ctrl-C ends a running statement";

/// A command of the shell.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ShellCommand {
    Leave,
    Help,
    Connection,
    /// A statement whose result is the answer to the command.
    Statement(String),
    RunFile(PathBuf),
    Format(OutputFormat),
    Vertical,
    OutputFile(Option<PathBuf>),
    Timing,
    Pager,
    Progress,
}

/// Parses the command in a line, without its backslash.
///
/// # Errors
/// Returns a message for the user that says what is wrong with the command.
pub(super) fn parse(line: &str) -> std::result::Result<ShellCommand, String> {
    let line = line.trim().trim_end_matches(';').trim_end();
    let (name, argument) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
    let argument = argument.trim();
    let statement = |text: &str| Ok(ShellCommand::Statement(text.to_owned()));
    match (name, argument) {
        ("q" | "quit" | "exit", _) => Ok(ShellCommand::Leave),
        ("?" | "h" | "help", _) => Ok(ShellCommand::Help),
        ("conninfo", _) => Ok(ShellCommand::Connection),
        ("d" | "dt", "") => statement("SHOW TABLES"),
        ("d", table) => statement(&format!("DESCRIBE {table}")),
        ("dq", _) => {
            statement("SELECT name, parameters, definition FROM system.saved_queries ORDER BY name")
        }
        ("dn", _) => {
            statement("SELECT id, role, address, state, version, rows, bytes FROM system.nodes")
        }
        ("dr", _) => statement(
            "SELECT query_id, user_name, state, running_us / 1000 AS running_ms, statement FROM system.queries ORDER BY started",
        ),
        ("i", "") => Err("\\i takes the name of a file.".to_owned()),
        ("i", path) => Ok(ShellCommand::RunFile(PathBuf::from(path))),
        ("o", "") => Ok(ShellCommand::OutputFile(None)),
        ("o", path) => Ok(ShellCommand::OutputFile(Some(PathBuf::from(path)))),
        ("format", name) => match OutputFormat::from_str(name, true) {
            Ok(output) => Ok(ShellCommand::Format(output)),
            Err(_) => {
                Err("\\format takes table, vertical, csv, json, parquet or arrow.".to_owned())
            }
        },
        ("x", _) => Ok(ShellCommand::Vertical),
        ("timing", _) => Ok(ShellCommand::Timing),
        ("pager", _) => Ok(ShellCommand::Pager),
        ("progress", _) => Ok(ShellCommand::Progress),
        _ => Err(format!(
            "There is no command \\{name}; \\? lists the commands."
        )),
    }
}

impl ShellCommand {
    /// Executes the command. Returns the statements to run for it.
    pub(super) fn apply(self, show: &mut DisplayOptions, target: &Target) -> Result<Vec<String>> {
        match self {
            Self::Leave => {}
            Self::Help => terminal::print_line(HELP)?,
            Self::Connection => terminal::print_line(&format!("Connected to {}.", target.uri()))?,
            Self::Statement(statement) => return Ok(vec![statement]),
            Self::RunFile(path) => return read_statements(&path),
            Self::Format(output) => {
                if output.is_binary() && show.to_file.is_none() {
                    return Err(Error::invalid(
                        "this format is binary, so a terminal cannot show it; name a file first: \\o rows.parquet",
                    ));
                }
                show.output = output;
            }
            Self::Vertical => {
                show.output = if show.output == OutputFormat::Vertical {
                    OutputFormat::Table
                } else {
                    OutputFormat::Vertical
                };
            }
            Self::OutputFile(None) => show.forget_file(),
            Self::OutputFile(Some(path)) => {
                show.output = OutputFormat::for_file(&path).ok_or_else(|| {
                    Error::invalid(format!(
                        "the extension of {} does not name a format: use .csv, .json, .parquet, .arrow or .txt",
                        path.display()
                    ))
                })?;
                show.to_file = Some(path);
            }
            Self::Timing => toggle("Timing", &mut show.shows_timing)?,
            Self::Pager => toggle("The pager", &mut show.uses_pager)?,
            Self::Progress => toggle("The progress bar", &mut show.shows_progress)?,
        }
        Ok(Vec::new())
    }
}

fn toggle(what: &str, state: &mut bool) -> Result<()> {
    *state = !*state;
    let state = if *state { "on" } else { "off" };
    terminal::print_line(&format!("{what} is {state}."))
}

fn read_statements(path: &Path) -> Result<Vec<String>> {
    let text = std::fs::read_to_string(path)
        .map_err(|source| Error::io(format!("cannot read {}", path.display()), source))?;
    let (mut statements, rest) = splitter::split(&text);
    if !splitter::is_blank(rest) {
        statements.push(rest.trim());
    }
    Ok(statements.into_iter().map(str::to_owned).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_read_with_what_they_take() {
        let statement = |text: &str| Ok(ShellCommand::Statement(text.to_owned()));
        for (line, expected) in [
            ("q", Ok(ShellCommand::Leave)),
            ("d", statement("SHOW TABLES")),
            ("d  birds ;", statement("DESCRIBE birds")),
            ("format CSV", Ok(ShellCommand::Format(OutputFormat::Csv))),
            (
                "o rows of june.parquet",
                Ok(ShellCommand::OutputFile(Some(PathBuf::from(
                    "rows of june.parquet",
                )))),
            ),
            ("o", Ok(ShellCommand::OutputFile(None))),
            ("i", Err("\\i takes the name of a file.".to_owned())),
            (
                "format xml",
                Err("\\format takes table, vertical, csv, json, parquet or arrow.".to_owned()),
            ),
            (
                "nothing",
                Err("There is no command \\nothing; \\? lists the commands.".to_owned()),
            ),
        ] {
            assert_eq!(parse(line), expected, "{line}");
        }
    }
}
