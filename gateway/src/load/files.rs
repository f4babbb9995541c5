/// Prepares the options of CSV files, and names their columns.
mod csv;
/// Checks the footer of a Parquet file before the Parquet reader sees it.
mod footer;
/// Finds out the format of a file by its name, or by the options of the statement.
mod format;
/// Reads files of newline-delimited JSON.
mod json;
/// Finds the files of a COPY.
mod location;
/// Reads Parquet files, whose footers are read only once, and checked before they are decoded.
mod parquet;
/// Opens the stores that files are read from.
mod store;
/// Walks over messages of Thrift's compact protocol, in which footers are written.
mod thrift;
/// Divides files into parts that are read separately.
mod unit;

use std::sync::Arc;

use datafusion::execution::TaskContext;
use datafusion::execution::session_state::SessionState;
use futures::{StreamExt, TryStreamExt, stream};
use volary_catalog::Table;
use volary_flight_proto::{Error, Result};

use super::roots::AllowedRoots;
use super::source::{RowSource, RowStream};
use crate::config::Load;
use crate::sql::copy::CopyFrom;
use location::CopyLocation;
use unit::ReadUnit;

/// Opens the files that a COPY names. All of them are checked before the first row is read.
///
/// # Errors
/// `PERMISSION_DENIED` outside the allowed roots, `NOT_FOUND` if there is no such file or root,
/// `DATA_LOSS` for a damaged file, and `INVALID_ARGUMENT` for options and columns that do not fit.
/// The errors of a file name the file.
pub async fn open(
    config: &Load,
    state: &SessionState,
    task: Arc<TaskContext>,
    table: &Arc<Table>,
    copy: &CopyFrom,
) -> Result<RowSource> {
    let roots = AllowedRoots::parse(&config.allowed_roots);
    let location = CopyLocation::open(&roots, state, table, copy)?;
    let files = location.files().await?;
    let partitions = state.config().target_partitions();
    let mut units: Vec<Vec<ReadUnit>> = (0..partitions).map(|_| Vec::new()).collect();
    let mut next = 0;
    for file in files {
        let name = location.file_name(&file);
        roots.check_file(&location.url, &file.location, &name)?;
        let file_units = unit::divide_file(&location, file, &name).await;
        for unit in file_units.map_err(|error| error.at(format!("file {name}")))? {
            units[next % partitions].push(unit);
            next += 1;
        }
    }
    let streams = units
        .into_iter()
        .filter(|units| !units.is_empty())
        .map(|units| read(units, Arc::clone(&task), table))
        .collect();
    Ok(RowSource::new(streams))
}

/// Returns the rows of the units with the table's columns, one unit after the other.
fn read(units: Vec<ReadUnit>, task: Arc<TaskContext>, table: &Arc<Table>) -> RowStream {
    let table = Arc::clone(table);
    stream::iter(units)
        .map(move |unit| {
            let name = unit.name().to_owned();
            let at = move |error: Error| error.at(format!("file {name}"));
            match unit.rows(&table, &task) {
                Ok(rows) => Ok(rows.map_err(at)),
                Err(error) => Err(at(error)),
            }
        })
        .try_flatten()
        .boxed()
}
