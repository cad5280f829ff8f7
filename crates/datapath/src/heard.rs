// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What sockets hear of frames that did not leave, counted from reports and events.

use timewire_base::drops::{Heard, Socket, SocketLaunch};

use crate::talker::StreamEventKind;
use crate::transmit::{LaunchClock, LaunchRefusal, NotSent, TransmitOptions, TxReport};

/// Counting into [`Heard`].
pub trait Hear {
    /// Counts a report of a port.
    fn report(&mut self, report: &TxReport);
    /// Counts a message that a port did not take.
    fn not_sent(&mut self, why: &NotSent);
    /// Counts an event of a talker; nothing is allocated.
    fn event(&mut self, what: &StreamEventKind);
    /// Counts an entry of the error queue. The send call of a frame whose launch time is invalid
    /// fails as well.
    fn launch_refused(&mut self, why: LaunchRefusal);
}

impl Hear for Heard {
    fn report(&mut self, report: &TxReport) {
        match report {
            TxReport::NotTaken { error, .. } => self.not_taken(error.raw_os_error().unwrap_or(0)),
            TxReport::LaunchRefused { why, .. } => self.launch_refused(*why),
            TxReport::Timestamp { .. } | TxReport::Other { .. } => {}
        }
    }

    fn not_sent(&mut self, why: &NotSent) {
        match why {
            NotSent::Full => self.again += 1,
            NotSent::Refused(error) => self.not_taken(error.raw_os_error().unwrap_or(0)),
        }
    }

    #[inline]
    fn event(&mut self, what: &StreamEventKind) {
        match what {
            StreamEventKind::Sent { at, launch: Some(launch), .. } if launch < at => self.past += 1,
            StreamEventKind::NotTaken { errno } => self.not_taken(*errno),
            StreamEventKind::LaunchRefused { why, .. } => self.launch_refused(*why),
            _ => {}
        }
    }

    fn launch_refused(&mut self, why: LaunchRefusal) {
        match why {
            LaunchRefusal::Invalid => self.invalid += 1,
            LaunchRefusal::Missed => self.missed += 1,
        }
    }
}

impl TransmitOptions {
    /// A socket as it is opened with these.
    pub fn socket(&self, interface: Option<String>) -> Socket {
        Socket {
            interface,
            launch: self.launch.map(|launch| SocketLaunch {
                is_tai: launch.clock == LaunchClock::Tai,
                deadline: launch.deadline,
            }),
            priority: self.priority,
            bypasses_qdisc: self.qdisc_bypass,
        }
    }
}
