//! Errors in words, for logs and statuses, where nobody else tells what they came from.

use std::error::Error;

/// The error, and what it came from. What an error says of its cause itself is not said again.
pub(crate) fn with_causes(error: &(dyn Error + 'static)) -> String {
    let mut words = error.to_string();
    for cause in std::iter::successors(error.source(), |cause| (*cause).source()) {
        let text = cause.to_string();
        if !words.contains(&text) {
            words.push_str(": ");
            words.push_str(&text);
        }
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("{words}")]
    struct Link {
        words: &'static str,
        source: Option<Box<Link>>,
    }

    fn chain(words: &[&'static str]) -> Option<Box<Link>> {
        let (first, rest) = words.split_first()?;
        Some(Box::new(Link {
            words: first,
            source: chain(rest),
        }))
    }

    fn told(words: &[&'static str]) -> String {
        with_causes(&*chain(words).unwrap())
    }

    #[test]
    fn causes_follow_the_error() {
        assert_eq!(
            told(&["no list", "no connection", "refused"]),
            "no list: no connection: refused"
        );
    }

    #[test]
    fn a_cause_that_was_told_already_is_not_told_again() {
        assert_eq!(
            told(&["no list: refused", "refused", "by whom"]),
            "no list: refused: by whom"
        );
    }
}
