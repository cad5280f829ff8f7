// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The file that a stream carries: what it is, how it is cut into packets, what it reserves.

use std::fs;
use std::path::{Path, PathBuf};

use timewire_avtp::media::h264::{StartCodes, nal_units};
use timewire_avtp::media::wav::{self, WavFormat};
use timewire_avtp::pdu::{Cvf, StreamId};
use timewire_avtp::stream::{
    AafTalker, AafTalkerConfig, ByteOrder, CvfTalker, CvfTalkerConfig, Next, Tail,
};
use timewire_avtp::{AafPacking, AvtpError, Cadence, Reservation, SrClass};
use timewire_base::{FileError, Instant, SduLen, Span, Tai};

use super::StreamError;
use super::sender::Source;

/// A file to send.
#[derive(Clone, Debug)]
pub struct Media {
    path: PathBuf,
    kind: Kind,
}

#[derive(Clone, Debug)]
enum Kind {
    Audio { format: WavFormat, samples: Vec<u8> },
    Video { bytes: Vec<u8>, frame_rate: Cadence, codes: Option<StartCodes>, access_units: usize },
}

/// How a stream is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Manner {
    pub stream: StreamId,
    pub class: SrClass,
    pub transit: Span,
    pub start: Instant<Tai>,
    pub lead: Span,
    /// The longest payload of a frame.
    pub mtu: SduLen,
    /// Over and over.
    pub repeat: bool,
    /// Samples of every channel in a packet of audio; `None` for those of an interval.
    pub samples_per_packet: Option<u16>,
}

/// A source with what it reserves.
pub(super) struct Made {
    pub source: Box<dyn Source>,
    pub reservation: Reservation,
    /// Samples of every channel in a packet, or the longest H.264 payload.
    pub packing: String,
}

/// Samples that a talker holds: more than it sends between two looks.
const QUEUE: usize = 8_192;

impl Media {
    /// Reads a file: WAVE or an H.264 byte stream, told apart by how it begins.
    ///
    /// **Errors**: it cannot be read, is neither, or has nothing to send; an H.264 file without
    /// frame rate, an audio file with one.
    pub fn read(path: &Path, frame_rate: Option<Cadence>) -> Result<Media, StreamError> {
        let bytes = fs::read(path).map_err(StreamError::file("read", path))?;
        let content = |why: String| StreamError::from(FileError::content(path, why));
        let wrong = |error: AvtpError| content(error.to_string());
        let kind = if bytes.starts_with(b"RIFF") {
            let wav = wav::read(&bytes).map_err(wrong)?;
            wav.format.aaf().map_err(wrong)?;
            if wav.samples.is_empty() {
                return Err(content("it has no samples".to_owned()));
            }
            if frame_rate.is_some() {
                return Err(content("audio has its rate in the file: no --frame-rate".to_owned()));
            }
            Kind::Audio { format: wav.format, samples: wav.samples.to_vec() }
        } else if bytes.starts_with(&[0, 0, 1]) || bytes.starts_with(&[0, 0, 0, 1]) {
            let units = nal_units(&bytes).map_err(wrong)?;
            let codes = StartCodes::of(&bytes, &units);
            let access_units = units.iter().filter(|unit| unit.begins).count();
            let frame_rate = frame_rate.ok_or_else(|| {
                content("an H.264 byte stream does not say its rate: give --frame-rate".to_owned())
            })?;
            Kind::Video { bytes, frame_rate, codes, access_units }
        } else {
            let first: Vec<_> = bytes.iter().take(4).map(|byte| format!("{byte:02x}")).collect();
            return Err(content(format!(
                "neither WAVE (`RIFF`) nor an H.264 byte stream (00 00 01 or 00 00 00 01): it \
                 begins with {}",
                if first.is_empty() { "nothing".to_owned() } else { first.join(" ") }
            )));
        };
        Ok(Media { path: path.to_owned(), kind })
    }

    /// What it is, in words.
    pub fn describe(&self) -> String {
        match &self.kind {
            Kind::Audio { format, samples } => {
                format!("{}, {} samples", describe(*format), samples.len() / format.frame_bytes())
            }
            Kind::Video { access_units, .. } => format!("H.264, {access_units} access units"),
        }
    }

    /// What a listener must know to write the same file, when that is anything.
    pub fn advice(&self) -> Option<&'static str> {
        match &self.kind {
            Kind::Audio { .. } => None,
            Kind::Video { codes: Some(StartCodes::Shortest), .. } => None,
            Kind::Video { codes: Some(StartCodes::Four), .. } => {
                Some("all start codes are of four bytes: listen with --start-codes four")
            }
            Kind::Video { codes: None, .. } => Some(
                "its start codes follow no rule, and packets do not carry them: a listener writes \
                 the same NAL units, but not the same bytes",
            ),
        }
    }

    /// The talker of this file.
    ///
    /// **Errors**: settings that do not fit it.
    pub(super) fn talker(&self, manner: Manner) -> Result<Made, StreamError> {
        match &self.kind {
            Kind::Audio { format, samples } => Ok(audio(*format, samples.clone(), manner)?),
            Kind::Video { bytes, frame_rate, .. } => self.video(bytes, *frame_rate, manner),
        }
    }

    fn video(
        &self,
        bytes: &[u8],
        frame_rate: Cadence,
        manner: Manner,
    ) -> Result<Made, StreamError> {
        if manner.samples_per_packet.is_some() {
            let why = "video has no samples: no --samples-per-packet";
            return Err(FileError::content(&self.path, why).into());
        }
        let headers = u32::try_from(Cvf::H264_OVERHEAD_BYTES).expect("invariant: some bytes");
        let payload = manner.mtu.get().saturating_sub(headers).min(LONGEST_PAYLOAD);
        let mut config = CvfTalkerConfig {
            stream: manner.stream,
            class: manner.class,
            transit: manner.transit,
            start: manner.start,
            lead: manner.lead,
            frame_rate,
            max_payload: u16::try_from(payload).expect("invariant: at most 65000"),
            packets_per_interval: 1,
        };
        let mut talker = CvfTalker::new(config, bytes.to_vec());
        // As many as the largest access unit needs, and no more.
        if let Err(AvtpError::Range { field: "packets in an interval", least, .. }) = talker {
            config.packets_per_interval = u16::try_from(least).map_err(|_| {
                let why = format!(
                    "its largest access unit needs {least} packets in an interval: no link \
                         has such a rate"
                );
                FileError::content(&self.path, why)
            })?;
            talker = CvfTalker::new(config, bytes.to_vec());
        }
        let talker = talker?;
        let reservation = talker.reservation()?;
        let packing = format!("at most {payload} B of H.264 in a packet");
        let source = Box::new(VideoSource { talker, repeat: manner.repeat });
        Ok(Made { source, reservation, packing })
    }
}

/// What packets carry at most. **Units**: bytes.
const LONGEST_PAYLOAD: u32 = 65_000;

/// A format in words.
pub(super) fn describe(format: WavFormat) -> String {
    let WavFormat { sample, channels, rate_hz, valid_bits, .. } = format;
    let plural = if channels == 1 { "" } else { "s" };
    let bits = if valid_bits == u16::from(sample.bits()) {
        String::new()
    } else {
        format!(", {valid_bits} bits of it")
    };
    format!("{rate_hz} Hz, {channels} channel{plural} of {sample:?}{bits}")
}

fn audio(format: WavFormat, samples: Vec<u8>, manner: Manner) -> Result<Made, AvtpError> {
    let aaf = format.aaf()?;
    let AafPacking { samples_per_packet, reservation, .. } =
        AafPacking::with(manner.class, aaf, manner.mtu, manner.samples_per_packet)?;
    let talker = AafTalker::new(AafTalkerConfig {
        stream: manner.stream,
        format: aaf,
        samples_per_packet,
        transit: manner.transit,
        start: manner.start,
        lead: manner.lead,
        sparse: false,
        queue: QUEUE,
        tail: Tail::Short,
    })?;
    let low = usize::from(samples_per_packet);
    let source = Box::new(AudioSource { talker, samples, at: 0, low, repeat: manner.repeat });
    let packing = format!("{samples_per_packet} samples in a packet");
    Ok(Made { source, reservation, packing })
}

struct AudioSource {
    talker: AafTalker,
    samples: Vec<u8>,
    at: usize,
    /// Fewer than these do not fill a packet.
    low: usize,
    repeat: bool,
}

impl Source for AudioSource {
    fn next(&mut self, now: Instant<Tai>) -> Next<'_> {
        while self.talker.queued() < self.low {
            self.at += self.talker.push(&self.samples[self.at..], ByteOrder::Little);
            if self.at < self.samples.len() {
                continue;
            }
            if !self.repeat {
                self.talker.finish();
                break;
            }
            self.at = 0;
        }
        self.talker.next(now)
    }
}

struct VideoSource {
    talker: CvfTalker,
    repeat: bool,
}

impl Source for VideoSource {
    fn next(&mut self, now: Instant<Tai>) -> Next<'_> {
        if self.repeat && self.talker.is_done() {
            self.talker.rewind();
        }
        self.talker.next(now)
    }
}
