// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Reading one interface.

use std::collections::BTreeMap;

use serde_json::Value;

use super::ip::{self, number, text};
use super::{ethtool, served, tc};
use crate::snapshot::Reading;
use crate::snapshot::model::{
    Bpf, BpfProgram, GatedCredit, InterfaceCounters, InterfaceSettings, InterfaceState,
    QdiscSettings, RxTxFilters,
};
use crate::snapshot::source::{KernelThread, Merge, Output, Question, Source};

/// What all interfaces are read with.
pub struct Reader<'a> {
    pub source: &'a dyn Source,
    pub threads: &'a Reading<Vec<KernelThread>>,
    pub addresses: &'a Reading<Vec<Value>>,
    pub routes: &'a Reading<Vec<Value>>,
    /// Why `/sys` does not tell about these interfaces, if it does not.
    pub no_sysfs: Option<&'a str>,
}

type Parts = (InterfaceSettings, InterfaceState, InterfaceCounters);

impl Reader<'_> {
    /// Reads the interface that `ip` printed so.
    pub fn read(&self, name: &str, link: &Value) -> Parts {
        let source = self.source;
        let qdiscs = self.tool(&["tc", "-j", "-d", "-s", "qdisc", "show", "dev", name]);
        let qdiscs = qdiscs.parse(|text| tc::qdiscs(&text));
        let link_modes = self.ethtool(name, &[]).parse(|text| ethtool::link(&text));
        let eee = self.ethtool(name, &["--show-eee"]).parse(|text| ethtool::eee(&text));
        let eee = eee.then(|eee| match eee {
            Some(eee) => Reading::Known(eee),
            None => Reading::Absent("the NIC does not support it".to_owned()),
        });
        let merge = source.ask(Question::MacMerge(name)).parse(serde_json::from_value::<Merge>);
        let served::Served { irqs, napi, polls, rx, tx } = match self.no_sysfs {
            None => served::Served::read(source, name, self.threads),
            Some(why) => served::Served::unreadable(why),
        };
        let addresses = self.addresses.clone().map(|list| ip::addresses(&list, name));
        let speed = link_modes.known().and_then(|(_, speed, _)| *speed);
        let duplex = link_modes.known().and_then(|(_, _, duplex)| duplex.clone());
        let settings = InterfaceSettings {
            kind: link.get("linkinfo").and_then(|i| text(i, "info_kind")).map(str::to_owned),
            link_type: text(link, "link_type").unwrap_or_default().to_owned(),
            driver: self.ethtool(name, &["-i"]).parse(|text| ethtool::driver(&text)),
            mac: text(link, "address").map(str::to_owned),
            up: has_flag(link, "UP"),
            flags: set_flags(link),
            mtu: number(link, "mtu").unwrap_or_default(),
            tx_queue_length: number(link, "txqlen"),
            tx_queues: number(link, "num_tx_queues"),
            rx_queues: number(link, "num_rx_queues"),
            lower: text(link, "link").map(str::to_owned),
            upper: text(link, "master").map(str::to_owned),
            vlan: ip::vlan(link),
            classes: self.classes(name),
            filters: self.filters(name, qdiscs.known().map(|qdiscs| &*qdiscs.settings)),
            bpf: self.bpf(name, link),
            features: self.ethtool(name, &["-k"]).parse(|text| ethtool::features(&text)),
            private_flags: self
                .ethtool(name, &["--show-priv-flags"])
                .parse(|text| ethtool::private_flags(&text)),
            channels: self.ethtool(name, &["-l"]).parse(|text| ethtool::channels(&text)),
            rings: self.ethtool(name, &["-g"]).parse(|text| ethtool::rings(&text)),
            coalescing: self.ethtool(name, &["-c"]).parse(|text| ethtool::coalescing(&text)),
            pause: self.ethtool(name, &["-a"]).parse(|text| ethtool::pause(&text)),
            timestamping: self.ethtool(name, &["-T"]).parse(|text| ethtool::timestamping(&text)),
            timestamp_filters: self.timestamp_filters(name),
            ntuple: self.ethtool(name, &["-n"]).parse(|text| ethtool::ntuple(&text)),
            rss: self.ethtool(name, &["-x"]).parse(|text| ethtool::rss(&text)),
            eee: eee.clone().map(|(settings, _)| settings),
            mac_merge: merge.clone().map(|merge| merge.settings),
            link: link_modes.map(|(modes, _, _)| modes),
            irqs: irqs.settings,
            napi,
            rx,
            tx,
            addresses: addresses.clone().map(|(addresses, _)| addresses),
            routes: self.routes.clone().map(|list| ip::routes(&list, name)),
            sysctls: self.sysctls(name),
            qdiscs: qdiscs.clone().map(|qdiscs| qdiscs.settings),
        };
        let state = InterfaceState {
            index: number(link, "ifindex").and_then(|i| u32::try_from(i).ok()).unwrap_or_default(),
            operstate: text(link, "operstate").unwrap_or("UNKNOWN").to_owned(),
            carrier: has_flag(link, "LOWER_UP"),
            speed_mbps: speed,
            duplex,
            eee_active: eee.known().map(|(_, active)| *active),
            mac_merge: merge.known().map(|merge| merge.state.clone()),
            qdiscs: qdiscs.known().map(|qdiscs| qdiscs.state.clone()).unwrap_or_default(),
            gated_credit: qdiscs
                .known()
                .map(|qdiscs| {
                    let each = qdiscs.settings.iter();
                    GatedCredit::of(each.map(|qdisc| (qdisc.parent.as_str(), qdisc.qdisc())))
                })
                .unwrap_or_default(),
            irqs: irqs.state,
            napi: polls,
            addresses: addresses.known().map(|(_, states)| states.clone()).unwrap_or_default(),
        };
        let counters = InterfaceCounters {
            link: ip::counters(link),
            driver: self.ethtool(name, &["-S"]).parse(|text| ethtool::statistics(&text)),
            qdiscs: qdiscs.map(|qdiscs| qdiscs.counters),
            mac_merge: merge.map(|merge| merge.counters),
            irqs: irqs.counters,
        };
        (settings, state, counters)
    }

    fn tool(&self, words: &[&str]) -> Reading<String> {
        self.source.run(words).then(|output| printed(words[0], output))
    }

    fn ethtool(&self, name: &str, option: &[&str]) -> Reading<String> {
        let words = [&["ethtool"], option, &[name]].concat();
        self.tool(&words)
    }

    /// As JSON, or in the versions that print none for some kind, as lines.
    fn listed(&self, words: &[&str]) -> Reading<Vec<Value>> {
        let json = self.tool(&[&["tc", "-j", "-d"], words].concat());
        json.then(|text| match serde_json::from_str::<Vec<Value>>(&text) {
            Ok(list) => Reading::Known(list),
            Err(_) if text.trim().is_empty() => Reading::Known(Vec::new()),
            Err(_) => {
                let lines = self.tool(&[&["tc", "-d"], words].concat());
                lines.map(|text| text.lines().map(|line| Value::String(line.to_owned())).collect())
            }
        })
    }

    fn classes(&self, name: &str) -> Reading<Vec<Value>> {
        self.listed(&["class", "show", "dev", name]).map(tc::made_by_hand)
    }

    /// Frames that come in and go out pass filters only where a queueing discipline holds these.
    fn filters(
        &self,
        name: &str,
        qdiscs: Option<&[QdiscSettings]>,
    ) -> Reading<BTreeMap<String, Vec<Value>>> {
        let holds = |qdisc: &QdiscSettings| ["ingress", "clsact"].contains(&&*qdisc.kind);
        let places = match qdiscs {
            Some(qdiscs) if !qdiscs.iter().any(holds) => &["root"][..],
            _ => &["root", "ingress", "egress"],
        };
        let mut found = BTreeMap::new();
        for &place in places {
            let words = ["filter", "show", "dev", name, place];
            let words = if place == "root" { &words[..4] } else { &words[..] };
            match self.listed(words) {
                Reading::Known(list) if list.is_empty() => {}
                Reading::Known(list) => {
                    found.insert(place.to_owned(), list);
                }
                // Where nothing is attached there is no place either.
                Reading::Absent(_) => {}
                Reading::Unreadable(why) => return Reading::Unreadable(why),
            }
        }
        Reading::Known(found)
    }

    fn bpf(&self, name: &str, link: &Value) -> Bpf {
        let tcx = self.source.ask(Question::TcxPrograms(name));
        let list = |direction: &str| {
            tcx.clone().parse(|value| {
                let list = value.get(direction).and_then(Value::as_array).cloned();
                let list = list.unwrap_or_default();
                let one = |program: &Value| {
                    let id = number(program, "id").and_then(|id| u32::try_from(id).ok());
                    let id = id.ok_or("a program without a number")?;
                    let name = text(program, "name").map(str::to_owned);
                    Ok(BpfProgram { id, name, mode: None })
                };
                list.iter().map(one).collect::<Result<Vec<_>, &str>>()
            })
        };
        Bpf { xdp: ip::xdp(link), tcx_ingress: list("ingress"), tcx_egress: list("egress") }
    }

    fn timestamp_filters(&self, name: &str) -> Reading<RxTxFilters> {
        let answer = self.source.ask(Question::TimestampFilters(name));
        answer.parse(|value| {
            let named = |key: &str, names: &[&str]| {
                let number = number(&value, key).and_then(|n| usize::try_from(n).ok());
                let name = number.and_then(|number| names.get(number));
                name.map(|name| (*name).to_owned()).ok_or(format!("{value} has no known `{key}`"))
            };
            Ok::<_, String>(RxTxFilters {
                tx: named("tx", &TX_MODES)?,
                rx: named("rx", &RX_FILTERS)?,
            })
        })
    }

    fn sysctls(&self, name: &str) -> BTreeMap<String, Reading<String>> {
        let one = |(family, key): &(&str, &str)| {
            let text = self.source.read(&format!("/proc/sys/net/{family}/conf/{name}/{key}"));
            (format!("net.{family}.conf.{key}"), text)
        };
        SYSCTLS.iter().map(one).collect()
    }
}

/// What a tool said, if it did.
fn printed(tool: &str, output: Output) -> Reading<String> {
    if output.code == Some(0) {
        return Reading::Known(output.stdout);
    }
    let said = if output.stderr.is_empty() { &output.stdout } else { &output.stderr };
    let why = said.lines().next().unwrap_or("it said nothing").to_owned();
    let absent =
        ["Operation not supported", "No such", "no stats available", "Parent Qdisc", "No data"];
    if said.contains("bad command line argument") || said.contains("Unknown argument") {
        Reading::Unreadable(format!("this version of `{tool}` cannot ask for it"))
    } else if absent.iter().any(|word| said.contains(word)) {
        Reading::Absent(why)
    } else {
        Reading::Unreadable(format!("`{tool}`: {why}"))
    }
}

fn flags(link: &Value) -> Vec<String> {
    ip::words(link, "flags")
}

fn has_flag(link: &Value, flag: &str) -> bool {
    flags(link).iter().any(|found| found == flag)
}

/// The flags that people set.
fn set_flags(link: &Value) -> Vec<String> {
    let set = ["NOARP", "PROMISC", "ALLMULTI", "DYNAMIC"];
    flags(link).into_iter().filter(|flag| set.contains(&flag.as_str())).collect()
}

/// Parameters of each interface.
const SYSCTLS: [(&str, &str); 6] = [
    ("ipv4", "accept_local"),
    ("ipv4", "arp_filter"),
    ("ipv4", "arp_ignore"),
    ("ipv4", "rp_filter"),
    ("ipv6", "autoconf"),
    ("ipv6", "disable_ipv6"),
];

/// `HWTSTAMP_TX_...` and `HWTSTAMP_FILTER_...` from 0, in the words of `ethtool`.
///
/// **Source**: `linux v6.12 include/uapi/linux/net_tstamp.h`, `net/ethtool/common.c`.
const TX_MODES: [&str; 4] = ["off", "on", "onestep-sync", "onestep-p2p"];
const RX_FILTERS: [&str; 16] = [
    "none",
    "all",
    "some",
    "ptpv1-l4-event",
    "ptpv1-l4-sync",
    "ptpv1-l4-delay-req",
    "ptpv2-l4-event",
    "ptpv2-l4-sync",
    "ptpv2-l4-delay-req",
    "ptpv2-l2-event",
    "ptpv2-l2-sync",
    "ptpv2-l2-delay-req",
    "ptpv2-event",
    "ptpv2-sync",
    "ptpv2-delay-req",
    "ntp-all",
];
