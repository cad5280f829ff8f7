// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What `ethtool` prints for people. Debian 12's version has JSON for a few questions only; the
//! text is the same in all versions, so text is what is read.

use std::collections::BTreeMap;

use crate::snapshot::model::{
    Bounded, Channels, Coalescing, Driver, EnergyEfficient, Feature, LinkModes, NtupleRule, Pause,
    Rings, Timestamping, Word,
};

type Parsed<T> = Result<T, String>;
/// Keys with the lines of their values, in the order of the text.
type Fields<'a> = Vec<(&'a str, Vec<&'a str>)>;

/// `key: value` lines; a line without a colon goes on with the value before it.
fn fields(text: &str) -> Fields<'_> {
    let mut found: Fields<'_> = Vec::new();
    for line in text.lines().skip(1) {
        match line.split_once(':') {
            Some((key, value)) => found.push((key.trim(), vec![value.trim()])),
            None => {
                if let Some((_, values)) = found.last_mut().filter(|_| !line.trim().is_empty()) {
                    values.push(line.trim());
                }
            }
        }
    }
    found
}

fn value<'a>(fields: &[(&'a str, Vec<&'a str>)], key: &str) -> Option<&'a str> {
    fields.iter().find(|(found, _)| *found == key).map(|(_, values)| values[0])
}

fn needed<'a>(fields: &[(&'a str, Vec<&'a str>)], key: &str) -> Parsed<&'a str> {
    value(fields, key).ok_or_else(|| format!("`ethtool` printed no `{key}`"))
}

fn switch(text: &str) -> Option<bool> {
    match text {
        "on" | "enabled" | "yes" => Some(true),
        "off" | "disabled" | "no" => Some(false),
        _ => None,
    }
}

/// `n/a` is `None`.
fn word(text: &str) -> Option<Word> {
    match text {
        "" | "n/a" => None,
        _ => Some(match (switch(text), text.parse()) {
            (Some(on), _) => Word::Switch(on),
            (None, Ok(number)) => Word::Number(number),
            _ => Word::Text(text.to_owned()),
        }),
    }
}

/// The modes of a field, which may be on several lines.
fn modes(fields: &[(&str, Vec<&str>)], key: &str) -> Vec<String> {
    let found = fields.iter().find(|(found, _)| *found == key);
    let lines = found.map(|(_, values)| values.as_slice()).unwrap_or_default();
    let words = lines.iter().flat_map(|line| line.split_whitespace());
    match lines.first() {
        Some(&"Not reported") => Vec::new(),
        _ => words.map(str::to_owned).collect(),
    }
}

/// `ethtool -i`.
pub fn driver(text: &str) -> Parsed<Driver> {
    // It has no first line of its own.
    let with_title = format!("title\n{text}");
    let fields = fields(&with_title);
    let one = |key| value(&fields, key).unwrap_or_default().to_owned();
    Ok(Driver {
        name: needed(&fields, "driver")?.to_owned(),
        version: one("version"),
        firmware: one("firmware-version"),
        bus: one("bus-info"),
    })
}

/// Without an option: what the link may be, and its speed in Mbit/s and duplex.
pub fn link(text: &str) -> Parsed<(LinkModes, Option<u64>, Option<String>)> {
    if !text.starts_with("Settings for") {
        return Err("`ethtool` printed no settings".to_owned());
    }
    let fields = fields(text);
    let known = |key| value(&fields, key).filter(|text| !text.starts_with("Unknown"));
    let speed = known("Speed").and_then(|text| text.strip_suffix("Mb/s")?.parse().ok());
    let modes = LinkModes {
        supported: modes(&fields, "Supported link modes"),
        advertised: modes(&fields, "Advertised link modes"),
        autonegotiation: value(&fields, "Auto-negotiation").and_then(switch),
        port: known("Port").map(str::to_owned),
    };
    Ok((modes, speed, known("Duplex").map(str::to_owned)))
}

/// `ethtool -k`.
pub fn features(text: &str) -> Parsed<BTreeMap<String, Feature>> {
    let mut lines = text.lines().skip(1).filter(|line| line.contains(':')).peekable();
    let mut found = BTreeMap::new();
    while let Some(line) = lines.next() {
        let (name, value) = line.split_once(':').unwrap_or_default();
        let mut words = value.split_whitespace();
        let on = words.next().and_then(switch);
        let on = on.ok_or_else(|| format!("feature `{}` is neither on nor off", name.trim()))?;
        let note = words.collect::<Vec<_>>().join(" ");
        // What stands for several others comes before them, and they are indented.
        let stands_for_others = !line.starts_with(['\t', ' '])
            && lines.peek().is_some_and(|l| l.starts_with(['\t', ' ']));
        let own = |value: bool| (!stands_for_others || !note.is_empty()).then_some(value);
        let requested = match note.as_str() {
            "[requested on]" => true,
            "[requested off]" | "[not requested]" => false,
            _ => on,
        };
        let feature = Feature { on, fixed: own(note == "[fixed]"), requested: own(requested) };
        found.insert(name.trim().to_owned(), feature);
    }
    Ok(found)
}

/// `ethtool --show-priv-flags`.
pub fn private_flags(text: &str) -> Parsed<BTreeMap<String, bool>> {
    let one = |(name, values): (&str, Vec<&str>)| {
        let on = switch(values[0]).ok_or_else(|| format!("`{name}` is neither on nor off"))?;
        Ok((name.to_owned(), on))
    };
    fields(text).into_iter().map(one).collect()
}

/// Two parts with the same keys: what can be, and what is.
fn halves(text: &str) -> Parsed<[Fields<'_>; 2]> {
    let (most, now) = text
        .split_once("Current hardware settings:")
        .ok_or("`ethtool` printed no `Current hardware settings`")?;
    Ok([fields(most), fields(now)])
}

fn bounded(most: &[(&str, Vec<&str>)], now: &[(&str, Vec<&str>)], key: &str) -> Option<Bounded> {
    let now = value(now, key)?.parse().ok()?;
    Some(Bounded { now, most: value(most, key).and_then(|text| text.parse().ok()) })
}

/// `ethtool -l`.
pub fn channels(text: &str) -> Parsed<Channels> {
    let [most, now] = halves(text)?;
    let one = |key| bounded(&most, &now, key);
    Ok(Channels { rx: one("RX"), tx: one("TX"), other: one("Other"), combined: one("Combined") })
}

/// `ethtool -g`.
pub fn rings(text: &str) -> Parsed<Rings> {
    const RINGS: [&str; 4] = ["RX", "RX Mini", "RX Jumbo", "TX"];
    let [most, now] = halves(text)?;
    let named = |key: &str| key.to_ascii_lowercase().replace(' ', "-");
    let frames = RINGS.iter().filter_map(|key| Some((named(key), bounded(&most, &now, key)?)));
    let others = now.iter().filter(|(key, _)| !RINGS.contains(key));
    let options = others.filter_map(|(key, values)| Some((named(key), word(values[0])?)));
    Ok(Rings { frames: frames.collect(), options: options.collect() })
}

/// `ethtool -c`.
pub fn coalescing(text: &str) -> Parsed<Coalescing> {
    let mut found = BTreeMap::new();
    for line in text.lines().skip(1) {
        // `Adaptive RX: off  TX: off`
        let pair = [("Adaptive RX:", "adaptive"), ("CQE mode RX:", "cqe-mode")];
        if let Some((start, name)) = pair.iter().find(|(start, _)| line.starts_with(start)) {
            let (rx, tx) =
                line[start.len()..].split_once("TX:").unwrap_or((&line[start.len()..], ""));
            for (end, text) in [("rx", rx), ("tx", tx)] {
                if let Some(word) = word(text.trim()) {
                    found.insert(format!("{name}-{end}"), word);
                }
            }
        } else if let Some((key, value)) = line.split_once(':')
            && let Some(word) = word(value.trim())
        {
            found.insert(key.trim().to_owned(), word);
        }
    }
    Ok(found)
}

/// `ethtool -a`.
pub fn pause(text: &str) -> Parsed<Pause> {
    let fields = fields(text);
    let one = |key| value(&fields, key).and_then(switch);
    let pause = Pause { autonegotiate: one("Autonegotiate"), rx: one("RX"), tx: one("TX") };
    if pause == (Pause { autonegotiate: None, rx: None, tx: None }) {
        return Err("`ethtool` printed no pause parameters".to_owned());
    }
    Ok(pause)
}

/// `ethtool --show-eee`; the settings and whether the link sleeps. `None` when the NIC cannot.
pub fn eee(text: &str) -> Parsed<Option<(EnergyEfficient, bool)>> {
    let fields = fields(text);
    let status = needed(&fields, "EEE status")?;
    if status == "not supported" {
        return Ok(None);
    }
    let lpi = value(&fields, "Tx LPI").unwrap_or_default();
    let timer = lpi.split_whitespace().next().and_then(|word| word.parse().ok());
    let settings = EnergyEfficient {
        enabled: status.starts_with("enabled"),
        tx_lpi: if timer.is_some() { Some(true) } else { switch(lpi) },
        tx_lpi_timer_us: timer,
        advertised: modes(&fields, "Advertised EEE link modes"),
    };
    Ok(Some((settings, status == "enabled - active")))
}

/// `ethtool -T`, of versions before and since 6.14, which calls the clock a provider of timestamps.
pub fn timestamping(text: &str) -> Parsed<Timestamping> {
    if !text.starts_with("Time stamping parameters for") {
        return Err("`ethtool` printed no time stamping parameters".to_owned());
    }
    let list = |title: &str| -> Vec<String> {
        let mut lines = text.lines().skip_while(|line| !line.starts_with(title)).skip(1);
        let mut found = Vec::new();
        while let Some(line) = lines.next().filter(|line| line.starts_with(['\t', ' '])) {
            found.extend(line.split_whitespace().next().map(str::to_owned));
        }
        found
    };
    let fields = fields(text);
    let phc = value(&fields, "PTP Hardware Clock")
        .or_else(|| value(&fields, "Hardware timestamp provider index"));
    Ok(Timestamping {
        capabilities: list("Capabilities:"),
        phc: phc.and_then(|text| text.parse().ok()),
        tx_modes: list("Hardware Transmit Timestamp Modes:"),
        rx_filters: list("Hardware Receive Filter Modes:"),
    })
}

/// `ethtool -n`.
pub fn ntuple(text: &str) -> Parsed<Vec<NtupleRule>> {
    let mut found: Vec<NtupleRule> = Vec::new();
    for line in text.lines() {
        let Some((key, value)) = line.split_once(':') else { continue };
        let (key, value) = (key.trim(), value.trim());
        if key == "Filter" {
            let location = value.parse().map_err(|_| format!("`{value}` is no place of a rule"))?;
            found.push(NtupleRule { location, fields: BTreeMap::new() });
        } else if let Some(rule) = found.last_mut().filter(|_| line.starts_with(['\t', ' '])) {
            rule.fields.insert(key.to_owned(), value.to_owned());
        }
    }
    found.sort_by_key(|rule| rule.location);
    Ok(found)
}

/// `ethtool -x`: the queue of each place of the table.
pub fn rss(text: &str) -> Parsed<Vec<u32>> {
    let (table, _) = text.split_once("RSS hash key:").unwrap_or((text, ""));
    let rows = table.lines().skip(1).filter_map(|line| line.split_once(':'));
    let queues = rows.flat_map(|(_, queues)| queues.split_whitespace());
    let number = |queue: &str| queue.parse().map_err(|_| format!("`{queue}` is no queue"));
    queues.map(number).collect()
}

/// `ethtool -S`.
pub fn statistics(text: &str) -> Parsed<BTreeMap<String, i64>> {
    let one = |line: &str| {
        // Names may have colons: `[0]: rx_ucast_packets: 5`.
        let (key, value) = line.rsplit_once(':')?;
        let value = value.trim();
        let number = value.parse::<i64>().ok();
        let number = number.or_else(|| Some(value.parse::<u64>().ok()?.cast_signed()))?;
        Some((key.trim().to_owned(), number))
    };
    Ok(text.lines().skip(1).filter_map(one).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn t0_energy_efficient_ethernet_is_read() {
        let text = "EEE settings for eth0:\n\tEEE status: enabled - active\n\tTx LPI: 17 (us)\n\
                    \tSupported EEE link modes:  100baseT/Full\n\t                           \
                    1000baseT/Full\n\tAdvertised EEE link modes:  100baseT/Full\n\
                    \t                             1000baseT/Full\n\
                    \tLink partner advertised EEE link modes:  Not reported";
        let (settings, active) = eee(text).unwrap().unwrap();
        assert!(settings.enabled && active);
        assert_eq!((settings.tx_lpi, settings.tx_lpi_timer_us), (Some(true), Some(17)));
        assert_eq!(settings.advertised, ["100baseT/Full", "1000baseT/Full"]);
        let off = "EEE settings for eth0:\n\tEEE status: disabled\n\tTx LPI: disabled\n";
        let (settings, active) = eee(off).unwrap().unwrap();
        assert_eq!((settings.enabled, settings.tx_lpi, active), (false, Some(false), false));
        let none = "EEE settings for eth0:\n\tEEE status: not supported";
        assert_eq!(eee(none).unwrap(), None);
        assert!(eee("nothing").is_err());
    }

    #[test]
    fn t0_both_notations_of_the_clock_of_timestamps_are_read() {
        let text = |clock: &str| {
            format!(
                "Time stamping parameters for eth0:\nCapabilities:\n\thardware-transmit\n\
                 \tsoftware-receive\n{clock}\nHardware Transmit Timestamp Modes:\n\toff\n\ton\n\
                 Hardware Receive Filter Modes: none\n"
            )
        };
        let old = timestamping(&text("PTP Hardware Clock: 3")).unwrap();
        let new = "Hardware timestamp provider index: 3\n\
                   Hardware timestamp provider qualifier: Precise (IEEE 1588 quality)";
        assert_eq!(old, timestamping(&text(new)).unwrap());
        assert_eq!(old.phc, Some(3));
        assert_eq!(old.capabilities, ["hardware-transmit", "software-receive"]);
        assert_eq!(old.tx_modes, ["off", "on"]);
        assert!(old.rx_filters.is_empty());
        assert_eq!(timestamping(&text("PTP Hardware Clock: none")).unwrap().phc, None);
        assert!(timestamping("").is_err());
    }

    #[test]
    fn t0_rules_of_the_nic_are_read() {
        let text = "4 RX rings available\nTotal 2 rules\n\nFilter: 63\n\tRule Type: Raw Ethernet\n\
                    \tEthertype: 0x88F7 mask: 0x0\n\tAction: Direct to queue 1\n\nFilter: 2\n\
                    \tAction: Drop\n";
        let rules = ntuple(text).unwrap();
        assert_eq!(rules.iter().map(|rule| rule.location).collect::<Vec<_>>(), [2, 63]);
        assert_eq!(rules[1].fields["Ethertype"], "0x88F7 mask: 0x0");
        assert_eq!(rules[0].fields["Action"], "Drop");
        assert!(ntuple("1 RX rings available\nTotal 0 rules").unwrap().is_empty());
    }

    #[test]
    fn t0_features_tell_what_was_asked_for() {
        let text = "Features for eth0:\ntx-checksumming: on\n\ttx-checksum-ipv4: off [fixed]\n\
                    \ttx-checksum-ip-generic: on\nrx-all: off [requested on]\n";
        let found = features(text).unwrap();
        let one = |on, fixed, requested| Feature { on, fixed, requested };
        assert_eq!(found["tx-checksumming"], one(true, None, None));
        assert_eq!(found["tx-checksum-ipv4"], one(false, Some(true), Some(false)));
        assert_eq!(found["rx-all"], one(false, Some(false), Some(true)));
        assert!(features("Features for eth0:\nrx-all: perhaps").is_err());
    }

    #[test]
    fn t0_coalescing_has_what_the_driver_knows() {
        let text = "Coalesce parameters for eth0:\nAdaptive RX: off  TX: n/a\n\
                    stats-block-usecs:\tn/a\n\nrx-usecs:\t3\nrx-frames: n/a\n\
                    CQE mode RX: n/a  TX: on\n";
        let found = coalescing(text).unwrap();
        assert_eq!(found["adaptive-rx"], Word::Switch(false));
        assert_eq!(found["rx-usecs"].number(), Some(3));
        assert_eq!(found["cqe-mode-tx"].switch(), Some(true));
        assert_eq!(found.len(), 3);
    }

    #[test]
    fn t0_counters_may_have_any_name() {
        let text = "NIC statistics:\n     rx_packets: 5\n     [0]: rx: 7\n     big: \
                    18446744073709551615\n";
        let found = statistics(text).unwrap();
        assert_eq!((found["rx_packets"], found["[0]: rx"], found["big"]), (5, 7, -1));
    }

    proptest! {
        #[test]
        fn t0_no_text_panics(text in "[a-zA-Z0-9 :.,\t\n/\\[\\]-]{0,200}") {
            let texts = [text.clone(), format!("Settings for eth0:\n{text}"),
                format!("Time stamping parameters for x:\n{text}"),
                format!("t\n{text}\nCurrent hardware settings:\n{text}")];
            for text in &texts {
                let _ = (driver(text), link(text), features(text), private_flags(text));
                let _ = (channels(text), rings(text), coalescing(text), pause(text), eee(text));
                let _ = (timestamping(text), ntuple(text), rss(text), statistics(text));
            }
        }
    }
}
