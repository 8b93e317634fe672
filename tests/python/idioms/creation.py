"""Idioms: creation and conversion."""

import copy

from idioms.table import close, idiom, same
import mytorch as mt
from mytorch import Tensor
import mytorch.nn as nn
import numpy as np


@idiom
def tensor_of_lists():
    x = mt.tensor([[1, 2, 3], [4, 5, 6]], dtype=mt.float32)
    assert x.shape == (2, 3) and x.size() == (2, 3) and x.size(0) == 2 and x.size(-1) == 3
    assert x.dim() == x.ndim == 2 and x.numel() == 6 and len(x) == 2
    assert mt.tensor([1, 2]).dtype == mt.int64 and mt.tensor(1.5).dtype == mt.float32


@idiom
def legacy_constructors():
    assert mt.Tensor([1, 2]).dtype == mt.float32
    assert mt.Tensor(2, 3).shape == (2, 3)
    assert mt.LongTensor([1, 2]).dtype == mt.long
    assert mt.FloatTensor([1, 2]).tolist() == [1.0, 2.0]


@idiom
def filled_tensors():
    same(mt.zeros(2, 3), [[0.0] * 3] * 2)
    same(mt.ones((2,), dtype=mt.long), [1, 1])
    same(mt.full((2, 2), 7), [[7, 7], [7, 7]])
    same(mt.eye(2), [[1.0, 0.0], [0.0, 1.0]])
    assert mt.empty(0, 4).shape == (0, 4)
    x = mt.rand(3, 2)
    assert mt.zeros_like(x).sum() == 0 and mt.ones_like(x, dtype=mt.int).sum().item() == 6
    assert mt.randn_like(x).shape == mt.full_like(x, 2.0).shape == x.shape


@idiom
def ranges():
    same(mt.arange(3), [0, 1, 2])
    same(mt.arange(0, 1, 0.25), [0, 0.25, 0.5, 0.75])
    same(mt.linspace(0, 1, steps=5), [0, 0.25, 0.5, 0.75, 1])
    close(mt.logspace(0, 2, 3), [1, 10, 100])
    xx, yy = mt.meshgrid(mt.arange(2), mt.arange(3), indexing="ij")
    same(xx, [[0, 0, 0], [1, 1, 1]])
    same(yy, [[0, 1, 2], [0, 1, 2]])


@idiom
def new_tensors_like_another():
    x = mt.zeros(2, dtype=mt.float64)
    assert x.new_zeros(3).dtype == x.new_ones(2, 2).dtype == x.new_full((1,), 3.0).dtype == mt.float64
    same(x.new_tensor([1, 2]), [1.0, 2.0])
    assert x.new_empty(4).shape == (4,)


@idiom
def numpy_both_ways():
    a = np.arange(6, dtype=np.float32).reshape(2, 3)
    x = mt.from_numpy(a)
    x[0, 0] = 9
    assert a[0, 0] == 9
    y = (x * 2).requires_grad_()
    b = y.detach().cpu().numpy()
    assert isinstance(b, np.ndarray) and b.dtype == np.float32 and (b == 2 * a).all()
    assert np.allclose(np.array(x), a)
    assert mt.tensor(np.array([1.5, 2.5])).dtype == mt.float64
    assert mt.as_tensor(a, dtype=mt.long).tolist()[1] == [3, 4, 5]


@idiom
def list_of_arrays():
    frames = [np.full((2, 2), i, dtype=np.uint8) for i in range(3)]
    x = mt.tensor(np.stack(frames)).float() / 255
    assert x.shape == (3, 2, 2) and x.dtype == mt.float32
    close(x[2], np.full((2, 2), 2 / 255))
    image = mt.from_numpy(frames[1]).permute(1, 0).unsqueeze(0)
    assert image.dtype == mt.uint8 and image.shape == (1, 2, 2)


@idiom
def casts():
    x = mt.tensor([0.0, 1.7, -2.2])
    same(x.long(), [0, 1, -2])
    same(x.bool(), [False, True, True])
    assert x.double().dtype == mt.float64 and x.half().dtype == mt.float16 and x.int().dtype == mt.int32
    assert x.to(mt.bfloat16).dtype == mt.bfloat16 and x.to(dtype=mt.float64).dtype == mt.double
    assert x.type(mt.int64).dtype == mt.long and x.type_as(mt.zeros(1, dtype=mt.long)).dtype == mt.int64
    assert x.to(mt.ones(1, dtype=mt.double)).dtype == mt.float64


@idiom
def default_dtype():
    assert mt.get_default_dtype() == mt.float32
    mt.set_default_dtype(mt.float64)
    try:
        assert mt.tensor([1.0]).dtype == mt.zeros(2).dtype == nn.Linear(2, 2).weight.dtype == mt.float64
    finally:
        mt.set_default_dtype(mt.float32)
    assert mt.tensor([1.0]).dtype == mt.float32


@idiom
def device_agnostic():
    device = mt.device("cuda" if mt.cuda.is_available() else "cpu")
    model = nn.Linear(2, 1).to(device)
    x = mt.randn(4, 2).to(device, non_blocking=True)
    y = model(x)
    assert y.device == x.device and y.device.type == device.type and next(model.parameters()).device == y.device
    assert mt.zeros(2, device=device).cpu().device == mt.device("cpu")
    assert str(mt.device("cuda:0" if mt.cuda.is_available() else "cpu")).split(":")[0] == device.type
    assert x.cpu().is_cuda is False


@idiom
def device_among_backends():
    device = "cuda" if mt.cuda.is_available() else "mps" if mt.backends.mps.is_available() else "cpu"
    assert nn.Linear(2, 1).to(device).weight.device.type == device


@idiom
def default_device():
    mt.set_default_device("cpu")
    assert mt.zeros(2).device.type == "cpu" and mt.get_default_device() == mt.device("cpu")
    with mt.device("cpu"):
        assert mt.ones(2).device == mt.device("cpu")


@idiom
def is_tensor():
    x = mt.zeros(2)
    assert mt.is_tensor(x) and not mt.is_tensor([0]) and isinstance(x, mt.Tensor)
    assert isinstance(nn.Parameter(x), mt.Tensor) and isinstance(nn.Parameter(x), nn.Parameter)
    assert x.is_floating_point() and not x.long().is_floating_point()
    assert x.dtype.is_floating_point and not mt.int64.is_floating_point


@idiom
def questions_about_types():
    x = mt.zeros(2)
    assert mt.is_floating_point(x) and not mt.is_complex(x) and mt.numel(x) == 2
    assert mt.promote_types(mt.int32, mt.float32) == mt.float32 and mt.result_type(x, 1) == mt.float32
    assert mt.can_cast(mt.int32, mt.float64) and mt.broadcast_shapes((2, 1), (3,)) == (2, 3)


@idiom
def bytes_of_images():
    x = mt.tensor([0.0, 0.5, 1.2])
    same(x.clamp(0, 1).mul(255).byte(), [0, 127, 255])
    same((x.clamp(0, 1) * 255).to(mt.uint8), [0, 127, 255])
    same(x.mul(255).add_(0.5).clamp_(0, 255).to("cpu", mt.uint8), [0, 128, 255])
    assert x.short().dtype == mt.int16


@idiom
def python_numbers():
    x = mt.tensor([3.0])
    assert x.item() == 3.0 and isinstance(x.item(), float) and float(x) == 3.0 and int(x) == 3
    if x > 2:
        x = -x
    assert x.tolist() == [-3.0] and bool(x < 0) and not mt.tensor(False)
    assert [row.sum().item() for row in mt.ones(3, 2)] == [2.0] * 3
    assert list(range(10))[mt.tensor(4)] == 4
    assert isinstance(mt.tensor([1, 2]).sum().item(), int)
    assert max(mt.tensor(1.0), mt.tensor(2.0)) == 2 and sum([mt.tensor(1.0), mt.tensor(2.0)]) == 3


@idiom
def formatted():
    loss = mt.tensor(0.123456)
    assert f"{loss.item():.3f}" == "0.123" and f"loss: {loss:.4f}" == "loss: 0.1235" and f"{mt.tensor(7):3d}" == "  7"
    assert "tensor([1, 2]" in f"{mt.tensor([1, 2])}" and str(mt.tensor([1.0, 2.5])).startswith(
        "tensor([1.0000, 2.5000]"
    )
    assert "%.2f" % loss == "0.12" and "epoch {}: {:.2f}".format(1, loss.item()) == "epoch 1: 0.12"


@idiom
def print_options():
    mt.set_printoptions(precision=2, sci_mode=False)
    try:
        assert "0.33" in repr(mt.tensor([1 / 3])) and "0.333" not in repr(mt.tensor([1 / 3]))
    finally:
        mt.set_printoptions(profile="default")
    assert "0.3333" in repr(mt.tensor([1 / 3]))


@idiom
def limits_of_types():
    assert mt.finfo(mt.float32).eps == np.finfo(np.float32).eps and mt.finfo(mt.float16).max == 65504
    assert mt.finfo(mt.float32).min == np.finfo(np.float32).min and mt.finfo(mt.bfloat16).bits == 16
    assert mt.iinfo(mt.int64).max == 2**63 - 1 and mt.iinfo(mt.uint8).min == 0
    x = mt.zeros(2, 2)
    same(x.masked_fill(mt.eye(2).bool(), mt.finfo(x.dtype).min).argmin(dim=1), [0, 1])
    same(mt.finfo(mt.float32).tiny > 0, True)


@idiom
def clone_and_detach():
    x = mt.ones(2, requires_grad=True)
    y = x.detach().clone()
    y[0] = 5
    assert x[0] == 1 and not y.requires_grad and (x * 2).clone().requires_grad
    z = mt.zeros(2)
    z.copy_(y)
    same(z, [5.0, 1.0])
    same(copy.deepcopy(z), [5.0, 1.0])


@idiom
def type_hints():
    def loss(pred: Tensor, target: mt.Tensor, dtype: mt.dtype = mt.float32, device: mt.device = None) -> "Tensor":
        return (pred - target).abs().mean().to(dtype)

    assert loss(mt.ones(2), mt.zeros(2)) == 1
