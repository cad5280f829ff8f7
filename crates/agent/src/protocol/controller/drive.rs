// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a controller does: what it says to each station next, when a group of stations is done, and
//! what follows from an answer.

use std::collections::{BTreeMap, BTreeSet};

use timewire_base::{Instant, Mono, Span, StationName, Tai};

use super::state::{Group, Kept, Outstanding, Progress, Station};
use super::{Action, ActualStart, Cause, Controller, Entry};
use crate::protocol::clock::{ClockBound, Now};
use crate::protocol::message::{Answer, Ask, FromAgent, Standing, ToAgent};
use crate::protocol::name::RecordName;
use crate::protocol::outcome::{CommandOutcome, FailureKind, Why};
use crate::protocol::plan::{LEASES, Phase, Timing};

/// So many exchanges of clock readings before the station takes part.
pub(super) const EXCHANGES: usize = 4;
/// And so many at most until they show whether its clock is near enough: a host or a network that
/// is busy for a moment makes an exchange inexact.
const MAX_VAGUE: u32 = 32;
/// Most questions for a clock of which an answer may still come.
const OPEN_EXCHANGES: usize = 8;

// Over TCP a lost segment costs a round trip or two, and each further loss of it twice as much as
// the one before. Three in a row are seldom where one in twenty is lost, and cost 14 round trips.

/// A lease outlasts so many round trips.
const LEASE_ROUND_TRIPS: i64 = 32;
/// But is no longer than so many times what the plan says.
const LONGEST_LEASE: i64 = 8;
/// The common start is so many round trips ahead, so that all stations have their orders.
const LEAD_ROUND_TRIPS: i64 = 16;
/// An answer is waited for so many round trips.
const RESEND_ROUND_TRIPS: i64 = 2;
/// Most doublings of the time until something is said again.
const MAX_DOUBLINGS: u32 = 16;

pub(super) fn times(span: Span, factor: i64) -> Span {
    Span::from_ns(span.as_ns().saturating_mul(factor))
}

impl Station {
    /// Its lease: what the plan says, and longer when it is far away.
    fn lease(&self, timing: &Timing) -> Span {
        let far = times(self.clock.round_trip(), LEASE_ROUND_TRIPS);
        let longest = times(timing.lease, LONGEST_LEASE).min(LEASES.1);
        timing.lease.max(far.min(longest))
    }

    /// How far ahead its start must be.
    fn lead(&self, timing: &Timing) -> Span {
        let far = times(self.clock.round_trip(), LEAD_ROUND_TRIPS);
        timing.lead.max(far.min(self.lease(timing)))
    }

    /// After so long without an answer something is said again. Answers that are long under way,
    /// as long records over a slow network, are not asked for again and again.
    fn resend(&self, timing: &Timing) -> Span {
        let far = times(self.clock.round_trip(), RESEND_ROUND_TRIPS);
        let once = timing.resend.max(far).as_ns();
        let doubled = Span::from_ns(once.saturating_mul(1 << self.doublings.min(MAX_DOUBLINGS)));
        doubled.min(self.lease(timing))
    }

    /// Whether more exchanges can show that its clock is near enough for the common start.
    fn is_vague(&self, timing: &Timing, now: Instant<Mono>) -> bool {
        let runs = !self.part(Phase::Run).steps.is_empty();
        self.clock.bound(now).filter(|_| runs).is_some_and(|bound| {
            let (offset, error) = (bound.offset.as_ns().saturating_abs(), bound.error.as_ns());
            let may = offset.saturating_sub(error) <= timing.clock_within.as_ns();
            may && bound.apart() > timing.clock_within
        })
    }

    /// Whether its clock is known as well as it has to be, or will not be.
    fn has_clock(&self, timing: &Timing, now: Instant<Mono>) -> bool {
        let is_clear = self.vague >= MAX_VAGUE || !self.is_vague(timing, now);
        self.clock.count() >= EXCHANGES && is_clear
    }

    /// Whether the group need not wait for it.
    fn is_done(&self, phase: Phase, timing: &Timing, now: Instant<Mono>) -> bool {
        let settled = |kept: &Kept| matches!(kept.progress, Progress::Dropped | Progress::GivenUp);
        let is_settled = match phase {
            Phase::Setup => self.begun && self.clock.count() >= EXCHANGES,
            Phase::Open | Phase::Run => self.has_clock(timing, now),
            Phase::Finish | Phase::Close => true,
            Phase::Report => self.records.iter().all(settled),
            Phase::Teardown => self.restored.is_some() && (self.forgotten || !self.has_all()),
        };
        let is_idle = self.jobs.is_empty() && self.outstanding.is_none();
        !self.active || self.abandoned || (is_idle && is_settled)
    }

    /// What is to be said, again and again, until it is answered.
    fn next_ask(&self, group: &Group, timing: &Timing) -> Option<Ask> {
        if !self.active || self.abandoned {
            return None;
        }
        if !self.begun {
            // How far away it is says how long its lease must be.
            let (station, lease) = (self.plan.name.clone(), self.lease(timing));
            let is_measured = self.clock.count() >= EXCHANGES;
            return is_measured.then_some(Ask::Begin { station, lease });
        }
        if let Some(Outstanding { number, job, attempt }) = self.outstanding {
            let what = self.what(group, job, attempt)?;
            return Some(Ask::Command { number, what });
        }
        if !self.jobs.is_empty() {
            return None;
        }
        let of_record = |kept: &Kept| {
            let record = kept.record.name.clone();
            match kept.progress {
                Progress::Fetching(offset) => Some(Ask::Fetch { record, offset }),
                Progress::Stored => Some(Ask::Received { record }),
                _ => None,
            }
        };
        match group.phase {
            Phase::Report => self.records.iter().find_map(of_record),
            Phase::Teardown if self.restored.is_some() && self.has_all() && !self.forgotten => {
                // One that was stored before a restart of the controller may not be dropped yet.
                Some(self.records.iter().find_map(of_record).unwrap_or(Ask::Forget))
            }
            _ => None,
        }
    }

    /// Whether it was said before the station took part: its clock is asked before that, and
    /// answers may overtake each other.
    fn is_from_before(&self, message: &FromAgent) -> bool {
        match message.answer {
            Answer::Clock { nonce, .. } if message.standing == Standing::Unknown => {
                let is_open = self.exchanges.iter().any(|(asked, _)| *asked == nonce);
                nonce <= self.begun_after || !is_open
            }
            _ => false,
        }
    }

    /// Its question is said now, for the first time or again.
    fn says(&mut self, now: Instant<Mono>) {
        if self.sent.replace(now).is_some() {
            self.is_repeated = true;
            self.doublings = (self.doublings + 1).min(MAX_DOUBLINGS);
        } else if !std::mem::take(&mut self.is_repeated) {
            // The one before was answered without being repeated.
            self.doublings = self.doublings.saturating_sub(1);
        }
    }

    fn starts_next(&self, now: Instant<Mono>) -> bool {
        let is_free = self.outstanding.is_none() && !self.jobs.is_empty();
        let may = self.active && self.begun && !self.abandoned;
        may && is_free && self.not_before.is_none_or(|at| at <= now)
    }

    /// What the group waits for.
    fn waiting_for(&self, phase: Phase) -> String {
        let what = match self.jobs.front() {
            _ if !self.begun => "its agent".to_owned(),
            Some(job) => format!("`{}`", self.title(phase, *job)),
            None if phase == Phase::Report => "its records".to_owned(),
            None if phase == Phase::Teardown => "the end".to_owned(),
            None => "readings of its clock".to_owned(),
        };
        match &self.refusal {
            Some(refusal) => format!("waiting for {what}; it said: {refusal}"),
            None => format!("waiting for {what}"),
        }
    }

    /// `may_step`: a step may begin.
    fn wake_at(&self, group: &Group, timing: &Timing, may_step: bool) -> Option<Instant<Mono>> {
        let again = self.sent.filter(|_| self.next_ask(group, timing).is_some());
        let again = again.map(|sent| sent.saturating_add(self.resend(timing)));
        let is_idle = self.outstanding.is_none() && !self.jobs.is_empty();
        let waits = self.active && is_idle && may_step;
        let next = self.not_before.filter(|_| waits && self.begun && !self.abandoned);
        let clock = self.next_clock.filter(|_| self.keeps_in_touch());
        let silence = self.heard.filter(|_| self.begun && group.phase < Phase::Report);
        let silence = silence.map(|heard| heard.saturating_add(self.lease(timing)));
        [again, next, clock, silence].into_iter().flatten().min()
    }

    fn keeps_in_touch(&self) -> bool {
        (self.begun || (self.active && !self.abandoned)) && !self.forgotten
    }
}

impl Controller {
    /// The next instant at which it wants a [`super::Event::Tick`].
    pub fn wake_at(&self) -> Option<Instant<Mono>> {
        if self.closed {
            return None;
        }
        let Some(group) = &self.group else { return self.preflight_wakes() };
        let may_step = self.all_joined(group);
        let stations = self.stations.values();
        let stations = stations.filter_map(|s| s.wake_at(group, &self.plan.timing, may_step));
        stations.chain(self.deadline).min()
    }

    /// After a restart all timeouts begin again.
    pub(super) fn restart_clocks(&mut self, now: Now) {
        for station in self.stations.values_mut() {
            station.heard = Some(now.mono);
        }
        if let Some(group) = &self.group {
            self.deadline = Some(self.deadline_of(group, now));
        }
    }

    /// Goes on as far as it can now.
    pub(super) fn advance(&mut self, now: Now, out: &mut Vec<Action>) {
        while !self.closed {
            let Some(phase) = self.group.as_ref().map(|group| group.phase) else {
                if !self.preflight(now, out) {
                    return;
                }
                continue;
            };
            if phase < Phase::Report {
                self.look_for_silence(now, out);
                if !self.failures.is_empty() {
                    self.enter(Phase::Report, 0, now, out);
                    continue;
                }
            }
            self.speak(now, out);
            let waiting: Vec<StationName> = self.waiting(phase, now);
            if waiting.is_empty() {
                self.next_group(phase, now, out);
            } else if self.deadline.is_some_and(|deadline| deadline <= now.mono) {
                self.time_out(phase, &waiting, out);
            } else {
                return;
            }
        }
    }

    fn waiting(&self, phase: Phase, now: Now) -> Vec<StationName> {
        let is_done = |station: &Station| station.is_done(phase, &self.plan.timing, now.mono);
        let waiting = self.stations.iter().filter(|(_, station)| !is_done(station));
        waiting.map(|(name, _)| name.clone()).collect()
    }

    fn time_out(&mut self, phase: Phase, waiting: &[StationName], out: &mut Vec<Action>) {
        let limit = self.plan.timing.of_phase(phase);
        for name in waiting {
            let Some(station) = self.stations.get_mut(name) else { continue };
            station.abandoned = true;
            let waiting_for = station.waiting_for(phase);
            self.fail(Some(name), Cause::Timeout { limit, waiting_for }, out);
        }
    }

    fn look_for_silence(&mut self, now: Now, out: &mut Vec<Action>) {
        let timing = &self.plan.timing;
        let is_silent = |station: &Station| {
            let until = station.heard.map(|heard| heard.saturating_add(station.lease(timing)));
            station.begun && until.is_some_and(|until| until <= now.mono)
        };
        let silent = self.stations.iter().filter(|(_, station)| is_silent(station));
        let silent: Vec<(StationName, Span)> =
            silent.map(|(name, station)| (name.clone(), station.lease(timing))).collect();
        for (name, lease) in silent {
            self.fail(Some(&name), Cause::Silent { lease }, out);
        }
    }

    /// The next order of this phase, the first of the next phase, or the end.
    fn next_group(&mut self, phase: Phase, now: Now, out: &mut Vec<Action>) {
        let order = self.group.as_ref().map_or(0, |group| group.order);
        if let Some(next) = self.orders(phase).range(order..).find(|next| **next > order) {
            return self.enter(phase, *next, now, out);
        }
        match phase.next() {
            Some(next) => self.enter(next, 0, now, out),
            None => {
                self.write(Entry::Closed, out);
                out.push(Action::End(self.end()));
            }
        }
    }

    fn orders(&self, phase: Phase) -> BTreeSet<u32> {
        self.stations.values().map(|station| station.part(phase).order).collect()
    }

    /// Begins the first order of a phase that is at or after this one.
    pub(super) fn enter(&mut self, phase: Phase, least: u32, now: Now, out: &mut Vec<Action>) {
        let order = self.orders(phase).range(least..).next().copied().unwrap_or(least);
        let mut clocks = BTreeMap::new();
        let mut at = None;
        if phase == Phase::Run {
            match self.clocks(order, now) {
                Ok(none) if none.is_empty() => {}
                Ok(known) => {
                    let soon = now.tai.saturating_add(self.lead(known.keys()));
                    at = Some(self.plan.timing.on_step(soon));
                    clocks = known;
                }
                Err(wrong) => {
                    let allowed = self.plan.timing.clock_within;
                    for (name, bound) in wrong {
                        self.fail(Some(&name), Cause::Clock { bound, allowed }, out);
                    }
                    return;
                }
            }
        }
        self.write(Entry::Group { phase, order, at, clocks }, out);
        let group = Group { phase, order, at };
        self.deadline = Some(self.deadline_of(&group, now));
        for station in self.stations.values_mut() {
            let delay = if at.is_some() { Span::ZERO } else { station.part(phase).after };
            station.not_before = Some(now.mono.saturating_add(delay));
            station.refusal = None;
        }
    }

    /// The clocks of the stations that start at the common instant; or those that are too far off.
    #[allow(clippy::type_complexity, reason = "two maps by station")]
    fn clocks(
        &self,
        order: u32,
        now: Now,
    ) -> Result<BTreeMap<StationName, ClockBound>, Vec<(StationName, Option<ClockBound>)>> {
        let (mut known, mut wrong) = (BTreeMap::new(), Vec::new());
        for (name, station) in &self.stations {
            let part = station.part(Phase::Run);
            if part.order != order || part.steps.is_empty() {
                continue;
            }
            match station.clock.bound(now.mono) {
                Some(bound) if bound.apart() <= self.plan.timing.clock_within => {
                    known.insert(name.clone(), bound);
                }
                bound => wrong.push((name.clone(), bound)),
            }
        }
        if wrong.is_empty() { Ok(known) } else { Err(wrong) }
    }

    /// How far ahead the start of these stations is.
    fn lead<'a>(&self, names: impl Iterator<Item = &'a StationName>) -> Span {
        let timing = &self.plan.timing;
        let leads = names.filter_map(|name| self.stations.get(name)).map(|s| s.lead(timing));
        leads.max().unwrap_or(timing.lead)
    }

    fn deadline_of(&self, group: &Group, now: Now) -> Instant<Mono> {
        let ahead = group.at.map_or(0, |at| at.as_ns().saturating_sub(now.tai.as_ns()).max(0));
        let parts = self.stations.values().map(|station| station.part(group.phase));
        let after = parts.filter(|part| part.order == group.order).map(|part| part.after).max();
        let limit = self.plan.timing.of_phase(group.phase);
        let start = now.mono.saturating_add(Span::from_ns(ahead));
        start.saturating_add(after.unwrap_or(Span::ZERO)).saturating_add(limit)
    }

    /// Says to each station what is due.
    fn speak(&mut self, now: Now, out: &mut Vec<Action>) {
        let Some(group) = self.group.clone() else { return };
        let names: Vec<StationName> = self.stations.keys().cloned().collect();
        for name in names {
            self.ask_clock(&name, now, out);
            let Some(station) = self.stations.get(&name) else { continue };
            if self.all_joined(&group) && station.starts_next(now.mono) {
                let number = station.last_number + 1;
                self.write(Entry::Sent { station: name.clone(), number }, out);
                self.station(&name).sent = None;
            }
            let timing = &self.plan.timing;
            let Some(station) = self.stations.get_mut(&name) else { continue };
            let again = station.resend(timing);
            let due = station.sent.is_none_or(|at| at.saturating_add(again) <= now.mono);
            if let Some(ask) = station.next_ask(&group, timing).filter(|_| due) {
                station.says(now.mono);
                let message = ToAgent::new(&self.plan.experiment, ask);
                out.push(Action::Send { station: name, message });
            }
        }
    }

    /// Whether a step may begin: all have looked at their hosts before one changes its own, since
    /// two may be on one machine.
    fn all_joined(&self, group: &Group) -> bool {
        let joins = |station: &Station| station.active && !station.abandoned && !station.begun;
        group.phase > Phase::Setup || !self.stations.values().any(joins)
    }

    /// Asks for the clock, which also renews the lease.
    pub(super) fn ask_clock(&mut self, name: &StationName, now: Now, out: &mut Vec<Action>) {
        let timing = &self.plan.timing;
        let Some(station) = self.stations.get_mut(name) else { return };
        let is_before = self.group.is_none();
        if !(is_before || station.keeps_in_touch())
            || station.next_clock.is_some_and(|at| at > now.mono)
        {
            return;
        }
        let few = !station.has_clock(timing, now.mono);
        let quarter = Span::from_ns(station.lease(timing).as_ns() / 4);
        let open = i64::try_from(station.exchanges.len()).unwrap_or(i64::MAX);
        let soon = times(timing.resend, open.saturating_add(1)).min(quarter);
        self.nonce += 1;
        station.next_clock = Some(now.mono.saturating_add(if few { soon } else { quarter }));
        if station.exchanges.len() == OPEN_EXCHANGES {
            station.exchanges.pop_front();
        }
        station.exchanges.push_back((self.nonce, now));
        let message = ToAgent::new(&self.plan.experiment, Ask::Clock { nonce: self.nonce });
        out.push(Action::Send { station: name.clone(), message });
    }

    /// A station has answered what its clock shows.
    fn has_read_its_clock(
        &mut self,
        name: &StationName,
        nonce: u64,
        now: Now,
        theirs: Instant<Tai>,
    ) {
        let Some(station) = self.stations.get_mut(name) else { return };
        let timing = &self.plan.timing;
        let asked = station.exchanges.iter().position(|(asked, _)| *asked == nonce);
        let Some((_, sent)) = asked.and_then(|at| station.exchanges.remove(at)) else { return };
        station.clock.add(sent, now, theirs);
        let is_vague = station.is_vague(timing, now.mono);
        station.vague = if is_vague { station.vague.saturating_add(1) } else { 0 };
        if !station.has_clock(timing, now.mono) {
            station.next_clock = Some(now.mono);
        }
    }

    pub(super) fn heard(
        &mut self,
        now: Now,
        name: &StationName,
        message: FromAgent,
        out: &mut Vec<Action>,
    ) {
        if message.experiment != self.plan.experiment || !self.stations.contains_key(name) {
            return;
        }
        let nonces = self.nonce;
        let station = self.station(name);
        station.heard = Some(now.mono);
        station.preflight.sign = Some(now.mono);
        (station.preflight.linked, station.preflight.heard) = (true, true);
        station.preflight.unreached = None;
        if !station.is_from_before(&message) {
            self.stands(name, &message.standing, nonces, out);
        }
        match message.answer {
            Answer::Standing | Answer::Running { .. } => {}
            Answer::Preflight { lacks, busy } => {
                self.station(name).preflight.answer = Some((lacks, busy));
            }
            Answer::Busy { with } => {
                self.station(name).refusal = Some(format!("it takes part in `{with}`"));
            }
            Answer::Refused { why } => self.station(name).refusal = Some(why),
            Answer::Clock { nonce, clock } => {
                self.has_read_its_clock(name, nonce, now, clock);
            }
            Answer::Ended { number, outcome, began } => {
                self.started(name, number, (&outcome, began), out);
                self.ended(now, name, number, outcome, out);
            }
            Answer::Piece { record, offset, bytes } => {
                self.piece(now, name, (record, offset, bytes), out);
            }
            Answer::Dropped { record } => {
                let station = self.station(name);
                let kept = station.record(&record).filter(|kept| kept.is_stored());
                if let Some(kept) = kept {
                    kept.progress = Progress::Dropped;
                    station.sent = None;
                }
            }
        }
    }

    /// When a station began with what starts at the common instant. What ended it may be of a later
    /// phase.
    fn started(
        &mut self,
        name: &StationName,
        number: u32,
        (outcome, began): (&CommandOutcome, Option<Instant<Tai>>),
        out: &mut Vec<Action>,
    ) {
        let Some(at) = began.filter(|_| self.station(name).start == Some(number)) else { return };
        let mut known = self.starts.iter().filter_map(|start| start.stations.get(name));
        if known.next_back().is_some_and(|known| known.actual == ActualStart::Unknown) {
            let is_late = matches!(outcome, CommandOutcome::Failed { kind: FailureKind::Late, .. });
            self.write(Entry::Started { station: name.clone(), at, is_late }, out);
        }
    }

    /// What was said over the old link and not answered is said at once over the new one.
    pub(super) fn linked(&mut self, now: Now, name: &StationName) {
        let Some(station) = self.stations.get_mut(name) else { return };
        if !std::mem::replace(&mut station.preflight.linked, true) {
            // Only the first: a link that brings nothing is no sign of life.
            station.preflight.sign = Some(now.mono);
        }
        station.preflight.asked = None;
        (station.sent, station.doublings, station.next_clock) = (None, 0, None);
        station.exchanges.clear();
    }

    /// What follows from how a station says it stands.
    fn stands(
        &mut self,
        name: &StationName,
        standing: &Standing,
        nonces: u64,
        out: &mut Vec<Action>,
    ) {
        let phase = self.group.as_ref().map_or(Phase::Setup, |group| group.phase);
        let station = self.station(name);
        let lapse = match standing {
            Standing::Held => {
                if !station.begun {
                    (station.begun, station.sent) = (true, None);
                    station.begun_after = nonces;
                }
                None
            }
            Standing::Restoring { why } | Standing::Restored { why, .. } => {
                (*why != Why::Asked).then_some(Some(*why))
            }
            Standing::Unknown => {
                // It never took part, or has forgotten: there is nothing left to be told.
                station.forgotten |= phase == Phase::Teardown && station.restored.is_some();
                (station.begun && phase < Phase::Report).then_some(None)
            }
            Standing::Forgotten => {
                (station.begun, station.forgotten) = (true, true);
                (phase < Phase::Teardown).then_some(None)
            }
        };
        if let Some(why) = lapse.filter(|_| !station.lapsed) {
            self.fail(Some(name), Cause::Lapsed { why }, out);
        }
    }

    fn ended(
        &mut self,
        now: Now,
        name: &StationName,
        number: u32,
        outcome: CommandOutcome,
        out: &mut Vec<Action>,
    ) {
        let phase = self.group.as_ref().map_or(Phase::Setup, |group| group.phase);
        let station = self.station(name);
        let Some(Outstanding { job, attempt, .. }) =
            station.outstanding.filter(|outstanding| outstanding.number == number)
        else {
            return;
        };
        station.sent = None;
        if let CommandOutcome::Failed { kind, .. } = &outcome
            && station.retries(phase, job, attempt, *kind)
        {
            let pause = station.retry_of(phase, job).pause;
            station.not_before = Some(now.mono.saturating_add(pause));
        }
        self.write(Entry::Ended { station: name.clone(), number, outcome }, out);
    }

    fn piece(
        &mut self,
        now: Now,
        name: &StationName,
        (record, offset, bytes): (RecordName, u64, Vec<u8>),
        out: &mut Vec<Action>,
    ) {
        let station = self.station(name);
        let Some(kept) = station.record(&record) else { return };
        if kept.progress != Progress::Fetching(offset) {
            return;
        }
        let size = kept.record.bytes;
        let end = u64::try_from(bytes.len()).ok().and_then(|length| offset.checked_add(length));
        let Some(end) = end.filter(|end| *end <= size && (*end > offset || size == 0)) else {
            let why = format!("the station has not the {size} bytes that it told of");
            return self.fail(Some(name), Cause::Record { record, why }, out);
        };
        let is_whole = end == size;
        kept.progress = if is_whole { Progress::Checking } else { Progress::Fetching(end) };
        let check = Action::Check { station: name.clone(), record: kept.record.clone() };
        station.sent = None;
        out.push(Action::Store { station: name.clone(), record, offset, bytes });
        if is_whole {
            out.push(check);
        }
        self.has_progressed(now);
    }

    /// Records may be long and the way slow: in `report` only standing still is limited.
    fn has_progressed(&mut self, now: Now) {
        if self.group.as_ref().is_some_and(|group| group.phase == Phase::Report) {
            let until = now.mono.saturating_add(self.plan.timing.of_phase(Phase::Report));
            self.deadline = self.deadline.map(|deadline| deadline.max(until));
        }
    }

    pub(super) fn stored(
        &mut self,
        name: &StationName,
        record: RecordName,
        outcome: Result<(), String>,
        out: &mut Vec<Action>,
    ) {
        let Some(station) = self.stations.get_mut(name) else { return };
        // A piece that cannot be stored is told of in the middle.
        let is_awaited = station.record(&record).is_some_and(|kept| match kept.progress {
            Progress::Checking => true,
            Progress::Fetching(_) => outcome.is_err(),
            _ => false,
        });
        if !is_awaited {
            return;
        }
        station.sent = None;
        match outcome {
            Ok(()) => self.write(Entry::Stored { station: name.clone(), record }, out),
            Err(why) => self.fail(Some(name), Cause::Record { record, why }, out),
        }
    }

    fn station(&mut self, name: &StationName) -> &mut Station {
        self.stations.get_mut(name).expect("invariant: the caller found it")
    }
}

#[cfg(test)]
mod tests {
    use super::super::Event;
    use super::*;
    use crate::protocol::name::ExperimentId;
    use crate::protocol::outcome::Record;
    use crate::protocol::plan::{Plan, StationPlan};

    #[test]
    fn t0_a_piece_that_cannot_be_stored_fails_its_record_and_says_why() {
        let (s, r) = (StationName::new("s").unwrap(), RecordName::new("r").unwrap());
        let experiment = ExperimentId::new("e").unwrap();
        let stations = vec![StationPlan { name: s.clone(), parts: BTreeMap::new() }];
        let plan = Plan { experiment, timing: Timing::default(), stations };
        let record = Record { name: r.clone(), bytes: 9, digest: String::new() };
        let sent = |number| Entry::Sent { station: s.clone(), number };
        let ended = |number, outcome| Entry::Ended { station: s.clone(), number, outcome };
        let entries = [
            Entry::Began { plan },
            Entry::Group { phase: Phase::Report, order: 0, at: None, clocks: BTreeMap::new() },
            sent(1),
            ended(1, CommandOutcome::Done { exit: None }),
            sent(2),
            ended(2, CommandOutcome::Kept { records: vec![record] }),
        ];
        let now = Now { mono: Instant::from_ns(0), tai: Instant::from_ns(0) };
        let (mut controller, _) = Controller::resume(&entries, now).unwrap();
        let outcome = Err("no space".to_owned());
        let event = Event::Stored { station: s.clone(), record: r.clone(), outcome };
        controller.on(now, event.clone());
        let told: Vec<String> = controller.failures().iter().map(ToString::to_string).collect();
        assert_eq!(told, ["report: s: record r: no space"]);
        // What is checked afterwards is of no interest.
        controller.on(now, event);
        assert_eq!(controller.failures().len(), 1);
    }
}
