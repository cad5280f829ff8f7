// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Keys that only a network of one segment has: its stations run programs, whose requests, answers
//! and computations are measured, and a schedule that the MAC or the kernel carries out.

use super::item::Reader;
use super::network::{NetTraffic, NetworkCases, NetworkFile};

impl NetworkFile {
    /// Whether it is one segment, without links and bridges.
    pub fn is_one_segment(&self) -> bool {
        self.segments.len() == 1 && self.links.is_empty() && self.bridges.is_empty()
    }

    /// The keys that it has of a network of one segment.
    fn segment_keys(&self) -> Vec<String> {
        let mut keys: Vec<String> = Vec::new();
        let mut of = |key: &str, is_there: bool| keys.extend(is_there.then(|| key.to_owned()));
        for (i, stream) in self.streams.iter().enumerate() {
            let kind = &stream.traffic;
            let is_asked = matches!(kind, NetTraffic::RequestResponse(_) | NetTraffic::Pipeline(_));
            of(&format!("streams[{i}].kind"), is_asked);
            of(&format!("streams[{i}].deadline"), stream.deadline.is_some());
            of(&format!("streams[{i}].port"), stream.port.is_some());
        }
        if let Some(schedule) = self.schedule.as_ref().filter(|it| !it.is_plain()) {
            of(schedule.first_of_programs(), true);
        }
        of("queues", self.has_queues());
        of("published", self.published.is_some());
        for (i, station) in self.stations.iter().enumerate() {
            of(&format!("stations[{i}].address"), station.address.is_some());
        }
        for (i, limit) in self.limits.iter().enumerate() {
            of(&format!("limits[{i}].metric"), !limit.metric.is_of_networks());
        }
        keys
    }

    /// Whether it has transmit queues of its own, or ports that go before others.
    pub(super) fn has_queues(&self) -> bool {
        let queues = &self.queues;
        queues.count.is_some() || !queues.send.is_empty() || !queues.recv.is_empty()
    }
}

impl NetworkCases {
    /// The first key that only a network of one segment has: with it, the stations run programs in
    /// every place, in the simulator as well.
    pub fn key_of_programs(&self) -> Option<String> {
        let in_cases = self.cases.iter().map(|case| &case.file);
        let mut all = std::iter::once(&self.written).chain(in_cases);
        all.find_map(|file| file.segment_keys().into_iter().next())
    }
}

/// Refuses them in any other network.
pub(super) fn check(file: &NetworkFile, reader: &mut Reader) {
    if file.is_one_segment() {
        return;
    }
    for key in file.segment_keys() {
        let message = "only a network of one segment can have this key".to_owned();
        let other = match key.rsplit_once('.') {
            Some((_, "kind")) => "write `kind: request` and `kind: after`",
            Some((_, "deadline")) => "write `max_latency`",
            _ => "remove it",
        };
        let has_links = !(file.links.is_empty() && file.bridges.is_empty());
        let segment = match file.segments.len() {
            0 if has_links => "write `segments: [{}]` in place of `links`",
            0 => "add `segments: [{}]`: there is no segment",
            1 => "remove `links` and `bridges`",
            _ => "leave one segment",
        };
        reader.fail_at(&key, message, &format!("{other}, or {segment}"));
    }
}
