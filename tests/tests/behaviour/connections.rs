use arrow_flight::Empty;
use futures::future::try_join_all;
use tokio::runtime::Handle;
use volary_flight_proto::Error;
use volary_node::channel::{ChannelOptions, flight_client};
use volary_tests::cluster::{TestCluster, run};

/// Number of concurrent callers. Together, they drop more streams than the usual limit of HTTP/2,
/// which is 1024 dropped streams whose data still arrives.
const CALLERS: usize = 32;
const CALLS: usize = 1_500;

#[test]
fn streams_that_are_dropped_do_not_end_their_connection() {
    run(async {
        let cluster = TestCluster::start(1).await.unwrap();
        let address = cluster.nodes().address().to_string();
        let client = flight_client(&address, &ChannelOptions::default(), &Handle::current());
        let client = client.unwrap();
        let callers = (0..CALLERS).map(|_| {
            let mut client = client.clone();
            tokio::spawn(async move {
                for _ in 0..CALLS {
                    let mut answers = client.list_actions(Empty {}).await?.into_inner();
                    // The other messages of the stream are still on their way when it is dropped.
                    answers.message().await?;
                }
                Ok::<_, Error>(())
            })
        });
        for called in try_join_all(callers).await.unwrap() {
            called.unwrap();
        }
        cluster.stop().await;
    });
}
