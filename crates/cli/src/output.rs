// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Printing: data to stdout, and a progress line to a terminal's stderr.

use std::error::Error;
use std::fmt;
use std::io::{self, IsTerminal, Write};
use std::os::fd::AsFd;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use serde::{Serialize, Serializer};
use timewire_agent::links::LinkError;
use timewire_base::{Failure, FileError};
use timewire_capture::capture::CaptureError;
use timewire_datapath::DatapathError;
use timewire_datapath::avtp::StreamError;
use timewire_datapath::receive_priority::ReceiveError;
use timewire_datapath::streams::TrafficError;
use timewire_host::HostError;
use timewire_lab::LabError;
use timewire_model::scenario::ScenarioErrors;
use timewire_runner::RunnerError;
use timewire_runner::experiment::Progress;
use timewire_runner::study::StudyError;
use timewire_runner::trace::TraceError;
use timewire_sys::event;

use crate::input;

/// Says a line on stderr, as [`eprintln!`] does; who does not listen any more is no reason to stop.
macro_rules! say {
    ($($words:tt)*) => { $crate::output::talk(format_args!("{}\n", format_args!($($words)*))) };
}

/// Says a text on stderr, without an end of line.
macro_rules! say_text {
    ($($words:tt)*) => { $crate::output::talk(format_args!($($words)*)) };
}

/// Behind [`say`] and [`say_text`].
pub fn talk(words: fmt::Arguments<'_>) {
    // One call, so that lines of several threads do not mix.
    let _ = io::stderr().lock().write_all(words.to_string().as_bytes());
}

/// Prints data to stdout, however slowly it is read.
pub fn print(text: &str) -> anyhow::Result<ExitCode> {
    let mut out = Patient(io::stdout().lock());
    out.write_all(text.as_bytes())?;
    out.flush()?;
    Ok(ExitCode::SUCCESS)
}

/// Prints a value as JSON while it is gone through: nothing of it is kept.
pub fn json<T: Serialize + ?Sized>(value: &T) -> anyhow::Result<ExitCode> {
    json_into(Patient(io::stdout().lock()), value)?;
    Ok(ExitCode::SUCCESS)
}

/// Writes a value as [`json`] does.
pub fn json_into<T: Serialize + ?Sized>(out: impl Write, value: &T) -> io::Result<()> {
    let mut out = io::BufWriter::with_capacity(JSON_BUFFER, out);
    // An error of the writer stays what it was: a reader who has gone is none.
    serde_json::to_writer_pretty(&mut out, value)?;
    out.write_all(b"\n")?;
    out.flush()
}

/// Prints a value as [`json`] does, in one line.
pub fn json_line<T: Serialize + ?Sized>(value: &T) -> anyhow::Result<ExitCode> {
    let mut out = io::BufWriter::with_capacity(JSON_BUFFER, Patient(io::stdout().lock()));
    serde_json::to_writer(&mut out, value).map_err(io::Error::from)?;
    out.write_all(b"\n")?;
    out.flush()?;
    Ok(ExitCode::SUCCESS)
}

/// How much of JSON is written at once. **Units**: bytes.
const JSON_BUFFER: usize = 64 << 10;

/// A list in JSON whose entries are made one at a time.
pub struct Each<F>(pub F);

impl<F, I> Serialize for Each<F>
where
    F: Fn() -> I,
    I: IntoIterator<Item: Serialize>,
{
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq((self.0)())
    }
}

/// Stdout that waits for its reader. Who had it before, as a machine of the laboratory, may have
/// left it so that it does not wait by itself.
struct Patient(io::StdoutLock<'static>);

impl Patient {
    fn wait<T>(
        &mut self,
        mut step: impl FnMut(&mut io::StdoutLock<'static>) -> io::Result<T>,
    ) -> io::Result<T> {
        loop {
            match step(&mut self.0) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    event::wait_writable(self.0.as_fd(), None)?;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                done => return done,
            }
        }
    }
}

impl Write for Patient {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.wait(|out| out.write(bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        self.wait(|out| out.flush())
    }
}

/// An error of a library, of those that are told with a hint and an exit code of their own.
pub fn failure(error: &anyhow::Error) -> Option<&dyn Failure> {
    error.chain().find_map(failure_of)
}

fn failure_of<'a>(cause: &'a (dyn Error + 'static)) -> Option<&'a dyn Failure> {
    fn is<'a, T: Failure + 'static>(cause: &'a (dyn Error + 'static)) -> Option<&'a dyn Failure> {
        cause.downcast_ref::<T>().map(|cause| cause as &dyn Failure)
    }
    let kinds = [
        is::<input::Refused>,
        is::<DatapathError>,
        is::<RunnerError>,
        is::<HostError>,
        is::<LabError>,
        is::<ReceiveError>,
        is::<LinkError>,
        is::<StreamError>,
        is::<StudyError>,
        is::<TraceError>,
        is::<TrafficError>,
    ];
    kinds.into_iter().find_map(|is| is(cause))
}

/// An error in words. Errors of the libraries name their causes themselves; what this program adds
/// to an error of the system stands before it.
pub fn message(error: &anyhow::Error) -> String {
    let mistaken = match (error.downcast_ref::<StudyError>(), error.downcast_ref::<StreamError>()) {
        (
            Some(
                StudyError::Open { file, .. }
                | StudyError::Capture {
                    file,
                    source: CaptureError::NotACapture | CaptureError::Io(_),
                },
            ),
            _,
        ) => input::mistaken(file, "a capture"),
        (_, Some(StreamError::File(FileError::Content { path, why })))
            if why.starts_with("neither WAVE") =>
        {
            input::mistaken(path, "a WAVE or H.264 file")
        }
        _ => None,
    };
    match mistaken {
        Some(mistaken) => mistaken.to_string(),
        None => {
            let causes: Vec<_> = error.chain().collect();
            let told = causes.iter().position(|cause| failure_of(*cause).is_some());
            let told = told.map_or(causes.len(), |at| at + 1);
            causes[..told].iter().map(ToString::to_string).collect::<Vec<_>>().join(": ")
        }
    }
}

/// An error as it is printed. What is wrong within a file are blocks that begin with `error: `
/// themselves.
pub fn error(error: &anyhow::Error) -> String {
    let message = match error.downcast_ref::<ScenarioErrors>() {
        Some(errors) => errors.to_string(),
        None => message(error),
    };
    // Whatever was to be done with it, an interface that is not there is told in the same words.
    let message = match message.find("there is no interface ") {
        Some(at) if message.contains("; there are ") => &message[at..],
        _ => &message,
    };
    if message.starts_with("error: ") { message.to_owned() } else { format!("error: {message}") }
}

/// A mistake in the use of the command. The standard library's words for a value that is none are
/// about its code.
pub fn usage(text: &str) -> String {
    const IN_WORDS: [(&str, &str); 6] = [
        ("invalid digit found in string", "a whole number is wanted"),
        ("cannot parse integer from empty string", "a whole number is wanted"),
        ("number too large to fit in target type", "the number is too large"),
        ("number too small to fit in target type", "the number is too small"),
        ("invalid float literal", "a number is wanted"),
        ("invalid IP address syntax", "an IP address is wanted, such as 239.0.0.1 or ff02::1"),
    ];
    IN_WORDS.iter().fold(text.to_owned(), |text, (code, words)| text.replace(code, words))
}

/// Whether an error is the reader of our stdout having gone, which is nobody's fault.
pub fn is_broken_pipe(error: &anyhow::Error) -> bool {
    let io = match error.downcast_ref::<TrafficError>() {
        Some(TrafficError::System { source, .. }) => Some(source),
        _ => error.downcast_ref::<io::Error>(),
    };
    io.is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
}

/// Whether stdout is a terminal that wants colour.
pub fn wants_colour() -> bool {
    io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

/// The variable that decides whether progress is shown.
pub const PROGRESS: &str = "TIMEWIRE_PROGRESS";

/// One line on stderr that is written over and over; silent when stderr is no terminal.
pub struct ProgressLine {
    shown: Shown,
    started: Instant,
    /// The first case that was told, and when.
    first_case: Option<(usize, Duration)>,
}

/// How progress is shown.
enum Shown {
    Never,
    /// One line, written over and over.
    InPlace,
    /// Lines that stay, each when so much time has passed since the start.
    Lines(Duration),
}

/// How long cases will take that are left, as the others did; `None` before the first is done.
fn time_left(done: usize, left: usize, passed: Duration) -> Option<String> {
    let done = u32::try_from(done).ok().filter(|done| *done > 0)?;
    let seconds = (passed / done * u32::try_from(left).ok()?).as_secs();
    Some(match seconds {
        0..120 => format!("{seconds} s"),
        120..7_200 => format!("{} min", seconds / 60),
        _ => format!("{} h", seconds / 3_600),
    })
}

/// When the first line that stays is written.
const FIRST_LINE: Duration = Duration::from_secs(5);
/// From one to the next.
const NEXT_LINE: Duration = Duration::from_secs(30);

impl Shown {
    /// Whether something is written now, and if so, with what before and behind it.
    fn due(&mut self, passed: Duration) -> Option<(&'static str, &'static str)> {
        match self {
            Shown::Never => None,
            Shown::InPlace => Some(("\r\x1b[K", "")),
            Shown::Lines(due) if passed < *due => None,
            Shown::Lines(due) => {
                *due = passed + NEXT_LINE;
                Some(("", "\n"))
            }
        }
    }
}

impl ProgressLine {
    pub fn new() -> ProgressLine {
        // In a machine of the laboratory the terminal is its owner's.
        let shown = match std::env::var_os(PROGRESS) {
            Some(value) => value == "1",
            None => io::stderr().is_terminal(),
        };
        let shown = if shown { Shown::InPlace } else { Shown::Never };
        ProgressLine { shown, started: Instant::now(), first_case: None }
    }

    /// As [`ProgressLine::new`], of work that can take hours: without a terminal it writes a line
    /// now and then.
    pub fn of_long_work() -> ProgressLine {
        let line = ProgressLine::new();
        match line.shown {
            Shown::Never if std::env::var_os(PROGRESS).is_none() => {
                ProgressLine { shown: Shown::Lines(FIRST_LINE), ..line }
            }
            _ => line,
        }
    }

    pub fn tell(&mut self, progress: &Progress) {
        match progress {
            Progress::Step(step) => self.line(step),
            Progress::Case { number, of, id } => {
                let passed = self.started.elapsed();
                let (first, at) = *self.first_case.get_or_insert((*number, passed));
                let left = time_left(number - first, of + 1 - number, passed - at);
                let left = left.map_or_else(String::new, |it| format!(", about {it} left"));
                self.line(&format!("[{number}/{of}] {id}{left}"));
            }
        }
    }

    /// As [`ProgressLine::line`]; nothing is put together for a line that is not shown.
    pub fn line_of(&mut self, text: impl FnOnce() -> String) {
        let passed = self.started.elapsed();
        if let Some((before, behind)) = self.shown.due(passed) {
            // A lost progress line is no reason to end a run.
            let line = format!("{before}{:>4}s  {}{behind}", passed.as_secs(), text());
            let _ = io::stderr().write_all(line.as_bytes());
        }
    }

    pub fn line(&mut self, text: &str) {
        self.line_of(|| text.to_owned());
    }

    pub fn clear(&mut self) {
        if let Shown::InPlace = self.shown {
            let _ = write!(io::stderr(), "\r\x1b[K");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn t1_the_time_left_is_as_long_as_the_cases_before_took() {
        let left = |done, left, seconds| time_left(done, left, Duration::from_secs(seconds));
        assert_eq!(left(0, 6, 9), None);
        assert_eq!(left(2, 4, 10).as_deref(), Some("20 s"));
        assert_eq!(left(3, 9, 60).as_deref(), Some("3 min"));
        assert_eq!(left(1, 100, 100).as_deref(), Some("2 h"));
    }

    #[test]
    fn t1_lines_that_stay_come_now_and_then() {
        let mut shown = Shown::Lines(FIRST_LINE);
        let written = |second: &u64| shown.due(Duration::from_secs(*second)) == Some(("", "\n"));
        let written: Vec<u64> = (0..100).filter(written).collect();
        assert_eq!(written, [5, 35, 65, 95]);
        assert_eq!(Shown::Never.due(NEXT_LINE), None);
        assert!(Shown::InPlace.due(Duration::ZERO).is_some());
    }
}
