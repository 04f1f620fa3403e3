//! The requests of one client, one by one as they are asked for.

use std::sync::Arc;

use super::super::request::RequestName;
use super::chance::Stream;
use super::later::LaterRequests;
use super::opening::Opening;
use super::session::{LateStream, Rounds, Session};
use super::shape::{Shape, Turn};
use super::think::Think;
use super::times::{Slot, Times};

/// What the conversations of a client are like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Turns {
    pub(super) rounds: u32,
    pub(super) think_us: u64,
    /// Prompts begin with what was said before.
    pub(super) grows: bool,
    /// There is one conversation only.
    pub(super) single: bool,
    /// A turn waits for the answer to the one before.
    pub(super) closed: bool,
}

/// Names conversations, and gives each a seed that does not depend on the others.
#[derive(Debug)]
pub(super) struct Sessions {
    seed: u64,
    begun: u64,
}

/// What is added to a run's seed for the conversations in a closed loop.
const SESSION_SEED_OFFSET: u64 = 7919;

impl Sessions {
    pub(super) fn new(seed: u64) -> Self {
        Self { seed, begun: 0 }
    }

    fn begin(&mut self, client: &str) -> (Arc<str>, LateStream) {
        let id: Arc<str> = format!("{client}-{}", self.begun).into();
        self.begun += 1;
        let seed = Stream::seed_of(self.seed.wrapping_add(SESSION_SEED_OFFSET), &id);
        (id, LateStream::Seed(seed))
    }
}

/// The requests of one client that has a rate.
#[derive(Debug)]
pub(super) struct RateStream {
    shape: Arc<Shape>,
    turns: Option<Turns>,
    chance: Stream,
    times: Times,
    horizon_us: u64,
    next: Option<Slot>,
    /// Later turns of conversations in an open loop.
    later: LaterRequests,
    /// Requests drawn so far, and how many may be.
    drawn: u64,
    most: u64,
}

impl RateStream {
    /// The stream of a client whose first request was not drawn yet. At most `most` requests are drawn, but for the rest
    /// of a conversation.
    pub(super) fn new(
        shape: Arc<Shape>,
        turns: Option<Turns>,
        times: Times,
        chance: Stream,
        horizon_us: u64,
        most: u64,
    ) -> Self {
        let mut stream = Self {
            shape,
            turns,
            chance,
            times,
            horizon_us,
            next: None,
            later: LaterRequests::default(),
            drawn: 0,
            most,
        };
        stream.advance();
        stream
    }

    pub(super) fn next_at(&self) -> Option<u64> {
        let next = self.next.map(|slot| slot.at_us);
        [self.later.next_at(), next].into_iter().flatten().min()
    }

    pub(super) fn take(&mut self, sessions: &mut Sessions) -> Option<Opening> {
        let slot = match (self.later.next_at(), self.next) {
            (Some(later), Some(slot)) if later > slot.at_us => slot,
            (None, Some(slot)) => slot,
            (Some(_), _) => return self.later.take().map(Opening::alone),
            (None, None) => return None,
        };
        let opening = match self.turns {
            None => self.single(slot),
            Some(turns) if turns.closed => self.closed(slot, turns, sessions),
            Some(turns) => self.open(slot, turns, sessions),
        };
        if self.turns.is_some_and(|turns| turns.single) {
            self.next = None;
        } else {
            self.advance();
        }
        Some(opening)
    }

    fn advance(&mut self) {
        self.next = if self.drawn < self.most {
            self.times.next(&mut self.chance, self.horizon_us)
        } else {
            None
        };
    }

    fn single(&mut self, slot: Slot) -> Opening {
        let sizes = self.shape.sizes(slot.window, &mut self.chance);
        let turn = Turn {
            name: UNNAMED,
            at_us: slot.at_us,
            session: None,
            think_us: 0,
            context: None,
            goes_on: false,
        };
        self.drawn += 1;
        let (request, _) = self.shape.request(turn, sizes, &mut self.chance);
        Opening::alone(request)
    }

    fn closed(&mut self, slot: Slot, turns: Turns, sessions: &mut Sessions) -> Opening {
        let (id, chance) = sessions.begin(&self.shape.client.id);
        let sizes = self.shape.sizes(slot.window, &mut self.chance);
        let turn = Turn {
            name: UNNAMED,
            at_us: slot.at_us,
            session: Some((Arc::clone(&id), 0)),
            think_us: 0,
            context: None,
            goes_on: turns.grows,
        };
        self.drawn += 1;
        let (request, spoken) = self.shape.request(turn, sizes, &mut self.chance);
        let rounds = Rounds::Drawn {
            shape: Arc::clone(&self.shape),
            most: Some(turns.rounds),
        };
        let think = Think::Constant(turns.think_us);
        Opening {
            request,
            number: None,
            session: Some(Session::new(id, rounds, think, chance, spoken)),
        }
    }

    /// All turns at once: each follows the one before after a microsecond per token of its answer, and a thought.
    fn open(&mut self, slot: Slot, turns: Turns, sessions: &mut Sessions) -> Opening {
        let (id, _) = sessions.begin(&self.shape.client.id);
        let (mut at_us, mut context, mut first) = (slot.at_us, None, None);
        for round in 0..turns.rounds.max(1) {
            if at_us >= self.horizon_us {
                break;
            }
            let sizes = self.shape.sizes(slot.window, &mut self.chance);
            let turn = Turn {
                name: UNNAMED,
                at_us,
                session: Some((Arc::clone(&id), round)),
                think_us: if round > 0 { turns.think_us } else { 0 },
                context: context.as_ref(),
                goes_on: turns.grows,
            };
            let (request, spoken) = self.shape.request(turn, sizes, &mut self.chance);
            context = spoken.map(|spoken| spoken.context(sizes.output));
            self.drawn += 1;
            if first.is_none() {
                first = Some(request);
            } else {
                self.later.put(request);
            }
            let pause = turns.think_us.saturating_add(u64::from(sizes.output));
            at_us = at_us.saturating_add(pause);
        }
        Opening::alone(first.expect("a slot lies before the horizon, so there is a first turn"))
    }
}

/// The first request of one user.
#[derive(Debug)]
pub(super) struct User {
    pub(super) shape: Arc<Shape>,
    pub(super) at_us: u64,
    pub(super) think_us: u64,
    /// The seed of the first request.
    pub(super) first_seed: i64,
    /// The seed of all others.
    pub(super) seed: i64,
}

impl User {
    pub(super) fn take(self, sessions: &mut Sessions) -> Opening {
        let (id, _) = sessions.begin(&self.shape.client.id);
        let mut chance = Stream::seeded(self.first_seed);
        let sizes = self.shape.sizes(None, &mut chance);
        let turn = Turn {
            name: UNNAMED,
            at_us: self.at_us,
            session: Some((Arc::clone(&id), 0)),
            think_us: 0,
            context: None,
            goes_on: false,
        };
        let (request, _) = self.shape.request(turn, sizes, &mut chance);
        let rounds = Rounds::Drawn {
            shape: self.shape,
            most: None,
        };
        let (think, chance) = (Think::Constant(self.think_us), LateStream::Seed(self.seed));
        Opening {
            request,
            number: None,
            session: Some(Session::new(id, rounds, think, chance, None)),
        }
    }
}

const UNNAMED: RequestName = RequestName::Numbered(0);
