// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Holds what was printed against what a page shows, where `...` stands for anything.

/// What stands for anything: as a line for any lines, in a line for any text.
const ANYTHING: &str = "...";

/// The first of the lines shown that was not printed where it should be; `None` when all is well.
/// One beyond the last when more was printed than is shown.
pub fn difference(shown: &[&str], printed: &[&str]) -> Option<usize> {
    let same = |shown: &&str, printed: &&str| fits(shown.trim_end(), printed.trim_end());
    let parts: Vec<&[&str]> = shown.split(|line| line.trim() == ANYTHING).collect();
    find(&parts, printed, same).err()
}

/// Whether a line is as shown.
fn fits(shown: &str, printed: &str) -> bool {
    let parts: Vec<Vec<char>> = shown.split(ANYTHING).map(|part| part.chars().collect()).collect();
    let parts: Vec<&[char]> = parts.iter().map(Vec::as_slice).collect();
    find(&parts, &printed.chars().collect::<Vec<_>>(), |a, b| a == b).is_ok()
}

/// Finds parts in this order in a whole: the first at its begin, the last at its end, each other
/// one as early as it can be. The error is how many items of all parts, with one for each gap
/// between two, came before the one that is not there.
fn find<T>(parts: &[&[T]], whole: &[T], same: impl Fn(&T, &T) -> bool) -> Result<(), usize> {
    let agree = |part: &[T], at: usize| {
        let there = whole.get(at..).unwrap_or_default();
        let of_both = part.iter().zip(there);
        of_both.take_while(|(a, b)| same(a, b)).count()
    };
    let [first, middle @ .., last] = parts else {
        let agreed = parts.first().map_or(0, |only| agree(only, 0));
        let length = parts.first().map_or(0, |only| only.len());
        return if agreed == length && length == whole.len() { Ok(()) } else { Err(agreed) };
    };
    let agreed = agree(first, 0);
    if agreed < first.len() {
        return Err(agreed);
    }
    let (mut at, mut before) = (first.len(), first.len() + 1);
    for part in middle {
        let mut places = at..=whole.len();
        let place = places.find(|place| agree(part, *place) == part.len()).ok_or(before)?;
        at = place + part.len();
        before += part.len() + 1;
    }
    let place = whole.len().checked_sub(last.len()).filter(|place| *place >= at).ok_or(before)?;
    let agreed = agree(last, place);
    if agreed == last.len() { Ok(()) } else { Err(before + agreed) }
}

#[test]
fn t0_lines_are_as_shown_or_the_first_that_is_not_is_named() {
    let whole = ["one", "two 2.5 us", "three", "four"];
    let good: [&[&str]; 7] = [
        &["one", "two 2.5 us", "three  ", "four"],
        &["one", "two ... us", "three", "four"],
        &["..."],
        &["...", "four"],
        &["one", "..."],
        &["one", "...", "three", "..."],
        &["one", "two...", "...", "three", "four", "..."],
    ];
    for shown in good {
        assert_eq!(difference(shown, &whole), None, "{shown:?}");
    }
    let bad: [(&[&str], usize); 9] = [
        (&[], 0),
        (&["one"], 1),
        (&["one", "two 2.4 us", "three", "four"], 1),
        (&["one", "two ... ns", "...", "four"], 1),
        (&["two ...", "..."], 0),
        (&["one", "...", "three"], 2),
        (&["one", "...", "five", "..."], 2),
        (&["one", "...", "three", "...", "two...", "..."], 4),
        (&["one", "two 2.5 us", "three", "...", "three", "four"], 4),
    ];
    for (shown, at) in bad {
        assert_eq!(difference(shown, &whole), Some(at), "{shown:?}");
    }
    assert_eq!(difference(&[], &[]), None);
    assert_eq!(difference(&["one"], &[]), Some(0));
}

#[test]
fn t0_in_a_line_text_is_left_open_where_the_page_says_so_only() {
    assert!(fits("a ... c ...", "a b c d") && fits("...", "") && fits("é...é", "é and é"));
    for (shown, printed) in [("a ... c", "a b c d"), ("a...a", "a"), ("a", "a b"), ("...b", "a")] {
        assert!(!fits(shown, printed), "{shown}: {printed}");
    }
}
