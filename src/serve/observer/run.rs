//! When each request is sent, and what comes of it.

use std::future::Future;
use std::num::NonZeroUsize;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::{JoinError, JoinSet};
use tokio::time::{Instant, sleep, sleep_until};
use tokio_util::sync::CancellationToken;

use super::ask::Ask;
use super::dialogue::Dialogues;
use super::observed::{Fate, Observed, RequestStory};
use super::words::Words;
use crate::engine::time::Timestamp;
use crate::serve::clock::Clock;
use crate::serve::parse::Usage;
use crate::sim::classes::Classes;
use crate::sim::request::{Arrivals, Ended, SimRequest};
use crate::sim::trace::Status;
use crate::sim::workload::Workload;

/// What answers requests.
pub trait Server: Send + Sync + 'static {
    /// Sends `ask`, and notes in `heard` what comes, as it comes. May be dropped at any time.
    fn answer(&self, ask: &Ask, heard: &mut Heard) -> impl Future<Output = Result<(), Trouble>> + Send;
}

/// Why there is no whole answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Trouble {
    /// There is no connection to the server.
    #[error("{0}")]
    Unreachable(String),
    /// The server refused the request, or failed.
    #[error("{0}")]
    Failed(String),
    /// The answer began, and did not come to its end.
    #[error("{0}")]
    BrokenOff(String),
}

/// What was heard of an answer. Times are microseconds from the start of the run.
#[derive(Clone, Debug)]
pub struct Heard {
    clock: Clock,
    keeps_text: bool,
    /// When the request was sent.
    pub(super) sent_us: u64,
    /// When each piece came that has words.
    pub(super) chunks: Vec<u64>,
    /// The words, if the next turn of the conversation repeats them.
    pub(super) text: String,
    pub(super) finish_reason: Option<String>,
    pub(super) usage: Option<Usage>,
    /// Why a gateway gave the request to no server, as it says it.
    pub(super) dropped_reason: Option<String>,
}

impl Heard {
    /// Nothing yet, for a request that is sent now.
    pub(super) fn begin(clock: Clock, keeps_text: bool) -> Self {
        Self {
            clock,
            keeps_text,
            sent_us: now_us(clock),
            chunks: Vec::new(),
            text: String::new(),
            finish_reason: None,
            usage: None,
            dropped_reason: None,
        }
    }

    /// The request is sent now.
    pub fn sent(&mut self) {
        self.sent_us = now_us(self.clock);
    }

    /// A piece of the answer came: its words, and why it is the last one, if it is.
    pub fn piece(&mut self, text: &str, finish_reason: Option<String>) {
        // An answer without words has its end for a piece.
        if !text.is_empty() || (finish_reason.is_some() && self.chunks.is_empty()) {
            self.chunks.push(now_us(self.clock));
        }
        if self.keeps_text {
            self.text += text;
        }
        self.finish_reason = finish_reason.or(self.finish_reason.take());
    }

    /// The server counted tokens.
    pub fn usage(&mut self, usage: Option<Usage>) {
        self.usage = usage.or(self.usage);
    }

    /// The gateway says why it gave the request to no server.
    pub fn dropped(&mut self, reason: &str) {
        self.dropped_reason = Some(reason.to_owned());
    }

    /// Tokens of the answer: as the server counted them, or else one for each piece.
    pub(super) fn output_tokens(&self) -> u32 {
        let pieces = u32::try_from(self.chunks.len()).unwrap_or(u32::MAX);
        let counted = self.usage.map(|usage| usage.completion).filter(|&tokens| tokens > 0);
        counted.map_or(pieces, |tokens| u32::try_from(tokens).unwrap_or(u32::MAX))
    }
}

/// How a workload is sent.
#[derive(Clone, Debug)]
pub struct Options {
    /// The model of requests whose client names none.
    pub model: Arc<str>,
    /// Requests that may be under way at once.
    pub max_concurrency: NonZeroUsize,
    /// Requests at the start that are sent and not recorded.
    pub warmup_requests: u64,
    /// How long a client waits that has no timeout of its own. None is for ever.
    pub patience: Option<Duration>,
    /// Answers come as streams. For the record.
    pub streaming: bool,
    /// Some prompts begin with what was said before.
    pub context_grows: bool,
    /// Keeps when each piece of each answer came.
    pub record_itl: bool,
    /// What prompts consist of.
    pub words: Words,
}

/// How far a run is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Requests that were sent.
    pub sent: u64,
    /// Those of them that are over.
    pub ended: u64,
    /// Those of these that were not answered.
    pub failed: u64,
}

/// Sends a workload to `server`: each request when it arrives, or as soon after that as there is a place for it. Ends when
/// all is sent and answered, or with `stop`, which cuts off what is under way.
pub async fn observe<S: Server>(
    workload: Workload,
    server: Arc<S>,
    options: &Options,
    stop: impl Future<Output = ()>,
    mut progress: impl FnMut(Progress),
) -> Observed {
    let mut run = Run {
        workload,
        server,
        options,
        clock: Clock::new(),
        classes: Classes::default(),
        dialogues: Dialogues::default(),
        under_way: JoinSet::new(),
        cut: CancellationToken::new(),
        full_until_us: 0,
        progress: Progress::default(),
        observed: Observed::default(),
    };
    let mut stop = pin!(stop);
    loop {
        let next = run.next_send();
        if next.is_none() && run.under_way.is_empty() {
            break;
        }
        tokio::select! {
            biased;
            () = &mut stop => {
                run.observed.cut_short = true;
                run.cut.cancel();
                break;
            }
            // Before the next one is sent: the one that ended may have left its place to it.
            Some(ended) = run.under_way.join_next() => run.ended(ended),
            () = reached(next) => run.send(),
        }
        progress(run.progress);
    }
    while let Some(ended) = run.under_way.join_next().await {
        run.ended(ended);
    }
    progress(run.progress);
    run.finish()
}

async fn reached(moment: Option<Instant>) {
    match moment {
        Some(moment) => sleep_until(moment).await,
        None => std::future::pending().await,
    }
}

fn now_us(clock: Clock) -> u64 {
    micros(clock.now().since(Timestamp::ZERO))
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

#[derive(Debug)]
struct Run<'o, S> {
    workload: Workload,
    server: Arc<S>,
    options: &'o Options,
    clock: Clock,
    classes: Classes,
    dialogues: Dialogues,
    under_way: JoinSet<Over>,
    cut: CancellationToken,
    /// When a request ended and left its place to another one, of which there had been none.
    full_until_us: u64,
    progress: Progress,
    observed: Observed,
}

/// A request that is over.
#[derive(Debug)]
struct Over {
    number: u64,
    request: SimRequest,
    id: String,
    priority: Option<i32>,
    /// There was no place for it when it arrived.
    waited: bool,
    patience: Option<Duration>,
    heard: Heard,
    fate: Fate,
    end_us: u64,
}

impl<S: Server> Run<'_, S> {
    /// When the next request is sent, if there is one and a place for it.
    fn next_send(&self) -> Option<Instant> {
        let has_place = self.under_way.len() < self.options.max_concurrency.get();
        let arrival_us = self.workload.next_arrival().filter(|_| has_place)?;
        let nanos = arrival_us.saturating_mul(1000);
        Some(self.clock.instant(Timestamp::from_nanos(nanos)))
    }

    fn send(&mut self) {
        let conversations = self.workload.sessions().started;
        let Some(request) = self.workload.take() else { return };
        if let Some(place) = &request.session
            && self.options.context_grows
            && self.workload.sessions().started > conversations
        {
            self.dialogues.begin(place);
        }
        let ask = self.ask(&request);
        let number = self.progress.sent;
        self.progress.sent += 1;
        let waited = request.arrival_us < self.full_until_us;
        let own = request
            .deadline_us
            .map(|deadline| Duration::from_micros(deadline.saturating_sub(request.arrival_us)));
        let patience = own.or(self.options.patience);
        let keeps_text = request
            .session
            .as_ref()
            .is_some_and(|place| self.dialogues.is_kept(place));
        let (server, clock, cut) = (Arc::clone(&self.server), self.clock, self.cut.clone());
        self.under_way.spawn(async move {
            let mut heard = Heard::begin(clock, keeps_text);
            let fate = tokio::select! {
                biased;
                answered = server.answer(&ask, &mut heard) => Fate::of(answered),
                () = run_out(patience) => Fate::timeout(),
                () = cut.cancelled() => Fate::cut_short(),
            };
            Over {
                number,
                request,
                priority: ask.priority,
                waited,
                id: ask.id,
                patience: own,
                heard,
                fate,
                end_us: now_us(clock),
            }
        });
    }

    fn ask(&mut self, request: &SimRequest) -> Ask {
        let client = &request.client;
        let named = |name: &Arc<str>| (!name.is_empty()).then(|| Arc::clone(name));
        let class = named(&client.slo_class);
        Ask {
            id: Ask::new_id(),
            model: named(&client.adapter)
                .or_else(|| named(&client.model))
                .unwrap_or_else(|| Arc::clone(&self.options.model)),
            tenant: Arc::clone(&client.tenant),
            priority: class.map(|class| self.classes.server_priority(&class)),
            class: Arc::clone(&client.slo_class),
            slo_target_us: request.slo_target_us,
            messages: self.dialogues.messages(request, &self.options.words),
            output_tokens: request.output_tokens,
        }
    }

    fn ended(&mut self, over: Result<Over, JoinError>) {
        let over = match over {
            Ok(over) => over,
            // Tasks are never aborted: this one panicked.
            Err(panicked) => std::panic::resume_unwind(panicked.into_panic()),
        };
        let Over { request, heard, .. } = &over;
        self.progress.ended += 1;
        self.progress.failed += u64::from(over.fate.status != Status::Ok);
        self.observed.end_us = self.observed.end_us.max(over.end_us);
        if self.under_way.len() + 1 >= self.options.max_concurrency.get() {
            self.full_until_us = over.end_us;
        }
        self.observed
            .lateness
            .note(request.arrival_us, heard.sent_us, over.waited);
        let how = match over.fate.status {
            Status::Ok => Ended::Completed {
                output_tokens: heard.output_tokens(),
            },
            Status::Timeout => Ended::TimedOut,
            Status::Error | Status::Incomplete => Ended::Lost,
        };
        let open = self.workload.sessions().open();
        self.workload.ended(request, over.end_us, how);
        if let Some(place) = &request.session {
            if self.workload.sessions().open() < open {
                self.dialogues.end(place);
            } else {
                self.dialogues.answered(place, &heard.text);
            }
        }
        if over.number < self.options.warmup_requests {
            self.observed.warmed_up += 1;
            return;
        }
        if over.fate.status == Status::Ok {
            let gaps = self.observed.gaps.entry(Arc::clone(&request.client.slo_class));
            let gaps = gaps.or_default();
            let pairs = heard.chunks.iter().zip(heard.chunks.iter().skip(1));
            pairs.for_each(|(one, next)| gaps.add(next.saturating_sub(*one)));
        }
        self.tell(over);
    }

    fn tell(&mut self, over: Over) {
        let mut story = RequestStory::new(over.number, &over.request, over.heard, &over.fate, over.end_us);
        let row = &mut story.row;
        if row.model.is_empty() {
            row.model = (&*self.options.model).into();
        }
        row.streaming = self.options.streaming;
        row.vllm_priority = over.priority.map(i64::from);
        row.x_request_id = over.id.into();
        // Clients lose patience with what was sent, not with what was not.
        row.deadline_us = over
            .patience
            .map_or(0, |own| row.send_time_us.saturating_add(micros(own)));
        if !self.options.record_itl {
            story.chunks = Vec::new();
        }
        self.observed.stories.push(story);
    }

    fn finish(mut self) -> Observed {
        self.observed.stories.sort_by_key(|story| story.row.request_id);
        self.observed.fit_contexts();
        self.observed
    }
}

async fn run_out(patience: Option<Duration>) {
    match patience {
        Some(patience) => sleep(patience).await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests;
