//! From a description to the requests of a run (spec, simulator 18.5).

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::sync::Arc;

use crate::engine::config::Severity;

use super::super::instance::BlockChain;
use super::super::request::Client;
use super::arrivals::Process;
use super::chance::Stream;
use super::expand;
use super::lengths::Lengths;
use super::merge::{Merge, Source};
use super::rates::Rates;
use super::shape::{Input, Items, Shape};
use super::spec::{
    self, ClientSpec, ContextGrowth, DistributionSpec, MultimodalSpec, PREFIX_LENGTH, Problem, SESSION_TIMEOUT_US,
    WindowSpec, WorkloadSpec,
};
use super::stream::{RateStream, Sessions, Turns, User};
use super::times::{Times, Window};
use super::tokens::{self, VOCABULARY};
use super::workload::{Limits, Workload};

/// The seed of a run for which none is given.
pub const DEFAULT_SEED: u64 = 42;

/// The most requests of one client in one of its windows.
pub const MOST_IN_A_WINDOW: u64 = 1_000_000_000;

/// What is added to a run's seed for users.
const USER_SEED_OFFSET: u64 = 10_007;

/// Requests that are drawn for one client, for each that the whole run may have.
const DRAWN_PER_REQUEST: u64 = 2;

/// What a run knows beside the description. What is given here goes before what stands there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlanOptions {
    /// Tokens of a KV block, by which requests are hashed.
    pub block_tokens: NonZeroU32,
    /// What all chance follows from. Default: the description's, or [`DEFAULT_SEED`].
    pub seed: Option<u64>,
    /// Where a run ends. Default, for each: the description's.
    pub limits: Limits,
}

impl PlanOptions {
    /// Nothing but the size of a block.
    pub fn new(block_tokens: NonZeroU32) -> Self {
        Self {
            block_tokens,
            seed: None,
            limits: Limits::default(),
        }
    }

    /// The seed that holds for `spec`.
    pub fn seed_for(&self, spec: &WorkloadSpec) -> u64 {
        self.seed.or(spec.seed.map(i64::cast_unsigned)).unwrap_or(DEFAULT_SEED)
    }

    /// The limits that hold for `spec`. Zero is for no limit.
    pub fn limits_for(&self, spec: &WorkloadSpec) -> Limits {
        let above_zero = |limit: &u64| *limit > 0;
        Limits {
            horizon_us: self.limits.horizon_us.or(spec.horizon).filter(above_zero),
            max_requests: self.limits.max_requests.or(spec.num_requests).filter(above_zero),
        }
    }
}

/// Why there are no requests.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    /// The description is not sound.
    #[error("the workload cannot be used:\n{}", lines(.0))]
    Unsound(Vec<Problem>),
    /// There would be requests without end.
    #[error(
        "client `{client}` sends requests without end; limit the run by `--num-requests` (or `num_requests` in the \
         workload) or by `--horizon` (`horizon`)"
    )]
    Endless {
        /// The first such client.
        client: String,
    },
    /// There would be too many requests in a window.
    #[error(
        "client `{client}` would send {requests:.0} requests from {start_us} to {end_us} µs; the most is \
         {MOST_IN_A_WINDOW}: lower the rate, or end the window earlier"
    )]
    TooMany {
        /// The client.
        client: String,
        /// How many there would be, without what is behind the point.
        requests: String,
        /// The beginning of the window.
        start_us: u64,
        /// The end of the window.
        end_us: u64,
    },
}

fn lines(problems: &[Problem]) -> String {
    let lines: Vec<String> = problems.iter().map(Problem::to_string).collect();
    lines.join("\n")
}

/// The requests of a run.
///
/// # Errors
///
/// See [`PlanError`].
pub fn plan(spec: &WorkloadSpec, options: &PlanOptions) -> Result<Workload, PlanError> {
    let mut problems = spec::check(spec);
    problems.retain(|problem| problem.severity == Severity::Error);
    if !problems.is_empty() {
        return Err(PlanError::Unsound(problems));
    }
    let (seed, limits) = (options.seed_for(spec), options.limits_for(spec));
    let spec = expand::expanded(spec);
    if let (None, None, Some(client)) = (
        limits.horizon_us,
        limits.max_requests,
        spec.clients.iter().find(|client| is_endless(client)),
    ) {
        return Err(PlanError::Endless {
            client: client.id.clone(),
        });
    }
    let planner = Planner {
        spec: &spec,
        rates: Rates::new(spec.aggregate_rate, spec.clients.iter()),
        block_tokens: options.block_tokens,
        horizon_us: limits.horizon_us.unwrap_or(NEVER_US),
        most: limits
            .max_requests
            .map_or(u64::MAX, |most| most.saturating_mul(DRAWN_PER_REQUEST)),
    };
    let sources = planner.sources(seed)?;
    let merge = Merge::new(sources, Sessions::new(seed));
    Ok(Workload::new(Box::new(merge), limits))
}

/// A time that does not come, with room for a gap beyond it.
const NEVER_US: u64 = 1 << 62;

fn is_endless(client: &ClientSpec) -> bool {
    let single = client.multi_turn().is_some_and(|turns| turns.single_session);
    client.windows().is_empty() && !single
}

#[derive(Debug)]
struct Planner<'s> {
    spec: &'s WorkloadSpec,
    rates: Rates,
    block_tokens: NonZeroU32,
    horizon_us: u64,
    most: u64,
}

impl Planner<'_> {
    /// In the order in which the reference draws: the tokens of all prefixes, then a seed for each client.
    fn sources(&self, seed: u64) -> Result<Vec<Source>, PlanError> {
        let mut chance = Stream::named(seed, "workload-gen");
        let mut user_seeds = Stream::seeded(seed.wrapping_add(USER_SEED_OFFSET).cast_signed());
        let prefixes = self.prefixes(&mut chance);
        // Clients of one group and adapter share the hashes, too.
        let mut chains: BTreeMap<(&str, &str), BlockChain> = BTreeMap::new();
        let mut sources = Vec::new();
        for client in &self.spec.clients {
            let tokens = prefixes
                .get(client.prefix_group.as_str())
                .map_or(&[][..], Vec::as_slice);
            let key = (client.prefix_group.as_str(), client.adapter.as_str());
            let chain = chains
                .entry(key)
                .or_insert_with(|| tokens::prefix(&client.adapter, self.block_tokens, tokens));
            let shape = Arc::new(shape(client, chain.clone()));
            match client.concurrency {
                Some(users) => sources.extend(users_of(client, users, &shape, &mut user_seeds)),
                None => {
                    let times = self.times(client)?;
                    let turns = turns(client);
                    let chance = stream(client, chance.seed());
                    let stream = RateStream::new(shape, turns, times, chance, self.horizon_us, self.most);
                    sources.push(Source::Rate(Box::new(stream)));
                }
            }
        }
        Ok(sources)
    }

    /// The tokens of each group's prefix; the first client of a group says how many.
    fn prefixes(&self, chance: &mut Stream) -> BTreeMap<&str, Vec<u32>> {
        let mut prefixes: BTreeMap<&str, Vec<u32>> = BTreeMap::new();
        for client in self
            .spec
            .clients
            .iter()
            .filter(|client| !client.prefix_group.is_empty())
        {
            prefixes.entry(&client.prefix_group).or_insert_with(|| {
                let length = client.prefix_length.unwrap_or(PREFIX_LENGTH);
                (0..length).map(|_| chance.below(VOCABULARY)).collect()
            });
        }
        prefixes
    }

    fn times(&self, client: &ClientSpec) -> Result<Times, PlanError> {
        let windows = client.windows();
        if windows.iter().any(WindowSpec::has_its_own_way) {
            let filled: Result<Vec<Window>, PlanError> = windows
                .iter()
                .enumerate()
                .map(|(index, window)| self.window(client, index, window))
                .collect();
            return Ok(Times::filled(filled?));
        }
        let process = process(client).expect("a checked client has arrivals");
        let gaps = process.at(self.rates.of_client(client));
        let windows = windows.iter().map(|window| (window.start_us, window.end_us));
        Ok(if client.multi_turn().is_some_and(|turns| turns.single_session) {
            Times::steady_from_first_window(gaps, windows.collect())
        } else {
            Times::steady(gaps, windows.collect())
        })
    }

    fn window(&self, client: &ClientSpec, index: usize, window: &WindowSpec) -> Result<Window, PlanError> {
        let &WindowSpec { start_us, end_us, .. } = window;
        let rate = self.rates.of_window(client, window);
        let requests = rate * (end_us - start_us) as f64 / 1e6;
        // A product that should be whole may be off by the last bits.
        let requests = (requests * (1.0 - 1e-12)).ceil();
        if requests > MOST_IN_A_WINDOW as f64 {
            return Err(PlanError::TooMany {
                client: client.id.clone(),
                requests: format!("{requests:.0}"),
                start_us,
                end_us,
            });
        }
        let arrival = window.arrival.as_ref().or(client.arrival.as_ref());
        let process = arrival.and_then(|arrival| arrival.process().ok());
        Ok(Window {
            index,
            start_us,
            end_us,
            gaps: process.expect("a checked client has arrivals").at(rate / 1e6),
            requests: requests as u64,
        })
    }
}

fn process(client: &ClientSpec) -> Option<Process> {
    client.arrival.as_ref().and_then(|arrival| arrival.process().ok())
}

/// What all that one client sends is drawn from. The reference gives gaps with a mean of their own a stream of their own,
/// which takes the first number for its seed.
fn stream(client: &ClientSpec, seed: i64) -> Stream {
    let mut stream = Stream::seeded(seed);
    if matches!(process(client), Some(Process::PoissonOf { .. })) {
        stream.seed();
    }
    stream
}

/// So many users; the first requests are spread over one think time.
fn users_of<'c>(
    client: &'c ClientSpec,
    users: u32,
    shape: &'c Arc<Shape>,
    seeds: &'c mut Stream,
) -> impl Iterator<Item = Source> + 'c {
    let think_us = client.think_time_us.unwrap_or_default();
    (0..users).map(move |user| {
        let at_us = u128::from(user) * u128::from(think_us) / u128::from(users);
        Source::User(Some(User {
            shape: Arc::clone(shape),
            at_us: at_us as u64,
            think_us,
            first_seed: seeds.seed(),
            seed: seeds.seed(),
        }))
    })
}

fn turns(client: &ClientSpec) -> Option<Turns> {
    client.multi_turn().map(|turns| Turns {
        rounds: turns.max_rounds,
        think_us: turns.think_time_us,
        grows: turns.context_growth == ContextGrowth::Accumulate,
        single: turns.single_session,
        closed: client.closed_loop.unwrap_or(true),
    })
}

fn shape(client: &ClientSpec, prefix: BlockChain) -> Shape {
    let has_sessions = client.concurrency.is_some() || client.multi_turn().is_some();
    let timeout_us = match client.timeout {
        Some(timeout) => u64::try_from(timeout).ok(),
        None => has_sessions.then_some(SESSION_TIMEOUT_US),
    };
    let windows = client.windows().iter().map(|window| {
        (
            lengths(window.input_distribution.as_ref()),
            lengths(window.output_distribution.as_ref()),
        )
    });
    let reasoning = client.reasoning.as_ref();
    Shape {
        client: Arc::new(Client {
            id: client.id.as_str().into(),
            tenant: client.tenant_id.as_str().into(),
            slo_class: client.slo_class.as_str().into(),
            model: client.model.as_str().into(),
            adapter: client.adapter.as_str().into(),
            prefix_group: client.prefix_group.as_str().into(),
            prefix_tokens: prefix.tokens(),
            streaming: client.streaming,
        }),
        prefix,
        input: match &client.multimodal {
            Some(multimodal) => media(multimodal),
            None => Input::Text(lengths(client.input_distribution.as_ref())),
        },
        output: lengths(client.output_distribution.as_ref()),
        windows: windows.collect(),
        reason: lengths(reasoning.and_then(|reasoning| reasoning.reason_ratio_distribution.as_ref())),
        timeout_us,
        slo_target_us: client.slo_target_us,
    }
}

fn media(multimodal: &MultimodalSpec) -> Input {
    let items = |length: &Option<DistributionSpec>, count: &Option<DistributionSpec>| Items {
        length: lengths(length.as_ref()),
        count: lengths(count.as_ref()),
    };
    Input::Media {
        text: lengths(multimodal.text_distribution.as_ref()),
        items: Box::new([
            items(&multimodal.image_distribution, &multimodal.image_count_distribution),
            items(&multimodal.audio_distribution, &multimodal.audio_count_distribution),
            items(&multimodal.video_distribution, &multimodal.video_count_distribution),
        ]),
    }
}

/// A distribution of a description that was checked.
fn lengths(distribution: Option<&DistributionSpec>) -> Option<Lengths> {
    distribution.and_then(|distribution| distribution.lengths().ok())
}
