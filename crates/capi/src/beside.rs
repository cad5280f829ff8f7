// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What may be done to a talker while another call runs it, so beside its handle's lock: stopping
//! it, which a signal handler may, and reading its counters.
//!
//! Each place of the handles' table has one atomic number here: the handle of the talker that is
//! open there, and a bit that says that it is to stop. A handle that is closed changes nothing of
//! the one that has its place now.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use timewire_datapath::talker::LiveCounters;

use crate::handle::{self, Handle, PLACES};

/// A bit that no handle has.
const STOP: usize = handle::FREE_BIT;

/// The talker of each place: 0, its handle, or its handle with [`STOP`].
static OPEN: [AtomicUsize; PLACES] = [const { AtomicUsize::new(0) }; PLACES];

type View = Option<(usize, Arc<LiveCounters>)>;

/// Written only when a talker is opened or closed.
static COUNTERS: [RwLock<View>; PLACES] = [const { RwLock::new(None) }; PLACES];

fn open(talker: Handle) -> Option<&'static AtomicUsize> {
    OPEN.get(handle::place_of(talker)?)
}

/// Makes a talker known; its handle is not given to anyone yet.
pub(crate) fn opened(talker: Handle, live: Arc<LiveCounters>) {
    let place = handle::place_of(talker).expect("invariant: the table gave this handle");
    let mut view = COUNTERS[place].write().unwrap_or_else(PoisonError::into_inner);
    *view = Some((talker.addr(), live));
    OPEN[place].store(talker.addr(), Ordering::SeqCst);
}

/// Forgets a talker that is closed; not another one that has its place by now.
pub(crate) fn closed(talker: Handle) {
    let (Some(open), Some(place)) = (open(talker), handle::place_of(talker)) else { return };
    let mut view = COUNTERS[place].write().unwrap_or_else(PoisonError::into_inner);
    if view.as_ref().is_some_and(|(of, _)| *of == talker.addr()) {
        *view = None;
    }
    for known in [talker.addr(), talker.addr() | STOP] {
        let _ = open.compare_exchange(known, 0, Ordering::SeqCst, Ordering::SeqCst);
    }
}

/// Tells a talker to stop; whether the handle is one. Nothing but atomics.
pub(crate) fn stop(talker: Handle) -> bool {
    let Some(open) = open(talker) else { return false };
    let (runs, stops) = (talker.addr(), talker.addr() | STOP);
    match open.compare_exchange(runs, stops, Ordering::SeqCst, Ordering::SeqCst) {
        Ok(_) => true,
        Err(other) => other == stops,
    }
}

/// Whether it was told to.
pub(crate) fn is_stopped(talker: Handle) -> bool {
    open(talker).is_some_and(|open| open.load(Ordering::Relaxed) & STOP > 0)
}

/// Whether it was told to; it is not any more.
pub(crate) fn take_stop(talker: Handle) -> bool {
    open(talker).is_some_and(|open| {
        let (runs, stops) = (talker.addr(), talker.addr() | STOP);
        open.compare_exchange(stops, runs, Ordering::SeqCst, Ordering::SeqCst).is_ok()
    })
}

/// The counters of a talker; `None` when the handle is null, closed, or of another kind.
pub(crate) fn counters(talker: Handle) -> Option<Arc<LiveCounters>> {
    // While it is opened or closed there are none.
    let view = COUNTERS[handle::place_of(talker)?].try_read().ok()?;
    let (of, live) = view.as_ref()?;
    (*of == talker.addr()).then(|| Arc::clone(live))
}

#[cfg(test)]
mod tests {
    use std::ptr::without_provenance_mut;

    use super::*;

    #[test]
    fn t0_a_closed_handle_does_not_stop_the_one_that_has_its_place() {
        // The last place, with two handles that the table does not give within a test.
        let name =
            |uses: usize| without_provenance_mut((((usize::MAX >> 13) - uses) << 12) | PLACES);
        let (old, new): (Handle, Handle) = (name(1), name(2));
        let live = || Arc::new(LiveCounters::default());
        opened(old, live());
        assert!(!is_stopped(old) && stop(old) && stop(old) && is_stopped(old));
        assert!(!stop(new));
        closed(old);
        assert!(!stop(old) && counters(old).is_none());
        opened(new, live());
        // Late, as by a thread that was kept from closing it earlier.
        closed(old);
        assert!(!stop(old) && !is_stopped(new) && !take_stop(new));
        assert!(stop(new) && take_stop(new) && !take_stop(new));
        assert!(counters(new).is_some_and(|live| live.of(1).is_none()));
        closed(new);
        assert!(counters(new).is_none());
    }
}
