//! The engine in the live service: one owner behind a lock that is held for a few microseconds.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use futures_util::task::AtomicWaker;
use parking_lot::{Mutex, MutexGuard};
use rustc_hash::FxHashMap;
use tokio::sync::{Notify, watch};

use super::{Picker, Routed, Verdict, Withdrawn};
use crate::engine::config::plan::EnginePlan;
use crate::engine::flow::fairness::Used;
use crate::engine::journal::{Answer as JournalAnswer, Call};
use crate::engine::outcome::Outcome;
use crate::engine::pool::PoolChange;
use crate::engine::prefix::BlockLayout;
use crate::engine::request::{Request, RequestId};
use crate::engine::scheduling::Decision;
use crate::engine::time::Timestamp;
use crate::engine::{Effect, Engine, Progress};
use crate::serve::clock::Clock;
use crate::serve::journal::Journal;

/// A handle on the engine. Cheap to clone; all clones act on the same one.
#[derive(Clone, Debug)]
pub struct Driver {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    clock: Clock,
    state: Mutex<State>,
    /// Wakes [`Driver::keep_time`] when the deadline may have moved.
    rearm: Notify,
    endpoints: watch::Sender<usize>,
    /// As the engine last said. Every stream asks for it, and it hardly ever changes.
    layout: ArcSwapOption<BlockLayout>,
}

#[derive(Debug)]
struct State {
    engine: Engine,
    last_id: u64,
    /// Requests that the engine makes wait.
    waiting: FxHashMap<RequestId, Waiting>,
    /// Requests in flight that the engine may cut off.
    cuts: FxHashMap<RequestId, Arc<Cut>>,
    journal: Option<Journal>,
}

#[derive(Debug, Default)]
struct Waiting {
    answer: Option<Answer>,
    waker: Option<Waker>,
}

/// What the engine says to a request that was submitted.
#[derive(Debug)]
struct Answer {
    effect: Effect,
    /// How the request learns that it is cut off, if it can be.
    cut: Option<Arc<Cut>>,
}

/// Tells a request in flight that it is cut off.
#[derive(Debug, Default)]
struct Cut {
    is_cut: AtomicBool,
    waker: AtomicWaker,
}

/// Effects that are handed out before others get their turn at the engine.
const AT_ONCE: usize = 256;

/// Whether the engine has more to hand out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Left {
    Nothing,
    More,
}

impl State {
    /// Hands out effects of the last call, up to a bound.
    fn hand_out(&mut self, now: Timestamp) -> Left {
        let mut answers = Vec::new();
        let left = self.hand_out_and_note(now, &mut answers);
        self.note(now, || Call::Poll { answers });
        left
    }

    fn hand_out_and_note(&mut self, now: Timestamp, answers: &mut Vec<JournalAnswer>) -> Left {
        for _ in 0..AT_ONCE {
            let Some(effect) = self.engine.poll(now) else {
                return Left::Nothing;
            };
            let id = effect.id();
            if self.journal.is_some() {
                answers.push(JournalAnswer::from(&effect));
            }
            let cut = match &effect {
                Effect::Evict { .. } => {
                    if let Some(cut) = self.cuts.get(&id) {
                        cut.is_cut.store(true, Ordering::Release);
                        cut.waker.wake();
                    }
                    continue;
                }
                Effect::Route { priority, .. } if *priority < 0 => self.evictable(id),
                Effect::Route { .. } | Effect::Refuse { .. } => None,
            };
            let waiting = self.waiting.get_mut(&id);
            let place = waiting.expect("the engine answers requests that were submitted, each once");
            place.answer = Some(Answer { effect, cut });
            if let Some(waker) = place.waker.take() {
                waker.wake();
            }
        }
        Left::More
    }

    /// Writes a call of the engine down, if there is a journal.
    fn note(&mut self, now: Timestamp, call: impl FnOnce() -> Call) {
        if let Some(journal) = &mut self.journal {
            journal.note(now, call());
        }
    }

    /// The answer to a request, if there is one.
    fn fetch(&mut self, id: RequestId) -> Option<Answer> {
        let answer = self.waiting.get_mut(&id)?.answer.take()?;
        self.waiting.remove(&id);
        Some(answer)
    }

    fn evictable(&mut self, id: RequestId) -> Option<Arc<Cut>> {
        self.engine.flow()?.eviction()?;
        let cut = Arc::<Cut>::default();
        self.cuts.insert(id, cut.clone());
        Some(cut)
    }
}

impl Driver {
    /// Drives `engine` by `clock`.
    pub fn new(engine: Engine, clock: Clock) -> Self {
        let endpoints = watch::Sender::new(engine.pool().len());
        let layout = ArcSwapOption::new(engine.block_layout().map(Arc::new));
        Self {
            shared: Arc::new(Shared {
                clock,
                state: Mutex::new(State {
                    engine,
                    last_id: 0,
                    waiting: FxHashMap::default(),
                    cuts: FxHashMap::default(),
                    journal: None,
                }),
                rearm: Notify::new(),
                endpoints,
                layout,
            }),
        }
    }

    /// Writes every call of the engine down from now on: to be asked for before the first one.
    pub fn write_down(&self, journal: Journal) {
        self.shared.state.lock().journal = Some(journal);
    }

    /// Looks at the engine: for pages and reports, not for requests.
    pub fn inspect<T>(&self, look: impl FnOnce(&Engine) -> T) -> T {
        look(&self.shared.state.lock().engine)
    }

    /// Tells the number of endpoints, whenever it changes.
    pub fn endpoints(&self) -> watch::Receiver<usize> {
        self.shared.endpoints.subscribe()
    }

    /// Tells the engine that the pool changed.
    pub fn pool_changed(&self, changes: Vec<PoolChange>) {
        let change = |state: &mut State, now: Timestamp| {
            state.note(now, || Call::Pool {
                changes: changes.clone(),
            });
            state.engine.pool_changed(now, changes);
            self.shared.publish_layout(&state.engine);
            state.engine.pool().len()
        };
        let size = self.shared.with_state(change, |_, size| size);
        self.shared
            .endpoints
            .send_if_modified(|known| std::mem::replace(known, size) != size);
    }

    /// Tells the engine the priorities of objectives.
    pub fn objectives_changed(&self, objectives: BTreeMap<Arc<str>, i32>) {
        let change = |state: &mut State, now: Timestamp| {
            state.note(now, || Call::Objectives {
                priorities: objectives.clone(),
            });
            state.engine.objectives_changed(now, objectives);
        };
        self.shared.with_state(change, |_, ()| ());
    }

    /// Answers whatever waits, and sends away whoever comes. What is in flight goes on.
    pub fn close(&self) {
        let close = |state: &mut State, now: Timestamp| {
            state.note(now, || Call::Close);
            state.engine.close(now);
        };
        self.shared.with_state(close, |_, ()| ());
    }

    /// Lets another plan take over. Nothing in flight is lost.
    pub fn replan(&self, plan: EnginePlan) {
        let change = |state: &mut State, now: Timestamp| {
            state.note(now, || Call::Replan);
            state.engine.replan(now, plan);
            self.shared.publish_layout(&state.engine);
        };
        self.shared.with_state(change, |_, ()| ());
    }

    /// Calls the engine at its deadlines. Runs until it is dropped; without it, nothing that waits ever expires.
    pub async fn keep_time(&self) {
        let Shared { clock, rearm, .. } = &*self.shared;
        loop {
            let moved = rearm.notified();
            match self.inspect(Engine::deadline) {
                None => moved.await,
                Some(deadline) => {
                    tokio::select! {
                        () = moved => {}
                        () = tokio::time::sleep_until(clock.instant(deadline)) => self.shared.with(|_, _| ()),
                    }
                }
            }
        }
    }
}

impl Shared {
    /// Calls the engine, hands out the effects, and has the timer look at the deadline if that moved.
    fn with<T>(&self, call: impl FnOnce(&mut Engine, Timestamp) -> T) -> T {
        self.with_state(|state, now| call(&mut state.engine, now), |_, answer| answer)
    }

    /// As [`with`](Self::with); `then` looks at the state once the effects were handed out.
    fn with_state<T, U>(
        &self,
        call: impl FnOnce(&mut State, Timestamp) -> T,
        then: impl FnOnce(&mut State, T) -> U,
    ) -> U {
        let mut state = self.state.lock();
        let before = state.engine.deadline();
        // Read behind the lock: the engine's time does not go back.
        let now = self.clock.now();
        let answer = call(&mut state, now);
        while state.hand_out(self.clock.now()) == Left::More {
            MutexGuard::bump(&mut state);
        }
        if state.engine.deadline() != before {
            self.rearm.notify_one();
        }
        then(&mut state, answer)
    }

    /// To be called under the engine's lock, so that the last word is the engine's last one.
    fn publish_layout(&self, engine: &Engine) {
        let layout = engine.block_layout();
        if self.layout.load().as_deref().copied() != layout {
            self.layout.store(layout.map(Arc::new));
        }
    }

    fn answer_began(&self, id: RequestId) {
        let begin = |state: &mut State, now: Timestamp| {
            state.note(now, || Call::AnswerBegan { id });
            state.engine.progress(now, id, Progress::AnswerBegan);
        };
        self.with_state(begin, |_, ()| ());
    }

    /// The client of a request is gone, wherever the request is. Tells of its wait, if it waited.
    fn forget(&self, id: RequestId) -> Option<Withdrawn> {
        let forget = |state: &mut State, now: Timestamp| {
            state.waiting.remove(&id);
            state.cuts.remove(&id);
            state.note(now, || Call::Cancel { id });
            state.engine.cancel(now, id)
        };
        let left = self.with_state(forget, |_, left| left)?;
        Some(Withdrawn {
            priority: left.request.priority,
            waited: left.waited,
        })
    }
}

impl Picker for Driver {
    type Ticket = Ticket;
    type Routed = InFlight;

    fn now(&self) -> Timestamp {
        self.shared.clock.now()
    }

    fn block_layout(&self) -> Option<BlockLayout> {
        self.shared.layout.load().as_deref().copied()
    }

    fn submit(&self, request: Request) -> Ticket {
        let submit = |state: &mut State, now: Timestamp| {
            state.last_id += 1;
            let id = RequestId(state.last_id);
            state.waiting.insert(id, Waiting::default());
            state.note(now, || Call::Submit {
                id,
                request: Box::new(request.clone()),
            });
            state.engine.submit(now, id, request);
            id
        };
        let stage = self.shared.with_state(submit, |state, id| match state.fetch(id) {
            Some(answer) => TicketStage::Answered(answer),
            None => TicketStage::Waiting(id),
        });
        Ticket {
            shared: self.shared.clone(),
            stage,
        }
    }

    fn withdraw(&self, mut ticket: Ticket) -> Option<Withdrawn> {
        ticket.cancel()
    }
}

/// A request that was submitted, until its answer is fetched. Dropping it before cancels the request.
#[derive(Debug)]
pub struct Ticket {
    shared: Arc<Shared>,
    stage: TicketStage,
}

#[derive(Debug)]
enum TicketStage {
    Answered(Answer),
    Waiting(RequestId),
    Fetched,
}

impl Future for Ticket {
    type Output = Verdict<InFlight>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Answer { effect, cut } = match std::mem::replace(&mut self.stage, TicketStage::Fetched) {
            TicketStage::Answered(answer) => answer,
            TicketStage::Waiting(id) => {
                let mut state = self.shared.state.lock();
                let Some(answer) = state.fetch(id) else {
                    let place = state.waiting.get_mut(&id).expect("a request that waits has a place");
                    place.waker = Some(cx.waker().clone());
                    drop(state);
                    self.stage = TicketStage::Waiting(id);
                    return Poll::Pending;
                };
                answer
            }
            TicketStage::Fetched => unreachable!("a ticket is not polled after it was ready"),
        };
        Poll::Ready(match effect {
            Effect::Route {
                id,
                priority,
                waited,
                decision,
            } => Verdict::Routed(InFlight {
                id,
                priority,
                waited,
                decision,
                shared: self.shared.clone(),
                stage: Stage::Sent,
                cut,
            }),
            Effect::Refuse { refused, .. } => Verdict::Refused(refused),
            Effect::Evict { .. } => unreachable!("a request that was not routed is not cut off"),
        })
    }
}

impl Ticket {
    fn cancel(&mut self) -> Option<Withdrawn> {
        let id = match std::mem::replace(&mut self.stage, TicketStage::Fetched) {
            TicketStage::Answered(answer) => answer.effect.id(),
            TicketStage::Waiting(id) => id,
            TicketStage::Fetched => return None,
        };
        self.shared.forget(id)
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.cancel();
    }
}

/// A request that was routed. Dropping it without an end means that the client is gone.
#[derive(Debug)]
pub struct InFlight {
    id: RequestId,
    priority: i32,
    waited: Option<Duration>,
    decision: Decision,
    shared: Arc<Shared>,
    stage: Stage,
    cut: Option<Arc<Cut>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Sent,
    Answering,
    Ended,
}

impl Routed for InFlight {
    fn decision(&self) -> &Decision {
        &self.decision
    }

    fn priority(&self) -> i32 {
        self.priority
    }

    fn waited(&self) -> Option<Duration> {
        self.waited
    }

    fn answer_began(&mut self) {
        if self.stage == Stage::Sent {
            self.stage = Stage::Answering;
            self.shared.answer_began(self.id);
        }
    }

    fn poll_cut_off(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let Some(cut) = &self.cut else { return Poll::Pending };
        cut.waker.register(cx.waker());
        if cut.is_cut.load(Ordering::Acquire) {
            self.cut = None;
            return Poll::Ready(());
        }
        Poll::Pending
    }

    fn end(mut self, outcome: Outcome, used: Used) {
        self.stage = Stage::Ended;
        let end = |state: &mut State, now: Timestamp| {
            state.cuts.remove(&self.id);
            state.note(now, || Call::Ended {
                id: self.id,
                outcome,
                used,
            });
            state.engine.progress(now, self.id, Progress::Ended(outcome, used));
        };
        self.shared.with_state(end, |_, ()| ());
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        if self.stage != Stage::Ended {
            self.shared.forget(self.id);
        }
    }
}

#[cfg(test)]
#[cfg(feature = "sim")]
mod parity;
#[cfg(test)]
mod tests;
