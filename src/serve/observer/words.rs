//! What prompts consist of: words without meaning, as many as make up a number of tokens.

use twox_hash::XxHash64;

use crate::sim::request::SimRequest;

/// The words. Each is one token for common tokenizers, and has as many bytes as one for the stand-in server.
pub const WORDS: [&str; 100] = [
    " the", " and", " one", " two", " sun", " sea", " day", " old", " new", " red", " low", " far", " out", " was",
    " has", " had", " saw", " ran", " let", " put", " get", " any", " all", " few", " six", " ten", " way", " sky",
    " air", " ice", " oak", " fox", " owl", " bee", " cat", " dog", " hen", " map", " key", " cup", " hat", " bag",
    " box", " law", " art", " war", " joy", " end", " yet", " but", " for", " not", " you", " her", " his", " him",
    " she", " how", " who", " why", " now", " our", " own", " use", " man", " men", " boy", " car", " bus", " job",
    " age", " big", " top", " hot", " cut", " run", " sit", " eat", " ask", " try", " say", " see", " lot", " bit",
    " per", " oil", " gas", " pay", " buy", " win", " add", " act", " aid", " bed", " bad", " arm", " leg", " eye",
    " ear", " fun",
];

/// Tokens of a word that can be right. Others come from servers that count something else.
const PLAUSIBLE: std::ops::RangeInclusive<f64> = 1.0..=3.0;

/// Writes prompts. The words follow from a seed and from what they are for: those of a group's prefix are the same in all
/// prompts of the group, those of a conversation go on where they ended.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Words {
    seed: u64,
    tokens_per_word: f64,
}

/// What words are for.
#[derive(Clone, Copy, Debug)]
pub(super) enum Topic<'t> {
    /// The beginning that a group shares.
    Group(&'t str),
    /// A conversation, and what was said in it.
    Session(&'t str),
    /// One turn of a conversation that forgets what was said before.
    Round(&'t str, u32),
    /// One request.
    Request(&'t str),
    /// Requests that warm the server up.
    Prewarm(u64),
}

impl Words {
    /// Words of one token each.
    pub fn new(seed: u64) -> Self {
        Self {
            seed,
            tokens_per_word: 1.0,
        }
    }

    /// The same words, for a server that counted so many tokens for all of [`WORDS`] together. None if that cannot be.
    pub fn counted(self, tokens: u64) -> Option<Self> {
        let tokens_per_word = tokens as f64 / WORDS.len() as f64;
        PLAUSIBLE.contains(&tokens_per_word).then_some(Self {
            tokens_per_word,
            ..self
        })
    }

    /// Tokens of a word, in the mean.
    pub fn tokens_per_word(&self) -> f64 {
        self.tokens_per_word
    }

    /// The prompt of a request that stands alone, or whose earlier turns are not known. In the latter case it repeats the
    /// prompts of those turns, and other words in the place of their answers.
    pub(super) fn prompt(&self, request: &SimRequest) -> String {
        let client = &request.client;
        let name = request.name.to_string();
        let own = match &request.session {
            None => Topic::Request(&name),
            Some(place) if place.round > 0 && place.context_tokens == 0 => Topic::Round(&place.session, place.round),
            Some(place) => Topic::Session(&place.session),
        };
        let prefix = self.count(client.prefix_tokens.min(request.prompt_tokens));
        let all = self.count(request.prompt_tokens).max(prefix + 1);
        let mut text = self.text(Topic::Group(&client.prefix_group), prefix);
        text += &self.text(own, all - prefix);
        text
    }

    /// What a later turn of a conversation adds to what was said before.
    pub(super) fn follow_up(&self, session: &str, round: u32, tokens: u32) -> String {
        self.text(Topic::Round(session, round), self.count(tokens).max(1))
    }

    /// A prompt of so many tokens.
    pub(super) fn of_tokens(&self, topic: Topic<'_>, tokens: u32) -> String {
        self.text(topic, self.count(tokens))
    }

    /// Words that come to so many tokens.
    fn count(&self, tokens: u32) -> u32 {
        (f64::from(tokens) / self.tokens_per_word).round() as u32
    }

    fn text(&self, topic: Topic<'_>, count: u32) -> String {
        let key = topic.key(self.seed);
        let mut text = String::with_capacity(count as usize * WORDS[0].len());
        for index in 0..count {
            let draw = XxHash64::oneshot(key, &index.to_le_bytes()) % WORDS.len() as u64;
            text += WORDS[usize::try_from(draw).expect("a position in a table fits")];
        }
        text
    }
}

impl Topic<'_> {
    fn key(self, seed: u64) -> u64 {
        let (kind, name, number) = match self {
            Self::Group(name) => (0, name, 0),
            Self::Session(name) => (1, name, 0),
            Self::Round(name, round) => (2, name, round.into()),
            Self::Request(name) => (3, name, 0),
            Self::Prewarm(number) => (4, "", number),
        };
        let mut input = vec![kind];
        input.extend_from_slice(&u64::to_le_bytes(number));
        input.extend_from_slice(name.as_bytes());
        XxHash64::oneshot(seed, &input)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::sync::Arc;

    use super::super::testing::request;
    use super::*;
    use crate::sim::instance::BYTES_PER_TOKEN;
    use crate::sim::request::{Client, RequestName, SessionRound};

    fn turn(round: u32, prompt_tokens: u32, context_tokens: u32) -> SimRequest {
        SimRequest {
            name: RequestName::Numbered(round.into()),
            prompt_tokens,
            client: Arc::new(Client {
                prefix_group: "g".into(),
                prefix_tokens: 20,
                ..Client::default()
            }),
            session: Some(SessionRound {
                session: "s".into(),
                round,
                context_tokens,
                think_us: 0,
            }),
            ..request(0, 0)
        }
    }

    #[test]
    fn every_word_is_another_one_and_a_token_of_the_stand_in() {
        assert_eq!(WORDS.iter().collect::<BTreeSet<_>>().len(), WORDS.len());
        assert!(
            WORDS
                .iter()
                .all(|word| word.len() == BYTES_PER_TOKEN && word.starts_with(' '))
        );
    }

    #[test]
    fn requests_of_a_group_begin_alike_and_go_on_differently() {
        let words = Words::new(1);
        let of = |number| {
            let mut request = turn(0, 120, 0);
            request.session = None;
            request.name = RequestName::Numbered(number);
            words.prompt(&request)
        };
        let (one, other) = (of(1), of(2));

        assert_eq!(one.len(), 120 * BYTES_PER_TOKEN);
        assert_eq!(one[..80], other[..80]);
        assert_ne!(one[80..160], other[80..160]);
        assert_eq!(of(1), one);
    }

    #[test]
    fn another_seed_gives_other_words() {
        let of = |seed| Words::new(seed).prompt(&turn(0, 100, 0));

        assert_ne!(of(1)[..80], of(2)[..80]);
        assert_ne!(of(1)[80..], of(2)[80..]);
    }

    #[test]
    fn a_conversation_goes_on_where_it_ended_whatever_a_word_counts() {
        for counted in [100, 133, 200] {
            let words = Words::new(3).counted(counted).unwrap();
            let first = words.prompt(&turn(0, 101, 0));
            let second = words.prompt(&turn(1, 302, 190));

            assert!(second.starts_with(&first), "{counted}");
            assert!(second.len() > first.len());
        }
    }

    #[test]
    fn a_turn_without_context_shares_the_prefix_alone() {
        let words = Words::new(3);
        let (first, second) = (words.prompt(&turn(0, 120, 0)), words.prompt(&turn(1, 120, 0)));

        assert_eq!(first[..80], second[..80]);
        assert_ne!(first[80..160], second[80..160]);
    }

    #[test]
    fn a_server_that_counts_two_tokens_a_word_is_sent_half_as_many() {
        let words = Words::new(1).counted(200).unwrap();

        assert_eq!(words.of_tokens(Topic::Prewarm(0), 256).len(), 128 * BYTES_PER_TOKEN);
    }

    #[test]
    fn what_no_tokenizer_counts_is_not_believed() {
        let words = Words::new(1);

        assert_eq!((words.counted(99), words.counted(301)), (None, None));
        assert_eq!(words.counted(100), Some(words));
        assert_eq!(words.counted(300).unwrap().tokens_per_word(), 3.0);
    }

    #[test]
    fn no_prompt_is_empty() {
        let mut short = turn(0, 20, 0);
        assert_eq!(Words::new(1).prompt(&short).len(), 21 * BYTES_PER_TOKEN);
        short.client = Arc::default();
        short.prompt_tokens = 0;
        assert_eq!(Words::new(1).prompt(&short).len(), BYTES_PER_TOKEN);
    }
}
