"""Tables that compare our benchmarks with a peer's.

Reads a folder of files in Google Benchmark's JSON format, written by scripts/lib/take-turns.sh and named
`SIDE.[MODEL.tTHREADS.]rROUND.json`. SIDE is `ours` or `peer`.
"""

import argparse
import collections
import json
import math
import pathlib
import re
import statistics
import sys

NS_PER_UNIT = {"ns": 1.0, "us": 1e3, "ms": 1e6, "s": 1e9}

CASES = [
    "empty",
    "view",
    "transpose",
    "add_out",
    "add",
    "add_inplace",
    "relu",
    "sum",
    "mm_2x2",
    "add_grad",
    "mul_grad",
    "chain100",
]

# The bars of --check. Ratios are the peer's time over ours; limits are in our own nanoseconds.
MEAN_RATIO = 8.0
CASE_RATIO = 4.0
# Of cases that are not in the mean: a kernel's arithmetic, and sequences, on which libtorch's time is quadratic.
APART_RATIOS = {"mm_64x64": 1.5, "steps_read": 10.0, "steps_written": 10.0}
LIMITS_NS = {"add_out": 30.0, "add": 50.0, "add_grad": 100.0, "chain100": 220.0}


class Side:
    """All rounds of one program, one file each."""

    def __init__(self, paths):
        self.context = {}
        self.rounds = collections.defaultdict(list)  # case -> one list of entries per round
        for path in paths:
            document = json.loads(path.read_text())
            self.context = document.get("context", {})
            by_case = collections.defaultdict(list)
            for entry in document["benchmarks"]:
                if entry.get("error_occurred"):
                    message = entry.get("error_message", "failed")
                    sys.exit(f"{path.name}: {entry['name']}: {message}")
                if entry.get("run_type", "iteration") == "iteration":
                    by_case[entry["name"]].append(entry)
            for case, entries in by_case.items():
                self.rounds[case].append(entries)

    def ns(self, case):
        """Returns the median over the rounds of each round's fastest repetition.

        Other load on the machine only adds time, so the fastest repetition is the least disturbed one; the
        median discards a lucky round. On a shared machine, a program compared with itself gives a ratio within
        about 5 % of 1 this way, and within 50 % with medians alone.
        """
        return statistics.median(
            min(e["real_time"] * NS_PER_UNIT[e["time_unit"]] for e in entries) for entries in self.rounds[case]
        )

    def first_accuracy(self, case):
        """Returns the median over the rounds as text. Each round trains a new network."""
        first = [entries[0]["accuracy"] for entries in self.rounds[case] if "accuracy" in entries[0]]
        return f"{100 * statistics.median(first):.2f}%" if first else "not given"


def describe_peer(context):
    """Prints the BLAS that the peer ran on, and warns if it is the reference BLAS."""
    blas = context.get("blas", "unknown")
    print(f"peer: {context.get('framework', 'unknown')}, BLAS {blas}")
    # Debian installs the reference BLAS, portable loops without blocking, in a folder of this name.
    if re.search(r"/blas/libblas\.so", blas):
        print(
            "note: that is the reference BLAS; on libopenblas0-openmp, libtorch's matrix products"
            "\n      and so the MLP are some ten times faster (see --peer-libs)"
        )


def overhead(folder, check):
    ours = Side(sorted(folder.glob("ours.r*.json")))
    peer = Side(sorted(folder.glob("peer.r*.json")))
    describe_peer(peer.context)
    every = CASES + list(APART_RATIOS)
    absent = [c for c in every if c not in ours.rounds or c not in peer.rounds]
    if absent:
        sys.exit(f"not measured on both sides: {', '.join(absent)}")

    our_ns = {c: ours.ns(c) for c in every}
    peer_ns = {c: peer.ns(c) for c in every}
    ratio = {c: peer_ns[c] / our_ns[c] for c in every}
    print(f"\n{'case':<13} {'libtorch ns':>12} {'mytorch ns':>12} {'ratio':>8}")
    for case in every:
        print(f"{case:<13} {peer_ns[case]:>12.1f} {our_ns[case]:>12.1f} {ratio[case]:>8.2f}")
    mean = math.exp(statistics.fmean(math.log(ratio[c]) for c in CASES))
    print(f"geometric mean of the {len(CASES)} ratios without {', '.join(APART_RATIOS)}: {mean:.2f}")
    if not check:
        return True

    bars = [("geometric mean", mean, ">=", MEAN_RATIO, "x")]
    bars += [(c, ratio[c], ">=", CASE_RATIO, "x") for c in CASES]
    bars += [(c, ratio[c], ">=", bar, "x") for c, bar in APART_RATIOS.items()]
    bars += [(c, our_ns[c], "<=", limit, " ns") for c, limit in LIMITS_NS.items()]
    print()
    all_pass = True
    for name, value, relation, bar, unit in bars:
        passed = value >= bar if relation == ">=" else value <= bar
        all_pass = all_pass and passed
        verdict = "PASS" if passed else "MISS"
        print(f"{verdict}  {name:<15} {value:>9.2f}{unit} {relation} {bar:g}{unit}")
    return all_pass


def mnist(folder):
    paths = collections.defaultdict(list)
    for path in sorted(folder.glob("*.t*.r*.json")):
        side, model, threads, _ = path.name.split(".", 3)
        paths[side, model, int(threads[1:])].append(path)
    runs = {key: Side(files) for key, files in paths.items()}
    models = sorted({model for _, model, _ in runs}, reverse=True)
    counts = sorted({threads for _, _, threads in runs})
    for (side, model, _), run in runs.items():
        if f"{model}_epoch" not in run.rounds:
            sys.exit(f"{side}: no case {model}_epoch")
    seconds = {key: run.ns(f"{key[1]}_epoch") / 1e9 for key, run in runs.items()}

    describe_peer(runs["peer", models[0], counts[0]].context)
    print(
        f"\n{'model':<6} {'threads':>7} {'libtorch s':>11} {'mytorch s':>11} {'ratio':>7}"
        "   test accuracy after one epoch: libtorch, mytorch"
    )
    for model in models:
        for threads in counts:
            peer, ours = (runs[side, model, threads] for side in ("peer", "ours"))
            peer_s, our_s = (seconds[side, model, threads] for side in ("peer", "ours"))
            accuracies = [side.first_accuracy(f"{model}_epoch") for side in (peer, ours)]
            print(
                f"{model:<6} {threads:>7} {peer_s:>11.3f} {our_s:>11.3f} {peer_s / our_s:>7.2f}"
                f"   {', '.join(accuracies)}"
            )
    for model in models:
        for threads in counts[1:]:
            gains = [
                f"{name} {seconds[side, model, 1] / seconds[side, model, threads]:.2f}x"
                for side, name in (("peer", "libtorch"), ("ours", "mytorch"))
            ]
            print(f"{model}, 1 -> {threads} threads: {', '.join(gains)}")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("table", choices=["overhead", "mnist"])
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--check", action="store_true")
    arguments = parser.parse_args()
    if arguments.table == "mnist":
        mnist(arguments.folder)
        return 0
    return 0 if overhead(arguments.folder, arguments.check) else 1


if __name__ == "__main__":
    sys.exit(main())
