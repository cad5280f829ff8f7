// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The user's own programs on stations: their keys, and what must hold between them and the
//! streams that they send and receive.

use std::collections::BTreeSet;

use timewire_base::{StationName, is_plain_path};

use super::cyclic::Cyclic;
use super::item::Reader;
use super::model::{Scenario, Stream, StreamClass};
use super::record::record;
use super::value::{Name, Text};

record! {
    /// A program of the user's on a station, in place of Timewire's own programs for its streams.
    pub struct StationProgram {
        /// Name of the program.
        name: Name,
        /// The station that it runs on.
        station: StationName,
        /// A line for the shell (`sh -c`).
        command: Text,
        /// The cyclic streams that it sends or receives: their messages are found by address and
        /// port.
        streams: Vec<Name> = "[]",
        /// Files beside this one that it needs, by which name it finds them where it is started.
        files: Vec<Text> = "[]",
        /// In which loads of the experiment it runs; without it, in all.
        loads: Option<Vec<Name>>,
    }
}

impl StationProgram {
    /// Whether it runs in this load.
    pub fn runs_in(&self, load: &Name) -> bool {
        self.loads.as_ref().is_none_or(|loads| loads.contains(load))
    }
}

impl Scenario {
    /// The programs of users that run under a load, in the order of the file.
    pub fn programs_in<'a>(&'a self, load: &'a Name) -> impl Iterator<Item = &'a StationProgram> {
        self.programs.iter().filter(|program| program.runs_in(load))
    }

    /// The program of a user that has a stream on a station.
    pub fn program_of(&self, stream: &Name, station: &StationName) -> Option<&StationProgram> {
        let has = |it: &&StationProgram| it.station == *station && it.streams.contains(stream);
        self.programs.iter().find(has)
    }

    /// Whether a program of a user sends the messages of a stream.
    pub fn is_of_program(&self, stream: &Cyclic) -> bool {
        self.program_of(&stream.name, &stream.talker).is_some()
    }

    /// Whether a stream of this name is cyclic, and Timewire's own talker sends it.
    pub fn is_cyclic_of_ours(&self, name: &Name) -> bool {
        self.cyclic(name).is_some_and(|stream| !self.is_of_program(stream))
    }

    /// Whether a program goes before others: one of its streams does.
    pub fn class_of(&self, program: &StationProgram) -> StreamClass {
        let urgent = |it: &&Stream| program.streams.contains(it.name()) && it.priority().is_some();
        match self.streams.iter().find(urgent) {
            Some(_) => StreamClass::RealTime,
            None => StreamClass::BestEffort,
        }
    }

    /// The cyclic stream of a name.
    fn cyclic(&self, name: &Name) -> Option<&Cyclic> {
        self.streams.iter().find_map(|stream| match stream {
            Stream::Cyclic(stream) if stream.name == *name => Some(stream),
            _ => None,
        })
    }
}

/// The variable that gives programs the port of a stream.
pub fn port_variable(stream: &Name) -> String {
    format!("TIMEWIRE_PORT_{}", in_capitals(stream.as_str()))
}

/// The variable that gives programs the address of a station.
pub fn address_variable(station: &StationName) -> String {
    format!("TIMEWIRE_ADDRESS_{}", in_capitals(station.as_str()))
}

fn in_capitals(name: &str) -> String {
    name.to_uppercase().replace('-', "_")
}

pub(super) fn check_programs(scenario: &Scenario, reader: &mut Reader) {
    let programs = &scenario.programs;
    for (i, stream) in scenario.streams.iter().enumerate().filter(|_| !programs.is_empty()) {
        let own = port_variable(stream.name());
        let alike = |other: &&Stream| port_variable(other.name()) == own;
        let other = scenario.streams[..i].iter().find(alike);
        // The same name twice is told elsewhere.
        if let Some(other) = other.filter(|other| other.name() != stream.name()) {
            let message = format!(
                "programs could not tell `{}` from `{}`: the port of both is {own}",
                stream.name(),
                other.name()
            );
            reader.fail_at(&format!("streams[{i}].name"), message, "give it another name");
        }
    }
    for (i, program) in programs.iter().enumerate() {
        let at = format!("programs[{i}]");
        for (n, name) in program.streams.iter().enumerate() {
            check_stream(scenario, reader, &format!("{at}.streams[{n}]"), (i, program), name);
        }
    }
}

/// What holds for programs of any network: names, commands and files.
pub(super) fn check_words(programs: &[StationProgram], reader: &mut Reader) {
    for (i, program) in programs.iter().enumerate() {
        let at = format!("programs[{i}]");
        if programs[..i].iter().any(|other| other.name == program.name) {
            let message = format!("the program `{}` is listed twice", program.name);
            reader.fail_at(&format!("{at}.name"), message, "give it another name");
        }
        if program.command.as_str().trim().is_empty() {
            let message = "a command without words starts nothing".into();
            let hint =
                "write it as for a shell, such as `python3 loop.py --to $TIMEWIRE_ADDRESS_B`";
            reader.fail_at(&format!("{at}.command"), message, hint);
        }
        let mut files = BTreeSet::new();
        for (n, file) in program.files.iter().enumerate() {
            let key = format!("{at}.files[{n}]");
            if file.as_str().len() > LONGEST_PATH || !is_plain_path(file.as_str()) {
                let message = format!("`{file}` is no name of a file beside this one");
                let hint = "a relative path of a-z, A-Z, 0-9, `-`, `_` and `.`, no part of which \
                            starts with a dot";
                reader.fail_at(&key, message, hint);
            } else if !files.insert(file.as_str()) {
                reader.fail_at(&key, format!("`{file}` is listed twice"), "remove it");
            }
        }
    }
}

/// Longest path of a file; with the directory of its program a record of a host can be called so.
const LONGEST_PATH: usize = 140;

pub(super) fn check_loads(loads: &[Name], reader: &mut Reader, at: &str, program: &StationProgram) {
    for (n, load) in program.loads.iter().flatten().enumerate() {
        let known = loads.iter().map(Name::as_str);
        reader.known_name(&format!("{at}.loads[{n}]"), "load", load.as_str(), known);
    }
    if program.loads.as_ref().is_some_and(Vec::is_empty) {
        let message = "a program without a load never runs".into();
        reader.fail_at(&format!("{at}.loads"), message, "leave `loads` out for all loads");
    }
}

fn check_stream(
    scenario: &Scenario,
    reader: &mut Reader,
    key: &str,
    (index, program): (usize, &StationProgram),
    name: &Name,
) {
    // That it is there, and of this station, holds for programs of any network.
    let Some(stream) = scenario.cyclic(name) else {
        let message = format!("the stream `{name}` is not cyclic");
        let hint = "programs have streams of `kind: cyclic`, which say how often they send";
        return reader.fail_at(key, message, hint);
    };
    let station = &program.station;
    let others = scenario.programs[..index].iter();
    if let Some(other) =
        others.filter(|other| other.station == *station).find(|other| other.streams.contains(name))
    {
        let message = format!("`{}` on `{station}` has `{name}` already", other.name);
        return reader.fail_at(key, message, "name it in one of the programs of this station");
    }
    if !scenario.is_of_program(stream) {
        let message = format!("no program on `{}` sends `{name}`", stream.talker);
        let hint = format!("name it in a program of `{}`, its talker, too", stream.talker);
        return reader.fail_at(key, message, &hint);
    }
    let loads = scenario.experiment.loads.iter();
    let without = |load: &&Name| {
        stream.loads.as_ref().is_none_or(|loads| loads.contains(*load)) && !program.runs_in(load)
    };
    if let Some(load) = loads.into_iter().find(without) {
        let message = format!("`{name}` runs in the load `{load}`, in which its program does not");
        reader.fail_at(key, message, "give both the same `loads`");
    }
}
