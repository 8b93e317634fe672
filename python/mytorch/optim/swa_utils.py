"""For averages of weights."""

import copy
import itertools
import math

from mytorch import _core
from mytorch._grad_mode import no_grad
from mytorch.nn.module import Module
from mytorch.optim.lr_scheduler import LRScheduler, _check_choice, _check_optimizer, _per_group

__all__ = [
    "AveragedModel",
    "SWALR",
    "get_ema_avg_fn",
    "get_ema_multi_avg_fn",
    "get_swa_avg_fn",
    "get_swa_multi_avg_fn",
    "update_bn",
]


def _check_decay(decay):
    if not 0 <= decay <= 1:
        raise ValueError(f"decay is {decay}: give a number from 0 to 1")


def get_ema_avg_fn(decay=0.999):
    """Returns the function of an average, a value and the number of values before that gives the next exponential
    moving average: decay * average + (1 - decay) * value."""
    _check_decay(decay)

    @no_grad()
    def ema_update(ema_param, current_param, num_averaged):
        return decay * ema_param + (1 - decay) * current_param

    return ema_update


def get_swa_avg_fn():
    """Returns the function of an average, a value and the number of values before that gives the next mean."""

    @no_grad()
    def swa_update(averaged_param, current_param, num_averaged):
        return averaged_param + (current_param - averaged_param) / (num_averaged + 1)

    return swa_update


def get_ema_multi_avg_fn(decay=0.999):
    """Returns the function that makes a list of averages the exponential moving averages with a list of values, in
    place."""
    _check_decay(decay)

    @no_grad()
    def ema_update(ema_param_list, current_param_list, num_averaged):
        for average, value in zip(ema_param_list, current_param_list, strict=True):
            if average.is_floating_point() or average.is_complex():
                average.lerp_(value, 1 - decay)
            else:
                average.copy_(average * decay + value * (1 - decay))

    return ema_update


def get_swa_multi_avg_fn():
    """Returns the function that makes a list of averages the means with a list of values, in place."""

    @no_grad()
    def swa_update(averaged_param_list, current_param_list, num_averaged):
        for average, value in zip(averaged_param_list, current_param_list, strict=True):
            if average.is_floating_point() or average.is_complex():
                average.lerp_(value, 1 / (float(num_averaged) + 1))
            else:
                average.copy_(average + (value - average) / (num_averaged + 1))

    return swa_update


class AveragedModel(Module):
    """A copy of a model, whose parameters are averages of those that the model has had in calls of update_parameters:
    by default the means (Izmailov et al., 2018), else what avg_fn(average, value, count) returns or what
    multi_avg_fn(averages, values, count) makes of a list of tensors of one device and dtype. Buffers are those of the
    model at the last call, or averages, too, by `use_buffers`."""

    def __init__(self, model, device=None, avg_fn=None, multi_avg_fn=None, use_buffers=False):
        super().__init__()
        if avg_fn is not None and multi_avg_fn is not None:
            raise AssertionError("give avg_fn or multi_avg_fn, not both")
        self.module = copy.deepcopy(model)
        if device is not None:
            self.module = self.module.to(device)
        self.register_buffer("n_averaged", _core.tensor(0, dtype=_core.int64).to(_device(device)))
        self.avg_fn, self.multi_avg_fn, self.use_buffers = avg_fn, multi_avg_fn, use_buffers

    def forward(self, *args, **kwargs):
        """Calls the copy."""
        return self.module(*args, **kwargs)

    @no_grad()
    def update_parameters(self, model):
        """Averages with the parameters that a model has now; the first call copies them."""
        pairs = zip(self._averaged(self.module), self._averaged(model), strict=True)
        pairs = [(average.detach(), value.detach().to(average.device)) for average, value in pairs]
        if self.n_averaged == 0:
            for average, value in pairs:
                average.copy_(value)
        elif self.multi_avg_fn is not None:
            groups = {}
            for average, value in pairs:
                averages, values = groups.setdefault((str(average.device), str(average.dtype)), ([], []))
                averages.append(average)
                values.append(value)
            for averages, values in groups.values():
                self.multi_avg_fn(averages, values, self.n_averaged.to(averages[0].device))
        else:
            avg_fn = self.avg_fn or get_swa_avg_fn()
            for average, value in pairs:
                average.copy_(avg_fn(average, value, self.n_averaged.to(average.device)))
        if not self.use_buffers:
            for average, value in zip(self.module.buffers(), model.buffers(), strict=True):
                average.copy_(value)
        self.n_averaged += 1

    def _averaged(self, model):
        return itertools.chain(model.parameters(), model.buffers() if self.use_buffers else ())


def _device(device):
    if isinstance(device, int):
        return _core.device("cuda", device)
    return "cpu" if device is None else device


@no_grad()
def update_bn(loader, model, device=None):
    """Makes the statistics of the batch normalizations of a model those of the batches of a loader, each with the same
    weight. A batch is the input of the model, or a tuple or list whose first element is."""
    from mytorch import nn

    layers = [part for part in model.modules() if isinstance(part, (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d))]
    if not layers:
        return
    momenta = [layer.momentum for layer in layers]
    for layer in layers:
        if layer.running_mean is not None:
            layer.running_mean.zero_()
            layer.running_var.fill_(1)
            layer.num_batches_tracked.zero_()
        layer.momentum = None  # the mean over all batches
    was_training = model.training
    model.train()
    try:
        for batch in loader:
            if isinstance(batch, (list, tuple)):
                batch = batch[0]
            model(batch if device is None else batch.to(_device(device)))
    finally:
        for layer, momentum in zip(layers, momenta):
            layer.momentum = momentum
        model.train(was_training)


class SWALR(LRScheduler):
    """From the rates when it was made to swa_lr in anneal_epochs steps, along half a cosine or linearly, and constant
    afterwards (Izmailov et al., 2018)."""

    def __init__(self, optimizer, swa_lr, anneal_epochs=10, anneal_strategy="cos", last_epoch=-1):
        _check_optimizer(optimizer)
        _check_choice("anneal_strategy", anneal_strategy, ("cos", "linear"))
        if not isinstance(anneal_epochs, int) or anneal_epochs < 0:
            raise ValueError(f"anneal_epochs is {anneal_epochs!r}: give an integer that is 0 or more")
        for group, rate in zip(optimizer.param_groups, _per_group("swa_lr", optimizer, swa_lr)):
            group["swa_lr"] = rate
        self.anneal_epochs, self._anneal_strategy = anneal_epochs, anneal_strategy
        super().__init__(optimizer, last_epoch)

    def _part(self, step):
        part = max(0, min(1, step / max(1, self.anneal_epochs)))
        return (1 - math.cos(math.pi * part)) / 2 if self._anneal_strategy == "cos" else part

    def get_lr(self):
        step = self._step_count - 1
        if self.anneal_epochs == 0:
            step = max(1, step)
        before, now = self._part(step - 1), self._part(step)
        rates = []
        for group in self.optimizer.param_groups:
            final = group["swa_lr"]
            start = final if before == 1 else (group["lr"] - before * final) / (1 - before)
            rates.append(final * now + start * (1 - now))
        return rates
