// SPDX-License-Identifier: Apache-2.0 OR MIT
use timewire_base::SocketPriority;
use timewire_base::drops::SocketLaunch;

use super::*;

fn qdisc(kind: &str, refuser: Refuser, (drops, overlimits): (u64, u64)) -> QdiscDrops {
    let (interface, handle, parent) = ("eth0".to_owned(), "8001:".to_owned(), "root".to_owned());
    QdiscDrops { interface, kind: kind.to_owned(), handle, parent, refuser, drops, overlimits }
}

fn etf(counted: (u64, u64)) -> QdiscDrops {
    qdisc("etf", Refuser::Etf { deadline: false }, counted)
}

/// Priority 0 is of class 0, whose gate shuts, priority 1 of class 1, whose gate never does.
fn taprio(assist: bool, drops: u64) -> QdiscDrops {
    let [zero, one] = [0, 1].map(|class| TrafficClass::new(class).unwrap());
    let refuser =
        Refuser::Taprio { assist, classes: vec![zero, one, zero], always_open: vec![one] };
    qdisc("taprio", refuser, (drops, 0))
}

fn other(kind: &str, drops: u64) -> QdiscDrops {
    qdisc(kind, Refuser::Other, (drops, 0))
}

fn socket(launch: Option<(bool, bool)>, priority: u64) -> Socket {
    let launch = launch.map(|(is_tai, deadline)| SocketLaunch { is_tai, deadline });
    let priority = Some(SocketPriority::new(priority).unwrap());
    Socket { launch, priority, ..Socket::default() }
}

const PLAIN: Option<(bool, bool)> = None;
const LAUNCH: Option<(bool, bool)> = Some((true, false));

fn full(no_buffers: u64) -> Heard {
    Heard { no_buffers, ..Heard::default() }
}

/// Of an `etf`: both the call and the error queue tell of it.
fn bad_launch(invalid: u64, past: u64) -> Heard {
    Heard { no_buffers: invalid, invalid, past, ..Heard::default() }
}

type CausesBySocket = Vec<(u64, Vec<Cause>)>;

fn told(sockets: &[(Socket, Heard)], qdiscs: Option<&[QdiscDrops]>) -> CausesBySocket {
    let of = |it: &DropCause| (it.frames, it.candidates.iter().map(|it| it.cause).collect());
    decide(sockets, qdiscs).iter().map(of).collect()
}

#[test]
#[rustfmt::skip]
fn t1_each_cause_is_named_for_what_tells_it_from_the_others() {
    use Cause::*;
    let again = Heard { again: 4, ..Heard::default() };
    let busy = Heard { busy: 4, ..Heard::default() };
    let missed = Heard { missed: 4, ..Heard::default() };
    type Row = (Option<(bool, bool)>, u64, Heard, Vec<QdiscDrops>, CausesBySocket);
    let table: Vec<Row> = vec![
        (PLAIN, 0, full(4), vec![etf((4, 0))], vec![(4, vec![NoLaunchTime])]),
        (LAUNCH, 0, bad_launch(4, 4), vec![etf((4, 0))], vec![(4, vec![LaunchPast])]),
        (LAUNCH, 0, bad_launch(4, 1), vec![etf((4, 0))],
            vec![(1, vec![LaunchPast]), (3, vec![LaunchPast, LaunchOutOfOrder])]),
        (Some((false, false)), 0, bad_launch(4, 4), vec![etf((4, 0))],
            vec![(4, vec![LaunchClock])]),
        (Some((true, true)), 0, bad_launch(4, 4), vec![etf((4, 0))], vec![(4, vec![LaunchMode])]),
        (LAUNCH, 0, missed, vec![etf((4, 4))], vec![(4, vec![LaunchMissed])]),
        (LAUNCH, 0, full(4), vec![taprio(false, 4)], vec![(4, vec![OutsideGate, FrameTooLong])]),
        (LAUNCH, 1, full(4), vec![taprio(false, 4)], vec![(4, vec![AcrossEntry])]),
        (PLAIN, 0, full(4), vec![taprio(false, 4)], vec![(4, vec![FrameTooLong])]),
        (PLAIN, 0, full(4), vec![taprio(true, 4)], vec![(4, vec![OutsideGate, FrameTooLong])]),
        (PLAIN, 0, full(4), vec![other("pfifo", 4)], vec![(4, vec![QueueFull])]),
        (PLAIN, 0, full(4), vec![other("fq", 4)], vec![(4, vec![QueueFull, QdiscRule])]),
        (PLAIN, 0, again, vec![other("pfifo", 0)], vec![(4, vec![SocketBufferFull])]),
        (PLAIN, 0, busy, vec![other("pfifo", 0)], vec![(4, vec![NicQueueFull])]),
        (PLAIN, 0, full(4), vec![other("pfifo", 0)], vec![(4, vec![Elsewhere])]),
        // Several disciplines that add up, and one with drops of others besides.
        (PLAIN, 0, full(4), vec![taprio(false, 3), other("pfifo", 1)],
            vec![(3, vec![FrameTooLong]), (1, vec![QueueFull])]),
        (PLAIN, 0, full(4), vec![taprio(false, 3), other("pfifo", 9)],
            vec![(4, vec![FrameTooLong, QueueFull])]),
        (PLAIN, 0, full(4), vec![etf((3, 0))], vec![(3, vec![NoLaunchTime]), (1, vec![Elsewhere])]),
        // What the error queue told is not told again.
        (LAUNCH, 0, Heard { no_buffers: 6, ..bad_launch(4, 4) },
            vec![etf((4, 0)), taprio(false, 2)],
            vec![(4, vec![LaunchPast]), (2, vec![OutsideGate, FrameTooLong])]),
        (PLAIN, 0, full(0), vec![etf((4, 0))], vec![]),
    ];
    for (launch, priority, heard, qdiscs, expected) in table {
        let sockets = [(socket(launch, priority), heard)];
        assert_eq!(told(&sockets, Some(&qdiscs)), expected, "{sockets:?} {qdiscs:?}");
    }
}

#[test]
fn t1_without_counters_and_with_two_sockets_all_that_is_possible_is_named() {
    use Cause::*;
    let plain = vec![NoLaunchTime, FrameTooLong, QueueFull];
    assert_eq!(told(&[(socket(PLAIN, 0), full(4))], None), [(4, plain)]);
    let launch = vec![OutsideGate, FrameTooLong, QueueFull];
    assert_eq!(told(&[(socket(LAUNCH, 0), full(4))], None), [(4, launch)]);
    let past = vec![LaunchPast, LaunchOutOfOrder, LaunchMode];
    let late = told(&[(socket(LAUNCH, 0), bad_launch(4, 1))], None);
    assert_eq!(late, [(1, vec![LaunchPast]), (3, past)]);
    let two = [(socket(PLAIN, 0), full(4)), (socket(PLAIN, 1), full(2))];
    assert_eq!(told(&two, Some(&[etf((6, 0))])), [(6, vec![NoLaunchTime])]);
    let some = vec![NoLaunchTime, Elsewhere];
    assert_eq!(told(&two, Some(&[etf((5, 0))])), [(6, some)]);
    // An interface that dropped is the one; a VLAN that has no discipline is not.
    let on = |name: &str| Socket { interface: Some(name.to_owned()), ..socket(PLAIN, 0) };
    let other = QdiscDrops { interface: "eth1".to_owned(), ..other("pfifo", 4) };
    let both = [etf((4, 0)), other];
    assert_eq!(told(&[(on("eth1"), full(4))], Some(&both)), [(4, vec![QueueFull])]);
    assert_eq!(told(&[(on("eth0.5"), full(4))], Some(&both[..1])), [(4, vec![NoLaunchTime])]);
}

#[test]
fn t1_the_text_names_the_discipline_the_cause_and_what_would_be_right() {
    let told = decide(&[(socket(PLAIN, 0), full(4))], Some(&[etf((4, 0))]));
    assert_eq!(
        told[0].to_string(),
        "4 dropped: etf 8001: of eth0: the socket has no launch times (SO_TXTIME), and etf drops \
         all frames without one. Send with launch times (--launch), or with a priority of a class \
         without etf"
    );
    let told = decide(&[(socket(PLAIN, 0), full(4))], Some(&[other("fq", 4)]));
    assert!(told[0].to_string().starts_with("4 dropped, one of: fq 8001: of eth0: the limit"));
    let json = serde_json::to_value(&told).unwrap();
    assert_eq!(json[0]["candidates"][0]["cause"], "queue_full");
    assert_eq!(serde_json::from_value::<Vec<DropCause>>(json).unwrap(), told);
}

/// Whatever the disciplines count, it is not of a socket that passes none of them.
#[test]
fn t1_a_socket_that_bypasses_the_disciplines_has_causes_of_the_interface() {
    let bypassing = Socket { bypasses_qdisc: true, ..Socket::default() };
    let heard = Heard { no_buffers: 3, down: 2, again: 1, ..Heard::default() };
    let expected = [
        (3, vec![Cause::NicQueueFull, Cause::NoLink]),
        (1, vec![Cause::SocketBufferFull]),
        (2, vec![Cause::NoLink]),
    ];
    for qdiscs in [None, Some(&[other("pfifo", 3), etf((3, 0))][..])] {
        assert_eq!(told(&[(bypassing.clone(), heard)], qdiscs), expected);
    }
}
