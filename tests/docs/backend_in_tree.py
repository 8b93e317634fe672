"""Follows part (c) of docs/contributing.md: a backend in the tree is a folder and one line outside of it.

    python3 backend_in_tree.py MYTORCH      with the `mytorch` command

Makes a tree of links to the project with the template of `new-backend` as one of its backends, configures it, builds the
backend, and checks a kernel of it.
"""

import re
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
import processes

ROOT = Path(__file__).resolve().parents[2]
mytorch = Path(sys.argv[1]).resolve()


def run(*command: object) -> str:
    done = processes.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode != 0:
        sys.exit(f"{done.stdout}\nfailed: {' '.join(map(str, command))}")
    return done.stdout


def link(folder: Path, to: Path, but: set[str]) -> None:
    folder.mkdir()
    for path in to.iterdir():
        if path.name not in but:
            (folder / path.name).symlink_to(path)


with tempfile.TemporaryDirectory() as name:
    tree = Path(name) / "tree"
    link(tree, ROOT, {"build", ".git", "CMakeLists.txt", "backends"})
    link(tree / "backends", ROOT / "backends", set())

    mine = tree / "backends/newchip"
    mine.mkdir()
    template = (ROOT / "tools/new_backend/backend.cpp").read_text()
    (mine / "backend.cpp").write_text(template.replace("mt_backend_init", "MYTORCH_BACKEND_INIT"))
    (mine / "CMakeLists.txt").write_text("mytorch_backend(newchip backend.cpp)\n")
    lists, changed = re.subn(
        r"(set\(backends reference [^)]*)\)", r"\1 newchip)", (ROOT / "CMakeLists.txt").read_text()
    )
    assert changed == 1
    (tree / "CMakeLists.txt").write_text(lists)

    options = [
        "-DMYTORCH_BENCH=OFF",
        "-DMYTORCH_EXAMPLES=OFF",
        "-DMYTORCH_PRECOMPILE=OFF",
        "-DCMAKE_BUILD_TYPE=Release",
    ]
    run("cmake", "-S", tree, "-B", tree / "build", "-G", "Ninja", *options)
    run("cmake", "--build", tree / "build", "--target", "mytorch_backend_newchip")
    library = tree / "build/lib/mytorch/backends/mytorch_newchip.so"
    checked = run(mytorch, "check", library, "--quick", "--only", "bmm", "copy_")
    print(checked)
    for test in ["conformance.quick.newchip", "goldens.newchip", "fuzz.newchip"]:
        if test not in run("ctest", "--test-dir", tree / "build", "-N", "-R", "newchip"):
            sys.exit(f"there is no test {test}")
