"""Follows parts (a), (b) and (d) of docs/contributing.md: codegen takes record, samples and header, and the C++ compiles.

    python3 contributing.py COMPILER NVCC [FOLDER ...]

NVCC may be empty: the CUDA kernel is left out then. The folders are those of headers that the framework uses.
"""

import re
import shutil
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
import processes

ROOT = Path(__file__).resolve().parents[2]
ROOMS = ["abi", "core", "dispatcher", "autograd", "graph", "distributed", "nn", "nn/*", "text", "backends/sdk"]
compiler, nvcc, *folders = sys.argv[1:]

page = (ROOT / "docs/contributing.md").read_text()
blocks = {}
for indent, language, text in re.findall(r"^( *)```(\w+)\n((?:.*\n)*?) *```$", page, re.M):
    blocks.setdefault(language, []).append(re.sub(f"^{indent}", "", text, flags=re.M))


def block(language: str, part: str) -> str:
    """Returns the block of a language that contains a text."""
    (found,) = [text for text in blocks[language] if part in text]
    return found


def run(*command: object, cwd: Path | None = None) -> None:
    done = processes.run([str(part) for part in command], cwd=cwd, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{done.stdout}{done.stderr}\nfailed: {' '.join(map(str, command))}")


def append(path: Path, text: str) -> None:
    path.write_text(path.read_text() + "\n" + text)


def add_record(path: Path, family: str, text: str) -> None:
    """Adds a record at the end of the section of a family."""
    head, section, rest = re.split(rf"(# ==== {family}: .*\n)", path.read_text())
    records, *others = re.split(r"(?m)^(?=# ==== )", rest)
    path.write_text("".join([head, section, records, text, "\n", *others]))


with tempfile.TemporaryDirectory() as name:
    tree = Path(name)
    for path in ["ops.yaml", "abi/ops.lock", "abi/include/mytorch/abi.h", "ops/normalization/softmax.cpp"]:
        (tree / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / path, tree / path)
    for folder in ["codegen", "conformance", "bench"]:
        shutil.copytree(ROOT / folder, tree / folder, ignore=shutil.ignore_patterns("__pycache__", "tests", "*.cpp"))
    for path in [*ROOT.glob("*/*.py"), *ROOT.glob("backends/*/emit.py"), *ROOT.glob("nn/**/include/**/*.h")]:
        copy = tree / path.relative_to(ROOT)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, copy)

    header = tree / "nn/include/mytorch/nn/layer_scale.h"
    header.write_text(block("cpp", "class LayerScale "))

    row, vectors = block("yaml", "cbrt: {"), block("cpp", "NodeCbrt(")
    append(tree / "codegen/elementary.yaml", row)
    elementary = {
        "backends/reference/node_ops_float.cpp": ('    UNARY("erfc",', 'UNARY("cbrt", std::cbrt(a)),\n'),
        "backends/cuda/programs/node_ops.cuh": ("SAME_NAME(erfc)", "SAME_NAME(cbrt)\n"),
        "backends/cpu-openmp/simd/pow-inl.h": ("}  // namespace mytorch::simd::HWY_NAMESPACE", vectors),
    }
    for path, (before, text) in elementary.items():
        (tree / path).parent.mkdir(parents=True, exist_ok=True)
        (tree / path).write_text((ROOT / path).read_text().replace(before, text + before))

    add_record(tree / "ops.yaml", "pointwise", block("yaml", "- op: cube("))
    add_record(tree / "ops.yaml", "normalization", block("yaml", "- op: center("))
    append(tree / "conformance/samples/normalization.yaml", block("yaml", 'dim: 1}, error: "out of range"'))
    generate = ["-m", "codegen.generate", "--ops", "ops.yaml", "--lock", "abi/ops.lock"]
    run(sys.executable, *generate, "--lock-mode", "write", cwd=tree)
    run(sys.executable, *generate, "--out", "generated", cwd=tree)

    include = [f"-I{tree}"]
    include += [f"-I{tree}/generated/{folder}" for folder in ["include", "private", "backend/include"]]
    for folder in set(folders) - {"/usr/include"}:
        include += ["-isystem", folder]
    include += [f"-I{ROOT}", *[f"-I{folder}" for room in ROOMS for folder in ROOT.glob(f"{room}/include")]]
    check = [compiler, "-std=c++20", "-fsyntax-only", "-Wall", "-Wextra", "-Wno-unused-parameter", "-Werror", *include]

    meaning = block("cpp", "TensorSpec center(").split("\n\n", 1)
    source = (tree / "ops/normalization/softmax.cpp").read_text()
    (tree / "meaning.cpp").write_text(f"{meaning[0]}\n{source}\nnamespace mytorch {{\n{meaning[1]}}}\n")
    run(*check, tree / "meaning.cpp")

    module = block("cpp", '#include "mytorch/nn/layer_scale.h"')
    builder = "mytorch::nn::LayerScale made = mytorch::nn::LayerScaleOptions(8).init(1e-4);"
    (tree / "module.cpp").write_text(
        f'#include "mytorch/nn.h"\n{module}\nmytorch::nn::LayerScaleImpl a(8);\n{builder}\n'
    )
    run(*check, f"-I{tree}/nn/include", tree / "module.cpp")

    run(*check, tree / "backends/reference/node_ops_float.cpp")
    (loops,) = [path for path in (tree / "generated/cpu").glob("*.cpp") if "NodeCbrt(" in path.read_text()]
    run(*check, f"-I{tree}/generated", loops)
    run(*check, "-Wno-unknown-pragmas", f"-I{tree}/generated", ROOT / "tests/backends/cuda/programs/node_ops_test.cpp")

    for backend, kind in [("cpu-openmp", "cpp"), ("cuda", "cu")]:
        registry = f"backends/{backend}/registry.h"
        (tree / registry).parent.mkdir(parents=True, exist_ok=True)
        text = (ROOT / registry).read_text()
        (tree / registry).write_text(re.sub(r"(_FILES\(FILE\))( *\\\n)", r"\1 FILE(center)\2", text, count=1))
        (tree / f"center.{kind}").write_text(block("cpp", registry))
    run(*check, tree / "center.cpp")
    if nvcc:
        flags = ["-std=c++20", "--expt-relaxed-constexpr", "-ptx", "-arch=compute_90", "-o", tree / "center.ptx"]
        run(nvcc, *flags, *include, tree / "center.cu")
