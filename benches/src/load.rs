//! Loading beside plain Parquet writing.

use std::path::Path;

use anyhow::{Context, Result};
use arrow::array::AsArray;
use arrow::datatypes::Int64Type;
use datafusion::dataframe::DataFrameWriteOptions;
use datafusion::prelude::{ParquetReadOptions, SessionContext};
use volary_cli::client::Client;

use crate::interleaved::{Times, timed};
use crate::report::Line;

/// How many rows are loaded in a turn.
///
/// # Errors
/// Those of the statement.
pub async fn rows(client: &mut Client) -> Result<u64> {
    let counted = client.collect("SELECT count(*) FROM lineitem").await?;
    let counts = counted.column(0).as_primitive::<Int64Type>();
    Ok(u64::try_from(counts.value(0))?)
}

/// COPY of lineitem into an empty table beside DataFusion's copy of the same file into another Parquet file (the same
/// compression, one process), in turns.
///
/// # Errors
/// Those of the statements.
pub async fn compare(client: &mut Client, data: &Path, out: &Path, rounds: usize) -> Result<Line> {
    let source = data.join("lineitem.parquet");
    let source = source.to_str().context("the path is no text")?.to_owned();
    let mut line = Line {
        name: "lineitem".to_owned(),
        ours: Times::default(),
        theirs: Times::default(),
    };
    for round in 0..rounds {
        let create = format!(
            "CREATE TABLE load_{round} WITH (shard_key = 'l_orderkey') AS SELECT * FROM lineitem WHERE false"
        );
        client.collect(&create).await?;
        let copy = format!("COPY load_{round} FROM '{source}'");
        let (_, ours) = timed(async { Ok(client.collect(&copy).await?) }).await?;
        client.collect(&format!("DROP TABLE load_{round}")).await?;
        let target = out.join(format!("plain_{round}"));
        let target = target.to_str().context("the path is no text")?.to_owned();
        let (_, theirs) = timed(async {
            let context = SessionContext::new();
            let rows = context
                .read_parquet(source.as_str(), ParquetReadOptions::default())
                .await?;
            let mut options = context.state().default_table_options().parquet;
            options.global.compression = Some("zstd(1)".to_owned());
            rows.write_parquet(&target, DataFrameWriteOptions::new(), Some(options))
                .await?;
            Ok(())
        })
        .await?;
        line.ours.push(ours);
        line.theirs.push(theirs);
    }
    Ok(line)
}
