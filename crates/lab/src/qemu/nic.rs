// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Receive timestamps of the emulated NICs (igb). The model timestamps one kind of PTP message at
//! a time, and after a timestamp no other until one register (`RXSATRH`) is read. The Linux driver
//! reads another (`RXSTMPH`). So without help each NIC timestamps one message in some five seconds,
//! when the driver gives up on the timestamp that it has read long ago.
//!
//! **Source**: qemu v10.0.2 hw/net/igb_core.c; linux v6.12 drivers/net/ethernet/intel/igb/igb_ptp.c

use std::convert::Infallible;
use std::fs;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::thread;
use std::time::Duration;

use timewire_sys::registers::Registers;

use crate::LabError;

/// The kind of PTP message whose arrival a NIC timestamps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Timestamped {
    /// What a time receiver needs.
    Sync,
    /// What a time transmitter needs.
    DelayRequest,
}

impl FromStr for Timestamped {
    type Err = String;

    fn from_str(text: &str) -> Result<Timestamped, String> {
        match text {
            "sync" => Ok(Timestamped::Sync),
            "delay-req" => Ok(Timestamped::DelayRequest),
            _ => Err(format!("`{text}` is neither `sync` nor `delay-req`")),
        }
    }
}

impl Timestamped {
    /// The message type in its place in `TSYNCRXCFG`.
    fn configuration(self) -> u32 {
        match self {
            Timestamped::Sync => 0,
            Timestamped::DelayRequest => 1 << 8,
        }
    }
}

/// Keeps the timestamps of the machine's NICs coming, for as long as the process lives; the first
/// kind is for the first NIC. Namespaces do not matter to it.
///
/// **Errors**: this is no emulated machine with so many NICs, or it does not run as root.
pub fn keep_timestamping(kinds: &[Timestamped]) -> Result<Infallible, LabError> {
    let resources = resources()?;
    if kinds.len() > resources.len() {
        let why = format!("there are {} emulated NICs, not {}", resources.len(), kinds.len());
        return Err(LabError::Spec { why });
    }
    let open = |path: &PathBuf| Registers::open(path).map_err(LabError::file("open", path));
    let nics = resources.iter().map(open).collect::<Result<Vec<_>, _>>()?;
    let mut held = vec![false; kinds.len()];
    loop {
        for ((nic, kind), held) in nics.iter().zip(kinds).zip(&mut held) {
            look(nic, *kind, held);
        }
        thread::sleep(LOOK_EVERY);
    }
}

/// A timestamp that was there at the last look too has been read by the driver: make room.
fn look(nic: &Registers, kind: Timestamped, held: &mut bool) {
    let configuration = nic.read(TSYNCRXCFG);
    let wanted = configuration & !MESSAGE_TYPE | kind.configuration();
    if configuration != wanted {
        nic.write(TSYNCRXCFG, wanted);
    }
    let full = nic.read(TSYNCRXCTL) & VALID != 0;
    if full && *held {
        nic.read(RXSATRH);
    }
    *held = full && !*held;
}

/// The registers of every NIC that the driver igb has, in the order of their places.
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
        assert_eq!("sync".parse(), Ok(Timestamped::Sync));
        assert_eq!("delay-req".parse(), Ok(Timestamped::DelayRequest));
        assert!("Sync".parse::<Timestamped>().is_err());
    }

    #[test]
    fn t0_a_timestamp_is_left_to_the_driver_for_one_look() {
        let (nic, path) = registers("nic");
        nic.write(TSYNCRXCFG, 0xff12);
        let mut held = false;
        look(&nic, Timestamped::DelayRequest, &mut held);
        assert_eq!((nic.read(TSYNCRXCFG), held), (0x0112, false));
        nic.write(TSYNCRXCTL, 0x1a | VALID);
        look(&nic, Timestamped::DelayRequest, &mut held);
        assert!(held, "the driver has had no time yet");
        look(&nic, Timestamped::DelayRequest, &mut held);
        assert!(!held, "and now it has");
        fs::remove_file(path).unwrap();
    }
}
