//! What a run remembers of a request while it is under way.

use smallvec::SmallVec;

use super::super::request::SimRequest;

/// A request that has arrived.
#[derive(Debug)]
pub(super) struct Tracked {
    /// As it came. Gone when it has ended.
    request: Option<Box<SimRequest>>,
    pub(super) place: Place,
    /// The position of its SLO class in the list of those that occur.
    pub(super) class: u32,
    /// The steps of its instance that gave it a token, in runs without a gap. Most have one run.
    steps: SmallVec<[Steps; 1]>,
}

/// Steps of an instance, one after the other.
#[derive(Clone, Copy, Debug)]
struct Steps {
    first: u32,
    last: u32,
}

impl Tracked {
    /// A request that arrives, of the SLO class in this position.
    pub(super) fn new(request: SimRequest, class: u32) -> Self {
        Self {
            request: Some(Box::new(request)),
            place: Place::Coming,
            class,
            steps: SmallVec::new(),
        }
    }

    /// The request, unless it has ended.
    pub(super) fn request(&self) -> Option<&SimRequest> {
        self.request.as_deref()
    }

    /// Ends it, and gives the request back.
    ///
    /// # Panics
    ///
    /// If it has ended before.
    pub(super) fn end(&mut self) -> Box<SimRequest> {
        assert_ne!(self.place, Place::Ended, "a request ends once");
        self.place = Place::Ended;
        self.request.take().expect("a request that has not ended is there")
    }

    /// Notes that the step with this number gave it a token.
    pub(super) fn token(&mut self, step: u32) {
        match self.steps.last_mut() {
            Some(run) if run.last + 1 == step => run.last = step,
            _ => self.steps.push(Steps {
                first: step,
                last: step,
            }),
        }
    }

    /// Tokens that came out.
    pub(super) fn tokens(&self) -> u32 {
        self.steps.iter().map(|run| run.last - run.first + 1).sum()
    }

    /// The times between its tokens, given when the steps of its instance ended.
    pub(super) fn gaps(&self, ends_us: &[u64], each_token_us: u64) -> impl Iterator<Item = u64> {
        let between = |run: &Steps| &ends_us[run.first as usize..=run.last as usize];
        let within = self
            .steps
            .iter()
            .flat_map(move |run| between(run).windows(2).map(|pair| pair[1] - pair[0]));
        let across = self
            .steps
            .windows(2)
            .map(|runs| ends_us[runs[1].first as usize] - ends_us[runs[0].last as usize]);
        within.chain(across).map(move |gap| gap + each_token_us)
    }
}

/// Where a request is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// Before the gateway.
    Coming,
    /// In a queue of the gateway.
    AtGateway,
    /// At an instance, or on the way there.
    Sent,
    /// Nowhere any more.
    Ended,
}
