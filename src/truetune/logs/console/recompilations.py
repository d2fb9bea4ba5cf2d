"""Counts the code that torch.compile compiles again, and CUDA graphs that are recorded again, as
PyTorch prints it.

With TORCH_LOGS=recompiles each compilation is some lines: the function, and the guard that failed (`size mismatch at
index 1. expected 512, actual 640`). Without it only the end is seen: the limit is reached, and the code runs
uncompiled from then on.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from statistics import median

RECOMPILED = re.compile(r"Recompiling function (?P<name>\S{1,80}) in (?P<place>\S{1,300}:\d{1,7})")
MISMATCH = re.compile(
    r"size mismatch at index (?P<index>\d{1,3})\. expected (?P<expected>\d{1,12}), actual (?P<actual>\d{1,12})"
)
SIZE_GUARD = re.compile(r"\.size\(\)\[(?P<index>\d{1,3})\] == (?P<expected>\d{1,12})\b")
LIMIT = re.compile(
    r"torch\._dynamo hit config\.(?P<name>\w*(?:recompile|cache_size)_limit) \((?P<limit>\d{1,6})\)"
    r"|(?:accumulated_)?(?:recompile|cache_size)_limit (?:\(\d{1,6}\) )?reached"
    r"|torch\._dynamo hit config\.\w+"
)
FUNCTION = re.compile(
    r"\bfunction: ['\"](?P<name>[^'\"]{1,120})['\"](?: \((?P<place>[^)]{1,300})\))?"
)
GRAPHS = re.compile(
    r"CUDAGraph supports dynamic shapes by recording a new graph for each\s+distinct input size"
    r".{0,300}?We have observed (?P<count>\d{1,6}) distinct sizes"
)
DURATION = re.compile(
    r"(?:\b(?:took|in|time|latency|elapsed|duration|dt|step_time)\b['\"]?[ :=]{1,3}|\| +)"
    r"(?P<figure>\d{1,6}(?:\.\d{1,6})?)"
    r" ?(?P<unit>ms|s|sec|seconds)\b",
    re.I,
)
MAX_KEPT = 2_000
"""Durations that are kept of each kind"""
MAX_SIZES = 500
"""Functions, and sizes of a dimension, that are kept. Chosen by hand: it bounds the memory where
each batch has a size of its own. Some dozens show that sizes never repeat; fewer would not"""


@dataclass(frozen=True, slots=True)
class Recompilations:
    """What was compiled again; zeros where the log has nothing of it."""

    count: int = 0
    """Compilations behind the first"""
    function: str = ""
    """The one that was compiled most often, with its file and line"""
    index: int | None = None
    """Dimension of a tensor whose size differed"""
    sizes: tuple[int, ...] = ()
    """Sizes that it had"""
    limit: int | None = None
    is_limit_reached: bool = False
    graphs: int = 0
    """Sizes for which a CUDA graph was recorded"""
    line: int = 0
    text: str = ""
    slow_s: float | None = None
    """Seconds of the requests or steps behind a compilation, in the middle"""
    quick_s: float | None = None
    """Seconds of the others"""


@dataclass(slots=True)
class RecompilationReader:
    """Takes the lines of one log without prefixes."""

    _functions: Counter[str] = field(default_factory=Counter)
    _indices: Counter[int] = field(default_factory=Counter)
    _sizes: dict[int, set[int]] = field(default_factory=dict)
    _limit: int | None = None
    _reached: bool = False
    _graphs: int = 0
    _first: tuple[int, str] = (0, "")
    _compiled: bool = False
    _slow: list[float] = field(default_factory=list)
    _quick: list[float] = field(default_factory=list)

    def add_line(self, text: str, number: int) -> None:
        """Read one line without prefixes."""
        if "Recompiling function" in text:
            self._read_recompiled_function(text, number)
        elif "size mismatch" in text or ".size()[" in text:
            self._read_size_guard(text)
        elif "_limit" in text or "torch._dynamo hit" in text:
            self._read_limit_reached(text, number)
        elif "CUDAGraph supports" in text:
            graphs = GRAPHS.search(text)
            if graphs is not None:
                self._graphs = max(self._graphs, int(graphs["count"]))
                self._mark_recompilation(number, text)
        elif self._first[0]:
            self._read_duration_or_limited_function(text)

    def finish(self) -> Recompilations:
        """The recompilations that were printed, with the times around them."""
        index = self._indices.most_common(1)[0][0] if self._indices else None
        function = self._functions.most_common(1)[0][0] if self._functions else ""
        sizes = self._sizes.get(index, set()) if index is not None else set()
        timed = len(self._slow) > 1 and bool(self._quick)
        return Recompilations(
            count=self._functions.total(),
            function=function,
            index=index,
            sizes=tuple(sorted(sizes)),
            limit=self._limit,
            is_limit_reached=self._reached,
            graphs=self._graphs,
            line=self._first[0],
            text=self._first[1],
            slow_s=median(self._slow) if timed else None,
            quick_s=median(self._quick) if timed else None,
        )

    def _mark_recompilation(self, number: int, text: str) -> None:
        """Keep the first line, and that something was compiled since the last duration."""
        if not self._first[0]:
            self._first = (number, text.strip()[:200])
        self._compiled = True

    def _read_recompiled_function(self, text: str, number: int) -> None:
        """Read which function is compiled again."""
        match = RECOMPILED.search(text)
        if match is not None and len(self._functions) < MAX_SIZES:
            self._functions[f"{match['name']} ({match['place']})"] += 1
            self._mark_recompilation(number, text)

    def _read_size_guard(self, text: str) -> None:
        """Read the guard that failed: a size that differs."""
        match = MISMATCH.search(text) or SIZE_GUARD.search(text)
        if match is None:
            return
        index = int(match["index"])
        self._indices[index] += 1
        sizes = self._sizes.setdefault(index, set())
        if len(sizes) < MAX_SIZES:
            sizes.update(
                int(size) for name, size in match.groupdict().items() if name != "index" and size
            )

    def _read_limit_reached(self, text: str, number: int) -> None:
        """Read that PyTorch reached its limit and gave up."""
        match = LIMIT.search(text)
        if match is None:
            return
        self._reached = True
        limit = match["limit"]
        self._limit = int(limit) if limit else self._limit
        self._mark_recompilation(number, text)

    def _read_duration_or_limited_function(self, text: str) -> None:
        """Read a line after the first compilation: how long a request or step took, or the function
        at the limit.
        """
        named = FUNCTION.search(text)
        if named is not None and not self._functions:
            self._functions[
                f"{named['name']} ({named['place']})" if named["place"] else named["name"]
            ] += 0
            return
        duration = DURATION.search(text)
        if duration is None:
            return
        seconds = float(duration["figure"]) / (1000 if duration["unit"].lower() == "ms" else 1)
        kept = self._slow if self._compiled else self._quick
        if len(kept) < MAX_KEPT:
            kept.append(seconds)
        self._compiled = False
