// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `run --on lab`, `lab:uml` or `lab:qemu` with an experiment, written or compiled: its network, of
//! which stations and bridges are namespaces, on this kernel or in a machine of the laboratory.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, bail};
use tempfile::TempDir;
use timewire_host::doctor::Probe;
use timewire_lab::fixture::{Bench, Fixture};
use timewire_model::scenario::hosts_file::{AgentAddress, HostsFile};
use timewire_model::scenario::orchestrated::{NetworkSpec, Orchestrated};
use timewire_runner::network::Obstacle;

use crate::doctor;
use crate::ending::WORDS;
use crate::experiment::{Run, inner_command};
use crate::machine::RunMachine;

/// The network of a file, or why there is none.
pub fn network(file: &Orchestrated) -> anyhow::Result<&NetworkSpec> {
    let Some(network) = &file.network else {
        bail!(
            "{}: it has no `links`, which say how its stations are linked in the laboratory; \
             without them it is for hosts: --on HOSTS",
            file.name
        );
    };
    Ok(network)
}

/// Runs this same command in a machine, which writes into the run directory.
pub fn in_machine(args: &Run, directory: &Path) -> anyhow::Result<ExitCode> {
    let machine = RunMachine::find(&args.place)?;
    fs::create_dir_all(directory)
        .with_context(|| format!("cannot create {}", directory.display()))?;
    let directory =
        directory.canonicalize().with_context(|| format!("cannot find {}", directory.display()))?;
    let mut command = inner_command(&directory, &machine.described())?;
    if args.output.json {
        command.push("--json".to_owned());
    }
    match machine.run(command, &directory)? {
        Some(code) => Ok(ExitCode::from(code)),
        None => bail!("{WORDS}; the same command goes on with what is not done"),
    }
}

/// Whose kernel the network is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Of {
    /// That of a machine, which ends with the run.
    Machine,
    /// This one, where nothing is left however the run ends.
    ThisKernel,
}

/// What this kernel lacks to have networks, and of more that these need.
pub fn lacking(more: Vec<Probe>) -> anyhow::Result<Vec<Obstacle>> {
    let mut probes = vec![
        Probe::Scratch,
        Probe::BridgeVlan,
        Probe::Filters,
        Probe::Netem,
        Probe::PacketSocket,
        Probe::ToolIp,
        Probe::ToolTc,
    ];
    probes.extend(more);
    doctor::lacking(probes)
}

/// A network that is there until this is dropped.
pub struct Laboratory {
    // Before the directory of its agents.
    bench: Bench,
    /// Its stations and bridges.
    pub hosts: HostsFile,
    /// On this kernel.
    agents: Option<TempDir>,
}

impl Laboratory {
    /// The network namespace of each of its stations and bridges.
    pub fn namespaces(&self) -> impl Iterator<Item = (String, PathBuf)> {
        let nodes = self.hosts.stations.iter().map(|it| it.name.to_string());
        nodes.map(|name| (name.clone(), self.bench.netns(&name)))
    }

    /// Where its agents keep what they need.
    pub fn agents(&self) -> &Path {
        // Of the `/tmp` of a machine nothing stays.
        self.agents.as_ref().map_or(Path::new("/tmp/timewire-agents"), |it| it.path())
    }
}

impl Drop for Laboratory {
    fn drop(&mut self) {
        if self.agents.is_some() {
            // Their links are closed, so they end; until then they write into their directory.
            self.bench.wait_for_programs(AGENTS_END_WITHIN);
        }
    }
}

/// How long agents may take to end.
const AGENTS_END_WITHIN: Duration = Duration::from_secs(10);

/// Makes the network of a file, here. Frames of `streams` all have a VLAN tag; those of steps alone
/// are as their programs send them.
pub fn build(file: &Orchestrated, of: Of, streams: bool) -> anyhow::Result<Laboratory> {
    let network = network(file)?;
    let mut fixture = Fixture::new();
    fixture.ports_like_stations();
    for node in network.nodes(&file.stations) {
        if network.bridges.contains(node) {
            fixture.bridge(node.as_str());
        } else {
            fixture.station(node.as_str());
        }
    }
    for link in &network.links {
        let [one, other] = link.between.as_slice() else {
            bail!("invariant: a link was read with two ends");
        };
        let (one, other) = (one.as_str(), other.as_str());
        if streams {
            fixture.wire_of_tagged(one, other, link.rate, link.delay);
        } else {
            fixture.wire(one, other, link.rate, link.delay);
        }
    }
    let bench = match of {
        Of::Machine => fixture.build()?,
        Of::ThisKernel => fixture.build_undoable(&format!("network of {}", file.name))?,
    };
    let mut agents = Vec::new();
    for station in &file.stations {
        let netns = bench.netns(station.name.as_str());
        let netns = netns.file_name().context("invariant: a namespace has a name")?;
        agents.push((&station.name, AgentAddress::Netns(netns.to_string_lossy().into_owned())));
    }
    let text = HostsFile::text_of(agents.iter().map(|(name, agent)| (*name, agent)));
    let hosts = HostsFile::parse("network", &text).map_err(|errors| anyhow::anyhow!("{errors}"))?;
    let agents = match of {
        Of::Machine => None,
        Of::ThisKernel => {
            let made = tempfile::Builder::new().prefix("timewire-agents-").tempdir();
            Some(made.context("cannot make a directory for the agents of its stations")?)
        }
    };
    Ok(Laboratory { bench, hosts, agents })
}
