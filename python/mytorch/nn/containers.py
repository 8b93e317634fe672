"""Modules that hold others."""

import operator
from collections.abc import Mapping

from mytorch import _core
from mytorch.nn.module import Module
from mytorch.nn.parameter import Parameter


class _Numbered:
    """Parts by number; their names are "0", "1", ..."""

    _kind = "_modules"

    def _parts(self):
        return self.__dict__[self._kind]

    def _set_all(self, parts):
        held = self._parts()
        held.clear()
        for at, part in enumerate(parts):
            self._put(str(at), part)

    def _at(self, index):
        index = operator.index(index)
        if not -len(self) <= index < len(self):
            raise IndexError(f"there is no part {index} among {len(self)}")
        return index % len(self)

    def _name(self, index):
        return list(self._parts())[self._at(index)]

    def __len__(self):
        return len(self._parts())

    def __iter__(self):
        return iter(self._parts().values())

    def __contains__(self, part):
        return any(each is part for each in self)

    def __getitem__(self, index):
        if isinstance(index, slice):
            return type(self)._of(list(self._parts().items())[index])
        return self._parts()[self._name(index)]

    def __setitem__(self, index, part):
        self._put(self._name(index), part)

    def __delitem__(self, index):
        parts = list(self._parts().values())
        del parts[index if isinstance(index, slice) else self._at(index)]
        self._set_all(parts)

    def append(self, part):
        """Adds a part at the end."""
        self._put(str(len(self)), part)
        return self

    def insert(self, index, part):
        """Puts a part before the one at an index."""
        parts = list(self)
        parts.insert(index, part)
        self._set_all(parts)
        return self

    def extend(self, parts):
        """Adds parts at the end."""
        for part in list(parts):
            self.append(part)
        return self

    def pop(self, index=-1):
        """Removes a part and returns it."""
        part = self[index]
        del self[index]
        return part

    def __iadd__(self, parts):
        return self.extend(parts)

    def __add__(self, parts):
        made = type(self)._of([(str(at), part) for at, part in enumerate([*self, *parts])])
        return made

    @classmethod
    def _of(cls, items):
        made = cls()
        made._set_all([part for _, part in items])
        return made


class _Modules(_Numbered):
    def _put(self, name, part):
        if part is not None and not isinstance(part, Module):
            raise TypeError(f"{type(self).__name__} holds modules, not {type(part).__name__}")
        self._modules[name] = part


class Sequential(_Modules, Module):
    """Calls its modules one after the other: Sequential(Linear(4, 8), ReLU()), or of a dictionary of names and modules."""

    def __init__(self, *args):
        super().__init__()
        if len(args) == 1 and isinstance(args[0], Mapping):
            for name, module in args[0].items():
                self.add_module(name, module)
        else:
            for module in args:
                self.append(module)

    @classmethod
    def _of(cls, items):
        made = cls()
        for name, module in items:
            made._put(name, module)
        return made

    def forward(self, input):
        for module in self._modules.values():
            input = module(input)
        return input


class ModuleList(_Modules, Module):
    """A list of modules."""

    def __init__(self, modules=None):
        super().__init__()
        if modules is not None:
            self.extend(modules)


class _Named:
    """Parts by name."""

    _kind = "_modules"

    def _parts(self):
        return self.__dict__[self._kind]

    def __getitem__(self, key):
        return self._parts()[key]

    def __setitem__(self, key, part):
        self._put(key, part)

    def __delitem__(self, key):
        del self._parts()[key]

    def __len__(self):
        return len(self._parts())

    def __iter__(self):
        return iter(self._parts())

    def __contains__(self, key):
        return key in self._parts()

    def keys(self):
        """Returns the names."""
        return self._parts().keys()

    def values(self):
        """Returns the parts."""
        return self._parts().values()

    def items(self):
        """Returns pairs of names and parts."""
        return self._parts().items()

    def get(self, key, default=None):
        """Returns the part of a name, or a default."""
        return self._parts().get(key, default)

    def clear(self):
        """Removes all parts."""
        self._parts().clear()

    def pop(self, key):
        """Removes a part and returns it."""
        return self._parts().pop(key)

    def update(self, parts):
        """Adds parts: a dictionary, or pairs."""
        for key, part in parts.items() if hasattr(parts, "items") else parts:
            self[key] = part


class ModuleDict(_Named, Module):
    """Modules by name."""

    def __init__(self, modules=None):
        super().__init__()
        if modules is not None:
            self.update(modules)

    def _put(self, key, part):
        self._own(key)
        if part is not None and not isinstance(part, Module):
            raise TypeError(f"a ModuleDict holds modules, not {type(part).__name__}")
        self._modules[key] = part


def _as_parameter(value):
    if isinstance(value, Parameter) or not isinstance(value, _core.Tensor):
        return value
    return Parameter(value)


class _Parameters:
    _kind = "_parameters"

    def _put(self, name, part):
        part = _as_parameter(part)
        if not isinstance(part, Parameter):
            raise TypeError(f"{type(self).__name__} holds tensors, not {type(part).__name__}")
        self._own(name)
        self._parameters[name] = part

    def extra_repr(self):
        return "\n".join(
            f"({name}): {type(each).__name__} {each.dtype} of {each.shape}" for name, each in self._parameters.items()
        )


class ParameterList(_Parameters, _Numbered, Module):
    """A list of parameters; tensors become parameters."""

    def __init__(self, values=None):
        super().__init__()
        if values is not None:
            self.extend(values)


class ParameterDict(_Parameters, _Named, Module):
    """Parameters by name; tensors become parameters."""

    def __init__(self, parameters=None):
        super().__init__()
        if parameters is not None:
            self.update(parameters)
