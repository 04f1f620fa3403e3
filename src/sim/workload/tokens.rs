//! Tokens are drawn and hashed in one go, and only what a conversation may need again is kept.

use std::num::NonZeroU32;
use std::sync::Arc;

use super::super::instance::{BYTES_PER_TOKEN, BlockChain};
use super::chance::{Range, Stream};

/// The vocabulary: token numbers lie below this.
pub(in crate::sim) const VOCABULARY: Range = Range::below(128_000);

/// Tokens that are drawn before they are hashed.
const AT_ONCE: usize = 256;

/// Draws `count` tokens and adds them to `chain`.
pub(in crate::sim) fn draw(chance: &mut Stream, chain: &mut BlockChain, count: u32) {
    let mut left = count as usize;
    let mut bytes = [0; AT_ONCE * BYTES_PER_TOKEN];
    while left > 0 {
        let now = left.min(AT_ONCE);
        let bytes = &mut bytes[..now * BYTES_PER_TOKEN];
        for token in bytes.chunks_exact_mut(BYTES_PER_TOKEN) {
            token.copy_from_slice(&chance.below(VOCABULARY).to_le_bytes());
        }
        chain.text(bytes);
        left -= now;
    }
}

/// A prompt and its answer.
#[derive(Debug)]
pub(in crate::sim) struct Written {
    /// The names of the full blocks of both.
    pub(in crate::sim) chain: Arc<[u64]>,
    /// Tokens of the prompt.
    pub(in crate::sim) prompt_tokens: u32,
    /// What the next turn of the conversation needs, if that was asked for.
    pub(in crate::sim) spoken: Option<Spoken>,
}

/// Draws a prompt that goes on from `start` by `fresh` tokens, and an answer of `output` tokens.
pub(in crate::sim) fn write(start: &BlockChain, fresh: u32, output: u32, chance: &mut Stream, keep: bool) -> Written {
    let mut chain = start.clone();
    draw(chance, &mut chain, fresh);
    let prompt_tokens = chain.tokens();
    let spoken = if keep {
        let after_prompt = chain.clone();
        let answer: Box<[u32]> = (0..output).map(|_| chance.below(VOCABULARY)).collect();
        answer.iter().for_each(|&token| chain.token(token));
        Some(Spoken { after_prompt, answer })
    } else {
        draw(chance, &mut chain, output);
        None
    };
    Written {
        chain: chain.into_hashes().into(),
        prompt_tokens,
        spoken,
    }
}

/// The last turn of a conversation.
#[derive(Clone, Debug)]
pub(in crate::sim) struct Spoken {
    after_prompt: BlockChain,
    answer: Box<[u32]>,
}

impl Spoken {
    /// What the next prompt begins with, if so many tokens of the answer were really given.
    pub(in crate::sim) fn context(self, output_tokens: u32) -> BlockChain {
        let mut chain = self.after_prompt;
        let given = self.answer.iter().take(output_tokens as usize);
        given.for_each(|&token| chain.token(token));
        chain
    }
}

/// The beginning of prompts: the adapter's, with `tokens`.
pub(in crate::sim) fn prefix(adapter: &str, block_tokens: NonZeroU32, tokens: &[u32]) -> BlockChain {
    let mut chain = BlockChain::new(adapter, block_tokens);
    tokens.iter().for_each(|&token| chain.token(token));
    chain
}
