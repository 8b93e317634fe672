"""For averages of weights."""

import math

from mytorch.optim.lr_scheduler import LRScheduler, _check_choice, _check_optimizer, _per_group

__all__ = ["SWALR"]


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
