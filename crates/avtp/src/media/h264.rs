// SPDX-License-Identifier: Apache-2.0 OR MIT
//! H.264: a byte stream to NAL units, NAL units to the payloads of RFC 6184, and back.
//!
//! A payload does not say how long the start code before its NAL unit was. So a byte stream comes
//! back with the start codes of a [`StartCodes`] policy, and is the same byte for byte when its
//! own start codes follow one; [`StartCodes::of`] says which. Zero bytes between NAL units beyond
//! the start codes are dropped.
//!
//! **Source**: ITU-T H.264, Annex B (byte stream) and 7.4.1.2.3 (access units); RFC 6184, 5.6 to
//! 5.8, packetization mode 1.

use crate::AvtpError;

/// A NAL unit of a byte stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NalUnit {
    /// Where it starts, after its start code. **Units**: bytes.
    pub offset: usize,
    /// **Units**: bytes, at least 1.
    pub length: usize,
    /// The bytes of its start code, 3 or 4.
    pub start_code: usize,
    /// The first of an access unit: of a picture with what belongs to it.
    pub begins: bool,
    /// The last of an access unit.
    pub ends: bool,
}

/// The type of a NAL unit, from its first byte.
fn kind(first: u8) -> u8 {
    first & 0x1f
}

/// Where the next 00 00 01 starts, at or after `from`.
fn start_code(bytes: &[u8], from: usize) -> Option<usize> {
    let mut at = from;
    while let Some(three) = bytes.get(at..at + 3) {
        match three {
            [0, 0, 1] => return Some(at),
            [_, _, 0 | 1] => at += 1,
            _ => at += 3,
        }
    }
    None
}

/// The NAL units of a byte stream, with access units found.
///
/// An access unit begins at a delimiter, parameter set, SEI message or NAL unit of type 14 to 18
/// after the last slice of a picture, or else at the slice with macroblock 0 (`first_mb_in_slice`).
/// Pictures whose slices come in arbitrary order, or twice, are taken for several.
///
/// **Errors**: bytes before the first start code that are not zero; an empty NAL unit; a type that
/// RFC 6184 uses for itself (0, 24 to 31).
pub fn nal_units(bytes: &[u8]) -> Result<Vec<NalUnit>, AvtpError> {
    let mut units: Vec<NalUnit> = Vec::new();
    let first = start_code(bytes, 0).unwrap_or(bytes.len());
    if let Some(offset) = bytes[..first].iter().position(|byte| *byte != 0) {
        let (field, read) = ("the byte stream", bytes[offset].into());
        return Err(AvtpError::Wrong { field, offset, read, right: "00 00 01 or 00 00 00 01" });
    }
    let mut at = Some(first).filter(|at| *at < bytes.len());
    let mut zero_before = first > 0;
    while let Some(code) = at {
        let offset = code + 3;
        let next = start_code(bytes, offset);
        let limit = next.unwrap_or(bytes.len());
        let body = &bytes[offset..limit];
        let length = body.len() - body.iter().rev().take_while(|byte| **byte == 0).count();
        let Some(head) = body.first().filter(|_| length > 0) else {
            let (field, right) = ("a NAL unit", "1 byte or more, not zero");
            return Err(AvtpError::Wrong { field, offset, read: 0, right });
        };
        if matches!(kind(*head), 0 | 24..=31) {
            let (field, read) = ("nal_unit_type", kind(*head).into());
            return Err(AvtpError::Wrong { field, offset, read, right: "1 to 23" });
        }
        let start_code = if zero_before { 4 } else { 3 };
        units.push(NalUnit { offset, length, start_code, begins: false, ends: false });
        zero_before = length < body.len();
        at = next;
    }
    mark(bytes, &mut units);
    Ok(units)
}

/// Finds where access units begin and end.
fn mark(bytes: &[u8], units: &mut [NalUnit]) {
    let mut sliced = false;
    let mut candidate = None;
    for nth in 0..units.len() {
        let NalUnit { offset, length, .. } = units[nth];
        let body = &bytes[offset..offset + length];
        match kind(body[0]) {
            1 | 2 | 5 => {
                // first_mb_in_slice is Exp-Golomb: 0 is the single bit 1.
                let first = body.get(1).is_some_and(|byte| byte & 0x80 != 0);
                if sliced && first {
                    units[candidate.unwrap_or(nth)].begins = true;
                }
                sliced = true;
                candidate = None;
            }
            6..=9 | 14..=18 if sliced => {
                candidate.get_or_insert(nth);
            }
            _ => {}
        }
    }
    if let Some(unit) = units.first_mut() {
        unit.begins = true;
    }
    for nth in 0..units.len() {
        units[nth].ends = units.get(nth + 1).is_none_or(|next| next.begins);
    }
}

/// Which start codes a byte stream is written with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum StartCodes {
    /// Four bytes before every NAL unit.
    Four,
    /// Four bytes where Annex B demands them, before parameter sets and at the start of an access
    /// unit; three elsewhere.
    Shortest,
}

impl StartCodes {
    /// The bytes before a NAL unit.
    fn before(self, first: u8, begins: bool) -> &'static [u8] {
        let long = self == StartCodes::Four || begins || matches!(kind(first), 7 | 8);
        if long { &[0, 0, 0, 1] } else { &[0, 0, 1] }
    }

    /// The policy that gives this byte stream back as it is; `None` when neither does.
    pub fn of(bytes: &[u8], units: &[NalUnit]) -> Option<StartCodes> {
        let same = |policy: &StartCodes| {
            let mut at = 0;
            let follows = units.iter().all(|unit| {
                let code = policy.before(bytes[unit.offset], unit.begins);
                let fits = at + code.len() == unit.offset;
                at = unit.offset + unit.length;
                fits
            });
            follows && at == bytes.len()
        };
        [StartCodes::Four, StartCodes::Shortest].into_iter().find(same)
    }

    /// The byte stream with these start codes and nothing else between the NAL units.
    pub fn normalise(self, bytes: &[u8], units: &[NalUnit]) -> Vec<u8> {
        let mut out = Vec::with_capacity(bytes.len() + units.len());
        for unit in units {
            out.extend(self.before(bytes[unit.offset], unit.begins));
            out.extend(&bytes[unit.offset..unit.offset + unit.length]);
        }
        out
    }
}

/// The type of a payload with several NAL units.
const STAP_A: u8 = 24;
/// The type of a payload with a part of a NAL unit.
const FU_A: u8 = 28;
/// The shortest limit for a payload: two bytes of header and one of the NAL unit.
pub const MIN_PAYLOAD: usize = 3;

/// How many payloads of at most `limit` bytes a NAL unit of `length` bytes takes.
///
/// **Panics** when `limit` is below [`MIN_PAYLOAD`].
pub fn payloads(length: usize, limit: usize) -> usize {
    assert!(limit >= MIN_PAYLOAD, "a payload has room for its header and a byte");
    if length <= limit { 1 } else { (length - 1).div_ceil(limit - 2) }
}

/// Writes payload number `nth` of a NAL unit: the unit itself when it fits, otherwise a fragment
/// (FU-A). All fragments but the last are full.
///
/// **Panics** when there is no such payload, when `limit` is below [`MIN_PAYLOAD`], or when `out`
/// is shorter than `limit`.
pub fn write_payload(unit: &[u8], nth: usize, limit: usize, out: &mut [u8]) -> usize {
    let count = payloads(unit.len(), limit);
    assert!(nth < count, "the NAL unit has that many payloads");
    if count == 1 {
        out[..unit.len()].copy_from_slice(unit);
        return unit.len();
    }
    let from = 1 + nth * (limit - 2);
    let to = unit.len().min(from + limit - 2);
    let edges = u8::from(nth == 0) << 7 | u8::from(nth + 1 == count) << 6;
    out[0] = unit[0] & 0xe0 | FU_A;
    out[1] = edges | kind(unit[0]);
    out[2..2 + to - from].copy_from_slice(&unit[from..to]);
    2 + to - from
}

/// What became of the payloads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AssemblerCounters {
    /// Whole NAL units written to the byte stream.
    pub nal_units: u64,
    /// NAL units of which a fragment was missing.
    pub broken: u64,
    /// Payloads that are not of packetization mode 1, or make no sense.
    pub refused: u64,
    /// NAL units for which there was no room.
    pub overflowed: u64,
}

/// Payloads to the byte stream of one access unit after another. Allocates when it is made.
#[derive(Clone, Debug)]
pub struct Assembler {
    codes: StartCodes,
    out: Vec<u8>,
    limit: usize,
    /// Where the start code of the NAL unit begins whose fragments are coming.
    open: Option<usize>,
    whole: bool,
    counters: AssemblerCounters,
}

impl Assembler {
    /// Access units of at most `limit` bytes, start codes included.
    pub fn new(codes: StartCodes, limit: usize) -> Assembler {
        let out = Vec::with_capacity(limit);
        let counters = AssemblerCounters::default();
        Assembler { codes, out, limit, open: None, whole: true, counters }
    }

    /// Takes the next payload.
    pub fn payload(&mut self, payload: &[u8]) {
        match *payload {
            [] => self.refuse(),
            [head, ..] if kind(head) == STAP_A => {
                self.abandon();
                self.several(&payload[1..]);
            }
            [indicator, header, ref rest @ ..] if kind(indicator) == FU_A => {
                self.fragment(indicator, header, rest);
            }
            [head, ..] if matches!(kind(head), 1..=23) => {
                self.abandon();
                if self.begin(payload[0], payload.len()) {
                    self.out.extend_from_slice(&payload[1..]);
                    self.counters.nal_units += 1;
                }
            }
            _ => {
                self.abandon();
                self.refuse();
            }
        }
    }

    /// Payloads are missing here.
    pub fn gap(&mut self) {
        self.abandon();
        self.whole = false;
    }

    /// The access unit so far, and whether nothing of it is known to be missing.
    pub fn access_unit(&self) -> (&[u8], bool) {
        (&self.out, self.whole && self.open.is_none())
    }

    /// Starts the next access unit; the fragments of an unfinished NAL unit are dropped.
    pub fn clear(&mut self) {
        self.abandon();
        self.out.clear();
        self.whole = true;
    }

    /// What became of the payloads so far.
    pub fn counters(&self) -> AssemblerCounters {
        self.counters
    }

    fn refuse(&mut self) {
        self.counters.refused += 1;
        self.whole = false;
    }

    /// Drops a NAL unit whose last fragment did not come.
    fn abandon(&mut self) {
        if let Some(start) = self.open.take() {
            self.out.truncate(start);
            self.counters.broken += 1;
            self.whole = false;
        }
    }

    /// Writes start code and first byte when there is room for `length` bytes of NAL unit.
    fn begin(&mut self, first: u8, length: usize) -> bool {
        let code = self.codes.before(first, self.out.is_empty());
        if self.out.len() + code.len() + length > self.limit {
            self.counters.overflowed += 1;
            self.whole = false;
            return false;
        }
        self.out.extend_from_slice(code);
        self.out.push(first);
        true
    }

    fn several(&mut self, mut rest: &[u8]) {
        while let Some((length, after)) = rest.split_first_chunk::<2>() {
            let length = usize::from(u16::from_be_bytes(*length));
            let Some((unit, after)) = after.split_at_checked(length).filter(|_| length > 0) else {
                return self.refuse();
            };
            if !matches!(kind(unit[0]), 1..=23) {
                return self.refuse();
            }
            if self.begin(unit[0], length) {
                self.out.extend_from_slice(&unit[1..]);
                self.counters.nal_units += 1;
            }
            rest = after;
        }
        if !rest.is_empty() {
            self.refuse();
        }
    }

    fn fragment(&mut self, indicator: u8, header: u8, rest: &[u8]) {
        let (start, end) = (header & 0x80 != 0, header & 0x40 != 0);
        if rest.is_empty() || start && end || !matches!(kind(header), 1..=23) {
            self.abandon();
            return self.refuse();
        }
        if start {
            self.abandon();
            let at = self.out.len();
            if !self.begin(indicator & 0xe0 | kind(header), 1 + rest.len()) {
                return;
            }
            self.open = Some(at);
        } else if self.open.is_none() {
            // Its start is missing, and was counted as such.
            self.whole = false;
            return;
        } else if self.out.len() + rest.len() > self.limit {
            self.counters.overflowed += 1;
            self.out.truncate(self.open.take().unwrap_or_default());
            self.whole = false;
            return;
        }
        self.out.extend_from_slice(rest);
        if end {
            self.open = None;
            self.counters.nal_units += 1;
        }
    }
}
