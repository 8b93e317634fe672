"""Names and arguments of PyTorch that are written in Python, with PyTorch's values."""

import math
import subprocess
import sys
import unittest
import warnings

import mytorch as mt
from mytorch.autograd import functional

ROWS = [[1.0, 5.0, 3.0], [4.0, 2.0, 6.0]]
DTYPES = (
    "bool uint8 int8 int16 int32 int64 float16 bfloat16 float32 float64 complex64 complex128".split()
)  # in the order of promotion, but for uint8 and int8, and the two halves


class Arguments(unittest.TestCase):
    def assertRounds(self, found, wanted):
        found = found.tolist()
        found, wanted = ([x] if isinstance(x, float) else x for x in (found, wanted))
        for a, b in zip(found, wanted, strict=True):
            self.assertAlmostEqual(a, b, 5)

    def test_unbiased(self):
        x = mt.tensor(ROWS)
        biased, unbiased = [8 / 3, 8 / 3], [4.0, 4.0]
        for found in (x.var(1, False), x.var(dim=1, unbiased=False), mt.var(x, 1, False), x.var(1, correction=0)):
            self.assertRounds(found, biased)
        for found in (x.var(1), x.var(1, True), mt.var(input=x, dim=1, unbiased=True), x.var(axis=1)):
            self.assertRounds(found, unbiased)
        self.assertRounds(x.var(False), 17.5 / 6)
        self.assertRounds(x.std(unbiased=False), math.sqrt(17.5 / 6))
        self.assertEqual(x.var(1, False, True).shape, (2, 1))
        for both in (mt.var_mean, mt.std_mean):
            spread, mean = both(x, 1, unbiased=False)
            self.assertRounds(spread, biased if both is mt.var_mean else [math.sqrt(v) for v in biased])
            self.assertRounds(mean, [3, 4])
        for bad in (
            lambda: x.var(unbiased=False, correction=1),
            lambda: x.var(1, False, True, True),
            lambda: x.var(1, 2),
            lambda: x.var(unbiased=1),
            lambda: x.var(1, False, unbiased=True),
            lambda: x.var(1, False, True, keepdim=True),
        ):
            with self.assertRaises(TypeError):
                bad()
        y = mt.tensor([1.0, 3.0], requires_grad=True)
        y.var(unbiased=False).backward()
        self.assertEqual(y.grad.tolist(), [-1, 1])

    def test_unique(self):
        x = mt.tensor([3, 1, 3, 2])
        self.assertEqual(x.unique().tolist(), [1, 2, 3])
        self.assertEqual([y.tolist() for y in mt.unique(x, return_inverse=True)], [[1, 2, 3], [2, 0, 2, 1]])
        self.assertEqual([y.tolist() for y in mt.unique(x, return_counts=True)], [[1, 2, 3], [1, 1, 2]])
        self.assertEqual(len(x.unique(True, True, True)), 3)
        self.assertEqual(mt.unique(mt.tensor([[1, 2], [0, 5], [1, 2]]), dim=0).tolist(), [[0, 5], [1, 2]])
        runs = mt.tensor([1, 1, 2, 1])
        self.assertEqual(runs.unique_consecutive().tolist(), [1, 2, 1])
        self.assertEqual([y.tolist() for y in mt.unique_consecutive(runs, return_counts=True)], [[1, 2, 1], [2, 1, 1]])
        self.assertEqual(len(mt._core.unique(x)), 3)  # the operator of the record

    def test_nonzero(self):
        x = mt.tensor([[0, 3], [4, 0]])
        self.assertEqual(x.nonzero().tolist(), [[0, 1], [1, 0]])
        self.assertEqual([y.tolist() for y in x.nonzero(as_tuple=True)], [[0, 1], [1, 0]])
        self.assertIs(type(mt.nonzero(x, as_tuple=True)), tuple)
        self.assertEqual([y.tolist() for y in mt.nonzero(mt.tensor(5), as_tuple=True)], [[0]])

    def test_ranges(self):
        self.assertEqual(mt.tensor(range(3)).tolist(), [0, 1, 2])
        self.assertEqual(mt.tensor([range(2), [5, 6]], dtype=mt.float64).tolist(), [[0, 1], [5, 6]])
        self.assertEqual(mt.as_tensor(range(2)).dtype, mt.int64)
        inside = [1]
        inside.append(inside)
        for bad in ([range(2), [1]], inside, "a", [range(2), "a"]):
            with self.assertRaises((TypeError, ValueError)):
                mt.tensor(bad)

    def test_grad(self):
        x, unused = mt.tensor(3.0, requires_grad=True), mt.tensor(1.0, requires_grad=True)
        self.assertEqual(mt.autograd.grad(x**2, x, None, None, False, True)[0].item(), 6)
        self.assertEqual(mt.autograd.grad(x**2, [x, unused], materialize_grads=True)[1].item(), 0)
        self.assertEqual(mt.autograd.grad(x**2, [unused], allow_unused=True), (None,))
        for keywords in ({}, {"allow_unused": False, "materialize_grads": True}):
            with self.assertRaises(ValueError):
                mt.autograd.grad(x**2, [unused], **keywords)
        with self.assertRaises(NotImplementedError):
            mt.autograd.grad(x**2, x, is_grads_batched=True)
        with self.assertWarns(FutureWarning):
            mt.autograd.grad(x**2, x, only_inputs=False)


class Methods(unittest.TestCase):
    def test_conversions(self):
        x = mt.tensor([0.0, 1.7, -2.2])
        for name, dtype in (("short", mt.int16), ("char", mt.int8), ("cfloat", mt.complex64)):
            self.assertIs(getattr(x, name)().dtype, dtype)
        self.assertEqual(mt.tensor([0.9, 200.7]).byte().tolist(), [0, 200])
        self.assertEqual(x.type(mt.int64).tolist(), [0, 1, -2])
        self.assertEqual(x.type("torch.LongTensor").dtype, x.type(mt.LongTensor).dtype, mt.int64)
        self.assertEqual(x.type(), "mytorch.FloatTensor")
        self.assertIs(x.type_as(mt.zeros(1, dtype=mt.int16)).dtype, mt.int16)
        self.assertEqual(x.type(mt.float32).data_ptr(), x.data_ptr())
        with self.assertRaisesRegex(ValueError, "NoTensor"):
            x.type("torch.NoTensor")

    def test_new_tensor(self):
        x = mt.zeros(2, dtype=mt.float64)
        self.assertEqual(x.new_tensor([1, 2]).dtype, mt.float64)
        self.assertEqual(x.new_tensor([1, 2], dtype=mt.int16).dtype, mt.int16)
        self.assertTrue(x.new_tensor(range(2), requires_grad=True).is_leaf)
        y = x.new_tensor(x)
        y[0] = 1
        self.assertEqual(x[0], 0)

    def test_where_and_device(self):
        x = mt.tensor([-1.0, 0.5], requires_grad=True)
        y = x.where(x > 0, mt.tensor(9.0))
        self.assertEqual(y.tolist(), [9, 0.5])
        y.sum().backward()
        self.assertEqual(x.grad.tolist(), [0, 1])
        self.assertEqual(mt.zeros(2).where(condition=x > 0, other=1.0).tolist(), [1, 0])
        self.assertEqual((x.get_device(), x.is_cpu), (-1, True))

    def test_format(self):
        self.assertEqual(f"{mt.tensor(0.123456, requires_grad=True):.4f} {mt.tensor(7):3d}", "0.1235   7")
        self.assertEqual(f"{mt.tensor(1.5)} {mt.tensor(True)}", "1.5 True")
        self.assertEqual(f"{mt.tensor([1.5])}", str(mt.tensor([1.5])))
        with self.assertRaisesRegex(TypeError, "item"):
            format(mt.tensor([1.5]), ".2f")

    def test_old_types(self):
        self.assertEqual(mt.FloatTensor([1, 2]).tolist(), [1, 2])
        self.assertEqual((mt.LongTensor(2, 3).shape, mt.LongTensor().shape), ((2, 3), (0,)))
        self.assertEqual(mt.ByteTensor(mt.Size([4])).shape, (4,))
        x = mt.zeros(2)
        self.assertEqual(mt.FloatTensor(x).data_ptr(), x.data_ptr())
        self.assertIsInstance(x, mt.FloatTensor)
        self.assertNotIsInstance(x, mt.LongTensor)
        self.assertNotIsInstance(x, mt.cuda.FloatTensor)
        for bad in (lambda: mt.LongTensor(x), lambda: mt.FloatTensor(2.5), lambda: mt.FloatTensor([1], [2])):
            with self.assertRaises(TypeError):
                bad()

    def test_size(self):
        size = mt.Size((2, 3))
        self.assertEqual((size, size.numel(), size[:1].numel(), (size + (4,)).numel()), ((2, 3), 6, 2, 24))
        self.assertIs(type((4,) + size), mt.Size)
        self.assertEqual(repr(size), "mytorch.Size([2, 3])")
        self.assertEqual(mt.zeros(size).view(mt.Size([6])).shape, mt.Size([6]))
        with self.assertRaises(TypeError):
            mt.Size((1.5,))


class Types(unittest.TestCase):
    def test_limits(self):
        f = mt.finfo(mt.float32)
        self.assertEqual((f.bits, f.eps, f.max, f.min), (32, 2.0**-23, (2 - 2.0**-23) * 2.0**127, -f.max))
        self.assertEqual(
            (f.tiny, f.smallest_normal, f.resolution, f.dtype), (2.0**-126, 2.0**-126, 1e-6, "float32")
        )
        self.assertEqual((mt.finfo(mt.float16).max, mt.finfo(mt.bfloat16).eps), (65504, 2.0**-7))
        self.assertEqual(mt.finfo(mt.float64).max, sys.float_info.max)
        self.assertEqual(mt.finfo(mt.complex128), mt.finfo(mt.float64))
        for dtype in (mt.float16, mt.bfloat16, mt.float32, mt.float64):
            limits = mt.finfo(dtype)
            self.assertEqual(mt.tensor(limits.max, dtype=dtype).item(), limits.max)
            self.assertEqual(mt.tensor(1 + limits.eps, dtype=dtype).item(), 1 + limits.eps)
        i = mt.iinfo(mt.int64)
        self.assertEqual((i.max, i.min, i.bits), (2**63 - 1, -(2**63), 64))
        self.assertEqual((mt.iinfo(mt.uint8).max, mt.iinfo(mt.uint8).min), (255, 0))
        self.assertEqual(repr(mt.iinfo(mt.int8)), "iinfo(min=-128, max=127, dtype=int8)")
        for bad in (lambda: mt.finfo(mt.int32), lambda: mt.iinfo(mt.float32), lambda: mt.iinfo(mt.bool)):
            with self.assertRaises(TypeError):
                bad()

    def test_promotion(self):
        dtypes = [getattr(mt, name) for name in DTYPES]
        for at, a in enumerate(dtypes):
            for b in dtypes[at:]:
                wanted = b
                if {a, b} == {mt.uint8, mt.int8}:
                    wanted = mt.int16
                elif {a, b} == {mt.float16, mt.bfloat16}:
                    wanted = mt.float32
                elif {a, b} == {mt.float64, mt.complex64}:
                    wanted = mt.complex128
                self.assertIs(mt.promote_types(a, b), wanted)
                self.assertIs(mt.promote_types(b, a), wanted)
        x = mt.ones(2, dtype=mt.int8)
        for other, wanted in (
            (300, mt.int8),
            (2.5, mt.float32),
            (1j, mt.complex64),
            (True, mt.int8),
            (mt.tensor(1), mt.int8),
            (mt.tensor([1]), mt.int64),
        ):
            self.assertIs(mt.result_type(x, other), wanted)
            self.assertIs(mt.result_type(other, x), wanted)
        self.assertIs(mt.result_type(1, 2.0), mt.float32)

    def test_can_cast(self):
        self.assertTrue(mt.can_cast(mt.float64, mt.float16) and mt.can_cast(mt.int64, mt.uint8))
        self.assertTrue(mt.can_cast(mt.bool, mt.int8) and mt.can_cast(mt.int32, mt.complex64))
        for a, b in ((mt.float32, mt.int64), (mt.complex64, mt.float32), (mt.int8, mt.bool), (mt.float32, mt.bool)):
            self.assertFalse(mt.can_cast(a, b))

    def test_shapes(self):
        for shapes, wanted in ((((2, 1), (3,)), (2, 3)), ((), ()), ((3, (2, 1)), (2, 3)), (((0,), (1,)), (0,))):
            self.assertEqual(mt.broadcast_shapes(*shapes), wanted)
        for bad in (((2, 3), (4,)), ((0,), (2,)), ((-1,),)):
            with self.assertRaises(RuntimeError):
                mt.broadcast_shapes(*bad)

    def test_defaults(self):
        self.assertIs(mt.get_default_dtype(), mt.float32)
        self.assertEqual(mt.get_default_device(), mt.device("cpu"))
        mt.set_default_dtype(mt.float32)
        mt.set_default_device("cpu")
        with self.assertRaisesRegex(NotImplementedError, "dtype=mytorch.float64"):
            mt.set_default_dtype(mt.float64)
        for bad in (mt.int32, "float32"):
            with self.assertRaises(TypeError):
                mt.set_default_dtype(bad)
        self.assertTrue(mt.is_floating_point(mt.ones(1)) and mt.is_complex(mt.ones(1, dtype=mt.complex64)))


class State(unittest.TestCase):
    def test_random(self):
        mt.manual_seed(5)
        self.assertEqual((mt.initial_seed(), mt.random.initial_seed()), (5, 5))
        state = mt.get_rng_state()
        self.assertIs(state.dtype, mt.uint8)
        a = mt.rand(3)
        mt.set_rng_state(state)
        with mt.random.fork_rng(devices=[]):
            self.assertTrue(mt.equal(mt.rand(3), a))
        self.assertTrue(mt.equal(mt.rand(3), a))
        self.assertEqual(mt.seed(), mt.initial_seed())
        if not mt.cuda.is_available():
            mt.manual_seed(5)
            mt.cuda.manual_seed(1)
            mt.cuda.manual_seed_all(1)
            mt.cuda.empty_cache()
            self.assertEqual(mt.initial_seed(), 5)

    def test_inference_mode(self):
        x = mt.ones(1, requires_grad=True)
        with mt.inference_mode():
            self.assertFalse((x * 2).requires_grad)
            with mt.inference_mode(False):
                self.assertTrue((x * 2).requires_grad)

        @mt.inference_mode()
        def once(a):
            return a * 2

        @mt.inference_mode
        def also(a, b=1):
            return a * b

        self.assertFalse(once(x).requires_grad or also(x, b=2).requires_grad)
        self.assertTrue(mt.is_grad_enabled())

    def test_switches(self):
        self.assertFalse(mt.backends.mps.is_available())
        self.assertEqual(mt.backends.cudnn.is_available(), mt.cuda.is_available())
        mt.backends.cudnn.deterministic = True
        mt.backends.cudnn.benchmark = True
        self.assertTrue(mt.backends.cudnn.deterministic and mt.backends.cudnn.benchmark)
        before = mt.get_float32_matmul_precision()
        mt.set_float32_matmul_precision("medium")
        self.assertTrue(mt.backends.cuda.matmul.allow_tf32)
        mt.backends.cuda.matmul.allow_tf32 = True
        self.assertEqual(mt.get_float32_matmul_precision(), "high")
        mt.set_float32_matmul_precision(before)
        mt.use_deterministic_algorithms(False)
        self.assertFalse(mt.are_deterministic_algorithms_enabled())
        with self.assertRaises(NotImplementedError):
            mt.use_deterministic_algorithms(True)
        with self.assertRaises(ValueError):
            mt.set_float32_matmul_precision("low")
        with self.assertRaises(TypeError):
            mt.backends.cudnn.benchmark = 1
        with self.assertRaises(AttributeError):
            mt.backends.cudnn.benchmarks = True
        mt.backends.cudnn.deterministic = False

    def test_names_of_a_star_import(self):
        code = "import random; kept = random; from mytorch import *; assert random is kept; FloatTensor, finfo, Size"
        subprocess.run([sys.executable, "-c", code], check=True)


class Testing(unittest.TestCase):
    def assertText(self, text, *args, kind=AssertionError, **keywords):
        with self.assertRaises(kind) as caught:
            mt.testing.assert_close(*args, **keywords)
        self.assertEqual(str(caught.exception), text)

    def test_close(self):
        close = mt.testing.assert_close
        close(mt.ones(2), mt.ones(2) + 1e-6)
        close(mt.tensor([math.nan, math.inf]), mt.tensor([math.nan, math.inf]), equal_nan=True)
        close(mt.tensor([1.0]), mt.tensor([1], dtype=mt.int64), check_dtype=False)
        close({"a": [mt.ones(1), 2.0, None]}, {"a": [mt.ones(1), 2.0, None]})
        close(mt.nn.Parameter(mt.ones(1)), mt.ones(1))
        close(1, 1.0, check_dtype=False)

    def test_texts(self):
        self.assertText(
            "Tensor-likes are not close!\n\nMismatched elements: 1 / 4 (25.0%)\n"
            "Greatest absolute difference: 2.0 at index (1, 0) (up to 1e-05 allowed)\n"
            "Greatest relative difference: 0.5 at index (1, 0) (up to 1.3e-06 allowed)",
            mt.tensor([[1.0, 2.0], [2.0, 4.0]]),
            mt.tensor([[1.0, 2.0], [4.0, 4.0]]),
        )
        self.assertText(
            "Tensor-likes are not equal!\n\nMismatched elements: 1 / 2 (50.0%)\n"
            "Greatest absolute difference: 5 at index (1,)\nGreatest relative difference: 0.019607843831181526"
            " at index (1,)",
            mt.tensor([0, 250], dtype=mt.uint8),
            mt.tensor([0, 255], dtype=mt.uint8),
        )
        self.assertText(
            "Scalars are not close!\n\nExpected 2.0 but got 1.0.\nAbsolute difference: 1.0 (up to 1e-07 allowed)\n"
            "Relative difference: 0.5 (up to 1e-07 allowed)\n\nThe failure occurred for item ['a'][1]",
            {"a": [0, 1.0]},
            {"a": [0, 2.0]},
        )
        self.assertText("The values for attribute 'shape' do not match: (1,) != (2,).", mt.ones(1), mt.ones(2))
        self.assertText("The length of the sequences mismatch: 1 != 2", [1], [1, 2], msg="mine")
        self.assertText("mine", 1, 2, msg="mine")
        self.assertText("None mismatch: None is not 1", None, 1)
        self.assertText("Both 'rtol' and 'atol' must be either specified or omitted, but got no atol.", 1, 1, rtol=1,
                        kind=ValueError)  # fmt: skip
        self.assertText("The (d)types do not match: <class 'int'> != <class 'float'>.", 1, 1.0)
        with self.assertRaises(TypeError):
            mt.testing.assert_close(mt.ones(1), [1.0])


class Derivatives(unittest.TestCase):
    def test_jacobian(self):
        x, y = mt.tensor([1.0, 2.0]), mt.tensor([3.0, 4.0])
        self.assertEqual(functional.jacobian(lambda x: x**2, x).tolist(), [[2, 0], [0, 4]])
        both = functional.jacobian(lambda x, y: (x * y, x.sum()), (x, y))
        self.assertEqual([[part.tolist() for part in row] for row in both],
                         [[[[3, 0], [0, 4]], [[1, 0], [0, 2]]], [[1, 1], [0, 0]]])  # fmt: skip
        x.requires_grad_()
        functional.jacobian(lambda x: x**3, x, create_graph=True).sum().backward()
        self.assertEqual(x.grad.tolist(), [6, 12])
        with mt.no_grad():
            self.assertFalse(functional.jacobian(lambda x: x**2, x).requires_grad)
        with self.assertRaisesRegex(RuntimeError, "strict"):
            functional.jacobian(lambda x: mt.ones(2), x, strict=True)
        self.assertEqual(functional.jacobian(lambda x: mt.ones(2), x).tolist(), [[0, 0], [0, 0]])
        with self.assertRaises(NotImplementedError):
            functional.jacobian(lambda x: x, x, strategy="forward-mode")

    def test_hessian(self):
        x, y = mt.tensor([1.0, 2.0]), mt.tensor([3.0, 4.0])
        self.assertEqual(functional.hessian(lambda x: (x**3).sum(), x).tolist(), [[6, 0], [0, 12]])
        found = functional.hessian(lambda x, y: (x**2 * y).sum(), (x, y))
        self.assertEqual([[part.tolist() for part in row] for row in found],
                         [[[[6, 0], [0, 8]], [[2, 0], [0, 4]]], [[[2, 0], [0, 4]], [[0, 0], [0, 0]]]])  # fmt: skip
        with self.assertRaises(RuntimeError):
            functional.hessian(lambda x: x, x)

    def test_products(self):
        x, v = mt.tensor([1.0, 2.0]), mt.tensor([1.0, 10.0])
        for product in (functional.vjp, functional.jvp):
            output, result = product(lambda x: mt.stack([x[0] * x[1], x[1] ** 2]), x, v)
            self.assertEqual(output.tolist(), [2, 4])
            self.assertEqual(result.tolist(), [2, 41] if product is functional.vjp else [12, 40])
        for product in (functional.vhp, functional.hvp):
            output, result = product(lambda x: (x**3).sum(), x, v)
            self.assertEqual((output.item(), result.tolist()), (9, [6, 120]))
        self.assertEqual(functional.vjp(lambda x: x.sum(), x)[1].tolist(), [1, 1])
        for bad in (None, mt.ones(3)):
            with self.assertRaisesRegex(RuntimeError, "v "):
                functional.jvp(lambda x: x**2, x, bad)
        from mytorch.autograd.functional import hvp

        self.assertIs(hvp, functional.hvp)

    def test_gradcheck(self):
        x = mt.tensor([0.3, 1.1], dtype=mt.float64, requires_grad=True)
        check = mt.autograd.gradcheck
        self.assertTrue(check(lambda x, y: (x.sin() * y, y**2), (x, (x + 1).detach().requires_grad_())))
        self.assertTrue(mt.autograd.gradgradcheck(lambda x: x**3, x))
        with self.assertRaisesRegex(mt.autograd.GradcheckError, "Jacobian mismatch for output 0"):
            check(lambda x: x.detach() * x, x)
        self.assertFalse(check(lambda x: x.detach() * x, x, raise_exception=False))
        with self.assertRaises(ValueError):
            check(lambda x: x, x.detach())
        with self.assertRaises(NotImplementedError):
            check(lambda x: x, x, check_forward_ad=True)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            check(lambda x: x.sin(), x.detach().float().requires_grad_(), raise_exception=False)
        self.assertIn("float64", str(caught[0].message))

    def test_variable(self):
        x = mt.ones(2)
        y = mt.autograd.Variable(x, requires_grad=True)
        self.assertTrue(y.requires_grad and y.is_leaf and not x.requires_grad)
        self.assertEqual(y.data_ptr(), x.data_ptr())
        self.assertIsInstance(x, mt.autograd.Variable)
        with self.assertRaises(TypeError):
            mt.autograd.Variable([1.0])


class Modes(unittest.TestCase):
    def test_printing(self):
        before = mt.get_printoptions()
        try:
            mt.set_printoptions(precision=2, edgeitems=1, threshold=4)
            self.assertIn("0.33", repr(mt.tensor([1 / 3])))
            self.assertNotIn("0.333", repr(mt.tensor([1 / 3])))
            self.assertIn("...", repr(mt.arange(5)))
            mt.set_printoptions(sci_mode=True)
            self.assertIn("e", repr(mt.tensor([1.5])).split("(")[1].split("]")[0])
            mt.set_printoptions(threshold=float("inf"))
            self.assertNotIn("...", repr(mt.arange(2000)))
            self.assertRaises(ValueError, mt.set_printoptions, profile="none")
            self.assertRaises(ValueError, mt.set_printoptions, precision=-1)
            mt.set_printoptions(profile="default")
            self.assertEqual(mt.get_printoptions(), {**before, "linewidth": 80})
        finally:
            mt._core._set_print_options(*before.values())

    def test_anomaly(self):
        x = mt.tensor([0.0], requires_grad=True)
        y = x.sqrt() * 0
        y.sum().backward()  # NaN, without a word
        with mt.autograd.set_detect_anomaly(True):
            self.assertTrue(mt.autograd.is_anomaly_enabled())
            with self.assertRaisesRegex(RuntimeError, "(?i)nan"):
                (x.sqrt() * 0).sum().backward()
        self.assertFalse(mt.autograd.is_anomaly_enabled())
        with mt.autograd.detect_anomaly(check_nan=False):
            (x.sqrt() * 0).sum().backward()

    def test_range(self):
        x = mt.arange(6).reshape(2, 3)
        self.assertEqual(x[range(2), [0, 2]].tolist(), [0, 5])
        self.assertEqual(x[:, range(0)].shape, (2, 0))


if __name__ == "__main__":
    unittest.main()
