// SPDX-License-Identifier: Apache-2.0 OR MIT
//! From a filter as it is meant to the struct for the kernel: disjunctive normal form.

use std::net::IpAddr;

use super::FilterError;
use super::compiled::{
    Conjunction, KEY_WORDS, MAX_CONJUNCTIONS, MAX_TESTS, Match, Test, kind, word,
};
use super::expr::{Expr, Primitive, Side};
use super::frame::{halves, mac_bits, name_words};

/// Most tests, and most conjunctions, while a filter is being compiled.
const MAX_WHILE: usize = 64;
const EVERY: u64 = u64::MAX;

/// The struct for the kernel.
///
/// **Errors**: it does not fit, or it asks for what only events have.
pub(super) fn compile(expr: &Expr) -> Result<Match, FilterError> {
    let mut compiler = Compiler { tests: Vec::new(), crowded: None };
    let terms = compiler.terms(expr, true)?;
    let used = terms.iter().fold(0, |bits, term| bits | term.all | term.none);
    let used: Vec<usize> =
        (0..compiler.tests.len()).filter(|&test| used & (1 << test) != 0).collect();
    if terms.len() > MAX_CONJUNCTIONS || used.len() > MAX_TESTS {
        let at = compiler.crowded.unwrap_or(0);
        return Err(too_large(at, terms.len(), used.len()));
    }
    let mut result = Match { conjunction_count: 0, ..Match::ALL };
    result.test_count = u32::try_from(used.len()).expect("invariant: at most 16");
    result.conjunction_count = u32::try_from(terms.len()).expect("invariant: at most 8");
    let renumber = |bits: u64| {
        let place = |(new, &old): (usize, &usize)| u32::from(bits & (1 << old) != 0) << new;
        used.iter().enumerate().map(place).sum()
    };
    for (conjunction, term) in result.conjunctions.iter_mut().zip(&terms) {
        *conjunction = Conjunction { all: renumber(term.all), none: renumber(term.none) };
    }
    for (test, &old) in result.tests.iter_mut().zip(&used) {
        *test = compiler.tests[old];
    }
    Ok(result)
}

fn too_large(at: usize, terms: usize, tests: usize) -> FilterError {
    let what = if terms > MAX_CONJUNCTIONS {
        format!("from here on the filter has more than {MAX_CONJUNCTIONS} alternatives ({terms})")
    } else {
        format!("from here on the filter makes more than {MAX_TESTS} comparisons ({tests})")
    };
    let right = "a program in the kernel has no room for it: use a `net` or `portrange` in place \
                 of single ones, or trace more and cut the capture";
    FilterError { at, what, right: right.to_owned() }
}

/// A conjunction while compiling.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Term {
    all: u64,
    none: u64,
}

impl Term {
    /// Whether this holds wherever the other does.
    fn covers(self, other: Term) -> bool {
        self.all & !other.all == 0 && self.none & !other.none == 0
    }
}

struct Compiler {
    tests: Vec<Test>,
    /// The first place where the filter was too large.
    crowded: Option<usize>,
}

impl Compiler {
    fn terms(&mut self, expr: &Expr, positive: bool) -> Result<Vec<Term>, FilterError> {
        match (expr, positive) {
            (Expr::All, true) => Ok(vec![Term { all: 0, none: 0 }]),
            (Expr::All, false) => Ok(Vec::new()),
            (Expr::Not(inner), _) => self.terms(inner, !positive),
            (Expr::Is(at, primitive), _) => self.primitive(*at, primitive, positive),
            (Expr::And(at, left, right), true) | (Expr::Or(at, left, right), false) => {
                let (left, right) = (self.terms(left, positive)?, self.terms(right, positive)?);
                self.both(*at, &left, &right)
            }
            (Expr::And(at, left, right), false) | (Expr::Or(at, left, right), true) => {
                let mut terms = self.terms(left, positive)?;
                terms.extend(self.terms(right, positive)?);
                self.simplified(*at, terms)
            }
        }
    }

    fn primitive(
        &mut self,
        at: usize,
        primitive: &Primitive,
        positive: bool,
    ) -> Result<Vec<Term>, FilterError> {
        let (tests, both) = tests_of(primitive).ok_or_else(|| FilterError {
            at,
            what: format!("`{primitive}` is known of events, not of frames"),
            right: "trace without it and cut the capture".to_owned(),
        })?;
        let mut literals = Vec::new();
        for test in tests {
            let bit = 1_u64 << self.number(at, test)?;
            let (all, none) = if positive { (bit, 0) } else { (0, bit) };
            literals.push(vec![Term { all, none }]);
        }
        let joined = if both == positive {
            let all = vec![Term { all: 0, none: 0 }];
            literals.iter().try_fold(all, |terms, next| self.both(at, &terms, next))?
        } else {
            literals.concat()
        };
        Ok(joined)
    }

    fn number(&mut self, at: usize, test: Test) -> Result<usize, FilterError> {
        if let Some(number) = self.tests.iter().position(|known| *known == test) {
            return Ok(number);
        }
        if self.tests.len() == MAX_TESTS {
            self.crowded = self.crowded.or(Some(at));
        }
        if self.tests.len() == MAX_WHILE {
            return Err(too_large(self.crowded.unwrap_or(at), 0, MAX_WHILE + 1));
        }
        self.tests.push(test);
        Ok(self.tests.len() - 1)
    }

    fn both(&mut self, at: usize, a: &[Term], b: &[Term]) -> Result<Vec<Term>, FilterError> {
        let pair = |a: &Term, b: &Term| Term { all: a.all | b.all, none: a.none | b.none };
        let terms = a.iter().flat_map(|a| b.iter().map(move |b| pair(a, b))).collect();
        self.simplified(at, terms)
    }

    /// Without what cannot hold or is covered by another; two that differ in one test's sign only
    /// are one without that test.
    fn simplified(&mut self, at: usize, terms: Vec<Term>) -> Result<Vec<Term>, FilterError> {
        let mut kept: Vec<Term> = Vec::new();
        let mut open = terms;
        open.reverse();
        while let Some(term) = open.pop() {
            if term.all & term.none != 0 || kept.iter().any(|known| known.covers(term)) {
                continue;
            }
            kept.retain(|known| !term.covers(*known));
            let twin = kept.iter().position(|known| {
                let differ = (known.all ^ term.all) | (known.none ^ term.none);
                differ.count_ones() == 1
                    && known.all ^ term.all == differ
                    && known.none ^ term.none == differ
            });
            match twin {
                Some(twin) => {
                    let known = kept.remove(twin);
                    open.push(Term { all: known.all & term.all, none: known.none & term.none });
                }
                None => kept.push(term),
            }
        }
        if kept.len() > MAX_CONJUNCTIONS {
            self.crowded = self.crowded.or(Some(at));
        }
        if kept.len() > MAX_WHILE {
            return Err(too_large(self.crowded.unwrap_or(at), kept.len(), 0));
        }
        Ok(kept)
    }
}

/// The tests of a condition, and whether all of them must hold (or one); `None` when frames do not
/// show it.
fn tests_of(primitive: &Primitive) -> Option<(Vec<Test>, bool)> {
    let one = |test: Test| Some((vec![test], true));
    match *primitive {
        Primitive::Kinds(kinds) => one(Test { kinds, ..Test::default() }),
        Primitive::Protocol { kinds, protocol } => {
            let least = u64::from(protocol) << 16;
            one(equal(word::SOURCE_PORT, kinds, 0xff_0000, least))
        }
        Primitive::Net { kinds, side, address, prefix } => {
            let (mask, next_mask) = match address {
                IpAddr::V4(_) => (0, prefix_mask(32 + prefix.min(32)) & 0xffff_ffff),
                IpAddr::V6(_) => (prefix_mask(prefix.min(64)), prefix_mask(prefix.max(64) - 64)),
            };
            let (least, next_value) = halves(address);
            let (least, next_value) = (least & mask, next_value & next_mask);
            let test = Test { mask, least, next_mask, next_value, kinds, ..Test::default() };
            Some(sided(test, side, word::SOURCE, word::DESTINATION))
        }
        Primitive::Ports { kinds, protocol, side, least, most } => {
            let protocol_mask = if protocol.is_some() { 0xff_0000 } else { 0 };
            let protocol = u64::from(protocol.unwrap_or(0)) << 16;
            let mask = word::HAS_PORTS | protocol_mask | 0xffff;
            let start = word::HAS_PORTS | protocol | u64::from(least);
            let span = u64::from(most.saturating_sub(least));
            let test = Test { mask, least: start, span, kinds, ..Test::default() };
            Some(sided(test, side, word::SOURCE_PORT, word::DESTINATION_PORT))
        }
        Primitive::EtherType(ether_type) => {
            let value = u64::from(ether_type) << 48;
            one(equal(word::ETHER_DESTINATION, kind::ANY, 0xffff << 48, value))
        }
        Primitive::Mac { side, address } => {
            let test = equal(0, kind::ANY, word::MAC, mac_bits(address));
            Some(sided(test, side, word::ETHER_SOURCE, word::ETHER_DESTINATION))
        }
        Primitive::Multicast => one(equal(word::ETHER_DESTINATION, kind::ANY, 1 << 40, 1 << 40)),
        Primitive::Vlan(None) => {
            one(equal(word::ETHER_SOURCE, kind::ANY, word::TAGGED, word::TAGGED))
        }
        Primitive::Vlan(Some(id)) => {
            let value = word::TAGGED | u64::from(id) << 48;
            one(equal(word::ETHER_SOURCE, kind::ANY, word::TAGGED | 0xfff << 48, value))
        }
        Primitive::Pcp(pcp) => {
            let value = word::TAGGED | u64::from(pcp) << 60;
            one(equal(word::ETHER_SOURCE, kind::ANY, word::TAGGED | 7 << 60, value))
        }
        Primitive::Process(number) => {
            let number = u64::from(number);
            let thread = equal(word::PROCESS, kind::ANY, 0xffff_ffff, number);
            let process = equal(word::PROCESS, kind::ANY, 0xffff_ffff << 32, number << 32);
            Some((vec![thread, process], false))
        }
        Primitive::ProcessName(ref name) => one(named(word::PROCESS_NAME, name)),
        Primitive::Interface(ref name) => one(named(word::INTERFACE, name)),
        Primitive::OfEvent(_) => None,
    }
}

fn equal(word: u8, kinds: u16, mask: u64, least: u64) -> Test {
    Test { mask, least, kinds, word, other: word, ..Test::default() }
}

fn named(word: u8, name: &str) -> Test {
    let [least, next_value] = name_words(name);
    Test { next_mask: EVERY, next_value, ..equal(word, kind::ANY, EVERY, least) }
}

fn sided(test: Test, side: Side, source: u8, destination: u8) -> (Vec<Test>, bool) {
    let at = |word: u8, other: u8| Test { word, other, ..test };
    let tests = match side {
        Side::Source => vec![at(source, source)],
        Side::Destination => vec![at(destination, destination)],
        Side::Either => vec![at(source, destination)],
        Side::Both => vec![at(source, source), at(destination, destination)],
    };
    (tests, true)
}

/// The uppermost `bits` of 64.
fn prefix_mask(bits: u8) -> u64 {
    EVERY.checked_shl(u32::from(64 - bits.min(64))).unwrap_or(0)
}

// The word that follows the last that a test names is there.
const _: () = assert!((word::INTERFACE_END as usize) < KEY_WORDS - 1);
