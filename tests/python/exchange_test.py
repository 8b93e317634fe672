"""Memory shared with NumPy and with anything that has a buffer or DLPack."""

import array
import ctypes
import gc
import unittest

import mytorch as mt
import numpy as np


TYPES = "bool uint8 int8 int16 int32 int64 float16 float32 float64 complex64 complex128".split()


def layouts(x):
    """Returns views of a (2, 3, 4) array of NumPy or tensor."""
    turned = x.T if isinstance(x, np.ndarray) else x.permute(2, 1, 0)
    return {"rows": x, "turned": turned, "steps": x[:, :, ::3], "empty": x[:, 0:0], "scalar": x[1, 2, 3], "one": x[1:2]}


class Buffers(unittest.TestCase):
    def test_export(self):
        x = mt.arange(6, dtype=mt.int32).reshape(2, 3)
        view = memoryview(x.T)
        self.assertEqual((view.format, view.shape, view.strides), ("i", (3, 2), (4, 12)))
        self.assertEqual(view.tolist(), [[0, 3], [1, 4], [2, 5]])
        memoryview(x)[1, 1] = 50
        self.assertEqual(x[1, 1].item(), 50)
        for bad in (x.to(mt.bfloat16), x.float().requires_grad_()):
            with self.assertRaises(BufferError):
                memoryview(bad)

    def test_import(self):
        numbers = array.array("d", [1, 2, 3])
        x = mt.asarray(numbers)
        self.assertEqual(x.tolist(), [1, 2, 3])
        x[0] = 7
        self.assertEqual(numbers[0], 7)
        with self.assertRaises(BufferError):
            numbers.append(4)  # while the tensor has the memory
        del x
        gc.collect()
        numbers.append(4)
        self.assertEqual(mt.tensor(bytearray(b"ab")).tolist(), [97, 98])
        fixed = mt.asarray(b"ab")
        with self.assertRaises(ValueError):
            fixed[0] = 1

    def test_the_memory_that_was_exported_stays(self):
        x = mt.full((1 << 20,), 7.0)
        view, back = memoryview(x), mt.from_dlpack(x.__dlpack__())
        x.data = mt.ones(1 << 20)
        self.assertEqual((view[5000], back[5000].item(), x[5000].item()), (7, 7, 1))

    def test_buffers_of_other_kinds(self):
        self.assertEqual(mt.asarray((ctypes.c_float * 3)(1, 2, 3)).tolist(), [1, 2, 3])

        class Either(ctypes.Union):
            _fields_ = [("a", ctypes.c_int), ("b", ctypes.c_float)]

        with self.assertRaises(TypeError):
            mt.asarray(Either())
        unaligned = memoryview(bytearray(17))[1:].cast("i")
        x = mt.asarray(unaligned)
        self.assertEqual((x.data_ptr() % 4, x.tolist()), (0, [0] * 4))
        with self.assertRaises(ValueError):
            mt.asarray(unaligned, copy=False)

    def test_bad_requests(self):
        x = mt.ones(2)
        for keywords in ({"max_version": 1}, {"dl_device": [1, 0]}, {"max_version": (1,)}, {"dl_device": (99, 0)}):
            with self.assertRaises((TypeError, BufferError)):
                x.__dlpack__(**keywords)

        class Odd:
            def __dlpack__(self, **_):
                return x.__dlpack__()

            def __dlpack_device__(self):
                return 5

        with self.assertRaises(TypeError):
            mt.from_dlpack(Odd())

    def test_dlpack_of_itself(self):
        x = mt.arange(6).reshape(2, 3)
        y = mt.from_dlpack(x.__dlpack__(max_version=(1, 0)))
        self.assertEqual(y.data_ptr(), x.data_ptr())
        z = mt.from_dlpack(x.__dlpack__())
        z[0, 0] = 9
        self.assertEqual(y[0, 0].item(), 9)
        self.assertEqual(x.__dlpack_device__(), (1, 0))
        capsule = x.__dlpack__()
        mt.from_dlpack(capsule)
        with self.assertRaises(ValueError):
            mt.from_dlpack(capsule)
        with self.assertRaises(BufferError):
            x.float().requires_grad_().__dlpack__()
        x.__dlpack__()  # nobody takes it
        with self.assertRaises(ValueError):
            x.__dlpack__(stream=1)
        self.assertNotEqual(mt.from_dlpack(x.__dlpack__(copy=True)).data_ptr(), x.data_ptr())


class Numpy(unittest.TestCase):
    def test_round_trips(self):
        for name in TYPES:
            x = (np.arange(24) % 3).reshape(2, 3, 4).astype(name)
            for layout, a in layouts(x).items():
                with self.subTest(name=name, layout=layout):
                    a = np.asarray(a)
                    t = mt.from_numpy(a) if layout != "scalar" else mt.asarray(a)
                    self.assertIs(t.dtype, getattr(mt, name))
                    self.assertEqual(t.shape, a.shape)
                    self.assertEqual(t.tolist(), a.tolist())
                    back = t.numpy()
                    self.assertEqual(back.dtype, a.dtype)
                    np.testing.assert_array_equal(back, a)
                    if a.size:
                        self.assertEqual(t.data_ptr(), a.ctypes.data)
                        self.assertEqual(back.ctypes.data, a.ctypes.data)
            t = (mt.arange(24) % 3).reshape(2, 3, 4).to(getattr(mt, name))
            for layout, view in layouts(t).items():
                a = np.asarray(view)
                self.assertEqual(a.tolist(), view.tolist())
                if view.numel():
                    self.assertEqual(a.ctypes.data, view.data_ptr())

    def test_memory_lives(self):
        a = mt.arange(1000).numpy()
        t = mt.from_numpy(np.arange(1000))
        gc.collect()
        self.assertEqual(a.sum(), t.sum().item())

    def test_negative_strides(self):
        a = np.arange(6).reshape(2, 3)[::-1, ::-1]
        with self.assertRaises((ValueError, BufferError)):
            mt.from_numpy(a)
        self.assertEqual(mt.tensor(a).tolist(), a.tolist())

    def test_numbers(self):
        x = mt.ones(3)
        self.assertEqual((x * np.float32(2)).tolist(), [2, 2, 2])
        self.assertEqual((x + np.int64(1)).tolist(), [2, 2, 2])
        self.assertEqual(x[np.int64(1)].item(), 1)
        self.assertEqual(x.sum(np.int32(0)).item(), 3)
        self.assertEqual(mt.zeros(np.int64(2), 3).shape, (2, 3))
        self.assertEqual(mt.tensor([np.float64(1.5), np.int32(2)]).tolist(), [1.5, 2])
        self.assertEqual(mt.where(mt.tensor([True, False]), np.float64(1), 0).tolist(), [1, 0])
        self.assertEqual(mt.tensor(np.complex64(1 + 2j)).item(), 1 + 2j)
        self.assertEqual((x * np.complex128(1 + 2j)).tolist(), [1 + 2j] * 3)
        self.assertIs(mt.tensor(np.float64(0.1)).dtype, mt.float64)
        self.assertIs(mt.tensor([np.int16(1), 2]).dtype, mt.int64)
        self.assertIs(mt.tensor([np.float16(1), np.int16(2)]).dtype, mt.float16)
        for left in (np.float64(2), np.float32(2), np.int64(2)):
            self.assertIsInstance(left * x, mt.Tensor)
            self.assertEqual((left - x).tolist(), [1, 1, 1])
        same = x
        x += np.ones(3)
        self.assertIs(x, same)
        self.assertEqual((x.tolist(), (np.ones(3) - x).tolist()), ([2, 2, 2], [-1, -1, -1]))
        self.assertIsInstance(np.ones(3) * x, mt.Tensor)
        for other in ("text", b"text", bytearray(3)):
            with self.assertRaises(TypeError):
                x += other
            with self.assertRaises(TypeError):
                x * other

    def test_subtypes_of_arrays(self):
        class Mine(np.ndarray):
            pass

        a = np.arange(3.0).view(Mine)
        self.assertEqual(mt.asarray(a).data_ptr(), a.ctypes.data)
        self.assertEqual(mt.tensor([a, a]).shape, (2, 3))
        self.assertEqual(mt.asarray(np.array(5)).shape, ())

    def test_indices(self):
        x = mt.arange(5)
        self.assertEqual(x[np.array([3, 1])].tolist(), [3, 1])
        self.assertEqual(x[np.array([True, False, True, False, False])].tolist(), [0, 2])
        x[np.array([0])] = np.array([7])
        self.assertEqual(x[0].item(), 7)

    def test_array(self):
        x = mt.ones(2)
        self.assertEqual(np.asarray(x, dtype=np.float64).dtype, np.float64)
        self.assertEqual(np.sqrt(x).tolist(), [1, 1])
        with self.assertRaises(BufferError):
            mt.ones(2).to(mt.bfloat16).numpy()
        with self.assertRaises(BufferError):
            mt.ones(2).requires_grad_().numpy()
        self.assertEqual(mt.ones(2).requires_grad_().numpy(force=True).tolist(), [1, 1])


if __name__ == "__main__":
    unittest.main()
