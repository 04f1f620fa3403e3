//! Where the requests of a simulated run come from: flags, a file, or a trace.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::BufReader;
use std::num::NonZeroU32;
use std::path::Path;

use anyhow::{Context, anyhow, ensure};
use forebay::engine::config::SourceName;
use forebay::sim::cluster::Scenario;
use forebay::sim::record::RunRecord;
use forebay::sim::request::{Arrivals, Ended, SimRequest};
use forebay::sim::trace::{self, Header, ReplayOptions, Row, ServerNote, SessionMode};
use forebay::sim::workload::flags::{FlagWorkload, Load, Preset, TokenRange};
use forebay::sim::workload::spec::{self, GoodputTarget, ProcessName, WorkloadSpec};
use forebay::sim::workload::think::Think;
use forebay::sim::workload::{Limits, PlanOptions, Workload};

use super::args::WorkloadArgs;
use super::settings::{self, Settings};
use super::setup::read;

/// Requests that can be made, as often as it takes.
#[derive(Clone, Debug)]
pub(in crate::cli) struct Requests {
    from: From,
    /// The seed of a flag.
    seed: Option<u64>,
    warnings: Vec<String>,
    settings: Settings,
}

#[derive(Clone, Debug)]
enum From {
    Description {
        spec: Box<WorkloadSpec>,
        /// The number of a flag.
        num_requests: Option<u64>,
    },
    Trace {
        header: Box<Header>,
        rows: Vec<Row>,
        sessions: SessionMode,
        think: Think,
    },
}

impl Requests {
    /// The requests that flags or a file describe.
    ///
    /// # Errors
    ///
    /// If they make no sense.
    pub(in crate::cli) fn described(args: &WorkloadArgs, seed: Option<u64>) -> anyhow::Result<Self> {
        let Description {
            spec,
            settings,
            warnings,
        } = Description::of(args)?;
        Ok(Self {
            settings,
            from: From::Description {
                spec: Box::new(spec),
                num_requests: args.num_requests,
            },
            seed,
            warnings,
        })
    }

    /// The requests of a trace.
    ///
    /// # Errors
    ///
    /// If the files cannot be read, or are no trace.
    pub(in crate::cli) fn traced(
        header: &Path,
        data: &Path,
        sessions: SessionMode,
        think: Think,
        seed: Option<u64>,
    ) -> anyhow::Result<Self> {
        let settings = settings::of_trace(header, data, sessions, think);
        let (header, rows) = read_trace(header, data)?;
        Ok(Self {
            from: From::Trace {
                header: Box::new(header),
                rows,
                sessions,
                think,
            },
            seed,
            warnings: Vec::new(),
            settings,
        })
    }

    /// Requests that name the model of the recorded server mean this one: the two seldom have the same name.
    pub(in crate::cli) fn for_model(mut self, model: &str) -> Self {
        if let From::Trace { header, rows, .. } = &mut self.from {
            let recorded = header.server.as_ref().and_then(|server| server.model.as_deref());
            let named = rows.iter_mut().filter(|row| Some(&*row.model) == recorded);
            named.for_each(|row| row.model = model.into());
        }
        self
    }

    /// These with another seed.
    pub(in crate::cli) fn with_seed(&self, seed: u64) -> Self {
        Self {
            seed: Some(seed),
            ..self.clone()
        }
    }

    /// The seed that holds: that of the flag, or of the file, or the default.
    pub(in crate::cli) fn seed(&self) -> u64 {
        match &self.from {
            From::Description { spec, .. } => self.plan_options(NonZeroU32::MIN, None).seed_for(spec),
            From::Trace { .. } => self.seed.unwrap_or(forebay::sim::workload::DEFAULT_SEED),
        }
    }

    /// When the run ends, if a file says so.
    pub(in crate::cli) fn horizon_us(&self) -> Option<u64> {
        match &self.from {
            From::Description { spec, .. } => spec.horizon.filter(|&horizon| horizon > 0),
            From::Trace { .. } => None,
        }
    }

    /// What is probably not meant so.
    pub(in crate::cli) fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// What they are, for reports.
    pub(in crate::cli) fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Latencies by SLO class at which a request counts as good, if a file says so.
    pub(in crate::cli) fn targets(&self) -> &BTreeMap<String, GoodputTarget> {
        match &self.from {
            From::Description { spec, .. } => &spec.goodput_slo_targets,
            From::Trace { header, .. } => &header.goodput_slo_targets,
        }
    }

    /// A header for a trace of a run of these requests on such servers.
    pub(in crate::cli) fn header(&self, server: &ServerNote) -> Header {
        let header = match &self.from {
            From::Description { spec, num_requests } => {
                let spec = WorkloadSpec {
                    num_requests: num_requests.or(spec.num_requests),
                    ..(**spec).clone()
                };
                Header {
                    workload_seed: Some(self.seed().cast_signed()),
                    workload_spec: Some(spec.to_yaml().into()),
                    goodput_slo_targets: spec.goodput_slo_targets,
                    ..Header::new(trace::Mode::Generated)
                }
            }
            // Of the servers that the trace was recorded of, nothing holds here.
            From::Trace { header, .. } => Header {
                mode: trace::Mode::Replayed,
                network: None,
                kv_offload: None,
                observed_kv_metrics: None,
                ..(**header).clone()
            },
        };
        Header {
            server: Some(server.clone()),
            ..header
        }
    }

    /// The requests, from the first on.
    ///
    /// # Errors
    ///
    /// If they cannot be made.
    pub(in crate::cli) fn workload(&self, scenario: &Scenario) -> anyhow::Result<Workload> {
        let block_tokens = scenario.instance.block_tokens;
        match &self.from {
            From::Description { spec, .. } => Ok(forebay::sim::workload::plan(
                spec,
                &self.plan_options(block_tokens, scenario.horizon_us),
            )?),
            From::Trace {
                header,
                rows,
                sessions,
                think,
            } => {
                let options = ReplayOptions {
                    block_tokens,
                    seed: scenario.seed,
                    limits: Limits {
                        horizon_us: scenario.horizon_us,
                        max_requests: None,
                    },
                    session_mode: *sessions,
                    think: *think,
                };
                Ok(trace::replay(header, rows.clone(), &options)?)
            }
        }
    }

    fn plan_options(&self, block_tokens: NonZeroU32, horizon_us: Option<u64>) -> PlanOptions {
        let max_requests = match &self.from {
            From::Description { num_requests, .. } => *num_requests,
            From::Trace { .. } => None,
        };
        PlanOptions {
            seed: self.seed,
            limits: Limits {
                horizon_us,
                max_requests,
            },
            ..PlanOptions::new(block_tokens)
        }
    }
}

/// Reads a trace.
///
/// # Errors
///
/// Names the file and the line.
pub(in crate::cli) fn read_trace(header: &Path, data: &Path) -> anyhow::Result<(Header, Vec<Row>)> {
    let text = read(header, "trace-header")?;
    let source = SourceName::File(header.display().to_string().into());
    let header = Header::read(&text, &source).map_err(|errors| anyhow!("the trace cannot be used\n{errors}"))?;
    let file = File::open(data).with_context(|| format!("`--trace-data`: cannot read {}", data.display()))?;
    let rows = trace::read_rows(BufReader::new(file), &data.display().to_string());
    Ok((header, rows.context("the trace cannot be used")?))
}

/// What the workload flags describe.
pub(in crate::cli) struct Description {
    pub(in crate::cli) spec: WorkloadSpec,
    /// What reports say of it.
    pub(in crate::cli) settings: Settings,
    pub(in crate::cli) warnings: Vec<String>,
}

impl Description {
    /// Reads the flags, and the file that they name.
    ///
    /// # Errors
    ///
    /// If they make no sense.
    pub(in crate::cli) fn of(args: &WorkloadArgs) -> anyhow::Result<Self> {
        let Some(path) = &args.workload_spec else {
            let flags = flags(args)?;
            return Ok(Self {
                spec: flags.spec(),
                settings: settings::of_flags(&args.workload, &flags),
                warnings: Vec::new(),
            });
        };
        let text = read(path, "workload-spec")?;
        let source = SourceName::File(path.display().to_string().into());
        let loaded = spec::load(&text, &source).map_err(|errors| anyhow!("the workload cannot be used\n{errors}"))?;
        let mut spec = loaded.spec;
        if let Some(timeout) = args.timeout {
            let timeout = timeout_us(timeout)?;
            spec.clients
                .iter_mut()
                .for_each(|client| client.timeout = Some(timeout));
            spec.cohorts
                .iter_mut()
                .for_each(|cohort| cohort.timeout = Some(timeout));
        }
        Ok(Self {
            settings: settings::of_workload_file(path, args, &spec),
            spec,
            warnings: loaded.warnings.iter().map(ToString::to_string).collect(),
        })
    }
}

fn users(args: &WorkloadArgs) -> Option<NonZeroU32> {
    args.concurrency.and_then(NonZeroU32::new)
}

/// What the flags say, where there is no file.
fn flags(args: &WorkloadArgs) -> anyhow::Result<FlagWorkload> {
    let lengths = match args.workload.as_str() {
        "distribution" => FlagWorkload {
            prompt: TokenRange {
                mean: args.prompt_tokens,
                std_dev: args.prompt_tokens_stdev,
                min: args.prompt_tokens_min.into(),
                max: args.prompt_tokens_max.into(),
            },
            output: TokenRange {
                mean: args.output_tokens,
                std_dev: args.output_tokens_stdev,
                min: args.output_tokens_min.into(),
                max: args.output_tokens_max.into(),
            },
            ..FlagWorkload::default()
        },
        name => FlagWorkload::of(name.parse::<Preset>().context("`--workload`")?),
    };
    let think_time_ms = args.think_time_ms.unwrap_or(0);
    ensure!(
        think_time_ms == 0 || users(args).is_some(),
        "`--think-time-ms` is for users; give their number with `--concurrency`"
    );
    Ok(FlagWorkload {
        load: match users(args) {
            Some(users) => Load::Users {
                users,
                think_time_us: think_time_ms.saturating_mul(1000),
            },
            None => Load::Rate {
                per_second: args.rate.unwrap_or(1.0),
                arrival: args.arrival.map_or(ProcessName::Constant, Into::into),
            },
        },
        prefix_tokens: args.prefix_tokens.unwrap_or(0),
        timeout_us: timeout_us(args.timeout.unwrap_or(300))?,
        num_requests: Some(args.num_requests.unwrap_or(100)),
        ..lengths
    })
}

fn timeout_us(seconds: i64) -> anyhow::Result<i64> {
    ensure!(
        seconds != 0,
        "`--timeout` must not be 0: below 0 is no timeout, above 0 are seconds"
    );
    Ok(seconds.saturating_mul(1_000_000))
}

/// Hands requests on, and keeps a row of a trace for each if that is wanted.
#[derive(Debug)]
pub(in crate::cli) struct Keeper<'w> {
    workload: &'w mut Workload,
    rows: Option<Vec<Row>>,
}

impl<'w> Keeper<'w> {
    pub(in crate::cli) fn new(workload: &'w mut Workload, keeps: bool) -> Self {
        Self {
            workload,
            rows: keeps.then(Vec::new),
        }
    }

    /// The rows, with what became of the requests.
    pub(in crate::cli) fn into_rows(self, record: &RunRecord) -> Option<Vec<Row>> {
        let mut rows = self.rows?;
        for (row, record) in rows.iter_mut().zip(&record.requests) {
            row.end(record);
        }
        Some(rows)
    }
}

impl Arrivals for Keeper<'_> {
    fn next_arrival(&self) -> Option<u64> {
        self.workload.next_arrival()
    }

    fn take(&mut self) -> Option<SimRequest> {
        let request = self.workload.take()?;
        if let Some(rows) = &mut self.rows {
            rows.push(Row::sent(rows.len() as u64, &request));
        }
        Some(request)
    }

    fn ended(&mut self, request: &SimRequest, at_us: u64, how: Ended) {
        self.workload.ended(request, at_us, how);
    }
}
