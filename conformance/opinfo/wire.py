"""Calls of operators through `mytorch call`, with PyTorch's tensors as arguments and results."""

from __future__ import annotations

import json
import math
import subprocess

import torch


class Unsupported(Exception):
    """Raised for an argument that has no form here; the text names it."""


class Refused(Exception):
    """Raised if the call ends in an error; the text is the error."""


def _number(value: float) -> object:
    if math.isnan(value):
        return "nan"
    return value if math.isfinite(value) else "inf" if value > 0 else "-inf"


def _elements(flat: torch.Tensor) -> list:
    if flat.is_complex():
        flat = torch.view_as_real(flat).reshape(-1)
    if not flat.is_floating_point():
        return [int(x) for x in flat.tolist()]
    return [_number(x) for x in flat.to(torch.float64).tolist()]


def _tensor(x: torch.Tensor) -> dict:
    if x.layout != torch.strided or x.is_quantized:
        raise Unsupported(f"a tensor of layout {x.layout}")
    x = x.detach().resolve_conj().resolve_neg()
    done = {"dtype": str(x.dtype).removeprefix("torch."), "shape": list(x.shape)}
    memory = x.untyped_storage().nbytes() // x.element_size()
    if x.numel() == 0 or x.is_contiguous() and (memory == x.numel() or memory > 100 + 4 * x.numel()):
        return {**done, "values": _elements(x.reshape(-1))}
    whole = x.as_strided([memory], [1], 0).clone()
    return {**done, "strides": list(x.stride()), "offset": x.storage_offset(), "values": _elements(whole)}


def encode(value: object) -> object:
    """Returns a value as `mytorch call` reads it."""
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else {"float": _number(value)}
    if isinstance(value, complex):
        return {"complex": [_number(value.real), _number(value.imag)]}
    if isinstance(value, torch.Tensor):
        return _tensor(value)
    if isinstance(value, torch.dtype):
        return {"type": str(value).removeprefix("torch.")}
    if isinstance(value, torch.device):
        return {"device": "cpu"}
    if isinstance(value, (list, tuple)):
        if any(isinstance(v, torch.Tensor) for v in value):
            return {"tensors": [encode(v) for v in value]}
        if all(isinstance(v, (bool, int)) for v in value):
            return [int(v) for v in value]
        if all(isinstance(v, (int, float)) for v in value):
            return [_number(float(v)) for v in value]
    if hasattr(value, "item") and not callable(value):  # a number of NumPy
        return encode(value.item())
    raise Unsupported(f"an argument of type {type(value).__name__}")


def decode(value: object) -> object:
    """Returns a result: a tensor of PyTorch, a list of them, or a number."""
    if isinstance(value, dict) and "tensors" in value:
        return [decode(v) for v in value["tensors"]]
    if isinstance(value, dict) and "complex" in value:
        return complex(*(float(v) for v in value["complex"]))
    if isinstance(value, dict):
        dtype = getattr(torch, value["dtype"])
        values = [float(v) if isinstance(v, str) else v for v in value["values"]]
        if dtype.is_complex:
            parts = torch.tensor(values, dtype=torch.float64).reshape(-1, 2)
            return torch.view_as_complex(parts).to(dtype).reshape(value["shape"])
        exact = torch.float64 if dtype.is_floating_point else dtype
        return torch.tensor(values, dtype=exact).to(dtype).reshape(value["shape"])
    return float(value) if value in ("nan", "inf", "-inf") else value


def request(op: str, args: list, named: dict) -> str:
    """Returns the line of a call."""
    return json.dumps({"op": op, "args": [encode(a) for a in args], "named": {k: encode(v) for k, v in named.items()}})


class Library:
    """A running `mytorch call`."""

    def __init__(self, command: str, device: str):
        self.command = [command, "call", "--device", device]
        self.process = None

    def send(self, line: str) -> tuple[list, list]:
        """Returns the results, and the tensors among the positional arguments after the call."""
        if self.process is None:
            self.process = subprocess.Popen(self.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline()
        if not answer:
            status, self.process = self.process.wait(), None
            raise Refused(f"the process ended with status {status}")
        reply = json.loads(answer)
        if "error" in reply:
            raise Refused(reply["error"])
        return [decode(r) for r in reply["results"]], [decode(a) if a is not None else None for a in reply["args"]]
