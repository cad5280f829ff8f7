// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The talk between a running MAC and those who change or ask it: one request and one response,
//! each a line of JSON, over a local socket that only root and the MAC's own user may use.
//!
//! The socket is `NAME.sock` in the runtime directory (`/run/timewire` for root).

use std::fs;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::mac::PortList;
use crate::release::SlotTimer;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use timewire_base::drops::DropCause;
use timewire_base::{CyclicWindows, Instant, Span, Tai};
use timewire_capture::summary::MacSummary;
use timewire_host::journal::runtime_dir;
use timewire_model::tdm::TdmSchedule;
use timewire_sys::{connect_local, event};

use crate::DatapathError;

/// Longest request or response taken.
///
/// **Units**: bytes.
const LONGEST: usize = 1 << 20;
/// How long a MAC waits for the whole of a request.
const TIMEOUT: Duration = Duration::from_secs(5);
/// How long a client waits for its answer: in an emulated machine whose host is slow to give it
/// files, a MAC needs more than the time of a request.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);
/// How long the socket of a MAC that was killed may outlive it.
const GOING: Duration = Duration::from_millis(500);
/// How long a MAC waits for a peer that does not read its answer; nobody else is served meanwhile.
const WRITE_TIMEOUT: Duration = Duration::from_millis(200);
/// Peers whose requests are still under way; one more, and the one that waits longest is dropped.
const MAX_PEERS: usize = 256;
/// Of those, how many wake the MAC up when they say something; the others are looked at in turn.
const WAITED_FOR: usize = 6;

/// Something that can be asked over a control socket.
pub(crate) trait Ask: DeserializeOwned + Serialize {
    /// What is answered.
    type Answer: DeserializeOwned + Serialize;
    /// Whether it asks to end; the answer comes when that is done.
    fn is_stop(&self) -> bool;
    /// The answer that it was not done.
    fn refused(message: String) -> Self::Answer;
}

impl Ask for Request {
    type Answer = Response;
    fn is_stop(&self) -> bool {
        *self == Request::Stop
    }
    fn refused(message: String) -> Response {
        Response::Refused { message }
    }
}

/// What can be asked of a running MAC.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "request", rename_all = "snake_case", deny_unknown_fields)]
pub enum Request {
    /// How are you?
    Show,
    /// Use this schedule from the first cycle at or after `not_before_ns`.
    Set {
        /// The schedule of the whole segment.
        schedule: TdmSchedule,
        /// TAI, nanoseconds; absent: as soon as possible.
        not_before_ns: Option<Instant<Tai>>,
    },
    /// Use these transmit priorities.
    Send {
        /// The list.
        list: PortList,
    },
    /// Use these receive priorities.
    Recv {
        /// The list.
        list: PortList,
    },
    /// This is how the clock is; a MAC that was started to take somebody's word opens its slots for
    /// as long as it says.
    OnTime {
        /// What is said.
        word: OnTime,
    },
    /// Put processes into the priority group.
    AddProcess {
        /// Their numbers.
        pids: Vec<u32>,
    },
    /// Take members out of the priority group.
    RemoveProcess {
        /// The numbers that adding them gave.
        members: Vec<u32>,
    },
    /// End, and restore the host. The answer comes when that is done.
    Stop,
}

/// Somebody's word about the clock.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OnTime {
    /// From now on it is on time for so long at least; `null` when it is not.
    pub hold_ns: Option<Span>,
    /// How far it is off.
    pub offset_ns: Option<Span>,
    /// The error of comparing it.
    pub offset_error_ns: Option<Span>,
    /// Who says it.
    pub by: String,
    /// Why it is not.
    pub why: Option<String>,
}

/// What a running MAC answers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "response", rename_all = "snake_case")]
pub enum Response {
    /// It was done.
    Done,
    /// How the MAC is.
    Status {
        /// Everything.
        status: Box<Status>,
    },
    /// The members that were added, in the order they were asked for.
    Members {
        /// Their numbers.
        members: Vec<u32>,
    },
    /// The MAC has ended, and the host is not as it was before.
    LeftChanged {
        /// What could not be restored, why, and the journal that still holds it.
        message: String,
    },
    /// It was not done.
    Refused {
        /// Why, and what would be right.
        message: String,
    },
}

/// How a running MAC is; the `--json` form of `tdm show`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Status {
    /// Format and version.
    pub schema: String,
    /// Its name.
    pub name: String,
    /// Its process.
    pub pid: u32,
    /// Whose windows it keeps.
    pub station: String,
    /// The link.
    pub link: String,
    /// The interface with the addresses.
    pub stack: String,
    /// How received frames go up.
    pub receive: String,
    /// Whether the clock is such that frames may leave, and why.
    pub clock: String,
    /// The same for programs; `None` when the clock is that of one host, which is not checked.
    #[serde(default)]
    pub sync: Option<SyncStatus>,
    /// What the host refused; it works without, less exactly.
    pub refused: Vec<String>,
    /// Transmit counters.
    pub transmit: MacSummary,
    /// Frames that were due and did not leave.
    pub not_sent: u64,
    /// Why they did not.
    pub drop_causes: Vec<DropCause>,
    /// Frames that the NIC did not take when they were due, and that went with the next one.
    pub sent_late: u64,
    /// Frames held because the clock was not synchronised.
    pub held_unsynchronised: u64,
    /// How often the schedule changed.
    pub schedule_changes: u64,
    /// 99.9th percentile of the time from the clock check to the end of the send call, ns.
    pub call_p999_ns: Option<i64>,
    /// Longest such time, ns.
    pub call_max_ns: i64,
    /// Received frames per class.
    pub received: Received,
    /// The schedule of the segment in force.
    pub schedule: Option<TdmSchedule>,
    /// This station's windows in force.
    pub windows: Option<CyclicWindows>,
    /// When a change of the windows takes effect, if one is to come.
    pub change_at_ns: Option<Instant<Tai>>,
    /// The schedule that is to come then.
    pub next_schedule: Option<TdmSchedule>,
    /// Transmit priorities.
    pub send: PortList,
    /// Receive priorities.
    pub recv: PortList,
    /// The priority group.
    pub members: Vec<MemberStatus>,
}

impl Status {
    /// Why the clock keeps frames from leaving; `None` when it does not.
    pub fn held_by_clock(&self) -> Option<&str> {
        self.sync.as_ref().filter(|sync| !sync.on_time).map(|_| self.clock.as_str())
    }
}

/// How a MAC knows that the clock is on time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SyncStatus {
    /// Whether it is.
    pub on_time: bool,
    /// How often it was and then was not any more.
    pub losses: u64,
    /// Slots stay open then (`on_sync_loss: keep`).
    pub keep_open: bool,
    /// The last word about it.
    pub said: Option<OnTime>,
    /// How long ago.
    pub said_ago_ns: Option<Span>,
}

/// The `schema` field of a [`Status`].
pub const STATUS_SCHEMA: &str = "timewire.tdm-status/1";

/// Received frames per class.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Received {
    /// Without priority.
    pub normal: u64,
    /// With a priority: `(priority, frames)`, only those that came.
    pub by_priority: Vec<(u8, u64)>,
    /// For other stations.
    pub foreign: u64,
    /// Normal frames that could not be deferred.
    pub not_deferred: u64,
    /// Normal frames lost on the way up, because too many waited; `None` where the kernel does not
    /// tell.
    pub lost: Option<u64>,
}

/// A member of the priority group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemberStatus {
    /// Its number in the group.
    pub member: u32,
    /// The process.
    pub pid: u32,
    /// How many threads have the priority.
    pub threads: usize,
}

/// The file in which a MAC in the background says what it has to say.
///
/// **Errors**: no MAC can have that name, or there is no runtime directory.
pub fn log_path(instance: &str) -> Result<PathBuf, DatapathError> {
    Ok(socket_path(instance)?.with_file_name(format!("{instance}.log")))
}

/// The socket of a MAC of that name.
pub(crate) fn socket_path(instance: &str) -> Result<PathBuf, DatapathError> {
    let fits = !instance.is_empty()
        && instance.len() <= 64
        && instance.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c))
        && !instance.starts_with('.');
    if !fits {
        return Err(DatapathError::Invalid(format!(
            "`{instance}` is no name of a MAC: 1 to 64 of a-z, A-Z, 0-9, `-`, `_`, `.`, not \
             starting with a dot"
        )));
    }
    Ok(runtime_dir()?.join(format!("{instance}.sock")))
}

/// The names under which MACs seem to run, sorted.
pub fn running() -> Result<Vec<String>, DatapathError> {
    running_within(TIMEOUT)
}

/// The same, with so much timeout for each.
fn running_within(timeout: Duration) -> Result<Vec<String>, DatapathError> {
    let directory = runtime_dir()?;
    let entries = match fs::read_dir(&directory) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(DatapathError::file("read", &directory)(error)),
    };
    let mut names = Vec::new();
    for entry in entries.flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        if let Some(name) = name.strip_suffix(".sock")
            && connect_local(&entry.path(), timeout).is_ok()
        {
            names.push(name.to_owned());
        }
    }
    names.sort();
    Ok(names)
}

/// The MAC's end: takes requests from many peers at once and waits for none of them.
pub(crate) struct Server {
    listener: UnixListener,
    /// Those that have not said all yet, the oldest first.
    peers: Vec<Peer>,
    /// Those that have asked the MAC to end.
    stoppers: Vec<Peer>,
}

struct Peer {
    stream: UnixStream,
    said: Vec<u8>,
    give_up: std::time::Instant,
}

/// What became of a peer.
enum Heard<Q> {
    /// It goes on.
    Nothing,
    /// A whole line, or what is wrong with it.
    Request(Result<Q, String>),
}

impl Server {
    /// Makes the socket; replaces one that a dead MAC left behind.
    ///
    /// **Errors**: a MAC runs under that name.
    pub(crate) fn bind(instance: &str) -> Result<(Server, PathBuf), DatapathError> {
        let path = socket_path(instance)?;
        if UnixStream::connect(&path).is_ok() {
            return Err(DatapathError::MacRuns { instance: instance.to_owned() });
        }
        Ok((Server::bind_at(&path)?, path))
    }

    /// Makes a socket of this path, where nobody listens.
    pub(crate) fn bind_at(path: &Path) -> Result<Server, DatapathError> {
        let directory = path.parent().expect("invariant: it is in the runtime directory");
        fs::create_dir_all(directory).map_err(DatapathError::file("create", directory))?;
        // Under a name of its own first, so that nobody can connect before the mode is set.
        let hidden = path.with_extension(format!("new-{}", std::process::id()));
        let listener =
            UnixListener::bind(&hidden).map_err(DatapathError::file("create", &hidden))?;
        let shown = fs::set_permissions(&hidden, fs::Permissions::from_mode(0o600))
            .and_then(|()| fs::rename(&hidden, path))
            .and_then(|()| listener.set_nonblocking(true));
        if let Err(error) = shown {
            let _ = fs::remove_file(&hidden);
            return Err(DatapathError::file("create", path)(error));
        }
        Ok(Server { listener, peers: Vec::new(), stoppers: Vec::new() })
    }

    /// Waits until somebody says something, one of `others` is readable, or half a second is over.
    pub(crate) fn wait(&self, others: BorrowedFd<'_>) {
        self.wait_for(others, 500);
    }

    /// The same, for so many milliseconds at most.
    pub(crate) fn wait_for(&self, others: BorrowedFd<'_>, most_ms: i64) {
        let mut fds = vec![self.listener.as_fd(), others];
        fds.extend(self.peers.iter().take(WAITED_FOR).map(|peer| peer.stream.as_fd()));
        let timeout = if self.peers.len() > WAITED_FOR { 10 } else { most_ms };
        // An error here is a signal's doing; the caller looks at everything anyway.
        let _ = event::wait_readable(&fds, Some(Span::from_ms(timeout)));
    }

    /// Answers every request that is there; whether one of them was to stop. A peer that talks
    /// nonsense, too much or too slowly is told so and dropped.
    pub(crate) fn answer_all<Q: Ask>(&mut self, mut answer: impl FnMut(Q) -> Q::Answer) -> bool {
        while let Ok((stream, _)) = self.listener.accept() {
            if stream.set_nonblocking(true).is_ok() {
                let give_up = std::time::Instant::now() + TIMEOUT;
                self.peers.push(Peer { stream, said: Vec::new(), give_up });
            }
        }
        let too_many = self.peers.len().saturating_sub(MAX_PEERS);
        self.peers.drain(..too_many);
        for mut peer in std::mem::take(&mut self.peers) {
            let response = match peer.hear::<Q>() {
                Heard::Nothing => {
                    self.peers.push(peer);
                    continue;
                }
                Heard::Request(Ok(request)) if request.is_stop() => {
                    self.stoppers.push(peer);
                    continue;
                }
                Heard::Request(Ok(request)) => answer(request),
                Heard::Request(Err(why)) => Q::refused(format!("not a request: {why}")),
            };
            // The MAC goes on whatever becomes of this peer.
            let _ = peer.tell(&response);
        }
        !self.stoppers.is_empty()
    }

    /// Tells those that asked the MAC to end how that went.
    pub(crate) fn has_stopped(self, response: &impl Serialize) {
        for peer in self.stoppers {
            // It has ended, whether they hear of it or not.
            let _ = peer.tell(response);
        }
    }
}

impl Peer {
    /// Takes what has come.
    fn hear<Q: Ask>(&mut self) -> Heard<Q> {
        let mut piece = [0; 4_096];
        loop {
            match (&self.stream).read(&mut piece) {
                Ok(0) => return Heard::Request(Err("it ends before its line does".to_owned())),
                Ok(length) => self.said.extend_from_slice(&piece[..length]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => return Heard::Request(Err(error.to_string())),
            }
            if let Some(end) = self.said.iter().position(|byte| *byte == b'\n') {
                let request = serde_json::from_slice(&self.said[..end]);
                return Heard::Request(request.map_err(|error| error.to_string()));
            }
            if self.said.len() > LONGEST {
                return Heard::Request(Err(format!("it is longer than {LONGEST} bytes")));
            }
        }
        if std::time::Instant::now() > self.give_up {
            let seconds = TIMEOUT.as_secs();
            return Heard::Request(Err(format!("it did not end within {seconds} s")));
        }
        Heard::Nothing
    }

    fn tell(&self, response: &impl Serialize) -> io::Result<()> {
        self.stream.set_nonblocking(false)?;
        self.stream.set_write_timeout(Some(WRITE_TIMEOUT))?;
        write_line(&self.stream, response)
    }
}

/// Someone who talks to a MAC: the command line, or a program that wants to be released before its
/// slot.
#[derive(Clone, Debug)]
pub struct Client {
    instance: String,
    timeout: Duration,
}

impl Client {
    /// A client of the MAC of that name; nothing is connected yet.
    pub fn new(instance: &str) -> Client {
        Client { instance: instance.to_owned(), timeout: ANSWER_TIMEOUT }
    }

    /// The same, which waits no longer than this for a MAC that hangs.
    #[must_use]
    pub(crate) fn with_timeout(self, timeout: Duration) -> Client {
        Client { timeout, ..self }
    }

    /// A client of the one MAC that runs.
    ///
    /// **Errors**: none runs, or several.
    pub fn of_the_only_one() -> Result<Client, DatapathError> {
        match running()?.as_slice() {
            [only] => Ok(Client::new(only)),
            [] => Err(DatapathError::NoMacAtAll),
            several => Err(DatapathError::Invalid(format!(
                "several MACs run: {}; say which with `--name`",
                several.join(", ")
            ))),
        }
    }

    /// Asks and waits for the answer. A refusal is an error here.
    pub fn ask(&self, request: &Request) -> Result<Response, DatapathError> {
        let path = socket_path(&self.instance)?;
        let failed = |source| DatapathError::Control { instance: self.instance.clone(), source };
        let nobody = || -> Result<DatapathError, DatapathError> {
            let running = running_within(self.timeout)?;
            Ok(DatapathError::NoMac { instance: self.instance.clone(), running })
        };
        let stream = match connect_local(&path, self.timeout) {
            Ok(stream) => stream,
            Err(error) if is_nobody(&error) => return Err(nobody()?),
            Err(error) => return Err(failed(error)),
        };
        match exchange(&stream, request, self.timeout) {
            Ok(Response::Refused { message }) => Err(DatapathError::Refused { message }),
            Ok(response) => Ok(response),
            // Killed just now, and its socket goes with its last thread.
            Err(error) if broke_off(&error) && is_going(&path, self.timeout) => Err(nobody()?),
            Err(error) => Err(failed(error)),
        }
    }

    /// How the MAC is.
    pub fn status(&self) -> Result<Status, DatapathError> {
        match self.ask(&Request::Show)? {
            Response::Status { status } => Ok(*status),
            other => Err(DatapathError::Refused { message: format!("it answered {other:?}") }),
        }
    }

    /// A timer that releases the caller `lead` before each slot of this station.
    ///
    /// **Errors**: no MAC, or one without a schedule.
    pub fn slot_timer(&self, lead: Span) -> Result<SlotTimer, DatapathError> {
        match self.status()?.windows {
            Some(windows) => Ok(SlotTimer::new(windows, lead)),
            None => Err(DatapathError::Refused {
                message: format!("the MAC `{}` has no schedule, so no slots", self.instance),
            }),
        }
    }
}

/// Asks over a stream and waits for the answer so long at most.
pub(crate) fn exchange<Q: Ask>(
    stream: &UnixStream,
    request: &Q,
    timeout: Duration,
) -> io::Result<Q::Answer> {
    stream.set_read_timeout(Some(timeout))?;
    stream.set_write_timeout(Some(timeout))?;
    write_line(stream, request)?;
    serde_json::from_str(&read_line(stream)?).map_err(io::Error::other)
}

/// Whether a failure to connect says that there is no MAC.
pub(crate) fn is_nobody(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused)
}

/// Whether a talk ended because the other side did.
fn broke_off(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe | io::ErrorKind::InvalidData
    )
}

/// Whether nobody listens on a socket any more, or soon.
fn is_going(path: &Path, timeout: Duration) -> bool {
    let give_up = std::time::Instant::now() + GOING.min(timeout);
    loop {
        match connect_local(path, timeout) {
            Err(error) if is_nobody(&error) => return true,
            _ if std::time::Instant::now() > give_up => return false,
            _ => std::thread::sleep(Duration::from_millis(5)),
        }
    }
}

fn read_line(stream: &UnixStream) -> io::Result<String> {
    let mut line = String::new();
    BufReader::new(stream.take(LONGEST as u64)).read_line(&mut line)?;
    if line.ends_with('\n') {
        Ok(line)
    } else {
        Err(io::Error::new(io::ErrorKind::InvalidData, "no whole line"))
    }
}

fn write_line(mut stream: &UnixStream, value: &impl Serialize) -> io::Result<()> {
    let mut line = serde_json::to_vec(value).map_err(io::Error::other)?;
    line.push(b'\n');
    stream.write_all(&line)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn t0_requests_survive_json_and_strangers_are_refused() {
        let request = Request::AddProcess { pids: vec![1, 2] };
        let text = serde_json::to_string(&request).unwrap();
        assert_eq!(text, r#"{"request":"add_process","pids":[1,2]}"#);
        assert_eq!(serde_json::from_str::<Request>(&text).unwrap(), request);
        for bad in [r#"{"request":"fly"}"#, r#"{"request":"send","x":1}"#, "[]", ""] {
            assert!(serde_json::from_str::<Request>(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn t0_names_of_macs_cannot_leave_their_directory() {
        for bad in ["", "../x", "a/b", ".hidden", "a b"] {
            assert!(socket_path(bad).is_err(), "{bad}");
        }
    }
}
