//! More requests than the pool can take: two tenants, three priorities, and two model servers that are too slow.
//!
//! What waits, how long it did and what was released is read from Forebay's metrics page, as an operator would; who was
//! turned away, and why, is what the clients were told.

use std::io::Write;
use std::time::Duration;

use self::load::Load;
use self::page::Page;
use self::report::Report;
use super::DemoError;
use super::cluster::Layout;
use super::ports::Ports;
use super::progress::Progress;
use crate::serve::client::Client;

mod load;
mod page;
mod report;

/// Time between two looks at the metrics page.
const LOOK: Duration = Duration::from_millis(250);

/// Requests that a model server works on at once; the configuration has the same number.
const BATCH: u32 = 4;
/// Time of a step of a model server, which is one token of each request.
const STEP: Duration = Duration::from_millis(20);
/// Tokens of an answer.
const TOKENS: u32 = 25;
/// Model servers.
const MODEL_SERVERS: u16 = 2;

/// Priorities that requests can name.
const OBJECTIVES: &str = "\
---
{apiVersion: llm-d.ai/v1alpha2, kind: InferenceObjective, metadata: {name: premium}, spec: {priority: 100}}
---
{apiVersion: llm-d.ai/v1alpha2, kind: InferenceObjective, metadata: {name: standard}, spec: {priority: 0}}
---
{apiVersion: llm-d.ai/v1alpha2, kind: InferenceObjective, metadata: {name: best-effort}, spec: {priority: -10}}
";

/// A priority.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Band {
    Premium,
    Standard,
    BestEffort,
}

/// Who asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Tenant {
    Quiet,
    Noisy,
}

/// Requests of a tenant at a priority.
#[derive(Clone, Copy, Debug)]
struct Source {
    band: Band,
    tenant: Tenant,
    /// Requests that come in a second, whatever becomes of those before.
    per_second: f64,
}

/// How many sources of requests there are.
const SOURCE_COUNT: usize = 6;

/// Who asks for what: in all about two and a half times what the pool can take.
const SOURCES: [Source; SOURCE_COUNT] = [
    source(Band::Premium, Tenant::Quiet, 1.5),
    source(Band::Premium, Tenant::Noisy, 1.5),
    source(Band::Standard, Tenant::Quiet, 6.0),
    source(Band::Standard, Tenant::Noisy, 24.0),
    source(Band::BestEffort, Tenant::Quiet, 3.0),
    source(Band::BestEffort, Tenant::Noisy, 3.0),
];

const fn source(band: Band, tenant: Tenant, per_second: f64) -> Source {
    Source {
        band,
        tenant,
        per_second,
    }
}

impl Band {
    const ALL: [Self; 3] = [Self::Premium, Self::Standard, Self::BestEffort];

    /// Its objective.
    fn name(self) -> &'static str {
        match self {
            Self::Premium => "premium",
            Self::Standard => "standard",
            Self::BestEffort => "best-effort",
        }
    }

    fn priority(self) -> i32 {
        match self {
            Self::Premium => 100,
            Self::Standard => 0,
            Self::BestEffort => -10,
        }
    }
}

impl Tenant {
    /// Its fairness id.
    fn name(self) -> &'static str {
        match self {
            Self::Quiet => "quiet",
            Self::Noisy => "noisy",
        }
    }
}

/// Two slow model servers, and flow control.
pub(super) fn layout() -> Layout {
    Layout {
        model_servers: MODEL_SERVERS,
        model_server_flags: vec![
            format!("--max-num-seqs={BATCH}"),
            format!("--step-base={}ms", STEP.as_millis()),
            "--prefill-token-time=0s".to_owned(),
            "--decode-seq-time=0s".to_owned(),
        ],
        objectives: OBJECTIVES,
        config: Some(include_str!("../../../../examples/configs/overload.yaml")),
    }
}

/// Requests that the pool can take in a second.
fn capacity() -> f64 {
    f64::from(u32::from(MODEL_SERVERS) * BATCH) / (STEP * TOKENS).as_secs_f64()
}

/// Sends the requests, shows what becomes of them as it happens, and writes the result to `out`.
pub(super) async fn show(
    load_time: Duration,
    client: &Client,
    ports: &Ports,
    progress: &Progress,
    out: &mut (dyn Write + Send),
) -> Result<(), DemoError> {
    let asked: f64 = SOURCES.iter().map(|source| source.per_second).sum();
    progress.say(&format!(
        "{asked:.0} requests a second for {load_time:?}, of which the pool can take {:.0}",
        capacity()
    ));
    let look = async || {
        Ok::<_, DemoError>(Page::read(
            &client.fetch(&format!("http://{}/metrics", ports.metrics())).await?.1,
        ))
    };
    let mut live = progress.live();
    let mut load = Load::start(load_time, client, ports.ingress());
    // What each tenant got is compared while both ask for it.
    let mut under_load = None;
    loop {
        let is_over = load.ends_within(LOOK).await;
        let page = look().await?;
        if load.has_sent_all() && under_load.is_none() {
            under_load = Some(page.clone());
        }
        let report = Report {
            elapsed: load.elapsed(),
            counts: load.counts(),
            under_load: under_load.as_ref().unwrap_or(&page).clone(),
            page,
        };
        if !is_over {
            live.show(|| report.table(), || report.line());
            continue;
        }
        drop(live);
        write!(out, "{}\n\n{}", report.table(), report.summary()).map_err(super::unwritten)?;
        let failures = load.failures();
        for failure in &failures {
            writeln!(out, "failed: {failure}").map_err(super::unwritten)?;
        }
        return match failures.len() {
            0 => Ok(()),
            failed => Err(DemoError::Requests {
                failed,
                sent: report.sent(),
            }),
        };
    }
}
