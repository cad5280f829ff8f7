// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Captures of real traffic as what streams send: the frames that are asked for, with their times
//! after the first frame of the file and their lengths.

use std::fs::File;
use std::io::BufReader;
use std::path::Path;

use timewire_base::wire::Frame;
use timewire_base::{FrameLen, Span};
use timewire_capture::pcap::PcapReader;
use timewire_model::scenario::network::NetReplay;
use timewire_sim::net::Replay;

use crate::RunnerError;
use crate::error::{Context as _, invalid};

/// The longest frame that a link takes: a jumbo frame with a tag. **Units**: bytes.
const LONGEST: u32 = 9_018;

/// Reads the frames of a stream; what of the capture is not read goes to `unread`.
///
/// **Errors**: the file cannot be read or has none of them; a frame that no link takes; more than a
/// simulation keeps.
pub fn read(
    beside: &Path,
    wanted: &NetReplay,
    unread: &mut Vec<String>,
) -> Result<Replay, RunnerError> {
    let path = beside.join(wanted.file.as_str());
    let shown = path.display();
    let file = File::open(&path).with_context(|| format!("cannot read the capture {shown}"))?;
    let failed = || format!("cannot replay {shown}");
    let mut reader = PcapReader::new(BufReader::new(file)).with_context(failed)?;
    let mut earliest: Option<i64> = None;
    let mut taken: Vec<(i64, u16)> = Vec::new();
    let mut number = 0_u64;
    while let Some(frame) = reader.next().with_context(failed)? {
        number += 1;
        earliest = Some(earliest.map_or(frame.at_ns, |first| first.min(frame.at_ns)));
        if !is_wanted(frame.bytes, wanted) {
            continue;
        }
        if frame.original_len > LONGEST {
            return Err(RunnerError::Invalid(format!(
                "cannot replay {shown}: its packet {number} has {} bytes, and no link takes more \
                 than {LONGEST}; capture without offloads (`ethtool -K IF tso off gro off`)",
                frame.original_len
            )));
        }
        if taken.len() >= Replay::MAX_FRAMES {
            return Err(RunnerError::Invalid(format!(
                "cannot replay {shown}: more than {} of its packets are asked for; take fewer of \
                 them with `vlan`, `pcp`, `source` or `destination`, or a part of the capture",
                Replay::MAX_FRAMES
            )));
        }
        taken.push((frame.at_ns, u16::try_from(frame.original_len).unwrap_or(u16::MAX)));
    }
    for (what, count) in reader.unread() {
        unread.push(format!("{shown}: not read: {count} {what}"));
    }
    if taken.is_empty() {
        return Err(RunnerError::Invalid(format!(
            "cannot replay {shown}: none of its {number} packets is one that is asked for"
        )));
    }
    // Interfaces of one capture may be somewhat out of order.
    taken.sort_by_key(|(at_ns, _)| *at_ns);
    let first = earliest.unwrap_or(0);
    let mut replay = Replay::default();
    for (at_ns, length) in taken {
        let at = Span::from_ns(at_ns.saturating_sub(first));
        let length = FrameLen::new(u32::from(length)).map_err(invalid)?;
        replay.push(at, length).map_err(invalid)?;
    }
    Ok(replay)
}

/// Whether a frame is asked for. What was not captured of it is not asked for.
fn is_wanted(frame: &[u8], wanted: &NetReplay) -> bool {
    let headers = Frame::parse(frame);
    let vid = headers.and_then(|it| it.vid()).map(u64::from);
    let pcp = headers.and_then(|it| it.pcp()).map(u64::from);
    wanted.destination.is_none_or(|it| headers.map(|it| it.destination()) == Some(it))
        && wanted.source.is_none_or(|it| headers.map(|it| it.source()) == Some(it))
        && wanted.vlan.is_none_or(|it| vid == Some(it.get()))
        && wanted.pcp.is_none_or(|it| pcp == Some(it.get()))
}
