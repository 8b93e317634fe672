#!/usr/bin/env bash
# PyTorch compares tensors of small integers with numbers modulo 256 (torch 2.15.0).
#
# Expected: a number that uint8 does not have is compared as it is, as NumPy 2 does and as PyTorch's own clamp and its
# comparison with an int64 tensor of one dimension do; or it is refused, as fill_, full and masked_fill refuse 300.
# Seen: `x < 300` is false for 200, since 300 becomes 44; `x > -1` is false for all, `x == 256` true for 0. A 0-dim
# tensor counts as a number here: `x < torch.tensor(300)` is as wrong. So a mask such as `image > threshold` is wrong
# without a word once a computed threshold leaves [0, 255].
#
# Remedy: x.to(torch.int64) < 300, or a threshold of one dimension, torch.tensor([300]).
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv venv
venv/bin/pip install --quiet --no-deps torch==2.15.0 numpy sympy mpmath networkx jinja2 markupsafe filelock \
  typing_extensions fsspec nvidia-cufile nvidia-cusparselt-cu13 nvidia-nvshmem-cu13 nvidia-nccl-cu13
libraries=$(find venv/lib /usr/local/cuda/lib64 -maxdepth 5 -type d \( -path '*/nvidia/*/lib' -o -name lib64 \) 2>/dev/null | tr '\n' ':')
LD_LIBRARY_PATH=$libraries${LD_LIBRARY_PATH:-} venv/bin/python - <<'PYTHON'
import torch

print("torch", torch.__version__)
x = torch.tensor([0, 1, 200, 255], dtype=torch.uint8)
assert x.clamp(-1, 300).tolist() == [0, 1, 200, 255]
assert (x < torch.tensor([300])).tolist() == [True] * 4
seen = {
    "x < 300": (x < 300, [True, True, False, False]),
    "x < torch.tensor(300)": (x < torch.tensor(300), [True, True, False, False]),
    "x > -1": (x > -1, [False] * 4),
    "x == 256": (x == 256, [True, False, False, False]),
}
for what, (found, known) in seen.items():
    print(what, found.tolist())
    assert found.tolist() == known, f"{what} has changed"
try:
    x.clone().fill_(300)
    raise SystemExit("fill_(300) is taken now")
except RuntimeError as error:
    print("fill_(300):", error)
PYTHON
