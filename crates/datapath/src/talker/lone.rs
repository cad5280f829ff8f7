// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The loop of a talker for the commonest case: one stream, one port.
//!
//! It wakes for each frame and finds its caches cold, so that a frame costs as many lines of memory
//! as it touches. What all frames need is on the stack of [`round`], or next to it, and what few of
//! them need is in functions of its own.

use std::io;

use timewire_base::{Instant, Span, Tai};
use timewire_stats::{BatchedHistogram, LogHistogram};

use super::header::Template;
use super::ledger::{Ledger, Run};
use super::run::{Engine, Hooks, POLL_INTERVAL, Port, SendAgain, Stop, TELL};
use super::timetable::{Lone, Sleep, Timetable};
use super::wait::{Bare, Clock};
use super::{StreamEvent, StreamEventKind};
use crate::probe::Probe;
use crate::transmit::{NotSent, Sent};

/// Bytes of a message that is on the stack while it is sent again and again.
const STACK_BYTES: usize = 128;
/// Frames of which how late they were is counted at once.
const LATENESSES: usize = 64;

/// What is the same for many frames.
struct Round {
    first: Lone,
    /// It ends before this,
    end: Instant<Tai>,
    /// after so many frames,
    most: u64,
    /// or with the first one that was sent then.
    read: Instant<Tai>,
    stream: u16,
    first_seq: u32,
    lead: Option<Span>,
    deadline: Span,
    send_late: bool,
    /// Only number and time differ from one message to the next.
    is_anew: bool,
    notes_each: bool,
}

/// How a round went.
struct Gone {
    now: Instant<Tai>,
    /// When the next frame is due.
    due: Instant<Tai>,
    planned: u32,
    /// Number and launch time of the last frame that had one; both rise from frame to frame.
    last: Option<(u32, Instant<Tai>)>,
    /// Whether something is out of the ordinary, and then, whether it has slept for a frame that
    /// it did not send.
    ended: Option<bool>,
}

/// What few frames need.
struct Seldom<'a> {
    template: &'a Template,
    payload: usize,
    plain: bool,
    ledger: &'a mut Ledger,
    wake_lateness: &'a mut BatchedHistogram,
    woken: &'a mut LogHistogram,
    lateness: &'a mut BatchedHistogram,
    busy_rounds: u64,
    past: u64,
    full: u64,
    refused: u64,
}

impl Seldom<'_> {
    /// The thread woke for something else than the frame, or spun.
    #[inline(never)]
    fn woke(&mut self, lateness: Span) {
        self.wake_lateness.record(lateness);
    }

    /// A frame was sent that the thread did not wake for.
    #[inline(never)]
    fn sent(&mut self, lateness: Span) {
        self.lateness.record(lateness);
    }

    /// So late were frames that the thread woke for.
    #[inline(never)]
    fn woken(&mut self, latenesses: &[i64]) {
        self.woken.record_all(latenesses);
    }

    /// A frame was not sent, which was so late, of what is bearable.
    #[cold]
    #[inline(never)]
    fn not_sent(&mut self, why: &NotSent, is_woken: bool, [lateness, deadline]: [Span; 2]) {
        match why {
            NotSent::Full => self.full += 1,
            NotSent::Refused(_) => self.refused += 1,
        }
        if is_woken {
            self.wake_lateness.record(lateness);
        }
        self.past -= u64::from(lateness > deadline);
    }

    #[inline(never)]
    fn number(&self, message: &mut [u8], seq: u32, time: Instant<Tai>) {
        let content = self.template.number(message, self.payload, seq);
        if !self.plain {
            Probe::renew(content, seq, time);
        }
    }

    #[inline(never)]
    fn note(&mut self, id: u32, name: (u16, u32), launch: Option<Instant<Tai>>, at: Instant<Tai>) {
        self.ledger.note(id, name, launch, at);
    }

    #[cold]
    fn is_busy(&mut self) {
        self.busy_rounds += 1;
    }

    #[cold]
    fn is_past(&mut self) {
        self.past += 1;
    }
}

impl<P: Port> Engine<P> {
    /// Sends the frames of a stream that is alone, each at once from its own memory, for as long
    /// as nothing is out of the ordinary: the round that each talker goes most often. Returns the
    /// time, and whether it has slept for a frame that it did not send.
    #[inline(never)]
    pub(super) fn run_lone<F: FnMut(StreamEvent) + ?Sized>(
        &mut self,
        table: &mut Timetable,
        clock: &mut impl Clock,
        (mut now, sleep): (Instant<Tai>, &mut Sleep),
        end: Option<Instant<Tai>>,
        hooks: &mut Hooks<'_, F>,
    ) -> io::Result<(Instant<Tai>, bool)> {
        let end = end.unwrap_or(Instant::from_ns(i64::MAX));
        while let Some(first) = table.lone() {
            let Engine { ports, watches, lines, last_launch, wake_lateness, woken, .. } =
                &mut *self;
            let ([port], [watch], [line]) = (&mut ports[..], &mut watches[..], &mut lines[..])
            else {
                break;
            };
            if !port.can_send_again() || line.to.is_some() {
                break;
            }
            let tells = line.told.saturating_add(TELL);
            let until_read = watch.pace.0.saturating_sub(watch.unread).max(1);
            let start = line.template.content().filter(|_| !line.plain);
            let round_of = Round {
                end,
                most: (first.left - 1).min(until_read.into()),
                read: watch.read.saturating_add(watch.pace.1).min(tells),
                stream: line.number,
                first_seq: line.seq,
                lead: line.launch_lead,
                deadline: line.deadline,
                send_late: line.send_late,
                is_anew: start.is_some(),
                notes_each: watch.expects && watch.ledger.wants_timestamps(),
                first,
            };
            let Round { first: Lone { cycle, left, .. }, stream, first_seq, .. } = round_of;
            let notes_each = round_of.notes_each;
            if !line.plain {
                let (time, is_launch) = (now, line.launch_lead.is_some());
                let skipped = line.skipped();
                let probe = Probe { stream, seq: 0, time, is_launch, skipped };
                probe.write(line.template.number(&mut line.image, line.payload, 0));
            }
            let mut seldom = Seldom {
                template: &line.template,
                payload: line.payload,
                plain: line.plain,
                ledger: &mut watch.ledger,
                wake_lateness,
                woken,
                lateness: &mut line.lateness,
                busy_rounds: 0,
                past: 0,
                full: 0,
                refused: 0,
            };
            let mut short = [0; STACK_BYTES];
            let message = match short.get_mut(..line.image.len()) {
                Some(short) => {
                    short.copy_from_slice(&line.image);
                    short
                }
                None => &mut line.image[..],
            };
            let mut again = port.again(message, start.map_or(0, |start| start + Probe::ANEW));
            let (bare, calls) = (clock.bare(), (hooks.stop, &mut *hooks.on));
            let (at, launches) = ((now, &mut *sleep), round_of.lead.is_some());
            let gone = match launches {
                true => round::<_, true>(round_of, at, &mut again, bare, &mut seldom, calls),
                false => round::<_, false>(round_of, at, &mut again, bare, &mut seldom, calls),
            };
            drop(again);
            let Seldom { busy_rounds, past, full, refused, .. } = seldom;
            let Gone { due, planned, last, ended, .. } = gone;
            let not_sent = full + refused;
            now = gone.now;
            if let Some((last, launch)) = last {
                *last_launch = (*last_launch).max(Some(launch));
                if !notes_each {
                    // Nothing is sent after one that was not.
                    let count = planned - u32::from(not_sent > 0);
                    watch.ledger.note_run(Run { last, count, stream, first_seq, launch, cycle });
                }
            }
            watch.unread = watch.unread.saturating_add(planned);
            line.seq = line.seq.wrapping_add(planned);
            let count = u64::from(planned);
            line.counters.planned += count;
            line.counters.sent += count - not_sent;
            line.counters.past_deadline += past;
            line.counters.not_taken += full;
            line.counters.refused += refused;
            line.not_sent = line.not_sent.wrapping_add(u32::try_from(not_sent).unwrap_or(u32::MAX));
            table.set_lone(Lone { due, cycle, left: left - count });
            self.busy_rounds += busy_rounds;
            if let Some(is_awake) = ended {
                self.publish(0);
                return Ok((now, is_awake));
            }
            self.publish_again(0, now);
            if self.read_some(table.next_due(), now, hooks.on)? {
                now = clock.now();
            }
        }
        Ok((now, false))
    }
}

/// Sends frame after frame; `LAUNCHES` says whether they have launch times.
#[inline(never)]
fn round<F: FnMut(StreamEvent) + ?Sized, const LAUNCHES: bool>(
    it: Round,
    (mut now, sleep): (Instant<Tai>, &mut Sleep),
    again: &mut impl SendAgain,
    mut clock: impl Bare,
    seldom: &mut Seldom<'_>,
    (stop, on): (Stop<'_>, &mut F),
) -> Gone {
    let Round { first: Lone { mut due, cycle, .. }, mut most, stream, .. } = it;
    let Sleep { mut from, mut until } = *sleep;
    let (mut planned, mut last) = (0_u32, None);
    let lead = it.lead.unwrap_or(Span::ZERO);
    // How late the frames were that the thread woke for and that are not counted yet.
    let (mut latenesses, mut waiting) = ([0; LATENESSES], 0);
    let ended = loop {
        let ahead = due - now;
        if stop.is_wanted() || due >= it.end || ahead > POLL_INTERVAL {
            break Some(false);
        }
        // Whether it is written as the thread wakes for it.
        let mut is_woken = false;
        if ahead > Span::ZERO {
            let woken = clock.sleep(now, due);
            if let Some((target, woke)) = woken.slept
                && target > now
            {
                is_woken = target == due && woke == woken.now;
                if !is_woken {
                    seldom.woke(woke - target);
                }
            }
            (from, until) = (now, woken.now);
            now = woken.now;
        } else {
            seldom.is_busy();
        }
        let lateness = now - due;
        if lateness > it.deadline {
            if !it.send_late {
                if is_woken {
                    seldom.woke(lateness);
                }
                break Some(true);
            }
            // Taken back if it is not sent.
            seldom.is_past();
        }
        let launch = LAUNCHES.then(|| due + lead);
        let time = launch.unwrap_or(now);
        let seq = it.first_seq.wrapping_add(planned);
        // It ends after `most`, which is fewer than there are numbers.
        planned = planned.wrapping_add(1);
        if it.is_anew {
            again.renew(Probe::anew(seq, time));
        } else {
            seldom.number(again.message(), seq, time);
        }
        match again.send(launch) {
            Ok(Sent { id }) => {
                // Without timestamps and launch times there is nothing to tell of it, but that it
                // was not taken.
                if it.notes_each || again.has_news() {
                    seldom.note(id, (stream, seq), launch, now);
                }
                last = launch.map(|launch| (id, launch));
                if is_woken {
                    latenesses[waiting % LATENESSES] = lateness.as_ns();
                    waiting = waiting.wrapping_add(1) % LATENESSES;
                    if waiting == 0 {
                        seldom.woken(&latenesses);
                    }
                } else {
                    seldom.sent(lateness);
                }
                let what = StreamEventKind::Sent { due, at: now, launch };
                on(StreamEvent { stream, seq, what });
            }
            Err(why) => {
                seldom.not_sent(&why, is_woken, [lateness, it.deadline]);
                most = 0;
            }
        }
        due = due + cycle;
        now = clock.now();
        if u64::from(planned) >= most || now >= it.read {
            break None;
        }
    };
    seldom.woken(&latenesses[..waiting]);
    *sleep = Sleep { from, until };
    Gone { now, due, planned, last, ended }
}
