// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Messages between controller and agent, a line each, and what an agent does about them.
#![no_main]

use libfuzzer_sys::fuzz_target;
use timewire_base::Instant;
use timewire_agent::protocol::Now;
use timewire_agent::protocol::agent::{Agent, Event};
use timewire_agent::protocol::message::{FromAgent, ToAgent};

fuzz_target!(|data: &[u8]| {
    let (mut agent, _) = Agent::resume(&[]);
    for (turn, line) in (1..).zip(data.split(|byte| *byte == b'\n')) {
        if let Ok(message) = FromAgent::decode(line) {
            assert_eq!(FromAgent::decode(&message.encode()).ok(), Some(message));
        }
        let Ok(message) = ToAgent::decode(line) else { continue };
        assert_eq!(ToAgent::decode(&message.encode()).ok().as_ref(), Some(&message));
        let ns = turn * 50_000_000;
        let now = Now { mono: Instant::from_ns(ns), tai: Instant::from_ns(ns) };
        agent.on(now, Event::Heard(message));
        agent.on(now, Event::Tick);
        let _ = agent.wake_at();
    }
});
