"""Tensors of Python: values, indices, operators of the syntax, conversions, errors."""

import copy
import math
import pickle
import unittest
import weakref

import mytorch as mt


class Picklable(mt.Tensor):
    pass


class Values(unittest.TestCase):
    def test_types_of_numbers(self):
        for value, dtype in ((True, mt.bool), (3, mt.int64), (2.5, mt.float32), (1j, mt.complex64)):
            for data in (value, [value], [[value, value]]):
                self.assertIs(mt.tensor(data).dtype, dtype)
                self.assertEqual(mt.tensor(data).tolist(), data)
        self.assertIs(mt.tensor([1, 2.5]).dtype, mt.float32)
        self.assertIs(mt.tensor([True, 2]).dtype, mt.int64)
        self.assertIs(mt.tensor([2.5, 1j, True]).dtype, mt.complex64)
        self.assertEqual(mt.tensor([2.5, 1j, True]).tolist(), [2.5, 1j, 1])
        self.assertIs(mt.tensor([]).dtype, mt.float32)
        self.assertEqual(mt.tensor([[], []]).shape, (2, 0))

    def test_integers_are_exact(self):
        for value in (2**63 - 1, -(2**63), 2**53 + 1):
            self.assertEqual(mt.tensor(value).item(), value)
            self.assertEqual(int(mt.tensor(value)), value)
        with self.assertRaises(OverflowError):
            mt.tensor(2**63)

    def test_dtype_and_device(self):
        x = mt.tensor([1, 2], dtype=mt.float64, device="cpu", requires_grad=True)
        self.assertIs(x.dtype, mt.float64)
        self.assertEqual(x.device, mt.device("cpu"))
        self.assertTrue(x.requires_grad)
        self.assertIs(mt.ones(2, dtype=float).dtype, mt.float32)
        self.assertIs(mt.zeros(2, dtype=int).dtype, mt.int64)

    def test_bad_lists(self):
        for data in ([[1], [2, 3]], [1, [2]], [[1], 2]):
            with self.assertRaises(mt.ShapeError):
                mt.tensor(data)
        for data in ("a", ["a"], None, [None], object()):
            with self.assertRaises(TypeError):
                mt.tensor(data)
        endless = []
        endless.append(endless)
        mixed = [mt.ones(2)]
        mixed.append(mixed)
        for data in (endless, mixed):
            with self.assertRaises(mt.ShapeError):
                mt.tensor(data)
        for value, dtype in ((300, mt.uint8), (-1, mt.uint8), (math.nan, mt.int32), (1j, mt.int64)):
            with self.assertRaises(mt.Error):
                mt.tensor(value, dtype=dtype)
        nested = 1
        for _ in range(70):
            nested = [nested]
        with self.assertRaises(mt.ShapeError):
            mt.tensor(nested)

    def test_lists_of_tensors_are_stacked(self):
        x = mt.tensor([mt.tensor([1, 2]), mt.tensor([3, 4])])
        self.assertEqual(x.tolist(), [[1, 2], [3, 4]])

    def test_copies(self):
        x = mt.tensor([1.0, 2.0])
        self.assertNotEqual(mt.tensor(x).data_ptr(), x.data_ptr())
        self.assertIs(mt.asarray(x), x)
        self.assertNotEqual(mt.asarray(x, copy=True).data_ptr(), x.data_ptr())
        with self.assertRaises(ValueError):
            mt.asarray([1.0], copy=False)

    def test_fields(self):
        x = mt.zeros(2, 3, dtype=mt.int16)
        self.assertEqual((x.shape, x.ndim, x.itemsize, x.nbytes), ((2, 3), 2, 2, 12))
        self.assertEqual((x.size(), x.size(-1), x.stride(), x.stride(0)), ((2, 3), 3, (3, 1), 3))
        self.assertEqual((x.dim(), x.numel(), len(x), x.is_contiguous()), (2, 6, 2, True))
        self.assertEqual(x.T.shape, (3, 2))
        self.assertFalse(x.T.is_contiguous())
        self.assertEqual(repr(mt.float32), "mytorch.float32")
        self.assertIn("int16", repr(x))

    def test_pickle_and_copy(self):
        x = mt.arange(6, dtype=mt.float64).reshape(2, 3).T.requires_grad_()
        for y in (pickle.loads(pickle.dumps(x)), copy.deepcopy(x)):
            self.assertEqual(y.tolist(), x.tolist())
            self.assertIs(y.dtype, x.dtype)
            self.assertTrue(y.requires_grad)
            self.assertNotEqual(y.data_ptr(), x.data_ptr())
        self.assertIs(copy.copy(x), x)
        self.assertIs(pickle.loads(pickle.dumps(mt.bfloat16)), mt.bfloat16)
        self.assertEqual(pickle.loads(pickle.dumps(mt.device("cpu"))), mt.device("cpu"))
        with self.assertRaises(RuntimeError):
            pickle.dumps(x * 2)

    def test_subtypes(self):
        class Weight(mt.Tensor):
            pass

        w = Weight([1.0, 2.0])
        w.note = "mine"
        self.assertIs(w.add_(1), w)
        self.assertIs(type(w + 1), mt.Tensor)
        self.assertIsInstance(w, mt.Tensor)
        self.assertEqual((w.note, mt.add(w, w).tolist()), ("mine", [4, 6]))
        for again in (copy.deepcopy(w), pickle.loads(pickle.dumps(Picklable([1.0])))):
            self.assertIsNot(type(again), mt.Tensor)
        self.assertEqual(copy.deepcopy(w).note, "mine")
        reference = weakref.ref(w)
        self.assertIs(reference(), w)
        del w, again
        self.assertIsNone(reference())

    def test_devices(self):
        self.assertEqual(mt.device(type="cpu"), mt.device("cpu", 0))
        self.assertIsNone(mt.device("cpu").index)
        for arguments in (("cpu", -5), ("cpu", 3), ("nowhere",), (3,), ("cpu", 2**40)):
            with self.assertRaises((mt.DeviceError, TypeError)):
                mt.device(*arguments)
        with self.assertRaises(mt.Error):
            mt.Generator("nowhere")
        for count in (0, -1, 2**32 + 3):
            with self.assertRaises(ValueError):
                mt.set_num_threads(count)
        with self.assertRaises(TypeError):
            mt.ones(2).size(0, 1)
        with self.assertRaises(TypeError):
            mt.ones(2).size(other=0)

    def test_generators(self):
        first = mt.rand(3, generator=mt.Generator().manual_seed(5))
        again = mt.rand(3, generator=mt.Generator().manual_seed(5))
        self.assertEqual(first.tolist(), again.tolist())
        mt.manual_seed(1)
        first = mt.randn(3)
        mt.manual_seed(1)
        self.assertEqual(first.tolist(), mt.randn(3).tolist())
        generator = mt.Generator()
        state = generator.get_state()
        first = mt.rand(2, generator=generator)
        generator.set_state(state)
        self.assertEqual(first.tolist(), mt.rand(2, generator=generator).tolist())


class Indices(unittest.TestCase):
    def setUp(self):
        self.x = mt.arange(24).reshape(2, 3, 4)
        self.lists = self.x.tolist()

    def test_views(self):
        x, lists = self.x, self.lists
        self.assertEqual(x[1].tolist(), lists[1])
        self.assertEqual(x[-1, 0].tolist(), lists[-1][0])
        self.assertEqual(x[:, 1:, ::2].tolist(), [[row[::2] for row in block[1:]] for block in lists])
        self.assertEqual(x[..., -1].tolist(), [[row[-1] for row in block] for block in lists])
        self.assertEqual(x[None].shape, (1, 2, 3, 4))
        self.assertEqual(x[0, None, ..., 1].shape, (1, 3))
        x[0, 0, 0] = 100
        self.assertEqual(x[0][0][0].item(), 100)

    def test_selections(self):
        x, lists = self.x, self.lists
        self.assertEqual(x[x > 20].tolist(), [21, 22, 23])
        self.assertEqual(x[[1, 0]].tolist(), [lists[1], lists[0]])
        self.assertEqual(x[0, mt.tensor([2, 0]), [1, 3]].tolist(), [lists[0][2][1], lists[0][0][3]])
        self.assertEqual(x[[]].shape, (0, 3, 4))
        self.assertEqual(x[True].shape, (1, 2, 3, 4))
        self.assertEqual(x[[True, False]].tolist(), [lists[0]])

    def test_assignment(self):
        x = mt.zeros(3, 3)
        x[0] = 1
        x[:, 1] = mt.tensor([4.0, 5.0, 6.0])
        x[2] = [7, 8, 9]
        x[x == 0] = -1
        self.assertEqual(x.tolist(), [[1, 4, 1], [-1, 5, -1], [7, 8, 9]])
        x[[0, 1], [0, 0]] += 10
        self.assertEqual(x[:, 0].tolist(), [11, 9, 7])
        with self.assertRaises(TypeError):
            del x[0]

    def test_ends(self):
        x = mt.arange(3)
        self.assertEqual([int(v) for v in x], [0, 1, 2])
        self.assertEqual(list(reversed([v.item() for v in x])), [2, 1, 0])
        for at in (3, -4):
            with self.assertRaises(IndexError):
                x[at]
        with self.assertRaises(TypeError):
            iter(mt.tensor(1))
        with self.assertRaises(TypeError):
            len(mt.tensor(1))
        table = mt.zeros(2, 3)
        for at in ((0, 3), (2, 0), (..., -4), (None, 2), (mt.tensor([True, False]), 3)):
            with self.assertRaises(IndexError):
                table[at]
            with self.assertRaises(IndexError):
                table[at] = 1
        with self.assertRaises(IndexError):
            x[10**30]
        self.assertEqual(x[: 10**30].tolist(), [0, 1, 2])
        with self.assertRaises(TypeError):
            x["a"]
        with self.assertRaises(TypeError):
            x[1.5:]
        self.assertIn(2, x)
        self.assertNotIn(7, x)
        first, second, third = x
        self.assertEqual(third.item(), 2)


class Syntax(unittest.TestCase):
    def test_numbers_on_both_sides(self):
        values = [1.0, 2.0, 4.0]
        x = mt.tensor(values, dtype=mt.float64)
        operators = {
            "+": lambda a, b: a + b,
            "-": lambda a, b: a - b,
            "*": lambda a, b: a * b,
            "/": lambda a, b: a / b,
            "//": lambda a, b: a // b,
            "%": lambda a, b: a % b,
            "**": lambda a, b: a**b,
        }
        for name, f in operators.items():
            with self.subTest(name):
                self.assertEqual(f(x, 3).tolist(), [f(v, 3) for v in values])
                self.assertEqual(f(3, x).tolist(), [f(3, v) for v in values])
                self.assertEqual(f(x, x).tolist(), [f(v, v) for v in values])

    def test_integers_and_bools(self):
        x, values = mt.tensor([6, 3, 1]), [6, 3, 1]
        for f in (lambda a, b: a & b, lambda a, b: a | b, lambda a, b: a ^ b):
            self.assertEqual(f(x, 5).tolist(), [f(v, 5) for v in values])
            self.assertEqual(f(5, x).tolist(), [f(5, v) for v in values])
        self.assertEqual((x << 2).tolist(), [v << 2 for v in values])
        self.assertEqual((x >> 1).tolist(), [v >> 1 for v in values])
        self.assertEqual((~x).tolist(), [~v for v in values])
        self.assertEqual((~(x > 2)).tolist(), [False, False, True])
        self.assertIs((x + True).dtype, mt.int64)
        self.assertIs((x + 1.5).dtype, mt.float32)
        self.assertIs((x * 1j).dtype, mt.complex64)
        self.assertIs((x / x).dtype, mt.float32)

    def test_in_place(self):
        x = mt.ones(3)
        same = x
        x += 2
        x *= mt.tensor([1.0, 2.0, 3.0])
        x -= 1
        x /= 2
        self.assertIs(x, same)
        self.assertEqual(x.tolist(), [1, 2.5, 4])
        y = mt.tensor([7, 9])
        rows = y[:]
        for change in ("rows //= 2", "rows **= 2", "rows %= 5", "rows <<= 3", "rows >>= 1"):
            exec(change)
        self.assertEqual(y.tolist(), [((v // 2) ** 2 % 5 << 3) >> 1 for v in (7, 9)])
        self.assertEqual((5.5 // mt.tensor([1, 2, 3])).tolist(), [5, 2, 1])
        self.assertIs((5.5 // mt.tensor([1])).dtype, mt.float32)
        self.assertEqual((-0.5 // mt.tensor([1])).tolist(), [-1])
        self.assertEqual((-7 // mt.tensor([2])).tolist(), [-4])
        big = mt.zeros(10000)
        same = big
        big += 1
        self.assertIs(big, same)
        self.assertIs(x.add_(1), x)
        self.assertIs(mt.add(x, 1, out=x), x)

    def test_comparisons(self):
        x = mt.tensor([1, 2, 3])
        self.assertEqual((x < 2).tolist(), [True, False, False])
        self.assertEqual((2 <= x).tolist(), [False, True, True])
        self.assertEqual((x == mt.tensor([1, 0, 3])).tolist(), [True, False, True])
        self.assertFalse(x == None)  # noqa: E711
        self.assertTrue(x != "text")
        with self.assertRaises(ValueError):
            bool(x)
        self.assertTrue(mt.tensor([[2]]))
        self.assertEqual(len({x: 1, x[0]: 2}), 2)

    def test_matrices(self):
        a, b = mt.tensor([[1.0, 2.0], [3.0, 4.0]]), mt.tensor([[0.0, 1.0], [1.0, 0.0]])
        self.assertEqual((a @ b).tolist(), [[2, 1], [4, 3]])
        self.assertEqual(a.mT.tolist(), [[1, 3], [2, 4]])
        z = mt.tensor([[1j, 2], [3, 4]])
        self.assertEqual(z.H.tolist(), [[-1j, 3], [2, 4]])
        self.assertEqual(z.mH.tolist(), z.H.tolist())
        self.assertEqual((z.real.tolist(), z.imag.tolist()), ([[0, 2], [3, 4]], [[1, 0], [0, 0]]))
        with self.assertRaises(TypeError):
            a @ 2
        with self.assertRaises(TypeError):
            a + "text"

    def test_conversions(self):
        x = mt.tensor(2.75)
        self.assertEqual((float(x), int(x), math.floor(float(x))), (2.75, 2, 2))
        self.assertEqual([10, 20, 30][mt.tensor(1)], 20)
        with self.assertRaises(TypeError):
            [10, 20][x]
        self.assertIs(x.long().dtype, mt.int64)
        self.assertIs(x.half().dtype, mt.float16)
        self.assertIs(x.to(mt.float64).dtype, mt.float64)
        self.assertIs(x.to("cpu"), x)
        self.assertIs(x.cpu(), x)
        self.assertIs(x.contiguous(), x)


class Overloads(unittest.TestCase):
    def test_sizes(self):
        for x in (mt.zeros(2, 3), mt.zeros((2, 3)), mt.zeros([2, 3]), mt.zeros(size=(2, 3))):
            self.assertEqual(x.shape, (2, 3))
        x = mt.arange(6)
        for y in (x.view(2, 3), x.view((2, 3)), x.reshape(2, -1), x.reshape([2, 3])):
            self.assertEqual(y.shape, (2, 3))
        y = x.view(1, 2, 3)
        self.assertEqual(y.permute(2, 0, 1).shape, (3, 1, 2))
        self.assertEqual(y.permute((2, 0, 1)).shape, (3, 1, 2))
        self.assertEqual(y.expand(4, -1, -1).shape, (4, 2, 3))
        self.assertEqual(y.repeat(2, 1, 1).shape, (2, 2, 3))
        self.assertEqual(y.flip(0, 2).tolist(), [[[2, 1, 0], [5, 4, 3]]])

    def test_reductions(self):
        x = mt.tensor([[1.0, 5.0], [7.0, 3.0]])
        self.assertEqual(x.sum().item(), 16)
        self.assertEqual(x.sum(0).tolist(), [8, 8])
        self.assertEqual(x.sum(dim=(0, 1)).item(), 16)
        self.assertEqual(x.sum(1, keepdim=True).tolist(), [[6], [10]])
        self.assertEqual(x.sum(axis=1, keepdims=True).tolist(), [[6], [10]])
        self.assertEqual(x.max().item(), 7)
        values, indices = x.max(1)
        self.assertEqual((values.tolist(), indices.tolist()), ([5, 7], [1, 0]))
        self.assertEqual(x.max(dim=0).indices.tolist(), [1, 0])
        self.assertEqual(mt.max(x, mt.tensor(4.0)).tolist(), [[4, 5], [7, 4]])
        self.assertEqual(mt.max(mt.tensor([1, 2]), mt.tensor(1)).tolist(), [1, 2])
        self.assertEqual(x.sum(mt.tensor(0)).tolist(), [8, 8])
        self.assertIs(x.sum(dtype=mt.float64).dtype, mt.float64)

    def test_lists_and_options(self):
        x = mt.arange(6).reshape(2, 3)
        self.assertEqual(mt.cat([x, x], 1).shape, (2, 6))
        self.assertEqual(mt.stack((x, x), dim=-1).shape, (2, 3, 2))
        self.assertEqual([part.tolist() for part in x.split(2, dim=1)], [[[0, 1], [3, 4]], [[2], [5]]])
        self.assertEqual(mt.where(x > 2, x, 0).tolist(), [[0, 0, 0], [3, 4, 5]])
        self.assertEqual(x.clamp(min=2).tolist(), [[2, 2, 2], [3, 4, 5]])
        self.assertEqual(x.clamp(1, 4).tolist(), [[1, 1, 2], [3, 4, 4]])
        self.assertEqual(mt.div(x, 2, rounding_mode="floor").tolist(), [[0, 0, 1], [1, 2, 2]])
        self.assertEqual(mt.arange(0, 10, 4).tolist(), [0, 4, 8])
        self.assertEqual(mt.full((2,), 7).tolist(), [7, 7])
        self.assertEqual(x[0].add(1, alpha=2).tolist(), [2, 3, 4])
        out = mt.empty(2, 1), mt.empty(2, 1, dtype=mt.int64)
        self.assertIs(mt.topk(x.float(), 1, out=out), out)
        self.assertEqual(out[1].tolist(), [[2], [2]])
        self.assertEqual(x[0].roll(1, 0).tolist(), [2, 0, 1])
        self.assertEqual(x.movedim(0, 1).shape, (3, 2))
        image = mt.arange(16, dtype=mt.float32).reshape(1, 1, 4, 4)
        self.assertEqual(mt.max_pool2d(image, 2, 2).tolist(), [[[[5, 7], [13, 15]]]])
        self.assertEqual(mt.meshgrid(x[0], x[1])[0].shape, (3, 3))
        self.assertEqual(mt.einsum("i,i->", x[0], x[0]).item(), 5)
        self.assertEqual(mt.linalg.norm(mt.tensor([3.0, 4.0])).item(), 5)
        self.assertEqual(mt.fft.fft(mt.ones(2)).tolist(), [2, 0])

    def test_what_fits_nothing(self):
        x = mt.ones(2)
        calls = [
            lambda: mt.add(x),
            lambda: mt.add(x, 1, 2, 3),
            lambda: mt.add(x, "text"),
            lambda: mt.add(x, 1, other=2),
            lambda: mt.add(x, 1, unknown=2),
            lambda: mt.add(other=x),
            lambda: x.view("text"),
            lambda: x.sum(True),
            lambda: mt.cat([x, 1]),
            lambda: mt.zeros(2, dtype="float32"),
            lambda: mt.Tensor.add(3, x),
        ]
        for call in calls:
            with self.assertRaises(TypeError):
                call()
        with self.assertRaisesRegex(
            TypeError, r"add\(.*str\) fits none of\n  add\(self, other, \*, alpha=1, out=None\)"
        ):
            mt.add(x, "text")
        with self.assertRaises(OverflowError):
            x.add(2**70)

    def test_star_imports_hide_nothing_of_python(self):
        names = {}
        exec("from mytorch import *", names)
        self.assertIs(names["tensor"], mt.tensor)
        for name in ("float", "int", "bool", "sum", "abs", "max"):
            self.assertNotIn(name, names)

    def test_every_operator_has_a_signature(self):
        names = [n for n in dir(mt._core) if not n.startswith("_") and type(getattr(mt._core, n)) is type(mt.add)]
        self.assertGreater(len(names), 800)
        for name in names:
            self.assertTrue(getattr(mt._core, name).__doc__, name)


class Errors(unittest.TestCase):
    def test_kinds(self):
        rows = [
            (lambda: mt.ones(2) @ mt.ones(3), mt.ShapeError, ValueError, "inner dimensions"),
            (lambda: mt.ones(2).view(3), mt.ShapeError, ValueError, "[view]"),
            (lambda: mt.ones(2).to("nowhere"), mt.DeviceError, RuntimeError, "nowhere"),
            (lambda: mt.ones(2).backward(), mt.ArgumentError, ValueError, "[backward]"),
            (lambda: mt.bitwise_and(mt.ones(2), 1), mt.DtypeError, TypeError, "bitwise_and"),
        ]
        for call, kind, python, text in rows:
            with self.assertRaises(kind) as raised:
                call()
            self.assertIsInstance(raised.exception, mt.Error)
            self.assertIsInstance(raised.exception, python)
            self.assertIsInstance(raised.exception, RuntimeError)
            self.assertIn(text, str(raised.exception))


if __name__ == "__main__":
    unittest.main()
