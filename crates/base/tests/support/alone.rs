// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Tests that must have their process for themselves, because they fill what it has once or count
//! what all of its threads do: each runs in a process that is this program again with that one
//! test. Tests of all crates include this file by its path.

use std::env;
use std::process::Command;

const ALONE: &str = "TIMEWIRE_TEST_ALONE";

/// Runs a test, by its full name, in a process without any other.
pub fn alone(name: &str, test: impl FnOnce()) {
    if env::var_os(ALONE).is_some() {
        return test();
    }
    let mut command = Command::new(env::current_exe().unwrap());
    // With two threads the test has one of its own, beside the one that waits for it.
    command.args([name, "--exact", "--nocapture", "--test-threads=2"]).env(ALONE, "1");
    let output = command.output().unwrap();
    let [said, why] = [output.stdout, output.stderr].map(|it| String::from_utf8(it).unwrap());
    eprint!("{why}");
    assert!(output.status.success(), "{said}");
    assert!(said.contains("test result: ok. 1 passed"), "there is no test `{name}`: {said}");
}
