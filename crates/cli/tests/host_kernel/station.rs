// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A host that files are applied to: a station of a fixture, or the machine itself.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::atomic::{AtomicU32, Ordering};

use timewire_lab::fixture::{Bench, Fixture};
use timewire_model::scenario::host::HostSettings;
use timewire_tsn::desired::QdiscTree;
use timewire_tsn::file::ParseFile;
use timewire_tsn::qdisc::ShownQdisc;

/// Where commands run.
pub struct Station {
    /// Its namespace; `None` is the machine's first.
    netns: Option<String>,
}

/// How a program ended.
#[derive(Debug)]
pub struct Ended {
    pub code: i32,
    pub out: String,
    pub err: String,
}

impl Ended {
    #[track_caller]
    pub fn well(self) -> String {
        assert_eq!(self.code, 0, "{self:?}");
        self.out
    }
}

/// Two stations on a link without length, 8 queues each; nothing is set yet.
pub fn pair() -> Bench {
    let mut fixture = Fixture::new();
    fixture.station("a").station("b").link("a", "b");
    fixture.build().unwrap()
}

/// A file of its own with this text.
pub fn file(text: &str) -> PathBuf {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let path = PathBuf::from(format!("/tmp/host-{}-{count}.yaml", std::process::id()));
    fs::write(&path, text).unwrap();
    path
}

/// Host settings with this transmit side of `eth0`.
pub fn transmit(desired: &str) -> String {
    let indented: String = desired.lines().map(|line| format!("            {line}\n")).collect();
    format!(
        "timewire: 1\nkind: network\nname: test\n\
         stations:\n- name: alpha\n  host:\n    interfaces:\n      - name: eth0\n        \
         transmit:\n{indented}"
    )
}

/// A file of the repository.
pub fn shipped(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios/hosts").join(name)
}

impl Station {
    /// A node of a fixture.
    pub fn of(bench: &Bench, node: &str) -> Station {
        let path = bench.netns(node);
        let name = path.file_name().and_then(|name| name.to_str()).unwrap();
        Station { netns: Some(name.to_owned()) }
    }

    /// The machine itself.
    pub fn machine() -> Station {
        Station { netns: None }
    }

    pub fn run(&self, program: &str, arguments: &[&str]) -> Ended {
        let mut command = match &self.netns {
            Some(netns) => {
                let mut command = Command::new("ip");
                command.args(["netns", "exec", netns, program]);
                command
            }
            None => Command::new(program),
        };
        let Output { status, stdout, stderr } = command.args(arguments).output().unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        Ended { code: status.code().unwrap_or(-1), out: text(stdout), err: text(stderr) }
    }

    pub fn timewire(&self, arguments: &[&str]) -> Ended {
        self.run(env!("CARGO_BIN_EXE_timewire"), arguments)
    }

    /// Applies a file; its interface is `eth0` here, whatever it is called there.
    pub fn apply(&self, path: &Path, real: &str) -> Ended {
        let text = fs::read_to_string(path).unwrap();
        let host = HostSettings::parse("host", &text).unwrap_or_else(|errors| panic!("{errors}"));
        let name = format!("{}={real}", host.host.interfaces[0].name);
        self.timewire(&["apply", path.to_str().unwrap(), "--interface", &name])
    }

    /// Everything that applying could change, as the tools show it.
    pub fn snapshot(&self) -> String {
        let ended = self.run("sh", &["-c", SNAPSHOT]);
        ended.out + &ended.err
    }

    /// How what `tc` shows differs from the file; another way than that of `apply`. `real` is the
    /// name of the file's first interface here.
    pub fn differences(&self, path: &Path, real: &str) -> Vec<String> {
        let text = fs::read_to_string(path).unwrap();
        let file = HostSettings::parse("host", &text).unwrap_or_else(|errors| panic!("{errors}"));
        let mut told = Vec::new();
        for (index, interface) in file.host.interfaces.iter().enumerate() {
            let Some(desired) = &interface.transmit else { continue };
            let real = if index == 0 { real } else { interface.name.as_str() };
            let tree = QdiscTree::of_desired(&real.parse().unwrap(), desired).unwrap();
            let shown = self.run("tc", &["-j", "-d", "qdisc", "show", "dev", real]).well();
            let shown = ShownQdisc::parse(&shown).unwrap_or_else(|why| panic!("{why}: {shown}"));
            told.extend(tree.differences(&shown).iter().map(ToString::to_string));
        }
        told
    }

    /// Applies a file, looks whether it is there, does something, and takes it back.
    #[track_caller]
    pub fn with(&self, path: &Path, work: impl FnOnce()) {
        let before = self.snapshot();
        let told = self.apply(path, "eth0");
        assert_eq!(told.code, 0, "{told:?}");
        let none: [String; 0] = [];
        assert_eq!(self.differences(path, "eth0"), none, "{}", path.display());
        work();
        self.timewire(&["undo"]).well();
        let after = self.snapshot();
        assert!(before == after, "undone, but not as before:\n{}", changed(&before, &after));
    }

    /// Applies a file that the kernel refuses: nothing is left of it.
    #[track_caller]
    pub fn refuses(&self, path: &Path, real: &str) -> Ended {
        let before = self.snapshot();
        let told = self.apply(path, real);
        assert!(matches!(told.code, 2 | 4), "{told:?}");
        let after = self.snapshot();
        assert!(before == after, "refused, but not as before:\n{}", changed(&before, &after));
        told
    }
}

/// One shell, since starting a program takes longest here. Routes are in the order in which links
/// came up last, which says nothing where there are several.
const SNAPSHOT: &str = "set -x; tc -d qdisc show; tc class show dev eth0; tc filter show dev eth0; \
                        tc filter show dev eth0 egress; \
                        ip -d link show; ip addr show; ip neigh show >/tmp/shown; \
                        sort /tmp/shown; ip route show table all >/tmp/shown; sort /tmp/shown; \
                        ethtool -k eth0; sysctl net.core net.ipv4.conf.all";

/// Lines that only one of two texts has.
fn changed(before: &str, after: &str) -> String {
    let only = |one: &str, other: &str, sign: char| -> String {
        let lines = one.lines().filter(|line| !other.lines().any(|other| other == *line));
        lines.map(|line| format!("{sign} {line}\n")).collect()
    };
    let told = only(before, after, '-') + &only(after, before, '+');
    if told.is_empty() { format!("before:\n{before}\nafter:\n{after}") } else { told }
}
