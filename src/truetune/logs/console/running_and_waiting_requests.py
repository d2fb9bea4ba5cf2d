"""Reads from an inference server's log how many requests it works on at once, how many wait, and
what holds them back.

Servers tell of waiting in different ways. vLLM and SGLang print how many requests run and wait, and how full the cache
is; TGI prints of each request how long it waited; Ollama prints when each ended and how long it took, so that those
which overlap are counted; llama.cpp prints when all of its slots are idle, which they never are between two requests
while a third one waits. Lines are counted as they pass; of Ollama's requests the times are kept, up to a bound.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime

REQUEST_LINE = re.compile(
    r"\"(?:POST|GET) (?!/(?:health|metrics|ping|docs|openapi|favicon|static))\S{1,200} HTTP/\d\.\d\"? \d{3}"
    r"|\[GIN\] .{1,120}\"/(?:api/(?:generate|chat)|v1/\S{1,60})\""
)
LOADED_LINE = re.compile(
    r"(?:Loading (?:checkpoint shards|weights)|Fetching \d+ files|Loading safetensors checkpoint shards)"
    r"[^%]{0,40}100%|load_tensors: offloaded |Loading pipeline components[^%]{0,40}100%"
)
QUEUE_REPORTS = (
    re.compile(
        r"Running: (?P<running>\d{1,6}) reqs?, (?:Swapped: \d+ reqs?, )?(?:Waiting|Pending): (?P<waiting>\d{1,6}) reqs?"
        r"(?:.{0,60}?KV cache usage: (?P<percent>[\d.]{1,8})%)?"
    ),
    # A prefill counts those that ran before it, so that only the lines on decoding are counts of what runs.
    re.compile(
        r"Decode batch.{0,40}#running-req: (?P<running>\d{1,6}),(?:.{0,120}?token usage: (?P<share>[\d.]{1,8}))?"
        r".{0,240}?#queue-req: (?P<waiting>\d{1,6})"
    ),
)
"""Reports of vLLM and SGLang: running, waiting, and how full the cache is"""
WAITED_LINE = re.compile(
    r"queue_time=\"(?P<queue>[\d.]{1,16}\w{1,2})\" inference_time=\"(?P<work>[\d.]{1,16}\w{1,2})\""
)
"""TGI's line on each request"""
TIMED_REQUEST = re.compile(
    r"\[GIN\] (?P<end>\d{4}/\d\d/\d\d - \d\d:\d\d:\d\d) \| 200 \| +(?P<took>[\dhmsµu.n]{2,20}) \|.{1,60}"
    r"POST +\"/(?:api/(?:generate|chat)|v1/(?:chat/)?completions)\""
)
"""Ollama's line on each request, when it ends"""
DURATION_PART = re.compile(r"(\d+(?:\.\d+)?)(h|ms|m|s|µs|us|ns)")
SECONDS_OF_UNIT = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 1e-3, "µs": 1e-6, "us": 1e-6, "ns": 1e-9}
SLOT_STARTED = re.compile(r"slot\s+launch_slot_: id +\d+ \| task \d+ \| processing task")
SLOTS_IDLE = "all slots are idle"
CAP_PATTERNS = (
    (
        "max_num_seqs",
        re.compile(r"(?:--max[-_]num[-_]seqs[ =]|\bmax_num_seqs['\"]?[:=] ?)(\d{1,6})\b"),
    ),
    (
        "max_running_requests",
        re.compile(r"(?:--max-running-requests[ =]|\bmax_running_requests['\"]?[:=] ?)(\d{1,6})\b"),
    ),
    (
        "max_batch_size",
        re.compile(r"(?:--max-batch-size[ =]|\bmax_batch_size: (?:Some\()?)(\d{1,6})\b"),
    ),
    ("OLLAMA_NUM_PARALLEL", re.compile(r"\bOLLAMA_NUM_PARALLEL[:=] ?\"?([1-9]\d{0,4})\b")),
    ("parallel", re.compile(r"\binitializing slots, n_slots = (\d{1,5})\b|\bn_slots=(\d{1,5})\b")),
    (
        "parallel",
        re.compile(r"(?:--parallel|--n-parallel|-np)[ =](\d{1,5})\b|\bn_seq_max += (\d{1,5})\b"),
    ),
)
"""Settings that bound how many requests a server works on, as logs print them; by the program that knows them"""
CAP_WORDS = ("max_num_seqs", "max-num-seqs", "max_running_requests", "max-running-requests", "max_batch_size",
             "max-batch-size", "OLLAMA_NUM_PARALLEL", "n_slots", "parallel", "-np", "n_seq_max")  # fmt: skip
# Servers log millions of lines: a search for words decides whether a pattern is tried.
MIN_LOADS = 3
"""Loadings with a request behind each; a server that is started again twice shows as many"""
MIN_LOADS_A_REQUEST = 0.5
"""Loadings for each request. Chosen, not measured: clients ask for the list of models as well, which loads none"""
MIN_REPORTS = 10
"""Reports of vLLM, one in ten seconds, that show requests"""
MIN_QUEUED = 5
"""Reports or requests that show waiting. Chosen, not measured: one burst waits in two or three reports"""
SAME_RUNNING = 0.8
"""Share of the reports with waiting requests that show the same number running: a cache that is full lets now more and
now fewer run, a cap always as many"""
FULL_CACHE, ROOMY_CACHE = 0.8, 0.5
"""Usage of the cache at its highest, and on average, below which it is not what requests wait for"""
MIN_TIMES_LONGER = 2.0
"""Waiting time over working time of TGI's requests from which a queue is the story"""
MAX_TIMED = 5_000
"""Requests of Ollama whose times are kept"""


@dataclass(frozen=True, slots=True)
class ServerCap:
    """A setting that bounds how many requests a server works on at once, as its log prints it."""

    setting: str
    value: int
    line: int
    text: str


@dataclass(frozen=True, slots=True)
class RequestQueue:
    """Requests that waited although the server had room for them."""

    running: int
    """Worked on at once while others waited; 0 where the log does not say"""
    waiting: float
    """On average"""
    most_waiting: int
    seen: int
    """Reports or requests that show it"""
    cache: float | None = None
    """Share of the cache in use, on average; None where the log does not say"""
    waited_s: float | None = None
    worked_s: float | None = None
    """Seconds of a request in the queue, and of its work, on average; None where the log does not say"""


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
    caps: tuple[ServerCap, ...] = ()
    """The last value of each setting that bounds the requests"""
    queue: RequestQueue | None = None
    """Requests that wait for a cap; None where the log does not prove it"""
    is_cache_full: bool = False
    """Was the cache of keys and values full while requests ran?"""

    @property
    def smallest_cap(self) -> ServerCap | None:
        """The smallest of the settings that limit the requests; None if there is none."""
        return min(self.caps, key=lambda cap: cap.value, default=None)

    @property
    def loads_weights_for_each_request(self) -> bool:
        """Are weights loaded again for each request, or nearly?"""
        return self.loads >= MIN_LOADS and self.loads >= MIN_LOADS_A_REQUEST * self.requests

    @property
    def gets_one_request_at_a_time(self) -> bool:
        """Was there never more than one request at a time?"""
        return self.reports >= MIN_REPORTS and self.most_at_once == 1


@dataclass(slots=True)
class _ReportedQueue:
    """Reports on running and waiting requests."""

    _running: Counter[int] = field(default_factory=Counter)
    """Reports with waiting requests, by how many ran"""
    _waiting: int = 0
    _most: int = 0
    _cache: float = 0.0
    _cached: int = 0
    _fullest: float = 0.0

    @property
    def was_cache_full(self) -> bool:
        """Was the cache full in one of the reports?"""
        return self._fullest >= FULL_CACHE

    def add(self, running: int, waiting: int, cache: float | None) -> None:
        """Add one report of running and waiting requests, and how full the cache is."""
        self._fullest = max(self._fullest, cache or 0.0)
        if not waiting or not running:
            return
        self._running[running] += 1
        self._waiting += waiting
        self._most = max(self._most, waiting)
        if cache is not None:
            self._cache += cache
            self._cached += 1

    def finish(self) -> RequestQueue | None:
        """The queue, if always as many requests run, more of them wait than that, and the cache has
        room; None otherwise.
        """
        seen = self._running.total()
        if seen < MIN_QUEUED or not self._cached or self.was_cache_full:
            return None
        running, count = self._running.most_common(1)[0]
        waiting, cache = self._waiting / seen, self._cache / self._cached
        is_constant = count >= SAME_RUNNING * seen and running == max(self._running)
        if not is_constant or cache > ROOMY_CACHE or waiting < max(1.0, running / 4):
            return None
        return RequestQueue(running, waiting, self._most, seen, cache)


@dataclass(slots=True)
class _TimedWaits:
    """Requests whose time in the queue is printed apart from the time of their work."""

    _seen: int = 0
    _queued: int = 0
    _waited: float = 0.0
    _worked: float = 0.0

    def add(self, text: str) -> None:
        """Read one line of TGI on a request."""
        match = WAITED_LINE.search(text)
        if match is None:
            return
        waited, worked = (
            parse_duration_seconds(match["queue"]),
            parse_duration_seconds(match["work"]),
        )
        self._seen += 1
        self._queued += waited > MIN_TIMES_LONGER * worked
        self._waited += waited
        self._worked += worked

    def finish(self, cap: int) -> RequestQueue | None:
        """The queue, if most requests waited longer than they were worked on; None otherwise."""
        if self._queued < MIN_QUEUED or self._queued < 0.5 * self._seen:
            return None
        waited, worked = self._waited / self._seen, self._worked / self._seen
        # In a queue that neither grows nor shrinks, as many wait as the server works on, times the ratio of the times.
        waiting = cap * waited / max(worked, 1e-9)
        return RequestQueue(cap, waiting, round(waiting), self._queued, None, waited, worked)


@dataclass(slots=True)
class RequestReader:
    """Counts requests, loadings and running requests in the lines of one log."""

    _requests: int = 0
    _loads: int = 0
    _is_loaded: bool = False
    _reports: int = 0
    _most: int = 0
    _caps: dict[str, ServerCap] = field(default_factory=dict)
    _queue: _ReportedQueue = field(default_factory=_ReportedQueue)
    _waits: _TimedWaits = field(default_factory=_TimedWaits)
    _spans: list[tuple[float, float]] = field(default_factory=list)
    _started: int = 0
    _idle: int = 0

    def add_line(self, text: str, number: int = 0) -> None:
        """Read one line, or the part of it between two carriage returns, with progress bars."""
        # Servers log millions of requests: a search for words decides whether a pattern is tried at all.
        if "100%" in text or "load_tensors" in text:
            self._is_loaded = self._is_loaded or LOADED_LINE.search(text) is not None
        if any(word in text for word in CAP_WORDS):
            self._read_request_limits(text, number)
        if "HTTP/" in text or "[GIN]" in text:
            self._read_answered_request(text)
        elif "Running: " in text or "#running-req" in text:
            self._read_queue_report(text)
        elif "queue_time=" in text:
            self._waits.add(text)
        elif "slot" in text:
            self._started += SLOT_STARTED.search(text) is not None
            self._idle += SLOTS_IDLE in text

    def finish(self) -> ServedRequests:
        """How the server worked on its requests, as counted."""
        caps = tuple(self._caps.values())
        return ServedRequests(
            self._requests,
            self._loads,
            self._reports,
            self._most,
            caps,
            self._queue.finish() or self._find_queue(caps),
            self._queue.was_cache_full,
        )

    def _read_answered_request(self, text: str) -> None:
        """Read a line on a request that was answered."""
        if REQUEST_LINE.search(text) is None:
            return
        # Weights that are loaded at the start are loaded once before the first request. What counts is each
        # request with a loading before it, so a model in several parts is one loading.
        self._requests += 1
        self._loads += self._is_loaded
        self._is_loaded = False
        timed = TIMED_REQUEST.search(text)
        if timed is not None and len(self._spans) < MAX_TIMED:
            end = datetime.strptime(timed["end"], "%Y/%m/%d - %H:%M:%S").timestamp()
            self._spans.append((end - parse_duration_seconds(timed["took"]), end))

    def _read_queue_report(self, text: str) -> None:
        """Read a line that counts the running and waiting requests."""
        report = next((m for p in QUEUE_REPORTS if (m := p.search(text)) is not None), None)
        if report is None:
            return
        figures = report.groupdict()
        running, waiting = int(figures["running"]), int(figures["waiting"])
        cache = _share_of_cache_in_use(figures)
        # idle reports would make any server look as if it were asked one by one
        self._reports += running + waiting > 0
        self._most = max(self._most, running + waiting)
        self._queue.add(running, waiting, cache)

    def _read_request_limits(self, text: str, number: int) -> None:
        """Read the settings that limit the requests; of several values the last counts, as of a
        server that is started again.
        """
        for setting, pattern in CAP_PATTERNS:
            match = pattern.search(text)
            value = next((group for group in match.groups() if group), "0") if match else "0"
            if match is not None and int(value) > 0:
                self._caps[setting] = ServerCap(setting, int(value), number, match[0])

    def _find_queue(self, caps: tuple[ServerCap, ...]) -> RequestQueue | None:
        """The queue by the times of requests, or by slots that are never idle; both need a printed
        limit. None if there is none.
        """
        cap = min((cap.value for cap in caps), default=0)
        if not cap:
            return None
        return (
            self._waits.finish(cap)
            or _queue_of_overlapping_requests(self._spans, cap)
            or self._queue_of_busy_slot(cap)
        )

    def _queue_of_busy_slot(self, cap: int) -> RequestQueue | None:
        """The queue if one slot is given the next request each time before it could be idle; None
        otherwise.
        """
        busy = self._started - self._idle
        if cap != 1 or busy < MIN_QUEUED or self._idle > (1 - SAME_RUNNING) * self._started:
            return None
        return RequestQueue(1, 1.0, 1, busy)


def parse_duration_seconds(text: str) -> float:
    """The seconds of a duration: `2m47s`, `21.4ms`, `1.2s`."""
    return sum(
        float(number) * SECONDS_OF_UNIT[unit] for number, unit in DURATION_PART.findall(text)
    )


def _share_of_cache_in_use(figures: dict[str, str | None]) -> float | None:
    """How full a report says that the cache is, from 0 to 1; None if it does not say."""
    percent, share = figures.get("percent"), figures.get("share")
    try:
        if percent:
            return float(percent) / 100
        return float(share) if share else None
    except ValueError:
        return None


def _queue_of_overlapping_requests(
    spans: list[tuple[float, float]], cap: int
) -> RequestQueue | None:
    """The queue if more requests are under way together than the server works on; None otherwise."""
    waiting = [count - cap for count in _requests_under_way_at_starts(spans) if count > cap]
    if len(waiting) < MIN_QUEUED:
        return None
    return RequestQueue(cap, sum(waiting) / len(waiting), max(waiting), len(waiting))


def _requests_under_way_at_starts(spans: list[tuple[float, float]]) -> Iterator[int]:
    """How many requests are under way when each of them begins, itself included."""
    # The end is printed in whole seconds: a request that begins within a second of an end is not taken to overlap.
    ends = sorted(end - 1.0 for begin, end in spans)
    starts = sorted(begin for begin, end in spans)
    ended = 0
    for number, start in enumerate(starts, 1):
        while ended < len(ends) and ends[ended] <= start:
            ended += 1
        yield number - ended
