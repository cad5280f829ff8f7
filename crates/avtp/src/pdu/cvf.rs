// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Compressed video: the payload formats of RTP without RTP.
//!
//! **Source**: IEEE 1722-2016, 8.3 and 8.5 (H.264). Bytes: 16 `format` (2: RFC); 17
//! `format_subtype` (0 MJPEG, 1 H.264, 2 JPEG 2000); 18 and 19 reserved; 20 `stream_data_length`;
//! 22 reserved (2 bits), `ptv` (1), `M` (1), `evt` (4); 23 reserved; 24 for H.264:
//! `h264_timestamp` (32 bits), which `stream_data_length` counts; then the payload.

use super::{Reserved, STREAM_HEADER_BYTES, StreamHeader, Subtype};
use crate::bytes::{Bytes, check, length16, put, room};
use crate::{AvtpError, AvtpTime};

/// The one `format` there is: payloads as RTP carries them.
const FORMAT_RFC: u8 = 2;

/// How the video is compressed, with what only that format has.
///
/// **Source**: IEEE 1722-2016, 8.3.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CvfFormat {
    /// RFC 2435.
    Mjpeg,
    /// RFC 6184.
    H264 {
        /// The presentation time of pictures that are decoded in another order; `None` when `ptv`
        /// is 0.
        #[doc(alias = "h264_timestamp")]
        timestamp: Option<AvtpTime>,
    },
    /// RFC 5371.
    Jpeg2000,
}

/// A packet of compressed video.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cvf<'a> {
    /// Stream, number and time.
    pub header: StreamHeader,
    /// What the payload is.
    pub format: CvfFormat,
    /// The last packet of a picture (of an access unit, for H.264).
    #[doc(alias = "M")]
    pub marker: bool,
    /// An event of the application, 0 to 15.
    #[doc(alias = "evt")]
    pub event: u8,
    /// What RTP would carry, after its header.
    pub payload: &'a [u8],
    /// Reserved bits that were read; not written. `ptv` is reserved without H.264.
    pub reserved: Reserved,
}

/// The bytes of `h264_timestamp`.
const H264_HEADER_BYTES: usize = 4;

impl<'a> Cvf<'a> {
    /// What stands before an H.264 payload. **Units**: bytes.
    pub const H264_OVERHEAD_BYTES: usize = STREAM_HEADER_BYTES + H264_HEADER_BYTES;

    /// Reads a packet.
    ///
    /// **Errors**: too short; another subtype, version, format.
    pub fn parse(bytes: &'a [u8]) -> Result<Cvf<'a>, AvtpError> {
        let bytes = Bytes(bytes);
        let mut reserved = Reserved::NONE;
        let header = StreamHeader::read(bytes, Subtype::Cvf, &mut reserved)?;
        let wrong = |field, offset, read: u16, right| AvtpError::Wrong {
            field,
            offset,
            read: read.into(),
            right,
        };
        let format = bytes.u8("format", 16)?;
        if format != FORMAT_RFC {
            return Err(wrong("format", 16, format.into(), "2 (RFC)"));
        }
        let subtype = bytes.u8("format_subtype", 17)?;
        for offset in [18, 19, 23] {
            reserved.note(offset, bytes.u8("reserved", offset)?);
        }
        let length = bytes.u16("stream_data_length", 20)?;
        let info = bytes.u8("evt", 22)?;
        reserved.note(22, info & 0xc0);
        let data = bytes.slice("stream data", STREAM_HEADER_BYTES, length.into())?;
        let valid = info & 0x20 != 0;
        let (format, payload) = match subtype {
            1 => {
                let Some((time, payload)) = data.split_first_chunk::<H264_HEADER_BYTES>() else {
                    let right = "4 or more: it counts h264_timestamp";
                    return Err(wrong("stream_data_length", 20, length, right));
                };
                let time = AvtpTime::from_bits(u32::from_be_bytes(*time));
                (CvfFormat::H264 { timestamp: valid.then_some(time) }, payload)
            }
            0 | 2 => {
                reserved.note(22, info & 0x20);
                (if subtype == 0 { CvfFormat::Mjpeg } else { CvfFormat::Jpeg2000 }, data)
            }
            other => {
                let right = "0 MJPEG, 1 H.264 or 2 JPEG 2000";
                return Err(wrong("format_subtype", 17, other.into(), right));
            }
        };
        Ok(Cvf { header, format, marker: info & 0x10 != 0, event: info & 0x0f, payload, reserved })
    }

    /// Writes the packet and says how long it is.
    ///
    /// **Errors**: no room; an event or length that no packet has.
    pub fn write(&self, out: &mut [u8]) -> Result<usize, AvtpError> {
        check("evt", self.event, self.event <= 15, "0 to 15")?;
        let (subtype, extra, time) = match self.format {
            CvfFormat::Mjpeg => (0, 0, None),
            CvfFormat::H264 { timestamp } => (1, H264_HEADER_BYTES, timestamp),
            CvfFormat::Jpeg2000 => (2, 0, None),
        };
        let data = self.payload.len() + extra;
        let length = length16("stream data", data, "at most 65535 bytes")?;
        let total = STREAM_HEADER_BYTES + data;
        let out = room(out, total)?;
        self.header.put(Subtype::Cvf, out);
        put(out, 16, &[FORMAT_RFC, subtype]);
        put(out, 20, &length.to_be_bytes());
        let info = u8::from(time.is_some()) << 5 | u8::from(self.marker) << 4 | self.event;
        put(out, 22, &[info]);
        if let Some(time) = time {
            put(out, STREAM_HEADER_BYTES, &time.bits().to_be_bytes());
        }
        put(out, STREAM_HEADER_BYTES + extra, self.payload);
        Ok(total)
    }
}
