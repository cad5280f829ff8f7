// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Streams that no talker sends in periods: answers and steps of chains, requests, and sporadic
//! streams without a reservation. Their messages are sent by `timewire_datapath::reply`, of which a
//! station has a program for each kind and interface.

use std::collections::BTreeMap;

use timewire_base::{Instant, Span, StationName};
use timewire_datapath::reply::{ReplyStream, ReplyTask, SendWhen};
use timewire_model::scenario::network::{NetDelay, NetStream, NetTraffic};
use timewire_plan::model::LinkId;

use super::{Compiler, class, group, vid};
use crate::simulation::fixed_or_drawn;

/// Most messages of a stream whose times are listed.
pub(super) const MOST_MESSAGES: usize = 400_000;

impl Compiler<'_> {
    /// The stream that begins the chain of this one: itself, where it follows none.
    pub(super) fn first_of<'s>(&'s self, stream: &'s NetStream) -> &'s NetStream {
        let mut first = stream;
        // A chain that goes round would be an error of the file.
        for _ in 0..self.file.streams.len() {
            let Some(before) = self.file.followed(first) else { break };
            first = before;
        }
        first
    }

    /// A stream and its number.
    pub(super) fn named(&self, name: &str) -> Option<(usize, &NetStream)> {
        self.file.streams.iter().enumerate().find(|(_, it)| it.name.as_str() == name)
    }

    /// When messages of a sporadic stream are sent, as in the simulator.
    pub(super) fn times_of(&self, number: usize, stream: &NetStream) -> Vec<Span> {
        let NetTraffic::Sporadic(it) = &stream.traffic else { return Vec::new() };
        let seed = (self.file.seed.get(), number);
        let gap = fixed_or_drawn(&it.gap);
        let times = gap.map(|gap| gap.releases(seed, self.file.duration, MOST_MESSAGES + 1));
        times.unwrap_or_default()
    }

    /// The program that sends a stream, at its talker.
    pub(super) fn program_of(&self, stream: &NetStream, routes: &[Vec<LinkId>]) -> String {
        let interface = |it: Option<String>| it.unwrap_or_default();
        match &stream.traffic {
            NetTraffic::After(_) => format!("follow-{}", interface(self.hears(stream, routes))),
            NetTraffic::Request(_) => format!("request-{}", interface(self.hears(stream, routes))),
            // Its list is long enough to be a file of its own.
            NetTraffic::Sporadic(_) => {
                let number = self.named(stream.name.as_str()).map_or(0, |(number, _)| number);
                format!("sporadic-{}", number + 1)
            }
            _ => format!("talk-{}", self.leaves(stream, routes)),
        }
    }

    /// The interface on which the talker of a stream hears those that its own messages wait for.
    fn hears(&self, stream: &NetStream, routes: &[Vec<LinkId>]) -> Option<String> {
        let number = self.heard(stream)?;
        let cause = &self.file.streams[number];
        let path = self.path(&routes[number], &cause.talker, &stream.talker);
        Some(self.interface(&stream.talker, path.last()?.index() / 2))
    }

    /// The stream that its messages wait for, by its number.
    fn heard(&self, stream: &NetStream) -> Option<usize> {
        let cause = match &stream.traffic {
            NetTraffic::After(it) => &it.follows,
            NetTraffic::Request(it) => &it.answer,
            _ => return None,
        };
        self.named(cause.as_str()).map(|(number, _)| number)
    }

    /// The interface through which the frames of a stream leave its talker.
    pub(super) fn leaves(&self, stream: &NetStream, routes: &[Vec<LinkId>]) -> String {
        let route = self.named(stream.name.as_str()).map(|(number, _)| &routes[number]);
        let first =
            route.and_then(|it| it.iter().find(|link| *self.ends(**link).0 == stream.talker));
        first.map(|link| self.interface(&stream.talker, link.index() / 2)).unwrap_or_default()
    }

    /// The programs of a station that send such streams, by their names; one with an end sends
    /// something by itself, until then.
    pub(super) fn senders(
        &self,
        station: &StationName,
        routes: &[Vec<LinkId>],
    ) -> BTreeMap<String, ReplyTask> {
        let mut all: BTreeMap<String, ReplyTask> = BTreeMap::new();
        for (number, stream) in self.file.streams.iter().enumerate() {
            let Some(when) = self.when(number, stream).filter(|_| stream.talker == *station) else {
                continue;
            };
            let is_own = !matches!(when, SendWhen::After { .. });
            let name = self.program_of(stream, routes);
            let start = Instant::from_ns(0);
            let heard = self.heard(stream).map(vid);
            let task = all.entry(name).or_insert_with(|| ReplyTask {
                hears: self.hears(stream, routes).and_then(|it| it.parse().ok()),
                hears_vid: heard,
                start,
                end: is_own.then_some(start + self.file.duration),
                streams: Vec::new(),
            });
            task.hears_vid = task.hears_vid.filter(|vid| Some(*vid) == heard);
            let interface = self.leaves(stream, routes).parse();
            task.streams.extend(interface.ok().map(|interface| ReplyStream {
                stream: u16::try_from(number + 1).unwrap_or(u16::MAX),
                interface,
                to: group(number),
                vid: vid(number),
                class: class(stream),
                size: Self::size(stream),
                when,
            }));
        }
        all
    }

    /// When messages of such a stream are sent.
    fn when(&self, number: usize, stream: &NetStream) -> Option<SendWhen> {
        let number_of = |name: &str| {
            self.named(name).map_or(0, |(at, _)| u16::try_from(at + 1).unwrap_or(u16::MAX))
        };
        Some(match &stream.traffic {
            NetTraffic::After(it) => {
                let (_, cause) = self.named(it.follows.as_str())?;
                SendWhen::After {
                    stream: number_of(it.follows.as_str()),
                    work: fixed(&it.work),
                    from_start: it.from_start.then(|| self.ahead(cause)),
                }
            }
            NetTraffic::Request(it) => SendWhen::Request {
                answer: number_of(it.answer.as_str()),
                think: fixed(&it.think),
                timeout: it.timeout,
                first: it.first,
            },
            NetTraffic::Sporadic(_) => {
                let mut before = Span::ZERO;
                let times = self.times_of(number, stream).into_iter();
                let gaps = times.map(|at| at - std::mem::replace(&mut before, at)).collect();
                SendWhen::At { gaps }
            }
            _ => return None,
        })
    }

    /// How long before its start a message of a talker is handed over.
    fn ahead(&self, stream: &NetStream) -> Span {
        let is_held = stream.launch.is_none() && self.admission(stream).is_some();
        if is_held { self.error.lead } else { Span::ZERO }
    }
}

/// Times that may differ were refused.
fn fixed(delay: &NetDelay) -> Span {
    match delay {
        NetDelay::Fixed(span) => *span,
        NetDelay::Drawn(_) => Span::ZERO,
    }
}
