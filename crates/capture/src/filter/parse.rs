// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A filter, read from text. As in `tcpdump`, `and` and `or` bind equally and from the left, `not`
//! binds closer, and a bare value after them takes the words before the last value.
//!
//! **Source**: pcap-filter(7) of libpcap 1.10.

use timewire_base::wire::{MacAddress, is_tag};

use super::FilterError;
use super::compiled::kind;
use super::expr::{Expr, OfEvent, Primitive, Side};
use super::value;
use crate::event::Hook;

/// **Units**: bytes of the longest text.
pub const MAX_TEXT: usize = 8192;
const MAX_DEPTH: usize = 100;
const NAME_BYTES: usize = 15;

const STARTS: &str = "a condition starts with host, net, port, portrange, src, dst, ip, ip6, arp, \
                      tcp, udp, sctp, icmp, icmp6, ether, vlan, pcp, process, interface, flow, \
                      tag, hook, station, cpu, an address, `not` or `(`";

/// Reads a filter.
///
/// **Errors**: what cannot be read, with its place and what would be right.
pub(super) fn parse(text: &str) -> Result<Expr, FilterError> {
    if text.len() > MAX_TEXT {
        let what = format!("a filter of {} bytes", text.len());
        return Err(error(MAX_TEXT, what, "at most 8192 bytes"));
    }
    let mut parser = Parser { words: words(text)?, next: 0, end: text.len(), last: None };
    if parser.words.is_empty() {
        return Ok(Expr::All);
    }
    let expr = parser.expr(0)?;
    match parser.peek() {
        None => Ok(expr),
        Some(word) => {
            let (at, what) = (word.at, format!("`{}` does not belong here", word.text));
            Err(error(at, what, "`and`, `or` or the end of the filter"))
        }
    }
}

fn error(at: usize, what: impl Into<String>, right: impl Into<String>) -> FilterError {
    FilterError { at, what: what.into(), right: right.into() }
}

#[derive(Clone, Debug)]
struct Word {
    at: usize,
    text: String,
    quoted: bool,
}

fn words(text: &str) -> Result<Vec<Word>, FilterError> {
    let mut words: Vec<Word> = Vec::new();
    let mut rest = text.char_indices().peekable();
    let plain = |c: char| !c.is_whitespace() && !"()!&|\"".contains(c);
    while let Some((at, c)) = rest.next() {
        let mut word = Word { at, text: c.to_string(), quoted: false };
        match c {
            _ if c.is_whitespace() => continue,
            '(' | ')' => {}
            '!' => word.text = "not".to_owned(),
            '&' | '|' => {
                if rest.next_if(|&(_, next)| next == c).is_none() {
                    return Err(error(at, format!("a single `{c}`"), "`and`, `or`, `&&` or `||`"));
                }
                word.text = if c == '&' { "and" } else { "or" }.to_owned();
            }
            '"' => {
                word.quoted = true;
                word.text.clear();
                loop {
                    match rest.next() {
                        Some((_, '"')) => break,
                        Some((_, c)) => word.text.push(c),
                        None => return Err(error(at, "a name that has no end", "a closing `\"`")),
                    }
                }
            }
            _ => {
                while let Some((_, c)) = rest.next_if(|&(_, next)| plain(next)) {
                    word.text.push(c);
                }
            }
        }
        words.push(word);
    }
    Ok(words)
}

/// What is compared, by the words before a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sort {
    /// A host, or a network when the value is one.
    Any,
    Host,
    Net,
    Port,
    PortRange,
    Protocol,
    EtherHost,
}

/// The words before a value.
#[derive(Clone, Copy, Debug)]
struct Qualifiers {
    kinds: u16,
    protocol: Option<u8>,
    side: Side,
    sort: Sort,
}

const PLAIN: Qualifiers =
    Qualifiers { kinds: kind::ANY, protocol: None, side: Side::Either, sort: Sort::Any };

struct Parser {
    words: Vec<Word>,
    next: usize,
    end: usize,
    last: Option<Qualifiers>,
}

impl Parser {
    fn peek(&self) -> Option<&Word> {
        self.words.get(self.next)
    }

    fn is_next(&self, text: &str) -> bool {
        self.peek().is_some_and(|word| !word.quoted && word.text == text)
    }

    fn eat(&mut self, text: &str) -> Option<usize> {
        let found = self.is_next(text);
        self.next += usize::from(found);
        found.then(|| self.words[self.next - 1].at)
    }

    fn take(&mut self, wanted: &str) -> Result<Word, FilterError> {
        let word = self.peek().cloned();
        let word = word.ok_or_else(|| error(self.end, "the filter ends", wanted))?;
        self.next += 1;
        Ok(word)
    }

    /// A value of a kind, read by a function.
    fn value<T>(
        &mut self,
        wanted: &str,
        read: impl FnOnce(&str) -> Option<T>,
    ) -> Result<T, FilterError> {
        let word = self.take(wanted)?;
        read(&word.text)
            .ok_or_else(|| error(word.at, format!("`{}` is not right here", word.text), wanted))
    }

    fn expr(&mut self, depth: usize) -> Result<Expr, FilterError> {
        let mut left = self.term(depth)?;
        loop {
            if let Some(at) = self.eat("and") {
                left = Expr::And(at, Box::new(left), Box::new(self.term(depth)?));
            } else if let Some(at) = self.eat("or") {
                left = Expr::Or(at, Box::new(left), Box::new(self.term(depth)?));
            } else {
                return Ok(left);
            }
        }
    }

    fn term(&mut self, depth: usize) -> Result<Expr, FilterError> {
        if depth == MAX_DEPTH {
            let at = self.peek().map_or(self.end, |word| word.at);
            return Err(error(at, "too deep", "at most 100 of `(` and `not` within each other"));
        }
        if self.eat("not").is_some() {
            return Ok(Expr::Not(Box::new(self.term(depth + 1)?)));
        }
        if self.eat("(").is_some() {
            let inner = self.expr(depth + 1)?;
            let word = self.take("`)`")?;
            if word.quoted || word.text != ")" {
                let what = format!("`{}` does not belong here", word.text);
                return Err(error(word.at, what, "`and`, `or` or `)`"));
            }
            return Ok(inner);
        }
        let at = self.peek().map_or(self.end, |word| word.at);
        self.condition(at).map(|primitive| Expr::Is(at, primitive))
    }

    fn condition(&mut self, at: usize) -> Result<Primitive, FilterError> {
        let word = self.take(STARTS)?;
        if word.quoted {
            return Err(error(at, format!("the name \"{}\" alone", word.text), STARTS));
        }
        let plain = |kinds: u16, protocol: Option<u8>| Qualifiers { kinds, protocol, ..PLAIN };
        match word.text.as_str() {
            "ip" => self.qualified(at, plain(kind::IPV4, None)),
            "ip6" => self.qualified(at, plain(kind::IPV6, None)),
            "arp" => self.qualified(at, plain(kind::ARP, None)),
            "rarp" => self.qualified(at, plain(kind::RARP, None)),
            "tcp" => self.qualified(at, plain(kind::IP, Some(6))),
            "udp" => self.qualified(at, plain(kind::IP, Some(17))),
            "sctp" => self.qualified(at, plain(kind::IP, Some(132))),
            "icmp" => Ok(Primitive::Protocol { kinds: kind::IPV4, protocol: 1 }),
            "icmp6" => Ok(Primitive::Protocol { kinds: kind::IPV6, protocol: 58 }),
            "src" | "dst" | "host" | "net" | "port" | "portrange" | "proto" => {
                self.next -= 1;
                self.qualified(at, PLAIN)
            }
            "ether" => self.ether(at),
            "multicast" => Ok(Primitive::Multicast),
            "broadcast" => Ok(broadcast()),
            "vlan" => {
                let id = self.peek().filter(|word| word.text.starts_with(|c: char| c.is_numeric()));
                if id.is_none() {
                    return Ok(Primitive::Vlan(None));
                }
                let id = |text: &str| value::number(text, 4095).and_then(|n| u16::try_from(n).ok());
                self.value("a VLAN, 0 to 4095", id).map(|id| Primitive::Vlan(Some(id)))
            }
            "pcp" => {
                let pcp = |text: &str| value::number(text, 7).and_then(|n| u8::try_from(n).ok());
                self.value("a priority code point, 0 to 7", pcp).map(Primitive::Pcp)
            }
            "process" => self.process(),
            "interface" | "ifname" => {
                self.name("the name of an interface").map(Primitive::Interface)
            }
            "tag" | "flow" | "hook" | "station" | "cpu" => {
                self.of_event(&word.text).map(Primitive::OfEvent)
            }
            _ if word.text.starts_with(|c: char| c.is_ascii_hexdigit() || c == ':') => {
                self.next -= 1;
                self.compared(self.last.unwrap_or(PLAIN))
            }
            _ => Err(error(at, format!("`{}` is no condition", word.text), STARTS)),
        }
    }

    /// After a protocol: more words and a value, or nothing.
    fn qualified(&mut self, at: usize, start: Qualifiers) -> Result<Primitive, FilterError> {
        let mut qualifiers = start;
        let sided = self.is_next("src") || self.is_next("dst");
        if sided {
            qualifiers.side = self.side()?;
        }
        let sort = self.peek().filter(|word| !word.quoted).and_then(|word| sort(&word.text));
        match sort {
            Some(sort) => {
                self.next += 1;
                qualifiers.sort = sort;
            }
            None if !sided => {
                return Ok(match qualifiers.protocol {
                    Some(protocol) => Primitive::Protocol { kinds: qualifiers.kinds, protocol },
                    None => Primitive::Kinds(qualifiers.kinds),
                });
            }
            None => {}
        }
        let of_ports = matches!(qualifiers.sort, Sort::Port | Sort::PortRange);
        if qualifiers.protocol.is_some() && !of_ports {
            let right = "`ip` or `ip6` before host, net and proto; `tcp`, `udp` or `sctp` before \
                         port and portrange";
            return Err(error(at, "a protocol that has ports, before something else", right));
        }
        if of_ports || qualifiers.sort == Sort::Protocol {
            if qualifiers.kinds & kind::IP == 0 {
                return Err(error(at, "ARP has no ports and protocols", "`ip` or `ip6`"));
            }
            qualifiers.kinds &= kind::IP;
        }
        if qualifiers.sort == Sort::Protocol && sided {
            return Err(error(at, "`src` or `dst` before `proto`", "`proto` alone"));
        }
        self.last = Some(qualifiers);
        self.compared(qualifiers)
    }

    fn side(&mut self) -> Result<Side, FilterError> {
        let wanted = "`src` or `dst`";
        let first = self.take(wanted)?.text;
        let joined = ["or", "and"].into_iter().find(|word| self.is_next(word));
        let second = self.words.get(self.next + 1).map(|word| word.text.as_str());
        let pair = matches!((first.as_str(), second), ("src", Some("dst")) | ("dst", Some("src")));
        // `src 1.2.3.4 or dst ...` has its value between; `src or dst ...` has not.
        match joined {
            Some(word) if pair => {
                self.next += 2;
                Ok(if word == "or" { Side::Either } else { Side::Both })
            }
            _ if first == "src" => Ok(Side::Source),
            _ => Ok(Side::Destination),
        }
    }

    fn ether(&mut self, at: usize) -> Result<Primitive, FilterError> {
        let wanted = "`proto`, `src`, `dst`, `host`, `broadcast` or `multicast` after `ether`";
        if self.eat("broadcast").is_some() {
            return Ok(broadcast());
        }
        if self.eat("multicast").is_some() {
            return Ok(Primitive::Multicast);
        }
        if self.eat("proto").is_some() {
            let read = |text: &str| value::number(text, 0xffff).filter(|&number| number >= 0x600);
            let wanted = "an EtherType, 0x600 to 0xffff, such as 0x88f7";
            let number = self.value(wanted, read)?;
            if u16::try_from(number).is_ok_and(is_tag) {
                let what = "the EtherType behind VLAN tags is compared, and this is that of a tag";
                return Err(error(at, what, "`vlan`, alone or with a number"));
            }
            let number = u16::try_from(number).expect("invariant: at most 16 bits");
            return Ok(Primitive::EtherType(number));
        }
        let mut qualifiers = Qualifiers { sort: Sort::EtherHost, ..PLAIN };
        let sided = self.is_next("src") || self.is_next("dst");
        if sided {
            qualifiers.side = self.side()?;
        }
        if self.eat("host").is_none() && !sided {
            let word = self.take(wanted)?;
            let what = format!("`{}` is not right here", word.text);
            return Err(error(word.at, what, wanted));
        }
        self.last = Some(qualifiers);
        self.compared(qualifiers)
    }

    /// A value, compared as the words before it say.
    fn compared(&mut self, qualifiers: Qualifiers) -> Result<Primitive, FilterError> {
        let Qualifiers { kinds, protocol, side, sort } = qualifiers;
        match sort {
            Sort::Any | Sort::Host | Sort::Net => {
                let word = self.take("an address")?;
                let net = match sort {
                    Sort::Any => value::net(&word.text, value::Wanted::HostOrNet),
                    Sort::Host => value::net(&word.text, value::Wanted::Host),
                    _ => value::net(&word.text, value::Wanted::Net),
                };
                let (address, prefix) = net.map_err(|(what, right)| error(word.at, what, right))?;
                let own = if address.is_ipv4() {
                    kind::IPV4 | kind::ARP | kind::RARP
                } else {
                    kind::IPV6
                };
                if kinds & own == 0 {
                    let what = format!("`{}` is an address of the other version", word.text);
                    return Err(error(word.at, what, "`ip` with IPv4, `ip6` with IPv6"));
                }
                Ok(Primitive::Net { kinds: kinds & own, side, address, prefix })
            }
            Sort::Port | Sort::PortRange => {
                let range = sort == Sort::PortRange;
                let wanted = if range { "two ports, `7000-7010`" } else { "a port, 0 to 65535" };
                let (least, most) = self.value(wanted, |text| value::ports(text, range))?;
                Ok(Primitive::Ports { kinds, protocol, side, least, most })
            }
            Sort::Protocol => {
                let protocol = self.value("a protocol of IP, 0 to 255", value::protocol)?;
                Ok(Primitive::Protocol { kinds, protocol })
            }
            Sort::EtherHost => {
                let wanted = "a MAC address, `02:00:00:00:00:01`";
                self.value(wanted, value::mac).map(|address| Primitive::Mac { side, address })
            }
        }
    }

    fn name(&mut self, wanted: &str) -> Result<String, FilterError> {
        let word = self.take(wanted)?;
        if word.text.is_empty() || matches!(word.text.as_str(), "(" | ")") && !word.quoted {
            return Err(error(word.at, "there is no name", wanted));
        }
        if word.text.len() > NAME_BYTES {
            let what = format!("the kernel's names have at most {NAME_BYTES} bytes");
            let whole = |&(at, _): &(usize, char)| at <= NAME_BYTES;
            let cut = word.text.char_indices().take_while(whole).last().map_or(0, |(at, _)| at);
            return Err(error(word.at, what, format!("\"{}\"", &word.text[..cut])));
        }
        if let Some(at) = word.text.find('\0') {
            let what = "the kernel's names end before a byte that is zero";
            let right = match &word.text[..at] {
                "" => wanted.to_owned(),
                before => format!("\"{before}\""),
            };
            return Err(error(word.at, what, right));
        }
        Ok(word.text)
    }

    fn process(&mut self) -> Result<Primitive, FilterError> {
        let wanted = "the name of a thread, or the number of it or of its process";
        let quoted = self.peek().is_some_and(|word| word.quoted);
        let numeric = |word: &&Word| word.text.starts_with(|c: char| c.is_ascii_digit());
        if !quoted && self.peek().filter(numeric).is_some() {
            let wanted = "a number from 1 on; a name that begins with a digit in quotes";
            let read = |text: &str| value::number(text, u32::MAX).filter(|&number| number > 0);
            return self.value(wanted, read).map(Primitive::Process);
        }
        self.name(wanted).map(Primitive::ProcessName)
    }

    fn of_event(&mut self, what: &str) -> Result<OfEvent, FilterError> {
        match what {
            "tag" => {
                let wanted = "a tag, a number such as 0x0000000700000001";
                self.value(wanted, value::number64).map(OfEvent::Tag)
            }
            "flow" => {
                let wanted = "a flow: the upper half of its tags, or a part of its name in quotes";
                let word = self.take(wanted)?;
                if word.quoted && !word.text.is_empty() {
                    return Ok(OfEvent::FlowName(word.text));
                }
                let number = value::number(&word.text, u32::MAX);
                let what = || error(word.at, format!("`{}` is not right here", word.text), wanted);
                number.map(OfEvent::Flow).ok_or_else(what)
            }
            "hook" => {
                let names: Vec<&str> = Hook::ALL.iter().map(|hook| hook.name()).collect();
                let wanted = format!("one of {}", names.join(", "));
                self.value(&wanted, Hook::from_name).map(OfEvent::Hook)
            }
            "cpu" => {
                let read =
                    |text: &str| value::number(text, 0xffff).and_then(|n| u16::try_from(n).ok());
                self.value("the number of a CPU", read).map(OfEvent::Cpu)
            }
            _ => {
                let wanted = "the name of a station";
                let name = |text: &str| (!text.is_empty()).then(|| text.to_owned());
                self.value(wanted, name).map(OfEvent::Station)
            }
        }
    }
}

fn broadcast() -> Primitive {
    Primitive::Mac { side: Side::Destination, address: MacAddress([0xff; 6]) }
}

fn sort(word: &str) -> Option<Sort> {
    Some(match word {
        "host" => Sort::Host,
        "net" => Sort::Net,
        "port" => Sort::Port,
        "portrange" => Sort::PortRange,
        "proto" => Sort::Protocol,
        _ => return None,
    })
}
