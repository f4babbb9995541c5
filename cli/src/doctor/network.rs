use std::time::Duration;

use arrow::util::display::array_value_to_string;
use arrow_flight::Empty;
use futures::{StreamExt, stream};
use tokio::net::{TcpStream, lookup_host};
use tokio::time::timeout;
use volary_flight_proto::error::innermost_cause;
use volary_flight_proto::{Error, ErrorCode, Result};
use volary_node::Runtimes;
use volary_node::channel::{ChannelOptions, flight_client};
use volary_node::data_dir::{Identity, NodeRole};
use volary_node::tls::{ClientTls, Tls};
use volary_worker::membership::{GatewayAnswer, check_gateway};

use super::report::{Report, plain};
use crate::client::Client;
use crate::login::Target;
use crate::terminal;

/// Longest time for finding an address and connecting to it.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Number of workers to which connections are made at the same time.
const CONNECTIONS: usize = 64;
/// Number of workers that a line names.
const NAMED_WORKERS: usize = 5;
/// Difference of two clocks above which nodes refuse each other's messages, in milliseconds. It is
/// the time for which they are valid.
const MAX_CLOCK_DIFFERENCE_MS: u64 = 60_000;
/// Difference of two clocks that a machine with a time service does not have, in milliseconds.
const USUAL_CLOCK_DIFFERENCE_MS: u64 = 5_000;

const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Checks the gateway that a worker is to join: whether it can be reached from here, its clock, its
/// release, and whether it would let the worker join at the address `advertised`.
pub(super) async fn check_gateway_of(
    report: &mut Report,
    config: &volary_worker::Config,
    identity: Option<&Identity>,
    advertised: &str,
    runtimes: &Runtimes,
) {
    const NAME: &str = "gateway";
    let address = config.gateway_address();
    if let Err(error) = connect(address).await {
        // The worker waits for the gateway as long as it takes.
        report.warn_of(NAME, &error);
        return;
    }
    // Checking the certificates has said what is wrong with them.
    let Ok(tls) = Tls::load(NodeRole::Worker, &config.tls) else {
        return;
    };
    let asked = check_gateway(config, tls.client(), advertised, identity, runtimes);
    match asked.await {
        Ok(answer) => check_answer(report, address, &answer),
        Err(error)
            if matches!(
                error.code(),
                ErrorCode::Unimplemented | ErrorCode::Unauthenticated
            ) =>
        {
            report.warn(
                NAME,
                format!("{address} does not know the question of volary doctor"),
                "check that it is a gateway; a gateway of an older release cannot say whether the worker may join",
            );
        }
        Err(error) => report.fail(NAME, &error.at(address)),
    }
}

fn check_answer(report: &mut Report, address: &str, answer: &GatewayAnswer) {
    report.ok(
        "gateway",
        format!("{address} answers, and has the same secret"),
    );
    check_clock(report, address, answer.clock_ahead_ms);
    if answer.version == VERSION {
        report.ok(
            "versions",
            format!("the gateway runs Volary {VERSION}, too"),
        );
    } else {
        report.ok(
            "versions",
            format!(
                "the gateway runs Volary {}, and this is {VERSION}",
                answer.version
            ),
        );
    }
    match &answer.refusal {
        None => report.ok("join", "the gateway would let the worker join"),
        Some(refusal) => report.fail(
            "join",
            &Error::invalid(format!("the gateway would refuse the worker: {refusal}")),
        ),
    }
}

fn check_clock(report: &mut Report, address: &str, ahead_ms: i64) {
    const NAME: &str = "clock";
    const ADVICE: &str =
        "set the clocks of both machines with a time service (chrony, systemd-timesyncd)";
    let difference = ahead_ms.unsigned_abs();
    let seconds = Duration::from_millis(difference).as_secs_f64();
    let relation = if ahead_ms > 0 { "behind" } else { "ahead of" };
    let found = format!("it is {seconds:.1} s {relation} the clock of the gateway at {address}");
    if difference > MAX_CLOCK_DIFFERENCE_MS {
        report.fail_with(
            NAME,
            format!(
                "{found}, and nodes accept each other's messages for {} s",
                MAX_CLOCK_DIFFERENCE_MS / 1000
            ),
            ADVICE,
        );
    } else if difference > USUAL_CLOCK_DIFFERENCE_MS {
        report.warn(NAME, found, ADVICE);
    } else {
        report.ok(NAME, found);
    }
}

/// Checks that the `host` of an address that others are told can be resolved.
pub(super) async fn check_resolves(report: &mut Report, name: &str, address: &str) {
    match resolve(address).await {
        Ok(_) => {}
        Err(error) => report.warn_of(name, &error),
    }
}

/// Checks that workers, given by their names and addresses, can be reached from here, over TLS if
/// the gateway connects to them over TLS.
pub(super) async fn check_workers(
    report: &mut Report,
    workers: &[(String, String)],
    tls: Option<&ClientTls>,
    runtimes: &Runtimes,
) {
    const NAME: &str = "workers";
    if workers.is_empty() {
        report.ok(NAME, "none has joined yet");
        return;
    }
    let unreachable: Vec<String> = stream::iter(workers)
        .map(|(name, address)| async move {
            let error = greet(address, tls, runtimes).await.err()?;
            Some(format!("{name}: {}", plain(&error).split("; ").next()?))
        })
        .buffered(CONNECTIONS)
        .filter_map(std::future::ready)
        .collect()
        .await;
    let all = terminal::plural(workers.len() as u64, "worker");
    if unreachable.is_empty() {
        report.ok(NAME, format!("{all} can be reached from here"));
        return;
    }
    let mut named = unreachable
        .iter()
        .take(NAMED_WORKERS)
        .cloned()
        .collect::<Vec<_>>()
        .join(", ");
    if unreachable.len() > NAMED_WORKERS {
        named.push_str(", …");
    }
    report.warn(
        NAME,
        format!(
            "{} of {all} cannot be reached from here: {named}",
            unreachable.len()
        ),
        "start them, or check their addresses (worker.advertise), their certificates, the network and firewalls",
    );
}

/// Checks the workers of a gateway that runs with these settings. It has locked its catalog, so it
/// is asked as a client asks.
pub(super) async fn check_workers_of_running(
    report: &mut Report,
    config: &volary_gateway::Config,
    tls: Option<&ClientTls>,
    runtimes: &Runtimes,
) {
    match running_workers(config, tls.cloned()).await {
        Ok(workers) => check_workers(report, &workers, tls, runtimes).await,
        Err(error) => report.warn(
            "workers",
            format!(
                "the gateway that runs here does not name them: {}",
                plain(&error)
            ),
            "`volary status` shows them after a login",
        ),
    }
}

async fn running_workers(
    config: &volary_gateway::Config,
    tls: Option<ClientTls>,
) -> Result<Vec<(String, String)>> {
    const QUESTION: &str = "SELECT id, address FROM system.nodes WHERE role = 'worker' ORDER BY id";
    let address = crate::local::reachable_address(config.listen).to_string();
    let asking = async {
        let mut client = Client::log_in(&Target::of_node(&address, tls)).await?;
        client.collect(QUESTION).await
    };
    let rows = timeout(CONNECT_TIMEOUT, asking)
        .await
        .map_err(|_| late(&address))??;
    (0..rows.num_rows())
        .map(|row| {
            let text = |column: usize| {
                array_value_to_string(rows.column(column), row).map_err(|source| {
                    Error::with_source(ErrorCode::Internal, "a row cannot be read", source)
                })
            };
            Ok((format!("worker {}", text(0)?), text(1)?))
        })
        .collect()
}

async fn resolve(address: &str) -> Result<Vec<std::net::SocketAddr>> {
    let found = timeout(CONNECT_TIMEOUT, lookup_host(address))
        .await
        .map_err(|_| late(address))?;
    let found: Vec<_> = found.map_or_else(
        |source| Err(unresolved(address, &source.to_string())),
        |found| Ok(found.collect()),
    )?;
    if found.is_empty() {
        return Err(unresolved(address, "it has no address"));
    }
    Ok(found)
}

fn unresolved(address: &str, why: &str) -> Error {
    Error::unavailable(format!(
        "the address {address} cannot be resolved ({why}); check the name, and the name service of this machine"
    ))
}

/// Connects to a worker, and shows and checks certificates if it is reached over TLS.
async fn greet(address: &str, tls: Option<&ClientTls>, runtimes: &Runtimes) -> Result<()> {
    connect(address).await?;
    let Some(tls) = tls else { return Ok(()) };
    let options = ChannelOptions {
        connect_timeout: CONNECT_TIMEOUT,
        tls: Some(tls.clone()),
        ..ChannelOptions::default()
    };
    let mut client = flight_client(address, &options, runtimes.io())?;
    match timeout(CONNECT_TIMEOUT, client.list_actions(Empty {})).await {
        Err(_) => Err(late(address)),
        // A worker has no actions for strangers. Its refusal is an answer, too.
        Ok(Err(status)) if std::error::Error::source(&status).is_some() => {
            Err(Error::unavailable(format!(
                "{address} cannot be reached over TLS ({})",
                innermost_cause(&status)
            )))
        }
        Ok(_) => Ok(()),
    }
}

async fn connect(address: &str) -> Result<()> {
    let addresses = resolve(address).await?;
    let connected = timeout(CONNECT_TIMEOUT, TcpStream::connect(addresses.as_slice()));
    match connected.await {
        Ok(Ok(_)) => Ok(()),
        Ok(Err(source)) => Err(Error::unavailable(format!(
            "{address} cannot be reached from here ({source}); check that the node runs, its address, the network and firewalls"
        ))),
        Err(_) => Err(late(address)),
    }
}

fn late(address: &str) -> Error {
    Error::unavailable(format!(
        "{address} does not answer within {} s; check its address, the network and firewalls",
        CONNECT_TIMEOUT.as_secs()
    ))
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;
    use volary_node::runtimes::OwnedRuntimes;

    use super::*;

    #[test]
    fn clocks_that_differ_are_told_from_those_that_agree() {
        let said = |ahead_ms: i64| {
            let mut report = Report::default();
            check_clock(&mut report, "g:7100", ahead_ms);
            report.lines()
        };
        assert!(said(-120).starts_with("ok       clock: it is 0.1 s ahead of"));
        assert!(said(5_100).starts_with("warning  clock: it is 5.1 s behind"));
        let far = said(-61_000);
        assert!(
            far.starts_with("failed   clock: it is 61.0 s ahead of"),
            "{far}"
        );
        assert!(far.contains("time service"), "{far}");
        assert!(said(i64::MIN).starts_with("failed "));
    }

    #[test]
    fn what_a_gateway_answers_is_judged() {
        let mut report = Report::default();
        let answer = GatewayAnswer {
            version: "0.1.7".to_owned(),
            clock_ahead_ms: 0,
            refusal: Some("NOT_FOUND: unknown; start it with its own directory".to_owned()),
        };
        check_answer(&mut report, "g:7100", &answer);
        let lines = report.lines();
        assert!(
            lines.contains("the gateway runs Volary 0.1.7, and this is"),
            "{lines}"
        );
        assert!(
            lines.contains(
                "failed   join: the gateway would refuse the worker: NOT_FOUND: unknown; start"
            ),
            "{lines}"
        );
    }

    #[tokio::test]
    async fn workers_that_cannot_be_reached_are_named() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let free = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let worker = |id: u64, address: String| (format!("worker w{id}"), address);
        let up = worker(1, listener.local_addr().unwrap().to_string());
        let down = worker(2, free.local_addr().unwrap().to_string());
        drop(free);
        let nowhere = worker(3, "no host".to_owned());

        let mut report = Report::default();
        let runtimes = OwnedRuntimes::start(Some(1)).unwrap();
        let runtimes = runtimes.handles();
        for workers in [
            Vec::new(),
            vec![up.clone()],
            vec![up.clone(), down.clone(), nowhere],
        ] {
            check_workers(&mut report, &workers, None, runtimes).await;
        }
        let lines: Vec<String> = report.lines().lines().map(str::to_owned).collect();
        assert_eq!(lines[0], "ok       workers: none has joined yet");
        assert_eq!(
            lines[1],
            "ok       workers: 1 worker can be reached from here"
        );
        let said = format!(
            "warning  workers: 2 of 3 workers cannot be reached from here: worker w2: {} cannot",
            down.1
        );
        assert!(lines[2].starts_with(&said), "{}", lines[2]);
        assert!(lines[2].contains("worker w3: the address no host cannot be resolved"));
    }
}
