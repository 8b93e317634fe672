"""Configures and begins to build a copy of the tree in a folder with an awkward name.

    python3 path_test.py ROOT CMAKE CXX

The path contains the names of folders of generated sources, a space and a plus sign. Tests that each generated source
is compiled once, by the room that it was generated for, and that the smallest source of each room compiles.
"""

import json
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
import processes

ROOMS = {"src": "mytorch_(ops|tables)", "autograd": "mytorch_wrappers", "cpu": "mytorch_backend_cpu_openmp_objects"}


def output_of(command: str) -> str:
    words = shlex.split(command)
    return words[words.index("-o") + 1]


root, cmake, cxx = sys.argv[1:]
with tempfile.TemporaryDirectory() as temporary:
    tree = Path(temporary, "src", "autograd", "cpu", "my torch+")
    shutil.copytree(root, tree, ignore=shutil.ignore_patterns("build", ".git", "__pycache__", "dist", ".cache"))
    build = tree / "build"
    off = [f"-DMYTORCH_{option}=OFF" for option in ("TESTS", "BENCH", "EXAMPLES", "PRECOMPILE", "TOGETHER")]
    configure = [cmake, "-G", "Ninja", "-S", str(tree), "-B", str(build), f"-DCMAKE_CXX_COMPILER={cxx}", *off]
    processes.run(configure, check=True, stdout=subprocess.DEVNULL)
    commands = json.loads((build / "compile_commands.json").read_text())
    objects = [(Path(c["file"]), output_of(c["command"])) for c in commands]
    targets = []
    for folder, room in ROOMS.items():
        sources = sorted((build / "generated" / folder).glob("*.cpp"), key=lambda path: path.stat().st_size)
        assert sources, f"nothing was generated in {folder}"
        for source in sources:
            made = [output for file, output in objects if file == source]
            assert len(made) == 1 and re.search(f"\\b{room}\\.dir/", made[0]), f"{source} is compiled as {made}"
        targets += [output for file, output in objects if file == sources[0]]
    targets += [output for file, output in objects if file == tree / "core" / "types" / "dtype.cpp"]
    assert len(targets) == len(ROOMS) + 1, targets
    processes.run([cmake, "--build", str(build), "--target", *targets, "--", "--quiet"], check=True)
print(f"{len(targets)} sources compiled in {tree.name!r}")
