// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How a clock went before a daemon steered it.

use std::fmt;
use std::io;

use serde::{Deserialize, Serialize};
use timewire_sys::phc::NicClock;
use timewire_sys::steering::{self, Steered};

use crate::HostError;
use crate::journal::{Inverse, Kind};

/// Lets a clock go as fast as it went before a daemon steered it. What the daemon stepped it by
/// stays: the time before was not better, and time has passed since.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename = "restore_steering")]
pub struct RestoreSteering {
    /// The number of a NIC's clock; `None` is the system's.
    pub nic: Option<u32>,
    /// Parts per million times 65536; `None` when none of our daemons steered it, because whoever
    /// did may have changed it since.
    pub frequency: Option<i64>,
    /// TAI - UTC that the kernel had; only of the system's clock.
    pub tai_offset_s: Option<i32>,
    /// Whether a daemon kept it synchronised; only of the system's clock.
    pub synchronised: Option<bool>,
}

/// Of undo logs.
pub(crate) const KIND: Kind = Kind::of::<RestoreSteering>(&["restore_steering"]);

impl Inverse for RestoreSteering {
    fn undo(&self) -> Result<(), HostError> {
        self.restore().map_err(|e| HostError::kernel(self.to_string(), e))
    }
}

impl RestoreSteering {
    /// A NIC that is gone is as it was.
    fn restore(&self) -> io::Result<()> {
        let set = |clock: Steered<'_>| {
            self.frequency.map_or(Ok(()), |frequency| steering::set_frequency(clock, frequency))
        };
        let Some(number) = self.nic else {
            set(Steered::System)?;
            if let Some(seconds) = self.tai_offset_s
                && steering::steering(Steered::System)?.tai_offset_s != seconds
            {
                steering::set_tai_offset(seconds)?;
            }
            return self.synchronised.map_or(Ok(()), steering::set_synchronised);
        };
        match NicClock::open(number) {
            Ok(clock) => set(Steered::Nic(clock.device())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(error) => Err(error),
        }
    }
}

impl fmt::Display for RestoreSteering {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.nic, self.frequency) {
            (None, None) => f.write_str("give the kernel its TAI - UTC back"),
            (None, Some(_)) => f.write_str("let the system's clock go as before"),
            (Some(number), _) => write!(f, "let the clock /dev/ptp{number} go as before"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn t0_how_fast_a_clock_went_is_restored_only_when_it_was_written_down() {
        let text = r#"{"kind": "restore_steering", "nic": null, "frequency": FREQUENCY,
            "tai_offset_s": 37, "synchronised": null}"#;
        let undo = |frequency| -> RestoreSteering {
            serde_json::from_str(&text.replace("FREQUENCY", frequency)).unwrap()
        };
        assert_eq!(undo("7").to_string(), "let the system's clock go as before");
        let nothing = RestoreSteering { tai_offset_s: None, ..undo("null") };
        assert_eq!(nothing.to_string(), "give the kernel its TAI - UTC back");
        // Nothing was written down, so nothing is asked of the kernel, with any rights.
        nothing.undo().unwrap();
    }
}
