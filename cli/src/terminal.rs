use std::io::{ErrorKind, IsTerminal, Write};
use std::time::Duration;

use volary_flight_proto::{Error, Result};

/// Prints a line to standard output and flushes it, so that a reader of a pipe sees it at once.
///
/// # Errors
/// Returns the error of writing to standard output.
pub fn print_line(line: &str) -> Result<()> {
    print(&format!("{line}\n"))
}

/// Prints text to standard output and flushes it.
///
/// # Errors
/// Returns the error of writing to standard output.
pub fn print(text: &str) -> Result<()> {
    let mut stdout = std::io::stdout().lock();
    stdout
        .write_all(text.as_bytes())
        .and_then(|()| stdout.flush())
        .map_err(output_failed)
}

/// Builds the error for a failed write to standard output.
pub fn output_failed(source: std::io::Error) -> Error {
    Error::io("cannot write to standard output", source)
}

/// Returns whether the error says that the reader of standard output has gone, as with `| head`.
/// Such an error is not reported.
pub fn is_closed_output(error: &Error) -> bool {
    std::error::Error::source(error)
        .and_then(|source| source.downcast_ref::<std::io::Error>())
        .is_some_and(|source| source.kind() == ErrorKind::BrokenPipe)
}

/// Returns the number of columns of the terminal behind standard output. Returns `None` if standard
/// output is not a terminal, so that nothing is cut in a file.
pub fn width() -> Option<usize> {
    if !std::io::stdout().is_terminal() {
        return None;
    }
    let (columns, _) = rustyline::DefaultEditor::new().ok()?.dimensions()?;
    Some(usize::from(columns)).filter(|columns| *columns > 0)
}

/// Returns the number of lines of the terminal behind standard output, or `None` if standard output
/// is not a terminal.
pub fn height() -> Option<usize> {
    if !std::io::stdout().is_terminal() {
        return None;
    }
    let (_, lines) = rustyline::DefaultEditor::new().ok()?.dimensions()?;
    Some(usize::from(lines)).filter(|lines| *lines > 0)
}

/// Formats a number: "1,234,567".
pub fn count(number: u64) -> String {
    indicatif::HumanCount(number).to_string()
}

/// Formats a number of bytes: "3.1 MiB".
pub fn bytes(number: u64) -> String {
    indicatif::HumanBytes(number).to_string()
}

/// Formats a duration: "12 ms", "3.2 s", "2m 5s".
pub fn duration(time: Duration) -> String {
    if time < Duration::from_secs(1) {
        format!("{} ms", time.as_millis())
    } else if time < Duration::from_secs(60) {
        format!("{:.1} s", time.as_secs_f64())
    } else {
        humantime::format_duration(Duration::from_secs(time.as_secs())).to_string()
    }
}

/// Formats a number of rows per second: "412,000 rows/s".
pub fn rate(rows: u64, time: Duration) -> String {
    let per_second = u128::from(rows) * 1_000_000 / time.as_micros().max(1);
    format!(
        "{} rows/s",
        count(u64::try_from(per_second).unwrap_or(u64::MAX))
    )
}

/// Formats a number with its noun: "1 row", "5 rows".
pub fn plural(number: u64, noun: &str) -> String {
    let ending = if number == 1 { "" } else { "s" };
    format!("{} {noun}{ending}", count(number))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_read_well() {
        assert_eq!(count(1_234_567), "1,234,567");
        assert_eq!(duration(Duration::from_millis(12)), "12 ms");
        assert_eq!(duration(Duration::from_millis(3_210)), "3.2 s");
        assert_eq!(rate(500, Duration::from_millis(250)), "2,000 rows/s");
        assert_eq!(plural(1, "row"), "1 row");
        assert_eq!(plural(0, "row"), "0 rows");
    }
}
