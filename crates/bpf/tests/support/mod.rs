// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Two network namespaces with a pair of interfaces between them, and a socket in each.
//!
//! Not here: what is sent.

use std::fs::File;
use std::net::{Ipv4Addr, SocketAddrV4, UdpSocket};
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::process::Command;
use std::time::Duration;

use timewire_sys::namespace::{self, Namespace, enter_network};

/// The pair; the thread that made it is in the first namespace.
pub struct Pair {
    /// The namespaces.
    pub namespaces: [File; 2],
    /// A socket in each, connected to the other.
    pub sockets: [UdpSocket; 2],
}

pub const ADDRESSES: [Ipv4Addr; 2] = [Ipv4Addr::new(10, 77, 6, 1), Ipv4Addr::new(10, 77, 6, 2)];

pub fn here() -> File {
    File::open("/proc/thread-self/ns/net").unwrap()
}

pub fn ip(line: &str) {
    let status = Command::new("ip").args(line.split_whitespace()).status().unwrap();
    assert!(status.success(), "ip {line}");
}

impl Pair {
    /// Makes it in the calling thread, which stays in the first namespace.
    ///
    /// **Errors**: namespaces may not be made here.
    pub fn make(port: u16) -> Result<Pair, String> {
        let unshare = || namespace::unshare(&[Namespace::Network]).map_err(|e| e.to_string());
        unshare()?;
        let second = here();
        // Nothing but what a test sends: no neighbours to be found, no IPv6.
        let bring_up = |n: usize| {
            let (name, other, peer) = (format!("tw{}", n + 1), ADDRESSES[1 - n], 2 - n);
            ip(&format!("link set {name} addrgenmode none"));
            ip(&format!("address add {}/24 dev {name}", ADDRESSES[n]));
            ip(&format!("link set {name} up"));
            ip(&format!("neighbour add {other} lladdr 02:00:00:00:00:0{peer} dev {name}"));
        };
        unshare()?;
        let first = here();
        let thread = namespace_holder(&second);
        ip(&format!(
            "link add tw1 address 02:00:00:00:00:01 type veth peer tw2 address 02:00:00:00:00:02 \
             netns {}",
            thread.id
        ));
        bring_up(0);
        enter_network(second.as_fd()).unwrap();
        bring_up(1);
        let bind = |n: usize| {
            let socket = UdpSocket::bind(SocketAddrV4::new(ADDRESSES[n], port)).unwrap();
            socket.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
            socket.connect(SocketAddrV4::new(ADDRESSES[1 - n], port)).unwrap();
            socket
        };
        let there = bind(1);
        enter_network(first.as_fd()).unwrap();
        let sockets = [bind(0), there];
        drop(thread);
        Ok(Pair { namespaces: [first, second], sockets })
    }

    /// The numbers of the namespaces.
    pub fn numbers(&self) -> Vec<u64> {
        self.namespaces.iter().map(|file| file.metadata().unwrap().ino()).collect()
    }
}

/// A thread in a namespace, so that it can be named by it.
struct Holder {
    id: u32,
    end: Option<std::sync::mpsc::Sender<()>>,
    thread: Option<std::thread::JoinHandle<()>>,
}

fn namespace_holder(namespace: &File) -> Holder {
    let namespace = namespace.try_clone().unwrap();
    let (tell, told) = std::sync::mpsc::channel();
    let (end, wait) = std::sync::mpsc::channel::<()>();
    let thread = std::thread::spawn(move || {
        enter_network(namespace.as_fd()).unwrap();
        tell.send(timewire_sys::scheduler::thread_id()).unwrap();
        let _ = wait.recv();
    });
    Holder { id: told.recv().unwrap(), end: Some(end), thread: Some(thread) }
}

impl Drop for Holder {
    fn drop(&mut self) {
        drop(self.end.take());
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }
}
