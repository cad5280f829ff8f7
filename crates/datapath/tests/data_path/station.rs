// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A station in a network namespace of its own: the link `phy0` with the segment's side `seg0`, the
//! virtual pair `tw0` and `tw0-mac`, and whole frames in and out at both ends.
//!
//! ```text
//! test <-> tw0 | tw0-mac [ MAC ] phy0 | seg0 <-> test
//! ```
//!
//! The namespace is that of the calling thread and is gone with it and its MAC.

use std::os::fd::AsFd;
use std::process::{Command, Stdio};
use std::sync::Arc;

use timewire_base::{
    BitsPerSecond, CyclicWindows, IfName, Instant, Port, Priority, Span, Tai, Window,
};
use timewire_datapath::SocketChoice;
use timewire_datapath::mac::{ClockRule, Mac, MacSpec, MacStatus, PortList};
use timewire_sys::namespace::{self, Namespace};
use timewire_sys::packet::{PacketOptions, PacketSocket};
use timewire_sys::{Frame, FrameMemory, clock, event, interface_index};
use timewire_tsn::{Config, Mode, QueueCounters, QueueIndex};

pub const SOCKETS: [SocketChoice; 3] =
    [SocketChoice::AfXdpNative, SocketChoice::AfXdpGeneric, SocketChoice::AfPacket];

/// The station's address, another station's, and everyone's.
pub const OWN: [u8; 6] = [2, 0, 0, 0, 0, 1];
pub const OTHER: [u8; 6] = [2, 0, 0, 0, 0, 2];
pub const ALL: [u8; 6] = [0xff; 6];

/// How long a test waits for what must come.
const TIMEOUT: Span = Span::from_secs(20);

/// Runs a test once for each socket type, each time on a station of its own.
pub fn on_each_socket(test: impl Fn(&mut Station, SocketChoice) + Sync) {
    for socket in SOCKETS {
        on_a_station(|station| {
            eprintln!("{socket}");
            test(station, socket);
        });
    }
}

/// Runs a test on a station; skips it, and says so, where none can be made.
pub fn on_a_station(test: impl FnOnce(&mut Station) + Send) {
    if namespace::effective_user() != 0 {
        eprintln!("SKIP: needs root");
        return;
    }
    let run = || match Station::new() {
        Ok(mut station) => test(&mut station),
        Err(why) => eprintln!("SKIP: {why}"),
    };
    // A thread of its own: the namespace stays with it.
    std::thread::scope(|scope| {
        if let Err(panic) = scope.spawn(run).join() {
            std::panic::resume_unwind(panic);
        }
    });
}

pub struct Station {
    /// Where the local stack sends and receives.
    pub stack: Socket,
    /// Where the segment does.
    pub wire: Socket,
}

impl Station {
    fn new() -> Result<Station, String> {
        namespace::unshare(&[Namespace::Network])
            .map_err(|error| format!("no network namespace: {error}"))?;
        for scope in ["all", "default"] {
            let _ = std::fs::write(format!("/proc/sys/net/ipv6/conf/{scope}/disable_ipv6"), "1");
        }
        run("ip", "link add phy0 address 02:00:00:00:00:01 type veth peer name seg0");
        run("ip", "link add tw0 address 02:00:00:00:00:01 type veth peer name tw0-mac");
        for name in ["phy0", "seg0", "tw0", "tw0-mac"] {
            let off = "tx off sg off gso off tso off gro off rxvlan off txvlan off \
                       tx-vlan-stag-hw-insert off";
            run("ethtool", &format!("-K {name} {off}"));
            run("ip", &format!("link set {name} up"));
        }
        // As `MacSpec` wants it.
        for name in ["phy0", "tw0-mac"] {
            for (file, value) in [("rp_filter", "1"), ("arp_ignore", "8")] {
                std::fs::write(format!("/proc/sys/net/ipv4/conf/{name}/{file}"), value).unwrap();
            }
        }
        Ok(Station { stack: Socket::open("tw0"), wire: Socket::open("seg0") })
    }
}

/// Runs a tool in the station's namespace.
pub fn run(program: &str, arguments: &str) {
    let mut command = Command::new(program);
    let output = command.args(arguments.split(' ')).stdin(Stdio::null()).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {arguments}: {said}");
}

/// What a MAC of this station is started with: no windows, a fast link.
pub fn spec(socket: SocketChoice) -> MacSpec {
    MacSpec {
        link: name("phy0"),
        stack: name("tw0"),
        far: name("tw0-mac"),
        address: OWN,
        config: Config {
            rate: BitsPerSecond::new(1_000_000_000).unwrap(),
            margin: Span::from_us(20),
            ahead: Span::ZERO,
            mode: Mode::Tdm,
            best_effort_share: Span::ZERO,
            queue_capacity: 4_096,
        },
        windows: None,
        spin: Span::from_us(100),
        socket,
        send: PortList::default(),
        recv: PortList::default(),
        defer_cpu: 0,
        clock: ClockRule::OneHost,
        keep_open: false,
    }
}

pub fn name(text: &str) -> IfName {
    IfName::new(text).unwrap()
}

/// A list as `tdm send N port priority ...` gives it.
pub fn ports(list: &[(u64, u64)]) -> PortList {
    let pair = |&(port, priority)| (Port::new(port).unwrap(), Priority::new(priority).unwrap());
    PortList { queues: list.len(), ports: list.iter().map(pair).collect() }
}

/// One window at the start of a cycle that starts at `base`.
pub fn windows(base: Instant<Tai>, cycle: Span, length: Span) -> CyclicWindows {
    CyclicWindows::new(base, cycle, vec![Window { offset: Span::ZERO, length }]).unwrap()
}

pub fn now() -> Instant<Tai> {
    clock::now()
}

/// Starts a MAC, waiting for an earlier one on the same link to be really gone: a child of another
/// test holds copies of its descriptors between its fork and its exec.
pub fn start(spec: MacSpec) -> Mac {
    let deadline = now() + TIMEOUT;
    loop {
        match Mac::start(spec.clone()) {
            Ok(mac) => return mac,
            Err(error) => assert!(now() < deadline, "{error}"),
        }
    }
}

/// Asks the MAC until what it says is as it should be.
pub fn wait_for(mac: &mut Mac, what: &str, holds: impl Fn(&MacStatus) -> bool) -> MacStatus {
    let deadline = now() + TIMEOUT;
    loop {
        let status = mac.status().unwrap();
        if holds(&status) {
            return status;
        }
        let (total, lost) = (status.counters.total(), status.observed.ingress_dropped);
        assert!(now() < deadline, "waited in vain until {what}: {total:?}, {lost} lost before");
    }
}

/// The counters of all queues together, checked: nothing is lost without a number.
pub fn total(status: &MacStatus) -> QueueCounters {
    let total = status.counters.total();
    let dropped = total.dropped_full + total.dropped_oversize;
    assert_eq!(total.arrived, total.released + dropped + total.depth, "{total:?}");
    total
}

/// The counters of the queue of a priority in the send list in force.
pub fn queue(status: &MacStatus, priority: u64) -> QueueCounters {
    let set = status.send.rules().unwrap().queue_set();
    let index = set.index_of(Priority::new(priority).unwrap()).unwrap_or(QueueIndex::DEFAULT);
    *status.counters.queue(index)
}

/// One end: whole frames in and out of an interface.
pub struct Socket {
    socket: PacketSocket,
    memory: Arc<FrameMemory>,
    free: Vec<u32>,
    got: Vec<Frame>,
}

const BUFFERS: u32 = 64;

impl Socket {
    pub fn open(interface: &str) -> Socket {
        let options = PacketOptions { receive: true, timestamps: false, buffer_bytes: 64 << 20 };
        let index = interface_index(&name(interface)).unwrap();
        Socket {
            socket: PacketSocket::open(index, options).unwrap(),
            memory: FrameMemory::new(BUFFERS).unwrap(),
            // The last one is for sending.
            free: (0..BUFFERS - 1).collect(),
            got: Vec::with_capacity(BUFFERS as usize),
        }
    }

    /// Sends a frame; whether the interface took it.
    pub fn try_send(&mut self, bytes: &[u8]) -> bool {
        let frame = self.memory.write(BUFFERS - 1, bytes);
        self.socket.send(&self.memory, frame).is_ok()
    }

    /// Sends a frame as soon as the interface takes it.
    pub fn send(&mut self, bytes: &[u8]) {
        let deadline = now() + TIMEOUT;
        while !self.try_send(bytes) {
            assert!(now() < deadline, "the interface takes no frame");
            std::thread::yield_now();
        }
    }

    /// The frames that wait now.
    pub fn receive(&mut self) -> Vec<Vec<u8>> {
        let mut frames = Vec::new();
        while self.socket.receive(&self.memory, &mut self.free, &mut self.got).unwrap() > 0 {
            for frame in self.got.drain(..) {
                let mut bytes = vec![0; frame.len() as usize];
                self.memory.copy_prefix(frame, &mut bytes);
                frames.push(bytes);
                self.free.push(self.memory.buffer_of(frame));
            }
        }
        assert_eq!(self.socket.take_drops().unwrap(), 0, "the test lost frames itself");
        frames
    }

    /// Waits until so many frames came; neither fewer nor, by then, more.
    pub fn expect(&mut self, count: usize) -> Vec<Vec<u8>> {
        let deadline = now() + TIMEOUT;
        let mut frames = self.receive();
        while frames.len() < count {
            assert!(now() < deadline, "{} of {count} frames came", frames.len());
            event::wait_readable(&[self.socket.as_fd()], Some(Span::from_ms(5))).unwrap();
            frames.extend(self.receive());
        }
        assert_eq!(frames.len(), count, "more frames than were sent");
        frames
    }
}

/// A frame of an experimental type and any length, filled with bytes that follow from its number.
pub fn raw(to: [u8; 6], length: usize, number: u64) -> Vec<u8> {
    let mut frame = to.to_vec();
    frame.extend(OTHER);
    frame.extend([0x88, 0xb5]);
    let mut random = Random(number + 1);
    frame.resize_with(length, || random.below(256).to_le_bytes()[0]);
    frame
}

/// An IPv4 UDP frame without checksums whose content starts with a number.
pub fn udp(to: [u8; 6], source: u16, destination: u16, length: usize, number: u64) -> Vec<u8> {
    let mut frame = to.to_vec();
    frame.extend(OTHER);
    frame.extend([0x08, 0x00, 0x45, 0]);
    frame.extend(u16::try_from(length - 14).unwrap().to_be_bytes());
    frame.extend([0, 0, 0x40, 0, 64, 17, 0, 0, 10, 77, 0, 2, 10, 77, 0, 1]);
    frame.extend(source.to_be_bytes());
    frame.extend(destination.to_be_bytes());
    frame.extend(u16::try_from(length - 34).unwrap().to_be_bytes());
    frame.extend([0, 0]);
    frame.extend(number.to_be_bytes());
    assert!(frame.len() <= length);
    frame.resize(length, 0);
    frame
}

/// The number of a frame made by [`udp`], and the port it goes to.
pub fn number_of(frame: &[u8]) -> (u16, u64) {
    let port = u16::from_be_bytes([frame[36], frame[37]]);
    (port, u64::from_be_bytes(frame[42..50].try_into().unwrap()))
}

/// The same frame with VLAN tags of these types.
pub fn tagged(frame: &[u8], types: &[u16]) -> Vec<u8> {
    let mut bytes = frame[..12].to_vec();
    for tag in types {
        bytes.extend(tag.to_be_bytes());
        bytes.extend([0x60, 0x05]);
    }
    bytes.extend(&frame[12..]);
    bytes
}

/// Xorshift: the same numbers every time.
pub struct Random(pub u64);

impl Random {
    pub fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 32) % bound
    }
}
