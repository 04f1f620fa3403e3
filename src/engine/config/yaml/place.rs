//! Where the parts of a document stand.

/// The line of each part of a document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Positions {
    root: Place,
}

/// A value of the document, without the value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Place {
    /// Line of the key for a part of a mapping, else of the value's first character.
    pub(super) line: usize,
    pub(super) inner: Inner,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Inner {
    Scalar,
    Sequence(Vec<Place>),
    Mapping(Vec<(String, Place)>),
}

impl Positions {
    pub(super) fn new(root: Place) -> Self {
        Self { root }
    }

    /// The line, from 1, of the part at `path`, such as `plugins[2].parameters.x`, or of the nearest part around it
    /// that is there. The empty path is the document. Keys may themselves have dots and brackets.
    pub fn line(&self, path: &str) -> usize {
        let (mut place, mut rest) = (&self.root, path);
        while let Some((next, after)) = place.step(rest) {
            (place, rest) = (next, after);
        }
        place.line
    }
}

impl Place {
    pub(super) fn scalar(line: usize) -> Self {
        Self {
            line,
            inner: Inner::Scalar,
        }
    }

    /// The part that the first step of `path` leads to, and the rest of the path.
    fn step<'p>(&self, path: &'p str) -> Option<(&Self, &'p str)> {
        match &self.inner {
            Inner::Scalar => None,
            Inner::Sequence(items) => {
                let (index, rest) = path.strip_prefix('[')?.split_once(']')?;
                Some((items.get(index.parse::<usize>().ok()?)?, rest))
            }
            Inner::Mapping(entries) => {
                let path = path.strip_prefix('.').unwrap_or(path);
                let after = |key: &str| {
                    path.strip_prefix(key)
                        .filter(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
                };
                // Where `a` and `a.b` are both keys, the longer one is the likelier.
                let (key, place) = entries
                    .iter()
                    .filter(|(key, _)| after(key).is_some())
                    .max_by_key(|(key, _)| key.len())?;
                Some((place, &path[key.len()..]))
            }
        }
    }
}
