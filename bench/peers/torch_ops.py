#!/usr/bin/env python3
"""Times the cases of `mytorch bench --suite` in the PyTorch of this Python interpreter.

    torch_ops.py [--suite NAME] [--case NAME ...] [--device cpu|cuda] [--threads N] [--seconds S] [--json FILE]
                 [--suites build/release/generated/share/suites.json] [--unordered]

Operators are those of ATen with the same names, except for EXCEPTIONS, COMPOSED and PREPARED. A TorchScript loop repeats the call, so
that no Python runs between calls. If TorchScript cannot do so, Python repeats it, and the line of the case says so.
`mytorch bench --suite NAME --compare FILE` prints the ratios. For the suite `overhead`,
bench/peers/overhead_libtorch has the same cases in C++.

On a GPU, as in `mytorch bench --device cuda`, calls are queued and waited for in batches. Successive calls use
different sets of arguments, which together exceed the caches; Python switches between the sets. As in mytorch, float32
is not rounded to TF32 without MYTORCH_CUDA_TF32=1, and sums have a fixed order (torch.use_deterministic_algorithms);
--unordered allows PyTorch's default algorithms, some of which add with atomic operations.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import os
import socket
import statistics
import sys
import time
from pathlib import Path

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--suite", default="all")
parser.add_argument("--case", action="append", default=[])
parser.add_argument("--device", default="cpu")
parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
parser.add_argument("--seconds", type=float, default=0.4)
parser.add_argument("--unordered", action="store_true")
parser.add_argument("--json")
parser.add_argument(
    "--suites", type=Path, default=Path(__file__).resolve().parents[2] / "build/release/generated/share/suites.json"
)
options = parser.parse_args()
# Each BLAS has its own thread pool, which set_num_threads does not affect.
for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "BLIS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[variable] = str(options.threads)

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # deterministic products

try:
    import torch
    import torch.nn.functional as F
except ImportError:
    sys.exit("torch_ops.py: this Python has no PyTorch (Debian: python3-torch, and /usr/bin/python3)")

LABEL = f"torch-{torch.__version__}"
ON_GPU = options.device != "cpu"
BATCH = 4e-3 if ON_GPU else 1e-3  # seconds
BEYOND_CACHES = 256 << 20  # bytes
LEAST_ROUNDS, MOST_ROUNDS = 7, 401


# ---- arguments ------------------------------------------------------------------------------------


def tensor(spec: dict, dtype: str, made: dict) -> torch.Tensor:
    shape, layout = list(spec["shape"]), spec.get("layout", "contiguous")
    memory = list(shape)
    if layout == "transposed":
        memory[-1], memory[-2] = memory[-2], memory[-1]
    elif layout == "heads":
        memory[-2], memory[-3] = memory[-3], memory[-2]
    elif layout in ("sliced", "padded"):
        memory[-1] *= 2
    elif layout == "broadcast":
        memory[0] = 1
    elif layout == "channels_last":
        memory = [memory[0], *memory[2:], memory[1]]
    elif layout == "channels_first":
        memory = [memory[0], memory[-1], *memory[1:-1]]
    kind = getattr(torch, spec.get("dtype", dtype))
    if "of" in spec:
        whole = made[spec["of"]].reshape(-1)[: math.prod(memory)].view(memory)
    elif kind.is_complex:
        parts = torch.empty([*memory, 2], dtype=torch.float64 if kind == torch.complex128 else torch.float32)
        whole = torch.view_as_complex(parts.uniform_(spec.get("low", -1), spec.get("high", 1)))
    elif kind.is_floating_point:
        whole = torch.empty(memory, dtype=kind).uniform_(spec.get("low", -1), spec.get("high", 1))
    else:
        whole = torch.randint(int(spec.get("low", 0)), int(spec.get("high", 2)), memory, dtype=kind)
    if "raised" in spec:
        whole.diagonal(0, -2, -1).add_(spec["raised"])
    if layout == "transposed":
        return whole.transpose(-1, -2)
    if layout == "sliced":
        return whole[..., ::2]
    if layout == "broadcast":
        return whole.expand(shape)
    if layout == "padded":
        return whole[..., : shape[-1]]
    if layout == "heads":
        return whole.transpose(-2, -3)
    if layout == "channels_last":
        return whole.movedim(-1, 1)
    if layout == "channels_first":
        return whole.movedim(1, -1)
    return whole


INDICES = {"index", "indices"}  # int64 arguments whose type the suite does not state


def arguments(case: dict) -> dict:
    dtype = case.get("dtype", "float32")
    made: dict = {}
    for views in (False, True):
        for name, value in case.get("args", {}).items():
            if (isinstance(value, dict) and "of" in value) != views:
                continue
            kind = "int64" if name in INDICES else dtype
            if isinstance(value, dict):
                value = tensor(value, kind, made)
            elif isinstance(value, list) and value and isinstance(value[0], dict):
                value = [tensor(v, kind, made) for v in value]
            elif name == "dtype":
                value = getattr(torch, value)
            made[name] = value
    return made


# ---- differences from ATen's name or arguments: (name, positional arguments) -------------------------


def _image(sizes: list, like: torch.Tensor) -> torch.Tensor:
    """Returns a tensor of the type and the memory format of `like`."""
    last = not like.is_contiguous() and like.is_contiguous(memory_format=torch.channels_last)
    memory_format = torch.channels_last if last else torch.contiguous_format
    return torch.empty(sizes, dtype=like.dtype, memory_format=memory_format)


def _convolution(a: dict, input_: torch.Tensor, weight: torch.Tensor, mask: list) -> tuple[str, list]:
    return "convolution_backward", [
        a["grad_output"],
        input_,
        weight,
        None,
        a["stride"],
        a["padding"],
        a["dilation"],
        a["transposed"],
        a["output_padding"],
        a["groups"],
        mask,
    ]


EXCEPTIONS = {
    # The operator behind relu. The out= form of relu computes into new memory and copies.
    "relu": lambda a, out: ("clamp_min", [a["self"], 0]) if out else None,
    "fill_": lambda a, out: ("fill_", [a["self"], a["value"]]),
    "relu_grad": lambda a, out: ("threshold_backward", [a["grad"], a["result"], 0]),
    "convolution_backward_input": lambda a, out: _convolution(
        a, _image(a["input_size"], a["grad_output"]), a["weight"], [True, False, False]
    ),
    "convolution_backward_weight": lambda a, out: _convolution(
        a, a["input"], _image(a["weight_size"], a["grad_output"]), [False, True, False]
    ),
    "linalg_eigh_forward": lambda a, out: ("_linalg_eigh", [a["self"], a["UPLO"], a["compute_v"]]),
    "linalg_svd_forward": lambda a, out: (
        "_linalg_svd",
        [a["self"], a["full_matrices"], a["compute_uv"]],
        {"driver": None},
    ),
    "linalg_solve_forward": lambda a, out: (
        "_linalg_solve_ex",
        [a["A"], a["B"]],
        {"left": a["left"], "check_errors": False},
    ),
    "special_xlog1py.Tensor": lambda a, out: ("special_xlog1py", [a["self"], a["other"]]),
    "softmax_backward": lambda a, out: (
        "_softmax_backward_data",
        [a["grad_output"], a["output"], a["dim"], a["output"].dtype],
    ),
    "log_softmax_backward": lambda a, out: (
        "_log_softmax_backward_data",
        [a["grad_output"], a["output"], a["dim"], a["output"].dtype],
    ),
    "native_layer_norm_backward": lambda a, out: (
        "native_layer_norm_backward",
        [
            a["grad_out"],
            a["input"],
            a["normalized_shape"],
            a["mean"],
            a["rstd"],
            a["weight"],
            torch.zeros_like(a["weight"]),
            [True, True, True],
        ],
    ),
    "native_rms_norm_backward": lambda a, out: (
        "_fused_rms_norm_backward",
        [*(a[x] for x in ("grad_out", "input", "normalized_shape", "rstd", "weight")), [True, True]],
    ),
    "batch_norm_training_backward": lambda a, out: (
        "native_batch_norm_backward",
        [
            a["grad_out"],
            a["input"],
            a["weight"],
            None,
            None,
            a["mean"],
            (a["var"] + a["eps"]).rsqrt(),
            True,
            a["eps"],
            [True, True, True],
        ],
    ),
    "attention_forward": lambda a, out: (
        "scaled_dot_product_attention",
        [a["query"], a["key"], a["value"], a["attn_mask"], a["dropout_p"], a["right"] == 0],
        {"scale": a["scale"], "enable_gqa": a["query"].shape[1] != a["key"].shape[1]},
    ),
    "attention_backward": lambda a, out: (
        "_scaled_dot_product_flash_attention_for_cpu_backward",
        [*(a[x] for x in ("grad_output", "query", "key", "value", "output", "logsumexp")), 0.0, a["right"] == 0],
        {"scale": a["scale"]},
    ),
    "cdist_backward": lambda a, out: ("_cdist_backward", [a[x] for x in ("grad_output", "x1", "x2", "p", "distances")]),
    "cross_entropy": lambda a, out: ("cross_entropy_loss", [a["self"], a["target"], None, 1, -100, 0.0]),
}


# ---- operators that ATen lacks: compositions, which Python calls --------------------------------------


def rotated(a: dict) -> torch.Tensor:
    x = a["self"]
    cos, sin = a["cos"].to(x.dtype), a["sin"].to(x.dtype)
    if a.get("interleaved"):
        first, second = x[..., ::2], x[..., 1::2]
        return torch.stack([first * cos - second * sin, second * cos + first * sin], -1).flatten(-2)
    first, second = x.chunk(2, -1)
    return torch.cat([first * cos - second * sin, second * cos + first * sin], -1)


def layer_norm_gradients(a: dict) -> tuple:
    ones = torch.zeros_like(a["weight"])
    args = [a[x] for x in ("grad_out", "sum", "normalized_shape", "mean", "rstd", "weight")]
    dx, dw, db = torch.ops.aten.native_layer_norm_backward(*args, ones, [True, True, True])
    return dx + a["grad_sum"], dw, db


def rms_norm_gradients(a: dict) -> tuple:
    args = [a[x] for x in ("grad_out", "sum", "normalized_shape", "rstd", "weight")]
    dx, dw = torch.ops.aten._fused_rms_norm_backward(*args, [True, True])
    return dx + a["grad_sum"], dw


def add_layer_norm(a: dict) -> tuple:
    total = a["input"] + a["residual"]
    return F.layer_norm(total, a["normalized_shape"], a["weight"], a["bias"], a["eps"]), total


def add_rms_norm(a: dict) -> tuple:
    total = a["input"] + a["residual"]
    return F.rms_norm(total, a["normalized_shape"], a["weight"], a["eps"]), total


def linear_cross_entropy(a: dict) -> tuple:
    """Forward and backward, by linear and cross_entropy."""
    x, weight = (a[name].detach().requires_grad_() for name in ("input", "linear_weight"))
    with torch.enable_grad():
        loss = F.cross_entropy(F.linear(x, weight), a["target"], reduction="sum")
        return loss, *torch.autograd.grad(loss, [x, weight])


def linear_gelu(a: dict) -> torch.Tensor:
    return F.gelu(F.linear(a["input"], a["weight"], a["bias"]), approximate=a["approximate"])


def halves(f):
    return lambda a: f(*a["self"].chunk(2, a["dim"]))


def silu_mul(gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
    return F.silu(gate) * up


COMPOSED = {
    "rotary_embedding": rotated,
    "swiglu": lambda a: silu_mul(a["gate"], a["up"]),
    "swiglu.packed": halves(silu_mul),
    "geglu": lambda a: F.gelu(a["gate"]) * a["up"],
    "native_add_layer_norm": add_layer_norm,
    "native_add_layer_norm_backward": layer_norm_gradients,
    "native_add_rms_norm": add_rms_norm,
    "native_add_rms_norm_backward": rms_norm_gradients,
    "linear_cross_entropy_forward": linear_cross_entropy,
    "linear_gelu": linear_gelu,
    "linear_gelu_forward": linear_gelu,
}


# ---- calls with a forward pass before them: each gets the arguments and returns the call, or None ------


def leaves(a: dict, *names: str) -> dict:
    return {name: a[name].detach().requires_grad_() for name in names}


def backward(output: torch.Tensor, inputs: dict, grad: torch.Tensor):
    return lambda: torch.autograd.grad(output, list(inputs.values()), grad, retain_graph=True)


def silu_gradients(a: dict):
    grad, gate, up = a["grad_output"], a["gate"], a["up"]
    saved = F.silu(gate)
    return lambda: (torch.ops.aten.silu_backward(grad * up, gate), grad * saved)


@torch.enable_grad()
def group_norm_gradients(a: dict):
    x, weight = a["input"], a["weight"]
    if x.is_contiguous():
        sizes = [*x.shape[:2], x[0, 0].numel(), a["group"]]
        args = [a["grad_out"], x, a["mean"].to(x.dtype), a["rstd"].to(x.dtype), weight, *sizes, [True] * 3]
        return lambda: torch.ops.aten.native_group_norm_backward(*args)
    inputs = leaves({**a, "bias": weight}, "input", "weight", "bias")  # the operator lacks this layout
    return backward(F.group_norm(inputs["input"], a["group"], inputs["weight"], inputs["bias"]), inputs, a["grad_out"])


@torch.enable_grad()
def cross_entropy_gradient(a: dict):
    inputs = leaves(a, "self")
    return backward(F.cross_entropy(inputs["self"], a["target"]), inputs, a["grad_output"])


def attention_kernel(case: dict):
    """Returns a context with the backend of F.scaled_dot_product_attention that is fastest for a case of attention on a
    GPU: cuDNN's in 16 bits, without masks and dropout."""
    a = case.get("args", {})
    if not ON_GPU or not case.get("op", "").startswith("attention_") or case.get("dtype") != "bfloat16":
        return contextlib.nullcontext()
    if a.get("attn_mask") or a.get("dropout_p") or a.get("query", {}).get("shape", [1, 1, 1])[2] == 1:
        return contextlib.nullcontext()
    from torch.nn.attention import SDPBackend, sdpa_kernel

    return sdpa_kernel(SDPBackend.CUDNN_ATTENTION)


def recorded_attention(a: dict):
    """Returns attention that keeps what its gradient needs, and its inputs."""
    masked = a["attn_mask"] is not None and a["attn_mask"].is_floating_point()
    inputs = leaves(a, "query", "key", "value", *(["attn_mask"] if masked else []))
    op, args, named = EXCEPTIONS["attention_forward"]({**a, **inputs}, False)
    return torch.enable_grad()(lambda: getattr(F, op)(*args, **named)), inputs


def attention(a: dict):
    return recorded_attention(a)[0] if ON_GPU and a["query"].shape[2] > 1 else None


def attention_gradients(a: dict):
    if not ON_GPU and a["attn_mask"] is None and a["dropout_p"] == 0:
        return None  # the CPU has an operator for it
    call, inputs = recorded_attention(a)
    return backward(call(), inputs, a["grad_output"])


PREPARED = {
    "swiglu_backward": silu_gradients,
    "native_group_norm_backward": group_norm_gradients,
    "cross_entropy_backward": cross_entropy_gradient,
    "attention_forward": attention,
    "attention_backward": attention_gradients,
}


def aten_call(case: dict, args: dict) -> tuple[str, list, dict]:
    """Returns ATen's name, its positional arguments with defaults, and its keyword-only arguments."""
    op = case["op"]
    if op in EXCEPTIONS and (found := EXCEPTIONS[op](args, case.get("form") == "out")) is not None:
        return found if len(found) == 3 else (*found, {})
    base, _, overload = op.partition(".")
    schema = getattr(getattr(torch.ops.aten, base), overload or "default")._schema
    values, named = [], {}
    for a in schema.arguments:
        if a.name == "x" and "self" in args:
            args = {**args, "x": args["self"]}
        if a.name not in args and not a.has_default_value():
            raise KeyError(f"aten::{op} needs {a.name!r}")
        value = args.get(a.name, a.default_value if a.has_default_value() else None)
        if a.kwarg_only:
            named[a.name] = value
        else:
            values.append(value)
    return base, values, named


# ---- loops ------------------------------------------------------------------------------------------


def ir_type(value) -> str:
    if isinstance(value, torch.Tensor):
        return "Tensor"
    for kind in (bool, int, float, str):
        if isinstance(value, kind):
            return kind.__name__
    if isinstance(value, torch.dtype):
        return "int"
    if isinstance(value, (list, tuple)) and value:
        return ir_type(value[0]) + "[]"
    if isinstance(value, (list, tuple)):
        return "int[]"
    raise TypeError(f"{value!r} has no type in TorchScript")


def script_loop(op: str, values: list, results: int):
    """Returns a function loop(n) that makes the call n times.

    Each iteration passes its first result to the next one; otherwise TorchScript would remove the call as unused. The
    loop's condition is not a constant; otherwise TorchScript would unroll the loop and merge equal calls."""
    inputs, names, given = [], [], []
    for i, value in enumerate(values):
        if value is None:
            names.append("%none")
        else:
            names.append(f"%a{i}")
            inputs.append(f"%a{i} : {ir_type(value)}")
            given.append(value)
    outputs = ", ".join(f"%r{i} : Tensor" for i in range(results))
    call = f"aten::{op}({', '.join(names)})"
    text = f"""graph({', '.join(['%n : int', '%first : Tensor', '%go : bool', *inputs])}):
  %none : NoneType = prim::Constant()
  %last : Tensor = prim::Loop(%n, %go, %first)
    block0(%i : int, %carried : Tensor):
      {outputs} = {call}
      -> (%go, %r0)
  return (%last)
"""
    function = torch._C._create_function_from_graph("loop", torch._C.parse_ir(text))
    first = torch.empty(0)
    return lambda n: function(n, first, True, *given)


def check_repeats(loop, by_python) -> None:
    """Raises RuntimeError if the optimized loop no longer makes its calls. Assumes that Python adds less than 20
    microseconds to a call."""
    for n in (1, 1, 2, 3):
        loop(n)
    n = 10
    expected = min(seconds_of(by_python, n) for _ in range(3)) - n * 20e-6
    if min(seconds_of(loop, n) for _ in range(3)) < expected / 2:
        raise RuntimeError("TorchScript removed the call from the loop")


def loop_of(case: dict, args: dict):
    """Returns a function that repeats the call n times, and a remark."""
    composed = COMPOSED.get(case["op"])
    run = (lambda: composed(args)) if composed else PREPARED.get(case["op"], lambda a: None)(args)
    if run:

        def composed_loop(n: int):
            for _ in range(n):
                run()

        composed_loop(1)
        return composed_loop, "a composition, by Python"
    op, values, named = aten_call(case, args)
    call = getattr(torch.ops.aten, op)
    results = call(*values, **named)
    outs = [results] if isinstance(results, torch.Tensor) else list(results)
    flat = [*values, *named.values()]
    if case.get("form") == "out":
        if len(outs) != 1:
            raise NotImplementedError(f"{op} has several outputs")
        flat.append(outs[0])
        named["out"] = outs[0]

    def python_loop(n: int):
        for _ in range(n):
            call(*values, **named)

    python_loop(1)
    try:
        loop = script_loop(op, flat, len(outs))
        check_repeats(loop, python_loop)
        return loop, ""
    except Exception as error:  # TorchScript versions fail in different ways
        return python_loop, f"by Python: {str(error).strip().splitlines()[0]}"


def nbytes(value) -> int:
    if isinstance(value, (list, tuple)):
        return sum(nbytes(v) for v in value)
    return value.numel() * value.element_size() if isinstance(value, torch.Tensor) else 0


def turns_of(case: dict):
    """Like loop_of, but alternates between several sets of arguments, for a GPU."""
    args = arguments(case)
    sets = min(16, BEYOND_CACHES // max(nbytes(list(args.values())), 1) + 1)
    made = [loop_of(case, args)] + [loop_of(case, arguments(case)) for _ in range(sets - 1)]
    loops = [loop for loop, _ in made]
    if sets == 1:
        return made[0]

    def turns(n: int):
        for i in range(n):
            loops[i % sets](1)

    return turns, made[0][1]


# ---- optimizers: the parameters of bench/harness/programs.cpp -----------------------------------------


def parameters() -> list[torch.Tensor]:
    shapes = [(1024, 1024), (1024,)] * 9 + [(1024, 544), (544,)] + [(64,)] * 10
    made = [torch.rand(s, requires_grad=True) for s in shapes]
    for p in made:
        p.grad = torch.rand_like(p)
    return made


OPTIMIZERS = {
    "sgd_10M": lambda p, **more: torch.optim.SGD(p, lr=1e-3, momentum=0.9, **more),
    "adam_10M": lambda p, **more: torch.optim.Adam(p, lr=1e-3, **more),
    "adamw_10M": lambda p, **more: torch.optim.AdamW(p, lr=1e-3, **more),
}


def optimizer_loops(name: str):
    for label, more in [("", {}), ("-foreach", {"foreach": True}), ("-fused", {"fused": True})]:
        try:
            optimizer = OPTIMIZERS[name](parameters(), **more)
            optimizer.step()
        except Exception:  # this version lacks the variant
            continue

        def loop(n: int, optimizer=optimizer):
            for _ in range(n):
                optimizer.step()

        yield label, loop


# ---- recurrent networks: those of bench/harness/programs.cpp ------------------------------------------


def recurrent_loops(name: str):
    kind, _, what = name.partition("_")
    network = getattr(torch.nn, kind.upper())(512, 512, num_layers=2)
    x = torch.rand(128, 64, 512)
    sgd = torch.optim.SGD(network.parameters(), lr=1e-3)

    def forward(n: int):
        for _ in range(n):
            network(x)

    def step(n: int):
        with torch.enable_grad():
            for _ in range(n):
                sgd.zero_grad()
                network(x)[0].mean().backward()
                sgd.step()

    yield "", forward if what == "forward" else step


PROGRAMS = {
    **{name: optimizer_loops for name in OPTIMIZERS},
    **{name: recurrent_loops for name in ("lstm_forward", "lstm_step", "gru_step", "rnn_step")},
}


# ---- measuring ----------------------------------------------------------------------------------------


def seconds_of(loop, n: int) -> float:
    if ON_GPU:
        torch.cuda.synchronize()
    start = time.perf_counter()
    loop(n)
    if ON_GPU:
        torch.cuda.synchronize()
    return time.perf_counter() - start


def measure(loop) -> tuple[float, float, int]:
    """Returns the median and the median deviation of a call's seconds, and the number of batches."""
    loop(1)
    n = 1
    while (spent := seconds_of(loop, n)) < BATCH / 8:
        n *= 4
    n = max(1, int(BATCH / (spent / n)))
    times: list[float] = []
    end = time.perf_counter() + options.seconds
    while len(times) < LEAST_ROUNDS or (len(times) < MOST_ROUNDS and time.perf_counter() < end):
        times.append(seconds_of(loop, n) / n)
    for _ in range(2):  # outliers, as in bench/harness/statistics.cpp
        middle = statistics.median(times)
        deviation = statistics.median(abs(t - middle) for t in times)
        reach = max(5 * 1.4826 * deviation, 1e-3 * middle)
        times = [t for t in times if abs(t - middle) <= reach]
    return middle, deviation, len(times)


def blas_library() -> str:
    """Returns the BLAS of this process. Debian's alternatives select it; the default is the slowest."""
    paths = {line.split()[-1] for line in Path("/proc/self/maps").read_text().splitlines() if "/" in line}
    found = sorted(p for p in paths if any(word in p.lower() for word in ("blas", "blis", "mkl")))
    note = ""
    if any("/libblas.so" in p or "/blas/" in p for p in found) and not any("open" in p or "blis" in p for p in found):
        note = " (the reference BLAS: install libopenblas0 or libblis, or matrix products are slow)"
    return ("BLAS " + ", ".join(found) if found else "BLAS built in") + note


def main() -> None:
    torch.set_num_threads(options.threads)
    if ON_GPU:
        torch.set_default_device(options.device)
        tf32 = os.environ.get("MYTORCH_CUDA_TF32", "0") == "1"
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = tf32
        torch.backends.cudnn.benchmark = True
        if not options.unordered:
            torch.use_deterministic_algorithms(True, warn_only=True)
            torch.utils.deterministic.fill_uninitialized_memory = False
    # Fused and specialized graphs would no longer measure single operators.
    for switch in (
        "_jit_set_profiling_executor",
        "_jit_set_profiling_mode",
        "_jit_override_can_fuse_on_cpu",
        "_jit_set_texpr_fuser_enabled",
    ):
        if hasattr(torch._C, switch):
            getattr(torch._C, switch)(False)
    cases = [
        c
        for c in json.loads(options.suites.read_text())
        if (c["suite"] != "gpu" if options.suite == "all" else c["suite"] == options.suite)
        and (not options.case or c["name"] in options.case)
    ]
    if not cases:
        sys.exit(f"torch_ops.py: no case of suite {options.suite!r} has such a name")
    results = []
    order = "any order of sums" if options.unordered else "sums in a fixed order"
    if ON_GPU:
        tf32 = "TF32" if torch.backends.cuda.matmul.allow_tf32 else "no TF32"
    gpu = f"{torch.cuda.get_device_name()}, {tf32}, {order}" if ON_GPU else ""
    print(f"{LABEL}, " + (gpu or f"{options.threads} threads, {blas_library()}"))
    for case in cases:
        name = case["name"]
        if "program" in case and name not in PROGRAMS:
            continue
        try:
            with torch.no_grad(), attention_kernel(case):
                if "program" in case:
                    loops = [(label, loop, "") for label, loop in PROGRAMS[name](name)]
                else:
                    loops = [("", *(turns_of(case) if ON_GPU else loop_of(case, arguments(case))))]
                for label, loop, remark in loops:
                    middle, deviation, rounds = measure(loop)
                    print(
                        f"{name:26} {LABEL + label:24} {middle * 1e6:12.2f} us  +- "
                        f"{100 * deviation / middle:.1f} %  {remark}",
                        flush=True,
                    )
                    dtype = case.get("dtype", "float32")
                    full = f"{name}/{dtype}/threads:{options.threads}/warm/{LABEL}{label}"
                    results.append(
                        {
                            "name": full,
                            "run_name": full,
                            "run_type": "iteration",
                            "repetitions": 1,
                            "repetition_index": 0,
                            "threads": options.threads,
                            "iterations": rounds,
                            "real_time": middle * 1e9,
                            "cpu_time": middle * 1e9,
                            "time_unit": "ns",
                            "suite": case["suite"],
                            "case": name,
                            "backend": LABEL + label,
                            "cache": "warm",
                            "dtype": dtype,
                            "deviation": deviation * 1e9,
                        }
                    )
        except Exception as error:
            print(f"{name:26} not here: {str(error).strip().splitlines()[0]}", flush=True)
    if options.json:
        context = {
            "date": time.strftime("%FT%T%z"),
            "host_name": socket.gethostname(),
            "executable": "torch_ops.py",
            "num_cpus": os.cpu_count(),
            "library_build_type": "release",
            "label": LABEL,
        }
        Path(options.json).write_text(json.dumps({"context": context, "benchmarks": results}, indent=1) + "\n")


if __name__ == "__main__":
    main()
