"""Modules that hold others."""

import itertools
import operator
from collections.abc import Mapping

from mytorch import _core
from mytorch.nn.module import Module
from mytorch.nn.parameter import Parameter


class _Held:
    """Parts by their names, in order."""

    def _names(self):
        return self._modules

    def _part(self, name):
        return self._modules[name]

    def _drop(self, name):
        del self._modules[name]

    def _parts(self):
        return {name: self._part(name) for name in self._names()}

    def __len__(self):
        return len(self._names())


class _Numbered(_Held):
    """Parts by number; their names are "0", "1", ..."""

    def _set_all(self, parts):
        self._clear()
        for at, part in enumerate(parts):
            self._put(str(at), part)

    def _clear(self):
        for name in list(self._names()):
            self._drop(name)

    def _at(self, index):
        index = operator.index(index)
        if not -len(self) <= index < len(self):
            raise IndexError(f"there is no part {index} among {len(self)}")
        return index % len(self)

    def _name(self, index):
        return next(itertools.islice(self._names(), self._at(index), None))

    def __iter__(self):
        return iter(self._parts().values())

    def __contains__(self, part):
        return any(each is part for each in self)

    def __getitem__(self, index):
        if isinstance(index, slice):
            return self._of(list(self._parts().items())[index])
        return self._part(self._name(index))

    def __setitem__(self, index, part):
        self._put(self._name(index), part)

    def __delitem__(self, index):
        parts = list(self)
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
        return self._of([(str(at), part) for at, part in enumerate([*self, *parts])])

    @classmethod
    def _empty(cls):
        try:
            made = cls()
        except TypeError:  # a subclass, whose constructor takes other arguments
            made = next(kind for kind in cls.__mro__ if kind in (Sequential, ModuleList, ParameterList))()
        made._clear()
        return made

    @classmethod
    def _of(cls, items):
        made = cls._empty()
        made._set_all([part for _, part in items])
        return made


class _Modules(_Numbered):
    def _put(self, name, part):
        if part is not None and not isinstance(part, Module):
            raise TypeError(f"{type(self).__name__} holds modules, not {type(part).__name__}")
        self._modules[name] = part


def _repeated(modules, times):
    if not isinstance(times, int):
        raise TypeError(f"a Sequential is multiplied by an int, not by a {type(times).__name__}")
    if times <= 0:
        raise ValueError(f"a Sequential is multiplied by a positive number, not by {times}")
    return list(modules) * times


class Sequential(_Modules, Module):
    """Calls its modules one after the other: Sequential(Linear(4, 8), ReLU()), or of names and modules."""

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
        made = cls._empty()
        for name, module in items:
            made._put(name, module)
        return made

    def __mul__(self, times):
        return self._of([]).extend(_repeated(self, times))

    __rmul__ = __mul__

    def __imul__(self, times):
        return self.extend(_repeated(self, times)[len(self) :])

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


class _Named(_Held):
    """Parts by name."""

    def __getitem__(self, key):
        return self._part(key)

    def __setitem__(self, key, part):
        self._put(key, part)

    def __delitem__(self, key):
        self._drop(key)

    def __iter__(self):
        return iter(self._names())

    def __reversed__(self):
        return reversed(self._names())

    def __contains__(self, key):
        return key in self._names()

    def keys(self):
        """Returns the names."""
        return self._names().keys()

    def values(self):
        """Returns the parts."""
        return self._parts().values()

    def items(self):
        """Returns pairs of names and parts."""
        return self._parts().items()

    def get(self, key, default=None):
        """Returns the part of a name, or a default."""
        return self._part(key) if key in self else default

    def clear(self):
        """Removes all parts."""
        for key in list(self):
            del self[key]

    def pop(self, key):
        """Removes a part and returns it."""
        part = self[key]
        del self[key]
        return part

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
        self.add_module(key, part)


class _Parameters:
    """Parameters, and other values, which are attributes alone. `_keys` has the names of all of them in order."""

    def __init__(self):
        super().__init__()
        self.__dict__["_keys"] = {}

    def _names(self):
        return self._keys

    def _part(self, name):
        if name not in self._keys:
            raise KeyError(name)
        return getattr(self, name)

    def _put(self, name, part):
        self._check_free(name, self._keys)
        if isinstance(part, _core.Tensor) and not isinstance(part, Parameter):
            part = Parameter(part)
        if name in self._keys and not isinstance(part, Parameter):
            delattr(self, name)  # a parameter's name takes no other value
        setattr(self, name, part)
        self._keys[name] = None

    def _drop(self, name):
        del self._keys[name]
        delattr(self, name)

    def extra_repr(self):
        return "\n".join(
            f"({name}): {type(each).__name__}"
            + (f" {each.dtype} of {each.shape}" if isinstance(each, _core.Tensor) else "")
            for name, each in self._parts().items()
        )


class ParameterList(_Parameters, _Numbered, Module):
    """A list of parameters; tensors become parameters. It may hold other values, too."""

    def __init__(self, values=None):
        super().__init__()
        if values is not None:
            self.extend(values)


class ParameterDict(_Parameters, _Named, Module):
    """Parameters by name; tensors become parameters. It may hold other values, too."""

    def __init__(self, parameters=None):
        super().__init__()
        if parameters is not None:
            self.update(parameters)

    def setdefault(self, key, default=None):
        """Returns the part of a name, which becomes the default if there is none."""
        if key not in self:
            self[key] = default
        return self[key]

    def popitem(self):
        """Removes the last part and returns its name and the part."""
        if not self._keys:
            raise KeyError("popitem() of an empty ParameterDict")
        key = next(reversed(self))
        return key, self.pop(key)

    def copy(self):
        """Returns a dictionary of the same parts."""
        return ParameterDict(self)

    def fromkeys(self, keys, default=None):
        """Returns a dictionary of one value for several names."""
        return ParameterDict((key, default) for key in keys)

    def __or__(self, parts):
        made = self.copy()
        made.update(parts)
        return made

    def __ror__(self, parts):
        return ParameterDict(parts) | self

    def __ior__(self, parts):
        self.update(parts)
        return self
