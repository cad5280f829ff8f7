// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Once begun, a writer of captures neither allocates nor frees for events, blocks and flushes;
//! a filter neither when it looks at a frame.

use std::io;

use timewire_capture::capture::{CaptureHeader, Writer};
use timewire_capture::event::EVENT_BYTES;
use timewire_capture::filter::{Facts, Filter};

use crate::counting::calls_during;

#[test]
fn t0_events_are_written_without_allocation() {
    let mut writer = Writer::new(io::sink(), &CaptureHeader::default()).unwrap();
    let calls = calls_during(|| {
        for n in 0..20_000_u64 {
            let mut event = [1; EVENT_BYTES];
            // Now and then too far from the base of the block.
            event[..8].copy_from_slice(&(n * 1_000 + ((n / 5_000) << 40)).to_le_bytes());
            writer.event_bytes(&event).unwrap();
            if n % 777 == 0 {
                writer.flush().unwrap();
            }
        }
        writer.flush().unwrap();
    });
    assert_eq!((calls, writer.events()), (0, 20_000));
    assert!(writer.bytes() > 20_000 * 44);
}

#[test]
fn t0_a_compiled_filter_does_not_allocate() {
    let filter = Filter::parse("udp port 7000 or vlan 5").unwrap().compile().unwrap();
    let keys = Facts::of_frame(&[0; 60]).unwrap().keys();
    let mut holds = true;
    assert_eq!(calls_during(|| holds = filter.holds(&keys)), 0);
    assert!(!holds);
}
