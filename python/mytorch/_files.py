"""Objects in files."""

import os
import pickle
import tempfile

from mytorch import _core

# What a file of weights may name. Everything else could run code that the file brings.
_PLAIN = {
    "builtins": {"set", "frozenset", "complex", "bytearray", "range", "slice"},
    "collections": {"OrderedDict", "defaultdict", "Counter", "deque"},
    "_codecs": {"encode"},
    "mytorch": {"Tensor", "dtype", "device"},
    "mytorch._core": {"Tensor", "dtype", "device", "_tensor_from_bytes"},
    "mytorch.nn.parameter": {"Parameter", "Buffer"},
}


class _Unpickler(pickle.Unpickler):
    def __init__(self, file, map_location, weights_only):
        super().__init__(file)
        self._map, self._weights_only = map_location, weights_only

    def find_class(self, module, name):
        if module == "mytorch._core" and name == "_tensor_from_bytes" and self._map is not None:
            return self._tensor
        if self._weights_only and name not in _PLAIN.get(module, ()):
            raise pickle.UnpicklingError(
                f"the file names {module}.{name}, which is no tensor, number, text or container: if you trust the file, "
                "load it with weights_only=False, which runs the code that it names"
            )
        return super().find_class(module, name)

    def _tensor(self, data, dtype, shape, device, requires_grad, type):
        if callable(self._map):
            made = _core._tensor_from_bytes(data, dtype, shape, "cpu", requires_grad, type)
            moved = self._map(made, device)
            return made if moved is None else moved
        target = self._map.get(device, device) if isinstance(self._map, dict) else self._map
        return _core._tensor_from_bytes(data, dtype, shape, str(target), requires_grad, type)


def save(obj, f, pickle_protocol=4):
    """Writes an object with tensors, such as a state_dict, to a file: a path or an open binary file. A file at the path
    is replaced only when all has been written."""
    if hasattr(f, "write"):
        pickle.dump(obj, f, pickle_protocol)
        return
    path = os.fspath(f)
    folder = os.path.dirname(os.path.abspath(path))
    handle, beside = tempfile.mkstemp(prefix=".saving-", dir=folder)
    try:
        with os.fdopen(handle, "wb") as file:
            pickle.dump(obj, file, pickle_protocol)
            file.flush()
            os.fsync(file.fileno())
        mask = os.umask(0)
        os.umask(mask)
        os.chmod(beside, 0o666 & ~mask)  # as open() makes files
        os.replace(beside, path)
    except BaseException:
        os.unlink(beside)
        raise


def load(f, map_location=None, weights_only=True):
    """Reads what save() has written. `map_location`: a device for all tensors, a dictionary of devices, or a function of
    a tensor and its device. By default, files with anything but tensors, numbers, texts and containers are refused;
    weights_only=False runs whatever code the file names."""
    if hasattr(f, "read"):
        return _Unpickler(f, map_location, weights_only).load()
    with open(f, "rb") as file:
        return _Unpickler(file, map_location, weights_only).load()
