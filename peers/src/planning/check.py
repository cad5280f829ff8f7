# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Holds a plan in tables of tsnkit against its problem: python3 check.py TASK TOPO PREFIX

Every frame of three hyperperiods is sent through ports that do what PREFIX-GCL.csv says: a frame
starts on a link when the link is idle, a window of its queue is open, and what is left of that
window is long enough; queues are first in, first out; of open queues the highest goes first. A
bridge hands a frame on when it is whole and processed. The plan holds when each frame of the first
two hyperperiods is at its listener within its deadline, counted from its first bit at the talker.

Windows are those of the table, one by one, and join only over the end of the cycle. Of frames that
come to one queue at the same instant, the stream with the lower number is first.

Prints one object: {"ok": true} or {"ok": false, "why": ...}. Shares nothing with any planner.

Not here: jitter and clock errors, which the tables' arithmetic does not have.
"""

import ast
import csv
import heapq
import json
import math
import sys
from bisect import bisect_right
from collections import defaultdict, deque


class Bad(Exception):
    """What contradicts the plan."""


def rows(path):
    with open(path, newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


class Stream:
    def __init__(self, row):
        self.id = int(row["stream"])
        self.talker = int(row["src"])
        (self.listener,) = ast.literal_eval(row["dst"])
        self.size = int(row["size"])
        self.period = int(row["period"])
        self.deadline = int(row["deadline"])


class Link:
    """One direction; its port's windows and queues."""

    def __init__(self, row):
        self.name = ast.literal_eval(row["link"])
        self.ns_of_byte = 8 * int(row["rate"])
        self.processing = int(row["t_proc"])
        self.propagation = int(row["t_prop"])
        self.queues = defaultdict(deque)
        self.idle_at = 0
        self.windows = []
        self.starts = []
        self.cycle = 0

    def set_windows(self, windows, cycle):
        self.cycle = cycle
        joined = []
        first = {queue: end for start, end, queue in windows if start == 0}
        for start, end, queue in windows:
            if end == cycle and start > 0 and queue in first:
                end += first[queue]
            joined.append((start, end, queue))
        self.windows = sorted(joined)
        self.starts = [start for start, _, _ in self.windows]
        self.longest = max((end - start for start, end, _ in self.windows), default=0)

    def left(self, queue, now):
        """How much is left of the open windows of a queue, at most."""
        best = 0
        for turn in (0, self.cycle):
            at = now % self.cycle + turn
            place = bisect_right(self.starts, at)
            while place > 0 and self.starts[place - 1] > at - self.longest:
                place -= 1
                _, end, of = self.windows[place]
                if of == queue and end > at:
                    best = max(best, end - at)
        return best

    def next_start(self, now):
        at = now % self.cycle
        place = bisect_right(self.starts, at)
        if place < len(self.starts):
            return now - at + self.starts[place]
        return now - at + self.cycle + self.starts[0]


class Network:
    def __init__(self, task, topo):
        self.streams = {stream.id: stream for stream in map(Stream, rows(task))}
        self.links = {link.name: link for link in map(Link, rows(topo))}
        self.hyperperiod = math.lcm(*(stream.period for stream in self.streams.values()))


class Plan:
    """The tables, held against each other."""

    def __init__(self, network, prefix):
        self.network = network
        self.ways = self.read_ways(rows(prefix + "-ROUTE.csv"))
        self.offsets = defaultdict(dict)
        for row in rows(prefix + "-OFFSET.csv"):
            self.offsets[int(row["stream"])][int(row["frame"])] = number(row["offset"])
        self.queues = defaultdict(dict)
        for row in rows(prefix + "-QUEUE.csv"):
            key = (int(row["stream"]), int(row["frame"]))
            self.queues[key][ast.literal_eval(row["link"])] = int(row["queue"])
        for id in network.streams:
            frames = sorted(self.offsets[id])
            if not frames or frames != list(range(len(frames))):
                raise Bad(f"stream {id}: offsets of frames {frames}")
        self.read_windows(rows(prefix + "-GCL.csv"))

    def read_ways(self, table):
        edges = defaultdict(dict)
        for row in table:
            link = ast.literal_eval(row["link"])
            if link not in self.network.links:
                raise Bad(f"stream {row['stream']}: there is no link {link}")
            edges[int(row["stream"])][link[0]] = link
        ways = {}
        for id, stream in self.network.streams.items():
            way, at = [], stream.talker
            while at != stream.listener:
                link = edges[id].pop(at, None)
                if link is None:
                    raise Bad(f"stream {id}: its way ends at {at}, not at {stream.listener}")
                way.append(self.network.links[link])
                at = link[1]
            ways[id] = way
        return ways

    def read_windows(self, table):
        windows, cycles = defaultdict(set), {}
        for row in table:
            link, cycle = ast.literal_eval(row["link"]), number(row["cycle"])
            start, end = number(row["start"]), number(row["end"])
            if link not in self.network.links:
                raise Bad(f"windows of {link}, which is no link")
            if cycles.setdefault(link, cycle) != cycle:
                raise Bad(f"{link}: cycles of {cycles[link]} and {cycle}")
            if not 0 <= end - start <= cycle:
                raise Bad(f"{link}: a window from {start} to {end}")
            start, end = start % cycle, start % cycle + end - start
            windows[link].add((start, min(end, cycle), int(row["queue"])))
            if end > cycle:
                windows[link].add((0, end - cycle, int(row["queue"])))
        for link, of_link in windows.items():
            self.network.links[link].set_windows(sorted(of_link), cycles[link])

    def queue(self, id, turn, link):
        frame = turn % len(self.offsets[id])
        queue = self.queues.get((id, frame), {}).get(link.name)
        if queue is None:
            queue = self.queues.get((id, 0), {}).get(link.name)
        if queue is None or not link.windows:
            raise Bad(f"stream {id}: no queue or no window on {link.name}")
        return queue


def number(text):
    value = float(text)
    if not value.is_integer():
        raise Bad(f"{text} is no whole number of nanoseconds")
    return int(value)


ARRIVES, LOOKS = 0, 1


class Run:
    """The frames of three hyperperiods."""

    def __init__(self, network, plan):
        self.network, self.plan = network, plan
        self.events, self.waiting = [], {}
        self.late = None
        horizon = 3 * network.hyperperiod
        self.counted = 2 * network.hyperperiod
        for id, stream in network.streams.items():
            offsets = plan.offsets[id]
            for turn in range(horizon // stream.period):
                at = turn * stream.period + offsets[turn % len(offsets)]
                heapq.heappush(self.events, (at, ARRIVES, id, turn, 0))
                if at < self.counted:
                    self.waiting[id, turn] = None

    def go(self):
        end = 4 * self.network.hyperperiod + max(s.deadline for s in self.network.streams.values())
        while self.events and self.waiting:
            now, kind, id, turn, hop = heapq.heappop(self.events)
            if now > end:
                break
            link = self.plan.ways[id][hop]
            if kind == ARRIVES:
                link.queues[self.plan.queue(id, turn, link)].append((id, turn, hop))
            self.look(link, now)
        if self.waiting:
            id, turn = min(self.waiting)
            raise Bad(f"stream {id}: its frame {turn} does not arrive")

    def look(self, link, now):
        """Starts a frame, or looks again when something changes."""
        waits = [queue for queue, frames in link.queues.items() if frames]
        if not waits or now < link.idle_at:
            return
        for queue in sorted(waits, reverse=True):
            id, turn, hop = link.queues[queue][0]
            stream = self.network.streams[id]
            duration = stream.size * link.ns_of_byte
            if link.left(queue, now) >= duration:
                link.queues[queue].popleft()
                link.idle_at = now + duration
                self.send(link, now, id, turn, hop, duration)
                heapq.heappush(self.events, (link.idle_at, LOOKS, id, turn, hop))
                return
        id, turn, hop = link.queues[waits[0]][0]
        heapq.heappush(self.events, (link.next_start(now), LOOKS, id, turn, hop))

    def send(self, link, now, id, turn, hop, duration):
        stream = self.network.streams[id]
        if hop == 0 and (id, turn) in self.waiting:
            self.waiting[id, turn] = now
        there = now + duration + link.propagation
        way = self.plan.ways[id]
        if hop + 1 < len(way):
            ready = there + way[hop + 1].processing
            heapq.heappush(self.events, (ready, ARRIVES, id, turn, hop + 1))
        elif (id, turn) in self.waiting:
            took = there - self.waiting.pop((id, turn))
            if took > stream.deadline:
                raise Bad(f"stream {id}: frame {turn} takes {took} ns, not {stream.deadline}")


def main(task, topo, prefix):
    try:
        network = Network(task, topo)
        Run(network, Plan(network, prefix)).go()
        print(json.dumps({"ok": True}))
    except (Bad, OSError, KeyError, ValueError) as error:
        print(json.dumps({"ok": False, "why": f"{error}" or type(error).__name__}))


if __name__ == "__main__":
    main(*sys.argv[1:4])
