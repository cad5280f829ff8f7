// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Recording a stream into a file, and what is to be said of it.
//!
//! Not here: how packets are received (`inlet`), how they become a file (`recording`).

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use timewire_avtp::media::h264::StartCodes;
use timewire_avtp::pdu::{Pdu, StreamId};
use timewire_avtp::stream::{Late, Received, StreamCounters};
use timewire_base::wire::MacAddress;
use timewire_base::{IfName, Instant, Span, Tai};

use super::inlet::longest_payload;
use super::margin::Margins;
use super::recording::{Manner, MediaFile, Recording};
use super::unread::{Clash, NotUnderstood, Talkers, Unread};
use super::{Arrived, Ended, Inlet, Limits, StreamError, Timeliness, Written};

/// What is recorded, and until when.
#[derive(Clone, Debug)]
pub struct ListenSpec {
    /// The interface.
    pub interface: IfName,
    /// The stream; `None` takes the first of audio or H.264 that is heard.
    pub stream: Option<StreamId>,
    /// Its destination; `None` takes any.
    pub to: Option<MacAddress>,
    /// The file.
    pub out: PathBuf,
    /// Write over a file that is there.
    pub force: bool,
    /// When to end without being asked.
    pub limits: Limits,
    /// What is done with packets that come too late to be presented.
    pub late: Late,
    /// Of a byte stream of H.264.
    pub start_codes: StartCodes,
    /// The longest access unit. **Units**: bytes.
    pub max_access_unit: usize,
    /// How far the talker's clock is from this host's at most; `None`: it is not known, unless the
    /// talker is on this host.
    pub clock_error: Option<Span>,
}

/// What was heard, to keep.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Heard {
    /// `timewire.avtp-listen/1`.
    pub schema: String,
    /// The stream's name, when one was heard.
    pub stream: Option<String>,
    /// What it is.
    pub media: Option<String>,
    /// Why it ended.
    pub ended: Ended,
    /// Its packets.
    pub packets: Counters,
    /// How they came, by the clocks of talker and listener.
    #[serde(flatten)]
    pub timeliness: Timeliness,
    /// What is in the file.
    pub written: Option<Written>,
    /// Packets that this host lost because it was too slow. They are `lost` too.
    pub dropped_here: u64,
    /// Packets of other streams that are understood.
    pub others: u64,
    /// Packets that are not understood, by kind and stream.
    pub not_understood: Vec<NotUnderstood>,
    /// Another talker with the stream's name.
    pub clash: Option<Clash>,
}

/// The `schema` of [`Heard`].
pub const LISTEN_SCHEMA: &str = "timewire.avtp-listen/1";

/// A stream's packets, counted; see [`StreamCounters`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs, reason = "the fields are those of StreamCounters")]
pub struct Counters {
    pub received: u64,
    pub presented: u64,
    pub lost: u64,
    pub duplicates: u64,
    pub reordered: u64,
    pub discarded: u64,
    pub other_format: u64,
    pub malformed: u64,
    pub media_restarts: u64,
    pub uncertain: u64,
    pub reserved: u64,
    pub irregular: u64,
}

impl From<StreamCounters> for Counters {
    fn from(of: StreamCounters) -> Counters {
        Counters {
            received: of.received,
            presented: of.presented,
            lost: of.lost,
            duplicates: of.duplicates,
            reordered: of.reordered,
            discarded: of.discarded,
            other_format: of.other_format,
            malformed: of.malformed,
            media_restarts: of.media_restarts,
            uncertain: of.uncertain,
            reserved: of.reserved,
            irregular: of.irregular,
        }
    }
}

/// What may be missing or late.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Expect {
    /// Packets that may be lost.
    pub lost: u64,
    /// Packets that may come after their presentation time; `None`: none may, where that is known.
    pub late: Option<u64>,
    /// Packets whose timestamp may be off the rate of their media.
    pub irregular: u64,
    /// How long before its presentation time every packet must have come.
    pub margin: Option<Span>,
}

impl Expect {
    /// What is not as expected, in words.
    pub fn findings(
        &self,
        packets: &Counters,
        timeliness: &Timeliness,
        unread: &[NotUnderstood],
        clash: Option<&Clash>,
    ) -> Vec<String> {
        let mut found: Vec<String> = unread
            .iter()
            .filter(|it| it.wanted)
            .map(|it| format!("inconclusive: {}", it.describe()))
            .collect();
        found.extend(clash.map(Clash::describe));
        if packets.received == 0 && found.is_empty() {
            found.push("nothing was heard of it".to_owned());
        }
        if packets.irregular > self.irregular {
            found.push(format!(
                "{} packets have a timestamp that is off their media's rate, at most {} expected: \
                 the talker does not count samples, or sends in bursts",
                packets.irregular, self.irregular
            ));
        }
        if packets.lost > self.lost {
            found.push(format!("{} packets lost, at most {} expected", packets.lost, self.lost));
        }
        found.extend(self.of_late(timeliness));
        found.extend(self.of_margin(timeliness).filter(|_| packets.received > 0));
        found
    }

    fn of_late(&self, timeliness: &Timeliness) -> Option<String> {
        let most = self.late.unwrap_or_default();
        match timeliness.late {
            Some(late) if late.at_least > most => {
                Some(format!("{} packets late, at most {most} expected", late.at_least))
            }
            Some(late) if late.at_most > most => Some(format!(
                "inconclusive: {} to {} packets late ({}), at most {most} expected",
                late.at_least,
                late.at_most,
                timeliness.clock.describe()
            )),
            Some(_) => None,
            None => self.late.map(|most| {
                let why = timeliness.clock.describe();
                format!("inconclusive: at most {most} packets late are expected: {why}")
            }),
        }
    }

    fn of_margin(&self, timeliness: &Timeliness) -> Option<String> {
        let least = self.margin?;
        let clock = timeliness.clock.describe();
        let Some(error) = timeliness.clock.error_ns else {
            return Some(format!("inconclusive: a margin of {least} is expected: {clock}"));
        };
        let Some(found) = &timeliness.margin else {
            return Some(format!(
                "inconclusive: a margin of {least} is expected: no packet has a presentation time"
            ));
        };
        let was = Span::from_ns(found.min_ns);
        if found.min_ns.saturating_add(error) < least.as_ns() {
            return Some(format!("a packet came {was} before its time, {least} expected"));
        }
        (found.min_ns.saturating_sub(error) < least.as_ns()).then(|| {
            format!("inconclusive: a packet came {was} before its time ({clock}), {least} expected")
        })
    }
}

/// A packet's presentation time, taken near to its arrival.
fn presentation(packet: &Pdu<'_>, near: Instant<Tai>) -> Option<Instant<Tai>> {
    let header = match packet {
        Pdu::Aaf(aaf) => aaf.header,
        Pdu::Cvf(cvf) => cvf.header,
        _ => return None,
    };
    header.timestamp.map(|time| time.near(near))
}

/// How long a recording waits for packets that were overtaken, where this host's clock is further
/// from the talker's, or may be.
const REORDER_WAIT: Span = Span::from_ms(50);

/// The time by the talker's clock, as its presentation times show it: a packet is due in
/// [`REORDER_WAIT`], give or take as much; one that is not sets the clock.
#[derive(Debug, Default)]
struct TalkerTime {
    ahead: Option<Span>,
}

impl TalkerTime {
    /// The time at which a packet came whose presentation time is known.
    fn follow(&mut self, at: Instant<Tai>, due: Instant<Tai>) -> Instant<Tai> {
        let margin = due - at;
        let as_far =
            |ahead: &Span| (0..=2 * REORDER_WAIT.as_ns()).contains(&(margin - *ahead).as_ns());
        let ahead = self.ahead.filter(as_far).unwrap_or(margin - REORDER_WAIT);
        self.ahead = Some(ahead);
        at.saturating_add(ahead)
    }
}

/// Records a stream, packet by packet, in memory that has a bound.
pub struct Listener<'a> {
    spec: &'a ListenSpec,
    manner: Manner,
    file: MediaFile,
    recording: Option<(StreamId, Recording)>,
    margins: Margins,
    /// Where this host's clock cannot be used for presenting.
    talker_time: TalkerTime,
    others: u64,
    unread: Unread,
    talkers: Talkers,
}

impl<'a> Listener<'a> {
    /// With packets of at most so many bytes. Makes the file.
    ///
    /// **Errors**: the file is there and is not to be written over, or cannot be made.
    pub fn new(spec: &'a ListenSpec, longest: u32) -> Result<Listener<'a>, StreamError> {
        let ListenSpec { late, start_codes, max_access_unit, .. } = *spec;
        Ok(Listener {
            spec,
            manner: Manner { late, start_codes, max_access_unit, longest },
            file: MediaFile::create(&spec.out, spec.force)?,
            recording: None,
            margins: Margins::new(&spec.interface, spec.clock_error),
            talker_time: TalkerTime::default(),
            others: 0,
            unread: Unread::default(),
            talkers: Talkers::default(),
        })
    }

    /// Completes the file; what was heard, as if someone had asked to end.
    ///
    /// **Errors**: the file cannot be written.
    pub fn finish(self) -> Result<Heard, StreamError> {
        let Listener { mut file, mut recording, margins, others, unread, spec, talkers, .. } = self;
        let finished = match &mut recording {
            Some((_, recording)) => recording.finish(&mut file),
            None => Ok(()),
        };
        file.finish()?;
        finished?;
        let counters = recording.as_ref().map(|(_, recording)| recording.counters());
        let wanted = recording.as_ref().map(|(stream, _)| *stream).or(spec.stream);
        Ok(Heard {
            schema: LISTEN_SCHEMA.to_owned(),
            stream: recording.as_ref().map(|(stream, _)| stream.to_string()),
            media: recording.as_ref().map(|(_, recording)| recording.describe()),
            ended: Ended::Asked,
            packets: counters.unwrap_or_default().into(),
            timeliness: margins.told(),
            written: recording.as_ref().map(|(_, recording)| recording.written()),
            dropped_here: 0,
            others,
            not_understood: unread.told(wanted),
            clash: talkers.clash(),
        })
    }

    /// Takes a packet; whether it is one of the stream.
    ///
    /// **Errors**: a format that cannot be recorded, or the file cannot be written.
    pub fn take(&mut self, arrived: Arrived<'_>) -> Result<bool, StreamError> {
        let packet = match Pdu::parse(arrived.payload) {
            Ok(packet) => packet,
            Err(error) => {
                self.unread.failed(arrived.payload, error);
                return Ok(false);
            }
        };
        let wanted = self.recording.as_ref().map(|(stream, _)| *stream).or(self.spec.stream);
        if wanted.is_some_and(|stream| stream != packet.stream()) {
            self.others += 1;
            return Ok(false);
        }
        if self.recording.is_none() {
            let recording = match Recording::of(&packet, self.manner) {
                Ok(Some(recording)) => recording,
                Ok(None) => {
                    self.unread.not_taken(
                        arrived.payload,
                        &packet,
                        "it is neither audio nor video",
                    );
                    return Ok(false);
                }
                Err(StreamError::Setting(error)) => {
                    self.unread.failed(arrived.payload, error);
                    return Ok(false);
                }
                Err(error) => return Err(error),
            };
            self.file.begin(&recording.head()?)?;
            self.recording = Some((packet.stream(), recording));
        }
        let Some((_, recording)) = &mut self.recording else { return Ok(false) };
        if !self.talkers.is_first(arrived.source) {
            return Ok(false);
        }
        let due = presentation(&packet, arrived.at);
        let error = self.margins.clock_of(arrived.source).error_ns;
        let far = |ns| self.spec.late == Late::Keep && ns > REORDER_WAIT.as_ns();
        let mut by_talker = arrived;
        if let Some(due) = due.filter(|_| error.is_none_or(far)) {
            by_talker.at = self.talker_time.follow(arrived.at, due);
        }
        let received = recording.take(by_talker, &mut self.file)?;
        let counts = !matches!(received, None | Some(Received::OtherFormat));
        if !counts {
            self.unread.not_taken(arrived.payload, &packet, "it is not in the recording's format");
        }
        if matches!(received, Some(Received::Kept | Received::Late))
            && let Some(due) = due
        {
            self.margins.record(arrived.source, due - arrived.at);
        }
        Ok(counts)
    }
}

/// Records a stream until a limit is reached or someone asks to end. `tell` is told once when the
/// interface is open.
///
/// **Errors**: no such interface, no privilege, a format that cannot be recorded, or the file
/// cannot be written. What came until then is in the file.
pub fn listen(spec: &ListenSpec, tell: &mut dyn FnMut()) -> Result<Heard, StreamError> {
    let mut inlet = Inlet::open(&spec.interface, spec.to)?;
    let mut listener = Listener::new(spec, longest_payload(&spec.interface)?)?;
    tell();
    let ended = inlet.run(spec.limits, &mut |arrived| listener.take(arrived));
    let finished = listener.finish();
    let ended = ended?;
    let mut heard = finished?;
    heard.ended = ended;
    heard.dropped_here = if ended == Ended::Interface { 0 } else { inlet.drops()? };
    Ok(heard)
}

#[cfg(test)]
mod tests;
