use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Context, Result, ensure};
use arrow::array::RecordBatch;
use arrow::ipc::writer::{DictionaryTracker, IpcDataGenerator, IpcWriteContext, IpcWriteOptions};
use arrow_flight::flight_service_client::FlightServiceClient;
use arrow_flight::sql::ProstMessageExt;
use arrow_flight::{FlightData, FlightDescriptor, SchemaAsIpc};
use futures::channel::mpsc;
use futures::future::{BoxFuture, LocalBoxFuture};
use futures::{FutureExt, SinkExt};
use prost::Message;
use serde::Deserialize;
use tonic::Streaming;
use volary_node::channel::Transport;

use super::volary::{Ingest, append_command, flight_sql_client};
use super::{Way, WriteRows};
use crate::local_process::LocalProcess;

/// Number of messages that may wait to be sent. A writer sends a batch only after the answer to the
/// one before it.
const MESSAGES_AHEAD: usize = 2;

/// Writes batches on a stream that stays open (docs/clients/pyarrow.md), each after the answer to
/// the one before it.
#[derive(Debug)]
pub struct Streams {
    process: Rc<LocalProcess>,
    /// Number of tables that were created. A stream is open for one table.
    tables: Arc<AtomicU64>,
}

impl Streams {
    /// Creates the way to write to this cluster.
    pub fn new(process: Rc<LocalProcess>) -> Self {
        Self {
            process,
            tables: Arc::default(),
        }
    }
}

impl Way for Streams {
    fn name(&self) -> &'static str {
        "Volary, streams"
    }

    fn connect(&self) -> LocalBoxFuture<'_, Result<Box<dyn WriteRows>>> {
        async {
            let client = flight_sql_client(self.process.uri()).await?;
            let writer = StreamingWriter {
                client: client.into_inner(),
                tables: Arc::clone(&self.tables),
                stream: None,
            };
            Ok(Box::new(writer) as Box<dyn WriteRows>)
        }
        .boxed_local()
    }

    fn empty_table(&self) -> LocalBoxFuture<'_, Result<()>> {
        async {
            Ingest(Rc::clone(&self.process)).empty_table().await?;
            self.tables.fetch_add(1, Ordering::Relaxed);
            Ok(())
        }
        .boxed_local()
    }

    fn syncs(&self) -> LocalBoxFuture<'_, Result<Option<f64>>> {
        async { Ingest(Rc::clone(&self.process)).syncs().await }.boxed_local()
    }
}

struct StreamingWriter {
    client: FlightServiceClient<Transport>,
    tables: Arc<AtomicU64>,
    /// The open stream, and the number of its table.
    stream: Option<(u64, OpenStream)>,
}

/// A stream on which batches are answered.
struct OpenStream {
    messages: mpsc::Sender<FlightData>,
    answers: Streaming<FlightData>,
    /// The number of the last batch.
    sequence: u64,
}

/// The answer to a batch.
#[derive(Debug, Deserialize)]
struct Answer {
    sequence: u64,
    outcome: String,
}

impl StreamingWriter {
    async fn write_on_stream(&mut self, rows: &RecordBatch) -> Result<()> {
        let table = self.tables.load(Ordering::Relaxed);
        let stream = match self.stream.take_if(|(open_for, _)| *open_for == table) {
            Some((_, stream)) => stream,
            None => OpenStream::open(&mut self.client, rows).await?,
        };
        let (_, stream) = self.stream.insert((table, stream));
        stream.write(rows).await
    }
}

impl OpenStream {
    async fn open(client: &mut FlightServiceClient<Transport>, rows: &RecordBatch) -> Result<Self> {
        let mut command = append_command();
        command.options = [("stream".to_owned(), "true".to_owned())].into();
        let descriptor = FlightDescriptor::new_cmd(command.as_any().encode_to_vec());
        let schema = SchemaAsIpc::new(rows.schema_ref(), &IpcWriteOptions::default()).into();
        let first = FlightData::with_descriptor(schema, descriptor);
        let (mut messages, receiver) = mpsc::channel(MESSAGES_AHEAD);
        messages.send(first).await?;
        let answers = client.do_exchange(receiver).await?;
        let mut stream = Self {
            messages,
            answers: answers.into_inner(),
            sequence: 0,
        };
        // The first note describes the stream.
        stream.next_note().await?;
        Ok(stream)
    }

    async fn write(&mut self, rows: &RecordBatch) -> Result<()> {
        self.sequence += 1;
        let (_, encoded) = IpcDataGenerator::default().encode(
            rows,
            &mut DictionaryTracker::new(false),
            &IpcWriteOptions::default(),
            &mut IpcWriteContext::default(),
        )?;
        let note = format!("{{\"sequence\": {}}}", self.sequence);
        let message = FlightData::from(encoded).with_app_metadata(note);
        self.messages.send(message).await?;
        let answer: Answer = serde_json::from_slice(&self.next_note().await?)?;
        ensure!(
            answer.sequence == self.sequence && answer.outcome == "committed",
            "batch {} was answered with {answer:?}",
            self.sequence
        );
        Ok(())
    }

    async fn next_note(&mut self) -> Result<Vec<u8>> {
        let message = self.answers.message().await?;
        let message = message.context("the gateway has ended the stream")?;
        Ok(message.app_metadata.to_vec())
    }
}

impl WriteRows for StreamingWriter {
    fn write(&mut self, rows: RecordBatch) -> BoxFuture<'_, Result<()>> {
        async move { self.write_on_stream(&rows).await }.boxed()
    }
}
