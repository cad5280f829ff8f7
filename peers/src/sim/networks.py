# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The networks of `benches/net.rs` in ns-3: reads their descriptions from standard input and prints
of each the processor time of the run, the frames that arrived and their hops, as a line of JSON.

Point-to-point devices with a queue each, of ns-3 as it is. Between them there is no stack of
protocols: a node hands a frame that it receives to the device of the next hop of its stream, in
compiled C++. That is the least that ns-3 can do for a frame; UDP over IP with routers is several
times as much.

Not here: the networks (`crates/sim/benches/net.rs`), the comparison (`mod.rs`).
"""

import json
import sys
import time
from collections import deque

CODE = r"""
namespace timewire {
using namespace ns3;

struct Hop { uint32_t node; Ptr<NetDevice> device; };
struct Stream { std::vector<Hop> way; uint32_t bytes; Time period; };

std::vector<Stream> streams;
uint64_t hops = 0, arrived = 0, sent = 0;

void Release(uint32_t number) {
  Stream &stream = streams[number];
  Ptr<Packet> packet = Create<Packet>(reinterpret_cast<const uint8_t *>(&number), sizeof number);
  packet->AddPaddingAtEnd(stream.bytes - sizeof number);
  const Ptr<NetDevice> &device = stream.way[0].device;
  device->Send(packet, device->GetBroadcast(), 0x0800);
  sent++;
  Simulator::Schedule(stream.period, &Release, number);
}

bool Receive(Ptr<NetDevice> at, Ptr<const Packet> packet, uint16_t, const Address &) {
  uint32_t number, node = at->GetNode()->GetId();
  packet->CopyData(reinterpret_cast<uint8_t *>(&number), sizeof number);
  hops++;
  for (const Hop &hop : streams[number].way) {
    if (hop.node == node) {
      hop.device->Send(packet->Copy(), hop.device->GetBroadcast(), 0x0800);
      return true;
    }
  }
  arrived++;
  return true;
}

void Hear(Ptr<NetDevice> device) { device->SetReceiveCallback(MakeCallback(&Receive)); }

uint32_t AddStream(uint32_t bytes, int64_t period_ns, int64_t offset_ns) {
  uint32_t number = streams.size();
  streams.push_back(Stream{{}, bytes, NanoSeconds(period_ns)});
  Simulator::Schedule(NanoSeconds(offset_ns), &Release, number);
  return number;
}

void AddHop(uint32_t stream, uint32_t node, Ptr<NetDevice> device) {
  streams[stream].way.push_back(Hop{node, device});
}

void Run(int64_t ns) {
  Simulator::Stop(NanoSeconds(ns));
  Simulator::Run();
}

void Clear() {
  Simulator::Destroy();
  streams.clear();
  hops = arrived = sent = 0;
}
}  // namespace timewire
"""


def ways(nodes, links, talkers):
    """The fewest hops, and of several such ways the one whose links come first, as Timewire."""
    neighbours = [[] for _ in range(nodes)]
    for link, (one, other, _) in enumerate(links):
        neighbours[one].append((link, 0, other))
        neighbours[other].append((link, 1, one))
    reached = {}
    for talker in talkers:
        before = {talker: None}
        waiting = deque([talker])
        while waiting:
            node = waiting.popleft()
            for link, end, other in neighbours[node]:
                if other not in before:
                    before[other] = (node, link, end)
                    waiting.append(other)
        reached[talker] = before
    return reached


def networks(lines):
    """The descriptions, each of which ends with `end`."""
    network = {"links": [], "streams": []}
    for line in lines:
        kind, *rest = line.split()
        rest = [int(number) for number in rest]
        if kind == "end":
            yield network
            network = {"links": [], "streams": []}
        elif kind in ("link", "stream"):
            network[f"{kind}s"].append(tuple(rest))
        else:
            network[kind] = rest[0]


def run(ns, timewire, network):
    nodes = ns.NodeContainer()
    nodes.Create(network["nodes"])
    first = nodes.Get(0).GetId()
    helper = ns.PointToPointHelper()
    helper.SetDeviceAttribute("DataRate", ns.StringValue(f"{network['rate']}bps"))
    devices = []
    for one, other, delay in network["links"]:
        helper.SetChannelAttribute("Delay", ns.StringValue(f"{delay}ns"))
        pair = helper.Install(nodes.Get(one), nodes.Get(other))
        ends = [pair.Get(0), pair.Get(1)]
        for device in ends:
            timewire.Hear(device)
        devices.append(ends)
    talkers = {stream[0] for stream in network["streams"]}
    reached = ways(network["nodes"], network["links"], talkers)
    for talker, listener, wire_bytes, period, offset in network["streams"]:
        # ns-3 counts a header of two bytes as well, and neither preamble nor gap.
        number = timewire.AddStream(wire_bytes - 2, period, offset)
        way, node = [], listener
        while node != talker:
            node, link, end = reached[talker][node]
            way.append((node, devices[link][end]))
        for node, device in reversed(way):
            timewire.AddHop(number, first + node, device)
    started = time.process_time()
    timewire.Run(network["duration"])
    seconds = time.process_time() - started
    events = int(ns.Simulator.GetEventCount())
    told = {"seconds": seconds, "hops": int(timewire.hops), "arrived": int(timewire.arrived)}
    print(json.dumps({**told, "sent": int(timewire.sent), "events": events}), flush=True)
    timewire.Clear()


def main():
    from ns import ns
    import cppyy

    cppyy.cppdef(CODE)
    for network in networks(sys.stdin):
        run(ns, cppyy.gbl.timewire, network)


main()
