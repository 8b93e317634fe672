#!/usr/bin/env python3
"""Tests that `mytorch check` finds wrong kernels.

    python3 tests/mutation/kernels.py [--build build/release] [--count 300] [--seed 0] [--skip 0] [--until N]
                                      [--jobs 2]

Makes random mutants of the kernels of examples/backend-npu: operators exchanged, comparisons flipped, constants
changed by one, conditions negated, statements dropped, indices off by one, strides ignored. Compiles the mutated file,
links it with the others, and runs `mytorch check` on the operators that the mutated function serves. A mutant that
passes has survived, unless EQUIVALENT says why it computes the same. Prints survivors with their change, and the share
that was found. The exit status is 1 if it is below 98 %.

--skip and --until choose mutants by their number in the seed's order, so that several runs share the work.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from equivalent import EQUIVALENT

ROOT = Path(__file__).resolve().parent.parent.parent
FOLDER = ROOT / "examples" / "backend-npu"
BAR = 0.98

# By file and function (or struct): the operators that show whether it is correct.
COPIES = ["copy_", "to.dtype"]
PROGRAMS = ["add.Tensor", "div.Tensor_mode", "where.self", "clamp", "bitwise_and.Tensor", "logical_xor", "addcmul"]
REDUCTIONS = [
    "sum.dim_IntList", "prod.dim_int", "amax", "amin", "argmax", "argmin", "all.dims", "any.dims", "var.correction",
    "logsumexp", "mean.dim",
]  # fmt: skip
SERVES = {
    "kernels.cpp": {
        "convert_into": COPIES,
        "copy_": COPIES,
        "fill_": ["fill_"],
        "arange": ["arange.start_step"],
        "fill_randomly": ["uniform_", "normal_", "random_.from"],
        "fill_with_floats": ["uniform_", "normal_"],
        "uniform_": ["uniform_"],
        "normal_": ["normal_"],
        "random_": ["random_.from"],
        "bmm": ["bmm"],
        "Along": ["cat", "cumsum", "sort.stable"],
        "cat": ["cat"],
        "cumsum": ["cumsum"],
        "sort": ["sort.stable"],
        "for_each_index": ["gather", "scatter.src", "scatter_add"],
        "gather": ["gather"],
        "scatter_with": ["scatter.src", "scatter_add"],
        "scatter": ["scatter.src"],
        "scatter_add": ["scatter_add"],
        "nonzero": ["nonzero"],
    },
    "windows.cpp": {
        "for_each_term": ["convolution", "convolution_backward_input", "convolution_backward_weight"],
        "convolution": ["convolution", "convolution_backward_input", "convolution_backward_weight"],
        "Planes": ["max_pool2d_with_indices", "avg_pool2d", "avg_pool2d_backward"],
        "max_pool": ["max_pool2d_with_indices"],
        "max_pool_gradient": ["max_pool2d_with_indices_backward"],
        "AverageWindows": ["avg_pool2d", "avg_pool2d_backward"],
        "avg_pool": ["avg_pool2d"],
        "avg_pool_gradient": ["avg_pool2d_backward"],
    },
    "program.cpp": {
        "kind_of": PROGRAMS + REDUCTIONS,
        "Body": PROGRAMS + REDUCTIONS,
        "Inputs": PROGRAMS + REDUCTIONS,
        "Evaluation": PROGRAMS + REDUCTIONS,
        "Outputs": PROGRAMS + ["mul_grad.Tensor"],
        "Offsets": PROGRAMS + REDUCTIONS,
        "Pointwise": PROGRAMS,
        "Fold": REDUCTIONS,
        "Reduce": REDUCTIONS,
        "run_pointwise": PROGRAMS,
        "run_reduce": REDUCTIONS,
    },
    # The operators whose bodies have the node: found in ops.json. These functions serve several nodes.
    "node_ops.cpp": {
        "floor_divide": ["floor_divide"],
        "trunc_divide": ["div.Tensor_mode"],
        "remainder": ["remainder.Tensor"],
        "maximum": ["maximum"],
        "minimum": ["minimum"],
        "sigmoid": ["sigmoid"],
        "add": ["add.Tensor"],
        "sub": ["sub.Tensor"],
        "mul": ["mul.Tensor"],
        "quotient": ["floor_divide", "div.Tensor_mode"],
        "modulo": ["remainder.Tensor", "fmod.Tensor"],
        "apart": ["remainder.Tensor", "floor_divide"],
        "power": ["pow.Tensor_Tensor"],
        "shift_left": ["bitwise_left_shift.Tensor"],
        "shift_right": ["bitwise_right_shift.Tensor"],
        "wrap": PROGRAMS + ["sum.dim_IntList", "mul.Tensor"],
    },
}

EXCHANGED = {
    " + ": [" - "],
    " - ": [" + "],
    " * ": [" + ", " / "],
    "* ": [" + "],  # as clang-format writes products in macros
    " / ": [" * "],
    " % ": [" / "],
    " += ": [" -= ", " = "],
    " -= ": [" += "],
    " *= ": [" += "],
    " /= ": [" *= "],
    " && ": [" || "],
    " || ": [" && "],
    " << ": [" >> "],
    " >> ": [" << "],
    " < ": [" <= ", " > "],
    " <= ": [" < ", " >= "],
    " > ": [" >= ", " < "],
    " >= ": [" > ", " <= "],
    " == ": [" != "],
    " != ": [" == "],
    "std::min(": ["std::max("],
    "std::max(": ["std::min("],
    "std::floor(": ["std::ceil("],
    "std::ceil(": ["std::floor("],
    "plus(": ["times("],
    "times(": ["plus("],
    "add(": ["sub("],
    "sub(": ["add("],
    "true": ["false"],
    "false": ["true"],
    "!(": ["("],
    "!std::": ["std::"],
}
STRIDES = (("to.strides", "to.shape"), ("output.strides", "output.shape"))
HELPER = (
    "[[maybe_unused]] static npu::Sizes dense(const npu::Sizes& shape) { npu::Sizes strides(shape.size(), 1);"
    " for (size_t d = shape.size(); d-- > 1;) strides[d - 1] = strides[d] * shape[d]; return strides; }\n"
)


class Mutant:
    def __init__(self, file: str, line: int, old: str, new: str, where: str, ops: list[str]):
        self.file, self.line, self.old, self.new, self.where, self.ops = file, line, old, new, where, ops

    def key(self) -> tuple[str, str, str]:
        return self.file, self.old.strip(), self.new.strip()

    def __str__(self) -> str:
        return f"{self.file}:{self.line + 1} in {self.where}\n    - {self.old.strip()}\n    + {self.new.strip()}"


def owners(lines: list[str], names: dict) -> list[str]:
    """Returns the function or struct that each line belongs to, "" for others."""
    found, current = [], ""
    for line in lines:
        start = re.match(r"(?:template|inline )?(?:struct|class|[\w:&<>\*, ]+?) ?\**&?(\w+)(?: \{|\(.*)$", line)
        if start and not line.startswith((" ", "}", "#", "//", "template", "using", "namespace", "constexpr ")):
            current = start.group(1) if start.group(1) in names else ""
        found.append(current)
        if line.startswith("}"):
            current = ""
    return found


def changes_of(line: str) -> set[str]:
    """Returns the line with each single change."""
    code = line.split("//")[0]
    tail = line[len(code) :]
    found = set()

    def put(begin: int, end: int, text: str) -> None:
        found.add(code[:begin] + text + code[end:] + tail)

    texts = [m.span() for m in re.finditer(r'"[^"]*"', code)]
    inside = lambda at: any(a <= at < b for a, b in texts)  # noqa: E731
    for old, news in EXCHANGED.items():
        for match in re.finditer(re.escape(old), code):
            before = code[: match.start()]
            if inside(match.start()) or old[0].isalpha() and re.search(r"[\w.]$", before):
                continue
            for new in news:
                put(match.start(), match.end(), new)
    for match in re.finditer(r"(?<![\w.<\"])(\d+)(?:\.0)?(?![\w.>\"])", code):
        if not inside(match.start()):
            put(match.start(1), match.end(1), str(int(match.group(1)) + 1))
            if int(match.group(1)) > 0:
                put(match.start(1), match.end(1), str(int(match.group(1)) - 1))
    for match in re.finditer(r"\[([^\[\]&=]+)\]", code):
        if not inside(match.start()) and not code[match.end() :].startswith(("(", " {")) and match.start() > 0:
            if re.search(r"[\w)\]]$", code[: match.start()]):
                put(match.start(1), match.end(1), match.group(1) + " + 1")
    for match in re.finditer(r"\bif \(", code):
        depth, end = 1, match.end()
        while end < len(code) and depth:
            depth += {"(": 1, ")": -1}.get(code[end], 0)
            end += 1
        if depth == 0 and "constexpr" not in code[: match.start() + 14]:
            put(match.end(), end - 1, "!(" + code[match.end() : end - 1] + ")")
    for strides, shape in STRIDES:
        for match in re.finditer(re.escape(strides) + r"(?=[,}])", code):
            put(match.start(), match.end(), f"dense({shape})")
    for match in re.finditer(r"(\w+)\.strides_in\((\w+(?:\.\w+)?)\)", code):
        put(match.start(), match.end(), f"dense({match.group(2)})")
    statement = code.strip()
    if statement.endswith(";") and not re.match(
        r"(const|auto|return|using|struct|int|bool|double|std::\S+ \w|\w+(<.*>)? \w+( =|\(|;|\{)|throw|static|size_t|case|default)",
        statement,
    ):
        if re.match(r"[\w\[\]().:*>\-]+( [+\-*/]?= |\(|\+\+|--)|\+\+|continue;|write|if \(", statement):
            put(len(code) - len(code.lstrip()), len(code.rstrip()), ";")
    found.discard(line)
    return found


def nodes_of(line: str, records: list[dict]) -> list[str]:
    """Returns operators that evaluate the node of a line `{"floor", ...}`."""
    match = re.match(r'\s*\{"(\w+)",', line)
    if match is None:
        return []
    having = [r for r in records if match.group(1) in r["nodes"] and r["meaning"] == "pointwise" and not r["derived"]]
    return [r["name"] for r in sorted(having, key=lambda r: (len(r["nodes"]), r["name"]))[:2]]


def all_mutants(records: list[dict]) -> list[Mutant]:
    found = []
    for file, names in SERVES.items():
        lines = (FOLDER / file).read_text().split("\n")
        node_ops: list[str] = []
        for number, (line, owner) in enumerate(zip(lines, owners(lines, names))):
            ops = names.get(owner, [])
            if file == "node_ops.cpp" and not owner:
                node_ops = nodes_of(line, records) or (node_ops if line.startswith("     ") else [])
                ops, owner = node_ops, "kEntries"
            if not ops or line.strip().startswith(("//", "#", "template")):
                continue
            found += [Mutant(file, number, line, new, owner, ops) for new in sorted(changes_of(line))]
    return found


class Builder:
    """Compiles mutants and checks them."""

    def __init__(self, build: Path):
        self.build = build
        self.mytorch = build / "bin" / "mytorch"
        include = [FOLDER, ROOT / "backends/sdk/include", ROOT / "abi/include", build / "generated/backend/include"]
        self.compiler = os.environ.get("CXX", "g++")
        self.flags = ["-std=c++20", "-O1", "-fPIC", "-w", "-fvisibility=hidden", *(f"-I{path}" for path in include)]
        self.folder = Path(tempfile.mkdtemp(prefix="mutants."))
        self.objects = {path.name: self.folder / (path.stem + ".o") for path in FOLDER.glob("*.cpp")}

    def compile(self, source: Path, to: Path) -> bool:
        return subprocess.run([self.compiler, *self.flags, "-c", source, "-o", to], capture_output=True).returncode == 0

    def prepare(self, pool: ThreadPoolExecutor) -> None:
        done = pool.map(lambda name: self.compile(FOLDER / name, self.objects[name]), self.objects)
        if not all(done):
            sys.exit("the unchanged backend does not compile")

    def library(self, place: Path, mutant: Mutant) -> Path | None:
        lines = (FOLDER / mutant.file).read_text().split("\n")
        lines[mutant.line] = mutant.new
        last = max(i for i, line in enumerate(lines) if line.startswith("#include"))
        lines.insert(last + 1, '#include "operand.h"\n' + HELPER)
        source, changed = place / mutant.file, place / "mutant.o"
        source.write_text("\n".join(lines))
        if not self.compile(source, changed):
            return None
        objects = [path for name, path in self.objects.items() if name != mutant.file]
        library = place / "npu.so"
        linked = subprocess.run(
            [self.compiler, "-shared", "-o", library, changed, *objects, "-lpthread"], capture_output=True
        )
        return library if linked.returncode == 0 else None

    def is_found(self, library: Path, ops: list[str]) -> bool:
        """Runs the check until its first failure."""
        command = [self.mytorch, "check", library, "--only", *ops, "--no-fallback", "--stress", "--seconds", "20"]
        with open(library.parent / "errors", "w") as errors:
            ran = subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=errors, text=True, errors="replace", start_new_session=True
            )
            for line in ran.stdout:
                if line.startswith("FAIL"):
                    os.killpg(ran.pid, signal.SIGKILL)
                    ran.wait()
                    return True
            return ran.wait() != 0


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", type=Path, default=ROOT / "build/release")
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--skip", type=int, default=0)
    parser.add_argument("--until", type=int)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--only", help="only functions of this name")
    given = parser.parse_args()
    records = json.loads((given.build / "generated/share/ops.json").read_text())
    known = {record["name"] for record in records}
    for names in SERVES.values():
        for ops in names.values():
            assert known.issuperset(ops), sorted(set(ops) - known)
    mutants = [m for m in all_mutants(records) if given.only in (None, m.where)]
    random.Random(given.seed).shuffle(mutants)
    print(f"{len(mutants)} possible mutants, seed {given.seed}, from number {given.skip}", flush=True)
    builder = Builder(given.build)
    counts = {"found": 0, "survived": 0, "equivalent": 0, "does not compile": 0}
    survivors: list[str] = []
    lock = threading.Lock()
    left = iter(list(enumerate(mutants))[given.skip : given.until])

    def work(_: int) -> None:
        while True:
            with lock:
                number, mutant = next(left, (0, None))
                if mutant is None or counts["found"] + counts["survived"] >= given.count:
                    return
            if mutant.key() in EQUIVALENT:
                result = "equivalent"
            else:
                place = builder.folder / str(number)
                place.mkdir()
                library = builder.library(place, mutant)
                found = library is not None and builder.is_found(library, mutant.ops)
                result = "does not compile" if library is None else "found" if found else "survived"
                shutil.rmtree(place)
            with lock:
                counts[result] += 1
                print(f"number {number}: {result}", flush=True)
                if result == "survived":
                    survivors.append(f"number {number}: {mutant}\n    {' '.join(mutant.ops)}")
                    print("SURVIVED", survivors[-1], flush=True)

    try:
        with ThreadPoolExecutor(given.jobs) as pool:
            builder.prepare(pool)
            for job in [pool.submit(work, i) for i in range(given.jobs)]:
                job.result()
    finally:
        shutil.rmtree(builder.folder)
    total = counts["found"] + counts["survived"]
    share = counts["found"] / max(total, 1)
    print(", ".join(f"{number} {what}" for what, number in counts.items()))
    print(f"{100 * share:.1f} % of {total} mutants found")
    return 0 if total > 0 and share >= BAR else 1


if __name__ == "__main__":
    sys.exit(main())
