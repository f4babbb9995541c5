/// Writes rows as a Parquet or an Arrow file.
mod files;
/// Writes rows one below the other, with one line per value.
mod vertical;

use std::io::Write;
use std::path::Path;

use arrow::array::{AsArray, RecordBatch};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Schema};
use arrow::error::ArrowError;
use arrow::{csv, json};
use clap::ValueEnum;
use futures::StreamExt;
use volary_flight_proto::{Error, ErrorCode, Result};

use crate::client::RowStream;
use crate::table::TextTable;
use crate::terminal;

/// The format in which rows are written.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum OutputFormat {
    /// A table that fits the terminal
    #[default]
    Table,
    /// One line per value
    Vertical,
    /// CSV with a header; NULL is an empty field
    Csv,
    /// One JSON object per line
    Json,
    /// A Parquet file
    Parquet,
    /// An Arrow file (IPC, Feather)
    Arrow,
}

impl OutputFormat {
    /// Returns the format that the extension of a file name stands for, if it is known.
    pub fn for_file(path: &Path) -> Option<Self> {
        let extension = path.extension()?.to_str()?.to_ascii_lowercase();
        Some(match extension.as_str() {
            "csv" => Self::Csv,
            "json" | "jsonl" | "ndjson" => Self::Json,
            "parquet" => Self::Parquet,
            "arrow" | "feather" | "ipc" => Self::Arrow,
            "txt" => Self::Table,
            _ => return None,
        })
    }

    /// Returns whether the format is binary.
    pub fn is_binary(self) -> bool {
        matches!(self, Self::Parquet | Self::Arrow)
    }

    /// Returns whether the format is for people, who read one screen at a time.
    pub fn is_for_people(self) -> bool {
        matches!(self, Self::Table | Self::Vertical)
    }
}

/// Writes the rows of one statement.
#[derive(Debug)]
pub struct Printer {
    output: OutputFormat,
    max_rows: usize,
    width: Option<usize>,
}

impl Printer {
    /// Creates a printer. A table shows at most `max_rows` rows, and is at most `width` characters
    /// wide.
    pub fn new(output: OutputFormat, max_rows: usize, width: Option<usize>) -> Self {
        Self {
            output,
            max_rows,
            width,
        }
    }

    /// Writes `rows` as they arrive, and returns their number. A table is written after its last
    /// row has arrived.
    ///
    /// # Errors
    /// Returns the errors of the statement and of `out`, and `INVALID_ARGUMENT` if the format
    /// cannot represent a type.
    pub async fn print(&self, rows: RowStream, out: &mut (impl Write + Send)) -> Result<u64> {
        match self.output {
            OutputFormat::Table | OutputFormat::Vertical if is_plan(&rows.schema) => {
                print_plan(rows, out).await
            }
            OutputFormat::Table => self.print_table(rows, out).await,
            OutputFormat::Vertical => self.print_vertical(rows, out).await,
            OutputFormat::Csv => print_csv(rows, out).await,
            OutputFormat::Json => print_json(rows, out).await,
            OutputFormat::Parquet => files::print_parquet(rows, out).await,
            OutputFormat::Arrow => files::print_arrow(rows, out).await,
        }
    }

    async fn print_table(&self, rows: RowStream, out: &mut impl Write) -> Result<u64> {
        let mut table = TextTable::new(&rows.schema);
        let has_columns = !rows.schema.fields().is_empty();
        let count = for_each_batch(rows, |batch| {
            let room = self.max_rows.saturating_sub(table.len());
            let shown = batch.slice(0, batch.num_rows().min(room));
            table.push(&shown).map_err(format_error)
        })
        .await?;
        if has_columns {
            let mut text = table.render(self.width).join("\n");
            text.push_str(&hidden_rows_note(count.saturating_sub(table.len() as u64)));
            write(out, format!("{text}\n").as_bytes())?;
        }
        Ok(count)
    }

    async fn print_vertical(&self, rows: RowStream, out: &mut impl Write) -> Result<u64> {
        let (mut text, mut shown) = (String::new(), 0_u64);
        let count = for_each_batch(rows, |batch| {
            let room =
                usize::try_from(shown).map_or(0, |shown| self.max_rows.saturating_sub(shown));
            let part = batch.slice(0, batch.num_rows().min(room));
            vertical::push(&mut text, &part, shown).map_err(format_error)?;
            shown += part.num_rows() as u64;
            Ok(())
        })
        .await?;
        let more = hidden_rows_note(count.saturating_sub(shown));
        let more = more.trim_start_matches('\n');
        if !more.is_empty() {
            text.push_str(&format!("{more}\n"));
        }
        write(out, text.as_bytes())?;
        Ok(count)
    }
}

/// Returns the text about rows that are not shown.
fn hidden_rows_note(rows: u64) -> String {
    if rows == 0 {
        return String::new();
    }
    let rows = terminal::plural(rows, "more row");
    format!("\n… {rows}; --max-rows 0 shows all")
}

/// Returns whether the rows are the plans of an EXPLAIN. Plans have several lines of text, which a
/// table would put into one line.
fn is_plan(schema: &Schema) -> bool {
    let names: Vec<_> = schema
        .fields()
        .iter()
        .map(|field| field.name().as_str())
        .collect();
    names == ["plan_type", "plan"]
}

async fn print_plan(rows: RowStream, out: &mut impl Write) -> Result<u64> {
    for_each_batch(rows, |batch| {
        let text =
            |column: usize| cast(batch.column(column), &DataType::Utf8).map_err(format_error);
        let (kinds, plans) = (text(0)?, text(1)?);
        for (kind, plan) in kinds
            .as_string::<i32>()
            .iter()
            .zip(plans.as_string::<i32>())
        {
            let (kind, plan) = (
                kind.unwrap_or_default(),
                plan.unwrap_or_default().trim_end(),
            );
            write(out, format!("{kind}:\n{plan}\n\n").as_bytes())?;
        }
        Ok(())
    })
    .await
}

async fn print_csv(rows: RowStream, out: &mut impl Write) -> Result<u64> {
    // The header is written even if there are no rows.
    if !rows.schema.fields().is_empty() {
        let empty = RecordBatch::new_empty(rows.schema.clone());
        write(out, &encode_csv(&empty, true)?)?;
    }
    for_each_batch(rows, |batch| write(out, &encode_csv(batch, false)?)).await
}

async fn print_json(rows: RowStream, out: &mut impl Write) -> Result<u64> {
    for_each_batch(rows, |batch| write(out, &encode_json(batch)?)).await
}

async fn for_each_batch(
    mut rows: RowStream,
    mut show: impl FnMut(&RecordBatch) -> Result<()>,
) -> Result<u64> {
    let mut count = 0;
    while let Some(batch) = rows.batches.next().await {
        let batch = batch?;
        count += batch.num_rows() as u64;
        show(&batch)?;
    }
    Ok(count)
}

// Each batch is encoded as a whole before it is written, so that errors of `out` and errors of the
// rows can be told apart.

fn encode_csv(batch: &RecordBatch, header: bool) -> Result<Vec<u8>> {
    let mut text = Vec::new();
    csv::WriterBuilder::new()
        .with_header(header)
        .build(&mut text)
        .write(batch)
        .map_err(format_error)?;
    Ok(text)
}

fn encode_json(batch: &RecordBatch) -> Result<Vec<u8>> {
    let mut text = Vec::new();
    let mut writer = json::WriterBuilder::new()
        .with_explicit_nulls(true)
        .build::<_, json::writer::LineDelimited>(&mut text);
    writer.write(batch).map_err(format_error)?;
    writer.finish().map_err(format_error)?;
    drop(writer);
    Ok(text)
}

fn write(out: &mut impl Write, text: &[u8]) -> Result<()> {
    out.write_all(text)
        .and_then(|()| out.flush())
        .map_err(terminal::output_failed)
}

fn format_error(source: ArrowError) -> Error {
    Error::with_source(
        ErrorCode::InvalidArgument,
        "the rows cannot be written in this format; choose another --output, or CAST the column",
        source,
    )
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{ArrayRef, Int64Array, StringViewArray};
    use futures::executor::block_on;
    use futures::stream;

    use super::*;

    fn print(output: OutputFormat, max_rows: usize, batches: usize) -> (String, u64) {
        let n: ArrayRef = Arc::new(Int64Array::from(vec![Some(1), None]));
        let s: ArrayRef = Arc::new(StringViewArray::from(vec![Some("a, \"b\""), None]));
        let batch =
            RecordBatch::try_from_iter_with_nullable([("n", n, true), ("s", s, true)]).unwrap();
        let schema = batch.schema();
        let batches: Vec<_> = (0..batches).map(|_| Ok(batch.clone())).collect();
        let rows = RowStream {
            schema,
            batches: stream::iter(batches).boxed(),
            query_id: None,
        };
        let mut out = Vec::new();
        let count = block_on(Printer::new(output, max_rows, None).print(rows, &mut out)).unwrap();
        (String::from_utf8(out).unwrap(), count)
    }

    #[test]
    fn csv_has_one_header_and_nothing_for_null() {
        let rows = "1,\"a, \"\"b\"\"\"\n,\n";
        assert_eq!(
            print(OutputFormat::Csv, 9, 2),
            (format!("n,s\n{rows}{rows}"), 4)
        );
        assert_eq!(print(OutputFormat::Csv, 9, 0), ("n,s\n".to_owned(), 0));
    }

    #[test]
    fn rows_one_below_the_other_are_numbered_and_bounded() {
        let (text, count) = print(OutputFormat::Vertical, 3, 2);
        assert_eq!(count, 4);
        assert_eq!(
            text,
            "── row 1\nn  1\ns  a, \"b\"\n── row 2\nn  NULL\ns  NULL\n── row 3\nn  1\ns  a, \"b\"\n… 1 more row; --max-rows 0 shows all\n"
        );
    }

    #[test]
    fn the_name_of_a_file_says_what_is_in_it() {
        for (name, expected) in [
            ("a.csv", Some(OutputFormat::Csv)),
            ("dir.x/B.PARQUET", Some(OutputFormat::Parquet)),
            ("a.feather", Some(OutputFormat::Arrow)),
            ("a.xlsx", None),
            ("parquet", None),
        ] {
            assert_eq!(OutputFormat::for_file(Path::new(name)), expected, "{name}");
        }
    }

    #[test]
    fn json_is_one_object_a_line_with_nulls() {
        let rows = "{\"n\":1,\"s\":\"a, \\\"b\\\"\"}\n{\"n\":null,\"s\":null}\n";
        assert_eq!(print(OutputFormat::Json, 9, 1), (rows.to_owned(), 2));
    }

    #[test]
    fn a_table_is_bounded_and_says_what_it_leaves_out() {
        let (text, count) = print(OutputFormat::Table, 3, 3);
        assert_eq!(count, 6);
        assert_eq!(text.lines().count(), 2 + 3 + 1, "{text}");
        assert!(
            text.ends_with("… 3 more rows; --max-rows 0 shows all\n"),
            "{text}"
        );
    }
}
