// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What `talk` and `listen` have in common on the command line.

use std::net::{SocketAddr, ToSocketAddrs as _};
use std::str::FromStr;

use timewire_agent::sweep::CLOCK_ERROR;
use timewire_base::{Span, parse_span};
use timewire_datapath::listen::BusyPoll;
use timewire_datapath::streams::ThreadSpec;
use timewire_model::scenario::host::{CpuList, EtherType};
use timewire_model::scenario::streams::host_and_port;
use timewire_sys::names;
use timewire_sys::scheduler::RtPriority;

/// The way that messages take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TransportArg {
    Udp,
    Frames,
    Ring,
    Xdp(Mode),
}

/// How AF_XDP works.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    Auto,
    Generic,
    Native,
    ZeroCopy,
}

impl FromStr for TransportArg {
    type Err = String;

    fn from_str(text: &str) -> Result<TransportArg, String> {
        Ok(match text {
            "udp" => TransportArg::Udp,
            "frames" => TransportArg::Frames,
            "ring" => TransportArg::Ring,
            "xdp" | "xdp:auto" => TransportArg::Xdp(Mode::Auto),
            "xdp:generic" => TransportArg::Xdp(Mode::Generic),
            "xdp:native" => TransportArg::Xdp(Mode::Native),
            "xdp:zerocopy" => TransportArg::Xdp(Mode::ZeroCopy),
            _ => {
                return Err("udp, frames, ring, xdp, xdp:generic, xdp:native or xdp:zerocopy \
                            is wanted"
                    .to_owned());
            }
        })
    }
}

/// A time above zero.
pub fn parse_interval(text: &str) -> Result<Span, String> {
    let span = parse_span(text).map_err(|error| error.to_string())?;
    if span > Span::ZERO { Ok(span) } else { Err(format!("{span} is not above zero")) }
}

/// A time of zero or more.
pub fn parse_time(text: &str) -> Result<Span, String> {
    let span = parse_span(text).map_err(|error| error.to_string())?;
    if span.is_negative() { Err(format!("{span} is negative")) } else { Ok(span) }
}

/// How far clocks are apart at most, as `--clock-error` says, or who made this station.
///
/// **Errors**: `TIMEWIRE_CLOCK_ERROR` is no time.
pub fn clock_error(option: Option<Span>) -> anyhow::Result<Option<Span>> {
    match std::env::var(CLOCK_ERROR) {
        Ok(text) if option.is_none() => match parse_time(&text) {
            Ok(error) => Ok(Some(error)),
            Err(error) => anyhow::bail!("{CLOCK_ERROR}: {error}"),
        },
        _ => Ok(option),
    }
}

/// How often to look by itself: `200us`, or with the most frames at a look `200us:16`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BusyPollArg(pub BusyPoll);

impl FromStr for BusyPollArg {
    type Err = String;

    fn from_str(text: &str) -> Result<BusyPollArg, String> {
        let (time, budget) = match text.split_once(':') {
            Some((time, budget)) => (time, Some(budget)),
            None => (text, None),
        };
        let ns = parse_interval(time)?.as_ns();
        let us = u32::try_from(ns / 1_000).ok().filter(|us| *us > 0 && ns % 1_000 == 0);
        let microseconds =
            us.ok_or_else(|| format!("`{time}` is no whole number of microseconds"))?;
        let budget = budget.map(|budget| {
            let number = budget.parse().ok().filter(|number| *number > 0);
            number.ok_or_else(|| format!("`{budget}` is no number of frames"))
        });
        let budget = budget.transpose()?;
        Ok(BusyPollArg(BusyPoll { microseconds, budget, prefer: true }))
    }
}

pub fn parse_ethertype(text: &str) -> Result<u16, String> {
    EtherType::parse(text).map(EtherType::get)
}

pub fn parse_fifo(text: &str) -> Result<RtPriority, String> {
    let number = text.parse().ok().and_then(RtPriority::new);
    number.ok_or_else(|| format!("`{text}` is no real-time priority: 1 to 99"))
}

/// How many messages.
pub fn parse_count(text: &str) -> Result<u64, String> {
    let number = text.parse::<u64>().ok().filter(|number| *number > 0);
    number.ok_or_else(|| format!("`{text}` is no count of messages: a whole number above 0"))
}

/// An address and a port; a name is looked up.
pub fn parse_socket(text: &str) -> Result<SocketAddr, String> {
    if let Ok(address) = text.parse() {
        return Ok(address);
    }
    let (host, port) = host_and_port(text).ok_or_else(|| {
        format!("`{text}` is no address with a port: 10.0.0.2:15001, [fd00::2]:15001 or NAME:15001")
    })?;
    address_of(host, port)
}

/// The first address of a host.
pub fn address_of(host: &str, port: u16) -> Result<SocketAddr, String> {
    names::without_plugins();
    let none =
        || format!("no host `{host}` is known here: neither /etc/hosts nor DNS has its name");
    let mut all = (host, port).to_socket_addrs().map_err(|_| none())?;
    all.next().ok_or_else(none)
}

pub fn thread(cpus: Option<&CpuList>, fifo: Option<RtPriority>) -> ThreadSpec {
    ThreadSpec { cpus: cpus.map(|list| list.iter().collect()), fifo }
}

/// What the user wrote, word by word.
pub fn arguments() -> Vec<String> {
    std::env::args_os().skip(1).map(|word| word.to_string_lossy().into_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn t0_ways_and_times_of_the_command_line() {
        assert_eq!("xdp".parse(), Ok(TransportArg::Xdp(Mode::Auto)));
        assert_eq!("xdp:zerocopy".parse(), Ok(TransportArg::Xdp(Mode::ZeroCopy)));
        assert!("tcp".parse::<TransportArg>().unwrap_err().contains("xdp:native"));
        let busy = |text: &str| text.parse::<BusyPollArg>();
        let of =
            |microseconds, budget| Ok(BusyPollArg(BusyPoll { microseconds, budget, prefer: true }));
        assert_eq!(busy("50us:16"), of(50, Some(16)));
        assert_eq!(busy("1ms"), of(1_000, None));
        for bad in ["50", "0us", "1ns", "50us:", "50us:0", "50us:x"] {
            assert!(busy(bad).is_err(), "{bad}");
        }
        assert!(parse_interval("0s").is_err() && parse_time("-1us").is_err());
        assert_eq!(parse_time("0s"), Ok(Span::ZERO));
        assert!(parse_count("0").is_err() && parse_count("-1").is_err());
        assert!(parse_fifo("0").is_err() && parse_fifo("99").is_ok());
    }
}
