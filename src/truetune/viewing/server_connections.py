"""Holds the connections of the local server: one thread reads request heads without blocking, a few
workers answer.

A thread for each connection has no bound, and a slow client holds its thread as long as it likes. Here a client
costs a socket and some bytes until its request is whole, and it has a time to send it. What is more than the
workers can do soon is answered with 503 and a time to come back.
"""

from __future__ import annotations

import queue
import selectors
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

WORKERS = 8
"""Requests that are answered at once. Rows are drawn one request at a time; the others send, search and wait."""
MAX_QUEUED = 256
"""Whole requests that wait for a worker"""
MAX_CONNECTIONS = 512
"""Connections whose request is not whole yet; open files have a limit of 1,024 on most systems"""
MAX_HEAD_BYTES = 1 << 14
"""Bytes of a request's head; a longer one is refused, so that a client can't fill the memory"""
HEAD_SECONDS = 10.0
"""In which a request has to be there"""
QUEUE_SECONDS = 30.0
"""After which a request that waits is told to come again; browsers give up after some minutes."""
RETRY_SECONDS = 2
"""Seconds after which a client is told to come again where all workers are busy"""
LINGER_SECONDS = 0.5
"""How long a client has to close its side, once it was answered"""
MAX_LINGER_BYTES = 1 << 20
"""Bytes that are still read of a client that was answered; one that sends more is cut off"""
_TURN = 0.25
"""Seconds between two checks of the clock"""
BUSY = (
    b"HTTP/1.1 503 Service Unavailable\r\nContent-Type: text/plain; charset=utf-8\r\nRetry-After:"
    b" %d\r\nContent-Length: 5\r\nConnection: close\r\n\r\nbusy\n" % RETRY_SECONDS
)
Answer = Callable[[socket.socket, Any, bytes], None]


@dataclass(slots=True)
class _Connection:
    """A client's connection whose request is being read, or waits for a worker."""

    socket: socket.socket
    address: Any
    deadline: float
    head: bytearray = field(default_factory=bytearray)


class Connections:
    """Takes accepted sockets; each is answered once, by `answer(socket, address, head)` in a
    worker, and closed.
    """

    def __init__(self, answer: Answer) -> None:
        self._answer = answer
        self._requests: queue.Queue[_Connection | None] = queue.Queue(MAX_QUEUED)
        self._accepted: queue.SimpleQueue[_Connection] = queue.SimpleQueue()
        self._open = 0
        self._is_closed = False
        self._selector = selectors.DefaultSelector()
        # A byte in this pair wakes the thread that waits in select(): there is no other way to
        # add a socket meanwhile.
        self._wake_reader, self._wake_writer = socket.socketpair()
        self._wake_reader.setblocking(False)
        self._wake_writer.setblocking(False)
        self._selector.register(self._wake_reader, selectors.EVENT_READ)
        # Daemons: a client that does not read its answer must not hold up the end of the program.
        self._threads = [
            threading.Thread(target=self._read_heads, name="truetune requests", daemon=True)
        ]
        self._threads += [
            threading.Thread(
                target=self._answer_requests, name=f"truetune answers {number}", daemon=True
            )
            for number in range(WORKERS)
        ]
        for thread in self._threads:
            thread.start()

    def add(self, connection: socket.socket, address: Any) -> None:
        """Add an accepted socket, whose request is then read and answered."""
        # Answered at once, and not left waiting: a browser shows the reason and tries again.
        if self._is_closed or self._open >= MAX_CONNECTIONS:
            _refuse_busy(connection)
            return
        connection.setblocking(False)
        self._accepted.put(_Connection(connection, address, time.monotonic() + HEAD_SECONDS))
        self._wake_reader_thread()

    def close(self) -> None:
        """Stop answering. Workers that are at an answer end with it."""
        self._is_closed = True
        self._wake_reader_thread()
        # First the thread that reads: it puts requests into the queue that is emptied below.
        self._threads[0].join()
        while True:
            try:
                waiting = self._requests.get_nowait()
            except queue.Empty:
                break
            if waiting is not None:
                waiting.socket.close()
        for _ in range(WORKERS):
            # One for each worker: whoever takes it ends.
            self._requests.put(None)

    def _wake_reader_thread(self) -> None:
        """Wake the thread that reads heads."""
        try:
            self._wake_writer.send(b"\0")
        except OSError:
            return  # its buffer is full, so the thread wakes anyway

    def _read_heads(self) -> None:
        """Read request heads until the server closes: the loop of the reading thread."""
        while not self._is_closed:
            # It returns at the latest after a quarter of a second, so that late clients are
            # dropped even where nothing arrives.
            for key, _ in self._selector.select(_TURN):
                if key.data is None:
                    self._register_accepted()
                else:
                    self._read_head(key.data)
            self._close_late_connections()
        for key in list(self._selector.get_map().values()):
            if key.data is not None:
                self._unregister(key.data).close()
        self._selector.close()
        self._wake_reader.close()
        self._wake_writer.close()

    def _register_accepted(self) -> None:
        """Register the sockets that were accepted since, to be read."""
        try:
            self._wake_reader.recv(1 << 12)
        except OSError:
            return
        while not self._accepted.empty():
            connection = self._accepted.get()
            self._selector.register(connection.socket, selectors.EVENT_READ, connection)
            self._open += 1

    def _read_head(self, connection: _Connection) -> None:
        """Read what a client has sent; a head that is whole goes to the workers."""
        try:
            content = connection.socket.recv(MAX_HEAD_BYTES)
        except BlockingIOError:
            return
        except OSError:
            content = b""
        connection.head += content
        if not content:
            self._unregister(connection).close()
        elif (
            # The head is whole, or longer than any that is answered: the worker refuses the
            # latter.
            b"\r\n\r\n" in connection.head
            or b"\n\n" in connection.head
            or len(connection.head) > MAX_HEAD_BYTES
        ):
            self._unregister(connection)
            # From here on the client has done its part, and the time is ours.
            connection.deadline = time.monotonic() + QUEUE_SECONDS
            try:
                self._requests.put_nowait(connection)
            except queue.Full:
                _refuse_busy(connection.socket)

    def _close_late_connections(self) -> None:
        """Close the connections that did not send their head in time."""
        now = time.monotonic()
        late = [
            key.data
            for key in self._selector.get_map().values()
            if key.data is not None and key.data.deadline < now
        ]
        for connection in late:
            self._unregister(connection).close()

    def _unregister(self, connection: _Connection) -> socket.socket:
        """Stop watching a connection, and give its socket."""
        self._selector.unregister(connection.socket)
        self._open -= 1
        return connection.socket

    def _answer_requests(self) -> None:
        """Answer waiting requests one by one: the loop of a worker."""
        for connection in iter(self._requests.get, None):
            if time.monotonic() > connection.deadline:
                _refuse_busy(connection.socket)
                continue
            try:
                self._answer(connection.socket, connection.address, bytes(connection.head))
            except OSError:
                pass  # a browser that goes away in the middle of an answer is no error
            finally:
                _close_after_answer(connection.socket)


def _close_after_answer(connection: socket.socket) -> None:
    """Close a connection so that the answer arrives: with bytes of the client unread, the system
    would throw the answer away.
    """
    try:
        # The client sees the end of the answer, and closes its side.
        connection.shutdown(socket.SHUT_WR)
        connection.settimeout(LINGER_SECONDS)
        read = 0
        while read < MAX_LINGER_BYTES:
            content = connection.recv(1 << 16)
            if not content:
                break
            read += len(content)
    except OSError:
        pass  # it is gone, or sends no more
    finally:
        connection.close()


def _refuse_busy(connection: socket.socket) -> None:
    """Answer that there is no time for it now."""
    try:
        # A client that does not read must not hold the thread that accepts the others.
        connection.settimeout(0.1)
        connection.sendall(BUSY)
    except OSError:
        pass  # it is gone, or does not read
    finally:
        connection.close()
