"""Measures the worth of each entry of a backend: the number of operators that need no fallback if a device has
only the first entries of a list.

    python3 entries.py MYTORCH FAULTY_SO

The order is greedy: the next entry is the one that frees the most operators or, in a tie, the one listed first. The
entries that an operator needs are determined by removing one entry at a time.
"""

import json
import os
import subprocess
import sys
import tempfile

ENTRIES = [
    "copy_",
    "compile",
    "fill_",
    "bmm",
    "gather",
    "cat",
    "convolution",
    "convolution_backward_input",
    "convolution_backward_weight",
    "max_pool2d_with_indices",
    "max_pool2d_with_indices_backward",
    "uniform_",
    "scatter.src",
    "scatter_add",
    "arange.start_step",
    "avg_pool2d",
    "avg_pool2d_backward",
    "random_.from",
    "normal_",
    "cumsum",
    "sort.stable",
    "nonzero",
]
mytorch, library = sys.argv[1:3]


def fallbacks(entries: list[str]) -> set[str]:
    with tempfile.NamedTemporaryFile(suffix=".json") as file:
        subprocess.run(
            [mytorch, "check", library, "--quick", "--no-gradients", "--json", file.name],
            env={**os.environ, "MYTORCH_ENTRIES": ",".join(entries)},
            capture_output=True,
        )
        return {row["op"] for row in json.load(open(file.name))["ops"] if row["route"] == "fallback"}


needs: dict[str, set[str]] = {}
for entry in ENTRIES:
    for op in fallbacks([other for other in ENTRIES if other != entry]):
        needs.setdefault(op, set()).add(entry)
with tempfile.NamedTemporaryFile(suffix=".json") as file:
    subprocess.run([mytorch, "check", library, "--quick", "--no-gradients", "--json", file.name], capture_output=True)
    ops = [row["op"] for row in json.load(open(file.name))["ops"] if "::" not in row["op"]]
chosen: list[str] = []
while len(chosen) < len(ENTRIES):

    def worth(entry: str) -> tuple[int, float]:
        have = {*chosen, entry}
        free = sum(needs.get(op, set()) <= have for op in ops)
        # If no single entry frees an operator, prefers the entry that most operators wait for.
        return free, sum(1 / len(needs[op] - set(chosen)) for op in needs if entry in needs[op])

    left = [entry for entry in ENTRIES if entry not in chosen]
    chosen.append(max(left, key=worth))
    free = sum(needs.get(op, set()) <= set(chosen) for op in ops)
    print(f"{len(chosen):3} {chosen[-1]:34} {free:4} of {len(ops)}  {100 * free / len(ops):5.1f} %", flush=True)
