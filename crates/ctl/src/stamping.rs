// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Having a card stamp for as long as a verb runs, and what is said about it.
//!
//! Not here: how it is told and put back (`timewire_host::stamping`).

use timewire_base::IfName;
use timewire_host::HostError;
use timewire_host::stamping::{Stamped, Stamping};

/// Whose stamps a measurement uses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CardStamping {
    /// The card's, if it stamps already; it is not told to.
    #[default]
    AsItIs,
    /// The card's: it is told to stamp, and put back after.
    Told,
    /// The system's alone.
    Unused,
}

/// Has the card of an interface stamp what is wanted, if anything; what to know of it goes to the
/// notes.
///
/// **Errors**: it cannot.
pub(crate) fn begin(
    interface: Option<&IfName>,
    wanted: Stamped,
    notes: &mut Vec<String>,
) -> Result<Option<Stamping>, HostError> {
    if wanted == Stamped::default() {
        return Ok(None);
    }
    let Some(interface) = interface else {
        notes.push("no interface is named, so no card is told to stamp: --interface".to_owned());
        return Ok(None);
    };
    let stamping = Stamping::begin(interface, wanted)?;
    notes.extend(stamping.told());
    if wanted.received && stamping.is_ptp_only() {
        notes.push(format!(
            "of received frames the card of {interface} stamps PTP's event messages only, such as \
             those of `talk --ptp`"
        ));
    }
    Ok(Some(stamping))
}

/// Has it stamp what it stamped before; says so.
///
/// **Errors**: it could not be put back.
pub(crate) fn end(stamping: Option<Stamping>) -> Result<Option<String>, HostError> {
    stamping.map_or(Ok(None), Stamping::end)
}
