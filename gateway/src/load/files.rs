//! COPY: which files, in which format.

/// The options of CSV files, and the names of their columns.
mod csv;
/// What is checked of a Parquet file's footer.
mod footer;
/// A file's format, by its name or by what is said.
mod format;
/// Files of newline-delimited JSON.
mod json;
/// Where the files of a COPY are.
mod location;
/// Parquet files, whose footers are read once.
mod parquet;
/// The stores that files are read from.
mod store;
/// Thrift messages, which footers are.
mod thrift;
/// Parts of files, each of which is read by itself.
mod unit;

use std::sync::Arc;

use datafusion::execution::TaskContext;
use datafusion::execution::session_state::SessionState;
use futures::{StreamExt, TryStreamExt, stream};
use volary_catalog::Table;
use volary_flight_proto::{Error, Result};

use super::roots::Roots;
use super::source::{Rows, Source};
use crate::config::Load;
use crate::sql::copy::CopyFrom;
use location::Location;
use unit::Unit;

/// Opens the files that COPY names, all of them checked before the first row is read.
///
/// # Errors
/// `PERMISSION_DENIED` outside the allowed roots, `NOT_FOUND` where there is no file or root, `DATA_LOSS` for a damaged one, and
/// `INVALID_ARGUMENT` for options and columns that do not fit; errors name the file.
pub async fn open(
    config: &Load,
    state: &SessionState,
    task: Arc<TaskContext>,
    table: &Arc<Table>,
    copy: &CopyFrom,
) -> Result<Source> {
    let roots = Roots::parse(&config.allowed_roots);
    let location = Location::open(&roots, state, table, copy)?;
    let files = location.files().await?;
    let partitions = state.config().target_partitions();
    let mut units: Vec<Vec<Unit>> = (0..partitions).map(|_| Vec::new()).collect();
    let mut next = 0;
    for file in files {
        let name = location.name_of(&file);
        roots.check_file(&location.url, &file.location, &name)?;
        let of_file = unit::of_file(&location, file, &name).await;
        for unit in of_file.map_err(|error| error.at(format!("file {name}")))? {
            units[next % partitions].push(unit);
            next += 1;
        }
    }
    let streams = units
        .into_iter()
        .filter(|units| !units.is_empty())
        .map(|units| read(units, Arc::clone(&task), table))
        .collect();
    Ok(Source::new(streams))
}

/// The units' rows, one unit after the other, as the table's columns.
fn read(units: Vec<Unit>, task: Arc<TaskContext>, table: &Arc<Table>) -> Rows {
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
