"""Small HTTP servers that make prompts with a transformers tokenizer, by the routes of vLLM or llama.cpp."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Routes = dict[str, Callable[[dict[str, Any]], Any]]


def served(routes: Routes) -> str:
    """URL of a server that lives as long as this process; other paths are 404."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            content = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            route = routes.get(self.path)
            answer = json.dumps(
                route(json.loads(content or b"{}")) if route else {"error": "no such path"}
            ).encode()
            self.send_response(200 if route else 404)
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        do_GET = do_POST  # noqa: N815

        def log_message(self, *_: Any) -> None:
            pass

    running = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=running.serve_forever, daemon=True).start()
    return f"http://127.0.0.1:{running.server_address[1]}"


def server(tokenizer: Any, chat_template: str, **routes: Any) -> str:
    """As vLLM's: /tokenize takes messages."""

    def tokenize(asked: dict[str, Any]) -> dict[str, Any]:
        ids = tokenizer.apply_chat_template(
            asked["messages"], chat_template=chat_template, add_generation_prompt=asked["add_generation_prompt"],
            return_dict=False,
        )  # fmt: skip
        return {"tokens": ids, "count": len(ids)}

    return served(
        {"/tokenize": tokenize, "/v1/models": lambda _: {"data": [{"id": "small"}]}, **routes}
    )
