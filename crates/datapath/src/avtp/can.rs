// SPDX-License-Identifier: Apache-2.0 OR MIT
//! CAN frames as lines of text, in and out of control messages: each line is a packet.
//!
//! A line is what `cansend` of can-utils takes: `123#DEADBEEF`, `1F334455#11.22`, `123#R`, and for
//! CAN FD `123##1112233`, with one digit of flags (1 bit rate switch, 2 error state) before the
//! data. Lines of `candump -L` are taken too, without their time and interface.

use std::io::BufRead;

use serde::{Deserialize, Serialize};
use timewire_avtp::pdu::{AcfMessage, Can, CanId, CommonHeader, Reserved, StreamId};
use timewire_avtp::stream::{ControlFormat, ControlListener, ControlTalker};
use timewire_base::wire::MacAddress;
use timewire_base::{IfName, Span};
use timewire_sys::clock;

use super::listen::Counters;
use super::margin::Margins;
use super::sender::Sender;
use super::unread::{Clash, Talkers, Unread};
use super::{Arrived, Ended, Inlet, Limits, NotUnderstood, Outlet, Sent, StreamError, Timeliness};

/// A CAN frame that owns its data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CanLine {
    id: CanId,
    remote: bool,
    flexible: bool,
    flags: u8,
    data: Vec<u8>,
}

/// Bit rate switch, in the digit of flags.
const SWITCH: u8 = 1;
/// Error state, in the digit of flags.
const ERROR: u8 = 2;

impl CanLine {
    /// Reads a line.
    ///
    /// **Errors**: what is wrong with it, in words.
    pub fn parse(line: &str) -> Result<CanLine, String> {
        let word = line.split_whitespace().last().unwrap_or_default();
        let wrong = |what: &str| {
            Err(format!("{what}: a frame is like 123#DEADBEEF, 1F334455#R or 123##1112233"))
        };
        let Some((id, rest)) = word.split_once('#') else {
            return wrong(&format!("`{word}` has no `#`"));
        };
        let number = u32::from_str_radix(id, 16).ok();
        let id = match (id.len(), number) {
            (3, Some(number @ ..=0x7ff)) => {
                CanId::Standard(u16::try_from(number).expect("invariant: 11 bits"))
            }
            (8, Some(number @ ..=0x1fff_ffff)) => CanId::Extended(number),
            _ => return wrong(&format!("`{id}` is no identifier of 3 or 8 digits")),
        };
        let (flexible, remote) = (rest.starts_with('#'), rest == "R");
        let (flags, digits) = match rest.strip_prefix('#') {
            Some(rest) => {
                let digit = rest.chars().next().and_then(|digit| digit.to_digit(4));
                let Some(flags) = digit else {
                    return wrong("no digit of flags, 0 to 3, behind `##`");
                };
                (u8::try_from(flags).expect("invariant: below 4"), &rest[1..])
            }
            None => (0, if remote { "" } else { rest }),
        };
        let digits: Vec<_> = digits.chars().filter(|digit| *digit != '.').collect();
        let pairs = digits.chunks(2).map(|pair| match pair {
            [high, low] => {
                let value = high.to_digit(16).zip(low.to_digit(16))?;
                u8::try_from(value.0 << 4 | value.1).ok()
            }
            _ => None,
        });
        let Some(data) = pairs.collect::<Option<Vec<_>>>() else {
            return wrong(&format!("`{rest}` is no data in pairs of digits"));
        };
        let line = CanLine { id, remote, flexible, flags, data };
        // The rule of lengths is that of the packet.
        let mut room = [0; 96];
        match AcfMessage::CanBrief(line.frame()).write(&mut room) {
            Ok(_) => Ok(line),
            Err(error) => Err(error.to_string()),
        }
    }

    fn frame(&self) -> Can<'_> {
        Can {
            bus: 0,
            id: self.id,
            remote: self.remote,
            flexible: self.flexible,
            rate_switch: self.flags & SWITCH != 0,
            error_passive: self.flags & ERROR != 0,
            data: &self.data,
            reserved: Reserved::NONE,
        }
    }

    /// A frame as a line.
    pub fn write(can: &Can<'_>) -> String {
        let mut line = match can.id {
            CanId::Standard(id) => format!("{id:03X}#"),
            CanId::Extended(id) => format!("{id:08X}#"),
        };
        if can.flexible {
            let flag = |is, bit| if is { bit } else { 0 };
            let flags = flag(can.rate_switch, SWITCH) | flag(can.error_passive, ERROR);
            line += &format!("#{flags}");
        }
        if can.remote {
            line.push('R');
        }
        line.extend(can.data.iter().map(|byte| format!("{byte:02X}")));
        line
    }
}

/// Room for the longest message. **Units**: bytes.
const MESSAGE_BYTES: usize = 80;

/// Sends lines as they come, each as a packet, to their end or until `is_over`, which is asked
/// after each line, and drops that line. A launch time of the outlet has no meaning here: a frame
/// goes at once.
///
/// **Errors**: no such interface, no privilege, the interface failed; a line that is no CAN frame:
/// those before it were sent.
pub fn talk(
    stream: StreamId,
    format: ControlFormat,
    outlet: &Outlet,
    lines: &mut dyn BufRead,
    is_over: &mut dyn FnMut() -> bool,
) -> Result<Sent, StreamError> {
    let mut talker = ControlTalker::new(stream, format, MESSAGE_BYTES)?;
    let mut sender = Sender::open(outlet)?;
    let mut text = String::new();
    let wrong = |number: usize, why: String| StreamError::Invalid(format!("line {number}: {why}"));
    let mut ended_early = false;
    for number in 1.. {
        text.clear();
        let read = lines.read_line(&mut text);
        // The line may be cut short, then.
        ended_early = is_over();
        if ended_early {
            break;
        }
        if read.map_err(|error| wrong(number, error.to_string()))? == 0 {
            break;
        }
        if text.trim().is_empty() {
            continue;
        }
        let line = CanLine::parse(text.trim()).map_err(|why| wrong(number, why))?;
        talker.push(&AcfMessage::CanBrief(line.frame()))?;
        let now = clock::now();
        if let Some(launch) = talker.next(now) {
            sender.put(now, launch);
            sender.flush()?;
        }
    }
    sender.done(ended_early)
}

/// What came of a stream of CAN frames.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Gathered {
    /// Why it ended.
    pub ended: Ended,
    /// Its packets.
    pub packets: Counters,
    /// How they came, by the clocks of talker and listener; of TSCF.
    #[serde(flatten)]
    pub timeliness: Timeliness,
    /// Messages in them that are no CAN frames.
    pub other_messages: u64,
    /// Packets that are not understood, by kind and stream.
    pub not_understood: Vec<NotUnderstood>,
    /// Another talker with the stream's name.
    pub clash: Option<Clash>,
}

/// Takes the CAN frames out of a stream, packet by packet, in memory that has a bound.
#[derive(Debug)]
pub struct Gatherer {
    stream: StreamId,
    listener: ControlListener,
    unread: Unread,
    other_messages: u64,
    talkers: Talkers,
    margins: Margins,
}

impl Gatherer {
    /// One that has heard nothing, on this interface. `clock_error`: how far the talker's clock is
    /// from this host's at most, where that is stated.
    pub fn new(interface: &IfName, clock_error: Option<Span>, stream: StreamId) -> Gatherer {
        Gatherer {
            stream,
            listener: ControlListener::new(stream),
            unread: Unread::default(),
            other_messages: 0,
            talkers: Talkers::default(),
            margins: Margins::new(interface, clock_error),
        }
    }

    /// Takes a packet and hands its CAN frames on as lines; whether it is one of the stream.
    ///
    /// **Errors**: those of `each`.
    pub fn take(
        &mut self,
        Arrived { at, source, payload }: Arrived<'_>,
        each: &mut dyn FnMut(&str) -> std::io::Result<()>,
    ) -> Result<bool, StreamError> {
        let is_of_it = CommonHeader::stream_of(payload) == Some(self.stream);
        if is_of_it && !self.talkers.is_first(source) {
            return Ok(false);
        }
        let before = self.listener.counters().received;
        match self.listener.receive(at, payload) {
            Ok(Some(control)) => {
                if let Some(due) = control.at {
                    self.margins.record(source, due - at);
                }
                for message in control.messages {
                    let can = match message {
                        Ok(AcfMessage::Can(can, _) | AcfMessage::CanBrief(can)) => can,
                        Ok(_) => {
                            self.other_messages += 1;
                            continue;
                        }
                        Err(error) => {
                            self.unread.failed(payload, error);
                            continue;
                        }
                    };
                    each(&CanLine::write(&can)).map_err(|source| StreamError::Interface {
                        what: "writing frames".to_owned(),
                        source,
                    })?;
                }
            }
            Ok(None) => {}
            Err(error) => self.unread.failed(payload, error),
        }
        Ok(self.listener.counters().received > before)
    }

    /// What came, and why it ended.
    pub fn finish(self, ended: Ended) -> Gathered {
        Gathered {
            ended,
            packets: self.listener.counters().into(),
            timeliness: self.margins.told(),
            other_messages: self.other_messages,
            not_understood: self.unread.told(Some(self.stream)),
            clash: self.talkers.clash(),
        }
    }
}

/// Hands every CAN frame of a stream on as a line, until a limit is reached or someone asks to end.
/// `tell` is told once when the interface is open.
///
/// **Errors**: no such interface, no privilege; those of `each` end it.
pub fn listen(
    (interface, to): (&IfName, Option<MacAddress>),
    clock_error: Option<Span>,
    stream: StreamId,
    limits: Limits,
    tell: &mut dyn FnMut(),
    each: &mut dyn FnMut(&str) -> std::io::Result<()>,
) -> Result<Gathered, StreamError> {
    let mut inlet = Inlet::open(interface, to)?;
    let mut gatherer = Gatherer::new(interface, clock_error, stream);
    tell();
    let ended = inlet.run(limits, &mut |arrived| gatherer.take(arrived, each))?;
    Ok(gatherer.finish(ended))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn t0_lines_come_back_as_they_were() {
        for line in [
            "123#DEADBEEF",
            "7FF#",
            "1F334455#1122334455667788",
            "00000001#R",
            "123#R",
            "123##1112233",
            "5A1##3000102030405060708090A0B",
        ] {
            let parsed = CanLine::parse(line).unwrap();
            assert_eq!(CanLine::write(&parsed.frame()), line);
        }
        let logged = CanLine::parse("(1436509052.249713) can0 044#2A.36.6C").unwrap();
        assert_eq!(CanLine::write(&logged.frame()), "044#2A366C");
        for (line, why) in [
            ("123", "`123` has no `#`"),
            ("12#00", "`12` is no identifier of 3 or 8 digits"),
            ("800#00", "`800` is no identifier"),
            ("FFFFFFFF#00", "`FFFFFFFF` is no identifier"),
            ("123#0", "`0` is no data in pairs"),
            ("123#0G", "`0G` is no data in pairs"),
            ("123##", "no digit of flags"),
            ("123##4", "no digit of flags"),
            ("123#001122334455667788", "CAN data of 9 cannot be"),
            ("", "`` has no `#`"),
        ] {
            let told = CanLine::parse(line).unwrap_err();
            assert!(told.starts_with(why), "{line}: {told}");
        }
    }
}
