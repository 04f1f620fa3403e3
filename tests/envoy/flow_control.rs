//! What waits, who goes first, and what is told to those who do not go, seen by clients and operators.

use std::path::Path;
use std::time::Duration;

use forebay::serve::demo::children::Signal;
use http_body_util::BodyExt;
use serde_json::json;
use tempfile::TempDir;
use tokio::task::JoinHandle;

use crate::support::cluster::{Cluster, MODEL, Plan, document, sum};
use crate::support::gate::{Gate, Held};
use crate::support::http::{Ask, Reply};
use crate::support::{happens, promtool, soon};

/// Bound for what a loaded machine may take long for.
const PATIENCE: Duration = Duration::from_secs(20);

/// An endpoint works on one request at a time, and others wait. More of `flowControl` can follow.
const ONE_AT_A_TIME: &str = "
apiVersion: llm-d.ai/v1alpha1
kind: EndpointPickerConfig
featureGates: [flowControl]
plugins:
- {type: round-robin-fairness-policy}
- {type: concurrency-detector, parameters: {maxConcurrency: 1}}
flowControl:
  saturationDetector: {pluginRef: concurrency-detector}
";

/// Without flow control: the same detector says when the pool is full, and does not filter.
const LEGACY: &str = "
apiVersion: llm-d.ai/v1alpha1
kind: EndpointPickerConfig
plugins:
- {type: queue-scorer}
- {type: concurrency-detector, parameters: {maxConcurrency: 1}}
schedulingProfiles:
- {name: default, plugins: [{pluginRef: queue-scorer}]}
flowControl:
  saturationDetector: {pluginRef: concurrency-detector}
";

const FAIRNESS_ID: &str = "x-llm-d-inference-fairness-id";
const FAIRNESS_ID_ALIAS: &str = "x-gateway-inference-fairness-id";
const OBJECTIVE: &str = "x-llm-d-inference-objective";
const OBJECTIVE_ALIAS: &str = "x-gateway-inference-objective";
const TTL: &str = "x-llm-d-inference-ttl";
const TTL_ALIAS: &str = "x-gateway-inference-ttl";

/// The priorities of the seed's example.
const OBJECTIVES: [(&str, i32); 3] = [("premium", 100), ("standard", 0), ("best-effort", -10)];

/// A cluster with one endpoint, which answers when it is told to.
struct Pool {
    cluster: Cluster,
    gate: Gate,
}

impl Pool {
    async fn start(config: &str) -> Self {
        Self::with(Plan::new().config(config)).await
    }

    async fn with(plan: Plan) -> Self {
        let gate = Gate::start().await;
        let cluster = plan.upstream(gate.address).start().await;
        Self { cluster, gate }
    }

    /// Asks for a completion; it goes on while the test does other things.
    fn ask(&self, id: &str, headers: &[(&'static str, &str)]) -> JoinHandle<Reply> {
        ask(&self.cluster, id, headers)
    }

    /// A request that the endpoint works on, so that it has no room for others.
    async fn full(&mut self) -> (Held, JoinHandle<Reply>) {
        let answer = self.ask("first", &[]);
        (self.gate.next().await, answer)
    }

    /// The ids of the next requests that reach the endpoint, each of which is answered at once.
    async fn order(&mut self, requests: usize) -> Vec<String> {
        let mut order = Vec::new();
        for _ in 0..requests {
            let held = self.gate.next().await;
            assert!(self.gate.is_idle(), "the endpoint takes one at a time");
            order.push(held.id().to_owned());
            held.answer();
        }
        order
    }
}

fn completion(cluster: &Cluster, id: &str, headers: &[(&'static str, &str)]) -> Ask {
    let ask = cluster.completion(document("Hello", 1).to_string());
    headers
        .iter()
        .fold(ask.header("x-request-id", id), |ask, (name, value)| {
            ask.header(name, value)
        })
}

fn ask(cluster: &Cluster, id: &str, headers: &[(&'static str, &str)]) -> JoinHandle<Reply> {
    let (client, ask) = (cluster.client.clone(), completion(cluster, id, headers));
    tokio::spawn(async move { client.try_send(ask).await.unwrap() })
}

async fn reply(answer: JoinHandle<Reply>) -> Reply {
    soon("the request is answered", answer).await.unwrap()
}

/// Waits until so many requests wait.
async fn wait(cluster: &Cluster, wanted: f64) {
    happens(&format!("{wanted} requests wait"), PATIENCE, async || {
        let page = cluster.page("/metrics").await.text();
        match sum(&page, "llm_d_epp_flow_control_queue_size") {
            found if found == wanted => Ok(()),
            found => Err(format!("{found} do")),
        }
    })
    .await;
}

/// Waits until the picker counts so many requests as running.
async fn running(cluster: &Cluster, wanted: f64) {
    happens(&format!("{wanted} requests run"), PATIENCE, async || {
        match cluster.running().await? {
            found if found == wanted => Ok(()),
            found => Err(format!("{found} do")),
        }
    })
    .await;
}

/// Waits until the sum over the series of a family with these labels is `wanted`, and returns a page from after that: what
/// is counted in the same moment may have been written on the page before.
async fn counts(cluster: &Cluster, family: &str, labels: &[&str], wanted: f64) -> String {
    happens(&format!("{family} with {labels:?} is {wanted}"), PATIENCE, async || {
        let page = cluster.page("/metrics").await.text();
        match value(&page, family, labels) {
            Some(found) if found == wanted => Ok(()),
            found => Err(format!("it is {found:?}")),
        }
    })
    .await;
    cluster.page("/metrics").await.text()
}

/// The sum over the series of a family that have these labels, none if there are none.
fn value(page: &str, family: &str, labels: &[&str]) -> Option<f64> {
    let series = page
        .lines()
        .filter_map(|line| line.strip_prefix(family)?.strip_prefix('{'))
        .filter(|rest| labels.iter().all(|label| rest.contains(label)))
        .map(|rest| rest.rsplit(' ').next().unwrap().parse::<f64>().unwrap());
    series.reduce(|sum, value| sum + value)
}

/// A refusal as clients see it: status, dropped reason and body.
fn told(reply: &Reply) -> (u16, Option<&str>, String) {
    (
        reply.status,
        reply.header("x-llm-d-request-dropped-reason"),
        reply.text(),
    )
}

/// Passes if the client is told in how many seconds it may come again.
fn may_come_again(reply: &Reply) {
    let after = reply.header("retry-after").expect("the client may come again");
    let seconds: u64 = after
        .parse()
        .unwrap_or_else(|_| panic!("`{after}` is no number of seconds"));
    assert!((1..=60).contains(&seconds), "{seconds}");
}

const AT_CAPACITY: &str = "inference error: ResourceExhausted - request rejected pre-queue: queue at capacity";
const EXPIRED: &str = "inference error: ServiceUnavailable - request timed out in queue: request evicted from queue: \
                       request TTL expired";

/// What a client is told for whom a full queue has no room.
async fn refused_for_want_of_room(limits: &str) {
    let mut pool = Pool::start(&format!("{ONE_AT_A_TIME}{limits}")).await;
    let (first, answer) = pool.full().await;
    let second = pool.ask("second", &[]);
    wait(&pool.cluster, 1.0).await;

    let third = reply(pool.ask("third", &[])).await;

    let expected = (429, Some("rejected-saturated"), AT_CAPACITY.to_owned());
    assert_eq!(told(&third), expected);
    may_come_again(&third);
    assert_eq!(third.header("x-forebay-queue-position"), Some("2"));
    // Those who have room are served.
    first.answer();
    assert_eq!(reply(answer).await.status, 200);
    assert_eq!(pool.order(1).await, ["second"]);
    assert_eq!(reply(second).await.status, 200);
}

#[tokio::test]
async fn a_request_beyond_the_limit_of_its_band_is_refused_with_429() {
    refused_for_want_of_room("  priorityBands: [{priority: 0, maxRequests: 1}]").await;
}

#[tokio::test]
async fn a_request_beyond_the_limit_of_all_bands_is_refused_with_429() {
    refused_for_want_of_room("  maxRequests: 1").await;
}

#[tokio::test]
async fn a_request_beyond_the_limit_of_bytes_is_refused_with_429() {
    let one_and_a_half = document("Hello", 1).to_string().len() * 3 / 2;
    refused_for_want_of_room(&format!("  maxBytes: {one_and_a_half}")).await;
}

#[tokio::test]
async fn a_request_without_room_and_without_endpoints_is_refused_with_503() {
    let config = format!("{ONE_AT_A_TIME}  maxRequests: 1");
    let cluster = Plan::new().servers(&[]).config(&config).start().await;
    let first = ask(&cluster, "first", &[]);
    wait(&cluster, 1.0).await;

    let second = reply(ask(&cluster, "second", &[])).await;

    let body = "inference error: ServiceUnavailable - no endpoints available: request rejected pre-queue: queue at \
                capacity";
    assert_eq!(told(&second), (503, Some("rejected-no-endpoints"), body.to_owned()));
    may_come_again(&second);
    assert_eq!(second.header("x-forebay-queue-position"), Some("2"));
    first.abort();
}

#[tokio::test]
async fn a_request_that_has_waited_for_too_long_is_answered_with_503() {
    let mut pool = Pool::start(&format!("{ONE_AT_A_TIME}  defaultRequestTTL: 50ms")).await;
    let (_first, _answer) = pool.full().await;

    let second = reply(pool.ask("second", &[])).await;

    assert_eq!(told(&second), (503, Some("rejected-ttl-expired"), EXPIRED.to_owned()));
    may_come_again(&second);
    assert_eq!(second.header("x-forebay-queue-position"), None);
}

#[tokio::test]
async fn clients_can_say_by_either_name_that_they_will_not_wait_for_long() {
    let mut pool = Pool::start(ONE_AT_A_TIME).await;
    let (_first, _answer) = pool.full().await;

    for name in [TTL, TTL_ALIAS] {
        let hasty = reply(pool.ask("hasty", &[(name, "50")])).await;

        assert_eq!(
            told(&hasty),
            (503, Some("rejected-ttl-expired"), EXPIRED.to_owned()),
            "{name}"
        );
    }
}

#[tokio::test]
async fn clients_cannot_say_that_they_will_wait_for_longer() {
    let mut pool = Pool::start(&format!("{ONE_AT_A_TIME}  defaultRequestTTL: 50ms")).await;
    let (_first, _answer) = pool.full().await;

    let patient = reply(pool.ask("patient", &[(TTL, "600000")])).await;

    assert_eq!(told(&patient), (503, Some("rejected-ttl-expired"), EXPIRED.to_owned()));
}

#[tokio::test]
async fn a_request_that_has_waited_for_any_endpoint_is_answered_with_503() {
    let config = format!("{ONE_AT_A_TIME}  noEndpointRequestTTL: 50ms");
    let cluster = Plan::new().servers(&[]).config(&config).start().await;

    let first = reply(ask(&cluster, "first", &[])).await;

    let body = "inference error: ServiceUnavailable - request timed out in queue and no endpoints are available: request \
                evicted from queue: request TTL expired";
    assert_eq!(told(&first), (503, Some("rejected-no-endpoints"), body.to_owned()));
    may_come_again(&first);
}

#[tokio::test]
async fn a_client_that_leaves_the_queue_gives_its_place_and_its_bytes_back() {
    let config = format!("{ONE_AT_A_TIME}  priorityBands: [{{priority: 100, maxRequests: 1}}]");
    let mut pool = Pool::with(Plan::new().config(&config).objectives(&OBJECTIVES)).await;
    let (first, _answer) = pool.full().await;
    let leaves = pool.ask("leaves", &[(OBJECTIVE, "premium")]);
    wait(&pool.cluster, 1.0).await;

    leaves.abort();

    let left = ["outcome=\"EvictedContextCancelled\"", "priority=\"100\""];
    let page = counts(&pool.cluster, "llm_d_epp_flow_control_requests_total", &left, 1.0).await;
    assert_eq!(sum(&page, "llm_d_epp_flow_control_queue_size"), 0.0);
    assert_eq!(sum(&page, "llm_d_epp_flow_control_queue_bytes"), 0.0);
    let durations = "llm_d_epp_flow_control_request_queue_duration_seconds_count";
    assert_eq!(value(&page, durations, &left), Some(1.0));
    // The queue knows it first, the stream a moment later.
    counts(&pool.cluster, "forebay_requests_ended_total", &["\"cancelled\""], 1.0).await;
    let comes = pool.ask("comes", &[(OBJECTIVE, "premium")]);
    wait(&pool.cluster, 1.0).await;
    first.answer();
    assert_eq!(pool.order(1).await, ["comes"]);
    assert_eq!(reply(comes).await.status, 200);
}

#[tokio::test]
async fn what_still_waits_when_the_drain_is_over_is_answered_with_500() {
    let plan = Plan::new().config(ONE_AT_A_TIME).flag("--drain-timeout=1s");
    let mut pool = Pool::with(plan).await;
    let (_first, answer) = pool.full().await;
    let second = pool.ask("second", &[]);
    wait(&pool.cluster, 1.0).await;

    pool.cluster.picker.child.signal(Signal::TERM);

    let second = reply(second).await;
    let body = "inference error: Internal - flow controller shutting down: flow controller is not running";
    assert_eq!(told(&second), (500, Some("rejected-shutting-down"), body.to_owned()));
    assert_eq!(second.header("retry-after"), None);
    soon("the picker ends", pool.cluster.picker.child.wait()).await.unwrap();
    answer.abort();
}

#[tokio::test]
async fn what_waits_when_the_drain_begins_is_served_when_there_is_room() {
    let mut pool = Pool::with(Plan::new().config(ONE_AT_A_TIME).flag("--drain-quiet=0s")).await;
    let (first, _answer) = pool.full().await;
    let second = pool.ask("second", &[]);
    wait(&pool.cluster, 1.0).await;
    pool.cluster.picker.child.signal(Signal::TERM);
    pool.cluster.picker.says("draining").await;

    first.answer();

    assert_eq!(pool.order(1).await, ["second"]);
    assert_eq!(reply(second).await.status, 200);
    let status = soon("the picker ends", pool.cluster.picker.child.wait()).await.unwrap();
    assert!(status.success(), "{status}");
    pool.cluster.picker.says("drained").await;
}

#[tokio::test]
async fn a_configuration_that_changes_keeps_the_answers_that_have_begun_and_what_waits() {
    let directory = TempDir::with_prefix("forebay-config-").unwrap();
    let file = directory.path().join("config.yaml");
    std::fs::write(&file, ONE_AT_A_TIME).unwrap();
    let mut pool = Pool::with(Plan::new().flag(format!("--config-file={}", file.display()))).await;
    let first = pool.cluster.client.open(completion(&pool.cluster, "first", &[]));
    let (first, begun) = tokio::join!(first, async { pool.gate.next().await.begin() });
    let mut first = first.into_body();
    let beginning = soon("the answer begins", first.frame()).await.unwrap().unwrap();
    let second = pool.ask("second", &[]);
    wait(&pool.cluster, 1.0).await;

    // A wrong one, one of other limits that still let one work at a time, and one that lets two.
    replace(
        &file,
        &ONE_AT_A_TIME.replace("concurrency-detector", "concurency-detector"),
    );
    pool.cluster.picker.says("configuration refused").await;
    replace(&file, &format!("{ONE_AT_A_TIME}  maxRequests: 1"));
    pool.cluster.picker.says("configuration reloaded").await;
    let third = reply(pool.ask("third", &[])).await;
    wait(&pool.cluster, 1.0).await;
    assert!(pool.gate.is_idle());
    replace(&file, &ONE_AT_A_TIME.replace("maxConcurrency: 1", "maxConcurrency: 2"));

    assert_eq!(told(&third), (429, Some("rejected-saturated"), AT_CAPACITY.to_owned()));
    assert_eq!(pool.order(1).await, ["second"]);
    assert_eq!(reply(second).await.status, 200);
    begun.end();
    let rest = soon("the answer ends", first.collect()).await.unwrap().to_bytes();
    assert_eq!([beginning.into_data().unwrap(), rest].concat(), b"{}");
    running(&pool.cluster, 0.0).await;
}

/// Lays another file in its place, as editors do.
fn replace(file: &Path, text: &str) {
    let new = file.with_extension("new");
    std::fs::write(&new, text).unwrap();
    std::fs::rename(new, file).unwrap();
}

#[tokio::test]
async fn a_prompt_that_the_bucket_has_no_tokens_for_is_refused_with_429() {
    let config = "
plugins:
- {type: token-bucket, parameters: {capacity: 3, refillRate: 0.001}}
admission: {pluginRef: token-bucket}
";
    let mut pool = Pool::start(config).await;
    let first = pool.ask("first", &[]);
    pool.gate.next().await.answer();
    assert_eq!(reply(first).await.status, 200);

    let refused = reply(pool.ask("second", &[])).await;

    let body = "inference error: ResourceExhausted - request rejected by the admission policy: insufficient tokens";
    assert_eq!(told(&refused), (429, Some("rejected-not-admitted"), body.to_owned()));
    may_come_again(&refused);
    assert!(pool.gate.is_idle());
}

#[tokio::test]
async fn a_prompt_larger_than_the_bucket_is_refused_with_413_and_not_told_to_come_again() {
    let config = "
plugins:
- {type: token-bucket, parameters: {capacity: 1, refillRate: 1}}
admission: {pluginRef: token-bucket}
";
    let pool = Pool::start(config).await;

    let refused = reply(pool.ask("first", &[])).await;

    let (status, reason, body) = told(&refused);
    assert_eq!((status, reason), (413, Some("rejected-not-admitted")));
    assert!(
        body.starts_with(
            "inference error: PayloadTooLarge - request rejected by the admission policy: its prompt has about "
        ) && body.ends_with(" tokens, and the token bucket never holds more than 1"),
        "{body}"
    );
    assert_eq!(refused.header("retry-after"), None);
    assert!(pool.gate.is_idle());
}

#[tokio::test]
async fn where_nothing_is_admitted_everything_is_refused_with_429() {
    let config = format!("{ONE_AT_A_TIME}\nadmission: {{pluginRef: closed}}")
        .replace("plugins:\n", "plugins:\n- {name: closed, type: reject-all}\n");
    let pool = Pool::start(&config).await;

    let refused = reply(pool.ask("first", &[])).await;

    let body = "inference error: ResourceExhausted - request rejected by the admission policy: reject-all";
    assert_eq!(told(&refused), (429, Some("rejected-not-admitted"), body.to_owned()));
    may_come_again(&refused);
    assert!(pool.gate.is_idle());
}

#[tokio::test]
async fn without_flow_control_a_full_pool_sheds_what_is_below_priority_0_with_429() {
    let mut pool = Pool::with(Plan::new().config(LEGACY).objectives(&OBJECTIVES)).await;
    let (first, _answer) = pool.full().await;

    let shed = reply(pool.ask("shed", &[(OBJECTIVE, "best-effort")])).await;
    let passes = pool.ask("passes", &[(OBJECTIVE, "standard")]);

    let body = "inference error: ResourceExhausted - system saturated, sheddable request dropped";
    assert_eq!(told(&shed), (429, None, body.to_owned()));
    may_come_again(&shed);
    assert_eq!(pool.order(1).await, ["passes"]);
    assert_eq!(reply(passes).await.status, 200);
    first.answer();
    running(&pool.cluster, 0.0).await;
    // With room, it is served like any other.
    let served = pool.ask("served", &[(OBJECTIVE, "best-effort")]);
    assert_eq!(pool.order(1).await, ["served"]);
    assert_eq!(reply(served).await.status, 200);
}

#[tokio::test]
async fn without_flow_control_and_endpoints_requests_are_refused_with_503() {
    let cluster = Plan::new().servers(&[]).config(LEGACY).start().await;

    let refused = reply(ask(&cluster, "first", &[])).await;

    let body = "inference error: ServiceUnavailable - failed to find endpoint candidates for serving the request";
    assert_eq!(told(&refused), (503, Some("rejected-no-endpoints"), body.to_owned()));
    may_come_again(&refused);
}

#[tokio::test]
async fn without_flow_control_a_request_for_which_the_filters_leave_nobody_is_refused_with_429() {
    let filters = LEGACY.replace("[{pluginRef: queue-scorer}]", "[{pluginRef: concurrency-detector}]");
    let mut pool = Pool::start(&filters).await;
    let (_first, _answer) = pool.full().await;

    let refused = reply(pool.ask("second", &[])).await;

    let body = "inference error: ResourceExhausted - no endpoints available for the given request";
    assert_eq!(told(&refused), (429, Some("rejected-saturated"), body.to_owned()));
    may_come_again(&refused);
}

#[tokio::test]
async fn requests_that_wait_are_served_one_after_the_other_as_the_endpoint_gets_room() {
    let mut pool = Pool::start(ONE_AT_A_TIME).await;
    let (first, answer) = pool.full().await;
    let mut waiting = Vec::new();
    for number in 1..=3 {
        waiting.push(pool.ask(&number.to_string(), &[]));
        wait(&pool.cluster, f64::from(number)).await;
    }
    assert!(pool.gate.is_idle());

    first.answer();

    assert_eq!(pool.order(3).await, ["1", "2", "3"]);
    assert_eq!(reply(answer).await.status, 200);
    for answer in waiting {
        assert_eq!(reply(answer).await.status, 200);
    }
}

#[tokio::test]
async fn more_important_requests_overtake_the_others() {
    let mut pool = Pool::with(Plan::new().config(ONE_AT_A_TIME).objectives(&OBJECTIVES)).await;
    let (first, _answer) = pool.full().await;
    let best_effort = pool.ask("best-effort", &[(OBJECTIVE, "best-effort")]);
    wait(&pool.cluster, 1.0).await;
    let standard = pool.ask("standard", &[]);
    wait(&pool.cluster, 2.0).await;
    let premium = pool.ask("premium", &[(OBJECTIVE_ALIAS, "premium")]);
    wait(&pool.cluster, 3.0).await;

    first.answer();

    assert_eq!(pool.order(3).await, ["premium", "standard", "best-effort"]);
    for answer in [premium, standard, best_effort] {
        assert_eq!(reply(answer).await.status, 200);
    }
}

#[tokio::test]
async fn the_flood_of_one_tenant_does_not_starve_another() {
    const FLOOD: i32 = 20;
    let fair = "  priorityBands: [{priority: 0, fairnessPolicyRef: round-robin-fairness-policy}]";
    let mut pool = Pool::start(&format!("{ONE_AT_A_TIME}{fair}")).await;
    let (first, _answer) = pool.full().await;
    let flood: Vec<_> = (0..FLOOD)
        .map(|_| pool.ask("noisy", &[(FAIRNESS_ID, "noisy")]))
        .collect();
    wait(&pool.cluster, f64::from(FLOOD)).await;
    // The older name names the same tenant.
    let quiet = [FAIRNESS_ID, FAIRNESS_ID_ALIAS, FAIRNESS_ID].map(|name| pool.ask("quiet", &[(name, "quiet")]));
    wait(&pool.cluster, f64::from(FLOOD + 3)).await;

    first.answer();

    let order = pool.order(flood.len() + quiet.len()).await;
    let last_of_quiet = order.iter().rposition(|id| id == "quiet");
    assert!(last_of_quiet < Some(6), "{order:?}");
    for answer in flood.into_iter().chain(quiet) {
        assert_eq!(reply(answer).await.status, 200);
    }
}

#[tokio::test]
async fn requests_wait_for_the_first_endpoint() {
    let cluster = Plan::new().servers(&[]).config(ONE_AT_A_TIME).start().await;
    let mut gate = Gate::start().await;
    let first = ask(&cluster, "first", &[]);
    wait(&cluster, 1.0).await;

    cluster.tell_endpoints(&[("late", gate.address)]);

    let held = gate.next().await;
    assert_eq!(held.id(), "first");
    held.answer();
    assert_eq!(reply(first).await.status, 200);
}

#[tokio::test]
async fn the_metrics_tell_what_waits_and_how_requests_left_under_both_names() {
    let config = format!("{ONE_AT_A_TIME}  maxRequests: 2\n  noEndpointRequestTTL: 1m");
    let mut pool = Pool::with(Plan::new().config(&config).objectives(&OBJECTIVES)).await;
    let prefixes = ["llm_d_epp_flow_control", "inference_extension_flow_control"];
    let (first, answer) = pool.full().await;
    let by_new_names = [(FAIRNESS_ID, "tenant-a"), (OBJECTIVE, "premium")];
    let by_old_names = [(FAIRNESS_ID_ALIAS, "tenant-b"), (OBJECTIVE_ALIAS, "best-effort")];
    let waiting = [pool.ask("second", &by_new_names), pool.ask("third", &by_old_names)];
    wait(&pool.cluster, 2.0).await;
    assert_eq!(reply(pool.ask("fourth", &[])).await.status, 429);

    let page = counts(
        &pool.cluster,
        "llm_d_epp_flow_control_requests_total",
        &["RejectedCapacity", "priority=\"0\""],
        1.0,
    )
    .await;

    let model = format!("model_name=\"{MODEL}\"");
    let target = format!("target_model_name=\"{MODEL}\"");
    let bytes = document("Hello", 1).to_string().len() as f64;
    for prefix in prefixes {
        for (tenant, priority) in [("tenant-a", 100), ("tenant-b", -10)] {
            let (tenant, priority) = (format!("fairness_id=\"{tenant}\""), format!("priority=\"{priority}\""));
            let labels = [&*tenant, &*priority, &*model, &*target, "inference_pool=\"epp\""];
            assert_eq!(
                value(&page, &format!("{prefix}_queue_size"), &labels),
                Some(1.0),
                "{page}"
            );
            assert_eq!(
                value(&page, &format!("{prefix}_queue_bytes"), &labels),
                Some(bytes),
                "{page}"
            );
        }
    }
    let new = "llm_d_epp_flow_control_pool_saturation";
    assert_eq!(value(&page, new, &["stage=\"effective\""]), Some(1.0), "{page}");
    let old = page
        .lines()
        .filter(|line| line.starts_with("inference_extension_flow_control_pool_saturation"));
    assert_eq!(
        old.collect::<Vec<_>>(),
        [r#"inference_extension_flow_control_pool_saturation{inference_pool="epp"} 1"#]
    );
    promtool::check(&page);

    first.answer();
    assert_eq!(reply(answer).await.status, 200);
    assert_eq!(pool.order(2).await, ["second", "third"]);
    for answer in waiting {
        assert_eq!(reply(answer).await.status, 200);
    }
    let (_busy, _answer) = pool.full().await;
    assert_eq!(reply(pool.ask("hasty", &[(TTL, "10")])).await.status, 503);
    let outcomes = "llm_d_epp_flow_control_requests_total";
    let page = counts(&pool.cluster, outcomes, &["EvictedTTL"], 1.0).await;

    assert_eq!(value(&page, outcomes, &["Dispatched"]), Some(4.0), "{page}");
    for prefix in prefixes {
        // What is empty is told, too, for those who scale by it.
        for priority in ["\"100\"", "\"0\"", "\"-10\""] {
            let labels = [&*format!("priority={priority}")];
            assert_eq!(
                value(&page, &format!("{prefix}_queue_size"), &labels),
                Some(0.0),
                "{page}"
            );
            assert_eq!(
                value(&page, &format!("{prefix}_queue_bytes"), &labels),
                Some(0.0),
                "{page}"
            );
        }
        let durations = format!("{prefix}_request_queue_duration_seconds_count");
        assert_eq!(value(&page, &durations, &["Dispatched"]), Some(4.0), "{page}");
        assert_eq!(value(&page, &durations, &["EvictedTTL"]), Some(1.0), "{page}");
        let premium = [
            "fairness_id=\"tenant-a\"",
            "priority=\"100\"",
            "Dispatched",
            &*model,
            &*target,
        ];
        assert_eq!(value(&page, &durations, &premium), Some(1.0), "{page}");
        let enqueued = format!("{prefix}_request_enqueue_duration_seconds_count");
        assert_eq!(value(&page, &enqueued, &["NotYetFinalized"]), Some(5.0), "{page}");
        assert_eq!(value(&page, &enqueued, &["RejectedCapacity"]), Some(1.0), "{page}");
        assert!(
            sum(&page, &format!("{prefix}_dispatch_cycle_duration_seconds_count")) >= 4.0,
            "{page}"
        );
    }
    promtool::check(&page);
}

/// One endpoint takes one request, and a request below zero makes room for a more urgent one.
fn evicting() -> String {
    format!("{ONE_AT_A_TIME}  enableEviction: true\n")
}

#[tokio::test]
async fn a_request_that_is_cut_off_before_its_answer_is_told_so_with_429() {
    let mut pool = Pool::with(Plan::new().config(&evicting()).objectives(&OBJECTIVES)).await;
    let victim = pool.ask("victim", &[(OBJECTIVE, "best-effort")]);
    let held = pool.gate.next().await;
    assert_eq!(held.id(), "victim");

    let urgent = pool.ask("urgent", &[]);

    let body = "request evicted by flow control";
    let victim = reply(victim).await;
    assert_eq!(told(&victim), (429, Some("evicted"), body.to_owned()));
    may_come_again(&victim);
    assert_eq!(pool.order(1).await, ["urgent"]);
    assert_eq!(reply(urgent).await.status, 200);
    running(&pool.cluster, 0.0).await;
    let issued = "llm_d_epp_flow_control_revocations_issued_total";
    counts(&pool.cluster, issued, &[r#"priority="0""#], 1.0).await;
    let ended = "forebay_requests_ended_total";
    counts(&pool.cluster, ended, &[r#"outcome="evicted""#], 1.0).await;
}

#[tokio::test]
async fn a_stream_that_is_cut_off_ends_and_does_not_hang() {
    let cluster = Plan::new()
        .config(&evicting())
        .objectives(&OBJECTIVES)
        .servers(&["only"])
        .start()
        .await;
    let endless = json!({ "model": MODEL, "prompt": "Hello", "max_tokens": 100_000, "stream": true });
    let request = cluster.completion(endless.to_string()).header(OBJECTIVE, "best-effort");
    let mut victim = cluster.client.open(request).await.into_body();
    soon("the stream begins", victim.frame()).await.unwrap().unwrap();

    let urgent = reply(ask(&cluster, "urgent", &[])).await;

    assert_eq!(urgent.status, 200);
    let rest = async { while let Some(Ok(_)) = victim.frame().await {} };
    soon("the stream that was cut off ends", rest).await;
    running(&cluster, 0.0).await;
}
