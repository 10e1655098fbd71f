"""Messages between a process and its workers: a length, and so many bytes.

A worker waits for them. Its parent never does, whatever state the worker is in: what does not fit into the connection
is sent later, and what is not whole is read later.
"""

from __future__ import annotations

import selectors
import socket
import struct
from collections import deque
from io import BufferedReader

_LENGTH = struct.Struct("<Q")
_PIECE = 1 << 18


class Channel:
    """The parent's end of a connection."""

    def __init__(self, end: socket.socket) -> None:
        end.setblocking(False)
        self._socket = end
        self._leaving: deque[memoryview] = deque()
        self._come = bytearray()

    def fileno(self) -> int:
        """The descriptor, to wait for."""
        return self._socket.fileno()

    @property
    def is_full(self) -> bool:
        """Whether a part of what was put has not left yet."""
        return bool(self._leaving)

    def put(self, message: bytes) -> None:
        """Send a message, or as much of it as there is room for. OSError when the other end is closed."""
        self._leaving += (memoryview(_LENGTH.pack(len(message))), memoryview(message))
        self.push()

    def push(self) -> None:
        """Send what is left, as much as there is room for. OSError when the other end is closed."""
        while self._leaving:
            piece = self._leaving.popleft()
            try:
                sent = self._socket.send(piece)
            except BlockingIOError:
                sent = 0
            if sent < len(piece):
                self._leaving.appendleft(piece[sent:])
                return

    def wait(self, seconds: float) -> None:
        """Wait until there is something to take."""
        with selectors.DefaultSelector() as selector:
            selector.register(self, selectors.EVENT_READ)
            selector.select(seconds)

    def take(self) -> bytes | None:
        """The next message; None while it is not whole. EOFError or OSError when it will never be."""
        while (size := self._whole()) is None:
            try:
                piece = self._socket.recv(_PIECE)
            except BlockingIOError:
                return None
            if not piece:
                raise EOFError
            self._come += piece
        message = bytes(self._come[_LENGTH.size : size])
        del self._come[:size]
        return message

    def _whole(self) -> int | None:
        """Bytes of the first message and its length; None while some are missing."""
        if len(self._come) < _LENGTH.size:
            return None
        size = _LENGTH.size + int(_LENGTH.unpack_from(self._come)[0])
        return size if len(self._come) >= size else None

    def close(self) -> None:
        """Close this end."""
        self._socket.close()


def framed(message: bytes) -> bytes:
    """A message as it travels."""
    return _LENGTH.pack(len(message)) + message


def send(connection: socket.socket, message: bytes) -> None:
    """Send a message, and wait until it has left."""
    connection.sendall(_LENGTH.pack(len(message)))
    connection.sendall(message)


def receive(stream: BufferedReader) -> bytes:
    """Wait for a message. EOFError when the other end is closed."""
    (size,) = _LENGTH.unpack(_exactly(stream, _LENGTH.size))
    return _exactly(stream, size)


def _exactly(stream: BufferedReader, size: int) -> bytes:
    found = stream.read(size)
    if len(found) < size:
        raise EOFError
    return found
