//! Lines of bounded length.

use std::io;

use tracing_subscriber::fmt::MakeWriter;

/// The longest line, in bytes. Clients choose parts of some, such as the names of models.
pub(super) const MAX_BYTES: usize = 4096;

/// What a line that was cut ends with.
const CUT: &[u8] = b" [cut]\n";

/// Cuts lines that are too long.
#[derive(Clone, Debug)]
pub struct Lines<W>(pub W);

/// One line.
#[derive(Debug)]
pub struct Line<W: io::Write> {
    output: W,
}

impl<'w, W: io::Write + Clone + 'w> MakeWriter<'w> for Lines<W> {
    type Writer = Line<W>;

    fn make_writer(&'w self) -> Self::Writer {
        Line { output: self.0.clone() }
    }
}

impl<W: io::Write> io::Write for Line<W> {
    /// Takes a whole line, which is how a formatter writes.
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        if line.len() <= MAX_BYTES {
            self.output.write_all(line)?;
        } else {
            let end = (0..=MAX_BYTES - CUT.len()).rev().find(|at| is_boundary(line, *at));
            let cut = [&line[..end.unwrap_or(0)], CUT].concat();
            self.output.write_all(&cut)?;
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.output.flush()
    }
}

/// True if no character of UTF-8 is cut in two at `at`.
fn is_boundary(text: &[u8], at: usize) -> bool {
    text.get(at).is_none_or(|byte| byte & 0xc0 != 0x80)
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    fn written(line: &str) -> String {
        let mut output = Vec::new();
        Line { output: &mut output }.write_all(line.as_bytes()).unwrap();
        String::from_utf8(output).unwrap()
    }

    #[test]
    fn a_line_that_is_too_long_is_cut_between_characters_and_says_so() {
        let line = format!("a{}\n", "ä".repeat(MAX_BYTES));

        let written = written(&line);

        assert!(written.len() <= MAX_BYTES && written.len() > MAX_BYTES - 2 * CUT.len());
        assert!(written.ends_with("ä [cut]\n"), "{}", &written[written.len() - 20..]);
    }

    #[test]
    fn other_lines_are_as_they_were() {
        assert_eq!(written("hello\n"), "hello\n");
    }
}
