//! Admission: what may come in at all, before it waits or is routed.

use std::fmt::Debug;
use std::time::Duration;

use super::plugin::{Entry, Plugin, instance};
use super::request::Request;
use super::time::Timestamp;

/// Decides whether a request may come in.
pub trait AdmissionPolicy: Debug + Send {
    /// Called once for each request, in order of arrival; `now` does not go back.
    fn admit(&mut self, now: Timestamp, request: &Request) -> Admission;
}

/// Whether a request may come in.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Admission {
    /// It may.
    Admit,
    /// It may not.
    Reject {
        /// Why, for the client.
        reason: &'static str,
        /// When it could be admitted, as far as the policy can tell.
        retry_after: Option<Duration>,
    },
}
