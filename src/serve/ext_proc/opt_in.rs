//! The headers that responses get if the configuration asks for them.

use std::sync::Arc;

use bytes::Bytes;

use super::reply;
use super::wire::HeaderValueOption;
use crate::engine::config::responses::ResponsePlan;
use crate::serve::observe::record::RequestRecord;

/// Those headers for one request. One of which nothing is known is left out: the wait, where requests do not wait, and
/// the id, if the headers of the request never came.
pub(super) fn headers(plan: &ResponsePlan, record: &RequestRecord) -> impl Iterator<Item = HeaderValueOption> + use<> {
    let request_id = plan
        .request_id_header
        .as_ref()
        .filter(|_| !record.request_id.is_empty());
    let request_id = request_id.map(|name| header(name, record.request_id.as_bytes()));
    let wait = plan.queue_wait_header.as_ref().zip(record.waited);
    let wait = wait.map(|(name, waited)| header(name, waited.as_millis().to_string().as_bytes()));
    request_id.into_iter().chain(wait)
}

fn header(name: &Arc<str>, value: &[u8]) -> HeaderValueOption {
    reply::set_named(Bytes::copy_from_slice(name.as_bytes()), Bytes::copy_from_slice(value))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::engine::time::Timestamp;

    fn told(plan: &ResponsePlan, record: &RequestRecord) -> Vec<(String, String)> {
        let text = |bytes: &Bytes| String::from_utf8(bytes.to_vec()).unwrap();
        headers(plan, record)
            .map(|set| set.header.unwrap())
            .map(|header| (text(&header.key), text(&header.raw_value)))
            .collect()
    }

    #[test]
    fn what_was_asked_for_is_told_as_far_as_it_is_known() {
        let plan = ResponsePlan {
            request_id_header: Some("x-request-id".into()),
            queue_wait_header: Some("x-wait".into()),
            ..ResponsePlan::default()
        };
        let mut record = RequestRecord::new(Timestamp::ZERO);

        assert_eq!(told(&plan, &record), []);
        record.request_id = "r".into();
        record.waited = Some(Duration::from_micros(12_999));
        assert_eq!(
            told(&plan, &record),
            [("x-request-id".into(), "r".into()), ("x-wait".into(), "12".into())]
        );
        assert_eq!(told(&ResponsePlan::default(), &record), []);
    }
}
