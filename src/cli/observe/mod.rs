//! `forebay observe`: a workload, sent to a real server.

mod args;
mod told;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use anyhow::{bail, ensure};
use forebay::serve::observer::{
    HttpOptions, HttpServer, KvCounters, Lengths, Observed, Options, Probed, Words, kv_counters, observe, prewarm,
    probe,
};
use forebay::serve::shutdown::Signals;
use forebay::sim::report::GoodputTargets;
use forebay::sim::report::saturation::Detectors;
use forebay::sim::trace::{Header, KvMetrics, Mode, NetworkNote, ServerNote, TimeUnit, write_itl, write_rows};
use forebay::sim::workload::flags::DEFAULT_TIMEOUT_S;
use forebay::sim::workload::spec::{ContextGrowth, WorkloadSpec};
use forebay::sim::workload::{Limits, PlanOptions, Workload, plan};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use tokio_util::sync::CancellationToken;

pub(crate) use args::ObserveArgs;

use args::{BLOCK_TOKENS, OutputArgs, ServerArgs};
use told::Told;

use super::print::print;
use super::simulate::description::Description;
use super::simulate::exit;
use super::simulate::settings::Settings;
use super::target::Target;

/// The longest that a client may wait.
const MAX_TIMEOUT_S: i64 = 86_400;

/// Sends the workload. Ends with 2 if what was asked for makes no sense or the server cannot be reached, and with 1 if no
/// request at all was answered.
pub(crate) fn run(args: &ObserveArgs) -> ExitCode {
    let result = tokio::runtime::Runtime::new().map_err(anyhow::Error::from);
    exit(result.and_then(|runtime| {
        let result = runtime.block_on(async { Ok(prepare(args).await?.run().await) });
        runtime.shutdown_background();
        result
    }))
}

/// A run that can begin.
struct Prepared<'a> {
    args: &'a ObserveArgs,
    spec: WorkloadSpec,
    /// What reports say of the workload.
    settings: Settings,
    seed: u64,
    workload: Workload,
    server: Arc<HttpServer>,
    options: Options,
    goodput: GoodputTargets,
    detectors: Option<Detectors>,
    files: Files,
}

/// What is written.
struct Files {
    header: Target,
    data: Target,
    itl: Option<Target>,
    saturation: Option<Target>,
    report: Option<Target>,
}

async fn prepare(args: &ObserveArgs) -> anyhow::Result<Prepared<'_>> {
    let workload = &args.workload;
    ensure!(
        workload.workload_spec.is_some()
            || workload.rate.is_some()
            || workload.concurrency.is_some()
            || workload.workload != "distribution",
        "there is nothing to send; give `--workload-spec`, `--workload`, `--rate` or `--concurrency`"
    );
    let patience = patience(workload.timeout)?;
    let Description {
        spec,
        settings,
        mut warnings,
    } = Description::of(workload)?;
    let plan_options = PlanOptions {
        seed: args.pace.seed,
        limits: Limits {
            horizon_us: args.pace.horizon,
            max_requests: workload.num_requests,
        },
        ..PlanOptions::new(BLOCK_TOKENS)
    };
    let requests = plan(&spec, &plan_options)?;
    warnings.extend(args.without_effect());
    if let Some(all) = plan_options.limits_for(&spec).max_requests {
        let warmup = args.pace.warmup_requests;
        ensure!(
            warmup < all,
            "`--warmup-requests` is {warmup}, and there are {all} requests: none would be recorded"
        );
    }
    let seed = plan_options.seed_for(&spec);
    let output = &args.output;
    let goodput = output.goodput.targets(&spec.goodput_slo_targets)?;
    let detectors = output.saturation.asked()?;
    check_paths(output)?;
    let server = Arc::new(HttpServer::new(HttpOptions {
        url: args.server.server_url.clone(),
        api: args.server.api_format.into(),
        key: args.server.api_key.clone(),
        streaming: !args.server.no_streaming,
        lengths: if args.server.unconstrained_output {
            Lengths::Free
        } else {
            Lengths::Exact
        },
    })?);

    let model: Arc<str> = args.server.model.as_str().into();
    let Probed { words, warning } = probe(&*server, &model, Words::new(seed), patience).await?;
    warnings.extend(warning);
    let files = Files::open(output)?;
    warnings.iter().for_each(|warning| eprintln!("warning: {warning}"));
    let options = Options {
        model,
        max_concurrency: args.pace.max_concurrency,
        warmup_requests: args.pace.warmup_requests,
        patience,
        streaming: !args.server.no_streaming,
        context_grows: grows(&spec),
        record_itl: files.itl.is_some(),
        words,
    };
    Ok(Prepared {
        args,
        spec,
        settings,
        seed,
        workload: requests,
        server,
        options,
        goodput,
        detectors,
        files,
    })
}

/// How long a client waits of which the workload does not say it.
fn patience(seconds: Option<i64>) -> anyhow::Result<Option<Duration>> {
    let seconds = seconds.unwrap_or(DEFAULT_TIMEOUT_S);
    ensure!(
        seconds <= MAX_TIMEOUT_S,
        "`--timeout` is {seconds} seconds; it must be {MAX_TIMEOUT_S} at most"
    );
    Ok(u64::try_from(seconds).ok().map(Duration::from_secs))
}

/// True if some prompts begin with what was said before.
fn grows(spec: &WorkloadSpec) -> bool {
    let clients = spec.clients.iter().map(|client| &client.reasoning);
    let cohorts = spec.cohorts.iter().map(|cohort| &cohort.reasoning);
    let mut turns = clients
        .chain(cohorts)
        .flatten()
        .filter_map(|reasoning| reasoning.multi_turn.as_ref());
    turns.any(|turns| turns.context_growth == ContextGrowth::Accumulate)
}

// === Files ===

/// Where the pieces of the answers go, if they are wanted.
fn itl_path(args: &OutputArgs) -> Option<PathBuf> {
    let beside = args.record_itl.then(|| args.trace_data.with_extension("itl.csv"));
    args.itl_output.clone().or(beside)
}

/// That no file is to be written twice.
fn check_paths(args: &OutputArgs) -> anyhow::Result<()> {
    let itl = itl_path(args);
    let wanted = itl.iter().chain(&args.saturation.saturation_report).chain(&args.report);
    let mut all: Vec<&PathBuf> = [&args.trace_header, &args.trace_data]
        .into_iter()
        .chain(wanted)
        .collect();
    all.sort();
    if let Some(pair) = all.windows(2).find(|pair| pair[0] == pair[1]) {
        bail!(
            "{} is named for two outputs; each needs a file of its own",
            pair[0].display()
        );
    }
    Ok(())
}

impl Files {
    /// Opens all of them, or none.
    fn open(args: &OutputArgs) -> anyhow::Result<Self> {
        let open = |path: &Path| Target::open(path, args.force);
        Ok(Self {
            header: open(&args.trace_header)?,
            data: open(&args.trace_data)?,
            itl: itl_path(args).as_deref().map(open).transpose()?,
            saturation: args.saturation.saturation_report.as_deref().map(open).transpose()?,
            report: args.report.as_deref().map(open).transpose()?,
        })
    }
}

// === The run ===

impl Prepared<'_> {
    async fn run(self) -> anyhow::Result<()> {
        let stop = stop()?;
        let pace = &self.args.pace;
        if !pace.prewarm_duration.is_zero() {
            let Options { model, words, .. } = &self.options;
            let warming = prewarm(&*self.server, model, words, pace.prewarm_duration);
            match stop.run_until_cancelled(warming).await {
                Some(0) => eprintln!("warning: no request that was to warm the server up was answered"),
                Some(answered) => eprintln!("{answered} small requests warmed the server up"),
                None => {}
            }
        }
        let before = self.kv_counters().await;
        let bar = progress_bar(&self.spec, self.args);
        let observed = observe(
            self.workload,
            Arc::clone(&self.server),
            &self.options,
            stop.cancelled(),
            |progress| {
                bar.set_position(progress.ended);
                let under_way = progress.sent - progress.ended;
                bar.set_message(match progress.failed {
                    0 => format!("{under_way} under way"),
                    failed => format!("{under_way} under way, {failed} failed"),
                });
            },
        )
        .await;
        bar.finish_and_clear();
        drop(bar);
        let after = match before {
            Some(_) => kv(self.args, &self.server).await,
            None => None,
        };
        let kv = before.zip(after).map(|(before, after)| after - before);

        let header = header(self.args, &self.spec, self.seed, &self.options, kv);
        self.files.header.write(&header.to_yaml())?;
        self.files.data.write_with(|file| write_rows(file, &observed.rows()))?;
        if let Some(itl) = self.files.itl {
            itl.write_with(|file| write_itl(file, &observed.itl_rows()))?;
        }
        let told = Told {
            args: self.args,
            workload: self.settings,
            seed: self.seed,
            options: &self.options,
            observed: &observed,
            goodput: self.goodput,
            detectors: self.detectors.as_ref(),
            kv,
        };
        print(&told.text(self.files.report)?)?;
        if let (Some(target), Some(detectors)) = (self.files.saturation, &self.detectors) {
            target.write(&detectors.report(&observed.run_record()))?;
        }
        judge(&observed)
    }

    async fn kv_counters(&self) -> Option<KvCounters> {
        kv(self.args, &self.server).await
    }
}

/// The counters of the server's prefix cache, if they are wanted and there.
async fn kv(args: &ObserveArgs, server: &HttpServer) -> Option<KvCounters> {
    if !args.server.scrape_kv_metrics {
        return None;
    }
    let counters = kv_counters(server.client(), &kv_urls(args, server)).await;
    let warn = |error| {
        eprintln!(
            "warning: the hit rate of the prefix cache is not known: {:#}",
            anyhow::Error::new(error)
        );
    };
    counters.map_err(warn).ok()
}

fn kv_urls(args: &ObserveArgs, server: &HttpServer) -> Vec<String> {
    match args.server.kv_metrics_url.as_slice() {
        [] => vec![format!("{}/metrics", server.base())],
        urls => urls.to_vec(),
    }
}

/// Becomes cancelled with the first signal.
fn stop() -> std::io::Result<CancellationToken> {
    let (stop, mut signals) = (CancellationToken::new(), Signals::install()?);
    let stopper = stop.clone();
    tokio::spawn(async move {
        signals.next().await;
        stopper.cancel();
        // The run ends at once, and what is left is to write it down. Whoever cannot wait for that says so again.
        signals.next().await;
        std::process::exit(130);
    });
    Ok(stop)
}

/// A bar at a terminal, and nothing elsewhere.
fn progress_bar(spec: &WorkloadSpec, args: &ObserveArgs) -> ProgressBar {
    let known = args
        .workload
        .num_requests
        .or(spec.num_requests)
        .filter(|&number| number > 0);
    let template = match known {
        Some(_) => "{bar:30} {pos}/{len} answered, {msg} ({elapsed})",
        None => "{spinner} {pos} answered, {msg} ({elapsed})",
    };
    let style = ProgressStyle::with_template(template).expect("the template is valid");
    ProgressBar::with_draw_target(known, ProgressDrawTarget::stderr()).with_style(style)
}

fn header(args: &ObserveArgs, spec: &WorkloadSpec, seed: u64, options: &Options, kv: Option<KvCounters>) -> Header {
    let ServerArgs {
        server_type,
        model,
        rtt_ms,
        vllm_commit,
        ..
    } = &args.server;
    let sent = WorkloadSpec {
        num_requests: args.workload.num_requests.or(spec.num_requests),
        ..spec.clone()
    };
    Header {
        time_unit: TimeUnit::Us,
        created_at: created_at(),
        warm_up_requests: options.warmup_requests,
        workload_seed: Some(seed.cast_signed()),
        workload_spec: Some(sent.to_yaml().into()),
        session_context_growth: if options.context_grows {
            ContextGrowth::Accumulate
        } else {
            ContextGrowth::None
        },
        server: Some(ServerNote {
            kind: Some(server_type.clone()),
            model: Some(model.clone()),
            ..ServerNote::default()
        }),
        network: (*rtt_ms > 0.0).then_some(NetworkNote {
            measured_rtt_ms: Some(*rtt_ms),
        }),
        goodput_slo_targets: spec.goodput_slo_targets.clone(),
        observed_kv_metrics: kv.map(|kv| KvMetrics {
            source: Some("metrics".to_owned()),
            hit_rate: kv.hit_rate(),
            block_hits: Some(kv.hits),
            block_queries: Some(kv.queries),
            vllm_commit: vllm_commit.clone(),
            ..KvMetrics::default()
        }),
        ..Header::new(Mode::Real)
    }
}

#[expect(clippy::disallowed_methods, reason = "a trace says on which day it was made")]
fn created_at() -> String {
    let now = prost_types::Timestamp::from(SystemTime::now());
    prost_types::Timestamp { nanos: 0, ..now }.to_string()
}

/// Whether the run was good for anything.
fn judge(observed: &Observed) -> anyhow::Result<()> {
    use forebay::sim::trace::Status;

    if observed.count(Status::Ok) > 0 {
        return Ok(());
    }
    match observed.errors().first() {
        Some((_, message)) => bail!("not one request was answered: {message}"),
        None if observed.cut_short => bail!("the run was stopped before a request was recorded"),
        None if observed.warmed_up > 0 => bail!(
            "no request was recorded; `--warmup-requests` must be smaller than the number of requests that arrive"
        ),
        None => bail!("no request arrived; look at the rates, the windows and the horizon of the workload"),
    }
}
