//! What can be wrong with an endpoint.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::super::super::time::Timestamp;

/// How a scrape of an endpoint ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Scrape {
    /// Its metrics were read.
    Succeeded,
    /// They were not.
    Failed {
        /// Why.
        failure: ScrapeFailure,
        /// When the scrape began. What the endpoint answered since shows that it is alive.
        began: Timestamp,
    },
}

/// Why metrics could not be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ScrapeFailure {
    /// The port that requests go to refuses connections.
    Refused,
    /// The connection broke before the whole page came, or could not be made for another reason.
    Reset,
    /// Nothing, or not everything, came in time.
    Timeout,
    /// The server answered with this status.
    Status(u16),
    /// More came than any page should have.
    TooLong,
    /// What came has none of the wanted series.
    Unreadable,
}

impl ScrapeFailure {
    /// A stable name for metrics and pages.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Refused => "connection-refused",
            Self::Reset => "connection-failure",
            Self::Timeout => "timeout",
            Self::Status(_) => "status",
            Self::TooLong => "page-too-long",
            Self::Unreadable => "unreadable",
        }
    }

    /// True if the server did not say anything.
    pub(super) const fn is_silence(self) -> bool {
        matches!(self, Self::Refused | Self::Reset | Self::Timeout)
    }
}

impl fmt::Display for ScrapeFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused => f.write_str("connection refused"),
            Self::Reset => f.write_str("the connection for its metrics breaks"),
            Self::Timeout => f.write_str("its metrics do not come in time"),
            Self::Status(status) => write!(f, "it answers {status} to a request for its metrics"),
            Self::TooLong => f.write_str("its metrics page is longer than any page should be"),
            Self::Unreadable => f.write_str("its metrics page has none of the expected series"),
        }
    }
}

/// How a request failed at an endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RequestFailure {
    /// The gateway could not connect.
    Connect,
    /// The connection, or the stream, broke before the head of an answer.
    Reset,
    /// No answer began within the time that the gateway allows.
    Timeout,
    /// The server answered with this status, or the gateway did and does not say why.
    Status(u16),
    /// The gateway was given this endpoint and went to one further down the list.
    PassedOver,
    /// The gateway asked again for the same request.
    Retried,
    /// The client gave up after a long wait in which the endpoint answered no request at all.
    NoAnswer,
}

impl RequestFailure {
    /// Every failure by its [`name`](Self::name), in the order of this page.
    pub const NAMES: [&'static str; 7] = [
        "connect-failure",
        "reset",
        "timeout",
        "status-5xx",
        "passed-over",
        "retried",
        "no-answer",
    ];

    /// A stable name for metrics and pages.
    pub const fn name(self) -> &'static str {
        Self::NAMES[self.index()]
    }

    pub(super) const fn index(self) -> usize {
        match self {
            Self::Connect => 0,
            Self::Reset => 1,
            Self::Timeout => 2,
            Self::Status(_) => 3,
            Self::PassedOver => 4,
            Self::Retried => 5,
            Self::NoAnswer => 6,
        }
    }
}

impl fmt::Display for RequestFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Connect => f.write_str("connect failure"),
            Self::Reset => f.write_str("reset before an answer"),
            Self::Timeout => f.write_str("no answer in time"),
            Self::Status(status) => write!(f, "status {status}"),
            Self::PassedOver => f.write_str("the gateway went to another endpoint of the list"),
            Self::Retried => f.write_str("the gateway asked again for the same request"),
            Self::NoAnswer => f.write_str("no answer until the client gave up"),
        }
    }
}

/// Why an endpoint is not healthy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// Its metrics cannot be read.
    Scrape(ScrapeFailure),
    /// Requests to it fail.
    Request(RequestFailure),
}

impl Reason {
    /// A stable name for metrics and pages.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Scrape(failure) => failure.name(),
            Self::Request(failure) => failure.name(),
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Scrape(failure) => failure.fmt(f),
            Self::Request(failure) => failure.fmt(f),
        }
    }
}
