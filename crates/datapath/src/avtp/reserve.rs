// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What streams of a class reserve of a port, and the shaper that keeps them to it.

use serde::{Deserialize, Serialize};
use timewire_avtp::pdu::{AafFormat, StreamId};
use timewire_avtp::{AafPacking, Reservation, SrClass};
use timewire_base::{BitsPerSecond, FrameLen, Instant, SduLen, Span, WireLen};
use timewire_tsn::qdisc::{
    Cbs, CreditError, CreditShaper, ReservedClass, ReservedStream, rate_of_streams_ceil,
};

use super::media::Manner;
use super::{Media, StreamError};

/// What is to be sent.
#[derive(Clone, Debug)]
pub enum Load {
    /// A file.
    File(Box<Media>),
    /// Audio that is no file yet.
    Audio(AafFormat),
    /// So many frames an interval with payloads of at most so many bytes.
    Frames {
        /// The longest payload.
        payload: SduLen,
        /// The most frames in an interval.
        frames: u16,
    },
}

/// Streams that are reserved for.
#[derive(Clone, Debug)]
pub struct ReserveSpec {
    /// What each of them carries.
    pub load: Load,
    /// How many there are.
    pub streams: u32,
    /// Their class.
    pub class: SrClass,
    /// The rate of the port.
    pub port: BitsPerSecond,
    /// The longest frame of any lower class, on the link.
    pub interference: WireLen,
    /// What class A reserves on the same port; class B only.
    pub above: Option<(BitsPerSecond, WireLen)>,
    /// The longest payload of a frame.
    pub mtu: SduLen,
}

/// What they reserve, to keep.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reserved {
    /// `timewire.avtp-reserve/1`.
    pub schema: String,
    /// `A` or `B`.
    pub class: String,
    /// Each frame's slot: 125 us or 250 us.
    pub interval_ns: i64,
    /// The longest payload of a frame, `MaxFrameSize`. **Units**: bytes.
    pub max_frame_size_bytes: u32,
    /// The most frames of a stream in an interval, `MaxIntervalFrames`.
    pub max_interval_frames: u16,
    /// The longest frame with tag, check sequence, preamble and gap. **Units**: bytes.
    pub frame_on_the_wire_bytes: u32,
    /// How many streams.
    pub streams: u32,
    /// What one stream takes of the link. **Units**: bit/s.
    pub stream_bps: u64,
    /// What all take, the class' idle slope. **Units**: bit/s.
    pub idle_slope_bps: u64,
    /// The rate of the port. **Units**: bit/s.
    pub port_bps: u64,
    /// Presentation time less launch time.
    pub max_transit_ns: i64,
    /// The VLAN that streams are in unless they are told another.
    pub vlan: u16,
    /// The priority code point of the class.
    pub pcp: u8,
    /// The numbers of `cbs`, in the units of `tc`: kbit/s and bytes.
    pub idle_slope_kbit: i32,
    /// See `idle_slope_kbit`.
    pub send_slope_kbit: i32,
    /// See `idle_slope_kbit`.
    pub hi_credit_bytes: i32,
    /// See `idle_slope_kbit`.
    pub lo_credit_bytes: i32,
    /// The `shaper` of the class in host settings, which computes the same numbers.
    pub shaper: String,
}

/// The `schema` of [`Reserved`].
pub const RESERVE_SCHEMA: &str = "timewire.avtp-reserve/1";

fn refused(error: &CreditError) -> StreamError {
    StreamError::Invalid(error.to_string())
}

/// Computes it.
///
/// **Errors**: a load that cannot be sent in this class; more than the port has.
pub fn reserve(spec: &ReserveSpec) -> Result<Reserved, StreamError> {
    let reservation = of_load(spec)?;
    let interval = spec.class.interval();
    let frames = u32::from(reservation.frames_per_interval());
    let stream = ReservedStream { longest: reservation.frame(), frames };
    let rate = |frames| rate_of_streams_ceil(&[ReservedStream { frames, ..stream }], interval);
    let too_many = || StreamError::Invalid(format!("{} streams are too many", spec.streams));
    let all = frames.checked_mul(spec.streams).filter(|all| *all > 0).ok_or_else(too_many)?;
    let (one, idle) = (rate(frames), rate(all));
    let (one, idle) = (one.map_err(|e| refused(&e))?, idle.map_err(|e| refused(&e))?);
    let class = ReservedClass { idle_slope: idle, longest: reservation.frame() };
    let shaper = match spec.above {
        Some((idle_slope, longest)) if spec.class == SrClass::B => {
            let above = ReservedClass { idle_slope, longest };
            CreditShaper::class_b(spec.port, class, above, spec.interference)
        }
        Some(_) => {
            return Err(StreamError::Invalid("no class is above class A".to_owned()));
        }
        None => CreditShaper::class_a(spec.port, class, spec.interference),
    };
    let cbs: Cbs = shaper
        .and_then(|shaper| shaper.to_cbs_kbit_and_bytes(false))
        .map_err(|error| refused(&error))?;
    let mut credit = format!(
        "from: reservation, rate: {idle}, frame: {}B, port: {}, interference: {}B",
        reservation.frame().get(),
        spec.port,
        spec.interference.get()
    );
    if let Some((rate, frame)) = spec.above {
        credit += &format!(", above_rate: {rate}, above_frame: {}B", frame.get());
    }
    Ok(Reserved {
        schema: RESERVE_SCHEMA.to_owned(),
        class: format!("{:?}", spec.class),
        interval_ns: interval.as_ns(),
        max_frame_size_bytes: reservation.tspec().max_frame_size.get(),
        max_interval_frames: reservation.tspec().max_interval_frames,
        frame_on_the_wire_bytes: reservation.frame().get(),
        streams: spec.streams,
        stream_bps: one.get(),
        idle_slope_bps: idle.get(),
        port_bps: spec.port.get(),
        max_transit_ns: spec.class.max_transit().as_ns(),
        vlan: spec.class.default_vlan().get(),
        pcp: spec.class.default_pcp().get(),
        idle_slope_kbit: cbs.idle_slope_kbit,
        send_slope_kbit: cbs.send_slope_kbit,
        hi_credit_bytes: cbs.hi_credit_bytes,
        lo_credit_bytes: cbs.lo_credit_bytes,
        shaper: format!("shaper: {{ credit: {{ {credit} }} }}"),
    })
}

fn of_load(spec: &ReserveSpec) -> Result<Reservation, StreamError> {
    Ok(match &spec.load {
        Load::File(media) => {
            let manner = Manner {
                stream: StreamId::from_bits(0),
                class: spec.class,
                transit: spec.class.max_transit(),
                start: Instant::from_ns(0),
                lead: Span::ZERO,
                mtu: spec.mtu,
                repeat: false,
                samples_per_packet: None,
            };
            media.talker(manner)?.reservation
        }
        Load::Audio(format) => AafPacking::new(spec.class, *format, spec.mtu)?.reservation,
        Load::Frames { payload, frames } => Reservation::new(spec.class, *payload, *frames)?,
    })
}

/// A length on the link, with header, tag, check sequence, preamble and gap, as settings have it.
///
/// **Errors**: shorter or longer than any frame.
pub fn on_the_wire(bytes: u32) -> Result<WireLen, String> {
    let frame = bytes.checked_sub(AROUND).and_then(|frame| FrameLen::new(frame).ok());
    let wire = frame.map(FrameLen::wire_len).filter(|wire| wire.get() == bytes);
    wire.ok_or_else(|| {
        format!(
            "{bytes}B is no length of a frame on the link: 84B to 65559B, 1542B for a tagged frame \
             of 1500B"
        )
    })
}

/// Preamble, check sequence and gap. **Units**: bytes.
const AROUND: u32 = 24;
