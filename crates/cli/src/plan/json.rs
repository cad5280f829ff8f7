// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What `plan --json` prints, made while it is written: a plan of many streams is as long as all of
//! its transmissions.

use serde::ser::{Serialize, SerializeMap, Serializer};
use serde_json::{Value, json};
use timewire_plan::keep::Changes;
use timewire_plan::model::{Plan, PortGates, Problem, StreamId};
use timewire_plan::words::{self, Refusals};

use super::Effort;
use super::file::{More, STREAM_SCHEMA};
use crate::output::Each;

/// What `--json` prints; and with `--explain`.
const PLAN_SCHEMA: &str = "timewire.network-plan/1";

/// The plan of all streams. Keys are in alphabetical order.
pub struct Whole<'a> {
    problem: &'a Problem,
    plan: &'a Plan,
    /// By link.
    loads: &'a [u64],
    effort: &'a Effort,
    more: Option<&'a More>,
    refusals: Refusals<'a>,
    changes: Option<&'a Changes>,
}

impl<'a> Whole<'a> {
    pub fn of(
        problem: &'a Problem,
        plan: &'a Plan,
        loads: &'a [u64],
        effort: &'a Effort,
        more: Option<&'a More>,
    ) -> Whole<'a> {
        let refusals = Refusals::of(problem);
        Whole { problem, plan, loads, effort, more, refusals, changes: None }
    }

    /// With what differs from an earlier plan.
    pub fn with_changes(self, changes: Option<&'a Changes>) -> Whole<'a> {
        Whole { changes, ..self }
    }

    fn port(&self, gates: &PortGates) -> Value {
        let windows: Vec<Value> = gates
            .windows
            .iter()
            .map(|w| json!({"start_ns": w.start, "end_ns": w.end, "queue": w.queue}))
            .collect();
        json!({
            "link": self.problem.network().link(gates.link).name,
            "cycle_ns": gates.cycle,
            "entries": gates.entries,
            "spare_ns": gates.spare,
            "load_ppm": self.loads[gates.link.index()],
            "windows": windows,
        })
    }

    fn search(&self) -> Value {
        json!({
            "steps": self.effort.steps,
            "cpu_ns": ns(self.effort.cpu),
            "cut": self.effort.cut,
            "ended_early": self.effort.asked,
            "read_cpu_ns": ns(self.effort.times.read),
            "earlier_plan_cpu_ns": ns(self.effort.times.seat),
            "check_cpu_ns": ns(self.effort.times.check),
        })
    }
}

impl Serialize for Whole<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let network = self.problem.network();
        let ids = || (0..self.problem.streams().len()).map(StreamId::from_index);
        let streams = || ids().map(|id| stream(self.problem, self.plan, &self.refusals, id));
        let names = || network.links().iter().map(|link| link.name.as_str());
        let nodes = || network.nodes().iter().map(|node| node.name.as_str());
        let ports = || self.plan.gates.iter().map(|gates| self.port(gates));
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("admitted", &self.plan.admitted.len())?;
        if let Some(more) = self.more.filter(|more| more.is_asked()) {
            map.serialize_entry("asked_for", &Each(|| more.asked_json()))?;
        }
        if let Some(changes) = self.changes {
            map.serialize_entry("changes", changes)?;
        }
        map.serialize_entry("checked", &self.effort.checked)?;
        let beyond = || self.more.into_iter().flat_map(More::clocks_beyond);
        if beyond().next().is_some() {
            map.serialize_entry("clocks_beyond_sync_error", &Each(beyond))?;
        }
        map.serialize_entry("cycle_ns", &self.plan.cycle)?;
        if let Some(gated) = self.more.map(More::gated).filter(|gated| !gated.is_empty()) {
            map.serialize_entry("gated_credit", gated)?;
        }
        if let Some(limits) = self.more.map(More::limits).filter(|limits| !limits.is_empty()) {
            map.serialize_entry("limits", limits)?;
        }
        map.serialize_entry("links", &Each(names))?;
        map.serialize_entry("nodes", &Each(nodes))?;
        if let Some(more) = self.more.filter(|more| more.is_asked()) {
            map.serialize_entry("not_interpreted", more.not_interpreted())?;
        }
        if let Some(why) = self.more.and_then(More::unrendered) {
            map.serialize_entry("not_rendered", &why)?;
        }
        map.serialize_entry("ports", &Each(ports))?;
        map.serialize_entry("refused", &self.plan.refused.len())?;
        map.serialize_entry("schema", PLAN_SCHEMA)?;
        map.serialize_entry("search", &self.search())?;
        if let Some(report) = self.more.and_then(More::simulated) {
            map.serialize_entry("simulation", report)?;
        }
        if let Some(apart) = self.more.map(More::apart).filter(|apart| !apart.is_empty()) {
            map.serialize_entry("simulation_clocks_apart", apart)?;
        }
        map.serialize_entry("streams", &Each(streams))?;
        if let Some(more) = self.more {
            map.serialize_entry("not_scheduled", &Each(|| more.rest_json()))?;
        }
        map.end()
    }
}

fn ns(time: std::time::Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// One stream alone.
pub fn alone(problem: &Problem, plan: &Plan, id: StreamId) -> Value {
    let mut value = stream(problem, plan, &Refusals::of(problem), id);
    value["schema"] = json!(STREAM_SCHEMA);
    value
}

fn stream(problem: &Problem, plan: &Plan, refusals: &Refusals<'_>, id: StreamId) -> Value {
    let name = &problem.stream(id).name;
    let refused = plan.refused.binary_search_by_key(&id, |refusal| refusal.stream);
    if let Ok(refusal) = refused.map(|place| &plan.refused[place]) {
        return json!({
            "name": name,
            "admitted": false,
            "class": problem.stream(id).priority,
            "ports": refusals.ports(refusal),
            "proof": refusal.certificate.is_proof(),
            "reason": words::reason(problem, &refusal.certificate),
            "certificate": refusal.certificate,
        });
    }
    let network = problem.network();
    let place = plan.admitted.binary_search_by_key(&id, |admission| admission.stream);
    let sent = place.map(|place| plan.admitted[place].transmissions.as_slice());
    let rows: Vec<Value> = sent
        .unwrap_or_default()
        .iter()
        .map(|sent| {
            json!({
                "link": network.link(sent.link).name,
                "copy": sent.copy,
                "frame": sent.frame,
                "queue": sent.queue,
                "start_ns": sent.start,
            })
        })
        .collect();
    json!({
        "name": name,
        "admitted": true,
        "latency_ns": words::latency(problem, plan, id),
        "transmissions": rows,
    })
}
