// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The traffic of a network file: when a stream releases its messages.

use timewire_base::wire::MacAddress;
use timewire_base::{BitsPerSecond, Span};

use super::network::NetDelay;
use super::record::{kinds, record};
use super::value::{Count, Name, Text};

kinds! {
    /// When messages are released.
    pub enum NetTraffic by "kind" {
        /// In every period, by the station's clock.
        Cyclic(NetCyclic) = "cyclic",
        /// At any time, with a gap before the next.
        Sporadic(NetSporadic) = "sporadic",
        /// At a rate, by the station's clock.
        Flood(NetFlood) = "flood",
        /// The next when the answer to the last has come.
        Request(NetRequest) = "request",
        /// One for each message of another stream that arrives: an answer, or a step of a
        /// pipeline.
        After(NetAfter) = "after",
        /// As captured: the frames of a file, at their times and with their lengths.
        Replay(NetReplay) = "replay",
        /// On a segment: a client sends a request, the listener answers it, the client sends the
        /// next one. Both directions are measured.
        RequestResponse(NetRequestResponse) = "request-response",
        /// On a segment: a computation in steps on several stations. The talker makes a stimulus,
        /// each station computes with it and hands it on to the next, and the last one ends it.
        /// The messages are measured, too, by the name of the stream with `-1` behind it, `-2`, and
        /// so on.
        Pipeline(NetPipeline) = "pipeline",
    }
}

record! {
    /// Messages in every period.
    pub struct NetCyclic {
        /// The period.
        period: Span,
        /// When in the period.
        offset: Span = "0us",
        /// How much later it really is.
        jitter: NetDelay = "0us",
        /// Messages in each period.
        burst: Count<1, 100000> = "1",
        /// From one to the next of those.
        spacing: Span = "0us",
    }
}

record! {
    /// Messages at any time.
    pub struct NetSporadic {
        /// From one to the next.
        gap: NetDelay,
    }
}

record! {
    /// Messages at a rate.
    pub struct NetFlood {
        /// The rate of the link that they take, preamble and gap included.
        rate: BitsPerSecond,
        /// Messages that are released at once.
        burst: Count<1, 1000> = "1",
    }
}

record! {
    /// Requests.
    pub struct NetRequest {
        /// The stream with the answers; `kind: request-response` needs none.
        answer: Name,
        /// From an answer to the next request.
        think: NetDelay = "0us",
        /// Without an answer the next goes after this.
        timeout: Span = "100ms",
        /// When the first goes.
        first: Span = "0us",
    }
}

record! {
    /// Requests, and the answers to them.
    pub struct NetRequestResponse {
        /// A request not answered by then is counted as lost, and the next one is sent.
        timeout: Span = "100ms",
    }
}

record! {
    /// A computation in steps.
    pub struct NetPipeline {
        /// From one stimulus to the next; without it, one cycle of the schedule. A stimulus that is
        /// due while the source computes is left out.
        period: Option<Span>,
        /// Components of the computation on each station, one after the other.
        components: Count<1, 16> = "2",
        /// How long each component computes.
        compute: Span = "0us",
    }
}

record! {
    /// Messages that follow others.
    pub struct NetAfter {
        /// The stream that it follows.
        follows: Name,
        /// How long the station needs to make the message.
        work: NetDelay = "0us",
        /// Latencies count from the release of the first message of the chain.
        from_start: bool = "false",
    }
}

record! {
    /// Frames of a capture.
    pub struct NetReplay {
        /// The capture, pcapng or pcap, beside this file.
        file: Text,
        /// When the first frame of the file is due, whether it is taken or not, by the station's
        /// clock: streams of one file keep their distance.
        offset: Span = "0us",
        /// Only frames of this VLAN.
        vlan: Option<Count<0, 4094>>,
        /// Only frames with this priority in their VLAN tag.
        pcp: Option<Count<0, 7>>,
        /// Only frames from this MAC address.
        source: Option<MacAddress>,
        /// Only frames to this MAC address.
        destination: Option<MacAddress>,
    }
}
