// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Receive stamps of the emulated network cards (igb). The model stamps one kind of PTP message at
//! a time, and after a stamp no other until one register (`RXSATRH`) is read. The Linux driver
//! reads another (`RXSTMPH`). So without help each card stamps one message in some five seconds,
//! when the driver gives up on the stamp that it has read long ago.
//!
//! **Source**: qemu v10.0.2 hw/net/igb_core.c; linux v6.12 drivers/net/ethernet/intel/igb/igb_ptp.c
//!
//! Not here: transmit stamps, which need no help.

use std::convert::Infallible;
use std::fs;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::thread;
use std::time::Duration;

use timewire_sys::registers::Registers;

use crate::LabError;

/// The kind of PTP message whose arrival a card stamps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stamped {
    /// What a time receiver needs.
    Sync,
    /// What a time transmitter needs.
    DelayRequest,
}

impl FromStr for Stamped {
    type Err = String;

    fn from_str(text: &str) -> Result<Stamped, String> {
        match text {
            "sync" => Ok(Stamped::Sync),
            "delay-req" => Ok(Stamped::DelayRequest),
            _ => Err(format!("`{text}` is neither `sync` nor `delay-req`")),
        }
    }
}

impl Stamped {
    /// The message type in its place in `TSYNCRXCFG`.
    fn configuration(self) -> u32 {
        match self {
            Stamped::Sync => 0,
            Stamped::DelayRequest => 1 << 8,
        }
    }
}

/// Keeps the stamps of the machine's cards coming, for as long as the process lives; the first kind
/// is for the first card. Namespaces do not matter to it.
///
/// **Errors**: this is no emulated machine with so many cards, or it does not run as root.
pub fn keep_stamping(kinds: &[Stamped]) -> Result<Infallible, LabError> {
    let resources = resources()?;
    if kinds.len() > resources.len() {
        let why = format!("there are {} emulated cards, not {}", resources.len(), kinds.len());
        return Err(LabError::Spec { why });
    }
    let open = |path: &PathBuf| Registers::open(path).map_err(LabError::file("open", path));
    let cards = resources.iter().map(open).collect::<Result<Vec<_>, _>>()?;
    let mut held = vec![false; kinds.len()];
    loop {
        for ((card, kind), held) in cards.iter().zip(kinds).zip(&mut held) {
            look(card, *kind, held);
        }
        thread::sleep(LOOK_EVERY);
    }
}

/// A stamp that was there at the last look too has been read by the driver: make room.
fn look(card: &Registers, kind: Stamped, held: &mut bool) {
    let configuration = card.read(TSYNCRXCFG);
    let wanted = configuration & !MESSAGE_TYPE | kind.configuration();
    if configuration != wanted {
        card.write(TSYNCRXCFG, wanted);
    }
    let full = card.read(TSYNCRXCTL) & VALID != 0;
    if full && *held {
        card.read(RXSATRH);
    }
    *held = full && !*held;
}

/// The registers of every card that the driver igb has, in the order of their places.
fn resources() -> Result<Vec<PathBuf>, LabError> {
    let directory = Path::new("/sys/bus/pci/drivers/igb");
    let entries = fs::read_dir(directory).map_err(LabError::file("read", directory))?;
    let paths = entries.flatten().map(|entry| entry.path().join("resource0"));
    let mut found: Vec<_> = paths.filter(|path| path.exists()).collect();
    found.sort();
    Ok(found)
}

const LOOK_EVERY: Duration = Duration::from_millis(1);
const TSYNCRXCTL: usize = 0xb620;
const RXSATRH: usize = 0xb630;
const TSYNCRXCFG: usize = 0x5f50;
const VALID: u32 = 1;
const MESSAGE_TYPE: u32 = 0xff00;

#[cfg(test)]
mod tests {
    use super::*;

    /// Registers that do nothing by themselves.
    fn registers(name: &str) -> (Registers, PathBuf) {
        let path = std::env::temp_dir().join(format!("timewire-{name}-{}", std::process::id()));
        fs::write(&path, vec![0; 0x1_0000]).unwrap();
        (Registers::open(&path).unwrap(), path)
    }

    #[test]
    fn t0_kinds_are_read_from_their_names() {
        assert_eq!("sync".parse(), Ok(Stamped::Sync));
        assert_eq!("delay-req".parse(), Ok(Stamped::DelayRequest));
        assert!("Sync".parse::<Stamped>().is_err());
    }

    #[test]
    fn t0_a_stamp_is_left_to_the_driver_for_one_look() {
        let (card, path) = registers("card");
        card.write(TSYNCRXCFG, 0xff12);
        let mut held = false;
        look(&card, Stamped::DelayRequest, &mut held);
        assert_eq!((card.read(TSYNCRXCFG), held), (0x0112, false));
        card.write(TSYNCRXCTL, 0x1a | VALID);
        look(&card, Stamped::DelayRequest, &mut held);
        assert!(held, "the driver has had no time yet");
        look(&card, Stamped::DelayRequest, &mut held);
        assert!(!held, "and now it has");
        fs::remove_file(path).unwrap();
    }
}
