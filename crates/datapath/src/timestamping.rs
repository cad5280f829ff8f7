// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Having a NIC timestamp for as long as a verb runs, and what is said about it.

use timewire_base::IfName;
use timewire_host::HostError;
use timewire_host::timestamping::{Timestamped, Timestamping};

/// Whose timestamps a measurement uses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NicTimestamping {
    /// The NIC's, if it timestamps already; it is not told to.
    #[default]
    AsItIs,
    /// The NIC's: it is told to timestamp, and restored after.
    Told,
    /// The system's alone.
    Unused,
}

/// Has the NIC of an interface timestamp what is wanted, if anything; what to know of it goes to
/// the notes.
///
/// **Errors**: it cannot.
pub fn begin(
    interface: Option<&IfName>,
    wanted: Timestamped,
    notes: &mut Vec<String>,
) -> Result<Option<Timestamping>, HostError> {
    if wanted == Timestamped::default() {
        return Ok(None);
    }
    let Some(interface) = interface else {
        notes.push("no interface is named, so no NIC is told to timestamp: --interface".to_owned());
        return Ok(None);
    };
    let timestamping = Timestamping::begin(interface, wanted)?;
    notes.extend(timestamping.told());
    if wanted.received && timestamping.is_ptp_only() {
        notes.push(format!(
            "of received frames the NIC of {interface} timestamps PTP's event messages only, such \
             as those of `talk --ptp`"
        ));
    }
    Ok(Some(timestamping))
}

/// Has it timestamp what it timestamped before; says so.
///
/// **Errors**: it could not be restored.
pub fn end(timestamping: Option<Timestamping>) -> Result<Option<String>, HostError> {
    timestamping.map_or(Ok(None), Timestamping::end)
}
