// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `top`: what this host does now, again and again.

use std::io::{self, IsTerminal};
use std::os::fd::AsFd;
use std::process::ExitCode;

use anyhow::bail;
use clap::Args;
use timewire_base::{IfName, Span};
use timewire_datapath::streams::clocks::ClockBound;
use timewire_datapath::top::{Look, Room, view};
use timewire_sys::terminal;

use crate::ending::Ending;
use crate::output;
use crate::traffic::{clock_error, parse_time};

#[derive(Debug, Args)]
pub struct Top {
    /// Interfaces [default: all of this network namespace]
    #[arg(value_name = "IFACE")]
    pub interfaces: Vec<IfName>,
    /// From one look to the next, at least 200ms
    #[arg(long, value_name = "TIME", value_parser = parse_time, default_value = "2s")]
    pub interval: Span,
    /// This host's clock is at most so far from what gives the time [default: that of
    /// TIMEWIRE_CLOCK_ERROR]
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    pub clock_error: Option<Span>,
    /// Look once and end: counts, no rates
    #[arg(long)]
    pub once: bool,
    /// Print JSON, a line for each look
    #[arg(long)]
    pub json: bool,
}

/// A look asks tools and the kernel many things; more often than this it would be what is seen.
const MIN_INTERVAL: Span = Span::from_ms(200);

pub fn run(args: &Top) -> anyhow::Result<ExitCode> {
    if args.interval < MIN_INTERVAL {
        bail!(
            "--interval {} is too short: a look itself takes time; {MIN_INTERVAL} or more",
            args.interval
        );
    }
    let clock_error = ClockBound::stated(clock_error(args.clock_error)?);
    let ending = Ending::new()?;
    let mut screen = Screen { drawn: 0, is_live: !args.json && io::stdout().is_terminal() };
    let mut before: Option<Look> = None;
    loop {
        let look = Look::take(&args.interfaces, clock_error.clone())?;
        if args.json {
            output::json_line(&look)?;
        } else {
            screen.show(&look, before.as_ref(), args.once)?;
        }
        if args.once {
            return Ok(ExitCode::SUCCESS);
        }
        before = Some(look);
        if ending.rest(args.interval) {
            return Ok(ExitCode::SUCCESS);
        }
    }
}

/// Where it is shown.
struct Screen {
    /// Whether it is drawn again and again in one place.
    is_live: bool,
    /// How many lines are there.
    drawn: usize,
}

impl Screen {
    fn show(&mut self, look: &Look, before: Option<&Look>, once: bool) -> anyhow::Result<()> {
        if !self.is_live || once {
            let text = view(look, before, Room { columns: usize::MAX, lines: None });
            let gap = if before.is_some() { "\n" } else { "" };
            output::print(&format!("{gap}{text}"))?;
            return Ok(());
        }
        let (columns, lines) = terminal::size(io::stdout().as_fd()).unwrap_or((80, 24));
        let room = Room { columns: columns.into(), lines: Some(lines.into()) };
        let text = view(look, before, room);
        let back = match self.drawn {
            0 => String::new(),
            above => format!("\x1b[{above}A\r\x1b[J"),
        };
        self.drawn = text.lines().count();
        output::print(&format!("{back}{text}"))?;
        Ok(())
    }
}
