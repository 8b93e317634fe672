"""The device of tensors that are made without one: the CPU."""

from mytorch import _core


def get_default_device():
    """Returns the device of tensors that are made without one: the CPU."""
    return _core.device("cpu")


def set_default_device(device):
    """Takes the CPU alone, which is the default; None stands for it."""
    if device is not None and _core.device(device).type != "cpu":
        raise _core.UnsupportedError(
            f"[set_default_device] {device}: the default is always the CPU; pass device='{device}' where tensors are"
            f" made, and call model.to('{device}')"
        )
