// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The unit of systemd that starts an agent is one that systemd understands, all of it.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::support::Scratch;

const UNIT: &str = "../../packaging/systemd/timewire-agent.service";

/// What systemd says about a unit whose program is one that is installed; `None` without systemd.
fn verified(text: &str) -> Option<(bool, String)> {
    let scratch = Scratch::new();
    let unit = scratch.path().join("timewire-agent.service");
    fs::write(&unit, text.replace("/usr/bin/timewire", "/bin/true")).unwrap();
    let said = Command::new("systemd-analyze").arg("verify").arg(&unit).output().ok()?;
    Some((said.status.success(), String::from_utf8(said.stderr).unwrap()))
}

#[test]
fn t3_systemd_takes_the_unit_of_the_agent() {
    let text = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(UNIT)).unwrap();
    assert!(text.contains("\nExecStart=/usr/bin/timewire agent "));
    let Some(said) = verified(&text) else {
        println!("SKIP: systemd-analyze is not installed");
        return;
    };
    assert_eq!(said, (true, String::new()));
    // What it does not know it only mentions.
    let (_, mentioned) = verified(&text.replace("ProtectSystem=", "ProtectSystm=")).unwrap();
    assert!(mentioned.contains("ProtectSystm"), "{mentioned}");
}
