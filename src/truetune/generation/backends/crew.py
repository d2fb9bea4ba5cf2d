"""Some requests at a time, which an interrupt leaves behind at once."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from truetune.generation.backends.backend import Progress

T = TypeVar("T")
R = TypeVar("R")
Wait = Callable[[float], object]


def map_concurrently(
    work: Callable[[T, Wait], R], items: Sequence[T], at_once: int, progress: Progress | None = None
) -> list[R]:
    """The result of each, in their order; `work` is given a way to wait that ends with the rest.

    Its threads are daemons: neither Ctrl-C nor the end of the program waits for a server. Raises what `work` raises.
    """
    over = threading.Event()
    todo: queue.SimpleQueue[tuple[int, T]] = queue.SimpleQueue()
    done: queue.SimpleQueue[tuple[int, Any, BaseException | None]] = queue.SimpleQueue()
    for pair in enumerate(items):
        todo.put(pair)

    def hand() -> None:
        while not over.is_set():
            try:
                i, item = todo.get_nowait()
            except queue.Empty:
                return
            try:
                done.put((i, work(item, over.wait), None))
            except BaseException as error:
                done.put((i, None, error))

    for _ in range(min(max(at_once, 1), len(items))):
        threading.Thread(target=hand, daemon=True).start()
    found: dict[int, R] = {}
    try:
        while len(found) < len(items):
            i, result, error = _next_result(done)
            if error is not None:
                raise error
            found[i] = result
            if progress:
                progress(len(found), len(items))
    finally:
        over.set()
    return [found[i] for i in range(len(items))]


def _next_result(done: queue.SimpleQueue[T]) -> T:
    """In short waits, which an interrupt can end on every system."""
    while True:
        try:
            return done.get(timeout=0.5)
        except queue.Empty:
            continue
