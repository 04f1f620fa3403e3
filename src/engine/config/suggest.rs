//! What a user may have meant.

/// The one of `known` that `word` is most likely a slip of: within two edits, or three for words of ten letters and
/// more. Case, `-` and `_` do not count. Of equally close ones, the first.
pub(crate) fn closest<'k>(word: &str, known: impl IntoIterator<Item = &'k str>) -> Option<&'k str> {
    let plain = plain(word);
    let allowed = match plain.len() {
        0..=3 => 1,
        4..=9 => 2,
        _ => 3,
    };
    let distances = known
        .into_iter()
        .map(|name| (distance(&plain, &self::plain(name)), name));
    distances
        .filter(|(distance, _)| *distance <= allowed)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, name)| name)
}

/// Names in backticks with commas between them; `none` if there are none.
pub(crate) fn listed<'k>(names: impl IntoIterator<Item = &'k str>) -> String {
    let names: Vec<String> = names.into_iter().map(|name| format!("`{name}`")).collect();
    match names.as_slice() {
        [] => "none".to_owned(),
        names => names.join(", "),
    }
}

/// `did you mean` and the [`closest`] of `known`, or else what `known` is called and all of it.
pub(crate) fn or_known<'k>(word: &str, what: &str, known: impl IntoIterator<Item = &'k str>) -> String {
    let known: Vec<&str> = known.into_iter().collect();
    match closest(word, known.iter().copied()) {
        Some(name) => format!("did you mean `{name}`? {what}: {}", listed(known)),
        None => format!("{what}: {}", listed(known)),
    }
}

/// The longest word that is compared; longer ones are not slips of our names.
const LONGEST: usize = 64;

fn plain(word: &str) -> Vec<char> {
    let letters = word.chars().filter(|c| !matches!(c, '-' | '_'));
    letters.flat_map(char::to_lowercase).take(LONGEST).collect()
}

/// Insertions, deletions, changes and swaps of neighbours that lead from `a` to `b` (optimal string alignment).
fn distance(a: &[char], b: &[char]) -> usize {
    let mut before_last = vec![0; b.len() + 1];
    let mut last: Vec<usize> = (0..=b.len()).collect();
    for (i, from) in a.iter().enumerate() {
        let mut row = vec![i + 1];
        for (j, to) in b.iter().enumerate() {
            let change = last[j] + usize::from(from != to);
            let mut best = change.min(last[j + 1] + 1).min(row[j] + 1);
            if i > 0 && j > 0 && *from == b[j - 1] && a[i - 1] == *to {
                best = best.min(before_last[j - 1] + 1);
            }
            row.push(best);
        }
        (before_last, last) = (last, row);
    }
    last[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_is_recognised() {
        let known = ["queue-scorer", "prefix-cache-scorer", "random-picker"];

        assert_eq!(closest("queue-scoerr", known), Some("queue-scorer"));
        assert_eq!(closest("QueueScorer", known), Some("queue-scorer"));
        assert_eq!(closest("queue", known), None);
        assert_eq!(closest("", known), None);
    }

    #[test]
    fn the_known_names_are_said_with_or_without_a_guess() {
        assert_eq!(
            or_known("wieght", "known fields", ["pluginRef", "weight"]),
            "did you mean `weight`? known fields: `pluginRef`, `weight`"
        );
        assert_eq!(or_known("x", "declared", []), "declared: none");
    }
}
