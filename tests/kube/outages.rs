//! Parts of an installation that are gone: a standby, the node of the leader, pods that the API server still lists.

use std::time::Duration;

use forebay::serve::demo::children::Signal;
use tokio::net::TcpListener;
use tokio::time::Instant;

use super::install::{Installation, Wanted, Way};
use super::view::PATIENCE;
use crate::support::cluster::sum;
use crate::support::happens;
use crate::support::kube::Kube;
use crate::support::load::Load;
use crate::support::process::ServerProcess;

const ELECTION: [&str; 4] = [
    "--ha-enable-leader-election",
    "--ha-lease-duration=2s",
    "--ha-retry-period=500ms",
    "--health-checking",
];

/// Waits until so many more requests were answered.
async fn answers(load: &Load, more: usize) {
    let before = load.answered();
    happens(&format!("{more} more answers"), PATIENCE, async || {
        let found = load.answered();
        let enough = found >= before + more;
        enough.then_some(()).ok_or_else(|| format!("{found} answers"))
    })
    .await;
}

#[tokio::test]
async fn a_standby_that_ends_is_missed_by_nobody() {
    let mut installation = Installation::start(Kube::start().await, Wanted::replicas(2, &ELECTION)).await;
    installation.readiness(&[true, false]).await;
    let load = installation.load(4, &[]).await;

    installation.replicas[1].picker.child.signal(Signal::KILL);
    installation.replicas[1].picker.child.wait().await.unwrap();
    answers(&load, 40).await;

    load.end_without_failures().await;
    installation.readiness(&[true, false]).await;
}

/// What is left of a node that is gone: an address that does not answer, and connections that nobody ends.
#[tokio::test]
async fn a_leader_whose_node_is_gone_is_replaced_when_its_lease_has_run_out() {
    let wanted = Wanted {
        way: Way::Service,
        ..Wanted::replicas(2, &ELECTION)
    };
    let installation = Installation::start(Kube::start().await, wanted).await;
    installation.readiness(&[true, false]).await;
    let load = installation.load(4, &[]).await;
    let leader = &installation.replicas[0];

    leader.line.cut();
    leader.picker.child.signal(Signal::STOP);
    let start = Instant::now();
    installation.readiness(&[false, true]).await;
    let led_after = start.elapsed();
    happens("the new leader picks", PATIENCE, async || {
        let picks = sum(&installation.metrics(1).await?, "llm_d_epp_request_total");
        (picks > 0.0).then_some(()).ok_or_else(|| "it does not".to_owned())
    })
    .await;
    let picks_after = start.elapsed();
    answers(&load, 20).await;

    eprintln!("node of the leader gone: standby leads after {led_after:?}, and picks after {picks_after:?}");
    installation.load(1, &[]).await.end_without_failures().await;
    // What was under way at the old leader has ended too: Envoy noticed that its connection is dead.
    load.end().await;
}

#[tokio::test]
async fn pods_that_are_ready_and_do_not_answer_get_nothing_while_the_api_server_is_away() {
    let installation = Installation::start(Kube::start().await, Wanted::replicas(1, &[])).await;
    // Nobody listens at the one, the other takes connections and says nothing, and the third stops later.
    let [refuses, silent, stops] = [8, 9, 10].map(|host| installation.address(host));
    let _listener = TcpListener::bind(silent).await.unwrap();
    let stopped = ServerProcess::start_at("stops", 20.0, stops).await;
    for (name, address) in [("refuses", refuses), ("silent", silent), ("stops", stops)] {
        let ip = address.ip().to_string();
        installation.kube.start_pod(name, "vllm", &ip).await;
    }
    counted(
        &installation,
        &[("healthy", 3.0), ("unreachable", 1.0), ("unscraped", 1.0)],
    )
    .await;

    installation.replicas[0].line.cut();
    stopped.hang();
    counted(
        &installation,
        &[("healthy", 2.0), ("unreachable", 2.0), ("unscraped", 1.0)],
    )
    .await;
    let load = installation.load(4, &[]).await;
    answers(&load, 60).await;
    let served: usize = ["a", "b"].iter().map(|name| load.served_by(name, 0)).sum();

    assert!(served >= 60, "{served} were served by those that answer");
    load.end_without_failures().await;
}

/// Waits until the picker counts so many endpoints in these states.
async fn counted(installation: &Installation, wanted: &[(&str, f64)]) {
    happens(
        &format!("endpoints are {wanted:?}"),
        PATIENCE + Duration::from_secs(10),
        async || {
            let page = installation.metrics(0).await?;
            let is_so = |(state, number): &(&str, f64)| {
                let label = format!("state=\"{state}\"");
                let lines = page.lines().filter(|line| line.starts_with("forebay_pool_endpoints{"));
                let of_state: Vec<_> = lines.filter(|line| line.contains(&label)).collect();
                sum(&of_state.join("\n"), "forebay_pool_endpoints") == *number
            };
            wanted.iter().all(is_so).then_some(()).ok_or(page.clone())
        },
    )
    .await;
}
