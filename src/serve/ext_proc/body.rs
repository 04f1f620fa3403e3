//! Request bodies on their way in, within a bound, and bodies on their way out, in pieces.

use bytes::{Bytes, BytesMut};

/// The largest piece of a body in a full-duplex answer (spec, ext-proc 2.5).
pub(super) const PIECE_BYTES: usize = 62_000;

/// The most that is allocated on a client's word alone.
const MAX_TRUSTED_LENGTH: usize = 1024 * 1024;

/// A request body that is coming in. A body of one chunk is not copied.
#[derive(Debug, Default)]
pub(super) struct Incoming {
    only: Bytes,
    joined: BytesMut,
}

/// The body went past its bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TooLarge;

impl Incoming {
    /// Adds a chunk. `announced` is the content length that the client gave.
    pub(super) fn push(&mut self, chunk: Bytes, limit: usize, announced: Option<u64>) -> Result<(), TooLarge> {
        let length = self.len() + chunk.len();
        if length > limit {
            return Err(TooLarge);
        }
        if self.joined.is_empty() && self.only.is_empty() {
            self.only = chunk;
            return Ok(());
        }
        if self.joined.is_empty() {
            let announced = announced.and_then(|length| usize::try_from(length).ok()).unwrap_or(0);
            self.joined
                .reserve(announced.min(MAX_TRUSTED_LENGTH).min(limit).max(2 * length));
            self.joined.extend_from_slice(&std::mem::take(&mut self.only));
        }
        self.joined.extend_from_slice(&chunk);
        Ok(())
    }

    /// The body so far.
    pub(super) fn take(&mut self) -> Bytes {
        if self.joined.is_empty() {
            return std::mem::take(&mut self.only);
        }
        std::mem::take(&mut self.joined).freeze()
    }

    /// Bytes that are held for it.
    pub(super) fn allocated(&self) -> usize {
        self.only.len() + self.joined.capacity()
    }

    fn len(&self) -> usize {
        self.only.len() + self.joined.len()
    }
}

/// Cuts a body, given in parts, into pieces that a full-duplex answer may have. None for an empty body.
pub(super) fn pieces<'b>(parts: impl IntoIterator<Item = &'b Bytes>) -> impl Iterator<Item = Bytes> {
    parts.into_iter().flat_map(|part| {
        let starts = (0..part.len()).step_by(PIECE_BYTES);
        starts.map(|start| part.slice(start..part.len().min(start + PIECE_BYTES)))
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_body_of_one_chunk_is_not_copied() {
        let chunk = Bytes::from_static(b"{}");
        let mut incoming = Incoming::default();

        incoming.push(Bytes::new(), 10, None).unwrap();
        incoming.push(chunk.clone(), 10, None).unwrap();

        assert_eq!(incoming.take().as_ptr(), chunk.as_ptr());
    }

    #[test]
    fn the_byte_beyond_the_bound_is_one_too_many() {
        let mut incoming = Incoming::default();

        assert_eq!(incoming.push(Bytes::from_static(b"abc"), 4, Some(u64::MAX)), Ok(()));
        assert_eq!(incoming.push(Bytes::from_static(b"d"), 4, None), Ok(()));
        assert_eq!(incoming.push(Bytes::from_static(b"e"), 4, None), Err(TooLarge));
        assert_eq!(incoming.take(), "abcd");
    }

    proptest! {
        #[test]
        fn a_body_is_the_sum_of_its_chunks(chunks in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..9), 0..9)) {
            let mut incoming = Incoming::default();

            for chunk in &chunks {
                incoming.push(Bytes::copy_from_slice(chunk), 100, None).unwrap();
            }

            prop_assert_eq!(incoming.take(), chunks.concat());
        }

        #[test]
        fn pieces_are_small_and_add_up(lengths in prop::collection::vec(0..200_000_usize, 0..4)) {
            let parts: Vec<_> = lengths.iter().map(|&length| Bytes::from(vec![7; length])).collect();

            let pieces: Vec<_> = pieces(&parts).collect();

            prop_assert!(pieces.iter().all(|piece| (1..=PIECE_BYTES).contains(&piece.len())));
            prop_assert_eq!(pieces.iter().map(Bytes::len).sum::<usize>(), lengths.iter().sum::<usize>());
        }
    }
}
