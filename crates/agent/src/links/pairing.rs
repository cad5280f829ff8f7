// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Pairing: two stations learn each other's keys, vouched for by a code that a person carries from
//! one to the other.
//!
//! Both ends prove that they know the code with HMAC-SHA-256 over the keys of both and a value that
//! this TLS connection alone has. Who sits in between has two connections with two such values and
//! a key of its own, so that no proof of one is good in the other; and from a proof the code, with
//! 100 random bits, cannot be guessed.
//!
//! Not here: what a paired station may do (`crate::links::peers`).

use std::fmt;
use std::net::SocketAddr;
use std::str::FromStr;
use std::time::{Duration, Instant};

use ring::hmac;
use serde::{Deserialize, Serialize};

use crate::links::connect::connect_for;
use crate::links::error::{LinkError, protocol};
use crate::links::identity::{Fingerprint, Identity, hex, random, unhex};
use crate::links::link::{Link, LinkLimits, Peer};
use crate::links::listener::{ListenLimits, Listener, Log};
use crate::links::peers::{PairedPeer, Peers, Role, plain_name};
use crate::links::tls::{Purpose, Wanted};

/// What a person carries from the agent to the controller: 20 symbols of 5 random bits each, good
/// for one pairing.
#[derive(Clone, PartialEq, Eq)]
pub struct PairingCode([u8; SYMBOLS]);

impl PairingCode {
    /// A fresh one.
    ///
    /// **Errors**: the kernel gives no random numbers.
    pub fn fresh() -> Result<PairingCode, LinkError> {
        let mut bytes = [0; SYMBOLS];
        random(&mut bytes)?;
        // 32 divides 256: every symbol is as likely as any other.
        Ok(PairingCode(bytes.map(|byte| ALPHABET[usize::from(byte % 32)])))
    }

    fn key(&self) -> hmac::Key {
        hmac::Key::new(hmac::HMAC_SHA256, &self.0)
    }
}

impl fmt::Display for PairingCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, symbol) in self.0.iter().enumerate() {
            if at > 0 && at % GROUP == 0 {
                f.write_str("-")?;
            }
            write!(f, "{}", char::from(*symbol))?;
        }
        Ok(())
    }
}

/// A secret stays out of logs.
impl fmt::Debug for PairingCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PairingCode")
    }
}

impl FromStr for PairingCode {
    type Err = LinkError;

    /// Reads a code as people type it: small letters, spaces and hyphens anywhere, and letters that
    /// look like digits, are as good.
    fn from_str(text: &str) -> Result<PairingCode, LinkError> {
        let wrong = || LinkError::NotA {
            text: text.chars().take(80).collect(),
            what: "pairing code",
            right: "20 letters and digits, as `timewire agent pair` shows them on the agent",
        };
        let mut symbols = Vec::with_capacity(SYMBOLS);
        for c in text.chars().filter(|c| *c != '-' && !c.is_whitespace()) {
            let symbol = match c.to_ascii_uppercase() {
                'O' => '0',
                'I' | 'L' => '1',
                other => other,
            };
            let symbol = u8::try_from(symbol).map_err(|_| wrong())?;
            if !ALPHABET.contains(&symbol) {
                return Err(wrong());
            }
            symbols.push(symbol);
        }
        symbols.try_into().map(PairingCode).map_err(|_| wrong())
    }
}

/// The bounds of an offer to be paired.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OfferLimits {
    /// How long it stands.
    pub lasts: Duration,
    /// How many wrong codes end it.
    pub tries: u32,
}

impl Default for OfferLimits {
    fn default() -> OfferLimits {
        OfferLimits { lasts: Duration::from_secs(300), tries: 3 }
    }
}

/// An agent's offer to be paired with the one controller that knows its code.
#[derive(Debug)]
pub struct Offer {
    listener: Listener,
    code: PairingCode,
    identity: Identity,
    peers: Peers,
    name: String,
    until: Instant,
    limits: OfferLimits,
}

impl Offer {
    /// Listens for that controller. `name` is what it will know this station by.
    ///
    /// **Errors**: the address cannot be used; no random numbers.
    pub fn new(
        address: SocketAddr,
        identity: &Identity,
        peers: &Peers,
        name: &str,
        limits: OfferLimits,
        log: Log,
    ) -> Result<Offer, LinkError> {
        let code = PairingCode::fresh()?;
        let bounds = ListenLimits { link: link_limits(), ..ListenLimits::default() };
        let listener =
            Listener::tcp_for(address, identity, Purpose::Pairing, Wanted::Anybody, bounds, log)?;
        let until = Instant::now() + limits.lasts;
        let (identity, peers) = (identity.clone(), peers.clone());
        Ok(Offer { listener, code, identity, peers, name: plain_name(name), until, limits })
    }

    /// The code to carry to the controller.
    pub fn code(&self) -> &PairingCode {
        &self.code
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.listener.address().expect("invariant: it listens on TCP")
    }

    /// Waits for the controller, and trusts it from then on. `wrong` hears of each wrong code.
    ///
    /// **Errors**: too many wrong codes, or the time is over; nothing is trusted then.
    pub fn wait(self, mut wrong: impl FnMut(&LinkError)) -> Result<PairedPeer, LinkError> {
        let mut tries = 0;
        loop {
            let left = self.until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                let seconds = self.limits.lasts.as_secs();
                return Err(pairing(format!("nobody gave the code within {seconds} s")));
            }
            let Some(link) = self.listener.accept(left) else { continue };
            let peer = link.peer().to_string();
            match self.answer(link) {
                Ok(peer) => return Ok(peer),
                Err(error @ LinkError::Pairing { .. }) => {
                    wrong(&error);
                    tries += 1;
                }
                // Whoever does not get as far as giving a code has not guessed.
                Err(error) => self.listener.refuse(&peer, &error.to_string()),
            }
            if tries >= self.limits.tries {
                return Err(pairing(format!("{tries} wrong codes were given")));
            }
        }
    }

    fn answer(&self, mut link: Link) -> Result<PairedPeer, LinkError> {
        let parties = Parties::of(&link, Role::Controller, self.identity.fingerprint())?;
        let claim = receive(&mut link)?;
        let peer = link.peer().to_string();
        if !parties.is_proven(&self.code, Role::Controller, &claim.proof) {
            link.split().0.close("the code is wrong");
            return Err(pairing(format!("{peer} gave a wrong code")));
        }
        // Trusted before the answer: the controller that has it can connect.
        let paired = self.peers.add(Role::Controller, &claim.name, parties.controller)?;
        send(&link, &self.name, &parties.prove(&self.code, Role::Agent))?;
        Ok(paired)
    }
}

/// Gives an agent its code, and trusts it from then on. `name` is what it will know this station
/// by.
///
/// **Errors**: the code is wrong or its time over; the other end does not know it, such as one that
/// sits in between. Nothing is trusted then.
pub fn pair_with(
    address: &str,
    identity: &Identity,
    peers: &Peers,
    name: &str,
    code: &PairingCode,
) -> Result<PairedPeer, LinkError> {
    let limits = link_limits();
    let mut link = connect_for(address, identity, Purpose::Pairing, Wanted::Anybody, limits)?;
    let parties = Parties::of(&link, Role::Agent, identity.fingerprint())?;
    send(&link, &plain_name(name), &parties.prove(code, Role::Controller))?;
    let answer = receive(&mut link).map_err(|error| match error {
        LinkError::Closed { reason } => pairing(format!("the agent says: {reason}")),
        other => other,
    })?;
    if !parties.is_proven(code, Role::Agent, &answer.proof) {
        return Err(pairing("the other end does not know the code: it is not that agent".into()));
    }
    peers.add(Role::Agent, &answer.name, parties.agent)
}

/// Whom a proof is about.
struct Parties {
    controller: Fingerprint,
    agent: Fingerprint,
    binding: [u8; 32],
}

impl Parties {
    /// Those of a connection whose other end is this.
    fn of(link: &Link, other_end: Role, own: Fingerprint) -> Result<Parties, LinkError> {
        let (Peer::Station { fingerprint, .. }, Some(binding)) = (link.peer(), link.binding())
        else {
            return Err(protocol("pairing needs TLS"));
        };
        let other = *fingerprint;
        Ok(match other_end {
            Role::Controller => Parties { controller: other, agent: own, binding },
            Role::Agent => Parties { controller: own, agent: other, binding },
        })
    }

    /// What is proven; all its parts have a fixed length.
    fn statement(&self, by: Role) -> Vec<u8> {
        let by: &[u8] = match by {
            Role::Controller => b"timewire pairing 1 controller",
            Role::Agent => b"timewire pairing 1 agent.....",
        };
        [by, &self.binding, self.controller.as_bytes(), self.agent.as_bytes()].concat()
    }

    fn prove(&self, code: &PairingCode, by: Role) -> String {
        hex(hmac::sign(&code.key(), &self.statement(by)).as_ref())
    }

    fn is_proven(&self, code: &PairingCode, by: Role, proof: &str) -> bool {
        unhex(proof)
            .is_some_and(|proof| hmac::verify(&code.key(), &self.statement(by), &proof).is_ok())
    }
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Claim {
    name: String,
    proof: String,
}

fn send(link: &Link, name: &str, proof: &str) -> Result<(), LinkError> {
    let claim = Claim { name: name.to_owned(), proof: proof.to_owned() };
    link.send(&serde_json::to_vec(&claim).expect("invariant: two texts"))
}

fn receive(link: &mut Link) -> Result<Claim, LinkError> {
    let seconds = ANSWER_WITHIN.as_secs();
    let message = link.receive(ANSWER_WITHIN)?.ok_or(LinkError::Silent { seconds })?;
    serde_json::from_slice(&message).map_err(|error| protocol(error.to_string()))
}

fn pairing(why: String) -> LinkError {
    LinkError::Pairing { why }
}

fn link_limits() -> LinkLimits {
    LinkLimits { message_bytes: 1_024, ..LinkLimits::default() }
}

const SYMBOLS: usize = 20;
const GROUP: usize = 5;
/// No letters that look like digits (Crockford's base 32).
const ALPHABET: &[u8; 32] = b"0123456789ABCDEFGHJKMNPQRSTVWXYZ";
/// Also the longest that a stranger keeps others from being answered.
const ANSWER_WITHIN: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests;
