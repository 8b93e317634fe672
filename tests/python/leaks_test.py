"""Many calls leave no memory behind."""

import gc
import sys
import tracemalloc
import unittest

import mytorch as mt


def growth(call, times):
    """Returns how many bytes of Python's memory `times` calls leave."""
    for _ in range(1000):
        call()
    gc.collect()
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    for _ in range(times):
        call()
    gc.collect()
    after = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    return after - before


def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096


def refused(call):
    try:
        call()
    except (mt.Error, TypeError):
        return
    raise AssertionError("nothing was raised")


class Leaks(unittest.TestCase):
    def check(self, call, times=20000):
        self.assertLess(growth(call, times), 20000)
        before = resident()
        for _ in range(times):
            call()
        self.assertLess(resident() - before, 16 << 20)

    def test_operators(self):
        x = mt.ones(8)
        out = mt.empty(8)
        references = sys.getrefcount(x), sys.getrefcount(mt.float32)
        self.check(lambda: mt.add(x, 1, alpha=2))
        self.check(lambda: x.sum(dim=(0,), dtype=mt.float64))
        self.check(lambda: mt.add(x, x, out=out))
        self.check(lambda: x.view(2, 4).max(1).values)
        self.check(lambda: mt.cat([x, x]).split(8))
        self.assertEqual((sys.getrefcount(x), sys.getrefcount(mt.float32)), references)

    def test_values_and_indices(self):
        x = mt.zeros(4, 4)
        self.check(lambda: mt.tensor([[1.0, 2.0], [3.0, 4.0]]).tolist())
        self.check(lambda: x[1, [0, 2]])
        self.check(lambda: x.__setitem__((slice(None), 1), 3))
        self.check(lambda: list(x))
        self.check(lambda: bytes(memoryview(x)))
        self.check(lambda: mt.from_dlpack(x.__dlpack__()))
        self.check(lambda: x.__dlpack__())

    def test_errors(self):
        x = mt.ones(2)
        self.check(lambda: refused(lambda: x.view(3)))
        self.check(lambda: refused(lambda: mt.add(x, "text")))
        self.check(lambda: refused(lambda: mt.tensor([[1], [2, 3]])))

    def test_gradients(self):
        w = mt.tensor([1.0, 2.0], requires_grad=True)

        def step():
            with w.register_hook(lambda g: g * 1):
                (w * w).sum().backward()
            w.grad = None

        self.check(step, 5000)

    def test_functions(self):
        class Double(mt.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                ctx.save_for_backward(x)
                return x * 2

            @staticmethod
            def backward(ctx, grad):
                return grad * 2 + 0 * ctx.saved_tensors[0]

        x = mt.ones(8, requires_grad=True)

        def step():
            Double.apply(x).sum().backward()
            x.grad = None

        self.check(step, 5000)

    def test_layers(self):
        layer = mt.nn.Linear(8, 8)
        x = mt.ones(1, 8)
        self.check(lambda: layer(x), 5000)
        self.check(lambda: mt.nn.Linear(2, 2), 2000)
        self.check(lambda: refused(lambda: layer(mt.ones(1, 9))), 2000)

    def test_optimizers(self):
        w = mt.tensor([1.0, 2.0], requires_grad=True)
        opt = mt.optim.SGD([w], momentum=0.5)

        def closure():
            w.grad = mt.ones(2)
            return w

        self.check(lambda: opt.step(closure), 5000)
        self.check(lambda: (opt.step(), opt.zero_grad(), len(opt.state)), 5000)
        self.check(lambda: opt.param_groups[0].update(lr=opt.param_groups[0]["lr"]), 5000)
        self.check(lambda: opt.load_state_dict(opt.state_dict()), 2000)
        self.check(lambda: mt.optim.Adam([w], betas=(0.5, 0.75)).state_dict(), 2000)
        self.check(lambda: refused(lambda: opt.step(3)), 5000)
        self.check(lambda: refused(lambda: mt.optim.Adam([w], betas=(0.5, 2))), 2000)


if __name__ == "__main__":
    unittest.main()
