// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Reading what `cargo test -- --show-output` prints: totals, skips, and the few lines a person
//! wants.
//!
//! A test that cannot run prints `SKIP: reason` and returns, which the test harness counts as
//! passed; here it is counted as skipped.

use crate::skip::Skip;

/// More failures than so many are no noise of the machine.
const AGAIN_AT_MOST: usize = 4;

/// A machine that is given the output line by line.
#[derive(Debug, Default)]
pub struct TestOutput {
    /// Tests that ran and passed, skipped ones included.
    ok: u64,
    /// Tests that failed.
    pub failed: u64,
    /// Their names, as the test programs tell them.
    pub failures: Vec<String>,
    /// Tests that said that they cannot run here, once per test.
    pub skips: Vec<Skip>,
    /// Tests that have been running for over a minute.
    long: Vec<String>,
    section: Section,
    test: Option<String>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Section {
    #[default]
    Results,
    Successes,
    Failures,
}

impl TestOutput {
    /// Tests that ran and passed.
    pub fn passed(&self) -> u64 {
        let skipped = u64::try_from(self.skips.len()).unwrap_or(u64::MAX);
        self.ok.saturating_sub(skipped)
    }

    /// The tests that have been running for over a minute.
    pub fn running(&self) -> &[String] {
        &self.long
    }

    /// Takes one line; returns what to show for it, if anything.
    pub fn on(&mut self, line: &str) -> Option<String> {
        if let Some(rest) = line.strip_prefix("test result: ") {
            return self.on_result(rest, line);
        }
        match line {
            "successes:" => self.section = Section::Successes,
            "failures:" => self.section = Section::Failures,
            _ => {}
        }
        let header = line.strip_prefix("---- ").and_then(|rest| rest.strip_suffix(" stdout ----"));
        if let Some(test) = header {
            self.test = Some(test.to_owned());
        }
        match self.section {
            Section::Results => self.on_test(line),
            Section::Successes => self.on_said(line),
            Section::Failures => Some(line.to_owned()),
        }
    }

    /// `ok. 3 passed; 0 failed; 1 ignored; ...`
    fn on_result(&mut self, counts: &str, line: &str) -> Option<String> {
        let count = |what: &str| {
            let words: Vec<&str> = counts.split([' ', ';']).collect();
            let at = words.iter().position(|word| *word == what);
            at.and_then(|at| words.get(at.checked_sub(1)?)?.parse::<u64>().ok()).unwrap_or(0)
        };
        self.ok += count("passed");
        self.failed += count("failed");
        self.section = Section::Results;
        self.test = None;
        self.long.clear();
        (count("passed") + count("failed") > 0).then(|| line.to_owned())
    }

    /// `test NAME ... ok`. An ignored test counts as passed and as skipped, that is as skipped.
    fn on_test(&mut self, line: &str) -> Option<String> {
        let told = line.strip_prefix("test ")?;
        if let Some((name, _)) = told.split_once(" has been running for over ") {
            self.long.push(name.to_owned());
            return None;
        }
        let (name, outcome) = told.split_once(" ... ")?;
        self.long.retain(|long| long != name);
        if outcome.starts_with("ignored") {
            self.ok += 1;
            return self.add_skip(name, outcome);
        }
        (outcome == "FAILED").then(|| {
            self.failures.push(name.to_owned());
            line.to_owned()
        })
    }

    /// What failed, if it may run a second time: a few tests, each on a kernel, whose machine may
    /// have been busy with something else. Those of pure code give the same each time.
    pub fn again(&self) -> Option<&[String]> {
        let on_a_kernel = |name: &String| {
            let test = name.rsplit("::").next().unwrap_or(name);
            test.starts_with("t3_") || test.starts_with("t4_")
        };
        let told = u64::try_from(self.failures.len()).is_ok_and(|told| told == self.failed);
        let few = (1..=AGAIN_AT_MOST).contains(&self.failures.len());
        (told && few && self.failures.iter().all(on_a_kernel)).then_some(&self.failures[..])
    }

    /// A line that a passed test wrote.
    fn on_said(&mut self, line: &str) -> Option<String> {
        let reason = line.strip_prefix("SKIP: ")?;
        let test = self.test.take()?;
        self.add_skip(&test, reason)
    }

    fn add_skip(&mut self, name: &str, reason: &str) -> Option<String> {
        let skip = Skip { name: name.to_owned(), reason: reason.to_owned() };
        let shown = skip.to_string();
        self.skips.push(skip);
        Some(shown)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OUTPUT: &str = "
running 5 tests
test a ... ok
test b ... FAILED
test c ... ok
test d ... ignored, slow
test e ... ok

successes:

---- a stdout ----
SKIP: no namespaces
SKIP: said twice
noise

---- c stdout ----
noise


successes:
    a
    c
    e

failures:

---- b stdout ----
SKIP: is no skip in a failed test
thread 'b' panicked


failures:
    b

test result: FAILED. 3 passed; 1 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.00s

running 0 tests

test result: ok. 0 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s

running 1 test
test f ... ok

test result: ok. 1 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s
";

    #[test]
    fn t0_totals_and_skips_are_read() {
        let mut output = TestOutput::default();
        let shown: Vec<String> = OUTPUT.lines().filter_map(|line| output.on(line)).collect();
        assert_eq!((output.passed(), output.failed), (3, 1));
        assert_eq!(output.failures, ["b"]);
        let skips: Vec<String> = output.skips.iter().map(ToString::to_string).collect();
        assert_eq!(skips, ["SKIP: d: ignored, slow", "SKIP: a: no namespaces"]);
        assert!(shown.iter().any(|line| line == "thread 'b' panicked"));
        assert!(shown.iter().all(|line| line != "noise" && !line.contains("0 passed")));
    }

    #[test]
    fn t0_tests_that_take_long_are_known_until_they_end() {
        let mut output = TestOutput::default();
        for name in ["a", "b"] {
            output.on(&format!("test {name} has been running for over 60 seconds"));
        }
        output.on("test a ... ok");
        assert_eq!(output.running(), ["b"]);
        output.on("test result: ok. 2 passed; 0 failed; 0 ignored");
        assert!(output.running().is_empty());
    }

    #[test]
    fn t0_only_a_few_tests_on_a_kernel_are_run_again() {
        let again = |failed: &[&str]| {
            let mut output = TestOutput::default();
            for name in failed {
                output.on(&format!("test {name} ... FAILED"));
            }
            output
                .on(&format!("test result: FAILED. 9 passed; {} failed; 0 ignored", failed.len()));
            output.again().map(<[String]>::len)
        };
        assert_eq!(again(&["streams::t3_a", "t4_b"]), Some(2));
        assert_eq!(again(&[]), None);
        assert_eq!(again(&["streams::t3_a", "streams::t0_t3_b"]), None);
        assert_eq!(again(&["t3_a", "t3_b", "t3_c", "t3_d"]), Some(4));
        assert_eq!(again(&["t3_a", "t3_b", "t3_c", "t3_d", "t3_e"]), None);
        // A program that crashes in the middle tells fewer names than it has failures.
        let mut crashed = TestOutput::default();
        crashed.on("test result: FAILED. 1 passed; 1 failed; 0 ignored");
        assert_eq!(crashed.again(), None);
    }
}
