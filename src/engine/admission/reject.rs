//! Lets nothing in.

use std::convert::Infallible;

use super::super::plugin::{Needs, NoParams, Plugin};
use super::super::request::Request;
use super::super::time::Timestamp;
use super::{Admission, AdmissionPolicy, View};

/// No request may come in: for tests of what clients do then, and to take a pool out of service.
#[derive(Debug)]
pub(super) struct RejectAll;

impl Plugin for RejectAll {
    const TYPE: &'static str = "reject-all";
    const SUMMARY: &'static str = "lets no request in";
    type Params = NoParams;
    type Error = Infallible;

    fn from_params(_: NoParams, _: &mut Needs) -> Result<Self, Infallible> {
        Ok(Self)
    }
}

impl AdmissionPolicy for RejectAll {
    fn admit(&mut self, _: Timestamp, _: &Request, _: View<'_>) -> Admission {
        Admission::Reject {
            reason: "reject-all".into(),
            retry_after: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::request::Kind;
    use super::super::super::scheduling::testing::Scene;
    use super::*;

    #[test]
    fn the_smallest_request_is_rejected_without_hope() {
        let request = Request::unknown(Kind::Inference);

        assert_eq!(
            Scene::new().admits(&mut RejectAll, &request),
            Admission::Reject {
                reason: "reject-all".into(),
                retry_after: None
            }
        );
    }
}
