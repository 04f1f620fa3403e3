//! What is heard of the objects of a kind.

/// What was heard.
#[derive(Debug)]
pub(super) enum Change<K> {
    /// These are all.
    All {
        /// Those that can be read.
        objects: Vec<K>,
        /// The names of those that cannot: what was known of them holds.
        unread: Vec<String>,
    },
    /// One came or changed.
    Is(K),
    /// The one of this name is gone, or says nothing.
    Gone(String),
    /// The kind is not installed, or may not be read and never was.
    Absent,
}

impl<K> Change<K> {
    /// The same, said of what `f` makes of the objects.
    pub(super) fn map<L>(self, f: impl Fn(K) -> L) -> Change<L> {
        match self {
            Self::All { objects, unread } => Change::All {
                objects: objects.into_iter().map(f).collect(),
                unread,
            },
            Self::Is(one) => Change::Is(f(one)),
            Self::Gone(name) => Change::Gone(name),
            Self::Absent => Change::Absent,
        }
    }
}
