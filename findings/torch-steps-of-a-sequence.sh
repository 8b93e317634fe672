#!/usr/bin/env bash
# Backward of a loop over x[t], or with out[t] = h, is quadratic in the number of steps in PyTorch (torch 2.15.0).
#
# Expected: a view costs nothing, so reading a sequence step by step, as recurrent cells and decoders are written by
# hand, takes backward time in proportion to the sequence, as forward does.
# Seen: the gradient of each step is a tensor of zeros of the size of the whole sequence with the step in it, and all of
# them are added; each write in place clones the gradient of the whole. So 512 steps make 512 tensors of the whole
# sequence. unbind makes none: its gradient stacks those of the steps.
#
# Remedy: `for step in x.unbind(0)`, and torch.stack of a list in place of out[t] = h.
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
from torch.utils._python_dispatch import TorchDispatchMode


class WholeTensors(TorchDispatchMode):
    """Counts operators that fill, or copy, a tensor of the size of the whole sequence."""

    def __init__(self, size):
        super().__init__()
        self.size = size
        self.count = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        makes = func._schema.name.split("::")[1] in ("select_backward", "new_empty_strided", "clone", "add", "stack")
        if makes and isinstance(result, torch.Tensor) and result.numel() == self.size:
            self.count += 1
        return result


def whole_tensors(steps, how):
    x = torch.rand(steps, 8, requires_grad=True)
    out = torch.zeros(steps, 8)
    h = torch.zeros(8)
    parts = x.unbind(0) if how == "unbind" else None
    for t in range(steps):
        h = h * 0.5 + (parts[t] if how == "unbind" else x[t])
        if how == "written":
            out[t] = h
    loss = (out if how == "written" else h).sum()
    with WholeTensors(steps * 8) as seen:
        loss.backward()
    return seen.count


print("torch", torch.__version__)
for how in ("read", "written", "unbind"):
    few, many = whole_tensors(64, how), whole_tensors(512, how)
    print(f"{how}: {few} tensors of the whole for 64 steps, {many} for 512")
    if how == "unbind":
        assert many <= 2, "the gradient of unbind has changed"
    else:
        assert few >= 64 and many >= 512, "backward is no longer quadratic"
PYTHON
