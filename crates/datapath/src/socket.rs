// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The two ends of a MAC: where the local stack's frames come in, and where released frames go out.
//! AF_XDP where kernel and privilege allow, AF_PACKET where not; found out by trying, and told.
//!
//! ```text
//! local stack -> tw0 | tw0's peer -> Ingress -> queues of the machine -> Egress -> link
//! ```

use std::fmt;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use timewire_base::IfName;
use timewire_bpf::AttachMode;
use timewire_bpf::ingress::Ingress as IngressProgram;
use timewire_sys::nic::receive_queues;
use timewire_sys::packet::{PacketOptions, PacketSocket};
use timewire_sys::xsk::{XskQueue, XskReceiver, XskSender};
use timewire_sys::{Frame, FrameMemory};

use crate::egress::Egress;
use crate::mac::PathError;

/// Which socket type a user asks for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SocketChoice {
    /// The best that works.
    #[default]
    Auto,
    /// AF_XDP with the program in the driver.
    AfXdpNative,
    /// AF_XDP with the program in the stack.
    AfXdpGeneric,
    /// AF_PACKET.
    AfPacket,
}

impl SocketChoice {
    /// The socket types to try, best first.
    fn candidates(self) -> &'static [SocketChoice] {
        match self {
            SocketChoice::Auto => {
                &[SocketChoice::AfXdpNative, SocketChoice::AfXdpGeneric, SocketChoice::AfPacket]
            }
            SocketChoice::AfXdpNative => &[SocketChoice::AfXdpNative],
            SocketChoice::AfXdpGeneric => &[SocketChoice::AfXdpGeneric],
            SocketChoice::AfPacket => &[SocketChoice::AfPacket],
        }
    }
}

impl fmt::Display for SocketChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            SocketChoice::Auto => "auto",
            SocketChoice::AfXdpNative => "af_xdp native",
            SocketChoice::AfXdpGeneric => "af_xdp generic",
            SocketChoice::AfPacket => "af_packet",
        })
    }
}

/// Receive buffer of the AF_PACKET path: more than a cycle of the busiest stack.
const PACKET_BUFFER: u32 = 16 << 20;

/// Both ends, on one frame memory.
pub(crate) struct MacSockets {
    pub(crate) kind: SocketChoice,
    pub(crate) memory: Arc<FrameMemory>,
    pub(crate) ingress: Ingress,
    pub(crate) egress: Egress,
    /// What was tried before and why it did not work.
    pub(crate) refused: Vec<String>,
}

impl MacSockets {
    /// Opens the best socket type that works between the stack's interface and the link.
    ///
    /// **Errors**: none of the candidates works; the message has each one's reason.
    pub(crate) fn open(
        choice: SocketChoice,
        memory: &Arc<FrameMemory>,
        stack: (u32, &IfName),
        link: u32,
    ) -> Result<MacSockets, PathError> {
        let mut refused = Vec::new();
        for &kind in choice.candidates() {
            match open_ends(kind, memory, stack, link) {
                Ok((ingress, egress)) => {
                    let memory = Arc::clone(memory);
                    return Ok(MacSockets { kind, memory, ingress, egress, refused });
                }
                Err(error) => refused.push(format!("{kind}: {error}")),
            }
        }
        Err(PathError::NoSocket { reasons: refused })
    }
}

fn open_ends(
    kind: SocketChoice,
    memory: &Arc<FrameMemory>,
    (stack, name): (u32, &IfName),
    link: u32,
) -> Result<(Ingress, Egress), PathError> {
    let mode = match kind {
        SocketChoice::AfXdpNative => AttachMode::Native,
        SocketChoice::AfXdpGeneric => AttachMode::Generic,
        SocketChoice::Auto | SocketChoice::AfPacket => {
            let open = |interface, receive| {
                let options =
                    PacketOptions { receive, timestamps: false, buffer_bytes: PACKET_BUFFER };
                PacketSocket::open(interface, options).map_err(|source| PathError::Socket {
                    kind: "AF_PACKET",
                    interface,
                    source,
                })
            };
            let ingress = Ingress::Packet { socket: open(stack, true)?, dropped: 0 };
            return Ok((ingress, Egress::Packet(open(link, false)?)));
        }
    };
    // A driver that does not tell has one, as far as anybody knows.
    let queues = receive_queues(name).unwrap_or(1);
    if queues > 1 {
        return Err(PathError::ManyQueues { name: name.clone(), queues });
    }
    let failed = |interface| move |source| PathError::Socket { kind: "AF_XDP", interface, source };
    let on = |interface| XskQueue { interface, queue: 0, zero_copy: false };
    let program = IngressProgram::attach(stack, mode)?;
    let receiver = XskReceiver::open(memory, on(stack)).map_err(failed(stack))?;
    program.set_socket(0, receiver.as_fd())?;
    let sender = XskSender::open(memory, Some(&receiver), on(link)).map_err(failed(link))?;
    Ok((Ingress::Xsk { receiver, _program: program }, Egress::Xsk(sender)))
}

/// Where the local stack's frames come in.
pub(crate) enum Ingress {
    Xsk { receiver: XskReceiver, _program: IngressProgram },
    Packet { socket: PacketSocket, dropped: u64 },
}

impl Ingress {
    /// Takes waiting frames, as many as `got` has capacity for; uses and refills from `free`.
    pub(crate) fn receive(
        &mut self,
        memory: &FrameMemory,
        free: &mut Vec<u32>,
        got: &mut Vec<Frame>,
    ) -> io::Result<usize> {
        match self {
            Ingress::Xsk { receiver, .. } => {
                let count = receiver.receive(got);
                receiver.offer(free);
                Ok(count)
            }
            Ingress::Packet { socket, .. } => socket.receive(memory, free, got),
        }
    }

    /// Lets frames come into free buffers, for socket types that must be given them in advance.
    pub(crate) fn offer(&mut self, free: &mut Vec<u32>) {
        match self {
            Ingress::Xsk { receiver, .. } => receiver.offer(free),
            Ingress::Packet { .. } => {}
        }
    }

    /// Frames lost before they could be taken, since the start.
    pub(crate) fn dropped(&mut self) -> io::Result<u64> {
        match self {
            Ingress::Xsk { receiver, .. } => receiver.drops(),
            Ingress::Packet { socket, dropped } => {
                *dropped += u64::from(socket.take_drops()?);
                Ok(*dropped)
            }
        }
    }
}

impl AsFd for Ingress {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Ingress::Xsk { receiver, .. } => receiver.as_fd(),
            Ingress::Packet { socket, .. } => socket.as_fd(),
        }
    }
}
