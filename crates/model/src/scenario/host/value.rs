// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Single values that only the file of a host has.

use std::collections::BTreeSet;
use std::fmt;

use serde_json::{Value as Json, json};
use timewire_base::{IfName, TxQueue};

use crate::queue::{Handle, QueueRange};
use crate::scenario::item::{Item, Reader};
use crate::scenario::tree::Node;

/// CPUs, as the kernel writes them: `2,4-6`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CpuList(BTreeSet<u32>);

/// The largest number of a CPU that is taken.
const MAX_CPU: u32 = 8191;

impl CpuList {
    /// Reads `2,4-6`.
    ///
    /// **Errors**: a sentence that says what is wrong.
    pub fn parse(text: &str) -> Result<CpuList, String> {
        let refused = || format!("`{text}` is no list of CPUs, such as 2,4-6");
        let mut cpus = BTreeSet::new();
        for part in text.split(',') {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let number = |text: &str| {
                let is_number = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
                text.parse::<u32>().ok().filter(|_| is_number).ok_or_else(refused)
            };
            let (first, last) = (number(first.trim())?, number(last.trim())?);
            if last > MAX_CPU {
                return Err(format!("CPU {last} is more than {MAX_CPU}"));
            }
            if first > last {
                return Err(refused());
            }
            cpus.extend(first..=last);
        }
        Ok(CpuList(cpus))
    }

    /// The CPUs, ascending; at least one.
    pub fn iter(&self) -> impl Iterator<Item = u32> {
        self.0.iter().copied()
    }
}

impl fmt::Display for CpuList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let cpus: Vec<u32> = self.iter().collect();
        let ranges = cpus.chunk_by(|a, b| a + 1 == *b);
        let range = |range: &[u32]| match range {
            [first, .., last] => format!("{first}-{last}"),
            other => other.iter().map(u32::to_string).collect(),
        };
        f.write_str(&ranges.map(range).collect::<Vec<_>>().join(","))
    }
}

impl Item for CpuList {
    fn read(node: &Node, reader: &mut Reader) -> Option<Self> {
        reader.checked(node, "a list of CPUs such as 2,4-6", "", CpuList::parse)
    }
    fn emit(&self) -> Option<Json> {
        Some(json!(self.to_string()))
    }
    fn schema() -> Json {
        json!({"type": ["string", "integer"], "pattern": "^[0-9]+(-[0-9]+)?(,[0-9]+(-[0-9]+)?)*$"})
    }
}

/// A whole number that may be negative.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Integer(pub i64);

impl Item for Integer {
    fn read(node: &Node, reader: &mut Reader) -> Option<Self> {
        reader.checked(node, "a whole number", "", |text| {
            text.parse().map(Integer).map_err(|_| format!("`{text}` is not a whole number"))
        })
    }
    fn emit(&self) -> Option<Json> {
        Some(json!(self.0))
    }
    fn schema() -> Json {
        json!({"type": "integer"})
    }
}

impl Item for IfName {
    fn read(node: &Node, reader: &mut Reader) -> Option<Self> {
        reader.checked(node, "the name of an interface", "", IfName::new)
    }
    fn emit(&self) -> Option<Json> {
        Some(json!(self.as_str()))
    }
    fn schema() -> Json {
        json!({"type": "string", "pattern": "^[^/:\\s]{1,15}$"})
    }
}

impl Item for Handle {
    fn read(node: &Node, reader: &mut Reader) -> Option<Self> {
        let hint = "write 1 to four hexadecimal digits, 1 to fffe, such as 100";
        reader.checked(node, "a handle such as 100", hint, |text| {
            let digits = text.strip_suffix(':').unwrap_or(text);
            let is_number =
                (1..=4).contains(&digits.len()) && digits.bytes().all(|b| b.is_ascii_hexdigit());
            let major = u16::from_str_radix(digits, 16).ok().filter(|_| is_number);
            match major {
                // The kernel gives ffff to what stands on receive.
                Some(major @ 1..=0xfffe) => Ok(Handle::new(major)),
                _ => Err(format!("`{text}` is no handle")),
            }
        })
    }
    fn emit(&self) -> Option<Json> {
        Some(json!(format!("{:x}", self.get())))
    }
    fn schema() -> Json {
        json!({"type": ["string", "integer"], "pattern": "^[0-9a-fA-F]{1,4}:?$"})
    }
}

impl Item for QueueRange {
    fn read(node: &Node, reader: &mut Reader) -> Option<Self> {
        reader.checked(node, "queues such as 2@0", "", |text| {
            let number = |text: &str| {
                let is_number = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
                text.parse::<u16>().ok().filter(|_| is_number)
            };
            let parts = text.split_once('@');
            let numbers = parts.and_then(|(count, first)| Some((number(count)?, number(first)?)));
            let Some((count, first)) = numbers else {
                return Err(format!("`{text}` names no queues: `2@0` is two, from queue 0"));
            };
            let offset = TxQueue::new(u64::from(first)).map_err(|error| error.to_string())?;
            let range = QueueRange { count, offset };
            if count == 0 {
                return Err(format!("`{text}` is no queue at all: a class needs one at least"));
            }
            if range.end() > u32::from(u16::MAX) {
                return Err(format!("`{text}` goes beyond queue 65534"));
            }
            Ok(range)
        })
    }
    fn emit(&self) -> Option<Json> {
        Some(json!(self.to_string()))
    }
    fn schema() -> Json {
        json!({"type": "string", "pattern": "^[0-9]{1,5}@[0-9]{1,5}$"})
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn t0_lists_of_cpus_are_read_and_written_as_the_kernel_does() {
        for (text, written) in [("3", "3"), ("2,4-6", "2,4-6"), ("4,2,3", "2-4"), ("0-1,1", "0-1")]
        {
            assert_eq!(CpuList::parse(text).unwrap().to_string(), written);
        }
        for bad in ["", "a", "1-", "-1", "3-2", "1,,2", "99999", "+1"] {
            assert!(CpuList::parse(bad).is_err(), "{bad}");
        }
    }
}
