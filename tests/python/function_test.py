"""Operations of programs: autograd.Function."""

import gc
import threading
import unittest
import weakref

import mytorch as mt
from mytorch.autograd import Function
from mytorch.autograd.function import once_differentiable


class Cube(Function):
    @staticmethod
    def forward(ctx, x, scale):
        ctx.save_for_backward(x)
        ctx.scale = scale
        return x**3 * scale

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        ctx.seen = ctx.needs_input_grad
        return grad * 3 * x * x * ctx.scale, None


def function(forward, backward, **more):
    """Returns a Function of two functions."""
    methods = {"forward": staticmethod(forward), "backward": staticmethod(backward), **more}
    return type("Made", (Function,), methods)


class Functions(unittest.TestCase):
    def setUp(self):
        self.x = mt.tensor([1.0, 2.0], requires_grad=True)

    def test_gradients(self):
        y = Cube.apply(self.x, 2.0)
        self.assertEqual((y.tolist(), y.grad_fn), ([2, 16], "CubeBackward"))
        (first,) = mt.autograd.grad(y.sum(), self.x, create_graph=True)
        self.assertEqual(first.tolist(), [6, 24])
        self.assertEqual(mt.autograd.grad(first.sum(), self.x)[0].tolist(), [12, 24])
        with mt.no_grad():
            self.assertFalse(Cube.apply(self.x, 2.0).requires_grad)
        self.assertFalse(Cube.apply(mt.ones(2), 2.0).requires_grad)

    def test_setup_context(self):
        def setup(ctx, inputs, output):
            self.assertEqual(len(output), 2)
            ctx.save_for_backward(*inputs)

        def backward(ctx, g, h):
            a, b = ctx.saved_tensors
            self.assertEqual(ctx.needs_input_grad, (True, False))
            return g * b + h, None

        made = function(lambda a, b: (a * b, a + b), backward, setup_context=staticmethod(setup))
        a, b = mt.tensor(3.0, requires_grad=True), mt.tensor(4.0)
        product, total = made.apply(a, b)
        (product + total).backward()
        self.assertEqual(a.grad.item(), 5)

    def test_saved_tensors_are_checked(self):
        y = Cube.apply(z := self.x * 1, 1.0)
        z.add_(1)
        with self.assertRaisesRegex(mt.Error, "overwritten"):
            y.sum().backward()

    def test_in_place(self):
        def forward(ctx, x):
            ctx.mark_dirty(x)
            return x.mul_(2)

        made = function(forward, lambda ctx, grad: grad * 2)
        v = self.x * 1
        self.assertIs(made.apply(v), v)
        v.sum().backward()
        self.assertEqual(self.x.grad.tolist(), [2, 2])
        with self.assertRaises(mt.Error):
            made.apply(self.x)  # a leaf

    def test_argument_as_result(self):
        made = function(lambda ctx, x: x, lambda ctx, grad: grad * 5)
        y = made.apply(self.x)
        self.assertIsNot(y, self.x)
        y.sum().backward()
        self.assertEqual(self.x.grad.tolist(), [5, 5])

    def test_results_without_gradient(self):
        def forward(ctx, x):
            order = x.argsort()
            ctx.mark_non_differentiable(order)
            ctx.save_for_backward(order)
            return x[order], order, "text"

        def backward(ctx, grad, nothing, text=None):
            (order,) = ctx.saved_tensors
            result = mt.zeros_like(grad)
            result[order] = grad
            return result

        x = mt.tensor([3.0, 1.0, 2.0], requires_grad=True)
        ordered, order, text = function(forward, backward).apply(x)
        self.assertEqual((order.requires_grad, text), (False, "text"))
        (ordered * mt.tensor([1.0, 2.0, 3.0])).sum().backward()
        self.assertEqual(x.grad.tolist(), [3, 1, 2])

    def test_materialized(self):
        for zeros in (True, False):
            seen = []

            def forward(ctx, x):
                ctx.set_materialize_grads(zeros)
                return x * 1, x * 2

            def backward(ctx, g, h):
                seen.append(None if g is None else g.tolist())
                return h * 2

            function(forward, backward).apply(self.x)[1].sum().backward()
            self.assertEqual(seen, [[0, 0]] if zeros else [None])

    def test_once_differentiable(self):
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * x

        made = function(forward, once_differentiable(lambda ctx, grad: 2 * grad * ctx.saved_tensors[0]))
        (grad,) = mt.autograd.grad(made.apply(self.x).sum(), self.x, create_graph=True)
        self.assertEqual(grad.tolist(), [2, 4])
        with self.assertRaises(NotImplementedError):
            grad.sum().backward()

    def test_errors(self):
        def fail(ctx, grad):
            raise KeyError("mine")

        with self.assertRaisesRegex(KeyError, "mine"):
            function(lambda ctx, x: x * 1, fail).apply(self.x).sum().backward()
        with self.assertRaisesRegex(KeyError, "mine"):
            function(fail, fail).apply(self.x)
        with self.assertRaisesRegex(TypeError, "backward"):
            function(lambda ctx, x: x * 1, lambda ctx, grad: 3).apply(self.x).sum().backward()
        with self.assertRaisesRegex(TypeError, "forward"):
            function(lambda ctx, x: 3, fail).apply(self.x)
        with self.assertRaisesRegex(ValueError, "2 arguments"):
            function(lambda ctx, x, y: x + y, lambda ctx, grad: grad).apply(self.x, self.x).sum().backward()
        with self.assertRaises(TypeError):
            function(lambda ctx, x: ctx.save_for_backward(3), fail).apply(self.x)
        with self.assertRaises(NotImplementedError):
            type("Empty", (Function,), {}).apply(self.x)
        self.assertRaises(RuntimeError, Cube)

    def test_context_outlives_the_graph(self):
        kept = []

        def forward(ctx, x):
            kept.append(ctx)
            ctx.save_for_backward(x)
            return x * 1

        made = function(forward, lambda ctx, grad: grad)
        made.apply(self.x)
        with self.assertRaisesRegex(ValueError, "freed"):
            kept[0].saved_tensors
        y = made.apply(self.x)
        y.sum().backward()
        with self.assertRaises(mt.Error):
            kept[1].saved_tensors
        gone = weakref.ref(kept.pop())
        del y
        gc.collect()
        self.assertIsNone(gone())

    def test_threads(self):
        results = []

        def work():
            x = mt.ones(8, requires_grad=True)
            for _ in range(50):
                Cube.apply(x, 1.0).sum().backward()
            results.append(x.grad.tolist())

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(results, [[150.0] * 8] * 4)


if __name__ == "__main__":
    unittest.main()
