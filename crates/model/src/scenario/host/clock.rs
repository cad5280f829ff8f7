// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How the clock of a host is kept on time.

use timewire_base::{IfName, Span};

use crate::scenario::item::Reader;
use crate::scenario::record::{choice, record};
use crate::scenario::value::Count;

record! {
    /// How the clock is kept on time, with linuxptp.
    pub struct DesiredClock {
        /// The daemons that are to run.
        daemons: Vec<ClockDaemon> = "[ptp4l]",
        /// Interfaces that take part in PTP.
        interfaces: Vec<IfName>,
        /// Which part this host has.
        role: ClockRole = "auto",
        /// Who timestamps messages.
        timestamps: Timestamps = "auto",
        /// PTP domain.
        domain: Count<0, 127> = "0",
        /// `gPTP` (IEEE 802.1AS) instead of plain PTP.
        gptp: bool = "true",
        /// What carries the messages. gPTP knows only Ethernet.
        transport: ClockTransport = "l2",
        /// `priority1` of IEEE 1588: of two clocks that could give the time, the one with the lower
        /// number does. Without the key 64 for a transmitter, 248 for others.
        priority: Option<Count<0, 255>>,
        /// Time from one message with the time to the next: a power of two of a second, 1/128 to
        /// 16. Without the key 125 ms with gPTP, else 1 s.
        interval: Option<Span>,
        /// Whether clocks are set and steered. Without, they are only compared.
        adjust: bool = "true",
        /// When it is on time.
        limits: SyncLimits = "{}",
        /// TAI - UTC in seconds, which the kernel is to have.
        tai_offset: Option<Count<0, 127>>,
    }
}

choice! {
    /// A daemon of linuxptp.
    pub enum ClockDaemon {
        /// Keeps the clock of the NIC, or with software timestamps that of the system, on PTP time.
        Ptp4l = "ptp4l",
        /// Keeps the clock of the system on that of the NIC, or the other way round.
        Phc2sys = "phc2sys",
        /// Keeps the clock of the NIC on a pulse per second.
        Ts2phc = "ts2phc",
    }
}

choice! {
    /// Which part a host has in PTP.
    pub enum ClockRole {
        /// The best clock is found.
        Auto = "auto",
        /// Never gives the time.
        Receiver = "receiver",
        /// Gives the time as long as there is no better one.
        Transmitter = "transmitter",
    }
}

choice! {
    /// Who timestamps PTP messages.
    pub enum Timestamps {
        /// The NIC where it can, else the kernel.
        Auto = "auto",
        /// The NIC.
        Hardware = "hardware",
        /// The kernel.
        Software = "software",
    }
}

choice! {
    /// What carries PTP messages.
    pub enum ClockTransport {
        /// Ethernet frames of type 0x88F7.
        L2 = "l2",
        /// UDP over IPv4, ports 319 and 320.
        Udp4 = "udp4",
        /// UDP over IPv6.
        Udp6 = "udp6",
    }
}

record! {
    /// When a clock is on time.
    pub struct SyncLimits {
        /// Farther off than this, it is not.
        offset: Span = "1us",
        /// So many samples one after another within half of it, and it is again.
        good_samples: Count<1, 1000> = "8",
        /// Without a sample for so long, it is not.
        silence: Span = "3s",
    }
}

impl DesiredClock {
    /// `priority1` of IEEE 1588.
    pub fn priority1(&self) -> u64 {
        let by_role = if self.role == ClockRole::Transmitter { 64 } else { 248 };
        self.priority.map_or(by_role, Count::get)
    }

    /// Time from one message with the time to the next.
    pub fn sync_interval(&self) -> Span {
        self.interval.unwrap_or(if self.gptp { Span::from_ms(125) } else { Span::from_secs(1) })
    }

    /// The same as a power of two of a second, as IEEE 1588 writes it.
    pub fn log_sync_interval(&self) -> i8 {
        log_interval(self.sync_interval()).expect("invariant: the reader has checked it")
    }
}

/// The exponent of a power of two of a second, -7 to 4; `None` when it is none.
fn log_interval(span: Span) -> Option<i8> {
    let exact = |log: i8| {
        let second = 1_000_000_000_i64;
        match u32::try_from(log) {
            Ok(up) => second << up,
            // Down to 1/128 s these are whole nanoseconds.
            Err(_) => second >> log.unsigned_abs(),
        }
    };
    (-7..=4).find(|&log| exact(log) == span.as_ns())
}

/// Compares the values of a clock with each other.
pub(super) fn check(path: &str, clock: &DesiredClock, reader: &mut Reader) {
    check_daemons(path, clock, reader);
    let mut seen: Vec<&IfName> = Vec::new();
    for (i, interface) in clock.interfaces.iter().enumerate() {
        if seen.contains(&interface) {
            let message = format!("{interface} is there before");
            reader.fail_at(&format!("{path}.interfaces[{i}]"), message, "name it once");
        }
        seen.push(interface);
    }
    if clock.interfaces.is_empty() {
        let hint = "name at least one, such as [eth0]";
        reader.fail_at(&format!("{path}.interfaces"), "no interface takes part".into(), hint);
    }
    if clock.gptp && clock.transport != ClockTransport::L2 {
        let message = format!("gPTP does not go over {}", clock.transport.word());
        let hint = "leave `transport` out, or set `gptp: false`";
        reader.fail_at(&format!("{path}.transport"), message, hint);
    }
    if let Some(interval) = clock.interval
        && log_interval(interval).is_none()
    {
        let message = format!("{interval} is no power of two of a second from 1/128 to 16");
        let hint = "such as 125ms, 250ms, 500ms, 1s, 2s; 31.25ms is 1/32 of a second";
        reader.fail_at(&format!("{path}.interval"), message, hint);
    } else {
        check_limits(path, clock, reader);
    }
}

fn check_daemons(path: &str, clock: &DesiredClock, reader: &mut Reader) {
    use ClockDaemon as D;
    let mut seen = Vec::new();
    for (i, daemon) in clock.daemons.iter().enumerate() {
        let key = format!("{path}.daemons[{i}]");
        let word = daemon.word();
        if seen.contains(daemon) {
            reader.fail_at(&key, format!("{word} is there before"), "name it once");
        }
        seen.push(*daemon);
        let no_nic = clock.timestamps == Timestamps::Software;
        if *daemon != D::Ptp4l && no_nic {
            let message =
                format!("{word} steers the clock of a NIC, which software timestamps leave out");
            let hint = "remove it, or write `timestamps: hardware`";
            reader.fail_at(&key, message, hint);
        }
        if *daemon == D::Ts2phc && clock.role == ClockRole::Receiver {
            let message = "ts2phc gives the NIC its time, and a receiver takes it from PTP".into();
            let hint = "remove it, or write `role: transmitter`";
            reader.fail_at(&key, message, hint);
        }
    }
    if !seen.contains(&D::Ptp4l) {
        let message = "without ptp4l nothing compares this clock with others".into();
        reader.fail_at(&format!("{path}.daemons"), message, "write [ptp4l] or [ptp4l, phc2sys]");
    }
}

fn check_limits(path: &str, clock: &DesiredClock, reader: &mut Reader) {
    let limits = &clock.limits;
    if limits.offset <= Span::ZERO || limits.offset > OFFSET_MAX {
        let message = format!("{} is no bound of an offset", limits.offset);
        let hint = "write 1ns to 1s; software timestamps reach some 10us, those of NICs 1us";
        reader.fail_at(&format!("{path}.limits.offset"), message, hint);
    }
    let interval = clock.sync_interval();
    let least = interval.checked_mul(2).expect("invariant: at most 16 s");
    if limits.silence < least || limits.silence > SILENCE_MAX {
        let message =
            format!("a silence of {} is not from {least} to {SILENCE_MAX}", limits.silence);
        let hint = format!(
            "the time comes every {interval}: one message that is lost is no silence yet, and \
             nothing that takes longer than a minute is noticed in time"
        );
        reader.fail_at(&format!("{path}.limits.silence"), message, &hint);
    }
}

const OFFSET_MAX: Span = Span::from_secs(1);
const SILENCE_MAX: Span = Span::from_secs(60);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn t0_intervals_are_powers_of_two_of_a_second() {
        let of = |ns| log_interval(Span::from_ns(ns));
        assert_eq!(of(1_000_000_000), Some(0));
        assert_eq!(
            (of(125_000_000), of(7_812_500), of(16_000_000_000)),
            (Some(-3), Some(-7), Some(4))
        );
        for none in [0, -1_000_000_000, 3_906_250, 32_000_000_000, 100_000_000, 1] {
            assert_eq!(of(none), None, "{none}");
        }
    }
}
