// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Packets of IEEE 1722, with a line `---` between; what was read is written and reads as itself,
//! and listeners take the packets as those of a stream.
#![no_main]

use libfuzzer_sys::fuzz_target;
use timewire_avtp::media::h264::StartCodes;
use timewire_avtp::pdu::{Aaf, AafFormat, Crf, CrfClock, Cvf, Pdu, StreamId};
use timewire_avtp::stream::{
    AafListener, AafListenerConfig, ControlListener, CrfListener, CvfListener, CvfListenerConfig,
    Late,
};
use timewire_base::{Instant, Tai};

/// Listeners of the first stream that is heard of each kind.
#[derive(Default)]
struct Listeners {
    audio: Option<AafListener>,
    video: Option<CvfListener>,
    clock: Option<CrfListener>,
    control: Option<ControlListener>,
}

impl Listeners {
    fn audio(&mut self, now: Instant<Tai>, packet: &[u8], stream: StreamId, format: AafFormat) {
        if self.audio.is_none() {
            let late = Late::Discard;
            let samples_per_packet = 6;
            let config =
                AafListenerConfig { stream, format, samples_per_packet, capacity: 8, late };
            self.audio = AafListener::new(config).ok();
        }
        let Some(listener) = &mut self.audio else { return };
        let _ = listener.receive(now, packet);
        while listener.present(now).is_some() {}
        let _ = (listener.next_time(), listener.counters());
    }

    fn video(&mut self, now: Instant<Tai>, packet: &[u8], stream: StreamId) {
        let listener = self.video.get_or_insert_with(|| {
            let config = CvfListenerConfig {
                stream,
                capacity: 8,
                max_payload: 1_400,
                max_access_unit: 1 << 16,
                start_codes: StartCodes::Shortest,
                late: Late::Discard,
            };
            CvfListener::new(config).expect("a configuration that is one")
        });
        let _ = listener.receive(now, packet);
        while listener.present(now).is_some() {}
        let _ = (listener.next_time(), listener.counters());
    }

    fn clock(&mut self, now: Instant<Tai>, packet: &[u8], stream: StreamId, clock: CrfClock) {
        if self.clock.is_none() {
            self.clock = CrfListener::new(stream, clock, 16).ok();
        }
        let Some(listener) = &mut self.clock else { return };
        let _ = listener.receive(now, packet);
        let _ = (listener.rate(), listener.counters());
    }

    fn control(&mut self, now: Instant<Tai>, packet: &[u8], stream: StreamId) {
        let listener = self.control.get_or_insert_with(|| ControlListener::new(stream));
        if let Ok(Some(control)) = listener.receive(now, packet) {
            for message in control.messages {
                if message.is_err() {
                    break;
                }
            }
        }
    }
}

fuzz_target!(|data: &[u8]| {
    let mut listeners = Listeners::default();
    let mut room = vec![0; data.len() + 64];
    for (turn, packet) in (0..).zip(timewire_fuzz::parts(data)) {
        let now = Instant::from_ns(1_000_000_000 + turn * 125_000);
        let packet = timewire_datapath::avtp::payload(packet).unwrap_or(packet);
        let Ok(pdu) = Pdu::parse(packet) else { continue };
        if let Ok(length) = pdu.write(&mut room) {
            let again = Pdu::parse(&room[..length]).expect("what is written is read");
            assert_eq!(again.stream(), pdu.stream());
        }
        match pdu {
            Pdu::Aaf(Aaf { header, format, .. }) => {
                listeners.audio(now, packet, header.stream, format);
            }
            Pdu::Cvf(Cvf { header, .. }) => listeners.video(now, packet, header.stream),
            Pdu::Crf(Crf { stream, clock, .. }) => listeners.clock(now, packet, stream, clock),
            other => listeners.control(now, packet, other.stream()),
        }
    }
});
