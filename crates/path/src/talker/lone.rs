// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The loop of a talker for the commonest case: one stream, one port.
//!
//! Not here: everything else (`run`), to which it leaves what is out of the ordinary.

use std::io;

use timewire_base::{Instant, Span, Tai};

use super::ledger::Run;
use super::run::{Engine, Hooks, LOOK, Port, TELL};
use super::timetable::{Sleep, Timetable};
use super::wait::Clock;
use super::{StreamEvent, StreamEventKind};
use crate::probe::Probe;
use crate::transmit::{NotSent, Sent};

impl<P: Port> Engine<P> {
    /// Sends the frames of a stream that is alone, each at once from its own memory, for as long
    /// as nothing is out of the ordinary: the round that each talker goes most often. Returns the
    /// time, and whether it has slept for a frame that it did not send.
    #[inline]
    pub(super) fn run_lone<F: FnMut(StreamEvent) + ?Sized>(
        &mut self,
        table: &mut Timetable,
        clock: &mut impl Clock,
        (mut now, sleep): (Instant<Tai>, &mut Sleep),
        end: Option<Instant<Tai>>,
        hooks: &mut Hooks<'_, F>,
    ) -> io::Result<(Instant<Tai>, bool)> {
        let end = end.unwrap_or(Instant::from_ns(i64::MAX));
        while let Some(mut lone) = table.lone() {
            let Engine { ports, watches, lines, last_launch, wake_lateness, woken: alike, .. } =
                &mut *self;
            let mut busy_rounds = 0;
            let ([port], [watch], [line]) = (&mut ports[..], &mut watches[..], &mut lines[..])
            else {
                break;
            };
            if !port.can_keep() || line.to.is_some() {
                break;
            }
            // What is the same for many frames is looked at once.
            let (deadline, lead, stream) = (line.deadline, line.launch_lead, line.number);
            let tells = line.told.saturating_add(TELL);
            let read = watch.read.saturating_add(watch.pace.1).min(tells);
            let until_read = watch.pace.0.saturating_sub(watch.unread).max(1);
            let most = (lone.left - 1).min(until_read.into());
            let start = line.template.content().filter(|_| !line.plain);
            if !line.plain {
                let first = Probe { stream, seq: 0, time: now, is_launch: lead.is_some() };
                first.write(line.template.number(&mut line.image, line.payload, 0));
            }
            port.keep(&line.image, start.map_or(0, |start| start + Probe::ANEW));
            let (mut planned, mut past, mut refused) = (0_u32, 0_u64, 0_u32);
            let notes_each = watch.expects && watch.ledger.wants_stamps();
            // The number and the launch time of the last frame; both rise from frame to frame.
            let (mut last, mut latest) = (0, None);
            let ended = loop {
                let due = lone.due;
                let ahead = due - now;
                if hooks.stop.is_wanted() || due >= end || ahead > LOOK {
                    break Some((now, false));
                }
                // Whether it is written as the thread wakes for it.
                let mut is_woken = false;
                if ahead > Span::ZERO {
                    sleep.from = now;
                    let woken = clock.sleep(now, due);
                    if let Some((target, woke)) = woken.slept
                        && target > now
                    {
                        is_woken = target == due && woke == woken.now;
                        if !is_woken {
                            wake_lateness.record(woke - target);
                        }
                    }
                    now = woken.now;
                    sleep.until = now;
                } else {
                    busy_rounds += 1;
                }
                let lateness = now - due;
                let late = lateness > deadline;
                if late && !line.send_late {
                    if is_woken {
                        wake_lateness.record(lateness);
                    }
                    break Some((now, true));
                }
                lone.due = due + lone.cycle;
                let seq = line.seq.wrapping_add(planned);
                planned += 1;
                let launch = lead.map(|lead| due + lead);
                let time = launch.unwrap_or(now);
                let anew = if start.is_some() {
                    Some(Probe::anew(seq, time))
                } else {
                    let message = line.template.number(port.kept(), line.payload, seq);
                    if !line.plain {
                        Probe::renew(message, seq, time);
                    }
                    None
                };
                match port.send_kept(anew, launch) {
                    Ok(Sent { id }) => {
                        // Without stamps and launch times there is nothing to tell of it, but that
                        // it was not taken.
                        if notes_each || port.has_news() {
                            watch.ledger.note(id, (stream, seq), launch, now);
                        }
                        (last, latest) = (id, launch);
                        past += u64::from(late);
                        if is_woken { &mut *alike } else { &mut line.lateness }.record(lateness);
                        let what = StreamEventKind::Sent { due, at: now, launch };
                        (hooks.on)(StreamEvent { stream, seq, what });
                    }
                    Err(why) => {
                        match why {
                            NotSent::Full => line.counters.not_taken += 1,
                            NotSent::Refused(_) => line.counters.refused += 1,
                        }
                        refused += 1;
                        if is_woken {
                            wake_lateness.record(lateness);
                        }
                    }
                }
                now = clock.now();
                if u64::from(planned) >= most || now >= read || refused > 0 {
                    break None;
                }
            };
            if let Some(launch) = latest {
                *last_launch = (*last_launch).max(latest);
                if !notes_each {
                    let (count, first_seq, cycle) = (planned - refused, line.seq, lone.cycle);
                    watch.ledger.note_run(Run { last, count, stream, first_seq, launch, cycle });
                }
            }
            watch.unread = watch.unread.saturating_add(planned);
            line.seq = line.seq.wrapping_add(planned);
            let count = u64::from(planned);
            lone.left -= count;
            line.counters.planned += count;
            line.counters.sent += count - u64::from(refused);
            line.counters.past_deadline += past;
            table.set_lone(lone);
            self.busy_rounds += busy_rounds;
            if let Some(ended) = ended {
                self.publish(0);
                return Ok(ended);
            }
            self.publish_again(0, now);
            if self.read_some(table.next_due(), now, hooks.on)? {
                now = clock.now();
            }
        }
        Ok((now, false))
    }
}
