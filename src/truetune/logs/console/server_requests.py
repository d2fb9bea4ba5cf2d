"""What the log of a server says of its requests: how many it works on at once, and whether weights are loaded between.

Lines are counted as they pass; nothing of them is kept.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

REQUEST_LINE = re.compile(
    r"\"(?:POST|GET) (?!/(?:health|metrics|ping|docs|openapi|favicon|static))\S{1,200} HTTP/\d\.\d\"? \d{3}"
    r"|\[GIN\] .{1,120}\"/(?:api/(?:generate|chat)|v1/\S{1,60})\""
)
LOADED_LINE = re.compile(
    r"(?:Loading (?:checkpoint shards|weights)|Fetching \d+ files|Loading safetensors checkpoint shards)"
    r"[^%]{0,40}100%|load_tensors: offloaded |Loading pipeline components[^%]{0,40}100%"
)
RUNNING_LINE = re.compile(
    r"Running: (\d{1,6}) reqs?, (?:Swapped: \d+ reqs?, )?(?:Waiting|Pending): (\d{1,6}) reqs?"
)
MIN_LOADS = 3
"""Loadings with a request behind each; a server that is started again twice shows as many"""
MIN_LOADS_A_REQUEST = 0.5
"""Loadings for each request. Chosen, not measured: clients ask for the list of models as well, which loads none"""
MIN_REPORTS = 10
"""Reports of vLLM, one in ten seconds, that show requests"""


@dataclass(frozen=True, slots=True)
class ServedRequests:
    """How a server worked on its requests; zeros where its log does not say."""

    requests: int = 0
    loads: int = 0
    """How often weights were loaded before a request was answered"""
    reports: int = 0
    """Lines that say how many requests are running, while any is"""
    most_at_once: int = 0
    """Running and waiting, at most"""

    @property
    def loads_each_time(self) -> bool:
        """Are weights loaded again for each request, or nearly?"""
        return self.loads >= MIN_LOADS and self.loads >= MIN_LOADS_A_REQUEST * self.requests

    @property
    def is_asked_one_by_one(self) -> bool:
        """Was there never more than one request at a time?"""
        return self.reports >= MIN_REPORTS and self.most_at_once == 1


@dataclass(slots=True)
class RequestReader:
    """Counts requests, loadings and running requests in the lines of one log."""

    _requests: int = 0
    _loads: int = 0
    _is_loaded: bool = False
    _reports: int = 0
    _most: int = 0

    def add_line(self, text: str) -> None:
        """One line, or what stands between two carriage returns, with what draws a bar."""
        # Servers log millions of requests: a search for words decides whether a pattern is tried at all.
        if "100%" in text or "load_tensors" in text:
            self._is_loaded = self._is_loaded or LOADED_LINE.search(text) is not None
        if "HTTP/" in text or "[GIN]" in text:
            if REQUEST_LINE.search(text) is not None:
                # Weights that are loaded at the start are loaded once before the first request. What counts is each
                # request with a loading before it, so a model in several parts is one loading.
                self._requests += 1
                self._loads += self._is_loaded
                self._is_loaded = False
        elif "Running: " in text:
            running = RUNNING_LINE.search(text)
            if running is not None:
                at_once = int(running[1]) + int(running[2])
                # idle reports would make any server look as if it were asked one by one
                self._reports += at_once > 0
                self._most = max(self._most, at_once)

    def finish(self) -> ServedRequests:
        """What was counted."""
        return ServedRequests(self._requests, self._loads, self._reports, self._most)
