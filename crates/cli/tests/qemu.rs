// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `timewire lab qemu` and `lab exec --in qemu`: an experiment on the distribution's kernel with
//! its XDP in drivers.
//!
//! A boot takes some ten seconds, and the packages are fetched at the first one, so they run only
//! when `TIMEWIRE_SLOW=1` asks for it.
//!
//! Not here: what machines can do (`crates/lab/tests/qemu`).

mod support;

use std::fs;

use serde_json::Value;
use support::{Scratch, TIMEWIRE, Tiny, timewire};

/// Whether the slow tests were asked for; says so if not.
fn asked() -> bool {
    let asked = std::env::var("TIMEWIRE_SLOW").is_ok_and(|value| value == "1");
    if !asked {
        eprintln!("SKIP: slow: TIMEWIRE_SLOW=1 runs it");
    }
    asked
}

/// The newest kernel, fetched if need be.
fn kernel() -> Value {
    timewire(&["lab", "qemu", "--json"]).done().json()
}

const CASE: &str = "{ name: tdm, title: TDM, mac: tdm, priorities: true }";
const LIMITS: &str = "limits:
  - { id: slots-kept, metric: outside_slots, case: tdm, load: alone, at_most: 0% }
";

#[test]
fn t4_qemu_the_mac_keeps_its_slots_with_xdp_in_the_driver() {
    if !asked() {
        return;
    }
    let about = kernel();
    eprintln!("{about}");
    let scratch = Scratch::new();
    let file = scratch.write("tiny.yaml", &Tiny { name: "tiny", cases: CASE, more: LIMITS }.text());
    let (here, out) = (scratch.path().to_str().unwrap(), scratch.join("out"));
    let exec = ["lab", "exec", "--in", "qemu", "--writable", here, "--stats", "--", TIMEWIRE];
    let said = timewire(&[&exec[..], &["run", &file, "--out", &out]].concat()).done();
    eprintln!("{}{}", said.stdout, said.stderr);
    assert!(said.stdout.contains("PASS tiny/slots-kept: "), "{said:?}");
    assert!(said.stdout.contains("transmit: af_xdp native\n"), "{said:?}");
    assert!(said.stdout.contains("receive: XDP native + CPUMAP\n"), "{said:?}");
    assert!(!said.stdout.contains("not available: receive"), "{said:?}");
    let run = fs::read_to_string(scratch.path().join("out/run.json")).unwrap();
    assert!(run.contains(about[0]["release"].as_str().unwrap()), "{run}");
}

#[test]
fn t4_qemu_a_sealed_command_has_what_was_named() {
    if !asked() {
        return;
    }
    kernel();
    let script = "cat /proc/uptime; ls /usr/share; exit 5";
    let exec = ["lab", "exec", "--in", "qemu", "--sealed", "sh,cat", "--", "sh", "-c", script];
    let (first, second) = (timewire(&exec), timewire(&exec));
    assert_eq!(first.code, Some(5), "{first:?}");
    assert!(first.stderr.contains("ls: not found"), "{first:?}");
    // Two boots end at the same hundredth of a second.
    assert_eq!(first.stdout, second.stdout);
}

#[test]
fn t1_options_of_the_other_kernel_are_refused() {
    let words = |more: &[&str]| timewire(&[&["lab", "exec"], more, &["--", "true"]].concat());
    for (more, why) in [
        (&["--cards", "2"][..], "--cards is for `--in qemu`"),
        (&["--sealed", "sh"], "--sealed is for `--in qemu`"),
        (&["--in", "qemu", "--time", "wall"], "--prebuilt and --time are for `--in uml`"),
        (&["--in", "qemu", "--cards", "9"], "9 is not in 0..=8"),
    ] {
        let said = words(more);
        assert_eq!(said.code, Some(2), "{said:?}");
        assert!(said.stderr.contains(why), "{said:?}");
    }
}
