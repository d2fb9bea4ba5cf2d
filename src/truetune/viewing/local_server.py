"""A small local server for one page and its rows, for this machine alone.

It listens on the loopback interface, and answers only where the path begins with a random token and the Host header
names the loopback: another site that a browser visits knows no token, and a name that it bends to this machine is
no name of it. It reads and never writes; there is no file that it serves.
"""

from __future__ import annotations

import io
import json
import re
import secrets
import socket
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any
from urllib.parse import parse_qs

from truetune.errors import TruetuneError, UsageError
from truetune.report.visible_text import escape_invisible_characters
from truetune.viewing.filter_and_sort_rows import MAX_TOKENS, SORTS, RowFilter
from truetune.viewing.row_service import MAX_ROWS, RowService
from truetune.viewing.server_connections import Connections
from truetune.viewing.token_counts_of_rows import KIND_LABELS

LOOPBACK = "127.0.0.1"
ALLOWED_HOST = re.compile(r"(127\.0\.0\.1|localhost|\[::1\])(:\d{1,5})?", re.IGNORECASE)
"""What a request may call this machine, with any port: a tunnel (ssh -L) has its own"""
MAX_ROW_NUMBER = 1 << 53
"""Numbers of rows stay below: JavaScript knows no larger ones"""
MAX_QUERY_CHARACTERS = 1000
"""Characters of a text that is searched"""
HEADERS = {
    "Cache-Control": "no-store",
    "Connection": "close",
    "Content-Security-Policy": "frame-ancestors 'none'",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}


class RequestRefused(Exception):
    """A request that gets no answer: a status and one line of text."""

    def __init__(self, status: int, why: str) -> None:
        super().__init__(why)
        self.status = status


class ViewServer(HTTPServer):
    """Serves the page and its answers at `url` until it is shut down."""

    request_queue_size = 512
    """Connections that the system holds until they are accepted"""
    allow_reuse_address = False

    def __init__(self, page: str, row_service: RowService, port: int = 0) -> None:
        """Port 0: one that is free. Raises UsageError where the port is taken."""
        self.page = page.encode()
        self.row_service = row_service
        self.token = secrets.token_urlsafe(24)
        # They begin before the port is taken, and are closed by `server_close`, which the base
        # class calls where it is taken.
        self.connections = Connections(self._answer_connection)
        try:
            # The loopback and no other address: the data may be private, and a page on the
            # network could be read by all.
            super().__init__((LOOPBACK, port), BaseHTTPRequestHandler)
        except OSError as error:
            raise UsageError(
                f"--port {port}: {error.strerror}; choose another, or leave it out"
            ) from None

    def _answer_connection(self, connection: socket.socket, address: Any, head: bytes) -> None:
        """Answer one connection, in a worker."""
        RequestHandler(connection, address, self, head)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Pass an accepted connection to the workers; called in the thread that accepts."""
        self.connections.add(request, client_address)

    def server_close(self) -> None:
        """Close the server and the row service: see `RowService.close`."""
        super().server_close()
        self.connections.close()
        self.row_service.close()

    @property
    def url(self) -> str:
        """The address of the page, with its random token."""
        return f"http://{LOOPBACK}:{self.server_address[1]}/{self.token}/"


class RequestHandler(BaseHTTPRequestHandler):
    """Answers GET and HEAD of the page, and of what ROUTES names."""

    server: ViewServer
    protocol_version = "HTTP/1.1"
    server_version, sys_version = "truetune", ""
    timeout = 20
    """Seconds in which a client has to take its answer"""

    def __init__(
        self, connection: socket.socket, address: Any, server: ViewServer, head: bytes
    ) -> None:
        """`head`: the request, which has been read."""
        self._head = head
        super().__init__(connection, address, server)

    def setup(self) -> None:
        """Prepare one connection for its request."""
        super().setup()
        self.rfile.close()
        # The head was read without blocking by `server_connections`; the base class parses it as if it
        # came from the socket.
        self.rfile = io.BytesIO(self._head)

    def handle(self) -> None:
        """Answer one request of each connection, so that no idle one holds a worker."""
        self.handle_one_request()

    def do_GET(self) -> None:
        """Answer a GET request."""
        self._send_answer_or_error(body=True)

    def do_HEAD(self) -> None:
        """Answer a HEAD request, without the body."""
        self._send_answer_or_error(body=False)

    def __getattr__(self, name: str) -> Any:
        # Every other method gets an answer; the base class would answer with a page of its own,
        # without our headers.
        if name.startswith("do_"):
            return self._refuse_method
        raise AttributeError(name)

    def _refuse_method(self) -> None:
        """Answer that only GET and HEAD are allowed."""
        self.close_connection = True
        self._send(405, "text/plain", b"only GET and HEAD\n", {"Allow": "GET, HEAD"})

    def _send_answer_or_error(self, *, body: bool) -> None:
        """Send the answer to the request, or the error as its status."""
        try:
            kind, content = self._find_answer()
        except RequestRefused as refused:
            self._send(refused.status, "text/plain", f"{refused}\n".encode(), body=body)
        # The data was changed or can't be read: it may be whole again later, so the status is
        # 503.
        except TruetuneError as error:
            self._send(
                503,
                "text/plain",
                f"{escape_invisible_characters(str(error))}\n".encode(),
                body=body,
            )
        except Exception as error:
            why = f"this is a bug of truetune, please report it: {error!r}\n"
            self._send(500, "text/plain", why.encode("utf-8", "backslashreplace"), body=body)
        else:
            self._send(200, kind, content, body=body)

    def _find_answer(self) -> tuple[str, bytes]:
        """(content type, bytes) of the answer. Raises RequestRefused."""
        # A site may let its own name point to this machine (DNS rebinding): its name in the
        # Host header gives it away.
        if not ALLOWED_HOST.fullmatch(self.headers.get("Host", "")):
            raise RequestRefused(403, "this server is for this machine alone")
        # A body would be read as the next request.
        if self.headers.get("Content-Length", "0") != "0" or "Transfer-Encoding" in self.headers:
            raise RequestRefused(400, "a request without a body is expected")
        path, _, query = self.path.partition("?")
        top, slash, name = path.removeprefix("/").partition("/")
        # In constant time, so that the token can't be guessed letter by letter from how long
        # the answer takes.
        known = secrets.compare_digest(
            top.encode("utf-8", "surrogateescape"), self.server.token.encode()
        )
        if not (known and slash):
            raise RequestRefused(404, "nothing is here")
        if name == "":
            # Loading the page again is how a user asks for a file that was changed.
            self.server.row_service.reload_if_changed()
            return "text/html", self.server.page
        if name not in ROUTES:
            raise RequestRefused(404, "nothing is here")
        return (
            "application/json",
            json.dumps(ROUTES[name](self.server.row_service, _parse_query(query))).encode(),
        )

    def _send(
        self,
        status: int,
        kind: str,
        content: bytes,
        more: Mapping[str, str] | None = None,
        *,
        body: bool = True,
    ) -> None:
        """Send a status, headers and content."""
        self.send_response(status)
        for header, value in {**HEADERS, **(more or {})}.items():
            self.send_header(header, value)
        self.send_header("Content-Type", f"{kind}; charset=utf-8")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if body:
            self.wfile.write(content)

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Send what the standard library refuses by itself, without its page."""
        self.close_connection = True
        self._send(code, "text/plain", b"this request is not answered here\n")

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing: the path holds the token."""


def _answer_rows(row_service: RowService, parameters: Mapping[str, str]) -> dict[str, Any]:
    """Answer `rows?start=K&count=N`; raises RequestRefused."""
    start, count = (
        _parse_number(parameters, "start", MAX_ROW_NUMBER),
        _parse_number(parameters, "count", MAX_ROWS),
    )
    return row_service.rows(start, count)


def _answer_search(row_service: RowService, parameters: Mapping[str, str]) -> dict[str, Any]:
    """Answer `search?q=TEXT&start=K` or `search?kind=error&start=K`; raises RequestRefused."""
    start = _parse_number(parameters, "start", MAX_ROW_NUMBER)
    if parameters.get("kind") == "error":
        return row_service.faulty(start)
    if not 0 < len(parameters.get("q", "")) <= MAX_QUERY_CHARACTERS:
        raise RequestRefused(400, f"q: expected a text of 1 to {MAX_QUERY_CHARACTERS} characters")
    return row_service.search(parameters["q"], start)


def _answer_totals(row_service: RowService, parameters: Mapping[str, str]) -> dict[str, Any]:
    """Answer `totals`."""
    return row_service.totals()


def _answer_select(row_service: RowService, parameters: Mapping[str, str]) -> dict[str, Any]:
    """Answer `select?finding=...&role=...&min_tokens=N&...`, by the fields of RowFilter; raises
    RequestRefused.
    """
    role, sort = parameters.get("role", ""), parameters.get("sort", SORTS[0])
    if sort not in SORTS or role not in ("", *KIND_LABELS):
        raise RequestRefused(400, "role and sort: no such name")
    row_filter = RowFilter(
        finding=parameters.get("finding", ""),
        role=role,
        file=parameters.get("file", ""),
        min_tokens=_parse_number(parameters, "min_tokens", MAX_TOKENS),
        max_tokens=_parse_number(parameters, "max_tokens", MAX_TOKENS, missing=MAX_TOKENS),
        min_supervised=_parse_number(parameters, "min_supervised", 100),
        max_supervised=_parse_number(parameters, "max_supervised", 100, missing=100),
        sort=sort,
    )
    try:
        return row_service.select(row_filter)
    except KeyError as error:
        raise RequestRefused(
            404, f"{escape_invisible_characters(str(error))}: no such finding or file"
        ) from None


ROUTES: dict[str, Callable[[RowService, Mapping[str, str]], dict[str, Any]]] = {
    "rows": _answer_rows,
    "search": _answer_search,
    "select": _answer_select,
    "totals": _answer_totals,
}


def _parse_query(query: str) -> dict[str, str]:
    """The parameters of a query, each once."""
    try:
        # At most 8 fields, as many as anybody needs: more only cost time.
        return {name: values[-1] for name, values in parse_qs(query, max_num_fields=8).items()}
    except ValueError:
        raise RequestRefused(400, "too many parameters") from None


def _parse_number(parameters: Mapping[str, str], name: str, most: int, *, missing: int = 0) -> int:
    """A parameter from 0 to `most`, `missing` where it is not there; raises RequestRefused."""
    text = parameters.get(name, str(missing))
    # int() takes "٣", "1_000" and " 7" as well; a number of JavaScript has 16 digits at most.
    if not (text.isascii() and text.isdecimal() and len(text) <= 16 and int(text) <= most):
        raise RequestRefused(400, f"{name}: expected a number from 0 to {most}")
    return int(text)
