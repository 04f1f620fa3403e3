//! Lets everything in.

use std::convert::Infallible;

use super::super::plugin::{Needs, NoParams, Plugin};
use super::super::request::Request;
use super::super::time::Timestamp;
use super::{Admission, AdmissionPolicy, View};

/// Every request may come in. What is used when a configuration names no policy.
#[derive(Debug)]
pub(super) struct AlwaysAdmit;

impl Plugin for AlwaysAdmit {
    const TYPE: &'static str = "always-admit";
    const SUMMARY: &'static str = "lets every request in";
    type Params = NoParams;
    type Error = Infallible;

    fn from_params(_: NoParams, _: &mut Needs) -> Result<Self, Infallible> {
        Ok(Self)
    }
}

impl AdmissionPolicy for AlwaysAdmit {
    fn admit(&mut self, _: Timestamp, _: &Request, _: View<'_>) -> Admission {
        Admission::Admit
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::request::Kind;
    use super::super::super::scheduling::testing::Scene;
    use super::*;

    #[test]
    fn the_largest_request_may_come_in() {
        let request = Request {
            prompt_tokens: u32::MAX,
            ..Request::unknown(Kind::Inference)
        };

        assert_eq!(Scene::new().admits(&mut AlwaysAdmit, &request), Admission::Admit);
    }
}
