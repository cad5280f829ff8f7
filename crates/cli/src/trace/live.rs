// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `trace record --live`: the view of a capture that is being taken, on a terminal, as lines or as
//! JSON.
//!
//! Not here: what is analysed and where (`timewire_ctl::trace::live`), what the view looks like
//! (`timewire_report::live`).

use std::io::{self, IsTerminal};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::{Value as Json, json};
use timewire_base::Span;
use timewire_ctl::trace::live::{Live, Moment, Viewer};
use timewire_report::live::{LiveInput, LiveMeter, LiveRoom, LiveSnapshot, line, view, whole};
use timewire_sys::terminal;
use timewire_trace::capture::{CaptureHeader, HookCount};
use timewire_trace::event::Event;
use timewire_trace::journey::{Journey, Observer, Point};
use timewire_trace::stream::histogram::HistogramSummary;

use crate::output;

/// How often it is shown.
const EVERY: Span = Span::from_secs(1);

/// How it is shown.
#[derive(Clone, Debug)]
pub struct Show {
    json: bool,
    is_gone: Arc<AtomicBool>,
}

impl Show {
    pub fn new(json: bool) -> Show {
        Show { json, is_gone: Arc::default() }
    }

    /// Whether nobody looks any more.
    pub fn is_gone(&self) -> bool {
        self.is_gone.load(Ordering::Relaxed)
    }

    /// Begins to show a capture.
    pub fn start(&self, header: &CaptureHeader) -> io::Result<Live> {
        let drawn = (!self.json && io::stdout().is_terminal()).then_some(0);
        let screen = Screen { show: self.clone(), meter: LiveMeter::default(), drawn };
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
    /// A terminal that the view is drawn on again and again, and how many lines it has there.
    drawn: Option<usize>,
}

impl Observer for Screen {
    fn event(&mut self, capture: usize, point: &Point, event: &Event) {
        self.meter.event(capture, point, event);
    }

    fn journey(&mut self, journey: &Journey) {
        self.meter.journey(journey);
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
        let text = match (self.show.json, self.drawn) {
            (true, _) => format!("{}\n", object(&now)),
            (false, above) if moment.is_last => erased(above.unwrap_or(0)) + &whole(&now),
            (false, None) => line(&now),
            (false, Some(above)) => self.redrawn(&now, above),
        };
        let printed = output::print(&text);
        printed.map(drop).map_err(|error| {
            self.show.is_gone.store(true, Ordering::Relaxed);
            error.downcast::<io::Error>().unwrap_or_else(io::Error::other)
        })
    }
}

impl Screen {
    /// The view over the one before.
    fn redrawn(&mut self, now: &LiveSnapshot, above: usize) -> String {
        let stdout = io::stdout();
        let (columns, lines) = terminal::size(stdout.as_fd()).unwrap_or((80, 24));
        // The cursor stands in the line below.
        let lines = usize::from(lines.saturating_sub(1));
        let text = view(now, LiveRoom { columns: columns.into(), lines: Some(lines) });
        self.drawn = Some(text.lines().count());
        erased(above) + &text
    }
}

/// Erases so many lines above the cursor.
fn erased(above: usize) -> String {
    if above > 0 { format!("\x1b[{above}A\r\x1b[J") } else { String::new() }
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
        "journeys": { "all": now.journeys.0, "last": now.journeys.1, "lossy": now.lossy,
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
