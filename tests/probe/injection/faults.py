"""What an injected function does instead of its work. No import but of the standard library: it runs in the subject."""

from __future__ import annotations

import time
from typing import Any, NoReturn


class Weird:
    """A value with which nothing can be done."""

    def _refuse(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise ArithmeticError("weird")

    __getattr__ = __bool__ = __len__ = __iter__ = __next__ = __eq__ = __hash__ = __call__ = _refuse
    __getitem__ = __enter__ = __exit__ = __str__ = __repr__ = __int__ = __float__ = __contains__ = (
        _refuse
    )


def _note(reached: str) -> None:
    with open(reached, "a", encoding="utf-8"):
        pass


def raise_(reached: str) -> NoReturn:
    """An ordinary error."""
    _note(reached)
    raise RuntimeError("injected")


def exit_(reached: str) -> NoReturn:
    """An error that ends programs."""
    _note(reached)
    raise SystemExit(77)


def interrupt_(reached: str) -> NoReturn:
    """What Ctrl-C raises, raised by our own code."""
    _note(reached)
    raise KeyboardInterrupt


def hang_(reached: str) -> NoReturn:
    """Waiting in C."""
    _note(reached)
    while True:
        time.sleep(1000)


def spin_(reached: str) -> NoReturn:
    """Waiting in Python."""
    _note(reached)
    while True:
        pass


def none_(reached: str) -> None:
    """Nothing."""
    _note(reached)


def weird_(reached: str) -> Weird:
    """A value with which nothing can be done."""
    _note(reached)
    return Weird()
