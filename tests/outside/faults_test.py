"""Tests that `mytorch check` and `mytorch fuzz` find faults of a backend.

    python3 faults_test.py MYTORCH FAULTY_SO

tests/outside/faulty.cpp is a backend with one of these faults at a time. For each fault, the check must fail
and name the contract test, or the operator and the case. Without a fault, the check must pass.
"""

import json
import os
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
import processes

# By fault: the contract test, or the operator and the check that must fail (None: any check).
CONTRACT = {
    "unordered-streams": "events",
    "leak": "leak",
    "early-synchronize": "stream-order",
    "early-event": "event-queries",
    "early-release": "released-in-use",
    "overcommit": "out-of-memory",
    "overlapping-blocks": "apart",
    "copied-words": "copies",
    "init-once": "init-twice",
    "any-major": "other-major",
    "unknown-schema": "kernels",
    "unknown-flag": "kernels",
}
OPERATORS = {
    "stride": ("gather", None),
    "alpha": ("add.Tensor", None),
    "promotion": ("div.Tensor", "functional"),
    "written-input": ("sqrt", "inputs"),
    "unwritten-output": ("fill_", None),
    "alias": ("mul.Tensor", "in-place"),
    "stride-order": ("sub.Tensor", "out= (strided)"),
    "random-counter": ("uniform_", "functional"),
    "null-output": ("mul.Tensor", "process"),
    "host-scalar": ("mul.Tensor", None),
    "broadcast": ("maximum", None),
    "reduce-tail": ("sum.dim_IntList", None),
    "lost-nan": ("amax", "functional"),
    "floor-divide": ("floor_divide", None),
    "error-code": ("gather", "error"),
    "swallowed-error": ("gather", "error"),
    "silent-failure": ("bmm", None),
    "bias": ("convolution", None),
    "padding": ("avg_pool2d", None),
    "descending": ("sort.stable", None),
    "lost-sum": ("scatter_add", None),
    "bool-copy": ("copy_", None),
    "negative-dim": ("cat", None),
    "crash": ("gather", "process"),
    "hang": ("cumsum", "process"),
    # Only of large operands.
    "one-element": ("maximum", "large"),
    "block-tail": ("sub.Tensor", "large"),
    "odd-sum": ("sum.dim_IntList", "large"),
    "odd-mean": ("mean.dim", "large"),
    "short-index": ("argmax", "large"),
    "rows-65536": ("cumsum", "large"),
    "deep-product": ("bmm", "large"),
    "deeper-product": ("bmm", "large"),
    "channel-32": ("convolution", "large"),
    "sorted-blocks": ("sort.stable", "large"),
    "wide-pool": ("avg_pool2d", "large"),
    # Only of special values in one operand.
    "hidden-nan": ("mul.Tensor", "special"),
    "skipped-zeros": ("bmm", "special"),
    "hidden-weight-nan": ("convolution", "special"),
    # Only of calls at the same time.
    "shared-buffer": ("cumsum", "threads"),
    "own-shared-buffer": ("npu::rms_norm", "threads"),
    # Faults in the backend's own operator, which has no reference.
    "own-unwritten": ("npu::rms_norm", None),
    "own-overrun": ("npu::rms_norm", "results"),
    "own-written-input": ("npu::rms_norm", "inputs"),
    "own-stride": ("npu::rms_norm", "transposed"),
    "own-state": ("npu::rms_norm", "again"),
    "own-gradient": ("npu::rms_norm", "gradcheck"),
}
# By fault: the operator, and the finding of `mytorch fuzz`.
FUZZED = {
    "crash": ("gather", "the process crashed: Segmentation fault"),
    "hang": ("cumsum", "the process did not end within 1 s"),
}
# The checks that `--stress` adds.
STRESS = {"large", "threads"}

mytorch, library = sys.argv[1:]


def check(fault: str, *arguments: str) -> tuple[int, dict, str]:
    with tempfile.NamedTemporaryFile(suffix=".json") as file:
        seconds = "1" if fault == "hang" else "60"
        ran = processes.run(
            [mytorch, "check", library, "--json", file.name, "--seconds", seconds, *arguments],
            env={**os.environ, "MYTORCH_FAULT": fault},
            capture_output=True,
            text=True,
        )
        text = open(file.name).read()
        return ran.returncode, json.loads(text) if text else {}, ran.stdout + ran.stderr


def of_contract(fault: str) -> str:
    status, found, said = check(fault, "--contract", CONTRACT[fault])
    broken = {test["test"] for test in found.get("contract", []) if not test["passed"]}
    if status == 0 or CONTRACT[fault] not in broken:
        return f"{fault}: not found by {CONTRACT[fault]}; found by {broken or 'no test'}\n{said}"
    return ""


def of_operator(fault: str) -> str:
    op, kind = OPERATORS[fault]
    status, found, said = check(fault, "--only", op, *(["--stress"] if kind in STRESS else []))
    named = [failure for row in found.get("ops", []) if row["op"] == op for failure in row["failures"]]
    if kind is not None:
        named = [failure for failure in named if failure["check"] == kind]
    if status == 0 or not any(failure["case"] >= 0 and op in failure["reproducer"] for failure in named):
        return f"{fault}: no case of {op} fails by '{kind or 'any'}'\n{said}"
    return ""


def of_fuzzer(fault: str) -> str:
    op, finding = FUZZED[fault]
    ran = processes.run(
        [mytorch, "fuzz", library, "--only", op, "--seed", "0", "--calls", "20", "--call-seconds", "1"],
        env={**os.environ, "MYTORCH_FAULT": fault},
        capture_output=True,
        text=True,
        errors="replace",
    )
    if ran.returncode == 0 or finding not in ran.stdout or f"{library} --seed 0 --first" not in ran.stdout:
        return f"{fault}: not found by `mytorch fuzz`\n{ran.stdout}{ran.stderr}"
    return ""


def sound(*arguments: str) -> str:
    """Checks the backend without a fault; returns the output if the check fails."""
    status, _, said = check("", *arguments)
    return f"(nothing is at fault)\n{said}" if status != 0 else ""


OPS = sorted({op for op, kind in OPERATORS.values() if kind not in STRESS})
STRESSED = sorted({op for op, kind in OPERATORS.values() if kind in STRESS})
with ThreadPoolExecutor(os.cpu_count()) as pool:
    # The longest first.
    jobs = [pool.submit(sound, "--stress", "--only", op) for op in STRESSED]
    jobs += [pool.submit(sound, "--only", *OPS), pool.submit(sound, "--contract")]
    jobs += [pool.submit(of_operator, fault) for fault in OPERATORS]
    jobs += [pool.submit(of_fuzzer, fault) for fault in FUZZED]
    failures = [job.result() for job in jobs]
# These faults are found by what is not over yet, so they run one after another.
failures += [of_contract(fault) for fault in CONTRACT]
failures = [text for text in failures if text]
for text in failures:
    print("NOT FOUND", text)
planted = len(CONTRACT) + len(OPERATORS) + len(FUZZED)
print(f"{planted - len(failures)} of {planted} faults found")
sys.exit(1 if failures else 0)
