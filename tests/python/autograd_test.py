"""Gradients in Python: backward, grad, hooks and modes."""

import subprocess
import sys
import threading
import unittest

import mytorch as mt


class Gradients(unittest.TestCase):
    def test_backward(self):
        x = mt.tensor([1.0, 2.0, 3.0], requires_grad=True)
        y = (x * x).sum()
        self.assertEqual(y.grad_fn, "SumBackward")
        self.assertIsNone(x.grad)
        self.assertTrue(x.is_leaf)
        y.backward()
        self.assertEqual(x.grad.tolist(), [2, 4, 6])
        (x * 2).backward(mt.ones(3))
        self.assertEqual(x.grad.tolist(), [4, 6, 8])
        x.grad = None
        self.assertIsNone(x.grad)

    def test_grad(self):
        x = mt.tensor(2.0, requires_grad=True)
        (first,) = mt.autograd.grad(x**3, x, create_graph=True)
        self.assertEqual(first.item(), 12)
        self.assertEqual(mt.autograd.grad(first, [x])[0].item(), 12)
        unused = mt.tensor(1.0, requires_grad=True)
        self.assertEqual(mt.autograd.grad(x * 1, [unused], allow_unused=True), (None,))
        with self.assertRaises(ValueError):
            mt.autograd.grad(x * 1, [unused])
        mt.autograd.backward([x * 2, x * 3])
        self.assertEqual(x.grad.item(), 5)

    def test_modes(self):
        x = mt.ones(2, dtype=mt.float64).requires_grad_()
        with mt.no_grad():
            self.assertFalse((x * 2).requires_grad)
            with mt.enable_grad():
                self.assertTrue((x * 2).requires_grad)
            self.assertFalse(mt.is_grad_enabled())
        self.assertTrue(mt.is_grad_enabled())

        @mt.no_grad()
        def without(v):
            return v * 2

        @mt.no_grad
        def also_without(v):
            return v * 2

        self.assertFalse(without(x).requires_grad)
        self.assertFalse(also_without(x).requires_grad)

        @mt.set_grad_enabled(False)
        def set_off(v):
            return v * 2

        self.assertTrue(mt.is_grad_enabled())
        self.assertFalse(set_off(x).requires_grad)
        self.assertTrue(mt.is_grad_enabled())
        mode = mt.set_grad_enabled(False)
        for _ in range(2):
            with mode:
                self.assertFalse(mt.is_grad_enabled())
            self.assertTrue(mt.is_grad_enabled())
        with mt.set_grad_enabled(False):
            self.assertFalse((x * 2).requires_grad)
        mt.set_grad_enabled(False)
        self.assertFalse((x * 2).requires_grad)
        mt.set_grad_enabled(True)
        with self.assertRaises(ZeroDivisionError):
            with mt.no_grad():
                1 / 0
        self.assertTrue(mt.is_grad_enabled())
        self.assertFalse(x.detach().requires_grad)

    def test_hooks(self):
        x = mt.tensor([1.0, 1.0], requires_grad=True)
        seen = []
        handle = x.register_hook(lambda g: seen.append(g.tolist()))
        x.sum().backward()
        handle.remove()
        handle.remove()
        with x.register_hook(lambda g: g * 10):
            x.sum().backward()
        x.sum().backward()
        self.assertEqual(seen, [[1, 1]])
        self.assertEqual(x.grad.tolist(), [12, 12])
        accumulated = []
        x.register_post_accumulate_grad_hook(lambda leaf: accumulated.append(leaf.grad.tolist()))
        x.sum().backward()
        self.assertEqual(accumulated, [[13, 13]])
        names = {x: "x"}
        found = []
        x.register_post_accumulate_grad_hook(lambda leaf: found.append(names[leaf]))
        x.sum().backward()
        self.assertEqual(found, ["x"])
        with self.assertRaises(TypeError):
            x.register_hook(3)

    def test_exceptions_of_hooks_travel_as_themselves(self):
        class Mine(Exception):
            pass

        x = mt.tensor([1.0], requires_grad=True)
        error = Mine("from a hook")

        def hook(_):
            raise error

        with x.register_hook(hook):
            with self.assertRaises(Mine) as raised:
                x.sum().backward()
        self.assertIs(raised.exception, error)
        with x.register_hook(lambda g: "text"):
            with self.assertRaises(TypeError):
                x.sum().backward()
        x.sum().backward()
        self.assertEqual(x.grad.tolist(), [1])

    def test_threads(self):
        x = mt.arange(100000, dtype=mt.float64).requires_grad_()
        results = []

        def work():
            results.append(mt.autograd.grad((x * x).sum(), x)[0][-1].item())

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(results, [2 * 99999.0] * 4)

    def test_threads_that_outlive_the_program(self):
        program = """
import threading, time
import mytorch as mt
x = mt.zeros(1000000)
def work():
    while True:
        x.exp()
for _ in range(3):
    threading.Thread(target=work, daemon=True).start()
time.sleep(0.2)
"""
        self.assertEqual(subprocess.run([sys.executable, "-c", program]).returncode, 0)

    def test_retained(self):
        x = mt.tensor(3.0, requires_grad=True)
        y = x * x
        y.retain_grad()
        (y * 2).backward()
        self.assertEqual((y.grad.item(), x.grad.item()), (2, 12))
        self.assertIs(x.requires_grad_(False), x)
        self.assertFalse(x.requires_grad)


if __name__ == "__main__":
    unittest.main()
