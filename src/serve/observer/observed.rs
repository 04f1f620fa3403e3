//! What was seen of a workload, as a trace and as the record of a run.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::run::{Heard, Trouble};
use crate::sim::record::{Counts, End, InstanceTotals, RequestRecord, RunRecord};
use crate::sim::request::SimRequest;
use crate::sim::trace::{ItlRow, Row, Status};

/// A request that was sent so much after its arrival was late. Timers may be a millisecond off.
const LATE_US: u64 = 10_000;

/// Characters of an error that are kept.
const ERROR_CHARS: usize = 500;

/// Everything that was seen.
#[derive(Debug, Default)]
pub struct Observed {
    /// The requests that are recorded, in the order in which they were sent.
    pub stories: Vec<RequestStory>,
    /// Requests before them that were sent to warm up.
    pub warmed_up: u64,
    /// How far requests were sent after they arrived.
    pub lateness: Lateness,
    /// The run was stopped before its end.
    pub cut_short: bool,
    /// When the last request was over, in microseconds.
    pub end_us: u64,
    /// The times between pieces of whole answers, by SLO class.
    pub(super) gaps: BTreeMap<Arc<str>, Counts>,
}

/// One request.
#[derive(Clone, Debug)]
pub struct RequestStory {
    /// As it stands in a trace.
    pub row: Row,
    /// As the reports want it. It arrives when it is sent.
    pub record: RequestRecord,
    /// When each piece of the answer came, if that is recorded.
    pub chunks: Vec<u64>,
}

/// How far requests were sent after they arrived.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lateness {
    /// Requests that were more than 10 ms late.
    pub late: u64,
    /// Those of them that had to wait for a place. The others were late because this machine was busy.
    pub waited: u64,
    /// By how much the latest one was, in microseconds.
    pub most_us: u64,
}

impl Lateness {
    pub(super) fn note(&mut self, arrival_us: u64, sent_us: u64, waited: bool) {
        let late_us = sent_us.saturating_sub(arrival_us);
        self.most_us = self.most_us.max(late_us);
        if late_us > LATE_US {
            self.late += 1;
            self.waited += u64::from(waited);
        }
    }
}

/// What became of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Fate {
    pub(super) status: Status,
    pub(super) message: String,
    /// It was under way when the run was stopped.
    is_cut_short: bool,
}

impl Fate {
    pub(super) fn of(answered: Result<(), Trouble>) -> Self {
        let (status, message) = match answered {
            Ok(()) => (Status::Ok, String::new()),
            Err(trouble @ Trouble::BrokenOff(_)) => (Status::Incomplete, trouble.to_string()),
            Err(trouble) => (Status::Error, trouble.to_string()),
        };
        Self {
            status,
            message,
            is_cut_short: false,
        }
    }

    pub(super) fn timeout() -> Self {
        Self {
            status: Status::Timeout,
            message: "the client gave up".to_owned(),
            is_cut_short: false,
        }
    }

    pub(super) fn cut_short() -> Self {
        Self {
            status: Status::Incomplete,
            message: "the run was stopped".to_owned(),
            is_cut_short: true,
        }
    }

    /// The bucket of the reports. `dropped_reason` is what a gateway says of a request that it gave to no server.
    fn end(&self, dropped_reason: Option<&str>) -> End {
        match self.status {
            Status::Ok => End::Completed,
            Status::Timeout => End::TimedOut,
            Status::Incomplete if self.is_cut_short => End::StillRunning,
            Status::Error | Status::Incomplete => match dropped_reason {
                Some("evicted") => End::GatewayEvicted,
                Some("rejected-not-admitted") => End::Rejected,
                Some(reason) if reason.contains("no-endpoints") => End::RoutingRejected,
                Some(reason) if reason.contains("expired") => End::GatewayExpired,
                Some(_) => End::GatewayRejected,
                None => End::Dropped,
            },
        }
    }
}

impl RequestStory {
    pub(super) fn new(number: u64, request: &SimRequest, heard: Heard, fate: &Fate, end_us: u64) -> Self {
        let is_ok = fate.status == Status::Ok;
        let counted = heard.usage.map(|usage| usage.prompt).filter(|&tokens| tokens > 0);
        let counted = counted.map(|tokens| u32::try_from(tokens).unwrap_or(u32::MAX));
        let (first, last) = (heard.chunks.first().copied(), heard.chunks.last().copied());
        let output_tokens = heard.output_tokens();
        let end = fate.end(heard.dropped_reason.as_deref());
        let reached_server = matches!(
            end,
            End::Completed | End::TimedOut | End::StillRunning | End::Dropped | End::GatewayEvicted
        );
        let sent_us = heard.sent_us;
        let cached = heard.usage.and_then(|usage| usage.cached).unwrap_or(0);
        let record = RequestRecord {
            name: request.name.clone(),
            client: Arc::clone(&request.client),
            session: request.session.clone(),
            arrival_us: sent_us,
            prompt_tokens: counted.unwrap_or(request.prompt_tokens),
            output_tokens,
            cached_tokens: u32::try_from(cached).unwrap_or(u32::MAX),
            end,
            instance: reached_server.then_some(0),
            gateway_delay_us: None,
            scheduling_delay_us: None,
            ttft_us: first.map(|first| first.saturating_sub(sent_us)),
            itl_sum_us: last.zip(first).map_or(0, |(last, first)| last.saturating_sub(first)),
            e2e_us: is_ok.then(|| last.unwrap_or(end_us).saturating_sub(sent_us)),
            length_capped: false,
        };
        let row = Row {
            server_input_tokens: counted.unwrap_or(0),
            // What failed is sent once more with the length that it was to have.
            output_tokens: if is_ok { output_tokens } else { request.output_tokens },
            send_time_us: sent_us,
            first_chunk_time_us: first.unwrap_or(0),
            last_chunk_time_us: last.unwrap_or(0),
            num_chunks: u32::try_from(heard.chunks.len()).unwrap_or(u32::MAX),
            status: fate.status,
            error_message: fate.message.chars().take(ERROR_CHARS).collect(),
            finish_reason: heard.finish_reason.unwrap_or_default().into(),
            ..Row::sent(number, request)
        };
        Self {
            row,
            record,
            chunks: heard.chunks,
        }
    }
}

impl Observed {
    /// The requests of the trace.
    pub fn rows(&self) -> Vec<Row> {
        self.stories.iter().map(|story| story.row.clone()).collect()
    }

    /// When each piece of each answer came.
    pub fn itl_rows(&self) -> Vec<ItlRow> {
        let pieces = self.stories.iter().flat_map(|story| {
            let number = story.row.request_id;
            story
                .chunks
                .iter()
                .zip(0..)
                .map(move |(&timestamp_us, chunk_index)| ItlRow {
                    request_id: number,
                    chunk_index,
                    timestamp_us,
                })
        });
        pieces.collect()
    }

    /// How many requests have this status.
    pub fn count(&self, status: Status) -> u64 {
        self.stories.iter().filter(|story| story.row.status == status).count() as u64
    }

    /// What went wrong, and how often, the most frequent first.
    pub fn errors(&self) -> Vec<(u64, &str)> {
        let mut counts: BTreeMap<&str, u64> = BTreeMap::new();
        for story in self.stories.iter().filter(|story| story.row.status != Status::Ok) {
            *counts.entry(&story.row.error_message).or_default() += 1;
        }
        let mut errors: Vec<_> = counts.into_iter().map(|(message, count)| (count, message)).collect();
        errors.sort_by_key(|&(count, message)| (std::cmp::Reverse(count), message));
        errors
    }

    /// The record of the run, as of a cluster of one instance. It begins after the requests that warm up.
    pub fn run_record(&self) -> RunRecord {
        let origin_us = match self.stories.first() {
            Some(story) if self.warmed_up > 0 => story.record.arrival_us,
            _ => 0,
        };
        let mut requests: Vec<_> = self.stories.iter().map(|story| story.record.clone()).collect();
        for request in &mut requests {
            request.arrival_us = request.arrival_us.saturating_sub(origin_us);
        }
        let on_server = requests.iter().filter(|request| request.instance.is_some());
        let input_tokens = on_server.map(|request| u64::from(request.prompt_tokens)).sum();
        let mut all = Counts::default();
        self.gaps.values().for_each(|gaps| all.merge(gaps));
        RunRecord {
            requests,
            instances: vec![InstanceTotals {
                input_tokens,
                ..InstanceTotals::default()
            }],
            itl: self
                .gaps
                .iter()
                .map(|(class, gaps)| (Arc::clone(class), gaps.clone()))
                .collect(),
            instance_itl: vec![all],
            end_us: self.end_us.saturating_sub(origin_us),
            ..RunRecord::default()
        }
    }

    /// Makes the contexts of conversations agree with what the server counted: what was said before a turn is the prompt
    /// of the turn before and its answer. A turn without the one before it in the record has none.
    pub(super) fn fit_contexts(&mut self) {
        // By conversation: the turn, its prompt and its answer.
        let mut said: BTreeMap<Box<str>, (u32, u32, u32)> = BTreeMap::new();
        for story in &mut self.stories {
            let row = &mut story.row;
            if row.session_id.is_empty() {
                continue;
            }
            let prompt = row.prompt_tokens();
            let before = said.insert(row.session_id.clone(), (row.round_index, prompt, row.output_tokens));
            let before = before.filter(|&(round, _, _)| round.checked_add(1) == Some(row.round_index));
            row.context_tokens = row.context_tokens.zip(before).and_then(|(_, (_, asked, answered))| {
                let all = asked.saturating_add(answered).min(prompt);
                (all >= asked).then_some(all)
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::request;
    use super::*;
    use crate::serve::clock::Clock;
    use crate::serve::parse::Usage;
    use crate::sim::report::check;
    use crate::sim::request::{RequestName, SessionRound};

    fn heard(chunks: &[u64], prompt: u64, completion: u64) -> Heard {
        let mut heard = Heard::begin(Clock::new(), false);
        heard.sent_us = 100;
        heard.chunks = chunks.to_vec();
        heard.usage = Some(Usage {
            prompt,
            completion,
            total: prompt + completion,
            cached: Some(3),
        });
        heard
    }

    fn story(number: u64, heard: Heard, fate: &Fate) -> RequestStory {
        let request = SimRequest {
            name: RequestName::Numbered(number),
            ..request(number, 40)
        };
        RequestStory::new(number, &request, heard, fate, 900)
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_is_told_with_the_servers_counts() {
        let RequestStory { row, record, .. } = story(7, heard(&[250, 300, 800], 44, 4), &Fate::of(Ok(())));

        assert_eq!((row.request_id, row.status, row.num_chunks), (7, Status::Ok, 3));
        assert_eq!(
            (row.input_tokens, row.server_input_tokens, row.output_tokens),
            (40, 44, 4)
        );
        assert_eq!(
            (row.send_time_us, row.first_chunk_time_us, row.last_chunk_time_us),
            (100, 250, 800)
        );
        assert_eq!(
            (record.ttft_us, record.itl_sum_us, record.e2e_us),
            (Some(150), 550, Some(700))
        );
        assert_eq!(
            (record.prompt_tokens, record.output_tokens, record.cached_tokens),
            (44, 4, 3)
        );
    }

    #[tokio::test(start_paused = true)]
    async fn what_failed_keeps_the_length_that_it_was_to_have() {
        let failed = story(
            0,
            heard(&[], 0, 0),
            &Fate::of(Err(Trouble::Failed("503: busy".to_owned()))),
        );

        assert_eq!((failed.row.status, failed.row.output_tokens), (Status::Error, 10));
        assert_eq!(&*failed.row.error_message, "503: busy");
        assert_eq!(failed.record.e2e_us, None);
    }

    #[tokio::test(start_paused = true)]
    async fn every_fate_has_a_bucket_and_the_books_balance() {
        let failed = || Fate::of(Err(Trouble::Failed(String::new())));
        let refused = |reason: &str| {
            let mut heard = heard(&[], 0, 0);
            heard.dropped(reason);
            (heard, failed())
        };
        let cases = [
            ((heard(&[150, 170], 5, 2), Fate::of(Ok(()))), End::Completed),
            ((heard(&[150], 5, 0), Fate::timeout()), End::TimedOut),
            ((heard(&[150], 5, 0), Fate::cut_short()), End::StillRunning),
            ((heard(&[], 0, 0), failed()), End::Dropped),
            (
                (heard(&[150], 0, 0), Fate::of(Err(Trouble::BrokenOff(String::new())))),
                End::Dropped,
            ),
            (refused("evicted"), End::GatewayEvicted),
            (refused("rejected-not-admitted"), End::Rejected),
            (refused("rejected-saturated"), End::GatewayRejected),
            (refused("rejected-no-endpoints"), End::RoutingRejected),
            (refused("rejected-ttl-expired"), End::GatewayExpired),
        ];
        let mut observed = Observed::default();
        for (number, ((heard, fate), end)) in (0..).zip(cases) {
            let story = story(number, heard, &fate);
            assert_eq!(story.record.end, end);
            observed.stories.push(story);
        }
        observed.gaps.entry(Arc::default()).or_default().add(20);

        assert_eq!(check(&observed.run_record(), 10).map(|_| ()), Ok(()));
        assert_eq!(observed.count(Status::Error), 6);
        assert_eq!(observed.errors()[0], (7, ""));
    }

    #[tokio::test(start_paused = true)]
    async fn what_was_said_before_is_what_the_server_counted() {
        let turn = |number, round, context_tokens, prompt, completion| {
            let mut request = request(number, 50);
            request.session = Some(SessionRound {
                session: "s".into(),
                round,
                context_tokens,
                think_us: 0,
            });
            RequestStory::new(
                number,
                &request,
                heard(&[150], prompt, completion),
                &Fate::of(Ok(())),
                900,
            )
        };
        let mut observed = Observed {
            stories: vec![turn(0, 1, 30, 44, 10), turn(1, 2, 50, 70, 5), turn(2, 3, 60, 72, 5)],
            ..Observed::default()
        };

        observed.fit_contexts();

        let contexts: Vec<_> = observed.stories.iter().map(|story| story.row.context_tokens).collect();
        assert_eq!(contexts, [None, Some(54), Some(72)]);
    }

    #[test]
    fn a_few_milliseconds_are_not_late() {
        let mut lateness = Lateness::default();
        [
            (100, 90, true),
            (100, 2_100, true),
            (0, 10_001, true),
            (0, 30_000, false),
        ]
        .into_iter()
        .for_each(|(arrival, sent, waited)| lateness.note(arrival, sent, waited));

        let (late, waited, most_us) = (2, 1, 30_000);
        assert_eq!(lateness, Lateness { late, waited, most_us });
    }
}
