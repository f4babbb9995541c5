use std::io::Write;
use std::process::{Command, Stdio};

use volary_flight_proto::Result;

use crate::terminal;

/// The default pager. With these options, it exits by itself if the text fits the screen, keeps
/// colours, and does not wrap lines.
const DEFAULT_PAGER: &str = "less -FRSX";

/// Shows the text. Uses a pager if the text has more lines than the screen.
///
/// # Errors
/// Returns the errors of writing to standard output.
pub(super) fn show(text: &[u8]) -> Result<()> {
    let lines = text.iter().filter(|byte| **byte == b'\n').count();
    if terminal::height().is_some_and(|height| lines >= height) && show_in_pager(text) {
        return Ok(());
    }
    let mut stdout = std::io::stdout();
    stdout
        .write_all(text)
        .and_then(|()| stdout.flush())
        .map_err(terminal::output_failed)
}

/// Shows the text in a pager. Returns whether that was possible.
fn show_in_pager(text: &[u8]) -> bool {
    let configured = ["VOLARY_PAGER", "PAGER"].map(std::env::var);
    let named = configured
        .into_iter()
        .flatten()
        .find(|it| !it.trim().is_empty());
    let command = named.unwrap_or_else(|| DEFAULT_PAGER.to_owned());
    let mut words = command.split_whitespace();
    let Some(program) = words.next() else {
        return false;
    };
    let started = Command::new(program)
        .args(words)
        .stdin(Stdio::piped())
        .spawn();
    let Ok(mut pager) = started else {
        return false;
    };
    if let Some(mut stdin) = pager.stdin.take() {
        // Writing fails if the user leaves the pager early. That is not an error.
        let _ = stdin.write_all(text);
    }
    pager.wait().is_ok()
}
