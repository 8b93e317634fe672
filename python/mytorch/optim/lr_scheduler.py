"""Schedules of learning rates. Call a schedule's step() after the optimizer's."""

import math
import types
from bisect import bisect_right
from collections import Counter

from mytorch.optim.optimizer import Optimizer

__all__ = [
    "ChainedScheduler",
    "ConstantLR",
    "CosineAnnealingLR",
    "CosineAnnealingWarmRestarts",
    "CyclicLR",
    "ExponentialLR",
    "LRScheduler",
    "LambdaLR",
    "LinearLR",
    "MultiStepLR",
    "MultiplicativeLR",
    "OneCycleLR",
    "PolynomialLR",
    "ReduceLROnPlateau",
    "SequentialLR",
    "StepLR",
]


class LRScheduler:
    """Base of schedules. A schedule defines get_lr(), the rates of all groups in step `last_epoch`, from those before or
    from `base_lrs`; and, if it has one, _get_closed_form_lr(), the rates from `base_lrs` alone."""

    _is_initial = False  # whether the constructor makes step 0

    def __init__(self, optimizer, last_epoch=-1):
        _check_optimizer(optimizer)
        self.optimizer = optimizer
        for number, group in enumerate(optimizer.param_groups):
            if last_epoch == -1:
                group.setdefault("initial_lr", group["lr"])
            elif "initial_lr" not in group:
                raise KeyError(
                    f'group {number} has no "initial_lr", from which a schedule goes on with last_epoch '
                    f"{last_epoch}: load the optimizer's state first"
                )
        self.base_lrs = [group["initial_lr"] for group in optimizer.param_groups]
        self.last_epoch = last_epoch
        self._initial_step()

    def _initial_step(self):
        self._step_count = 0
        self._is_initial = True
        try:
            self.step()
        finally:
            del self._is_initial

    def get_lr(self):
        """Returns the rates of step `last_epoch`; for programs, get_last_lr()."""
        raise NotImplementedError(f"{type(self).__name__} has no get_lr: define it")

    def get_last_lr(self):
        """Returns the rates of all groups that were set last."""
        return self._last_lr

    def step(self, epoch=None):
        """Sets the rates of the next step, or of step `epoch`."""
        self._step_count += 1
        self._update_lr(epoch)

    def _update_lr(self, epoch=None):
        self.last_epoch = self.last_epoch + 1 if epoch is None else epoch
        closed = getattr(self, "_get_closed_form_lr", None)
        self._set_lr(self.get_lr() if epoch is None or closed is None else closed())

    def _set_lr(self, rates):
        groups = self.optimizer.param_groups
        if len(rates) != len(groups):
            raise ValueError(f"the schedule is for {len(rates)} groups, the optimizer has {len(groups)}")
        for group, rate in zip(groups, rates):
            group["lr"] = rate
        self._last_lr = self._rates()

    def _rates(self, factor=1):
        return [group["lr"] * factor for group in self.optimizer.param_groups]

    def state_dict(self):
        """Returns everything but the optimizer and functions, as a dict."""
        return _state_of(self)

    def load_state_dict(self, state_dict):
        """Takes what state_dict() has returned."""
        _load_state(self, state_dict)


# PyTorch's older name.
_LRScheduler = LRScheduler


def _check_optimizer(optimizer):
    if not isinstance(optimizer, Optimizer):
        raise TypeError(f"a schedule takes an optimizer, not {type(optimizer).__name__}")


def _per_group(name, optimizer, value):
    """Returns a value for each group, from one or a list of them."""
    count = len(optimizer.param_groups)
    if not isinstance(value, (list, tuple)):
        return [value] * count
    if len(value) != count:
        raise ValueError(f"there are {len(value)} values of {name} for {count} groups: give as many, or one")
    return list(value)


def _check_choice(name, value, choices):
    if value not in choices:
        raise ValueError(f"{name} is {value!r}: give one of {', '.join(map(repr, choices))}")


def _is_function(value):
    return isinstance(value, (types.FunctionType, types.BuiltinFunctionType, types.MethodType))


def _function_state(function):
    """Returns the attributes of a callable object; None for a function, which a program gives again."""
    return None if function is None or _is_function(function) else dict(getattr(function, "__dict__", {}))


def _state_of(schedule):
    state = {}
    for name, value in schedule.__dict__.items():
        if name == "lr_lambdas":
            value = [_function_state(each) for each in value]
        elif name == "_scale_fn_custom":
            value = _function_state(value)
        elif name == "_schedulers":
            value = [each.state_dict() for each in value]
        if name != "optimizer":
            state[name] = list(value) if isinstance(value, list) else value
    return state


def _load_state(schedule, state):
    for name, value in state.items():
        if name == "lr_lambdas" or name == "_scale_fn_custom":
            own = schedule.__dict__[name]
            pairs = zip(own, value, strict=True) if isinstance(own, list) else [(own, value)]
            for function, attributes in pairs:
                if attributes is not None:
                    function.__dict__.update(attributes)
        elif name == "_schedulers":
            for each, its in zip(schedule._schedulers, value, strict=True):
                each.load_state_dict(its)
        elif name != "optimizer":
            setattr(schedule, name, list(value) if isinstance(value, list) else value)


class _OfFunctions(LRScheduler):
    def __init__(self, optimizer, lr_lambda, last_epoch=-1):
        _check_optimizer(optimizer)
        self.lr_lambdas = _per_group("lr_lambda", optimizer, lr_lambda)
        for function in self.lr_lambdas:
            if not callable(function):
                raise TypeError(f"lr_lambda is a function of the step, not {type(function).__name__}")
        super().__init__(optimizer, last_epoch)


class LambdaLR(_OfFunctions):
    """The initial rate times lr_lambda(step)."""

    def get_lr(self):
        return [base * factor(self.last_epoch) for base, factor in zip(self.base_lrs, self.lr_lambdas)]


class MultiplicativeLR(_OfFunctions):
    """The rate before times lr_lambda(step)."""

    def get_lr(self):
        if self._is_initial:
            return self._rates()
        return [rate * factor(self.last_epoch) for rate, factor in zip(self._rates(), self.lr_lambdas)]


class StepLR(LRScheduler):
    """Multiplies the rate by gamma after every step_size steps."""

    def __init__(self, optimizer, step_size, gamma=0.1, last_epoch=-1):
        if step_size <= 0:
            raise ValueError(f"step_size is {step_size}: give 1 or more")
        self.step_size, self.gamma = step_size, gamma
        super().__init__(optimizer, last_epoch)

    def get_lr(self):
        falls = self.last_epoch != 0 and self.last_epoch % self.step_size == 0
        return self._rates(self.gamma if falls else 1)

    def _get_closed_form_lr(self):
        return [base * self.gamma ** (self.last_epoch // self.step_size) for base in self.base_lrs]


class MultiStepLR(LRScheduler):
    """Multiplies the rate by gamma in each of the steps `milestones`."""

    def __init__(self, optimizer, milestones, gamma=0.1, last_epoch=-1):
        self.milestones, self.gamma = Counter(milestones), gamma
        super().__init__(optimizer, last_epoch)

    def get_lr(self):
        times = self.milestones[self.last_epoch]
        return self._rates(self.gamma**times if times else 1)

    def _get_closed_form_lr(self):
        passed = bisect_right(sorted(self.milestones.elements()), self.last_epoch)
        return [base * self.gamma**passed for base in self.base_lrs]


class ConstantLR(LRScheduler):
    """The rate times `factor` in the first total_iters steps."""

    def __init__(self, optimizer, factor=1.0 / 3, total_iters=5, last_epoch=-1):
        if not 0 <= factor <= 1:
            raise ValueError(f"factor is {factor}: give a number from 0 to 1")
        self.factor, self.total_iters = factor, total_iters
        super().__init__(optimizer, last_epoch)

    def get_lr(self):
        if self.last_epoch == 0:
            return self._rates(self.factor)
        if self.last_epoch != self.total_iters:
            return self._rates()
        return self._rates(1.0 / self.factor) if self.factor != 0 else list(self.base_lrs)

    def _get_closed_form_lr(self):
        factor = 1 if self.last_epoch >= self.total_iters else self.factor
        return [base * factor for base in self.base_lrs]


class LinearLR(LRScheduler):
    """The rate times a factor that goes from start_factor to end_factor in total_iters steps."""

    def __init__(self, optimizer, start_factor=1.0 / 3, end_factor=1.0, total_iters=5, last_epoch=-1):
        if not 0 < start_factor <= 1:
            raise ValueError(f"start_factor is {start_factor}: give a number above 0 and up to 1")
        if not 0 <= end_factor <= 1:
            raise ValueError(f"end_factor is {end_factor}: give a number from 0 to 1")
        self.start_factor, self.end_factor, self.total_iters = start_factor, end_factor, total_iters
        super().__init__(optimizer, last_epoch)

    def get_lr(self):
        if self.last_epoch == 0:
            return self._rates(self.start_factor)
        if self._is_initial or self.last_epoch > self.total_iters:
            return self._rates()
        height = self.end_factor - self.start_factor
        before = self.total_iters * self.start_factor + (self.last_epoch - 1) * height
        return self._rates(1.0 + height / before)

    def _get_closed_form_lr(self):
        part = min(self.total_iters, self.last_epoch) / self.total_iters if self.total_iters else 1
        return [base * (self.start_factor + (self.end_factor - self.start_factor) * part) for base in self.base_lrs]


class ExponentialLR(LRScheduler):
    """Multiplies the rate by gamma in every step."""

    def __init__(self, optimizer, gamma, last_epoch=-1):
        self.gamma = gamma
        super().__init__(optimizer, last_epoch)

    def get_lr(self):
        return self._rates(1 if self._is_initial else self.gamma)

    def _get_closed_form_lr(self):
        return [base * self.gamma**self.last_epoch for base in self.base_lrs]


class PolynomialLR(LRScheduler):
    """The initial rate times (1 - step / total_iters) ** power, to 0 in total_iters steps."""

    def __init__(self, optimizer, total_iters=5, power=1.0, last_epoch=-1):
        self.total_iters, self.power = total_iters, power
        super().__init__(optimizer, last_epoch)

    def get_lr(self):
        if self._is_initial or self.last_epoch > self.total_iters:
            return self._rates()
        now, before = (1.0 - step / self.total_iters for step in (self.last_epoch, self.last_epoch - 1))
        return self._rates((now / before) ** self.power)

    def _get_closed_form_lr(self):
        part = min(self.total_iters, self.last_epoch) / self.total_iters if self.total_iters else 1
        return [base * (1.0 - part) ** self.power for base in self.base_lrs]


def _half_cosine(high, low, part):
    return low + (high - low) * (1 + math.cos(math.pi * part)) / 2


class CosineAnnealingLR(LRScheduler):
    """From the initial rate to eta_min in T_max steps along half a cosine, and back (Loshchilov and Hutter, 2017,
    without restarts)."""

    def __init__(self, optimizer, T_max, eta_min=0.0, last_epoch=-1):
        if T_max <= 0:
            raise ValueError(f"T_max is {T_max}: give 1 or more")
        self.T_max, self.eta_min = T_max, eta_min
        super().__init__(optimizer, last_epoch)

    def get_lr(self):
        if self._is_initial:
            return self._rates()
        if self._step_count == 1 and self.last_epoch > 0:
            return self._get_closed_form_lr()
        if (self.last_epoch - 1 - self.T_max) % (
            2 * self.T_max
        ) == 0:  # leaves the minimum, where the quotient is 0 / 0
            rise = (1 - math.cos(math.pi / self.T_max)) / 2
            return [rate + (base - self.eta_min) * rise for rate, base in zip(self._rates(), self.base_lrs)]
        now, before = (1 + math.cos(math.pi * step / self.T_max) for step in (self.last_epoch, self.last_epoch - 1))
        return [now / before * (rate - self.eta_min) + self.eta_min for rate in self._rates()]

    def _get_closed_form_lr(self):
        return [_half_cosine(base, self.eta_min, self.last_epoch / self.T_max) for base in self.base_lrs]


class CosineAnnealingWarmRestarts(LRScheduler):
    """Half a cosine from the initial rate to eta_min in T_0 steps, again and again, each time over a period T_mult times
    as long (Loshchilov and Hutter, 2017). step(epoch) takes fractions."""

    def __init__(self, optimizer, T_0, T_mult=1, eta_min=0.0, last_epoch=-1):
        for name, value in (("T_0", T_0), ("T_mult", T_mult)):
            if not isinstance(value, int) or value < 1:
                raise ValueError(f"{name} is {value!r}: give an integer that is 1 or more")
        self.T_0, self.T_i, self.T_mult, self.eta_min, self.T_cur = T_0, T_0, T_mult, eta_min, last_epoch
        super().__init__(optimizer, last_epoch)

    def get_lr(self):
        return [_half_cosine(base, self.eta_min, self.T_cur / self.T_i) for base in self.base_lrs]

    def step(self, epoch=None):
        if epoch is None and self.last_epoch < 0:
            epoch = 0
        if epoch is None:
            epoch = self.last_epoch + 1
            self.T_cur += 1
            if self.T_cur >= self.T_i:
                self.T_cur %= self.T_i
                self.T_i *= self.T_mult
        elif not 0 <= epoch < math.inf:
            raise ValueError(f"the step is {epoch}: give 0 or more")
        else:
            self.T_cur, self.T_i = epoch, self.T_0
            if self.T_mult == 1:
                self.T_cur %= self.T_0
            else:
                while self.T_cur >= self.T_i:
                    self.T_cur -= self.T_i
                    self.T_i *= self.T_mult
        self.last_epoch = math.floor(epoch)
        self._set_lr(self.get_lr())


class _OfMomentum(LRScheduler):
    """Also changes momentum, or beta1."""

    def _start_momentum(self, optimizer, base_momentum, max_momentum, last_epoch):
        self.use_beta1 = "betas" in optimizer.defaults
        if not self.use_beta1 and "momentum" not in optimizer.defaults:
            raise ValueError(f"{type(optimizer).__name__} has no momentum: give cycle_momentum=False")
        self.base_momentums = _per_group("base_momentum", optimizer, base_momentum)
        self.max_momentums = _per_group("max_momentum", optimizer, max_momentum)
        if last_epoch != -1:
            return
        for group, base, most in zip(optimizer.param_groups, self.base_momentums, self.max_momentums):
            self._set_momentum(group, most)
            group["max_momentum"], group["base_momentum"] = most, base

    def _set_momentum(self, group, momentum):
        if self.use_beta1:
            group["betas"] = (momentum, *group["betas"][1:])
        else:
            group["momentum"] = momentum


class CyclicLR(_OfMomentum):
    """From base_lr to max_lr in step_size_up steps and back in step_size_down, again and again, with a height that
    `mode`, or scale_fn, scales (Smith, 2017). Momentum changes inversely."""

    def __init__(
        self,
        optimizer,
        base_lr,
        max_lr,
        step_size_up=2000,
        step_size_down=None,
        mode="triangular",
        gamma=1.0,
        scale_fn=None,
        scale_mode="cycle",
        cycle_momentum=True,
        base_momentum=0.8,
        max_momentum=0.9,
        last_epoch=-1,
    ):
        _check_optimizer(optimizer)
        if scale_fn is None:
            _check_choice("mode", mode, ("triangular", "triangular2", "exp_range"))
            scale_mode = "iterations" if mode == "exp_range" else "cycle"
        _check_choice("scale_mode", scale_mode, ("cycle", "iterations"))
        up = float(step_size_up)
        down = up if step_size_down is None else float(step_size_down)
        if not (up > 0 and down > 0):
            raise ValueError(f"step_size_up is {up} and step_size_down {down}: give numbers above 0")
        base_lrs = _per_group("base_lr", optimizer, base_lr)
        self.max_lrs = _per_group("max_lr", optimizer, max_lr)
        self.total_size, self.step_ratio = up + down, up / (up + down)
        self.mode, self.gamma, self._scale_fn_custom, self.scale_mode = mode, gamma, scale_fn, scale_mode
        self.cycle_momentum = cycle_momentum
        if cycle_momentum:
            self._start_momentum(optimizer, base_momentum, max_momentum, last_epoch)
        if last_epoch == -1:
            for group, base in zip(optimizer.param_groups, base_lrs):
                group["lr"] = base
        super().__init__(optimizer, last_epoch)
        self.base_lrs = base_lrs

    def scale_fn(self, x):
        """Returns the factor of the height in cycle x, counted from 1, or in step x."""
        if self._scale_fn_custom is not None:
            return self._scale_fn_custom(x)
        return {"triangular": 1.0, "triangular2": 0.5 ** (x - 1), "exp_range": self.gamma**x}[self.mode]

    def get_lr(self):
        cycle = math.floor(1 + self.last_epoch / self.total_size)
        x = 1.0 + self.last_epoch / self.total_size - cycle
        part = x / self.step_ratio if x <= self.step_ratio else (x - 1) / (self.step_ratio - 1)
        part *= self.scale_fn(cycle if self.scale_mode == "cycle" else self.last_epoch)
        if self.cycle_momentum:
            for group, base, most in zip(self.optimizer.param_groups, self.base_momentums, self.max_momentums):
                self._set_momentum(group, most - (most - base) * part)
        return [base + (most - base) * part for base, most in zip(self.base_lrs, self.max_lrs)]


class OneCycleLR(_OfMomentum):
    """Raises the rate to max_lr and lowers it again over total_steps steps, or epochs * steps_per_epoch; momentum changes
    inversely (Smith and Topin, 2018)."""

    def __init__(
        self,
        optimizer,
        max_lr,
        total_steps=None,
        epochs=None,
        steps_per_epoch=None,
        pct_start=0.3,
        anneal_strategy="cos",
        cycle_momentum=True,
        base_momentum=0.85,
        max_momentum=0.95,
        div_factor=25.0,
        final_div_factor=1e4,
        three_phase=False,
        last_epoch=-1,
    ):
        _check_optimizer(optimizer)
        if total_steps is None:
            if epochs is None or steps_per_epoch is None:
                raise ValueError("the number of steps is missing: give total_steps, or epochs and steps_per_epoch")
            total_steps = epochs * steps_per_epoch
        if not isinstance(total_steps, int) or total_steps <= 0:
            raise ValueError(f"there are {total_steps!r} steps: give an integer that is 1 or more")
        if not 0 <= pct_start <= 1:
            raise ValueError(f"pct_start is {pct_start}: give a number from 0 to 1")
        _check_choice("anneal_strategy", anneal_strategy, ("cos", "linear"))
        self.total_steps, self._anneal_func_type = total_steps, anneal_strategy
        # The last step of each phase, and the keys of a group's rate and momentum in it and at its start.
        last, peak = total_steps - 1, pct_start * total_steps - 1
        down = (2 * peak, "initial_lr", "max_momentum") if three_phase else None
        self._phases = [(peak, "max_lr", "base_momentum"), *([down] if down else []), (last, "min_lr", "max_momentum")]
        rates = _per_group("max_lr", optimizer, max_lr)
        self.cycle_momentum = cycle_momentum
        if cycle_momentum:
            self._start_momentum(optimizer, base_momentum, max_momentum, last_epoch)
        if last_epoch == -1:
            for group, rate in zip(optimizer.param_groups, rates):
                group["initial_lr"], group["max_lr"] = rate / div_factor, rate
                group["min_lr"] = group["initial_lr"] / final_div_factor
        super().__init__(optimizer, last_epoch)

    def _between(self, start, end, part):
        return _half_cosine(start, end, part) if self._anneal_func_type == "cos" else start + (end - start) * part

    def get_lr(self):
        step = self.last_epoch
        if step > self.total_steps:
            raise ValueError(f"this is step {step} of a schedule of {self.total_steps} steps")
        step = min(step, self.total_steps - 1)  # loops step once after the last one, whose rate stays
        first, from_lr, from_momentum = 0.0, "initial_lr", "max_momentum"
        for end, to_lr, to_momentum in self._phases[:-1]:
            if step <= end:
                break
            first, from_lr, from_momentum = end, to_lr, to_momentum
        else:
            end, to_lr, to_momentum = self._phases[-1]
        part = (step - first) / (end - first) if end != first else 1.0
        if self.cycle_momentum:
            for group in self.optimizer.param_groups:
                self._set_momentum(group, self._between(group[from_momentum], group[to_momentum], part))
        return [self._between(group[from_lr], group[to_lr], part) for group in self.optimizer.param_groups]


class _OfSchedules(LRScheduler):
    def _take(self, optimizer, schedulers):
        self._schedulers = list(schedulers)
        if not self._schedulers:
            raise ValueError(f"{type(self).__name__} has no schedules: give one or more")
        for each in self._schedulers:
            if not isinstance(each, LRScheduler) or isinstance(each, ReduceLROnPlateau):
                raise TypeError(f"{type(self).__name__} takes schedules of steps, not {type(each).__name__}")
        self.optimizer = self._schedulers[0].optimizer if optimizer is None else optimizer
        if any(each.optimizer is not self.optimizer for each in self._schedulers):
            raise ValueError("the schedules are for several optimizers: give those of one")

    def get_lr(self):
        return self._rates()


class SequentialLR(_OfSchedules):
    """Several schedules one after the other; the next begins in each of the steps `milestones`."""

    def __init__(self, optimizer, schedulers, milestones, last_epoch=-1):
        self._take(optimizer, schedulers)
        if len(milestones) != len(self._schedulers) - 1:
            raise ValueError(
                f"there are {len(milestones)} milestones between {len(self._schedulers)} schedules: give one less"
            )
        self._milestones, self.last_epoch = list(milestones), last_epoch + 1
        # Undo the first steps of all schedules; the first of them makes its own again.
        for group in optimizer.param_groups:
            group["lr"] = group["initial_lr"]
        _undo_step(self)
        first = self._schedulers[bisect_right(self._milestones, 0)]
        first._initial_step()
        self._last_lr = first.get_last_lr()

    def step(self):
        self.last_epoch += 1
        number = bisect_right(self._milestones, self.last_epoch)
        schedule = self._schedulers[number]
        if number > 0 and self._milestones[number - 1] == self.last_epoch:
            schedule._update_lr(0)
        else:
            schedule.step()
        self._last_lr = schedule.get_last_lr()


def _undo_step(schedule):
    if hasattr(schedule, "_schedulers"):
        for each in schedule._schedulers:
            _undo_step(each)
    else:
        schedule.last_epoch -= 1


class ChainedScheduler(_OfSchedules):
    """Several schedules at once: each changes the rates that the one before has set."""

    def __init__(self, schedulers, optimizer=None):
        self._take(optimizer, schedulers)
        self._last_lr = self._rates()

    def step(self):
        for schedule in self._schedulers:
            schedule.step()
        self._last_lr = self._rates()


class ReduceLROnPlateau(LRScheduler):
    """Multiplies the rates by `factor` when a metric has not improved for more than `patience` steps."""

    def __init__(
        self,
        optimizer,
        mode="min",
        factor=0.1,
        patience=10,
        threshold=1e-4,
        threshold_mode="rel",
        cooldown=0,
        min_lr=0,
        eps=1e-8,
    ):
        _check_optimizer(optimizer)
        if not factor < 1:
            raise ValueError(f"factor is {factor}: give a number below 1")
        _check_choice("mode", mode, ("min", "max"))
        _check_choice("threshold_mode", threshold_mode, ("rel", "abs"))
        self.optimizer, self.mode, self.factor, self.patience = optimizer, mode, factor, patience
        self.threshold, self.threshold_mode, self.cooldown, self.eps = threshold, threshold_mode, cooldown, eps
        self.min_lrs = _per_group("min_lr", optimizer, min_lr)
        self.default_min_lr = None if isinstance(min_lr, (list, tuple)) else min_lr
        self.best = math.inf if mode == "min" else -math.inf
        self.cooldown_counter = self.num_bad_epochs = self.last_epoch = 0
        self._last_lr = self._rates()

    @property
    def in_cooldown(self):
        return self.cooldown_counter > 0

    def step(self, metrics, epoch=None):
        """Takes the metric, a number or a tensor of one element."""
        metric = float(metrics)
        self.last_epoch = self.last_epoch + 1 if epoch is None else epoch
        if self._improves(metric):
            self.best, self.num_bad_epochs = metric, 0
        else:
            self.num_bad_epochs += 1
        if self.in_cooldown:
            self.cooldown_counter -= 1
            self.num_bad_epochs = 0
        if self.num_bad_epochs > self.patience:
            self._reduce()
            self.cooldown_counter, self.num_bad_epochs = self.cooldown, 0
        self._last_lr = self._rates()

    def get_lr(self):
        return self._rates()

    def _improves(self, metric):
        sign = -1 if self.mode == "min" else 1
        if self.threshold_mode == "rel":
            bound = self.best * (1 + sign * self.threshold)
        else:
            bound = self.best + sign * self.threshold
        return metric < bound if self.mode == "min" else metric > bound

    def _reduce(self):
        groups = self.optimizer.param_groups
        if len(groups) != len(self.min_lrs):
            if self.default_min_lr is None:
                raise ValueError(f"min_lr has {len(self.min_lrs)} values for {len(groups)} groups: set min_lrs")
            self.min_lrs = [self.default_min_lr] * len(groups)
        for group, least in zip(groups, self.min_lrs):
            rate = max(group["lr"] * self.factor, least)
            if group["lr"] - rate > self.eps:
                group["lr"] = rate
