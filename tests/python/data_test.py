"""Datasets, samplers, batches and workers."""

import collections
import faulthandler
import gc
import multiprocessing
import os
import pathlib
import random
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import types
import unittest
import unittest.mock
import warnings

import mytorch as mt
import numpy as np
from mytorch import data
from mytorch.data import _messages, _workers

# What workers run must be importable, and therefore lies here.

KINDS = "bool uint8 int8 int16 int32 int64 float16 bfloat16 float32 float64 complex64 complex128".split()
Point = collections.namedtuple("Point", ["x", "y"])
NOTES = {}


class Numbers(data.Dataset):
    """Sample i is a row of `width` times i, and i."""

    def __init__(self, count=10, width=1):
        self.count, self.width = count, width

    def __getitem__(self, index):
        return mt.full((self.width,), float(index)), index

    def __len__(self):
        return self.count


class Parts(data.IterableDataset):
    """0 to 9, of which each worker has every n-th."""

    def __iter__(self):
        info = data.get_worker_info()
        start, step = (info.id, info.num_workers) if info else (0, 1)
        return iter(range(start, 10, step))

    def __len__(self):
        return 10


class TypesOfTensors(data.Dataset):
    def __getitem__(self, index):
        return {kind: (mt.arange(5000) % 2).to(getattr(mt, kind)) for kind in KINDS}

    def __len__(self):
        return 1


class Draws(data.Dataset):
    """Random numbers of all sources, and the worker's seed."""

    def __getitem__(self, index):
        seed = data.get_worker_info().seed if data.get_worker_info() else 0
        return seed, random.random(), mt.rand(1).item(), np.random.rand()

    def __len__(self):
        return 4


class TwoArguments(Exception):
    def __init__(self, first, second):
        super().__init__(first, second)


class Mute(Exception):
    def __str__(self):
        return "nothing"


def unknown_error():
    class Local(Exception):
        pass

    return Local("of a local type")


ERRORS = {
    "value": lambda: ValueError("one"),
    "key": lambda: KeyError("two\nlines"),
    "own": lambda: TwoArguments(1, 2),
    "mute": lambda: Mute("three"),
    "stop": lambda: StopIteration("four"),
    "local": unknown_error,
    "library": lambda: mt.ShapeError("five"),
}


class Failing(data.Dataset):
    def __getitem__(self, kind):
        if kind == "exit":
            os._exit(7)
        if kind == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        if kind == "quit":
            sys.exit(3)
        if kind == "wait":
            time.sleep(600)
        if kind in ERRORS:
            raise ERRORS[kind]()
        return kind

    def __len__(self):
        return 0


class Texts(data.Dataset):
    """Long texts, which cannot leave the pickle."""

    text = "x" * 20000

    def __getitem__(self, index):
        return self.text

    def __len__(self):
        return 60


class Counting(data.Dataset):
    def __init__(self, counter):
        self.counter = counter

    def __getitem__(self, index):
        with self.counter.get_lock():
            self.counter.value += 1
        return index

    def __len__(self):
        return 4


class Changing(data.Dataset):
    """Changes its own tensor: others must not see it."""

    def __init__(self):
        self.rows = mt.zeros(4, 20000)

    def __getitem__(self, index):
        self.rows += 1
        return self.rows[index, 0].item(), index

    def __len__(self):
        return 4


class Named(data.Dataset):
    def __getitem__(self, index):
        info = data.get_worker_info()
        ignores = signal.getsignal(signal.SIGINT) is signal.SIG_IGN  # the program gets Ctrl-C, and ends its workers
        mine = info.id, info.num_workers, isinstance(info.dataset, Named)
        return NOTES.get("id"), *mine, mt.get_num_threads(), ignores

    def __len__(self):
        return 2


def explode():
    raise ValueError("when it arrives")


class Explosive(Numbers):
    def __reduce__(self):
        return explode, ()


def note(id):
    NOTES["id"] = id


def refuse(id):
    raise ValueError(f"worker {id} does not want to")


def first(samples):
    return samples[0]


def unsendable(samples):
    return lambda: 0


def loader(dataset, method, num_workers=2, **keywords):
    """Returns a loader with workers: of a start method, or threads."""
    if method == "threads":
        return data.DataLoader(dataset, num_workers=num_workers, workers="threads", **keywords)
    return data.DataLoader(dataset, num_workers=num_workers, multiprocessing_context=method, **keywords)


def plain(batch):
    """Returns a batch with lists in place of tensors."""
    if isinstance(batch, (list, tuple)):
        return [plain(part) for part in batch]
    return batch.tolist() if isinstance(batch, mt.Tensor) else batch


def in_shared_memory():
    others = ("mytorch-test-", "sem.")  # of other tests, and of the locks of Python programs
    return {name for name in os.listdir("/dev/shm") if not name.startswith(others)}


def mapped():
    return pathlib.Path("/proc/self/maps").read_text().count("memfd:mytorch")


def is_running(pid):
    """Returns whether a process still runs after some seconds."""
    for _ in range(100):
        try:
            os.kill(pid, 0)
            if " Z " in pathlib.Path(f"/proc/{pid}/stat").read_text():
                return False
        except (ProcessLookupError, FileNotFoundError):
            return False
        time.sleep(0.1)
    return True


class Datasets(unittest.TestCase):
    def test_bases(self):
        with self.assertRaises(NotImplementedError):
            data.Dataset()[0]
        with self.assertRaises(NotImplementedError):
            iter(data.IterableDataset())
        self.assertIs(data.Dataset[int].__origin__, data.Dataset)
        self.assertIsInstance(Numbers() + Numbers(), data.ConcatDataset)
        self.assertEqual(list(Parts() + Parts()), [*range(10)] * 2)

    def test_tensor_dataset(self):
        dataset = data.TensorDataset(mt.arange(6).view(3, 2), mt.arange(3))
        self.assertEqual((len(dataset), plain(dataset[2])), (3, [[4, 5], 2]))
        self.assertEqual(plain(dataset[-1]), [[4, 5], 2])
        for tensors in ((), (mt.ones(2), mt.ones(3))):
            with self.assertRaises(ValueError):
                data.TensorDataset(*tensors)

    def test_stack_dataset(self):
        rows, subset = range(3), data.Subset(range(10), [5, 6, 7])
        self.assertEqual(data.StackDataset(rows, subset)[1], (1, 6))
        named = data.StackDataset(a=rows, b=subset)
        self.assertEqual((len(named), named[2]), (3, {"a": 2, "b": 7}))
        self.assertEqual(named.__getitems__([0, 2]), [{"a": 0, "b": 5}, {"a": 2, "b": 7}])
        for args, kwargs in (((), {}), ((rows,), {"b": rows}), ((rows, range(4)), {})):
            with self.assertRaises(ValueError):
                data.StackDataset(*args, **kwargs)

        class Short(Numbers):
            def __getitems__(self, indices):
                return [0]

        with self.assertRaises(ValueError):
            data.StackDataset(Short()).__getitems__([0, 1])

    def test_concat_dataset(self):
        dataset = data.ConcatDataset([range(3), range(0), range(10, 12)])
        self.assertEqual([dataset[i] for i in range(-5, 5)], [0, 1, 2, 10, 11] * 2)
        self.assertEqual((len(dataset), dataset.cumulative_sizes), (5, [3, 3, 5]))
        for index in (5, -6):
            with self.assertRaises(IndexError):
                dataset[index]
        for bad in ([], [Parts()]):
            with self.assertRaises(ValueError):
                data.ConcatDataset(bad)

    def test_chain_dataset(self):
        self.assertEqual(len(data.ChainDataset([Parts(), Parts()])), 20)
        with self.assertRaises(ValueError):
            data.ChainDataset([range(3)])

    def test_subset(self):
        subset = data.Subset([10, 20, 30], [2, 0])
        self.assertEqual((len(subset), subset[0], subset.__getitems__([1, 0])), (2, 30, [10, 30]))
        self.assertEqual(data.Subset(mt.arange(5), [4, 2, 0])[[0, 1]].tolist(), [4, 2])

        class AtOnce(Numbers):
            def __getitems__(self, indices):
                return ["at once", *indices[1:]]

        subset = data.Subset(AtOnce(), [3, 4, 5])
        self.assertEqual(next(iter(data.DataLoader(subset, 3, collate_fn=list))), ["at once", 4, 5])

    def test_random_split(self):
        parts = data.random_split(range(10), [7, 3], mt.Generator().manual_seed(1))
        again = data.random_split(range(10), [7, 3], mt.Generator().manual_seed(1))
        self.assertEqual([len(part) for part in parts], [7, 3])
        self.assertEqual([part.indices for part in parts], [part.indices for part in again])
        everything = [sample for part in parts for sample in part]
        self.assertEqual(sorted(everything), list(range(10)))
        self.assertNotEqual(everything, list(range(10)))
        self.assertEqual([len(part) for part in data.random_split(range(11), [0.25, 0.25, 0.5])], [3, 3, 5])
        with self.assertWarnsRegex(UserWarning, "index 1 is 0"):
            data.random_split(range(2), [1.0, 0.0])
        for lengths in ([5, 4], [1.5, -0.5], [0.5, 0.4]):
            with self.assertRaises(ValueError):
                data.random_split(range(10), lengths)


class Samplers(unittest.TestCase):
    def test_sequential(self):
        self.assertEqual(list(data.SequentialSampler("abc")), [0, 1, 2])
        self.assertEqual(len(data.SequentialSampler("abc")), 3)
        with self.assertRaises(NotImplementedError):
            iter(data.Sampler())

    def test_random(self):
        def draw(**keywords):
            sampler = data.RandomSampler(range(50), generator=mt.Generator().manual_seed(3), **keywords)
            numbers = list(sampler)
            self.assertEqual(len(sampler), len(numbers))
            return numbers

        self.assertEqual(sorted(draw()), list(range(50)))
        self.assertEqual(draw(), draw())
        self.assertNotEqual(draw(), sorted(draw()))
        self.assertEqual(draw(num_samples=20), draw()[:20])
        longer = draw(num_samples=120)
        self.assertEqual(sorted(longer[:50]), list(range(50)))
        self.assertLessEqual(max(collections.Counter(longer).values()), 3)
        several = draw(replacement=True, num_samples=2000)
        self.assertEqual(set(several), set(range(50)))
        self.assertGreater(len(set(collections.Counter(several).values())), 1)
        self.assertLess(len(set(draw(replacement=True))), 50)
        shared = data.RandomSampler(range(50), generator=mt.Generator().manual_seed(3))
        self.assertNotEqual(list(shared), list(shared))
        mt.manual_seed(5)
        one = list(data.RandomSampler(range(50)))
        mt.manual_seed(5)
        self.assertEqual(list(data.RandomSampler(range(50))), one)
        self.assertNotEqual(list(data.RandomSampler(range(50))), one)
        for keywords in ({"replacement": 1}, {"num_samples": 0}, {"num_samples": 2.0}, {"num_samples": True}):
            with self.assertRaises(ValueError):
                data.RandomSampler(range(50), **keywords)
        with self.assertRaises(ValueError):
            data.RandomSampler([])

    def test_the_order_does_not_depend_on_draws_meanwhile(self):
        def draw(more):
            mt.manual_seed(5)
            numbers = []
            for number in data.RandomSampler(range(50), num_samples=150):
                numbers.append(number)
                if more:
                    mt.rand(1)
            return numbers

        self.assertEqual(draw(True), draw(False))

    def test_subset(self):
        sampler = data.SubsetRandomSampler("abcdefgh", mt.Generator().manual_seed(1))
        numbers = list(sampler)
        self.assertEqual((sorted(numbers), len(sampler)), (list("abcdefgh"), 8))
        self.assertNotEqual(numbers, list("abcdefgh"))

    def test_weighted(self):
        sampler = data.WeightedRandomSampler([1, 0, 3], 4000, generator=mt.Generator().manual_seed(1))
        counts = collections.Counter(sampler)
        self.assertEqual((len(sampler), set(counts)), (4000, {0, 2}))
        self.assertLess(abs(counts[2] / 4000 - 0.75), 0.05)
        self.assertEqual(sorted(data.WeightedRandomSampler(mt.ones(5), 5, False)), list(range(5)))
        for arguments in (([1.0], 0), ([1.0], 1, 1), ([[1.0]], 1)):
            with self.assertRaises(ValueError):
                data.WeightedRandomSampler(*arguments)

    def test_batches(self):
        for drop_last, batches in ((False, [[0, 1, 2], [3, 4]]), (True, [[0, 1, 2]])):
            sampler = data.BatchSampler(range(5), 3, drop_last)
            self.assertEqual((list(sampler), len(sampler)), (batches, len(batches)))
        self.assertEqual(len(data.BatchSampler(range(6), 3, False)), 2)
        for arguments in ((0, False), (True, False), (2, 1)):
            with self.assertRaises(ValueError):
                data.BatchSampler(range(5), *arguments)

    def test_distributed(self):
        def shares(**keywords):
            samplers = [data.DistributedSampler(range(10), 4, rank, **keywords) for rank in range(4)]
            lists = [list(sampler) for sampler in samplers]
            self.assertEqual([len(sampler) for sampler in samplers], [len(share) for share in lists])
            return lists, samplers

        self.assertEqual(shares(shuffle=False)[0], [[0, 4, 8], [1, 5, 9], [2, 6, 0], [3, 7, 1]])
        self.assertEqual(shares(shuffle=False, drop_last=True)[0], [[0, 4], [1, 5], [2, 6], [3, 7]])
        shuffled, samplers = shares(seed=3)
        self.assertEqual(set(sum(shuffled, [])), set(range(10)))
        self.assertNotEqual(shuffled, shares(shuffle=False)[0])
        self.assertEqual(shuffled, shares(seed=3)[0])
        for sampler in samplers:
            sampler.set_epoch(1)
        self.assertNotEqual(shuffled, [list(sampler) for sampler in samplers])
        self.assertEqual([list(sampler) for sampler in samplers], shares(seed=4)[0])
        self.assertEqual(list(data.DistributedSampler(range(1), 3, 2)), [0])
        for arguments in ((4, 4), (4, -1), (None, 0), (4, None), (0, 0)):
            with self.assertRaises(ValueError):
                data.DistributedSampler(range(10), *arguments)


class Collate(unittest.TestCase):
    def check(self, batch, dtype, values):
        made = data.default_collate(batch)
        self.assertIs(made.dtype, dtype)
        self.assertEqual(made.tolist(), values)

    def test_leaves(self):
        self.check([mt.tensor([1, 2]), mt.tensor([3, 4])], mt.int64, [[1, 2], [3, 4]])
        self.check([np.ones(2, np.float32), np.zeros(2, np.float32)], mt.float32, [[1, 1], [0, 0]])
        self.check([np.array(1), np.array(2)], mt.int64, [1, 2])
        self.check([np.int16(1), np.int16(2)], mt.int16, [1, 2])
        self.check([np.float64(1.5)], mt.float64, [1.5])
        self.check([np.bool_(True), np.bool_(False)], mt.bool, [True, False])
        self.check([0.1, 1], mt.float64, [0.1, 1])
        self.check([1, 2], mt.int64, [1, 2])
        self.check([True, False], mt.bool, [True, False])
        self.assertEqual(data.default_collate(["a", "b"]), ["a", "b"])
        self.assertEqual(data.default_collate([b"a"]), [b"a"])
        for bad in ([None], [np.array(["a"])], [np.array([None])], [object()]):
            with self.assertRaisesRegex(TypeError, "default_collate: batch must contain .* found"):
                data.default_collate(bad)
        with self.assertRaises(ValueError):
            data.default_collate([mt.ones(2), mt.ones(3)])

    def test_structures(self):
        batch = data.default_collate([{"a": (1, 2.0), "b": "x"}, {"a": (3, 4.0), "b": "y"}])
        self.assertEqual(list(batch), ["a", "b"])
        self.assertIsInstance(batch["a"], list)
        self.assertEqual(plain(batch["a"]), [[1, 3], [2, 4]])
        self.assertEqual(batch["b"], ["x", "y"])
        points = data.default_collate([Point(1, [2]), Point(3, [4])])
        self.assertIsInstance(points, Point)
        self.assertEqual(plain(points), [[1, 3], [[2, 4]]])
        ordered = data.default_collate([collections.OrderedDict(z=1, a=2)] * 2)
        self.assertIsInstance(ordered, collections.OrderedDict)
        self.assertEqual(list(ordered), ["z", "a"])
        usual = collections.defaultdict(int, a=1)
        self.assertIs(data.default_collate([usual, usual]).default_factory, int)
        self.assertEqual(usual["a"], 1)
        fixed = types.MappingProxyType({"a": 1})
        self.assertIsInstance(data.default_collate([fixed, fixed]), types.MappingProxyType)
        self.assertEqual(plain(data.default_collate([range(2), range(2)])), [[0, 0], [1, 1]])
        line = collections.UserList([1, 2])
        self.assertIsInstance(data.default_collate([line, line]), collections.UserList)
        self.assertEqual(line, [1, 2])
        with self.assertRaisesRegex(RuntimeError, "equal size"):
            data.default_collate([[1], [1, 2]])

    def test_convert(self):
        array = np.arange(3)
        made = data.default_convert({"a": array, "b": (np.float32(1), "text"), "c": Point(array, 2)})
        self.assertEqual(made["a"].data_ptr(), array.ctypes.data)
        self.assertEqual((made["b"][0].item(), made["b"][1], type(made["b"])), (1, "text", list))
        self.assertIsInstance(made["c"], Point)
        self.assertIsInstance(made["c"].x, mt.Tensor)
        tensor, texts, thing = mt.ones(1), np.array(["a"]), object()
        for same in (tensor, texts, thing, 5, "text", b"text"):
            self.assertIs(data.default_convert(same), same)


class WithoutWorkers(unittest.TestCase):
    def test_batches(self):
        batches = list(data.DataLoader(Numbers(5, 2), 2))
        self.assertEqual([plain(batch[1]) for batch in batches], [[0, 1], [2, 3], [4]])
        self.assertEqual(batches[0][0].shape, (2, 2))
        self.assertEqual(len(data.DataLoader(range(5), 2)), 3)
        self.assertEqual(len(data.DataLoader(range(5), 2, drop_last=True)), 2)
        self.assertEqual(plain(list(data.DataLoader(range(5), 2, drop_last=True))), [[0, 1], [2, 3]])
        self.assertEqual(list(data.DataLoader(range(3), batch_size=None)), [0, 1, 2])
        self.assertEqual(plain(list(data.DataLoader(range(9), batch_sampler=[[8, 1], [2]]))), [[8, 1], [2]])
        self.assertEqual(plain(list(data.DataLoader(range(9), sampler=[7, 8]))), [[7], [8]])
        self.assertEqual(list(data.DataLoader("abc", 3, collate_fn="".join)), ["abc"])
        loader = data.DataLoader(range(5), 2)
        self.assertEqual((plain(list(loader)), len(iter(loader))), (plain(list(loader)), 3))

    def test_shuffle(self):
        loader = data.DataLoader(range(20), 20, shuffle=True, generator=mt.Generator().manual_seed(1))
        one, two = plain(list(loader)), plain(list(loader))
        self.assertEqual(sorted(one[0]), list(range(20)))
        self.assertNotEqual(one, two)
        again = data.DataLoader(range(20), 20, shuffle=True, generator=mt.Generator().manual_seed(1))
        self.assertEqual([plain(list(again)), plain(list(again))], [one, two])

    def test_iterable(self):
        self.assertEqual(plain(list(data.DataLoader(Parts(), 4))), [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]])
        self.assertEqual(plain(list(data.DataLoader(Parts(), 4, drop_last=True))), [[0, 1, 2, 3], [4, 5, 6, 7]])
        self.assertEqual(list(data.DataLoader(Parts(), None)), list(range(10)))
        self.assertEqual(len(data.DataLoader(Parts(), 4)), 3)
        self.assertEqual(len(data.DataLoader(Parts(), 4, drop_last=True)), 2)
        self.assertEqual(len(data.DataLoader(Parts(), None)), 10)

        class Liar(Parts):
            def __len__(self):
                return 5

        loader = data.DataLoader(Liar(), 5)
        self.assertEqual(len(loader), 1)
        with self.assertWarnsRegex(UserWarning, "length of 5"):
            list(loader)

    def test_stop_iteration_is_not_the_end(self):
        for dataset, collate in ((Failing(), None), (Parts(), lambda _: next(iter([])))):
            sampler = None if isinstance(dataset, Parts) else ["stop"]
            with self.assertRaisesRegex(RuntimeError, "StopIteration"):
                list(data.DataLoader(dataset, sampler=sampler, collate_fn=collate))

    def test_refusals(self):
        sampler = [0]
        for keywords in (
            {"num_workers": -1},
            {"timeout": -1},
            {"timeout": 1},
            {"prefetch_factor": 2},
            {"prefetch_factor": 0, "num_workers": 1},
            {"persistent_workers": True},
            {"multiprocessing_context": "spawn"},
            {"multiprocessing_context": "thread", "num_workers": 1},
            {"multiprocessing_context": "spawn", "num_workers": 1, "workers": "threads"},
            {"workers": "fibers"},
            {"shuffle": True, "sampler": sampler},
            {"batch_sampler": sampler, "batch_size": 2},
            {"batch_sampler": sampler, "shuffle": True},
            {"batch_sampler": sampler, "sampler": sampler},
            {"batch_sampler": sampler, "drop_last": True},
            {"batch_size": None, "drop_last": True},
            {"batch_size": 0},
            {"dataset": Parts(), "shuffle": True},
            {"dataset": Parts(), "sampler": sampler},
            {"dataset": Parts(), "batch_sampler": sampler},
        ):
            with self.subTest(**keywords), self.assertRaises(ValueError):
                data.DataLoader(**{"dataset": range(5), **keywords})
        with self.assertRaises(TypeError):
            data.DataLoader(range(5), num_workers=1, multiprocessing_context=5)
        data.DataLoader(Parts(), shuffle=False)
        loader = data.DataLoader(range(5))
        for name in ("batch_size", "batch_sampler", "sampler", "drop_last", "dataset", "persistent_workers"):
            with self.assertRaisesRegex(ValueError, name):
                setattr(loader, name, None)
        loader.timeout = 0

    def test_pinning(self):
        with unittest.mock.patch.object(mt._core, "device_count", lambda _: 0):
            with self.assertWarnsRegex(UserWarning, "pin_memory"):
                loader = data.DataLoader(range(3), 3, pin_memory=True)
            self.assertEqual(plain(list(loader)), [[0, 1, 2]])
        with unittest.mock.patch.object(mt._core, "device_count", lambda _: 1):
            with self.assertRaisesRegex(NotImplementedError, "pin"):
                data.DataLoader(range(3), pin_memory=True)

    def test_numpy_is_not_imported(self):
        code = (
            "import sys, mytorch.data as d; b = list(d.DataLoader([(1, 2.0), (3, 4.0)], 2, num_workers=1, "
            "workers='threads')); assert b[0][1].tolist() == [2, 4]; assert 'numpy' not in sys.modules"
        )
        subprocess.run([sys.executable, "-c", code], check=True)


class Workers(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        for method in ("forkserver", "spawn"):  # start processes of multiprocessing that stay
            list(loader(range(1), method, num_workers=1))
        cls.counter = multiprocessing.get_context("forkserver").Value("i", 0)

    def setUp(self):
        self.before = in_shared_memory(), len(os.listdir("/proc/self/fd")), mapped()

    def tearDown(self):
        """Nothing is left of any test."""
        gc.collect()
        self.assertEqual((len(os.listdir("/proc/self/fd")), mapped()), self.before[1:])
        for _ in range(100):  # other programs may have files there for a while
            left = in_shared_memory() - self.before[0]
            if not left:
                break
            time.sleep(0.1)
        self.assertEqual(left, set())
        self.check_nobody_is_left()

    def check_nobody_is_left(self):
        self.assertEqual(multiprocessing.active_children(), [])
        self.assertEqual([t.name for t in threading.enumerate() if t.name.startswith("mytorch-data")], [])

    def test_batches_are_the_same(self):
        def batches(**keywords):
            generator = mt.Generator().manual_seed(1)
            made = data.DataLoader(Numbers(9, 5000), 2, shuffle=True, generator=generator, **keywords)
            return [[(batch[0][:, 0].tolist(), plain(batch[1])) for batch in made] for _ in range(2)]

        expected = batches()
        self.assertNotEqual(expected[0], expected[1])
        self.assertEqual(batches(num_workers=2, workers="threads"), expected)
        self.assertEqual(batches(num_workers=3, workers="threads", persistent_workers=True), expected)
        self.assertEqual(batches(num_workers=1, multiprocessing_context="spawn", persistent_workers=True), expected)
        self.assertEqual(batches(num_workers=2, multiprocessing_context="forkserver"), expected)

    def test_batches_of_an_epoch_that_was_left(self):
        def second(**keywords):
            generator = mt.Generator().manual_seed(1)
            made = data.DataLoader(Numbers(20), 2, shuffle=True, generator=generator, **keywords)
            for _ in made:
                break
            return [plain(batch[1]) for batch in made]

        expected = second()
        self.assertEqual(second(num_workers=2, workers="threads", persistent_workers=True), expected)
        processes = {"num_workers": 2, "multiprocessing_context": "forkserver"}
        self.assertEqual(second(**processes, persistent_workers=True), expected)

    def test_fork(self):
        code = (
            "import data_test as t\n"
            "rows = [t.plain(x) for x in t.loader([lambda: 1] * 4, 'fork', collate_fn=lambda f: f[0]() + 1)]\n"
            "assert rows == [2] * 4, rows\n"
        )
        self.run_program(code)

    def test_default_start_method(self):
        for chosen, expected in (("spawn", "spawn"), ("fork", "forkserver"), (None, "forkserver")):
            with unittest.mock.patch.object(multiprocessing, "get_start_method", lambda allow_none: chosen):
                self.assertEqual(_workers.default_context().get_start_method(), expected)

    def test_memory(self):
        (batch,) = loader(TypesOfTensors(), "forkserver", num_workers=1)
        self.assertEqual(mapped(), 1)
        for kind in KINDS:
            self.assertIs(batch[kind].dtype, getattr(mt, kind))
            self.assertEqual(batch[kind].tolist(), [[0, 1] * 2500])
        kept = batch["float32"][0, 10:12]
        kept += 5
        del batch
        gc.collect()
        self.assertEqual((kept.tolist(), mapped()), ([5, 6], 1))
        del kept
        gc.collect()
        self.assertEqual(mapped(), 0)

    def test_many_batches_are_kept(self):
        with unittest.mock.patch.object(_messages, "_MOST_MAPPED", 2):
            kept = list(loader(Numbers(6, 20000), "forkserver", num_workers=1))
            self.assertEqual(mapped(), 2)
        self.assertEqual([batch[0][0, -1].item() for batch in kept], list(range(6)))

    def test_memory_of_systems_without_memfd(self):
        here, there = [_messages.Channel(end, False) for end in socket.socketpair()]
        with unittest.mock.patch.object(os, "memfd_create"):
            del os.memfd_create
            here.send(_messages.Packet(mt.arange(20000)))
        self.assertEqual(there.receive().tolist(), list(range(20000)))
        here.close()
        there.close()

    def test_a_dataset_is_each_worker_s_own(self):
        dataset = Changing()
        rows = plain(list(loader(dataset, "forkserver")))
        self.assertEqual(rows, [[[1], [0]], [[1], [1]], [[2], [2]], [[2], [3]]])
        self.assertEqual(dataset.rows[0, 0].item(), 0)

    def test_counters_of_multiprocessing(self):
        list(loader(Counting(self.counter), "forkserver", num_workers=1))
        self.assertEqual(self.counter.value, 4)

    def test_worker_info(self):
        self.assertIsNone(data.get_worker_info())
        rows = [plain(row) for row in loader(Named(), "forkserver", batch_size=None, worker_init_fn=note)]
        self.assertEqual(rows, [[0, 0, 2, True, 1, True], [1, 1, 2, True, 1, True]])
        rows = [plain(row)[1:4] for row in loader(Named(), "threads", batch_size=None)]
        self.assertEqual(rows, [[0, 2, True], [1, 2, True]])
        self.assertEqual((data.get_worker_info(), NOTES), (None, {}))

    def test_seeds(self):
        def draw():
            generator = mt.Generator().manual_seed(7)
            return plain(list(loader(Draws(), "forkserver", batch_size=None, generator=generator)))

        rows = draw()
        self.assertEqual([row[0] - rows[0][0] for row in rows], [0, 1, 0, 1])
        for row in rows[:2]:
            random.seed(row[0])
            mt.manual_seed(row[0])
            np.random.seed([row[0] & 0xFFFFFFFF, row[0] >> 32])
            self.assertEqual(row[1:], [random.random(), mt.rand(1).item(), np.random.rand()])
        self.assertEqual(draw(), rows)

    def test_iterable(self):
        expected = [[0, 3], [1, 4], [2, 5], [6, 9], [7], [8]]
        for method in ("threads", "forkserver"):
            made = loader(Parts(), method, num_workers=3, batch_size=2, persistent_workers=True)
            self.assertEqual(plain(list(made)), expected)
            for _ in made:
                break
            self.assertEqual(plain(list(made)), expected)
            del made
        made = loader(Parts(), "threads", num_workers=3, batch_size=2, drop_last=True)
        self.assertEqual(plain(list(made)), expected[:4])
        self.assertEqual(list(loader(Parts(), "threads", batch_size=None)), list(range(10)))

    def test_at_most_so_many_ahead(self):
        drawn = []

        class Watched(data.Sampler):
            def __iter__(self):
                for i in range(20):
                    drawn.append(i)
                    yield i

        it = iter(loader(range(20), "threads", prefetch_factor=3, sampler=Watched()))
        self.assertEqual(len(drawn), 6)
        next(it)
        next(it)
        self.assertEqual(len(drawn), 8)

    def test_out_of_order(self):
        go_on = threading.Event()

        class Slow(data.Dataset):
            def __getitem__(self, index):
                if index == 0:
                    go_on.wait(60)
                return index

            def __len__(self):
                return 8

        it = iter(loader(Slow(), "threads", batch_size=None, in_order=False))
        self.assertEqual([next(it) for _ in range(6)], [1, 3, 4, 5, 6, 7])  # 2 waits behind 0
        go_on.set()
        self.assertEqual(list(it), [0, 2])

    def test_errors(self):
        for method in ("threads", "forkserver"):
            it = iter(loader(Failing(), method, num_workers=1, batch_size=None, sampler=[*ERRORS, "fine"]))
            for kind, error in ERRORS.items():
                expected = type(error()) if kind in ("value", "key", "mute", "library") else RuntimeError
                if kind == "local" and method == "threads":
                    expected = Exception
                with self.subTest(method=method, kind=kind), self.assertRaises(expected) as raised:
                    next(it)
                self.assertNotIsInstance(raised.exception, StopIteration)
                text = raised.exception.__notes__[0] if kind == "mute" else str(raised.exception)
                kind_of_worker = "thread" if method == "threads" else "process"
                self.assertIn(f"Caught {type(error()).__name__} in DataLoader worker {kind_of_worker} 0", text)
                self.assertIn("in __getitem__\n    raise ERRORS[kind]()", text)
            self.assertEqual(list(it), ["fine"])

    def test_errors_of_a_sampler(self):
        def broken():
            yield from (1, 2)
            raise ValueError("of the sampler")

        for keywords in ({}, {"num_workers": 2, "workers": "threads"}):
            it = iter(data.DataLoader(range(5), None, sampler=broken(), **keywords))
            self.assertEqual([next(it), next(it)], [1, 2])
            with self.assertRaisesRegex(ValueError, "of the sampler"):
                next(it)

    def test_errors_before_the_first_batch(self):
        with self.assertRaisesRegex(ValueError, "(?s)worker process 0.*when it arrives"):
            list(loader(Explosive(), "forkserver"))
        with self.assertRaisesRegex(ValueError, "(?s)worker process 0.*worker 0 does not want to"):
            list(loader(range(5), "forkserver", worker_init_fn=refuse))
        with self.assertRaisesRegex(ValueError, "(?s)worker thread 0.*worker 0 does not want to"):
            list(loader(range(5), "threads", worker_init_fn=refuse))

    def test_what_cannot_be_sent(self):
        with self.assertRaisesRegex(Exception, "pickle"):
            list(loader(range(5), "forkserver", collate_fn=lambda samples: samples))
        self.check_nobody_is_left()
        with self.assertRaisesRegex(Exception, "(?s)in DataLoader worker process 0.*pickle"):
            list(loader(range(5), "forkserver", collate_fn=unsendable, num_workers=1))

    def test_a_worker_dies(self):
        for kind, how in (("exit", "with exit code 7"), ("kill", "killed by SIGKILL")):
            it = iter(loader(Failing(), "forkserver", batch_size=None, sampler=["a", "b", "c", kind, "d"]))
            with self.assertRaisesRegex(RuntimeError, rf"worker 1 \(pid \d+\) exited unexpectedly, {how}"):
                list(it)
            self.check_nobody_is_left()
            with self.assertRaises(RuntimeError):
                next(it)
        with self.assertRaisesRegex(RuntimeError, r"worker 0 \(a thread\) ended by SystemExit\(3\)"):
            list(loader(Failing(), "threads", batch_size=None, sampler=["quit"]))

    def test_workers_that_died_are_replaced(self):
        made = loader(Numbers(), "forkserver", persistent_workers=True)
        it = iter(made)
        next(it)
        os.kill(it._pool._processes[1].pid, signal.SIGKILL)
        with self.assertRaises(RuntimeError):
            list(it)
        self.assertEqual(len(list(made)), 10)

    def test_timeout(self):
        made = loader(Failing(), "forkserver", num_workers=1, batch_size=None, sampler=["wait"], timeout=0.5)
        it = iter(made)
        with self.assertRaisesRegex(RuntimeError, "timed out after 0.5 seconds"):
            next(it)
        it._pool.close(grace=0)
        self.check_nobody_is_left()
        go_on = threading.Event()
        made = loader([0], "threads", 1, timeout=0.1, collate_fn=lambda _: go_on.wait(60))
        it = iter(made)
        with self.assertRaisesRegex(RuntimeError, "timed out"):
            next(it)
        go_on.set()

    def test_an_end_before_the_end(self):
        for method in ("threads", "forkserver", "spawn"):
            for batch in loader(Numbers(20, 20000), method):
                break
            self.check_nobody_is_left()  # the iterator is gone, without a collection of cycles
            del batch
            with self.assertRaises(ZeroDivisionError):
                for batch in loader(Numbers(20, 20000), method, num_workers=1):
                    1 / 0
            gc.collect()
            self.check_nobody_is_left()

    def test_persistent_workers(self):
        for method in ("threads", "forkserver"):
            made = loader(Numbers(), method, persistent_workers=True, batch_size=5)
            list(made)
            pool = made._iterator._pool
            list(made)
            self.assertIs(made._iterator._pool, pool)
            self.assertFalse(pool.is_closed)
            del made
            self.assertTrue(pool.is_closed)  # without a collection of cycles
            self.check_nobody_is_left()

    def test_many_messages_wait(self):
        lists = [[0] * 8000 for _ in range(60)]  # both sides have more to send than a socket takes
        made = loader(Texts(), "forkserver", 1, batch_sampler=lists, prefetch_factor=60, collate_fn=first)
        it = iter(made)
        self.assertTrue(it._pool._channels[0].is_waiting)
        self.assertEqual([len(text) for text in it], [20000] * 60)

    def run_program(self, code, returns=0, **keywords):
        """Runs a program that can import this file."""
        here = pathlib.Path(__file__).resolve().parent
        path = os.pathsep.join(filter(None, [str(here), os.environ.get("PYTHONPATH")]))
        environment = {**os.environ, "PYTHONPATH": path}
        command = [sys.executable, "-c", code]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=200, **keywords)
        self.assertEqual(done.returncode, returns, done.stderr)
        return done

    def test_the_interpreter_s_exit(self):
        code = (
            "import atexit\n"
            "atexit.register(lambda: print([k._pool.is_closed for k in kept]))\n"  # first, and therefore called last
            "import data_test as t\n"
            "kept = [iter(t.loader(t.Numbers(50, 20000), m)) for m in ('threads', 'forkserver')]\n"
            "print([next(k) for k in kept] and [p.pid for p in kept[1]._pool._processes])\n"
        )
        done = self.run_program(code)
        self.assertEqual(done.stderr, "")
        pids, are_closed = done.stdout.splitlines()
        self.assertEqual(are_closed, "[True, True]")
        for pid in eval(pids):
            self.assertFalse(is_running(pid))

    def test_the_program_is_killed(self):
        code = (
            "import os, data_test as t\n"
            "it = iter(t.loader(t.Numbers(50, 20000), 'forkserver'))\n"
            "print(next(it) and [p.pid for p in it._pool._processes], flush=True)\n"
            "os.kill(os.getpid(), 9)\n"
        )
        done = self.run_program(code, -signal.SIGKILL)
        for pid in eval(done.stdout):
            self.assertFalse(is_running(pid))

    def test_interrupt(self):
        code = (
            "import os, signal, threading, data_test as t\n"
            "sampler = ['a', 'wait', 'wait']\n"
            "it = iter(t.loader(t.Failing(), 'forkserver', batch_size=None, sampler=sampler))\n"
            "print(next(it) and [p.pid for p in it._pool._processes], flush=True)\n"
            "threading.Timer(0.5, os.killpg, (0, signal.SIGINT)).start()\n"
            "try:\n"
            "    next(it)\n"
            "finally:\n"
            "    print(it._pool.is_closed)\n"
        )
        done = self.run_program(code, -signal.SIGINT, start_new_session=True)
        self.assertEqual(done.stderr.count("Traceback"), 1, done.stderr)
        pids, is_closed = done.stdout.splitlines()
        self.assertEqual(is_closed, "True")
        for pid in eval(pids):
            self.assertFalse(is_running(pid))

    def test_a_program_without_a_guard(self):
        program = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory())) / "program.py"
        program.write_text("import mytorch.data as d\nprint(list(d.DataLoader(range(4), num_workers=1)))\n")
        done = subprocess.run([sys.executable, program], capture_output=True, text=True, timeout=200)
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("RuntimeError: DataLoader worker 0 (pid", done.stderr)
        self.assertIn('`if __name__ == "__main__":`', done.stderr.splitlines()[-1])


if __name__ == "__main__":
    faulthandler.dump_traceback_later(600, exit=True)  # a loader that hangs is a failure
    warnings.simplefilter("default")
    unittest.main()
