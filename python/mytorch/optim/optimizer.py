"""What optimizers have in common: groups of parameters with options, and state."""

import collections
import types
from collections.abc import Mapping, MutableMapping

from mytorch import _core

__all__ = ["Optimizer", "ParamGroup"]


class Optimizer:
    """Base of all optimizers, also of those that a program writes in Python, with `param_groups`, `state` and `step`:

    class SignDescent(mytorch.optim.Optimizer):
        def __init__(self, params, lr=0.01):
            super().__init__(params, {"lr": lr})

        @mytorch.no_grad
        def step(self):
            for group in self.param_groups:
                for p in group["params"]:
                    p -= group["lr"] * p.grad.sign()
    """

    def __init__(self, params, defaults):
        self.defaults = dict(defaults)
        self.state = collections.defaultdict(dict)
        self.param_groups = []
        for group in _groups(params):
            self.add_param_group(group)

    def add_param_group(self, param_group):
        """Adds a group: a dict with "params", and options that replace the defaults."""
        group = _checked(param_group, self.param_groups)
        known = {hash(p) for other in self.param_groups for p in other["params"]}
        for p in group["params"]:
            if hash(p) in known:
                raise ValueError("a parameter occurs twice")
            known.add(hash(p))
        self.param_groups.append({**self.defaults, **group})

    def step(self, closure=None):
        """Updates the parameters from their gradients. A closure clears the gradients, computes the loss, calls
        backward() and returns the loss."""
        raise NotImplementedError(f"{type(self).__name__} has no step: define it")

    def zero_grad(self, set_to_none=True):
        """Clears the gradients, or fills them with zeros."""
        for group in self.param_groups:
            for p in group["params"]:
                if set_to_none:
                    p.grad = None
                elif p.grad is not None:
                    p.grad = _core.zeros_like(p.grad.detach())

    def state_dict(self):
        """Returns {"state": {0: {...}}, "param_groups": [...]}, in which parameters are numbers, counted through all
        groups. The tensors are those of the optimizer: save or copy them before the next step."""
        numbers, groups = {}, []
        for group in self.param_groups:
            first = len(numbers)
            numbers.update((hash(p), first + i) for i, p in enumerate(group["params"]))
            options = {name: value for name, value in group.items() if name != "params"}
            groups.append({**options, "params": list(range(first, len(numbers)))})
        state = {numbers.get(hash(p), p): dict(values) for p, values in self.state.items() if values}
        return {"state": state, "param_groups": groups}

    def load_state_dict(self, state_dict):
        """Takes the options and the state of an optimizer of this class whose groups have as many parameters."""
        groups, state = self._matched(state_dict)
        params = [p for group in self.param_groups for p in group["params"]]
        for group, saved in zip(self.param_groups, groups):
            kept = {name: group[name] for name in ("params", "param_names") if name in group}
            group.clear()
            group.update({**saved, **kept})
        self.state = collections.defaultdict(dict)
        for number, values in state.items():
            p = params[number]
            self.state[p] = {name: _placed(name, value, p) for name, value in values.items()}

    def _matched(self, state_dict):
        """Returns the groups that were saved, and the state by the numbers of this optimizer's parameters."""
        if not isinstance(state_dict, Mapping) or not {"state", "param_groups"} <= state_dict.keys():
            raise ValueError('this is no state of an optimizer: it has "state" and "param_groups"')
        groups = list(state_dict["param_groups"])
        own, saved = [len(g["params"]) for g in self.param_groups], [len(g["params"]) for g in groups]
        if own != saved:
            raise ValueError(f"the saved groups have {saved} parameters, those of the optimizer {own}")
        names = [name for group in groups for name in group["params"]]
        numbers = {name: number for number, name in enumerate(names)}
        unknown = [name for name in state_dict["state"] if name not in numbers]
        if unknown:
            raise ValueError(f"the state has parameter {unknown[0]!r}, which no saved group has")
        return groups, {numbers[name]: values for name, values in state_dict["state"].items()}

    def __repr__(self):
        text = f"{type(self).__name__} ("
        for i, group in enumerate(self.param_groups):
            options = [f"    {name}: {group[name]}\n" for name in sorted(group) if name != "params"]
            text += f"\nParameter Group {i}\n" + "".join(options)
        return text + ")"


class ParamGroup(MutableMapping):
    """A group of an optimizer of C++: its parameters, its options, which are read and written there, and what a program
    adds. A change takes effect in the next step."""

    __slots__ = ("_core", "_number", "_params", "_names", "_fixed", "_more")

    def __init__(self, core, number, params, fixed, more):
        self._core, self._number, self._params, self._fixed, self._more = core, number, params, fixed, more
        self._names = frozenset(core._options(number))

    def __getitem__(self, name):
        if name in self._names:
            return self._core._option(self._number, name)
        return self._params if name == "params" else self._more[name]

    def __setitem__(self, name, value):
        if name in self._names:
            self._core._set_option(self._number, name, value)
        elif name == "params":
            raise TypeError("the parameters of a group do not change: add a group, or make another optimizer")
        else:
            _check_fixed(self._fixed, {name: value})
            self._more[name] = value

    def __delitem__(self, name):
        if name in self._names or name == "params":
            raise TypeError(f"the option {name!r} belongs to the optimizer: set it")
        del self._more[name]

    def __iter__(self):
        yield "params"
        yield from sorted(self._names)
        yield from self._more

    def __len__(self):
        return 1 + len(self._names) + len(self._more)

    def __repr__(self):
        return repr(dict(self))

    def __reduce__(self):
        return dict, (dict(self),)  # copies are no longer the optimizer's

    def copy(self):
        """Returns a dict."""
        return dict(self)


class _FixedList(list):
    """A list that a program only reads."""

    def _refuse(self, *_, **__):
        raise TypeError("an optimizer's lists are only read: add_param_group adds parameters")

    append = extend = insert = pop = remove = clear = sort = reverse = _refuse
    __setitem__ = __delitem__ = __iadd__ = __imul__ = _refuse  # type: ignore[assignment]

    def __reduce__(self):
        return list, (list(self),)


class _State(Mapping):
    """The state of parameters by themselves. It is looked up by the tensor, whichever object refers to it; that of a
    parameter that has made no step is empty."""

    def __init__(self, params, values):
        self._params = params
        self._values = {hash(p): types.MappingProxyType(each) for p, each in zip(params, values)}

    def __getitem__(self, p):
        return self._values.get(hash(p), types.MappingProxyType({}))

    def __contains__(self, p):
        return hash(p) in self._values

    def __iter__(self):
        return iter(self._params)

    def __len__(self):
        return len(self._params)

    def __repr__(self):
        return repr([(p, dict(self[p])) for p in self])


class NativeOptimizer(Optimizer):
    """An optimizer of C++."""

    _state_names: dict[str, str] = {}  # of C++, and PyTorch's, where they differ

    def _make(self, params, arguments, native=None, fixed=None):
        """Makes the optimizer of the C++ class `native` with the arguments of a constructor, its locals()."""
        native = native or type(self)._native
        names = _core._optimizer_defaults(native)
        self._fixed = {"differentiable": False, **(fixed or {})}
        _check_fixed(self._fixed, arguments)
        self._restore(native, {name: arguments[name] for name in names if name in arguments}, _groups(params))

    def _restore(self, native, defaults, groups):
        checked = []
        for group in groups:
            checked.append({**defaults, **_checked(group, checked)})
            _check_fixed(self._fixed, checked[-1])
        names = _core._optimizer_defaults(native)
        self._class = native
        self._core = _core._Optimizer(native, defaults, tuple(_split(group, names)[0] for group in checked))
        self.defaults = {**names, **defaults}
        self._groups = _FixedList()
        self._known_state = (-1, None)
        for group in checked:
            self._append(group)

    def _append(self, group):
        (params, native), more = _split(group, self.defaults)
        made = ParamGroup(self._core, len(self._groups), _FixedList(params), self._fixed, more)
        list.append(self._groups, made)

    @property
    def param_groups(self):
        """The groups, a list of mappings: `for group in optimizer.param_groups: group["lr"] *= 0.1`."""
        return self._groups

    @property
    def state(self):
        """The state of each parameter, a mapping from parameters to tensors by name. The tensors are the optimizer's;
        which there are is only read."""
        changes = self._core._changes
        if self._known_state[0] != changes:
            values = self._state_by_number()
            params = [p for group in self._groups for p in group["params"]]
            state = _State([params[i] for i in values], list(values.values()))
            self._known_state = (changes, state)
        return self._known_state[1]

    def _state_by_number(self):
        state = {}
        for name, tensor in self._core._state().items():
            owner, _, name = name.partition(".")
            number = int(owner[len("parameter") :]) if owner.startswith("parameter") else 0
            state.setdefault(number, {})[self._state_names.get(name, name)] = tensor
        return {number: state[number] for number in sorted(state)}

    def add_param_group(self, param_group):
        group = {**self.defaults, **_checked(param_group, self._groups)}
        _check_fixed(self._fixed, group)
        self._core._add_group(_split(group, self.defaults)[0])
        self._append(group)

    def step(self, closure=None):
        return self._core.step(closure)

    step.__doc__ = Optimizer.step.__doc__

    def zero_grad(self, set_to_none=True):
        self._core.zero_grad(set_to_none)

    zero_grad.__doc__ = Optimizer.zero_grad.__doc__

    def load_state_dict(self, state_dict):
        groups, state = self._matched(state_dict)
        native, more = [], []
        for group, saved in zip(self._groups, groups):
            _check_fixed(self._fixed, saved)
            native.append({name: saved[name] for name in self.defaults if name in saved})
            own = {name: group[name] for name in ("param_names",) if name in group}
            more.append({k: v for k, v in {**saved, **own}.items() if k not in self.defaults and k != "params"})
        tensors = {}
        for number, values in state.items():
            tensors.update(self._named_state(number, values))
        self._core._load(tuple(native), tensors)
        for group, each in zip(self._groups, more):
            group._more = each

    load_state_dict.__doc__ = Optimizer.load_state_dict.__doc__

    def _named_state(self, number, values):
        """Returns the state of a parameter by the names of C++."""
        names = {theirs: ours for ours, theirs in self._state_names.items()}
        state = {names.get(name, name): value for name, value in values.items() if value is not None}
        if state:
            state.setdefault("step", 1)  # PyTorch counts no steps where only the first is another
        return {f"parameter{number}.{name}": _as_tensor(value) for name, value in state.items()}

    def __reduce__(self):
        own = ("defaults", "_core", "_class", "_groups", "_known_state")
        more = {name: value for name, value in self.__dict__.items() if name not in own}
        groups = [{**group} for group in self._groups]
        return _rebuilt, (type(self), self._class, self.defaults, groups, self.state_dict()["state"], more)


def _rebuilt(cls, native, defaults, groups, state, more):
    self = cls.__new__(cls)
    self.__dict__.update(more)
    self._restore(native, defaults, groups)
    self.load_state_dict({"state": state, "param_groups": self.state_dict()["param_groups"]})
    return self


def _groups(params):
    """Returns the groups of a constructor's argument."""
    if isinstance(params, _core.Tensor):
        raise TypeError("an optimizer takes an iterable of tensors, not one: write [x]")
    if isinstance(params, (str, Mapping)) or not hasattr(params, "__iter__"):
        raise TypeError(f"an optimizer takes an iterable of tensors or of groups, not {type(params).__name__}")
    _check_order(params)
    groups = list(params)
    if not groups:
        raise ValueError("there are no parameters to optimize")
    return groups if isinstance(groups[0], Mapping) else [{"params": groups}]


def _check_order(params):
    if isinstance(params, (set, frozenset)):
        raise TypeError("a set has no order, so a saved state would not fit: give a list")


def _checked(group, others):
    """Returns a dict of a group, with its parameters as a list, and "param_names" if they have names."""
    if not isinstance(group, Mapping):
        raise TypeError(f'a group is a dict with "params", not {type(group).__name__}')
    if "params" not in group:
        raise ValueError('a group has no parameters: give "params"')
    params = group["params"]
    _check_order(params)
    params = [params] if isinstance(params, _core.Tensor) else list(params)
    group = {**group, "params": params}
    if params and all(isinstance(p, tuple) and len(p) == 2 for p in params):
        group["param_names"] = [name for name, _ in params]
        group["params"] = [p for _, p in params]
    for p in group["params"]:
        if not isinstance(p, _core.Tensor):
            raise TypeError(f"a parameter is a tensor, or, in every place, a pair of a name and one: not {p!r:.80}")
    if any(("param_names" in other) != ("param_names" in group) for other in others):
        raise ValueError("either all groups have names of parameters, or none")
    return group


def _check_fixed(fixed, options):
    for name, value in fixed.items():
        if name in options and options[name] != value:
            raise ValueError(f"{name} is {options[name]!r}: this optimizer has {value!r} alone")


def _split(group, native):
    """Divides a group into what the optimizer of C++ takes, and what a program has added."""
    options = {name: value for name, value in group.items() if name in native}
    more = {name: value for name, value in group.items() if name not in native and name != "params"}
    return (list(group["params"]), options), more


def _as_tensor(value):
    if isinstance(value, _core.Tensor):
        return value
    return _core.tensor(value, dtype=_core.float64 if isinstance(value, float) else None)


def _placed(name, value, p):
    """Returns a copy of a saved value for a parameter: of its device, and of its type unless it counts steps."""
    if not isinstance(value, _core.Tensor):
        return value
    if name == "step" or not (value.is_floating_point() and p.is_floating_point()):
        return value.detach().clone()
    return value.detach().to(p.device, p.dtype).clone()
