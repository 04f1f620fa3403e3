//! The model name that the client knows, put back into a response.

use std::mem;

use bytes::{Bytes, BytesMut};
use memchr::memmem::Finder;

use super::splice::string_literal;

const KEY: &[u8] = b"\"model\":";

/// Replaces `"model":"<target>"`, with or without one space after the colon, in a stream of chunks, wherever it was
/// cut.
///
/// Holds back nothing but the end of a chunk with which such a place might begin: less than the length of the longest
/// one. In text that the model wrote quotes are escaped, so that it never looks like one.
#[derive(Debug)]
pub struct ModelRestorer {
    key: Finder<'static>,
    /// What may follow the key.
    wanted: [Vec<u8>; 2],
    replacement: [Bytes; 2],
    held: BytesMut,
}

/// What is at the start of some bytes.
enum Found {
    /// The place of this form.
    Place(usize),
    /// The bytes end before this can be told.
    Beginning,
    Nothing,
}

impl ModelRestorer {
    /// `target` is what the model server calls the model, `incoming` what the client does.
    pub fn new(target: &str, incoming: &str) -> Self {
        let place = |space: &str, name: &str| format!("\"model\":{space}{}", string_literal(name));
        Self {
            key: Finder::new(KEY),
            wanted: ["", " "].map(|space| place(space, target).into_bytes()),
            replacement: ["", " "].map(|space| Bytes::from(place(space, incoming))),
            held: BytesMut::new(),
        }
    }

    /// Takes a chunk, and gives what can be sent on; empty if all of it is held back. A chunk without the name is
    /// given as it is, without a copy.
    pub fn push(&mut self, chunk: Bytes) -> Bytes {
        let mut input = if self.held.is_empty() {
            chunk
        } else {
            let mut joined = mem::take(&mut self.held);
            joined.extend_from_slice(&chunk);
            joined.freeze()
        };
        let mut output = BytesMut::new();
        let mut copied = 0;
        let mut at = 0;
        while let Some(offset) = self.key.find(&input[at..]) {
            at += offset;
            match self.look(&input[at..]) {
                Found::Place(form) => {
                    output.extend_from_slice(&input[copied..at]);
                    output.extend_from_slice(&self.replacement[form]);
                    at += self.wanted[form].len();
                    copied = at;
                }
                Found::Beginning | Found::Nothing => at += KEY.len(),
            }
        }
        let end = input.len() - self.beginning_at_the_end(&input[copied..]);
        self.held.extend_from_slice(&input[end..]);
        if copied == 0 {
            input.truncate(end);
            return input;
        }
        output.extend_from_slice(&input[copied..end]);
        output.freeze()
    }

    /// What was held back when the stream ended.
    pub fn finish(&mut self) -> Bytes {
        mem::take(&mut self.held).freeze()
    }

    /// The length of the longest end of `input` with which a place might begin.
    fn beginning_at_the_end(&self, input: &[u8]) -> usize {
        let longest = self.wanted[1].len() - 1;
        let window = &input[input.len().saturating_sub(longest)..];
        memchr::memchr_iter(b'"', window)
            .find(|&at| matches!(self.look(&window[at..]), Found::Beginning))
            .map_or(0, |at| window.len() - at)
    }

    fn look(&self, bytes: &[u8]) -> Found {
        if let Some(form) = self.wanted.iter().position(|wanted| bytes.starts_with(wanted)) {
            Found::Place(form)
        } else if self.wanted.iter().any(|wanted| wanted.starts_with(bytes)) {
            Found::Beginning
        } else {
            Found::Nothing
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn restored<'a>(chunks: impl IntoIterator<Item = &'a [u8]>) -> String {
        let mut restorer = ModelRestorer::new("base-v2", "base");
        let mut out = Vec::new();
        for chunk in chunks {
            out.extend_from_slice(&restorer.push(Bytes::copy_from_slice(chunk)));
        }
        out.extend_from_slice(&restorer.finish());
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn every_place_with_the_target_gets_the_name_that_the_client_knows() {
        assert_eq!(
            restored([br#"{"model":"base-v2"} {"model": "base-v2"} {"model":  "base-v2"}"# as &[u8]]),
            r#"{"model":"base"} {"model": "base"} {"model":  "base-v2"}"#
        );
    }

    #[test]
    fn other_models_and_the_text_of_the_answer_stay() {
        let response = r#"{"model":"base-v2x","model":"base","text":"\"model\":\"base-v2\""}"#;

        assert_eq!(restored([response.as_bytes()]), response);
    }

    #[test]
    fn names_are_matched_and_written_as_json() {
        let mut restorer = ModelRestorer::new("a\"b", "c\\d");

        let out = restorer.push(Bytes::from_static(br#"{"model":"a\"b"}"#));

        assert_eq!(out, br#"{"model":"c\\d"}"#.as_slice());
    }

    #[test]
    fn a_chunk_without_the_name_is_not_copied() {
        let mut restorer = ModelRestorer::new("base-v2", "base");
        let chunk = Bytes::from_static(b"data: {\"text\":\"hello\"}\n\n");

        let out = restorer.push(chunk.clone());

        assert_eq!(out.as_ptr(), chunk.as_ptr());
        assert_eq!(out.len(), chunk.len());
    }

    #[test]
    fn what_only_began_like_the_name_is_given_at_the_end() {
        let mut restorer = ModelRestorer::new("base-v2", "base");

        let out = restorer.push(Bytes::from_static(br#"{"model":"base-v"#));

        assert_eq!(out, b"{".as_slice());
        assert_eq!(restorer.finish(), br#""model":"base-v"#.as_slice());
        assert!(restorer.finish().is_empty());
    }

    #[test]
    fn no_more_is_held_than_one_place_less_a_byte() {
        let mut restorer = ModelRestorer::new("base-v2", "base");
        let place = br#""model": "base-v2""#;

        for _ in 0..1000 {
            restorer.push(Bytes::from_static(&place[..place.len() - 1]));
            assert!(restorer.held.len() < place.len());
        }
    }

    proptest! {
        #[test]
        fn where_a_stream_is_cut_does_not_show(
            words in proptest::collection::vec(
                prop_oneof![
                    Just(r#""model":"base-v2""#), Just(r#""model": "base-v2""#), Just(r#""model":"#),
                    Just(r#""base-v2""#), Just("\""), Just("\"mo"), Just(r#""model": "ba"#), Just(" "), Just("text"),
                ],
                0..30,
            ),
            cuts in proptest::collection::vec(any::<proptest::sample::Index>(), 0..20),
        ) {
            let whole = words.concat();
            let mut cuts: Vec<_> = cuts.iter().map(|cut| cut.index(whole.len() + 1)).collect();
            cuts.extend([0, whole.len()]);
            cuts.sort_unstable();

            let out = restored(cuts.windows(2).map(|pair| &whole.as_bytes()[pair[0]..pair[1]]));

            let wanted = whole
                .replace(r#""model":"base-v2""#, r#""model":"base""#)
                .replace(r#""model": "base-v2""#, r#""model": "base""#);
            prop_assert_eq!(out, wanted);
        }
    }
}
