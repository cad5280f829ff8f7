// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Codes and proofs, and pairing against those who guess and those who sit in between.

use std::sync::{Arc, Mutex};
use std::thread;

use super::*;
use crate::links::scratch::Scratch;

#[test]
fn t0_codes_are_read_as_people_type_them() {
    let code = PairingCode::fresh().unwrap();
    let text = code.to_string();
    assert_eq!(text.len(), 23);
    assert!(text.parse::<PairingCode>().unwrap() == code);
    let typed = text.to_lowercase().replace('-', " ").replace('0', "o").replace('1', "l");
    assert!(typed.parse::<PairingCode>().unwrap() == code);
    for wrong in ["", "12345", &text[1..], &format!("{text}0"), "U2345-12345-12345-12345"] {
        assert!(wrong.parse::<PairingCode>().is_err(), "{wrong}");
    }
    assert!(PairingCode::fresh().unwrap() != code);
}

#[test]
fn t0_a_proof_is_good_for_its_code_parties_connection_and_side_alone() {
    let of = |controller: &[u8], agent: &[u8], binding| Parties {
        controller: Fingerprint::of_key(controller),
        agent: Fingerprint::of_key(agent),
        binding: [binding; 32],
    };
    let (code, honest) = (PairingCode::fresh().unwrap(), of(b"c", b"a", 1));
    let proof = honest.prove(&code, Role::Controller);
    assert!(honest.is_proven(&code, Role::Controller, &proof));
    assert!(!honest.is_proven(&code, Role::Agent, &proof));
    let other = PairingCode::fresh().unwrap();
    assert!(!honest.is_proven(&other, Role::Controller, &proof));
    for others in [of(b"m", b"a", 1), of(b"c", b"m", 1), of(b"c", b"a", 2), of(b"a", b"c", 1)] {
        assert!(!others.is_proven(&code, Role::Controller, &proof));
    }
    assert!(!honest.is_proven(&code, Role::Controller, ""));
}

struct Station {
    _directory: Scratch,
    identity: Identity,
    peers: Peers,
}

fn station() -> Station {
    let directory = Scratch::new("station");
    let identity = Identity::load_or_create(directory.path()).unwrap();
    let peers = Peers::in_directory(directory.path());
    Station { _directory: directory, identity, peers }
}

fn offer(agent: &Station, limits: OfferLimits) -> Offer {
    offer_with(agent, limits, Arc::new(|_: &str| {}))
}

fn offer_with(agent: &Station, limits: OfferLimits, log: Log) -> Offer {
    let at = "127.0.0.1:0".parse().unwrap();
    Offer::new(at, &agent.identity, &agent.peers, "st1", limits, log).unwrap()
}

fn give(controller: &Station, to: SocketAddr, code: &PairingCode) -> Result<PairedPeer, LinkError> {
    pair_with(&to.to_string(), &controller.identity, &controller.peers, "desk", code)
}

fn trusts_nobody(station: &Station) -> bool {
    station.peers.list().unwrap().is_empty()
}

#[test]
fn t3_the_right_code_pairs_both_ends() {
    let (agent, controller) = (station(), station());
    let offer = offer(&agent, OfferLimits::default());
    let (code, to) = (offer.code().clone(), offer.address());
    let waiting = thread::spawn(move || offer.wait(|error| panic!("{error}")).unwrap());
    let paired = give(&controller, to, &code).unwrap();
    assert_eq!((paired.name.as_str(), paired.role), ("st1", Role::Agent));
    assert_eq!(paired.fingerprint, agent.identity.fingerprint());
    let other = waiting.join().unwrap();
    assert_eq!((other.name.as_str(), other.role), ("desk", Role::Controller));
    assert_eq!(other.fingerprint, controller.identity.fingerprint());
    assert_eq!(agent.peers.list().unwrap(), [other]);
    assert_eq!(controller.peers.list().unwrap(), [paired]);
    // It was good for one.
    assert!(give(&station(), to, &code).is_err());
}

#[test]
fn t3_a_few_wrong_codes_end_the_offer() {
    let (agent, controller) = (station(), station());
    let offer = offer(&agent, OfferLimits { tries: 2, ..OfferLimits::default() });
    let (right, to) = (offer.code().clone(), offer.address());
    let waiting = thread::spawn(move || {
        let mut wrong = 0;
        (offer.wait(|_| wrong += 1).unwrap_err().to_string(), wrong)
    });
    for _ in 0..2 {
        let error = give(&controller, to, &PairingCode::fresh().unwrap()).unwrap_err();
        assert_eq!(error.to_string(), "not paired: the agent says: the code is wrong");
    }
    let (error, wrong) = waiting.join().unwrap();
    assert_eq!((error.as_str(), wrong), ("not paired: 2 wrong codes were given", 2));
    assert!(give(&controller, to, &right).is_err());
    assert!(trusts_nobody(&agent) && trusts_nobody(&controller));
}

#[test]
fn t3_an_offer_ends_by_itself() {
    let agent = station();
    let limits = OfferLimits { lasts: Duration::from_millis(30), ..OfferLimits::default() };
    let error = offer(&agent, limits).wait(|_| {}).unwrap_err();
    assert!(matches!(error, LinkError::Pairing { .. }), "{error}");
    assert!(trusts_nobody(&agent));
}

#[test]
fn t3_who_sits_in_between_is_trusted_by_neither_end() {
    let (agent, controller, between) = (station(), station(), station());
    let offer = offer(&agent, OfferLimits { tries: 1, ..OfferLimits::default() });
    let (code, there) = (offer.code().clone(), offer.address());
    let waiting = thread::spawn(move || offer.wait(|_| {}));
    let bounds = ListenLimits { link: link_limits(), ..ListenLimits::default() };
    let anybody = Wanted::Anybody;
    let log: Log = Arc::new(|_: &str| {});
    let at = "127.0.0.1:0".parse().unwrap();
    let trap = Listener::tcp_for(at, &between.identity, Purpose::Pairing, anybody, bounds, log);
    let trap = trap.unwrap();
    let here = trap.address().unwrap();
    let relay = thread::spawn(move || {
        let mut to_controller = trap.accept(Duration::from_secs(10)).unwrap();
        let there = there.to_string();
        let limits = link_limits();
        let anybody = Wanted::Anybody;
        let mut to_agent =
            connect_for(&there, &between.identity, Purpose::Pairing, anybody, limits).unwrap();
        // Every message is passed on as it is.
        let claim = to_controller.receive(Duration::from_secs(10)).unwrap().unwrap();
        to_agent.send(&claim).unwrap();
        to_agent.receive(Duration::from_secs(10)).unwrap_err();
        // Nor does an answer help that repeats what is known.
        to_controller.send(&claim).unwrap();
    });
    let error = give(&controller, here, &code).unwrap_err();
    assert!(error.to_string().contains("it is not that agent"), "{error}");
    relay.join().unwrap();
    assert!(waiting.join().unwrap().is_err());
    assert!(trusts_nobody(&agent) && trusts_nobody(&controller));
}

#[test]
fn t3_a_link_is_no_pairing_and_a_pairing_no_link() {
    let (agent, controller) = (station(), station());
    controller.peers.add(Role::Agent, "st1", agent.identity.fingerprint()).unwrap();
    agent.peers.add(Role::Controller, "desk", controller.identity.fingerprint()).unwrap();
    let offer = offer(&agent, OfferLimits::default());
    let to = offer.address().to_string();
    let limits = LinkLimits::default();
    let link = crate::links::connect_tcp(&to, &controller.identity, &controller.peers, limits);
    assert!(matches!(link, Err(LinkError::Handshake { .. })), "{link:?}");
    let at = "127.0.0.1:0".parse().unwrap();
    let log: Log = Arc::new(|_: &str| {});
    let listener =
        Listener::tcp(at, &agent.identity, &agent.peers, ListenLimits::default(), log).unwrap();
    let paired = give(&controller, listener.address().unwrap(), offer.code());
    assert!(matches!(paired, Err(LinkError::Handshake { .. })), "{paired:?}");
}

#[test]
fn t3_strangers_have_few_lines_and_no_control_of_the_terminal() {
    let (agent, stranger) = (station(), station());
    let lines = Arc::new(Mutex::new(Vec::new()));
    let to = Arc::clone(&lines);
    let log: Log = Arc::new(move |line| to.lock().unwrap().push(line.to_owned()));
    let limits = OfferLimits { tries: 1, ..OfferLimits::default() };
    let offer = offer_with(&agent, limits, log);
    let to = offer.address();
    let waiting = thread::spawn(move || {
        let mut wrong = 0;
        offer.wait(|_| wrong += 1).unwrap_err();
        wrong
    });
    let rude = format!("{{\"\\u001b[2J{}\":1}}", "x".repeat(900));
    for _ in 0..30 {
        let (purpose, anybody) = (Purpose::Pairing, Wanted::Anybody);
        let at = to.to_string();
        let mut link = connect_for(&at, &stranger.identity, purpose, anybody, link_limits());
        let link = link.as_mut().unwrap();
        link.send(rude.as_bytes()).unwrap();
        assert!(link.receive(Duration::from_secs(10)).is_err());
    }
    // What is no claim is no guess, and is told in few lines.
    assert!(give(&stranger, to, &PairingCode::fresh().unwrap()).is_err());
    assert_eq!(waiting.join().unwrap(), 1);
    let lines = lines.lock().unwrap();
    assert!((1..=12).contains(&lines.len()), "{lines:?}");
    let plain = |line: &String| line.len() < 600 && !line.contains(char::is_control);
    assert!(lines.iter().all(plain), "{lines:?}");
    assert!(lines[0].contains("?[2Jxxx"), "{lines:?}");
}
