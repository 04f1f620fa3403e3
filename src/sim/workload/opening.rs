//! Requests whose time of arrival is known beforehand, whatever becomes of others.

use super::super::request::SimRequest;
use super::session::Session;

/// A request that was not brought about by another one's end.
#[derive(Debug)]
pub(in crate::sim) struct Opening {
    /// The request.
    pub(in crate::sim) request: SimRequest,
    /// Its number. If there is none, it is counted.
    pub(in crate::sim) number: Option<u64>,
    /// What goes on once it has ended.
    pub(in crate::sim) session: Option<Session>,
}

impl Opening {
    /// A request that nothing follows from, to be counted.
    pub(super) fn alone(request: SimRequest) -> Self {
        Self {
            request,
            number: None,
            session: None,
        }
    }
}

/// Where openings come from.
pub(in crate::sim) trait Openings: std::fmt::Debug + Send {
    /// When the next one arrives. Never earlier than the one before.
    fn next_at(&self) -> Option<u64>;

    /// The next one.
    fn take(&mut self) -> Option<Opening>;
}
