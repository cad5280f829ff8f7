// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The record of the clocks through a run or a watch: a sample every so often, each with the error
//! of its comparison.

use std::fs::{self, File};
use std::io::{self, Seek, SeekFrom, Write};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use timewire_base::{Instant, Mono, Span};
use timewire_capture::sync::{
    NicSample, PtpSample, SYNC_SCHEMA, SyncEvent, SyncHeader, SyncLine, SyncSample,
};
use timewire_sys::clock;
use timewire_sys::phc::{self, CrossTimestamp, NicClock};
use timewire_sys::steering::{self, Steered};

use crate::DatapathError;
use crate::clock::{Asked, Look, Looked, ask_any};

/// How often the clocks are looked at through a run.
const INTERVAL: Span = Span::from_ms(500);
/// A host with more NICs is looked at in part.
const MAX_NICS: u32 = 16;

/// The file, open for writing.
#[derive(Debug)]
pub struct SyncFile {
    file: File,
    /// The first line that could not be written; none is tried after it.
    failed: Option<io::Error>,
}

impl SyncFile {
    /// Makes it, with its header.
    pub fn create(path: &Path, stations: &[String]) -> Result<SyncFile, DatapathError> {
        let file = File::create(path).map_err(DatapathError::file("create", path))?;
        let mut this = SyncFile { file, failed: None };
        this.line(&header(stations));
        Ok(this)
    }

    /// The same; a record of these stations that is there goes on, if the kernel is the same.
    pub fn resume(path: &Path, stations: &[String]) -> Result<SyncFile, DatapathError> {
        let text = fs::read_to_string(path).unwrap_or_default();
        if !text.starts_with(&header(stations).to_text()) {
            return SyncFile::create(path, stations);
        }
        let failed = DatapathError::file("write", path);
        let mut file = File::options().write(true).open(path).map_err(&failed)?;
        // A line that was cut short by the end of its writer does not count.
        let whole = text.rfind('\n').map_or(0, |end| end + 1);
        let whole = u64::try_from(whole).expect("invariant: a text in memory is shorter");
        file.set_len(whole).map_err(&failed)?;
        file.seek(SeekFrom::Start(whole)).map_err(&failed)?;
        Ok(SyncFile { file, failed: None })
    }

    /// Adds a sample.
    pub fn sample(&mut self, sample: SyncSample) {
        self.line(&SyncLine::Sample(sample));
    }

    /// Adds an event.
    pub fn event(&mut self, event: SyncEvent) {
        self.line(&SyncLine::Event(event));
    }

    fn line(&mut self, line: &SyncLine) {
        if self.failed.is_none() {
            self.failed = self.file.write_all(line.to_text().as_bytes()).err();
        }
    }
}

fn header(stations: &[String]) -> SyncLine {
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    SyncLine::Sync(SyncHeader {
        schema: SYNC_SCHEMA.to_owned(),
        kernel: boot.trim().to_owned(),
        stations: stations.to_vec(),
    })
}

/// A look at all clocks of this kernel.
///
/// **Errors**: the kernel does not let its clocks be read.
pub fn sample(
    nic: Option<&NicClock>,
    number: Option<u32>,
    look: Option<&Look>,
) -> io::Result<SyncSample> {
    let clocks = phc::kernel_clocks()?;
    let kernel = steering::steering(Steered::System)?;
    let nics = nic.zip(number).and_then(|(nic, number)| nic_sample(nic, number));
    Ok(SyncSample {
        raw_ns: clocks.raw_ns,
        realtime_ahead_ns: clocks.realtime.ahead.as_ns(),
        realtime_error_ns: clocks.realtime.error.as_ns(),
        tai_offset_s: kernel.tai_offset_s,
        synchronised: kernel.synchronised,
        frequency_ppb: crate::clock::ppb(kernel.frequency),
        max_error_ns: kernel.max_error.as_ns(),
        estimated_error_ns: kernel.estimated_error.as_ns(),
        nics: nics.into_iter().collect(),
        ptp: look.and_then(ptp_sample),
    })
}

fn nic_sample(nic: &NicClock, phc: u32) -> Option<NicSample> {
    let (relation, by) = nic.ahead_of_realtime().ok()?;
    let by = match by {
        CrossTimestamp::Precise => "precise",
        CrossTimestamp::Extended => "extended",
        CrossTimestamp::Read => "read",
    };
    let (ahead_ns, error_ns) = (relation.ahead.as_ns(), relation.error.as_ns());
    Some(NicSample { phc, ahead_ns, error_ns, by: by.to_owned() })
}

fn ptp_sample(look: &Look) -> Option<PtpSample> {
    let followed = look.ptp.as_ref().ok()?;
    let offset = look.offset().filter(|_| followed.follows() || followed.gives());
    Some(PtpSample {
        offset_ns: offset.map(|offset| offset.ahead.as_ns()),
        error_ns: offset.map_or(0, |offset| offset.error.as_ns()),
        giver: followed.giver.to_string(),
        ports: followed.ports.iter().map(ToString::to_string).collect(),
    })
}

/// The record of a run. Nothing that fails here ends the run.
#[derive(Debug)]
pub struct RunSync {
    file: SyncFile,
    next: Instant<Mono>,
    nics: Vec<(u32, NicClock)>,
    asked: Option<Asked>,
}

impl RunSync {
    /// Begins the record with a first sample, or goes on with the one that is there. A `ptp4l` of
    /// the host is asked too, if one is found.
    pub fn begin(path: &Path, stations: &[String]) -> Result<RunSync, DatapathError> {
        let file = SyncFile::resume(path, stations)?;
        let nics = (0..MAX_NICS)
            .filter(|number| Path::new(&format!("/dev/ptp{number}")).exists())
            .filter_map(|number| Some((number, NicClock::open(number).ok()?)))
            .collect();
        let mut sync = RunSync { file, next: clock::now(), nics, asked: ask_any() };
        sync.look();
        Ok(sync)
    }

    /// Takes a sample when one is due.
    pub fn look(&mut self) {
        let now = clock::now::<Mono>();
        if now < self.next {
            return;
        }
        self.next = now + INTERVAL;
        self.sample();
    }

    /// Takes the last sample.
    pub fn end(&mut self) {
        self.sample();
    }

    fn sample(&mut self) {
        let look = self.asked.as_mut().map(|asked| looked(asked).look());
        if look.as_ref().is_some_and(|look| look.as_ref().is_ok_and(|look| look.ptp.is_err())) {
            // It has ended, and each question would wait for it.
            self.asked = None;
        }
        let Ok(mut sample) = sample(None, None, look.and_then(Result::ok).as_ref()) else { return };
        let nics = self.nics.iter();
        sample.nics = nics.filter_map(|(number, nic)| nic_sample(nic, *number)).collect();
        self.file.sample(sample);
    }
}

fn looked(asked: &mut Asked) -> Looked<'_> {
    Looked { client: &mut asked.client, nic: asked.nic.as_ref() }
}

/// How far the host's clock is from the one that gives the time, as a `ptp4l` says that is found
/// here ([`crate::clock::ptp4l_instances`]); `None` when there is none now.
///
/// A thread asks it every half second, so that nobody waits for the answer: what the function gives
/// is the last one, with the error of the comparison added, and nothing when that is old.
pub fn ptp_offset() -> Option<impl FnMut() -> Option<i64> + Send + use<>> {
    /// Answers that are older are of no use.
    const FRESH: Span = Span::from_secs(3);
    let mut asked = ask_any()?;
    // The first answer is waited for, so that the first sample has it.
    let first = offset_now(&mut asked)?;
    let last = Arc::new(Mutex::new(first));
    let writer = Arc::downgrade(&last);
    let ask = move || {
        while let Some(last) = writer.upgrade() {
            // When it has ended, each question would wait for it.
            let Some(now) = offset_now(&mut asked) else { return };
            *last.lock().unwrap_or_else(PoisonError::into_inner) = now;
            drop(last);
            clock::sleep_until(clock::now::<Mono>() + INTERVAL);
        }
    };
    std::thread::Builder::new().name("tw-ptp-offset".to_owned()).spawn(ask).ok()?;
    Some(move || {
        let last = *last.lock().unwrap_or_else(PoisonError::into_inner);
        last.filter(|(at, _)| clock::now::<Mono>() - *at <= FRESH).map(|(_, offset)| offset)
    })
}

/// What a `ptp4l` says now, and when that is; `None` when it says nothing any more.
fn offset_now(asked: &mut Asked) -> Option<Option<(Instant<Mono>, i64)>> {
    let look = looked(asked).look().ok().filter(|look| look.ptp.is_ok())?;
    let with_error = |sample: PtpSample| {
        let offset = sample.offset_ns?;
        let away = offset.unsigned_abs().saturating_add(sample.error_ns.unsigned_abs());
        let sign = if offset < 0 { -1 } else { 1 };
        Some((clock::now(), sign * i64::try_from(away).ok()?))
    };
    Some(ptp_sample(&look).and_then(with_error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn t0_a_record_goes_on_behind_its_last_whole_line() {
        let path = std::env::temp_dir().join(format!("timewire-sync-{}", std::process::id()));
        let stations = ["alpha".to_owned()];
        let mut file = SyncFile::resume(&path, &stations).unwrap();
        let event = |what: &str| SyncEvent { raw_ns: 1, what: what.to_owned(), why: String::new() };
        file.event(event("one"));
        file.file.write_all(b"{\"sam").unwrap();
        drop(file);
        let mut file = SyncFile::resume(&path, &stations).unwrap();
        file.event(event("two"));
        drop(file);
        let lines = SyncLine::read(&fs::read_to_string(&path).unwrap()).unwrap();
        let events = lines.iter().filter_map(|line| match line {
            SyncLine::Event(event) => Some(event.what.as_str()),
            _ => None,
        });
        assert_eq!(events.collect::<Vec<_>>(), ["one", "two"]);
        // Those of other stations are another record.
        drop(SyncFile::resume(&path, &["beta".to_owned()]).unwrap());
        let lines = SyncLine::read(&fs::read_to_string(&path).unwrap()).unwrap();
        assert_eq!(lines.len(), 1);
        fs::remove_file(&path).unwrap();
    }
}
