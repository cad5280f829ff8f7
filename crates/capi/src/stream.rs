// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a stream of a talker is made of, and what became of its messages.

use timewire_base::{Instant, Span};
use timewire_datapath::talker::VlanTag;
use timewire_datapath::talker::{
    self, Cadence, Destination, FrameContent, FrameHeader, StreamSpec,
};
use timewire_datapath::transmit::{TransmitOptions, Transport};

use crate::address::Address;
use crate::error::Failed;
use crate::raw;

/// `tw_stream_config`.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct StreamConfig {
    /// `sizeof(tw_stream_config)`.
    pub size: u32,
    /// Its number.
    pub stream: u32,
    /// Which of the talker's ports.
    pub port: u32,
    /// `TW_STREAM_...`.
    pub flags: u32,
    /// The start of one of its cycles. **Units**: nanoseconds of TAI.
    pub start_ns: i64,
    /// **Units**: nanoseconds.
    pub cycle_ns: i64,
    /// From the start of a cycle to its first message. **Units**: nanoseconds.
    pub offset_ns: i64,
    /// Between the messages of a cycle. **Units**: nanoseconds.
    pub spacing_ns: i64,
    /// How late a message may be handed over. **Units**: nanoseconds; 0 for one cycle.
    pub deadline_ns: i64,
    /// How long before its launch time a message is due. **Units**: nanoseconds; 0 for none.
    pub launch_lead_ns: i64,
    /// Cycles of a run; 0 for no end.
    pub cycles: u64,
    /// Messages of a cycle; 0 for one.
    pub frames: u32,
    /// **Units**: bytes of a message, or of a frame behind its header.
    pub payload: u32,
    /// Where it goes, with UDP.
    pub to: Address,
    /// The source of UDP in whole frames.
    pub from: Address,
    /// Of whole frames.
    pub destination: [u8; 6],
    /// Of whole frames; zero for the interface's own.
    pub source: [u8; 6],
    /// Of whole frames.
    pub ethertype: u16,
    /// 0 to 4094.
    pub vid: u16,
    /// 0 to 7.
    pub pcp: u8,
    /// The byte with DSCP and ECN of UDP in whole frames.
    pub traffic_class: u8,
    /// Zero.
    pub reserved: [u8; 6],
}

// SAFETY: `repr(C)`, integers whose sizes add up to the whole (asserted), so there is no padding;
// the size comes first.
unsafe impl raw::Sized32 for StreamConfig {
    const FIRST: usize = 4 * 4 + 7 * 8 + 2 * 4 + 2 * 24 + 2 * 6 + 2 * 2 + 2 + 6;
    const NAME: &'static str = "tw_stream_config";
}
const _: () = assert!(size_of::<StreamConfig>() == <StreamConfig as raw::Sized32>::FIRST);

const FLAG_PROBE: u32 = 1;
const FLAG_SEND_LATE: u32 = 2;
const FLAG_TAG: u32 = 4;
const FLAG_UDP: u32 = 8;

/// The shortest Ethernet type; what is below is a length (IEEE Std 802.3-2022, 3.2.6).
const FIRST_ETHERTYPE: u16 = 0x600;

/// A day. **Units**: nanoseconds.
const LONGEST: i64 = 86_400_000_000_000;
/// In the year 2200. **Units**: nanoseconds of TAI.
const LATEST_START: i64 = 7_258_118_400_000_000_000;

impl StreamConfig {
    /// **Errors**: what makes no sense, or nothing of the port that it names.
    pub(crate) fn read(
        &self,
        ports: &[(Transport, TransmitOptions)],
    ) -> Result<StreamSpec, Failed> {
        let number = u16::try_from(self.stream);
        let number = number.map_err(|_| self.bad("the highest number is TW_PROBE_MAX_STREAM"))?;
        raw::only(self.flags, FLAG_PROBE | FLAG_SEND_LATE | FLAG_TAG | FLAG_UDP, "flags")?;
        if self.reserved != [0; 6] {
            return Err(self.bad("reserved is not zero"));
        }
        let port = usize::try_from(self.port).expect("invariant: u32 fits usize");
        let Some((transport, _)) = ports.get(port) else {
            return Err(self.bad("it names a port that the talker has not"));
        };
        self.check_times()?;
        if self.payload == 0 {
            return Err(self.bad("payload is 0: a message has one byte at least"));
        }
        let to = match transport {
            Transport::Udp { .. } => self.udp()?,
            _ => Destination::Frame(self.header()?),
        };
        let cadence = Cadence::Cycle {
            start: Instant::from_ns(self.start_ns),
            cycle: Span::from_ns(self.cycle_ns),
        };
        let payload = usize::try_from(self.payload).expect("invariant: u32 fits usize");
        let some = |ns: i64| (ns > 0).then(|| Span::from_ns(ns));
        Ok(StreamSpec {
            port,
            offset: Span::from_ns(self.offset_ns),
            frames: self.frames.max(1),
            spacing: Span::from_ns(self.spacing_ns),
            plain: self.flags & FLAG_PROBE == 0,
            cycles: (self.cycles > 0).then_some(self.cycles),
            launch_lead: some(self.launch_lead_ns),
            deadline: some(self.deadline_ns),
            send_late: self.flags & FLAG_SEND_LATE > 0,
            ..StreamSpec::new(number, to, cadence, payload)
        })
    }

    fn bad(&self, why: &str) -> Failed {
        Failed::usage(format_args!("stream {}: {why}", self.stream))
    }

    /// **Errors**: a time that is negative where none can be, or so long that it is a mistake.
    fn check_times(&self) -> Result<(), Failed> {
        if !(0..=LATEST_START).contains(&self.start_ns) {
            return Err(self.bad("start_ns is no time of this century or the next"));
        }
        for (value, from, what) in [
            (self.cycle_ns, 1, "cycle_ns"),
            (self.offset_ns, -LONGEST, "offset_ns"),
            (self.spacing_ns, 0, "spacing_ns"),
            (self.deadline_ns, 0, "deadline_ns"),
            (self.launch_lead_ns, 0, "launch_lead_ns"),
        ] {
            if !(from..=LONGEST).contains(&value) {
                return Err(self.bad(&format!("{what} is {value}: it is {from} to {LONGEST}")));
            }
        }
        Ok(())
    }

    fn udp(&self) -> Result<Destination, Failed> {
        let is_frame = self.flags & (FLAG_TAG | FLAG_UDP) > 0
            || self.destination != [0; 6]
            || self.source != [0; 6]
            || self.from != Address::default()
            || self.ethertype > 0
            || self.vid > 0
            || self.pcp > 0
            || self.traffic_class > 0;
        if is_frame {
            return Err(self.bad("the header of a frame means nothing for UDP, its port has one"));
        }
        match self.to.family {
            0 => Ok(Destination::Port),
            _ => Ok(Destination::Udp(self.to.to_socket_address()?)),
        }
    }

    fn header(&self) -> Result<FrameHeader, Failed> {
        let is_tagged = self.flags & FLAG_TAG > 0;
        if !is_tagged && (self.vid > 0 || self.pcp > 0) {
            return Err(self.bad("vid and pcp need TW_STREAM_TAG"));
        }
        if self.destination == [0; 6] {
            return Err(self.bad("a frame needs its destination"));
        }
        let content = if self.flags & FLAG_UDP > 0 {
            let v4 = |address: Address, what: &str| match address.to_socket_address() {
                Ok(std::net::SocketAddr::V4(address)) => Ok(address),
                _ => Err(self.bad(&format!("UDP in a frame needs `{what}`, of IPv4"))),
            };
            if self.ethertype > 0 {
                return Err(self.bad("ethertype means nothing with TW_STREAM_UDP"));
            }
            let (from, to) = (v4(self.from, "from")?, v4(self.to, "to")?);
            FrameContent::Udp { from, to, traffic_class: self.traffic_class }
        } else {
            let none = Address::default();
            if self.to != none || self.from != none || self.traffic_class > 0 {
                return Err(self.bad("to, from and traffic_class need TW_STREAM_UDP here"));
            }
            if self.ethertype < FIRST_ETHERTYPE {
                return Err(self.bad("a frame needs its ethertype, 0x0600 or more"));
            }
            FrameContent::EtherType(self.ethertype)
        };
        Ok(FrameHeader {
            source: (self.source != [0; 6]).then_some(self.source),
            destination: self.destination,
            vlan: is_tagged.then_some(VlanTag { vid: self.vid, pcp: self.pcp }),
            content,
        })
    }
}

/// `tw_stream_counters`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
#[allow(missing_docs, reason = "the fields are those of timewire_datapath::talker::StreamCounters")]
pub struct StreamCounters {
    pub size: u32,
    pub reserved: u32,
    pub planned: u64,
    pub sent: u64,
    pub woke_late: u64,
    pub overran: u64,
    pub not_filled: u64,
    pub not_taken: u64,
    pub refused: u64,
    pub past_deadline: u64,
    pub launch_invalid: u64,
    pub launch_missed: u64,
    pub timestamps: u64,
    pub timestamps_missing: u64,
    /// **Units**: nanoseconds.
    pub latest_ns: i64,
}

// SAFETY: `repr(C)`, two u32 and thirteen numbers of eight bytes leave no padding (asserted); the
// size comes first.
unsafe impl raw::Sized32 for StreamCounters {
    const FIRST: usize = 2 * 4 + 13 * 8;
    const NAME: &'static str = "tw_stream_counters";
}
const _: () = assert!(size_of::<StreamCounters>() == <StreamCounters as raw::Sized32>::FIRST);

impl StreamCounters {
    pub(crate) fn new(of: &talker::StreamCounters, latest: Span) -> StreamCounters {
        // Named one by one: a counter that is new is not forgotten here.
        let talker::StreamCounters {
            planned,
            sent,
            skipped_woke_late: woke_late,
            skipped_overran: overran,
            // Of what is posted.
            expired: _,
            not_filled,
            not_taken,
            refused,
            past_deadline,
            launch_invalid,
            launch_missed,
            timestamps,
            timestamps_missing,
        } = *of;
        StreamCounters {
            size: 0,
            reserved: 0,
            planned,
            sent,
            woke_late,
            overran,
            not_filled,
            not_taken,
            refused,
            past_deadline,
            launch_invalid,
            launch_missed,
            timestamps,
            timestamps_missing,
            latest_ns: latest.as_ns(),
        }
    }
}
