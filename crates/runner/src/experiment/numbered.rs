// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Numbers for the messages of users' programs. Monitors and observers have timestamped each at
//! several places and know it by its content; here it gets one number in all of these files.
//!
//! Messages with the same content cannot be told apart: what arrives is taken for the latest of
//! them that had been sent.

use std::collections::HashMap;
use std::fs;
use std::path::Path;

use timewire_base::Span;
use timewire_capture::record::{Record, RecordFile, TimestampPoint};
use timewire_capture::summary::{Fact, FactLevel};
use timewire_model::scenario::Case;
use timewire_tsn::backend::TransmitBackend;

use super::participants::{Participants, Role};
use crate::RunnerError;
use crate::program::Program;
use crate::simulation::RecordWriter;
use timewire_base::FileError;
use timewire_datapath::monitor::End;

/// Numbers the messages in the record files of a case; what the result stands on. `apart` is how
/// far the clocks of two stations may be apart.
///
/// **Errors**: a record file cannot be read or written.
pub(super) fn number(
    participants: &Participants,
    case: &Case,
    directory: &Path,
    apart: Span,
) -> Result<Vec<Fact>, RunnerError> {
    let mut facts = Vec::new();
    let backend = TransmitBackend::of_case(case.backend).filter(|it| it.is_kernels());
    let talkers = participants.roles.iter().filter_map(|role| match &role.file.program {
        Program::Monitor { task, end: End::Talker, records, .. } => Some((role, task, records)),
        _ => None,
    });
    for (role, task, records) in talkers {
        let stream = records.header.flows.first().map_or("", String::as_str);
        let mut sent = Records::read(directory, role)?;
        let mut messages = Messages::default();
        for (number, record) in (0..).zip(&mut sent.file.records) {
            messages.sent(record, number);
        }
        let (count, longest) = (sent.file.records.len(), sent.longest());
        sent.write()?;
        let listener = participants.roles.iter().find(|other| match &other.file.program {
            Program::Monitor { task: other, end: End::Listener, .. } => other.port == task.port,
            _ => false,
        });
        let observers = participants.roles.iter().filter_map(|other| match &other.file.program {
            Program::Observer { ports, .. } => {
                let index = ports.iter().position(|it| it.port == task.port)?;
                Some((other, u16::try_from(2 * index).ok()?))
            }
            _ => None,
        });
        for (other, flow) in observers.chain(listener.map(|listener| (listener, 0))) {
            let mut seen = Records::read(directory, other)?;
            let own = seen.file.records.iter_mut().filter(|record| record.flow == flow);
            messages.seen(own, apart);
            seen.write()?;
        }
        facts.extend(longer_than(task.message, longest, stream));
        facts.extend(backend.map(|backend| {
            let why = "are timestamped behind the queueing discipline: waits in it do not count";
            fact(stream, format!("messages under {backend} {why}"))
        }));
        if count == 0 {
            let why = "no message of one frame left its talker for its listener's port";
            facts.push(fact(stream, why.to_owned()));
        }
    }
    Ok(facts)
}

/// The messages of one talker.
#[derive(Default)]
struct Messages {
    /// By content: when each was sent, and its number, the latest last.
    sent: HashMap<u32, Vec<(i64, u32)>>,
    /// Of the next message of which nobody knows when it was sent.
    next: u32,
    /// When the first and the last were sent.
    first: Option<i64>,
    last: Option<i64>,
}

impl Messages {
    fn sent(&mut self, record: &mut Record, number: u32) {
        self.sent.entry(record.seq).or_default().push((record.at_ns, number));
        record.seq = number;
        self.next = number.saturating_add(1);
        self.first.get_or_insert(record.at_ns);
        self.last = Some(record.at_ns);
    }

    /// Whether it was sent while the talker's end was looked at: it may have begun later, and ended
    /// before.
    fn covers(&self, record: &Record, apart: Span) -> bool {
        let (at, apart) = (record.at_ns, apart.as_ns());
        self.first.is_some_and(|first| at >= first.saturating_sub(apart))
            && self.last.is_some_and(|last| at <= last.saturating_add(apart))
    }

    /// Numbers what was seen at one place, in the order of time.
    fn seen<'a>(&mut self, records: impl Iterator<Item = &'a mut Record>, apart: Span) {
        let mut records: Vec<&mut Record> = records.collect();
        records.sort_by_key(|record| record.at_ns);
        let mut left = self.sent.clone();
        for record in records {
            let latest = record.at_ns.saturating_add(apart.as_ns());
            let of_content = left.get_mut(&record.seq);
            let found = of_content.and_then(|sent| {
                let before = sent.partition_point(|(at, _)| *at <= latest);
                let index = before.checked_sub(1)?;
                Some(sent.remove(index).1)
            });
            match found {
                Some(number) => record.seq = number,
                None if self.covers(record, apart) => {
                    record.seq = self.next;
                    self.next = self.next.saturating_add(1);
                }
                None => (record.seq, record.flow) = (0, Record::NO_FLOW),
            }
        }
    }
}

fn fact(stream: &str, value: String) -> Fact {
    let (area, name) = (format!("stream {stream}"), "program".to_owned());
    Fact { area, name, value, level: FactLevel::Degraded }
}

/// Schedule and simulation go by what the file says.
fn longer_than(message: u32, longest: u32, stream: &str) -> Option<Fact> {
    let declared = message + HEADERS;
    (longest > declared.max(SHORTEST)).then(|| {
        let sent = longest - HEADERS;
        let why = format!("it sends messages of {sent} B, more than the `size` of {message} B");
        fact(stream, why)
    })
}

/// Headers of Ethernet, IPv4 and UDP. **Units**: bytes.
const HEADERS: u32 = 42;
/// The shortest frame, without its check sequence. **Units**: bytes.
const SHORTEST: u32 = 60;

/// The records of one file.
struct Records {
    path: std::path::PathBuf,
    file: RecordFile,
}

impl Records {
    fn read(directory: &Path, role: &Role) -> Result<Records, RunnerError> {
        let path = directory.join(format!("{}.twr", role.name));
        let bytes = fs::read(&path).map_err(RunnerError::file("read", &path))?;
        let file = RecordFile::decode(&bytes).map_err(|why| FileError::content(&path, why))?;
        Ok(Records { path, file })
    }

    fn longest(&self) -> u32 {
        let sent = self.file.records.iter().filter(|it| it.point == TimestampPoint::Send);
        sent.map(|record| u32::from(record.frame_len)).max().unwrap_or(0)
    }

    fn write(self) -> Result<(), RunnerError> {
        let Records { path, file } = self;
        let mut writer = RecordWriter::create(path, &file.header)?;
        file.records.iter().try_for_each(|record| writer.push(record))?;
        writer.finish_with_lost(file.lost)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(at_ns: i64, content: u32) -> Record {
        Record {
            at_ns,
            seq: content,
            frame_len: 60,
            point: TimestampPoint::Send,
            station: 0,
            flow: 0,
            flags: 0,
            clock: 0,
        }
    }

    /// The numbers of what arrives, by when it was sent and what with.
    fn numbers(sent: &[(i64, u32)], seen: &[(i64, u32)], apart: i64) -> Vec<u32> {
        let mut messages = Messages::default();
        for (number, (at, content)) in (0..).zip(sent) {
            messages.sent(&mut record(*at, *content), number);
        }
        let mut records: Vec<Record> = seen.iter().map(|(at, it)| record(*at, *it)).collect();
        messages.seen(records.iter_mut(), Span::from_ns(apart));
        records.iter().map(|record| record.seq).collect()
    }

    #[test]
    fn t0_messages_of_different_content_are_known_in_any_order() {
        let sent = [(10, 7), (20, 8), (30, 9)];
        assert_eq!(numbers(&sent, &[(31, 9), (32, 7), (33, 8)], 0), [2, 0, 1]);
        // One is lost, and one was never sent.
        assert_eq!(numbers(&sent, &[(31, 9), (25, 5), (33, 8)], 0), [2, 3, 1]);
    }

    #[test]
    fn t0_of_the_same_content_it_is_the_latest_that_was_sent() {
        let sent = [(10, 7), (20, 7), (30, 7), (40, 7)];
        assert_eq!(numbers(&sent, &[(11, 7), (21, 7), (31, 7), (41, 7)], 0), [0, 1, 2, 3]);
        // The second is lost: the others keep their numbers.
        assert_eq!(numbers(&sent, &[(11, 7), (31, 7), (41, 7)], 0), [0, 2, 3]);
        // A listener's clock that is behind.
        assert_eq!(numbers(&sent, &[(8, 7), (18, 7)], 3), [0, 1]);
    }

    #[test]
    fn t0_what_was_sent_while_nobody_looked_is_of_no_stream() {
        let mut messages = Messages::default();
        for (number, at) in (0..).zip([10, 20]) {
            messages.sent(&mut record(at, 5), number);
        }
        let mut seen = [record(9, 6), record(15, 6), record(21, 6)];
        messages.seen(seen.iter_mut(), Span::ZERO);
        let found = seen.map(|record| (record.seq, record.flow));
        assert_eq!(found, [(0, Record::NO_FLOW), (2, 0), (0, Record::NO_FLOW)]);
    }
}
