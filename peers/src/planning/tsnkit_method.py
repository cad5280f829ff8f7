# SPDX-License-Identifier: Apache-2.0 OR MIT
"""tsnkit, one thing at a time, with the Python that has it:

tsnkit_method.py solve METHOD TASK TOPO DIRECTORY   one method; its tables are DIRECTORY/plan-*.csv
tsnkit_method.py make DIRECTORY                     problems of its own generator, as line, ring,
                                                    tree and mesh, from fixed seeds

`solve` prints {"result": "succ" | "fail" | ...} in its words, `make` a line for each problem.

Not here: limits and what the tables are worth (compare.py, check.py).
"""

import contextlib
import csv
import importlib
import json
import os
import sys


def solve(method, task, topo, directory):
    with contextlib.redirect_stdout(sys.stderr):
        module = importlib.import_module(f"tsnkit.algorithms.{method}")
        said = module.benchmark("plan", task, topo, directory + "/", 1)
    print(json.dumps({"result": str(said.result)}))


# Streams, bridges, and the numbers of its tables of periods, sizes and deadlines.
MADE = [(60, 8, 5, 4, 2), (60, 8, 6, 2, 5)]


def make(directory):
    import numpy
    from tsnkit.data.generator import DatasetGenerator

    for shape, topology in enumerate(("line", "ring", "tree", "mesh")):
        for which, (streams, bridges, period, size, deadline) in enumerate(MADE):
            numpy.random.seed(10 * shape + which)
            place = os.path.join(directory, "made")
            os.makedirs(place, exist_ok=True)
            with contextlib.redirect_stdout(sys.stderr):
                maker = DatasetGenerator(1, streams, bridges, period, size, deadline, shape)
                maker.run(place + "/")
            name = f"tsnkit-{topology}-{which + 1}"
            count = rounded(f"{place}/1_task.csv", f"{directory}/{name}-task.csv")
            os.replace(f"{place}/1_topo.csv", f"{directory}/{name}-topo.csv")
            print(json.dumps({"name": name, "known": "", "streams": count}))


def rounded(source, target):
    """A copy with sizes rounded up to 100 bytes, as it reads them; how many streams."""
    with open(source, newline="", encoding="utf-8") as file:
        table = list(csv.DictReader(file))
    with open(target, "w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, table[0].keys())
        writer.writeheader()
        for row in table:
            writer.writerow(row | {"size": -(-int(row["size"]) // 100) * 100})
    return len(table)


if __name__ == "__main__":
    {"solve": solve, "make": make}[sys.argv[1]](*sys.argv[2:])
