// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `timewire agent`: whom this station trusts, and which agents there are.

mod serve;

use std::fmt::Write as _;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, bail};
use clap::{Args, Subcommand, ValueEnum};
use serde_json::{Value as Json, json};
use timewire_agent::links::{
    Fingerprint, FoundAgent, Identity, LinkError, Offer, OfferLimits, PairedPeer, PairingCode,
    Peers, Role, find_agents, pair_with,
};
use timewire_base::{Span, parse_span};
use timewire_sys::privilege::keep_capabilities;

use crate::ending::{self, Ending, WORDS};
use crate::output;
use crate::traffic::parse_socket;

/// What is done about agents.
#[derive(Debug, Subcommand)]
pub enum AgentCommand {
    /// Take part in experiments: do what a paired controller asks, and restore the host
    ///
    /// Whatever an experiment changes here is restored at its end, when its controller is not heard
    /// of for the length of a lease, and when this agent ends or is killed and started again.
    Serve(serve::Serve),
    /// Pair this station with another: here the agent shows a code, there it is given
    ///
    /// Without an address this station is the agent: it shows a code, waits for the controller that
    /// knows it, and lets that one control it from then on. With the address of such an agent this
    /// station is the controller. Three wrong codes or five minutes end the offer.
    Pair(Pair),
    /// Show this station's fingerprint, and whom it trusts as what
    Peers(PeersArgs),
    /// Trust a peer no longer, for connections from now on
    Forget(Forget),
    /// List the agents that announce themselves on the links of this host
    ///
    /// What is listed is what somebody says; only pairing tells who it is.
    Find(Find),
}

#[derive(Debug, Args)]
pub struct Pair {
    /// The agent that shows a code
    #[arg(value_name = "HOST:PORT")]
    pub agent: Option<String>,
    /// The code that it shows [default: read from standard input]
    #[arg(long, requires = "agent")]
    pub code: Option<PairingCode>,
    /// Where to wait for the controller [default: port 28412 on all addresses]
    #[arg(long, value_name = "ADDRESS:PORT", value_parser = parse_socket,
          conflicts_with = "agent")]
    pub listen: Option<SocketAddr>,
    /// How long to wait for it [default: 300s]
    #[arg(long, value_parser = parse_span, value_name = "TIME", conflicts_with = "agent")]
    pub within: Option<Span>,
    /// What the other station is to call this one [default: the host's name]
    #[arg(long)]
    pub name: Option<String>,
    #[command(flatten)]
    pub keys: Keys,
    /// Print JSON, one object a line
    #[arg(long)]
    pub json: bool,
}

/// Where a station's key and its peers are.
#[derive(Debug, Args)]
pub struct Keys {
    /// The directory of key and peers [default: /var/lib/timewire/agent; for users other than root
    /// ~/.local/state/timewire/agent]
    #[arg(long, value_name = "DIR")]
    pub dir: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub struct PeersArgs {
    #[command(flatten)]
    pub keys: Keys,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct Forget {
    /// Its fingerprint, or its name when only one peer has it
    #[arg(value_name = "PEER")]
    pub peer: String,
    /// What it is trusted as no longer [default: both]
    #[arg(long = "as", value_enum, value_name = "ROLE")]
    pub role: Option<RoleChoice>,
    #[command(flatten)]
    pub keys: Keys,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum RoleChoice {
    /// It may control this station
    Controller,
    /// This station controls it
    Agent,
}

#[derive(Debug, Args)]
pub struct Find {
    /// How long to listen; agents announce themselves every two seconds
    #[arg(long = "for", value_parser = parse_span, value_name = "TIME", default_value = "5s")]
    pub time: Span,
    #[command(flatten)]
    pub keys: Keys,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Carries a command out.
pub fn run(command: AgentCommand) -> anyhow::Result<ExitCode> {
    match command {
        AgentCommand::Serve(args) => serve::run(&args),
        AgentCommand::Pair(args) => match &args.agent {
            Some(agent) => give_code(agent, &args),
            None => offer(&args),
        },
        AgentCommand::Peers(args) => peers(&args),
        AgentCommand::Forget(args) => forget(&args),
        AgentCommand::Find(args) => find(&args),
    }
}

impl Keys {
    pub fn directory(&self) -> PathBuf {
        self.dir.clone().unwrap_or_else(Identity::default_directory)
    }

    fn peers(&self) -> Peers {
        Peers::in_directory(&self.directory())
    }
}

fn own_name(args: &Pair) -> anyhow::Result<String> {
    if let Some(name) = &args.name {
        return Ok(name.clone());
    }
    let path = "/proc/sys/kernel/hostname";
    let name = std::fs::read_to_string(path).with_context(|| format!("cannot read {path}"))?;
    Ok(name.trim().to_owned())
}

fn duration(span: Span) -> anyhow::Result<Duration> {
    match u64::try_from(span.as_ns()) {
        Ok(ns) if ns > 0 => Ok(Duration::from_nanos(ns)),
        _ => bail!("a time of {span} is none to wait; more than 0s would be right"),
    }
}

fn offer(args: &Pair) -> anyhow::Result<ExitCode> {
    let name = own_name(args)?;
    let mut limits = OfferLimits::default();
    if let Some(within) = args.within {
        limits.lasts = duration(within)?;
    }
    let identity = Identity::load_or_create(&args.keys.directory())?;
    let peers = args.keys.peers();
    // Strangers are listened to from here on.
    keep_capabilities(&[]).context("cannot give privileges away")?;
    ending::exit_on_request()?;
    let at = |address: SocketAddr| {
        let log = Arc::new(|line: &str| say!("note: {line}"));
        Offer::new(address, &identity, &peers, &name, limits, log)
    };
    let offer = match args.listen {
        Some(address) => at(address)?,
        None => match at((IpAddr::from(Ipv6Addr::UNSPECIFIED), PAIRING_PORT).into()) {
            // A host without IPv6.
            Err(LinkError::System { source, .. }) if source.kind() != io::ErrorKind::AddrInUse => {
                at((IpAddr::from(Ipv4Addr::UNSPECIFIED), PAIRING_PORT).into())?
            }
            other => other?,
        },
    };
    let (code, address, own) = (offer.code().to_string(), offer.address(), identity.fingerprint());
    if args.json {
        let data = json!({
            "code": code, "address": address.to_string(), "fingerprint": own.to_string(),
            "name": name, "within_s": limits.lasts.as_secs(),
        });
        output::print(&format!("{}\n", json!({"schema": PAIRING, "type": "offer", "data": data})))?;
    } else {
        output::print(&format!(
            "{name} waits {} s for its controller, on {address}\n  fingerprint {own}\n\
             on the controller: timewire agent pair {name}:{} --code {code}\n",
            limits.lasts.as_secs(),
            address.port(),
        ))?;
    }
    let paired = offer.wait(|error| say!("note: {error}"))?;
    tell_paired(args, &paired)
}

fn give_code(agent: &str, args: &Pair) -> anyhow::Result<ExitCode> {
    ending::exit_on_request()?;
    let code = match &args.code {
        Some(code) => code.clone(),
        None => {
            say_text!("the code that {agent} shows: ");
            let mut line = String::new();
            io::stdin().read_line(&mut line).context("cannot read the code")?;
            line.trim().parse()?
        }
    };
    let identity = Identity::load_or_create(&args.keys.directory())?;
    let paired = pair_with(agent, &identity, &args.keys.peers(), &own_name(args)?, &code)?;
    tell_paired(args, &paired)
}

fn tell_paired(args: &Pair, peer: &PairedPeer) -> anyhow::Result<ExitCode> {
    if args.json {
        let line = json!({"schema": PAIRING, "type": "paired", "data": peer_json(peer)});
        return output::print(&format!("{line}\n"));
    }
    let may = match peer.role {
        Role::Controller => "it may control this station from now on",
        Role::Agent => "this station controls it from now on",
    };
    output::print(&format!(
        "paired with {}: {may}\n  fingerprint {}\n",
        peer.name, peer.fingerprint
    ))
}

fn peer_json(peer: &PairedPeer) -> Json {
    json!({
        "role": peer.role, "name": peer.name, "fingerprint": peer.fingerprint.to_string(),
        "paired_s": peer.paired_s,
    })
}

fn peers(args: &PeersArgs) -> anyhow::Result<ExitCode> {
    let own = match Identity::load(&args.keys.directory()) {
        Ok(identity) => Some(identity.fingerprint().to_string()),
        Err(LinkError::System { source, .. }) if source.kind() == io::ErrorKind::NotFound => None,
        Err(error) => return Err(error.into()),
    };
    let peers = args.keys.peers().list()?;
    if args.json {
        let peers: Vec<Json> = peers.iter().map(peer_json).collect();
        let all = json!({"schema": "timewire.agent-peers/1", "fingerprint": own, "peers": peers});
        return output::json(&all);
    }
    let mut text = match own {
        Some(own) => format!("this station: {own}\n"),
        None => "this station has no key yet; `timewire agent pair` makes one\n".to_owned(),
    };
    for peer in &peers {
        let PairedPeer { role, name, fingerprint, .. } = peer;
        let _ = writeln!(text, "  {:<10}  {name:<20}  {fingerprint}", role.name());
    }
    output::print(&text)
}

fn forget(args: &Forget) -> anyhow::Result<ExitCode> {
    let peers = args.keys.peers();
    let fingerprint = match args.peer.parse::<Fingerprint>() {
        Ok(fingerprint) => fingerprint,
        Err(_) => by_name(&peers, &args.peer)?,
    };
    let roles: &[Role] = match args.role {
        None => &Role::ALL,
        Some(RoleChoice::Controller) => &[Role::Controller],
        Some(RoleChoice::Agent) => &[Role::Agent],
    };
    let mut forgotten = false;
    for role in roles {
        forgotten |= peers.forget(*role, fingerprint)?;
    }
    if !forgotten {
        bail!("{} is not trusted as that; nothing was changed", args.peer);
    }
    Ok(ExitCode::SUCCESS)
}

fn by_name(peers: &Peers, name: &str) -> anyhow::Result<Fingerprint> {
    let named = peers.list()?.into_iter().filter(|peer| peer.name == name);
    let mut found: Vec<Fingerprint> = named.map(|peer| peer.fingerprint).collect();
    found.sort_unstable();
    found.dedup();
    match found[..] {
        [one] => Ok(one),
        [] => {
            bail!("no peer has the name or fingerprint `{name}`; `timewire agent peers` lists them")
        }
        _ => bail!("{} peers are called `{name}`; their fingerprints differ", found.len()),
    }
}

fn find(args: &Find) -> anyhow::Result<ExitCode> {
    let time = duration(args.time)?;
    let peers = args.keys.peers();
    keep_capabilities(&[]).context("cannot give privileges away")?;
    let ending = Ending::new()?;
    let found = find_agents(time, || ending.is_asked())?;
    let ended_early = ending.is_asked();
    let known = |agent: &FoundAgent| -> Result<bool, LinkError> {
        Ok(peers.find(Role::Agent, agent.announcement.fingerprint)?.is_some())
    };
    let mut rows = Vec::new();
    let mut text = String::new();
    for agent in &found {
        let (said, paired) = (&agent.announcement, known(agent)?);
        rows.push(json!({
            "name": said.name, "address": agent.address, "program": said.program,
            "fingerprint": said.fingerprint.to_string(), "paired": paired,
        }));
        let paired = if paired { "paired" } else { "not paired" };
        let _ = writeln!(
            text,
            "{:<20}  {:<40}  {:<8}  {paired:<10}  {}",
            said.name, agent.address, said.program, said.fingerprint
        );
    }
    if args.json {
        let all = json!({
            "schema": "timewire.agents/1", "agents": rows, "ended_early": ended_early,
        });
        let code = output::json(&all)?;
        return Ok(if ended_early { ExitCode::from(ending::CODE) } else { code });
    }
    if ended_early {
        output::print(&text)?;
        say!("{WORDS}: these are the agents that were heard until then");
        return Ok(ExitCode::from(ending::CODE));
    }
    if found.is_empty() {
        say!("no agent was heard within {}", args.time);
    }
    output::print(&text)
}

const PAIRING: &str = "timewire.agent-pairing/1";
/// Where an agent waits to be paired; its links have the port before.
const PAIRING_PORT: u16 = 28_412;
