//! Chooses the endpoints for one request.
//!
//! A [`ProfileHandler`] decides which profiles run, and which of their results is the answer. A profile narrows the
//! candidates with its [`Filter`]s, adds up the weighted opinions of its [`Scorer`]s, and lets its [`Picker`] choose
//! (spec, scheduling 4). All of it is a function of the [`Cycle`]: the request, the facts and the time.

pub mod decision;
pub mod filters;
pub mod handlers;
pub mod pickers;
mod profile;
pub mod scorers;

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

pub use decision::{Decision, Explain, PrefixHit, ScoredEndpoint, Why};
pub use profile::{Profile, WeightedScorer};

use super::load::TokenLoad;
use super::outcome::Refusal;
use super::plugin::PrefixRef;
use super::pool::{Candidates, Member, Pool, Slot};
use super::request::Request;
use super::seed::Chance;
use super::time::Timestamp;
use profile::Run;

/// What the plugins of one decision may look at, besides the candidates.
#[derive(Clone, Copy, Debug)]
pub struct Cycle<'a> {
    /// The time of the decision.
    pub now: Timestamp,
    /// The request to be served.
    pub request: &'a Request,
    prefix: &'a [PrefixMatches],
    tried: &'a [Slot],
    load: TokenLoad,
}

impl<'a> Cycle<'a> {
    /// A cycle in which the prefix producers found `prefix`, in the order of their references, and tokens are counted as
    /// `load` says.
    pub fn new(now: Timestamp, request: &'a Request, prefix: &'a [PrefixMatches], load: TokenLoad) -> Self {
        Self {
            now,
            request,
            prefix,
            tried: &[],
            load,
        }
    }

    /// Tokens that the request would add to what is in flight to the endpoint in `slot`.
    pub fn tokens_on(&self, slot: Slot) -> u64 {
        self.load.of(self.request, self.prefix, slot)
    }

    /// The same for a request that failed at the endpoints in `tried` before: they come after those that are healthy.
    #[must_use]
    pub fn after(self, tried: &'a [Slot]) -> Self {
        Self { tried, ..self }
    }

    /// What one prefix producer found.
    ///
    /// # Panics
    ///
    /// If the reference was not made for the plan that runs.
    pub fn prefix(&self, producer: PrefixRef) -> &'a PrefixMatches {
        &self.prefix[producer.0]
    }
}

/// How much of the prompt each endpoint has, or probably has, according to one producer.
#[derive(Clone, Debug, Default)]
pub struct PrefixMatches {
    /// The producer has a way to know. If not, nothing matches.
    pub known: bool,
    /// Blocks of the prompt that count.
    pub total: u32,
    /// Tokens of a full block.
    pub block_tokens: u32,
    /// Blocks that match, by slot.
    pub matched: Vec<u32>,
}

impl PrefixMatches {
    /// Blocks of the prompt that the endpoint in `slot` has.
    pub fn matched(&self, slot: Slot) -> u32 {
        self.matched.get(slot.index()).copied().unwrap_or(0)
    }
}

/// Keeps the candidates that may serve the request.
pub trait Filter: Debug + Send {
    /// Adds to `kept`, which is empty, the slots of `candidates` that stay, in an order of its choice. `chance` is for
    /// filters that let some requests pass at random.
    fn filter(&mut self, cycle: &Cycle<'_>, candidates: Candidates<'_>, chance: &mut Chance, kept: &mut Vec<Slot>);

    /// True if it goes by what endpoints are, as their labels say, and not by how they are, and judges each candidate by
    /// itself, whoever else is among them. What such a filter takes out is no alternative for what it keeps: endpoints that
    /// can be used are preferred among those that it keeps.
    fn goes_by_labels(&self) -> bool {
        false
    }
}

/// Has an opinion on each candidate.
pub trait Scorer: Debug + Send {
    /// Writes to `scores`, which holds a zero for each candidate, how well it would serve: 0 worst, 1 best. What lies
    /// outside is cut off by the caller.
    fn score(&mut self, cycle: &Cycle<'_>, candidates: Candidates<'_>, scores: &mut [f64]);

    /// The request that it scored last goes to `chosen`. Not called if it goes nowhere, or if the scorer was not asked.
    fn routed(&mut self, _cycle: &Cycle<'_>, _chosen: &Member) {}

    /// An endpoint left the pool.
    fn left(&mut self, _gone: &Member) {}
}

/// Chooses from the scored candidates.
pub trait Picker: Debug + Send {
    /// Adds to `picked`, which is empty, at least one of the candidates, the best first, each at most once.
    /// `scored` is not empty and in order of endpoint id.
    fn pick(&mut self, scored: &[Scored], chance: &mut Chance, picked: &mut Vec<Slot>);
}

/// A candidate and the mean of its scores, each as often as it weighs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Scored {
    /// The candidate.
    pub slot: Slot,
    /// The sum over the scorers of score times weight, divided by the sum of the weights if that is above 0.
    pub total: f64,
}

/// Decides which profiles run for a request, and what their results mean.
pub trait ProfileHandler: Debug + Send {
    /// The profiles to run next, by index; none to end the cycle. Called again with what they found.
    fn next(&mut self, cycle: &Cycle<'_>, results: &[Option<ProfileResult>]) -> Vec<usize>;

    /// The profile whose picks are the answer, given what the profiles found, by index.
    fn primary(&mut self, results: &[Option<ProfileResult>]) -> usize;

    /// How many profiles it can work with.
    fn profiles_allowed(&self) -> std::ops::RangeInclusive<usize>;
}

/// What one profile found.
#[derive(Clone, Debug, PartialEq)]
pub enum ProfileResult {
    /// These, the best first.
    Picked(Vec<Slot>),
    /// The filters left nobody.
    NobodyLeft,
}

/// Why no endpoint was chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoDecision {
    /// The filters of the deciding profile left nobody.
    FilteredOut,
    /// The handler ran no profile that could decide.
    NothingRan,
}

/// Watches the plugins at work, for measurements. What it does cannot influence a decision.
pub trait Probe: Debug + Send {
    /// A request is about to be taken into its queue.
    fn enqueue_begins(&mut self);
    /// It waits there, or was refused.
    fn enqueue_ended(&mut self, fairness_id: &Arc<str>, priority: i32, refusal: Option<Refusal>);
    /// A request that was cut off has ended, so long after.
    fn revocation_confirmed(&mut self, took: Duration);
    /// A request to release is looked for.
    fn dispatch_begins(&mut self);
    /// One was released, or none may go.
    fn dispatch_ended(&mut self);
    /// Endpoints are about to be chosen for a request.
    fn cycle_begins(&mut self);
    /// They were chosen, or none could be.
    fn cycle_ended(&mut self);
    /// A plugin begins its work.
    fn begins(&mut self);
    /// The plugin that began last has done its work.
    fn ended(&mut self, point: ExtensionPoint, plugin: &PluginName);
}

/// A probe that does not look.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoProbe;

impl Probe for NoProbe {
    fn enqueue_begins(&mut self) {}
    fn enqueue_ended(&mut self, _: &Arc<str>, _: i32, _: Option<Refusal>) {}
    fn revocation_confirmed(&mut self, _: Duration) {}
    fn dispatch_begins(&mut self) {}
    fn dispatch_ended(&mut self) {}
    fn cycle_begins(&mut self) {}
    fn cycle_ended(&mut self) {}
    fn begins(&mut self) {}
    fn ended(&mut self, _: ExtensionPoint, _: &PluginName) {}
}

/// Where in a cycle a plugin works. The names are the reference's metric label values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ExtensionPoint {
    /// A [`Filter`].
    Filter,
    /// A [`Scorer`].
    Scorer,
    /// A [`Picker`].
    Picker,
    /// [`ProfileHandler::next`].
    ProfilePicker,
    /// [`ProfileHandler::primary`].
    ProcessProfilesResults,
}

impl ExtensionPoint {
    /// The label value.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Filter => "Filter",
            Self::Scorer => "Scorer",
            Self::Picker => "Picker",
            Self::ProfilePicker => "ProfilePicker",
            Self::ProcessProfilesResults => "ProcessProfilesResults",
        }
    }
}

/// What a plugin instance is called.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PluginName {
    /// The instance name: the key by which the configuration refers to it.
    pub name: Arc<str>,
    /// Its type.
    pub type_name: &'static str,
}

/// A plugin and what it is called.
#[derive(Debug)]
pub struct Named<T: ?Sized> {
    /// What it is called.
    pub name: PluginName,
    /// The plugin.
    pub plugin: Box<T>,
}

/// Refers to a plugin instance that several profiles may share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InstanceRef(pub usize);

/// The plugin instances of a plan.
#[derive(Debug, Default)]
pub struct Instances {
    /// Filters, by [`InstanceRef`].
    pub filters: Vec<Named<dyn Filter>>,
    /// Scorers, by [`InstanceRef`].
    pub scorers: Vec<Named<dyn Scorer>>,
    /// Pickers, by [`InstanceRef`].
    pub pickers: Vec<Named<dyn Picker>>,
}

/// The scheduling part of a plan, at work.
#[derive(Debug)]
pub struct Scheduler {
    handler: Named<dyn ProfileHandler>,
    profiles: Vec<Profile>,
    instances: Instances,
    explain: Explain,
    runs: Vec<Run>,
    results: Vec<Option<ProfileResult>>,
}

impl Scheduler {
    /// A scheduler for these profiles.
    pub fn new(handler: Named<dyn ProfileHandler>, profiles: Vec<Profile>, instances: Instances) -> Self {
        let runs = profiles.iter().map(|_| Run::default()).collect();
        Self {
            handler,
            profiles,
            instances,
            explain: Explain::default(),
            runs,
            results: Vec::new(),
        }
    }

    /// Says how much of each decision is written down.
    pub fn explain(&mut self, explain: Explain) {
        self.explain = explain;
    }

    /// Chooses endpoints among `candidates`.
    ///
    /// # Errors
    ///
    /// If no profile that decides found an endpoint.
    pub fn schedule(
        &mut self,
        cycle: &Cycle<'_>,
        pool: &Pool,
        candidates: &[Slot],
        chance: &mut Chance,
        probe: &mut dyn Probe,
    ) -> Result<Chosen, NoDecision> {
        self.results.clear();
        self.results.resize(self.profiles.len(), None);
        loop {
            probe.begins();
            let next = self.handler.plugin.next(cycle, &self.results);
            probe.ended(ExtensionPoint::ProfilePicker, &self.handler.name);
            if next.is_empty() {
                break;
            }
            for index in next {
                let (profile, run) = (&self.profiles[index], &mut self.runs[index]);
                let result = run.profile(profile, &mut self.instances, cycle, pool, candidates, chance, probe);
                self.results[index] = Some(result);
            }
        }
        probe.begins();
        let primary = self.handler.plugin.primary(&self.results);
        probe.ended(ExtensionPoint::ProcessProfilesResults, &self.handler.name);
        match self.results.get_mut(primary).and_then(Option::take) {
            Some(ProfileResult::Picked(slots)) => {
                self.tell_scorers(cycle, &pool[slots[0]], primary);
                let profile = &self.profiles[primary];
                let why = self.runs[primary].why(profile, &self.instances, pool, candidates.len(), self.explain);
                Ok(Chosen {
                    slots,
                    profile: profile.name.clone(),
                    why,
                })
            }
            Some(ProfileResult::NobodyLeft) => Err(NoDecision::FilteredOut),
            None => Err(NoDecision::NothingRan),
        }
    }

    /// Tells the scorers that an endpoint left the pool.
    pub fn left(&mut self, gone: &Member) {
        self.instances
            .scorers
            .iter_mut()
            .for_each(|scorer| scorer.plugin.left(gone));
    }

    /// Tells the scorers of the profiles that ran, each once, where the request goes. What the primary profile found is
    /// not among the results any more.
    fn tell_scorers(&mut self, cycle: &Cycle<'_>, chosen: &Member, primary: usize) {
        let Self {
            profiles,
            instances,
            results,
            ..
        } = self;
        for (place, scorer) in instances.scorers.iter_mut().enumerate() {
            let ran = |(profile, result): (usize, &Option<ProfileResult>)| {
                let scored = profile == primary || matches!(result, Some(ProfileResult::Picked(_)));
                scored
                    && profiles[profile]
                        .scorers()
                        .iter()
                        .any(|weighted| weighted.scorer.0 == place)
            };
            if results.iter().enumerate().any(ran) {
                scorer.plugin.routed(cycle, chosen);
            }
        }
    }
}

/// What a scheduler chose, before it is booked.
#[derive(Debug)]
pub struct Chosen {
    /// The endpoints, the best first. Not empty.
    pub slots: Vec<Slot>,
    /// The profile that chose.
    pub profile: Arc<str>,
    /// How it came to that.
    pub why: Why,
}

#[cfg(test)]
pub(super) mod testing;
