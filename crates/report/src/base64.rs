// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Arrays of numbers as base64 text, little endian.
//!
//! **Source**: RFC 4648 section 4.
//!
//! Not here: what the numbers mean (`timeline`).

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// Bytes as base64 text, padded.
pub(crate) fn base64(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for three in bytes.chunks(3) {
        let mut word = [0; 4];
        word[1..=three.len()].copy_from_slice(three);
        let word = u32::from_be_bytes(word);
        for place in 0..4 {
            let index = usize::try_from((word >> (18 - 6 * place)) & 63);
            let index = index.expect("invariant: six bits");
            let is_padding = place > three.len();
            out.push(if is_padding { '=' } else { char::from(ALPHABET[index]) });
        }
    }
    out
}

/// Numbers of 8 bytes.
pub(crate) fn base64_f64(numbers: impl Iterator<Item = f64>) -> String {
    base64(&numbers.flat_map(f64::to_le_bytes).collect::<Vec<u8>>())
}

/// Numbers of 4 bytes; what does not fit is the largest.
pub(crate) fn base64_u32(numbers: impl Iterator<Item = u64>) -> String {
    let small = numbers.map(|number| u32::try_from(number).unwrap_or(u32::MAX));
    base64(&small.flat_map(u32::to_le_bytes).collect::<Vec<u8>>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn t0_base64_is_that_of_the_standard() {
        let vectors = [
            ("", ""),
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foo", "Zm9v"),
            ("foob", "Zm9vYg=="),
            ("fooba", "Zm9vYmE="),
            ("foobar", "Zm9vYmFy"),
        ];
        for (plain, coded) in vectors {
            assert_eq!(base64(plain.as_bytes()), coded);
        }
        assert_eq!(base64(&[255, 254, 253]), "//79");
        assert_eq!(base64_u32([1, u64::MAX].into_iter()), "AQAAAP////8=");
        assert_eq!(base64_f64([1.0].into_iter()), "AAAAAAAA8D8=");
    }
}
