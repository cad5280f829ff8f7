// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a limit, or a run with limits, came to: the same three words everywhere.

use std::fmt;

use serde::{Deserialize, Serialize};

/// What a limit, or all limits of a run, came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// Within the limit.
    Pass,
    /// Outside the limit.
    Fail,
    /// The data decide neither.
    Inconclusive,
}

impl Verdict {
    /// Of several: fail when one fails, else inconclusive when one is, else pass.
    pub fn over(all: impl IntoIterator<Item = Verdict>) -> Verdict {
        all.into_iter().max_by_key(|one| one.severity()).unwrap_or(Verdict::Pass)
    }

    /// Pass 0, inconclusive 1, fail 2.
    pub fn severity(self) -> u8 {
        match self {
            Verdict::Pass => 0,
            Verdict::Inconclusive => 1,
            Verdict::Fail => 2,
        }
    }

    /// In a sentence.
    pub fn word(self) -> &'static str {
        match self {
            Verdict::Pass => "pass",
            Verdict::Fail => "fail",
            Verdict::Inconclusive => "inconclusive",
        }
    }

    /// At the start of a line.
    pub fn label(self) -> &'static str {
        match self {
            Verdict::Pass => "PASS",
            Verdict::Fail => "FAIL",
            Verdict::Inconclusive => "INCONCLUSIVE",
        }
    }
}

/// [`Verdict::word`].
impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.word())
    }
}

/// Whether it is within the limit.
impl From<bool> for Verdict {
    fn from(is_within: bool) -> Verdict {
        if is_within { Verdict::Pass } else { Verdict::Fail }
    }
}

/// Whether it is within the limit; `None` where that is not known.
impl From<Option<bool>> for Verdict {
    fn from(is_within: Option<bool>) -> Verdict {
        is_within.map_or(Verdict::Inconclusive, Verdict::from)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn t0_the_worst_of_several_decides() {
        use Verdict::{Fail, Inconclusive, Pass};
        assert_eq!(Verdict::over([]), Pass);
        assert_eq!(Verdict::over([Pass, Inconclusive, Pass]), Inconclusive);
        assert_eq!(Verdict::over([Inconclusive, Fail, Pass]), Fail);
        assert_eq!([Some(true), Some(false), None].map(Verdict::from), [Pass, Fail, Inconclusive]);
    }

    #[test]
    fn t0_the_words_are_those_of_json() {
        for one in [Verdict::Pass, Verdict::Fail, Verdict::Inconclusive] {
            assert_eq!(serde_json::to_value(one).unwrap(), one.to_string());
            assert_eq!(one.label().to_lowercase(), one.word());
        }
    }
}
