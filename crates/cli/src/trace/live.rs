// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `trace record --live`: the view of a capture that is being taken, on a terminal, as lines or as
//! JSON.

use std::io::{self, IsTerminal, Read};
use std::os::fd::AsFd;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use serde_json::{Value as Json, json};
use timewire_base::Span;
use timewire_capture::capture::{CaptureHeader, HookCount};
use timewire_capture::event::Event;
use timewire_capture::packet_path::{Observer, PacketPath, Point};
use timewire_report::live::{LiveInput, LiveMeter, LiveRoom, LiveSnapshot, line, view, whole};
use timewire_runner::trace::live::{Live, Moment, Viewer};
use timewire_stats::HistogramSummary;
use timewire_sys::terminal;

use crate::output;

/// How often it is shown.
const EVERY: Span = Span::from_secs(1);

/// The longest piece of what the command says.
const PIECE_BYTES: usize = 8_192;
/// So long a command that has ended is silent before nothing more is expected from its own.
const SILENT: Duration = Duration::from_millis(100);
/// So long they are listened to at most.
const HEARD_OUT: Duration = Duration::from_secs(1);

/// How it is shown.
#[derive(Clone, Debug)]
pub struct Show {
    json: bool,
    /// The view that stands on a terminal and is drawn again and again; `None` elsewhere.
    drawn: Option<Arc<Mutex<String>>>,
    is_gone: Arc<AtomicBool>,
    /// Told when the command says something on the same terminal.
    heard: Arc<Mutex<Option<Receiver<()>>>>,
}

impl Show {
    pub fn new(json: bool) -> Show {
        let drawn = (!json && io::stdout().is_terminal()).then(Arc::default);
        Show { json, drawn, is_gone: Arc::default(), heard: Arc::default() }
    }

    /// Lets what a command says stand above a view that is drawn, since it would be drawn over.
    pub fn adopt(&self, command: &mut Command) -> io::Result<()> {
        let Some(drawn) = self.drawn.clone() else { return Ok(()) };
        let (mut read, write) = io::pipe()?;
        command.stdout(write.try_clone()?).stderr(write);
        let (to, from) = sync_channel(1);
        *own(&self.heard) = Some(from);
        let listen = move || {
            let (mut piece, mut held) = (vec![0; PIECE_BYTES], Vec::new());
            loop {
                let length = read.read(&mut piece).unwrap_or(0);
                held.extend_from_slice(&piece[..length]);
                // Lines as long as they are no longer than a piece.
                let whole = match held.iter().rposition(|byte| *byte == b'\n') {
                    Some(end) if length > 0 => end + 1,
                    None if length > 0 && held.len() < PIECE_BYTES => 0,
                    _ => held.len(),
                };
                let said: Vec<u8> = held.drain(..whole).collect();
                if !said.is_empty() {
                    // When nobody looks any more, the command goes on all the same.
                    let _ = draw(&drawn, &String::from_utf8_lossy(&said), None);
                    let _ = to.try_send(());
                }
                if length == 0 {
                    return;
                }
            }
        };
        std::thread::Builder::new().name("tw-said".to_owned()).spawn(listen).map(drop)
    }

    /// Whether nobody looks any more.
    pub fn is_gone(&self) -> bool {
        self.is_gone.load(Ordering::Relaxed)
    }

    /// Begins to show a capture.
    pub fn start(&self, header: &CaptureHeader) -> io::Result<Live> {
        let screen = Screen { show: self.clone(), meter: LiveMeter::default() };
        Live::start(header, EVERY, screen)
    }
}

/// Ends the view; that nobody looks any more is no error.
pub fn end(live: Option<Live>) -> anyhow::Result<()> {
    match live.map_or(Ok(()), Live::end) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error.into()),
        _ => Ok(()),
    }
}

/// Where it is shown.
struct Screen {
    show: Show,
    meter: LiveMeter,
}

impl Observer for Screen {
    fn event(&mut self, capture: usize, point: &Point, event: &Event) {
        self.meter.event(capture, point, event);
    }

    fn packet_path(&mut self, packet_path: &PacketPath) {
        self.meter.packet_path(packet_path);
    }
}

impl Viewer for Screen {
    fn begin(&mut self, header: &CaptureHeader) {
        self.meter.header(0, header);
    }

    fn moment(&mut self, moment: &Moment<'_>) -> io::Result<()> {
        let now = self.meter.snapshot(&LiveInput {
            elapsed: moment.elapsed,
            hooks: moment.hooks,
            not_shown: moment.not_shown,
            slowest: moment.slowest,
            of_stations: &moment.of_stations,
        });
        let printed = match &self.show.drawn {
            _ if self.show.json => print(&format!("{}\n", object(&now))),
            None if moment.is_last => print(&whole(&now)),
            None => print(&line(&now)),
            Some(drawn) if moment.is_last => {
                self.show.hear_out();
                draw(drawn, "", Some(String::new())).and_then(|()| print(&whole(&now)))
            }
            Some(drawn) => draw(drawn, "", Some(fitted(&now))),
        };
        printed.inspect_err(|_| self.show.is_gone.store(true, Ordering::Relaxed))
    }
}

impl Show {
    /// Waits for what the command has said until its end.
    fn hear_out(&self) {
        let Some(heard) = own(&self.heard).take() else { return };
        let until = Instant::now() + HEARD_OUT;
        while Instant::now() < until && heard.recv_timeout(SILENT).is_ok() {}
    }
}

/// The view, as large as the terminal is now.
fn fitted(now: &LiveSnapshot) -> String {
    let (columns, lines) = terminal::size(io::stdout().as_fd()).unwrap_or((80, 24));
    // The cursor stands in the line below. One more is left, since terminals that keep what is
    // erased from their first line on would keep every view.
    let lines = usize::from(lines.saturating_sub(2));
    view(now, LiveRoom { columns: columns.into(), lines: Some(lines) })
}

/// Puts text above the view, and another view in its place when there is one.
fn draw(drawn: &Mutex<String>, above: &str, next: Option<String>) -> io::Result<()> {
    let mut drawn = own(drawn);
    let back = match drawn.lines().count() {
        0 => String::new(),
        lines => format!("\x1b[{lines}A\r\x1b[J"),
    };
    let end = if above.is_empty() || above.ends_with('\n') { "" } else { "\n" };
    if let Some(next) = next {
        *drawn = next;
    }
    print(&format!("{back}{above}{end}{drawn}"))
}

/// What it holds is whole after each change, also when another thread has panicked.
fn own<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn print(text: &str) -> io::Result<()> {
    let printed = output::print(text).map(drop);
    printed.map_err(|error| error.downcast::<io::Error>().unwrap_or_else(io::Error::other))
}

fn object(now: &LiveSnapshot) -> Json {
    let hooks = now.hooks.iter().map(|(name, total, last)| (name.clone(), hook(*total, *last)));
    let stages = now.stages.iter().map(
        |(name, last, total)| json!({ "stage": name, "last": times(last), "all": times(total) }),
    );
    let stations = now.stations.iter().map(|station| {
        json!({
            "station": station.name,
            "events": station.events,
            "received": station.received,
            "others": station.others,
            "end_to_end": times(&station.times),
            "slowest": station.slowest,
        })
    });
    let data = json!({
        "elapsed_ns": now.elapsed.as_ns(),
        "interval_ns": now.interval.as_ns(),
        "not_shown": { "all": now.not_shown.0, "last": now.not_shown.1 },
        "packet_paths": { "all": now.packet_paths.0, "last": now.packet_paths.1, "lossy": now.lossy,
                      "ambiguous": now.ambiguous, "dropped": now.dropped },
        "stages": stages.collect::<Vec<_>>(),
        "stations": stations.collect::<Vec<_>>(),
        "slowest": now.slowest,
        "hooks": hooks.collect::<serde_json::Map<_, _>>(),
    });
    json!({ "type": "interval", "data": data })
}

fn hook(total: HookCount, last: HookCount) -> Json {
    json!({ "all": total, "last": last })
}

fn times(times: &HistogramSummary) -> Json {
    match times.count {
        0 => json!({ "count": 0 }),
        count => json!({ "count": count, "p50_ns": times.p50_ns, "p99_ns": times.p99_ns,
                         "max_ns": times.max_ns }),
    }
}
