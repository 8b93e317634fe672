"""Compares optimizers and schedules with PyTorch's in one process, and loads PyTorch's states half-way.

    python tests/python/peers/optimizers.py

Prints, for each optimizer, the largest difference of parameters after 20 steps of the same gradients, and for all
schedules that of the rates over 50 steps.
"""

import math
import sys

import mytorch as mt
import numpy as np
import torch

OPTIMIZERS = {
    "SGD": [
        {},
        {"lr": 0.05, "momentum": 0.9, "dampening": 0.3, "weight_decay": 0.1},
        {"lr": 0.05, "momentum": 0.9, "nesterov": True, "maximize": True},
    ],
    "Adam": [{}, {"lr": 0.05, "betas": (0.8, 0.7), "eps": 0.1, "weight_decay": 0.3, "amsgrad": True}],
    "AdamW": [{}, {"lr": 0.05, "amsgrad": True, "maximize": True}],
    "Adamax": [{}, {"lr": 0.05, "betas": (0.8, 0.7), "eps": 0.1, "weight_decay": 0.3, "maximize": True}],
    "NAdam": [{}, {"lr": 0.05, "weight_decay": 0.3, "decoupled_weight_decay": True, "momentum_decay": 0.01}],
    "RAdam": [{}, {"lr": 0.05, "weight_decay": 0.3, "decoupled_weight_decay": True}, {"betas": (0.8, 0.9)}],
    "RMSprop": [{}, {"lr": 0.05, "alpha": 0.8, "momentum": 0.5, "centered": True, "weight_decay": 0.1}],
    "Adagrad": [{}, {"lr": 0.05, "lr_decay": 0.1, "weight_decay": 0.1, "initial_accumulator_value": 0.3}],
    "Adadelta": [{}, {"lr": 0.5, "rho": 0.7, "eps": 0.01, "weight_decay": 0.3, "maximize": True}],
    "ASGD": [{}, {"lr": 0.05, "lambd": 0.1, "alpha": 0.5, "t0": 5, "weight_decay": 0.3}],
    "Adafactor": [{}, {"lr": 0.5, "beta2_decay": -0.5, "eps": (1e-3, 0.1), "d": 2.0, "weight_decay": 0.3}],
    "Muon": [{}, {"lr": 0.05, "nesterov": False, "ns_steps": 3}],  # iterates in bfloat16
}
# Of Muon's iterations, and of the numbers that PyTorch's states have in float32: products and rates.
BOUNDS = {"Muon": 1e-2, "NAdam": 1e-8, "ASGD": 1e-7}
SCHEDULES = {
    "LambdaLR": lambda lib, o: lib.LambdaLR(o, [lambda t: 0.9**t, lambda t: 1 / (t + 1)]),
    "MultiplicativeLR": lambda lib, o: lib.MultiplicativeLR(o, lambda t: 1 - 0.01 * t),
    "StepLR": lambda lib, o: lib.StepLR(o, 7, 0.5),
    "MultiStepLR": lambda lib, o: lib.MultiStepLR(o, [3, 8, 8, 20], 0.5),
    "ConstantLR": lambda lib, o: lib.ConstantLR(o, 0.25, 6),
    "LinearLR": lambda lib, o: lib.LinearLR(o, 0.2, 0.8, 12),
    "PolynomialLR": lambda lib, o: lib.PolynomialLR(o, 30, 1.5),
    "ExponentialLR": lambda lib, o: lib.ExponentialLR(o, 0.95),
    "CosineAnnealingLR": lambda lib, o: lib.CosineAnnealingLR(o, 12, 0.01),
    "CosineAnnealingWarmRestarts": lambda lib, o: lib.CosineAnnealingWarmRestarts(o, 4, 2, 0.01),
    "CyclicLR": lambda lib, o: lib.CyclicLR(o, 0.1, [0.9, 0.5], 4, 6, mode="triangular2"),
    "OneCycleLR": lambda lib, o: lib.OneCycleLR(o, [1.0, 0.5], total_steps=60),
    "SequentialLR": lambda lib, o: lib.SequentialLR(
        o, [lib.LinearLR(o, 0.1, 1.0, 10), lib.CosineAnnealingLR(o, 20), lib.ExponentialLR(o, 0.9)], [10, 30]
    ),
    "ChainedScheduler": lambda lib, o: lib.ChainedScheduler([lib.ConstantLR(o, 0.1, 5), lib.ExponentialLR(o, 0.9)]),
}


def start(shape, shift):
    return np.cos(np.arange(math.prod(shape)) + shift).reshape(shape)


def gradient(p, t):
    return np.sin(1.7 * t + np.arange(p.size)).reshape(p.shape) + 0.5 * p


def converted(value):
    return mt.tensor(value.numpy()) if isinstance(value, torch.Tensor) else value


def difference(name, options):
    shapes = [(3, 4), (5, 2)]
    sides = [[lib.tensor(start(shape, i)).requires_grad_() for i, shape in enumerate(shapes)] for lib in (torch, mt)]
    theirs, ours = (getattr(lib.optim, name)(side, **options) for lib, side in zip((torch, mt), sides))
    for t in range(1, 21):
        if t == 11:
            state = theirs.state_dict()
            values = {i: {key: converted(each) for key, each in of.items()} for i, of in state["state"].items()}
            ours = getattr(mt.optim, name)(sides[1], **options)
            ours.load_state_dict({"state": values, "param_groups": state["param_groups"]})
        for lib, side in zip((torch, mt), sides):
            for p in side:
                p.grad = lib.tensor(gradient(p.detach().numpy(), t))
        theirs.step(), ours.step()
    return max(np.abs(a.detach().numpy() - b.detach().numpy()).max() for a, b in zip(*sides))


def difference_of_rates(make):
    optimizers = []
    for zeros, lib in ((lambda: torch.zeros(2), torch), (lambda: mt.zeros(2), mt)):
        groups = [{"params": [zeros().requires_grad_()], "lr": 0.5}, {"params": [zeros().requires_grad_()]}]
        optimizers.append(lib.optim.SGD(groups, lr=0.05, momentum=0.9))
    schedules = [make(lib.optim.lr_scheduler, each) for lib, each in zip((torch, mt), optimizers)]
    worst = 0.0
    for _ in range(50):
        rates = [[(g["lr"], g["momentum"]) for g in each.param_groups] for each in optimizers]
        worst = max(worst, np.abs(np.array(rates[0]) - np.array(rates[1])).max())
        for optimizer, schedule in zip(optimizers, schedules):
            optimizer.step()
            schedule.step()
    return worst


def main():
    print(f"PyTorch {torch.__version__}, float64")
    wrong = []
    for name, cases in OPTIMIZERS.items():
        worst = max(difference(name, options) for options in cases)
        print(f"{name:12} {worst:.1e}")
        if worst > BOUNDS.get(name, 1e-12):
            wrong.append(name)
    rates = {name: difference_of_rates(make) for name, make in SCHEDULES.items()}
    print(f"{len(rates)} schedules {max(rates.values()):.1e}")
    wrong += [name for name, worst in rates.items() if worst > 1e-12]
    sys.exit(f"these differ: {', '.join(wrong)}" if wrong else 0)


if __name__ == "__main__":
    main()
