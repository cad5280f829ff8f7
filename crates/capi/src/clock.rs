// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The time, and waiting for it.

use std::cell::Cell;
use std::ffi::c_int;

use timewire_base::{Instant, Span, Tai};
use timewire_sys::clock;

use crate::error::{Failed, guard};

thread_local! {
    /// Whether this thread's sleeps end as exactly as the kernel can.
    static EXACT: Cell<bool> = const { Cell::new(false) };
}

/// TAI now.
#[unsafe(no_mangle)]
pub extern "C" fn tw_now() -> i64 {
    clock::now::<Tai>().as_ns()
}

/// Waits until TAI is `until_ns`, the last `spin_ns` of it without sleeping.
#[unsafe(no_mangle)]
pub extern "C" fn tw_sleep_until(until_ns: i64, spin_ns: i64) -> c_int {
    guard(|| {
        if spin_ns < 0 {
            return Err(Failed::usage(format_args!("the spin of {spin_ns} ns is negative")));
        }
        if !EXACT.replace(true) {
            // Where it is refused, spinning makes up for it.
            let _ = clock::set_timer_slack(Span::from_ns(1));
        }
        let until = Instant::<Tai>::from_ns(until_ns);
        // In virtual time a sleep ends exactly, and spinning only makes time pass.
        let spin = if clock::is_virtual() { 0 } else { spin_ns };
        clock::sleep_until(Instant::<Tai>::from_ns(until_ns.saturating_sub(spin)));
        while clock::now::<Tai>() < until {
            std::hint::spin_loop();
        }
        Ok(0)
    })
}
