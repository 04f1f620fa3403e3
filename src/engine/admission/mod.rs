//! Admission: what may come in at all, before it waits or is routed.

mod always;
mod gaie_legacy;
mod reject;
mod tenant_budget;
mod tier_shed;
mod token_bucket;
mod view;

use std::borrow::Cow;
use std::fmt::Debug;
use std::time::Duration;

use super::plugin::{Entry, Plugin, instance};
use super::request::Request;
use super::time::Timestamp;

pub use view::{TenantLoad, View};

/// Decides whether a request may come in.
pub trait AdmissionPolicy: Debug + Send {
    /// Called once for each request, in order of arrival; `now` does not go back.
    fn admit(&mut self, now: Timestamp, request: &Request, view: View<'_>) -> Admission;
}

/// Whether a request may come in.
#[derive(Clone, Debug, PartialEq)]
pub enum Admission {
    /// It may.
    Admit,
    /// It may not.
    Reject {
        /// Why, for the client.
        reason: Cow<'static, str>,
        /// When it could be admitted, as far as the policy can tell.
        retry_after: Option<Duration>,
    },
    /// It may not, however long it waits: it is larger than what the policy ever lets in.
    TooLarge {
        /// How large it is and what the policy lets in, for the client.
        reason: Cow<'static, str>,
    },
}

/// Every admission policy. To add one: a file beside this one, and a line here.
pub const TABLE: &[Entry<dyn AdmissionPolicy>] = &[
    entry::<always::AlwaysAdmit>(),
    entry::<token_bucket::TokenBucket>(),
    entry::<tier_shed::TierShed>(),
    entry::<gaie_legacy::GaieLegacy>(),
    entry::<tenant_budget::TenantBudget>(),
    entry::<reject::RejectAll>(),
];

const fn entry<P: Plugin + AdmissionPolicy + 'static>() -> Entry<dyn AdmissionPolicy> {
    Entry::of::<P>(|params, needs| Ok(Box::new(instance::<P>(params, needs)?)))
}

/// The class of a request, for reasons: its objective, and without one `standard`.
fn class_of(request: &Request) -> &str {
    request.objective.as_deref().unwrap_or("standard")
}

#[cfg(test)]
mod conformance;
