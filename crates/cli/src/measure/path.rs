// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `measure path`: how long messages take from program to program.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use timewire_base::{IfName, Span, parse_bytes, parse_span};
use timewire_runner::measure::path::{self, PORT, PathSpec};
use timewire_runner::measure::receive::plan::{Over, Waiting};

use super::TimestampsArg;
use crate::output;
use crate::traffic::parse_socket;

#[derive(Debug, Args)]
pub struct PathArgs {
    /// Who sends the messages back: `timewire measure path --answer` runs there [default: between
    /// two stations in namespaces]
    #[arg(long, value_name = "ADDRESS:PORT", value_parser = parse_socket)]
    pub to: Option<SocketAddr>,
    /// Only answer the messages that come to this address, until ended
    #[arg(long, value_name = "ADDRESS:PORT", value_parser = parse_socket,
          conflicts_with_all = ["to", "reflect", "rate"])]
    pub answer: Option<SocketAddr>,
    /// With --to or --answer: the interface; the timestamps of its NIC are used
    #[arg(long, value_name = "IF")]
    pub interface: Option<IfName>,
    /// Source: udp, frames, ring, xdp, xdp:generic, xdp:native, xdp:zero-copy
    #[arg(long, default_value = "udp")]
    pub over: Over,
    /// How receivers wait: block, poll, busy
    #[arg(long, default_value = "block")]
    pub wait: Waiting,
    /// There and back
    #[arg(long)]
    pub reflect: bool,
    /// The UDP port to send from; answers go to the next one
    #[arg(long, default_value_t = PORT)]
    pub port: u16,
    /// The length of the messages in UDP
    #[arg(long, value_parser = parse_bytes, default_value = "64B")]
    pub payload: u32,
    /// The rate that is 100 %, frames per second [default: the largest that loses nothing]
    #[arg(long)]
    pub rate: Option<u32>,
    /// Where the search for it begins, frames per second
    #[arg(long, default_value_t = 500_000, conflicts_with = "rate")]
    pub most: u32,
    /// How well it is to be known, in percent
    #[arg(long, value_name = "PERCENT", default_value_t = 5, conflicts_with = "rate")]
    pub resolution: u32,
    /// Measure at these shares of it, in percent
    #[arg(long, value_delimiter = ',', default_value = "10,50,90")]
    pub loads: Vec<u32>,
    /// How long a trial takes
    #[arg(long, value_name = "TIME", value_parser = parse_span, default_value = "1s")]
    pub trial: Span,
    /// With --to: how close the two hosts' clocks are; without it no time between them is told
    #[arg(long, value_name = "TIME", value_parser = parse_span, requires = "to")]
    pub far_clock_error: Option<Span>,
    /// With --interface: whose timestamps are used beside the program's
    #[arg(long, value_enum, default_value = "auto")]
    pub timestamps: TimestampsArg,
    /// How well the NIC's clock must be known for its timestamps to be used
    #[arg(long, value_name = "TIME", value_parser = parse_span, default_value = "1us")]
    pub max_clock_error: Span,
    /// Write path.json into this directory, from which `report` makes a page
    #[arg(long, value_name = "DIR", conflicts_with = "answer")]
    pub out: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

pub fn run(args: &PathArgs) -> anyhow::Result<ExitCode> {
    if let Some(bind) = args.answer {
        let ready = &mut |at| say!("answering on {at}");
        let answered = path::reflect_for_others(bind, args.interface.clone(), ready)?;
        if args.json {
            output::json_line(&answered)?;
            return Ok(ExitCode::SUCCESS);
        }
        say!("{} messages answered", answered.answers.sent);
        answered.answers.drop_causes.iter().for_each(|cause| say!("{cause}"));
        return Ok(ExitCode::SUCCESS);
    }
    let spec = PathSpec {
        to: args.to,
        interface: args.interface.clone(),
        over: args.over,
        wait: args.wait,
        reflect: args.reflect,
        port: args.port,
        payload: usize::try_from(args.payload).unwrap_or(usize::MAX),
        rate: args.rate,
        most: args.most,
        resolution: args.resolution,
        loads: args.loads.clone(),
        trial: args.trial,
        far_clock_error: args.far_clock_error,
        max_clock_error: args.max_clock_error,
        timestamps: args.timestamps.into(),
    };
    super::told(&super::measured(&spec, args.out.as_deref())?, args.json)
}
