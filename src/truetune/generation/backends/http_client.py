"""Questions to an OpenAI-compatible server over HTTP, with the standard library."""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from http.client import HTTPException
from ipaddress import ip_address
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit
from urllib.request import HTTPRedirectHandler, OpenerDirector, ProxyHandler, Request, build_opener

from truetune.errors import UsageError
from truetune.parsing.json_reader import parse_json
from truetune.parsing.limits import REPLY

API_KEY_VARIABLE = "OPENAI_API_KEY"
"""Environment variable of the key that is sent as a bearer token"""
CONNECT_TIMEOUT_S = 10.0
"""Seconds in which a server must answer at all"""
ANSWER_TIMEOUT_S = 120.0
"""Seconds for one answer; some servers load their model with the first"""
MAX_REPLY_BYTES = REPLY.max_bytes
"""Bytes of an answer that are read"""
TRANSIENT_STATUSES = frozenset({408, 429, 500, 502, 503, 504, 529})
"""Statuses that may be better next time"""
MAX_RETRY_AFTER_S = 60.0
"""Longest wait, in seconds, that a server may ask for"""


class NoReply(UsageError):
    """No HTTP answer came."""

    def __init__(self, message: str, *, late: bool) -> None:
        super().__init__(message)
        self.late = late
        """Time ran out."""


@dataclass(frozen=True, slots=True)
class Server:
    """A running server."""

    root: str
    """Its URL, without /v1"""
    model: str | None
    """The name to ask by; None where it has none to tell"""


@dataclass(frozen=True, slots=True)
class Reply:
    """What a server said."""

    status: int
    body: Any
    """JSON; a text where it is none"""
    after: float | None = None
    """Seconds that it wants to be left alone"""

    @property
    def refusal(self) -> str:
        """Its status and message, in one line, without tags and without our key."""
        body = self.body
        for name in ("error", "message", "detail"):
            body = body.get(name, body) if isinstance(body, dict) else body
        text = re.sub(r"<[^<>]*>", " ", body) if isinstance(body, str) else str(body)
        if self.status < 300 and isinstance(self.body, str):
            text = f"no JSON: {text}"
        key = os.environ.get(API_KEY_VARIABLE, "").strip()
        text = text.replace(key, "***") if len(key) >= 8 else text
        return f"{self.status} {' '.join(text.split())[:200]}".strip()


def find_server(url: str, model: str | None = None, *, option: str = "--served-model") -> Server:
    """`option` is how a user names one of several models. Raises UsageError where nothing answers at this URL."""
    if urlsplit(url).scheme not in ("http", "https") or not urlsplit(url).hostname:
        raise UsageError(f"{url!r} is no URL of a server: expected one like http://localhost:8000")
    parts = urlsplit(url)
    if parts.username is not None or parts.password is not None or parts.query:
        raise UsageError(
            f"the URL of {parts.hostname} holds a user, a password or a query: expected one like "
            f"http://localhost:8000, and a key in {API_KEY_VARIABLE}"
        )
    root = url.rstrip("/").removesuffix("/v1")
    reply = send_request(f"{root}/v1/models", None, CONNECT_TIMEOUT_S)
    if reply.status in (401, 403):
        raise UsageError(f"{url} wants a key ({reply.refusal}): set {API_KEY_VARIABLE}")
    names = [
        str(entry["id"])
        for entry in list_field(reply.body, "data")
        if isinstance(entry, dict) and entry.get("id")
    ]
    if model is None and len(names) > 1:
        raise UsageError(
            f"{url} serves {len(names)} models ({', '.join(names[:8])}): name one with {option}"
        )
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
    """GET, or POST of JSON; again after a while where the server is busy, fails or hangs up, `tries` times in all.
    `passing` are the statuses that may be better next time.

    Redirects are not followed: the key is for the server that was named. Raises Unanswered where no HTTP answer comes.
    """
    for left in reversed(range(tries)):
        pause = 0.5 * 2.0 ** (tries - 1 - left)
        try:
            reply = _send_once(url, content, seconds)
        except NoReply as error:
            if not left or error.late:
                raise
        else:
            pause = pause if reply.after is None else reply.after
            if not left or reply.status not in passing or pause > MAX_RETRY_AFTER_S:
                return reply
        wait(pause)
    raise ValueError(f"tries={tries}")


def list_field(body: Any, name: str) -> list[Any]:
    """The list of this name in an answer; empty where there is none."""
    found = body.get(name) if isinstance(body, dict) else None
    return found if isinstance(found, list) else []


def _send_once(url: str, content: Mapping[str, Any] | None, seconds: float) -> Reply:
    data = None if content is None else json.dumps(content).encode()
    request = Request(
        url,
        data,
        {"Content-Type": "application/json", "Accept": "application/json", **_authorization()},
    )
    until = time.monotonic() + seconds
    try:
        try:
            reply = _build_opener(urlsplit(url).hostname or "").open(request, timeout=seconds)
        except HTTPError as error:
            reply = error
        with reply:
            return Reply(
                reply.status,
                _read_body(reply, until),
                _parse_retry_after(reply.headers.get("Retry-After")),
            )
    except (URLError, HTTPException, OSError, ValueError) as error:
        reason = getattr(error, "reason", None) or error
        if isinstance(reason, TimeoutError):
            raise NoReply(f"{url}: no answer within {seconds:g} s", late=True) from None
        why = str(reason) or type(reason).__name__
        raise NoReply(
            f"{url}: no answer ({why}); expected the URL of a running server, like"
            " http://localhost:8000",
            late=False,
        ) from None


def _read_body(reply: Any, until: float) -> Any:
    if 300 <= reply.status < 400:
        return f"redirects to {reply.headers.get('Location')}: name that URL"
    read = bytearray()
    while part := reply.read1(1 << 16):
        read += part
        if len(read) > MAX_REPLY_BYTES:
            raise ValueError(f"more than {MAX_REPLY_BYTES >> 20} MB")
        if time.monotonic() > until:
            raise TimeoutError
    if reply.length:
        raise ValueError(f"it broke off after {len(read):,} bytes")
    try:
        return parse_json(bytes(read), REPLY)
    except ValueError:
        return read.decode("utf-8", "replace")


def _parse_retry_after(header: str | None) -> float | None:
    """Retry-After: seconds, or a date (RFC 9110, 10.2.3)."""
    if not header:
        return None
    if header.strip().isdecimal():
        return float(header)
    try:
        return max(0.0, parsedate_to_datetime(header).timestamp() - time.time())
    except (ValueError, OverflowError):
        return None


def _authorization() -> dict[str, str]:
    key = os.environ.get(API_KEY_VARIABLE, "").strip()
    if not (key.isascii() and key.isprintable()):
        raise UsageError(
            f"{API_KEY_VARIABLE} holds characters that no key has: expected printable ASCII in one line"
        )
    return {"Authorization": f"Bearer {key}"} if key else {}


class _RefuseRedirects(HTTPRedirectHandler):
    def redirect_request(self, *_: Any) -> None:
        return None


def _build_opener(host: str) -> OpenerDirector:
    """Without a proxy to this machine itself."""
    try:
        near = host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        near = False
    return build_opener(_RefuseRedirects, *([ProxyHandler({})] if near else []))
