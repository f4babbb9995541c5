use volary_flight_proto::ErrorCode;
use volary_gateway::cluster::check_open_files;
use volary_node::data_dir::{Inspection, NodeRole};
use volary_node::{Runtimes, tls};

use super::report::Report;
use super::{addresses, catalog, certificates, data_dir, limits, network};
use crate::local;
use crate::settings::Settings;

const LISTEN_ADDRESS: &str = "listen address";

/// How far the checks go.
pub(super) struct Scope {
    /// Says whether the checks leave out the network and other nodes.
    pub(super) is_offline: bool,
    pub(super) runtimes: Runtimes,
}

/// Checks a gateway.
pub(super) async fn check_gateway(
    report: &mut Report,
    config: &volary_gateway::Config,
    scope: &Scope,
) {
    check_secret(report, NodeRole::Gateway, config.secret.is_some());
    let directory = data_dir::check(report, "", &config.data_dir, NodeRole::Gateway);
    data_dir::check_disk(report, &config.data_dir);
    let is_running = directory.as_ref().err() == Some(&ErrorCode::AlreadyExists);
    let directory = directory.ok().flatten();
    let has_secret = config.secret.is_some();
    let summary = catalog::check(report, &config.data_dir, directory.as_ref(), has_secret).await;
    let _listener = addresses::check_listen(report, LISTEN_ADDRESS, config.listen);
    // A gateway does not know by which names it is reached.
    let names = node_name(NodeRole::Gateway, &config.tls);
    certificates::check(report, NodeRole::Gateway, &config.tls, &names);
    let workers = summary.workers.len().max(config.cluster.min_workers);
    limits::check_open_files(report, check_open_files(workers));
    limits::check_memory(report, "gateway.memory.limit", config.memory.limit);
    if scope.is_offline {
        return;
    }
    // Checking the certificates has said what is wrong with them.
    let Ok(tls) = tls::Tls::load(NodeRole::Gateway, &config.tls) else {
        return;
    };
    let (tls, runtimes) = (tls.client(), &scope.runtimes);
    if is_running {
        network::check_workers_of_running(report, config, tls.as_ref(), runtimes).await;
    } else {
        network::check_workers(report, &summary.workers, tls.as_ref(), runtimes).await;
    }
}

/// Checks a worker.
pub(super) async fn check_worker(
    report: &mut Report,
    config: &volary_worker::Config,
    scope: &Scope,
) {
    check_secret(report, NodeRole::Worker, config.secret.is_some());
    let directory = data_dir::check(report, "", &config.data_dir, NodeRole::Worker);
    data_dir::check_disk(report, &config.data_dir);
    let directory = directory.ok().flatten();
    let listener = addresses::check_listen(report, LISTEN_ADDRESS, config.listen);
    let listen = listener
        .as_ref()
        .map_or(config.listen, |listener| listener.address());
    let advertised = addresses::check_advertised(report, config.advertise.as_deref(), listen);
    let _clients_listener = config
        .clients
        .listen
        .and_then(|address| addresses::check_listen(report, "listen address of clients", address));
    certificates::check(
        report,
        NodeRole::Worker,
        &config.tls,
        &names_of_worker(config, &advertised),
    );
    limits::check_open_files(report, Ok(()));
    limits::check_memory(report, "worker.memory.limit", config.memory.limit);
    if scope.is_offline {
        return;
    }
    if let Some(advertise) = &config.advertise {
        network::check_resolves(report, "advertised address", advertise).await;
    }
    let identity = directory.as_ref().and_then(Inspection::identity);
    network::check_gateway_of(report, config, identity, &advertised, &scope.runtimes).await;
}

/// Checks a gateway and its workers in one process. They need no other machine.
pub(super) async fn check_local(report: &mut Report, settings: Settings) {
    let Settings { gateway, local, .. } = settings;
    if let Err(error) = local::check_secret(&local.data_dir) {
        report.fail("secret", &error);
    }
    if let Err(error) = local::refuse_fewer_workers(&local.data_dir, local.workers) {
        report.fail("workers", &error);
    }
    let gateway_dir = local::gateway_dir(&local.data_dir);
    let directory = data_dir::check(report, "gateway: ", &gateway_dir, NodeRole::Gateway);
    // The first start creates a secret.
    let directory = directory.ok().flatten();
    catalog::check(report, &gateway_dir, directory.as_ref(), true).await;
    for index in 0..local.workers {
        let path = local::worker_dir(&local.data_dir, index);
        // The lock of the directory is released at once: there may be thousands.
        drop(data_dir::check(
            report,
            &format!("worker {index}: "),
            &path,
            NodeRole::Worker,
        ));
    }
    data_dir::check_disk(report, &local.data_dir);
    let _listener = addresses::check_listen(report, LISTEN_ADDRESS, local.listen);
    let mut names = node_name(NodeRole::Gateway, &gateway.tls);
    if names.is_empty() && gateway.tls.authorities.is_some() {
        let host = local::reachable_address(local.listen).ip().to_string();
        names.push((host, "the workers connect to this address".to_owned()));
    }
    certificates::check(report, NodeRole::Gateway, &gateway.tls, &names);
    limits::check_open_files(report, local::check_open_files(local.workers));
    limits::check_memory(report, "local.memory", local.memory);
}

fn check_secret(report: &mut Report, role: NodeRole, is_set: bool) {
    // The settings are refused if a secret is needed and missing.
    let found = if is_set {
        format!("{role}.secret is set")
    } else {
        format!("{role}.secret is not set: all nodes must run on this machine, without users")
    };
    report.ok("secret", found);
}

/// Returns the name that the certificates of all nodes must have, if the settings say one.
fn node_name(role: NodeRole, config: &tls::Config) -> Vec<(String, String)> {
    let name = config.node_name.iter();
    name.map(|name| {
        let why = format!("{role}.tls.node_name says that all nodes have this name");
        (name.clone(), why)
    })
    .collect()
}

/// Returns the hosts by which others connect to a worker, each with the reason.
fn names_of_worker(config: &volary_worker::Config, advertised: &str) -> Vec<(String, String)> {
    let mut names = node_name(NodeRole::Worker, &config.tls);
    if names.is_empty() {
        let why = format!("gateways and workers connect to {advertised}");
        names.push((addresses::host(advertised).to_owned(), why));
    }
    let of_clients = config.clients.advertise.clone();
    let of_clients = of_clients.or_else(|| config.clients.listen.map(|it| it.to_string()));
    if let Some(address) = of_clients {
        let why = format!("clients connect to {address}");
        let host = addresses::host(&address).to_owned();
        if names.iter().all(|(name, _)| *name != host) {
            names.push((host, why));
        }
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_worker_needs_the_names_by_which_others_connect() {
        let hosts = |config: &volary_worker::Config| -> Vec<String> {
            let names = names_of_worker(config, "w.example:7200");
            names.into_iter().map(|(host, _)| host).collect()
        };
        let mut config = volary_worker::Config::default();
        assert_eq!(hosts(&config), ["w.example"]);
        config.clients.listen = Some(([10, 0, 0, 7], 7201).into());
        assert_eq!(hosts(&config), ["w.example", "10.0.0.7"]);
        config.clients.advertise = Some("w.example:443".to_owned());
        assert_eq!(hosts(&config), ["w.example"]);
        config.tls.node_name = Some("nodes.example".to_owned());
        assert_eq!(hosts(&config), ["nodes.example", "w.example"]);
    }
}
