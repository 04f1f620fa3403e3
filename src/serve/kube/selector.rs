//! Label selectors in text, as `kubectl` takes them: `a=b`, `a!=b`, `a in (x,y)`, `a notin (x,y)`, `a`, `!a`.

use std::collections::{BTreeMap, BTreeSet};

use kube::core::{Expression, Selector};

use super::api::{LabelOperator, LabelRequirement, LabelSelector};

/// Why a text is no label selector.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SelectorError {
    /// There is nothing in it.
    #[error("the selector is empty; write one such as `app=vllm`")]
    Empty,
    /// A requirement has another form.
    #[error(
        "`{0}` is not a requirement; write `key=value`, `key!=value`, `key in (a,b)`, `key notin (a,b)`, `key` or `!key`"
    )]
    Requirement(String),
    /// A key cannot be one.
    #[error("`{0}` cannot be the key of a label")]
    Key(String),
    /// An operator and the number of values do not go together.
    #[error("`{operator}` {needs} `values`: `{key}` has {count}")]
    Values {
        /// The operator.
        operator: &'static str,
        /// What it has to do with values.
        needs: &'static str,
        /// The label.
        key: String,
        /// How many there are.
        count: usize,
    },
    /// A value cannot be one.
    #[error(
        "`{0}` cannot be the value of a label: at most 63 letters, digits, `-`, `_` and `.`, with a letter or digit at each end"
    )]
    Value(String),
}

/// Reads a selector.
///
/// # Errors
///
/// The first requirement that is none is named.
pub fn parse(text: &str) -> Result<Selector, SelectorError> {
    if text.trim().is_empty() {
        return Err(SelectorError::Empty);
    }
    requirements(text).map(requirement).collect()
}

/// Checks labels that pods must have, as a pool lists them.
///
/// As text, a value with a comma would be two requirements, and one with a space none that the API server takes.
///
/// # Errors
///
/// There are none, or one cannot be a label.
pub(super) fn check_labels(labels: &BTreeMap<String, String>) -> Result<(), SelectorError> {
    if labels.is_empty() {
        return Err(SelectorError::Empty);
    }
    for (label, wanted) in labels {
        if key(label)? != *label {
            return Err(SelectorError::Key(label.clone()));
        }
        if value(wanted)? != *wanted {
            return Err(SelectorError::Value(wanted.clone()));
        }
    }
    Ok(())
}

/// A selector as objects have it.
///
/// # Errors
///
/// There is nothing in it, or the first part that cannot be is named.
pub(super) fn of(selector: &LabelSelector) -> Result<Selector, SelectorError> {
    if !selector.match_labels.is_empty() {
        check_labels(&selector.match_labels)?;
    } else if selector.match_expressions.is_empty() {
        return Err(SelectorError::Empty);
    }
    let labels = selector.match_labels.clone().into_iter();
    labels
        .map(|(key, value)| Ok(Expression::Equal(key, value)))
        .chain(selector.match_expressions.iter().map(expression))
        .collect()
}

fn expression(required: &LabelRequirement) -> Result<Expression, SelectorError> {
    let key = key(&required.key)?;
    let values = required.values.iter().map(|text| value(text));
    let values = values.collect::<Result<BTreeSet<_>, _>>()?;
    let (operator, takes_values) = match required.operator {
        LabelOperator::In => ("In", true),
        LabelOperator::NotIn => ("NotIn", true),
        LabelOperator::Exists => ("Exists", false),
        LabelOperator::DoesNotExist => ("DoesNotExist", false),
    };
    if takes_values == values.is_empty() {
        let needs = if takes_values { "needs" } else { "takes no" };
        return Err(SelectorError::Values {
            operator,
            needs,
            key,
            count: values.len(),
        });
    }
    Ok(match required.operator {
        LabelOperator::In => Expression::In(key, values),
        LabelOperator::NotIn => Expression::NotIn(key, values),
        LabelOperator::Exists => Expression::Exists(key),
        LabelOperator::DoesNotExist => Expression::DoesNotExist(key),
    })
}

/// The parts between the commas that are not within parentheses.
fn requirements(text: &str) -> impl Iterator<Item = &str> {
    let mut depth = 0;
    text.split(move |c| {
        match c {
            '(' => depth += 1,
            ')' => depth -= 1,
            _ => {}
        }
        c == ',' && depth == 0
    })
    .map(str::trim)
}

fn requirement(text: &str) -> Result<Expression, SelectorError> {
    let wrong = || SelectorError::Requirement(text.to_owned());
    if let Some(absent) = text.strip_prefix('!') {
        return Ok(Expression::DoesNotExist(key(absent)?));
    }
    if let Some((left, right)) = text.split_once("!=") {
        return Ok(Expression::NotEqual(key(left)?, value(right)?));
    }
    if let Some((left, right)) = text.split_once('=') {
        let right = right.strip_prefix('=').unwrap_or(right);
        return Ok(Expression::Equal(key(left)?, value(right)?));
    }
    if let Some(open) = text.find('(') {
        let inner = text[open + 1..].strip_suffix(')').ok_or_else(wrong)?;
        let values = inner.split(',').map(value).collect::<Result<BTreeSet<_>, _>>()?;
        let (left, word) = text[..open]
            .trim_end()
            .rsplit_once(char::is_whitespace)
            .ok_or_else(wrong)?;
        return match word {
            "in" => Ok(Expression::In(key(left)?, values)),
            "notin" => Ok(Expression::NotIn(key(left)?, values)),
            _ => Err(wrong()),
        };
    }
    if text.is_empty() || text.contains(char::is_whitespace) {
        return Err(wrong());
    }
    Ok(Expression::Exists(key(text)?))
}

/// The longest value, and the longest name within a key.
const LONGEST: usize = 63;
/// The longest prefix of a key.
const LONGEST_PREFIX: usize = 253;

fn key(text: &str) -> Result<String, SelectorError> {
    let text = text.trim();
    let (prefix, name) = match text.split_once('/') {
        Some((prefix, name)) => (Some(prefix), name),
        None => (None, text),
    };
    let is_prefix = |prefix: &str| {
        prefix.len() <= LONGEST_PREFIX
            && prefix.split('.').all(|part| {
                is_word(part)
                    && part
                        .bytes()
                        .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
            })
    };
    if is_word(name) && prefix.is_none_or(is_prefix) {
        return Ok(text.to_owned());
    }
    Err(SelectorError::Key(text.to_owned()))
}

fn value(text: &str) -> Result<String, SelectorError> {
    let text = text.trim();
    if text.is_empty() || is_word(text) {
        return Ok(text.to_owned());
    }
    Err(SelectorError::Value(text.to_owned()))
}

fn is_word(text: &str) -> bool {
    let ends = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
    let bytes = text.as_bytes();
    ends(bytes.first())
        && ends(bytes.last())
        && bytes.len() <= LONGEST
        && bytes
            .iter()
            .all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn normal(text: &str) -> String {
        parse(text).unwrap().to_string()
    }

    #[test]
    fn every_form_of_a_requirement_is_read() {
        assert_eq!(
            normal("app=vllm, llm-d.ai/role==decode ,tier!=x,zone in (a, b),env notin (dev),gpu,!draft"),
            "app=vllm,llm-d.ai/role=decode,tier!=x,zone in (a,b),env notin (dev),gpu,!draft"
        );
        assert_eq!(normal("a="), "a=");
    }

    #[test]
    fn what_is_no_selector_is_refused_and_the_part_is_named() {
        for (text, part) in [
            ("", "empty"),
            (" ", "empty"),
            ("a=b,,c=d", "``"),
            ("a b", "`a b`"),
            ("a in x", "`a in x`"),
            ("a in (x", "`a in (x`"),
            ("a with (x)", "`a with (x)`"),
            ("-a=b", "`-a`"),
            ("A.b/c=d", "`A.b/c`"),
            ("a=b c", "`b c`"),
            ("a in (x y)", "`x y`"),
        ] {
            let error = parse(text).unwrap_err().to_string();

            assert!(error.contains(part), "{text}: {error}");
        }
    }

    #[test]
    fn labels_of_a_pool_are_such_as_a_pod_can_have() {
        let check = |key: &str, value: &str| check_labels(&BTreeMap::from([(key.to_owned(), value.to_owned())]));

        for (key, value) in [("app", "vllm"), ("llm-d.ai/role", "decode"), ("app", "")] {
            assert_eq!(check(key, value), Ok(()), "{key}={value}");
        }
        for value in ["my app", "a,b", " a", "a ", "-a", "a=b", "!a", "(a)"] {
            assert!(matches!(check("app", value), Err(SelectorError::Value(_))), "{value}");
        }
        for key in ["my app", "a,b", " a", "", "a/b/c", "!a"] {
            assert!(matches!(check(key, "vllm"), Err(SelectorError::Key(_))), "{key}");
        }
        assert_eq!(check_labels(&BTreeMap::new()), Err(SelectorError::Empty));
    }

    #[test]
    fn a_value_has_at_most_63_characters() {
        let longest = "v".repeat(63);

        assert!(parse(&format!("a={longest}")).is_ok());
        assert!(parse(&format!("a={longest}v")).is_err());
    }
}
