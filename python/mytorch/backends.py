"""The switches of torch.backends. A value that would promise what is not done is an UnsupportedError."""

import os
import warnings

from mytorch import _core

# The libraries read these settings once, at the first operator that asks for them.
_TF32 = os.environ.get("MYTORCH_CUDA_TF32") == "1"
_TIMED = os.environ.get("MYTORCH_CUDA_CONVOLUTION") != "first"


def _gpus():
    return _core.device_count("cuda") > 0


def _flag(where, value):
    if type(value) is not bool:
        raise TypeError(f"[{where}] {value!r}: give True or False")
    return value


class _Switches:
    """Switches; other names are errors, because a switch that nobody reads would be silent."""

    def __setattr__(self, name, value):
        if not hasattr(type(self), name) and name[0] != "_":
            raise AttributeError(f"[backends] there is no switch '{name}' of {type(self).__name__.strip('_')}")
        super().__setattr__(name, value)


class _Matmul(_Switches):
    """Products of float32 on GPUs."""

    def __init__(self):
        self._precision = "high" if _TF32 else "highest"

    @property
    def allow_tf32(self):
        """Whether factors may be rounded to TF32. True is a permission, which only MYTORCH_CUDA_TF32=1 uses."""
        return self._precision != "highest"

    @allow_tf32.setter
    def allow_tf32(self, value):
        self.set_precision("backends.cuda.matmul.allow_tf32", "high" if _flag("allow_tf32", value) else "highest")

    def set_precision(self, where, precision):
        if precision == "highest" and _TF32 and _gpus():
            raise _core.UnsupportedError(
                f"[{where}] MYTORCH_CUDA_TF32=1 lets products on GPUs round their factors: start without it"
            )
        self._precision = precision


class _Cuda(_Switches):
    """Switches of GPUs."""

    matmul = _Matmul()

    def is_built(self):
        """Returns whether a backend for NVIDIA GPUs has been loaded that finds one."""
        return _gpus()


class _Cudnn(_Switches):
    """Convolutions on GPUs. Their algorithms are deterministic, so that both values of `deterministic` are kept."""

    def __init__(self):
        self._benchmark, self._deterministic, self._allow_tf32 = False, False, True

    def is_available(self):
        """Returns whether there is a GPU; its backend comes with cuDNN."""
        return _gpus()

    @property
    def enabled(self):
        """True."""
        return True

    @enabled.setter
    def enabled(self, value):
        if not _flag("backends.cudnn.enabled", value) and _gpus():
            raise _core.UnsupportedError("[backends.cudnn.enabled] False: convolutions on GPUs are cuDNN's")

    @property
    def deterministic(self):
        """Whether only deterministic algorithms are wanted. There are no others."""
        return self._deterministic

    @deterministic.setter
    def deterministic(self, value):
        self._deterministic = _flag("backends.cudnn.deterministic", value)

    @property
    def benchmark(self):
        """Whether algorithms may be chosen by their time."""
        return self._benchmark or (_TIMED and _gpus())

    @benchmark.setter
    def benchmark(self, value):
        if not _flag("backends.cudnn.benchmark", value) and _TIMED and _gpus():
            warnings.warn(
                "[backends.cudnn.benchmark] False: the first call of a large convolution times algorithms still; start"
                " with MYTORCH_CUDA_CONVOLUTION=first, which takes the first",
                stacklevel=2,
            )
        self._benchmark = value

    @property
    def allow_tf32(self):
        """Whether convolutions may round their factors to TF32: a permission."""
        return self._allow_tf32

    @allow_tf32.setter
    def allow_tf32(self, value):
        if not _flag("backends.cudnn.allow_tf32", value) and _TF32 and _gpus():
            raise _core.UnsupportedError(
                "[backends.cudnn.allow_tf32] False: MYTORCH_CUDA_TF32=1 lets GPUs round factors: start without it"
            )
        self._allow_tf32 = value


class _Absent:
    """A kind of device or library that mytorch has no backend for."""

    def is_available(self):
        """Returns False."""
        return False

    def is_built(self):
        """Returns False."""
        return False


cuda, cudnn, mps = _Cuda(), _Cudnn(), _Absent()


def get_float32_matmul_precision():
    """Returns 'highest', or what has been allowed instead: 'high' or 'medium'."""
    return cuda.matmul._precision


def set_float32_matmul_precision(precision):
    """Allows products of float32 to be rounded. 'high' and 'medium' are permissions; MYTORCH_CUDA_TF32=1 uses them."""
    if precision not in ("highest", "high", "medium"):
        raise _core.ArgumentError(f"[set_float32_matmul_precision] {precision!r}: give 'highest', 'high' or 'medium'")
    cuda.matmul.set_precision("set_float32_matmul_precision", precision)


def use_deterministic_algorithms(mode, *, warn_only=False):
    """Takes False alone: not every operator is known to be deterministic, and none would raise an error."""
    if mode:
        raise _core.UnsupportedError(
            "[use_deterministic_algorithms] True: operators are not checked for a fixed order of sums; compare two runs"
            " of the program instead"
        )


def are_deterministic_algorithms_enabled():
    """Returns False: operators are not checked for it."""
    return False
