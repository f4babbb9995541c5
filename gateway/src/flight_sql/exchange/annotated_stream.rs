use std::pin::Pin;
use std::str::FromStr;
use std::task::{Context, Poll};

use arrow_flight::FlightData;
use futures::stream::{Stream, StreamExt};
use tokio::time::{Interval, MissedTickBehavior};
use tonic::Status;
use tonic::metadata::MetadataMap;
use volary_exec::client_rows::ClientMessages;
use volary_flight_proto::ids::QueryId;
use volary_flight_proto::{Error, Result};

use super::super::client_option::{is_on, option_header};
use super::super::poll::{PROGRESS_INTERVAL, percent_done};
use super::note::Note;
use crate::statements::ProgressHandle;

/// Header with which a client asks for the progress of its query.
const PROGRESS_HEADER: &str = "volary-progress";

/// Says whether a client receives notes with the progress of its query.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(in super::super) enum ProgressNotes {
    #[default]
    Off,
    On,
}

impl FromStr for ProgressNotes {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let is_on = is_on(PROGRESS_HEADER, text)?;
        Ok(if is_on { Self::On } else { Self::Off })
    }
}

impl ProgressNotes {
    /// Returns whether the headers of a call ask for progress notes.
    pub(in super::super) fn from_headers(metadata: &MetadataMap) -> Result<Self> {
        Ok(option_header(metadata, PROGRESS_HEADER)?.unwrap_or_default())
    }
}

/// A stream of a first note, the rows with notes of progress between them, and a last note. The
/// last note is sent only if all rows were sent.
pub(super) struct AnnotatedStream {
    first_note: Option<Note>,
    /// The stream of rows. It is `None` after its end, so that the query's resources are released
    /// before the client reads the last note.
    rows: Option<ClientMessages>,
    id: QueryId,
    noted: ProgressHandle,
    progress_interval: Option<Interval>,
    last_percent: Option<u32>,
}

impl AnnotatedStream {
    /// Creates the stream. Must be called within a runtime.
    pub(super) fn new(
        begin: Note,
        rows: ClientMessages,
        id: QueryId,
        noted: ProgressHandle,
        progress: ProgressNotes,
    ) -> Self {
        let progress = (progress == ProgressNotes::On).then(|| {
            let mut interval = tokio::time::interval(PROGRESS_INTERVAL);
            interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
            interval
        });
        Self {
            first_note: Some(begin),
            rows: Some(rows),
            id,
            noted,
            progress_interval: progress,
            last_percent: None,
        }
    }

    /// Returns a note with the progress of the query, if it has changed since the last note.
    fn poll_progress(&mut self, cx: &mut Context<'_>) -> Option<Note> {
        let interval = self.progress_interval.as_mut()?;
        while interval.poll_tick(cx).is_ready() {
            let percent = self.noted.work().and_then(percent_done);
            if percent != self.last_percent {
                self.last_percent = percent;
                return percent.map(Note::for_progress);
            }
        }
        None
    }
}

impl Stream for AnnotatedStream {
    type Item = Result<FlightData, Status>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = &mut *self;
        if let Some(begin) = this.first_note.take() {
            return Poll::Ready(Some(Ok(begin.message())));
        }
        if this.rows.is_some()
            && let Some(note) = this.poll_progress(cx)
        {
            return Poll::Ready(Some(Ok(note.message())));
        }
        let Some(rows) = &mut this.rows else {
            return Poll::Ready(None);
        };
        let polled = rows.poll_next_unpin(cx);
        match &polled {
            Poll::Ready(Some(Err(_))) => this.rows = None,
            Poll::Ready(None) => {
                this.rows = None;
                let end = Note::for_end(&this.noted.status(this.id), this.noted.rows());
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

    fn told(rows: Vec<Result<FlightData, Status>>) -> AnnotatedStream {
        let id = QueryId::new();
        let rows = stream::iter(rows).boxed();
        AnnotatedStream::new(
            Note::for_query(id),
            rows,
            id,
            ProgressHandle::unlisted(),
            ProgressNotes::Off,
        )
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
