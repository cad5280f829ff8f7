// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How far the clocks of stations are apart at most: so exact is each figure that is the difference
//! of two stations' timestamps.

use timewire_agent::protocol::controller::Start;
use timewire_base::Span;
use timewire_model::scenario::hosts_file::HostsClock;

use crate::RunnerError;
use crate::error::invalid;
use crate::rundir::ClockBoundMeta;

/// The bound: as the user states it, 0 for one clock, or by the exchanges that the controller had
/// with the stations before their start.
///
/// **Errors**: the exchanges show that what was stated, or one clock, cannot be.
pub(super) fn clock_bound(
    start: &Start,
    clock: HostsClock,
    stated: Option<Span>,
) -> Result<ClockBoundMeta, RunnerError> {
    // Each clock is ahead of the controller's by something between these two.
    let ranges: Vec<_> = start
        .clocks
        .iter()
        .map(|(name, clock)| {
            let (offset, error) = (clock.offset.as_ns(), clock.error.as_ns());
            (name, offset.saturating_sub(error), offset.saturating_add(error))
        })
        .collect();
    let ahead = ranges.iter().max_by_key(|(_, least, _)| *least);
    let behind = ranges.iter().min_by_key(|(_, _, most)| *most);
    let (Some(ahead), Some(behind)) = (ahead, behind) else {
        return Err(invalid("the clock of no station is known"));
    };
    let at_least = Span::from_ns(ahead.1.saturating_sub(behind.2));
    let (bound_ns, by, claim) = match (stated, clock) {
        (Some(stated), _) => (stated, "as stated", "that is more than --clock-error states"),
        (None, HostsClock::OneHost) => {
            let claim = "the hosts file says that all stations share one clock";
            (Span::ZERO, "the stations share one clock", claim)
        }
        (None, HostsClock::Synchronised | HostsClock::Watched) => {
            let most = ranges.iter().map(|(_, _, most)| *most).max().unwrap_or(0);
            let least = ranges.iter().map(|(_, least, _)| *least).min().unwrap_or(0);
            let bound = Span::from_ns(most.saturating_sub(least));
            (bound, "by exchanges with the controller", "")
        }
    };
    if at_least > bound_ns {
        return Err(invalid(format!(
            "the clocks of {} and {} are at least {at_least} apart; {claim}",
            behind.0, ahead.0
        )));
    }
    Ok(ClockBoundMeta { bound_ns, by: by.to_owned() })
}

#[cfg(test)]
mod tests {
    use timewire_agent::protocol::ClockBound;
    use timewire_base::{Instant, StationName};

    use super::*;

    /// Stations with these offsets from the controller, and errors.
    fn start(clocks: &[(&str, i64, i64)]) -> Start {
        let of = |(name, offset, error): &(&str, i64, i64)| {
            let (offset, error) = (Span::from_ns(*offset), Span::from_ns(*error));
            (StationName::new(name).unwrap(), ClockBound { offset, error })
        };
        let clocks = clocks.iter().map(of).collect();
        Start { at: Instant::from_ns(0), clocks, stations: std::collections::BTreeMap::new() }
    }

    #[test]
    fn t0_the_bound_has_the_errors_of_both_clocks() {
        let start = start(&[("alpha", 100, 10), ("beta", -50, 20), ("gamma", 0, 5)]);
        let of = |clock, stated| clock_bound(&start, clock, stated);
        let exchanged = of(HostsClock::Synchronised, None).unwrap();
        assert_eq!(exchanged.bound_ns, Span::from_ns(180));
        // Surely 120 apart, so neither one clock nor within 100.
        let why = of(HostsClock::OneHost, None).unwrap_err().to_string();
        assert!(why.starts_with("the clocks of beta and alpha are at least 120ns apart"), "{why}");
        let why = of(HostsClock::Watched, Some(Span::from_ns(100))).unwrap_err().to_string();
        assert!(why.contains("more than --clock-error states"), "{why}");
        let stated = of(HostsClock::Watched, Some(Span::from_ns(120))).unwrap();
        assert_eq!((stated.bound_ns, stated.by.as_str()), (Span::from_ns(120), "as stated"));
    }

    #[test]
    fn t0_one_clock_is_believed_while_the_exchanges_allow_it() {
        let near = start(&[("alpha", 100, 60), ("beta", -10, 60)]);
        assert_eq!(clock_bound(&near, HostsClock::OneHost, None).unwrap().bound_ns, Span::ZERO);
        assert!(clock_bound(&start(&[]), HostsClock::OneHost, None).is_err());
    }
}
