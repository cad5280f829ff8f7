// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a stream reserves: classes, frames in each interval, bytes on the wire.
//!
//! **Source**: IEEE 802.1Q-2018, 34.5 and 35.2.2.8 (classes, TSpec); IEEE 1722-2016,
//! 4.3.3 (maximum transit times).

use timewire_base::{BitsPerSecond, FrameLen, SduLen, Span, WireLen};

use crate::AvtpError;
use crate::bytes::wide;
use crate::pdu::{AafFormat, STREAM_HEADER_BYTES};

/// A class of stream reservation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SrClass {
    /// The faster one.
    A,
    /// The slower one.
    B,
}

/// The priority code point of a VLAN tag, 0 to 7.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Pcp(u8);

impl Pcp {
    /// The number in the tag.
    pub const fn get(self) -> u8 {
        self.0
    }
}

/// The number of a VLAN.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct VlanId(u16);

impl VlanId {
    /// The number in the tag.
    pub const fn get(self) -> u16 {
        self.0
    }
}

impl SrClass {
    /// How often a talker may send its frames.
    #[doc(alias = "classMeasurementInterval")]
    pub const fn interval(self) -> Span {
        match self {
            SrClass::A => Span::from_us(125),
            SrClass::B => Span::from_us(250),
        }
    }

    /// Intervals in a second.
    pub const fn intervals_per_second(self) -> u32 {
        match self {
            SrClass::A => 8_000,
            SrClass::B => 4_000,
        }
    }

    /// How long a frame may take from talker to listener: what a talker adds to a presentation
    /// time.
    pub const fn max_transit(self) -> Span {
        match self {
            SrClass::A => Span::from_ms(2),
            SrClass::B => Span::from_ms(50),
        }
    }

    /// The priority code point that a network has unless it is told another.
    pub const fn default_pcp(self) -> Pcp {
        match self {
            SrClass::A => Pcp(3),
            SrClass::B => Pcp(2),
        }
    }

    /// The VLAN that streams are in unless they are told another.
    #[doc(alias = "SR_PVID")]
    pub const fn default_vlan(self) -> VlanId {
        VlanId(2)
    }
}

/// What a talker declares of a stream.
///
/// **Source**: IEEE 802.1Q-2018, 35.2.2.8.4. No byte is added for talkers whose clock is fast.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TSpec {
    /// The longest payload of a frame.
    #[doc(alias = "MaxFrameSize")]
    pub max_frame_size: SduLen,
    /// The most frames in an interval.
    #[doc(alias = "MaxIntervalFrames")]
    pub max_interval_frames: u16,
}

/// What a stream reserves of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reservation {
    class: SrClass,
    tspec: TSpec,
    frame: WireLen,
}

/// **Units**: bytes of a VLAN tag.
const TAG: u32 = 4;

impl Reservation {
    /// A stream of `class` that sends `frames` frames of at most `payload` bytes each interval.
    ///
    /// **Errors**: no frame, or a payload with whose header a frame is longer than 65 535 bytes.
    pub fn new(class: SrClass, payload: SduLen, frames: u16) -> Result<Reservation, AvtpError> {
        crate::bytes::check("frames in an interval", frames, frames > 0, "1 to 65535")?;
        let tagged = payload.frame_len().get() + TAG;
        let frame = FrameLen::new(tagged).map_err(|_| AvtpError::Value {
            field: "payload",
            value: payload.get().into(),
            right: "at most 65517 bytes",
        })?;
        let tspec = TSpec { max_frame_size: payload, max_interval_frames: frames };
        Ok(Reservation { class, tspec, frame: frame.wire_len() })
    }

    /// The class it was made for.
    pub fn class(&self) -> SrClass {
        self.class
    }

    /// What the talker declares.
    pub fn tspec(&self) -> TSpec {
        self.tspec
    }

    /// The longest frame as the link carries it: with VLAN tag, check sequence, preamble and gap.
    pub fn frame(&self) -> WireLen {
        self.frame
    }

    /// The most frames in an interval of the class.
    pub fn frames_per_interval(&self) -> u16 {
        self.tspec.max_interval_frames
    }

    /// The rate of the link that the stream takes, all overhead included; `None` when no link has
    /// such a rate.
    pub fn bandwidth(&self) -> Option<BitsPerSecond> {
        let bits = u64::from(self.frame.get()) * 8;
        let a_second = u64::from(self.class.intervals_per_second());
        BitsPerSecond::new(bits * u64::from(self.tspec.max_interval_frames) * a_second)
    }
}

/// How a stream of audio is cut into packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AafPacking {
    /// Samples of every channel in a packet.
    pub samples_per_packet: u16,
    /// The most packets in an interval.
    pub packets_per_interval: u16,
    /// What the stream reserves.
    pub reservation: Reservation,
}

impl AafPacking {
    /// Cuts a stream so that a packet has the samples of one interval, rounded up, as the classes
    /// have it: 6 at 48 kHz and at 44.1 kHz in class A. When that is more than `mtu` takes, the
    /// interval's samples are spread over as few equal packets as can be.
    ///
    /// **Units**: `mtu` is the longest payload of a frame, usually 1500 bytes.
    ///
    /// **Errors**: a rate without a number; a format that cannot be; samples of one instant that
    /// do not fit one packet.
    pub fn new(class: SrClass, format: AafFormat, mtu: SduLen) -> Result<AafPacking, AvtpError> {
        AafPacking::with(class, format, mtu, None)
    }

    /// As [`AafPacking::new`], with so many samples of every channel in a packet, when it is told:
    /// listeners that take one number only, such as those of the reference library, need it.
    ///
    /// **Errors**: those of [`AafPacking::new`]; no samples in a packet, or more than `mtu` takes.
    pub fn with(
        class: SrClass,
        format: AafFormat,
        mtu: SduLen,
        samples_per_packet: Option<u16>,
    ) -> Result<AafPacking, AvtpError> {
        format.check()?;
        let hz = format.rate.hz().ok_or(AvtpError::Value {
            field: "nsr",
            value: 0,
            right: "a rate with a number, 8 kHz to 192 kHz",
        })?;
        let samples = u64::from(hz.div_ceil(class.intervals_per_second()));
        let frame = wide(format.frame_bytes());
        let room = u64::from(mtu.get()).saturating_sub(wide(STREAM_HEADER_BYTES));
        let most = (room / frame).min(samples);
        if most == 0 {
            let least = frame + wide(STREAM_HEADER_BYTES);
            let (field, value, most) = ("mtu", mtu.get().into(), 65_517);
            return Err(AvtpError::Range { field, value, least, most });
        }
        let (packets, each) = match samples_per_packet.map(u64::from) {
            None => {
                let packets = samples.div_ceil(most);
                (packets, samples.div_ceil(packets))
            }
            Some(each) => {
                let most = (room / frame).min(65_535 / frame);
                if !(1..=most).contains(&each) {
                    let field = "samples in a packet";
                    return Err(AvtpError::Range { field, value: each, least: 1, most });
                }
                (samples.div_ceil(each), each)
            }
        };
        let payload = wide(STREAM_HEADER_BYTES) + each * frame;
        let payload = u32::try_from(payload).expect("invariant: at most the mtu");
        let payload = SduLen::new(payload).expect("invariant: at most the mtu");
        let small = |n: u64| u16::try_from(n).expect("invariant: at most 65535");
        Ok(AafPacking {
            samples_per_packet: small(each),
            packets_per_interval: small(packets),
            reservation: Reservation::new(class, payload, small(packets))?,
        })
    }
}
