# SPDX-License-Identifier: Apache-2.0 OR MIT
"""A no-wait job shop on links for OR-Tools CP-SAT: python3 cpsat.py TASK TOPO [PREFIX]

One start for each stream, within its period; each link of its way is busy from a fixed time after
it. On a link nothing overlaps: every frame of the hyperperiod is an interval there. Ways are
shortest ones, of equally short ones that whose fullest link is least full, heaviest streams first.
A stream whose shortest way alone takes longer than its deadline makes the problem infeasible.

Without PREFIX the load of the fullest link is all that is computed. Prints one object:
{"load": per cent, "ways": 1 | 2} and with PREFIX also {"result": "plan" | "none" | "unknown"};
"none" is a proof that there is no plan without waiting on these ways, and "ways": 1 says that there
are no others. A plan is written to PREFIX-GCL.csv and the other tables of tsnkit.

Not here: whether the plan is right (check.py), and an end to the search (compare.py).
"""

import ast
import csv
import json
import math
import sys
from collections import defaultdict, deque


def rows(path):
    with open(path, newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


class Problem:
    def __init__(self, task, topo):
        self.links = {ast.literal_eval(row["link"]): row for row in rows(topo)}
        self.neighbours = defaultdict(list)
        for a, b in self.links:
            self.neighbours[a].append(b)
        self.streams = []
        for row in rows(task):
            (listener,) = ast.literal_eval(row["dst"])
            numbers = {name: int(row[name]) for name in ("size", "period", "deadline")}
            numbers |= {"id": int(row["stream"]), "from": int(row["src"]), "to": listener}
            self.streams.append(numbers)
        self.cycle = math.lcm(*(stream["period"] for stream in self.streams))
        self.busy = defaultdict(int)
        self.has_choice = False
        heaviest = sorted(self.streams, key=lambda s: s["size"] / s["period"], reverse=True)
        for stream in heaviest:
            self.set_way(stream)

    def duration(self, stream, link):
        return stream["size"] * 8 * int(self.links[link]["rate"])

    def share(self, stream, link):
        return self.duration(stream, link) * (self.cycle // stream["period"])

    def set_way(self, stream):
        ways = list(self.shortest(stream["from"], stream["to"]))
        self.has_choice |= len(self.links) > 2 * (len(self.neighbours) - 1)
        way = min(ways, key=lambda way: max(self.busy[link] for link in way))
        at, sent = 0, []
        for link in way:
            if sent:
                at += int(self.links[link]["t_proc"])
            sent.append((link, at, self.duration(stream, link)))
            at += self.duration(stream, link) + int(self.links[link]["t_prop"])
            self.busy[link] += self.share(stream, link)
        stream["sent"], stream["latency"] = sent, at

    def shortest(self, start, end):
        """All ways with the fewest links."""
        distance, queue = {end: 0}, deque([end])
        while queue:
            node = queue.popleft()
            for other in self.neighbours[node]:
                if other not in distance and (other, node) in self.links:
                    distance[other] = distance[node] + 1
                    queue.append(other)

        def on(node, way):
            if node == end:
                yield way
            for other in self.neighbours[node]:
                if distance.get(other, math.inf) == distance[node] - 1:
                    yield from on(other, way + [(node, other)])

        return on(start, [])

    def load(self):
        return round(100 * max(self.busy.values()) / self.cycle, 1)


def solve(problem):
    """Starts by stream, or what else came of it."""
    from ortools.sat.python import cp_model

    model, on_link, starts = cp_model.CpModel(), defaultdict(list), {}
    for stream in problem.streams:
        if stream["latency"] > stream["deadline"]:
            return "none", {}
        period = stream["period"]
        start = model.new_int_var(0, period - 1, f"s{stream['id']}")
        starts[stream["id"]] = start
        for link, after, duration in stream["sent"]:
            if duration > period:
                return "none", {}
            # The start on this link within the period, and the turn before the first: it may reach
            # into the cycle from its end.
            turns = (period - 1 + after) // period
            turn = model.new_int_var(0, turns, "")
            local = model.new_int_var(0, period - 1, "")
            model.add(local == start + after - period * turn)
            for number in range(-1, problem.cycle // period):
                begin = local + number * period
                on_link[link].append(model.new_fixed_size_interval_var(begin, duration, ""))
    for intervals in on_link.values():
        model.add_no_overlap(intervals)
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    solver.parameters.random_seed = 1
    status = solver.solve(model)
    if status in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        return "plan", {id: solver.value(start) for id, start in starts.items()}
    return ("none" if status == cp_model.INFEASIBLE else "unknown"), {}


def write(problem, starts, prefix):
    heads = {
        "GCL": "link,queue,start,end,cycle",
        "OFFSET": "stream,frame,offset",
        "QUEUE": "stream,frame,link,queue",
        "ROUTE": "stream,link",
    }
    tables = {name: [head.split(",")] for name, head in heads.items()}
    for stream in problem.streams:
        id, period = stream["id"], stream["period"]
        tables["OFFSET"].append([id, 0, starts[id]])
        for link, after, duration in stream["sent"]:
            tables["ROUTE"].append([id, link])
            tables["QUEUE"].append([id, 0, link, 7])
            begin = (starts[id] + after) % period
            for start in range(begin, problem.cycle, period):
                end, cycle = start + duration, problem.cycle
                tables["GCL"].append([link, 7, start, min(end, cycle), cycle])
                if end > cycle:
                    tables["GCL"].append([link, 7, 0, end - cycle, cycle])
    for name, table in tables.items():
        with open(f"{prefix}-{name}.csv", "w", newline="", encoding="utf-8") as file:
            csv.writer(file).writerows(table)


def main(task, topo, prefix=None):
    problem = Problem(task, topo)
    said = {"load": problem.load(), "ways": 2 if problem.has_choice else 1}
    if prefix is not None:
        said["result"], starts = solve(problem)
        if starts:
            write(problem, starts, prefix)
    print(json.dumps(said))


if __name__ == "__main__":
    main(*sys.argv[1:4])
