// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `avtp`: audio, video, clocks and CAN frames as streams of IEEE 1722.
//!
//! Not here: doing it (`timewire_datapath::avtp`).

mod names;
mod show;

use std::fs::File;
use std::io::{self, BufReader, Write};
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, bail};
use clap::{Args, Subcommand, ValueEnum};
use serde::Serialize;
use timewire_avtp::media::h264::StartCodes;
use timewire_avtp::pdu::{AafFormat, CrfClock, CrfType, NominalRate, Pull, SampleFormat, StreamId};
use timewire_avtp::stream::{ControlFormat, Late};
use timewire_avtp::{Cadence, MAX_TRANSIT, Ppb, SrClass};
use timewire_base::wire::MacAddress;
use timewire_base::{
    BitsPerSecond, IfName, Instant, SduLen, SocketPriority, Span, Tai, WireLen, parse_bytes,
    parse_rate, parse_span,
};
use timewire_datapath::avtp::crf::{self, ClockSpec, FollowSpec};
use timewire_datapath::avtp::reserve::{self, Load, ReserveSpec};
use timewire_datapath::avtp::{
    Ended, Expect, Heard, Limits, ListenSpec, Media, Outlet, Plan, Route, Sent, TalkSpec, can,
    default_destination, listen,
};
use timewire_sys::sending_of;

use crate::ending::Ending;
use crate::output;
use crate::traffic::{self, parse_time};
use names::{StreamName, VlanRequest};

#[derive(Debug, Subcommand)]
pub enum AvtpCommand {
    /// Send a WAVE or H.264 file as a stream, every packet at its launch time
    ///
    /// Exit code 1: packets did not leave. Addresses (MAAP) and bandwidth (MSRP) are not
    /// negotiated: `avtp reserve` and `apply` set this host up, bridges are set up by whoever
    /// manages them.
    Talk(Talk),
    /// Record a stream into a file that equals the talker's, and tell how well it came
    ///
    /// Exit code 1: packets were lost or late beyond --expect, or none came. SIGINT and SIGTERM end
    /// a recording; the file is complete with what came until then.
    Listen(Listen),
    /// A clock as a stream (CRF): send this host's, or follow another
    #[command(subcommand)]
    Crf(Crf),
    /// CAN frames as a stream (ACF): a frame per line in, a frame per line out
    #[command(subcommand)]
    Can(CanCommand),
    /// Tell what streams reserve of a link, and the shaper for host settings
    Reserve(Reserve),
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum Class {
    /// An interval of 125us, 2ms from talker to listener
    #[value(name = "A", alias = "a")]
    A,
    /// An interval of 250us, 50ms from talker to listener
    #[value(name = "B", alias = "b")]
    B,
}

impl Class {
    fn of(self) -> SrClass {
        match self {
            Class::A => SrClass::A,
            Class::B => SrClass::B,
        }
    }
}

/// Where a stream leaves.
#[derive(Debug, Args)]
pub struct Outward {
    /// The interface
    #[arg(long)]
    pub interface: IfName,
    /// The stream: ADDRESS/NUMBER, such as 02:00:00:00:00:01/7, or a number alone for that of the
    /// interface's own address
    #[arg(long, value_name = "STREAM", value_parser = names::stream_name)]
    pub stream: StreamName,
    /// The class
    #[arg(long, value_enum, default_value = "A")]
    pub class: Class,
    /// The VLAN tag, VID:PCP, or `none` on an interface that tags itself [default: 2, and 3 of
    /// class A or 2 of class B]
    #[arg(long, value_name = "VID:PCP", value_parser = names::vlan)]
    pub vlan: Option<VlanRequest>,
    /// The destination [default: 91:e0:f0:00:fe:NN, NN the low byte of the stream's number]
    #[arg(long, value_name = "ADDRESS")]
    pub to: Option<MacAddress>,
    /// The socket's priority, by which the queueing disciplines choose a class [default: the PCP]
    #[arg(long, value_name = "0-15")]
    pub priority: Option<SocketPriority>,
}

impl Outward {
    fn stream(&self) -> anyhow::Result<StreamId> {
        Ok(match self.stream {
            StreamName::Full(stream) => stream,
            StreamName::Number(number) => {
                let own = sending_of(&self.interface)
                    .with_context(|| format!("interface {}", self.interface))?;
                StreamId::new(own.address, number)
            }
        })
    }

    fn outlet(&self, launch: Option<Span>) -> anyhow::Result<Outlet> {
        let class = self.class.of();
        let (vid, pcp) = (class.default_vlan().get(), class.default_pcp().get());
        let tag = self.vlan.unwrap_or(VlanRequest::With(vid, None)).tag(pcp);
        let to = self.to.unwrap_or(default_destination(self.stream()?));
        let priority = self.priority.unwrap_or_else(|| {
            let pcp = tag.map_or(pcp, |tag| tag.pcp);
            SocketPriority::new(pcp.into()).expect("invariant: a code point is 0 to 7")
        });
        let interface = self.interface.clone();
        Ok(Outlet { interface, route: Route { to, tag }, priority, launch })
    }
}

#[derive(Debug, Args)]
pub struct Talk {
    /// The file: WAVE (PCM of 16, 24 or 32 bits, floats), or H.264 as a byte stream (Annex B)
    pub file: PathBuf,
    #[command(flatten)]
    pub out: Outward,
    /// Hand packets over so long before, with their launch time, which etf or taprio keeps
    /// [default: at the launch time, without]
    #[arg(long, value_name = "LEAD", value_parser = lead)]
    pub launch: Option<Span>,
    /// Pictures in a second, such as 25 or 30000/1001; H.264 only
    #[arg(long, value_name = "RATE", value_parser = names::cadence)]
    pub frame_rate: Option<Cadence>,
    /// Presentation time less launch time [default: 2ms of class A, 50ms of class B]
    #[arg(long, value_name = "TIME", value_parser = transit)]
    pub transit: Option<Span>,
    /// Samples of each channel in a packet; audio only. Listeners of the reference library
    /// (libavtp, Open1722) take 1 [default: those of an interval of the class]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    pub samples_per_packet: Option<u16>,
    /// Launch time of the first packet, nanoseconds of TAI [default: soon, at a multiple of 10ms]
    #[arg(long, value_name = "NANOSECONDS")]
    pub start: Option<i64>,
    /// Play it over and over, until ended
    #[arg(long = "loop")]
    pub repeat: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// When to end without being asked.
#[derive(Debug, Args)]
pub struct Until {
    /// End after this time
    #[arg(long = "for", value_name = "TIME", value_parser = parse_span)]
    pub duration: Option<Span>,
    /// End after so many packets of the stream
    #[arg(long, value_name = "COUNT")]
    pub packets: Option<u64>,
    /// End when no packet of the stream came for this time, after the first
    #[arg(long, value_name = "TIME", value_parser = parse_span)]
    pub idle: Option<Span>,
}

impl Until {
    fn limits(&self) -> Limits {
        Limits { duration: self.duration, packets: self.packets, idle: self.idle }
    }
}

/// Where a stream comes in.
#[derive(Debug, Args)]
pub struct Inward {
    /// The interface
    #[arg(long)]
    pub interface: IfName,
    /// The stream, such as 02:00:00:00:00:01/7 [default: the first that is heard]
    #[arg(long, value_name = "STREAM", value_parser = names::stream)]
    pub stream: Option<StreamId>,
    /// Its destination; the interface then receives only that address [default: any]
    #[arg(long, value_name = "ADDRESS")]
    pub to: Option<MacAddress>,
    #[command(flatten)]
    pub until: Until,
    /// What may be lost or late, and how long before its time a packet must come, such as
    /// lost=2,late=0,margin=500us; irregular=N packets may have a timestamp that is off the rate
    /// of their media. Where the clock error is not known, late=N and margin=T are inconclusive
    #[arg(long, value_name = "LIMITS", default_value = "lost=0",
          value_parser = names::expect)]
    pub expect: Expect,
    /// The talker's clock is at most so far from this host's; without it nothing is said of late
    /// packets and margins, but of talkers on this host [default: that of TIMEWIRE_CLOCK_ERROR]
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    pub clock_error: Option<Span>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum LateChoice {
    /// Written all the same, when it is still its turn
    Keep,
    /// Left out, as a player would
    Drop,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum Codes {
    /// Four bytes before parameter sets and at the start of an access unit, three elsewhere
    Shortest,
    /// Four bytes everywhere
    Four,
}

#[derive(Debug, Args)]
pub struct Listen {
    #[command(flatten)]
    pub inward: Inward,
    /// The file: WAVE or H.264, as the stream is
    #[arg(long, value_name = "FILE")]
    pub out: PathBuf,
    /// Write over a file that is there
    #[arg(long)]
    pub force: bool,
    /// What becomes of packets that come after their presentation time
    #[arg(long, value_enum, default_value = "keep")]
    pub late: LateChoice,
    /// The start codes of an H.264 file, which packets do not carry; the talker tells
    #[arg(long, value_enum, default_value = "shortest")]
    pub start_codes: Codes,
    /// The longest access unit of H.264
    #[arg(long, value_name = "BYTES", default_value = "4096KiB", value_parser = parse_bytes)]
    pub max_access_unit: u32,
}

#[derive(Debug, Subcommand)]
pub enum Crf {
    /// Send the events of a clock that runs by this host's TAI
    Talk(CrfTalk),
    /// Follow a clock: its rate against this host's TAI
    ///
    /// Exit code 1: packets were lost or late beyond --expect, or none came.
    Listen(CrfListen),
}

#[derive(Debug, Args)]
pub struct CrfTalk {
    #[command(flatten)]
    pub out: Outward,
    /// The events: audio-sample, video-frame, video-line or machine-cycle
    #[arg(long, value_name = "KIND", default_value = "audio-sample",
          value_parser = names::clock_kind)]
    pub kind: CrfType,
    /// Events in a second, before --pull
    #[arg(long, value_name = "HZ", default_value = "48000")]
    pub frequency: u32,
    /// What the frequency is multiplied by, such as 1000/1001
    #[arg(long, value_name = "FACTOR", default_value = "1", value_parser = names::pull)]
    pub pull: Pull,
    /// Events from one timestamp to the next
    #[arg(long, value_name = "EVENTS", default_value = "160")]
    pub interval: u16,
    /// Timestamps in a packet
    #[arg(long, value_name = "COUNT", default_value = "6")]
    pub timestamps: u16,
    /// How much faster than nominal it runs, parts per billion
    #[arg(long, value_name = "PPB", default_value = "0", allow_negative_numbers = true)]
    pub ppb: i64,
    /// So many packets [default: until ended]
    #[arg(long, value_name = "COUNT")]
    pub packets: Option<u64>,
    /// Hand packets over so long before, with their launch time
    #[arg(long, value_name = "LEAD", value_parser = lead)]
    pub launch: Option<Span>,
    /// Added to the times of events [default: 2ms of class A, 50ms of class B]
    #[arg(long, value_name = "TIME", value_parser = transit)]
    pub transit: Option<Span>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct CrfListen {
    #[command(flatten)]
    pub inward: Inward,
    /// Timestamps that the rate is judged by, 2 to 1024
    #[arg(long, value_name = "COUNT", default_value = "256")]
    pub window: usize,
}

#[derive(Debug, Subcommand)]
pub enum CanCommand {
    /// Send each line of a file, or of standard input, as a frame
    ///
    /// Lines are as `cansend` takes them (123#DEADBEEF) or as `candump -L` writes them.
    Talk(CanTalk),
    /// Print each frame of a stream as a line
    ///
    /// Exit code 1: packets were lost beyond --expect, or none came.
    Listen(Inward),
}

#[derive(Debug, Args)]
pub struct CanTalk {
    /// The file; `-` is standard input
    pub file: PathBuf,
    #[command(flatten)]
    pub out: Outward,
    /// Say when frames are to be acted on: so long after they were sent (TSCF) [default: at once
    /// (NTSCF)]
    #[arg(long, value_name = "TIME", value_parser = transit)]
    pub transit: Option<Span>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct Reserve {
    /// The file that is to be sent
    #[arg(required_unless_present_any = ["rate", "payload"],
          conflicts_with_all = ["rate", "channels", "sample", "payload", "frames"])]
    pub file: Option<PathBuf>,
    /// Pictures in a second; H.264 only
    #[arg(long, value_name = "RATE", requires = "file", value_parser = names::cadence)]
    pub frame_rate: Option<Cadence>,
    /// Without a file: the sampling rate of audio, such as 48000
    #[arg(long, value_name = "HZ", requires = "channels", value_parser = names::rate)]
    pub rate: Option<NominalRate>,
    /// Without a file: channels of audio
    #[arg(long, value_name = "COUNT", requires = "rate")]
    pub channels: Option<u16>,
    /// Without a file: int16, int24, int32 or float32
    #[arg(long, value_name = "FORMAT", default_value = "int24", value_parser = names::sample)]
    pub sample: SampleFormat,
    /// Without a file: the longest payload of a frame, such as 60B
    #[arg(long, value_name = "BYTES", conflicts_with = "rate", value_parser = parse_bytes)]
    pub payload: Option<u32>,
    /// With --payload: frames in an interval
    #[arg(long, value_name = "COUNT", default_value = "1", requires = "payload")]
    pub frames: u16,
    /// The class
    #[arg(long, value_enum, default_value = "A")]
    pub class: Class,
    /// How many such streams
    #[arg(long, value_name = "COUNT", default_value = "1")]
    pub streams: u32,
    /// The rate of the port
    #[arg(long, value_name = "RATE", default_value = "1Gbit", value_parser = parse_rate)]
    pub port: BitsPerSecond,
    /// The longest frame of a lower class, on the link
    #[arg(long, value_name = "BYTES", default_value = "1542B", value_parser = names::wire)]
    pub interference: WireLen,
    /// Class B: what class A reserves on the same port
    #[arg(long, value_name = "RATE", requires = "above_frame", value_parser = parse_rate)]
    pub above_rate: Option<BitsPerSecond>,
    /// Class B: the longest frame of class A, on the link
    #[arg(long, value_name = "BYTES", requires = "above_rate", value_parser = names::wire)]
    pub above_frame: Option<WireLen>,
    /// The longest payload of a frame
    #[arg(long, value_name = "BYTES", default_value = "1500B", value_parser = parse_bytes)]
    pub mtu: u32,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// **Errors**: negative, or so long that presentation times would be ambiguous.
fn transit(text: &str) -> Result<Span, String> {
    let span = parse_span(text).map_err(|error| error.to_string())?;
    let fits = (Span::ZERO..=MAX_TRANSIT).contains(&span);
    if fits { Ok(span) } else { Err(format!("{span} is not within 0ns and {MAX_TRANSIT}")) }
}

fn lead(text: &str) -> Result<Span, String> {
    let span = parse_span(text).map_err(|error| error.to_string())?;
    let fits = span > Span::ZERO && span <= MAX_TRANSIT;
    if fits { Ok(span) } else { Err(format!("{span} is not more than 0ns, up to {MAX_TRANSIT}")) }
}

pub fn run(command: AvtpCommand) -> anyhow::Result<ExitCode> {
    match command {
        AvtpCommand::Talk(talk) => run_talk(&talk),
        AvtpCommand::Listen(listen) => run_listen(&listen),
        AvtpCommand::Crf(Crf::Talk(talk)) => crf_talk(&talk),
        AvtpCommand::Crf(Crf::Listen(listen)) => crf_listen(&listen),
        AvtpCommand::Can(CanCommand::Talk(talk)) => can_talk(&talk),
        AvtpCommand::Can(CanCommand::Listen(listen)) => can_listen(&listen),
        AvtpCommand::Reserve(of) => run_reserve(&of),
    }
}

/// Prints data: as JSON, or as a table.
fn print<T: Serialize>(value: &T, json: bool, table: &str) -> anyhow::Result<()> {
    if json {
        let mut text = serde_json::to_string_pretty(value)?;
        text.push('\n');
        output::print(&text)?;
    } else {
        output::print(table)?;
    }
    Ok(())
}

/// The exit code of a talker.
fn code_of(sent: &Sent) -> ExitCode {
    let refused = sent.refused.total();
    if refused == 0 {
        return ExitCode::SUCCESS;
    }
    say!("finding: {refused} of {} packets did not leave", sent.packets);
    ExitCode::from(1)
}

fn run_talk(talk: &Talk) -> anyhow::Result<ExitCode> {
    let media = Media::read(&talk.file, talk.frame_rate)?;
    let stream = talk.out.stream()?;
    let outlet = talk.out.outlet(talk.launch)?;
    let route = outlet.route;
    let plan = Plan::new(
        &media,
        TalkSpec {
            stream,
            class: talk.out.class.of(),
            transit: talk.transit,
            start: talk.start.map(Instant::<Tai>::from_ns),
            repeat: talk.repeat,
            samples_per_packet: talk.samples_per_packet,
            outlet,
        },
    )?;
    let reservation = plan.reservation();
    let bandwidth = reservation.bandwidth().map_or_else(String::new, |bps| format!(", {bps}"));
    let tag = route
        .tag
        .map_or_else(|| "untagged".to_owned(), |tag| format!("VLAN {}, PCP {}", tag.vid, tag.pcp));
    say!(
        "stream {stream} to {} ({tag}){bandwidth} on the link: {}\n\
         note: neither the address (MAAP) nor the bandwidth (MSRP) is negotiated",
        route.to,
        plan.media()
    );
    if let Some(advice) = media.advice() {
        say!("note: {advice}");
    }
    let told = plan.run()?;
    print(&told, talk.json, &show::told(&told))?;
    Ok(code_of(&told.sent))
}

/// Says that a listener listens, for whoever starts the talker next.
fn ready(interface: &IfName) {
    say!("listening on {interface}");
}

/// Findings to stderr, and the exit code.
fn judge(ended: Ended, mut findings: Vec<String>) -> ExitCode {
    if ended == Ended::Interface {
        findings.push("the interface went down or away".to_owned());
    }
    for finding in &findings {
        say!("finding: {finding}");
    }
    if findings.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(1) }
}

fn run_listen(of: &Listen) -> anyhow::Result<ExitCode> {
    let Inward { interface, stream, to, until, expect, clock_error, json } = &of.inward;
    let spec = ListenSpec {
        interface: interface.clone(),
        stream: *stream,
        to: *to,
        out: of.out.clone(),
        force: of.force,
        limits: until.limits(),
        clock_error: traffic::clock_error(*clock_error)?,
        late: match of.late {
            LateChoice::Keep => Late::Keep,
            LateChoice::Drop => Late::Discard,
        },
        start_codes: match of.start_codes {
            Codes::Four => StartCodes::Four,
            Codes::Shortest => StartCodes::Shortest,
        },
        max_access_unit: usize::try_from(of.max_access_unit)?,
    };
    let heard = listen(&spec, &mut || ready(interface))?;
    print(&heard, *json, &show::heard(&heard, &of.out.display().to_string()))?;
    let Heard { packets, timeliness, not_understood, clash, .. } = &heard;
    let mut found = expect.findings(packets, timeliness, not_understood, clash.as_ref());
    if spec.late == Late::Discard && packets.received > 0 && timeliness.late.is_none() {
        let clock = timeliness.clock.describe();
        found.push(format!("inconclusive: --late drop left nothing out: {clock}"));
    }
    Ok(judge(heard.ended, found))
}

fn crf_talk(talk: &CrfTalk) -> anyhow::Result<ExitCode> {
    let stream = talk.out.stream()?;
    let sent = crf::talk(&ClockSpec {
        stream,
        clock: CrfClock {
            kind: talk.kind,
            pull: talk.pull,
            base_frequency_hz: talk.frequency,
            interval: talk.interval,
        },
        timestamps_per_packet: talk.timestamps,
        rate: Ppb::new(talk.ppb),
        transit: talk.transit,
        class: talk.out.class.of(),
        packets: talk.packets,
        outlet: talk.out.outlet(talk.launch)?,
    })?;
    print(&sent, talk.json, &show::sent(&stream.to_string(), &sent))?;
    Ok(code_of(&sent))
}

fn crf_listen(of: &CrfListen) -> anyhow::Result<ExitCode> {
    let Inward { interface, stream, to, until, expect, clock_error, json } = &of.inward;
    let spec = FollowSpec {
        interface: interface.clone(),
        stream: *stream,
        to: *to,
        window: of.window,
        limits: until.limits(),
        clock_error: traffic::clock_error(*clock_error)?,
    };
    let followed = crf::follow(&spec, &mut || ready(interface))?;
    print(&followed, *json, &show::followed(&followed))?;
    Ok(judge(
        followed.ended,
        expect.findings(
            &followed.packets,
            &followed.timeliness,
            &followed.not_understood,
            followed.clash.as_ref(),
        ),
    ))
}

fn can_talk(talk: &CanTalk) -> anyhow::Result<ExitCode> {
    let file = match talk.file.as_os_str() == "-" {
        true => io::stdin().as_fd().try_clone_to_owned().map(File::from),
        false => File::open(&talk.file),
    };
    let file = file.with_context(|| format!("cannot read {}", talk.file.display()))?;
    let ending = Ending::new()?;
    let mut lines = BufReader::new(ending.reading(file));
    let stream = talk.out.stream()?;
    let format = talk.transit.map_or(ControlFormat::Ntscf, ControlFormat::Tscf);
    let sent =
        can::talk(stream, format, &talk.out.outlet(None)?, &mut lines, &mut || ending.is_asked())?;
    print(&sent, talk.json, &show::sent(&stream.to_string(), &sent))?;
    Ok(code_of(&sent))
}

fn can_listen(of: &Inward) -> anyhow::Result<ExitCode> {
    let Some(stream) = of.stream else {
        bail!("which stream? --stream is needed: any may carry control messages")
    };
    let json = of.json;
    let mut each = |line: &str| {
        let line = if json {
            serde_json::json!({ "type": "can", "data": line }).to_string()
        } else {
            line.to_owned()
        };
        let mut stdout = io::stdout().lock();
        writeln!(stdout, "{line}").and_then(|()| stdout.flush())
    };
    let gathered = can::listen(
        (&of.interface, of.to),
        traffic::clock_error(of.clock_error)?,
        stream,
        of.until.limits(),
        &mut || ready(&of.interface),
        &mut each,
    )?;
    if json {
        let line = serde_json::json!({ "type": "result", "data": gathered });
        output::print(&format!("{line}\n"))?;
    }
    say_text!("{}", show::can(&gathered));
    let found = of.expect.findings(
        &gathered.packets,
        &gathered.timeliness,
        &gathered.not_understood,
        gathered.clash.as_ref(),
    );
    Ok(judge(gathered.ended, found))
}

fn run_reserve(of: &Reserve) -> anyhow::Result<ExitCode> {
    let load = match (&of.file, of.rate, of.payload) {
        (Some(file), ..) => Load::File(Box::new(Media::read(file, of.frame_rate)?)),
        (None, Some(rate), _) => Load::Audio(AafFormat {
            sample: of.sample,
            rate,
            channels: of.channels.unwrap_or_default(),
            bit_depth: of.sample.bits(),
        }),
        (None, None, Some(payload)) => {
            Load::Frames { payload: SduLen::new(payload)?, frames: of.frames }
        }
        (None, None, None) => bail!("a file, --rate or --payload is needed"),
    };
    let reserved = reserve::reserve(&ReserveSpec {
        load,
        streams: of.streams,
        class: of.class.of(),
        port: of.port,
        interference: of.interference,
        above: of.above_rate.zip(of.above_frame),
        mtu: SduLen::new(of.mtu)?,
    })?;
    print(&reserved, of.json, &show::reserved(&reserved))?;
    Ok(ExitCode::SUCCESS)
}
