// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `talk`: sends streams.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::bail;
use clap::{Args, ValueEnum};
use serde_json::{Map, Value as Json, json};
use timewire_base::{IfName, Instant, Span, StationName, parse_bytes};
use timewire_datapath::streams::plan::{Aligned, Defaults, ETHERTYPE, Over, Spec};
use timewire_datapath::streams::talk::{self, TalkEvent, TalkRequest};
use timewire_datapath::streams::told;
use timewire_datapath::transmit::{LaunchClock, LaunchOptions, TxPoints, XdpMode};
use timewire_model::scenario::FileKind;
use timewire_model::scenario::host::CpuList;
use timewire_model::scenario::streams::{StreamEntry, Target, VlanMark};
use timewire_sys::scheduler::RtPriority;
use timewire_tsn::file::with_slots;

use crate::input;
use crate::output::{self, ProgressLine};
use crate::traffic::{
    BusyPollArg, Mode, TransportArg, address_of, arguments, parse_count, parse_ethertype,
    parse_fifo, parse_interval, parse_socket, parse_time, thread,
};

#[derive(Debug, Args)]
pub struct Talk {
    /// Where to: 10.0.0.2:15001, [fd00::2]:15001 or NAME:15001 for UDP, the address of a NIC for
    /// frames, or that with a UDP port behind it, as 02:00:00:00:00:02/10.0.0.2:15001
    #[arg(value_name = "TO", value_parser = Target::parse)]
    pub to: Vec<Target>,
    /// The interface: of whole frames; of UDP the only one
    #[arg(long, value_name = "IF")]
    pub interface: Option<IfName>,
    /// Through what: udp, frames (packet socket), ring (shared with the kernel), xdp[:generic|
    /// native|zerocopy] (AF_XDP) [default: udp, or frames to the address of a NIC]
    #[arg(long, value_name = "WAY")]
    pub over: Option<TransportArg>,
    /// A stream, as ID or 'ID:KEY=VALUE,...'; may be repeated [default: number 1, and so on for
    /// each TO]
    ///
    /// Keys: to, cycle, offset, per_cycle, spacing, size, count, priority, vlan, dscp, launch,
    /// tolerance, late (skip, send), copies, step. What is not there is as the options say.
    #[arg(long, value_name = "STREAM", value_parser = parse_stream)]
    pub stream: Vec<Json>,

    /// From one message of a stream to the next
    #[arg(long, default_value = "1ms", value_parser = parse_interval, help_heading = "Time")]
    pub cycle: Span,
    /// When in each cycle
    #[arg(long, default_value = "0us", value_parser = parse_time, help_heading = "Time")]
    pub offset: Span,
    /// A start of the cycle, as time of TAI since 1970; others lie whole cycles from it
    #[arg(long, default_value = "0s", value_parser = parse_time, help_heading = "Time")]
    pub base_time: Span,
    /// Messages in each cycle
    #[arg(long, default_value_t = 1, value_name = "N", help_heading = "Time",
          value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub per_cycle: u32,
    /// Between the messages of a cycle
    #[arg(long, default_value = "0us", value_parser = parse_time, help_heading = "Time")]
    pub spacing: Span,
    /// End each stream after so many messages
    #[arg(long, value_name = "N", value_parser = parse_count, help_heading = "Time")]
    pub count: Option<u64>,
    /// End after so long
    #[arg(long = "for", value_name = "TIME", value_parser = parse_interval, help_heading = "Time")]
    pub duration: Option<Span>,
    /// How late a message may be handed over before it is left out [default: one cycle]
    #[arg(long, value_name = "TIME", value_parser = parse_time, help_heading = "Time")]
    pub tolerance: Option<Span>,
    /// Send messages that are later than that, too, and count them
    #[arg(long, help_heading = "Time")]
    pub send_late: bool,
    /// Send just before each slot of a station of this network, instead of by a cycle
    #[arg(long, value_name = "FILE", requires = "station", help_heading = "Time",
          conflicts_with_all = ["cycle", "base_time", "launch"])]
    pub aligned: Option<PathBuf>,
    /// With --aligned: the station
    #[arg(long, value_name = "NAME", requires = "aligned", help_heading = "Time")]
    pub station: Option<StationName>,
    /// With --aligned: how long before the slot
    #[arg(long, default_value = "50us", value_parser = parse_time, help_heading = "Time")]
    pub lead: Span,

    /// Length of a message: the payload of UDP, or what follows the EtherType of a frame
    #[arg(long, default_value = "64B", value_parser = parse_bytes, help_heading = "Messages")]
    pub size: u32,
    /// Source of UDP; without it, the kernel's choice
    #[arg(long, value_name = "ADDRESS:PORT", value_parser = parse_socket,
          help_heading = "Messages")]
    pub from: Option<SocketAddr>,
    /// Socket priority, 0 to 15
    #[arg(long, value_name = "N", help_heading = "Messages",
          value_parser = clap::value_parser!(u8).range(0..=15))]
    pub priority: Option<u8>,
    /// VLAN tag of whole frames
    #[arg(long, value_name = "VID:PCP", value_parser = VlanMark::parse, help_heading = "Messages")]
    pub vlan: Option<VlanMark>,
    /// Differentiated services code point of UDP, 0 to 63
    #[arg(long, value_name = "N", help_heading = "Messages",
          value_parser = clap::value_parser!(u8).range(0..=63))]
    pub dscp: Option<u8>,
    /// EtherType of whole frames that are no UDP
    #[arg(long, value_name = "0xNNNN", value_parser = parse_ethertype, help_heading = "Messages")]
    pub ethertype: Option<u16>,
    /// Wrap messages of whole frames into PTP Sync messages of this domain, for NICs that timestamp
    /// no other frames; take a domain that no clock of the segment is in, such as 200
    #[arg(long, value_name = "DOMAIN", conflicts_with = "ethertype", help_heading = "Messages")]
    pub ptp: Option<u8>,

    /// Give each message the time it is due as launch time (SO_TXTIME), and hand it over so much
    /// earlier
    #[arg(long, value_name = "LEAD", value_parser = parse_interval, help_heading = "Kernel")]
    pub launch: Option<Span>,
    /// With launch times: they are the latest moment, not the exact one
    #[arg(long, help_heading = "Kernel")]
    pub deadline: bool,
    /// With launch times: the clock that the queueing discipline wants; fq has mono, etf has tai
    #[arg(long, value_enum, default_value = "tai", help_heading = "Kernel")]
    pub launch_clock: LaunchClockArg,
    /// Ask for timestamps of each message as it is sent
    #[arg(
        long,
        value_enum,
        value_delimiter = ',',
        value_name = "POINT,...",
        help_heading = "Kernel"
    )]
    pub timestamps: Vec<PointArg>,
    /// Whole frames go to the driver without the queueing discipline
    #[arg(long, help_heading = "Kernel")]
    pub bypass: bool,
    /// Bytes that may wait in a socket
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes, help_heading = "Kernel")]
    pub buffer: Option<u32>,
    /// With AF_XDP: the transmit queue
    #[arg(long, default_value_t = 0, value_name = "N", help_heading = "Kernel")]
    pub queue: u32,
    /// With AF_XDP: call the kernel for each flush, not only when it wants it
    #[arg(long, help_heading = "Kernel")]
    pub no_need_wakeup: bool,
    /// With AF_XDP: look at the NIC's queue with each call, so long and for so many frames
    #[arg(long, value_name = "TIME[:FRAMES]", help_heading = "Kernel")]
    pub busy_poll: Option<BusyPollArg>,

    /// CPUs of the sending thread, such as 2 or 2,4-6
    #[arg(long, value_name = "CPUS", value_parser = CpuList::parse, help_heading = "Thread")]
    pub cpu: Option<CpuList>,
    /// Its SCHED_FIFO priority, 1 to 99; locks memory, too
    #[arg(long, value_name = "PRIORITY", value_parser = parse_fifo, help_heading = "Thread")]
    pub rt: Option<RtPriority>,
    /// How long before a message is due it stops sleeping and spins [default: 60us]
    #[arg(long, value_name = "TIME", value_parser = parse_time, help_heading = "Thread")]
    pub spin: Option<Span>,

    /// Keep every timestamp of every message in this directory; it must be empty or not exist
    #[arg(long, value_name = "DIR", help_heading = "Output")]
    pub out: Option<PathBuf>,
    /// Print JSON instead of a table
    #[arg(long, help_heading = "Output")]
    pub json: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LaunchClockArg {
    /// CLOCK_TAI
    Tai,
    /// CLOCK_MONOTONIC
    Mono,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum PointArg {
    /// Before the queueing discipline
    Sched,
    /// As it is handed to the driver
    Software,
    /// By the NIC
    Hardware,
}

pub fn run(args: &Talk) -> anyhow::Result<ExitCode> {
    let spec = spec(args)?;
    let told = json!({"arguments": arguments(), "streams": as_json(&spec.streams)});
    let request = TalkRequest {
        spec,
        duration: args.duration,
        spin: args.spin,
        thread: thread(args.cpu.as_ref(), args.rt),
        out: args.out.clone(),
        told,
    };
    let mut progress = ProgressLine::new();
    let done = talk::run(&request, &mut |event| {
        match event {
            TalkEvent::Talking { notes, .. } => {
                progress.clear();
                notes.iter().for_each(|note| say!("note: {note}"));
            }
            TalkEvent::Progress(now) => progress.line_of(|| told::line(now)),
        }
        Ok(())
    });
    progress.clear();
    let done = done?;
    if args.json {
        output::json(&done)?;
    } else {
        output::print(&told::outcome(&done))?;
    }
    Ok(ExitCode::from(u8::from(!told::is_well(&done))))
}

fn as_json(streams: &[StreamEntry]) -> Json {
    let streams = streams.iter().map(StreamEntry::to_json);
    Json::Array(streams.collect())
}

fn spec(args: &Talk) -> anyhow::Result<Spec> {
    let mut streams = Vec::new();
    let mut first = 1;
    match &args.stream[..] {
        // A bare number beside destinations is where they begin.
        [only] if is_bare(only) && !args.to.is_empty() => {
            first = only["id"].as_u64().and_then(|id| u16::try_from(id).ok()).unwrap_or(first);
        }
        [] => {}
        given => streams.extend(StreamEntry::read_all("--stream", given)?),
    }
    let mut to = args.to.clone();
    for target in to.iter_mut().chain(streams.iter_mut().filter_map(|stream| stream.to.as_mut())) {
        if let Target::Name(host, port) = target {
            *target = Target::Udp(address_of(host, *port).map_err(anyhow::Error::msg)?);
        }
    }
    let over = over(args, &streams);
    let aligned = match (&args.aligned, &args.station) {
        (Some(file), Some(station)) => Some(aligned(file, station, args.lead)?),
        _ => None,
    };
    let has_point = |point| args.timestamps.contains(&point);
    Ok(Spec {
        interface: args.interface.clone(),
        queue: args.queue,
        need_wakeup: !args.no_need_wakeup,
        busy_poll: args.busy_poll.map(|it| it.0),
        from: args.from,
        streams,
        first,
        defaults: Defaults {
            cycle: args.cycle,
            offset: args.offset,
            per_cycle: args.per_cycle,
            spacing: args.spacing,
            size: args.size,
            count: args.count,
            priority: args.priority,
            vlan: args.vlan,
            dscp: args.dscp,
            launch: args.launch,
            tolerance: args.tolerance,
            send_late: args.send_late,
        },
        base_time: Instant::from_ns(args.base_time.as_ns()),
        aligned,
        ethertype: args.ethertype.unwrap_or(ETHERTYPE),
        ptp: args.ptp,
        launch: LaunchOptions {
            deadline: args.deadline,
            clock: match args.launch_clock {
                LaunchClockArg::Tai => LaunchClock::Tai,
                LaunchClockArg::Mono => LaunchClock::Mono,
            },
        },
        points: TxPoints {
            sched: has_point(PointArg::Sched),
            software: has_point(PointArg::Software),
            hardware: has_point(PointArg::Hardware),
        },
        qdisc_bypass: args.bypass,
        buffer_bytes: args.buffer,
        ..Spec::new(over, to)
    })
}

fn over(args: &Talk, streams: &[StreamEntry]) -> Over {
    let targets = args.to.iter().chain(streams.iter().filter_map(|it| it.to.as_ref()));
    let default = match targets.into_iter().next() {
        Some(Target::Nic(_) | Target::NicUdp(..)) => TransportArg::Frames,
        Some(Target::Udp(_) | Target::Name(..)) | None => TransportArg::Udp,
    };
    match args.over.unwrap_or(default) {
        TransportArg::Udp => Over::Udp,
        TransportArg::Frames => Over::Frames,
        TransportArg::Ring => Over::Ring,
        TransportArg::Xdp(mode) => Over::Xdp(match mode {
            Mode::Auto => XdpMode::Auto,
            Mode::Generic => XdpMode::Generic,
            Mode::Native => XdpMode::Native,
            Mode::ZeroCopy => XdpMode::ZeroCopy,
        }),
    }
}

fn aligned(path: &Path, station: &StationName, lead: Span) -> anyhow::Result<Aligned> {
    let name = path.display().to_string();
    let read = input::read(path, FileKind::Segment, "nothing was sent", with_slots);
    let (scenario, _) = read?;
    let windows = scenario.schedule.slots_of(station);
    if windows.windows().is_empty() {
        bail!("{name} has no slot of a station `{station}`");
    }
    Ok(Aligned { windows, lead })
}

fn is_bare(stream: &Json) -> bool {
    stream.as_object().is_some_and(|keys| keys.len() == 1)
}

/// A stream of the command line, its keys as JSON.
fn parse_stream(text: &str) -> Result<Json, String> {
    let (id, rest) = match text.split_once(':') {
        Some((id, rest)) => (id, Some(rest)),
        None => (text, None),
    };
    let number = |text: &str| text.parse::<u64>().ok();
    let id = number(id).ok_or_else(|| {
        format!("`{id}` is no number of a stream: a stream is like 7 or 7:cycle=500us,size=200B")
    })?;
    let mut keys = Map::from_iter([("id".to_owned(), json!(id))]);
    for pair in rest.into_iter().flat_map(|rest| rest.split(',')) {
        let Some((key, value)) = pair.split_once('=') else {
            return Err(format!("`{pair}` is no KEY=VALUE, such as cycle=500us"));
        };
        let is_number = ["per_cycle", "count", "priority", "dscp", "copies"].contains(&key);
        let value = match number(value) {
            Some(number) if is_number => json!(number),
            _ => json!(value),
        };
        if keys.insert(key.to_owned(), value).is_some() {
            return Err(format!("`{key}` is there twice"));
        }
    }
    Ok(Json::Object(keys))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;
    use timewire_datapath::transmit::BusyPoll;

    use crate::args::{Command, Request};

    fn talk(words: &str) -> Talk {
        let words = ["timewire", "talk"].into_iter().chain(words.split_whitespace());
        match Request::try_parse_from(words).unwrap().command {
            Command::Talk(talk) => *talk,
            other => panic!("{other:?}"),
        }
    }

    fn refused(words: &str) -> String {
        let words = ["timewire", "talk"].into_iter().chain(words.split_whitespace());
        Request::try_parse_from(words).unwrap_err().to_string()
    }

    #[test]
    fn t0_the_options_become_a_spec() {
        let all = "10.0.0.2:15001 --stream 7 --cycle 500us --offset 100us --per-cycle 2 --spacing \
                   10us --size 200B --count 10 --for 3s --priority 5 --dscp 46 --launch 300us \
                   --deadline --timestamps sched,software --cpu 1 --rt 80 --tolerance 20us \
                   --send-late";
        let args = talk(all);
        let spec = spec(&args).unwrap();
        assert_eq!((spec.over, spec.first, spec.streams.len()), (Over::Udp, 7, 0));
        let defaults = &spec.defaults;
        assert_eq!((defaults.cycle, defaults.per_cycle), (Span::from_us(500), 2));
        assert_eq!((defaults.dscp, defaults.launch), (Some(46), Some(Span::from_us(300))));
        assert!(spec.launch.deadline && defaults.send_late);
        assert_eq!(spec.points, TxPoints { sched: true, software: true, hardware: false });
        assert_eq!(args.duration, Some(Span::from_secs(3)));
        assert_eq!(thread(args.cpu.as_ref(), args.rt).cpus, Some(vec![1]));
    }

    #[test]
    fn t0_the_way_follows_from_the_destination() {
        let of = |words: &str| spec(&talk(words)).unwrap().over;
        assert_eq!(of("[::1]:9"), Over::Udp);
        assert_eq!(of("02:00:00:00:00:02 --interface eth0"), Over::Frames);
        assert_eq!(of("02:00:00:00:00:02 --interface eth0 --over ring"), Over::Ring);
        let busy = "02:00:00:00:00:02 --interface eth0 --over xdp --busy-poll 50us:16";
        let told = BusyPoll { microseconds: 50, budget: Some(16), prefer: true };
        assert_eq!(spec(&talk(busy)).unwrap().busy_poll, Some(told));
        let zero = of("02:00:00:00:00:02 --interface eth0 --over xdp:zerocopy");
        assert_eq!(zero, Over::Xdp(XdpMode::ZeroCopy));
        assert_eq!(of("--stream 1:to=02:00:00:00:00:02"), Over::Frames);
    }

    #[test]
    fn t0_streams_of_the_command_line_have_keys() {
        let args = talk("--stream 1:to=10.0.0.2:15001,cycle=1ms,vlan=5:6 --stream 9:copies=3");
        let streams = spec(&args).unwrap().streams;
        assert_eq!(streams[0].to.as_ref().unwrap().to_string(), "10.0.0.2:15001");
        assert_eq!(streams[0].vlan.unwrap().to_string(), "5:6");
        assert_eq!((streams[1].id.get(), streams[1].copies.get()), (9, 3));
        let again = as_json(&streams);
        let again = StreamEntry::read_all("again", again.as_array().unwrap()).unwrap();
        assert_eq!(again, streams);
        for (bad, says) in [
            ("--stream x", "no number of a stream"),
            ("--stream 1:cycle", "no KEY=VALUE"),
            ("--stream 1:size=1B,size=2B", "there twice"),
            ("--cycle 0us 10.0.0.2:1", "not above zero"),
            ("--cycle 5 10.0.0.2:1", "no unit"),
            ("10.0.0.2", "no destination"),
            ("--over tcp 10.0.0.2:1", "xdp:native"),
            ("--vlan 5 10.0.0.2:1", "VID:PCP"),
            ("--rt 100 10.0.0.2:1", "1 to 99"),
            ("--priority 16 10.0.0.2:1", "0..=15"),
            ("--aligned x.yaml 10.0.0.2:1", "--station"),
            ("--aligned x --station a --launch 1ms 10.0.0.2:1", "cannot be used with"),
        ] {
            let text = refused(bad);
            assert!(text.contains(says), "{bad}: {text}");
        }
        let error = spec(&talk("--stream 1:cycel=1ms")).unwrap_err().to_string();
        assert!(error.contains("did you mean `cycle`"), "{error}");
    }
}
