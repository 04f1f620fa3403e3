//! One stream at work: feeds the machine and does what it says.
//!
//! A session is the response stream of its gRPC call, and is polled by the connection that carries it. It has no task
//! and no channel of its own. It reads no further message while there is something to send, so that it holds no more
//! than the answers to one. When the connection drops it, at whatever point, a pending decision is cancelled and an
//! endpoint gets its slot back at once.

use std::fmt;
use std::future::Future as _;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures_util::Stream;
use tokio::time::{Instant, Sleep};
use tonic::{Code, Status};

use super::machine::{Action, Machine, Settings};
use super::wire::{ProcessingRequest, ProcessingResponse};
use crate::engine::flow::fairness::Used;
use crate::engine::time::Timestamp;
use crate::serve::driver::{Picker, Routed, Verdict};
use crate::serve::observe::record::Observer;

/// One stream. `I` is where its messages come from.
pub struct Session<P: Picker, I> {
    inbound: Option<I>,
    machine: Machine,
    picker: P,
    observer: Arc<dyn Observer>,
    ticket: Option<P::Ticket>,
    routed: Option<P::Routed>,
    /// Wakes the session when the gateway has been silent for too long before the request was whole. Only made for one that
    /// lets us wait.
    timer: Option<Pin<Box<Sleep>>>,
    /// What the gateway is told when the stream closes because it broke.
    broken: Option<Status>,
    is_closed: bool,
}

impl<P, I> Session<P, I>
where
    P: Picker,
    I: Stream<Item = Result<ProcessingRequest, Status>> + Unpin,
{
    /// A session that has read nothing yet.
    pub fn new(settings: Arc<Settings>, picker: P, observer: Arc<dyn Observer>, inbound: I) -> Self {
        let machine = Machine::new(settings, picker.block_layout(), picker.now());
        Self {
            inbound: Some(inbound),
            machine,
            picker,
            observer,
            ticket: None,
            routed: None,
            timer: None,
            broken: None,
            is_closed: false,
        }
    }

    /// Takes the next verdict or message, whichever is there.
    fn poll_input(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        // The verdict first: what came meanwhile can only end the request.
        if let Some(ticket) = &mut self.ticket
            && let Poll::Ready(verdict) = Pin::new(ticket).poll(cx)
        {
            self.ticket = None;
            self.verdict(verdict);
            return Poll::Ready(());
        }
        let Some(inbound) = &mut self.inbound else {
            return Poll::Pending;
        };
        let Poll::Ready(message) = Pin::new(inbound).poll_next(cx) else {
            return self.poll_deadline(cx);
        };
        let now = self.picker.now();
        match message {
            Some(Ok(message)) => {
                let is_worth_timing = !self.machine.passes_unchanged(&message);
                self.machine.message(now, message);
                if is_worth_timing && self.machine.is_answering() {
                    self.machine.spent_on_response(self.picker.now() - now);
                }
            }
            None => {
                self.inbound = None;
                self.machine.half_closed(now);
            }
            Some(Err(status)) => {
                self.inbound = None;
                self.fail(now, &status);
            }
        }
        Poll::Ready(())
    }

    /// Ready once the stream was given up for its silence.
    fn poll_deadline(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let Some(deadline) = self.machine.deadline() else {
            self.timer = None;
            return Poll::Pending;
        };
        let due = |now: Timestamp| Instant::now() + deadline.since(now);
        let at = due(self.picker.now());
        let timer = self.timer.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(at)));
        // A later time is left as it is: the timer is set anew when it goes off.
        if at < timer.deadline() {
            timer.as_mut().reset(at);
        }
        loop {
            std::task::ready!(timer.as_mut().poll(cx));
            let now = self.picker.now();
            if deadline <= now {
                self.timer = None;
                self.machine.check_deadline(now);
                return Poll::Ready(());
            }
            // More has come since the timer was set.
            timer.as_mut().reset(due(now));
        }
    }

    fn verdict(&mut self, verdict: Verdict<P::Routed>) {
        let now = self.picker.now();
        match verdict {
            Verdict::Routed(routed) => {
                self.machine
                    .routed(now, routed.decision(), routed.priority(), routed.waited());
                self.routed = Some(routed);
            }
            Verdict::Refused(refused) => self.machine.refused(now, &refused),
        }
    }

    fn fail(&mut self, now: Timestamp, status: &Status) {
        match status.code() {
            // The client left.
            Code::Cancelled => self.machine.gone(now),
            // The message is larger than any that is decoded.
            Code::OutOfRange => self.machine.oversized(now),
            _ => {
                self.broken = Some(Status::unknown(format!(
                    "cannot receive stream request: {}",
                    status.message()
                )));
                self.machine.broken(now);
            }
        }
    }
}

impl<P: Picker, I> Session<P, I> {
    /// Does what the machine says, up to the next thing to be sent.
    fn act(&mut self) -> Option<Result<ProcessingResponse, Status>> {
        while let Some(action) = self.machine.next_action() {
            match action {
                Action::Reply(reply) => return Some(Ok(reply)),
                Action::Decide(request) => self.ticket = Some(self.picker.submit(request)),
                Action::Routed => {
                    if let Some(routed) = &self.routed {
                        self.observer.request_routed(self.machine.record(), routed.decision());
                    }
                }
                Action::Answered { by, how } => {
                    if let Some(routed) = &mut self.routed {
                        routed.answered(by, how);
                    }
                }
                Action::AnswerBegan => {
                    if let Some(routed) = &mut self.routed {
                        routed.answer_began();
                    }
                }
                Action::LocalReply => self.observer.local_reply(self.machine.record()),
                Action::ChunkGaps(gaps) => self.observer.response_chunks(self.machine.record(), &gaps),
                Action::End(outcome) => {
                    if let Some(ticket) = self.ticket.take()
                        && let Some(withdrawn) = self.picker.withdraw(ticket)
                    {
                        self.machine.withdrawn(withdrawn.priority, withdrawn.waited);
                    }
                    if let Some(routed) = self.routed.take() {
                        let usage = self.machine.record().usage;
                        let used = Used {
                            prompt_tokens: usage.prompt,
                            completion_tokens: usage.completion,
                        };
                        routed.end(outcome, used);
                    }
                    self.observer.request_ended(self.machine.record());
                }
                Action::Close(result) => {
                    self.is_closed = true;
                    self.inbound = None;
                    let error = result.err().map(|error| Status::failed_precondition(error.to_string()));
                    return error.or_else(|| self.broken.take()).map(Err);
                }
            }
        }
        None
    }
}

// Nothing in it is pinned in place.
impl<P: Picker, I: Unpin> Unpin for Session<P, I> {}

impl<P, I> Stream for Session<P, I>
where
    P: Picker,
    I: Stream<Item = Result<ProcessingRequest, Status>> + Unpin,
{
    type Item = Result<ProcessingResponse, Status>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let session = &mut *self;
        loop {
            if let Some(reply) = session.act() {
                return Poll::Ready(Some(reply));
            }
            if session.is_closed {
                return Poll::Ready(None);
            }
            if let Some(routed) = &mut session.routed
                && let Poll::Ready(retry_after) = routed.poll_cut_off(cx)
            {
                session.machine.evicted(session.picker.now(), retry_after);
                continue;
            }
            std::task::ready!(session.poll_input(cx));
        }
    }
}

impl<P: Picker, I> Drop for Session<P, I> {
    fn drop(&mut self) {
        if self.is_closed {
            return;
        }
        self.machine.gone(self.picker.now());
        // Nobody reads the answers any more.
        while !self.is_closed && self.act().is_some() {}
    }
}

impl<P: Picker, I> fmt::Debug for Session<P, I> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session")
            .field("machine", &self.machine)
            .finish_non_exhaustive()
    }
}
