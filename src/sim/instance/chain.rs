//! The names of a sequence's KV blocks: chained hashes of its full blocks.
//!
//! A block is named by its bytes and the name of the block before it, so that equal names mean equal prefixes. With
//! XXH64 at seed 0, `LE` for little-endian bytes and `‖` for concatenation:
//!
//! ```text
//! h₋₁ = XXH64(adapter)
//! hᵢ  = XXH64(LE64(hᵢ₋₁) ‖ bytes of block i)
//! ```
//!
//! These are the names inside one server. The picker has its own ([`crate::engine::prefix`]), with larger blocks.

use std::num::NonZeroU32;

use twox_hash::XxHash64;

/// Bytes that stand for one token.
pub const BYTES_PER_TOKEN: usize = 4;

/// Hashes a sequence block by block as its pieces come by, without keeping them.
#[derive(Clone, Debug)]
pub struct BlockChain {
    block_bytes: usize,
    parent: u64,
    /// `parent`'s bytes and those of a block that is not full yet.
    pending: Vec<u8>,
    hashes: Vec<u64>,
    tokens: u64,
}

const LINK: usize = size_of::<u64>();

impl BlockChain {
    /// Starts a sequence. `adapter` is the LoRA adapter, or empty for the base model: the two share no blocks.
    pub fn new(adapter: &str, block_tokens: NonZeroU32) -> Self {
        let parent = XxHash64::oneshot(0, adapter.as_bytes());
        Self {
            block_bytes: block_tokens.get() as usize * BYTES_PER_TOKEN,
            parent,
            pending: parent.to_le_bytes().to_vec(),
            hashes: Vec::new(),
            tokens: 0,
        }
    }

    /// Adds one token.
    pub fn token(&mut self, token: u32) {
        self.text(&token.to_le_bytes());
    }

    /// Adds a piece of text. A piece is a whole number of tokens: its last one is filled up with zeros.
    pub fn text(&mut self, piece: &[u8]) {
        self.bytes(piece);
        let padding = piece.len().next_multiple_of(BYTES_PER_TOKEN) - piece.len();
        self.bytes(&[0; BYTES_PER_TOKEN][..padding]);
        self.tokens += piece.len().div_ceil(BYTES_PER_TOKEN) as u64;
    }

    /// Tokens added so far. Saturates.
    pub fn tokens(&self) -> u32 {
        u32::try_from(self.tokens).unwrap_or(u32::MAX)
    }

    /// A hash of everything that was added, full blocks or not.
    pub fn digest(&self) -> u64 {
        XxHash64::oneshot(0, &self.pending)
    }

    /// The names of the full blocks.
    pub fn into_hashes(self) -> Vec<u64> {
        self.hashes
    }

    fn bytes(&mut self, mut bytes: &[u8]) {
        let full = LINK + self.block_bytes;
        while self.pending.len() + bytes.len() >= full {
            let (head, rest) = bytes.split_at(full - self.pending.len());
            self.pending.extend_from_slice(head);
            bytes = rest;
            self.parent = XxHash64::oneshot(0, &self.pending);
            self.hashes.push(self.parent);
            self.pending.clear();
            self.pending.extend_from_slice(&self.parent.to_le_bytes());
        }
        self.pending.extend_from_slice(bytes);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn chain(adapter: &str, pieces: &[&[u8]]) -> BlockChain {
        let mut chain = BlockChain::new(adapter, NonZeroU32::new(2).unwrap());
        pieces.iter().for_each(|piece| chain.text(piece));
        chain
    }

    #[test]
    fn only_full_blocks_have_a_name_and_every_byte_has_a_part_in_the_digest() {
        let short = chain("", &[b"seven b"]);
        let full = chain("", &[b"eight by"]);
        let longer = chain("", &[b"eight by", b"t"]);

        assert_eq!((short.tokens(), full.tokens(), longer.tokens()), (2, 2, 3));
        assert_ne!(short.digest(), full.digest());
        assert_ne!(full.digest(), longer.digest());
        assert_eq!(full.into_hashes(), longer.into_hashes());
    }

    #[test]
    fn adapters_do_not_share_blocks() {
        let (base, lora) = (chain("", &[b"eight by"]), chain("lora", &[b"eight by"]));

        assert_ne!(base.into_hashes(), lora.into_hashes());
    }

    proptest! {
        #[test]
        fn chains_agree_exactly_as_far_as_their_tokens_do(
            tokens in proptest::collection::vec(any::<u32>(), 1..60),
            at in 0_usize..60,
        ) {
            let at = at % tokens.len();
            let mut other = tokens.clone();
            other[at] = other[at].wrapping_add(1);
            let hashes = |tokens: &[u32]| {
                let mut chain = BlockChain::new("", NonZeroU32::new(4).unwrap());
                tokens.iter().for_each(|&token| chain.token(token));
                chain.into_hashes()
            };

            let (one, two) = (hashes(&tokens), hashes(&other));

            prop_assert_eq!(one.len(), tokens.len() / 4);
            let same = one.iter().zip(&two).take_while(|(a, b)| a == b).count();
            prop_assert_eq!(same, (at / 4).min(one.len()));
            prop_assert!(one[same..].iter().zip(&two[same..]).all(|(a, b)| a != b));
        }
    }
}
