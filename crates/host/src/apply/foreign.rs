// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Disciplines that are not of the four: the words of `tc` that make one again which does what it
//! showed, of those kinds whose options are all understood.

use serde_json::{Map, Value as Json};

use crate::snapshot::model::QdiscSettings;

/// Counters that stand among the options.
const COUNTERS: &[&str] = &["direct_packets_stat", "flows_count", "qdisc_refcnt"];

/// The options as they were shown, without counters.
pub(super) fn options(shown: &Json) -> String {
    let Some(Json::Object(options)) = shown.get("options") else { return String::new() };
    let mut kept = options.clone();
    kept.retain(|name, _| !COUNTERS.contains(&name.as_str()));
    if kept.is_empty() { String::new() } else { Json::Object(kept).to_string() }
}

/// Whether a discipline of a snapshot can be restored once another has taken its place.
pub(crate) fn comes_back(qdisc: &QdiscSettings) -> bool {
    let by_itself = qdisc.handle == "0:";
    let shown = || {
        let mut shown: Map<String, Json> = qdisc.more.clone().into_iter().collect();
        shown.insert("kind".to_owned(), qdisc.kind.as_str().into());
        shown.extend(qdisc.options.clone().map(|options| ("options".to_owned(), options)));
        Json::Object(shown)
    };
    by_itself || qdisc.qdisc().is_some() || words(&shown()).is_ok()
}

/// The words after the kind.
///
/// **Errors**: why there are none.
pub(super) fn words(shown: &Json) -> Result<String, String> {
    let kind = shown.get("kind").and_then(Json::as_str).unwrap_or_default();
    if shown.get("stab").is_some() {
        return Err("it has a size table".to_owned());
    }
    let none = Map::new();
    let options = shown.get("options").and_then(Json::as_object).unwrap_or(&none);
    let options = Options { options };
    match kind {
        "noqueue" | "mq" => options.only(&[]).map(|()| String::new()),
        "pfifo_fast" => {
            options.only(&["bands", "priomap", "multiqueue"])?;
            let standard = [1, 2, 2, 2, 1, 2, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1].map(Json::from);
            match options.options.get("priomap").and_then(Json::as_array) {
                Some(map) if *map == standard => Ok(String::new()),
                _ => Err("its priomap is not the usual one".to_owned()),
            }
        }
        "pfifo" | "bfifo" => {
            options.only(&["limit"])?;
            Ok(format!("limit {}", options.number("limit")?))
        }
        "htb" => {
            options.only(&["r2q", "default", "direct_packets_stat", "ver", "direct_qlen"])?;
            let default = options.text("default")?.trim_start_matches("0x").to_owned();
            let (r2q, direct) = (options.number("r2q")?, options.number("direct_qlen")?);
            Ok(format!("r2q {r2q} default {default} direct_qlen {direct}"))
        }
        "tbf" => tbf(&options),
        "fq_codel" => fq_codel(&options),
        _ => Err("disciplines of this kind are not understood well enough".to_owned()),
    }
}

struct Options<'a> {
    options: &'a Map<String, Json>,
}

impl Options<'_> {
    /// Refuses options of other names.
    fn only(&self, known: &[&str]) -> Result<(), String> {
        match self.options.keys().find(|name| !known.contains(&name.as_str())) {
            Some(name) => Err(format!("its option `{name}` is not understood")),
            None => Ok(()),
        }
    }

    fn number(&self, name: &str) -> Result<u64, String> {
        let number = self.options.get(name).and_then(Json::as_u64);
        number.ok_or_else(|| format!("tc does not show its `{name}`"))
    }

    fn text(&self, name: &str) -> Result<&str, String> {
        let text = self.options.get(name).and_then(Json::as_str);
        text.ok_or_else(|| format!("tc does not show its `{name}`"))
    }

    fn flag(&self, name: &str) -> bool {
        self.options.get(name).and_then(Json::as_bool) == Some(true)
    }
}

/// The kernel keeps the burst as a time in ticks of 64 ns, and `tc` rounds what it prints. The
/// words are such that the same ticks come of them.
///
/// **Source**: `iproute2 v6.1.0 tc/tc_core.c:tc_calc_xmittime`, `tc/q_tbf.c`.
fn tbf(options: &Options<'_>) -> Result<String, String> {
    options.only(&["rate", "burst", "mpu", "burst_raw", "lat", "limit", "linklayer"])?;
    let (rate, limit) = (options.number("rate")?, options.number("limit")?);
    let ticks = u64::from_str_radix(options.text("burst_raw")?, 16);
    let ticks = ticks.map_err(|_| "its burst is no number".to_owned())?;
    if options.number("mpu")? != 0 || options.text("linklayer")? != "ethernet" || rate == 0 {
        return Err("it has a size table".to_owned());
    }
    let about = ticks.saturating_mul(64).saturating_mul(rate) / 1_000_000_000;
    let mut near = about.saturating_sub(2)..about.saturating_add(3);
    let exact = near.find(|bytes| ticks_of(*bytes, rate) == ticks);
    let burst = exact.ok_or_else(|| "no burst in whole bytes is exactly its own".to_owned())?;
    Ok(format!("rate {rate}bps burst {burst}b limit {limit}b"))
}

/// In the arithmetic of `tc`, which is that of doubles.
fn ticks_of(bytes: u64, rate: u64) -> u64 {
    // microseconds, then 15.625 ticks each, both cut: with integers, exactly.
    let scaled = u128::from(bytes) * 1_000_000 * 125 / (u128::from(rate) * 8);
    u64::try_from(scaled).unwrap_or(u64::MAX)
}

/// The kernel keeps times in units of 1024 ns and shows them in microseconds, cut.
///
/// **Source**: `linux v6.12 include/net/codel.h:MS2TIME`, `codel_time_to_us`;
/// `net/sched/sch_fq_codel.c:fq_codel_change`.
fn fq_codel(options: &Options<'_>) -> Result<String, String> {
    options.only(&[
        "limit",
        "flows",
        "quantum",
        "target",
        "interval",
        "memory_limit",
        "ecn",
        "drop_batch",
    ])?;
    let time = |name: &str| -> Result<u64, String> {
        let shown = options.number(name)?;
        let shows = |us: u64| ((us * 1_000) >> 10) * 1_024 / 1_000;
        let exact = (shown..shown + 3).find(|us| shows(*us) == shown);
        exact.ok_or_else(|| format!("its `{name}` is no time of the kernel"))
    };
    let ecn = if options.flag("ecn") { "ecn" } else { "noecn" };
    Ok(format!(
        "limit {} flows {} quantum {} target {}us interval {}us memory_limit {} {ecn} \
         drop_batch {}",
        options.number("limit")?,
        options.number("flows")?,
        options.number("quantum")?,
        time("target")?,
        time("interval")?,
        options.number("memory_limit")?,
        options.number("drop_batch")?,
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Result<String, String> {
        words(&serde_json::from_str(text).unwrap())
    }

    #[test]
    fn t0_words_are_those_that_make_it_again() {
        let fifo = r#"{"kind":"pfifo","handle":"9:","root":true,"options":{"limit":10}}"#;
        assert_eq!(of(fifo).unwrap(), "limit 10");
        let htb = r#"{"kind":"htb","handle":"9:","root":true,"options":{"r2q":10,
            "default":"0x10","direct_packets_stat":1,"ver":"3.17","direct_qlen":1000}}"#;
        assert_eq!(of(htb).unwrap(), "r2q 10 default 10 direct_qlen 1000");
        let codel = r#"{"kind":"fq_codel","handle":"9:","root":true,"options":{"limit":10240,
            "flows":1024,"quantum":1514,"target":4999,"interval":99999,"memory_limit":33554432,
            "ecn":true,"drop_batch":64}}"#;
        assert_eq!(
            of(codel).unwrap(),
            "limit 10240 flows 1024 quantum 1514 target 5000us interval 100000us \
             memory_limit 33554432 ecn drop_batch 64"
        );
        let tbf = r#"{"kind":"tbf","handle":"9:","root":true,"options":{"rate":12500000,
            "burst":"10000b/1","mpu":0,"burst_raw":"30da","lat":50000,"limit":635005,
            "linklayer":"ethernet"}}"#;
        assert_eq!(of(tbf).unwrap(), "rate 12500000bps burst 10005b limit 635005b");
    }

    #[test]
    fn t0_what_is_not_understood_is_said() {
        let sfq = r#"{"kind":"sfq","handle":"9:","root":true,"options":{}}"#;
        assert!(of(sfq).unwrap_err().contains("not understood"));
        let fifo = r#"{"kind":"pfifo","root":true,"options":{"limit":10,"new":1}}"#;
        assert_eq!(of(fifo).unwrap_err(), "its option `new` is not understood");
    }
}
