//! Text that a screen does not hold is shown by a pager: the one that `VOLARY_PAGER` or `PAGER` names, or less.

use std::io::Write;
use std::process::{Command, Stdio};

use volary_flight_proto::Result;

use crate::terminal;

/// Ends by itself at the end of the text, keeps colours, and cuts no line.
const LESS: &str = "less -FRSX";

/// Shows the text, by a pager if it has more lines than the screen.
///
/// # Errors
/// Those of standard output.
pub(super) fn show(text: &[u8]) -> Result<()> {
    let lines = text.iter().filter(|byte| **byte == b'\n').count();
    if terminal::height().is_some_and(|height| lines >= height) && is_paged(text) {
        return Ok(());
    }
    let mut stdout = std::io::stdout();
    stdout
        .write_all(text)
        .and_then(|()| stdout.flush())
        .map_err(terminal::output_failed)
}

/// Whether a pager has shown it.
fn is_paged(text: &[u8]) -> bool {
    let named = ["VOLARY_PAGER", "PAGER"].map(std::env::var);
    let named = named.into_iter().flatten().find(|it| !it.trim().is_empty());
    let command = named.unwrap_or_else(|| LESS.to_owned());
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
        // Who leaves the pager early has seen enough.
        let _ = stdin.write_all(text);
    }
    pager.wait().is_ok()
}
