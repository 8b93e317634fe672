"""Idioms: training."""

import copy
import math

from idioms.modules import Net, blobs
from idioms.table import close, idiom, same
import mytorch as mt
from mytorch.data import DataLoader, TensorDataset
import mytorch.nn as nn
import mytorch.nn.functional as F
import mytorch.optim as optim
import numpy as np


@idiom
def training_loop():
    x, y = blobs()
    loader = DataLoader(TensorDataset(x, y), batch_size=20, shuffle=True)
    model = Net()
    criterion = nn.CrossEntropyLoss()
    optimizer = optim.Adam(model.parameters(), lr=0.03)
    losses = []
    for epoch in range(8):
        model.train()
        running_loss = 0.0
        for i, (inputs, labels) in enumerate(loader):
            optimizer.zero_grad()
            outputs = model(inputs)
            loss = criterion(outputs, labels)
            loss.backward()
            optimizer.step()
            running_loss += loss.item() * inputs.size(0)
        losses.append(running_loss / len(loader.dataset))
    assert losses[-1] < losses[0] / 2

    model.eval()
    correct, total = 0, 0
    with mt.no_grad():
        for data, target in loader:
            output = model(data)
            _, predicted = mt.max(output.data, 1)
            total += target.size(0)
            correct += (predicted == target).sum().item()
    assert 100 * correct / total > 90


@idiom
def evaluation_as_in_the_mnist_example():
    x, y = blobs(30)
    model = nn.Linear(4, 3)
    with mt.no_grad():
        model.weight.copy_(mt.eye(4)[:3])
        model.bias.zero_()
    model.eval()
    test_loss, correct = 0, 0
    loader = DataLoader(TensorDataset(x, y), batch_size=8)
    for data, target in loader:
        output = F.log_softmax(model(data), dim=1)
        test_loss += F.nll_loss(output, target, reduction="sum").item()
        pred = output.argmax(dim=1, keepdim=True)
        correct += pred.eq(target.view_as(pred)).sum().item()
    assert correct == len(loader.dataset) == 30 and len(loader) == 4 and test_loss / 30 < 0.2


@idiom
def evaluation_as_in_the_quickstart():
    x, y = blobs(20)
    dataloader, model, loss_fn = DataLoader(TensorDataset(x, y), batch_size=8), nn.Linear(4, 3), nn.CrossEntropyLoss()
    size, num_batches = len(dataloader.dataset), len(dataloader)
    test_loss, correct = 0, 0
    with mt.no_grad():
        for X, y in dataloader:
            pred = model(X)
            test_loss += loss_fn(pred, y).item()
            correct += (pred.argmax(1) == y).type(mt.float).sum().item()
    test_loss /= num_batches
    correct /= size
    close(correct, (model(x).argmax(1).detach().numpy() == np.arange(20) % 3).mean())
    assert f"Avg loss: {test_loss:>8f}" and test_loss > 0


@idiom
def polynomial_of_the_tutorial():
    x = mt.linspace(-math.pi, math.pi, 200)
    y = mt.sin(x)
    p = mt.tensor([1, 2, 3])
    xx = x.unsqueeze(-1).pow(p)
    model = mt.nn.Sequential(mt.nn.Linear(3, 1), mt.nn.Flatten(0, 1))
    loss_fn = mt.nn.MSELoss(reduction="sum")
    optimizer = mt.optim.RMSprop(model.parameters(), lr=1e-2)
    losses = []
    for t in range(100):
        y_pred = model(xx)
        loss = loss_fn(y_pred, y)
        losses.append(loss.item())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert losses[-1] < losses[0] and model[0].weight[:, 0].item() != 0


@idiom
def gradient_accumulation():
    x, y = mt.randn(8, 4), mt.randint(0, 3, (8,))
    whole = Net().eval()
    parts = copy.deepcopy(whole)
    F.cross_entropy(whole(x), y).backward()
    accumulation_steps = 4
    optimizer = optim.SGD(parts.parameters(), lr=0.1)
    optimizer.zero_grad(set_to_none=True)
    for i, (xb, yb) in enumerate(zip(x.chunk(4), y.chunk(4))):
        loss = F.cross_entropy(parts(xb), yb) / accumulation_steps
        loss.backward()
        if (i + 1) % accumulation_steps == 0:
            for a, b in zip(whole.parameters(), parts.parameters()):
                close(a.grad, b.grad)
            optimizer.step()
            optimizer.zero_grad()
    assert parts.fc1.weight.grad is None


@idiom
def gradient_clipping():
    model = Net()
    (model(mt.randn(4, 4)).pow(2).sum() * 100).backward()
    norm = mt.nn.utils.clip_grad_norm_(model.parameters(), max_norm=1.0)
    total = sum(p.grad.data.norm(2).item() ** 2 for p in model.parameters()) ** 0.5
    assert norm > 1 and abs(total - 1) < 1e-3
    nn.utils.clip_grad_value_(model.parameters(), clip_value=0.01)
    assert max(p.grad.abs().max().item() for p in model.parameters()) <= 0.010001
    for p in model.parameters():
        p.grad.data.clamp_(-0.001, 0.001)
    assert model.fc2.bias.grad.abs().max() < 0.0011


@idiom
def learning_rate_schedules():
    w = nn.Parameter(mt.zeros(1))
    optimizer = optim.SGD([w], lr=1.0)
    scheduler = optim.lr_scheduler.StepLR(optimizer, step_size=2, gamma=0.1)
    rates = []
    for epoch in range(4):
        rates.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        scheduler.step()
    close(rates, [1, 1, 0.1, 0.1])
    close(scheduler.get_last_lr(), [0.01])
    scheduler = mt.optim.lr_scheduler.CosineAnnealingLR(optim.SGD([w], lr=1.0), T_max=10, eta_min=0)
    for _ in range(5):
        scheduler.optimizer.step()
        scheduler.step()
    close(scheduler.get_last_lr()[0], 0.5)
    for g in optimizer.param_groups:
        g["lr"] *= 0.5
    close(optimizer.param_groups[-1]["lr"], 0.005)


@idiom
def warm_up():
    def lr_lambda(step):
        if step < 4:
            return float(step + 1) / 4
        return max(0.0, 0.5 * (1.0 + math.cos(math.pi * (step - 4) / 6)))

    optimizer = optim.AdamW([nn.Parameter(mt.ones(2))], lr=0.1)
    scheduler = optim.lr_scheduler.LambdaLR(optimizer, lr_lambda)
    seen = []
    for _ in range(10):
        seen.append(scheduler.get_last_lr()[0])
        optimizer.step()
        scheduler.step()
    close(seen, [0.1 * lr_lambda(i) for i in range(10)])
    warm = optim.lr_scheduler.LinearLR(optimizer, start_factor=0.1, total_iters=2)
    cool = optim.lr_scheduler.ExponentialLR(optimizer, gamma=0.9)
    both = optim.lr_scheduler.SequentialLR(optimizer, schedulers=[warm, cool], milestones=[2])
    optimizer.step()
    both.step()
    assert both.get_last_lr()[0] == optimizer.param_groups[0]["lr"]


@idiom
def one_cycle():
    optimizer = optim.SGD([nn.Parameter(mt.ones(1))], lr=0.1, momentum=0.9)
    scheduler = optim.lr_scheduler.OneCycleLR(optimizer, max_lr=1.0, steps_per_epoch=5, epochs=2)
    rates = []
    for _ in range(10):
        optimizer.step()
        rates.append(scheduler.get_last_lr()[0])
        scheduler.step() if _ < 9 else None
    assert abs(max(rates) - 1) < 0.05 and rates[0] < 0.1 and rates[-1] < 0.01


@idiom
def rate_that_falls_on_a_plateau():
    optimizer = optim.SGD([nn.Parameter(mt.ones(1))], lr=1.0)
    scheduler = optim.lr_scheduler.ReduceLROnPlateau(optimizer, mode="min", factor=0.1, patience=1)
    for val_loss in (1.0, 0.5, 0.5, 0.5):
        scheduler.step(val_loss)
    close(optimizer.param_groups[0]["lr"], 0.1)
    scheduler.step(mt.tensor(0.1))
    assert scheduler.num_bad_epochs == 0


@idiom
def early_stopping():
    model = nn.Linear(1, 1)
    best_loss, patience, counter, best = float("inf"), 2, 0, None
    for epoch, val_loss in enumerate([3.0, 2.0, 2.5, 2.6, 1.0]):
        with mt.no_grad():
            model.weight.fill_(epoch)
        if val_loss < best_loss:
            best_loss, counter = val_loss, 0
            best = copy.deepcopy(model.state_dict())
        else:
            counter += 1
            if counter >= patience:
                break
    model.load_state_dict(best)
    assert epoch == 3 and model.weight.item() == 1


@idiom
def groups_of_parameters():
    model = Net()
    decay = [p for n, p in model.named_parameters() if p.dim() >= 2]
    no_decay = [p for n, p in model.named_parameters() if p.dim() < 2]
    optimizer = optim.AdamW(
        [{"params": decay, "weight_decay": 0.1}, {"params": no_decay, "weight_decay": 0.0, "lr": 1e-2}],
        lr=1e-3,
        betas=(0.9, 0.95),
    )
    assert [g["lr"] for g in optimizer.param_groups] == [1e-3, 1e-2] and optimizer.param_groups[1]["weight_decay"] == 0
    assert sum(p.numel() for g in optimizer.param_groups for p in g["params"]) == 67
    optimizer.add_param_group({"params": nn.Parameter(mt.ones(1))})
    assert len(optimizer.param_groups) == 3 and "AdamW" in repr(optimizer)


@idiom
def closure_of_lbfgs():
    w = nn.Parameter(mt.tensor([4.0, -3.0]))
    optimizer = optim.LBFGS([w], lr=1, max_iter=20, line_search_fn="strong_wolfe")

    def closure():
        optimizer.zero_grad()
        loss = ((w - mt.tensor([1.0, 2.0])) ** 2).sum()
        loss.backward()
        return loss

    optimizer.step(closure)
    close(w, [1, 2], 1e-3)


@idiom
def own_optimizer():
    class Sgd(optim.Optimizer):
        def __init__(self, params, lr=0.1):
            super().__init__(params, dict(lr=lr))

        @mt.no_grad()
        def step(self, closure=None):
            for group in self.param_groups:
                for p in group["params"]:
                    if p.grad is None:
                        continue
                    state = self.state[p]
                    state["step"] = state.get("step", 0) + 1
                    p.add_(p.grad, alpha=-group["lr"])

    w = nn.Parameter(mt.ones(2))
    opt = Sgd([w], lr=0.5)
    (w**2).sum().backward()
    opt.step()
    same(w.detach(), [0, 0])
    assert opt.state[w]["step"] == 1


@idiom
def sums_of_losses():
    w = mt.ones(3, requires_grad=True)
    losses = [w[i] * i for i in range(3)]
    loss = sum(losses) / len(losses)
    total = 0
    total += loss
    total.backward()
    close(w.grad, [0, 1 / 3, 2 / 3])
    close(mt.stack(losses).mean(), 1)
    assert np.mean([each.item() for each in losses]) == 1 and np.mean(mt.stack(losses).detach().numpy()) == 1
