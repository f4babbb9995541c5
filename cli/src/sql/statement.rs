use std::fs::File;
use std::io::BufWriter;
use std::time::Instant;

use arrow_flight::FlightInfo;
use parking_lot::Mutex;
use volary_flight_proto::{Error, Result};

use super::output::Printer;
use super::progress::Progress;
use super::{DisplayOptions, pager, splitter, statistics};
use crate::client::{Client, RowStream, StatementProgress};
use crate::terminal;

/// Runs one statement. Rows go to standard output or a file, and messages about them go to standard
/// error. If progress is shown, `cancel_info` is set to what [`Client::cancel`] needs once the
/// statement runs.
pub(super) async fn run_statement(
    client: &mut Client,
    statement: &str,
    show: &DisplayOptions,
    cancel_info: &Mutex<Option<FlightInfo>>,
) -> Result<()> {
    let start = Instant::now();
    let rows = if show.shows_progress {
        let mut progress = Progress::new();
        let mut on_progress = |polled: StatementProgress<'_>| {
            *cancel_info.lock() = Some(polled.info.clone());
            progress.update(&polled);
        };
        client
            .run_with_progress(statement, &mut on_progress)
            .await?
    } else {
        client.run(statement).await?
    };
    let query_id = rows.query_id.clone();
    let message = if splitter::is_query(statement) {
        let printed = print(rows, show).await?;
        let rows = terminal::plural(printed, "row");
        match &show.to_file {
            Some(path) => format!("{rows} in {}", path.display()),
            None => rows,
        }
    } else {
        match rows.rows_written().await? {
            0 => "done".to_owned(),
            written => format!("{} written", terminal::plural(written, "row")),
        }
    };
    if show.shows_timing {
        let took = terminal::duration(start.elapsed());
        let statistics_text = match query_id {
            Some(id) => statistics::describe_query(client, &id).await,
            None => String::new(),
        };
        eprintln!("({message}, {took}{statistics_text})");
    } else if show.output.is_for_people() || show.to_file.is_some() {
        eprintln!("({message})");
    }
    Ok(())
}

/// Writes the rows and returns their number.
async fn print(rows: RowStream, show: &DisplayOptions) -> Result<u64> {
    let printer = |width| Printer::new(show.output, show.max_rows, width);
    if let Some(path) = &show.to_file {
        let failed = |source| Error::io(format!("cannot write {}", path.display()), source);
        let mut file = BufWriter::new(File::create(path).map_err(failed)?);
        let printed = printer(None).print(rows, &mut file).await?;
        // Writing the last bytes may fail, too.
        file.into_inner()
            .map_err(|error| failed(error.into_error()))?;
        return Ok(printed);
    }
    let width = terminal::width();
    if show.uses_pager && show.output.is_for_people() {
        let mut text = Vec::new();
        let printed = printer(width).print(rows, &mut text).await?;
        pager::show(&text)?;
        return Ok(printed);
    }
    printer(width).print(rows, &mut std::io::stdout()).await
}
