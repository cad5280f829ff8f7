// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a listener counts, for Prometheus: the text, and a server of that one page.
//!
//! **Source**: Prometheus text format 0.0.4.
//!
//! Not here: what is counted (`listen`), HTTP (`http`).

use std::fmt::Write as _;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::AsFd;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use timewire_stats::HistogramSummary;
use timewire_sys::event::Wake;

use super::TrafficError;
use super::listen::{HeardStream, ListenSnapshot};
use crate::http::{self, HttpRequest, HttpResponse};

/// Bounds of the buckets are just below powers of two, where bins of the histogram end: 1.023 us to
/// 1.07 s.
const BUCKETS: std::ops::RangeInclusive<u32> = 10..=30;

/// Serves what was published last.
#[derive(Debug)]
pub(super) struct Exposition {
    heard: Published,
    wake: Arc<Wake>,
    address: SocketAddr,
    server: JoinHandle<()>,
}

type Published = Arc<Mutex<Option<Arc<ListenSnapshot>>>>;

impl Exposition {
    /// Begins to serve, at first an empty page.
    ///
    /// **Errors**: the address is taken, or not one of this host.
    pub(super) fn start(address: SocketAddr) -> Result<Exposition, TrafficError> {
        let what = format!("serve counters on {address}");
        let failed = TrafficError::system(&what);
        let begin = || -> io::Result<Exposition> {
            let listener = TcpListener::bind(address)?;
            let address = listener.local_addr()?;
            let (heard, wake) = (Published::default(), Arc::new(Wake::new()?));
            let (theirs, woken) = (Arc::clone(&heard), Arc::clone(&wake));
            let server = std::thread::Builder::new().name("tw-metrics".to_owned());
            let server = server.spawn(move || {
                let last = move || theirs.lock().unwrap_or_else(PoisonError::into_inner).clone();
                let over = (woken.as_fd(), || woken.clear());
                // Where it cannot be waited for clients, nobody is served any more.
                let _ = http::serve(&listener, over, move |it| answer(it, last().as_deref()));
            })?;
            Ok(Exposition { heard, wake, address, server })
        };
        begin().map_err(failed)
    }

    /// Where it is.
    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    /// From now on this is served.
    pub(super) fn publish(&self, heard: Arc<ListenSnapshot>) {
        *self.heard.lock().unwrap_or_else(PoisonError::into_inner) = Some(heard);
    }

    /// Serves nobody any more.
    pub(super) fn end(self) {
        // A server that is not woken ends with the process.
        if self.wake.set().is_ok() {
            let _ = self.server.join();
        }
    }
}

fn answer(request: &HttpRequest, heard: Option<&ListenSnapshot>) -> HttpResponse {
    match (request.method.as_str(), request.path.as_str()) {
        ("GET" | "HEAD", "/metrics" | "/") => {
            let page = heard.map(text).unwrap_or_default();
            HttpResponse::new("text/plain; version=0.0.4; charset=utf-8", page.into())
        }
        ("GET" | "HEAD", _) => HttpResponse::told(404, "the counters are at /metrics"),
        _ => HttpResponse::told(405, "GET /metrics"),
    }
}

/// The page.
///
/// **Units**: seconds and bytes, as Prometheus wants it.
pub fn text(heard: &ListenSnapshot) -> String {
    let mut out = String::new();
    let of_all = [
        ("others_total", "Messages without a header of a stream.", heard.others),
        (
            "no_room_total",
            "Messages of streams beyond the most that are told apart.",
            heard.no_room,
        ),
        ("dropped_total", "Messages lost between kernel and program.", heard.dropped),
        (
            "other_queues_total",
            "Frames on receive queues that AF_XDP does not hear.",
            heard.other_queues.unwrap_or(0),
        ),
        (
            "not_timestamped_total",
            "Messages without a timestamp of NIC, driver or kernel.",
            heard.not_timestamped,
        ),
    ];
    for (name, help, value) in of_all {
        head(&mut out, name, help, "counter");
        put(&mut out, name, "", &value.to_string());
    }
    type Figure = fn(&HeardStream) -> u64;
    let of_stream: [(&str, &str, &str, Figure); 9] = [
        ("messages_total", "Messages that came.", "counter", |it| it.seen.frames),
        ("frame_bytes_total", "Bytes of their frames.", "counter", |it| it.seen.frame_bytes),
        ("lost_total", "Messages that did not come.", "counter", |it| it.seen.sequence.lost),
        ("skipped_total", "Messages that the talker did not send.", "counter", |it| {
            it.seen.skipped.unwrap_or(0)
        }),
        ("open", "Messages that may still come.", "gauge", |it| it.seen.sequence.open),
        ("duplicate_total", "Messages that came again.", "counter", |it| {
            it.seen.sequence.duplicate
        }),
        ("reordered_total", "Messages that came after later ones.", "counter", |it| {
            it.seen.sequence.reordered
        }),
        ("stray_total", "Messages far from the others.", "counter", |it| it.seen.sequence.stray),
        ("restarts_total", "Times that the talker began anew.", "counter", |it| {
            it.seen.sequence.restarts
        }),
    ];
    for (name, help, kind, figure) in of_stream {
        head(&mut out, name, help, kind);
        for stream in &heard.streams {
            let labels = format!("{{stream=\"{}\",source=\"{}\"}}", stream.stream, stream.source);
            put(&mut out, name, &labels, &figure(stream).to_string());
        }
    }
    let name = "clock_error_seconds";
    head(&mut out, name, "Most that the latency is wrong by; absent where not known.", "gauge");
    for HeardStream { stream, source, clock, .. } in &heard.streams {
        let Some(error_ns) = clock.error_ns else { continue };
        let labels = format!("{{stream=\"{stream}\",source=\"{source}\"}}");
        put(&mut out, name, &labels, &seconds(error_ns));
    }
    let name = "latency_seconds";
    head(
        &mut out,
        name,
        "From one timestamp point to the other, within the clock error.",
        "histogram",
    );
    for HeardStream { stream, source, seen, .. } in &heard.streams {
        let Some(between) = &seen.between else { continue };
        let labels = format!(
            "stream=\"{stream}\",source=\"{source}\",from=\"{}\",to=\"{}\"",
            seen.from_point, seen.to_point
        );
        histogram(&mut out, name, &labels, between);
    }
    out
}

fn head(out: &mut String, name: &str, help: &str, kind: &str) {
    let _ = writeln!(out, "# HELP timewire_listen_{name} {help}");
    let _ = writeln!(out, "# TYPE timewire_listen_{name} {kind}");
}

fn put(out: &mut String, name: &str, labels: &str, value: &str) {
    let _ = writeln!(out, "timewire_listen_{name}{labels} {value}");
}

fn histogram(out: &mut String, name: &str, labels: &str, times: &HistogramSummary) {
    for log in BUCKETS {
        let most = (1_i64 << log) - 1;
        let count: u64 =
            times.bins.iter().filter(|bin| bin.to_ns <= most).map(|bin| bin.count).sum();
        let labels = format!("{{{labels},le=\"{}\"}}", seconds(most));
        put(out, &format!("{name}_bucket"), &labels, &count.to_string());
    }
    let infinite = format!("{{{labels},le=\"+Inf\"}}");
    put(out, &format!("{name}_bucket"), &infinite, &times.count.to_string());
    let sum = times.mean_ns * super::numbers::float(times.count) / 1e9;
    put(out, &format!("{name}_sum"), &format!("{{{labels}}}"), &format!("{sum:.9}"));
    put(out, &format!("{name}_count"), &format!("{{{labels}}}"), &times.count.to_string());
}

/// Nanoseconds as seconds, exactly.
fn seconds(ns: i64) -> String {
    let text = format!("{}.{:09}", ns / 1_000_000_000, ns % 1_000_000_000);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod dashboard_tests;

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::TcpStream;

    use crate::listen::{Arrival, Listener, ListenerOptions};
    use crate::probe::Probe;
    use timewire_base::{Instant, Span};
    use timewire_capture::stream::sequence::SequenceLimits;

    use super::super::clocks::ClockBound;
    use super::super::listen::tests::heard;
    use super::*;

    #[test]
    fn t0_the_page_has_every_counter_and_cumulative_buckets() {
        let page = text(&heard());
        let value = |start: &str| {
            let line = page.lines().find(|line| line.starts_with(start));
            line.and_then(|line| line.rsplit(' ').next()).unwrap_or("none").to_owned()
        };
        assert_eq!(value("timewire_listen_messages_total{stream=\"1\","), "100");
        assert_eq!(value("timewire_listen_frame_bytes_total{stream=\"7\","), "530");
        assert_eq!(value("timewire_listen_lost_total{stream=\"1\","), "1");
        assert_eq!(value("timewire_listen_others_total"), "3");
        let bucket = |le: &str| {
            let point = "source=\"10.0.0.1:15000\",from=\"Send\",to=\"Receive\"";
            value(&format!(
                "timewire_listen_latency_seconds_bucket{{stream=\"1\",{point},le=\"{le}\"}}"
            ))
        };
        // Messages took 10 to 30 us in steps of 0.2 us, the 50th is missing.
        assert_eq!(bucket("0.000008191"), "0");
        assert_eq!(bucket("0.000016383"), "32");
        assert_eq!(bucket("0.000032767"), "100");
        assert_eq!(bucket("+Inf"), "100");
        let sum = value("timewire_listen_latency_seconds_sum{stream=\"1\"");
        assert_eq!(sum, "0.002000000");
        for line in page.lines().filter(|line| !line.starts_with('#')) {
            assert!(line.rsplit(' ').next().unwrap().parse::<f64>().is_ok(), "{line}");
        }
    }

    /// What a listener that tells 20 streams apart has heard of messages, each of another number
    /// and source, at any time.
    fn flooded(messages: u64) -> ListenSnapshot {
        let options = ListenerOptions {
            sequence: SequenceLimits::default(),
            longest: Span::from_ms(1),
            cycle: None,
            hardware_ahead: None,
            streams: 20,
        };
        let mut listener = Listener::new(false, options);
        let at = |n: u64| Instant::from_ns(i64::try_from(n).unwrap() * 1_000);
        for n in 0..messages {
            let mut bytes = vec![0; 46];
            let of = Probe {
                stream: u16::try_from(n * 7_919 % 0x7fff).unwrap(),
                seq: u32::try_from(n * 2_654_435_761 % 0xffff_ffff).unwrap(),
                time: at(n * 104_729 % 1_000_003),
                is_launch: n % 5 == 0,
                skipped: None,
            };
            of.write(&mut bytes);
            let [.., a, b, c, d] = n.to_be_bytes();
            let port = u16::try_from(n % 60_000).unwrap();
            let _ = listener.arrived(&Arrival {
                bytes: &bytes,
                length: 46,
                from: Some(SocketAddr::from(([a, b, c, d], port))),
                tag: None,
                hardware_ns: None,
                driver: None,
                kernel: Some(at(n)),
                user: at(n),
            });
        }
        let clock = ClockBound::one();
        let streams = listener.snapshot(at(messages)).into_iter().map(|(key, seen)| HeardStream {
            stream: key.number,
            source: key.source.to_string(),
            clash: false,
            flow: key.flow,
            clock: clock.clone(),
            seen,
        });
        let streams = streams.collect();
        ListenSnapshot { streams, no_room: listener.counters().no_room, ..heard() }
    }

    /// Of streams, each metric with its name; of the histogram each bucket, too.
    const SAMPLES_OF_A_STREAM: usize = 9 + 1 + 21 + 3;

    #[test]
    fn t0_sets_of_labels_are_bounded_whatever_comes() {
        for messages in [1_000, 10_000] {
            let heard = flooded(messages);
            assert_eq!(heard.no_room, messages - 20);
            let page = text(&heard);
            let samples: Vec<&str> = page.lines().filter(|line| !line.starts_with('#')).collect();
            let sets = samples.iter().filter_map(|line| line.rsplit_once(' ')).map(|it| it.0);
            let sets: std::collections::BTreeSet<&str> = sets.collect();
            assert_eq!(sets.len(), samples.len(), "each once");
            assert_eq!(sets.len(), 5 + 20 * SAMPLES_OF_A_STREAM);
            assert!(page.contains(&format!("timewire_listen_no_room_total {}", messages - 20)));
        }
    }

    #[test]
    fn t0_a_server_answers_and_ends() {
        let exposition = Exposition::start("127.0.0.1:0".parse().unwrap()).unwrap();
        let ask = |request: &str| {
            let mut client = TcpStream::connect(exposition.address()).unwrap();
            client.write_all(request.as_bytes()).unwrap();
            let mut answer = String::new();
            client.read_to_string(&mut answer).unwrap();
            answer
        };
        let none = ask("GET /metrics HTTP/1.1\r\n\r\n");
        assert!(none.contains("\r\nContent-Length: 0\r\n") && none.ends_with("\r\n\r\n"));
        exposition.publish(Arc::new(heard()));
        let page = ask("GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n");
        assert!(page.starts_with("HTTP/1.1 200 OK\r\n"), "{page}");
        assert_eq!(page.split_once("\r\n\r\n").unwrap().1, text(&heard()));
        assert!(page.contains("\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\n"));
        assert!(ask("HEAD /metrics HTTP/1.1\r\n\r\n").ends_with("\r\n\r\n"));
        assert!(ask("GET /else HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 404"));
        assert!(ask("POST /metrics HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 405"));
        exposition.end();
    }
}
