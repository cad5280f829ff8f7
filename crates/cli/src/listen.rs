// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `listen`: receives streams and shows what they are like.

use std::io::{self, IsTerminal, Write};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::bail;
use clap::{Args, ValueEnum};
use serde_json::json;
use timewire_base::wire::MacAddress;
use timewire_base::{IfName, Instant, Span, Verdict, parse_bytes, parse_span};
use timewire_capture::record::TimestampPoint;
use timewire_capture::stream::phase::PhaseCycle;
use timewire_datapath::listen::{
    FrameFilter, ReceiveOptions, ReceiveTimestamps, Source, UdpPlace, Wait, XdpMode,
};
use timewire_datapath::streams::expect::{Expectations, Judged};
use timewire_datapath::streams::listen::{
    self, ListenEvent, ListenRequest, ListenSnapshot, final_object,
};
use timewire_datapath::streams::view::{Room, lines, view};
use timewire_datapath::streams::{CaptureOptions, listen::MAX_STREAMS};
use timewire_model::scenario::host::CpuList;
use timewire_sys::scheduler::RtPriority;
use timewire_sys::terminal;

use crate::output;
use crate::traffic::{
    BusyPollArg, Mode, TransportArg, arguments, clock_error, parse_count, parse_ethertype,
    parse_fifo, parse_interval, parse_socket, parse_time, thread,
};

#[derive(Debug, Args)]
pub struct Listen {
    /// The address or name and the port of UDP, such as 0.0.0.0:15001 or [::]:15001
    #[arg(value_name = "ADDRESS:PORT", value_parser = parse_socket)]
    pub bind: Option<SocketAddr>,
    /// The interface: of whole frames; of UDP the only one
    #[arg(long, value_name = "IF")]
    pub interface: Option<IfName>,
    /// Through what: udp, frames (packet socket), ring (shared with the kernel), xdp[:generic|
    /// native|zerocopy] (AF_XDP) [default: udp with an address, or else frames]
    #[arg(long, value_name = "WAY")]
    pub over: Option<TransportArg>,
    /// With AF_XDP: hear this receive queue only [default: all]
    #[arg(long, value_name = "N")]
    pub queue: Option<u32>,
    /// With UDP: join this multicast group
    #[arg(long, value_name = "ADDRESS")]
    pub group: Option<IpAddr>,

    /// Only frames with this EtherType, behind VLAN tags
    #[arg(long, value_name = "0xNNNN", value_parser = parse_ethertype, help_heading = "Filter")]
    pub ethertype: Option<u16>,
    /// Only frames from this NIC
    #[arg(long, value_name = "MAC", help_heading = "Filter")]
    pub from: Option<MacAddress>,
    /// Only frames to this NIC or group
    #[arg(long, value_name = "MAC", help_heading = "Filter")]
    pub to: Option<MacAddress>,
    /// Only frames of this VLAN
    #[arg(long, value_name = "VID", help_heading = "Filter",
          value_parser = clap::value_parser!(u16).range(0..=4094))]
    pub vlan: Option<u16>,
    /// Only frames with this priority code point
    #[arg(long, value_name = "PCP", help_heading = "Filter",
          value_parser = clap::value_parser!(u8).range(0..=7))]
    pub pcp: Option<u8>,
    /// Only frames of UDP to this port
    #[arg(long, value_name = "PORT", help_heading = "Filter",
          value_parser = clap::value_parser!(u16).range(1..))]
    pub port: Option<u16>,

    /// How to wait for a message: sleep, look again and again, or have the kernel look at the NIC
    #[arg(long, value_enum, default_value = "block", help_heading = "Kernel")]
    pub wait: WaitArg,
    /// With --wait busy: how long and for how many frames the kernel looks
    #[arg(long, default_value = "50us", value_name = "TIME[:FRAMES]", help_heading = "Kernel")]
    pub busy_poll: BusyPollArg,
    /// Ask for timestamps of received messages
    #[arg(
        long,
        value_enum,
        value_delimiter = ',',
        value_name = "POINT,...",
        default_value = "software",
        help_heading = "Kernel"
    )]
    pub timestamps: Vec<TimestampArg>,
    /// How far the NIC's clock is ahead of TAI, to put its timestamps beside the others
    #[arg(long, value_name = "TIME", value_parser = parse_span, allow_hyphen_values = true,
          help_heading = "Kernel")]
    pub nic_ahead: Option<Span>,
    /// Room for waiting messages
    #[arg(long, default_value = "8192KiB", value_name = "BYTES", value_parser = parse_bytes,
          help_heading = "Kernel")]
    pub buffer: u32,
    /// The longest message that is taken whole
    #[arg(long, default_value = "2048B", value_name = "BYTES", value_parser = parse_bytes,
          help_heading = "Kernel")]
    pub longest: u32,
    /// The clocks of talker and NIC are at most so far from this host's; without it no latency is
    /// shown but of talkers on this host [default: that of TIMEWIRE_CLOCK_ERROR]
    #[arg(long, value_name = "TIME", value_parser = parse_time, help_heading = "Figures")]
    pub clock_error: Option<Span>,
    /// CPUs of the receiving thread, such as 2 or 2,4-6
    #[arg(long, value_name = "CPUS", value_parser = CpuList::parse, help_heading = "Kernel")]
    pub cpu: Option<CpuList>,
    /// Its SCHED_FIFO priority, 1 to 99; locks memory, too
    #[arg(long, value_name = "PRIORITY", value_parser = parse_fifo, help_heading = "Kernel")]
    pub rt: Option<RtPriority>,

    /// Where the time that a message takes ends
    #[arg(
        long,
        value_enum,
        default_value = "user",
        value_name = "POINT",
        help_heading = "Figures"
    )]
    pub until: UntilArg,
    /// Show where in this cycle messages arrive
    #[arg(long, value_parser = parse_interval, help_heading = "Figures")]
    pub cycle: Option<Span>,
    /// With --cycle: a start of it, as time of TAI since 1970
    #[arg(long, default_value = "0s", value_parser = parse_time, help_heading = "Figures")]
    pub base_time: Span,
    /// With --cycle: in so many bins
    #[arg(long, default_value_t = 64, value_name = "N", help_heading = "Figures",
          value_parser = clap::value_parser!(u32).range(1..=65_536))]
    pub bins: u32,
    /// Limits, such as 'loss=0,p99<100us': exit code 1 when one does not pass; may be repeated
    ///
    /// Of each stream: loss (a count, or a share as 0.1%), skipped (by the talker), duplicate,
    /// reordered, restarts, frames,
    /// rate (per second), min, p50, p90, p99, p99.9, max, mean, gap (between arrivals). Of all:
    /// streams, dropped, others. With <, <=, =, >= or >. A latency that the error of clocks can
    /// carry over its limit, or whose error is not known, is inconclusive: exit code 1.
    #[arg(long, value_name = "LIMITS", help_heading = "Figures")]
    pub expect: Vec<Expectations>,

    /// End after so long
    #[arg(long = "for", value_name = "TIME", value_parser = parse_interval, help_heading = "End")]
    pub duration: Option<Span>,
    /// End after so many messages of streams
    #[arg(long, value_name = "N", value_parser = parse_count, help_heading = "End")]
    pub count: Option<u64>,
    /// Send each message of a stream back to its sender, for round trips
    #[arg(long, help_heading = "End")]
    pub reflect: bool,

    /// How often to sum up
    #[arg(long, default_value = "1s", value_parser = parse_interval, help_heading = "Output")]
    pub every: Span,
    /// Print JSON lines: each interval, and at the end the whole
    #[arg(long, help_heading = "Output")]
    pub json: bool,
    /// Keep every timestamp of every message in this directory; it must be empty or not exist
    #[arg(long, value_name = "DIR", help_heading = "Output")]
    pub out: Option<PathBuf>,
    /// Write all frames to this file, for Wireshark and tcpdump (pcapng)
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub pcap: Option<PathBuf>,
    /// With --pcap: begin another file when one has so many bytes; they are numbered
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes, requires = "pcap",
          help_heading = "Output")]
    pub pcap_size: Option<u32>,
    /// With --pcap-size: keep only the last so many files
    #[arg(long, value_name = "N", requires = "pcap_size", help_heading = "Output",
          value_parser = clap::value_parser!(u32).range(1..))]
    pub pcap_files: Option<u32>,
    /// Serve the counters to Prometheus at http://ADDRESS:PORT/metrics
    #[arg(long, value_name = "ADDRESS:PORT", value_parser = parse_socket, help_heading = "Output")]
    pub prometheus: Option<SocketAddr>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum WaitArg {
    /// Sleep
    Block,
    /// Look again and again; takes a CPU
    Poll,
    /// Have the kernel poll the NIC (SO_BUSY_POLL)
    Busy,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum TimestampArg {
    /// By the kernel, at the entrance to its stack
    Software,
    /// By the NIC
    Hardware,
    /// None
    None,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum UntilArg {
    /// The program has it
    User,
    /// The kernel received it
    Kernel,
    /// The XDP program had it
    Driver,
    /// The NIC received it; needs --nic-ahead
    Nic,
}

pub fn run(args: &Listen) -> anyhow::Result<ExitCode> {
    let request = request(args)?;
    let mut screen = Screen::new(args.json);
    let heard = listen::run(&request, &mut |event| screen.show(event))?;
    let judged: Vec<Judged> =
        args.expect.iter().flat_map(|all| &all.0).map(|one| one.judge(&heard)).collect();
    screen.end(&heard, &judged)?;
    let is_bad =
        judged.iter().any(|one| one.verdict != Verdict::Pass) || !heard.inconclusive.is_empty();
    Ok(ExitCode::from(u8::from(is_bad)))
}

/// Where it is shown.
struct Screen {
    json: bool,
    /// A terminal that the view is drawn on again and again, and how many lines it has there.
    drawn: Option<usize>,
}

impl Screen {
    fn new(json: bool) -> Screen {
        let is_live = !json && io::stdout().is_terminal();
        Screen { json, drawn: is_live.then_some(0) }
    }

    fn show(&mut self, event: &ListenEvent<'_>) -> io::Result<()> {
        match event {
            ListenEvent::Listening { source, mode, notes, prometheus } => {
                say!("listening: {source} ({mode})");
                notes.iter().for_each(|note| say!("note: {note}"));
                if let Some(address) = prometheus {
                    say!("counters: http://{address}/metrics");
                }
                Ok(())
            }
            ListenEvent::Noted(note) => {
                say!("note: {note}");
                Ok(())
            }
            ListenEvent::Heard(heard) => match (self.json, self.drawn) {
                (true, _) => print(&format!("{}\n", json!({"type": "interval", "data": heard}))),
                (false, None) => print(&lines(heard)),
                (false, Some(_)) => self.draw(heard),
            },
        }
    }

    fn draw(&mut self, heard: &ListenSnapshot) -> io::Result<()> {
        let stdout = io::stdout();
        let (columns, lines) = terminal::size(stdout.as_fd()).unwrap_or((80, 24));
        let room = Room { columns: columns.into(), lines: Some(lines.into()) };
        let text = view(heard, room);
        let back = match self.drawn {
            Some(above @ 1..) => format!("\x1b[{above}A\r\x1b[J"),
            _ => String::new(),
        };
        self.drawn = Some(text.lines().count());
        print(&format!("{back}{text}"))
    }

    fn end(&mut self, heard: &ListenSnapshot, judged: &[Judged]) -> anyhow::Result<()> {
        if self.json {
            output::json_line(&final_object(heard, judged))?;
            return Ok(());
        }
        if let Some(above @ 1..) = self.drawn {
            output::print(&format!("\x1b[{above}A\r\x1b[J"))?;
        }
        output::print(&view(heard, Room { columns: usize::MAX, lines: None }))?;
        for Judged { limit, verdict, found } in judged {
            output::print(&format!("{} {limit}: {found}\n", verdict.label()))?;
        }
        Ok(())
    }
}

fn print(text: &str) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    stdout.write_all(text.as_bytes())?;
    stdout.flush()
}

fn request(args: &Listen) -> anyhow::Result<ListenRequest> {
    let filter = FrameFilter {
        ethertype: args.ethertype,
        destination: args.to,
        source: args.from,
        vid: args.vlan,
        pcp: args.pcp,
        udp_port: args.port,
    };
    let source = source(args)?;
    let is_udp = matches!(source, Source::Udp(_));
    if is_udp && args.pcap.is_some() {
        bail!("--pcap needs whole frames: --over frames, ring or xdp, with --interface");
    }
    let wants = |timestamp| args.timestamps.contains(&timestamp);
    if wants(TimestampArg::None) && args.timestamps.len() > 1 {
        bail!("--timestamps none goes with no other");
    }
    if args.until == UntilArg::Nic && args.nic_ahead.is_none() {
        bail!("--until nic needs --nic-ahead: how far its clock is ahead of TAI");
    }
    Ok(ListenRequest {
        source,
        options: ReceiveOptions {
            timestamps: ReceiveTimestamps {
                software: wants(TimestampArg::Software),
                hardware: wants(TimestampArg::Hardware),
            },
            wait: match args.wait {
                WaitArg::Block => Wait::Block,
                WaitArg::Poll => Wait::Poll,
                WaitArg::Busy => Wait::BusyPoll(args.busy_poll.0),
            },
            filter,
            buffer_bytes: args.buffer,
            longest: args.longest,
        },
        ends_at: match args.until {
            UntilArg::User => TimestampPoint::Receive,
            UntilArg::Kernel => TimestampPoint::RxSw,
            UntilArg::Driver => TimestampPoint::RxXdp,
            UntilArg::Nic => TimestampPoint::RxHw,
        },
        hardware_ahead: args.nic_ahead,
        clock_error: clock_error(args.clock_error)?,
        cycle: args.cycle.map(|cycle_time| PhaseCycle {
            base_time: Instant::from_ns(args.base_time.as_ns()),
            cycle_time,
            bins: args.bins,
        }),
        duration: args.duration,
        count: args.count,
        every: args.every,
        reflect: args.reflect,
        thread: thread(args.cpu.as_ref(), args.rt),
        out: args.out.clone(),
        capture: args.pcap.as_ref().map(|path| CaptureOptions {
            path: path.clone(),
            most_bytes: args.pcap_size.map(u64::from),
            most_files: args.pcap_files,
        }),
        prometheus: args.prometheus,
        told: json!({"arguments": arguments(), "most_streams": MAX_STREAMS}),
    })
}

fn source(args: &Listen) -> anyhow::Result<Source> {
    let way = args.over.unwrap_or(if args.bind.is_some() {
        TransportArg::Udp
    } else {
        TransportArg::Frames
    });
    if way == TransportArg::Udp {
        let Some(bind) = args.bind else {
            bail!("--over udp needs an address and a port, such as 0.0.0.0:15001");
        };
        return Ok(Source::Udp(UdpPlace {
            bind,
            device: args.interface.clone(),
            group: args.group,
        }));
    }
    if args.bind.is_some() || args.group.is_some() {
        bail!("an address and a group are for UDP; whole frames have --interface and filters");
    }
    let Some(interface) = args.interface.clone() else {
        bail!("nothing to listen to: give an address and a port, or --interface");
    };
    Ok(match way {
        TransportArg::Frames | TransportArg::Udp => Source::Frames { interface },
        TransportArg::Ring => Source::Ring { interface },
        TransportArg::Xdp(mode) => Source::Xdp {
            interface,
            queue: args.queue,
            mode: match mode {
                Mode::Auto => XdpMode::Auto,
                Mode::Generic => XdpMode::Generic,
                Mode::Native => XdpMode::Native,
                Mode::ZeroCopy => XdpMode::ZeroCopy,
            },
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    use crate::args::{Command, Request};

    fn listen(words: &str) -> Listen {
        let words = ["timewire", "listen"].into_iter().chain(words.split_whitespace());
        match Request::try_parse_from(words).unwrap().command {
            Command::Listen(listen) => *listen,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn t0_the_options_become_a_request() {
        let args = listen(
            "--interface eth0 --over xdp:native --queue 3 --ethertype 0x88b5 --to \
             02:00:00:00:00:02 --vlan 5 --pcp 6 --port 15001 --wait busy --busy-poll 100us:16 \
             --timestamps software,hardware --cycle 1ms --until kernel --for 5s --count 10 \
             --expect \
             loss=0,p99<100us --expect max<1ms --pcap a.pcapng --pcap-size 100kB --pcap-files 3",
        );
        let request = request(&args).unwrap();
        assert!(matches!(
            request.source,
            Source::Xdp { queue: Some(3), mode: XdpMode::Native, .. }
        ));
        let filter = request.options.filter;
        assert_eq!((filter.vid, filter.pcp, filter.udp_port), (Some(5), Some(6), Some(15_001)));
        assert_eq!(
            (filter.source, filter.destination),
            (None, Some(MacAddress([2, 0, 0, 0, 0, 2])))
        );
        let busy = timewire_datapath::listen::BusyPoll {
            microseconds: 100,
            budget: Some(16),
            prefer: true,
        };
        assert_eq!(request.options.wait, Wait::BusyPoll(busy));
        assert_eq!(request.ends_at, TimestampPoint::RxSw);
        assert_eq!(request.cycle.map(|it| it.bins), Some(64));
        let capture = request.capture.unwrap();
        assert_eq!((capture.most_bytes, capture.most_files), (Some(100_000), Some(3)));
        assert_eq!(args.expect.iter().map(|all| all.0.len()).sum::<usize>(), 3);
    }

    #[test]
    fn t0_what_does_not_go_together_is_refused() {
        for (words, says) in [
            ("", "nothing to listen to"),
            ("--over udp", "needs an address"),
            ("0.0.0.0:5 --over ring", "are for UDP"),
            ("--interface eth0 --group 239.0.0.1", "are for UDP"),
            ("0.0.0.0:5 --pcap x", "--pcap needs whole frames"),
            ("0.0.0.0:5 --timestamps none,software", "goes with no other"),
            ("0.0.0.0:5 --until nic", "--nic-ahead"),
        ] {
            let error = request(&listen(words)).unwrap_err().to_string();
            assert!(error.contains(says), "{words}: {error}");
        }
        let request = request(&listen("[::]:5 --timestamps none")).unwrap();
        assert_eq!(request.options.timestamps, ReceiveTimestamps::default());
    }
}
