// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How two texts differ, line by line.

/// What is looked for in common, at most: lines of one text times lines of the other.
const MAX_PAIRS: usize = 4_000_000;

/// The lines that only one text has: `- LINE` of the first, `+ LINE` of the second, in order; the
/// fewest that there can be. Where thousands of lines differ, all between the first and the last
/// that do.
pub(super) fn difference(a: &str, b: &str) -> Vec<String> {
    let (a, b): (Vec<&str>, Vec<&str>) = (a.lines().collect(), b.lines().collect());
    let start = a.iter().zip(&b).take_while(|(a, b)| a == b).count();
    let (a, b) = (&a[start..], &b[start..]);
    let end = a.iter().rev().zip(b.iter().rev()).take_while(|(a, b)| a == b).count();
    let (a, b) = (&a[..a.len() - end], &b[..b.len() - end]);
    if a.len().saturating_mul(b.len()) > MAX_PAIRS {
        let gone = a.iter().map(|line| format!("- {line}"));
        return gone.chain(b.iter().map(|line| format!("+ {line}"))).collect();
    }
    // common[i][j]: lines that a[i..] and b[j..] have in common.
    let mut common = vec![vec![0_usize; b.len() + 1]; a.len() + 1];
    for i in (0..a.len()).rev() {
        for j in (0..b.len()).rev() {
            common[i][j] = match a[i] == b[j] {
                true => common[i + 1][j + 1] + 1,
                false => common[i + 1][j].max(common[i][j + 1]),
            };
        }
    }
    let (mut i, mut j) = (0, 0);
    let mut found = Vec::new();
    while i < a.len() || j < b.len() {
        if i < a.len() && j < b.len() && a[i] == b[j] {
            (i, j) = (i + 1, j + 1);
        } else if j == b.len() || (i < a.len() && common[i + 1][j] >= common[i][j + 1]) {
            found.push(format!("- {}", a[i]));
            i += 1;
        } else {
            found.push(format!("+ {}", b[j]));
            j += 1;
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn t0_only_what_differs_is_named() {
        assert_eq!(difference("a\nb\nc\n", "a\nb\nc\n"), Vec::<String>::new());
        assert_eq!(difference("a\nb\nc\nd", "a\nx\nc\nd\ne"), ["- b", "+ x", "+ e"]);
        assert_eq!(difference("", "a"), ["+ a"]);
        assert_eq!(difference("a\na\nb", "a\nb"), ["- a"]);
        // A table of all pairs would take 72 MB here, and a hundred times that of ten times more.
        let [a, b] = [1, 7].map(|step| {
            let lines: Vec<String> = (0..3_000).map(|n| (n * step % 3_000).to_string()).collect();
            lines.join("\n")
        });
        let found = difference(&a, &b);
        assert_eq!((found.len(), found[0].as_str()), (2 * 2_999, "- 1"));
    }
}
