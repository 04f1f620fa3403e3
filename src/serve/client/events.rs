//! Server-sent events, as they come.

/// The longest event that is kept, and the longest line.
pub const MAX_EVENT_BYTES: usize = 4 << 20;

/// An event has no end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("an event is longer than {MAX_EVENT_BYTES} bytes")]
pub struct TooLong;

/// Finds the events in a stream that comes in pieces, however it was cut. Only the data of events is looked at.
#[derive(Debug, Default)]
pub struct Events {
    /// The beginning of a line whose end has not come yet.
    line: Vec<u8>,
    /// The data of the event that has not ended yet.
    data: Option<Vec<u8>>,
    /// The line before ended in a carriage return, whose line feed may still come.
    after_return: bool,
}

impl Events {
    /// Takes the next bytes, and gives the data of each event that ends in them to `event`.
    ///
    /// # Errors
    ///
    /// If an event or a line is longer than [`MAX_EVENT_BYTES`]. What is fed after that means nothing.
    pub fn feed(&mut self, mut bytes: &[u8], mut event: impl FnMut(&[u8])) -> Result<(), TooLong> {
        while let Some(end) = memchr::memchr2(b'\n', b'\r', bytes) {
            let ends_the_line_before = self.after_return && end == 0 && bytes[0] == b'\n';
            self.after_return = bytes[end] == b'\r';
            if !ends_the_line_before {
                self.line.extend_from_slice(&bytes[..end]);
                let mut line = std::mem::take(&mut self.line);
                self.end_line(&line, &mut event)?;
                line.clear();
                self.line = line;
            }
            bytes = &bytes[end + 1..];
        }
        if !bytes.is_empty() {
            self.after_return = false;
            self.line.extend_from_slice(bytes);
        }
        if self.line.len() > MAX_EVENT_BYTES {
            return Err(TooLong);
        }
        Ok(())
    }

    fn end_line(&mut self, line: &[u8], event: &mut impl FnMut(&[u8])) -> Result<(), TooLong> {
        if line.is_empty() {
            if let Some(data) = self.data.take() {
                event(&data);
            }
            return Ok(());
        }
        let value = match line.strip_prefix(b"data") {
            Some([]) => &[][..],
            Some([b':', b' ', value @ ..] | [b':', value @ ..]) => value,
            _ => return Ok(()),
        };
        match &mut self.data {
            None => self.data = Some(value.to_vec()),
            Some(data) => {
                data.push(b'\n');
                data.extend_from_slice(value);
                if data.len() > MAX_EVENT_BYTES {
                    return Err(TooLong);
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn fed<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> Vec<String> {
        let mut events = Events::default();
        let mut found = Vec::new();
        for piece in pieces {
            let data = |data: &[u8]| found.push(String::from_utf8(data.to_vec()).unwrap());
            events.feed(piece, data).unwrap();
        }
        found
    }

    #[test]
    fn events_end_with_an_empty_line() {
        let stream = b"data: a\n\nevent: x\nid: 7\ndata:b\n: comment\ndata: c\n\ndata\n\ndata: unfinished\n";

        assert_eq!(fed([&stream[..]]), ["a", "b\nc", ""]);
    }

    #[test]
    fn lines_end_in_any_way() {
        assert_eq!(fed([&b"data: a\r\n\r\ndata: b\r\rdata: c\n\n"[..]]), ["a", "b", "c"]);
    }

    #[test]
    fn an_event_without_end_is_not_kept() {
        let mut events = Events::default();
        let line = vec![b'x'; MAX_EVENT_BYTES];

        assert_eq!(events.feed(&line, |_| {}), Ok(()));
        assert_eq!(events.feed(b"x", |_| {}), Err(TooLong));
    }

    #[test]
    fn an_event_of_many_lines_is_not_kept_either() {
        let mut events = Events::default();
        let line = [b"data: ", &vec![b'x'; MAX_EVENT_BYTES / 2][..], b"\n"].concat();

        assert_eq!(events.feed(&line, |_| {}), Ok(()));
        assert_eq!(events.feed(&line, |_| {}), Err(TooLong));
    }

    proptest! {
        #[test]
        fn it_does_not_matter_how_a_stream_is_cut(
            lines in proptest::collection::vec("(data: ?)?[ab:]{0,3}(\n|\r\n|\r)", 0..12),
            cuts in proptest::collection::vec(0..60_usize, 0..6),
        ) {
            let stream = lines.concat().into_bytes();
            let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(stream.len())).collect();
            cuts.sort_unstable();
            let ends = cuts.iter().copied().chain([stream.len()]);
            let begins = [0].into_iter().chain(cuts.iter().copied());
            let pieces = begins.zip(ends).map(|(begin, end)| &stream[begin..end]);

            prop_assert_eq!(fed(pieces), fed([&stream[..]]));
        }
    }
}
