//! Adds notes to a stream of rows. The notes carry the id of the statement, its progress, and the
//! time and resources that it took.

use std::pin::Pin;
use std::str::FromStr;
use std::task::{Context, Poll};

use arrow_flight::FlightData;
use futures::stream::{Stream, StreamExt};
use tokio::time::{Interval, MissedTickBehavior};
use tonic::Status;
use tonic::metadata::MetadataMap;
use volary_flight_proto::ids::QueryId;
use volary_flight_proto::{Error, Result};
use volary_node::client_rows::ClientMessages;

use super::super::client_option::{is_on, option_header};
use super::super::poll::{LOOK_EVERY, percent};
use super::note::Note;
use crate::statements::Noted;

/// Header with which a client asks for the progress of its query.
const PROGRESS_HEADER: &str = "volary-progress";

/// Says whether a client receives notes with the progress of its query.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(in super::super) enum Progress {
    #[default]
    Untold,
    Told,
}

impl FromStr for Progress {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let is_on = is_on(PROGRESS_HEADER, text)?;
        Ok(if is_on { Self::Told } else { Self::Untold })
    }
}

impl Progress {
    /// Returns what the headers of a call ask for.
    pub(in super::super) fn of(metadata: &MetadataMap) -> Result<Self> {
        Ok(option_header(metadata, PROGRESS_HEADER)?.unwrap_or_default())
    }
}

/// A stream of a first note, the rows with notes of progress between them, and a last note. The
/// last note is sent only if all rows were sent.
pub(super) struct Told {
    begin: Option<Note>,
    /// The stream of rows. It is `None` after its end, so that the query's resources are released
    /// before the client reads the last note.
    rows: Option<ClientMessages>,
    id: QueryId,
    noted: Noted,
    progress: Option<Interval>,
    told: Option<u32>,
}

impl Told {
    /// Creates the stream. Must be called within a runtime.
    pub(super) fn new(
        begin: Note,
        rows: ClientMessages,
        id: QueryId,
        noted: Noted,
        progress: Progress,
    ) -> Self {
        let progress = (progress == Progress::Told).then(|| {
            let mut looks = tokio::time::interval(LOOK_EVERY);
            looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
            looks
        });
        Self {
            begin: Some(begin),
            rows: Some(rows),
            id,
            noted,
            progress,
            told: None,
        }
    }

    /// Returns a note with the progress of the query, if it has changed since the last note.
    fn poll_progress(&mut self, cx: &mut Context<'_>) -> Option<Note> {
        let looks = self.progress.as_mut()?;
        while looks.poll_tick(cx).is_ready() {
            let percent = self.noted.work().and_then(percent);
            if percent != self.told {
                self.told = percent;
                return percent.map(Note::of_progress);
            }
        }
        None
    }
}

impl Stream for Told {
    type Item = Result<FlightData, Status>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let told = &mut *self;
        if let Some(begin) = told.begin.take() {
            return Poll::Ready(Some(Ok(begin.message())));
        }
        if told.rows.is_some()
            && let Some(note) = told.poll_progress(cx)
        {
            return Poll::Ready(Some(Ok(note.message())));
        }
        let Some(rows) = &mut told.rows else {
            return Poll::Ready(None);
        };
        let polled = rows.poll_next_unpin(cx);
        match &polled {
            Poll::Ready(Some(Err(_))) => told.rows = None,
            Poll::Ready(None) => {
                told.rows = None;
                let end = Note::of_end(&told.noted.status(told.id), told.noted.rows());
                return Poll::Ready(Some(Ok(end.message())));
            }
            Poll::Ready(Some(Ok(_))) | Poll::Pending => {}
        }
        polled
    }
}

#[cfg(test)]
mod tests {
    use futures::stream;

    use super::*;

    fn told(rows: Vec<Result<FlightData, Status>>) -> Told {
        let id = QueryId::new();
        let rows = stream::iter(rows).boxed();
        Told::new(Note::of(id), rows, id, Noted::unlisted(), Progress::Untold)
    }

    fn row() -> Result<FlightData, Status> {
        Ok(FlightData::new().with_data_header(vec![1]))
    }

    #[tokio::test]
    async fn what_was_sent_to_its_end_says_what_it_took() {
        let messages: Vec<_> = told(vec![row(), row()]).collect().await;
        assert_eq!(messages.len(), 4);
        let last = messages[3].as_ref().unwrap();
        assert!(last.app_metadata.starts_with(b"{\"statistics\":"));
    }

    #[tokio::test]
    async fn nothing_comes_after_an_error() {
        let failed = Err(Status::internal("lost"));
        let messages: Vec<_> = told(vec![row(), failed, row()]).collect().await;
        assert_eq!(messages.len(), 3);
        assert!(messages[2].is_err());
    }
}
