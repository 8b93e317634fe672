"""NVIDIA GPUs."""

from mytorch import _core


def device_count():
    """Returns the number of GPUs that a loaded backend serves."""
    return _core.device_count("cuda")


def is_available():
    """Returns whether there is a GPU."""
    return device_count() > 0


def synchronize(device="cuda"):
    """Waits for this thread's work on a GPU."""
    _core.synchronize(device)
