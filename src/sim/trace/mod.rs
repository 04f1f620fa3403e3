//! Files that keep what was sent and what became of it (trace format v2, spec, simulator 21), and workloads that send it
//! once more (22).
//!
//! A trace is a header in YAML ([`Header`]), the requests in CSV ([`Row`], [`read_rows`], [`write_rows`]), and if wanted the
//! time of each piece of each answer ([`ItlRow`]). [`replay()`] makes a [`Workload`](super::workload::Workload) of it.
//!
//! A trace does not keep the tokens. They are drawn anew, and what must be alike (the prefix of a group, and what was said
//! before in a conversation) is. For the latter there is a column that the reference does not have, `context_tokens`; its
//! reader passes over it.
//!
//! Nothing here opens a file: text, [`std::io::Read`] and [`std::io::Write`] come in.

mod data;
mod export;
mod header;
mod itl;
mod replay;
mod row;
#[cfg(test)]
mod tests;

pub use data::{RowError, read_rows, write_rows};
pub use header::{Header, KvMetrics, Mode, NetworkNote, ServerNote, TRACE_VERSION, TimeUnit};
pub use itl::{ItlRow, read_itl, write_itl};
pub use replay::{ReplayError, ReplayOptions, SessionMode, replay};
pub use row::{Row, Status};
