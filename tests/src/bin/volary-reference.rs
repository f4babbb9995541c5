//! Writes the answers of DataFusion alone to the queries of a directory, for tests in other
//! languages: `volary-reference --sql-dir tests/queries/tpch --data DIR --out DIR`.

use std::fs::File;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use arrow::array::RecordBatch;
use parquet::arrow::ArrowWriter;
use parquet::arrow::arrow_writer::ArrowWriterOptions;
use volary_tests::reference::{DataFusionReference, queries};

const USAGE: &str = "usage: volary-reference --sql-dir DIR --data DIR --out DIR

Runs the queries in --sql-dir with DataFusion in this process. Each *.sql file except schema*.sql is a query, and each
<table>.parquet in --data is a table. Writes the rows of each query to <query file stem>.parquet in --out.";

#[tokio::main]
async fn main() -> Result<()> {
    let Some(arguments) = Arguments::parse(std::env::args().skip(1))? else {
        println!("{USAGE}");
        return Ok(());
    };
    let queries = queries(&arguments.sql_dir)?;
    let reference = DataFusionReference::over(&arguments.data).await?;
    std::fs::create_dir_all(&arguments.out)
        .with_context(|| format!("cannot create {}", arguments.out.display()))?;
    for (name, sql) in queries {
        let batches = reference
            .query(&sql)
            .await
            .with_context(|| format!("query {name}"))?;
        let file = arguments.out.join(format!("{name}.parquet"));
        let rows =
            write(&file, &batches).with_context(|| format!("cannot write {}", file.display()))?;
        println!("{name}: {rows} rows");
    }
    Ok(())
}

/// Writes rows to a Parquet file and returns their number. The file does not contain the Arrow
/// schema, so its readers get plain strings instead of string views.
fn write(file: &Path, batches: &[RecordBatch]) -> Result<usize> {
    let schema = batches
        .first()
        .context("an answer has at least one batch")?
        .schema();
    let options = ArrowWriterOptions::new().with_skip_arrow_metadata(true);
    let mut writer = ArrowWriter::try_new_with_options(File::create(file)?, schema, options)?;
    for batch in batches {
        writer.write(batch)?;
    }
    writer.close()?;
    Ok(batches.iter().map(RecordBatch::num_rows).sum())
}

struct Arguments {
    sql_dir: PathBuf,
    data: PathBuf,
    out: PathBuf,
}

impl Arguments {
    /// Parses the arguments. Returns `None` if the user asks for help.
    fn parse(mut arguments: impl Iterator<Item = String>) -> Result<Option<Self>> {
        let (mut sql_dir, mut data, mut out) = (None, None, None);
        while let Some(argument) = arguments.next() {
            let place = match argument.as_str() {
                "--sql-dir" => &mut sql_dir,
                "--data" => &mut data,
                "--out" => &mut out,
                "--help" | "-h" => return Ok(None),
                other => bail!("unknown argument {other}\n{USAGE}"),
            };
            let directory = arguments
                .next()
                .with_context(|| format!("{argument} needs a directory\n{USAGE}"))?;
            *place = Some(PathBuf::from(directory));
        }
        let required = |directory: Option<PathBuf>, flag| {
            directory.with_context(|| format!("{flag} is missing\n{USAGE}"))
        };
        Ok(Some(Self {
            sql_dir: required(sql_dir, "--sql-dir")?,
            data: required(data, "--data")?,
            out: required(out, "--out")?,
        }))
    }
}
