"""Where PyTorch's public names are: the operator's name, and its arguments where they differ.

A name that is not listed is the record of the same name; a prefix such as `linalg.` becomes `linalg_`."""

from __future__ import annotations

import torch

PREFIXES = {"linalg.": "linalg_", "special.": "special_", "fft.": "fft_", "signal.windows.": "signal_windows_"}


def given(args, named, *names) -> dict:
    """Returns the arguments by name."""
    return {**dict(zip(names, args)), **named}


def to_type(dtype: torch.dtype):
    return lambda args, named: ("to", [args[0], dtype], {})


def swapped(op: str):
    return lambda args, named: (op, [args[1], args[0], *args[2:]], named)


def listed(op: str, *results):
    """PyTorch takes tensors one by one, the operator a list."""

    def adapt(args, named):
        return op, [list(args[0] if len(args) == 1 and isinstance(args[0], (list, tuple)) else args)], named

    return adapt


def at_least(op: str):
    def adapt(args, named):
        return listed(op)(args, named) if len(args) > 1 or isinstance(args[0], (list, tuple)) else (op, args, named)

    return adapt


def each(value, count: int) -> list:
    return [value] * count if isinstance(value, int) else list(value)


def unpool(dims: int):
    def adapt(args, named):
        g = given(args, named, "input", "indices", "kernel_size", "stride", "padding", "output_size")
        kernel = each(g["kernel_size"], dims)
        stride = each(g["stride"], dims) if g.get("stride") else kernel
        padding = each(g.get("padding", 0), dims)
        size = g.get("output_size")
        if size is None:
            shape = g["input"].shape[-dims:]
            size = [(n - 1) * s - 2 * p + k for n, s, p, k in zip(shape, stride, padding, kernel)]
        rest = [stride, padding] if dims == 3 else []
        return f"max_unpool{dims}d", [g["input"], g["indices"], list(size)[-dims:], *rest], {}

    return adapt


def max_pool(dims: int):
    def adapt(args, named):
        g = given(args, named, "input", "kernel_size", "stride", "padding", "dilation", "ceil_mode", "return_indices")
        op = f"max_pool{dims}d" + ("_with_indices" if g.pop("return_indices", False) else "")
        rest = {k: v for k, v in g.items() if k not in ("input", "kernel_size") and v is not None}
        return op, [g["input"], g["kernel_size"]], rest

    return adapt


def adaptive(op: str, dims: int):
    """A size that is None is that of the input."""

    def adapt(args, named):
        g = given(args, named, "input", "output_size", "return_indices")
        size = g["output_size"]
        shape = g["input"].shape[-dims:]
        sizes = [
            n if n is not None else m for n, m in zip(each(size, dims) if size is not None else [None] * dims, shape)
        ]
        return op, [g["input"], sizes], {}

    return adapt


def fractional(dims: int):
    def adapt(args, named):
        g = given(
            args, named, "input", "kernel_size", "output_size", "output_ratio", "return_indices", "_random_samples"
        )
        x, size = g["input"], g.get("output_size")
        if size is None:
            ratio = g["output_ratio"]
            ratios = [ratio] * dims if isinstance(ratio, float) else list(ratio)
            size = [int(n * r) for n, r in zip(x.shape[-dims:], ratios)]
        samples = g.get("_random_samples")
        if samples is None:
            batched = x.dim() == dims + 2
            samples = torch.rand(x.shape[0] if batched else 1, x.shape[-dims - 1], dims, dtype=x.dtype)
        return f"fractional_max_pool{dims}d", [x, each(g["kernel_size"], dims), each(size, dims), samples], {}

    return adapt


def dropout(op: str, default: float = 0.5):
    def adapt(args, named):
        g = given(args, named, "input", "p", "training", "inplace")
        return op, [g["input"], g.get("p", default), g.get("training", True)], {}

    return adapt


def batch_norm(args, named):
    g = given(args, named, "input", "running_mean", "running_var", "weight", "bias", "training", "momentum", "eps")
    tensors = [g["input"]] + [g.get(k) for k in ("weight", "bias", "running_mean", "running_var")]
    return "batch_norm", [*tensors, g.get("training", False), g.get("momentum", 0.1), g.get("eps", 1e-5)], {}


def instance_norm(args, named):
    g = given(
        args, named, "input", "running_mean", "running_var", "weight", "bias", "use_input_stats", "momentum", "eps"
    )
    tensors = [g["input"]] + [g.get(k) for k in ("weight", "bias", "running_mean", "running_var")]
    return "instance_norm", [*tensors, g.get("use_input_stats", True), g.get("momentum", 0.1), g.get("eps", 1e-5)], {}


def spread(op: str):
    """var and its kin: `unbiased` is a correction of 1 or 0, and None one of 1."""

    def adapt(args, named):
        named = dict(named)
        if "unbiased" in named:
            named["correction"] = int(named.pop("unbiased"))
        elif len(args) > 1 and isinstance(args[1], bool):
            named["correction"], args = int(args[1]), [args[0], *args[2:]]
        elif len(args) > 2 and isinstance(args[2], bool):
            named["correction"], args = int(args[2]), [*args[:2], *args[3:]]
        if named.get("correction", 1) is None:
            del named["correction"]
        return op, args, named

    return adapt


def norm(args, named):
    g = given(args, named, "input", "p", "dim", "keepdim", "out", "dtype")
    x, p, dim, keep = g["input"], g.get("p", "fro"), g.get("dim"), g.get("keepdim", False)
    if p == "nuc":
        return ("nuclear_norm", [x, keep], {}) if dim is None else ("nuclear_norm", [x, each(dim, 1), keep], {})
    typed = {"dtype": g["dtype"]} if g.get("dtype") is not None else {}
    return "norm", [x, 2 if p == "fro" else p, each(dim, 1) if dim is not None else [], keep], typed


def convolution(dims: int):
    def adapt(args, named):
        g = given(args, named, "input", "weight", "bias", "stride", "padding", "dilation", "groups")
        if isinstance(g.get("padding"), str):  # the overload has no defaults before `padding`
            g.setdefault("bias", None)
            g.setdefault("stride", 1)
        return f"conv{dims}d", [], g

    return adapt


def tensordot(args, named):
    g = given(args, named, "self", "other", "dims")
    dims = g.get("dims", 2)
    if isinstance(dims, torch.Tensor):
        dims = dims.tolist()
    if isinstance(dims, int):
        dims = [list(range(-dims, 0)), list(range(dims))]
    return "tensordot", [g["self"], g["other"], [int(d) for d in dims[0]], [int(d) for d in dims[1]]], {}


def from_front(g: dict) -> int:
    index = g["padding_idx"]
    return index + g["weight"].shape[0] if index < 0 else index


def embedding(args, named):
    g = given(args, named, "input", "weight", "padding_idx", "max_norm", "norm_type", "scale_grad_by_freq", "sparse")
    if g.get("max_norm") is not None:
        raise ValueError("max_norm, which writes the table: renorm is an operator of its own")
    rest = {"padding_idx": from_front(g)} if g.get("padding_idx") is not None else {}
    return "embedding", [g["weight"], g["input"]], {**rest, "scale_grad_by_freq": g.get("scale_grad_by_freq", False)}


def embedding_bag(args, named):
    g = given(
        args, named, "input", "weight", "offsets", "max_norm", "norm_type", "scale_grad_by_freq", "mode", "sparse",
        "per_sample_weights", "include_last_offset", "padding_idx",
    )  # fmt: skip
    if g.get("max_norm") is not None:
        raise ValueError("max_norm, which writes the table: renorm is an operator of its own")
    names = ("offsets", "scale_grad_by_freq", "mode", "per_sample_weights", "include_last_offset", "padding_idx")
    rest = {k: g[k] for k in names if g.get(k) is not None}
    if "padding_idx" in rest:
        rest["padding_idx"] = from_front(g)
    return "embedding_bag", [g["weight"], g["input"]], rest


def renamed(op: str, drop: int = 0, without: tuple = ()):
    """The operator of another name, without the last arguments."""

    def adapt(args, named):
        return op, args[: len(args) - drop], {k: v for k, v in named.items() if k not in without}

    return adapt


def nonzero(args, named):
    named = dict(named)
    return ("nonzero_numpy" if named.pop("as_tuple", False) else "nonzero"), args, named


def sizes_listed(op: str):
    def adapt(args, named):
        return (
            (op, [args[0], list(args[1:])], named) if all(isinstance(a, int) for a in args[1:]) else (op, args, named)
        )

    return adapt


def cdist(args, named):
    g = given(args, named, "x1", "x2", "p", "compute_mode")
    return "cdist", [g["x1"], g["x2"], g.get("p", 2.0)], {}


def lu(args, named):
    g = given(args, named, "A", "pivot", "get_infos")
    op = "linalg_lu_factor_ex" if g.get("get_infos", False) else "linalg_lu_factor"
    return op, [g["A"]], {"pivot": g.get("pivot", True)}


def group_norm_parts(args, named):
    x, weight, bias, _, _, _, group, eps = args
    return "native_group_norm", [x, weight, bias, group, eps], named


def upsample_aa(args, named):
    g = given(args, named, "input", "output_size", "align_corners", "scale_factors")
    size = g.get("output_size") or [int(n * f) for n, f in zip(g["input"].shape[2:], g["scale_factors"])]
    scales = g.get("scale_factors") or [None, None]
    return "upsample_bilinear2d_aa", [g["input"], size, g["align_corners"], *scales], {}


ADAPTED = {
    **{
        f"__r{n}__": swapped(op)
        for n, op in {
            "add": "add",
            "mul": "mul",
            "and": "bitwise_and",
            "or": "bitwise_or",
            "xor": "bitwise_xor",
            "div": "div",
            "mod": "remainder",
            "pow": "pow",
            "matmul": "matmul",
            "sub": "sub",
        }.items()
    },
    **{
        n: to_type(getattr(torch, t))
        for n, t in {
            "bfloat16": "bfloat16",
            "bool": "bool",
            "byte": "uint8",
            "char": "int8",
            "double": "float64",
            "float": "float32",
            "half": "float16",
            "int": "int32",
            "long": "int64",
            "short": "int16",
            "cdouble": "complex128",
            "cfloat": "complex64",
            "chalf": "complex32",
        }.items()
    },
    **{f"nn.functional.max_unpool{d}d": unpool(d) for d in (1, 2, 3)},
    **{f"nn.functional.max_pool{d}d": max_pool(d) for d in (1, 2, 3)},
    **{
        f"nn.functional.adaptive_{m}_pool{d}d": adaptive(f"adaptive_{m}_pool{d}d", d)
        for d in (1, 2, 3)
        for m in ("avg", "max")
    },
    **{f"nn.functional.fractional_max_pool{d}d": fractional(d) for d in (2, 3)},
    **{f"nn.functional.conv{d}d": convolution(d) for d in (1, 2, 3)},
    **{n: spread(n) for n in ("std", "var", "std_mean", "var_mean")},
    **{n: listed(n) for n in ("block_diag", "broadcast_tensors", "cartesian_prod", "meshgrid")},
    **{f"atleast_{d}d": at_least(f"atleast_{d}d") for d in (1, 2, 3)},
    "einsum": lambda args, named: (
        "einsum",
        [args[0], list(args[1:] if not isinstance(args[1], (list, tuple)) else args[1])],
        named,
    ),
    "nn.functional.dropout": dropout("dropout"),
    "nn.functional.dropout2d": dropout("feature_dropout"),
    "nn.functional.dropout3d": dropout("feature_dropout"),
    "nn.functional.alpha_dropout": dropout("alpha_dropout"),
    "nn.functional.feature_alpha_dropout": dropout("feature_alpha_dropout"),
    "nn.functional.batch_norm": batch_norm,
    "nn.functional.instance_norm": instance_norm,
    "nn.functional.embedding": embedding,
    "nn.functional.embedding_bag": embedding_bag,
    "norm": norm,
    "tensordot": tensordot,
    "nonzero": nonzero,
    "sum_to_size": sizes_listed("sum_to_size"),
    "cdist": cdist,
    "lu": lu,
    "native_group_norm": group_norm_parts,
    "_upsample_bilinear2d_aa": upsample_aa,
    "_softmax_backward_data": renamed("softmax_backward", 1),
}
RENAMED = {
    "T": "numpy_T",
    "H": "adjoint",
    "nn.functional.unfold": "im2col",
    "_segment_reduce": "segment_reduce",
    **{name: name + "_" for name in ("cauchy", "exponential", "geometric", "log_normal", "uniform")},
}
# Results that are random or not defined: the types and shapes are compared.
RANDOM = (
    "empty", "new_empty", "rand", "normal", "bernoulli", "multinomial", "dropout", "rrelu", "cauchy", "exponential",
    "geometric", "log_normal", "uniform", "fractional_max_pool", "svd_lowrank", "pca_lowrank",
)  # fmt: skip
# Factors whose signs are open.
SIGNS = ("svd", "linalg.svd", "linalg.eigh", "linalg.eig")
# The operator has more results: PyTorch's function returns the first ones.
FIRST = ("adaptive_max_pool", "fractional_max_pool", "linalg.lstsq")
# Operators whose second result says where the first is: of equal elements, either may be named.
TIES = ("sort", "topk", "kthvalue", "mode", "median", "nanmedian", "msort", "argsort")


def is_random(name: str, named: dict) -> bool:
    base = name.removeprefix("nn.functional.").removeprefix("signal.windows.")
    if named.get("dropout_p", 0) > 0:
        return True
    return "signal." not in name and any(word in base for word in RANDOM) and base not in ("new_full",)


def results(name: str, found: list, expected: list, named: dict) -> list:
    """Returns those of our results that PyTorch's public function returns."""
    if name in ("unique", "unique_consecutive"):
        wanted = [True, named.get("return_inverse", False), named.get("return_counts", False)]
        return [r for r, w in zip(found, wanted) if w]
    if any(word in name for word in FIRST):
        return found[: len(expected)]
    return found


def is_public(name: str) -> bool:
    return not name.startswith(("_", "torch.", "jiterator", "masked."))


def plain_name(name: str) -> str:
    """Returns the name of the record of a public name."""
    if name in RENAMED:
        return RENAMED[name]
    for prefix, ours in PREFIXES.items():
        if name.startswith(prefix):
            return ours + name.removeprefix(prefix)
    return name.removeprefix("nn.functional.")


def in_place(name: str, function: str) -> str:
    """Returns the name of the call: an OpInfo of `normal` also calls normal_."""
    base = name.split(".")[-1]
    return name + "_" if function == base + "_" and name not in RENAMED else name


def ours(name: str, args: list, named: dict) -> tuple[str, list, dict]:
    """Returns the operator and its arguments for a call of PyTorch's public name."""
    left_out = (
        "layout",
        "pin_memory",
        "requires_grad",
        "inplace",
        "memory_format",
        "non_blocking",
        "size_average",
        "_stacklevel",
    )
    # PyTorch's functions pass their defaults on, None for what is not given.
    named = {k: v for k, v in named.items() if k not in left_out and (v is not None or k in ("dim", "correction"))}
    if name in ADAPTED:
        return ADAPTED[name](args, named)
    return plain_name(name), args, named
