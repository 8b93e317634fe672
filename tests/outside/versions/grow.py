"""Generates an operator of an earlier release, and the same operator with a new argument.

    python3 grow.py ROOT FOLDER

FOLDER/old has the headers of the earlier release, for a plug-in. FOLDER/new has the current function and table row of
the operator, which a program registers. The generator of ops.yaml writes both, with one ops.lock. Prints the sources of
FOLDER/new, one per line.
"""

import re
import shutil
import sys
from pathlib import Path

root, folder = map(Path, sys.argv[1:3])
sys.path.insert(0, str(root))

from codegen import emit_abi, emit_api, emit_stubs, emit_table  # noqa: E402
from codegen.generate import write_all  # noqa: E402
from codegen.lock import check_and_update  # noqa: E402
from codegen.records import load  # noqa: E402

RECORD = """
- op: outside_scale(Tensor self, *, {}) -> Tensor
  doc: A number times a tensor.
  pointwise: {}
  grad: none
"""
# The header determines the version of the release.
(folder / "include/mytorch").mkdir(parents=True, exist_ok=True)
shutil.copy(root / "abi/include/mytorch/abi.h", folder / "include/mytorch/abi.h")
lock_file = folder / "ops.lock"
lock_file.unlink(missing_ok=True)
for name, arguments, body in (
    ("old", "Scalar by=2", "self * by"),
    ("new", "Scalar by=2, Scalar plus=0", "self * by + plus"),
):
    (folder / f"{name}.yaml").write_text(RECORD.format(arguments, body))
    ops = load(str(folder / f"{name}.yaml"))
    lock = check_and_update(ops, lock_file, mode="write")
    files = emit_abi.emit(ops, lock)
    if name == "new":
        for module in (emit_api, emit_stubs, emit_table):
            files |= module.emit(ops, lock)
    # Keeps the files for this operator; libmytorch has the rest.
    mine = re.compile(r"/(outside_scale\.h|operators(_\d+)?\.h|(ops|table)_\d+\.cpp)$")
    files = {path: text for path, text in files.items() if mine.search(path)}
    write_all(files, folder / name)
for path in sorted(files):
    if path.endswith(".cpp"):
        print(folder / "new" / path)
