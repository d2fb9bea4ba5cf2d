"""Requests to an OpenAI-compatible server: one, with retries, or several at a time.

How: `send_request` sends JSON with the standard library and gives back a `Reply`, whatever its status: what a refusal
means is for the caller to say. Only where no HTTP answer comes at all `NoReply` is raised. `map_concurrently` runs some
requests at a time in threads, and leaves them behind where the user interrupts.

The trade-off: `urllib` and threads instead of httpx and anyio, which are no dependencies of this package. Both were
tried. With httpx this module is 17 lines shorter, still needs its own clock and limit of size (httpx limits each read,
so that a server which sends a byte a second never ends), and takes 0.9 s to import where urllib takes 0.3. With anyio
`map_concurrently` is 12 lines shorter, can't run inside a notebook's event loop, and an interrupt waits for the server:
11.6 s instead of 0.4 for requests of 12 s, because its threads are joined.
"""

from __future__ import annotations

import json
import os
import queue
import re
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from http.client import HTTPException, HTTPResponse
from ipaddress import ip_address
from typing import Any, TypeVar
from urllib.error import HTTPError, URLError
from urllib.parse import SplitResult, urlsplit
from urllib.request import HTTPRedirectHandler, OpenerDirector, ProxyHandler, Request, build_opener

from truetune.errors import UsageError
from truetune.generation.backends.backend import Progress
from truetune.parsing.input_limits import REPLY
from truetune.parsing.parse_json_within_limits import parse_json

API_KEY_VARIABLE = "OPENAI_API_KEY"
"""Environment variable of the key that is sent as a bearer token"""
# Chosen, not measured: the list of models costs a server nothing, and a wrong host is said soon.
CONNECT_TIMEOUT_S = 10.0
"""In which a server must answer at all"""
# Chosen, not measured; some servers load their model with the first, so that less fails at once, and more keeps a
# user waiting for a server that hangs. `--timeout` changes it.
ANSWER_TIMEOUT_S = 120.0
"""For one answer"""
MAX_REPLY_BYTES = REPLY.max_bytes
"""Of an answer that are read"""
TRANSIENT_STATUSES = frozenset({408, 429, 500, 502, 503, 504, 529})
"""Statuses that may be better next time; 529 is an overloaded server's, in no RFC"""
# Chosen, not measured: what asks for more is a quota, and waiting silently is worse than saying so.
MAX_RETRY_AFTER_S = 60.0
"""Longest wait that a server may ask for"""
FIRST_PAUSE_S = 0.5
"""Before the second try; each further pause is twice as long. Four tries then wait 3.5 s in all."""
READ_BYTES = 1 << 16
"""Read at a time, after which the clock and the size are looked at"""
MIN_KEY_LENGTH = 8
"""Characters of a key that is taken out of messages: a shorter one (`EMPTY`, `x`) is no secret, and part of words"""
REFUSAL_CHARACTERS = 200
"""Of a server's own words that a message shows"""
RESULT_WAIT_S = 0.5
"""Seconds that a wait for a result lasts at a time"""

T = TypeVar("T")
R = TypeVar("R")
Wait = Callable[[float], object]
"""Waits so many seconds, or less where the rest of the work has ended"""


class NoReply(UsageError):
    """No HTTP answer came.

    Attributes:
        timed_out: the time ran out; else the server could not be reached, or hung up.
    """

    def __init__(self, message: str, *, timed_out: bool) -> None:
        super().__init__(message)
        self.timed_out = timed_out


@dataclass(frozen=True, slots=True)
class Server:
    """A running server."""

    root: str
    """Its URL, without /v1"""
    model: str | None
    """The name to ask by; None where it has none to tell"""


@dataclass(frozen=True, slots=True)
class Reply:
    """What a server answered to one request."""

    status: int
    body: Any
    """JSON; a text where it is none"""
    retry_after: float | None = None
    """Seconds that it wants to be left alone"""

    @property
    def refusal_message_in_one_line(self) -> str:
        """Its status and message, in one line, without tags and without our key."""
        message = self.body
        # Servers nest their words differently: {"error": {"message": ...}}, {"error": "..."}, {"detail": ...}.
        for name in ("error", "message", "detail"):
            message = message.get(name, message) if isinstance(message, dict) else message
        text = re.sub(r"<[^<>]*>", " ", message) if isinstance(message, str) else str(message)
        if self.status < 300 and isinstance(self.body, str):
            text = f"no JSON: {text}"
        # Some servers repeat the key that they refuse, and messages end up in reports that are shared.
        key = os.environ.get(API_KEY_VARIABLE, "").strip()
        text = text.replace(key, "***") if len(key) >= MIN_KEY_LENGTH else text
        return f"{self.status} {' '.join(text.split())[:REFUSAL_CHARACTERS]}".strip()


def find_server(url: str, model: str | None = None, *, option: str = "--served-model") -> Server:
    """Find the server at a URL and the model that it serves.

    Args:
        url: with or without /v1.
        model: the name to ask by; None takes the only one that is served.
        option: how a user names one of several models, for the message.

    Raises:
        UsageError: where nothing answers, the URL is none, a key is wanted, or one of several models must be named.
    """
    root = _server_root_of_url(url)
    reply = send_request(f"{root}/v1/models", None, CONNECT_TIMEOUT_S)
    if reply.status in (401, 403):
        raise UsageError(
            f"{url} wants a key ({reply.refusal_message_in_one_line}): set {API_KEY_VARIABLE}"
        )
    entries = [entry for entry in list_field(reply.body, "data") if isinstance(entry, dict)]
    names = [str(entry["id"]) for entry in entries if entry.get("id")]
    if model is None and len(names) > 1:
        raise UsageError(
            f"{url} serves {len(names)} models ({', '.join(names[:8])}): name one with {option}"
        )
    # A server without /v1/models (a proxy, a small one of one's own) can still answer: it is asked without a name.
    return Server(root, model or next(iter(names), None))


def send_request(
    url: str,
    content: Mapping[str, Any] | None,
    seconds: float = ANSWER_TIMEOUT_S,
    *,
    tries: int = 1,
    passing: frozenset[int] = TRANSIENT_STATUSES,
    wait: Callable[[float], object] = time.sleep,
) -> Reply:
    """GET, or POST of JSON; again after a while where the server is busy, fails or hangs up.

    Redirects are not followed: the key is for the server that was named.

    Args:
        url: of one route.
        content: what is sent as JSON; None for GET.
        seconds: for the whole of one answer.
        tries: in all.
        passing: statuses that may be better next time; others are given back at once.
        wait: waits between two tries, a given number of seconds.

    Raises:
        NoReply: where no HTTP answer comes. What was too late is not sent again, for it would be as late.
    """
    for attempt in range(tries):
        is_last = attempt == tries - 1
        pause = FIRST_PAUSE_S * 2.0**attempt
        try:
            reply = _send_once(url, content, seconds)
        except NoReply as error:
            if is_last or error.timed_out:
                raise
        else:
            pause = pause if reply.retry_after is None else reply.retry_after
            if is_last or reply.status not in passing or pause > MAX_RETRY_AFTER_S:
                return reply
        wait(pause)
    raise ValueError(f"tries={tries}")


def list_field(body: Any, name: str) -> list[Any]:
    """The list of this name in an answer; empty where there is none."""
    value = body.get(name) if isinstance(body, dict) else None
    return value if isinstance(value, list) else []


def first_choice(body: Any) -> dict[str, Any]:
    """The first of the `choices` in an answer; empty where there is none."""
    choice = next(iter(list_field(body, "choices")), None)
    return choice if isinstance(choice, dict) else {}


def usage_count(body: Any, name: str) -> int | None:
    """A number of tokens that `usage` tells: `prompt_tokens` or `completion_tokens`; None where it does not."""
    usage = body.get("usage") if isinstance(body, dict) else None
    count = usage.get(name) if isinstance(usage, dict) else None
    return count if type(count) is int else None


def map_concurrently(
    work: Callable[[T, Wait], R],
    items: Sequence[T],
    at_once: int,
    progress: Progress | None = None,
) -> list[R]:
    """Apply `work` to each item, some at a time.

    Args:
        work: gets an item, and a way to wait that ends with the rest.
        items: in the order of the results.
        at_once: threads, at most.
        progress: is told how many are done.

    Raises:
        Exception: what `work` raises, at once; what is under way is left behind.
    """
    # Daemon threads and not a pool of `concurrent.futures`: a pool's threads are joined at exit, so that Ctrl-C would
    # wait for a server's answer, up to --timeout seconds (tests/generation/test_server.py interrupts one).
    is_over = threading.Event()
    todo: queue.SimpleQueue[tuple[int, T]] = queue.SimpleQueue()
    done: queue.SimpleQueue[tuple[int, Any, BaseException | None]] = queue.SimpleQueue()
    for pair in enumerate(items):
        todo.put(pair)

    def run_worker() -> None:
        while not is_over.is_set():
            try:
                i, item = todo.get_nowait()
            except queue.Empty:
                return
            try:
                done.put((i, work(item, is_over.wait), None))
            except BaseException as error:
                done.put((i, None, error))

    for _ in range(min(max(at_once, 1), len(items))):
        threading.Thread(target=run_worker, daemon=True).start()
    results: dict[int, R] = {}
    try:
        while len(results) < len(items):
            i, result, error = _wait_for_next_result(done)
            if error is not None:
                raise error
            results[i] = result
            if progress:
                progress(len(results), len(items))
    finally:
        is_over.set()
    return [results[i] for i in range(len(items))]


def _wait_for_next_result(done: queue.SimpleQueue[T]) -> T:
    """What comes first. In short waits: on Windows an endless one can't be interrupted."""
    while True:
        try:
            return done.get(timeout=RESULT_WAIT_S)
        except queue.Empty:
            continue


def _server_root_of_url(url: str) -> str:
    """The URL without /v1. Raises UsageError where it is none, or holds a secret that would end up in messages."""
    parts: SplitResult = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise UsageError(f"{url!r} is no URL of a server: expected one like http://localhost:8000")
    if parts.username is not None or parts.password is not None or parts.query:
        raise UsageError(
            f"the URL of {parts.hostname} holds a user, a password or a query: expected one like "
            f"http://localhost:8000, and a key in {API_KEY_VARIABLE}"
        )
    return url.rstrip("/").removesuffix("/v1")


def _send_once(url: str, content: Mapping[str, Any] | None, seconds: float) -> Reply:
    """Send one request, and return its reply. Raises NoReply."""
    data = None if content is None else json.dumps(content).encode()
    headers = {"Content-Type": "application/json", "Accept": "application/json"}
    request = Request(url, data, {**headers, **_authorization()})
    deadline = time.monotonic() + seconds
    try:
        try:
            response = _build_opener(urlsplit(url).hostname or "").open(request, timeout=seconds)
        except HTTPError as error:
            # urllib raises what has a status of 400 or more; it is an answer like any other.
            response = error
        with response:
            retry_after = _parse_retry_after(response.headers.get("Retry-After"))
            return Reply(response.status, _read_body(response, deadline), retry_after)
    except (URLError, HTTPException, OSError, ValueError) as error:
        reason = getattr(error, "reason", None) or error
        if isinstance(reason, TimeoutError):
            raise NoReply(f"{url}: no answer within {seconds:g} s", timed_out=True) from None
        why = str(reason) or type(reason).__name__
        raise NoReply(
            f"{url}: no answer ({why}); expected the URL of a running server, like"
            " http://localhost:8000",
            timed_out=False,
        ) from None


def _read_body(response: HTTPResponse, deadline: float) -> Any:
    """The JSON of an answer, else its text.

    Raises TimeoutError where it is not whole by the deadline, ValueError where it is too large or breaks off.
    """
    if 300 <= response.status < 400:
        return f"redirects to {response.headers.get('Location')}: name that URL"
    content = bytearray()
    # The timeout of a socket restarts with each byte: only a clock over the whole ends a server that trickles.
    while part := response.read1(READ_BYTES):
        content += part
        if len(content) > MAX_REPLY_BYTES:
            raise ValueError(f"more than {MAX_REPLY_BYTES >> 20} MB")
        if time.monotonic() > deadline:
            raise TimeoutError
    # `length` is what Content-Length promised less what came; http.client does not complain of the rest itself.
    if response.length:
        raise ValueError(f"it broke off after {len(content):,} bytes")
    try:
        return parse_json(bytes(content), REPLY)
    except ValueError:
        return content.decode("utf-8", "replace")


def _parse_retry_after(header: str | None) -> float | None:
    """Seconds that Retry-After names, as such or as a date (RFC 9110, 10.2.3); None where it names none."""
    if not header:
        return None
    if header.strip().isdecimal():
        return float(header)
    try:
        return max(0.0, parsedate_to_datetime(header).timestamp() - time.time())
    except (ValueError, OverflowError):
        return None


def _authorization() -> dict[str, str]:
    """The header with the user's key; none without a key. Raises UsageError for what no header may hold."""
    key = os.environ.get(API_KEY_VARIABLE, "").strip()
    # A line break in it (a file that was pasted) would let http.client raise with the key in its message.
    if not (key.isascii() and key.isprintable()):
        raise UsageError(
            f"{API_KEY_VARIABLE} holds characters that no key has: expected printable ASCII in one"
            " line"
        )
    return {"Authorization": f"Bearer {key}"} if key else {}


class _RefuseRedirects(HTTPRedirectHandler):
    """Gives a redirect back as it is: urllib would send the key along to another host."""

    def redirect_request(self, *_: Any) -> None:
        """Follow no redirect: the redirect itself is the reply."""
        return None


def _build_opener(host: str) -> OpenerDirector:
    """The opener for a host: it follows no redirect, and uses no proxy for this machine itself.
    Many users have http_proxy set, and no proxy reaches their localhost.
    """
    try:
        is_local = host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        is_local = False
    handlers = [_RefuseRedirects(), ProxyHandler({})] if is_local else [_RefuseRedirects()]
    return build_opener(*handlers)
