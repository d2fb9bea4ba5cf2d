"""A server over some data, for the time of a test."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from truetune.demo import TOKENIZER
from truetune.settings.run_spec import RunSpec
from truetune.viewing.local_server import ViewServer
from truetune.viewing.view import start_view_server


@contextmanager
def serving(
    data: Path, result: dict[str, Any] | None = None, **settings: Any
) -> Iterator[ViewServer]:
    server = start_view_server(
        RunSpec(**{"data": (str(data),), "tokenizer": str(TOKENIZER), **settings}), result=result
    )
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
