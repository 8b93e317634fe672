"""NVIDIA GPUs."""

from mytorch import _core
from mytorch._legacy import kinds_of

globals().update(kinds_of("cuda"))


def device_count():
    """Returns the number of GPUs that a loaded backend serves."""
    return _core.device_count("cuda")


def is_available():
    """Returns whether there is a GPU."""
    return device_count() > 0


def synchronize(device="cuda"):
    """Waits for this thread's work on a GPU."""
    _core.synchronize(device)


def manual_seed(seed):
    """Seeds the default generator, which serves the CPU, too; without a GPU, does nothing."""
    if is_available():
        _core.manual_seed(seed)


def manual_seed_all(seed):
    """The same as manual_seed: one generator serves all devices."""
    manual_seed(seed)


def empty_cache():
    """Returns the memory of freed tensors, which is kept for later ones, to the GPUs; without one, does nothing."""
    for index in range(device_count()):
        _core._empty_cache(_core.device("cuda", index))
