//! The answer to a request, and how it came about.

use std::sync::Arc;

use smallvec::SmallVec;

use super::super::pool::Endpoint;
use super::PluginName;

/// Where a request goes, and why.
#[derive(Clone, Debug)]
pub struct Decision {
    /// The endpoints to try, the best first. Not empty.
    pub endpoints: SmallVec<[Arc<Endpoint>; 1]>,
    /// The profile that chose them. Empty for a request without a body, which no profile looks at.
    pub profile: Arc<str>,
    /// What the first endpoint has of the prompt, or probably has, according to each prefix producer in use.
    pub prefix: SmallVec<[PrefixHit; 1]>,
    /// How the choice came about. Shared, since it is long and does not change.
    pub why: Arc<Why>,
}

/// What the chosen endpoint has of the prompt, or probably has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PrefixHit {
    /// The producer that says so.
    pub producer: PluginName,
    /// Blocks that it has.
    pub matched: u32,
    /// Blocks of the prompt that count.
    pub total: u32,
    /// Tokens of a full block.
    pub block_tokens: u32,
}

/// How a choice came about: enough to follow the arithmetic by hand.
#[derive(Clone, Debug, Default)]
pub struct Why {
    /// Endpoints that the request could have gone to before any filter.
    pub candidates: usize,
    /// Those of them that were left out because they cannot be reached, fail requests or cannot be scraped, and others can.
    pub passed_over: usize,
    /// Each filter by instance name, and how many endpoints it left.
    pub filters: Vec<(Arc<str>, usize)>,
    /// Each scorer by instance name, and its weight.
    pub scorers: Arc<[(Arc<str>, f64)]>,
    /// The endpoints with the highest totals, the best first; ties in order of endpoint id.
    pub scored: Vec<ScoredEndpoint>,
    /// The scores of `scored`, one row for each of them and one column for each of `scorers`, each within 0 and 1.
    pub(super) scores: Vec<f64>,
}

impl Why {
    /// Nobody was scored: any of the candidates would do.
    pub(in crate::engine) fn unscored(candidates: usize, passed_over: usize) -> Self {
        Self {
            candidates,
            passed_over,
            ..Self::default()
        }
    }

    /// What each scorer said of the endpoint at `rank` of [`scored`](Self::scored): its name, weight and score.
    pub fn scores(&self, rank: usize) -> impl Iterator<Item = (&Arc<str>, f64, f64)> {
        let row = self
            .scores
            .chunks(self.scorers.len().max(1))
            .nth(rank)
            .unwrap_or_default();
        self.scorers
            .iter()
            .zip(row)
            .map(|((name, weight), score)| (name, *weight, *score))
    }
}

/// An endpoint and what it scored in all.
#[derive(Clone, Debug)]
pub struct ScoredEndpoint {
    /// The endpoint.
    pub endpoint: Arc<Endpoint>,
    /// The sum over the scorers of score times weight.
    pub total: f64,
}

/// How many of the scored endpoints are written down with each decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Explain {
    /// The best few.
    Best(usize),
    /// All of them. Costs time and memory in proportion to the pool.
    All,
}

impl Explain {
    pub(super) fn limit(self) -> usize {
        match self {
            Self::Best(limit) => limit,
            Self::All => usize::MAX,
        }
    }
}

impl Default for Explain {
    /// The eight best: enough to see what the winner won against.
    fn default() -> Self {
        Self::Best(8)
    }
}
