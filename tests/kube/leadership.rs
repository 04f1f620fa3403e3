//! Two replicas, of which one leads.

use std::iter;
use std::time::Duration;

use forebay::serve::demo::children::Signal;
use forebay::serve::kube::api::EndpointPickerConfig;
use k8s_openapi::api::coordination::v1::Lease;
use serde_json::json;
use tokio::time::Instant;

use super::install::{Installation, Wanted, Way};
use super::view::PATIENCE;
use crate::support::cluster::sum;
use crate::support::happens;
use crate::support::kube::Kube;
use crate::support::kube::objects::{POOL, config};
use crate::support::load::{Answered, Load};

const ELECTION: [&str; 3] = [
    "--ha-enable-leader-election",
    "--ha-lease-duration=2s",
    "--ha-retry-period=500ms",
];

async fn two() -> Installation {
    let installation = Installation::start(Kube::start().await, Wanted::replicas(2, &ELECTION)).await;
    installation.readiness(&[true, false]).await;
    installation
}

/// Two replicas behind one address, the first of which has picked.
async fn two_behind_a_service() -> Installation {
    let wanted = Wanted {
        way: Way::Service,
        ..Wanted::replicas(2, &[&ELECTION[..], &["--health-checking"]].concat())
    };
    let installation = Installation::start(Kube::start().await, wanted).await;
    installation.readiness(&[true, false]).await;
    installation.load(1, &[]).await.end_without_failures().await;
    assert!(picked(&installation, 0).await.unwrap() > 0.0);
    installation
}

/// Requests for which a replica has picked an endpoint.
async fn picked(installation: &Installation, replica: usize) -> Result<f64, String> {
    Ok(sum(&installation.metrics(replica).await?, "llm_d_epp_request_total"))
}

/// Requests that Envoy let through without a pick.
async fn unpicked(installation: &Installation) -> u64 {
    let name = "http.ingress.ext_proc.failure_mode_allowed";
    installation.envoy.stat(name).await.unwrap()
}

/// Waits until twenty more requests were answered.
async fn twenty_more(load: &Load) {
    let before = load.answered();
    happens("twenty more answers", PATIENCE, async || {
        let found = load.answered();
        (found >= before + 20)
            .then_some(())
            .ok_or_else(|| format!("{found} answers"))
    })
    .await;
}

/// Waits until a replica picks for none of twenty further answers.
async fn picks_no_more(installation: &Installation, replica: usize, load: &Load) {
    happens("new requests go to the new leader", PATIENCE, async || {
        let before = picked(installation, replica).await?;
        twenty_more(load).await;
        let more = picked(installation, replica).await? - before;
        (more == 0.0)
            .then_some(())
            .ok_or_else(|| format!("{more} picks of the old one"))
    })
    .await;
}

/// Waits until Envoy lets none of twenty further requests through without a pick. A health check that meets the replica
/// that leads no more, in the moment in which the address still leads to it, has Envoy do so until the next one.
async fn all_are_picked(installation: &Installation, load: &Load) {
    happens("all requests are picked for", PATIENCE, async || {
        let before = unpicked(installation).await;
        twenty_more(load).await;
        let more = unpicked(installation).await - before;
        (more == 0).then_some(()).ok_or_else(|| format!("{more} unpicked"))
    })
    .await;
}

fn lease(installation: &Installation) -> String {
    format!("epp-{}-{POOL}.llm-d.ai", installation.kube.namespace)
}

/// The longest time without an answer, and how many requests failed, from `start` on.
fn gap(answers: &[Answered], start: Instant) -> (Duration, Vec<String>) {
    let later = answers.iter().filter(|it| it.answered >= start);
    let good = later.clone().filter(|it| it.result.is_ok()).map(|it| it.answered);
    let good: Vec<_> = iter::once(start).chain(good).collect();
    let longest = good.windows(2).map(|pair| pair[1] - pair[0]).max();
    let failures = later.filter_map(|it| it.result.clone().err()).collect();
    (longest.unwrap_or(Duration::MAX), failures)
}

#[tokio::test]
async fn the_standby_is_not_ready_and_knows_all_the_same() {
    let installation = two().await;

    installation.shows(1, &["llm_d_epp_ready_endpoints{", "} 2"]).await;
    // It looks at the endpoints, too.
    installation.shows(1, &["llm_d_epp_per_endpoint_queue_size{"]).await;
}

#[tokio::test]
async fn a_leader_that_is_told_to_end_hands_over_and_no_request_is_lost() {
    let mut installation = two().await;
    let load = installation.load(8, &[]).await;

    let start = Instant::now();
    installation.replicas[0].picker.child.signal(Signal::TERM);
    happens("the standby is ready", PATIENCE, async || {
        installation
            .is_ready(1)
            .await
            .then_some(())
            .ok_or_else(|| "it is not".to_owned())
    })
    .await;
    let led_after = start.elapsed();
    installation.readiness(&[false, true]).await;
    installation.replicas[0].picker.child.wait().await.unwrap();
    installation.load(1, &[]).await.end_without_failures().await;

    let answers = load.end().await;
    let (gap, failures) = gap(&answers, start);
    eprintln!(
        "hand-over: standby ready after {led_after:?}, {gap:?} without an answer, {} lost",
        failures.len()
    );
    assert_eq!(failures, Vec::<String>::new());
}

#[tokio::test]
async fn a_second_signal_ends_a_leader_at_once_though_its_lease_cannot_be_given_back() {
    let patient = [
        "--ha-enable-leader-election",
        "--ha-lease-duration=600s",
        "--ha-retry-period=60s",
    ];
    let mut installation = Installation::start(Kube::start().await, Wanted::replicas(1, &patient)).await;
    let leader = &mut installation.replicas[0];
    leader.line.slow(Duration::from_secs(600));
    leader.line.interrupt();

    let start = Instant::now();
    leader.picker.child.signal(Signal::TERM);
    leader.picker.says("draining").await;
    leader.picker.child.signal(Signal::TERM);
    leader.picker.child.wait().await.unwrap();

    assert!(start.elapsed() < PATIENCE, "{:?}", start.elapsed());
}

#[tokio::test]
async fn behind_one_address_a_leader_that_is_told_to_end_hands_all_requests_over() {
    let mut installation = two_behind_a_service().await;
    let before = unpicked(&installation).await;
    let load = installation.load(8, &[]).await;

    let start = Instant::now();
    installation.replicas[0].picker.child.signal(Signal::TERM);
    happens("the new leader picks", PATIENCE, async || {
        let found = picked(&installation, 1).await?;
        (found > 0.0).then_some(()).ok_or_else(|| format!("{found} picks"))
    })
    .await;
    let picks_after = start.elapsed();
    // It ends when it has been quiet for a second, which it never is if gateways keep their connections to it.
    installation.replicas[0].picker.child.wait().await.unwrap();
    let ended_after = start.elapsed();
    installation.replicas[0].picker.says("drained").await;
    all_are_picked(&installation, &load).await;

    let answers = load.end().await;
    let (gap, failures) = gap(&answers, start);
    let unpicked = unpicked(&installation).await - before;
    eprintln!(
        "hand-over behind one address: new leader picks after {picks_after:?}, old one has ended after {ended_after:?}, \
         {gap:?} without an answer, {} of {} lost, {unpicked} unpicked",
        failures.len(),
        answers.len()
    );
    assert_eq!(failures, Vec::<String>::new());
}

#[tokio::test]
async fn behind_one_address_a_leader_whose_lease_another_takes_hands_all_requests_over() {
    let installation = two_behind_a_service().await;
    let before = unpicked(&installation).await;
    let load = installation.load(8, &[]).await;

    let start = Instant::now();
    // As if a process before that in the second replica's pod had taken it.
    let health = installation.replicas[1].picker.health.to_string();
    let taken = json!({
        "metadata": { "annotations": { "forebay.dev/health-address": health } },
        "spec": { "holderIdentity": "forebay-7d9f8c-00001_before", "leaseDurationSeconds": 2 },
    });
    installation.kube.patch::<Lease>(&lease(&installation), taken).await;
    installation.readiness(&[false, true]).await;
    let stepped_back_after = start.elapsed();
    picks_no_more(&installation, 0, &load).await;
    let all_after = start.elapsed();
    all_are_picked(&installation, &load).await;

    let answers = load.end().await;
    let (gap, failures) = gap(&answers, start);
    let unpicked = unpicked(&installation).await - before;
    eprintln!(
        "stepping back behind one address: not ready after {stepped_back_after:?}, all requests go to the new leader \
         after {all_after:?}, {gap:?} without an answer, {} of {} lost, {unpicked} unpicked",
        failures.len(),
        answers.len()
    );
    assert_eq!(failures, Vec::<String>::new());
}

/// How often Envoy found no replica that is ready for a request, or could not connect to the one that it took to be.
async fn unplaced(installation: &Installation) -> u64 {
    let mut sum = 0;
    for name in ["upstream_cx_none_healthy", "upstream_rq_pending_failure_eject"] {
        sum += installation
            .envoy
            .stat(&format!("cluster.picker.{name}"))
            .await
            .unwrap();
    }
    sum
}

/// The failures among the `answers` to what was asked after `time`.
fn failures_after(answers: &[Answered], time: Instant) -> Vec<String> {
    let later = answers.iter().filter(|it| it.asked > time);
    later.filter_map(|it| it.result.clone().err()).collect()
}

#[tokio::test]
async fn when_the_process_of_a_leader_ends_the_standby_leads_before_the_lease_runs_out_and_what_finds_a_picker_is_answered()
 {
    const CLIENTS: usize = 8;
    let never = ["--ha-enable-leader-election", "--ha-lease-duration=1h"];
    let mut installation = Installation::start(Kube::start().await, Wanted::replicas(2, &never)).await;
    installation.readiness(&[true, false]).await;
    let load = installation.load(CLIENTS, &[]).await;
    let before = unplaced(&installation).await;

    let start = Instant::now();
    installation.replicas[0].picker.child.signal(Signal::KILL);
    installation.replicas[0].picker.child.wait().await.unwrap();
    installation.readiness(&[false, true]).await;
    let led_after = start.elapsed();
    // Each of Envoy's threads hears by itself of the new leader.
    happens("requests are served again", PATIENCE, async || {
        let is_settled = load.is_settled(20);
        is_settled.then_some(()).ok_or_else(|| "some still fail".to_owned())
    })
    .await;
    let served = Instant::now();
    twenty_more(&load).await;

    let answers = load.end().await;
    let (gap, failures) = gap(&answers, start);
    let unplaced = unplaced(&installation).await - before;
    eprintln!(
        "crash: standby ready after {led_after:?}, {gap:?} without an answer, {} lost; {unplaced} times no replica could be \
         asked",
        failures.len()
    );
    assert_eq!(failures_after(&answers, served), Vec::<String>::new());
    // Besides those that the leader had, one of each client, only what came while nobody was ready.
    let of_leader = u64::try_from(failures.len()).unwrap().saturating_sub(unplaced);
    assert!(of_leader <= CLIENTS as u64, "{of_leader} of {failures:?}");
}

#[tokio::test]
async fn while_the_api_server_is_away_the_leader_leads_on_and_serves() {
    let mut installation = two().await;
    let load = installation.load(4, &[]).await;
    for replica in &installation.replicas {
        replica.line.cut();
    }

    // Longer than the lease.
    installation.replicas[0]
        .picker
        .says("the lease cannot be renewed")
        .await;
    let since = Instant::now();
    happens("the lease has run out", PATIENCE, async || {
        let lasts = since.elapsed();
        if lasts > Duration::from_secs(3) {
            Ok(())
        } else {
            Err(format!("{lasts:?}"))
        }
    })
    .await;
    installation.readiness(&[true, false]).await;
    for replica in &installation.replicas {
        replica.line.mend();
    }
    installation.grow("c").await;
    installation.shows(0, &["llm_d_epp_ready_endpoints{", "} 3"]).await;
    installation.shows(1, &["llm_d_epp_ready_endpoints{", "} 3"]).await;
    installation.readiness(&[true, false]).await;

    load.end_without_failures().await;
}

#[tokio::test]
async fn a_leader_that_is_cut_off_is_replaced_and_steps_back_when_it_sees_that() {
    let installation = two().await;

    installation.replicas[0].line.cut();
    installation.readiness(&[true, true]).await;
    installation.replicas[0].line.mend();

    installation.readiness(&[false, true]).await;
}

#[tokio::test]
async fn a_leader_whose_lease_somebody_else_takes_is_not_ready_until_it_has_it_back() {
    let installation = Installation::start(Kube::start().await, Wanted::replicas(1, &ELECTION)).await;
    installation.readiness(&[true]).await;

    let taken = json!({ "spec": { "holderIdentity": "somebody", "leaseDurationSeconds": 4 } });
    installation.kube.patch::<Lease>(&lease(&installation), taken).await;

    installation.readiness(&[false]).await;
    // Nobody renews it.
    installation.readiness(&[true]).await;
    assert_eq!(holder(&installation).await, "forebay-7d9f8c-00000");
}

/// The pod of the process that holds the lease.
async fn holder(installation: &Installation) -> String {
    let lease = installation
        .kube
        .api::<Lease>()
        .get(&lease(installation))
        .await
        .unwrap();
    let holder = lease.spec.unwrap().holder_identity.unwrap_or_default();
    let (pod, process) = holder.split_once('_').unwrap_or((&holder, ""));
    assert!(!process.is_empty(), "{holder} names no process");
    pod.to_owned()
}

#[tokio::test]
async fn of_two_replicas_with_one_pod_name_one_leads_and_the_other_says_why_it_does_not() {
    let wanted = || Wanted {
        pod_name: Some("forebay-7d9f8c-same0".to_owned()),
        ..Wanted::replicas(2, &ELECTION)
    };
    let installation = Installation::start(Kube::start().await, wanted()).await;

    installation.replicas[1]
        .picker
        .says("the lease is held by another process with the pod name of this one")
        .await;

    installation.readiness(&[true, false]).await;
    assert_eq!(holder(&installation).await, "forebay-7d9f8c-same0");
}

#[tokio::test]
async fn replicas_that_never_had_a_right_configuration_leave_the_lead_to_the_one_that_had() {
    let kube = Kube::start().await;
    kube.create(&config("picking", json!({ "plugins": [{ "type": "queue-scorer" }] })))
        .await;
    let wanted = |replicas| Wanted::replicas(replicas, &[&ELECTION[..], &["--config-object=picking"]].concat());
    let mut installation = Installation::start(kube, wanted(2)).await;
    installation.readiness(&[true, false]).await;
    installation.shows(1, &["llm_d_epp_ready_endpoints{", "} 2"]).await;
    installation.replicas[1]
        .picker
        .says("configuration object taken over")
        .await;
    let wrong = json!({ "plugins": [{ "type": "queue-scorrer" }] });
    installation.kube.patch::<EndpointPickerConfig>("picking", wrong).await;
    for newcomer in 2..4 {
        installation.join(&wanted(1)).await;
        installation
            .shows(newcomer, &["llm_d_epp_ready_endpoints{", "} 2"])
            .await;
        installation.replicas[newcomer]
            .picker
            .says("configuration object refused")
            .await;
    }

    installation.replicas[0].picker.child.signal(Signal::TERM);

    installation.readiness(&[false, true, false, false]).await;
    installation.replicas[0].picker.child.wait().await.unwrap();
    installation.load(1, &[]).await.end_without_failures().await;

    // The last one that had a right one goes. One of the others leads, and is ready when it has one, too.
    installation.replicas[1].picker.child.signal(Signal::KILL);
    installation.replicas[1].picker.child.wait().await.unwrap();
    happens("another one leads", PATIENCE, async || {
        let holder = holder(&installation).await;
        let leads = ["forebay-7d9f8c-00002", "forebay-7d9f8c-00003"].contains(&holder.as_str());
        leads.then_some(()).ok_or(holder)
    })
    .await;
}

#[tokio::test]
async fn without_an_election_all_replicas_serve_and_when_one_crashes_only_what_it_had_is_lost() {
    const CLIENTS: usize = 8;
    let mut installation = Installation::start(Kube::start().await, Wanted::replicas(2, &[])).await;
    installation.readiness(&[true, true]).await;
    let load = installation.load(CLIENTS, &[]).await;

    let start = Instant::now();
    installation.replicas[0].picker.child.signal(Signal::KILL);
    installation.replicas[0].picker.child.wait().await.unwrap();
    installation.load(1, &[]).await.end_without_failures().await;

    twenty_more(&load).await;

    let answers = load.end().await;
    let (gap, failures) = gap(&answers, start);
    eprintln!(
        "crash of one of two: {gap:?} without an answer, {} lost of {}",
        failures.len(),
        answers.len()
    );
    // What finds its connection refused is asked again of the other one.
    assert!(failures.len() <= CLIENTS, "one of each client: {failures:?}");
}
