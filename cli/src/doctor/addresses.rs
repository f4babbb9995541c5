use std::net::SocketAddr;

use volary_flight_proto::Error;
use volary_node::listener::Listener;

use super::report::Report;

/// Binds an address as the node does. The listener keeps the address, so that two addresses of a
/// node cannot pass with the same port. Call it within a runtime.
pub(super) fn check_listen(
    report: &mut Report,
    name: &str,
    address: SocketAddr,
) -> Option<Listener> {
    match Listener::bind(address) {
        Ok(listener) => {
            let found = if address.port() == 0 {
                format!("{address}: the system chooses a free port at each start")
            } else {
                format!("{address} is free")
            };
            report.ok(name, found);
            Some(listener)
        }
        Err(error) => {
            report.fail(name, &error);
            None
        }
    }
}

/// Checks the address that a worker tells gateways, which is `advertise` or else the address that
/// it listens on, and returns it.
pub(super) fn check_advertised(
    report: &mut Report,
    advertise: Option<&str>,
    listen: SocketAddr,
) -> String {
    const NAME: &str = "advertised address";
    match advertise {
        Some(advertise) => {
            report.ok(NAME, format!("gateways are told to connect to {advertise}"));
            advertise.to_owned()
        }
        None => {
            if listen.ip().is_unspecified() {
                report.fail(
                    NAME,
                    &Error::invalid(format!(
                        "the worker would tell gateways to connect to {listen}, which is not an address of one machine; set worker.advertise to a host:port that gateways and workers can reach"
                    )),
                );
            }
            listen.to_string()
        }
    }
}

/// Returns the host of a `host:port`.
pub(super) fn host(address: &str) -> &str {
    address.rsplit_once(':').map_or(address, |(host, _)| host)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_address_is_free_or_taken() {
        let mut report = Report::default();
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        let taken = check_listen(&mut report, "a", any).unwrap();
        assert!(check_listen(&mut report, "b", taken.address()).is_none());
        let lines = report.lines();
        assert!(
            lines.contains("ok       a: 127.0.0.1:0: the system"),
            "{lines}"
        );
        assert!(lines.contains("failed   b: cannot listen on"), "{lines}");
        assert!(lines.contains("the port is in use"), "{lines}");
    }

    #[test]
    fn an_address_that_others_cannot_reach_is_refused() {
        let mut report = Report::default();
        let everywhere = SocketAddr::from(([0, 0, 0, 0], 7200));
        let told = check_advertised(&mut report, Some("w:7200"), everywhere);
        assert_eq!((told.as_str(), report.has_failed()), ("w:7200", false));
        check_advertised(&mut report, None, everywhere);
        assert!(
            report.lines().contains("set worker.advertise"),
            "{}",
            report.lines()
        );
        assert_eq!(host("[::1]:7200"), "[::1]");
    }
}
