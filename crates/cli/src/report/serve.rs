// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `report --serve`: the pages of a run and its traces, for browsers of this machine. It listens on
//! loopback only, answers only who asks for it by a name of loopback, so that a page elsewhere
//! cannot read it by another name of 127.0.0.1, and lets one other origin read traces: Perfetto's.
//!
//! **Source**: the Fetch standard, CORS protocol.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::str::FromStr;

use anyhow::{Context, bail};
use timewire_datapath::http::{self, HttpRequest, HttpResponse};
use timewire_sys::event::EndRequests;

use crate::{experiment, output, trace};

/// The only other origin that may read, and only traces.
const PERFETTO: &str = "https://ui.perfetto.dev";
/// The only port of loopback from which Perfetto's own policy lets it fetch.
const PERFETTO_PORT: u16 = 9_001;

/// Where to serve: on loopback.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Address(SocketAddr);

impl FromStr for Address {
    type Err = String;

    fn from_str(text: &str) -> Result<Address, String> {
        let wrong = || {
            format!(
                "`{text}` is no address of loopback: such as 127.0.0.1:{PERFETTO_PORT}, \
                 localhost:8080 or [::1]:8080; to see a report from another machine, forward a \
                 port (ssh -L) or copy the file, which needs nothing else"
            )
        };
        let local = |port| SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let (host, port) = match text.rsplit_once(':') {
            Some((host, port)) if !host.ends_with(':') => (host, port.parse::<u16>().ok()),
            _ => (text, Some(PERFETTO_PORT)),
        };
        let address = match (host, text.parse::<SocketAddr>(), text.parse::<IpAddr>(), port) {
            (_, Ok(address), ..) => address,
            (_, _, Ok(ip), _) => SocketAddr::from((ip, PERFETTO_PORT)),
            (name, .., Some(port)) if name.eq_ignore_ascii_case("localhost") => local(port),
            _ => return Err(wrong()),
        };
        if address.ip().is_loopback() { Ok(Address(address)) } else { Err(wrong()) }
    }
}

/// What is served at a path.
#[derive(Clone, Debug)]
enum Thing {
    /// The page with links to everything.
    Index,
    /// A file of the run.
    File { path: PathBuf, kind: &'static str },
    /// The captures of a case, made into a file for Perfetto when it is asked for.
    Trace { case: String, captures: Vec<PathBuf> },
}

/// Everything that is served: nothing else is read.
#[derive(Debug)]
struct Site {
    directory: PathBuf,
    port: u16,
    things: BTreeMap<String, Thing>,
}

/// Serves until it is asked to end.
pub fn run(directory: &Path, address: &Address) -> anyhow::Result<ExitCode> {
    // Before any thread: all of them leave the signals to us.
    let requests = EndRequests::new().context("cannot wait for signals")?;
    let listener = TcpListener::bind(address.0).map_err(|error| {
        let hint = match error.kind() {
            io::ErrorKind::AddrInUse => {
                "; --serve 127.0.0.1:0 takes any free port, from which Perfetto cannot fetch"
            }
            _ => "",
        };
        anyhow::anyhow!("cannot serve at {}: {error}{hint}", address.0)
    })?;
    let at = listener.local_addr()?;
    if !at.ip().is_loopback() {
        bail!("{at} is not on loopback");
    }
    let site =
        Site { directory: directory.to_owned(), port: at.port(), things: things(directory)? };
    output::print(&format!("serving http://{at}/ until it is ended (Ctrl-C)\n"))?;
    let over = (requests.as_fd(), || requests.take());
    http::serve(&listener, over, move |request| site.answer(request))?;
    Ok(ExitCode::SUCCESS)
}

/// What of a directory is served, by its path.
fn things(directory: &Path) -> anyhow::Result<BTreeMap<String, Thing>> {
    let mut found = BTreeMap::from([("/".to_owned(), Thing::Index)]);
    let mut file = |name: String| {
        let path = directory.join(&name);
        let kind = match path.extension().and_then(|it| it.to_str()) {
            Some("html") => "text/html; charset=utf-8",
            Some("svg") => "image/svg+xml",
            _ => "application/json",
        };
        if path.is_file() {
            found.insert(format!("/{}", escaped(&name)), Thing::File { path, kind });
        }
    };
    for name in ["report.html", "summary.json", "comparison.html", "comparison.json", "receive.svg"]
    {
        file(name.to_owned());
    }
    let cases = directory.join("cases");
    let mut traces = Vec::new();
    if cases.is_dir() {
        let shown = || format!("cannot read {}", cases.display());
        for entry in fs::read_dir(&cases).with_context(shown)? {
            let name = entry.with_context(shown)?.file_name().to_string_lossy().into_owned();
            file(format!("cases/{name}/trace.html"));
            let captures = captures(&cases.join(&name)).with_context(shown)?;
            if !captures.is_empty() {
                traces.push((name, captures));
            }
        }
    }
    for (case, captures) in traces {
        let path = format!("/traces/{}.perfetto-trace", escaped(&case));
        found.insert(path, Thing::Trace { case, captures });
    }
    Ok(found)
}

/// As it stands in an address; the parts of a path stay parts.
fn escaped(text: &str) -> String {
    let mut out = String::new();
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'/' | b':' => {
                out.push(char::from(byte));
            }
            _ => {
                let _ = write!(out, "%{byte:02X}");
            }
        }
    }
    out
}

/// The captures in the directory of a case, in the order of their names.
fn captures(case: &Path) -> std::io::Result<Vec<PathBuf>> {
    if !case.is_dir() {
        return Ok(Vec::new());
    }
    let paths = fs::read_dir(case)?.map(|entry| entry.map(|entry| entry.path()));
    let mut paths = paths.collect::<Result<Vec<PathBuf>, _>>()?;
    paths.retain(|path| path.extension().is_some_and(|it| it == "twc") && path.is_file());
    paths.sort();
    Ok(paths)
}

/// Whether somebody asked by a name of loopback and our port. A page elsewhere that has its own
/// name led to 127.0.0.1 asks by that name.
fn is_ours(host: &str, port: u16) -> bool {
    let (name, of) = match host.rsplit_once(':') {
        // The colons of an address in brackets are its own.
        Some((name, of)) if !of.contains(']') => (name, of.parse::<u16>().ok()),
        _ => (host, Some(80)),
    };
    let address = name.strip_prefix('[').and_then(|name| name.strip_suffix(']'));
    let literal = address.unwrap_or(name).parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback());
    of == Some(port) && (name == "localhost" || literal)
}

impl Site {
    fn answer(&self, request: &HttpRequest) -> HttpResponse {
        if !request.host.as_deref().is_some_and(|host| is_ours(host, self.port)) {
            return HttpResponse::told(
                403,
                "this serves 127.0.0.1, [::1] and localhost by their names",
            );
        }
        let Some(thing) = self.things.get(&request.path) else {
            return HttpResponse::told(404, "there is no such page");
        };
        let own = |origin: &str| {
            origin.strip_prefix("http://").is_some_and(|host| is_ours(host, self.port))
        };
        let is_trace = matches!(thing, Thing::Trace { .. });
        let shared = match request.origin.as_deref() {
            None => false,
            Some(origin) if own(origin) => false,
            Some(PERFETTO) if is_trace => true,
            Some(_) => return HttpResponse::told(403, "another origin reads nothing here"),
        };
        let mut answer = match request.method.as_str() {
            "GET" | "HEAD" => self.made(thing),
            "OPTIONS" if shared => {
                let mut answer = HttpResponse::told(204, "");
                answer.body.clear();
                let allowed = [
                    ("Access-Control-Allow-Methods", "GET"),
                    // Asked for by browsers before a public page reads from loopback.
                    ("Access-Control-Allow-Private-Network", "true"),
                ];
                answer.headers.extend(allowed.map(|(name, value)| (name, value.to_owned())));
                answer
            }
            _ => return HttpResponse::told(405, "only GET and HEAD"),
        };
        if is_trace {
            answer.headers.push(("Vary", "Origin".to_owned()));
        }
        if shared {
            answer.headers.push(("Access-Control-Allow-Origin", PERFETTO.to_owned()));
        }
        let reach = if shared { "cross-origin" } else { "same-origin" };
        answer.headers.push(("Cross-Origin-Resource-Policy", reach.to_owned()));
        answer
    }

    fn made(&self, thing: &Thing) -> HttpResponse {
        match thing {
            Thing::Index => {
                let mut answer = HttpResponse::new("text/html; charset=utf-8", self.index().into());
                let policy =
                    "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'";
                answer.headers.push(("Content-Security-Policy", policy.to_owned()));
                answer
            }
            Thing::File { path, kind } => match fs::read(path) {
                Ok(bytes) => HttpResponse::new(kind, bytes),
                Err(error) => {
                    HttpResponse::told(500, &format!("cannot read {}: {error}", path.display()))
                }
            },
            Thing::Trace { case, captures } => {
                let captures = captures.clone();
                let of_run = experiment::captures_of_case(&self.directory, case, captures);
                match trace::run_perfetto(case, of_run) {
                    Ok(bytes) => HttpResponse::new("application/octet-stream", bytes),
                    Err(error) => HttpResponse::told(500, &output::message(&error)),
                }
            }
        }
    }

    /// Links to everything.
    fn index(&self) -> String {
        let mut out = String::from(
            "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<meta \
             name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<meta \
             name=\"color-scheme\" content=\"light dark\">\n<title>Timewire run</title>\n<style>\n\
             body { font: 1rem/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 50rem; \
             padding: 0 1rem; }\nli { margin: 0.4rem 0; overflow-wrap: anywhere; }\n</style>\n\
             </head>\n<body>\n<h1>Timewire run</h1>\n<ul>\n",
        );
        for (path, thing) in &self.things {
            if let Thing::File { .. } = thing {
                let name = text(path.trim_start_matches('/'));
                let _ = writeln!(out, "<li><a href=\"{path}\">{name}</a></li>");
            }
        }
        out.push_str("</ul>\n");
        let traces = || {
            let is_trace = |(_, thing): &(&String, &Thing)| matches!(thing, Thing::Trace { .. });
            self.things.iter().filter(is_trace)
        };
        if traces().next().is_some() {
            out.push_str("<h2>Traces in Perfetto</h2>\n<ul>\n");
            for (path, thing) in traces() {
                let Thing::Trace { case, .. } = thing else { continue };
                let at = format!("http://127.0.0.1:{}{path}", self.port);
                let _ = writeln!(
                    out,
                    "<li><a href=\"{PERFETTO}/#!/?url={}\" target=\"_blank\" rel=\"noopener\">{}\
                     </a> (<a href=\"{path}\" download>the file</a>)</li>",
                    escaped(&at),
                    text(case)
                );
            }
            out.push_str("</ul>\n<p>The first opens ui.perfetto.dev, which needs a network; ");
            out.push_str("the trace goes from this machine to your browser and nowhere else.");
            if self.port != PERFETTO_PORT {
                let _ = write!(
                    out,
                    " Perfetto fetches from port {PERFETTO_PORT} only: serve there, or open the \
                     file by hand."
                );
            }
            out.push_str("</p>\n");
        }
        out.push_str("</body>\n</html>\n");
        out
    }
}

/// Text on a page.
fn text(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn t0_only_loopback_is_an_address() {
        let of = |text: &str| text.parse::<Address>().map(|address| address.0.to_string());
        assert_eq!(of("127.0.0.1:80").unwrap(), "127.0.0.1:80");
        assert_eq!(of("127.8.9.1:0").unwrap(), "127.8.9.1:0");
        assert_eq!(of("localhost:8080").unwrap(), "127.0.0.1:8080");
        assert_eq!(of("LOCALHOST").unwrap(), "127.0.0.1:9001");
        assert_eq!(of("[::1]:7").unwrap(), "[::1]:7");
        assert_eq!(of("::1").unwrap(), "[::1]:9001");
        for wrong in ["0.0.0.0:80", "[::]:80", "192.168.1.1:80", "example.org:80", ":80", "", "run"]
        {
            assert!(of(wrong).unwrap_err().contains("no address of loopback"), "{wrong}");
        }
        assert!(of("localhost:99999").is_err());
    }

    #[test]
    fn t0_hosts_are_ours_by_loopback_names_and_our_port() {
        for ours in ["127.0.0.1:9001", "localhost:9001", "[::1]:9001", "127.0.0.9:9001"] {
            assert!(is_ours(ours, 9_001), "{ours}");
        }
        assert!(is_ours("localhost", 80) && is_ours("[::1]", 80));
        let others = [
            "evil.example:9001",
            "127.0.0.1.evil.example:9001",
            "localhost.evil.example:9001",
            "localhost:9002",
            "localhost",
            "192.168.0.1:9001",
            "",
        ];
        for other in others {
            assert!(!is_ours(other, 9_001), "{other}");
        }
    }

    fn site() -> Site {
        let captures = vec![PathBuf::from("none.twc")];
        let trace = Thing::Trace { case: "a&b".to_owned(), captures };
        let path = PathBuf::from("none.html");
        let file = Thing::File { path, kind: "text/html; charset=utf-8" };
        let things = [("/", Thing::Index), ("/report.html", file), ("/traces/a", trace)];
        let things = things.map(|(path, thing)| (path.to_owned(), thing)).into();
        Site { directory: PathBuf::new(), port: 9_001, things }
    }

    fn ask(method: &str, path: &str, host: &str, origin: Option<&str>) -> HttpResponse {
        let (method, path, host) = (method.to_owned(), path.to_owned(), Some(host.to_owned()));
        site().answer(&HttpRequest { method, path, host, origin: origin.map(str::to_owned) })
    }

    fn header<'a>(answer: &'a HttpResponse, name: &str) -> Option<&'a str> {
        answer.headers.iter().find(|(of, _)| *of == name).map(|(_, value)| value.as_str())
    }

    #[test]
    fn t0_another_name_and_another_origin_read_nothing() {
        let ours = "localhost:9001";
        assert_eq!(ask("GET", "/", ours, None).status, 200);
        assert_eq!(ask("GET", "/", "evil.example:9001", None).status, 403);
        assert_eq!(ask("GET", "/", ours, Some("https://evil.example")).status, 403);
        assert_eq!(ask("GET", "/", ours, Some("null")).status, 403);
        assert_eq!(ask("GET", "/", ours, Some("http://localhost:9001")).status, 200);
        assert_eq!(ask("GET", "/report.html", ours, Some(PERFETTO)).status, 403);
        assert_eq!(ask("GET", "/../etc/passwd", ours, None).status, 404);
        assert_eq!(ask("POST", "/", ours, None).status, 405);
    }

    #[test]
    fn t0_perfetto_and_nobody_else_may_read_traces() {
        let ours = "127.0.0.1:9001";
        let asked = ask("OPTIONS", "/traces/a", ours, Some(PERFETTO));
        assert_eq!(asked.status, 204);
        assert_eq!(header(&asked, "Access-Control-Allow-Origin"), Some(PERFETTO));
        assert_eq!(header(&asked, "Access-Control-Allow-Private-Network"), Some("true"));
        assert_eq!(ask("OPTIONS", "/traces/a", ours, Some("https://evil.example")).status, 403);
        let page = ask("GET", "/", ours, None);
        assert_eq!(header(&page, "Access-Control-Allow-Origin"), None);
        let page = String::from_utf8(page.body).unwrap();
        let link = "https://ui.perfetto.dev/#!/?url=http://127.0.0.1:9001/traces/a\"";
        assert!(page.contains(link) && page.contains("a&amp;b"), "{page}");
        assert!(!page.contains("port 9001 only"));
    }
}
