// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Bytes in JSON: base64 with padding (RFC 4648, section 4), as a format of a serde field.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serializer};

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
    STANDARD.decode(text).map_err(|why| D::Error::custom(format!("this is no base64: {why}")))
}

/// The text.
pub fn encode(bytes: &[u8]) -> String {
    STANDARD.encode(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a field with this format reads.
    fn decode(text: &str) -> Option<Vec<u8>> {
        let text: serde::de::value::StrDeserializer<'_, serde::de::value::Error> =
            serde::de::IntoDeserializer::into_deserializer(text);
        deserialize(text).ok()
    }

    #[test]
    fn t0_bytes_have_one_text() {
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
}
