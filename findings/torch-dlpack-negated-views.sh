#!/usr/bin/env bash
# PyTorch's DLPack export loses the sign of the imaginary part of a conjugate (torch 2.15.0, NumPy 2.4.6).
#
# Expected: `z.conj().imag` is a view that is negated when it is read (is_neg()). Its export is refused, as numpy()
# refuses it and as __dlpack__ itself refuses the lazy conjugate z.conj(); or it is computed first.
# Seen: __dlpack__ hands out the memory as it is, so that every consumer, torch.from_dlpack included, sees the values
# with the opposite sign. Nothing is said.
#
# Remedy: z.conj().imag.resolve_neg() before the export.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv venv
venv/bin/pip install --quiet --no-deps torch==2.15.0 numpy==2.4.6 sympy mpmath networkx jinja2 markupsafe filelock \
  typing_extensions fsspec nvidia-cufile nvidia-cusparselt-cu13 nvidia-nvshmem-cu13 nvidia-nccl-cu13
libraries=$(find venv/lib /usr/local/cuda/lib64 -maxdepth 5 -type d \( -path '*/nvidia/*/lib' -o -name lib64 \) 2>/dev/null | tr '\n' ':')
LD_LIBRARY_PATH=$libraries${LD_LIBRARY_PATH:-} venv/bin/python - <<'PYTHON'
import numpy as np
import torch

print("torch", torch.__version__, "numpy", np.__version__)
z = torch.tensor([1 + 2j, 3 - 4j])
x = z.conj().imag
assert x.is_neg() and x.tolist() == [-2, 4]
for what, call in {"numpy() of it": x.numpy, "the export of z.conj()": lambda: np.from_dlpack(z.conj())}.items():
    try:
        call()
        raise SystemExit(f"{what} is taken now")
    except (RuntimeError, BufferError) as error:
        print(f"{what}: {error}")
for consumer in (np, torch):
    found = consumer.from_dlpack(x).tolist()
    print(f"{consumer.__name__}.from_dlpack: {found}, which is {x.tolist()}")
    assert found == [2, -4], f"{consumer.__name__} has changed"
assert np.from_dlpack(x.resolve_neg()).tolist() == [-2, 4]
PYTHON
