// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The MAC merge layer as netlink's family `ethtool` has it. The kernel knows it since 6.3, and so
//! does the tool; distributions have newer kernels with older tools.

use std::collections::BTreeMap;
use std::io;

use timewire_sys::generic::{Answer, Family, attributes};
use timewire_sys::netlink::Attributes;

use super::Merge;
use crate::snapshot::model::{MacMerge, MacMergeState};

/// Of an interface of the caller's network namespace.
///
/// **Errors**: `Unsupported` when the kernel or the NIC has none.
pub fn of(interface: &str) -> io::Result<Merge> {
    let mut header = Attributes::new();
    header.put(DEVICE_NAME, &[interface.as_bytes(), b"\0"].concat());
    header.put(FLAGS, &WITH_STATISTICS.to_ne_bytes());
    let mut asked = Attributes::new();
    asked.nest(HEADER, &header);
    let answers = Family::find("ethtool")?.ask(MM_GET, false, &asked)?;
    let answer = answers.first().ok_or_else(|| io::Error::other("the kernel answered nothing"))?;
    Ok(understand(answer))
}

fn understand(answer: &Answer) -> Merge {
    let number = |kind| number(answer, kind);
    let is_on = |kind| number(kind) == Some(1);
    let statuses = ["UNKNOWN", "INITIAL", "VERIFYING", "SUCCEEDED", "FAILED", "DISABLED"];
    let status = number(8).and_then(|status| statuses.get(usize::try_from(status).ok()?));
    let nested = answer.iter().find(|(kind, _)| *kind == STATISTICS);
    let nested = nested.map(|(_, bytes)| attributes(bytes)).unwrap_or_default();
    let counted =
        |(kind, name): &(u16, &str)| Some(((*name).to_owned(), self::number(&nested, *kind)?));
    Merge {
        settings: MacMerge {
            pmac_enabled: is_on(2),
            tx_enabled: is_on(3),
            tx_min_fragment_bytes: number(5),
            rx_min_fragment_bytes: number(6),
            verify_enabled: number(7).map(|on| on == 1),
            verify_time_ms: number(9),
            max_verify_time_ms: number(10),
        },
        state: MacMergeState {
            tx_active: is_on(4),
            verify_status: status.map(|status| (*status).to_owned()),
        },
        counters: COUNTERS.iter().filter_map(counted).collect::<BTreeMap<_, _>>(),
    }
}

/// A number of one, four or eight bytes.
fn number(answer: &Answer, kind: u16) -> Option<u64> {
    let (_, bytes) = answer.iter().find(|(found, _)| *found == kind)?;
    match bytes[..] {
        [one] => Some(one.into()),
        [a, b, c, d] => Some(u32::from_ne_bytes([a, b, c, d]).into()),
        _ => Some(u64::from_ne_bytes(bytes[..].try_into().ok()?)),
    }
}

// From linux v6.12 include/uapi/linux/ethtool_netlink.h.
const MM_GET: u8 = 42;
const HEADER: u16 = 1;
const DEVICE_NAME: u16 = 2;
const FLAGS: u16 = 3;
const WITH_STATISTICS: u32 = 1 << 2;
const STATISTICS: u16 = 11;
const COUNTERS: [(u16, &str); 6] = [
    (2, "MACMergeFrameAssErrorCount"),
    (3, "MACMergeFrameSmdErrorCount"),
    (4, "MACMergeFrameAssOkCount"),
    (5, "MACMergeFragCountRx"),
    (6, "MACMergeFragCountTx"),
    (7, "MACMergeHoldCount"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn t0_an_answer_of_the_kernel_is_understood() {
        let mut statistics = Attributes::new();
        statistics.put(4, &7_u64.to_ne_bytes()).put(5, &9_u64.to_ne_bytes());
        let mut answer = Attributes::new();
        answer.put(2, &[1]).put(3, &[1]).put(4, &[0]).put(5, &60_u32.to_ne_bytes());
        answer.put(7, &[1]).put(8, &[4]).put(9, &128_u32.to_ne_bytes());
        answer.nest(STATISTICS, &statistics);
        let merge = understand(&attributes(answer.as_bytes()));
        assert!(merge.settings.pmac_enabled && merge.settings.tx_enabled);
        assert_eq!(merge.settings.tx_min_fragment_bytes, Some(60));
        assert_eq!(merge.settings.rx_min_fragment_bytes, None);
        assert_eq!(merge.settings.verify_time_ms, Some(128));
        assert!(!merge.state.tx_active);
        assert_eq!(merge.state.verify_status.as_deref(), Some("FAILED"));
        assert_eq!(merge.counters["MACMergeFrameAssOkCount"], 7);
        assert_eq!(merge.counters.len(), 2);
    }

    #[test]
    fn t0_the_loopback_interface_has_none() {
        assert!(of("lo").is_err());
        assert!(of("no-such-if").is_err());
    }
}
