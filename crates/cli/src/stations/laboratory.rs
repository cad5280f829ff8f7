// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `run --on lab:uml` or `lab:qemu` with an experiment file: its network in a machine of the
//! laboratory, where its stations are namespaces.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, bail};
use timewire_lab::fixture::{Bench, Fixture};
use timewire_model::scenario::experiment_file::{ExperimentFile, NetworkSpec};
use timewire_model::scenario::hosts_file::{AgentAddress, HostsFile};

use crate::ending::WORDS;
use crate::experiment::{Run, inner_command};
use crate::machine::RunMachine;

/// The network of a file, or why there is none.
pub fn network(file: &ExperimentFile) -> anyhow::Result<&NetworkSpec> {
    let Some(network) = &file.network else {
        bail!(
            "{}: it has no key `network`, which says how its stations are linked in the \
             laboratory's kernel; without that it is for hosts: --on HOSTS",
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

/// Makes the network of a file, here; the stations are as the file says until the bench is dropped.
pub fn build(file: &ExperimentFile) -> anyhow::Result<(Bench, HostsFile)> {
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
    for vlan in &network.vlans {
        fixture.vlan(u16::try_from(vlan.get()).context("invariant: a VLAN is below 4095")?);
    }
    for link in &network.links {
        let [one, other] = link.between.as_slice() else {
            bail!("invariant: a link was read with two ends");
        };
        fixture.wire(one.as_str(), other.as_str(), link.rate, link.delay);
    }
    let bench = fixture.build()?;
    let mut agents = Vec::new();
    for station in &file.stations {
        let netns = bench.netns(station.name.as_str());
        let netns = netns.file_name().context("invariant: a namespace has a name")?;
        agents.push((&station.name, AgentAddress::Netns(netns.to_string_lossy().into_owned())));
    }
    let text = HostsFile::text_of(agents.iter().map(|(name, agent)| (*name, agent)));
    let hosts = HostsFile::parse("network", &text).map_err(|errors| anyhow::anyhow!("{errors}"))?;
    Ok((bench, hosts))
}

/// Where agents keep what they need in a machine: of its `/tmp` nothing stays.
pub fn agents() -> PathBuf {
    PathBuf::from("/tmp/timewire-agents")
}
