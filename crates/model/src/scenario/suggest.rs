// SPDX-License-Identifier: Apache-2.0 OR MIT
//! "Did you mean": the known word nearest to a mistyped one.

/// The candidate with the fewest letters to change, when few enough; the first of equals.
pub(super) fn nearest<'a>(
    word: &str,
    candidates: impl IntoIterator<Item = &'a str>,
) -> Option<&'a str> {
    let word: Vec<char> = word.chars().take(LONGEST + 1).flat_map(char::to_lowercase).collect();
    if word.len() > LONGEST {
        return None;
    }
    let bound = (word.len() / 3).max(1);
    candidates
        .into_iter()
        .map(|candidate| (distance(&word, candidate), candidate))
        .filter(|(distance, _)| *distance <= bound)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

/// `: did you mean `x`?` or nothing.
pub(super) fn did_you_mean<'a>(
    word: &str,
    candidates: impl IntoIterator<Item = &'a str>,
) -> String {
    nearest(word, candidates).map_or_else(String::new, |near| format!(": did you mean `{near}`?"))
}

/// Words in backquotes with commas, for messages.
pub(super) fn listed<'a>(words: impl IntoIterator<Item = &'a str>) -> String {
    let quoted: Vec<String> = words.into_iter().map(|word| format!("`{word}`")).collect();
    quoted.join(", ")
}

/// A longer word was not mistyped.
const LONGEST: usize = 40;

/// How many letters to add, drop, change or swap with their neighbour (optimal string alignment).
fn distance(word: &[char], candidate: &str) -> usize {
    let other: Vec<char> = candidate.chars().collect();
    let mut before: Vec<usize> = Vec::new();
    let mut last: Vec<usize> = (0..=other.len()).collect();
    for (i, &a) in word.iter().enumerate() {
        let mut row = vec![i + 1];
        for (j, &b) in other.iter().enumerate() {
            let replaced = last[j] + usize::from(a != b);
            let mut best = replaced.min(last[j + 1] + 1).min(row[j] + 1);
            if i > 0 && j > 0 && a == other[j - 1] && word[i - 1] == b {
                best = best.min(before[j - 1] + 1);
            }
            row.push(best);
        }
        before = std::mem::replace(&mut last, row);
    }
    last[other.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn t0_nearest_finds_typing_mistakes_only() {
        let known = ["station", "transmit", "offset", "guard"];
        assert_eq!(nearest("transmitt", known), Some("transmit"));
        assert_eq!(nearest("gaurd", known), Some("guard"));
        assert_eq!(nearest("Offset", known), Some("offset"));
        assert_eq!(nearest("length", known), None);
        assert_eq!(nearest("", known), None);
        assert_eq!(nearest(&"x".repeat(10_000), known), None);
    }
}
