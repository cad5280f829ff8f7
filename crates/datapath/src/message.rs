// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The eight bytes at the start of every measured message.
//!
//! **Shape**: bytes 0 to 3 the sequence number, bytes 4 to 7 [`MAGIC`], both little endian; the
//! rest of the message is filler.

const MAGIC: [u8; 4] = *b"TWm1";

/// The shortest message that can be measured.
///
/// **Units**: bytes.
pub const MIN_MESSAGE: usize = 8;
const _: () = assert!(MIN_MESSAGE == timewire_model::scenario::Stream::SMALLEST_MEASURED as usize);

/// Writes the sequence number and the mark.
pub(crate) fn timestamp(message: &mut [u8], seq: u32) {
    message[..4].copy_from_slice(&seq.to_le_bytes());
    message[4..8].copy_from_slice(&MAGIC);
}

/// The sequence number of a measured message; `None` for any other.
pub fn seq_of(message: &[u8]) -> Option<u32> {
    let (seq, rest) = message.split_first_chunk::<4>()?;
    rest.starts_with(&MAGIC).then(|| u32::from_le_bytes(*seq))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn t0_only_marked_messages_have_a_number() {
        let mut message = [0; 64];
        assert_eq!(seq_of(&message), None);
        timestamp(&mut message, 0xdead_beef);
        assert_eq!(seq_of(&message), Some(0xdead_beef));
        assert_eq!(seq_of(&message[..7]), None);
        assert_eq!(seq_of(&message[..8]), Some(0xdead_beef));
    }
}
