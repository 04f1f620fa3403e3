//! The task that owns the instance and drives it in real time.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rustc_hash::FxHashMap;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::Instant;

use super::metrics::{FinishedReason, Metrics};
use super::{ModelServerConfig, unix_time};
use crate::engine::request::RequestId;
use crate::engine::time::Timestamp;
use crate::sim::instance::{Event, Instance, Rejected, SequenceRequest};

/// How late a step may end and the next one still begin when it should have ended. It makes up for the millisecond that
/// a timer is exact to; a server that lags more than this is too slow for its step times, and says so by being slow.
const SLACK: Duration = Duration::from_millis(5);

/// An owner to be spawned, and the way to it.
pub(super) fn new(config: &ModelServerConfig) -> (Owner, Handle) {
    let (sender, commands) = mpsc::unbounded_channel();
    let owner = Owner {
        instance: Instance::new(config.instance.clone(), Box::new(config.step_time)),
        clients: FxHashMap::default(),
        metrics: Metrics::new(config).expect("the names of the metrics are valid and differ"),
        commands,
        epoch: Instant::now(),
        events: Vec::new(),
    };
    let handle = Handle {
        commands: sender,
        next_id: Arc::default(),
    };
    (owner, handle)
}

/// How far an answer is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Progress {
    /// Tokens of the prompt that were found in the KV cache.
    pub(super) cached_tokens: u32,
    /// Tokens of the answer so far.
    pub(super) tokens: u32,
}

/// Why there is no answer, or no more of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refused {
    /// The instance does not take it.
    Rejected(Rejected),
    /// The owner is gone.
    Stopped,
}

enum Command {
    Submit {
        request: SequenceRequest,
        progress: watch::Sender<Progress>,
        reply: oneshot::Sender<Result<(), Rejected>>,
    },
    Cancel(RequestId),
    Page(oneshot::Sender<String>),
}

// === impl Handle ===

/// The way to the owner.
///
/// The channel behind it needs no bound of its own: a connection has one request at a time, which is a bounded number of
/// submissions, each of them answered before the next, and one cancellation for each.
#[derive(Clone, Debug)]
pub(super) struct Handle {
    commands: mpsc::UnboundedSender<Command>,
    next_id: Arc<AtomicU64>,
}

impl Handle {
    /// Starts a sequence made by `request` from its id. It arrives when the owner gets it.
    pub(super) async fn submit(
        &self,
        request: impl FnOnce(RequestId) -> SequenceRequest,
    ) -> Result<Generation, Refused> {
        let request = request(RequestId(self.next_id.fetch_add(1, Ordering::Relaxed)));
        let (sender, progress) = watch::channel(Progress::default());
        let (reply, replied) = oneshot::channel();
        // Made before the submission, so that a caller who stops waiting for the reply cancels it.
        let generation = Generation {
            id: request.id,
            output_tokens: request.output_tokens,
            progress,
            commands: self.commands.clone(),
        };
        let submit = Command::Submit {
            request,
            progress: sender,
            reply,
        };
        self.commands.send(submit).map_err(|_| Refused::Stopped)?;
        match replied.await {
            Ok(Ok(())) => Ok(generation),
            Ok(Err(rejected)) => Err(Refused::Rejected(rejected)),
            Err(_) => Err(Refused::Stopped),
        }
    }

    /// The metrics page.
    pub(super) async fn page(&self) -> Result<String, Refused> {
        let (reply, page) = oneshot::channel();
        self.commands.send(Command::Page(reply)).map_err(|_| Refused::Stopped)?;
        page.await.map_err(|_| Refused::Stopped)
    }
}

// === impl Generation ===

/// A sequence on its way. Dropping it takes the sequence out of the instance at once.
#[derive(Debug)]
pub(super) struct Generation {
    id: RequestId,
    output_tokens: u32,
    progress: watch::Receiver<Progress>,
    commands: mpsc::UnboundedSender<Command>,
}

impl Generation {
    /// Tokens that the answer will have.
    pub(super) fn output_tokens(&self) -> u32 {
        self.output_tokens
    }

    /// Waits until there are at least `tokens` tokens.
    pub(super) async fn reach(&mut self, tokens: u32) -> Result<Progress, Refused> {
        let reached = self.progress.wait_for(|progress| progress.tokens >= tokens).await;
        reached.map(|progress| *progress).map_err(|_| Refused::Stopped)
    }
}

impl Drop for Generation {
    fn drop(&mut self) {
        // An owner that is gone has no sequences either.
        let _ = self.commands.send(Command::Cancel(self.id));
    }
}

// === impl Owner ===

/// The instance, its clock, and who waits for which sequence.
#[derive(Debug)]
pub(super) struct Owner {
    instance: Instance,
    clients: FxHashMap<RequestId, Client>,
    metrics: Metrics,
    commands: mpsc::UnboundedReceiver<Command>,
    /// The instance's time zero.
    epoch: Instant,
    events: Vec<Event>,
}

#[derive(Debug)]
struct Client {
    progress: watch::Sender<Progress>,
    prompt_tokens: u32,
    arrived: Timestamp,
    /// When its last token came out, or else when it arrived.
    last: Timestamp,
}

impl Owner {
    /// Runs until every handle and generation is gone.
    pub(super) async fn run(mut self) {
        loop {
            let step_ends = self
                .instance
                .step_ends()
                .map(|ends| self.epoch + (ends - Timestamp::ZERO));
            let step = async {
                match step_ends {
                    Some(ends) => tokio::time::sleep_until(ends).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = step => self.catch_up(self.now()),
                command = self.commands.recv() => match command {
                    Some(command) => self.handle(command),
                    None => return,
                },
            }
        }
    }

    fn now(&self) -> Timestamp {
        Timestamp::ZERO + self.epoch.elapsed()
    }

    fn handle(&mut self, command: Command) {
        let now = self.now();
        self.catch_up(now);
        match command {
            Command::Submit {
                mut request,
                progress,
                reply,
            } => {
                request.arrival = now;
                let client = Client {
                    progress,
                    prompt_tokens: request.prompt_tokens,
                    arrived: now,
                    last: now,
                };
                let id = request.id;
                let answer = self.instance.enqueue(now, request);
                if answer.is_ok() {
                    self.clients.insert(id, client);
                    self.start_step(now);
                }
                // Whoever no longer waits for this has sent a cancellation.
                let _ = reply.send(answer);
            }
            Command::Cancel(id) => {
                if let Some(client) = self.clients.remove(&id) {
                    self.instance.cancel(id);
                    self.metrics.finished(FinishedReason::Abort, now - client.arrived);
                }
            }
            Command::Page(reply) => {
                let page = self.metrics.page(&self.instance.stats(), unix_time());
                // A scraper that went away needs no page.
                let _ = reply.send(page);
            }
        }
    }

    /// Ends the steps that are over, so that the instance stands at `now`.
    fn catch_up(&mut self, now: Timestamp) {
        while let Some(ends) = self.instance.step_ends().filter(|&ends| ends <= now) {
            let at = if now - ends > SLACK { now } else { ends };
            self.instance.finish_step(at, |event| self.events.push(event));
            self.tell(at);
            self.start_step(at);
        }
    }

    fn start_step(&mut self, now: Timestamp) {
        if self.instance.step_ends().is_none() {
            self.instance.start_step(now, |event| self.events.push(event));
            self.tell(now);
        }
    }

    /// Tells clients and metrics what happened at `at`.
    fn tell(&mut self, at: Timestamp) {
        for event in self.events.drain(..) {
            match event {
                Event::Admitted {
                    id,
                    cached_tokens,
                    waited,
                } => {
                    self.metrics.admitted(waited);
                    if let Some(client) = self.clients.get(&id) {
                        client
                            .progress
                            .send_modify(|progress| progress.cached_tokens = cached_tokens);
                    }
                }
                Event::Token { id, index } => {
                    let Some(client) = self.clients.get_mut(&id) else {
                        continue;
                    };
                    if index == 0 {
                        self.metrics.first_token(client.prompt_tokens, at - client.arrived);
                    } else {
                        self.metrics.next_token(at - client.last);
                    }
                    client.last = at;
                    client.progress.send_modify(|progress| progress.tokens = index + 1);
                }
                Event::Finished { id, .. } => {
                    if let Some(client) = self.clients.remove(&id) {
                        self.metrics.finished(FinishedReason::Length, at - client.arrived);
                    }
                }
                // Counted by the instance; the client just waits longer.
                Event::Preempted { .. } | Event::Resumed { .. } => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn steps_take_their_time_and_do_not_drift_with_the_grain_of_the_timer() {
        let (owner, handle) = new(&ModelServerConfig::default());
        let _owner = tokio::spawn(owner.run());
        let start = Instant::now();

        let mut generation = handle.submit(|id| request(id, 100)).await.unwrap();
        generation.reach(100).await.unwrap();

        // One step with the two tokens of the prompt, and 99 that decode: 8.08 ms and 8.05 ms.
        let model = Duration::from_micros(8080 + 99 * 8050);
        let grain = Duration::from_millis(1);
        assert!(
            (model..=model + grain).contains(&start.elapsed()),
            "{:?}",
            start.elapsed()
        );
    }

    #[tokio::test(start_paused = true)]
    async fn who_stops_waiting_for_a_place_leaves_nothing_behind() {
        let (owner, handle) = new(&ModelServerConfig::default());
        let _owner = tokio::spawn(owner.run());

        tokio::select! {
            biased;
            _ = handle.submit(|id| request(id, 100)) => unreachable!("the owner has not run yet"),
            () = std::future::ready(()) => {}
        }

        let page = handle.page().await.unwrap();
        assert!(
            page.contains("vllm:num_requests_running{engine=\"0\",model_name=\"stand-in\"} 0"),
            "{page}"
        );
        assert!(
            page.contains("finished_reason=\"abort\",model_name=\"stand-in\"} 1"),
            "{page}"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn an_owner_that_is_gone_is_noticed_by_all_who_wait() {
        let (owner, handle) = new(&ModelServerConfig::default());
        let owner = tokio::spawn(owner.run());
        let mut generation = handle.submit(|id| request(id, 100)).await.unwrap();

        owner.abort();

        assert_eq!(generation.reach(100).await, Err(Refused::Stopped));
        assert_eq!(handle.submit(|id| request(id, 1)).await.err(), Some(Refused::Stopped));
        assert_eq!(handle.page().await, Err(Refused::Stopped));
    }

    fn request(id: RequestId, output_tokens: u32) -> SequenceRequest {
        SequenceRequest {
            id,
            arrival: Timestamp::ZERO,
            priority: 0,
            adapter: None,
            prompt_tokens: 2,
            output_tokens,
            max_output_tokens: None,
            chain: Arc::new([]),
        }
    }
}
