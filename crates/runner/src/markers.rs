// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Marks of user programs as events and notes of a capture.

use std::io;
use std::path::Path;

use timewire_base::Mono;
use timewire_capture::capture::{HookCount, Item, Note};
use timewire_capture::event::{Event, Flags, Hook};
use timewire_sys::clock;
use timewire_sys::marker::{Mark, News, Reader, Totals, Users};

/// Reads the marks of all programs, until it is dropped.
#[derive(Debug)]
pub struct Marks {
    reader: Reader,
}

impl Marks {
    /// Begins to listen where programs have their rings ([`Reader::open`]).
    ///
    /// **Errors**: the own directory cannot be had.
    pub fn open(users: Users) -> io::Result<Marks> {
        Ok(Marks { reader: Reader::open(users)? })
    }

    /// The same in one directory only.
    ///
    /// **Errors**: it cannot be had, or could be meddled with by others.
    pub fn open_at(directory: &Path, users: Users) -> io::Result<Marks> {
        Ok(Marks { reader: Reader::open_at(directory, users)? })
    }

    /// Takes the marks that there are, a note before what it explains; returns how many. Of
    /// different threads they are in no order. To be called every few milliseconds.
    pub fn drain(&mut self, on: &mut impl FnMut(Item)) -> u64 {
        self.reader.drain(&mut |news| on(item(news)))
    }

    /// Notes the counters and histograms that have changed; once a second is usual.
    pub fn values(&mut self, on: &mut impl FnMut(Item)) {
        self.reader.values(&mut |news| on(item(news)));
    }

    /// What became of the marks until now, for [`Note::Losses`].
    pub fn count(&self) -> HookCount {
        count(self.reader.totals())
    }

    /// Stops listening; takes what is left, and what counters have come to.
    pub fn finish(self, on: &mut impl FnMut(Item)) -> HookCount {
        count(self.reader.finish(&mut |news| on(item(news))))
    }
}

fn count(totals: Totals) -> HookCount {
    let lost = totals.lost.saturating_add(totals.unsound);
    HookCount { seen: totals.told.saturating_add(lost), written: totals.told, lost }
}

/// What is learned of marks, as it stands in a capture.
pub fn item(news: News<'_>) -> Item {
    let at_ns = || u64::try_from(clock::now::<Mono>().as_ns()).unwrap_or(0);
    Item::Note(match news {
        News::Mark(mark) => return Item::Event(event(mark)),
        News::Thread { thread, name } => Note::Thread { thread, name: name.to_owned() },
        News::Point { point, process, name } => {
            Note::Point { point, process, name: name.to_owned() }
        }
        News::Counter { process, thread, name, value } => {
            Note::Counter { at_ns: at_ns(), process, thread, name: name.to_owned(), value }
        }
        News::Histogram { process, thread, name, buckets, sum } => {
            let used = buckets.iter().rposition(|count| *count > 0).map_or(0, |last| last + 1);
            let buckets = buckets[..used].to_vec();
            Note::Histogram { at_ns: at_ns(), process, thread, name: name.to_owned(), buckets, sum }
        }
    })
}

fn event(mark: Mark) -> Event {
    let flags = if mark.tag == 0 { Flags::default() } else { Flags::TAGGED };
    Event {
        at_ns: mark.at_ns,
        object: mark.point,
        tag: mark.tag,
        aux: mark.value,
        interface: 0,
        thread: mark.thread,
        cpu: mark.cpu,
        flags,
        length: 0,
        hook: Hook::Marker,
        station: Event::NO_STATION,
    }
}

#[cfg(test)]
mod tests {
    use timewire_sys::marker::Markers;

    use super::*;

    #[test]
    fn t3_marks_become_events_with_their_notes() {
        let name = format!("timewire-markers-of-ctl-{}", std::process::id());
        let directory = std::env::temp_dir().join(name);
        let mut marks = Marks::open_at(&directory, Users::Own).unwrap();
        let ring = Markers::open_at(&directory, 64).unwrap();
        let point = ring.point("begin").unwrap();
        for value in 0..70 {
            ring.mark(point, value, value + 1);
        }
        ring.observe(ring.histogram("wait").unwrap(), 5);
        ring.count(ring.counter("rounds").unwrap(), 3);
        let mut items = Vec::new();
        while items.is_empty() {
            marks.drain(&mut |item| items.push(item));
        }
        marks.values(&mut |item| items.push(item));
        assert_eq!(marks.count(), HookCount { seen: 70, written: 64, lost: 6 });

        let process = std::process::id();
        let point = Note::Point { point: 1, process, name: "begin".to_owned() };
        let at = items.iter().position(|item| *item == Item::Note(point.clone())).unwrap();
        let events = items.iter().filter_map(|item| match item {
            Item::Event(event) => Some(*event),
            Item::Note(_) => None,
        });
        let events: Vec<Event> = events.collect();
        let first = items.iter().position(|item| matches!(item, Item::Event(_))).unwrap();
        assert!(at < first);
        assert!(events.iter().all(|it| it.hook == Hook::Marker && it.object == 1));
        assert_eq!(events.len(), 64);
        assert_eq!((events[0].flags, events[1].flags), (Flags::default(), Flags::TAGGED));
        assert_eq!((events[63].tag, events[63].aux), (63, 64));
        let is_counter = |item: &Item| match item {
            Item::Note(Note::Counter { name, value, .. }) => name == "rounds" && *value == 3,
            _ => false,
        };
        assert!(items.iter().any(is_counter), "{items:?}");
        let is_histogram = |item: &Item| {
            matches!(item, Item::Note(Note::Histogram { buckets, sum: 5, .. })
                if *buckets == [0, 0, 0, 1])
        };
        assert!(items.iter().any(is_histogram), "{items:?}");
        drop(ring);
        assert_eq!(marks.finish(&mut |_| {}).written, 64);
        assert_eq!(std::fs::remove_dir_all(&directory).map_err(|error| error.kind()), Ok(()));
    }
}
