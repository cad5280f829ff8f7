// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A stream on its way into a file: WAVE for audio, a byte stream for H.264.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use timewire_avtp::media::h264::StartCodes;
use timewire_avtp::media::wav::{self, Wav, WavFormat};
use timewire_avtp::pdu::{Aaf, AafFormat, Cvf, CvfFormat, Pdu, StreamId};
use timewire_avtp::stream::{
    AafListener, AafListenerConfig, CvfListener, CvfListenerConfig, Late, Received, Sound,
    StreamCounters,
};
use timewire_base::{FileError, Instant, Tai};

use super::media::describe;
use super::{Arrived, StreamError};

/// What was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "kind")]
pub enum Written {
    /// Audio. **Units**: samples of every channel.
    Audio {
        /// That came, and that did not.
        samples: u64,
        /// Of these, silence in the place of packets that were lost.
        silent: u64,
    },
    /// Video.
    Video {
        /// Access units.
        access_units: u64,
        /// Of these, those of which something is known to be missing.
        broken: u64,
    },
}

/// How a stream is recorded.
#[derive(Clone, Copy, Debug)]
pub(super) struct Manner {
    pub late: Late,
    /// Of a byte stream of H.264; packets do not carry it.
    pub start_codes: StartCodes,
    /// **Units**: bytes.
    pub max_access_unit: usize,
    /// The longest payload of a frame. **Units**: bytes.
    pub longest: u32,
}

/// How many packets wait for their presentation time at most: half a second of class A.
const WAITING: usize = 4_096;

pub(super) enum Recording {
    Audio { listener: AafListener, format: WavFormat, swapped: Vec<u8>, samples: u64, silent: u64 },
    Video { listener: CvfListener, access_units: u64, broken: u64 },
}

impl Recording {
    /// For the stream of this packet, which is of audio or of H.264; `None` for any other.
    ///
    /// **Errors**: a format that no listener has.
    pub fn of(packet: &Pdu<'_>, manner: Manner) -> Result<Option<Recording>, StreamError> {
        Ok(match packet {
            Pdu::Aaf(aaf) if aaf.samples.is_empty() => None,
            Pdu::Aaf(aaf) => Some(Recording::audio(aaf, manner)?),
            Pdu::Cvf(cvf @ Cvf { format: CvfFormat::H264 { .. }, .. }) => {
                Some(Recording::video(cvf.header.stream, manner)?)
            }
            _ => None,
        })
    }

    fn audio(aaf: &Aaf<'_>, manner: Manner) -> Result<Recording, StreamError> {
        let AafFormat { sample, rate, channels, bit_depth } = aaf.format;
        let samples = aaf.samples.len() / aaf.format.frame_bytes();
        let listener = AafListener::new(AafListenerConfig {
            stream: aaf.header.stream,
            format: aaf.format,
            samples_per_packet: u16::try_from(samples).expect("invariant: in one frame"),
            capacity: WAITING,
            late: manner.late,
        })?;
        let rate_hz = rate.hz().expect("invariant: a listener has a rate");
        let format = WavFormat {
            sample,
            channels,
            rate_hz,
            valid_bits: bit_depth.into(),
            channel_mask: None,
        };
        Ok(Recording::Audio { listener, format, swapped: Vec::new(), samples: 0, silent: 0 })
    }

    fn video(stream: StreamId, manner: Manner) -> Result<Recording, StreamError> {
        let listener = CvfListener::new(CvfListenerConfig {
            stream,
            capacity: WAITING,
            max_payload: u16::try_from(manner.longest).unwrap_or(u16::MAX),
            max_access_unit: manner.max_access_unit,
            start_codes: manner.start_codes,
            late: manner.late,
        })?;
        Ok(Recording::Video { listener, access_units: 0, broken: 0 })
    }

    /// What it records, in words.
    pub fn describe(&self) -> String {
        match self {
            Recording::Audio { format, .. } => describe(*format),
            Recording::Video { .. } => "H.264".to_owned(),
        }
    }

    /// What the file begins with.
    pub fn head(&self) -> Result<Vec<u8>, StreamError> {
        Ok(match self {
            Recording::Audio { format, .. } => wav::write(&Wav { format: *format, samples: &[] })?,
            Recording::Video { .. } => Vec::new(),
        })
    }

    /// Takes a packet, and writes what is to be presented by the time it came. `None` for a packet
    /// that makes no sense.
    ///
    /// **Errors**: the file cannot be written.
    pub fn take(
        &mut self,
        arrived: Arrived<'_>,
        file: &mut MediaFile,
    ) -> Result<Option<Received>, StreamError> {
        let Arrived { at, payload, .. } = arrived;
        let received = match self {
            Recording::Audio { listener, .. } => listener.receive(at, payload),
            Recording::Video { listener, .. } => listener.receive(at, payload),
        };
        self.write(at, file)?;
        Ok(received.ok())
    }

    /// Writes what is to be presented by then.
    ///
    /// **Errors**: the file cannot be written.
    pub fn write(&mut self, now: Instant<Tai>, file: &mut MediaFile) -> Result<(), StreamError> {
        match self {
            Recording::Audio { listener, format, swapped, samples, silent } => {
                let frame = wide(format.frame_bytes());
                while let Some(sound) = listener.present(now) {
                    match sound {
                        Sound::Samples { bytes, .. } => {
                            swapped.resize(bytes.len(), 0);
                            format.sample.swap(bytes, swapped);
                            file.put(swapped)?;
                            *samples += wide(bytes.len()) / frame;
                        }
                        Sound::Gap { samples: missing, .. } => {
                            file.silence(missing * frame)?;
                            *samples += missing;
                            *silent += missing;
                        }
                    }
                }
            }
            Recording::Video { listener, access_units, broken } => {
                while let Some(unit) = listener.present(now) {
                    file.put(unit.bytes)?;
                    *access_units += 1;
                    *broken += u64::from(!unit.whole);
                }
            }
        }
        Ok(())
    }

    /// Writes all that waits, at the end.
    ///
    /// **Errors**: the file cannot be written.
    pub fn finish(&mut self, file: &mut MediaFile) -> Result<(), StreamError> {
        self.write(Instant::from_ns(i64::MAX), file)?;
        if let Recording::Video { listener, access_units, broken } = self
            && let Some(unit) = listener.finish()
        {
            file.put(unit.bytes)?;
            *access_units += 1;
            *broken += u64::from(!unit.whole);
        }
        Ok(())
    }

    pub fn counters(&self) -> StreamCounters {
        match self {
            Recording::Audio { listener, .. } => listener.counters(),
            Recording::Video { listener, .. } => listener.counters(),
        }
    }

    pub fn written(&self) -> Written {
        match *self {
            Recording::Audio { samples, silent, .. } => Written::Audio { samples, silent },
            Recording::Video { access_units, broken, .. } => {
                Written::Video { access_units, broken }
            }
        }
    }
}

fn wide(length: usize) -> u64 {
    u64::try_from(length).expect("invariant: usize fits u64")
}

/// A file that grows.
#[derive(Debug)]
pub(super) struct MediaFile {
    path: PathBuf,
    file: BufWriter<File>,
    /// **Units**: bytes before the media.
    head: u64,
    /// **Units**: bytes of media.
    length: u64,
    /// Made by us, and not there before.
    new: bool,
}

/// What a WAVE file can say of its length; the head and a byte of padding are in it.
const WAVE_LIMIT: u64 = (1 << 32) - 1 - 80;

impl MediaFile {
    /// Makes the file, or empties it.
    ///
    /// **Errors**: it is there already and `force` is not, or it cannot be made.
    pub fn create(path: &Path, force: bool) -> Result<MediaFile, StreamError> {
        let new = !path.exists();
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(true);
        if !force {
            options.create_new(true);
        }
        let file = options.open(path).map_err(StreamError::file("create", path))?;
        let file = BufWriter::with_capacity(1 << 16, file);
        Ok(MediaFile { path: path.to_owned(), file, head: 0, length: 0, new })
    }

    /// Writes what comes before the media.
    pub fn begin(&mut self, head: &[u8]) -> Result<(), StreamError> {
        self.head = wide(head.len());
        self.file.write_all(head).map_err(StreamError::file("write", &self.path))
    }

    fn put(&mut self, bytes: &[u8]) -> Result<(), StreamError> {
        self.grow(wide(bytes.len()))?;
        self.file.write_all(bytes).map_err(StreamError::file("write", &self.path))
    }

    fn silence(&mut self, mut bytes: u64) -> Result<(), StreamError> {
        const ZEROS: [u8; 4_096] = [0; 4_096];
        while bytes > 0 {
            let some = usize::try_from(bytes).unwrap_or(usize::MAX).min(ZEROS.len());
            self.put(&ZEROS[..some])?;
            bytes -= wide(some);
        }
        Ok(())
    }

    fn grow(&mut self, bytes: u64) -> Result<(), StreamError> {
        if self.head > 0 && self.length + bytes > WAVE_LIMIT {
            let why = "a WAVE file ends at 4 GiB: record in pieces (--for)".to_owned();
            return Err(FileError::content(&self.path, why).into());
        }
        self.length += bytes;
        Ok(())
    }

    /// Completes the file, with its lengths. One that is empty goes away, when it was not there
    /// before.
    ///
    /// **Errors**: it cannot be written.
    pub fn finish(mut self) -> Result<(), StreamError> {
        let path = self.path.clone();
        let done = |file: &mut BufWriter<File>| -> io::Result<()> {
            if self.head > 0 {
                if self.length % 2 == 1 {
                    file.write_all(&[0])?;
                }
                let small = |bytes: u64| u32::try_from(bytes).map_err(io::Error::other);
                let padded = self.length.next_multiple_of(2);
                file.seek(SeekFrom::Start(4))?;
                file.write_all(&small(self.head - 8 + padded)?.to_le_bytes())?;
                file.seek(SeekFrom::Start(self.head - 4))?;
                file.write_all(&small(self.length)?.to_le_bytes())?;
            }
            file.flush()
        };
        done(&mut self.file).map_err(StreamError::file("write", &path))?;
        if self.new && self.head + self.length == 0 {
            fs::remove_file(&path).map_err(StreamError::file("remove", &path))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use timewire_avtp::pdu::SampleFormat;

    #[test]
    fn t1_a_wave_file_that_grew_is_the_one_that_is_written_at_once() {
        let path = std::env::temp_dir().join(format!("timewire-grow-{}", std::process::id()));
        for (valid_bits, bytes) in [(24, 9 * 5), (20, 9 * 4), (24, 0)] {
            let sample = SampleFormat::Int24;
            let format =
                WavFormat { sample, channels: 3, rate_hz: 48_000, valid_bits, channel_mask: None };
            let mut samples: Vec<u8> = (0..bytes).collect();
            samples.extend([0; 9_000]);
            let mut file = MediaFile::create(&path, false).unwrap();
            file.begin(&wav::write(&Wav { format, samples: &[] }).unwrap()).unwrap();
            file.put(&samples[..bytes.into()]).unwrap();
            file.silence(9_000).unwrap();
            file.finish().unwrap();
            let expected = wav::write(&Wav { format, samples: &samples }).unwrap();
            assert_eq!(fs::read(&path).unwrap(), expected);
            assert!(matches!(
                MediaFile::create(&path, false),
                Err(StreamError::File(FileError::Unusable { what: "create", .. }))
            ));
            fs::remove_file(&path).unwrap();
        }
        MediaFile::create(&path, false).unwrap().finish().unwrap();
        assert!(!path.exists(), "nothing came, and nothing stays");
        fs::write(&path, "mine").unwrap();
        MediaFile::create(&path, true).unwrap().finish().unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"");
        fs::remove_file(&path).unwrap();
    }
}
