"""Asks math-verify for its verdict on completions. Runs in the confined process, and imports nothing of truetune.

math-verify's own time limits are signals of the main thread, which is where this runs. The limit of the process is
behind them.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

# Chosen, not measured: usual completions take a thousandth of it.
SECONDS = 2
"""That parsing or comparing one completion may take; whole seconds, as math-verify has them"""
LIMITS = {"parsing_timeout": SECONDS, "timeout_seconds": SECONDS, "raise_on_error": True}
"""Older versions know some of these alone"""


def ask_math_verify(
    completions: Sequence[str], references: Sequence[str], **_: Any
) -> list[float | None]:
    """1 for each completion that math-verify takes for right, 0 for others, None where it gives no verdict."""
    from math_verify import parse, verify

    parse_within_limits = _with_limits(parse)
    verify_within_limits = _with_limits(verify)
    return [
        _verdict(parse_within_limits, verify_within_limits, reference, completion)
        for reference, completion in zip(references, completions, strict=True)
    ]


def _with_limits(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function of math-verify with those of the limits that it takes."""
    known = inspect.signature(function).parameters
    limits = {name: value for name, value in LIMITS.items() if name in known}
    return lambda *arguments: function(*arguments, **limits)


def _verdict(
    parse: Callable[..., Any], verify: Callable[..., Any], reference: str, completion: str
) -> float | None:
    """The verdict on one completion; None where the reference can't be read, or anything raises."""
    try:
        # As TRL and open-r1 have the right answers: in LaTeX.
        gold = parse(f"\\boxed{{{reference}}}")
        return float(verify(gold, parse(completion))) if gold else None
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException:
        # Its time limit raises what is no Exception.
        return None
