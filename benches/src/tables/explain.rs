use anyhow::{Context, Result};
use arrow::array::RecordBatch;
use arrow::util::display::array_value_to_string;
use bytesize::ByteSize;

/// Returns all values of the rows as text.
pub(super) fn explain_text(rows: &RecordBatch) -> Result<String> {
    let mut text = String::new();
    for column in rows.columns() {
        for row in 0..rows.num_rows() {
            text.push_str(&array_value_to_string(column, row)?);
            text.push('\n');
        }
    }
    Ok(text)
}

/// Parses the size at the start of a text, such as `97.3 KiB`, and returns it in bytes.
pub(super) fn parse_size(text: &str) -> Result<u64> {
    let is_number = |character: char| character.is_ascii_digit() || character == '.';
    let unit = text.trim_start_matches(is_number);
    let number = &text[..text.len() - unit.len()];
    let unit = unit.trim_start();
    let unit_end = unit
        .find(|character: char| !character.is_ascii_alphabetic())
        .unwrap_or(unit.len());
    let size = format!("{number} {}", &unit[..unit_end]);
    let size: Result<ByteSize, String> = size.trim_end().parse();
    let size = size.map_err(anyhow::Error::msg);
    Ok(size.context("EXPLAIN ANALYZE shows no size")?.as_u64())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_size_ends_with_its_unit() {
        for (text, bytes) in [("1.5 KiB/2 MiB", 1_536), ("512 B, x", 512), ("0 B", 0)] {
            assert_eq!(parse_size(text).unwrap(), bytes, "{text}");
        }
        assert!(parse_size("many").is_err());
    }
}
