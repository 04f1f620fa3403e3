//! Which instances of a cluster a flag is about.

use std::ops::RangeInclusive;

use anyhow::ensure;

/// Some instances, or all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Range {
    All,
    /// From the first to the last, both included.
    From(u32, u32),
}

impl Range {
    /// Reads `2`, `0..3`, both ends included, or `all`.
    pub(super) fn read(text: &str) -> Option<Self> {
        let number = |text: &str| text.trim().parse::<u32>().ok();
        Some(match (text.trim(), text.split_once("..")) {
            ("all", _) => Self::All,
            (_, Some((first, last))) => Self::From(number(first)?, number(last.trim_start_matches('='))?),
            (one, None) => Self::From(number(one)?, number(one)?),
        })
    }

    /// True if the first is above the last.
    pub(super) fn is_empty(self) -> bool {
        matches!(self, Self::From(first, last) if first > last)
    }

    /// The instances among `count`, of which there is one at least.
    ///
    /// # Errors
    ///
    /// Names `flag` if one of them is not there.
    pub(super) fn of(self, count: u32, flag: &str) -> anyhow::Result<RangeInclusive<u32>> {
        let last_instance = count - 1;
        let (first, last) = match self {
            Self::All => (0, last_instance),
            Self::From(first, last) => (first, last),
        };
        ensure!(
            last <= last_instance,
            "`--{flag}` is given for instance {last}, and the last one is {last_instance}"
        );
        Ok(first..=last)
    }
}
