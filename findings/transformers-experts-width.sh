#!/usr/bin/env bash
# A model with experts runs in transformers only if the rows of its experts' weights have a multiple of 16 bytes
# (transformers 5.24.0, torch 2.15.0, on the CPU).
#
# Expected: any width runs, as it does without experts, and as a model does whose experts are computed one after the other.
# Seen: the implementation that is chosen by default calls torch's grouped product, which refuses rows of other sizes,
# "strides should be multiple of 16 bytes": 6 features in float32, 12 in bfloat16. So a tiny model, as tests of other
# programs compare with, fails in one type and runs in another.
#
# Remedy: model.set_experts_implementation("eager"), or widths that are multiples of 8.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv venv
venv/bin/pip install --quiet --no-deps torch==2.15.0 numpy sympy mpmath networkx jinja2 markupsafe filelock \
  typing_extensions fsspec nvidia-cufile nvidia-cusparselt-cu13 nvidia-nvshmem-cu13 nvidia-nccl-cu13
venv/bin/pip install --quiet transformers==5.24.0
libraries=$(find venv/lib /usr/local/cuda/lib64 -maxdepth 5 -type d \( -path '*/nvidia/*/lib' -o -name lib64 \) 2>/dev/null | tr '\n' ':')
LD_LIBRARY_PATH=$libraries${LD_LIBRARY_PATH:-} venv/bin/python - <<'PYTHON'
import torch
import transformers
from transformers import MixtralConfig, MixtralForCausalLM

print("torch", torch.__version__, "transformers", transformers.__version__)


def runs(width: int, hidden: int, dtype: torch.dtype, eager: bool) -> bool:
    sizes = {"hidden_size": width, "intermediate_size": hidden, "vocab_size": 16, "num_hidden_layers": 1}
    heads = {"num_attention_heads": 2, "num_key_value_heads": 2}
    model = MixtralForCausalLM(MixtralConfig(**sizes, **heads, num_local_experts=4, num_experts_per_tok=2)).to(dtype)
    if eager:
        model.set_experts_implementation("eager")
    try:
        model(torch.arange(8)[None])
        return True
    except RuntimeError as error:
        print(f"{width} x {hidden}, {dtype}: {error}")
        return False


for width, hidden, dtype, known in [
    (16, 16, torch.float32, True),
    (12, 8, torch.float32, True),
    (16, 6, torch.float32, False),
    (12, 8, torch.bfloat16, False),
]:
    assert runs(width, hidden, dtype, eager=True)
    assert runs(width, hidden, dtype, eager=False) == known, f"{width} x {hidden}, {dtype} has changed"
PYTHON
