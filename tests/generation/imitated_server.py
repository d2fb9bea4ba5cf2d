"""Imitations of servers, for what no server that can be started here shows: log-probabilities in several forms, errors
and broken replies. The numbers are those of a real model."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import torch
from transformers import (
    LogitsProcessorList,
    MinPLogitsWarper,
    TemperatureLogitsWarper,
    TopPLogitsWarper,
)

Raw = tuple[int, dict[str, str], bytes]
"""Status, headers, body"""
Handle = Callable[[str, dict[str, Any], dict[str, str]], Any]
"""(path, JSON, headers) -> JSON, or Raw"""


def started(handle: Handle) -> str:
    """URL of a server that lives as long as this process."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            content = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            made = handle(self.path, json.loads(content or b"{}"), dict(self.headers))
            status, headers, body = (
                made if isinstance(made, tuple) else (200, {}, json.dumps(made).encode())
            )
            self.send_response(status)
            for name, value in {"Content-Length": str(len(body)), **headers}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        do_GET = do_POST  # noqa: N815

        def log_message(self, *_: Any) -> None:
            pass

    class Server(ThreadingHTTPServer):
        def handle_error(self, *_: Any) -> None:
            """Clients that hang up are no news."""

    running = Server(("127.0.0.1", 0), Handler)
    threading.Thread(target=running.serve_forever, daemon=True).start()
    return f"http://127.0.0.1:{running.server_address[1]}"


class Completions:
    """/v1/completions of a model, with log-probabilities.

    `heeds` are the fields that it heeds, of logprobs, echo, prompt_logprobs, return_token_ids,
    return_tokens_as_token_ids, temperature (else all is greedy), seed, top_p, min_p, and `ids` for prompts of ids.
    `asked` are the bodies of the requests. `shift`: its echo tells each token's log-probability
    behind itself, as llama-cpp-python's does where a prompt has no BOS.
    """

    def __init__(
        self, model: Any, tokenizer: Any, heeds: set[str], *, shift: bool = False, most: int = 20
    ) -> None:
        self.model, self.tokenizer, self.heeds, self.shift, self.most = (
            model,
            tokenizer,
            heeds,
            shift,
            most,
        )
        self.lock = threading.Lock()
        self.asked: list[dict[str, Any]] = []

    def __call__(self, path: str, body: dict[str, Any], _: dict[str, str]) -> Any:
        if path == "/v1/models":
            return {"data": [{"id": "small"}]}
        if path != "/v1/completions":
            return 404, {}, b'{"detail": "Not Found"}'
        self.asked.append(body)
        if isinstance(body["prompt"], list) and "ids" not in self.heeds:
            return 422, {}, b'{"detail": "prompt: a string was expected"}'
        if "logprobs" in self.heeds and body.get("logprobs", 0) > self.most:
            return 400, {}, b'{"error": {"message": "too many logprobs"}}'
        prompt = body["prompt"]
        ids = (
            prompt
            if isinstance(prompt, list)
            else self.tokenizer.encode(prompt, add_special_tokens=False)
        )
        with self.lock, torch.no_grad():
            return self.reply(
                ids,
                {key: value for key, value in body.items() if key in {*self.heeds, "max_tokens"}},
            )

    def reply(self, ids: list[int], body: dict[str, Any]) -> dict[str, Any]:
        whole = list(ids)
        said: list[Any] = []
        reason = "length"
        random = torch.Generator()
        random.manual_seed(body["seed"]) if "seed" in body else random.seed()
        while len(said) < body["max_tokens"]:
            said.append(choose(self.model(torch.tensor([whole])).logits[:, -1], body, random))
            whole.append(said[-1])
            if said[-1] == self.tokenizer.eos_token_id:
                reason = "stop"
                break
        logprobs = self.model(torch.tensor([whole])).logits[0].log_softmax(-1)
        choice: dict[str, Any] = {
            "text": self.tokenizer.decode(said, skip_special_tokens=True),
            "finish_reason": reason,
        }
        if "logprobs" in body:
            choice["logprobs"] = self.told(ids, said, logprobs, body)
        if "prompt_logprobs" in body:
            places = zip(ids[1:], logprobs, strict=False)
            choice["prompt_logprobs"] = [
                None,
                *({str(id): place_of(id, place)} for id, place in places),
            ]
        if "return_token_ids" in body:
            choice |= {"token_ids": said, "prompt_token_ids": ids}
        return {
            "choices": [choice],
            "usage": {"prompt_tokens": len(ids), "completion_tokens": len(said)},
        }

    def told(
        self, ids: list[int], said: list[int], logprobs: Any, body: dict[str, Any]
    ) -> dict[str, Any]:
        def name(id: int) -> str:
            return (
                f"token_id:{id}"
                if "return_tokens_as_token_ids" in body
                else str(self.tokenizer.decode([id]))
            )

        rows = [(id, logprobs[len(ids) + i - 1]) for i, id in enumerate(said)]
        if "echo" in body:
            places = enumerate(ids[1:], 1)
            rows = [(id, logprobs[i if self.shift else i - 1]) for i, id in places] + rows
        worth = [float(row[id]) for id, row in rows]
        tops = [
            {name(int(id)): float(row[id]) for id in row.topk(body["logprobs"]).indices}
            for _, row in rows
        ]
        first = [None] if "echo" in body else []
        return {
            "token_logprobs": [*first, *worth],
            "top_logprobs": [*first, *tops],
            "tokens": [name(id) for id in ([*ids, *said] if first else said)],
        }


def choose(scores: torch.Tensor, body: dict[str, Any], random: torch.Generator) -> int:
    """The next token, by the warpers of transformers."""
    if not body.get("temperature"):
        return int(scores.argmax())
    warp: Any = LogitsProcessorList(
        [
            TemperatureLogitsWarper(float(body["temperature"])),
            TopPLogitsWarper(body.get("top_p", 1.0)),
            MinPLogitsWarper(body.get("min_p", 0.0)),
        ]
    )
    shares = warp(torch.tensor([[0]]), scores).softmax(-1)
    return int(torch.multinomial(shares, 1, generator=random))


def place_of(id: int, logprobs: Any) -> dict[str, Any]:
    """As vLLM has it, whose ranks begin at 1."""
    return {"logprob": float(logprobs[id]), "rank": int((logprobs > logprobs[id]).sum()) + 1}
