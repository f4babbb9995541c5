use std::sync::Arc;

use anyhow::{Result, ensure};
use arrow::array::{ArrayRef, Int64Array, RecordBatch};
use arrow::datatypes::SchemaRef;
use arrow_flight::sql::client::{FlightSqlServiceClient, PreparedStatement};
use arrow_flight::{FlightData, Ticket};
use futures::future::{BoxFuture, LocalBoxFuture};
use futures::{FutureExt, TryStreamExt};
use tokio::runtime::Handle;
use volary_node::channel::{ChannelOptions, NodeClient, Transport, flight_client};

use super::BenchTable;
use super::running_fleet::FleetLayout;
use super::stubs;
use crate::bench::Bench;
use crate::clients::{Ask, Clients};
use crate::interleaved::{Candidate, Measure, measure_in_turns};
use crate::reading::worker::decode_rows;
use crate::results::{Label, Sample, Variant};
use crate::rows::RowShape;
use crate::statistics::percentile;
use crate::stub::StubOptions;

pub(super) const TABLE: BenchTable = BenchTable {
    name: "point",
    title: "Point query: WHERE key = ?, one worker of all",
    method: "Clients ask at the same time, each on its own connection. Each client sends one question after another, each for another key. A question is a prepared statement: its parameter is bound (DoPut), it is planned (GetFlightInfo), and its row is read (DoGet). Only one of all workers has the row. In the rows `first questions`, most questions are the first one to their worker. Before the other rows, each key was asked once. The baseline is a stub in its own process that answers at once with a row of the same size: once with the same three calls, which Flight SQL needs, and once with one DoGet. The clients are in the measuring process.",
    run: |bench| run(bench).boxed_local(),
};

const SQL: &str = "SELECT k, v, s FROM t WHERE k = ?";
const CLIENTS: [usize; 3] = [1, 8, 64];
/// Number of clients that ask for each key before the time is measured.
const WARMING_CLIENTS: usize = 16;
const ROWS_PER_WORKER: usize = 10;
/// Size of a row: two numbers and a text.
const ROW_BYTES: usize = 48;
const CHARACTERS: usize = ROW_BYTES - 16;

async fn run(bench: &Bench) -> Result<Vec<Variant>> {
    let workers = bench.fan_out();
    let rows = workers * ROWS_PER_WORKER;
    let layout = FleetLayout::many(bench, "point", workers);
    let running = layout.start_with_rows(rows, CHARACTERS).await?;
    let stubs = stubs::start(
        bench,
        StubOptions {
            count: 1,
            rows: 1,
            row_bytes: ROW_BYTES,
            batches: 1,
            coalesce_bytes: None,
        },
    )?;
    let sides = Sides {
        volary: running.address(),
        stub: &stubs.addresses()[0],
        workers,
        rows,
    };
    let mut measured = sides.first_questions(bench).await?;
    sides.ask_for_each_key().await?;
    for clients in CLIENTS {
        measured.extend(sides.questions(bench, clients).await?);
    }
    running.shutdown()?;
    Ok(measured)
}

/// The servers that are compared.
struct Sides<'a> {
    /// The address of the gateway.
    volary: &'a str,
    /// The address of the stub.
    stub: &'a str,
    workers: usize,
    /// Number of rows, which is the largest key.
    rows: usize,
}

impl Sides<'_> {
    fn label(&self, side: &str, clients: usize, questions: &str) -> Label {
        Label::new(format!("{side}, {questions}"))
            .with("side", side)
            .with("clients", clients)
            .with("workers", self.workers)
    }

    /// Measures questions of which most are the first one to their worker.
    async fn first_questions(&self, bench: &Bench) -> Result<Vec<Variant>> {
        let questions = bench
            .size
            .pick(1, self.workers / 20, self.workers / 20)
            .max(1);
        let label = |side| {
            let label = self.label(side, 1, "first questions");
            label.with("questions", "first")
        };
        let bare = label("bare Flight SQL");
        let volary = label("Volary").compared_with(bare.name.clone());
        let ours = prepared_clients(1, self.volary, self.rows).await?;
        let same_calls = prepared_clients(1, self.stub, self.rows).await?;
        let candidates = vec![
            Candidate::new(volary, Latencies::new(ours, questions)),
            Candidate::new(bare, Latencies::new(same_calls, questions)),
        ];
        measure_in_turns(bench.turns(), candidates).await
    }

    async fn ask_for_each_key(&self) -> Result<()> {
        let clients = prepared_clients(WARMING_CLIENTS, self.volary, self.rows).await?;
        let questions = self.rows.div_ceil(WARMING_CLIENTS);
        let answers = Clients::new(clients).ask(questions).await?;
        answers.all_latencies_ms()?;
        Ok(())
    }

    /// Measures the questions of this many clients to workers that were asked before.
    async fn questions(&self, bench: &Bench, clients: usize) -> Result<Vec<Variant>> {
        let questions = (bench.size.pick(10, 400, 4_000) / clients).max(5);
        let label = |side| self.label(side, clients, &format!("clients: {clients}"));
        let bare = label("bare Flight SQL");
        let volary = label("Volary").compared_with(bare.name.clone());
        let echo = label("bare DoGet").compared_with(bare.name.clone());
        let ours = prepared_clients(clients, self.volary, self.rows).await?;
        let same_calls = prepared_clients(clients, self.stub, self.rows).await?;
        let echoes = (0..clients).map(|_| Echo::new(self.stub));
        let echoes = echoes.collect::<Result<_>>()?;
        let candidates = vec![
            Candidate::new(volary, Latencies::new(ours, questions)),
            Candidate::new(bare, Latencies::new(same_calls, questions)),
            Candidate::new(echo, Latencies::new(echoes, questions)),
        ];
        measure_in_turns(bench.turns(), candidates).await
    }
}

/// Connects this many clients to a gateway or a stub.
async fn prepared_clients(
    count: usize,
    address: &str,
    last_key: usize,
) -> Result<Vec<PreparedClient>> {
    let mut clients = Vec::with_capacity(count);
    for _ in 0..count {
        clients.push(PreparedClient::connect(address, last_key).await?);
    }
    Ok(clients)
}

/// Measures how long clients wait for their answers.
struct Latencies<C> {
    clients: Clients<C>,
    /// The number of questions that each client asks in a turn.
    questions: usize,
}

impl<C: Ask> Latencies<C> {
    fn new(clients: Vec<C>, questions: usize) -> Self {
        Self {
            clients: Clients::new(clients),
            questions,
        }
    }
}

impl<C: Ask> Measure for Latencies<C> {
    fn measure(&mut self) -> LocalBoxFuture<'_, Result<Sample>> {
        async move {
            let answers = self.clients.ask(self.questions).await?;
            if let Some(failure) = answers.failures.into_iter().next() {
                return Err(failure);
            }
            let latencies_ms: Vec<f64> = answers.latencies_ms.into_values().flatten().collect();
            let per_s = latencies_ms.len() as f64 / answers.total.as_secs_f64();
            Ok(Sample::new()
                .with("p50_ms", percentile(&latencies_ms, 50))
                .with("p99_ms", percentile(&latencies_ms, 99))
                .with("queries_per_s", per_s))
        }
        .boxed_local()
    }
}

/// A prepared statement at a gateway or at a stub.
struct PreparedClient {
    client: FlightSqlServiceClient<Transport>,
    statement: PreparedStatement<Transport>,
    /// The largest key. The smallest is 1.
    last_key: usize,
}

impl PreparedClient {
    async fn connect(address: &str, last_key: usize) -> Result<Self> {
        let flight = flight_client(address, &ChannelOptions::default(), &Handle::current())?;
        let mut client = FlightSqlServiceClient::new_from_inner(flight);
        client.handshake("volary", "").await?;
        let statement = client.prepare(SQL.to_owned(), None).await?;
        Ok(Self {
            client,
            statement,
            last_key,
        })
    }

    async fn row_of(&mut self, key: i64) -> Result<()> {
        let keys: ArrayRef = Arc::new(Int64Array::from(vec![key]));
        let parameters = RecordBatch::try_from_iter([("$1", keys)])?;
        self.statement.set_parameters(parameters)?;
        let info = self.statement.execute().await?;
        let mut rows = 0;
        for ticket in info.endpoint.into_iter().filter_map(|end| end.ticket) {
            let batches = self.client.do_get(ticket).await?;
            let batches: Vec<RecordBatch> = batches.try_collect().await?;
            rows += batches.iter().map(RecordBatch::num_rows).sum::<usize>();
        }
        ensure!(rows == 1, "{rows} rows have the key {key}");
        Ok(())
    }
}

impl Ask for PreparedClient {
    fn ask(&mut self, number: usize) -> (&'static str, BoxFuture<'_, Result<()>>) {
        // Consecutive keys are on different workers anyway, because keys are hashed.
        let key = (number % self.last_key + 1) as i64;
        ("point", self.row_of(key).boxed())
    }
}

/// A connection to a stub.
struct Echo {
    client: NodeClient,
    schema: SchemaRef,
}

impl Echo {
    fn new(address: &str) -> Result<Self> {
        Ok(Self {
            client: flight_client(address, &ChannelOptions::default(), &Handle::current())?,
            schema: RowShape::new(ROW_BYTES)?.schema(),
        })
    }

    async fn row(&mut self) -> Result<()> {
        let response = self.client.do_get(Ticket::default()).await?;
        let messages: Vec<FlightData> = response.into_inner().try_collect().await?;
        let mut rows = 0;
        for message in &messages {
            rows += decode_rows(message, &self.schema)?.map_or(0, |batch| batch.num_rows());
        }
        ensure!(rows == 1, "{rows} rows are no echo");
        Ok(())
    }
}

impl Ask for Echo {
    fn ask(&mut self, _: usize) -> (&'static str, BoxFuture<'_, Result<()>>) {
        ("echo", self.row().boxed())
    }
}
