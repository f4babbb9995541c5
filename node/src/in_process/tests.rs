use std::error::Error as _;
use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicUsize, Ordering};

use arrow_flight::{FlightData, PutResult, Ticket};
use futures::future::{BoxFuture, pending};
use futures::{FutureExt, StreamExt, TryStreamExt, stream};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tonic::{Code, Response, Streaming};
use volary_flight_proto::seal::{Key, Sealer};

use super::*;
use crate::channel::{ChannelOptions, Channels, NodeClient, OneOfMany};
use crate::flight::{Answer, Flight, FlightAdapter, MessageStream};
use crate::listener::Listener;
use crate::message_budget::MessageBudget;
use crate::node_header::{NodeHeader, is_from_node};
use crate::server::{Entrance, serve};

const LIMIT: MessageLimit = MessageLimit {
    bytes: 1 << 20,
    setting: "node.max_message",
};
/// Size of a message that is sent by itself: tonic joins only smaller ones.
const MESSAGE_BYTES: usize = 64 << 10;

#[derive(Debug, Clone)]
struct TestService {
    /// Number of messages that were made.
    made: Arc<AtomicUsize>,
    /// Number of answers that were begun and not dropped.
    open: Arc<watch::Sender<usize>>,
}

/// An answer that was not dropped.
struct OpenAnswer(Arc<watch::Sender<usize>>);

impl OpenAnswer {
    fn begin(service: &TestService) -> Self {
        service.open.send_modify(|open| *open += 1);
        Self(Arc::clone(&service.open))
    }
}

impl Drop for OpenAnswer {
    fn drop(&mut self) {
        self.0.send_modify(|open| *open -= 1);
    }
}

fn message(text: &str) -> FlightData {
    FlightData {
        data_body: text.to_owned().into(),
        ..FlightData::default()
    }
}

impl Flight for TestService {
    async fn do_get(&self, request: tonic::Request<Ticket>) -> Answer<MessageStream<FlightData>> {
        let answer = OpenAnswer::begin(self);
        let messages = match &request.get_ref().ticket[..] {
            b"who calls" => {
                let kind = PeerKind::of(request.extensions());
                let text = match request.remote_addr() {
                    Some(_) => format!("over a connection: {kind:?}"),
                    None => format!("in process: {kind:?}"),
                };
                stream::iter([Ok(message(&text))]).boxed()
            }
            b"many" => {
                let made = Arc::clone(&self.made);
                stream::repeat_with(move || {
                    made.fetch_add(1, Ordering::Relaxed);
                    Ok(message(&"x".repeat(MESSAGE_BYTES)))
                })
                .boxed()
            }
            b"no answer" => pending().await,
            b"no message" => stream::pending().boxed(),
            b"panic" => panic!("no kea"),
            b"panic later" => stream::iter([0]).map(|_| panic!("no kea")).boxed(),
            _ => return Err(Status::not_found("what?")),
        };
        let messages = messages.inspect(move |_| _ = &answer);
        Ok(Response::new(messages.boxed()))
    }

    async fn do_put(
        &self,
        request: tonic::Request<Streaming<FlightData>>,
    ) -> Answer<MessageStream<PutResult>> {
        let sizes = request.into_inner().map_ok(|message| PutResult {
            app_metadata: message.data_body.len().to_string().into(),
        });
        Ok(Response::new(sizes.boxed()))
    }
}

/// Lets nodes in, and refuses others.
#[derive(Debug)]
struct NodesOnly(Sealer, MessageBudget);

impl Gate for NodesOnly {
    fn admit<'a>(
        &'a self,
        call: &'a CallHeaders<'a>,
    ) -> BoxFuture<'a, Result<AdmittedCall, Status>> {
        let admitted = is_from_node(&self.0, call).map(|is_node| AdmittedCall {
            extension: Box::new(()),
            sender: if is_node {
                Sender::Node
            } else {
                Sender::stranger(call.peer)
            },
            introduction: None,
        });
        futures::future::ready(admitted.map_err(Status::from)).boxed()
    }

    fn message_budget(&self) -> &MessageBudget {
        &self.1
    }
}

/// A node that serves, and a client of the same process.
struct Fixture {
    service: TestService,
    nodes: InProcessNodes,
    address: String,
    stop: CancellationToken,
    serving: JoinHandle<()>,
}

fn sealer(secret: &str) -> Sealer {
    Sealer::new(Key::from_secret(secret))
}

impl Fixture {
    async fn start() -> Self {
        let service = TestService {
            made: Arc::default(),
            open: Arc::new(watch::Sender::new(0)),
        };
        let nodes = InProcessNodes::default();
        let listener = Listener::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).unwrap();
        let address = listener.address().to_string();
        let entrance = Entrance {
            gate: Some(Arc::new(NodesOnly(
                sealer("ours"),
                MessageBudget::new(1 << 20, "send less"),
            ))),
            in_process: Some(nodes.clone()),
            ..Entrance::unguarded(LIMIT)
        };
        let stop = CancellationToken::new();
        let stopped = stop.clone().cancelled_owned();
        let served = FlightAdapter(service.clone());
        let serving = tokio::spawn(serve(listener, served, entrance, stopped));
        while nodes.at(&address).is_none() {
            tokio::task::yield_now().await;
        }
        Self {
            service,
            nodes,
            address,
            stop,
            serving,
        }
    }

    fn client_with(&self, secret: Option<&str>, nodes: Option<InProcessNodes>) -> NodeClient {
        let options = ChannelOptions {
            node_header: secret.map(|secret| Arc::new(NodeHeader::new(sealer(secret)))),
            ..ChannelOptions::default()
        };
        let channels = Channels::new(&options, &Handle::current()).with_in_process(nodes);
        channels.client(&self.address).unwrap()
    }

    fn client(&self) -> NodeClient {
        self.client_with(Some("ours"), Some(self.nodes.clone()))
    }

    async fn get(&self, what: &'static str) -> Result<Streaming<FlightData>, Status> {
        Ok(self.client().do_get(ticket(what)).await?.into_inner())
    }

    async fn wait_until_open(&self, answers: usize) {
        let mut open = self.service.open.subscribe();
        // The value that this returns is a lock, without which no answer can be dropped.
        drop(open.wait_for(|open| *open == answers).await.unwrap());
    }

    async fn wait_until_dropped(&self) {
        self.wait_until_open(0).await;
    }
}

fn ticket(what: &'static str) -> Ticket {
    Ticket {
        ticket: what.into(),
    }
}

async fn first_text(client: &mut NodeClient, request: tonic::Request<Ticket>) -> String {
    let mut messages = client.do_get(request).await.unwrap().into_inner();
    let first = messages.message().await.unwrap().unwrap();
    assert!(messages.message().await.unwrap().is_none());
    String::from_utf8(first.data_body.into()).unwrap()
}

/// Checks that a status is that of a connection that broke: it has a source.
fn assert_lost(status: &Status) {
    assert!(status.source().is_some(), "{status:?}");
    assert!(
        matches!(status.code(), Code::Unknown | Code::Unavailable),
        "{status:?}"
    );
}

#[tokio::test]
async fn a_listed_node_is_called_without_a_connection_and_others_over_one() {
    let fixture = Fixture::start().await;
    let request = || tonic::Request::new(ticket("who calls"));
    let in_process = "in process: Node";
    assert_eq!(
        first_text(&mut fixture.client(), request()).await,
        in_process
    );
    let mut one_of_many = request();
    one_of_many.extensions_mut().insert(OneOfMany);
    let answer = first_text(&mut fixture.client(), one_of_many).await;
    assert_eq!(answer, in_process);
    for nodes in [None, Some(InProcessNodes::default())] {
        let mut client = fixture.client_with(Some("ours"), nodes);
        let answer = first_text(&mut client, request()).await;
        assert_eq!(answer, "over a connection: Unknown");
    }
    let error = fixture.get("something").await.unwrap_err();
    assert_eq!((error.code(), error.message()), (Code::NotFound, "what?"));
    fixture.wait_until_dropped().await;
}

#[tokio::test]
async fn a_caller_must_show_the_header_of_a_node() {
    let fixture = Fixture::start().await;
    for (secret, said) in [(None, "only nodes"), (Some("another"), "sealed")] {
        let mut client = fixture.client_with(secret, Some(fixture.nodes.clone()));
        let refused = client.do_get(ticket("who calls")).await.unwrap_err();
        assert_eq!(refused.code(), Code::PermissionDenied, "{refused:?}");
        assert!(refused.message().contains(said), "{refused:?}");
    }
}

#[tokio::test]
async fn messages_are_made_when_they_are_read() {
    let fixture = Fixture::start().await;
    let mut messages = fixture.get("many").await.unwrap();
    let made = || fixture.service.made.load(Ordering::Relaxed);
    assert_eq!(made(), 0);
    for read in 1..10 {
        let message = messages.message().await.unwrap().unwrap();
        assert_eq!(message.data_body.len(), MESSAGE_BYTES);
        tokio::task::yield_now().await;
        assert_eq!(made(), read);
    }
    drop(messages);
    fixture.wait_until_dropped().await;
}

#[tokio::test]
async fn messages_to_a_node_arrive_one_by_one_and_not_if_they_are_too_large() {
    let fixture = Fixture::start().await;
    let put = async |sizes: Vec<usize>| {
        let messages = stream::iter(sizes).map(|size| message(&"x".repeat(size)));
        let mut client = fixture.client();
        let answers = client.do_put(messages).await?.into_inner();
        let sizes = answers.map_ok(|answer| answer.app_metadata);
        sizes.try_collect::<Vec<_>>().await
    };
    let sizes = put(vec![0, 1, 100_000]).await.unwrap();
    assert_eq!(sizes, ["0", "1", "100000"]);
    let refused = put(vec![1, LIMIT.bytes + 1]).await.unwrap_err();
    let refused = LIMIT.explain(refused);
    assert_eq!(refused.code(), Code::ResourceExhausted, "{refused:?}");
    assert!(
        refused.message().contains("node.max_message"),
        "{refused:?}"
    );
    let large = Ticket {
        ticket: vec![0; LIMIT.bytes + 1].into(),
    };
    let refused = fixture.client().do_get(large).await.unwrap_err();
    assert_eq!(refused.code(), Code::ResourceExhausted, "{refused:?}");
    assert!(
        refused.message().contains("node.max_message"),
        "{refused:?}"
    );
}

#[tokio::test]
async fn a_call_that_is_dropped_ends_wherever_it_is() {
    let fixture = Fixture::start().await;
    for is_one_of_many in [false, true] {
        let mut request = tonic::Request::new(ticket("no answer"));
        if is_one_of_many {
            request.extensions_mut().insert(OneOfMany);
        }
        let mut client = fixture.client();
        let calling = client.do_get(request);
        tokio::select! {
            _ = calling => panic!("there is an answer"),
            () = fixture.wait_until_open(1) => {}
        }
        fixture.wait_until_dropped().await;
    }
    let mut messages = fixture.get("no message").await.unwrap();
    assert!(messages.message().now_or_never().is_none());
    assert_eq!(*fixture.service.open.borrow(), 1);
    drop(messages);
    fixture.wait_until_dropped().await;
}

#[tokio::test]
async fn a_panic_is_an_error_of_the_call_alone() {
    let fixture = Fixture::start().await;
    for what in ["panic", "panic later"] {
        let failing = async { fixture.get(what).await?.message().await };
        let error = failing.await.unwrap_err();
        assert_eq!(error.code(), Code::Internal, "{error:?}");
        assert!(error.message().contains("no kea"), "{error:?}");
    }
    assert!(fixture.get("who calls").await.is_ok());
}

#[tokio::test]
async fn a_node_that_stops_ends_open_calls_and_is_not_found_any_more() {
    let fixture = Fixture::start().await;
    let mut open_call = fixture.get("many").await.unwrap();
    open_call.message().await.unwrap().unwrap();
    fixture.stop.cancel();
    while fixture.nodes.at(&fixture.address).is_some() {
        tokio::task::yield_now().await;
    }
    // The open call goes on, and a new one finds nobody.
    open_call.message().await.unwrap().unwrap();
    assert!(!fixture.serving.is_finished());
    assert_lost(&fixture.get("many").await.unwrap_err());
    drop(open_call);
    fixture.serving.await.unwrap();
}

#[tokio::test]
async fn a_node_that_is_gone_breaks_its_calls_off_as_a_lost_connection_does() {
    let fixture = Fixture::start().await;
    let mut client = fixture.client();
    let unanswered = tokio::spawn(async move { client.do_get(ticket("no answer")).await });
    let mut unread = fixture.get("many").await.unwrap();
    unread.message().await.unwrap().unwrap();
    let mut silent = fixture.get("no message").await.unwrap();
    let waiting = tokio::spawn(async move { silent.message().await });
    fixture.wait_until_open(3).await;
    // Both tasks wait for the node.
    tokio::task::yield_now().await;
    fixture.serving.abort();
    fixture.serving.await.unwrap_err();
    // What the calls hold is dropped, even if nobody reads them.
    assert_eq!(*fixture.service.open.borrow(), 0);
    assert_lost(&unanswered.await.unwrap().unwrap_err());
    assert_lost(&waiting.await.unwrap().unwrap_err());
    assert_lost(&unread.message().await.unwrap_err());
}
