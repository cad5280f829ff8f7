// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Where a preemptable frame can be cut, and what that costs.
//!
//! **Source**: IEEE 802.3-2022, clause 99 (MAC Merge), `addFragSize` 0.

use timewire_base::BitsPerSecond;

use crate::time::Ps;

/// Preamble and delimiter before each fragment. **Units**: bytes.
pub const PREAMBLE_BYTES: u32 = 8;
/// Silence after each fragment. **Units**: bytes.
pub const GAP_BYTES: u32 = 12;
/// Check sequence of a fragment that is not the last. **Units**: bytes.
pub const FRAGMENT_CHECK_BYTES: u32 = 4;
/// Least data of a fragment that is not the last: 64 bytes with its check sequence.
pub const MIN_FRAGMENT_BYTES: u32 = 60;
/// Least that remains for the last fragment, with the check sequence of the frame.
pub const MIN_LAST_BYTES: u32 = 64;
/// The most that an express frame waits for a preemptable one: a frame, or rest of one, that is a
/// byte too short to be cut, with its preamble and gap. **Units**: bytes.
pub const EXPRESS_WAIT_BYTES: u32 =
    PREAMBLE_BYTES + (MIN_FRAGMENT_BYTES + MIN_LAST_BYTES - 1) + GAP_BYTES;

/// After how many bytes of its data a fragment can end that began `since` ago and has `rest` bytes
/// to send (with the check sequence of the frame); `None` when it has to go on to its end.
pub(super) fn cut_after(since: Ps, rest: u32, rate: BitsPerSecond) -> Option<u32> {
    let byte = i128::from(rate.get()) * i128::from(since.get());
    let sent = ceil_bytes(byte).saturating_sub(PREAMBLE_BYTES);
    let data = sent.max(MIN_FRAGMENT_BYTES);
    (rest >= data.saturating_add(MIN_LAST_BYTES)).then_some(data)
}

/// Whole bytes of so many bits times 10^12, rounded up.
fn ceil_bytes(scaled: i128) -> u32 {
    const BYTE: i128 = 8_000_000_000_000;
    u32::try_from((scaled + BYTE - 1) / BYTE).unwrap_or(u32::MAX)
}

/// Bytes on the link of a fragment of so much data that is not the last.
pub(super) fn fragment_wire(data: u32) -> u32 {
    PREAMBLE_BYTES + data + FRAGMENT_CHECK_BYTES + GAP_BYTES
}

/// Bytes on the link of a frame, or its last fragment, of so many bytes with check sequence.
pub(super) fn last_wire(rest: u32) -> u32 {
    PREAMBLE_BYTES + rest + GAP_BYTES
}

#[cfg(test)]
mod tests {
    use super::*;
    use timewire_base::Span;

    #[test]
    fn t0_an_express_frame_waits_for_143_bytes_at_most() {
        assert_eq!(EXPRESS_WAIT_BYTES, 143);
        let gigabit = BitsPerSecond::new(1_000_000_000).unwrap();
        let wait = Ps::of_bytes(EXPRESS_WAIT_BYTES, gigabit);
        assert_eq!(wait, Ps::from_span(Span::from_ns(1_144)));
        let fast = BitsPerSecond::new(100_000_000).unwrap();
        assert_eq!(Ps::of_bytes(EXPRESS_WAIT_BYTES, fast), Ps::from_span(Span::from_ns(11_440)));
    }

    #[test]
    fn t0_both_parts_of_a_cut_frame_are_whole_fragments() {
        let rate = BitsPerSecond::new(1_000_000_000).unwrap();
        let at = |bytes: i64, rest| cut_after(Ps::new(bytes * 8_000), rest, rate);
        assert_eq!(at(0, 124), Some(60));
        assert_eq!(at(0, 123), None);
        assert_eq!(at(68, 1_518), Some(60));
        assert_eq!(at(69, 1_518), Some(61));
        assert_eq!(cut_after(Ps::new(69 * 8_000 + 1), 1_518, rate), Some(62), "a byte is whole");
        assert_eq!(at(8 + 1_454, 1_518), Some(1_454));
        assert_eq!(at(8 + 1_455, 1_518), None);
    }
}
