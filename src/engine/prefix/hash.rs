//! Chained hashes of the blocks of a prompt (spec, scheduling 9.2).
//!
//! With XXH64 at the seed of the [`HashKey`] throughout, `LE` for little-endian bytes and `‖` for concatenation:
//!
//! ```text
//! h₋₁ = XXH64(LE64(length of model) ‖ model ‖ salt)
//! tᵢ  = XXH64(LE32 of each token of block i)
//! hᵢ  = XXH64(LE64(tᵢ) ‖ LE64(hᵢ₋₁))
//! ```
//!
//! The last block is hashed however short it is. Without a tokenizer, four bytes of text are one pseudo token, so the
//! bytes of the text are hashed as they stand.

use serde::{Deserialize, Serialize};

use smallvec::SmallVec;
use twox_hash::XxHash64;

use super::MIN_BLOCK_TOKENS;

/// Bytes that stand for one token.
pub const BYTES_PER_TOKEN: usize = 4;

/// What the hashes of blocks depend on beside the prompt. Clients choose prompts, and hashes are the keys of tables: one who
/// knew the key could prepare prompts that all fall into one place of a table. A service takes a key by chance when it
/// starts. No decision depends on it, and a journal has the hashes, so a replay needs no key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HashKey(pub u64);

/// The hashes of a request's prompts, block by block.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PromptBlocks {
    block_tokens: u32,
    hashes: Vec<u64>,
    /// A request has one prompt, but for completions of several.
    chains: SmallVec<[Chain; 1]>,
}

/// Where a prompt ends in the hashes of all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Chain {
    /// The end of its blocks.
    pub(super) end: u32,
    /// The end of its full blocks: all but the last, or all.
    pub(super) full_end: u32,
}

impl PromptBlocks {
    /// One prompt, of which each block is full. The hashes are chained: each covers everything before its block.
    pub fn from_chain(block_tokens: u32, hashes: Vec<u64>) -> Self {
        let end = u32::try_from(hashes.len()).unwrap_or(u32::MAX);
        Self {
            block_tokens,
            hashes,
            chains: SmallVec::from_elem(Chain { end, full_end: end }, 1),
        }
    }

    /// Tokens of a full block. Zero if nothing was hashed.
    pub fn block_tokens(&self) -> u32 {
        self.block_tokens
    }

    /// The hashes of all prompts, one prompt after the other.
    pub fn hashes(&self) -> &[u64] {
        &self.hashes
    }

    /// The chains of the prompts.
    pub fn chains(&self) -> impl Iterator<Item = &[u64]> {
        self.chains_to(|chain| chain.end)
    }

    /// The chains of the prompts, each as far as `end` says.
    pub(super) fn chains_to(&self, end: fn(&Chain) -> u32) -> impl Iterator<Item = &[u64]> {
        let starts = std::iter::once(0).chain(self.chains.iter().map(|chain| chain.end));
        starts
            .zip(&self.chains)
            .map(move |(start, chain)| &self.hashes[start as usize..end(chain) as usize])
    }
}

/// How prompts are cut in blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockLayout {
    /// Tokens of a full block. None counts as one.
    pub block_tokens: u32,
    /// Blocks of one prompt that are hashed; what comes after them is only counted.
    pub max_blocks: u32,
}

impl Default for BlockLayout {
    /// Blocks of 64 tokens, up to 131072 tokens.
    fn default() -> Self {
        Self {
            block_tokens: MIN_BLOCK_TOKENS,
            max_blocks: 131_072 / MIN_BLOCK_TOKENS,
        }
    }
}

/// Hashes prompts as their tokens come by, without keeping them.
#[derive(Debug)]
pub struct BlockHasher {
    key: HashKey,
    block_bytes: usize,
    max_blocks: u32,
    /// Blocks of this prompt that may still be hashed.
    blocks_left: u32,
    root: u64,
    parent: u64,
    /// The bytes of a block that is not full yet.
    pending: Vec<u8>,
    tokens: u64,
    blocks: PromptBlocks,
}

impl BlockHasher {
    /// Starts the first prompt with the key 0. `model` is the target model, so that adapters do not share prefixes; `salt` is
    /// the client's cache salt.
    pub fn new(model: &str, salt: &str, layout: BlockLayout) -> Self {
        Self::with_key(HashKey::default(), model, salt, layout)
    }

    /// The same with another key.
    pub fn with_key(key: HashKey, model: &str, salt: &str, layout: BlockLayout) -> Self {
        let block_tokens = layout.block_tokens.max(1);
        // The length keeps the model `a` with the salt `bc` apart from the model `ab` with the salt `c`.
        let length = (model.len() as u64).to_le_bytes();
        let root = [&length, model.as_bytes(), salt.as_bytes()].concat();
        let root = XxHash64::oneshot(key.0, &root);
        Self {
            key,
            block_bytes: block_tokens as usize * BYTES_PER_TOKEN,
            max_blocks: layout.max_blocks,
            blocks_left: layout.max_blocks,
            root,
            parent: root,
            pending: Vec::new(),
            tokens: 0,
            blocks: PromptBlocks {
                block_tokens,
                ..PromptBlocks::default()
            },
        }
    }

    /// Adds one token.
    pub fn token(&mut self, token: u32) {
        self.text(&token.to_le_bytes());
    }

    /// Adds text, four bytes a token. A text that is followed by another one need not end at a token.
    pub fn text(&mut self, mut bytes: &[u8]) {
        if !self.pending.is_empty() {
            let wanted = self.block_bytes - self.pending.len();
            let (head, rest) = bytes.split_at(wanted.min(bytes.len()));
            self.pending.extend_from_slice(head);
            bytes = rest;
            if self.pending.len() < self.block_bytes {
                return;
            }
            let full = std::mem::take(&mut self.pending);
            self.block(&full);
            self.pending = full;
            self.pending.clear();
        }
        let full_blocks = bytes.chunks_exact(self.block_bytes);
        let rest = full_blocks.remainder();
        for block in full_blocks {
            self.block(block);
        }
        self.pending.extend_from_slice(rest);
    }

    /// Ends a prompt; what is added next begins another one, with a chain of its own.
    pub fn end_prompt(&mut self) {
        let end_of = |hashes: &[u64]| u32::try_from(hashes.len()).unwrap_or(u32::MAX);
        let mut full_end = end_of(&self.blocks.hashes);
        if !self.pending.is_empty() {
            let mut last = std::mem::take(&mut self.pending);
            last.resize(last.len().next_multiple_of(BYTES_PER_TOKEN), 0);
            let is_full = last.len() == self.block_bytes;
            self.block(&last);
            if is_full {
                full_end = end_of(&self.blocks.hashes);
            }
        }
        let end = end_of(&self.blocks.hashes);
        self.blocks.chains.push(Chain { end, full_end });
        self.parent = self.root;
        self.blocks_left = self.max_blocks;
    }

    /// The number of tokens and the blocks of all prompts that were ended.
    pub fn finish(self) -> (u32, PromptBlocks) {
        (u32::try_from(self.tokens).unwrap_or(u32::MAX), self.blocks)
    }

    fn block(&mut self, bytes: &[u8]) {
        self.tokens += (bytes.len() / BYTES_PER_TOKEN) as u64;
        let Some(left) = self.blocks_left.checked_sub(1) else {
            return;
        };
        self.blocks_left = left;
        let mut link = [0; 16];
        link[..8].copy_from_slice(&XxHash64::oneshot(self.key.0, bytes).to_le_bytes());
        link[8..].copy_from_slice(&self.parent.to_le_bytes());
        self.parent = XxHash64::oneshot(self.key.0, &link);
        self.blocks.hashes.push(self.parent);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn blocks_of(model: &str, salt: &str, tokens: impl IntoIterator<Item = u32>) -> PromptBlocks {
        let mut hasher = BlockHasher::new(model, salt, BlockLayout::default());
        tokens.into_iter().for_each(|token| hasher.token(token));
        hasher.end_prompt();
        hasher.finish().1
    }

    #[test]
    fn chains_are_made_as_the_formula_says() {
        let blocks = blocks_of("m", "s1", 1..=100);

        let hash = |bytes: &[u8]| XxHash64::oneshot(0, bytes);
        let tokens =
            |tokens: std::ops::RangeInclusive<u32>| hash(&tokens.flat_map(u32::to_le_bytes).collect::<Vec<_>>());
        let link = |block: u64, parent: u64| hash(&[block.to_le_bytes(), parent.to_le_bytes()].concat());
        let root = hash(b"\x01\0\0\0\0\0\0\0ms1");
        let first = link(tokens(1..=64), root);
        assert_eq!(blocks.hashes(), [first, link(tokens(65..=100), first)]);
    }

    #[test]
    fn the_end_of_the_model_and_the_begin_of_the_salt_are_not_confused() {
        let hashes = |model, salt| blocks_of(model, salt, 1..=64).hashes().to_vec();

        assert_ne!(hashes("a", "bc"), hashes("ab", "c"));
        assert_ne!(hashes("abc", ""), hashes("", "abc"));
    }

    #[test]
    fn with_another_key_all_hashes_are_others() {
        let hashes = |key| {
            let mut hasher = BlockHasher::with_key(HashKey(key), "m", "", BlockLayout::default());
            (1..=100).for_each(|token| hasher.token(token));
            hasher.end_prompt();
            hasher.finish().1.hashes().to_vec()
        };

        assert_eq!(hashes(7), hashes(7));
        assert!(hashes(7).iter().all(|hash| !hashes(8).contains(hash)));
    }

    #[test]
    fn each_prompt_of_a_request_has_a_chain_of_its_own() {
        let mut hasher = BlockHasher::new("m", "", BlockLayout::default());
        hasher.text(b"same");
        hasher.end_prompt();
        hasher.text(b"same");
        hasher.end_prompt();
        let (tokens, blocks) = hasher.finish();

        let chains: Vec<_> = blocks.chains().collect();
        assert_eq!(tokens, 2);
        assert_eq!(chains.len(), 2);
        assert_eq!(chains[0], chains[1]);
    }

    #[test]
    fn blocks_may_be_as_small_as_one_token() {
        let layout = BlockLayout {
            block_tokens: 1,
            ..BlockLayout::default()
        };
        let mut hasher = BlockHasher::new("m", "", layout);
        (0..5).for_each(|token| hasher.token(token));
        hasher.end_prompt();
        let (_, blocks) = hasher.finish();

        assert_eq!((blocks.block_tokens(), blocks.hashes().len()), (1, 5));
    }

    #[test]
    fn a_chain_that_was_hashed_elsewhere_is_one_prompt_of_full_blocks() {
        let blocks = PromptBlocks::from_chain(16, vec![7, 8, 9]);

        assert_eq!(blocks.block_tokens(), 16);
        assert_eq!(blocks.chains().collect::<Vec<_>>(), [[7, 8, 9]]);
        assert_eq!(
            blocks.chains_to(|chain| chain.full_end).collect::<Vec<_>>(),
            [[7, 8, 9]]
        );
    }

    #[test]
    fn an_empty_prompt_has_no_blocks() {
        let blocks = blocks_of("m", "", []);

        assert_eq!(blocks.hashes(), [] as [u64; 0]);
        assert_eq!(blocks.chains().count(), 1);
    }

    #[test]
    fn a_prompt_beyond_the_limit_is_counted_and_not_hashed() {
        let layout = BlockLayout {
            max_blocks: 2,
            ..BlockLayout::default()
        };
        let mut hasher = BlockHasher::new("m", "", layout);
        for _ in 0..2 {
            hasher.text(&[b'x'; 4 * 64 * 5]);
            hasher.end_prompt();
        }
        let (tokens, blocks) = hasher.finish();

        assert_eq!(tokens, 2 * 5 * 64);
        assert_eq!(blocks.chains().map(<[u64]>::len).collect::<Vec<_>>(), [2, 2]);
    }

    proptest! {
        #[test]
        fn how_a_text_is_cut_on_arrival_does_not_show(
            text in proptest::collection::vec(any::<u8>(), 0..2000),
            cuts in proptest::collection::vec(0_usize..2000, 0..8),
        ) {
            let mut whole = BlockHasher::new("m", "", BlockLayout::default());
            whole.text(&text);
            whole.end_prompt();
            let mut cut = BlockHasher::new("m", "", BlockLayout::default());
            let mut cuts: Vec<_> = cuts.into_iter().map(|c| c.min(text.len())).collect();
            cuts.extend([0, text.len()]);
            cuts.sort_unstable();
            for pair in cuts.windows(2) {
                cut.text(&text[pair[0]..pair[1]]);
            }
            cut.end_prompt();

            prop_assert_eq!(whole.finish(), cut.finish());
        }

        #[test]
        fn all_blocks_are_full_but_a_last_one_that_is_not(lengths in proptest::collection::vec(0_usize..400, 1..4)) {
            let mut hasher = BlockHasher::new("m", "", BlockLayout::default());
            for &length in &lengths {
                (0..).take(length).for_each(|token| hasher.token(token));
                hasher.end_prompt();
            }
            let blocks = hasher.finish().1;

            let all = blocks.chains().map(<[u64]>::len);
            let full = blocks.chains_to(|chain| chain.full_end).map(<[u64]>::len);
            prop_assert!(all.eq(lengths.iter().map(|length| length.div_ceil(64))));
            prop_assert!(full.eq(lengths.iter().map(|length| length / 64)));
        }

        #[test]
        fn equal_prefixes_give_equal_blocks_and_a_difference_shows_in_all_that_follow(
            tokens in proptest::collection::vec(any::<u32>(), 200..600),
            at in 0_usize..200,
        ) {
            let mut other = tokens.clone();
            other[at] = other[at].wrapping_add(1);
            let (a, b) = (blocks_of("m", "", tokens), blocks_of("m", "", other));

            let same = a.hashes().iter().zip(b.hashes()).take_while(|(a, b)| a == b).count();
            prop_assert_eq!(same, at / 64);
            prop_assert!(a.hashes()[same..].iter().zip(&b.hashes()[same..]).all(|(a, b)| a != b));
        }
    }
}
