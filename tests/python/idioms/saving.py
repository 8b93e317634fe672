"""Idioms: saving."""

import copy
import io
import pickle
import tempfile
from collections import OrderedDict
from pathlib import Path

from idioms.modules import Net
from idioms.table import close, idiom, same
import mytorch as mt
import mytorch.nn as nn
import mytorch.optim as optim


@idiom
def saved_state():
    model = Net()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.pt"
        mt.save(model.state_dict(), path)
        mt.save(model.state_dict(), str(path))
        other = Net()
        result = other.load_state_dict(mt.load(path, map_location="cpu", weights_only=True))
    assert not result.missing_keys and not result.unexpected_keys
    assert all(mt.equal(a, b) for a, b in zip(model.state_dict().values(), other.state_dict().values()))


@idiom
def saved_in_memory():
    buffer = io.BytesIO()
    mt.save({"x": mt.arange(3), "epoch": 4, "names": ["a"]}, buffer)
    buffer.seek(0)
    loaded = mt.load(buffer)
    same(loaded["x"], [0, 1, 2])
    assert loaded["epoch"] == 4 and loaded["names"] == ["a"]


@idiom
def pickles():
    model = Net().eval()
    again = pickle.loads(pickle.dumps(model))
    x = mt.randn(2, 4)
    assert mt.equal(model(x), again(x)) and not again.training
    same(pickle.loads(pickle.dumps(mt.arange(3))), [0, 1, 2])
    state = pickle.loads(pickle.dumps(model.state_dict()))
    assert isinstance(state, OrderedDict) and mt.equal(state["fc1.bias"], model.fc1.bias)


@idiom
def whole_model_saved():
    model = nn.Sequential(nn.Linear(2, 3), nn.ReLU())
    buffer = io.BytesIO()
    mt.save(model, buffer)
    buffer.seek(0)
    again = mt.load(buffer, weights_only=False)
    assert mt.equal(model(mt.ones(2)), again(mt.ones(2)))


@idiom
def checkpoints():
    def step(model, optimizer, x):
        optimizer.zero_grad()
        model(x).pow(2).mean().backward()
        optimizer.step()

    model, x = nn.Linear(3, 2), mt.randn(4, 3)
    optimizer = optim.Adam(model.parameters(), lr=0.1)
    scheduler = optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.5)
    step(model, optimizer, x)
    scheduler.step()
    with tempfile.TemporaryDirectory() as folder:
        path = folder + "/checkpoint.tar"
        mt.save(
            {
                "epoch": 1,
                "model_state_dict": model.state_dict(),
                "optimizer_state_dict": optimizer.state_dict(),
                "scheduler_state_dict": scheduler.state_dict(),
                "loss": 0.4,
            },
            path,
        )
        resumed = nn.Linear(3, 2)
        resumed_optimizer = optim.Adam(resumed.parameters(), lr=0.7)
        resumed_scheduler = optim.lr_scheduler.StepLR(resumed_optimizer, 1, gamma=0.5)
        checkpoint = mt.load(path)
    resumed.load_state_dict(checkpoint["model_state_dict"])
    resumed_optimizer.load_state_dict(checkpoint["optimizer_state_dict"])
    resumed_scheduler.load_state_dict(checkpoint["scheduler_state_dict"])
    step(model, optimizer, x)
    step(resumed, resumed_optimizer, x)
    assert mt.equal(model.weight, resumed.weight) and checkpoint["epoch"] + 1 == 2
    assert resumed_optimizer.param_groups[0]["lr"] == 0.05 and resumed_scheduler.last_epoch == 1


@idiom
def states_that_fit_in_part():
    pretrained = {"fc1.weight": mt.ones(8, 4), "fc2.weight": mt.ones(7, 8), "extra": mt.zeros(1)}
    model = Net()
    model_dict = model.state_dict()
    pretrained = {k: v for k, v in pretrained.items() if k in model_dict and v.size() == model_dict[k].size()}
    model_dict.update(pretrained)
    model.load_state_dict(model_dict)
    assert model.fc1.weight.sum() == 32
    result = model.load_state_dict({"fc1.bias": mt.ones(8), "other": mt.ones(1)}, strict=False)
    assert result.unexpected_keys == ["other"] and "fc2.bias" in result.missing_keys
    missing, unexpected = result
    assert len(missing) == 3
    stripped = {k.replace("module.", ""): v for k, v in {"module.fc1.bias": mt.zeros(8)}.items()}
    model.load_state_dict(stripped, strict=False)
    assert model.fc1.bias.sum() == 0
    try:
        model.load_state_dict({"fc1.weight": mt.ones(1, 1)})
    except RuntimeError as error:
        assert "fc1.weight" in str(error)
    else:
        raise AssertionError("no error")


@idiom
def averaged_weights():
    model = nn.Linear(2, 1)
    ema = copy.deepcopy(model)
    for p in ema.parameters():
        p.requires_grad_(False)
    before = ema.weight.clone()
    with mt.no_grad():
        for p in model.parameters():
            p.add_(1)
        for ema_p, p in zip(ema.parameters(), model.parameters()):
            ema_p.mul_(0.9).add_(p, alpha=0.1)
    close(ema.weight, before + 0.1)
    for target, p in zip(ema.parameters(), model.parameters()):
        target.data.copy_(0.5 * p.data + (1 - 0.5) * target.data)
    close(ema.weight, before + 0.55)


@idiom
def averaged_model():
    model = nn.Linear(2, 1)
    averaged = optim.swa_utils.AveragedModel(model)
    averaged.update_parameters(model)
    assert mt.equal(averaged.module.weight, model.weight) and averaged(mt.ones(2)).shape == (1,)
