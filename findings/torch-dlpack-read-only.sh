#!/usr/bin/env bash
# PyTorch writes memory that its producer has declared read-only (torch 2.15.0, NumPy 2.4.6).
#
# Expected: DLPack 1.0 has a flag for read-only memory, which NumPy sets for an array that is not writeable.
# torch.from_dlpack refuses such an array, warns as torch.from_numpy does, or copies it.
# Seen: the tensor is writable, and an in-place operation changes the array, whose own assignment raises. There is no
# warning. Without the flag (`max_version` before 1.0) NumPy refuses the export, so the new protocol is the one that
# lets it through. Memory that is mapped read-only would end the process at the first write.
#
# Remedy: torch.from_dlpack(array, copy=True), or torch.tensor(array).
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv venv
venv/bin/pip install --quiet --no-deps torch==2.15.0 numpy==2.4.6 sympy mpmath networkx jinja2 markupsafe filelock \
  typing_extensions fsspec nvidia-cufile nvidia-cusparselt-cu13 nvidia-nvshmem-cu13 nvidia-nccl-cu13
libraries=$(find venv/lib /usr/local/cuda/lib64 -maxdepth 5 -type d \( -path '*/nvidia/*/lib' -o -name lib64 \) 2>/dev/null | tr '\n' ':')
LD_LIBRARY_PATH=$libraries${LD_LIBRARY_PATH:-} venv/bin/python - <<'PYTHON'
import warnings

import numpy as np
import torch

print("torch", torch.__version__, "numpy", np.__version__)


def fixed():
    array = np.zeros(3)
    array.flags.writeable = False
    return array


try:
    fixed().__dlpack__()
    raise SystemExit("NumPy exports read-only arrays without the flag now")
except BufferError as error:
    print("without a version:", error)
with warnings.catch_warnings(record=True) as warned:
    warnings.simplefilter("always")
    torch.from_numpy(fixed())
    assert len(warned) == 1, "from_numpy does not warn any more"
    warned.clear()
    array = fixed()
    torch.from_dlpack(array).add_(1)
    print("the array after add_(1):", array, "warnings:", len(warned))
    assert array.tolist() == [1, 1, 1] and not warned, "this has changed"
copied = fixed()
torch.from_dlpack(copied, copy=True).add_(1)
assert copied.tolist() == [0, 0, 0]
PYTHON
