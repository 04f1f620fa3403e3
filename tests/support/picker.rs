//! A picker that does what a test says, and counts what it holds.

use std::collections::BTreeMap;
use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use forebay::engine::flow::fairness::Used;
use forebay::engine::outcome::{Outcome, Refusal};
use forebay::engine::pool::{Endpoint, EndpointId};
use forebay::engine::prefix::BlockLayout;
use forebay::engine::request::Request;
use forebay::engine::scheduling::Decision;
use forebay::engine::time::Timestamp;
use forebay::engine::{Answered, Refused};
use forebay::serve::clock::Clock;
use forebay::serve::driver::{Picker, Routed, Verdict, Withdrawn};
use tokio::sync::watch;
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

use super::soon;

/// What becomes of requests.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Behaviour {
    /// All go to `10.0.0.1:8000`.
    Route,
    /// All are refused.
    Refuse(Refusal),
    /// None is answered.
    Hold,
    /// As `Route`, once the test says so.
    RouteLater,
}

/// What the picker holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Held {
    /// Requests that wait for a verdict.
    pub(crate) waiting: usize,
    /// Requests that were routed and have not ended.
    pub(crate) in_flight: usize,
}

#[derive(Clone, Debug)]
pub(crate) struct ScriptedPicker {
    behaviour: Behaviour,
    clock: Clock,
    held: Arc<watch::Sender<Held>>,
    /// Cancelled once what waits is routed.
    released: CancellationToken,
}

#[derive(Debug)]
pub(crate) struct ScriptedTicket {
    behaviour: Behaviour,
    held: Arc<watch::Sender<Held>>,
    released: Pin<Box<WaitForCancellationFutureOwned>>,
}

#[derive(Debug)]
pub(crate) struct ScriptedRouted {
    decision: Decision,
    held: Arc<watch::Sender<Held>>,
}

impl ScriptedPicker {
    pub(crate) fn new(behaviour: Behaviour) -> Self {
        Self {
            behaviour,
            clock: Clock::new(),
            held: Arc::new(watch::Sender::default()),
            released: CancellationToken::new(),
        }
    }

    /// Routes what waits, of [`Behaviour::RouteLater`].
    pub(crate) fn release(&self) {
        self.released.cancel();
    }

    /// Waits until the picker holds what it should.
    pub(crate) async fn holds(&self, what: &str, wanted: Held) {
        let mut held = self.held.subscribe();
        soon(what, held.wait_for(|held| *held == wanted))
            .await
            .expect("the picker is there");
    }

    /// Waits until everything was given back.
    pub(crate) async fn is_empty(&self) {
        self.holds("everything is given back", Held::default()).await;
    }
}

impl Picker for ScriptedPicker {
    type Ticket = ScriptedTicket;
    type Routed = ScriptedRouted;

    fn now(&self) -> Timestamp {
        self.clock.now()
    }

    fn block_layout(&self) -> Option<BlockLayout> {
        Some(BlockLayout::default())
    }

    fn submit(&self, _: Request) -> ScriptedTicket {
        self.held.send_modify(|held| held.waiting += 1);
        ScriptedTicket {
            behaviour: self.behaviour,
            held: Arc::clone(&self.held),
            released: Box::pin(self.released.clone().cancelled_owned()),
        }
    }

    fn withdraw(&self, _: ScriptedTicket) -> Option<Withdrawn> {
        None
    }
}

impl Future for ScriptedTicket {
    type Output = Verdict<ScriptedRouted>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        if matches!(self.behaviour, Behaviour::RouteLater) {
            std::task::ready!(self.released.as_mut().poll(cx));
        }
        match self.behaviour {
            Behaviour::Hold => Poll::Pending,
            Behaviour::Refuse(refusal) => Poll::Ready(Verdict::Refused(Refused::plain(refusal, 0))),
            Behaviour::Route | Behaviour::RouteLater => {
                self.held.send_modify(|held| held.in_flight += 1);
                Poll::Ready(Verdict::Routed(ScriptedRouted {
                    decision: decision(),
                    held: Arc::clone(&self.held),
                }))
            }
        }
    }
}

impl Drop for ScriptedTicket {
    fn drop(&mut self) {
        self.held.send_modify(|held| held.waiting -= 1);
    }
}

impl Routed for ScriptedRouted {
    fn decision(&self) -> &Decision {
        &self.decision
    }

    fn answered(&mut self, _: Option<SocketAddr>, _: Answered) {}

    fn answer_began(&mut self) {}

    fn priority(&self) -> i32 {
        0
    }

    fn waited(&self) -> Option<Duration> {
        None
    }

    fn poll_cut_off(&mut self, _: &mut Context<'_>) -> Poll<Duration> {
        Poll::Pending
    }

    fn end(self, _: Outcome, _: Used) {}
}

impl Drop for ScriptedRouted {
    fn drop(&mut self) {
        self.held.send_modify(|held| held.in_flight -= 1);
    }
}

fn decision() -> Decision {
    let endpoint = Endpoint {
        id: EndpointId::new("default", "pod-1"),
        name: "pod-1".into(),
        address: [10, 0, 0, 1].into(),
        port: 8000,
        labels: BTreeMap::new(),
        rank: 0,
    };
    Decision {
        endpoints: [Arc::new(endpoint)].into_iter().collect(),
        profile: "default".into(),
        prefix: Default::default(),
        why: Arc::default(),
    }
}
