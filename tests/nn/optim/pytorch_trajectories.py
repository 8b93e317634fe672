"""Prints tests/nn/optim/pytorch_trajectories.inc: parameters after 20 steps of PyTorch's optimizers.

    python3 pytorch_trajectories.py > pytorch_trajectories.inc      (needs PyTorch)
"""

from __future__ import annotations

import math

import torch

STEPS = 20
CASES = {
    "NAdam": [
        {},
        {"lr": 0.05, "betas": (0.8, 0.7), "eps": 0.1, "weight_decay": 0.3, "momentum_decay": 0.01},
        {"lr": 0.05, "weight_decay": 0.3, "decoupled_weight_decay": True, "maximize": True},
    ],
    "RAdam": [
        {},
        {"lr": 0.05, "betas": (0.8, 0.9), "eps": 0.1, "weight_decay": 0.3},
        {"lr": 0.05, "weight_decay": 0.3, "decoupled_weight_decay": True, "maximize": True},
    ],
    "Adamax": [{}, {"lr": 0.05, "betas": (0.8, 0.7), "eps": 0.1, "weight_decay": 0.3, "maximize": True}],
    "Adadelta": [{}, {"lr": 0.5, "rho": 0.7, "eps": 0.01, "weight_decay": 0.3, "maximize": True}],
    "ASGD": [
        {},
        {"lr": 0.05, "lambd": 0.1, "alpha": 0.5, "t0": 5, "weight_decay": 0.3},
        {"lr": 0.05, "maximize": True},
    ],
    "Adafactor": [
        {},
        {"lr": 0.5, "beta2_decay": -0.5, "eps": (1e-3, 0.1), "d": 2.0, "weight_decay": 0.3, "maximize": True},
    ],
    "Muon": [{}, {"lr": 0.05, "nesterov": False, "ns_steps": 3, "adjust_lr_fn": "match_rms_adamw"}],
}
# Of complex parameters.
COMPLEX_CASES = {
    "SGD": [{"lr": 0.05, "momentum": 0.9, "weight_decay": 0.3}],
    "Adam": [{"lr": 0.05, "betas": (0.8, 0.7), "weight_decay": 0.3}, {"lr": 0.05, "amsgrad": True}],
    "RMSprop": [{"lr": 0.05, "alpha": 0.8, "momentum": 0.5, "centered": True}],
    "Adagrad": [{"lr": 0.05, "weight_decay": 0.3}],
    "NAdam": [{"lr": 0.05}],
    "RAdam": [{"lr": 0.05, "betas": (0.8, 0.9)}],
    "Adamax": [{"lr": 0.05}],
    "Adadelta": [{"lr": 0.5}],
    "ASGD": [{"lr": 0.05}],
}


def complex_trajectory(name: str, options: dict) -> list[float]:
    parts = torch.tensor([math.cos(i) for i in range(12)], dtype=torch.float64).reshape(3, 2, 2)
    p = torch.view_as_complex(parts).clone().requires_grad_()
    optimizer = getattr(torch.optim, name)([p], **options)
    for t in range(1, STEPS + 1):
        wave = torch.tensor([math.sin(1.7 * t + i) for i in range(12)], dtype=torch.float64).reshape(3, 2, 2)
        p.grad = torch.view_as_complex(wave) + 0.5 * p.detach()
        optimizer.step()
    return torch.view_as_real(p.detach()).flatten().tolist()


def trajectory(name: str, options: dict) -> list[float]:
    shapes = [(3, 4)] if name == "Muon" else [(3, 4), (5,)]
    parameters = []
    for shape in shapes:
        n = math.prod(shape)
        values = [math.cos(i) for i in range(n)]
        parameters.append(torch.tensor(values, dtype=torch.float64).reshape(shape).requires_grad_())
    optimizer = getattr(torch.optim, name)(parameters, **options)
    for t in range(1, STEPS + 1):
        for p in parameters:
            wave = torch.tensor([math.sin(1.7 * t + i) for i in range(p.numel())], dtype=torch.float64)
            p.grad = wave.reshape(p.shape) + 0.5 * p.detach()
        optimizer.step()
    return [x for p in parameters for x in p.detach().flatten().tolist()]


def main() -> None:
    torch.set_default_dtype(torch.float64)  # also of the numbers that NAdam and ASGD keep
    print("// Printed by pytorch_trajectories.py. Do not edit.")
    print(f"// Parameters after {STEPS} steps, made by PyTorch {torch.__version__.split('+')[0]}.")
    for prefix, all_cases, run in (("", CASES, trajectory), ("Complex", COMPLEX_CASES, complex_trajectory)):
        for name, cases in all_cases.items():
            for number, options in enumerate(cases):
                numbers = ", ".join(f"{x:.15g}" for x in run(name, options))
                print(f"// {options}\nconst std::vector<double> k{prefix}{name}{number} = {{{numbers}}};")


main()
