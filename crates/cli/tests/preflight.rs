// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The preflight with real agents: what is wrong with a station is said by name and reason, on both
//! sides, before anything is done anywhere, and nobody is connected to again and again.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use crate::support::{Host, Running, TIMEWIRE, run, wait_until};
use timewire_agent::links::{Identity, LinkLimits, ListenLimits, Listener, connect_unix};

/// Agents of another version: one answers in it, one leaves with a goodbye. They count links.
struct Other {
    links: Arc<AtomicU32>,
    over: Arc<AtomicBool>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Other {
    fn at(path: &Path, answers: bool) -> Other {
        let log = Arc::new(|_: &str| {});
        let listener = Listener::unix(path, ListenLimits::default(), log).unwrap();
        let (links, over) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicBool::new(false)));
        let (counted, ends) = (Arc::clone(&links), Arc::clone(&over));
        let work = move || {
            while !ends.load(Ordering::Acquire) {
                let Some(mut link) = listener.accept(Duration::from_millis(20)) else { continue };
                counted.fetch_add(1, Ordering::AcqRel);
                let heard = link.receive(Duration::from_secs(5));
                if heard.is_ok_and(|heard| heard.is_some()) && answers {
                    let _ = link.send(br#"{"version":99,"hyper":true}"#);
                    let _ = link.receive(Duration::from_secs(5));
                } else {
                    link.split().0.close("the other side speaks version 3 and this one version 99");
                }
            }
        };
        Other { links, over, thread: Some(std::thread::spawn(work)) }
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Release);
        let _ = self.thread.take().map(std::thread::JoinHandle::join);
    }
}

fn agent(host: &Host, name: &str, before: &[&str]) -> Running {
    let (socket, directory) =
        (host.scratch().join(&format!("{name}.sock")), host.scratch().join(name));
    let state = format!("TIMEWIRE_STATE_DIR={}", host.scratch().join("state"));
    let serve = ["agent", "serve", "--socket", &socket, "--dir", &directory];
    let agent = host.spawn_in("", &[&["env", &state], before, &[TIMEWIRE], &serve[..]].concat());
    wait_until("the agent serves", || std::os::unix::net::UnixStream::connect(&socket).is_ok());
    agent
}

#[test]
fn t3_what_is_wrong_with_stations_is_said_before_anything_is_done() {
    let Some(host) = Host::start() else { return };
    host.tool("mount -t tmpfs tmpfs /var/lib");
    host.tool("mkdir /var/lib/timewire");
    Identity::load_or_create(&host.see("/var/lib/timewire/agent")).unwrap();
    let good = agent(&host, "good", &[]);
    let powerless = ["setpriv", "--bounding-set=-net_admin", "--inh-caps=-net_admin"];
    let can_lack =
        run(&mut host.command("", &[&powerless[..], &["true"]].concat())).code == Some(0);
    let lacking = can_lack.then(|| agent(&host, "lacking", &powerless));
    if !can_lack {
        eprintln!("SKIP: of this test the part without a capability: no `setpriv`");
    }
    // It serves over TLS and does not know this controller.
    let stranger = host.scratch().join("stranger");
    let serve = ["agent", "serve", "--listen", "127.0.0.1:28411", "--dir", &stranger];
    let stranger = host.spawn(&serve);
    wait_until("it serves", || stranger.stderr().contains("serving on"));
    let scratch = host.scratch();
    let socket = |name: &str| scratch.path().join(format!("{name}.sock"));
    let newer = Other::at(&socket("newer"), true);
    let leaver = Other::at(&socket("leaver"), false);

    let unix = |name: &str| format!("unix:{}", socket(name).display());
    let mut wrong = vec![
        ("absent", unix("absent"), "not reached within 5s: cannot connect to "),
        ("refusing", "tls://127.0.0.1:9".to_owned(), "Connection refused"),
        ("misspelt", "tls://no.such.host.invalid:28411".to_owned(), "cannot connect to no.such"),
        ("stranger", "tls://127.0.0.1:28411".to_owned(), "is not a paired agent"),
        ("newer", unix("newer"), "the other side speaks version 99"),
        ("leaver", unix("leaver"), "this one version 99"),
    ];
    if lacking.is_some() {
        wrong.push(("lacking", unix("lacking"), "its agent lacks CAP_NET_ADMIN"));
    }
    let step = format!("touch {}", scratch.join("done"));
    let step = step.replace(' ', ", ");
    let station = |name: &str| {
        let steps = format!("{{run: [{step}], name: t}}, {{apply: host.yaml}}");
        format!("  - name: {name}\n    phases: {{setup: [{steps}]}}\n")
    };
    scratch.write(
        "host.yaml",
        "timewire: 1\nkind: network\nname: forwarding\n\
         stations: [{name: alpha, host: {sysctls: [{name: \
                                net.ipv4.ip_forward, value: '1'}]}}]\n",
    );
    let mut hosts = vec![("good", unix("good"))];
    let mut all = station("good");
    for (name, address, _) in &wrong {
        hosts.push((*name, address.clone()));
        all += &station(name);
    }
    scratch.hosts(&hosts);
    scratch.write("e.yaml", &format!("timewire: 1\nkind: network\nname: e\nstations:\n{all}"));
    let said = host.timewire(&["run", "e.yaml", "--on", "hosts.yaml", "--out", "out", "--json"]);
    assert_eq!(said.code, Some(2), "{said:?}");
    let result = &said.json()["results"][0];
    let failures: Vec<&str> =
        result["failures"].as_array().unwrap().iter().map(|f| f.as_str().unwrap()).collect();
    assert_eq!(failures.len(), wrong.len(), "{failures:#?}");
    for (name, _, why) in &wrong {
        let begin = format!("preflight: {name}: ");
        let told = failures.iter().find(|failure| failure.starts_with(&begin));
        assert!(told.is_some_and(|told| told.contains(why)), "{name}: {failures:#?}");
        assert!(said.stderr.contains(&begin), "{name}: {}", said.stderr);
    }
    assert_eq!(result["unasked"], serde_json::json!([]), "{result:#}");
    assert!(!scratch.path().join("done").exists(), "something was done");
    // Nobody is connected to again and again: after 0, 0.2, 0.6, 1.4, 3 and 6.2 s.
    for (name, other) in [("newer", &newer), ("leaver", &leaver)] {
        let links = other.links.load(Ordering::Acquire);
        assert!((1..=6).contains(&links), "{name}: {links} links");
    }
    // The agent's side says why, too.
    let refused = stranger.stderr();
    assert!(refused.contains("does not trust this station"), "{refused}");
    let mut link = connect_unix(&socket("good"), LinkLimits::default()).unwrap();
    link.send(br#"{"version":99,"hyper":true}"#).unwrap();
    while link.receive(Duration::from_secs(5)).is_ok() {}
    let why = "is closed: the other side speaks version 99 and this one version";
    wait_until("the good agent has said why", || good.stderr().contains(why));
}
