// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Making the calling thread a real-time thread as far as the host allows, and saying what it did
//! not.

use timewire_base::Span;
use timewire_sys::{clock, scheduler};

/// Most urgent first: the MAC before the programs whose frames it carries.
const MAC_PRIORITY: u8 = 80;

/// Locks memory, asks for SCHED_FIFO, exact timers and awake CPUs.
///
/// Returns what was refused, in words; the thread works without each of them, less exactly.
pub(crate) fn enter() -> (Option<scheduler::WakeAtOnce>, Vec<String>) {
    let mut refused = Vec::new();
    let priority = scheduler::RtPriority::new(MAC_PRIORITY)
        .expect("invariant: the priority lies in the kernel's range");
    if let Err(error) = scheduler::set_attributes(0, &scheduler::Attributes::fifo(priority)) {
        refused.push(format!(
            "SCHED_FIFO {MAC_PRIORITY} ({error}): other programs delay the MAC by milliseconds; \
             it needs CAP_SYS_NICE"
        ));
    }
    if let Err(error) = scheduler::lock_memory() {
        refused.push(format!(
            "locked memory ({error}): a page fault can delay the MAC; it needs CAP_IPC_LOCK"
        ));
    }
    if let Err(error) = clock::set_timer_slack(Span::from_ns(1)) {
        refused.push(format!("exact timers ({error}): sleeps end up to 50us late"));
    }
    match scheduler::WakeAtOnce::request() {
        Ok(awake) => (Some(awake), refused),
        Err(error) => {
            refused.push(format!(
                "CPUs kept awake ({error}): waking from deep idle states takes longer"
            ));
            (None, refused)
        }
    }
}
