"""The autocast policies of records that do not state one.

The lists have the operators whose policy does not follow from their kind. They agree with PyTorch's for CUDA, and hold
on every device.
"""

from __future__ import annotations

from codegen.model import Op

_LOWER = set("matmul mv einsum linear_gelu scaled_dot_product_attention".split())
# Functions that leave the range of float16 or lose digits near 0 or 1, and everything that adds many terms.
_FLOAT32 = set(
    "acos asin cosh erfinv exp expm1 log log10 log2 log1p reciprocal rsqrt sinh tan pow softplus "
    "square softmax log_softmax logsumexp cumsum cumprod prod sum norm linalg_vector_norm "
    "layer_norm native_layer_norm rms_norm native_rms_norm group_norm native_group_norm "
    "add_layer_norm native_add_layer_norm add_rms_norm native_add_rms_norm "
    "cross_entropy cross_entropy_forward nll_loss_forward kl_div binary_cross_entropy "
    "binary_cross_entropy_with_logits cosine_similarity cdist pdist".split()
)
# Operators whose operands must agree in type and do not promote, and those that PyTorch widens.
_WIDEST = set(
    "cat stack hstack vstack dot tensordot atan2 addcmul addcdiv scatter_add index_put bilinear cross".split()
)


def default_policy(op: Op) -> str:
    """Returns the policy that follows from the operator's kind and name."""
    name = op.schema.name
    if op.derived or op.schema.mutates or op.meaning == "view" or "_backward" in name:
        return "none"
    if name in _FLOAT32 or name.endswith("_loss") or name.startswith("upsample_"):
        return "float32"
    if name in _WIDEST:
        return "widest"
    product = op.meaning in ("primitive", "composite") and "flops" in op.cost
    return "lower" if product or name in _LOWER or name.startswith("conv") and name != "constant_pad_nd" else "none"


def is_masked(op: Op) -> bool:
    """Returns whether the operators that a call decomposes into run without autocast: those of an operator with a
    policy, a gradient or a kernel of its own, and of one that writes."""
    if op.autocast != "none":
        return True
    return op.meaning == "composite" and (op.kernel_optional or op.grad.kind == "formulas" or op.schema.mutates)
