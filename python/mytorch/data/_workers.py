"""What loads batches beside the program: processes and threads."""

import itertools
import multiprocessing
import os
import pickle
import queue
import random
import select
import signal
import socket
import sys
import threading
import time
import traceback
from typing import Any, NamedTuple

from mytorch import _core
from mytorch.data._datasets import _samples
from mytorch.data._messages import Channel, Closed, Packet, unpack

_CHECK = 2.0  # seconds between looks at whether the other side lives, for when its socket does not say so
_GRACE = 5.0  # seconds that workers have to end


class WorkerInfo(NamedTuple):
    """Which worker runs, and with what."""

    id: int
    num_workers: int
    seed: int
    dataset: Any


_process_info = None
_thread = threading.local()


def get_worker_info():
    """Returns the id, num_workers, seed and dataset of the worker that calls this, or None outside of workers."""
    return getattr(_thread, "info", _process_info)


class END:
    """Stands for a batch that there is not, because a dataset has ended. The class itself is sent."""


class Setup(NamedTuple):
    """What a worker needs to know."""

    dataset: Any
    is_iterable: bool
    is_batched: bool
    drop_last: bool
    collate: Any
    init: Any

    def fetcher(self):
        """Returns a function that makes a batch of the numbers of its samples. It returns END at a dataset's end."""
        if not self.is_iterable:
            if self.is_batched:
                return lambda numbers: self.collate(_samples(self.dataset, numbers))
            return lambda number: self.collate(self.dataset[number])
        samples = iter(self.dataset)
        ended = False

        def fetch(numbers):
            nonlocal ended
            if ended:
                return END
            if not self.is_batched:
                sample = next(samples, END)
                ended = sample is END
                return END if ended else self.collate(sample)
            batch = list(itertools.islice(samples, len(numbers)))
            ended = len(batch) < len(numbers)
            return END if not batch or (ended and self.drop_last) else self.collate(batch)

        return fetch


class _Verbatim(str):
    """Text whose repr is itself: a KeyError shows the repr of its argument."""

    __repr__ = str.__str__


class Failure:
    """An exception of a worker."""

    def __init__(self, error, where, to_send):
        self.type, self.name, self.where = type(error), type(error).__name__, where
        self.trace = "".join(traceback.format_exception(error))
        if to_send:
            try:
                pickle.dumps(self.type)
            except Exception:
                self.type = RuntimeError  # of a type that another process could not find

    def throw(self):
        """Raises an exception of the same type, with the worker's traceback in its text."""
        text = f"Caught {self.name} {self.where}.\nOriginal {self.trace}"
        if issubclass(self.type, StopIteration):
            raise RuntimeError(text)  # in a loop, it would look like the end
        try:
            error = self.type(_Verbatim(text) if issubclass(self.type, KeyError) else text)
        except Exception:
            raise RuntimeError(text) from None  # a constructor with other arguments
        try:
            is_shown = text in str(error)
        except Exception:
            is_shown = False
        if not is_shown:
            error.add_note(text)
        raise error


class _Worker:
    """Answers tasks."""

    def __init__(self, setup, info, where, to_send):
        self._setup, self._where, self._to_send = setup, where, to_send
        self._epoch, self._fetch, self._failure = None, None, None
        try:
            if setup.init is not None:
                setup.init(info.id)
        except Exception as error:
            self._failure = Failure(error, where, to_send)

    def answer(self, task):
        """Returns the epoch and number of a task, and its batch, END or Failure."""
        epoch, number, numbers = task
        if self._failure is not None:
            return epoch, number, self._failure
        try:
            if epoch != self._epoch:
                self._fetch, self._epoch = self._setup.fetcher(), epoch
            return epoch, number, self._fetch(numbers)
        except Exception as error:
            return epoch, number, Failure(error, self._where, self._to_send)


def _set_seeds(seed):
    random.seed(seed)
    _core.manual_seed(seed)
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        numpy.random.seed([seed & 0xFFFFFFFF, seed >> 32])


def _serve(sock, others, setup, id, count, seed):
    """Is a worker's process."""
    global _process_info
    for other in others:  # of workers before this one: they must see an end when the program ends
        other.close()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the program gets it too, and ends its workers
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    _core.set_num_threads(1)  # there are several workers; and a fork of a process with OpenMP's threads has lost them
    channel = Channel(sock, private=True)
    where = f"in DataLoader worker process {id}"
    parent = multiprocessing.parent_process()
    failure = None
    try:
        while not channel.poll(_CHECK):
            if not parent.is_alive():
                return
        body = channel.receive_body()
        try:
            sent = unpack(body)
            setup = setup or sent
        except Exception as error:
            failure = Failure(error, where, True)
        _set_seeds(seed)  # after the dataset has arrived, whose module may import NumPy
        if failure is None:
            _process_info = WorkerInfo(id, count, seed, setup.dataset)
            worker = _Worker(setup, _process_info, where, True)
        del body
        while True:
            if not channel.poll(_CHECK):
                if not parent.is_alive():
                    return
                continue
            task = channel.receive()
            answer = (*task[:2], failure) if failure is not None else worker.answer(task)
            try:
                packet = Packet(answer)
            except Exception as error:
                packet = Packet((*task[:2], Failure(error, where, True)))
            del answer  # its memory, while the next is made
            channel.send(packet)
    except Closed:
        return
    finally:
        channel.close()


def default_context():
    """Returns spawn or forkserver if the program has set it as its start method, or else forkserver if the system has
    it. A fork of this process would keep locks of threads that it does not have: those of OpenMP, among others."""
    # fork may be there unasked: multiprocessing sets the system's default when it starts a process of another method.
    chosen = multiprocessing.get_start_method(allow_none=True)
    if chosen in (None, "fork"):
        chosen = "forkserver" if "forkserver" in multiprocessing.get_all_start_methods() else "spawn"
    return multiprocessing.get_context(chosen)


class Processes:
    """Workers that are processes."""

    def __init__(self, context, setup, count, base_seed):
        if not hasattr(socket, "send_fds"):
            raise NotImplementedError('this system cannot send files between processes: use workers="threads"')
        self._program = os.getpid()
        self._channels, self._processes, self._answered = [], [], set()
        self.is_closed = False
        in_arguments = setup if context.get_start_method() == "fork" else None
        packet = None
        if in_arguments is None:
            try:
                packet = Packet(setup)  # once for all workers, which share its memory
            except RuntimeError:
                in_arguments = setup  # locks and queues of multiprocessing travel as arguments of a process alone
        packet = packet or Packet(None)
        try:
            for id in range(count):
                ours, theirs = socket.socketpair()
                with theirs:
                    self._channels.append(Channel(ours, private=False))
                    others = list(self._channels) if context.get_start_method() == "fork" else []
                    arguments = (theirs, others, in_arguments, id, count, base_seed + id)
                    process = context.Process(target=_serve, args=arguments, daemon=True, name=f"mytorch-data-{id}")
                    process.start()
                    self._processes.append(process)
            for id, channel in enumerate(self._channels):
                self._send(id, packet)
        except BaseException:
            self.close(grace=0)
            raise

    def send(self, id, task):
        """Gives a worker a task, and does not wait."""
        self._send(id, Packet(task))

    def _send(self, id, packet):
        try:
            self._channels[id].send(packet, wait=False)
        except Closed:
            pass  # it has ended: receive says so

    def receive(self, seconds):
        """Waits for an answer, and returns the worker's number and the answer; raises queue.Empty after `seconds`."""
        deadline = None if seconds is None else time.monotonic() + seconds
        while True:
            poller = select.poll()
            ids = {}
            for id, channel in enumerate(self._channels):
                poller.register(channel, select.POLLIN | (select.POLLOUT if channel.is_waiting else 0))
                ids[channel.fileno()] = id
            wait = _CHECK if deadline is None else min(_CHECK, max(0, deadline - time.monotonic()))
            events = poller.poll(wait * 1000)
            for file, event in events:
                id = ids[file]
                try:
                    if event & select.POLLOUT:
                        self._channels[id].flush()
                    if event & ~select.POLLOUT:
                        body = self._channels[id].receive_body()
                        self._answered.add(id)
                        return id, unpack(body)
                except Closed:
                    self._fail(id)
            if not events:
                for id, process in enumerate(self._processes):
                    if not process.is_alive() and not self._channels[id].poll(0):
                        self._fail(id)
                if deadline is not None and time.monotonic() >= deadline:
                    raise queue.Empty

    def _fail(self, id):
        """Raises the error for a worker that has ended."""
        process = self._processes[id]
        process.join(_CHECK)
        code, pid = process.exitcode, process.pid
        if code is not None and code < 0:
            how = f", killed by {signal.Signals(-code).name}"
        else:
            how = "" if code is None else f", with exit code {code}"
        if id not in self._answered and how.endswith(" 1"):
            how += (
                ": its own error is above. A file that is run as a program must make its loaders under "
                '`if __name__ == "__main__":`, because its workers import it'
            )
        self.close(grace=1)  # the error should not wait long for others that are busy
        raise RuntimeError(f"DataLoader worker {id} (pid {pid}) exited unexpectedly{how}")

    def close(self, grace=_GRACE):
        """Ends the workers: those that have not ended after some seconds, by force."""
        if self.is_closed:
            return
        self.is_closed = True
        if os.getpid() != self._program:  # a fork of the program does not own the workers
            for channel in self._channels:
                channel.close()
            return
        for channel in self._channels:
            channel.hang_up()
        deadline = time.monotonic() + grace
        for end in (lambda _: None, lambda process: process.terminate(), lambda process: process.kill()):
            for process in self._processes:
                if process.is_alive():
                    end(process)
            for process in self._processes:
                process.join(max(0, deadline - time.monotonic()))
            deadline = time.monotonic() + 1
        for process in self._processes:
            if process.exitcode is not None:
                process.close()


class _Ended:
    """Says that a worker's thread has ended by SystemExit and the like."""

    def __init__(self, error):
        self.error = error


def _serve_thread(tasks, answers, stopped, setup, id, count, seed):
    """Is a worker's thread. It refers to nothing that refers to the loader, which could not be collected otherwise."""
    _thread.info = WorkerInfo(id, count, seed, setup.dataset)
    try:
        worker = _Worker(setup, _thread.info, f"in DataLoader worker thread {id}", False)
        while (task := tasks.get()) is not None and not stopped.is_set():
            answers.put((id, worker.answer(task)))
            del task
    except BaseException as error:
        answers.put((id, _Ended(error)))


class Threads:
    """Workers that are threads."""

    def __init__(self, setup, count, base_seed):
        self._answers, self._stopped, self.is_closed = queue.SimpleQueue(), threading.Event(), False
        self._tasks, self._threads = [queue.SimpleQueue() for _ in range(count)], []
        for id, tasks in enumerate(self._tasks):
            arguments = (tasks, self._answers, self._stopped, setup, id, count, base_seed + id)
            # Daemons: others would be waited for before anything could end them at the interpreter's exit.
            thread = threading.Thread(target=_serve_thread, args=arguments, daemon=True, name=f"mytorch-data-{id}")
            thread.start()
            self._threads.append(thread)

    def send(self, id, task):
        """Gives a worker a task, and does not wait."""
        self._tasks[id].put(task)

    def receive(self, seconds):
        """Waits for an answer, and returns the worker's number and the answer; raises queue.Empty after `seconds`."""
        id, answer = self._answers.get(timeout=seconds)
        if isinstance(answer, _Ended):
            self.close()
            raise RuntimeError(f"DataLoader worker {id} (a thread) ended by {answer.error!r}") from answer.error
        return id, answer

    def close(self, grace=_GRACE):
        """Ends the workers; a thread that is busy ends after its batch."""
        if self.is_closed:
            return
        self.is_closed = True
        self._stopped.set()
        for tasks in self._tasks:
            tasks.put(None)
        deadline = time.monotonic() + grace
        for thread in self._threads:
            if thread is not threading.current_thread():  # the collector may run in any thread
                thread.join(max(0, deadline - time.monotonic()))
