// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A computation in steps on several stations, as traffic: its keys, what is measured of it, and
//! what must hold between its keys.

use timewire_base::{Port, Priority, Span, StationName};

use super::item::Reader;
use super::model::{Measured, MessageFlow, Release, Scenario, Stream, StreamClass, filled};
use super::value::{ByteCount, Count, Name};

/// A measured stream: a computation in steps on several stations. The first makes a stimulus,
/// each computes with it and hands it on to the next, and the last one ends it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pipeline {
    /// Name of the stream. The connection from the first station to the second is measured as
    /// this name with `-1` behind it, the next one with `-2`, and so on.
    pub name: Name,
    /// The stations in the order of the computation, from the source to the sink.
    pub stations: Vec<StationName>,
    /// Components of the computation on each station, one after the other.
    pub components: Count<1, 16>,
    /// How long each component computes.
    pub compute: Span,
    /// Length of the messages (UDP payload).
    pub size: ByteCount,
    /// Its transmit and receive queue in the cases that use priorities, 1 first. A stream with
    /// a priority is a real-time stream: its programs run with a real-time policy.
    pub priority: Option<Priority>,
    /// UDP port of the second station; that of the third is the next higher one, and so on. No
    /// other stream may use them. Without, the next free ones from 15001 on.
    pub port: Option<Port>,
    /// From one stimulus to the next; without it, one cycle of the schedule. A stimulus that is
    /// due while the source computes is left out.
    pub period: Option<Span>,
    /// A stimulus that the sink has not done so long after the source began is counted as late,
    /// and so is a message that takes longer.
    pub deadline: Span,
    /// In which loads of the experiment the stream runs; without it, in all.
    pub loads: Option<Vec<Name>>,
}

/// One message of a pipeline's way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Connection<'a> {
    /// Its name in results.
    pub name: Name,
    /// The station that sends.
    pub from: &'a StationName,
    /// The station that receives.
    pub to: &'a StationName,
    /// Where it receives.
    pub port: Port,
}

impl Pipeline {
    /// Whether it goes before others.
    pub fn class(&self) -> StreamClass {
        StreamClass::of(self.priority)
    }

    /// UDP port of the second station.
    ///
    /// **Panics**: never, of a file that was read.
    pub fn port(&self) -> Port {
        filled(self.port)
    }

    /// Most stations of a pipeline.
    pub const STATIONS: usize = 64;

    /// From station to station, in their order.
    pub fn connections<'a>(&'a self) -> Vec<Connection<'a>> {
        let pairs = self.stations.windows(2).zip(self.ports());
        let connection = |(number, (pair, port)): (usize, (&'a [StationName], Port))| {
            let [from, to] = pair else { return None };
            let name = Name::new(&format!("{}-{number}", self.name))?;
            Some(Connection { name, from, to, port })
        };
        (1..).zip(pairs).filter_map(connection).collect()
    }

    /// The ports of the connections; fewer when the numbers end.
    pub(super) fn ports(&self) -> Vec<Port> {
        let Some(first) = self.port.map(Port::get) else { return Vec::new() };
        let count = u16::try_from(self.stations.len().saturating_sub(1)).unwrap_or(u16::MAX);
        let last = first.saturating_add(count.saturating_sub(1));
        let ports = (first..=last).take(usize::from(count));
        ports.filter_map(|port| Port::new(port.into()).ok()).collect()
    }

    pub(super) fn measured(&self) -> Vec<Measured<'_>> {
        let of = |name: Name, way: MessageFlow, senders: Vec<_>| Measured {
            name,
            class: self.class(),
            deadline: self.deadline,
            size: self.size,
            period: self.period,
            way,
            senders,
        };
        let connections = self.connections().into_iter();
        let connections = connections.map(|connection| {
            of(
                connection.name,
                MessageFlow::OneWay { port: connection.port },
                vec![connection.from],
            )
        });
        let whole = of(self.name.clone(), MessageFlow::Whole, Vec::new());
        std::iter::once(whole).chain(connections).collect()
    }
}

pub(super) fn check_pipeline(
    scenario: &Scenario,
    reader: &mut Reader,
    at: &str,
    pipeline: &Pipeline,
) {
    let count = pipeline.stations.len();
    if !(2..=Pipeline::STATIONS).contains(&count) {
        let message = format!("a pipeline has 2 to {} stations, not {count}", Pipeline::STATIONS);
        let hint = "write those after the talker, in the order of the computation";
        reader.fail_at(&format!("{at}.listeners"), message, hint);
        return;
    }
    let needed = count - 1;
    if pipeline.ports().len() < needed {
        let message = format!(
            "{needed} ports from {} on are more than there are: each connection has its own",
            filled(pipeline.port).get()
        );
        let hint = format!("write at most {}", 65_536 - needed);
        reader.fail_at(&format!("{at}.port"), message, &hint);
    }
    if pipeline.connections().len() < needed && pipeline.ports().len() == needed {
        let message = format!("`{}` is too long for a pipeline", pipeline.name);
        let hint = "its connections are called by it, with -1 and so on behind it: at most 45 \
                    characters";
        reader.fail_at(&format!("{at}.name"), message, hint);
    }
    for connection in pipeline.connections() {
        if scenario.streams.iter().any(|other| *other.name() == connection.name) {
            let message = format!(
                "a stream has the name `{}`, and so would the connection from `{}` to `{}`",
                connection.name, connection.from, connection.to
            );
            reader.fail_at(&format!("{at}.name"), message, "give one of them another name");
        }
    }
    if pipeline.deadline == Span::ZERO {
        let message = "a deadline of 0ns is missed by every stimulus".into();
        reader.fail_at(&format!("{at}.deadline"), message, "a cycle for each station is usual");
    }
    check_pace(scenario, reader, at, pipeline);
}

fn check_pace(scenario: &Scenario, reader: &mut Reader, at: &str, pipeline: &Pipeline) {
    let cycle = scenario.schedule.cycle();
    if pipeline.period == Some(Span::ZERO) {
        let message = "a stimulus every 0ns leaves no time for any".into();
        reader.fail_at(&format!("{at}.period"), message, "one cycle is usual");
        return;
    }
    let period = pipeline.period.unwrap_or(cycle);
    let components = i64::try_from(pipeline.components.get()).unwrap_or(i64::MAX);
    let computing = pipeline.compute.checked_mul(components).unwrap_or(Span::MAX);
    if computing >= period {
        let message = format!(
            "{components} components of {} each take as long as it is from one stimulus to the \
             next, {period}, or longer",
            pipeline.compute
        );
        let hint = "make them shorter, or the `period` longer";
        reader.fail_at(&format!("{at}.compute"), message, hint);
        return;
    }
    for case in scenario.experiment.cases.iter().filter(|it| it.release == Release::Planned) {
        let begin = case.lead.and_then(|lead| lead.checked_add(computing));
        if begin.is_some_and(|begin| begin >= cycle) {
            let message = format!(
                "{components} components of {} each and the lead of case `{}` are a whole cycle \
                 or more",
                pipeline.compute, case.name
            );
            let hint = "make them shorter, or `release: aligned`";
            reader.fail_at(&format!("{at}.compute"), message, hint);
        }
    }
}

impl Scenario {
    /// The pipelines that run under a load, in the order of the file.
    pub fn pipelines_in<'a>(&'a self, load: &'a Name) -> impl Iterator<Item = &'a Pipeline> {
        let running = self.streams.iter().filter(|stream| stream.runs_in(load));
        running.filter_map(|stream| match stream {
            Stream::Pipeline(pipeline) => Some(pipeline),
            Stream::RequestResponse(_)
            | Stream::Cyclic(_)
            | Stream::Sporadic(_)
            | Stream::Flood(_) => None,
        })
    }
}
