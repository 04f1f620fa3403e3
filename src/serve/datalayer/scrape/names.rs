//! The names of metrics that are looked for, and a quick way to see that a line has none of them.

/// A set of metric names.
#[derive(Debug)]
pub(super) struct Names {
    names: Vec<String>,
    /// What all names begin with. Shorter than each of them.
    common: Vec<u8>,
    /// By byte: whether a name goes on like this after the common beginning.
    goes_on: Box<[bool; 256]>,
}

impl Names {
    pub(super) fn new<'a>(names: impl Iterator<Item = &'a str>) -> Self {
        let mut all: Vec<String> = names.map(str::to_owned).collect();
        all.sort_unstable();
        all.dedup();
        let shortest = all.iter().map(String::len).min().unwrap_or(0);
        let agree = |place: usize| {
            all.iter()
                .all(|name| name.as_bytes()[place] == all[0].as_bytes()[place])
        };
        let length = (0..shortest.saturating_sub(1))
            .take_while(|&place| agree(place))
            .count();
        let mut goes_on = Box::new([false; 256]);
        for name in &all {
            goes_on[usize::from(name.as_bytes()[length])] = true;
        }
        Self {
            common: all
                .first()
                .map_or_else(Vec::new, |name| name.as_bytes()[..length].to_vec()),
            names: all,
            goes_on,
        }
    }

    /// The number of a name.
    pub(super) fn position(&self, name: &str) -> Option<usize> {
        self.names.binary_search_by(|known| known.as_str().cmp(name)).ok()
    }

    /// The number of the name that `line` begins with, and the rest of the line.
    pub(super) fn split<'l>(&self, line: &'l [u8]) -> Option<(usize, &'l [u8])> {
        let line = line.trim_ascii_start();
        let next = *line.get(self.common.len())?;
        if !self.goes_on[usize::from(next)] || !line.starts_with(&self.common) {
            return None;
        }
        let end = line.iter().position(|&byte| !is_name_byte(byte)).unwrap_or(line.len());
        let (name, rest) = line.split_at(end);
        let number = self.names.binary_search_by(|known| known.as_bytes().cmp(name)).ok()?;
        Some((number, rest))
    }
}

fn is_name_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || byte == b':'
}
