use arrow::array::RecordBatch;
use arrow::error::ArrowError;
use arrow::util::display::{ArrayFormatter, FormatOptions};

const SEPARATOR: &str = "  ";
const ELLIPSIS: char = '…';
/// Smallest width to which a column is cut to make the table fit the terminal.
const MIN_WIDTH: usize = 6;

/// A table of text cells with headings.
#[derive(Debug, Default)]
pub struct TextTable {
    columns: Vec<Column>,
    rows: Vec<Vec<String>>,
}

#[derive(Debug)]
struct Column {
    name: String,
    is_number: bool,
}

impl TextTable {
    /// Creates an empty table with the columns of `schema`.
    pub fn new(schema: &arrow::datatypes::Schema) -> Self {
        let columns = schema
            .fields()
            .iter()
            .map(|field| Column {
                name: printable(field.name()),
                is_number: field.data_type().is_numeric(),
            })
            .collect();
        Self {
            columns,
            rows: Vec::new(),
        }
    }

    /// Returns the number of rows.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Returns whether the table has no rows.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Adds rows with the columns of the table. NULL is shown as `NULL`.
    ///
    /// # Errors
    /// Returns an error if a value cannot be shown.
    pub fn push(&mut self, batch: &RecordBatch) -> Result<(), ArrowError> {
        self.rows.extend(Self::cells(batch)?);
        Ok(())
    }

    /// Returns the values of a batch as text, row by row. NULL is shown as `NULL`.
    ///
    /// # Errors
    /// Returns an error if a value cannot be shown.
    pub fn cells(batch: &RecordBatch) -> Result<Vec<Vec<String>>, ArrowError> {
        let options = FormatOptions::default()
            .with_null("NULL")
            .with_display_error(true);
        let formatters = batch
            .columns()
            .iter()
            .map(|column| ArrayFormatter::try_new(column, &options))
            .collect::<Result<Vec<_>, _>>()?;
        let row = |row: usize| {
            let cells = formatters.iter();
            let cells = cells.map(|cell| printable(&cell.value(row).to_string()));
            cells.collect()
        };
        Ok((0..batch.num_rows()).map(row).collect())
    }

    /// Replaces the cells of a column with what `show` returns. A cell stays if `show` returns
    /// `None`.
    pub fn map_column(&mut self, name: &str, show: impl Fn(&str) -> Option<String>) {
        let Some(index) = self.columns.iter().position(|column| column.name == name) else {
            return;
        };
        for cell in self.rows.iter_mut().filter_map(|row| row.get_mut(index)) {
            if let Some(shown) = show(cell) {
                *cell = shown;
            }
        }
    }

    /// Gives a column another heading.
    pub fn rename_column(&mut self, name: &str, heading: &str) {
        for column in self.columns.iter_mut().filter(|column| column.name == name) {
            heading.clone_into(&mut column.name);
        }
    }

    /// Returns the table as lines of at most `width` characters. To fit, it cuts the widest cells
    /// and leaves out columns at the end. With `None`, the table is as wide as its content.
    pub fn render(&self, width: Option<usize>) -> Vec<String> {
        let mut widths = self.natural_widths();
        let hidden = width.map_or(0, |width| fit_widths(&mut widths, width));
        let mut lines = Vec::with_capacity(self.rows.len() + 3);
        let heads = self.columns.iter().map(|column| column.name.as_str());
        lines.push(self.line(heads, &widths));
        lines.push(
            widths
                .iter()
                .map(|width| "─".repeat(*width))
                .collect::<Vec<_>>()
                .join(SEPARATOR),
        );
        for row in &self.rows {
            lines.push(self.line(row.iter().map(String::as_str), &widths));
        }
        if hidden > 0 {
            let what = if hidden == 1 {
                "column does"
            } else {
                "columns do"
            };
            lines.push(format!(
                "({hidden} more {what} not fit; use --output csv or json)"
            ));
        }
        lines
    }

    fn natural_widths(&self) -> Vec<usize> {
        let mut widths: Vec<usize> = self
            .columns
            .iter()
            .map(|column| column.name.chars().count())
            .collect();
        for row in &self.rows {
            for (width, cell) in widths.iter_mut().zip(row) {
                *width = (*width).max(cell.chars().count());
            }
        }
        widths
    }

    fn line<'a>(&self, cells: impl Iterator<Item = &'a str>, widths: &[usize]) -> String {
        let cells = cells.zip(widths).zip(&self.columns);
        let line = cells
            .map(|((cell, width), column)| {
                let cell = truncate(cell, *width);
                if column.is_number {
                    format!("{cell:>width$}")
                } else {
                    format!("{cell:<width$}")
                }
            })
            .collect::<Vec<_>>()
            .join(SEPARATOR);
        line.trim_end().to_owned()
    }
}

/// Narrows the widest columns until all fit, but none below [`MIN_WIDTH`]. If that is not enough,
/// removes columns at the end. Returns the number of removed columns.
fn fit_widths(widths: &mut Vec<usize>, available: usize) -> usize {
    let total = |widths: &[usize]| {
        widths.iter().sum::<usize>() + SEPARATOR.len() * widths.len().saturating_sub(1)
    };
    let columns = widths.len();
    while total(widths) > available {
        let excess = total(widths) - available;
        let widest = widths.iter().copied().max().unwrap_or(0);
        let next = widths
            .iter()
            .copied()
            .filter(|width| *width < widest)
            .max()
            .unwrap_or(0)
            .max(MIN_WIDTH);
        if widest <= MIN_WIDTH {
            if widths.len() <= 1 {
                break;
            }
            widths.pop();
            continue;
        }
        let count = widths.iter().filter(|width| **width == widest).count();
        let narrower = widest.saturating_sub(excess.div_ceil(count)).max(next);
        // The next column may be only a little narrower than the widest ones. This minimum makes
        // sure that each step makes the widest ones narrower.
        let narrower = narrower.min(widest - 1);
        for width in widths.iter_mut().filter(|width| **width == widest) {
            *width = narrower;
        }
    }
    columns - widths.len()
}

fn truncate(cell: &str, width: usize) -> String {
    if cell.chars().count() <= width {
        return cell.to_owned();
    }
    let mut text: String = cell.chars().take(width.saturating_sub(1)).collect();
    text.push(ELLIPSIS);
    text
}

/// Replaces line breaks and other control characters. They would break the table or control the
/// terminal.
fn printable(text: &str) -> String {
    if text.chars().any(char::is_control) {
        text.chars()
            .map(|c| if c.is_control() { ' ' } else { c })
            .collect()
    } else {
        text.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{ArrayRef, Int64Array, StringArray};

    use super::*;

    fn table() -> TextTable {
        let numbers: ArrayRef = Arc::new(Int64Array::from(vec![Some(1), None]));
        let texts: ArrayRef = Arc::new(StringArray::from(vec![
            Some("a\nlong text that goes on and on"),
            None,
        ]));
        let batch = RecordBatch::try_from_iter([("number", numbers), ("text", texts)]).unwrap();
        let mut table = TextTable::new(&batch.schema());
        table.push(&batch).unwrap();
        table
    }

    #[test]
    fn numbers_are_right_aligned_and_null_is_shown() {
        let lines = table().render(None);
        assert_eq!(lines[0], "number  text");
        assert_eq!(lines[1], format!("──────  {}", "─".repeat(31)));
        assert_eq!(lines[2], "     1  a long text that goes on and on");
        assert_eq!(lines[3], "  NULL  NULL");
    }

    #[test]
    fn the_widest_column_is_cut_to_fit() {
        let lines = table().render(Some(20));
        assert_eq!(lines[2], "     1  a long text…");
        assert!(
            lines.iter().all(|line| line.chars().count() <= 20),
            "{lines:?}"
        );
    }

    #[test]
    fn columns_that_do_not_fit_are_left_out_and_counted() {
        let lines = table().render(Some(10));
        assert_eq!(lines[0], "number");
        assert!(
            lines[4].contains("(1 more column does not fit;"),
            "{lines:?}"
        );
    }
}
