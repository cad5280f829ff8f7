// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Bytes in JSON: base64 with padding (RFC 4648, section 4), as a format of a serde field.
//!
//! Not here: how many bytes a message may have (`message`).

use serde::de::Error;
use serde::{Deserialize, Deserializer, Serializer};

const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// For `serde(with)`: bytes as a text.
///
/// **Errors**: those of the serializer.
pub fn serialize<S: Serializer>(bytes: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&encode(bytes))
}

/// For `serde(with)`: a text as bytes.
///
/// **Errors**: it is not what [`encode`] makes.
pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<u8>, D::Error> {
    let text = String::deserialize(deserializer)?;
    decode(&text).ok_or_else(|| D::Error::custom("these are no bytes in base64"))
}

/// The text.
pub fn encode(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for group in bytes.chunks(3) {
        let byte = |at: usize| u32::from(group.get(at).copied().unwrap_or(0));
        let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
        for digit in 0..4_usize {
            let shift = 18 - 6 * digit;
            let index = usize::try_from(bits >> shift & 63).expect("invariant: below 64");
            let is_padding = digit > group.len();
            text.push(if is_padding { '=' } else { char::from(DIGITS[index]) });
        }
    }
    text
}

/// The bytes, or `None` where the text is not what [`encode`] makes.
fn decode(text: &str) -> Option<Vec<u8>> {
    let text = text.as_bytes();
    if !text.len().is_multiple_of(4) {
        return None;
    }
    let mut bytes = Vec::with_capacity(text.len() / 4 * 3);
    for (index, group) in text.chunks_exact(4).enumerate() {
        let is_last = (index + 1) * 4 == text.len();
        let padding = group.iter().rev().take_while(|byte| **byte == b'=').count();
        if padding > 2 || (padding > 0 && !is_last) {
            return None;
        }
        let mut bits = 0_u32;
        for byte in &group[..4 - padding] {
            bits = bits << 6 | value(*byte)?;
        }
        bits <<= 6 * padding;
        let whole = bits.to_be_bytes();
        let (kept, rest) = whole[1..].split_at(3 - padding);
        if rest.iter().any(|byte| *byte != 0) {
            return None;
        }
        bytes.extend_from_slice(kept);
    }
    Some(bytes)
}

fn value(byte: u8) -> Option<u32> {
    Some(u32::from(match byte {
        b'A'..=b'Z' => byte - b'A',
        b'a'..=b'z' => byte - b'a' + 26,
        b'0'..=b'9' => byte - b'0' + 52,
        b'+' => 62,
        b'/' => 63,
        _ => return None,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn t0_the_examples_of_the_standard() {
        let cases =
            [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foob", "Zm9vYg==")];
        for (bytes, text) in cases {
            assert_eq!(encode(bytes.as_bytes()), text);
            assert_eq!(decode(text).as_deref(), Some(bytes.as_bytes()));
        }
        for bad in ["Z", "Zg=", "Z===", "Zg==Zg==", "Zm9\n", "Zh==", "====", "é==="] {
            assert_eq!(decode(bad), None, "{bad}");
        }
    }

    proptest::proptest! {
        #[test]
        fn t0_bytes_survive(bytes: Vec<u8>) {
            proptest::prop_assert_eq!(decode(&encode(&bytes)), Some(bytes));
        }
    }
}
