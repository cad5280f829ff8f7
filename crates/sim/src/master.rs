// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The master of time among kernels that share it: the calendar of the external time-travel
//! protocol of User-Mode Linux (`linux v6.12 include/uapi/linux/um_timetravel.h`).
//!
//! Not here: sockets, sequence numbers and acknowledgements (`timewire-lab`).

use thiserror::Error;
use timewire_base::{Instant, Span, Tai};

use crate::{SimTime, StationClock};

/// What a participant's own clock has counted since the simulation started.
///
/// **Units**: nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LocalNs(pub u64);

/// A participant, by its place in the list the master was made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Participant(pub usize);

/// What a participant says. Times are readings of its own clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Message {
    /// It is there, and asks to begin.
    Start,
    /// It wants to run at this time at the latest; the latest request is the one that counts.
    Request(LocalNs),
    /// It stops, until it is run again.
    Wait,
    /// What time is it?
    Get,
    /// Its own time, before it does something that others can see.
    Update(LocalNs),
    /// What does its wall clock show?
    GetTimeOfDay,
}

/// What happens next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// The network has an event now; ask again when it is dealt with.
    Network(SimTime),
    /// A participant begins: its start is acknowledged now.
    Begin(Participant),
    /// A participant runs.
    Run {
        /// Who.
        who: Participant,
        /// The time it asked for.
        time: LocalNs,
        /// It need not ask again for any time before this one.
        free_until: LocalNs,
    },
    /// Nobody will ever run again: all wait for ever, and the network is quiet.
    Asleep,
    /// All participants have ended.
    Over,
}

/// A participant that breaks the protocol.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("participant {} breaks the time-travel protocol at {at}: {what}", who.0)]
pub struct TimeError {
    /// Who.
    pub who: Participant,
    /// When.
    pub at: SimTime,
    /// What it did.
    pub what: String,
}

/// How far a participant may move its time by itself.
const LONGEST_FREE: Span = Span::from_ms(100);

/// Decides who runs when. One participant runs at a time, the others wait, and what it does is done
/// at one instant, [`TimeMaster::now`], until it tells a later one.
///
/// The order of what happens at one instant is part of the promise: first the network, then
/// participants in the order of the list. So the same messages give the same turns.
///
/// **Rounding**: a participant that asks for a reading of its clock runs at the first instant at
/// which its clock reads that, and reads exactly that. One that is interrupted at an instant reads
/// its clock rounded down to a nanosecond; what it then does happens at that instant.
#[derive(Clone, Debug)]
pub struct TimeMaster {
    epoch: Instant<Tai>,
    now: SimTime,
    participants: Vec<State>,
}

#[derive(Clone, Debug)]
struct State {
    clock: StationClock,
    phase: Phase,
    /// When it wants to run. `None`: only when it is interrupted.
    request: Option<LocalNs>,
    /// The time at which it was last let run; it may always act at that time.
    granted: LocalNs,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Absent,
    Ready,
    /// Until before the given reading of its clock it may move its time by itself.
    Running(Bound),
    Waiting,
    Gone,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Bound {
    /// It must ask for every step.
    Asks,
    Before(LocalNs),
}

impl TimeMaster {
    /// A simulation that starts at `epoch`, with one participant for each clock.
    pub fn new(epoch: Instant<Tai>, clocks: Vec<StationClock>) -> TimeMaster {
        let state =
            |clock| State { clock, phase: Phase::Absent, request: None, granted: LocalNs(0) };
        let participants = clocks.into_iter().map(state).collect();
        TimeMaster { epoch, now: SimTime::START, participants }
    }

    /// The present.
    pub fn now(&self) -> SimTime {
        self.now
    }

    /// The TAI instant at which the simulation started.
    pub fn epoch(&self) -> Instant<Tai> {
        self.epoch
    }

    /// The clock of a participant.
    pub fn clock(&self, who: Participant) -> &StationClock {
        &self.participants[who.0].clock
    }

    /// Whether all participants have said that they are there.
    pub fn is_complete(&self) -> bool {
        self.participants.iter().all(|state| state.phase != Phase::Absent)
    }

    /// The one that runs.
    pub fn running(&self) -> Option<Participant> {
        let runs = |state: &State| matches!(state.phase, Phase::Running(_));
        self.participants.iter().position(runs).map(Participant)
    }

    /// Whether a participant waits, and so may be interrupted.
    pub fn is_waiting(&self, who: Participant) -> bool {
        self.participants[who.0].phase == Phase::Waiting
    }

    /// Takes a message and answers with the time of its acknowledgement; `None` when it is
    /// acknowledged later, with [`Turn::Begin`].
    ///
    /// **Errors**: the message is not one that the participant may send now.
    pub fn on(&mut self, who: Participant, message: Message) -> Result<Option<LocalNs>, TimeError> {
        let phase = self.participants[who.0].phase;
        let known = matches!(phase, Phase::Running(_) | Phase::Waiting);
        match message {
            Message::Start if phase == Phase::Absent => {
                self.participants[who.0].phase = Phase::Ready;
                Ok(None)
            }
            Message::Request(time) if known => {
                // The kernel says "for ever" with the largest signed value.
                let for_ever = time.0 >= i64::MAX.unsigned_abs();
                self.participants[who.0].request = (!for_ever).then_some(time);
                Ok(Some(LocalNs(0)))
            }
            Message::Wait if matches!(phase, Phase::Running(_)) => {
                self.participants[who.0].phase = Phase::Waiting;
                Ok(Some(LocalNs(0)))
            }
            Message::Get if known => Ok(Some(self.participants[who.0].clock.read(self.now))),
            Message::Update(time) if matches!(phase, Phase::Running(_)) => {
                self.update(who, time)?;
                Ok(Some(LocalNs(0)))
            }
            Message::GetTimeOfDay if known => {
                let wall = self.participants[who.0].clock.wall(self.epoch, self.now);
                let ns = u64::try_from(wall.as_ns());
                let before = || self.error(who, "its wall clock shows a time before 1970".into());
                ns.map(|ns| Some(LocalNs(ns))).map_err(|_| before())
            }
            _ => Err(self.error(who, format!("{message:?} while it is {phase:?}"))),
        }
    }

    /// A running participant has come to a later time by itself.
    fn update(&mut self, who: Participant, time: LocalNs) -> Result<(), TimeError> {
        let state = &self.participants[who.0];
        if let Phase::Running(Bound::Before(bound)) = state.phase
            && time >= bound.max(LocalNs(state.granted.0 + 1))
        {
            return Err(self.error(who, format!("it ran to {} ns, beyond {} ns", time.0, bound.0)));
        }
        match state.clock.reaches(time) {
            Some(at) => {
                self.now = self.now.max(at);
                Ok(())
            }
            None => Err(self.error(who, format!("its time is {} ns", time.0))),
        }
    }

    fn error(&self, who: Participant, what: String) -> TimeError {
        TimeError { who, at: self.now, what }
    }

    /// A participant has ended.
    pub fn gone(&mut self, who: Participant) {
        self.participants[who.0].phase = Phase::Gone;
    }

    /// Takes the next turn; `network` is the network's next event.
    ///
    /// **Panics** when a participant runs, or has not said that it is there: then nobody knows
    /// what comes next.
    pub fn next(&mut self, network: Option<SimTime>) -> Turn {
        assert!(
            self.running().is_none() && self.is_complete(),
            "nobody may run, all must be there"
        );
        if self.participants.iter().all(|state| state.phase == Phase::Gone) {
            return Turn::Over;
        }
        let ready = |state: &State| state.phase == Phase::Ready;
        if let Some(who) = self.participants.iter().position(ready) {
            self.participants[who].phase = Phase::Running(Bound::Asks);
            return Turn::Begin(Participant(who));
        }
        let earliest = (0..self.participants.len())
            .filter_map(|who| self.due(Participant(who)).map(|at| (at, who)))
            .min();
        match (network, earliest) {
            (Some(at), None) => self.network(at),
            (Some(at), Some((due, _))) if at <= due => self.network(at),
            (_, Some((due, who))) => self.run(Participant(who), due, network),
            (None, None) => Turn::Asleep,
        }
    }

    fn network(&mut self, at: SimTime) -> Turn {
        self.now = self.now.max(at);
        Turn::Network(self.now)
    }

    fn run(&mut self, who: Participant, due: SimTime, network: Option<SimTime>) -> Turn {
        self.now = due;
        let time = self.participants[who.0].request.take();
        let time = time.expect("invariant: who is due has asked for a time");
        let free_until = self.bound(who, network);
        self.participants[who.0].phase = Phase::Running(Bound::Before(free_until));
        self.participants[who.0].granted = time;
        Turn::Run { who, time, free_until }
    }

    /// The network's next event may have come nearer by what the running participant did: the new
    /// bound of its freedom, when it is an earlier one.
    pub fn narrowed(&mut self, network: Option<SimTime>) -> Option<(Participant, LocalNs)> {
        let who = self.running()?;
        let Phase::Running(old) = self.participants[who.0].phase else { return None };
        let new = self.bound(who, network);
        let Bound::Before(old) = old else { return None };
        if new >= old {
            return None;
        }
        self.participants[who.0].phase = Phase::Running(Bound::Before(new));
        Some((who, new))
    }

    /// Until when a participant may run: before anything else happens, and not for too long without
    /// a word.
    fn bound(&self, who: Participant, network: Option<SimTime>) -> LocalNs {
        let others = (0..self.participants.len()).map(Participant).filter(|other| *other != who);
        let next = others.filter_map(|other| self.due(other)).chain(network);
        let next = next.fold(self.now.plus(LONGEST_FREE), SimTime::min);
        // Its clock's reading at the last picosecond before that is the last it may have.
        let last = next.as_ps().checked_sub(1).map(SimTime::from_ps);
        LocalNs(last.map_or(0, |last| self.participants[who.0].clock.read(last).0 + 1))
    }

    /// When a waiting participant wants to run: never before the present.
    fn due(&self, who: Participant) -> Option<SimTime> {
        let state = &self.participants[who.0];
        let request = state.request.filter(|_| state.phase == Phase::Waiting)?;
        state.clock.reaches(request).map(|at| at.max(self.now))
    }
}

#[cfg(test)]
mod tests;
