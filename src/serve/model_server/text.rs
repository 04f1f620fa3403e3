//! The words of the answers.

use twox_hash::XxHash64;

/// An endless text of tokens of four bytes, which follows from a seed, a prompt and the number of the answer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Text {
    key: u64,
}

/// Words with the space before them, and endings. All have four bytes, so that the tokens of an answer are the same
/// when it comes back as a part of the next prompt.
const TOKENS: [&str; 64] = [
    " the", " and", " one", " sun", " sea", " day", " old", " new", " red", " low", " far", " out", " was", " has",
    " had", " saw", " ran", " let", " put", " get", " any", " all", " few", " two", " six", " ten", " way", " sky",
    " air", " ice", " oak", " elm", " fox", " owl", " bee", " cat", " dog", " hen", " map", " key", " cup", " hat",
    " bag", " box", " law", " art", " war", " joy", " end", " yet", " but", " for", "ness", "less", "ment", "ward",
    "like", "ship", "land", "wood", "able", "some", "work", "time",
];

impl Text {
    /// The text of answer number `choice` to the prompt with this `digest`.
    pub(super) fn new(seed: u64, digest: u64, choice: u32) -> Self {
        let mut input = [0; 12];
        input[..8].copy_from_slice(&digest.to_le_bytes());
        input[8..].copy_from_slice(&choice.to_le_bytes());
        Self {
            key: XxHash64::oneshot(seed, &input),
        }
    }

    /// The token at position `index`.
    pub(super) fn token(self, index: u32) -> &'static str {
        let draw = XxHash64::oneshot(self.key, &index.to_le_bytes());
        TOKENS[usize::try_from(draw % TOKENS.len() as u64).expect("a position in a table fits")]
    }

    /// The first `count` tokens.
    pub(super) fn tokens(self, count: u32) -> impl Iterator<Item = &'static str> {
        (0..count).map(move |index| self.token(index))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sim::instance::BYTES_PER_TOKEN;

    #[test]
    fn every_token_has_the_bytes_of_a_token() {
        assert!(TOKENS.iter().all(|token| token.len() == BYTES_PER_TOKEN));
    }

    #[test]
    fn a_text_follows_from_seed_prompt_and_choice() {
        let text = |seed, digest, choice| Text::new(seed, digest, choice).tokens(20).collect::<String>();

        assert_eq!(text(1, 2, 0), text(1, 2, 0));
        assert_ne!(text(1, 2, 0), text(2, 2, 0));
        assert_ne!(text(1, 2, 0), text(1, 3, 0));
        assert_ne!(text(1, 2, 0), text(1, 2, 1));
    }
}
