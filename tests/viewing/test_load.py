"""Many clients at once, and slow ones."""

from __future__ import annotations

import http.client
import socket
import threading
import time
from collections import Counter

import pytest

from tests.viewing.conftest import serving
from truetune.demo import DATA
from truetune.viewing import server_connections
from truetune.viewing.server_connections import WORKERS


def test_two_hundred_requests_at_once_are_answered_by_a_few_threads() -> None:
    before = threading.active_count()
    with serving(DATA) as server:
        answers: list[int] = []

        def ask(number: int) -> None:
            while True:
                client = http.client.HTTPConnection(
                    "127.0.0.1", server.server_address[1], timeout=60
                )
                client.request("GET", f"/{server.token}/rows?start={number % 40}&count=2")
                response = client.getresponse()
                response.read()
                client.close()
                if response.status != 503:
                    return answers.append(response.status)
                time.sleep(float(response.headers["Retry-After"]))

        clients = [threading.Thread(target=ask, args=(number,)) for number in range(200)]
        for client in clients:
            client.start()
        ours = [
            thread for thread in threading.enumerate() if thread.name.startswith("truetune answers")
        ]
        for client in clients:
            client.join()
        assert len(ours) == WORKERS
        assert Counter(answers) == {200: 200}
    assert threading.active_count() <= before + WORKERS + 2


def test_slow_clients_hold_no_worker_and_are_let_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_connections, "HEAD_SECONDS", 1.0)
    with serving(DATA) as server:
        slow = [
            socket.create_connection(("127.0.0.1", server.server_address[1]), timeout=20)
            for _ in range(3 * WORKERS)
        ]
        for one in slow:
            one.sendall(b"GET /")
        client = http.client.HTTPConnection("127.0.0.1", server.server_address[1], timeout=20)
        client.request("GET", f"/{server.token}/")
        assert client.getresponse().status == 200
        for late in slow:
            assert late.recv(10) == b""
            late.close()


def test_a_server_with_too_much_to_do_says_when_to_come_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(server_connections, "MAX_CONNECTIONS", 0)
    with serving(DATA) as server:
        client = http.client.HTTPConnection("127.0.0.1", server.server_address[1], timeout=20)
        client.request("GET", f"/{server.token}/")
        response = client.getresponse()
        assert (response.status, response.headers["Retry-After"]) == (503, "2")
