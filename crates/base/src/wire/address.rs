// SPDX-License-Identifier: Apache-2.0 OR MIT
//! MAC addresses: how they are read and written everywhere.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// The address of a network interface or of a group. Prints as `02:00:00:00:00:01`, as `ip` and
/// `ethtool` do; is read from six pairs of hexadecimal digits with colons between them.
///
/// **Source**: IEEE 802-2014, 8.2.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct MacAddress(pub [u8; 6]);

/// Text that is no MAC address.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("`{text}` is no MAC address: write it as 02:00:00:00:00:01")]
pub struct MacAddressError {
    /// What was given.
    pub text: String,
}

impl MacAddress {
    /// Whether it is that of a group, or of everybody.
    pub const fn is_group(self) -> bool {
        self.0[0] & 1 != 0
    }

    /// Whether one interface can have it: it is neither that of a group nor zero.
    pub const fn is_of_one_station(self) -> bool {
        !self.is_group() && !matches!(self.0, [0, 0, 0, 0, 0, 0])
    }
}

impl fmt::Display for MacAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

impl FromStr for MacAddress {
    type Err = MacAddressError;

    fn from_str(text: &str) -> Result<MacAddress, MacAddressError> {
        octets(text).map(MacAddress).ok_or_else(|| MacAddressError { text: text.to_owned() })
    }
}

impl TryFrom<String> for MacAddress {
    type Error = MacAddressError;

    fn try_from(text: String) -> Result<MacAddress, MacAddressError> {
        text.parse()
    }
}

impl From<MacAddress> for String {
    fn from(address: MacAddress) -> String {
        address.to_string()
    }
}

fn octets(text: &str) -> Option<[u8; 6]> {
    let mut octets = [0; 6];
    let mut pairs = text.split(':');
    for octet in &mut octets {
        // `from_str_radix` would take a sign.
        let is_pair = |it: &&str| it.len() == 2 && it.bytes().all(|b| b.is_ascii_hexdigit());
        *octet = u8::from_str_radix(pairs.next().filter(is_pair)?, 16).ok()?;
    }
    pairs.next().is_none().then_some(octets)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn t0_what_is_written_is_read(octets in any::<[u8; 6]>()) {
            let address = MacAddress(octets);
            let text = address.to_string();
            prop_assert_eq!(text.parse(), Ok(address));
            prop_assert_eq!(text.to_uppercase().parse(), Ok(address));
        }

        #[test]
        fn t0_only_what_is_written_is_read(text in "[0-9a-fA-F:+ -]{0,20}") {
            if let Ok(address) = text.parse::<MacAddress>() {
                prop_assert_eq!(address.to_string(), text.to_lowercase());
            }
        }
    }

    #[test]
    fn t0_six_pairs_and_nothing_else_are_an_address() {
        assert_eq!("91:E0:f0:00:fe:01".parse(), Ok(MacAddress([0x91, 0xe0, 0xf0, 0, 0xfe, 1])));
        let wrong = [
            "",
            "02:00:00:00:00",
            "02:00:00:00:00:00:00",
            "2:0:0:0:0:1",
            "02-00-00-00-00-01",
            "+2:00:00:00:00:01",
            "02:00:00:00:00:0g",
            "0200:0000:0001",
            " 02:00:00:00:00:01",
        ];
        for text in wrong {
            let error = text.parse::<MacAddress>().unwrap_err().to_string();
            let said = format!("`{text}` is no MAC address: write it as 02:00:00:00:00:01");
            assert_eq!(error, said);
        }
    }

    #[test]
    fn t0_groups_and_zero_are_no_address_of_one_station() {
        let table = [
            ([2, 0, 0, 0, 0, 1], false, true),
            ([0; 6], false, false),
            ([1, 0, 0x5e, 0, 0, 1], true, false),
            ([0xff; 6], true, false),
        ];
        for (octets, is_group, is_of_one) in table {
            let address = MacAddress(octets);
            assert_eq!((address.is_group(), address.is_of_one_station()), (is_group, is_of_one));
        }
    }
}
