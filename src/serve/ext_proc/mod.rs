//! The front towards Envoy: one gRPC stream for each HTTP request (spec, ext-proc).
//!
//! [`machine`] is the protocol of one stream and does no I/O; [`session`] drives one over a real stream; [`server`]
//! listens, and [`health`] tells whether the service is ready. The rest are parts of the machine: `headers`, `metadata`,
//! `subset`, `upstream` and `content` read what comes in, `reply` and `refusal` write what goes out, `modes` and `body` know
//! how bodies
//! travel. Below the server, `connection` is plain or under TLS, [`stay`] says how long it lasts, and `gather` makes few
//! writes of many. [`wire`] has the
//! messages.
//!
//! May import the engine's values, [`parse`](super::parse) and the traits of [`driver`](super::driver) and
//! [`observe`](super::observe).

mod body;
mod connection;
mod content;
mod gather;
mod headers;
pub mod health;
pub mod machine;
mod metadata;
mod modes;
mod opt_in;
mod refusal;
mod reply;
pub mod rewrite;
pub mod server;
pub mod service;
pub mod session;
pub mod stay;
mod subset;
pub mod tls;
mod tls_protocol;
mod upstream;
pub mod wire;

pub use headers::only_for_pickers;
pub(crate) use headers::{DESTINATION, DESTINATION_SERVED};

pub use machine::{DEFAULT_BODY_TIMEOUT, DEFAULT_MAX_BODY_BYTES, Settings, SubsetHints};
pub use reply::Scores;
