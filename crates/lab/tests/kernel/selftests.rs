// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The kernel's own programs for launch times and transmit timestamps
//! (`tools/testing/selftests/net`), with the cases of their scripts, in virtual time.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use timewire_base::{Span, Utc};
use timewire_lab::fixture::{Bench, Fixture};
use timewire_lab::trial::Trial;
use timewire_lab::uml::Kernel;
use timewire_sys::clock;

pub const TRIALS: &[Trial] = &[
    Trial::new("t4_so_txtime_of_the_kernel", so_txtime).prepared(compiled),
    Trial::new("t4_txtimestamp_of_the_kernel", txtimestamp).prepared(compiled),
];

const PROGRAMS: [&str; 2] = ["so_txtime", "txtimestamp"];
const PLACE: &str = "SELFTEST_PROGRAMS";

/// Compiles the programs of this kernel, once.
fn compiled(kernel: &Kernel) -> Result<Vec<(String, String)>, String> {
    let sources = kernel.selftests().ok_or("the kernel was not built from source")?.join("net");
    let place = Path::new(env!("CARGO_TARGET_TMPDIR")).join(kernel.name());
    fs::create_dir_all(&place).map_err(|error| format!("{}: {error}", place.display()))?;
    for program in PROGRAMS {
        let (source, target) = (sources.join(program).with_extension("c"), place.join(program));
        if target.exists() {
            continue;
        }
        // Another test may be doing the same.
        let made = place.join(format!(
            "{program}.{}.{:?}",
            std::process::id(),
            std::thread::current().id()
        ));
        let mut gcc = Command::new("gcc");
        gcc.args(["-O2", "-w", "-o"]).arg(&made).arg(&source).stdin(Stdio::null());
        let output = gcc.output().map_err(|error| format!("no gcc for {program}.c: {error}"))?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr);
            return Err(format!("gcc does not compile {program}.c: {}", said.trim()));
        }
        fs::rename(&made, &target).map_err(|error| format!("{}: {error}", target.display()))?;
    }
    Ok(vec![(PLACE.to_owned(), place.display().to_string())])
}

fn program(name: &str) -> Command {
    Command::new(PathBuf::from(env::var(PLACE).unwrap()).join(name))
}

/// As `so_txtime.sh`: what is sent, and in which order it is to arrive.
fn so_txtime() {
    let mut fixture = Fixture::new();
    fixture.station("ns1").station("ns2").link("ns1", "ns2").ipv6().qdisc("ns1", "ns2", "root fq");
    let bench = fixture.build().unwrap();
    let cases = [
        ("mono", 4, "a,-1", "a,-1", true),
        ("mono", 6, "a,0", "a,0", true),
        ("mono", 6, "a,10", "a,10", true),
        ("mono", 4, "a,10,b,20", "a,10,b,20", true),
        ("mono", 6, "a,20,b,10", "b,20,a,20", true),
        // Without a launch time etf drops.
        ("tai", 4, "a,-1", "a,-1", false),
        // The script expects this one to be dropped too, because its launch time, the start, is
        // past by the time it is sent. Here computing takes no time.
        ("tai", 6, "a,0", "a,0", true),
        ("tai", 6, "a,10", "a,10", true),
        ("tai", 4, "a,10,b,20", "a,10,b,20", true),
        ("tai", 6, "a,20,b,10", "b,10,a,20", true),
    ];
    for (number, (clock, family, sent, received, passes)) in cases.into_iter().enumerate() {
        if number == 5 {
            let etf = "qdisc replace dev DEV root etf clockid CLOCK_TAI delta 400000";
            bench.tc("ns1", "ns2", etf).unwrap();
        }
        let passed = exchange(&bench, family, clock, sent, received);
        assert_eq!(passed, passes, "{clock} IPv{family} {sent}");
    }
}

fn exchange(bench: &Bench, family: u8, clock: &str, sent: &str, received: &str) -> bool {
    let start = clock::now::<Utc>() + Span::from_ms(100);
    let (from, to) = match family {
        4 => ("10.77.0.1", "10.77.0.2"),
        _ => ("fd77::1", "fd77::2"),
    };
    let command = |stream: &str| {
        let mut command = program("so_txtime");
        command.arg(format!("-{family}")).args(["-c", clock, "-t", &start.as_ns().to_string()]);
        command.args(["-S", from, "-D", to, stream]).stdout(Stdio::null());
        command
    };
    let mut receiver = command(received);
    receiver.arg("-r");
    let mut receiver = bench.spawn("ns2", receiver).unwrap();
    let mut sender = bench.spawn("ns1", command(sent)).unwrap();
    // As in the script it is the sender that decides; a receiver that hears nothing says so too.
    let sent = sender.wait().unwrap().success();
    let heard = receiver.wait().unwrap().success();
    sent && heard
}

/// As `txtimestamp.sh`: 10 ms on the way out of the loopback interface, 20 ms on the way in.
fn txtimestamp() {
    let mut fixture = Fixture::new();
    fixture.station("a").station("b").link("a", "b").ipv6();
    let bench = fixture.build().unwrap();
    let run = |program: &str, arguments: &str| {
        let mut command = Command::new(program);
        command.args(arguments.split_whitespace());
        assert!(bench.spawn("a", command).unwrap().wait().unwrap().success(), "{arguments}");
    };
    run("tc", "qdisc add dev lo root netem delay 10ms");
    run("ip", "link add ifb_netem0 type ifb");
    run("ip", "link set dev ifb_netem0 up");
    run("tc", "qdisc add dev ifb_netem0 root netem delay 20ms");
    run("tc", "qdisc add dev lo handle ffff: ingress");
    run(
        "tc",
        "filter add dev lo parent ffff: matchall action mirred egress redirect dev ifb_netem0",
    );
    for mode in ["", "-C", "-n"] {
        for kind in ["", "-u", "-r", "-R", "-P"] {
            for address in ["-4 -L 127.0.0.1", "-6 -L ::1"] {
                let mut command = program("txtimestamp");
                // Before the interface after 10 ms, acknowledged after 60; the script allows 8 ms
                // of error, here there are 20 us.
                let times = "-v 10000 -V 60000 -t 20 -S 80000";
                let words = format!("{mode} {kind} {times} {address}");
                command.args(words.split_whitespace()).stdout(Stdio::null()).stderr(Stdio::null());
                let status = bench.spawn("a", command).unwrap().wait().unwrap();
                assert!(status.success(), "txtimestamp {words}: {status}");
            }
        }
    }
}
