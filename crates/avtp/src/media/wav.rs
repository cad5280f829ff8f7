// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Audio files: RIFF/WAVE with PCM samples of 16, 24 or 32 bits or floats of 32.
//!
//! Reading gives the samples as they are, little endian, and what is needed to write them again;
//! other chunks are passed over. Writing and reading again gives the same samples, bit for bit.
//!
//! **Source**: RIFF and WAVE, *Multimedia Programming Interface and Data Specifications 1.0*;
//! `WAVEFORMATEX`, `WAVEFORMATEXTENSIBLE` of the Windows SDK (`mmreg.h`).

use crate::AvtpError;
use crate::bytes::{check, wide};
use crate::pdu::{AafFormat, NominalRate, SampleFormat};

/// What the samples of a file are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WavFormat {
    /// How a sample is written, here in little endian.
    pub sample: SampleFormat,
    /// How many channels, at least 1.
    pub channels: u16,
    /// **Units**: samples of each channel in a second.
    pub rate_hz: u32,
    /// How many of a sample's bits mean something.
    pub valid_bits: u16,
    /// Which loudspeaker each channel is for, when the file says (`WAVE_FORMAT_EXTENSIBLE`).
    pub channel_mask: Option<u32>,
}

impl WavFormat {
    /// **Units**: bytes of one sample of every channel.
    pub fn frame_bytes(&self) -> usize {
        usize::from(self.channels) * self.sample.bytes()
    }

    /// What the samples are in a packet.
    ///
    /// **Errors**: more than 1023 channels; a rate that has no name there.
    pub fn aaf(&self) -> Result<AafFormat, AvtpError> {
        let rate = NominalRate::from_hz(self.rate_hz).ok_or(AvtpError::Value {
            field: "sample rate",
            value: self.rate_hz.into(),
            right: "8, 16, 24, 32, 44.1, 48, 88.2, 96, 176.4 or 192 kHz",
        })?;
        let bit_depth = u8::try_from(self.valid_bits).unwrap_or(self.sample.bits());
        let format = AafFormat { sample: self.sample, rate, channels: self.channels, bit_depth };
        format.check()?;
        Ok(format)
    }
}

/// An audio file.
///
/// **Shape** of `samples`: time × channel, channel fastest, each in little endian.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wav<'a> {
    /// What the samples are.
    pub format: WavFormat,
    /// Whole frames.
    pub samples: &'a [u8],
}

const PCM: u16 = 1;
const FLOAT: u16 = 3;
const EXTENSIBLE: u16 = 0xfffe;
/// What follows the format's number in the GUID of an extensible format.
const GUID_TAIL: [u8; 14] = [0, 0, 0, 0, 0x10, 0, 0x80, 0, 0, 0xaa, 0, 0x38, 0x9b, 0x71];

/// A chunk: its name, where its data starts, its data.
type Chunk<'a> = ([u8; 4], usize, &'a [u8]);

fn wrong<T>(
    field: &'static str,
    offset: usize,
    read: u64,
    right: &'static str,
) -> Result<T, AvtpError> {
    Err(AvtpError::Wrong { field, offset, read, right })
}

fn u16_at(data: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([data[at], data[at + 1]])
}

fn u32_at(data: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([data[at], data[at + 1], data[at + 2], data[at + 3]])
}

fn chunk(bytes: &[u8], at: usize) -> Result<Chunk<'_>, AvtpError> {
    let rest = bytes.get(at..).unwrap_or_default();
    let short = |field, offset, needed, have| AvtpError::Truncated { field, offset, needed, have };
    let head = rest.get(..8).ok_or(short("the head of a chunk", at, 8, rest.len()))?;
    let length = usize::try_from(u32_at(head, 4)).unwrap_or(usize::MAX);
    let body = &rest[8..];
    let data = body.get(..length).ok_or(short("a chunk", at + 8, length, body.len()))?;
    Ok(([head[0], head[1], head[2], head[3]], at + 8, data))
}

/// Reads a file.
///
/// **Errors**: no RIFF/WAVE; a chunk that the file ends in; no `fmt ` before `data`, or neither; a
/// format other than the four; samples that are no whole frames.
pub fn read(bytes: &[u8]) -> Result<Wav<'_>, AvtpError> {
    let head = crate::bytes::Bytes(bytes).array::<12>("the head of the file", 0)?;
    if &head[..4] != b"RIFF" {
        let read = u32::from_be_bytes([head[0], head[1], head[2], head[3]]);
        return wrong("the file's type", 0, read.into(), "`RIFF`");
    }
    if &head[8..] != b"WAVE" {
        let read = u32::from_be_bytes([head[8], head[9], head[10], head[11]]);
        return wrong("the file's form", 8, read.into(), "`WAVE`");
    }
    let mut format = None;
    let mut at = 12;
    while at < bytes.len() {
        let (name, offset, data) = chunk(bytes, at)?;
        match (&name, format) {
            (b"fmt ", None) => format = Some(read_format(data, offset)?),
            (b"data", Some(format)) => {
                let of: WavFormat = format;
                if data.len() % of.frame_bytes() != 0 {
                    return Err(AvtpError::Pieces {
                        field: "the length of `data`",
                        offset: offset - 4,
                        read: wide(data.len()),
                        of: wide(of.frame_bytes()),
                    });
                }
                return Ok(Wav { format, samples: data });
            }
            (b"data", None) => {
                let read = u32::from_be_bytes(name).into();
                return wrong("the chunk", offset - 8, read, "`fmt `, which comes before `data`");
            }
            _ => {}
        }
        at = offset + data.len().next_multiple_of(2);
    }
    let (field, needed, have) = ("the chunk `data`", 8, 0);
    Err(AvtpError::Truncated { field, offset: bytes.len(), needed, have })
}

fn read_format(data: &[u8], offset: usize) -> Result<WavFormat, AvtpError> {
    let short = |needed| {
        let (field, have) = ("the chunk `fmt `", data.len());
        AvtpError::Truncated { field, offset, needed, have }
    };
    if data.len() < 16 {
        return Err(short(16));
    }
    let (tag, channels, rate_hz) = (u16_at(data, 0), u16_at(data, 2), u32_at(data, 4));
    let (align, bits) = (u16_at(data, 12), u16_at(data, 14));
    let (kind, valid_bits, channel_mask) = if tag == EXTENSIBLE {
        if data.len() < 40 {
            return Err(short(40));
        }
        if data[26..40] != GUID_TAIL {
            let read = u32_at(data, 26).into();
            return wrong("the sub-format", offset + 26, read, "that of PCM or of floats");
        }
        (u16_at(data, 24), u16_at(data, 18), Some(u32_at(data, 20)))
    } else {
        (tag, bits, None)
    };
    let sample = match (kind, bits) {
        (PCM, 16) => SampleFormat::Int16,
        (PCM, 24) => SampleFormat::Int24,
        (PCM, 32) => SampleFormat::Int32,
        (FLOAT, 32) => SampleFormat::Float32,
        (PCM | FLOAT, _) => {
            return wrong("bits of a sample", offset + 14, bits.into(), "16, 24, 32; floats 32");
        }
        _ => return wrong("the format", offset, kind.into(), "1 PCM or 3 floats"),
    };
    if channels == 0 {
        return wrong("channels", offset + 2, 0, "1 or more");
    }
    // Zero is what writers put who do not care.
    let valid_bits = if valid_bits == 0 { bits } else { valid_bits };
    if valid_bits > bits {
        let right = "at most the bits of a sample";
        return wrong("valid bits", offset + 18, valid_bits.into(), right);
    }
    let format = WavFormat { sample, channels, rate_hz, valid_bits, channel_mask };
    if usize::from(align) != format.frame_bytes() {
        let right = "channels times the bytes of a sample";
        return wrong("the block alignment", offset + 12, align.into(), right);
    }
    Ok(format)
}

/// Writes a file. The extensible format is used when there is a channel mask or when not all bits
/// of a sample mean something.
///
/// **Errors**: samples that are no whole frames, or more than 4 GiB of them; no channel; valid
/// bits, or bytes in a second, that the format cannot say.
pub fn write(wav: &Wav<'_>) -> Result<Vec<u8>, AvtpError> {
    let WavFormat { sample, channels, rate_hz, valid_bits, channel_mask } = wav.format;
    let (frame, bits) = (wav.format.frame_bytes(), u16::from(sample.bits()));
    check("channels", channels, channels > 0, "1 or more")?;
    let fits = (1..=bits).contains(&valid_bits);
    check("valid bits", valid_bits, fits, "1 to the bits of a sample")?;
    let length = wav.samples.len();
    check("samples", wide(length), length.is_multiple_of(frame), "whole frames")?;
    let align = u16::try_from(frame).map_err(|_| AvtpError::Value {
        field: "channels",
        value: channels.into(),
        right: "frames of at most 65535 bytes",
    })?;
    let a_second = rate_hz.checked_mul(align.into()).ok_or(AvtpError::Value {
        field: "sample rate",
        value: rate_hz.into(),
        right: "below 4 GiB a second",
    })?;
    let extensible = channel_mask.is_some() || valid_bits != bits;
    let kind = if sample == SampleFormat::Float32 { FLOAT } else { PCM };
    let mut format = Vec::with_capacity(40);
    format.extend((if extensible { EXTENSIBLE } else { kind }).to_le_bytes());
    format.extend(channels.to_le_bytes());
    format.extend(rate_hz.to_le_bytes());
    format.extend(a_second.to_le_bytes());
    format.extend(align.to_le_bytes());
    format.extend(bits.to_le_bytes());
    if extensible {
        format.extend(22_u16.to_le_bytes());
        format.extend(valid_bits.to_le_bytes());
        format.extend(channel_mask.unwrap_or(0).to_le_bytes());
        format.extend(kind.to_le_bytes());
        format.extend(GUID_TAIL);
    }
    let padded = length.next_multiple_of(2);
    let total = 4 + 8 + format.len() + 8 + padded;
    let too_long =
        |_| AvtpError::Value { field: "samples", value: wide(length), right: "a file below 4 GiB" };
    let riff = u32::try_from(total).map_err(too_long)?;
    let data = u32::try_from(length).map_err(too_long)?;
    let fmt = u32::try_from(format.len()).map_err(too_long)?;
    let mut out = Vec::with_capacity(total + 8);
    out.extend(b"RIFF");
    out.extend(riff.to_le_bytes());
    out.extend(b"WAVEfmt ");
    out.extend(fmt.to_le_bytes());
    out.extend(format);
    out.extend(b"data");
    out.extend(data.to_le_bytes());
    out.extend(wav.samples);
    out.resize(total + 8, 0);
    Ok(out)
}
