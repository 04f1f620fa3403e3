//! A workload that sends the requests of a trace once more (spec, simulator 22).

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::num::NonZeroU32;
use std::str::FromStr;
use std::sync::Arc;

use super::super::instance::BlockChain;
use super::super::request::{Client, Media};
use super::super::workload::chance::Stream;
use super::super::workload::spec::ContextGrowth;
use super::super::workload::think::Think;
use super::super::workload::{
    LateStream, Limits, Listed, Opening, Openings, Place, Rounds, Session, Sizes, Spoken, VOCABULARY, Workload, prefix,
};
use super::header::Header;
use super::row::Row;

/// Whether later turns of a conversation wait for answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SessionMode {
    /// Every request is sent at the time that is in the trace.
    #[default]
    Fixed,
    /// First turns are; a later one when the one before was answered.
    ClosedLoop,
}

impl SessionMode {
    /// As it is written.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Fixed => "fixed",
            Self::ClosedLoop => "closed-loop",
        }
    }
}

impl fmt::Display for SessionMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A mode that is not known.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no session mode; there are `fixed` and `closed-loop`")]
pub struct UnknownMode(String);

impl FromStr for SessionMode {
    type Err = UnknownMode;

    fn from_str(name: &str) -> Result<Self, UnknownMode> {
        let known = [Self::Fixed, Self::ClosedLoop]
            .into_iter()
            .find(|mode| mode.name() == name);
        known.ok_or_else(|| UnknownMode(name.to_owned()))
    }
}

/// How a trace is sent once more.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ReplayOptions {
    /// Tokens of a KV block, by which requests are hashed.
    pub block_tokens: NonZeroU32,
    /// What tokens are drawn from.
    pub seed: u64,
    /// Where the run ends. The reference ends at twice the last arrival unless told otherwise, which cuts off short
    /// traces; here nothing does.
    pub limits: Limits,
    /// Whether later turns of a conversation wait for answers.
    pub session_mode: SessionMode,
    /// How long users think, in a closed loop. [`Think::Recorded`] is for the times in the trace, or where there are none
    /// the gaps between its arrivals.
    pub think: Think,
}

/// Why a trace cannot be replayed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("request {request_id}: {reason}")]
pub struct ReplayError {
    /// The request.
    pub request_id: u64,
    /// What is wrong with it, and what would be right.
    pub reason: String,
}

/// The requests of a trace, once more.
///
/// # Errors
///
/// If the turns of a conversation, or the lengths of a prefix, do not fit together.
pub fn replay(header: &Header, mut rows: Vec<Row>, options: &ReplayOptions) -> Result<Workload, ReplayError> {
    let mut chance = Stream::seeded(options.seed.cast_signed());
    let prefixes = prefixes(&rows, &mut chance)?;
    rows.sort_by_key(Row::sent_us);
    let sessions = Sessions::new(header, &rows, options.session_mode)?;
    let mut makers = Makers {
        block_tokens: options.block_tokens,
        prefixes,
        clients: BTreeMap::new(),
        chains: BTreeMap::new(),
    };
    let mut entries = VecDeque::new();
    for (at, row) in rows.iter().enumerate() {
        if options.session_mode == SessionMode::ClosedLoop && row.round_index > 0 && !row.session_id.is_empty() {
            continue;
        }
        let later = match options.session_mode {
            SessionMode::Fixed => VecDeque::new(),
            SessionMode::ClosedLoop => sessions
                .after(at)
                .map(|next| makers.listed(&rows, next, &sessions))
                .collect(),
        };
        entries.push_back(Entry {
            at_us: row.sent_us(),
            number: row.request_id,
            session: sessions.id(at),
            round: row.round_index,
            think_us: row.think_time_us.unwrap_or_default(),
            goes_on: sessions.next(at).is_some_and(|next| sessions.contexts[next] > 0),
            context_tokens: sessions.contexts[at],
            listed: makers.listed(&rows, at, &sessions),
            later,
        });
    }
    let recording = Recording {
        entries,
        chance,
        spoken: BTreeMap::new(),
        options: *options,
    };
    Ok(Workload::new(Box::new(recording), options.limits))
}

/// The tokens of each group's prefix, in the order in which groups appear.
fn prefixes(rows: &[Row], chance: &mut Stream) -> Result<BTreeMap<Box<str>, Vec<u32>>, ReplayError> {
    let mut prefixes: BTreeMap<Box<str>, Vec<u32>> = BTreeMap::new();
    for row in rows.iter().filter(|row| !row.prefix_group.is_empty()) {
        if !prefixes.contains_key(&row.prefix_group) {
            let tokens = (0..row.prefix_length).map(|_| chance.below(VOCABULARY)).collect();
            prefixes.insert(row.prefix_group.clone(), tokens);
        }
        let known = prefixes[&row.prefix_group].len();
        if known != row.prefix_length as usize {
            let (length, group) = (row.prefix_length, &row.prefix_group);
            return Err(ReplayError {
                request_id: row.request_id,
                reason: format!(
                    "`prefix_length` is {length}, but the prefix of group `{group}` has {known} tokens in earlier rows; \
                     it must be the same in all"
                ),
            });
        }
    }
    Ok(prefixes)
}

/// How rows belong together. Rows are meant by their place in the order of time.
#[derive(Debug)]
struct Sessions {
    /// By session and turn.
    turns: BTreeMap<(Arc<str>, u32), usize>,
    /// For each row, its session.
    ids: Vec<Option<Arc<str>>>,
    /// For each row, its turn.
    rounds: Vec<u32>,
    /// For each row, how many tokens of its prompt are the conversation so far.
    contexts: Vec<u32>,
    /// For each row, how long it is from the turn before.
    thoughts: Vec<u64>,
}

impl Sessions {
    fn new(header: &Header, rows: &[Row], mode: SessionMode) -> Result<Self, ReplayError> {
        let mut sessions = Self {
            turns: BTreeMap::new(),
            ids: Vec::with_capacity(rows.len()),
            rounds: rows.iter().map(|row| row.round_index).collect(),
            contexts: Vec::with_capacity(rows.len()),
            thoughts: Vec::with_capacity(rows.len()),
        };
        let mut known: BTreeMap<&str, Arc<str>> = BTreeMap::new();
        for (at, row) in rows.iter().enumerate() {
            let id = (!row.session_id.is_empty()).then(|| {
                let id = known
                    .entry(&row.session_id)
                    .or_insert_with(|| (&*row.session_id).into());
                Arc::clone(id)
            });
            if let Some(id) = &id
                && let Some(other) = sessions.turns.insert((Arc::clone(id), row.round_index), at)
            {
                let (round, other) = (row.round_index, rows[other].request_id);
                return Err(wrong(
                    row,
                    format!("round {round} of session `{id}` is request {other} already"),
                ));
            }
            sessions.ids.push(id);
        }
        let has_thoughts = rows.iter().any(|row| row.think_time_us.is_some_and(|think| think > 0));
        for (at, row) in rows.iter().enumerate() {
            let before = sessions.before(at, row);
            if let (SessionMode::ClosedLoop, None, Some(missing), Some(id)) =
                (mode, before, row.round_index.checked_sub(1), &sessions.ids[at])
            {
                return Err(wrong(
                    row,
                    format!(
                        "round {missing} of session `{id}` is missing; in a closed loop the rounds of a session are \
                         numbered from 0 without gaps"
                    ),
                ));
            }
            sessions
                .contexts
                .push(context(header, row, before.map(|before| &rows[before]))?);
            sessions.thoughts.push(if has_thoughts {
                row.think_time_us.unwrap_or_default()
            } else {
                before.map_or(0, |before| row.sent_us().saturating_sub(rows[before].sent_us()))
            });
        }
        Ok(sessions)
    }

    fn id(&self, at: usize) -> Option<Arc<str>> {
        self.ids[at].clone()
    }

    /// The turn before, if it was not sent later.
    fn before(&self, at: usize, row: &Row) -> Option<usize> {
        let id = self.ids[at].as_ref()?;
        let round = row.round_index.checked_sub(1)?;
        self.turns
            .get(&(Arc::clone(id), round))
            .copied()
            .filter(|&before| before < at)
    }

    fn next(&self, at: usize) -> Option<usize> {
        self.after(at).next()
    }

    /// The turns after this one, in their order.
    fn after(&self, at: usize) -> impl Iterator<Item = usize> {
        let later = self.ids[at].as_ref().zip(self.rounds[at].checked_add(1));
        let later = later.map(|(id, next)| self.turns.range((Arc::clone(id), next)..=(Arc::clone(id), u32::MAX)));
        later.into_iter().flatten().map(|(_, &turn)| turn)
    }
}

/// How many tokens of a prompt are the conversation so far. If the trace does not say it but its conversations grow, all
/// that was said, should there be room for it.
fn context(header: &Header, row: &Row, before: Option<&Row>) -> Result<u32, ReplayError> {
    let said = before.map(|before| {
        let prompt = before.prompt_tokens();
        prompt..=prompt.saturating_add(before.output_tokens)
    });
    let prompt = row.prompt_tokens();
    match (row.context_tokens, said) {
        (Some(0), _) | (None, None) => Ok(0),
        (Some(tokens), None) => Err(wrong(
            row,
            format!("`context_tokens` is {tokens}, but the turn before is not in the trace, or was sent later"),
        )),
        (Some(tokens), Some(said)) if !said.contains(&tokens) || tokens > prompt => {
            let (least, most) = (said.start(), *said.end().min(&prompt));
            Err(wrong(
                row,
                format!("`context_tokens` is {tokens}; after the turn before it must be from {least} to {most}"),
            ))
        }
        (Some(tokens), Some(_)) => Ok(tokens),
        (None, Some(said)) => {
            let grows = header.session_context_growth == ContextGrowth::Accumulate;
            Ok(Some(*said.end()).filter(|&all| grows && all <= prompt).unwrap_or(0))
        }
    }
}

fn wrong(row: &Row, reason: String) -> ReplayError {
    ReplayError {
        request_id: row.request_id,
        reason,
    }
}

/// What rows have in common, made once.
#[derive(Debug)]
struct Makers {
    block_tokens: NonZeroU32,
    prefixes: BTreeMap<Box<str>, Vec<u32>>,
    clients: BTreeMap<ClientKey, Arc<Client>>,
    /// By group and adapter.
    chains: BTreeMap<(Box<str>, Box<str>), Arc<BlockChain>>,
}

/// Client, tenant, class, model, adapter, group, whether it streams.
type ClientKey = ([Box<str>; 6], bool);

impl Makers {
    fn listed(&mut self, rows: &[Row], at: usize, sessions: &Sessions) -> Listed {
        let row = &rows[at];
        let context_tokens = sessions.contexts[at];
        let known = if context_tokens > 0 {
            context_tokens
        } else {
            row.prefix_length
        };
        Listed {
            number: row.request_id,
            client: self.client(row),
            prefix: self.chain(row),
            sizes: Sizes {
                fresh: row.prompt_tokens().saturating_sub(known),
                // A request that failed has no answer in the trace; here it needs one.
                output: row.output_tokens.max(1),
                media: Media {
                    text: row.text_tokens,
                    image: row.image_tokens,
                    audio: row.audio_tokens,
                    video: row.video_tokens,
                },
                reason_ratio: row.reason_ratio,
            },
            max_output_tokens: Some(row.output_tokens.max(1)),
            timeout_us: (row.deadline_us > 0).then(|| row.deadline_us.saturating_sub(row.sent_us())),
            slo_target_us: row.slo_target_us,
            context: context_tokens > 0,
            think_us: sessions.thoughts[at],
        }
    }

    fn client(&mut self, row: &Row) -> Arc<Client> {
        let texts = [
            &row.client_id,
            &row.tenant_id,
            &row.slo_class,
            &row.model,
            &row.adapter,
            &row.prefix_group,
        ];
        let key = (texts.map(Clone::clone), row.streaming);
        let client = self.clients.entry(key).or_insert_with(|| {
            Arc::new(Client {
                id: row.client_id.clone(),
                tenant: (&*row.tenant_id).into(),
                slo_class: (&*row.slo_class).into(),
                model: (&*row.model).into(),
                adapter: (&*row.adapter).into(),
                prefix_group: row.prefix_group.clone(),
                prefix_tokens: row.prefix_length,
                streaming: row.streaming,
            })
        });
        Arc::clone(client)
    }

    fn chain(&mut self, row: &Row) -> Arc<BlockChain> {
        let tokens = self.prefixes.get(&row.prefix_group).map_or(&[][..], Vec::as_slice);
        let key = (row.prefix_group.clone(), row.adapter.clone());
        let block_tokens = self.block_tokens;
        let chain = self.chains.entry(key);
        Arc::clone(chain.or_insert_with(|| Arc::new(prefix(&row.adapter, block_tokens, tokens))))
    }
}

/// The rows that are sent at a time of the trace, in that order.
#[derive(Debug)]
struct Recording {
    entries: VecDeque<Entry>,
    chance: Stream,
    /// In fixed mode: what was said in conversations that go on, and the tokens of the last prompt.
    spoken: BTreeMap<Arc<str>, (Spoken, u32)>,
    options: ReplayOptions,
}

#[derive(Debug)]
struct Entry {
    at_us: u64,
    number: u64,
    session: Option<Arc<str>>,
    round: u32,
    think_us: u64,
    /// The next turn begins with this one.
    goes_on: bool,
    context_tokens: u32,
    listed: Listed,
    /// In a closed loop: the turns after this one.
    later: VecDeque<Listed>,
}

impl Openings for Recording {
    fn next_at(&self) -> Option<u64> {
        let next = self.entries.front().map(|entry| entry.at_us);
        next.filter(|&at| self.options.limits.horizon_us.is_none_or(|horizon| at < horizon))
    }

    fn take(&mut self) -> Option<Opening> {
        let entry = self.entries.pop_front()?;
        let before = entry.session.as_ref().and_then(|id| self.spoken.remove(id));
        let context =
            before.map(|(spoken, prompt_tokens)| spoken.context(entry.context_tokens.saturating_sub(prompt_tokens)));
        let place = Place {
            at_us: entry.at_us,
            session: entry.session.as_ref().map(|id| (id, entry.round)),
            think_us: entry.think_us,
        };
        let (request, spoken) = entry
            .listed
            .request(place, context.as_ref(), entry.goes_on, &mut self.chance);
        let closed = self.options.session_mode == SessionMode::ClosedLoop;
        let session = match (entry.session, spoken) {
            (Some(id), spoken) if closed => {
                let chance = LateStream::Seed(Stream::seed_of(self.options.seed, &id));
                let rounds = Rounds::Listed(entry.later);
                Some(Session::new(id, rounds, self.options.think, chance, spoken))
            }
            (Some(id), Some(spoken)) => {
                self.spoken.insert(id, (spoken, request.prompt_tokens));
                None
            }
            _ => None,
        };
        Some(Opening {
            request,
            number: Some(entry.number),
            session,
        })
    }
}
