// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What came of a stream, as tables.

use timewire_base::Span;
use timewire_datapath::avtp::can::Gathered;
use timewire_datapath::avtp::crf::Followed;
use timewire_datapath::avtp::reserve::Reserved;
use timewire_datapath::avtp::{
    AvtpTalkReport, Counters, Ended, Heard, NotUnderstood, Sent, Timeliness, TimesSummary, Written,
};

/// Nanoseconds as microseconds.
fn us(ns: i64) -> String {
    let (whole, rest) = (ns.unsigned_abs() / 1_000, ns.unsigned_abs() % 1_000);
    format!("{}{whole}.{rest:03}us", if ns < 0 { "-" } else { "" })
}

fn times(what: &str, times: Option<&TimesSummary>) -> String {
    times_by(what, times, &us)
}

fn times_by(what: &str, times: Option<&TimesSummary>, text: &dyn Fn(i64) -> String) -> String {
    let Some(times) = times else { return String::new() };
    let head = format!(
        "{:<20}{:>10}{:>15}{:>15}{:>15}{:>15}{:>15}\n",
        "", "packets", "min", "p1", "p50", "p99", "max"
    );
    let of = [times.min_ns, times.p01_ns, times.p50_ns, times.p99_ns, times.max_ns];
    let row: String = of.into_iter().map(|ns| format!("{:>15}", text(ns))).collect();
    format!("{head}{what:<20}{:>10}{row}\n", times.count)
}

fn sent_of(sent: &Sent) -> String {
    let refused = sent.refused;
    let causes: String = sent.drop_causes.iter().map(|cause| format!("{cause}\n")).collect();
    format!(
        "sent {} packets{}; not taken {}, launch time invalid {}, launch time missed {}\n\
         {causes}{}",
        sent.packets,
        if sent.ended_early { ", then ended on request" } else { "" },
        refused.not_taken,
        refused.launch_invalid,
        refused.launch_missed,
        times("handed over late", sent.handed_over_late.as_ref())
    )
}

pub fn told(told: &AvtpTalkReport) -> String {
    format!("stream {}: {}\n{}", told.stream, told.media, sent_of(&told.sent))
}

pub fn sent(stream: &str, sent: &Sent) -> String {
    format!("stream {stream}\n{}", sent_of(sent))
}

fn counters(of: &Counters) -> String {
    let mut text = format!(
        "received {}  lost {}  duplicate {}  reordered {}  discarded {}\n",
        of.received, of.lost, of.duplicates, of.reordered, of.discarded
    );
    for (count, what) in [
        (of.malformed, "packets that are none"),
        (of.other_format, "packets of the stream in another format"),
        (of.media_restarts, "times the talker began anew"),
        (of.uncertain, "packets whose time the talker does not vouch for"),
        (of.reserved, "packets with reserved bits set"),
        (of.irregular, "packets with a timestamp off the rate of their media"),
    ] {
        if count > 0 {
            text += &format!("{count} {what}\n");
        }
    }
    text
}

/// Packets after their presentation time, and how long before it they came.
fn timeliness(of: &Timeliness) -> String {
    let late = match of.late {
        None => return format!("late, margin: {}\n", of.clock.describe()),
        Some(late) if late.at_least == late.at_most => late.at_least.to_string(),
        Some(late) => format!("{} to {}", late.at_least, late.at_most),
    };
    let text = format!("late {late} ({})\n", of.clock.describe());
    let within = |ns| of.clock.within(ns, us);
    text + &times_by("margin", of.margin.as_ref(), &within)
}

fn why(ended: Ended) -> &'static str {
    match ended {
        Ended::Asked => "ended on request",
        Ended::Duration => "the time is over",
        Ended::Packets => "all packets came",
        Ended::Idle => "no more packets came",
        Ended::Interface => "the interface went down",
    }
}

pub fn heard(heard: &Heard, file: &str) -> String {
    let (Some(stream), Some(media)) = (&heard.stream, &heard.media) else {
        let what = if heard.not_understood.iter().any(|it| it.wanted) {
            "no packet of a stream that is understood was heard"
        } else {
            "no stream was heard"
        };
        let text = format!("{what} ({}): {file} was not written\n", why(heard.ended));
        return text + &not_understood(&heard.not_understood);
    };
    let mut text = format!("stream {stream}: {media}; {}\n", why(heard.ended));
    text += &counters(&heard.packets);
    text += &not_understood(&heard.not_understood);
    text += &timeliness(&heard.timeliness);
    if heard.dropped_here > 0 {
        text += &format!("{} packets were lost by this host\n", heard.dropped_here);
    }
    match heard.written {
        Some(Written::Audio { samples, silent }) => {
            text += &format!("{file}: {samples} samples of each channel");
            if silent > 0 {
                text += &format!(", {silent} of them silence for what was lost");
            }
        }
        Some(Written::Video { access_units, broken }) => {
            text += &format!("{file}: {access_units} access units");
            if broken > 0 {
                text += &format!(", {broken} of them not whole");
            }
        }
        None => {}
    }
    text + "\n"
}

pub fn followed(of: &Followed) -> String {
    let (Some(stream), Some(clock)) = (&of.stream, &of.media_clock) else {
        let text = format!("no clock was heard ({})\n", why(of.ended));
        return text + &not_understood(&of.not_understood);
    };
    let mut text = format!("stream {stream}: {clock}; {}\n", why(of.ended));
    text += &counters(&of.packets);
    text += &not_understood(&of.not_understood);
    text += &timeliness(&of.timeliness);
    match of.rate_ppb {
        Some(ppb) => text += &format!("runs {ppb:+} ppb against this host's TAI\n"),
        None => text += "too few timestamps for its rate\n",
    }
    text
}

pub fn can(of: &Gathered) -> String {
    let text = format!("{}; {}", why(of.ended), counters(&of.packets));
    let times = of.timeliness.margin.as_ref().map(|_| timeliness(&of.timeliness));
    text + &times.unwrap_or_default() + &not_understood(&of.not_understood)
}

fn not_understood(all: &[NotUnderstood]) -> String {
    all.iter().map(|it| it.describe() + "\n").collect()
}

fn mbit(bps: u64) -> String {
    format!("{}.{:06} Mbit/s", bps / 1_000_000, bps % 1_000_000)
}

pub fn reserved(of: &Reserved) -> String {
    let share = |bps: u64| format!("{:.3} %", percent(bps, of.port_bps));
    format!(
        "class {class}: interval {interval}, transit at most {transit}, VLAN {vlan}, PCP {pcp}\n\
         each stream: MaxFrameSize {size} B, MaxIntervalFrames {frames}, on the wire {wire} B\n\
         {:<18}{:>22}  {}\n{:<18}{:>22}  {}\n\
         cbs idleslope {idle} sendslope {send} hicredit {hi} locredit {lo}\n\
         in host settings:\n  {shaper}\n",
        "one stream",
        mbit(of.stream_bps),
        share(of.stream_bps),
        format!("all {}", of.streams),
        mbit(of.idle_slope_bps),
        share(of.idle_slope_bps),
        class = of.class,
        interval = Span::from_ns(of.interval_ns),
        transit = Span::from_ns(of.max_transit_ns),
        vlan = of.vlan,
        pcp = of.pcp,
        size = of.max_frame_size_bytes,
        frames = of.max_interval_frames,
        wire = of.frame_on_the_wire_bytes,
        idle = of.idle_slope_kbit,
        send = of.send_slope_kbit,
        hi = of.hi_credit_bytes,
        lo = of.lo_credit_bytes,
        shaper = of.shaper,
    )
}

#[allow(clippy::cast_precision_loss, reason = "for showing")]
fn percent(part: u64, whole: u64) -> f64 {
    part as f64 * 100.0 / whole as f64
}
