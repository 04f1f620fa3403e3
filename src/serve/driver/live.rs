//! The engine in the live service: one owner behind a lock that is held for a few microseconds.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use arc_swap::ArcSwapOption;
use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use tokio::sync::{Notify, watch};

use super::{Picker, Routed, Verdict};
use crate::engine::config::plan::SchedulingPlan;
use crate::engine::outcome::Outcome;
use crate::engine::pool::PoolChange;
use crate::engine::prefix::BlockLayout;
use crate::engine::request::{Request, RequestId};
use crate::engine::scheduling::Decision;
use crate::engine::time::Timestamp;
use crate::engine::{Effect, Engine, Progress};
use crate::serve::clock::Clock;

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
}

#[derive(Debug, Default)]
struct Waiting {
    effect: Option<Effect>,
    waker: Option<Waker>,
}

impl State {
    /// Hands out the effects of the last call. The one about `own`, if there is one, is returned.
    fn hand_out(&mut self, now: Timestamp, own: Option<RequestId>) -> Option<Effect> {
        let mut for_caller = None;
        while let Some(effect) = self.engine.poll(now) {
            if own == Some(effect.id()) {
                for_caller = Some(effect);
                continue;
            }
            let waiting = self.waiting.get_mut(&effect.id());
            let place = waiting.expect("the engine answers requests that wait, each once");
            place.effect = Some(effect);
            if let Some(waker) = place.waker.take() {
                waker.wake();
            }
        }
        for_caller
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
                }),
                rearm: Notify::new(),
                endpoints,
                layout,
            }),
        }
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
        let size = self.shared.with(|engine, now| {
            engine.pool_changed(now, changes);
            self.shared.publish_layout(engine);
            engine.pool().len()
        });
        self.shared
            .endpoints
            .send_if_modified(|known| std::mem::replace(known, size) != size);
    }

    /// Lets another plan take over. Nothing in flight is lost.
    pub fn replan(&self, plan: SchedulingPlan) {
        self.shared.with(|engine, now| {
            engine.replan(now, plan);
            self.shared.publish_layout(engine);
        });
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
        self.with_state(|state, now| {
            let answer = call(&mut state.engine, now);
            state.hand_out(now, None);
            answer
        })
    }

    fn with_state<T>(&self, call: impl FnOnce(&mut State, Timestamp) -> T) -> T {
        let mut state = self.state.lock();
        let before = state.engine.deadline();
        // Read behind the lock: the engine's time does not go back.
        let answer = call(&mut state, self.clock.now());
        if state.engine.deadline() != before {
            self.rearm.notify_one();
        }
        answer
    }

    /// To be called under the engine's lock, so that the last word is the engine's last one.
    fn publish_layout(&self, engine: &Engine) {
        let layout = engine.block_layout();
        if self.layout.load().as_deref().copied() != layout {
            self.layout.store(layout.map(Arc::new));
        }
    }

    fn progress(&self, id: RequestId, progress: Progress) {
        self.with(|engine, now| engine.progress(now, id, progress));
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

    fn submit(&self, request: &Request) -> Ticket {
        let (id, effect) = self.shared.with_state(|state, now| {
            state.last_id += 1;
            let id = RequestId(state.last_id);
            state.engine.submit(now, id, request);
            let effect = state.hand_out(now, Some(id));
            if effect.is_none() {
                state.waiting.insert(id, Waiting::default());
            }
            (id, effect)
        });
        Ticket {
            shared: self.shared.clone(),
            stage: effect.map_or(TicketStage::Waiting(id), TicketStage::Answered),
        }
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
    Answered(Effect),
    Waiting(RequestId),
    Fetched,
}

impl Future for Ticket {
    type Output = Verdict<InFlight>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let effect = match std::mem::replace(&mut self.stage, TicketStage::Fetched) {
            TicketStage::Answered(effect) => effect,
            TicketStage::Waiting(id) => {
                let mut state = self.shared.state.lock();
                let place = state.waiting.get_mut(&id).expect("a request that waits has a place");
                let Some(effect) = place.effect.take() else {
                    place.waker = Some(cx.waker().clone());
                    drop(state);
                    self.stage = TicketStage::Waiting(id);
                    return Poll::Pending;
                };
                state.waiting.remove(&id);
                effect
            }
            TicketStage::Fetched => unreachable!("a ticket is not polled after it was ready"),
        };
        Poll::Ready(match effect {
            Effect::Route { id, decision } => Verdict::Routed(InFlight {
                id,
                decision,
                shared: self.shared.clone(),
                stage: Stage::Sent,
            }),
            Effect::Refuse { refusal, .. } => Verdict::Refused(refusal),
        })
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let id = match &self.stage {
            TicketStage::Answered(effect) => effect.id(),
            TicketStage::Waiting(id) => *id,
            TicketStage::Fetched => return,
        };
        self.shared.with_state(|state, now| {
            state.waiting.remove(&id);
            state.engine.cancel(now, id);
            state.hand_out(now, None);
        });
    }
}

/// A request that was routed. Dropping it without an end means that the client is gone.
#[derive(Debug)]
pub struct InFlight {
    id: RequestId,
    decision: Decision,
    shared: Arc<Shared>,
    stage: Stage,
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

    fn answer_began(&mut self) {
        if self.stage == Stage::Sent {
            self.stage = Stage::Answering;
            self.shared.progress(self.id, Progress::AnswerBegan);
        }
    }

    fn end(mut self, outcome: Outcome) {
        self.stage = Stage::Ended;
        self.shared.progress(self.id, Progress::Ended(outcome));
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        if self.stage != Stage::Ended {
            self.shared.with(|engine, now| engine.cancel(now, self.id));
        }
    }
}

#[cfg(test)]
mod tests;
