"""The server answers this machine, its own address and reading alone; whatever stands in the data, it answers."""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.report.conftest import HOSTILE
from tests.viewing.conftest import serving
from truetune.demo import BROKEN, DATA, TOKENIZER
from truetune.viewing.local_server import ALLOWED_HOST, ViewServer
from truetune.viewing.row_service import MAX_ROWS

HOSTS = ("127.0.0.1", "localhost:9000", "LOCALHOST", "[::1]:1", "127.0.0.1:65535")
OTHERS = (
    "",
    "evil.example",
    "evil.example:80",
    "127.0.0.1.evil.example",
    "localhost.",
    "0.0.0.0",
    "127.0.0.1:",
    "a@localhost",
)


@pytest.fixture(scope="module")
def server() -> Iterator[ViewServer]:
    with serving(DATA) as found:
        yield found


def asked(
    server: ViewServer,
    path: str,
    *,
    method: str = "GET",
    host: str | None = None,
    body: bytes | None = None,
) -> http.client.HTTPResponse:
    connection = http.client.HTTPConnection("127.0.0.1", server.server_address[1], timeout=20)
    connection.putrequest(method, path, skip_host=True)
    connection.putheader("Host", "127.0.0.1" if host is None else host)
    if body is not None:
        connection.putheader("Content-Length", str(len(body)))
    connection.endheaders(body)
    return connection.getresponse()


def answer(server: ViewServer, path: str) -> dict[str, Any]:
    response = asked(server, f"/{server.token}/{path}")
    assert response.status == 200, response.read()
    found: dict[str, Any] = json.loads(response.read())
    return found


def next_faulty(server: ViewServer, start: int) -> int | None:
    """The next row that is not as it should be. A step of the search ends after some time, and the page asks again."""
    while True:
        step = answer(server, f"search?kind=error&start={start}")
        if step["done"]:
            found: int | None = step["row"]
            return found
        start = step["scanned"]


def status(server: ViewServer, path: str, **more: Any) -> int:
    return asked(server, path, **more).status


def test_it_listens_on_the_loopback_interface_alone(server: ViewServer) -> None:
    assert server.server_address[0] == "127.0.0.1"
    assert server.url.startswith("http://127.0.0.1:")
    assert len(server.token) >= 32


def test_only_the_token_opens_it(server: ViewServer) -> None:
    token = server.token
    assert status(server, f"/{token}/") == 200
    for path in (
        "/",
        "/rows",
        f"/{token}",
        f"/{token[:-1]}/",
        f"/{token}x/",
        f"/{token.swapcase()}/",
        f"/x/../{token}/",
        f"/%2e%2e/{token}/",
        "/%C3%A9/",
        "http://127.0.0.1/",
        f"/?{token}/",
        f"/#{token}/",
        "*",
    ):
        assert status(server, path) == 404, path
    assert {status(server, f"/{token[:n]}/") for n in range(0, len(token), 7)} == {404}


def test_only_names_of_this_machine(server: ViewServer) -> None:
    path = f"/{server.token}/"
    assert [status(server, path, host=host) for host in HOSTS] == [200] * len(HOSTS)
    assert {status(server, path, host=host) for host in OTHERS} == {403}
    assert not any(ALLOWED_HOST.fullmatch(host) for host in OTHERS)


def test_no_file_is_served(server: ViewServer) -> None:
    for name in (
        "etc/passwd",
        "../../etc/passwd",
        "..%2f..%2fetc%2fpasswd",
        str(DATA),
        "rows/",
        "rows/x",
        "page",
        "%00",
        "data",
        "favicon.ico",
        "search/",
    ):
        assert status(server, f"/{server.token}/{name}") == 404, name


@pytest.mark.parametrize(
    "method",
    ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "CONNECT", "PROPFIND", "__getattr__"],
)
def test_there_is_nothing_to_write(server: ViewServer, method: str) -> None:
    response = asked(server, f"/{server.token}/rows", method=method, body=b"{}")
    assert response.status == 405
    assert response.getheader("Allow") == "GET, HEAD"


def test_requests_with_a_body_or_without_sense(server: ViewServer) -> None:
    assert status(server, f"/{server.token}/rows", body=b"x=1") == 400
    for sent in (
        b"\r\n\r\n",
        b"GET\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"\xff\xfe / HTTP/1.1\r\n\r\n",
        b"G" * 70_000 + b"\r\n",
    ):
        with socket.create_connection(("127.0.0.1", server.server_address[1]), timeout=5) as raw:
            raw.sendall(sent)
            raw.shutdown(socket.SHUT_WR)
            said = raw.makefile("rb").read(300)
        assert b" 200 " not in said.split(b"\r\n")[0]
        assert b"Traceback" not in said
    assert status(server, f"/{server.token}/") == 200


def test_headers_keep_the_page_to_itself(server: ViewServer) -> None:
    for path in ("", "rows?start=0&count=1"):
        response = asked(server, f"/{server.token}/{path}")
        assert response.getheader("X-Content-Type-Options") == "nosniff"
        assert response.getheader("Cache-Control") == "no-store"
        assert response.getheader("Referrer-Policy") == "no-referrer"
        assert response.getheader("X-Frame-Options") == "DENY"
        assert "frame-ancestors 'none'" in str(response.getheader("Content-Security-Policy"))
        assert response.getheader("Access-Control-Allow-Origin") is None
        assert "Python" not in str(response.getheader("Server"))
        response.read()
    page = asked(server, f"/{server.token}/").read().decode()
    policy = page.partition('http-equiv="Content-Security-Policy" content="')[2].partition('"')[0]
    assert "default-src &#39;none&#39;" in policy
    assert "connect-src &#39;self&#39;" in policy
    assert server.token not in page


def test_head_has_no_body(server: ViewServer) -> None:
    response = asked(server, f"/{server.token}/rows?start=0&count=1", method="HEAD")
    assert int(str(response.getheader("Content-Length"))) > 100
    assert response.read() == b""


@pytest.mark.parametrize(
    "query",
    [
        "start=-1&count=1",
        "start=a&count=1",
        "start=1e3&count=1",
        "start=0&count=65",
        "start=0&count=99999999999999999999",
        "start=99999999999999999999&count=1",
        "start=0&count=-1",
        "start=%D9%A3&count=1",
        "start=0x1&count=1",
        "start=0&count=+1",
        "&".join(["a=1"] * 20),
    ],
)
def test_numbers_have_bounds(server: ViewServer, query: str) -> None:
    assert status(server, f"/{server.token}/rows?{query}") == 400


def test_rows_by_number(server: ViewServer) -> None:
    state = answer(server, "rows?start=0&count=0")
    total = state["total"]
    assert state["rows"] == []
    assert total == len(DATA.read_text().splitlines()) == state["indexed"]
    assert [row["row"] for row in answer(server, f"rows?start=3&count={MAX_ROWS}")["rows"]][:3] == [
        3,
        4,
        5,
    ]
    assert [row["row"] for row in answer(server, f"rows?start={total - 1}&count=9")["rows"]] == [
        total - 1
    ]
    assert answer(server, f"rows?start={1 << 53}&count=9")["rows"] == []
    assert answer(server, "rows?start=4&count=2") == answer(server, "rows?start=4&count=2")


def test_search_goes_on_from_where_it_was(server: ViewServer) -> None:
    texts = DATA.read_text().splitlines()
    wanted = [i for i, text in enumerate(texts) if "thursday" in text.lower()]
    found, start = [], 0
    while True:
        step = answer(server, f"search?q=tHURSDAY&start={start}")
        start = step["scanned"]
        found += [step["row"]] if step["row"] is not None else []
        if step["row"] is None and step["done"]:
            break
    assert found == wanted
    assert status(server, f"/{server.token}/search?q=&start=0") == 400
    assert status(server, f"/{server.token}/search?q={'x' * 1001}&start=0") == 400


def test_the_next_row_that_is_not_as_it_should_be(tmp_path: Path) -> None:
    good = {"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]}
    lines = [json.dumps(good)] * 9
    lines[2], lines[5] = (
        "broken",
        json.dumps({"messages": [{"role": "user", "content": "no answer"}]}),
    )
    (tmp_path / "a.jsonl").write_text("\n".join(lines))
    with serving(tmp_path / "a.jsonl") as server:
        assert [next_faulty(server, start) for start in (0, 3, 6)] == [2, 5, None]
        rows = answer(server, "rows?start=0&count=9")["rows"]
        assert [row["row"] for row in rows] == list(range(9))
        assert "not JSON" in rows[2]["error"]
        assert rows[3]["ids"]


def test_hostile_rows_are_answered(tmp_path: Path) -> None:
    path = tmp_path / "<b>&\x1b[31m.jsonl"
    rows: list[dict[str, Any]] = [
        {
            "messages": [{"role": role, "content": text}, {"role": "assistant", "content": text}],
            text: text,
        }
        for text in HOSTILE
        for role in ("user", text)
    ]
    rows += [{"messages": 3}, {"messages": [[[]]]}, {"messages": [{"role": "user"}]}, {"other": 1}]
    text = (
        "".join(json.dumps(row) + "\n" for row in rows)
        + "[" * 5000
        + "\n\x00\n"
        + '{"messages": '
        + "[" * 90_000
    )
    path.write_text(text)
    with serving(path) as server:
        found, start = [], 0
        while rows := answer(server, f"rows?start={start}&count={MAX_ROWS}")["rows"]:
            found += rows
            start = rows[-1]["row"] + 1
        assert sorted({row["row"] for row in found}) == list(range(len(text.splitlines())))
        assert all(row.get("error") or row["ids"] for row in found)
        assert b"<b>&\x1b" not in asked(server, f"/{server.token}/").read()


def test_a_file_that_changes_is_said_and_read_anew_with_the_page(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    line = json.dumps({"text": "one"}) + "\n"
    path.write_text(line)
    with serving(path) as server:
        assert answer(server, "rows?start=0&count=1")["rows"][0]["ids"]
        path.write_text(line * 3)
        changed = answer(server, "rows?start=0&count=1")
        assert "changed since" in changed["rows"][0]["error"]
        assert "changed since" in changed["notice"]
        assert status(server, f"/{server.token}/") == 200
        assert len(answer(server, "rows?start=0&count=9")["rows"]) == 3
        path.unlink()
        assert status(server, f"/{server.token}/") == 503
        assert "changed since" in answer(server, "rows?start=0&count=1")["rows"][0]["error"]


def test_ctrl_c_ends_it(tmp_path: Path) -> None:
    code = (
        "import sys; from truetune.cli.view_rows_in_browser_command import view; "
        f"sys.exit(view.main([{str(BROKEN)!r}, '-t', {str(TOKENIZER)!r}], standalone_mode=False))"
    )
    process = subprocess.Popen(
        [sys.executable, "-u", "-c", code],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=tmp_path,
        env=os.environ.copy(),
    )
    assert process.stdout is not None
    assert process.stdout.readline().startswith("http://127.0.0.1:")
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=20)
    assert (process.returncode, out, err) == (0, "", "")
