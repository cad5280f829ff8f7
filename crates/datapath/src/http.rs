// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A server of a few pages over HTTP/1.1: one request for each connection, which `httparse` reads,
//! and one answer ([decision 0033](../../../docs/src/adr/0033-report-server.md)).
//!
//! **Source**: HTTP/1.1, RFC 9112.

use std::fmt::Write as _;
use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use timewire_sys::event;

/// How long a client may take for its request and for reading the answer.
const CLIENT_TIMEOUT: Duration = Duration::from_secs(5);
/// The longest request that is looked at.
const MAX_REQUEST_BYTES: usize = 8 << 10;
const MAX_HEADERS: usize = 64;
/// Clients at the same time: a browser opens some ahead and leaves them idle.
const MAX_CLIENTS: usize = 32;

/// What of a request decides over its answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpRequest {
    /// As it was written.
    pub method: String,
    /// Without what follows `?`.
    pub path: String,
    /// In lower case.
    pub host: Option<String>,
    /// In lower case.
    pub origin: Option<String>,
}

impl HttpRequest {
    /// `Ok(None)` where more has to come.
    ///
    /// **Errors**: the answer to what is no request for a path, and to one with two hosts or two
    /// origins, which two readers could take differently.
    fn parse(bytes: &[u8]) -> Result<Option<HttpRequest>, HttpResponse> {
        let wrong = || HttpResponse::told(400, "this is no request");
        let long = || HttpResponse::told(431, "the request is too long");
        let mut headers = [httparse::EMPTY_HEADER; MAX_HEADERS];
        let mut parsed = httparse::Request::new(&mut headers);
        match parsed.parse(bytes) {
            Ok(httparse::Status::Complete(_)) => {}
            Ok(httparse::Status::Partial) if bytes.len() < MAX_REQUEST_BYTES => return Ok(None),
            Ok(httparse::Status::Partial) | Err(httparse::Error::TooManyHeaders) => {
                return Err(long());
            }
            Err(_) => return Err(wrong()),
        }
        let (Some(method), Some(target)) = (parsed.method, parsed.path) else {
            return Err(wrong());
        };
        let path = target.split(['?', '#']).next().filter(|path| path.starts_with('/'));
        let path = path.ok_or_else(wrong)?.to_owned();
        let only = |name: &str| {
            let mut all = parsed.headers.iter().filter(|it| it.name.eq_ignore_ascii_case(name));
            let first = all.next().map(|it| std::str::from_utf8(it.value)).transpose();
            match (first, all.next()) {
                (Ok(value), None) => Ok(value.map(str::to_ascii_lowercase)),
                _ => Err(wrong()),
            }
        };
        let (host, origin) = (only("host")?, only("origin")?);
        Ok(Some(HttpRequest { method: method.to_owned(), path, host, origin }))
    }
}

/// An answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpResponse {
    /// The number.
    pub status: u16,
    /// Beside those that every answer has.
    pub headers: Vec<(&'static str, String)>,
    /// What follows them; left out where only the head was asked for.
    pub body: Vec<u8>,
}

impl HttpResponse {
    /// A page of this type.
    pub fn new(kind: &str, body: Vec<u8>) -> HttpResponse {
        let headers = vec![("Content-Type", kind.to_owned())];
        HttpResponse { status: 200, headers, body }
    }

    /// A sentence why there is no page.
    pub fn told(status: u16, why: &str) -> HttpResponse {
        let page = HttpResponse::new("text/plain; charset=utf-8", format!("{why}\n").into());
        HttpResponse { status, ..page }
    }

    fn bytes(&self, with_body: bool) -> Vec<u8> {
        let reason = match self.status {
            200 => "OK",
            204 => "No Content",
            400 => "Bad Request",
            403 => "Forbidden",
            404 => "Not Found",
            405 => "Method Not Allowed",
            431 => "Request Header Fields Too Large",
            _ => "Internal Server Error",
        };
        let mut head = format!(
            "HTTP/1.1 {} {reason}\r\nContent-Length: {}\r\nConnection: close\r\nCache-Control: \
             no-store\r\nX-Content-Type-Options: nosniff\r\nReferrer-Policy: no-referrer\r\n",
            self.status,
            self.body.len()
        );
        for (name, value) in &self.headers {
            let _ = write!(head, "{name}: {value}\r\n");
        }
        head.push_str("\r\n");
        let mut bytes = head.into_bytes();
        if with_body {
            bytes.extend_from_slice(&self.body);
        }
        bytes
    }
}

/// Answers who connects to `listener`, each on a thread of its own, until `is_over`, which is
/// looked at whenever `over` can be read.
///
/// **Errors**: it cannot be waited for clients.
pub fn serve<F>(
    listener: &TcpListener,
    (over, is_over): (BorrowedFd<'_>, impl Fn() -> bool),
    answer: F,
) -> io::Result<()>
where
    F: Fn(&HttpRequest) -> HttpResponse + Send + Sync + 'static,
{
    listener.set_nonblocking(true)?;
    let (answer, clients) = (Arc::new(answer), Arc::new(AtomicUsize::new(0)));
    while !is_over() {
        match event::wait_readable(&[listener.as_fd(), over], None) {
            Err(error) if error.kind() != io::ErrorKind::Interrupted => return Err(error),
            _ => {}
        }
        while let Ok((client, _)) = listener.accept() {
            if clients.fetch_add(1, Ordering::Relaxed) >= MAX_CLIENTS {
                clients.fetch_sub(1, Ordering::Relaxed);
                continue;
            }
            let (answer, counted) = (Arc::clone(&answer), Arc::clone(&clients));
            let work = move || {
                // A client that has gone or is too slow has had its chance.
                let _ = converse(client, &*answer);
                counted.fetch_sub(1, Ordering::Relaxed);
            };
            if std::thread::Builder::new().name("tw-http".to_owned()).spawn(work).is_err() {
                clients.fetch_sub(1, Ordering::Relaxed);
            }
        }
    }
    Ok(())
}

fn converse(
    mut client: TcpStream,
    answer: &dyn Fn(&HttpRequest) -> HttpResponse,
) -> io::Result<()> {
    client.set_nonblocking(false)?;
    client.set_read_timeout(Some(CLIENT_TIMEOUT))?;
    client.set_write_timeout(Some(CLIENT_TIMEOUT))?;
    let mut bytes = Vec::new();
    let mut some = [0; 1024];
    loop {
        let got = client.read(&mut some)?;
        if got == 0 {
            return Ok(());
        }
        bytes.extend_from_slice(&some[..got]);
        let answer = match HttpRequest::parse(&bytes) {
            Ok(None) => continue,
            Ok(Some(request)) => answer(&request).bytes(request.method != "HEAD"),
            Err(refusal) => refusal.bytes(true),
        };
        return client.write_all(&answer);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn t0_requests_are_read_or_refused() {
        let of = |text: &str| HttpRequest::parse(text.as_bytes());
        let good = of("GET /a?b HTTP/1.1\r\nHOST: LocalHost:1\r\nX: y\r\n\r\n").unwrap().unwrap();
        assert_eq!((good.method.as_str(), good.path.as_str()), ("GET", "/a"));
        assert_eq!((good.host.as_deref(), good.origin), (Some("localhost:1"), None));
        for more in ["", "GET", "GET / HTTP/1.1\r\nHost: a", "GET / HTTP/1.1\r\nHost: a\r\n"] {
            assert_eq!(of(more), Ok(None), "{more}");
        }
        let bad = [
            "GET\r\n\r\n",
            "GET / HTTP/2\r\n\r\n",
            "GET http://a/ HTTP/1.1\r\n\r\n",
            "GET / HTTP/1.1 more\r\n\r\n",
            "GET / HTTP/1.1\r\nno colon\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
            "GET / HTTP/1.1\r\nOrigin: a\r\norigin: a\r\n\r\n",
        ];
        for bad in bad {
            assert_eq!(of(bad).unwrap_err().status, 400, "{bad}");
        }
        let none = HttpRequest::parse(b"GET / HTTP/1.1\r\nHost: \xff\r\n\r\n");
        assert_eq!(none.unwrap_err().status, 400);
    }

    #[test]
    fn t0_what_is_too_long_is_refused() {
        let long = format!("GET /{} HTTP/1.1\r\n", "a".repeat(MAX_REQUEST_BYTES));
        let many = format!("GET / HTTP/1.1\r\n{}\r\n", "A: b\r\n".repeat(MAX_HEADERS + 1));
        for text in [long, many] {
            assert_eq!(HttpRequest::parse(text.as_bytes()).unwrap_err().status, 431);
        }
    }

    #[test]
    fn t0_an_answer_has_its_length_and_a_head_alone_no_body() {
        let page = HttpResponse::new("text/plain", b"four".to_vec());
        let (whole, head) = (page.bytes(true), page.bytes(false));
        assert_eq!(whole.strip_prefix(head.as_slice()), Some(&b"four"[..]));
        let head = String::from_utf8(head).unwrap();
        assert!(head.starts_with("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n"), "{head}");
        assert!(head.ends_with("Content-Type: text/plain\r\n\r\n"), "{head}");
    }
}
