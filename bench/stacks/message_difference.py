"""What a program printed about the broken copy of a case and not about the clean one."""

from __future__ import annotations

import re

MAX_MESSAGES = 12
MAX_CHARACTERS = 300
_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_PATHS = re.compile(r"(?<![\w.])/[\w./+-]+")
_NUMBER = re.compile(r"(?<![A-Za-z_])[-+]?\d[\d,]*(?:\.\d+)?(?:e[-+]?\d+)?", re.IGNORECASE)
_IDENTIFIER = re.compile(r"\b(?:0x)?(?=[0-9a-f]*\d)[0-9a-f]{7,}\b")
_METRICS = re.compile(r"^\{'\w*(?:loss|runtime)'")
_TELLING_METRIC = re.compile(r"'(?:loss|grad_norm)': '?(?:0(?:\.0*)?|nan|inf)'?[,}]")
"""A loss or a gradient of exactly 0, or of no number, says that something is wrong"""
_ECHO = re.compile(
    r'^"?[\w./-]+"?: .*[,{\[]$|^"[^"]*"(?:: .*|,?)$|^[{}\[\]],?$|^\[(?:\d+, ){3}|(?:\(-?\d+, \d+\).*){3}'
)
"""Settings printed as JSON, and tokens with their labels: they are for people to read, and judge nothing"""
_FRAME = re.compile(r"^\s*(?:File \"|\^+|~+)|^Traceback \(most recent|it/s\]|s/it\]|\d%\|")


def messages_only_of(broken: str, clean: str) -> tuple[str, ...]:
    """The lines of one output whose like is not in another.

    Numbers, paths and identifiers differ from run to run, so they count as equal. A line of metrics counts where its
    loss or its gradient is 0 or NaN, and only once.

    Args:
        broken: Output of the program on the broken copy.
        clean: Its output on the clean copy.

    Returns:
        Each such line once, as it was printed, in order; lines of a traceback but its last are left out.
    """
    known = {_shape(line) for line in _lines(clean)}
    found = []
    for line in _lines(broken):
        shape = _shape(line)
        if shape not in known:
            known.add(shape)
            found.append(line[:MAX_CHARACTERS])
    return tuple(found[:MAX_MESSAGES])


def _lines(output: str) -> list[str]:
    text = _ESCAPES.sub("", output).replace("\r", "\n")
    lines, in_traceback = [], False
    for line in text.splitlines():
        if line.startswith("Traceback (most recent call last)"):
            in_traceback = True
        elif in_traceback and line[:1].strip():
            in_traceback = False
        if not (in_traceback or _FRAME.search(line) or _ECHO.search(line.strip())):
            lines.append(line.strip())
    kept = [line for line in lines if not _METRICS.match(line) or _TELLING_METRIC.search(line)]
    return [line for line in kept if line]


def _shape(line: str) -> str:
    metric = _METRICS.match(line) and _TELLING_METRIC.search(line)
    if metric:
        return metric[0]
    shape = _IDENTIFIER.sub("ID", _PATHS.sub("PATH", line))
    shape = _NUMBER.sub("N", shape)
    return re.sub(r"\s+", " ", shape)
