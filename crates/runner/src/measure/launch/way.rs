// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Making an interface ready for one way of sending on time, and restoring it: the discipline as
//! a transaction of the host's settings, the MAC as a process of its own.

use std::collections::BTreeMap;
use std::fs;
use std::io::Read;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use timewire_base::{CyclicWindows, IfName, Span, StationName};
use timewire_datapath::DatapathError;
use timewire_host::HostError;
use timewire_host::apply::applied::{self, Held, Title};
use timewire_host::apply::{DesiredState, Failure, wanted};
use timewire_model::scenario::Scenario;
use timewire_model::scenario::host::HostSettings;
use timewire_sys::namespace::{self, OnParentDeath};
use timewire_tsn::file::ParseFile;

use super::result::Unavailable;
use super::shot::SenderSetup;
use super::{LaunchMethod, Request};
use crate::RunnerError;
use timewire_datapath::control::{Client, Request as MacRequest};

impl Unavailable {
    pub(super) fn new(why: impl Into<String>) -> Unavailable {
        Unavailable { why: why.into(), unsupported: false }
    }

    pub(super) fn lacks(why: impl Into<String>) -> Unavailable {
        Unavailable { why: why.into(), unsupported: true }
    }
}

/// An interface that is ready.
#[derive(Debug)]
pub(super) enum Ready {
    /// As it was.
    Plain,
    /// With a discipline.
    Etf(Held),
    /// With a MAC.
    Mac(Box<MacProcess>),
}

impl Ready {
    /// Restores it.
    pub(super) fn end(self) -> Result<(), RunnerError> {
        match self {
            Ready::Plain => Ok(()),
            Ready::Etf(held) => Ok(held.end()?),
            Ready::Mac(mac) => mac.end(),
        }
    }

    /// Where frames for the MAC go, and when it sends them.
    pub(super) fn mac(&self) -> Option<(&IfName, &CyclicWindows)> {
        match self {
            Ready::Mac(mac) => Some((&mac.stack, &mac.windows)),
            _ => None,
        }
    }
}

/// Makes the interface ready.
///
/// **Errors**: the host could not be restored after something failed, or a request to end came.
pub(super) fn ready(
    request: &Request,
    setup: &SenderSetup,
    way: LaunchMethod,
    cycle: Span,
    delta: Span,
) -> Result<Result<Ready, Unavailable>, RunnerError> {
    match way {
        LaunchMethod::Plain => Ok(Ok(Ready::Plain)),
        LaunchMethod::Etf => etf(request, setup, delta, false),
        LaunchMethod::EtfOffload => etf(request, setup, delta, true),
        LaunchMethod::Mac => mac(request, setup, cycle),
    }
}

fn etf(
    request: &Request,
    setup: &SenderSetup,
    delta: Span,
    offload: bool,
) -> Result<Result<Ready, Unavailable>, RunnerError> {
    let interface = &setup.interface;
    let queues = transmit_queues(interface);
    let launch = format!("launch_time: {{ delta: {}ns, offload: {offload} }}", delta.as_ns());
    let transmit = if queues > 1 {
        format!(
            "classes: [{{ priorities: [{}], queues: 1@0, {launch} }}, {{ queues: {}@1 }}]",
            request.priority.get(),
            queues - 1
        )
    } else if setup.is_bench || request.frames.whole_interface {
        launch
    } else {
        return Ok(Err(Unavailable::new(format!(
            "{interface} has one transmit queue, where etf drops every frame of other programs: \
             --whole-interface allows that"
        ))));
    };
    let text = format!(
        "timewire: 1\nkind: network\nname: measure-launch\n\
         stations:\n- name: alpha\n  host:\n    interfaces:\n      - name: {interface}\n        \
         transmit: {{ {transmit} }}\n"
    );
    let file = HostSettings::parse("measure launch", &text)
        .map_err(|errors| RunnerError::Invalid(errors.to_string()))?;
    let wanted = wanted(&file.host, &BTreeMap::new(), "measure launch");
    Ok(hold(&wanted, offload)?.map(Ready::Etf))
}

/// Has these settings until it is told to end.
pub(super) fn hold(
    wanted: &DesiredState,
    offload: bool,
) -> Result<Result<Held, Unavailable>, RunnerError> {
    if !wanted.errors.is_empty() {
        return Ok(Err(Unavailable::new(wanted.errors.join("; "))));
    }
    let title = Title { name: "measure-launch", file: "measure launch", by_hand: &[] };
    match applied::hold(&title, &wanted.settings) {
        Ok(Ok(held)) => Ok(Ok(held)),
        Ok(Err(failure)) => refused(failure, offload),
        Err(error @ HostError::Applied { .. }) => {
            Ok(Err(Unavailable::new(format!("{error}; `timewire undo` takes it back"))))
        }
        Err(error) => Err(error.into()),
    }
}

fn refused(failure: Failure, offload: bool) -> Result<Result<Held, Unavailable>, RunnerError> {
    match failure {
        Failure::Unread(error) => Err(error.into()),
        Failure::Refused(refusals) => {
            let unsupported = refusals.iter().all(|refusal| refusal.unsupported);
            let why = refusals.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ");
            Ok(Err(Unavailable { why, unsupported }))
        }
        Failure::Failed { at, why, left, reasons } if !left.is_empty() => {
            let left = left.iter().map(ToString::to_string);
            let failures = left.chain(reasons).chain([format!("{at}: {why}")]).collect();
            let path = timewire_host::apply::store::Store::open()?.log_path();
            Err(HostError::NotUndone { path, failures }.into())
        }
        Failure::Failed { why, .. } if why.contains("kind is unknown") => {
            Ok(Err(Unavailable::lacks(
                "this kernel lacks a queueing discipline that it needs, mqprio, taprio or etf \
                 (`timewire lab exec -- timewire measure launch` runs in one that has them)",
            )))
        }
        Failure::Failed { at, why, .. } => {
            let what = if offload { "the NIC or its driver does not do this: " } else { "" };
            let unsupported = offload || why.contains("not supported");
            Ok(Err(Unavailable { why: format!("{what}{why} ({at})"), unsupported }))
        }
    }
}

/// In the `/sys` of the calling thread.
pub(super) fn transmit_queues(interface: &IfName) -> usize {
    let listing = fs::read_dir(format!("/sys/class/net/{interface}/queues"));
    let names = listing.into_iter().flatten().flatten().map(|entry| entry.file_name());
    names.filter(|name| name.to_string_lossy().starts_with("tx-")).count()
}

/// A MAC that was started for a run.
#[derive(Debug)]
pub(super) struct MacProcess {
    child: Child,
    instance: String,
    stack: IfName,
    windows: CyclicWindows,
    ended: bool,
}

fn mac(
    request: &Request,
    setup: &SenderSetup,
    cycle: Span,
) -> Result<Result<Ready, Unavailable>, RunnerError> {
    if setup.peer.is_none() {
        return Ok(Err(Unavailable::new(
            "what the MAC sends has no timestamp here: it needs --peer, the interface at the \
                other end",
        )));
    }
    if !setup.is_bench && !request.frames.whole_interface {
        return Ok(Err(Unavailable::new(format!(
            "a MAC takes {} from all other programs: --whole-interface allows that",
            setup.interface
        ))));
    }
    if cycle < SHORTEST_OF_MAC {
        return Ok(Err(Unavailable::new(format!(
            "a cycle of {cycle} is too short for its slot and margin: at least {SHORTEST_OF_MAC}"
        ))));
    }
    let scenario = scenario(cycle);
    let parsed = Scenario::parse("measure launch", &scenario)
        .map_err(|errors| RunnerError::Invalid(errors.to_string()))?;
    let station = StationName::new("alpha").expect("invariant: a plain name");
    let windows = parsed.schedule.windows_of(&station);
    let instance = format!("measure{}", std::process::id());
    let path = std::env::temp_dir().join(format!("timewire-{instance}.yaml"));
    fs::write(&path, scenario).map_err(RunnerError::file("write", &path))?;
    let stack = IfName::new("twm0").expect("invariant: a plain name");
    let mut command = Command::new(&request.program);
    command.args(["tdm", "start", setup.interface.as_str(), "--foreground", "--file"]);
    command.arg(&path).args(["--station", "alpha", "--clock", "one-host", "--no-priorities"]);
    command.args(["--name", &instance, "--stack", stack.as_str()]);
    if setup.is_bench {
        command.arg("--move-addresses");
    }
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    let child = namespace::spawn(command, None, OnParentDeath::Kill);
    let child = child.map_err(|error| failed(format!("did not start: {error}")));
    let mut process = MacProcess { child: child?, instance, stack, windows, ended: false };
    let started = process.wait_until_it_answers();
    // It has read it.
    let _ = fs::remove_file(&path);
    Ok(started.map(|()| Ready::Mac(Box::new(process))))
}

/// What is handed to the MAC a quarter of a cycle before its slot must not be in the slot before:
/// ours is two fifths of the cycle. The rest is what a schedule has to have besides.
fn scenario(cycle: Span) -> String {
    let cycle = cycle.as_ns();
    let (guard, alpha) = (cycle / 25, cycle / 25 * 10);
    let beta = cycle - alpha - 2 * guard;
    format!(
        "timewire: 1
name: measure-launch
kind: network
segments: [{{ rate: 10Gbit }}]
stations:
  - {{ name: alpha, address: 10.78.0.1/24 }}
  - {{ name: beta, address: 10.78.0.2/24 }}
schedule:
  kind: tdm
  cycle_time: {cycle}ns
  guard: {guard}ns
  slots:
    - {{ station: alpha, transmit: {alpha}ns }}
    - {{ station: beta, transmit: {beta}ns }}
streams:
  - {{ name: launch, kind: request-response, talker: alpha, listeners: beta, port: 15001,
       size: 64B, class: 7, timeout: 1s }}
mac: {{ queue_frames: 64 }}
"
    )
}

impl MacProcess {
    fn wait_until_it_answers(&mut self) -> Result<(), Unavailable> {
        let client = Client::new(&self.instance);
        let give_up = Instant::now() + START;
        loop {
            if client.status().is_ok() {
                return Ok(());
            }
            let ended = self.child.try_wait().is_ok_and(|status| status.is_some());
            if ended || Instant::now() > give_up {
                self.ended = ended;
                let mut said = String::new();
                if ended && let Some(stderr) = &mut self.child.stderr {
                    // What it does not say is not known.
                    let _ = stderr.read_to_string(&mut said);
                }
                let said = said.lines().collect::<Vec<_>>().join("; ");
                return Err(Unavailable::new(format!("the MAC did not start: {}", said.trim())));
            }
            std::thread::sleep(POLL_INTERVAL);
        }
    }

    fn end(mut self) -> Result<(), RunnerError> {
        Client::new(&self.instance).ask(&MacRequest::Stop)?;
        self.ended = true;
        let status = self.child.wait().map_err(|error| failed(error.to_string()))?;
        if status.success() { Ok(()) } else { Err(failed(format!("ended with {status}"))) }
    }
}

fn failed(how: String) -> RunnerError {
    DatapathError::Program { what: "the MAC".to_owned(), how, stderr: String::new() }.into()
}

impl Drop for MacProcess {
    fn drop(&mut self) {
        if !self.ended {
            // Both fail only when it has ended already; its watchdog restores the host.
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

/// Its margin of 5 us and a frame fit into two fifths of it, with room to wake in.
const SHORTEST_OF_MAC: Span = Span::from_us(50);
const START: Duration = Duration::from_secs(10);
const POLL_INTERVAL: Duration = Duration::from_millis(5);
