//! Drives a real endpoint with a workload, and writes down what it did: the live counterpart of a simulated run.
//!
//! ```text
//! Workload ── next_arrival, take ──▶ observe() ── Ask, with its prompt ──▶ Server (HttpServer, over sockets)
//!     ▲                               │  ▲                                      │
//!     └──── ended (conversations) ────┘  └──────────── Heard, Status ───────────┘
//!                                     ▼
//!                     Observed: rows of a trace, and the record of a run
//! ```
//!
//! - `words`: what prompts consist of, so that prefixes are really shared; `dialogue`: what was said in conversations
//! - `ask`: a request, and how it is written; `http`: sending it, and reading the answer as it comes
//! - `run`: when each is sent; `observed`: what was seen, as a trace and for the reports
//! - `probe`, `kv`: what is asked of the server beside the workload
//!
//! What always holds: a request is sent no earlier than it arrives, and no more are under way than allowed; one that has to
//! wait for a place is sent late, and that is counted. Every request that was sent is in the record, with one status. Times
//! are microseconds of a clock that never goes back, from the start of the run. Only [`HttpServer`] knows sockets: all the
//! rest runs under a paused clock in tests.

mod ask;
mod dialogue;
mod http;
mod kv;
mod observed;
mod probe;
mod run;
#[cfg(test)]
mod testing;
mod words;

pub use ask::{Api, Ask, Lengths, Message, Role};
pub use http::{HttpOptions, HttpServer, SetupError};
pub use kv::{KvCounters, KvError, kv_counters};
pub use observed::{Lateness, Observed, RequestStory};
pub use probe::{ProbeError, Probed, prewarm, probe};
pub use run::{Heard, Options, Progress, Server, Trouble, observe};
pub use words::{WORDS, Words};
