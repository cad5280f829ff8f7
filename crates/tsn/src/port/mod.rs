// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A port of a station or a bridge: eight queues, and everything of the standard that decides
//! which frame goes next and when: strict priority, gates, credit, launch times, asynchronous
//! shaping, preemption.
//!
//! A [`Port`] is a value. It is told the time of two clocks ([`Now`]): the link's, by which frames
//! take their time and credit grows, and the station's, by which gates open and frames are
//! launched. Frames are of any type, and only their lengths matter.
//!
//! What it keeps:
//!
//! 1. A frame starts while its gate is open, and with its gap ends within the same window; the
//!    rest of a frame that was preempted does not need a gate.
//! 2. Frames of one class leave in the order of their arrival, or of their times.
//! 3. Of the classes with a frame that may go, the highest goes; express before preemptable.
//! 4. What is accepted is sent or given back ([`Polled::dropped`], [`Port::flush`]).
//!
//! Not here: the machine of a station on a shared segment with 33 queues ([`Machine`]), streams
//! and their routes (`timewire-sim`), how the kernel does the same ([`crate::qdisc`]).
//!
//! [`Machine`]: crate::Machine

mod asynchronous;
mod preemption;
mod queue;

pub use asynchronous::{AsyncGroup, AsyncLimits, AsyncShaper};
pub use preemption::{
    EXPRESS_WAIT_BYTES, FRAGMENT_CHECK_BYTES, GAP_BYTES, MIN_FRAGMENT_BYTES, MIN_LAST_BYTES,
    PREAMBLE_BYTES,
};

pub use crate::selection::credit::CreditRules;
pub use crate::selection::gates::{CLASSES, Gate, GateEntry, GateError, GateList};
pub use crate::time::Ps;

use timewire_base::BitsPerSecond;

use crate::selection::credit::Credit;
use crate::selection::{Choice, Held, LookAgain, select};
use queue::{Entry, Lines, TimedQueue};

/// The same instant by two clocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Now {
    /// The link's, which is right.
    pub truth: Ps,
    /// The station's, by which its gates and launch times go.
    pub local: Ps,
}

/// In which order frames of a class leave.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Order {
    /// As they came.
    #[default]
    Arrival,
    /// By their times, launch times or those of asynchronous shaping, and not before them.
    Timed,
    /// By their launch times; a frame that comes after its own is refused.
    TimedStrict,
}

/// How a class is treated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClassConfig {
    /// In which order its frames leave.
    pub order: Order,
    /// Its share of the rate, and who counts it; without it the class has no shaper.
    pub credit: Option<(BitsPerSecond, CreditRules)>,
    /// Its frames can be interrupted by those of classes that cannot.
    pub preemptable: bool,
    /// Most frames that wait, at least one; without it there is no bound.
    pub capacity: Option<u32>,
}

/// How a port is made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortConfig {
    /// Rate of its link.
    pub rate: BitsPerSecond,
    /// Its classes.
    pub classes: [ClassConfig; CLASSES],
    /// Its gates; without them, all are open.
    pub gates: Option<GateList>,
    /// How long before a state with hold preemptable frames hold back.
    pub hold_advance: Ps,
}

/// A frame that comes to a port.
#[derive(Clone, Copy, Debug)]
pub struct Offered<T> {
    /// The frame.
    pub item: T,
    /// Its class, 0 to 7.
    pub class: usize,
    /// Bytes on the link, with preamble, check sequence and gap: at least 84.
    pub wire_bytes: u32,
    /// Not before this, by the station's clock; only classes in an order of time look at it.
    pub not_before: Ps,
}

/// Why a frame is not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// The queue of its class is full.
    Full,
    /// It came after its launch time.
    Late,
    /// It is longer than any window of its class.
    NeverFits,
}

/// A transmission.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Started<T> {
    /// The frame.
    pub item: T,
    /// Its class.
    pub class: usize,
    /// When the link is free again, unless the frame is preempted.
    pub ends: Ps,
    /// It can be preempted: [`Polled::finished`] will tell its end.
    pub preemptable: bool,
    /// It is the rest of a frame that was preempted.
    pub resumed: bool,
}

/// When to poll a port again; both are [`Ps::MAX`] when only a frame can change anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wake {
    /// By the link's clock.
    pub truth: Ps,
    /// By the station's clock.
    pub local: Ps,
}

/// What a port does at an instant.
#[derive(Clone, Copy, Debug)]
pub struct Polled<T> {
    /// The last bit of this preemptable frame has left; its gap follows.
    pub finished: Option<T>,
    /// This frame starts.
    pub started: Option<Started<T>>,
    /// This frame fits no window since the gates were changed. Poll again at once.
    pub dropped: Option<T>,
    /// When to poll again at the latest.
    pub wake: Wake,
}

/// A port.
///
/// A value of half a line of a cache: all that a frame needs which finds the port idle. What waits
/// is apart.
#[derive(Clone, Debug)]
#[repr(C)]
pub struct Port<T> {
    busy_until: Ps,
    /// What a port without gates, shapers, times and preemption does not have.
    more: Option<Box<More<T>>>,
    apart: Box<Apart<T>>,
    /// When it is whole; else 0.
    ps_per_byte: u32,
    /// Bit `n`: frames of class `n` wait.
    waiting: u8,
    preemptable: u8,
}

const _: () = assert!(size_of::<Port<[u64; 4]>>() == 32);

/// What a frame does not need that finds its port idle.
#[derive(Clone, Debug)]
struct Apart<T> {
    lines: Lines<T>,
    rate: BitsPerSecond,
    /// Most frames that wait in each class.
    capacity: [u32; CLASSES],
}

#[derive(Clone, Debug)]
struct More<T> {
    classes: [Class<T>; CLASSES],
    gates: Option<GateList>,
    change: Option<(Ps, Option<GateList>)>,
    hold_advance: Ps,
    sending: Option<Preemptable<T>>,
    suspended: Option<Preemptable<T>>,
}

#[derive(Clone, Debug)]
struct Class<T> {
    /// In place of the queue by arrival.
    timed: Option<TimedQueue<T>>,
    strict: bool,
    credit: Option<Credit>,
}

/// A preemptable frame on the link, or what is left of it.
#[derive(Clone, Copy, Debug)]
struct Preemptable<T> {
    item: T,
    class: usize,
    since: Ps,
    /// Bytes that are left, with the check sequence.
    rest: u32,
    /// It was cut after so many bytes of them.
    cut: Option<u32>,
}

/// A frame out of its queue.
struct Taken<T> {
    item: T,
    wire_bytes: u32,
}

impl Wake {
    /// Only a frame can change anything.
    pub const NEVER: Wake = Wake { truth: Ps::MAX, local: Ps::MAX };

    fn at_local(local: Ps) -> Wake {
        Wake { truth: Ps::MAX, local }
    }
}

impl LookAgain for Wake {
    const NEVER: Wake = Wake::NEVER;

    #[inline(always)]
    fn sooner(self, other: Wake) -> Wake {
        Wake { truth: self.truth.min(other.truth), local: self.local.min(other.local) }
    }
}

/// The classes of a mask, the most urgent first.
struct Descending(u8);

impl Iterator for Descending {
    type Item = usize;

    #[inline(always)]
    fn next(&mut self) -> Option<usize> {
        let highest = self.0.checked_ilog2()?;
        self.0 &= !(1 << highest);
        usize::try_from(highest).ok()
    }
}

impl<T: Copy> More<T> {
    fn new(config: &PortConfig) -> More<T> {
        let class = |config: &ClassConfig, rate| Class {
            timed: (config.order != Order::Arrival).then(TimedQueue::new),
            strict: config.order == Order::TimedStrict,
            credit: config.credit.map(|(idle, rules)| Credit::new(idle, rate, rules)),
        };
        let mut more = More {
            classes: std::array::from_fn(|index| class(&config.classes[index], config.rate)),
            gates: config.gates.clone(),
            change: None,
            hold_advance: config.hold_advance,
            sending: None,
            suspended: None,
        };
        more.credit_behind_gates();
        more
    }

    /// Credit grows as the gates in force say.
    fn credit_behind_gates(&mut self) {
        for (class, own) in self.classes.iter_mut().enumerate() {
            if let Some(credit) = &mut own.credit {
                let share = self.gates.as_ref().map(|gates| gates.open_share(class));
                let (open, cycle) = share.unwrap_or((Ps::new(1), Ps::new(1)));
                credit.behind_gate(open, cycle);
            }
        }
    }

    fn settle(&mut self, now: Now, class: usize, waited: bool) {
        let Some(credit) = &mut self.classes[class].credit else { return };
        let gates = &self.gates;
        let ahead = now.local - now.truth;
        credit.settle(now.truth, waited, |from, to| match gates {
            Some(gates) => gates.open_time(class, from + ahead, to + ahead).min(to - from),
            None => to - from,
        });
    }

    /// Whether the gate lets a frame go that starts now: it ends within the window, and before
    /// other gates hold.
    fn gate_lets(&self, local: Ps, class: usize, lasts: Ps) -> Result<(), Held<Wake>> {
        let until = |at: Ps| Err(Held::Until(Wake::at_local(at)));
        if let Some((at, _)) = &self.change
            && local + lasts > *at
        {
            return until(*at);
        }
        let Some(gates) = &self.gates else { return Ok(()) };
        match gates.lets(class, local, lasts) {
            Ok(()) => Ok(()),
            // Other gates may have a window that is long enough.
            Err(Ps::MAX) if self.change.is_none() => Err(Held::NeverFits),
            Err(at) => until(at),
        }
    }

    /// Whether the credit lets a frame go now.
    fn credit_lets(&mut self, now: Now, class: usize) -> Result<(), Held<Wake>> {
        self.settle(now, class, true);
        let Some(credit) = &mut self.classes[class].credit else { return Ok(()) };
        let until = |at| Held::Until(Wake { truth: at, local: Ps::MAX });
        credit.ready(now.truth).map_err(until)
    }
}

impl<T: Copy> Port<T> {
    /// An idle port.
    pub fn new(config: &PortConfig) -> Port<T> {
        let byte = Ps::of_bytes(1, config.rate);
        let exact = Ps::of_bytes(1_000, config.rate).get() == byte.get() * 1_000;
        let whole = u32::try_from(byte.get()).ok().filter(|_| exact);
        let bit = |index: usize| u8::from(config.classes[index].preemptable) << index;
        let is_plain = |class: &ClassConfig| {
            ClassConfig { capacity: None, ..*class } == ClassConfig::default()
        };
        let is_plain = config.gates.is_none() && config.classes.iter().all(is_plain);
        let capacity = |index: usize| config.classes[index].capacity.unwrap_or(u32::MAX);
        let capacity = std::array::from_fn(capacity);
        Port {
            busy_until: Ps::new(i64::MIN),
            more: (!is_plain).then(|| Box::new(More::new(config))),
            apart: Box::new(Apart { lines: Lines::new(), rate: config.rate, capacity }),
            ps_per_byte: whole.unwrap_or(0),
            waiting: 0,
            preemptable: (0..CLASSES).map(bit).fold(0, |mask, bit| mask | bit),
        }
    }

    /// Rate of its link.
    pub fn rate(&self) -> BitsPerSecond {
        self.apart.rate
    }

    /// Whether only priority counts, and not the station's clock.
    pub fn is_plain(&self) -> bool {
        self.more.is_none()
    }

    /// Sends a frame at once, as [`Port::offer`] and [`Port::poll`] would, if the port is idle and
    /// has nothing that could hold a frame back; `None`, and nothing has changed, when it is to be
    /// offered. There is nothing to wake for then. Only the link's clock matters.
    #[inline]
    pub fn pass(
        &mut self,
        truth: Ps,
        item: T,
        class: usize,
        wire_bytes: u32,
    ) -> Option<Started<T>> {
        if self.waiting != 0 || self.more.is_some() || truth < self.busy_until {
            return None;
        }
        let ends = truth + self.duration(wire_bytes);
        self.busy_until = ends;
        Some(Started { item, class, ends, preemptable: false, resumed: false })
    }

    /// Takes a frame; [`Port::poll`] then says what follows.
    ///
    /// **Errors**: why it is not taken; nothing has changed then.
    pub fn offer(&mut self, now: Now, frame: Offered<T>) -> Result<(), Refused> {
        let Offered { item, class, wire_bytes, not_before } = frame;
        let waited = self.waiting >> class & 1 == 1;
        let lasts = self.duration(wire_bytes);
        let is_full = waited && self.is_full(class, 0);
        if let Some(more) = &mut self.more {
            let longest = more.gates.as_ref().map_or(Ps::MAX, |gates| gates.longest(class));
            if more.change.is_none() && longest < Ps::MAX && lasts > longest {
                return Err(Refused::NeverFits);
            }
            if is_full {
                return Err(Refused::Full);
            }
            let own = &more.classes[class];
            if own.strict && not_before < now.local {
                return Err(Refused::Late);
            }
            more.settle(now, class, waited);
            let own = &mut more.classes[class];
            if let Some(credit) = &mut own.credit {
                credit.arrived(now.truth, !waited);
            }
            self.waiting |= 1 << class;
            if let Some(timed) = &mut own.timed {
                timed.push(Entry { item, wire_bytes, not_before });
                return Ok(());
            }
        } else if is_full {
            return Err(Refused::Full);
        }
        self.waiting |= 1 << class;
        self.apart.lines.push(class, item, wire_bytes);
        Ok(())
    }

    /// What the port does now: ends a frame, starts one, or waits.
    pub fn poll(&mut self, now: Now) -> Polled<T> {
        let mut polled = Polled { finished: None, started: None, dropped: None, wake: Wake::NEVER };
        if self.more.is_none() {
            self.poll_plain(now.truth, &mut polled);
            return polled;
        }
        self.change_gates(now);
        let gap = self.duration(preemption::GAP_BYTES);
        let sent = |sending: &mut Preemptable<T>| sending.cut.is_none();
        let busy_until = self.busy_until;
        let more = self.more();
        if now.truth.saturating_add(gap) >= busy_until {
            polled.finished = more.sending.take_if(sent).map(|sent| sent.item);
        }
        if now.truth < busy_until {
            polled.wake = self.while_busy(now);
            return polled;
        }
        if let Some(cut) = more.sending.take() {
            let rest = cut.rest - cut.cut.unwrap_or(0);
            more.suspended = Some(Preemptable { rest, cut: None, ..cut });
        }
        match self.choose(now, self.waiting & !self.preemptable) {
            Choice::Send(class) => polled.started = Some(self.start(now, class)),
            Choice::NeverFits(class) => polled.dropped = self.take(class).map(|e| e.item),
            Choice::Wait(wake) => self.preemptable_next(now, wake, &mut polled),
        }
        if let Some(started) = &polled.started {
            let needed = started.preemptable
                || self.waiting != 0
                || self.more().suspended.is_some()
                || self.more().change.is_some();
            polled.wake = if needed { self.while_busy(now) } else { Wake::NEVER };
        }
        polled
    }

    /// The same for a port where only priority counts.
    fn poll_plain(&mut self, truth: Ps, polled: &mut Polled<T>) {
        if truth >= self.busy_until {
            let nothing_holds = |_| Ok::<(), Held<()>>(());
            let Choice::Send(class) = select(Descending(self.waiting), nothing_holds) else {
                return;
            };
            let Some(entry) = self.take(class) else { return };
            let ends = truth + self.duration(entry.wire_bytes);
            self.busy_until = ends;
            let item = entry.item;
            let started = Started { item, class, ends, preemptable: false, resumed: false };
            polled.started = Some(started);
            if self.waiting == 0 {
                return;
            }
        }
        polled.wake.truth = self.busy_until;
    }

    fn more(&mut self) -> &mut More<T> {
        self.more.as_deref_mut().expect("invariant: a plain port is polled as one")
    }

    /// The next frame among those that can be preempted, and the rest of one that was.
    fn preemptable_next(&mut self, now: Now, wake: Wake, polled: &mut Polled<T>) {
        polled.wake = wake;
        if self.preemptable == 0 {
            return;
        }
        let waits = self.waiting & self.preemptable != 0;
        let more = self.more();
        let held = match &more.gates {
            Some(gates) => gates.hold(now.local, more.hold_advance),
            None => Gate::Closed { at: Ps::MAX },
        };
        if let Gate::Open { until } = held {
            let waits = more.suspended.is_some() || waits;
            if waits {
                polled.wake.local = polled.wake.local.min(until);
            }
            return;
        }
        if let Some(rest) = more.suspended.take() {
            polled.started = Some(self.send_preemptable(now, rest, true));
            return;
        }
        match self.choose(now, self.waiting & self.preemptable) {
            Choice::Send(class) => polled.started = Some(self.start(now, class)),
            Choice::NeverFits(class) => polled.dropped = self.take(class).map(|e| e.item),
            Choice::Wait(other) => polled.wake = wake.sooner(other),
        }
    }

    /// Changes the gates when the station's clock reads `at`; until then, no frame may end later.
    pub fn set_gates(&mut self, at: Ps, gates: Option<GateList>) {
        let (classes, rate) = ([ClassConfig::default(); CLASSES], self.apart.rate);
        let plain = || PortConfig { rate, classes, gates: None, hold_advance: Ps::ZERO };
        self.more.get_or_insert_with(|| Box::new(More::new(&plain()))).change = Some((at, gates));
    }

    /// Takes everything out that waits or is being sent: the station starts again.
    pub fn flush(&mut self, now: Now) -> Vec<T> {
        let mut out: Vec<T> = Vec::new();
        for class in 0..CLASSES {
            while let Some(entry) = self.take(class) {
                out.push(entry.item);
            }
        }
        if let Some(more) = &mut self.more {
            out.extend(more.suspended.take().map(|rest| rest.item));
            out.extend(more.sending.take().map(|sent| sent.item));
        }
        self.busy_until = self.busy_until.min(now.truth);
        out
    }

    /// Whether the queue of a class has no room for another frame, `beside` of its frames being
    /// kept elsewhere.
    pub fn is_full(&self, class: usize, beside: usize) -> bool {
        let timed = self.more.as_ref().and_then(|more| more.classes[class].timed.as_ref());
        let count = timed.map_or_else(
            || self.apart.lines.count(class),
            |timed| u32::try_from(timed.len()).unwrap_or(u32::MAX),
        );
        let beside = u32::try_from(beside).unwrap_or(u32::MAX);
        count.saturating_add(beside) >= self.apart.capacity[class]
    }

    /// How many frames wait or are being sent as preemptable ones.
    pub fn held(&self) -> usize {
        let Some(more) = &self.more else { return self.apart.lines.len() };
        let timed: usize = more.classes.iter().flat_map(|it| &it.timed).map(TimedQueue::len).sum();
        let rest = usize::from(more.sending.is_some()) + usize::from(more.suspended.is_some());
        self.apart.lines.len() + timed + rest
    }

    /// Whether what it does next can depend on its station's clock.
    pub fn minds_clock(&self) -> bool {
        let minds = |more: &More<T>| {
            more.change.is_some() || more.sending.is_some() || more.suspended.is_some()
        };
        self.waiting != 0 || self.more.as_deref().is_some_and(minds)
    }

    /// The gates in force.
    pub fn gates(&self) -> Option<&GateList> {
        self.more.as_ref()?.gates.as_ref()
    }

    /// Whether the gate of its class lets a frame begin again that has left its queue, as after a
    /// collision; `lasts` is of what is on the link.
    ///
    /// **Errors**: when to look again, or that no window is that long.
    pub fn lets_again(&self, now: Now, class: usize, lasts: Ps) -> Result<(), Option<Wake>> {
        let more = self.more.as_ref();
        more.map_or(Ok(()), |more| more.gate_lets(now.local, class, lasts)).map_err(|held| {
            match held {
                Held::Until(wake) => Some(wake),
                Held::NeverFits => None,
            }
        })
    }

    /// How long the link is busy with so many bytes.
    pub fn duration(&self, wire_bytes: u32) -> Ps {
        match self.ps_per_byte {
            0 => Ps::of_bytes(wire_bytes, self.apart.rate),
            byte => Ps::new(i64::from(byte).saturating_mul(wire_bytes.into())),
        }
    }

    /// The credit of a class now, rounded down. **Units**: bits; `None` without a shaper.
    pub fn credit_bits(&mut self, now: Now, class: usize) -> Option<i64> {
        let more = self.more.as_mut()?;
        more.settle(now, class, self.waiting >> class & 1 == 1);
        more.classes[class].credit.as_ref().map(Credit::bits_floor)
    }

    fn change_gates(&mut self, now: Now) {
        let waiting = self.waiting;
        let more = self.more();
        if let Some((_, gates)) = more.change.take_if(|(at, _)| *at <= now.local) {
            // Until now credit grew by the gates that were.
            (0..CLASSES).for_each(|class| more.settle(now, class, waiting >> class & 1 == 1));
            more.gates = gates;
            more.credit_behind_gates();
        }
    }

    /// Cuts the frame on the link when one waits that may interrupt it.
    fn while_busy(&mut self, now: Now) -> Wake {
        let mut busy = Wake { truth: self.busy_until, local: Ps::MAX };
        let more = self.more();
        let Some(sending) = more.sending.filter(|sending| sending.cut.is_none()) else {
            return busy;
        };
        let held = more.gates.as_ref().map(|gates| gates.hold(now.local, more.hold_advance));
        busy.truth = self.busy_until - self.duration(preemption::GAP_BYTES);
        let wake = match (held, self.choose(now, self.waiting & !self.preemptable)) {
            (Some(Gate::Open { .. }), _) | (_, Choice::Send(_)) => None,
            (Some(Gate::Closed { at }), Choice::Wait(wake)) => {
                Some(wake.sooner(Wake::at_local(at)))
            }
            (_, Choice::Wait(wake)) => Some(wake),
            (_, Choice::NeverFits(_)) => Some(Wake::NEVER),
        };
        match wake {
            Some(wake) => busy.sooner(wake),
            None => {
                let since = now.truth - sending.since;
                if let Some(data) = preemption::cut_after(since, sending.rest, self.apart.rate) {
                    let wire = preemption::fragment_wire(data);
                    self.busy_until = sending.since + self.duration(wire);
                    self.more().sending = Some(Preemptable { cut: Some(data), ..sending });
                    return Wake { truth: self.busy_until, local: Ps::MAX };
                }
                busy
            }
        }
    }

    /// The highest of some classes whose first frame may go.
    fn choose(&mut self, now: Now, classes: u8) -> Choice<usize, Wake> {
        let choice = select(Descending(classes), |class| self.lets(now, class));
        match (choice, &self.more().change) {
            (Choice::Wait(wake), Some((at, _))) => Choice::Wait(wake.sooner(Wake::at_local(*at))),
            (choice, _) => choice,
        }
    }

    /// Whether launch time, gate and credit let the first frame of a class go now.
    fn lets(&mut self, now: Now, class: usize) -> Result<(), Held<Wake>> {
        let first = self.first(class);
        let (wire_bytes, not_before) = first.ok_or(Held::Until(Wake::NEVER))?;
        if let Some(not_before) = not_before
            && not_before > now.local
        {
            return Err(Held::Until(Wake::at_local(not_before)));
        }
        // The gate first: credit stands still while it is closed, so to wait for credit then
        // would be to look again and again.
        let lasts = self.duration(wire_bytes);
        let more = self.more();
        more.gate_lets(now.local, class, lasts)?;
        more.credit_lets(now, class)
    }

    /// The length of the first frame of a class, and its time if it has one.
    fn first(&self, class: usize) -> Option<(u32, Option<Ps>)> {
        match self.more.as_ref().and_then(|more| more.classes[class].timed.as_ref()) {
            Some(timed) => timed.first().map(|entry| (entry.wire_bytes, Some(entry.not_before))),
            None => self.apart.lines.first(class).map(|wire_bytes| (wire_bytes, None)),
        }
    }

    fn take(&mut self, class: usize) -> Option<Taken<T>> {
        let own = self.more.as_mut().map(|more| &mut more.classes[class]);
        let (taken, was_last) = match own {
            Some(Class { timed: Some(timed), .. }) => {
                let Entry { item, wire_bytes, .. } = timed.pop()?;
                (Taken { item, wire_bytes }, timed.len() == 0)
            }
            _ => {
                let (item, wire_bytes, was_last) = self.apart.lines.pop(class)?;
                (Taken { item, wire_bytes }, was_last)
            }
        };
        if was_last {
            self.waiting &= !(1 << class);
        }
        Some(taken)
    }

    fn start(&mut self, now: Now, class: usize) -> Started<T> {
        let entry = self.take(class).expect("invariant: a chosen class has a frame");
        let ends = now.truth + self.duration(entry.wire_bytes);
        if let Some(credit) = &mut self.more().classes[class].credit {
            credit.sent(now.truth, ends, entry.wire_bytes);
        }
        if self.preemptable >> class & 1 == 1 {
            let rest = entry.wire_bytes - preemption::last_wire(0);
            let whole = Preemptable { item: entry.item, class, since: now.truth, rest, cut: None };
            return self.send_preemptable(now, whole, false);
        }
        self.busy_until = ends;
        Started { item: entry.item, class, ends, preemptable: false, resumed: false }
    }

    fn send_preemptable(&mut self, now: Now, rest: Preemptable<T>, resumed: bool) -> Started<T> {
        let sending = Preemptable { since: now.truth, ..rest };
        let ends = now.truth + self.duration(preemption::last_wire(sending.rest));
        self.busy_until = ends;
        self.more().sending = Some(sending);
        Started { item: sending.item, class: sending.class, ends, preemptable: true, resumed }
    }
}
