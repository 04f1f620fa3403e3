//! The engine in the live service: one owner behind a lock that is held for a few microseconds.

use std::collections::BTreeMap;
use std::future::Future;
use std::iter;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use futures_util::task::AtomicWaker;
use parking_lot::{Mutex, MutexGuard};
use rustc_hash::FxHashMap;
use tokio::sync::{Notify, watch};

use super::{Picker, Routed, Verdict, Withdrawn, health};
use crate::engine::config::plan::EnginePlan;
use crate::engine::flow::fairness::Used;
use crate::engine::outcome::{Outcome, Refusal};
use crate::engine::pool::PoolChange;
use crate::engine::prefix::BlockLayout;
use crate::engine::request::{Request, RequestId};
use crate::engine::scheduling::Decision;
use crate::engine::time::Timestamp;
use crate::engine::{Answered, Effect, Engine, Input, Progress, Refused, Wait};
use crate::serve::clock::Clock;
use crate::serve::journal::Journal;
use crate::serve::panics::Panics;

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
    panics: Arc<Panics>,
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
}

#[derive(Debug, Default)]
struct Waiting {
    answer: Option<Answer>,
    waker: Option<Waker>,
}

/// What the engine says to a request that was submitted.
#[derive(Debug)]
enum Answer {
    Route(Route),
    Refuse(Refused),
}

/// An [`Effect::Route`].
#[derive(Debug)]
struct Route {
    priority: i32,
    waited: Option<Duration>,
    decision: Decision,
    /// How the request learns that it is cut off, if it can be.
    cut: Option<Arc<Cut>>,
}

/// Tells a request in flight that it is cut off.
#[derive(Debug, Default)]
struct Cut {
    /// Set once it is: when its client may come again.
    retry_after: OnceLock<Duration>,
    waker: AtomicWaker,
}

/// Effects that are handed out before others get their turn at the engine.
const AT_ONCE: usize = 256;

/// The timer calls the engine no more often than this. A deadline that is reached again at once is a defect, which must not
/// take the whole core.
const BETWEEN_CALLS: Duration = Duration::from_millis(1);

/// Panics after which a call of the engine gives up handing out effects; the next call goes on.
const MAX_PANICS: usize = 4;

/// Whether the engine has more to hand out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Left {
    Nothing,
    More,
}

impl State {
    /// Hands out effects, up to a bound.
    fn hand_out(&mut self, now: Timestamp) -> Left {
        for _ in 0..AT_ONCE {
            let Some(effect) = self.engine.poll(now) else {
                return Left::Nothing;
            };
            match effect {
                Effect::Evict { id, retry_after } => {
                    if let Some(cut) = self.cuts.get(&id) {
                        cut.retry_after.get_or_init(|| retry_after);
                        cut.waker.wake();
                    }
                }
                Effect::Refuse { id, refused } => self.answer(now, id, Answer::Refuse(refused)),
                Effect::Route {
                    id,
                    priority,
                    waited,
                    decision,
                } => {
                    let cut = (priority < 0).then(|| self.evictable(id)).flatten();
                    let route = Route {
                        priority,
                        waited,
                        decision,
                        cut,
                    };
                    self.answer(now, id, Answer::Route(route));
                }
            }
        }
        Left::More
    }

    /// Leaves an answer where its request will look for it.
    fn answer(&mut self, now: Timestamp, id: RequestId, answer: Answer) {
        let Some(place) = self.waiting.get_mut(&id) else {
            // The engine has no effect for a request that was cancelled, and nobody else would take this one. What it
            // holds is given back, so that a defect costs the pool nothing.
            tracing::error!(request = id.0, ?answer, "answer to an unknown request dropped");
            self.cuts.remove(&id);
            return self.engine.apply(now, Input::Cancel { id });
        };
        place.answer = Some(answer);
        if let Some(waker) = place.waker.take() {
            waker.wake();
        }
    }

    /// Refuses the requests that wait for an answer and of which the engine knows nothing any more, after it panicked.
    #[expect(clippy::disallowed_methods, reason = "what is found is sorted")]
    fn refuse_lost(&mut self, now: Timestamp) {
        let unanswered = self.waiting.iter().filter(|(_, waiting)| waiting.answer.is_none());
        let lost = unanswered.map(|(id, _)| *id).filter(|id| !self.engine.will_answer(*id));
        let mut lost: Vec<RequestId> = lost.collect();
        lost.sort_unstable();
        for id in lost {
            self.engine.apply(now, Input::Lost { id });
            self.answer(now, id, Answer::Refuse(Refused::plain(Refusal::Internal, 0)));
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
                }),
                rearm: Notify::new(),
                endpoints,
                panics: Arc::default(),
                layout,
            }),
        }
    }

    /// Writes every call of the engine down from now on: to be asked for before the first one.
    pub fn write_down(&self, journal: Journal) {
        self.shared.state.lock().engine.record_with(Box::new(journal));
    }

    /// Looks at the engine: for pages and reports, not for requests.
    pub fn inspect<T>(&self, look: impl FnOnce(&Engine) -> T) -> T {
        look(&self.shared.state.lock().engine)
    }

    /// Panics of the engine that were caught.
    pub fn panics(&self) -> &Arc<Panics> {
        &self.shared.panics
    }

    /// Tells the number of endpoints, whenever it changes.
    pub fn endpoints(&self) -> watch::Receiver<usize> {
        self.shared.endpoints.subscribe()
    }

    /// Tells the engine that the pool changed.
    pub fn pool_changed(&self, changes: Vec<PoolChange>) {
        let state = self.shared.call(|state, now| {
            state.engine.apply(now, Input::PoolChanged { changes });
            self.shared.publish_layout(&state.engine);
        });
        let size = state.engine.pool().len();
        drop(state);
        self.shared
            .endpoints
            .send_if_modified(|known| std::mem::replace(known, size) != size);
    }

    /// Tells the engine the priorities of objectives.
    pub fn objectives_changed(&self, priorities: BTreeMap<Arc<str>, i32>) {
        self.shared.apply(Input::ObjectivesChanged { priorities });
    }

    /// Refuses whatever waits, and whatever comes. What is in flight goes on.
    pub fn close(&self) {
        self.shared.apply(Input::Close);
    }

    /// Lets another plan take over. Nothing in flight is lost.
    pub fn replan(&self, plan: EnginePlan) {
        drop(self.shared.call(|state, now| {
            state.engine.replan(now, plan);
            self.shared.publish_layout(&state.engine);
        }));
    }

    /// Calls the engine at its deadlines. Runs until it is dropped; without it, nothing that waits ever expires.
    pub async fn keep_time(&self) {
        let Shared { clock, rearm, .. } = &*self.shared;
        let mut earliest = tokio::time::Instant::now();
        loop {
            let moved = rearm.notified();
            match self.inspect(Engine::deadline) {
                None => moved.await,
                Some(deadline) => {
                    tokio::select! {
                        () = moved => {}
                        () = tokio::time::sleep_until(clock.instant(deadline).max(earliest)) => {
                            drop(self.shared.call(|_, _| ()));
                            earliest = tokio::time::Instant::now() + BETWEEN_CALLS;
                        }
                    }
                }
            }
        }
    }
}

impl Shared {
    /// Tells the engine what happened, and hands out the effects.
    fn apply(&self, input: Input) {
        drop(self.call(|state, now| state.engine.apply(now, input)));
    }

    /// Calls the engine, hands out the effects, and has the timer look at the deadline if that moved. Returns the state as it
    /// is then.
    ///
    /// Never panics, since tickets and guards call this when they are dropped. A request that the engine loses in a panic is
    /// refused.
    fn call(&self, call: impl FnOnce(&mut State, Timestamp)) -> MutexGuard<'_, State> {
        let mut state = self.state.lock();
        let before = state.engine.deadline();
        // Read behind the lock: the engine's time does not go back.
        let now = self.clock.now();
        let mut panics = 0;
        if self.contain(|| call(&mut state, now)).is_none() {
            panics += 1;
            self.contain(|| state.refuse_lost(now));
        }
        while panics < MAX_PANICS {
            let now = self.clock.now();
            match self.contain(|| state.hand_out(now)) {
                Some(Left::Nothing) => break,
                Some(Left::More) => MutexGuard::bump(&mut state),
                None => {
                    panics += 1;
                    self.contain(|| state.refuse_lost(now));
                }
            }
        }
        if state.engine.deadline() != before {
            self.rearm.notify_one();
        }
        let health_changes: Vec<_> = iter::from_fn(|| state.engine.next_health_change()).collect();
        if !health_changes.is_empty() {
            MutexGuard::unlocked(&mut state, || health_changes.iter().for_each(health::log));
        }
        state
    }

    fn contain<T>(&self, work: impl FnOnce() -> T) -> Option<T> {
        self.panics.contain("engine", work)
    }

    /// To be called under the engine's lock, so that the last word is the engine's last one.
    fn publish_layout(&self, engine: &Engine) {
        let layout = engine.block_layout();
        if self.layout.load().as_deref().copied() != layout {
            self.layout.store(layout.map(Arc::new));
        }
    }

    /// The client of a request is gone, wherever the request is. Tells of its wait, if it waited.
    fn forget(&self, id: RequestId) -> Option<Withdrawn> {
        let mut wait = None;
        drop(self.call(|state, now| {
            state.waiting.remove(&id);
            state.cuts.remove(&id);
            wait = state.engine.wait(now, id);
            state.engine.apply(now, Input::Cancel { id });
        }));
        wait.map(|Wait { priority, waited }| Withdrawn { priority, waited })
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
        let mut id = RequestId(0);
        let mut state = self.shared.call(|state, now| {
            state.last_id += 1;
            id = RequestId(state.last_id);
            state.waiting.insert(id, Waiting::default());
            state.engine.apply(now, Input::Submit { id, request });
        });
        let stage = match state.fetch(id) {
            Some(answer) => TicketStage::Answered(id, answer),
            None => TicketStage::Waiting(id),
        };
        drop(state);
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
    Answered(RequestId, Answer),
    Waiting(RequestId),
    /// The answer was given, or the request was cancelled.
    Over,
}

impl Future for Ticket {
    type Output = Verdict<InFlight>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let (id, answer) = match std::mem::replace(&mut self.stage, TicketStage::Over) {
            TicketStage::Answered(id, answer) => (id, answer),
            TicketStage::Waiting(id) => {
                let mut state = self.shared.state.lock();
                let Some(answer) = state.fetch(id) else {
                    let place = state.waiting.entry(id).or_default();
                    place.waker = Some(cx.waker().clone());
                    drop(state);
                    self.stage = TicketStage::Waiting(id);
                    return Poll::Pending;
                };
                (id, answer)
            }
            // There is nothing more to come.
            TicketStage::Over => return Poll::Pending,
        };
        Poll::Ready(match answer {
            Answer::Route(route) => Verdict::Routed(InFlight {
                id,
                route,
                shared: self.shared.clone(),
                stage: Stage::Sent,
            }),
            Answer::Refuse(refused) => Verdict::Refused(refused),
        })
    }
}

impl Ticket {
    fn cancel(&mut self) -> Option<Withdrawn> {
        let id = match std::mem::replace(&mut self.stage, TicketStage::Over) {
            TicketStage::Answered(id, _) | TicketStage::Waiting(id) => id,
            TicketStage::Over => return None,
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
    route: Route,
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
        &self.route.decision
    }

    fn priority(&self) -> i32 {
        self.route.priority
    }

    fn waited(&self) -> Option<Duration> {
        self.route.waited
    }

    fn answered(&mut self, by: Option<SocketAddr>, how: Answered) {
        self.shared.apply(Input::Progress {
            id: self.id,
            progress: Progress::Answered { by, how },
        });
    }

    fn answer_began(&mut self) {
        if self.stage == Stage::Sent {
            self.stage = Stage::Answering;
            self.shared.apply(Input::Progress {
                id: self.id,
                progress: Progress::AnswerBegan,
            });
        }
    }

    fn poll_cut_off(&mut self, cx: &mut Context<'_>) -> Poll<Duration> {
        let Some(cut) = &self.route.cut else {
            return Poll::Pending;
        };
        cut.waker.register(cx.waker());
        let Some(&retry_after) = cut.retry_after.get() else {
            return Poll::Pending;
        };
        self.route.cut = None;
        Poll::Ready(retry_after)
    }

    fn end(mut self, outcome: Outcome, used: Used) {
        self.stage = Stage::Ended;
        let id = self.id;
        drop(self.shared.call(|state, now| {
            state.cuts.remove(&id);
            let progress = Progress::Ended(outcome, used);
            state.engine.apply(now, Input::Progress { id, progress });
        }));
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
#[cfg(test)]
mod threads;
