// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Asks a `ptp4l` how it is, over the local socket that it takes management messages on.
//!
//! A `ptp4l` hears only messages of its own domain and transport, so both must be known or found.

use std::fs;
use std::io;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde::Serialize;
use thiserror::Error;

use super::dataset::{
    CurrentDataSet, DataSet, DataSetId, DefaultDataSet, GrandmasterSettings, ParentDataSet,
    PortDataSet, PortIdentity, PortStats, TimeProperties, TimeStatus,
};
use super::management::{Action, Body, Management};

/// How long an answer may take.
const TIMEOUT: Duration = Duration::from_millis(300);
/// The longest message.
const LONGEST: usize = 2_048;
/// A clock with more ports is looked at in part.
const MAX_PORTS: u16 = 32;

/// Why a `ptp4l` could not be asked.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ClientError {
    /// Nobody listens.
    #[error("no ptp4l listens on {path}: {source}", path = .path.display())]
    Nobody {
        /// The socket.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// The own end of the talk could not be made.
    #[error("cannot make the socket {path}: {source}", path = .path.display())]
    Own {
        /// The socket.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// It does not answer.
    #[error(
        "{path} does not answer a question about {what} (domain {domain}, transport {transport})",
        path = .path.display()
    )]
    Silent {
        /// The socket.
        path: PathBuf,
        /// What was asked about.
        what: &'static str,
        /// In which domain.
        domain: u8,
        /// With which `transportSpecific`.
        transport: u8,
    },
    /// It refuses.
    #[error("{path} refuses a question about {what}: {why}", path = .path.display())]
    Refused {
        /// The socket.
        path: PathBuf,
        /// What was asked about.
        what: &'static str,
        /// Why.
        why: &'static str,
    },
}

/// The domain and transport that a `ptp4l` hears.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Hears {
    /// PTP domain.
    pub domain: u8,
    /// 0 for plain PTP, 1 for 802.1AS.
    pub transport_specific: u8,
}

/// How a `ptp4l` is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PtpState {
    /// The clock.
    pub default: DefaultDataSet,
    /// What it follows, by the protocol.
    pub current: CurrentDataSet,
    /// Whom it follows.
    pub parent: ParentDataSet,
    /// What time it is that is given.
    pub time: TimeProperties,
    /// What it follows, to the nanosecond.
    pub status: TimeStatus,
    /// What it says when it gives the time.
    pub grandmaster: GrandmasterSettings,
    /// Its ports, and what they counted, where it tells.
    pub ports: Vec<(PortDataSet, Option<PortStats>)>,
}

/// Someone who asks.
#[derive(Debug)]
pub struct Client {
    socket: UnixDatagram,
    own: PathBuf,
    server: PathBuf,
    hears: Hears,
    sequence: u16,
}

impl Client {
    /// Makes the own end, `own`, to which answers come; it is removed with the value. Nothing is
    /// sent yet.
    ///
    /// **Errors**: the own end cannot be made.
    pub fn new(server: &Path, own: &Path, hears: Hears) -> Result<Client, ClientError> {
        let failed = |source| ClientError::Own { path: own.to_owned(), source };
        // Of a process of the same number that was killed.
        match fs::remove_file(own) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed(error)),
            _ => {}
        }
        let socket = UnixDatagram::bind(own).map_err(failed)?;
        socket.set_write_timeout(Some(TIMEOUT)).map_err(failed)?;
        let (own, server) = (own.to_owned(), server.to_owned());
        Ok(Client { socket, own, server, hears, sequence: 0 })
    }

    /// Finds out what a `ptp4l` hears: the usual first, then every domain.
    ///
    /// **Errors**: nobody listens, or it answers in no domain.
    pub fn find(server: &Path, own: &Path) -> Result<Client, ClientError> {
        let both = |domain| [1, 0].map(|transport_specific| Hears { domain, transport_specific });
        let mut client = Client::new(server, own, both(0)[0])?;
        for domain in 0..128 {
            for hears in both(domain) {
                client.hears = hears;
                client.send(DataSetId::Default, EVERY_PORT, Action::Get)?;
            }
            // One answer is enough, and says in which domain it was heard.
            let timeout = if domain == 0 { TIMEOUT } else { Duration::from_millis(20) };
            if let Some(answer) = client.receive(timeout) {
                client.hears =
                    Hears { domain: answer.domain, transport_specific: answer.transport_specific };
                return Ok(client);
            }
        }
        Err(ClientError::Silent {
            path: server.to_owned(),
            what: "itself, in any domain",
            domain: 127,
            transport: 1,
        })
    }

    /// The socket of the `ptp4l`.
    pub fn server(&self) -> &Path {
        &self.server
    }

    /// What it hears.
    pub fn hears(&self) -> Hears {
        self.hears
    }

    /// Asks about everything.
    ///
    /// **Errors**: it does not answer, or refuses something that every version has.
    pub fn state(&mut self) -> Result<PtpState, ClientError> {
        let default = self.default_data_set()?;
        let DataSet::Current(current) = self.ask(DataSetId::Current)? else { other_set() };
        let DataSet::Parent(parent) = self.ask(DataSetId::Parent)? else { other_set() };
        let DataSet::Grandmaster(grandmaster) = self.ask(DataSetId::Grandmaster)? else {
            other_set()
        };
        let (time, status) = (self.time_properties()?, self.time_status()?);
        let mut ports = Vec::new();
        for port in 1..=default.ports.min(MAX_PORTS) {
            let target = PortIdentity { clock: default.clock, port };
            let DataSet::Port(data) = self.ask_port(DataSetId::Port, target)? else { other_set() };
            // Older versions do not count.
            let stats = match self.ask_port(DataSetId::PortStats, target) {
                Ok(DataSet::PortStats(stats)) => Some(*stats),
                Err(ClientError::Refused { .. }) => None,
                Err(error) => return Err(error),
                Ok(_) => other_set(),
            };
            ports.push((data, stats));
        }
        Ok(PtpState { default, current, parent, time, status, grandmaster, ports })
    }

    /// The clock itself.
    pub fn default_data_set(&mut self) -> Result<DefaultDataSet, ClientError> {
        let DataSet::Default(set) = self.ask(DataSetId::Default)? else { other_set() };
        Ok(set)
    }

    /// What time it is that is given.
    pub fn time_properties(&mut self) -> Result<TimeProperties, ClientError> {
        let DataSet::TimeProperties(set) = self.ask(DataSetId::TimeProperties)? else {
            other_set()
        };
        Ok(set)
    }

    /// What it follows.
    pub fn time_status(&mut self) -> Result<TimeStatus, ClientError> {
        let DataSet::TimeStatus(set) = self.ask(DataSetId::TimeStatus)? else { other_set() };
        Ok(set)
    }

    /// What each port does.
    pub fn ports(&mut self, default: &DefaultDataSet) -> Result<Vec<PortDataSet>, ClientError> {
        let mut ports = Vec::new();
        for port in 1..=default.ports.min(MAX_PORTS) {
            let target = PortIdentity { clock: default.clock, port };
            let DataSet::Port(data) = self.ask_port(DataSetId::Port, target)? else { other_set() };
            ports.push(data);
        }
        Ok(ports)
    }

    /// What each port counted; none of a version that does not count.
    pub fn stats(&mut self) -> Result<Vec<PortStats>, ClientError> {
        let default = self.default_data_set()?;
        let mut all = Vec::new();
        for port in 1..=default.ports.min(MAX_PORTS) {
            let target = PortIdentity { clock: default.clock, port };
            match self.ask_port(DataSetId::PortStats, target) {
                Ok(DataSet::PortStats(stats)) => all.push(*stats),
                Err(ClientError::Refused { .. }) => {}
                Err(error) => return Err(error),
                Ok(_) => other_set(),
            }
        }
        Ok(all)
    }

    /// Asks about a data set of the clock.
    ///
    /// **Errors**: nobody listens, it does not answer, or refuses.
    pub fn ask(&mut self, id: DataSetId) -> Result<DataSet, ClientError> {
        self.ask_port(id, EVERY_PORT)
    }

    /// Asks about a data set of one port.
    ///
    /// **Errors**: as [`Client::ask`].
    pub fn ask_port(&mut self, id: DataSetId, port: PortIdentity) -> Result<DataSet, ClientError> {
        self.send(id, port, Action::Get)?;
        let give_up = Instant::now() + TIMEOUT;
        loop {
            let left = give_up.saturating_duration_since(Instant::now());
            let Some(answer) = self.receive(left) else {
                return Err(ClientError::Silent {
                    path: self.server.clone(),
                    what: id.name(),
                    domain: self.hears.domain,
                    transport: self.hears.transport_specific,
                });
            };
            // A late answer to an earlier question is none to this one.
            if answer.sequence != self.sequence || answer.action != Action::Response {
                continue;
            }
            match answer.body {
                Body::Values(set) if set.id() == id => return Ok(*set),
                Body::Refused { error, .. } => {
                    return Err(ClientError::Refused {
                        path: self.server.clone(),
                        what: id.name(),
                        why: error.words(),
                    });
                }
                _ => {}
            }
        }
    }

    fn send(
        &mut self,
        id: DataSetId,
        port: PortIdentity,
        action: Action,
    ) -> Result<(), ClientError> {
        self.sequence = self.sequence.wrapping_add(1);
        let number = std::process::id().to_be_bytes();
        let question = Management {
            transport_specific: self.hears.transport_specific,
            domain: self.hears.domain,
            source: PortIdentity {
                clock: Default::default(),
                port: u16::from_be_bytes([number[2], number[3]]),
            },
            sequence: self.sequence,
            target: port,
            boundary_hops: 0,
            action,
            body: Body::Question(id),
        };
        self.socket
            .send_to(&question.emit(), &self.server)
            .map(drop)
            .map_err(|source| ClientError::Nobody { path: self.server.clone(), source })
    }

    /// The next message; what is none is skipped.
    fn receive(&self, timeout: Duration) -> Option<Management> {
        let give_up = Instant::now() + timeout;
        let mut bytes = [0; LONGEST];
        loop {
            let left = give_up.saturating_duration_since(Instant::now());
            if left.is_zero() || self.socket.set_read_timeout(Some(left)).is_err() {
                return None;
            }
            match self.socket.recv(&mut bytes) {
                Ok(length) => match Management::parse(&bytes[..length]) {
                    Ok(message) => return Some(message),
                    Err(_) => continue,
                },
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(_) => return None,
            }
        }
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        // Nobody sends to it any more.
        let _ = fs::remove_file(&self.own);
    }
}

/// Every clock and every port that hears it.
const EVERY_PORT: PortIdentity =
    PortIdentity { clock: super::dataset::ClockIdentity([0xFF; 8]), port: 0xFFFF };

fn other_set() -> ! {
    unreachable!("`ask` takes only the data set that it asked about")
}
