"""Whether operations are recorded for differentiation."""

import functools
import inspect
import threading

from mytorch import _core


class _GradMode:
    """Sets the mode in a `with` block, or while a function runs that it decorates."""

    def __init__(self, enabled):
        self._enabled = enabled
        self._outer = threading.local()  # the modes of the blocks that are open, of each thread

    def __enter__(self):
        self._modes().append(_core.is_grad_enabled())
        _core._set_grad_enabled(self._enabled)
        return self

    def __exit__(self, *_):
        _core._set_grad_enabled(self._modes().pop())

    def __call__(self, function):
        if inspect.isgeneratorfunction(function):
            raise TypeError("a generator leaves its block between its values: use `with` inside of it")

        @functools.wraps(function)
        def wrapped(*args, **keywords):
            with _GradMode(self._enabled):
                return function(*args, **keywords)

        return wrapped

    def _modes(self):
        if not hasattr(self._outer, "modes"):
            self._outer.modes = []
        return self._outer.modes


class no_grad(_GradMode):
    """Operations are not recorded. `@no_grad()` or `@no_grad` decorates a function."""

    _mode = False

    def __new__(cls, function=None):
        self = super().__new__(cls)
        if function is None:
            return self
        _GradMode.__init__(self, cls._mode)
        return self(function)

    def __init__(self, function=None):
        super().__init__(self._mode)


class enable_grad(no_grad):
    """Operations are recorded, also inside of no_grad."""

    _mode = True


class inference_mode(_GradMode):
    """Operations are not recorded, as in no_grad; with False, they are. What is computed are ordinary tensors."""

    def __new__(cls, mode=True):
        self = super().__new__(cls)
        if isinstance(mode, bool):
            return self
        _GradMode.__init__(self, False)
        return self(mode)  # the function that `@inference_mode` decorates

    def __init__(self, mode=True):
        super().__init__(not mode)


class set_grad_enabled(_GradMode):
    """Sets the mode at once; as a context, until its end; as a decorator, while the function runs."""

    def __init__(self, mode):
        super().__init__(bool(mode))
        super().__enter__()
        self._set = True  # by this call, not by a block

    def __enter__(self):
        if not self._set:
            super().__enter__()
        self._set = False
        return self

    def __call__(self, function):
        if self._set:
            self.__exit__()
            self._set = False
        return super().__call__(function)
