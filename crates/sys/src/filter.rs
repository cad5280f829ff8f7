// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Which frames a receiver wants, and the classic BPF program by which the kernel lets only these
//! through to a packet socket.
//!
//! The kernel takes the outer VLAN tag off before a packet socket's filter runs and keeps it beside
//! the frame (linux v6.12 `net/core/dev.c:__netif_receive_skb_core`), so the program looks for it
//! there first (`SKF_AD_VLAN_TAG`), and in the frame only then.
//!
//! Not here: the same choice before there is a socket buffer (`timewire_bpf::listen`).

use std::io;
use std::os::fd::BorrowedFd;

use timewire_base::wire::{Frame, MacAddress};

use crate::socket::set_option;

/// What a frame must have. What is `None` is not looked at; the default fits every frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FrameFilter {
    /// The EtherType, behind at most two VLAN tags.
    pub ethertype: Option<u16>,
    /// The destination address.
    pub destination: Option<MacAddress>,
    /// The source address.
    pub source: Option<MacAddress>,
    /// The VLAN identifier of the outer tag; 0 fits frames with a priority tag, none without a tag.
    pub vid: Option<u16>,
    /// The priority code point of the outer tag.
    pub pcp: Option<u8>,
    /// The UDP port that it goes to, over IPv4 or IPv6. Fragments, packets that are longer than
    /// their frame, and those with more than four extension headers have none.
    pub udp_port: Option<u16>,
}

impl FrameFilter {
    /// Whether it fits every frame.
    pub fn is_empty(&self) -> bool {
        *self == FrameFilter::default()
    }

    /// **Errors**: `InvalidInput` for numbers that no frame can have, with what would be right.
    pub fn check(&self) -> io::Result<()> {
        let wrong = |text: String| Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        match *self {
            FrameFilter { ethertype: Some(it @ ..0x0600), .. } => {
                wrong(format!("0x{it:04x} is a length: an EtherType is 0x0600 to 0xffff"))
            }
            FrameFilter { vid: Some(it @ 4_095..), .. } => {
                wrong(format!("VLAN {it}: the identifier is 0 to 4094"))
            }
            FrameFilter { pcp: Some(it @ 8..), .. } => {
                wrong(format!("PCP {it}: the priority code point is 0 to 7"))
            }
            _ => Ok(()),
        }
    }

    /// Whether it fits a whole frame with its tags in it, without the check sequence.
    pub fn fits(&self, frame: &[u8]) -> bool {
        let Some(headers) = Frame::parse(frame) else { return self.is_empty() };
        fn same<T: PartialEq>(wanted: Option<T>, found: Option<T>) -> bool {
            wanted.is_none() || wanted == found
        }
        let udp_port = || {
            let ports = headers.ports(frame.len()).filter(|ports| ports.is_udp);
            ports.map(|ports| ports.destination)
        };
        same(self.destination, Some(headers.destination()))
            && same(self.source, Some(headers.source()))
            && same(self.vid, headers.vid())
            && same(self.pcp, headers.pcp())
            && same(self.ethertype, headers.ethertype())
            && (self.udp_port.is_none() || self.udp_port == udp_port())
    }

    /// The program for a packet socket; empty when every frame fits.
    pub(crate) fn program(&self) -> Vec<libc::sock_filter> {
        if self.is_empty() {
            return Vec::new();
        }
        let mut to = Assembler::default();
        for (address, at) in [(self.destination, 0), (self.source, 6)] {
            let Some(MacAddress([a, b, c, d, e, f])) = address else { continue };
            to.load(W, at);
            to.require(JEQ, u32::from_be_bytes([a, b, c, d]));
            to.load(H, at + 4);
            to.require(JEQ, u32::from(u16::from_be_bytes([e, f])));
        }
        let behind = self.ethertype.is_some() || self.udp_port.is_some();
        if behind || self.vid.is_some() || self.pcp.is_some() {
            self.find_tag(&mut to);
            if let Some(vid) = self.vid {
                to.put(LD_MEM, TCI);
                to.put(ALU | AND, 0x0fff);
                to.require(JEQ, vid.into());
            }
            if let Some(pcp) = self.pcp {
                to.put(LD_MEM, TCI);
                to.put(ALU | RSH, 13);
                to.require(JEQ, pcp.into());
            }
        }
        if let Some(ethertype) = self.ethertype {
            to.load_x(H, 12);
            to.require(JEQ, ethertype.into());
        }
        if let Some(port) = self.udp_port {
            find_port(&mut to);
            to.require(JEQ, port.into());
        }
        to.put(RET, u32::MAX);
        to.0
    }

    /// Leaves the outer tag in memory and, in X, by how much the tags in the frame move what is
    /// behind them.
    fn find_tag(&self, to: &mut Assembler) {
        to.load(W, TAG_PRESENT);
        let inline = to.jump(JEQ, 0);
        to.load(W, TAG);
        to.put(ST, TCI);
        to.load(H, 12);
        to.tags_to_x(0);
        let join = to.put(JA, 0);
        to.here_if(inline);
        to.load(H, 12);
        let (customer, service) = (to.jump(JEQ, 0x8100), to.jump(JEQ, 0x88a8));
        // The kernel wants a cell to be written on each way to where it is read, also behind a
        // return.
        let untagged = if self.vid.is_some() || self.pcp.is_some() {
            to.put(RET, 0);
            None
        } else {
            to.put(LDX_IMM, 0);
            Some(to.put(JA, 0))
        };
        to.here_if(customer);
        to.here_if(service);
        to.load(H, 14);
        to.put(ST, TCI);
        to.load(H, 16);
        to.tags_to_x(4);
        [Some(join), untagged].into_iter().flatten().for_each(|jump| to.here(jump));
    }

    /// Lets only frames that fit through to a packet socket.
    pub(crate) fn attach(&self, fd: BorrowedFd<'_>) -> io::Result<()> {
        attach(fd, self.program())
    }

    /// The same, of frames that the interface sends.
    pub(crate) fn attach_to_sent(&self, fd: BorrowedFd<'_>) -> io::Result<()> {
        let mut to = Assembler::default();
        to.load(W, PACKET_TYPE);
        to.require(JEQ, PACKET_OUTGOING);
        let rest = self.program();
        match rest.is_empty() {
            true => drop(to.put(RET, u32::MAX)),
            // Jumps are relative.
            false => to.0.extend(rest),
        }
        attach(fd, to.0)
    }
}

fn attach(fd: BorrowedFd<'_>, mut program: Vec<libc::sock_filter>) -> io::Result<()> {
    if program.is_empty() {
        return Ok(());
    }
    let len = u16::try_from(program.len()).expect("invariant: fewer than 200 instructions");
    let program = libc::sock_fprog { len, filter: program.as_mut_ptr() };
    set_option(fd, libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, &program)
}

/// Leaves the UDP port that a frame goes to in A; X is as [`FrameFilter::find_tag`] leaves it.
fn find_port(to: &mut Assembler) {
    to.put(STX, AT);
    to.load_x(H, 12);
    let ipv4 = to.jump(JEQ, 0x0800);
    to.require(JEQ, 0x86dd);
    find_port_ipv6(to);
    let join = to.put(JA, 0);
    to.here_if(ipv4);
    find_port_ipv4(to);
    to.here(join);
}

fn find_port_ipv4(to: &mut Assembler) {
    to.load_x(B, 14);
    to.put(ALU | RSH, 4);
    to.require(JEQ, 4);
    to.load_x(B, 14);
    to.put(ALU | AND, 15);
    to.require(JGE, 5);
    to.put(ALU | LSH, 2);
    to.put(ST, HEADER);
    to.load_x(H, 16);
    to.put(ST, LEFT);
    // Header and UDP header within what the packet says that it has.
    to.put(LDX_MEM, HEADER);
    to.require_x();
    to.put(ALU | SUB | FROM_X, 0);
    to.require(JGE, 8);
    to.require_whole(14);
    to.put(LDX_MEM, AT);
    to.load_x(B, 23);
    to.require(JEQ, 17);
    to.load_x(H, 20);
    to.put(ALU | AND, 0x3fff);
    to.require(JEQ, 0);
    to.put(LD_MEM, AT);
    to.put(LDX_MEM, HEADER);
    to.put(ALU | ADD | FROM_X, 0);
    to.put(TAX, 0);
    to.load_x(H, 16);
}

fn find_port_ipv6(to: &mut Assembler) {
    to.load_x(B, 14);
    to.put(ALU | RSH, 4);
    to.require(JEQ, 6);
    to.load_x(H, 18);
    to.put(ST, LEFT);
    to.load_x(B, 20);
    to.put(ST, NEXT);
    to.require_whole(54);
    to.put(LD_MEM, AT);
    to.put(ALU | ADD, 54);
    to.put(ST, AT);
    let mut done = Vec::new();
    for _ in 0..4 {
        to.put(LD_MEM, NEXT);
        let kinds = [0, 43, 60].map(|kind| to.jump(JEQ, kind));
        done.push(to.put(JA, 0));
        kinds.into_iter().for_each(|kind| to.here_if(kind));
        to.put(LDX_MEM, AT);
        to.load_x(B, 0);
        to.put(ST, NEXT);
        to.load_x(B, 1);
        to.put(ALU | ADD, 1);
        to.put(ALU | LSH, 3);
        to.put(TAX, 0);
        // Within what the packet says that it has.
        to.put(LD_MEM, LEFT);
        to.require_x();
        to.put(ALU | SUB | FROM_X, 0);
        to.put(ST, LEFT);
        to.put(LD_MEM, AT);
        to.put(ALU | ADD | FROM_X, 0);
        to.put(ST, AT);
    }
    done.into_iter().for_each(|jump| to.here(jump));
    to.put(LD_MEM, NEXT);
    to.require(JEQ, 17);
    to.put(LD_MEM, LEFT);
    to.require(JGE, 8);
    to.put(LDX_MEM, AT);
    to.load_x(H, 2);
}

/// Puts instructions one after another; forward jumps are filled in later.
#[derive(Default)]
struct Assembler(Vec<libc::sock_filter>);

impl Assembler {
    fn put(&mut self, code: u16, k: u32) -> usize {
        self.0.push(libc::sock_filter { code, jt: 0, jf: 0, k });
        self.0.len() - 1
    }

    fn load(&mut self, size: u16, at: u32) {
        self.put(LD_ABS | size, at);
    }

    /// Behind X.
    fn load_x(&mut self, size: u16, at: u32) {
        self.put(LD_IND | size, at);
    }

    /// A jump that is taken when the condition holds, to [`Assembler::here_if`].
    fn jump(&mut self, condition: u16, k: u32) -> usize {
        self.put(condition, k)
    }

    fn here_if(&mut self, jump: usize) {
        let distance = self.0.len() - jump - 1;
        self.0[jump].jt = u8::try_from(distance).expect("invariant: short jumps");
    }

    fn here(&mut self, jump: usize) {
        let distance = self.0.len() - jump - 1;
        self.0[jump].k = u32::try_from(distance).expect("invariant: a short program");
    }

    /// The frame does not fit unless the condition holds for A.
    fn require(&mut self, condition: u16, k: u32) {
        let jump = self.jump(condition, k);
        self.put(RET, 0);
        self.here_if(jump);
    }

    /// A is not less than X.
    fn require_x(&mut self) {
        self.require(JGE | FROM_X, 0);
    }

    /// What the packet says that it has behind `header` bytes (behind AT) lies in the frame.
    fn require_whole(&mut self, header: u32) {
        self.put(LD_MEM, AT);
        self.put(ALU | ADD, header);
        self.put(TAX, 0);
        self.put(LD_LEN, 0);
        self.require_x();
        self.put(ALU | SUB | FROM_X, 0);
        self.put(LDX_MEM, LEFT);
        self.require_x();
    }

    /// X becomes `before`, and 4 more if A is the type of a tag.
    fn tags_to_x(&mut self, before: u32) {
        let (customer, service) = (self.jump(JEQ, 0x8100), self.jump(JEQ, 0x88a8));
        self.put(LDX_IMM, before);
        let join = self.put(JA, 0);
        self.here_if(customer);
        self.here_if(service);
        self.put(LDX_IMM, before + 4);
        self.here(join);
    }
}

// From linux v6.12 include/uapi/linux: bpf_common.h, filter.h.
const W: u16 = 0x00;
const H: u16 = 0x08;
const B: u16 = 0x10;
const LD_ABS: u16 = 0x20;
const LD_IND: u16 = 0x40;
const LD_MEM: u16 = 0x60;
const LD_LEN: u16 = 0x80;
const LDX_IMM: u16 = 0x01;
const LDX_MEM: u16 = 0x61;
const ST: u16 = 0x02;
const STX: u16 = 0x03;
const ALU: u16 = 0x04;
const ADD: u16 = 0x00;
const SUB: u16 = 0x10;
const AND: u16 = 0x50;
const LSH: u16 = 0x60;
const RSH: u16 = 0x70;
const FROM_X: u16 = 0x08;
const JA: u16 = 0x05;
const JEQ: u16 = 0x15;
const JGE: u16 = 0x35;
const RET: u16 = 0x06;
const TAX: u16 = 0x07;
/// `SKF_AD_OFF + SKF_AD_PKTTYPE`.
const PACKET_TYPE: u32 = 0xffff_f000 + 4;
/// The type of frames that the interface sends.
const PACKET_OUTGOING: u32 = 4;
/// `SKF_AD_OFF + SKF_AD_VLAN_TAG` and `SKF_AD_VLAN_TAG_PRESENT`.
const TAG: u32 = 0xffff_f000 + 44;
const TAG_PRESENT: u32 = 0xffff_f000 + 48;

// Cells of the program's memory.
const TCI: u32 = 0;
const AT: u32 = 1;
const HEADER: u32 = 2;
/// Bytes that the packet says that it has and that were not walked over.
const LEFT: u32 = 3;
const NEXT: u32 = 4;

#[cfg(test)]
mod tests;
