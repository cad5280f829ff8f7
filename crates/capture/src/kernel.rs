// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Names of the numbers that a kernel tells: reasons of drops from its own types (BTF), softirqs.

use std::collections::BTreeMap;

/// A member of an enumeration of the kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// The enumeration's name.
    pub of: String,
    /// Its own name.
    pub name: String,
    /// Its value.
    pub value: u64,
}

/// Names of the reasons for which a kernel drops packets.
///
/// **Source**: linux v6.12 include/net/dropreason-core.h, include/net/dropreason.h: the upper 16
/// of 32 bits are the subsystem.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DropReasons {
    /// By number.
    pub names: BTreeMap<u64, String>,
    /// Subsystems, by the upper 16 bits.
    pub subsystems: BTreeMap<u64, String>,
}

impl DropReasons {
    /// From the members of enumerations whose name ends in `drop_reason` or `drop_reason_subsys`.
    pub fn of<'a>(members: impl IntoIterator<Item = &'a Member>) -> DropReasons {
        let mut found = DropReasons::default();
        for Member { of, name, value } in members {
            let (value, core) = (*value & 0xffff_ffff, of == "skb_drop_reason");
            let is_mark = ["_MAX", "_MASK", "_NUM", "_LAST", "_USED"];
            let is_mark = is_mark.iter().any(|end| name.ends_with(end)) || name.starts_with("__");
            if of == "skb_drop_reason_subsys" {
                let short = name.strip_prefix("SKB_DROP_REASON_SUBSYS_").unwrap_or(name);
                if short != "NUM" {
                    found.subsystems.insert(value, short.to_owned());
                }
            } else if of.ends_with("drop_reason") && (core || value > 0xffff) && !is_mark {
                let short = name.strip_prefix("SKB_DROP_REASON_").filter(|_| core);
                let short = short.or_else(|| name.strip_prefix("SKB_").filter(|_| core));
                found.names.insert(value, short.unwrap_or(name).to_owned());
            }
        }
        found
    }

    /// The subsystem of a reason.
    pub fn subsystem(reason: u64) -> u64 {
        reason >> 16 & 0xffff
    }
}

/// The members of the enumerations that `wanted` names, of a kernel's or a module's types as
/// `/sys/kernel/btf` has them; a module's begin where its kernel's end. `None` when that is no BTF.
///
/// **Source**: linux v6.12 include/uapi/linux/btf.h, Documentation/bpf/btf.rst.
pub fn enumerations(
    kernel: &[u8],
    module: Option<&[u8]>,
    wanted: impl Fn(&str) -> bool,
) -> Option<Vec<Member>> {
    let base = Types::of(kernel)?;
    let own = module.map_or(Some(Types { types: base.types, strings: base.strings }), Types::of)?;
    let text = |at: u32| -> Option<String> {
        let at = usize::try_from(at).ok()?;
        let bytes = match (module, at.checked_sub(base.strings.len())) {
            (Some(_), Some(beyond)) => own.strings.get(beyond..)?,
            _ => base.strings.get(at..)?,
        };
        let end = bytes.iter().position(|byte| *byte == 0)?;
        Some(String::from_utf8_lossy(&bytes[..end]).into_owned())
    };
    let mut found = Vec::new();
    let mut rest = own.types;
    while !rest.is_empty() {
        let (name, info) = (word(rest, 0)?, word(rest, 4)?);
        let (kind, count) = (info >> 24 & 0x1f, usize::try_from(info & 0xffff).ok()?);
        let length = match kind {
            // INT, VAR, DECL_TAG; ARRAY; STRUCT, UNION, DATASEC, ENUM64; ENUM, FUNC_PROTO.
            1 | 14 | 17 => 4,
            3 => 12,
            4 | 5 | 15 | 19 => 12 * count,
            6 | 13 => 8 * count,
            // PTR, FWD, TYPEDEF, VOLATILE, CONST, RESTRICT, FUNC, FLOAT, TYPE_TAG.
            2 | 7..=12 | 16 | 18 => 0,
            _ => return None,
        };
        let members = rest.get(12..12 + length)?;
        rest = &rest[12 + length..];
        let size = match kind {
            6 => 8,
            19 => 12,
            _ => continue,
        };
        let of = text(name)?;
        if !wanted(&of) {
            continue;
        }
        for member in members.chunks_exact(size) {
            let high = if size == 12 { u64::from(word(member, 8)?) << 32 } else { 0 };
            let value = high | u64::from(word(member, 4)?);
            found.push(Member { of: of.clone(), name: text(word(member, 0)?)?, value });
        }
    }
    Some(found)
}

/// The two parts of BTF.
struct Types<'a> {
    types: &'a [u8],
    strings: &'a [u8],
}

impl Types<'_> {
    fn of(bytes: &[u8]) -> Option<Types<'_>> {
        let magic = bytes.get(..4)?;
        if magic[..3] != [0x9f, 0xeb, 1] {
            return None;
        }
        let at = |place| usize::try_from(word(bytes, place)?).ok();
        let body = bytes.get(at(4)?..)?;
        let part = |from: usize, length: usize| body.get(from..from.checked_add(length)?);
        Some(Types { types: part(at(8)?, at(12)?)?, strings: part(at(16)?, at(20)?)? })
    }
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

/// The name of a kind of deferred work, as `/proc/softirqs` has it.
///
/// **Source**: linux v6.12 include/linux/interrupt.h, the softirqs' enumeration.
pub fn softirq(kind: u64) -> String {
    const NAMES: [&str; 10] = [
        "HI", "TIMER", "NET_TX", "NET_RX", "BLOCK", "IRQ_POLL", "TASKLET", "SCHED", "HRTIMER",
        "RCU",
    ];
    let known = usize::try_from(kind).ok().and_then(|kind| NAMES.get(kind));
    known.map_or_else(|| format!("unknown softirq {kind}"), |name| (*name).to_owned())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// BTF of enumerations, with a type of another kind before each; names begin at `from`.
    fn btf(enums: &[(&str, &[(&str, u32)])], from: u32) -> Vec<u8> {
        let (mut types, mut strings) = (Vec::new(), if from == 0 { vec![0] } else { Vec::new() });
        let mut text = |name: &str| {
            let at = from + u32::try_from(strings.len()).unwrap();
            strings.extend(name.as_bytes());
            strings.push(0);
            at
        };
        for (name, members) in enums {
            types.extend([0, 1 << 24, 4, 32].map(u32::to_le_bytes).concat());
            let info = 6 << 24 | u32::try_from(members.len()).unwrap();
            types.extend([text(name), info, 4].map(u32::to_le_bytes).concat());
            for (name, value) in *members {
                types.extend([text(name), *value].map(u32::to_le_bytes).concat());
            }
        }
        let length = |bytes: &[u8]| u32::try_from(bytes.len()).unwrap();
        let head = [24, 0, length(&types), length(&types), length(&strings)];
        [&[0x9f, 0xeb, 1, 0][..], &head.map(u32::to_le_bytes).concat(), &types, &strings].concat()
    }

    const CORE: (&str, &[(&str, u32)]) = (
        "skb_drop_reason",
        &[
            ("SKB_NOT_DROPPED_YET", 0),
            ("SKB_CONSUMED", 1),
            ("SKB_DROP_REASON_NO_SOCKET", 3),
            ("SKB_DROP_REASON_MAX", 4),
            ("SKB_DROP_REASON_SUBSYS_MASK", 0xffff_0000),
        ],
    );
    const SUBSYSTEMS: (&str, &[(&str, u32)]) = (
        "skb_drop_reason_subsys",
        &[
            ("SKB_DROP_REASON_SUBSYS_CORE", 0),
            ("SKB_DROP_REASON_SUBSYS_OPENVSWITCH", 3),
            ("SKB_DROP_REASON_SUBSYS_NUM", 4),
        ],
    );
    const OVS: (&str, &[(&str, u32)]) =
        ("ovs_drop_reason", &[("__OVS_DROP_REASON", 0x3_0000), ("OVS_DROP_LAST_ACTION", 0x3_0001)]);

    #[test]
    fn t0_reasons_have_the_names_of_kernel_and_modules() {
        let kernel = btf(&[("other", &[("A", 7)]), CORE, SUBSYSTEMS], 0);
        let strings = u32::try_from(Types::of(&kernel).unwrap().strings.len()).unwrap();
        let module = btf(&[OVS], strings);
        let wanted = |name: &str| name.contains("drop_reason");
        let mut all = enumerations(&kernel, None, wanted).unwrap();
        all.extend(enumerations(&kernel, Some(&module), wanted).unwrap());
        let found = DropReasons::of(&all);
        let names: Vec<_> = found.names.iter().map(|(at, name)| (*at, name.as_str())).collect();
        let ovs = (0x3_0001, "OVS_DROP_LAST_ACTION");
        assert_eq!(names, [(0, "NOT_DROPPED_YET"), (1, "CONSUMED"), (3, "NO_SOCKET"), ovs]);
        assert_eq!(found.subsystems[&3], "OPENVSWITCH");
        assert_eq!(DropReasons::subsystem(0x3_0001), 3);
    }

    proptest! {
        #[test]
        fn t0_damaged_types_are_none_or_less(
            cut in 0_usize..400,
            flips in proptest::collection::vec(
                (any::<proptest::sample::Index>(), any::<u8>()), 0..6
            ),
        ) {
            let mut bytes = btf(&[CORE, SUBSYSTEMS, OVS], 0);
            bytes.truncate(bytes.len().saturating_sub(cut));
            for (at, by) in flips {
                if !bytes.is_empty() {
                    let at = at.index(bytes.len());
                    bytes[at] ^= by;
                }
            }
            let _ = enumerations(&bytes, Some(&bytes), |_| true);
            let _ = enumerations(&bytes, None, |_| true);
        }
    }

    #[test]
    fn t0_softirqs_have_names() {
        assert_eq!((softirq(3).as_str(), softirq(10).as_str()), ("NET_RX", "unknown softirq 10"));
    }
}
