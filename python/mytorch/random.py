"""The default generator of random numbers. One generator serves the CPU and the GPUs."""

import contextlib
import os

from mytorch import _core
from mytorch._core import manual_seed

__all__ = ["fork_rng", "get_rng_state", "initial_seed", "manual_seed", "seed", "set_rng_state"]


def get_rng_state():
    """Returns the state of the default generator, a tensor of bytes."""
    return _core._default_generator().get_state()


def set_rng_state(new_state):
    """Continues the default generator from a state of `get_rng_state`."""
    _core._default_generator().set_state(new_state)


def initial_seed():
    """Returns the seed that the default generator got last."""
    return _core._default_generator().initial_seed()


def seed():
    """Seeds the default generator with a number of the operating system, and returns the number."""
    number = int.from_bytes(os.urandom(8), "little")
    manual_seed(number)
    return number


@contextlib.contextmanager
def fork_rng(devices=None, enabled=True, device_type="cuda"):
    """Gives the default generator its state back at the end of a `with` block. It serves all devices, so that
    `devices` and `device_type` choose nothing."""
    state = get_rng_state() if enabled else None
    try:
        yield
    finally:
        if state is not None:
            set_rng_state(state)
