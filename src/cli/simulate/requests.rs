//! Where the requests of a simulated run come from: flags, a file, or a trace.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::BufReader;
use std::num::NonZeroU32;
use std::path::Path;

use anyhow::{Context, anyhow};
use forebay::sim::cluster::Scenario;
use forebay::sim::trace::{self, Header, ReplayOptions, Row, ServerNote, SessionMode};
use forebay::sim::workload::spec::{GoodputTarget, WorkloadSpec};
use forebay::sim::workload::think::Think;
use forebay::sim::workload::{DEFAULT_SEED, Limits, PlanOptions, Workload, plan};

use super::args::WorkloadArgs;
use super::description::Description;
use super::settings::{self, Settings};
use crate::cli::source;

/// Requests that can be made, as often as it takes.
#[derive(Clone, Debug)]
pub(in crate::cli) struct Requests {
    origin: Origin,
    /// The seed of a flag.
    seed: Option<u64>,
    warnings: Vec<String>,
    settings: Settings,
}

/// Where requests come from.
#[derive(Clone, Debug)]
enum Origin {
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
            origin: Origin::Description {
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
        let alone = sessions == SessionMode::ClosedLoop && rows.iter().all(|row| row.session_id.is_empty());
        let warnings = alone.then(|| {
            "`--session-mode closed-loop` has no effect: the trace has no conversations (`session_id`), so that every request \
             comes when it came"
                .to_owned()
        });
        Ok(Self {
            origin: Origin::Trace {
                header: Box::new(header),
                rows,
                sessions,
                think,
            },
            seed,
            warnings: warnings.into_iter().collect(),
            settings,
        })
    }

    /// Requests that name the model of the recorded server mean this one: the two seldom have the same name.
    pub(in crate::cli) fn for_model(mut self, model: &str) -> Self {
        if let Origin::Trace { header, rows, .. } = &mut self.origin {
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
        match &self.origin {
            Origin::Description { spec, .. } => self.plan_options(NonZeroU32::MIN, None).seed_for(spec),
            Origin::Trace { .. } => self.seed.unwrap_or(DEFAULT_SEED),
        }
    }

    /// When the run ends, if a file says so.
    pub(in crate::cli) fn horizon_us(&self) -> Option<u64> {
        match &self.origin {
            Origin::Description { spec, .. } => spec.horizon.filter(|&horizon| horizon > 0),
            Origin::Trace { .. } => None,
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
        match &self.origin {
            Origin::Description { spec, .. } => &spec.goodput_slo_targets,
            Origin::Trace { header, .. } => &header.goodput_slo_targets,
        }
    }

    /// A header for a trace of a run of these requests on such servers.
    pub(in crate::cli) fn header(&self, server: &ServerNote) -> Header {
        let header = match &self.origin {
            Origin::Description { spec, num_requests } => {
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
            Origin::Trace { header, .. } => Header {
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
        match &self.origin {
            Origin::Description { spec, .. } => Ok(plan(spec, &self.plan_options(block_tokens, scenario.horizon_us))?),
            Origin::Trace {
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
        let max_requests = match &self.origin {
            Origin::Description { num_requests, .. } => *num_requests,
            Origin::Trace { .. } => None,
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
    let text = source::text(header, "trace-header")?;
    let header =
        Header::read(&text, &source::name(header)).map_err(|errors| anyhow!("the trace cannot be used\n{errors}"))?;
    let file = File::open(data).with_context(|| format!("`--trace-data`: cannot read {}", data.display()))?;
    let rows = trace::read_rows(BufReader::new(file), &data.display().to_string());
    Ok((header, rows.context("the trace cannot be used")?))
}
