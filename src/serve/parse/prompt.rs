//! The parts of a prompt, and how they become tokens (spec, scheduling 9.1, the estimate).
//!
//! Four bytes are a token. Text counts as UTF-8, unescaped; JSON (tools, inputs of tools, items of responses) counts
//! as the client wrote it. An image, video or sound is placed at a token's start and is a run of one token made from
//! what it holds or where it lies: an image counts as one of 640×360 pixels at 1024 pixels a token, a video as ten
//! seconds of such images at two a second, and a sound by its length.

use std::hash::Hasher as _;

use twox_hash::XxHash64;

use super::json::{Literal, Value};
use crate::engine::prefix::hash::BYTES_PER_TOKEN;
use crate::engine::prefix::{BlockHasher, PromptBlocks};

const IMAGE_TOKENS: usize = 640 * 360 / 1024;
const VIDEO_TOKENS: usize = 10 * 2 * IMAGE_TOKENS;

/// Tokens that the images, videos and sounds of a request stand for, at most. What goes beyond counts as one token
/// each, so that a small body cannot cost much work.
const MAX_ASSET_TOKENS: usize = 1 << 20;

/// Bytes that are collected before they are hashed: escaped text comes in small pieces.
const BUFFER_BYTES: usize = 4096;

/// The prompt of a request, as parts of its body.
#[derive(Debug)]
pub struct Prompt<'a>(Parts<'a>);

#[derive(Debug)]
enum Parts<'a> {
    /// The API has no prompt, or the body is not looked into.
    None,
    /// One prompt in several pieces.
    Pieces(Vec<Piece<'a>>),
    /// An array of prompts: strings, arrays of token ids, and what else counts as it is written.
    Batch(Value<'a>),
    Tokens(Vec<u32>),
}

/// A piece of a prompt.
#[derive(Debug)]
pub(super) enum Piece<'a> {
    /// Counts as it stands.
    Raw(&'a str),
    Text(Literal<'a>),
    Image(Literal<'a>),
    Video(Literal<'a>),
    Audio {
        data: Literal<'a>,
        format: Option<Literal<'a>>,
    },
}

impl<'a> Piece<'a> {
    /// The text of a string; anything else as it is written. None for null and for the empty string.
    pub(super) fn of(value: Value<'a>) -> Option<Self> {
        match value.as_string() {
            Some(text) => (text.len() > 0).then_some(Self::Text(text)),
            None => (!value.is_null()).then_some(Self::Raw(value.text())),
        }
    }
}

impl<'a> Prompt<'a> {
    pub(super) fn none() -> Self {
        Self(Parts::None)
    }

    pub(super) fn pieces(pieces: Vec<Piece<'a>>) -> Self {
        Self(Parts::Pieces(pieces))
    }

    /// Takes an array of prompts.
    pub(super) fn batch(array: Value<'a>) -> Self {
        Self(Parts::Batch(array))
    }

    /// A value as it is written.
    pub(super) fn written(value: Value<'a>) -> Self {
        Self::pieces(vec![Piece::Raw(value.text())])
    }

    pub(super) fn tokens(ids: Vec<u32>) -> Self {
        Self(Parts::Tokens(ids))
    }

    pub(super) fn hash(&self, hasher: BlockHasher) -> (u32, PromptBlocks) {
        let mut writer = Writer::new(hasher);
        match &self.0 {
            Parts::None => {}
            Parts::Pieces(pieces) => {
                pieces.iter().for_each(|piece| writer.piece(piece));
                writer.end_prompt();
            }
            Parts::Batch(array) => array.for_each_element(|_, prompt| {
                match prompt.as_token_ids() {
                    Some(ids) => writer.tokens(&ids),
                    None => Piece::of(prompt).iter().for_each(|piece| writer.piece(piece)),
                }
                writer.end_prompt();
            }),
            Parts::Tokens(ids) => {
                writer.tokens(ids);
                writer.end_prompt();
            }
        }
        writer.hasher.finish()
    }
}

/// Brings the pieces of a prompt to the hasher.
struct Writer {
    hasher: BlockHasher,
    buffer: Vec<u8>,
    /// Bytes of the prompt so far.
    written: usize,
    asset_tokens: usize,
}

impl Writer {
    fn new(hasher: BlockHasher) -> Self {
        Self {
            hasher,
            buffer: Vec::with_capacity(BUFFER_BYTES),
            written: 0,
            asset_tokens: 0,
        }
    }

    fn piece(&mut self, piece: &Piece<'_>) {
        match *piece {
            Piece::Raw(json) => self.bytes(json.as_bytes()),
            Piece::Text(text) => text.for_each_run(|run| self.bytes(run.as_bytes())),
            Piece::Image(source) => self.asset([Some(source), None], IMAGE_TOKENS),
            Piece::Video(source) => self.asset([Some(source), None], VIDEO_TOKENS),
            Piece::Audio { data, format } => {
                let bytes = data.len() + format.map_or(0, Literal::len);
                self.asset([Some(data), format], bytes.div_ceil(BYTES_PER_TOKEN).max(1));
            }
        }
    }

    fn tokens(&mut self, ids: &[u32]) {
        ids.iter().for_each(|id| self.bytes(&id.to_le_bytes()));
    }

    fn asset(&mut self, content: [Option<Literal<'_>>; 2], tokens: usize) {
        let mut hash = XxHash64::with_seed(0);
        for literal in content.into_iter().flatten() {
            literal.for_each_run(|run| hash.write(run.as_bytes()));
        }
        // The low half of the hash.
        let token = hash.finish() as u32;
        let has_room = self.asset_tokens + tokens <= MAX_ASSET_TOKENS;
        let tokens = if has_room { tokens } else { 1 };
        self.asset_tokens += if has_room { tokens } else { 0 };

        let to_boundary = self.written.next_multiple_of(BYTES_PER_TOKEN) - self.written;
        self.bytes(&[0; BYTES_PER_TOKEN][..to_boundary]);
        for _ in 0..tokens {
            self.bytes(&token.to_le_bytes());
        }
    }

    fn bytes(&mut self, bytes: &[u8]) {
        self.written += bytes.len();
        if self.buffer.len() + bytes.len() > BUFFER_BYTES {
            self.flush();
        }
        if bytes.len() > BUFFER_BYTES {
            self.hasher.text(bytes);
        } else {
            self.buffer.extend_from_slice(bytes);
        }
    }

    fn end_prompt(&mut self) {
        self.flush();
        self.hasher.end_prompt();
        self.written = 0;
    }

    fn flush(&mut self) {
        self.hasher.text(&self.buffer);
        self.buffer.clear();
    }
}
