//! Conversations and users in a closed loop: what they send next depends on when, and whether, they were answered
//! (spec, simulator 19).

use std::collections::VecDeque;
use std::sync::Arc;

use super::super::instance::BlockChain;
use super::super::request::{Client, RequestName, SessionRound, SimRequest};
use super::chance::Stream;
use super::shape::{Shape, Sizes, Turn};
use super::think::Think;
use super::tokens::{self, Spoken};

/// How many conversations (and users) began, and how they ended. Each that began is in one of the others, or goes on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SessionTally {
    /// They sent a first request.
    pub started: u64,
    /// They came to their end.
    pub completed: u64,
    /// A request of theirs was not answered.
    pub cancelled: u64,
    /// Their next request would have come after the horizon.
    pub horizon_interrupted: u64,
    /// The limit of requests left none for them.
    pub budget_exhausted: u64,
}

impl SessionTally {
    /// Those that have not ended.
    pub fn open(&self) -> u64 {
        self.started - self.completed - self.cancelled - self.horizon_interrupted - self.budget_exhausted
    }
}

/// Why a conversation ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SessionEnd {
    Completed,
    Cancelled,
    HorizonInterrupted,
    BudgetExhausted,
}

/// A conversation, or a user, that goes on.
#[derive(Debug)]
pub(in crate::sim) struct Session {
    id: Arc<str>,
    /// The turn that was sent last.
    round: u32,
    rounds: Rounds,
    think: Think,
    chance: LateStream,
    /// The last turn, if prompts begin with what was said before.
    spoken: Option<Spoken>,
    /// Turns that it may still send under the limit of requests. None: it asks each time.
    pub(super) reserved: Option<u64>,
}

/// What is said in the turns to come.
#[derive(Debug)]
pub(in crate::sim) enum Rounds {
    /// Something that is drawn, for so many turns in all or without end.
    Drawn { shape: Arc<Shape>, most: Option<u32> },
    /// These.
    Listed(VecDeque<Listed>),
}

/// A turn whose sizes are known.
#[derive(Debug)]
pub(in crate::sim) struct Listed {
    /// Its number in the trace that it is from.
    pub(in crate::sim) number: u64,
    pub(in crate::sim) client: Arc<Client>,
    /// The shared beginning of the prompt.
    pub(in crate::sim) prefix: Arc<BlockChain>,
    pub(in crate::sim) sizes: Sizes,
    pub(in crate::sim) max_output_tokens: Option<u32>,
    pub(in crate::sim) timeout_us: Option<u64>,
    pub(in crate::sim) slo_target_us: Option<u64>,
    /// The prompt begins with the conversation so far.
    pub(in crate::sim) context: bool,
    /// How long it is from the answer before to this, unless a distribution decides.
    pub(in crate::sim) think_us: u64,
}

/// A stream that takes up room only once something is drawn from it.
#[derive(Debug)]
pub(in crate::sim) enum LateStream {
    Seed(i64),
    Open(Stream),
}

impl LateStream {
    pub(in crate::sim) fn open(&mut self) -> &mut Stream {
        if let Self::Seed(seed) = *self {
            *self = Self::Open(Stream::seeded(seed));
        }
        match self {
            Self::Open(stream) => stream,
            Self::Seed(_) => unreachable!("it was opened above"),
        }
    }
}

impl Session {
    /// A conversation whose first turn, number 0, is sent.
    pub(in crate::sim) fn new(
        id: Arc<str>,
        rounds: Rounds,
        think: Think,
        chance: LateStream,
        spoken: Option<Spoken>,
    ) -> Self {
        Self {
            id,
            round: 0,
            rounds,
            think,
            chance,
            spoken,
            reserved: None,
        }
    }

    pub(super) fn id(&self) -> &Arc<str> {
        &self.id
    }

    /// Turns after this one; none if there is no end.
    pub(super) fn rounds_left(&self) -> Option<u64> {
        match &self.rounds {
            Rounds::Drawn { most, .. } => most.map(|most| u64::from(most.saturating_sub(self.round + 1))),
            Rounds::Listed(list) => Some(list.len() as u64),
        }
    }

    /// The turn after this one, which was answered at `at_us` by so many tokens. `number` makes its name different from
    /// every other.
    pub(super) fn follow(
        &mut self,
        at_us: u64,
        output_tokens: u32,
        horizon_us: u64,
        number: u64,
    ) -> Result<SimRequest, SessionEnd> {
        let listed_think = match &self.rounds {
            Rounds::Drawn { .. } => 0,
            Rounds::Listed(list) => list.front().map_or(0, |next| next.think_us),
        };
        let think_us = self.think.sample(listed_think, self.chance.open());
        let at_us = at_us.saturating_add(think_us);
        if at_us > horizon_us {
            return Err(SessionEnd::HorizonInterrupted);
        }
        self.round += 1;
        let context = self.spoken.take().map(|spoken| spoken.context(output_tokens));
        let chance = self.chance.open();
        let (request, spoken) = match &mut self.rounds {
            Rounds::Drawn { shape, .. } => {
                let sizes = shape.sizes(None, chance);
                let name = format!("session_{}_round_{}_{number}", self.id, self.round);
                let turn = Turn {
                    name: RequestName::Named(name.into()),
                    at_us,
                    session: Some((Arc::clone(&self.id), self.round)),
                    think_us,
                    context: context.as_ref(),
                    goes_on: context.is_some(),
                };
                shape.request(turn, sizes, chance)
            }
            Rounds::Listed(list) => {
                let next = list.pop_front().ok_or(SessionEnd::Completed)?;
                let goes_on = list.front().is_some_and(|after| after.context);
                let place = Place {
                    at_us,
                    session: Some((&self.id, self.round)),
                    think_us,
                };
                next.request(place, context.as_ref(), goes_on, chance)
            }
        };
        self.spoken = spoken;
        Ok(request)
    }
}

/// When a [`Listed`] turn is sent, and as what of its conversation.
#[derive(Clone, Copy, Debug)]
pub(in crate::sim) struct Place<'s> {
    pub(in crate::sim) at_us: u64,
    pub(in crate::sim) session: Option<(&'s Arc<str>, u32)>,
    pub(in crate::sim) think_us: u64,
}

impl Listed {
    /// Draws the tokens of the turn. `goes_on` says whether the one after it begins with this one.
    pub(in crate::sim) fn request(
        self,
        place: Place<'_>,
        context: Option<&BlockChain>,
        goes_on: bool,
        chance: &mut Stream,
    ) -> (SimRequest, Option<Spoken>) {
        let context = context.filter(|_| self.context);
        let start = context.unwrap_or(&self.prefix);
        let Sizes { fresh, output, .. } = self.sizes;
        let written = tokens::write(start, fresh, output, chance, goes_on);
        let request = SimRequest {
            name: RequestName::Recorded(self.number),
            client: self.client,
            arrival_us: place.at_us,
            prompt_tokens: written.prompt_tokens,
            output_tokens: output,
            max_output_tokens: self.max_output_tokens,
            deadline_us: self.timeout_us.map(|timeout| place.at_us.saturating_add(timeout)),
            slo_target_us: self.slo_target_us,
            session: place.session.map(|(session, round)| SessionRound {
                session: Arc::clone(session),
                round,
                context_tokens: context.map_or(0, BlockChain::tokens),
                think_us: place.think_us,
            }),
            media: self.sizes.media,
            reason_ratio: self.sizes.reason_ratio,
            chain: written.chain,
        };
        (request, written.spoken)
    }
}
