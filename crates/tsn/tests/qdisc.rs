// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The words of `tc` in and out: what is written reads back as itself, and what is refused says
//! why; and what `tc -j qdisc show` prints, as recorded from two of its versions.

use proptest::prelude::*;
use timewire_base::{BitsPerSecond, GateMask, IfName, Span, TrafficClass, TxQueue};
use timewire_tsn::qdisc::{
    Cbs, ClassId, ClassRate, Etf, EtfFlags, FramePreemption, GateControlEntry, GateOperation,
    Handle, InstallVerb, Mqprio, MqprioHardware, MqprioOptions, MqprioShaper, PortLimits, Qdisc,
    QdiscAction, QdiscClock, QdiscCommand, QdiscKind, QdiscPosition, QueueRange, Refuser,
    ShownQdisc, SizeTable, Taprio, TaprioMode, TaprioOptions, TrafficClasses,
};

fn parse(text: &str) -> Qdisc {
    text.parse().unwrap_or_else(|error| panic!("{text}: {error}"))
}

fn refused(text: &str) -> String {
    match text.parse::<Qdisc>() {
        Ok(qdisc) => panic!("{text}: read as {qdisc}"),
        Err(error) => error.to_string(),
    }
}

const TAPRIO: &str = "taprio num_tc 2 map 0 1 queues 1@0 1@1 sched-entry S 01 300000";

#[test]
fn t0_defaults_are_those_of_tc() {
    let cases = [
        (
            "taprio num_tc 2 queues 1@0 1@1 base-time 5 sched-entry S 0x1 0x10 clockid tai",
            "taprio num_tc 2 map 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 queues 1@0 1@1 base-time 5 \
             sched-entry S 01 16 clockid CLOCK_TAI",
        ),
        (
            "taprio sched-entry S ff 10 cycle-time 10 clockid CLOCK_MONOTONIC",
            "taprio base-time 0 sched-entry S ff 10 cycle-time 10 clockid CLOCK_MONOTONIC",
        ),
        ("mqprio", "mqprio num_tc 8 map 0 1 2 3 4 5 6 7 0 1 1 1 3 3 3 3 hw 1 mode dcb"),
        (
            "mqprio num_tc 1 map 0 queues 2@0 hw 1 mode chan shaper bw min_rate 1mbit \
             max_rate 2mbit",
            "mqprio num_tc 1 map 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 queues 2@0 hw 1 mode channel \
             shaper bw_rlimit min_rate 125000bps max_rate 250000bps",
        ),
        ("etf clockid CLOCK_TAI", "etf clockid CLOCK_TAI delta 0"),
        (
            "etf off dead del 010 clock TAI skip_sock_check",
            "etf clockid CLOCK_TAI delta 8 offload deadline_mode skip_sock_check",
        ),
        ("cbs", "cbs idleslope 0 sendslope 0 hicredit 0 locredit 0"),
        (
            "cbs idle 1 send -2 hi 3 lo -4 off 1",
            "cbs idleslope 1 sendslope -2 hicredit 3 locredit -4 offload 1",
        ),
    ];
    for (given, printed) in cases {
        assert_eq!(parse(given).to_string(), printed, "{given}");
    }
}

#[test]
fn t0_what_linux_refuses_is_refused_with_the_rule() {
    let queues = "taprio num_tc 2 map 0 1 queues 2@0 1@1 sched-entry S 1 9 clockid TAI";
    let cases = [
        (format!("{TAPRIO} clockid TAI flags 3"), "flags 0x3: 0x0 (software), 0x1"),
        (TAPRIO.to_owned(), "taprio needs `clockid`"),
        (format!("{TAPRIO} clockid TAI flags 2"), "runs on the clock of the device"),
        (format!("{TAPRIO} clockid TAI txtime-delay 5"), "txtime-delay works with txtime-assist"),
        (format!("{TAPRIO} clockid TAI fp E P"), "preemptible classes need full offload"),
        (format!("{TAPRIO} clockid TAI fp E X"), "`fp X`: E (express) or P (preemptible)"),
        (format!("{TAPRIO} clockid TAI cycle-time 4294967296"), "a cycle-time of 4.294967296s is"),
        (format!("{TAPRIO} clockid TAI cycle-time -1"), "a cycle-time of -1ns is not 0ns"),
        (format!("{TAPRIO} clockid TAI base-time soon"), "`base-time soon`: a whole number"),
        (format!("{TAPRIO} clockid UTC"), "`clockid UTC`: CLOCK_TAI, CLOCK_REALTIME"),
        (format!("{TAPRIO} clockid TAI clockid TAI"), "`clockid` stands twice"),
        (format!("{TAPRIO} sched-entry S"), "`S` is the last word: a gate mask and an interval"),
        (format!("{TAPRIO} sched-entry X 1 5"), "`sched-entry X`: S (set), H (and hold)"),
        (format!("{TAPRIO} sched-entry S 1 0 clockid TAI"), "sched-entry 1: an interval of 0ns"),
        (format!("{TAPRIO} sched-entry S 1 4294967296"), "an interval is whole nanoseconds"),
        (format!("{TAPRIO} sched-entry S 100000000 5"), "`100000000` is no gate mask"),
        (
            "taprio num_tc 2 map 0 1 queues 1@0 1@1 clockid TAI".to_owned(),
            "taprio needs at least one `sched-entry",
        ),
        (queues.to_owned(), "traffic classes 0 (2@0) and 1 (1@1) share a queue"),
        (queues.replace("2@0", "0@0"), "traffic class 0 has no queue"),
        (queues.replace("2@0 1@1", "1@0"), "1 ranges for 2 traffic classes"),
        (queues.replace("2@0", "2@65536"), "`queues 2@65536`: COUNT@OFFSET"),
        (queues.replace("map 0 1", "map 0 2"), "priority 1 goes to traffic class 2, and num_tc 2"),
        (queues.replace("num_tc 2", "num_tc 17"), "num_tc 17: 1 to 16 traffic classes"),
        (queues.replace("num_tc 2", "num_tc 256"), "`num_tc 256`: a whole number, 0 to 255"),
        (queues.replace("num_tc 2", "classes 2"), "`classes` means nothing to taprio"),
        (
            "mqprio num_tc 1 map 0 queues 1@0 hw 0 mode channel".to_owned(),
            "mqprio: `mode` needs `hw 1`",
        ),
        ("mqprio num_tc 1 map 0 queues 1@0 hw 0 fp E".to_owned(), "mqprio: `fp` needs `hw 1`"),
        ("mqprio num_tc 1 map 0 hw 0".to_owned(), "0 ranges for 1 traffic classes"),
        (
            "mqprio num_tc 1 map 0 hw 1 min_rate 1mbit".to_owned(),
            "mqprio: `min_rate` needs `shaper bw_rlimit`",
        ),
        (
            "mqprio num_tc 1 map 0 hw 1 shaper bw_rlimit min_rate 1mbit".to_owned(),
            "`shaper bw_rlimit` needs `mode channel`",
        ),
        ("mqprio hw 1 num_tc 9".to_owned() + " map 9", "goes to traffic class 9, and num_tc 9"),
        ("etf delta 5".to_owned(), "etf needs `clockid`: CLOCK_TAI"),
        ("etf clockid CLOCK_MONOTONIC".to_owned(), "etf runs on CLOCK_TAI only"),
        ("etf clockid TAI delta -1".to_owned(), "etf: a delta of -1ns is not"),
        ("etf clockid TAI delta 2147483648".to_owned(), "`delta 2147483648`: a whole number"),
        ("cbs idleslope 20mbit".to_owned(), "`idleslope 20mbit`: a whole number"),
        ("cbs offload 2".to_owned(), "`offload 2`: a whole number, 0 to 1"),
        ("fq_codel".to_owned(), "`fq_codel` is none of mqprio, taprio, etf and cbs"),
        (String::new(), "`` is the last word: mqprio, taprio, etf or cbs must follow"),
    ];
    for (text, why) in cases {
        let said = refused(&text);
        assert!(said.contains(why), "{text}\n  said: {said}\n  want: {why}");
    }
}

#[test]
fn t0_txtime_assist_lets_classes_share_a_queue() {
    let words = "taprio num_tc 3 map 2 2 1 0 2 2 2 2 2 2 2 2 2 2 2 2 queues 1@0 1@0 1@0 \
                 base-time 1000000000 sched-entry S 01 300000 flags 0x1 clockid CLOCK_TAI";
    assert_eq!(parse(words).to_string(), words);
    assert!(refused(&words.replace("flags 0x1 ", "")).contains("share a queue"));
}

#[test]
fn t0_whole_commands() {
    let read = |line: &str| line.parse::<QdiscCommand>().map(|command| command.to_string());
    let good = [
        (
            "tc qdisc add dev e root handle 1: cbs",
            "tc qdisc add dev e root handle 1: cbs idleslope 0 sendslope 0 hicredit 0 locredit 0",
        ),
        (
            "/sbin/tc -d q repl parent 8001:8 dev eth0 handle 8002 etf clockid TAI",
            "tc qdisc replace dev eth0 parent 8001:8 handle 8002: etf clockid CLOCK_TAI delta 0",
        ),
        (
            "qdisc repl dev e parent root stab overhead 24 taprio sched-entry S 1 9 clockid TAI",
            "tc qdisc replace dev e root stab overhead 24 taprio base-time 0 sched-entry S 01 9 \
             clockid CLOCK_TAI",
        ),
        ("tc qdisc del dev eth0 root", "tc qdisc delete dev eth0 root"),
        ("tc qdisc d dev eth0 handle 1: mqprio", "tc qdisc delete dev eth0 handle 1: mqprio"),
        (
            "tc qdisc change dev eth0 handle 1: root cbs",
            "tc qdisc change dev eth0 root handle 1: cbs idleslope 0 sendslope 0 hicredit 0 \
             locredit 0",
        ),
    ];
    for (line, printed) in good {
        assert_eq!(read(line).as_deref(), Ok(printed), "{line}");
    }
    let bad = [
        ("tc qdisc add root cbs", "must follow"),
        ("tc qdisc add dev eth0 cbs", "`add` needs a place"),
        ("tc qdisc add dev eth0 root root cbs", "`parent` stands twice"),
        ("tc qdisc add dev eth0 root", "a discipline: mqprio, taprio, etf or cbs must follow"),
        ("tc qdisc add dev eth0 root fq", "`fq` is none of"),
        ("tc qdisc add dev eth0 root stab mpu 64 cbs", "`mpu` means nothing to stab"),
        ("tc qdisc show dev eth0", "`show` means nothing to tc qdisc"),
        ("tc class add dev eth0", "`class` means nothing to tc"),
        ("tc qdisc del dev eth0 root cbs idleslope 1", "`idleslope` means nothing"),
        ("tc qdisc add dev eth0 parent 1:1 mqprio", "mqprio can only be the root"),
        ("tc qdisc add dev eth0 parent 1 cbs", "`parent 1`: a class in hexadecimal"),
        ("tc qdisc add dev eth0 handle g: root cbs", "`handle g:`: hexadecimal"),
        ("tc qdisc change dev eth0 root etf clockid TAI", "etf cannot be changed"),
        (
            "tc qdisc add dev eth0 parent 1:1 taprio sched-entry S 1 9 clockid TAI",
            "taprio can only be the root of an interface, not at parent 1:1",
        ),
    ];
    for (line, why) in bad {
        let said = match line.parse::<QdiscCommand>() {
            Ok(command) => panic!("{line}: read as {command}"),
            Err(error) => error.to_string(),
        };
        assert!(said.contains(why), "{line}\n  said: {said}\n  want: {why}");
    }
}

/// As measured with `tc` of iproute2 6.1.0 and 6.15.0: 30 entries go in with these settings, of 31
/// the last is left out, and `tc` succeeds.
#[test]
fn t0_a_schedule_that_tc_would_cut_is_refused() {
    let line = |entries: usize| {
        let entries = " sched-entry S 01 300000".repeat(entries);
        format!(
            "tc qdisc add dev eth0 root handle 1: taprio num_tc 2 map 0 1 queues 1@0 1@1{entries} \
             flags 1 clockid TAI base-time 1 cycle-time 12000000"
        )
    };
    assert!(line(30).parse::<QdiscCommand>().is_ok());
    let error = line(31).parse::<QdiscCommand>().unwrap_err();
    assert_eq!(error.refuser(), Refuser::Timewire);
    assert!(error.to_string().starts_with("31 sched-entries: tc has room for 30"), "{error}");
}

#[test]
fn t0_what_one_interface_refuses() {
    let port = |tx_queues, mbit: u64| PortLimits {
        tx_queues,
        stated: BitsPerSecond::new(mbit * 1_000_000).unwrap(),
    };
    let short = parse(
        "taprio num_tc 2 queues 1@0 1@1 sched-entry S 01 300 sched-entry S 02 1700 clockid TAI",
    );
    let text = |port: PortLimits, qdisc: &Qdisc| {
        port.problems(qdisc).iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
    };
    assert_eq!(text(port(2, 10_000), &short), "");
    assert_eq!(
        text(port(2, 100), &short),
        "sched-entry 0 (01): an interval of 300ns is shorter than 4800ns, the shortest frame at \
         the rate that the interface states; sched-entry 1 (02): an interval of 1700ns is shorter \
         than 4800ns, the shortest frame at the rate that the interface states; a cycle-time of \
         2us is shorter than 9600ns: 2 times the shortest frame"
    );
    assert_eq!(
        text(port(1, 10_000), &short),
        "taprio on 1 transmit queues: it takes an interface with several"
    );
    let wide = parse("mqprio num_tc 2 map 0 1 queues 1@0 4@1 hw 0");
    assert_eq!(text(port(4, 100), &wide), "mqprio on 4 transmit queues: traffic class 1 has 4@1");
    assert_eq!(text(port(5, 100), &wide), "");
    let cbs = parse("cbs idleslope 20000 sendslope -980000 hicredit 30 locredit -1470");
    assert!(port(1, 1_000).doubts(&cbs).is_empty());
    assert_eq!(
        port(1, 10_000).doubts(&cbs)[0].to_string(),
        "idleslope less sendslope is 1000000 kbit/s, and the interface states 10Gbit: the class \
         does not get its rate"
    );
}

#[test]
fn t0_what_linux_takes_and_a_reader_would_not_expect() {
    let text = |words: &str| {
        parse(words).doubts().iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
    };
    assert_eq!(text("taprio num_tc 2 map 0 1 queues 1@0 1@1 sched-entry S 3 9 clockid TAI"), "");
    let cases = [
        ("taprio sched-entry S 1 9 cycle-time 8 clockid TAI", "the cycle-time of 8ns cuts"),
        ("taprio sched-entry S 1 9 cycle-time 10 clockid TAI", "the kernel starts over"),
        ("taprio sched-entry S 1 9 clockid BOOTTIME", "CLOCK_BOOTTIME is not the time"),
        (
            "taprio num_tc 2 map 0 1 queues 1@0 1@1 sched-entry S 1 9 clockid TAI",
            "no entry opens the gate of traffic class 1",
        ),
        (
            "taprio num_tc 2 map 0 1 queues 1@0 1@1 sched-entry S 103 9 clockid TAI",
            "sched-entry 0 opens gates 103 of 2 traffic classes",
        ),
        ("mqprio num_tc 2 map 0 1 queues 1@1 1@0 hw 0", "traffic class 1 has queues before"),
        ("etf clockid TAI", "a delta of 0 wakes etf at the launch time"),
        ("cbs sendslope -1", "idleslope 0 is no rate"),
        ("cbs idleslope 1 sendslope 888", "sendslope 888 is not negative"),
        ("cbs idleslope 1 sendslope -1 hicredit -1 locredit 1", "hicredit -1 is on the wrong"),
    ];
    for (words, why) in cases {
        let said = text(words);
        assert!(said.contains(why), "{words}\n  said: {said}\n  want: {why}");
    }
}

/// `tc -j qdisc show dev eth0` of iproute2 6.1.0 on Linux 6.12.
const SHOWN: &str = include_str!("fixtures/tc-6.1.0-set.json");

/// The same of iproute2 6.15.0, the last two columns of `taprio` being new.
const SHOWN_NEW: &str = include_str!("fixtures/tc-6.15.0-set.json");

/// A schedule that waits for its base time: iproute2 6.1.0 prints no JSON then.
const WAITS: &str = include_str!("fixtures/tc-6.1.0-waiting.txt");

/// The same of iproute2 6.15.0.
const WAITS_NEW: &str = include_str!("fixtures/tc-6.15.0-waiting.json");

#[test]
fn t1_what_tc_shows_reads_as_what_was_set() {
    let shown = ShownQdisc::parse(SHOWN).unwrap();
    let taprio = "taprio num_tc 2 map 0 1 0 0 0 0 0 0 0 0 0 0 0 0 0 0 queues 1@0 1@1 base-time 0 \
                  sched-entry S 01 300000 cycle-time 300000 flags 0x1 txtime-delay 5000 \
                  clockid CLOCK_TAI";
    let configured = |shown: &ShownQdisc| shown.configured().map(|qdisc| qdisc.to_string());
    assert_eq!(configured(&shown[0]).as_deref(), Some(taprio));
    assert_eq!(
        (shown[0].place, shown[0].handle),
        (Some(QdiscPosition::Root), Some(Handle::new(1)))
    );
    assert_eq!((shown[1].kind.as_str(), configured(&shown[1])), ("pfifo", None));
    assert_eq!(shown[1].handle, None);
    assert_eq!(
        configured(&shown[2]).as_deref(),
        Some("etf clockid CLOCK_TAI delta 100 skip_sock_check")
    );
    assert_eq!(shown[2].place, Some(QdiscPosition::Parent(ClassId { major: 1, minor: 1 })));
    assert_eq!(
        configured(&shown[3]).as_deref(),
        Some("cbs idleslope 20000 sendslope -980000 hicredit 30 locredit -1470")
    );
    let new = ShownQdisc::parse(SHOWN_NEW).unwrap();
    assert_eq!(new[0].oper, shown[0].oper);
    let bounded = SHOWN_NEW.replacen("\"max-sdu\":[0,0,", "\"max-sdu\":[0,361,", 1);
    let bounded = ShownQdisc::parse(&bounded).unwrap();
    assert_eq!((&bounded[0].oper, &bounded[0].max_sdu_in_force), (&shown[0].oper, &vec![0, 361]));
    assert_eq!(
        configured(&new[1]).as_deref(),
        Some("mqprio num_tc 2 map 0 1 0 0 0 0 0 0 0 0 0 0 0 0 0 0 queues 1@0 2@1 hw 0")
    );
    assert_eq!(new[1].unshown, ["hw"]);
}

/// What `tc` of both versions prints of the four is all interpreted.
#[test]
fn t1_nothing_that_tc_shows_of_the_four_is_left() {
    let mut count = 0;
    for text in [SHOWN, SHOWN_NEW, WAITS, WAITS_NEW] {
        for one in ShownQdisc::parse(text).unwrap() {
            if one.configured().is_some() {
                assert_eq!(one.unread, [], "{}", one.kind);
                count += 1;
            }
        }
    }
    assert!(count >= 6, "{count}");
    let more = SHOWN.replacen("\"clockid\"", "\"guard\":7,\"clockid\"", 1);
    let more = ShownQdisc::parse(&more).unwrap();
    assert_eq!((more[0].unread[0].path.as_str(), more[0].unread[0].count), ("/options/guard", 1));
}

#[test]
fn t1_a_schedule_that_waits_is_read_of_both_versions() {
    let old = ShownQdisc::parse(WAITS).unwrap();
    assert_eq!(old, ShownQdisc::parse(WAITS_NEW).unwrap());
    assert_eq!(old[0].oper, None);
    let admin = old[0].admin.as_ref().unwrap();
    assert_eq!(admin.options().base_time, Span::from_ns(2_000_000_000_000_000_000));
    assert_eq!(admin.options().entries.len(), 2);
}

/// iproute2 6.1.0 prints the clock that full offload does not have, and times before the epoch as
/// numbers of 64 bits without a sign.
#[test]
fn t1_oddities_of_tc_are_read() {
    let text = SHOWN
        .replace(
            "\"clockid\":\"TAI\",\"flags\":\"0x1\"",
            "\"clockid\":\"invalid\",\"flags\":\"0x2\"",
        )
        .replace("\"txtime_delay\":5000,\"base_time\":0", "\"base_time\":18446744073709551611");
    assert_ne!(text, SHOWN);
    let Some(Qdisc::Taprio(taprio)) = ShownQdisc::parse(&text).unwrap()[0].configured() else {
        panic!("no taprio");
    };
    let options = taprio.options();
    assert_eq!((options.mode, options.clock), (TaprioMode::FullOffload, None));
    assert_eq!(options.base_time, Span::from_ns(-5));
}

#[test]
fn t0_text_that_is_no_list_of_disciplines_is_refused() {
    let cases = [
        ("", "the whole text: EOF"),
        ("{}", "the whole text: is no list"),
        ("[1]", "[0]: is no object"),
        ("[{}]", "[0]: has no kind"),
        (r#"[{"kind":"etf","options":{"clockid":7}}]"#, "[0].options.clockid: is no text"),
        (r#"[{"kind":"etf","options":{"clockid":"TAI","delta":-1}}]"#, "etf: a delta of -1ns"),
        (r#"[{"kind":"cbs","options":{"hicredit":9999999999}}]"#, "is more than 32 bits"),
        (r#"[{"kind":"cbs","handle":"xyz","options":{}}]"#, "`handle xyz`"),
    ];
    for (text, why) in cases {
        let said = ShownQdisc::parse(text).unwrap_err().to_string();
        assert!(said.contains(why), "{text}\n  said: {said}\n  want: {why}");
    }
}

fn classes() -> impl Strategy<Value = TrafficClasses> {
    (1_u64..=16).prop_flat_map(|count| {
        let widths = proptest::collection::vec(1_u16..5, usize::try_from(count).unwrap());
        let map = proptest::array::uniform16(0..count);
        (Just(count), map, widths).prop_map(|(count, map, widths)| {
            let map = map.map(|class| TrafficClass::new(class).unwrap());
            let mut next = 0;
            let ranges = widths.into_iter().map(|width| {
                let offset = TxQueue::new(next).unwrap();
                next += u64::from(width);
                QueueRange { count: width, offset }
            });
            TrafficClasses::new(count, map, ranges.collect()).unwrap()
        })
    })
}

fn operation() -> impl Strategy<Value = GateOperation> {
    use GateOperation as G;
    prop_oneof![Just(G::SetGates), Just(G::SetAndHold), Just(G::SetAndRelease)]
}

fn preemption() -> impl Strategy<Value = Vec<FramePreemption>> {
    let one = prop_oneof![Just(FramePreemption::Express), Just(FramePreemption::Preemptible)];
    proptest::collection::vec(one, 0..=16)
}

prop_compose! {
    fn taprio()(
        classes in proptest::option::of(classes()),
        mode in prop_oneof![
            Just(TaprioMode::Software),
            Just(TaprioMode::TxtimeAssist),
            Just(TaprioMode::FullOffload)
        ],
        clock in prop_oneof![
            Just(QdiscClock::Tai), Just(QdiscClock::Realtime),
            Just(QdiscClock::Monotonic), Just(QdiscClock::Boottime)
        ],
        base_time in any::<i64>(),
        cycle in prop_oneof![Just(0), 30_i64..=2_147_483_647],
        extension in any::<i64>(),
        entries in proptest::collection::vec((operation(), any::<u32>(), 1_i64..70_000_000), 1..30),
        delay in 0_i64..=4_294_967_295,
        max_sdu in proptest::collection::vec(any::<u32>(), 0..=16),
        preemption in preemption(),
    ) -> Taprio {
        let entry = |(operation, mask, ns)| GateControlEntry {
            operation,
            gate_states: GateMask::new(mask),
            interval: Span::from_ns(ns),
        };
        let full = mode == TaprioMode::FullOffload;
        Taprio::new(TaprioOptions {
            classes,
            mode,
            clock: (!full).then_some(clock),
            base_time: Span::from_ns(base_time),
            cycle_time: Span::from_ns(cycle),
            cycle_time_extension: Span::from_ns(extension),
            entries: entries.into_iter().map(entry).collect(),
            txtime_delay: Span::from_ns(if mode == TaprioMode::TxtimeAssist { delay } else { 0 }),
            max_sdu,
            preemption: if full { preemption } else { Vec::new() },
        }).unwrap()
    }
}

prop_compose! {
    fn mqprio()(
        classes in classes(),
        hardware in prop_oneof![
            Just(MqprioHardware::None), Just(MqprioHardware::Dcb),
            Just(MqprioHardware::Channel(MqprioShaper::Dcb)),
            Just(MqprioHardware::Channel(MqprioShaper::BwRlimit))
        ],
        rates in proptest::collection::vec((any::<u64>(), any::<u64>()), 16),
        both in any::<bool>(),
        preemption in preemption(),
    ) -> Mqprio {
        let limited = hardware == MqprioHardware::Channel(MqprioShaper::BwRlimit);
        let count = usize::from(classes.count());
        let rates = &rates[..count];
        let (min, max): (Vec<_>, Vec<_>) = rates.iter().map(|(min, max)| (
            ClassRate::from_bytes_per_second(*min), ClassRate::from_bytes_per_second(*max)
        )).unzip();
        Mqprio::new(MqprioOptions {
            classes,
            hardware,
            min_rate: if limited { min } else { Vec::new() },
            max_rate: if limited && both { max } else { Vec::new() },
            preemption: if hardware == MqprioHardware::None { Vec::new() } else { preemption },
        }).unwrap()
    }
}

prop_compose! {
    fn etf()(
        delta in 0_i64..=2_147_483_647,
        offload in any::<bool>(),
        deadline_mode in any::<bool>(),
        skip_sock_check in any::<bool>(),
    ) -> Etf {
        let flags = EtfFlags { offload, deadline_mode, skip_sock_check };
        Etf::new(Span::from_ns(delta), flags).unwrap()
    }
}

prop_compose! {
    fn cbs()(slopes in any::<(i32, i32)>(), credit in any::<(i32, i32)>(), offload in any::<bool>())
        -> Cbs {
        Cbs {
            idle_slope_kbit: slopes.0,
            send_slope_kbit: slopes.1,
            hi_credit_bytes: credit.0,
            lo_credit_bytes: credit.1,
            offload,
        }
    }
}

fn qdisc() -> impl Strategy<Value = Qdisc> {
    prop_oneof![
        taprio().prop_map(Qdisc::Taprio),
        mqprio().prop_map(Qdisc::Mqprio),
        etf().prop_map(Qdisc::Etf),
        cbs().prop_map(Qdisc::Cbs),
    ]
}

fn place() -> impl Strategy<Value = QdiscPosition> {
    prop_oneof![
        Just(QdiscPosition::Root),
        (1_u16.., any::<u16>())
            .prop_map(|(major, minor)| QdiscPosition::Parent(ClassId { major, minor })),
    ]
}

proptest! {
    #[test]
    fn t0_what_is_printed_reads_back(qdisc in qdisc()) {
        prop_assert_eq!(qdisc.to_string().parse::<Qdisc>(), Ok(qdisc));
    }

    #[test]
    fn t0_a_printed_command_reads_back(
        qdisc in qdisc(),
        place in place(),
        handle in proptest::option::of(any::<u16>()),
        overhead in proptest::option::of(1_u16..),
        verb in prop_oneof![
            Just(InstallVerb::Add), Just(InstallVerb::Change),
            Just(InstallVerb::Replace), Just(InstallVerb::Link)
        ],
        delete in proptest::option::of(prop_oneof![Just(None), Just(Some(QdiscKind::Cbs))]),
    ) {
        let action = match delete {
            Some(kind) => QdiscAction::Delete { kind },
            None => QdiscAction::Install { verb, qdisc },
        };
        let device = IfName::new("eth0").unwrap();
        let (handle, table) = (handle.map(Handle::new), overhead.map(SizeTable::new));
        let Ok(command) = QdiscCommand::new(action, device, Some(place), handle, table) else {
            return Ok(());
        };
        let printed = command.to_string();
        prop_assert_eq!(QdiscCommand::of_message(&printed), Ok(command.clone()));
        let of_tc = command.check_tc_message().map(|()| command.clone());
        prop_assert_eq!(printed.parse::<QdiscCommand>(), of_tc);
        let arguments = command.arguments();
        prop_assert_eq!(format!("tc {}", arguments.join(" ")), command.to_string());
    }

    #[test]
    fn t0_any_words_are_read_or_refused(
        words in proptest::collection::vec(prop::sample::select(vec![
            "tc", "qdisc", "add", "del", "dev", "eth0", "root", "parent", "1:1", "handle", "1:",
            "stab", "overhead", "24", "taprio", "mqprio", "etf", "cbs", "num_tc", "2", "map", "0",
            "1", "queues", "1@0", "1@1", "sched-entry", "S", "ff", "-1", "clockid", "TAI", "flags",
            "fp", "E", "P", "max-sdu", "hw", "mode", "channel", "shaper", "bw_rlimit", "min_rate",
            "1mbit", "delta", "offload", "hicredit", "@", "0x", "99999999999999999999", "é",
        ]), 0..30),
    ) {
        let text = words.join(" ");
        if let Ok(command) = text.parse::<QdiscCommand>() {
            prop_assert_eq!(command.to_string().parse::<QdiscCommand>(), Ok(command));
        }
        let _ = text.parse::<Qdisc>();
    }

    #[test]
    fn t0_any_text_of_tc_is_read_or_refused(cut in 0_usize..700, letter in any::<char>()) {
        for whole in [SHOWN, SHOWN_NEW, WAITS, WAITS_NEW] {
            let cut = cut.min(whole.len());
            let text = format!("{}{letter}{}", &whole[..cut], &whole[cut..]);
            let _ = ShownQdisc::parse(&text);
            let _ = ShownQdisc::parse(&whole[..cut]);
        }
    }
}
