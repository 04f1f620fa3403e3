//! The endpoints to which the gateway restricts a request (spec, ext-proc 5).

use std::net::{IpAddr, SocketAddr};

use prost_types::value::Kind;

use super::headers::SUBSET;
use super::metadata;
use super::wire::Metadata;
use crate::engine::request::{Subset, SubsetEntry};

/// The metadata namespace of the hint.
const NAMESPACE: &str = "envoy.lb.subset_hint";

/// The subset in the metadata of a message: a list, a text with commas, or a list of such texts (a gateway that writes
/// what a header says puts all of it in one item). `None` if there is no hint in it. Entries that are no addresses match
/// nothing.
pub(super) fn hint(metadata: &Metadata) -> Option<Subset> {
    match metadata::value(metadata, NAMESPACE, SUBSET)? {
        Kind::ListValue(list) => {
            let texts = list.values.iter().filter_map(|value| match &value.kind {
                Some(Kind::StringValue(text)) => Some(text.as_str()),
                _ => None,
            });
            Some(Subset::Only(texts.flat_map(entries).collect()))
        }
        Kind::StringValue(text) if !text.trim().is_empty() => Some(Subset::Only(entries(&text).collect())),
        _ => None,
    }
}

fn entries(text: &str) -> impl Iterator<Item = SubsetEntry> {
    text.split(',').filter_map(entry)
}

/// One entry: `10.0.0.1`, `10.0.0.1:8000`, `fd00::1`, `[fd00::1]` or `[fd00::1]:8000`.
fn entry(text: &str) -> Option<SubsetEntry> {
    let text = text.trim();
    if let Ok(socket) = text.parse::<SocketAddr>() {
        return Some(SubsetEntry::Socket(socket));
    }
    let host = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
    let host: IpAddr = host.unwrap_or(text).parse().ok()?;
    Some(SubsetEntry::Host(host))
}

#[cfg(test)]
mod tests {
    use prost_types::{ListValue, Value};

    use super::*;

    fn text(text: &str) -> Value {
        Value {
            kind: Some(Kind::StringValue(text.into())),
        }
    }

    fn list(entries: &[&str]) -> Value {
        let values = entries.iter().copied().map(text).collect();
        Value {
            kind: Some(Kind::ListValue(ListValue { values })),
        }
    }

    fn metadata(hint: &Value) -> Metadata {
        metadata::untyped(NAMESPACE, SUBSET, hint)
    }

    fn socket(text: &str) -> SubsetEntry {
        SubsetEntry::Socket(text.parse().unwrap())
    }

    fn host(text: &str) -> SubsetEntry {
        SubsetEntry::Host(text.parse().unwrap())
    }

    #[test]
    fn lists_and_texts_with_commas_and_lists_of_these_say_the_same() {
        let expected = Some(Subset::Only(vec![socket("10.0.0.1:8000"), host("10.0.0.2")]));

        assert_eq!(hint(&metadata(&list(&["10.0.0.1:8000", "10.0.0.2"]))), expected);
        assert_eq!(hint(&metadata(&text("10.0.0.1:8000, 10.0.0.2"))), expected);
        assert_eq!(hint(&metadata(&list(&["10.0.0.1:8000,10.0.0.2"]))), expected);
    }

    #[test]
    fn addresses_of_both_families_may_have_a_port() {
        let entries = list(&["fd00::1", "[fd00::2]", "[fd00::3]:8000"]);

        let expected = vec![host("fd00::1"), host("fd00::2"), socket("[fd00::3]:8000")];
        assert_eq!(hint(&metadata(&entries)), Some(Subset::Only(expected)));
    }

    #[test]
    fn an_empty_list_allows_nobody() {
        assert_eq!(hint(&metadata(&list(&[]))), Some(Subset::Only(vec![])));
    }

    #[test]
    fn what_is_no_address_matches_nobody() {
        assert_eq!(
            hint(&metadata(&list(&["pod-1", "1.2.3.4:x"]))),
            Some(Subset::Only(vec![]))
        );
    }

    #[test]
    fn other_metadata_is_no_hint() {
        let number = Value {
            kind: Some(Kind::NumberValue(1.0)),
        };

        assert_eq!(hint(&Metadata::default()), None);
        assert_eq!(hint(&metadata(&number)), None);
        assert_eq!(hint(&metadata(&text(""))), None);
    }
}
