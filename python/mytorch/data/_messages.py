"""Objects between processes. What is large lies in memory that has no name: the system frees it with its last owner,
also if a process is killed."""

import collections
import contextlib
import errno
import io
import mmap
import os
import pickle
import select
import socket
import struct
import sys
import tempfile
import weakref
from typing import Any

from mytorch import _core

_ALIGNMENT = 64
_INLINE = 1 << 15  # smaller messages go through the socket itself
_HEADER = struct.Struct("<Q?")  # the body's length, and whether it is in a file

# Before 3.13, an mmap keeps a descriptor. A program that keeps many batches must not run out of them.
_UNTRACKED = {"trackfd": False} if sys.version_info >= (3, 13) else {}
_MOST_MAPPED = 1 << 14 if _UNTRACKED else 128
_mapped: Any = weakref.WeakSet()


class Closed(Exception):
    """The other side has closed the channel, or has ended."""


class _Pickler(pickle.Pickler):
    """Leaves the elements of tensors out of the pickle. Arrays of NumPy do that themselves."""

    def reducer_override(self, obj):
        if type(obj) is not _core.Tensor or obj.device.type != "cpu":
            return NotImplemented
        if obj.requires_grad and not obj.is_leaf:
            raise RuntimeError("a tensor that depends on others by recorded operations cannot go to another process")
        elements = None
        if obj.numel() > 0:
            flat = obj.detach().resolve_conj().resolve_neg().contiguous().view(-1)
            elements = pickle.PickleBuffer(memoryview(flat.view(_core.uint8)))
        return _tensor, (elements, obj.dtype, tuple(obj.shape), obj.requires_grad)


def _tensor(elements, dtype, shape, requires_grad):
    if elements is None:
        tensor = _core.empty(shape, dtype=dtype)
    elif dtype is _core.bool:
        tensor = _core.asarray(memoryview(elements).cast("?")).view(shape)
    else:
        tensor = _core.asarray(elements).view(dtype).view(shape)
    return tensor.requires_grad_() if requires_grad else tensor


def _places(lengths):
    """Returns where parts of these lengths lie, and where the last ends."""
    places, end = [], 0
    for length in lengths:
        start = -(-end // _ALIGNMENT) * _ALIGNMENT
        end = start + length
        places.append(slice(start, end))
    return places, end


def _new_file():
    """Returns a descriptor of memory that no name refers to."""
    if hasattr(os, "memfd_create"):
        return os.memfd_create("mytorch", os.MFD_CLOEXEC)
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())


class Packet:
    """A message that is ready to be sent, any number of times."""

    def __init__(self, obj):
        self._file = None
        buffers, pickled = [], io.BytesIO()
        _Pickler(pickled, pickle.HIGHEST_PROTOCOL, buffer_callback=buffers.append).dump(obj)
        parts = [pickled.getbuffer(), *(buffer.raw() for buffer in buffers)]
        lengths = struct.pack(f"<{len(parts) + 1}Q", len(parts), *(part.nbytes for part in parts))
        parts.insert(0, memoryview(lengths))
        places, size = _places([part.nbytes for part in parts])
        if size <= _INLINE:
            body = bytearray(size)
            for place, part in zip(places, parts):
                body[place] = part
            self.bytes = _HEADER.pack(size, False) + body
            return
        self._file = _new_file()
        for place, part in zip(places, parts):
            at = place.start
            while part.nbytes:  # a write may be shorter than asked
                written = os.pwrite(self._file, part, at)
                at, part = at + written, part[written:]
        self.bytes = _HEADER.pack(size, True)

    @property
    def files(self):
        """What goes with the first byte."""
        if self._file is None:
            return []
        return [(socket.SOL_SOCKET, socket.SCM_RIGHTS, struct.pack("i", self._file))]

    def __del__(self, close=os.close):  # bound here: at the interpreter's end, the module may be gone
        if self._file is not None:
            close(self._file)


def unpack(body):
    """Returns the object of a message. Its tensors and arrays use the message's memory."""
    whole = memoryview(body)
    (count,) = struct.unpack_from("<Q", whole)
    lengths = struct.unpack_from(f"<{count}Q", whole, 8)
    places, _ = _places([8 * (count + 1), *lengths])
    elements = _core.asarray(whole)
    return pickle.loads(whole[places[1]], buffers=[elements[place] for place in places[2:]])


class Channel:
    """One end of a pair of connected sockets."""

    def __init__(self, sock, private):
        self._socket = sock
        self._private = private  # whether others may read the memory of what arrives: changes are then one's own
        self._waiting = collections.deque()  # [bytes, packet] that have not been sent

    def fileno(self):
        return self._socket.fileno()

    def close(self):
        """Closes this process's end."""
        self._waiting.clear()
        self._socket.close()

    def hang_up(self):
        """Closes the channel, also for processes that have inherited this end."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self.close()

    @property
    def is_waiting(self):
        """Whether something is left to be sent."""
        return bool(self._waiting)

    def send(self, packet, wait=True):
        """Sends a packet. Without `wait`, what the socket does not take remains, for `flush`."""
        self._waiting.append([memoryview(packet.bytes), packet.files, packet])
        self.flush(wait)

    def flush(self, wait=False):
        """Sends what has not been sent."""
        while self._waiting:
            entry = self._waiting[0]
            try:
                sent = self._socket.sendmsg([entry[0]], entry[1], 0 if wait else socket.MSG_DONTWAIT)
            except BlockingIOError:
                return
            except ConnectionError:
                raise Closed from None
            entry[0], entry[1] = entry[0][sent:], []
            if not entry[0]:
                self._waiting.popleft()

    def poll(self, seconds):
        """Returns whether something arrives within some seconds."""
        poller = select.poll()
        poller.register(self._socket, select.POLLIN)
        return bool(poller.poll(seconds * 1000))

    def receive_body(self):
        """Waits for a message, and returns its memory."""
        header, files = self._read_header()
        try:
            size, in_file = _HEADER.unpack(header)
            if not in_file:
                return self._read(bytearray(size))
            if not files:
                raise OSError(errno.EMFILE, "a batch arrived, but this process has too many open files")
            return self._map(files[0], size)
        finally:
            for file in files:
                os.close(file)

    def receive(self):
        """Waits for a message, and returns its object."""
        return unpack(self.receive_body())

    def _read_header(self):
        cloexec = getattr(socket, "MSG_CMSG_CLOEXEC", 0)  # programs that this one starts do not need the file
        try:
            header, beside, _, _ = self._socket.recvmsg(_HEADER.size, socket.CMSG_LEN(4), cloexec)
        except ConnectionError:
            raise Closed from None
        if not header:
            raise Closed
        files = [file for _, _, data in beside for file in struct.unpack(f"{len(data) // 4}i", data)]
        return header + self._read(bytearray(_HEADER.size - len(header))), files

    def _read(self, into):
        left = memoryview(into)
        while left:
            try:
                count = self._socket.recv_into(left)
            except ConnectionError:
                count = 0
            if count == 0:
                raise Closed
            left = left[count:]
        return into

    def _map(self, file, size):
        if len(_mapped) >= _MOST_MAPPED:
            body = bytearray(size)
            left, at = memoryview(body), 0
            while at < size:
                at += os.preadv(file, [left[at:]], at)
            return body
        flags = mmap.MAP_PRIVATE if self._private else mmap.MAP_SHARED | getattr(mmap, "MAP_POPULATE", 0)
        memory = mmap.mmap(file, size, flags=flags, prot=mmap.PROT_READ | mmap.PROT_WRITE, **_UNTRACKED)
        _mapped.add(memory)
        return memory
