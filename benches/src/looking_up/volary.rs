use std::rc::Rc;
use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use arrow::array::{ArrayRef, Int64Array, RecordBatch};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use arrow::ipc::writer::{DictionaryTracker, IpcDataGenerator, IpcWriteContext, IpcWriteOptions};
use arrow_flight::sql::Any;
use arrow_flight::{FlightData, FlightDescriptor, SchemaAsIpc};
use futures::channel::mpsc;
use futures::future::{BoxFuture, LocalBoxFuture};
use futures::{FutureExt, SinkExt};
use prost::Message;
use serde::Deserialize;
use tonic::Streaming;
use volary_cli::client::Client;
use volary_flight_proto::lookup::LookupRequest;

use super::rows::{COLUMNS, TABLE, values_of};
use super::{LookUp, Way};
use crate::local_process::LocalProcess;
use crate::procfs::ObservedProcess;
use crate::reading::worker::decode_rows;
use crate::writing::volary::flight_sql_client;

/// Number of messages that may wait to be sent. A client sends keys only after the answer to those
/// before them.
const MESSAGES_AHEAD: usize = 2;

/// Asks Volary on a stream of lookups that stays open (docs/clients/pyarrow.md).
#[derive(Debug, Clone)]
pub struct Lookups {
    name: &'static str,
    process: Rc<LocalProcess>,
}

impl Lookups {
    /// Creates the table with `rows` rows. `name` is the name of the way.
    ///
    /// # Errors
    /// Returns the errors of the cluster.
    pub async fn new(name: &'static str, process: LocalProcess, rows: u64) -> Result<Self> {
        let mut client = Client::connect(process.uri()).await?;
        let create = format!("CREATE TABLE {TABLE} ({COLUMNS}) WITH (shard_key = 'k')");
        client.collect(&create).await?;
        let insert = format!(
            "INSERT INTO {TABLE} SELECT {} FROM generate_series(0, {}) AS g(k)",
            values_of("k"),
            rows.saturating_sub(1)
        );
        client.collect(&insert).await?;
        client.collect(&format!("OPTIMIZE {TABLE}")).await?;
        Ok(Self {
            name,
            process: Rc::new(process),
        })
    }
}

impl Way for Lookups {
    fn name(&self) -> &'static str {
        self.name
    }

    fn connect(&self) -> LocalBoxFuture<'_, Result<Box<dyn LookUp>>> {
        async {
            let stream = OpenStream::open(self.process.uri()).await?;
            Ok(Box::new(stream) as Box<dyn LookUp>)
        }
        .boxed_local()
    }

    fn process(&self) -> Option<ObservedProcess> {
        Some(self.process.observed())
    }
}

/// A stream on which keys are answered.
struct OpenStream {
    messages: mpsc::Sender<FlightData>,
    answers: Streaming<FlightData>,
    /// The columns of the keys, and of the answers.
    keys: SchemaRef,
    columns: SchemaRef,
}

/// The note with the rows of a batch.
#[derive(Debug, Deserialize)]
struct Answer {
    #[serde(default)]
    more: bool,
    error: Option<serde_json::Value>,
}

impl OpenStream {
    async fn open(uri: &str) -> Result<Self> {
        let mut client = flight_sql_client(uri).await?.into_inner();
        let request = LookupRequest {
            table: TABLE.to_owned(),
            ..LookupRequest::default()
        };
        let command = Any {
            type_url: LookupRequest::TYPE_URL.to_owned(),
            value: request.encode_to_vec().into(),
        };
        let descriptor = FlightDescriptor::new_cmd(command.encode_to_vec());
        let keys = Arc::new(Schema::new(vec![Field::new("k", DataType::Int64, false)]));
        let schema = SchemaAsIpc::new(&keys, &IpcWriteOptions::default()).into();
        let first = FlightData::with_descriptor(schema, descriptor);
        let (mut messages, receiver) = mpsc::channel(MESSAGES_AHEAD);
        messages.send(first).await?;
        let mut answers = client.do_exchange(receiver).await?.into_inner();
        // The first note describes the stream, and the schema follows it.
        next_message(&mut answers).await?;
        let schema = next_message(&mut answers).await?;
        Ok(Self {
            messages,
            answers,
            keys,
            columns: Arc::new(Schema::try_from(&schema)?),
        })
    }

    async fn ask(&mut self, keys: Vec<i64>) -> Result<usize> {
        let keys: ArrayRef = Arc::new(Int64Array::from(keys));
        let batch = RecordBatch::try_new(Arc::clone(&self.keys), vec![keys])?;
        let (_, encoded) = IpcDataGenerator::default().encode(
            &batch,
            &mut DictionaryTracker::new(false),
            &IpcWriteOptions::default(),
            &mut IpcWriteContext::default(),
        )?;
        self.messages.send(FlightData::from(encoded)).await?;
        let mut rows = 0;
        loop {
            let message = next_message(&mut self.answers).await?;
            let answer: Answer = serde_json::from_slice(&message.app_metadata)?;
            ensure!(answer.error.is_none(), "the keys were refused: {answer:?}");
            let decoded = decode_rows(&message, &self.columns)?;
            rows += decoded.map_or(0, |batch| batch.num_rows());
            if !answer.more {
                return Ok(rows);
            }
        }
    }
}

impl LookUp for OpenStream {
    fn look_up(&mut self, keys: Vec<i64>) -> BoxFuture<'_, Result<usize>> {
        self.ask(keys).boxed()
    }
}

async fn next_message(answers: &mut Streaming<FlightData>) -> Result<FlightData> {
    let message = answers.message().await?;
    message.context("the gateway has ended the stream")
}
