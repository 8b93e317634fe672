"""The loader of batches."""

import itertools
import multiprocessing.context
import queue
import time
import types
import warnings
import weakref
from typing import Any

from mytorch import _core
from mytorch.data import _workers
from mytorch.data._collate import default_collate, default_convert
from mytorch.data._datasets import IterableDataset
from mytorch.data._samplers import BatchSampler, RandomSampler, Sampler, SequentialSampler, random_seed


class _Endless(Sampler):
    """Stands for the numbers of samples of an iterable dataset, which has none."""

    def __iter__(self):
        return itertools.repeat(None)


class DataLoader:
    """Batches of a dataset's samples, loaded by this thread or by workers. Arguments are those of
    torch.utils.data.DataLoader, and `workers`, which is "processes" or "threads"."""

    __class_getitem__: Any = classmethod(types.GenericAlias)
    _is_made = False

    def __init__(
        self,
        dataset,
        batch_size=1,
        shuffle=None,
        sampler=None,
        batch_sampler=None,
        num_workers=0,
        collate_fn=None,
        pin_memory=False,
        drop_last=False,
        timeout=0,
        worker_init_fn=None,
        multiprocessing_context=None,
        generator=None,
        *,
        prefetch_factor=None,
        persistent_workers=False,
        in_order=True,
        workers="processes",
    ):
        is_iterable = isinstance(dataset, IterableDataset)
        _check_workers(num_workers, timeout, prefetch_factor, persistent_workers, workers, multiprocessing_context)
        _check_order(is_iterable, batch_size, shuffle, sampler, batch_sampler, drop_last)
        if pin_memory:
            _check_pinning()
        if batch_sampler is not None:
            batch_size = None
        if sampler is None:
            if is_iterable:
                sampler = _Endless()
            elif shuffle:
                sampler = RandomSampler(dataset, generator=generator)
            else:
                sampler = SequentialSampler(dataset)
        if batch_size is not None:
            batch_sampler = BatchSampler(sampler, batch_size, drop_last)
        self.dataset, self.batch_size, self.drop_last = dataset, batch_size, drop_last
        self.sampler, self.batch_sampler, self.generator = sampler, batch_sampler, generator
        self.num_workers, self.workers, self.worker_init_fn = num_workers, workers, worker_init_fn
        self.prefetch_factor = 2 if prefetch_factor is None and num_workers else prefetch_factor
        self.timeout, self.pin_memory, self.in_order = timeout, pin_memory, in_order
        self.persistent_workers = persistent_workers
        self.multiprocessing_context = _context(multiprocessing_context)
        self.collate_fn = collate_fn or (default_convert if batch_sampler is None else default_collate)
        self._is_iterable = is_iterable
        self._promised = None  # the length that an iterable dataset has told
        self._iterator = None
        self._is_made = True

    def __setattr__(self, name, value):
        fixed = ("batch_size", "batch_sampler", "sampler", "drop_last", "dataset", "persistent_workers")
        if self._is_made and name in fixed:
            raise ValueError(f"{name} attribute should not be set after {type(self).__name__} is initialized")
        super().__setattr__(name, value)

    def __iter__(self):
        if self.num_workers == 0:
            return _Here(self)
        if not self.persistent_workers:
            return _Beside(self)
        if self._iterator is None or self._iterator.is_closed:
            self._iterator = _Beside(self)
        else:
            self._iterator.begin(self)
        return self._iterator

    def __len__(self):
        if not self._is_iterable:
            return len(self._numbers)
        length = self._promised = len(self.dataset)
        if self.batch_size is None:
            return length
        whole, rest = divmod(length, self.batch_size)
        return whole + (rest > 0 and not self.drop_last)

    @property
    def _numbers(self):
        """The numbers of samples: of a batch each, or one each."""
        return self.sampler if self.batch_sampler is None else self.batch_sampler

    def _snapshot(self):
        """Returns a copy for an iterator. A loader refers to its iterator: were the iterator to refer to it as well,
        only the collector of cycles would end the workers."""
        copy = object.__new__(type(self))
        copy.__dict__.update(self.__dict__, _iterator=None)
        return copy

    def _setup(self):
        is_batched = self.batch_sampler is not None
        return _workers.Setup(
            self.dataset, self._is_iterable, is_batched, self.drop_last, self.collate_fn, self.worker_init_fn
        )


def _check_workers(num_workers, timeout, prefetch_factor, persistent_workers, workers, context):
    if num_workers < 0:
        raise ValueError("num_workers option should be non-negative; use num_workers=0 to load without workers")
    if timeout < 0:
        raise ValueError("timeout option should be non-negative")
    if workers not in ("processes", "threads"):
        raise ValueError(f'workers option should be "processes" or "threads", but got workers={workers!r}')
    if prefetch_factor is not None and prefetch_factor <= 0:
        raise ValueError("prefetch_factor option should be positive")
    if num_workers == 0:
        given = {
            "timeout": timeout != 0,
            "prefetch_factor": prefetch_factor is not None,
            "persistent_workers": persistent_workers,
            "multiprocessing_context": context is not None,
        }
        for name, is_given in given.items():
            if is_given:
                raise ValueError(f"{name} option needs num_workers > 0")
    if workers == "threads" and context is not None:
        raise ValueError('multiprocessing_context can only be used with workers="processes"')


def _check_order(is_iterable, batch_size, shuffle, sampler, batch_sampler, drop_last):
    if is_iterable:
        given = {"shuffle": shuffle or None, "sampler": sampler, "batch_sampler": batch_sampler}
        for name, value in given.items():
            if value is not None:
                raise ValueError(
                    f"DataLoader with IterableDataset: expected unspecified {name} option, but got {name}={value}"
                )
    if sampler is not None and shuffle:
        raise ValueError("sampler option is mutually exclusive with shuffle")
    if batch_sampler is not None and (batch_size != 1 or shuffle or sampler is not None or drop_last):
        raise ValueError("batch_sampler option is mutually exclusive with batch_size, shuffle, sampler, and drop_last")
    if batch_size is None and drop_last:
        raise ValueError("batch_size=None option disables auto-batching and is mutually exclusive with drop_last")


def _check_pinning():
    if _core.device_count("cuda") > 0:
        raise NotImplementedError("pin_memory=True: pinned memory is not in the module for Python yet")
    warnings.warn("'pin_memory' argument is set as true but there is no GPU: memory is not pinned", stacklevel=3)


def _context(context):
    """Returns the context of multiprocessing that a name stands for."""
    if isinstance(context, str):
        methods = multiprocessing.get_all_start_methods()
        if context not in methods:
            raise ValueError(
                f"multiprocessing_context option should specify a valid start method in {methods!r}, "
                f"but got multiprocessing_context={context!r}"
            )
        return multiprocessing.get_context(context)
    if context is not None and not isinstance(context, multiprocessing.context.BaseContext):
        raise TypeError(
            "multiprocessing_context option should be a valid context object or a string specifying the start method, "
            f"but got multiprocessing_context={context}"
        )
    return context


class _Batches:
    """An epoch's batches."""

    def __init__(self, loader):
        self._loader = loader._snapshot()
        self._count = 0

    def __iter__(self):
        return self

    def __len__(self):
        return len(self._loader)

    def __next__(self):
        batch = self._next()
        self._count += 1
        loader = self._loader  # each worker may end with a batch of its own that is not full
        if loader._promised is not None and self._count > len(loader) + loader.num_workers:
            warnings.warn(
                f"the iterable dataset told a length of {loader._promised}, {len(loader)} batches, and gives more: "
                "if workers load it, each must give its own part (get_worker_info)",
                stacklevel=2,
            )
            loader._promised = None
        return batch


class _Here(_Batches):
    """Batches that the calling thread loads."""

    def __init__(self, loader):
        super().__init__(loader)
        random_seed(loader.generator)  # unused: with workers, one is drawn, and the orders should not differ
        self._numbers = iter(loader._numbers)
        self._fetch = loader._setup().fetcher()

    def _next(self):
        numbers = next(self._numbers)
        try:
            batch = self._fetch(numbers)
        except StopIteration as error:
            raise RuntimeError("the dataset or collate_fn raised StopIteration") from error
        if batch is _workers.END:
            raise StopIteration
        return batch


class _Beside(_Batches):
    """Batches that workers load."""

    def __init__(self, loader):
        super().__init__(loader)
        count, seed, setup = loader.num_workers, random_seed(loader.generator), loader._setup()
        if loader.workers == "threads":
            self._pool = _workers.Threads(setup, count, seed)
        else:
            context = loader.multiprocessing_context or _workers.default_context()
            self._pool = _workers.Processes(context, setup, count, seed)
        self._close = weakref.finalize(self, self._pool.close)  # also at the interpreter's exit
        self._epoch = 0
        self._begin(loader)

    @property
    def is_closed(self):
        """Whether the workers have ended."""
        return self._pool.is_closed

    def begin(self, loader):
        """Begins the next epoch with the same workers."""
        random_seed(loader.generator)  # unused, so that orders do not depend on whether workers stay
        self._epoch += 1  # answers to tasks of an epoch that was left are thrown away
        self._begin(loader)

    def _begin(self, loader):
        self._loader, self._count = loader._snapshot(), 0
        self._numbers, self._numbers_error = iter(loader._numbers), None
        self._sent = self._taken = 0  # tasks; the rest is ahead of the program
        self._loads = [0] * loader.num_workers  # tasks that each has not answered
        self._has_more = [True] * loader.num_workers  # False once a worker's iterable dataset has ended
        self._last = -1  # the worker of the last task
        self._early = {}  # answers by task number
        for _ in range(loader.prefetch_factor * loader.num_workers):
            self._send()

    def _send(self):
        """Gives a worker the next task, if there is one."""
        count = self._loader.num_workers
        ready = [id % count for id in range(self._last + 1, self._last + 1 + count) if self._has_more[id % count]]
        if not ready or self._numbers is None:
            return
        try:
            numbers = next(self._numbers)
        except StopIteration:
            self._numbers = None
            return
        except Exception as error:  # a sampler's: the batches before come first
            self._numbers, self._numbers_error = None, error
            return
        id = ready[0] if self._loader.in_order else min(ready, key=self._loads.__getitem__)
        self._pool.send(id, (self._epoch, self._sent, numbers))
        self._loads[id] += 1
        self._last = id
        self._sent += 1

    def _next(self):
        try:
            answer = self._answer()
        except BaseException as error:
            if not isinstance(error, Exception):  # Ctrl-C, perhaps in the middle of a message
                self._pool.close(grace=0)
            raise
        if isinstance(answer, _workers.Failure):
            answer.throw()
        return answer

    def _answer(self):
        seconds = self._loader.timeout or None
        deadline = seconds and time.monotonic() + seconds
        while self._taken < self._sent:
            number = self._taken if self._loader.in_order else next(iter(self._early), None)
            if number in self._early:
                answer = self._early.pop(number)
                self._taken += 1
                self._send()
                if answer is not _workers.END:
                    return answer
                continue
            if self._pool.is_closed:
                raise RuntimeError("DataLoader's workers have ended")
            try:
                id, (epoch, number, answer) = self._pool.receive(deadline and max(0, deadline - time.monotonic()))
            except queue.Empty:
                raise RuntimeError(f"DataLoader timed out after {seconds} seconds") from None
            if epoch == self._epoch:
                self._loads[id] -= 1
                self._early[number] = answer
                if answer is _workers.END:
                    self._has_more[id] = False
        if self._numbers_error is not None:
            error, self._numbers_error = self._numbers_error, None
            raise error
        if not self._loader.persistent_workers:
            self._close()
        raise StopIteration
