"""Everything that truetune raises.

    TruetuneError
    |-- UsageError      (ValueError)   the call or the command line contradicts itself
    |-- SpecError       (ValueError)   a configuration file or value is not understood
    |-- DataError       (ValueError)   a data file or a row cannot be read
    |-- TokenizerError  (ValueError)   a tokenizer folder is missing, broken or of an unknown kind
    |-- TemplateError   (RuntimeError) a chat template raised, or went past its limits
    |-- FastPathError   (RuntimeError) a shortcut gave something else than the exact way; all that it made is void
    |-- OutOfMemoryError (MemoryError) a run needs more memory than there is
    `-- FindingsError   (RuntimeError) findings stopped the work; they stand in its `findings`

Each message says what was found where, what was expected, and what to do.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

MAX_NAMED = 10
"""Names that one message lists: a file may have thousands of columns, and one line has to say what is wrong."""
MAX_SHOWN = 60
"""Characters of a name or a value of somebody's file that a message shows."""


def format_name_list(names: Iterable[object], *, empty: str = "none") -> str:
    """Names out of a file in one line for a message: `a, b, c`, at most MAX_NAMED of them, and how
    many there are more.

    Args:
        names: columns, keys, roles, ...; a long one is cut.
        empty: what is said where there is none.
    """
    given = list(names)
    shown = [shorten_name(name) for name in given[:MAX_NAMED]]
    left = len(given) - len(shown)
    return (", ".join(shown) + (f" and {left:,} more" if left else "")) or empty


def shorten_name(name: object) -> str:
    """A name or a value of a file, as text of at most MAX_SHOWN characters."""
    text = str(name)
    return text if len(text) <= MAX_SHOWN else f"{text[: MAX_SHOWN - 3]}..."


class TruetuneError(Exception):
    """The root of the tree; the command line turns it into one line and exit code 2."""


class UsageError(TruetuneError, ValueError):
    """The call or the command line contradicts itself."""

    pass


class SpecError(TruetuneError, ValueError):
    """A configuration file or value is not understood."""

    pass


class DataError(TruetuneError, ValueError):
    """A data file or a row can't be read."""

    pass


class TokenizerError(TruetuneError, ValueError):
    """A tokenizer folder is missing, broken or of an unknown kind."""

    pass


class TemplateError(TruetuneError, RuntimeError):
    """A chat template raised an error, or went past its limits."""

    pass


class FastPathError(TruetuneError, RuntimeError):
    """Nothing that was made since the last proof may be used: begin again without shortcuts, or stop.

    It is no fault of a row, so that nothing that leaves out faulty rows may catch it.
    """


class OutOfMemoryError(TruetuneError, MemoryError):
    """A run needs more memory than there is."""

    pass


class FindingsError(TruetuneError, RuntimeError):
    """Findings stopped the work; they stand in `findings`. The command line makes it exit code 1."""

    def __init__(self, message: str, findings: tuple[Any, ...] = ()) -> None:
        super().__init__(message)
        self.findings = findings


class FirstProcessFailed(Exception):
    """Raised in the other processes of a run where the first one has failed: they end in silence,
    and it says why.

    It stands here and not beside the run, so that the command line can catch it without torch.
    """
