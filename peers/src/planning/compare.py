# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Planners beside each other on the same problems: compare.py OPTIONS (cargo peers plans)

Each is a process of one thread with a limit of its CPU time; of tsnkit's methods loading is in it.
What they say is not believed: every plan goes through check.py, and one that does not hold counts
as BAD. Exit 1: `timewire plan` gave a plan that does not hold, or none where another gave one that
holds, or a proof against such a plan.

Not here: fetching and building (the verb), one planner (tsnkit_method.py, cpsat.py).
"""

import argparse
import concurrent.futures
import importlib.metadata
import json
import os
import resource
import signal
import subprocess
import sys
import threading

HERE = os.path.dirname(os.path.abspath(__file__))
OURS, CPSAT = "timewire", "cp-sat"
# Methods of tsnkit 0.3 that need no solver with a licence; the others are at the end.
FREE = ["ls", "dt", "ls_tb", "ls_pl", "smt_wa", "smt_pr", "smt_fr", "i_omt", "at"]
LICENSED = {
    "Gurobi": ["cg", "i_ilp", "jrs_mc", "jrs_nw", "jrs_wa", "smt_nw"],
    "CPLEX": ["cp_wa", "jrs_nw_l"],
}
OK, BAD, NO, PROVED = "ok", "BAD", "no", "none"
LIMIT, LICENCE, BROKEN = "> limit", "licence", "error"


class Ended:
    """A process that has ended: what it wrote, and what it cost."""

    def __init__(self, command, limit):
        def limits():
            os.setpgrp()
            resource.setrlimit(resource.RLIMIT_CPU, (limit, limit + 1))

        one_thread = {name: "1" for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS")}
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=os.environ | one_thread,
            preexec_fn=limits,
        )
        # One that sleeps uses no CPU time and has no other end.
        watch = threading.Timer(100 * limit + 60, process.kill)
        watch.start()
        # Both are read, so that neither stops it.
        errors = []
        reader = threading.Thread(target=lambda: errors.append(process.stderr.read()))
        reader.start()
        self.out = process.stdout.read().decode(errors="replace")
        reader.join()
        _, status, usage = os.wait4(process.pid, 0)
        watch.cancel()
        process.returncode = os.waitstatus_to_exitcode(status)
        process.stdout.close()
        process.stderr.close()
        self.code = process.returncode
        self.error = errors[0].decode(errors="replace")
        self.cpu = usage.ru_utime + usage.ru_stime
        self.limited = self.code in (-signal.SIGXCPU, -signal.SIGKILL)

    def last(self):
        """The last line as an object, if it is one."""
        lines = self.out.strip().splitlines()
        try:
            return json.loads(lines[-1]) if lines else {}
        except ValueError:
            return {}


def note(cpu, status, why=""):
    return {"status": status, "cpu_s": round(cpu, 3), "why": why}


class Comparison:
    def __init__(self, options):
        self.options = options

    def files(self, name):
        return [os.path.join(self.options.work, f"{name}-{end}.csv") for end in ("task", "topo")]

    def run(self, name, who):
        place = os.path.join(self.options.work, "plans", f"{name}.{who}")
        os.makedirs(place, exist_ok=True)
        # A plan of an earlier run is none of this one.
        for old in os.listdir(place):
            os.remove(os.path.join(place, old))
        prefix = os.path.join(place, "plan")
        how = {OURS: self.ours, CPSAT: self.cpsat}.get(who, self.tsnkit)
        result = how(name, who, prefix)
        if result["status"] == OK:
            command = [sys.executable, f"{HERE}/check.py", *self.files(name), prefix]
            said = Ended(command, 600).last()
            if not said.get("ok"):
                result |= {"status": BAD, "why": said.get("why", "the checker failed")}
        print(f"{name:<22} {who:<9} {short(result):<8} {result['why']}", file=sys.stderr)
        return result

    def ours(self, name, _, prefix):
        limit = self.options.ours
        command = [self.options.timewire, "plan", "--json", "--time-limit", f"{limit}s"]
        command += ["--export-tsnkit", prefix, "--tsnkit", *self.files(name)]
        ended = Ended(command, 4 * limit + 60)
        if ended.code not in (0, 1):
            return note(ended.cpu, BROKEN, last_line(ended.error))
        said = json.loads(ended.out)
        refused = [stream for stream in said["streams"] if not stream["admitted"]]
        proofs = [stream for stream in refused if stream["proof"]]
        status = PROVED if proofs else NO if refused else OK
        why = f"{len(refused)} refused: {(proofs or refused)[0]['reason']}" if refused else ""
        return note(ended.cpu, status, why)

    def cpsat(self, name, _, prefix):
        command = [sys.executable, f"{HERE}/cpsat.py", *self.files(name), prefix]
        ended = Ended(command, self.options.limit)
        said = ended.last()
        if "result" not in said:
            return self.without_result(ended)
        status = {"plan": OK, "none": PROVED if said["ways"] == 1 else NO}
        return note(ended.cpu, status.get(said["result"], LIMIT))

    def tsnkit(self, name, method, prefix):
        place = os.path.dirname(prefix)
        command = [sys.executable, f"{HERE}/tsnkit_method.py", "solve", method]
        ended = Ended([*command, *self.files(name), place], self.options.limit)
        result = ended.last().get("result")
        if result is None or result == "err":
            return self.without_result(ended)
        return note(ended.cpu, OK if result == "succ" else NO, "" if result == "succ" else result)

    def without_result(self, ended):
        why = last_line(ended.error)
        if "license" in ended.error or "icence" in why or "CPLEX" in why or "docplex" in why:
            return note(ended.cpu, LICENCE, why)
        if ended.limited:
            return note(ended.cpu, LIMIT)
        return note(ended.cpu, BROKEN, why)


def last_line(text):
    lines = [line for line in text.splitlines() if line.strip()]
    return lines[-1].strip()[:160] if lines else ""


def short(result):
    """A cell of the table."""
    status, cpu = result["status"], result["cpu_s"]
    if status in (OK, NO, PROVED):
        return f"{status} {cpu:.2f}" if cpu < 10 else f"{status} {cpu:.0f}"
    return status


def instances(options):
    """What there is to plan, as the generators tell."""
    lines = []
    for path in (f"{options.work}/ours.jsonl", f"{options.work}/theirs.jsonl"):
        with open(path, encoding="utf-8") as file:
            lines += [json.loads(line) for line in file if line.startswith("{")]
    return [line for line in lines if not options.only or options.only in line["name"]]


def judge(rows, others):
    """How many each solves, and what is wrong with us."""
    solved = {who: [row for row in rows if row["results"][who]["status"] == OK] for who in others}
    by_any = [row for row in rows if any(row["results"][who]["status"] == OK for who in others)]
    ours = [row for row in rows if row["results"][OURS]["status"] == OK]
    wrong = []
    for row in rows:
        mine = row["results"][OURS]["status"]
        has_plan = row in by_any or row["known"] == "has a plan"
        if mine in (BAD, BROKEN):
            wrong.append(f"{row['name']}: {row['results'][OURS]['why']}")
        elif mine != OK and row in by_any:
            wrong.append(f"{row['name']}: another has a plan that holds")
        elif mine == PROVED and has_plan:
            wrong.append(f"{row['name']}: refused with a proof, and there is a plan")
        elif mine != PROVED and row["known"] == "has none":
            wrong.append(f"{row['name']}: there is no plan, and no proof was given")
    summary = {who: len(of) for who, of in solved.items()}
    summary |= {"union": len(by_any), OURS: len(ours), "of": len(rows)}
    return summary, wrong


def table(rows, columns):
    head = ["problem", "streams", "load", *columns]
    lines = [head, ["---", "---:", "---:", *["---"] * len(columns)]]
    for row in rows:
        cells = [short(row["results"][who]) for who in columns]
        lines.append([row["name"], str(row["streams"]), f"{row['load']:.0f} %", *cells])
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def methods(names):
    """CP-SAT is always beside others; `none` is Timewire alone."""
    return [] if names == "none" else [CPSAT, *names.split(",")]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--work", required=True)
    parser.add_argument("--timewire", required=True)
    parser.add_argument("--limit", type=int, required=True)
    parser.add_argument("--ours", type=int, required=True)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--methods", type=methods, default=[CPSAT, *FREE])
    parser.add_argument("--only", default="")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    comparison = Comparison(options)
    columns = [OURS, *options.methods]
    rows = instances(options)
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        jobs = {}
        for row in rows:
            command = [sys.executable, f"{HERE}/cpsat.py", *comparison.files(row["name"])]
            row["load"] = Ended(command, 600).last()["load"]
            for who in columns:
                jobs[row["name"], who] = pool.submit(comparison.run, row["name"], who)
        for row in rows:
            row["results"] = {who: jobs[row["name"], who].result() for who in columns}
    summary, wrong = judge(rows, columns[1:])
    packages = ("tsnkit", "ortools", "z3-solver")
    versions = {name: importlib.metadata.version(name) for name in packages}
    if options.json:
        whole = {"schema": "timewire-peers-plan/1", "limit_s": options.limit, "rows": rows}
        whole |= {"ours_limit_s": options.ours, "versions": versions, "solved": summary}
        print(json.dumps(whole | {"wrong": wrong}, indent=1))
    else:
        show(options, rows, columns, summary, versions)
    for line in wrong:
        print(f"wrong: {line}", file=sys.stderr)
    return 1 if wrong else 0


def show(options, rows, columns, summary, versions):
    print(f"{versions}; limit {options.limit} s of CPU, {OURS} {options.ours} s\n")
    print(table(rows, columns))
    print(f"\n{OK}: a plan that holds, CPU s; {BAD}: a plan that does not; {NO}: says it has none;")
    print(f"{PROVED}: with a proof; {LIMIT}: was ended; {BROKEN}: ended without a result")
    for solver, methods in LICENSED.items():
        absent = [name for name in methods if name not in options.methods]
        print(f"not run, for want of a licence of {solver}: {', '.join(absent)}")
    print("\nsolved, of", summary["of"], "problems:")
    for who in [OURS, "union", *columns[1:]]:
        bad = sum(row["results"].get(who, {}).get("status") == BAD for row in rows)
        print(f"  {who:<9} {summary[who]:>3}" + (f", and {bad} BAD" if bad else ""))
    refusals = [row for row in rows if "refused_ns" in row]
    if refusals:
        print("\nthe one stream too many, asked for beside the others:")
    for row in refusals:
        print(f"  {row['name']}: {row['refused_ns'] / 1000:.1f} us: {row['reason']}")


if __name__ == "__main__":
    sys.exit(main())
