"""Optimizers. Names and meanings are PyTorch's; Lion, which it does not have, is that of its paper."""

from mytorch.optim import lr_scheduler, swa_utils
from mytorch.optim.optimizer import NativeOptimizer as _Native
from mytorch.optim.optimizer import Optimizer, ParamGroup, _as_tensor

__all__ = [
    "ASGD",
    "Adadelta",
    "Adafactor",
    "Adagrad",
    "Adam",
    "AdamW",
    "Adamax",
    "LBFGS",
    "Lion",
    "Muon",
    "NAdam",
    "Optimizer",
    "ParamGroup",
    "RAdam",
    "RMSprop",
    "SGD",
    "lr_scheduler",
    "swa_utils",
]

# The arguments foreach, fused and capturable choose among implementations of PyTorch, and change nothing here.


class SGD(_Native):
    """Stochastic gradient descent, with momentum and weight decay."""

    _native = "SGD"
    _state_names = {"momentum": "momentum_buffer"}

    def __init__(
        self,
        params,
        lr=1e-3,
        momentum=0,
        dampening=0,
        weight_decay=0,
        nesterov=False,
        *,
        maximize=False,
        foreach=None,
        differentiable=False,
        fused=None,
        master_weights=True,
        state_dtype=None,
    ):
        self._make(params, locals())


class Adam(_Native):
    """Adam (Kingma and Ba, 2015); with decoupled_weight_decay, AdamW."""

    _native = "Adam"

    def __init__(
        self,
        params,
        lr=1e-3,
        betas=(0.9, 0.999),
        eps=1e-8,
        weight_decay=0,
        amsgrad=False,
        *,
        foreach=None,
        maximize=False,
        capturable=False,
        differentiable=False,
        fused=None,
        decoupled_weight_decay=False,
        master_weights=True,
        state_dtype=None,
    ):
        native = "AdamW" if decoupled_weight_decay else "Adam"
        self._make(params, locals(), native, fixed={"decoupled_weight_decay": bool(decoupled_weight_decay)})


class AdamW(_Native):
    """Adam with weight decay that is decoupled from the gradient (Loshchilov and Hutter, 2019)."""

    _native = "AdamW"

    def __init__(
        self,
        params,
        lr=1e-3,
        betas=(0.9, 0.999),
        eps=1e-8,
        weight_decay=1e-2,
        amsgrad=False,
        *,
        maximize=False,
        foreach=None,
        capturable=False,
        differentiable=False,
        fused=None,
        master_weights=True,
        state_dtype=None,
    ):
        self._make(params, locals(), fixed={"decoupled_weight_decay": True})


class Adamax(_Native):
    """Adam with the infinity norm (Kingma and Ba, 2015)."""

    _native = "Adamax"

    def __init__(
        self,
        params,
        lr=2e-3,
        betas=(0.9, 0.999),
        eps=1e-8,
        weight_decay=0,
        foreach=None,
        *,
        maximize=False,
        differentiable=False,
        capturable=False,
        master_weights=True,
        state_dtype=None,
    ):
        self._make(params, locals())


class NAdam(_Native):
    """Adam with Nesterov momentum (Dozat, 2016)."""

    _native = "NAdam"

    def __init__(
        self,
        params,
        lr=2e-3,
        betas=(0.9, 0.999),
        eps=1e-8,
        weight_decay=0,
        momentum_decay=4e-3,
        decoupled_weight_decay=False,
        *,
        foreach=None,
        maximize=False,
        capturable=False,
        differentiable=False,
        master_weights=True,
        state_dtype=None,
    ):
        self._make(params, locals())


class RAdam(_Native):
    """Adam with a rectified variance (Liu et al., 2020)."""

    _native = "RAdam"

    def __init__(
        self,
        params,
        lr=1e-3,
        betas=(0.9, 0.999),
        eps=1e-8,
        weight_decay=0,
        decoupled_weight_decay=False,
        *,
        foreach=None,
        maximize=False,
        capturable=False,
        differentiable=False,
        master_weights=True,
        state_dtype=None,
    ):
        self._make(params, locals())


class RMSprop(_Native):
    """RMSprop (Hinton, 2012), centered or not."""

    _native = "RMSprop"
    _state_names = {"momentum": "momentum_buffer"}

    def __init__(
        self,
        params,
        lr=1e-2,
        alpha=0.99,
        eps=1e-8,
        weight_decay=0,
        momentum=0,
        centered=False,
        capturable=False,
        foreach=None,
        maximize=False,
        differentiable=False,
        *,
        master_weights=True,
        state_dtype=None,
    ):
        self._make(params, locals())


class Adagrad(_Native):
    """Adagrad (Duchi et al., 2011)."""

    _native = "Adagrad"

    def __init__(
        self,
        params,
        lr=1e-2,
        lr_decay=0,
        weight_decay=0,
        initial_accumulator_value=0,
        eps=1e-10,
        foreach=None,
        *,
        maximize=False,
        differentiable=False,
        fused=None,
        master_weights=True,
        state_dtype=None,
    ):
        self._make(params, locals())


class Adadelta(_Native):
    """Adadelta (Zeiler, 2012)."""

    _native = "Adadelta"

    def __init__(
        self,
        params,
        lr=1.0,
        rho=0.9,
        eps=1e-6,
        weight_decay=0,
        foreach=None,
        *,
        capturable=False,
        maximize=False,
        differentiable=False,
        master_weights=True,
        state_dtype=None,
    ):
        self._make(params, locals())


class ASGD(_Native):
    """Averaged gradient descent (Polyak and Juditsky, 1992). The average is the state "ax"."""

    _native = "ASGD"

    def __init__(
        self,
        params,
        lr=1e-2,
        lambd=1e-4,
        alpha=0.75,
        t0=1e6,
        weight_decay=0,
        foreach=None,
        maximize=False,
        differentiable=False,
        capturable=False,
        *,
        master_weights=True,
        state_dtype=None,
    ):
        self._make(params, locals())


class Adafactor(_Native):
    """Adafactor (Shazeer and Stern, 2018), whose state of a matrix is a row and a column."""

    _native = "Adafactor"

    def __init__(
        self,
        params,
        lr=1e-2,
        beta2_decay=-0.8,
        eps=(None, 1e-3),
        d=1.0,
        weight_decay=0.0,
        *,
        foreach=None,
        maximize=False,
        master_weights=True,
        state_dtype=None,
    ):
        self._make(params, locals())


class Lion(_Native):
    """Lion (Chen et al., 2023), which moves by signs."""

    _native = "Lion"

    def __init__(
        self,
        params,
        lr=1e-4,
        betas=(0.9, 0.99),
        weight_decay=0,
        *,
        maximize=False,
        foreach=None,
        capturable=False,
        differentiable=False,
        fused=None,
        master_weights=True,
        state_dtype=None,
    ):
        self._make(params, locals())


class Muon(_Native):
    """Muon (Jordan et al., 2024), for matrices: give the other parameters to another optimizer."""

    _native = "Muon"

    def __init__(
        self,
        params,
        lr=1e-3,
        weight_decay=0.1,
        momentum=0.95,
        nesterov=True,
        ns_coefficients=(3.4445, -4.775, 2.0315),
        eps=1e-7,
        ns_steps=5,
        adjust_lr_fn=None,
        *,
        master_weights=True,
        state_dtype=None,
    ):
        self._make(params, locals())


class LBFGS(_Native):
    """L-BFGS (Nocedal, 1980): a step takes a closure, which it calls several times. There is one group."""

    _native = "LBFGS"

    def __init__(
        self,
        params,
        lr=1,
        max_iter=20,
        max_eval=None,
        tolerance_grad=1e-7,
        tolerance_change=1e-9,
        history_size=100,
        line_search_fn=None,
        *,
        maximize=False,
    ):
        self._make(params, locals())

    def add_param_group(self, param_group):
        raise ValueError("LBFGS has one group of parameters")

    def _named_state(self, number, values):
        return {f"lbfgs.{name}": _as_tensor(value) for name, value in values.items()}
