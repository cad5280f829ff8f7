// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A place to try things in: a thread in a network namespace and a mount namespace of its own,
//! with a pair of interfaces. Neither has a name, so that both are gone with the thread, however
//! it ends.

use std::path::Path;
use std::thread;

use timewire_base::IfName;
use timewire_sys::namespace::{self, Namespace};
use timewire_sys::{interface_index, machine};

use crate::HostError;
use crate::tool::{self, Tool};

/// A pair of interfaces with four queues each, up, in a namespace where nothing else is.
#[derive(Clone, Debug)]
pub struct Scratch {
    /// Its first interface.
    pub near: IfName,
    /// Index of the first interface.
    pub near_index: u32,
    /// The other one.
    pub far: IfName,
    /// Index of the other one.
    pub far_index: u32,
    /// Whether `/sys` shows this namespace.
    pub has_sys: bool,
}

/// Does something in such a place. Everything in it is gone afterwards.
///
/// **Errors**: needs `CAP_SYS_ADMIN` and `CAP_NET_ADMIN`, in a user namespace at least; the tool
/// `ip` is missing.
pub fn within<T: Send>(work: impl FnOnce(&Scratch) -> T + Send) -> Result<T, HostError> {
    let run = || make().map(|scratch| work(&scratch));
    thread::scope(|scope| match scope.spawn(run).join() {
        Ok(result) => result,
        Err(panic) => std::panic::resume_unwind(panic),
    })
}

fn make() -> Result<Scratch, HostError> {
    namespace::unshare(&[Namespace::Network])
        .map_err(|e| HostError::kernel("make a network namespace", e))?;
    let sys = namespace::unshare(&[Namespace::Mount])
        .and_then(|()| namespace::make_mounts_private())
        .and_then(|()| machine::mount("sysfs", Path::new("/sys"), "", true));
    let (near, far) = (name(NAMES[0]), name(NAMES[1]));
    let queues = format!("numtxqueues {QUEUES} numrxqueues {QUEUES}");
    let lines = [
        "link set lo up".to_owned(),
        format!("link add {near} {queues} type veth peer name {far} {queues}"),
        format!("link set {near} addrgenmode none up"),
        format!("link set {far} addrgenmode none up"),
    ];
    tool::batch(Tool::Ip, None, &lines)?;
    let index = |name: &IfName| {
        interface_index(name).map_err(|e| HostError::kernel(format!("find {name}"), e))
    };
    Ok(Scratch {
        near_index: index(&near)?,
        far_index: index(&far)?,
        near,
        far,
        has_sys: sys.is_ok(),
    })
}

fn name(text: &str) -> IfName {
    IfName::new(text).expect("invariant: a short plain name")
}

/// The interfaces, in their namespace.
pub(crate) const NAMES: [&str; 2] = ["twd0", "twd1"];
/// Queues of each interface, both ways.
pub const QUEUES: u32 = 4;
