use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use arrow::array::{ArrayRef, AsArray, Int64Array, RecordBatch};
use arrow::datatypes::{DataType, Field, Int64Type, Schema, SchemaRef};
use arrow::ipc::writer::{DictionaryTracker, IpcDataGenerator, IpcWriteContext, IpcWriteOptions};
use arrow_flight::sql::client::FlightSqlServiceClient;
use arrow_flight::{FlightData, FlightDescriptor, SchemaAsIpc};
use futures::future::BoxFuture;
use futures::{FutureExt, stream};
use tokio::runtime::Handle;
use tonic::Request;
use tonic::metadata::{Ascii, MetadataValue};
use volary_node::channel::{ChannelOptions, NodeClient, flight_client};

use crate::clients::Ask;
use crate::reading::worker::decode_rows;

/// Says which row answers a question.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyCheck {
    /// The row whose first column is the key.
    Equal,
    /// Any row. A stub always answers with the same one.
    Any,
}

/// A session on its own connection that asks for the row of a key, again and again.
#[derive(Debug)]
pub struct ExchangeClient {
    client: NodeClient,
    authorization: MetadataValue<Ascii>,
    /// The first message, with the statement and the type of its parameter.
    first: FlightData,
    parameters: SchemaRef,
    check: KeyCheck,
    /// The largest key. The smallest is 1.
    last_key: usize,
}

impl ExchangeClient {
    /// Connects to a gateway, or to a stub, at `address` (`host:port`). `sql` has one parameter, a
    /// BIGINT. Call it within the I/O runtime.
    ///
    /// # Errors
    /// Returns the errors of the connection.
    pub async fn connect(address: &str, sql: &str, check: KeyCheck) -> Result<Self> {
        let client = flight_client(address, &ChannelOptions::default(), &Handle::current())?;
        let mut session = FlightSqlServiceClient::new_from_inner(client);
        session.handshake("volary", "").await?;
        let token = session.token().context("the login gave no token")?;
        let authorization = MetadataValue::try_from(format!("Bearer {token}"))?;
        let parameters = Arc::new(Schema::new(vec![Field::new("1", DataType::Int64, false)]));
        let schema = SchemaAsIpc::new(&parameters, &IpcWriteOptions::default()).into();
        let statement = FlightDescriptor::new_cmd(sql.as_bytes().to_vec());
        Ok(Self {
            client: session.into_inner(),
            authorization,
            first: FlightData::with_descriptor(schema, statement),
            parameters,
            check,
            last_key: usize::MAX,
        })
    }

    /// Sets the largest key that [`Ask`] asks for.
    #[must_use]
    pub fn with_keys_up_to(mut self, last_key: usize) -> Self {
        self.last_key = last_key;
        self
    }

    /// Asks for the row of a key, and reads the answer to its end.
    ///
    /// # Errors
    /// Returns the errors of the call, and an error if the answer is not the row of the key.
    pub async fn row_of(&mut self, key: i64) -> Result<()> {
        let messages = [self.first.clone(), self.encoded(key)?];
        let mut request = Request::new(stream::iter(messages));
        let headers = request.metadata_mut();
        headers.insert("authorization", self.authorization.clone());
        let mut answer = self.client.do_exchange(request).await?.into_inner();
        let mut schema: Option<SchemaRef> = None;
        let mut found = Vec::new();
        while let Some(message) = answer.message().await? {
            // A message without a header is a note beside the rows.
            match &schema {
                _ if message.data_header.is_empty() => {}
                None => schema = Some(Arc::new(Schema::try_from(&message)?)),
                Some(schema) => {
                    if let Some(rows) = decode_rows(&message, schema)? {
                        found.extend(keys_in(&rows)?);
                    }
                }
            }
        }
        ensure!(found.len() == 1, "{} rows have the key {key}", found.len());
        let is_right = self.check == KeyCheck::Any || found == [key];
        ensure!(is_right, "the row of key {key} has {}", found[0]);
        Ok(())
    }

    fn encoded(&self, key: i64) -> Result<FlightData> {
        let keys: ArrayRef = Arc::new(Int64Array::from(vec![key]));
        let row = RecordBatch::try_new(Arc::clone(&self.parameters), vec![keys])?;
        let (_, encoded) = IpcDataGenerator::default().encode(
            &row,
            &mut DictionaryTracker::new(false),
            &IpcWriteOptions::default(),
            &mut IpcWriteContext::default(),
        )?;
        Ok(encoded.into())
    }
}

/// Returns the first column.
fn keys_in(rows: &RecordBatch) -> Result<Vec<i64>> {
    let column = rows.columns().first();
    let keys = column.and_then(|column| column.as_primitive_opt::<Int64Type>());
    let keys = keys.context("the first column is not BIGINT")?;
    Ok(keys.values().to_vec())
}

impl Ask for ExchangeClient {
    fn ask(&mut self, number: usize) -> (&'static str, BoxFuture<'_, Result<()>>) {
        // Consecutive keys are on different workers anyway, because keys are hashed.
        let key = (number % self.last_key + 1) as i64;
        ("point", self.row_of(key).boxed())
    }
}
