"""A server with OpenAI's routes: chats that it renders itself, or prompts that it completes."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from truetune.errors import UsageError
from truetune.generation.answer_samples import Answer, Prompt
from truetune.generation.backends.backend import Backend, Decoding, Ids, Progress, ScoredIds
from truetune.generation.backends.chat_reply import UNKNOWN_STOP, ChatReply, ReplyReader
from truetune.generation.backends.crew import Wait, map_concurrently
from truetune.generation.backends.doubts import answer_notes, field_notes, prompt_notes
from truetune.generation.backends.http_client import (
    NoReply,
    Reply,
    Server,
    find_server,
    send_request,
)
from truetune.generation.backends.logprob_client import LogprobClient
from truetune.generation.backends.model_source import ModelSource
from truetune.generation.backends.next_token import reference_before_stop
from truetune.generation.backends.open_backend import Options
from truetune.generation.backends.request_fields import (
    FieldSupport,
    body_sender,
    probe_sampling,
    probe_template_variables,
    try_fields,
)
from truetune.generation.backends.server_prompt_ids import chat_request
from truetune.render.tokenizer import Tokenizer

ROUTES = {"chat": "/v1/chat/completions", "completions": "/v1/completions"}
TRIES = 4
"""Times that one prompt is sent, where the server is busy or fails"""
MORE_TIME = "; --timeout gives it more, --concurrency sends fewer at a time"
OPTIONAL: dict[str, dict[str, dict[str, Any]]] = {
    "chat": {
        "logprobs": {"logprobs": True, "top_logprobs": 1},
        "return_token_ids": {"return_token_ids": True},
    },
    "completions": {"logprobs": {"logprobs": 1}, "return_token_ids": {"return_token_ids": True}},
}


def opened(place: ModelSource, options: Options, tokenizer: Tokenizer) -> Backend:
    """Raises UsageError where nothing answers at the URL, or one of several models must be named."""
    if options.route not in ROUTES:
        raise UsageError(f"--route {options.route}: expected one of {', '.join(ROUTES)}")
    return Served(
        place.name,
        find_server(place.name, options.served_model, option="--served-model"),
        options,
        tokenizer,
    )


class Served(Backend):
    """Sends some prompts at a time. No stop strings are sent: an answer ends where the server ends it."""

    kind = "server"

    def __init__(self, name: str, server: Server, options: Options, tokenizer: Tokenizer) -> None:
        super().__init__(name)
        self.server, self.options, self.tokenizer = server, options, tokenizer
        self.reader = ReplyReader(tokenizer)
        self.teller = LogprobClient(server, tokenizer, options.timeout)
        self.fields: dict[str, list[FieldSupport]] = {}
        """By route, what the server did with the fields that it was tried with"""

    def answers(
        self, prompts: Sequence[Prompt], decoding: Decoding, progress: Progress | None = None
    ) -> list[Answer | None]:
        if not prompts:
            return []
        routes = [self._route(prompt) for prompt in prompts]
        if self.options.route == "chat" and "completions" in routes:
            self._note(
                f"{routes.count('completions')} prompts are no chats: they went to"
                f" {ROUTES['completions']}"
            )
        extras = {
            route: self._tried(route, min(of, key=lambda prompt: len(prompt.ids)), decoding)
            for route in dict.fromkeys(routes)
            if (of := [prompt for prompt, its in zip(prompts, routes, strict=True) if its == route])
        }

        def ask(pair: tuple[Prompt, str], wait: Wait) -> ChatReply | str:
            prompt, route = pair
            body = {**self._body(prompt, route, decoding), **extras[route]}
            try:
                reply = send_request(
                    self._url(route), body, self.options.timeout, tries=TRIES, wait=wait
                )
            except NoReply as error:
                return f"{error}{MORE_TIME if error.late else ''}"
            if reply.status != 200:
                return reply.refusal
            return self.reader.read(reply.body, prompt, decoding.stops, decoding.max_new_tokens)

        said = map_concurrently(
            ask, list(zip(prompts, routes, strict=True)), self.options.concurrency, progress
        )
        self._tell(prompts, said, decoding)
        answers = [one.answer if isinstance(one, ChatReply) else None for one in said]
        return self._with_stopping(prompts, answers, decoding.stops)

    def score(
        self,
        sequences: Sequence[Ids],
        stops: frozenset[int] = frozenset(),
        progress: Progress | None = None,
    ) -> list[ScoredIds] | None:
        scored = self._told(self.teller.score, sequences, progress)
        return None if scored is None else [ScoredIds(one.logprobs) for one in scored]

    def likeliest(self, prefixes: Sequence[Ids], count: int) -> list[dict[int, float]] | None:
        return self._told(lambda ids, wait: self.teller.likeliest(ids, count, wait), prefixes)

    def _told(
        self, ask: Any, items: Sequence[Ids], progress: Progress | None = None
    ) -> list[Any] | None:
        """What the server tells of each; None, and a note, where it can't tell all."""
        try:
            self.teller.prepare(items, time.sleep)
            found = map_concurrently(ask, items, self.options.concurrency, progress)
        except NoReply as error:
            self._note(str(error))
            return None
        for why in dict.fromkeys(self.teller.why):
            self._note(why)
        return None if any(one is None for one in found) else found

    def _with_stopping(
        self, prompts: Sequence[Prompt], answers: list[Answer | None], stops: frozenset[int]
    ) -> list[Answer | None]:
        taught = [
            i
            for i, prompt in enumerate(prompts)
            if prompt.reference_ids and answers[i] is not None and stops
        ]
        prefixes = [[*prompts[i].ids, *reference_before_stop(prompts[i], stops)] for i in taught]
        if not taught:
            return answers
        for i, (chance, rank) in zip(taught, self._stopping(prefixes, sorted(stops)), strict=True):
            answers[i] = replace(answers[i], stop_probability=chance, stop_rank=rank)  # type: ignore[type-var]
        return answers

    def _stopping(
        self, prefixes: list[list[int]], stops: list[int]
    ) -> list[tuple[float | None, int | None]]:
        found = self._told(lambda ids, wait: self.teller.stopping(ids, stops, wait), prefixes)
        return found or [(None, None)] * len(prefixes)

    def _route(self, prompt: Prompt) -> str:
        return "chat" if self.options.route == "chat" and prompt.chat is not None else "completions"

    def _url(self, route: str) -> str:
        return self.server.root + ROUTES[route]

    def _body(self, prompt: Prompt, route: str, decoding: Decoding) -> dict[str, Any]:
        body: dict[str, Any] = {
            "temperature": decoding.temperature,
            self.limit: decoding.max_new_tokens,
        }
        body |= {"top_p": decoding.top_p, "seed": decoding.seed} if decoding.temperature > 0 else {}
        if route == "chat":
            assert prompt.chat is not None
            chat = prompt.chat
            return (
                chat_request(
                    self.server,
                    {"messages": chat.messages, "tools": chat.tools, "settings": chat.settings},
                )
                | body
            )
        return {**self.teller.named, "prompt": self.teller.written(prompt.ids, prompt.text), **body}

    limit = "max_tokens"

    def _tried(self, route: str, prompt: Prompt, decoding: Decoding) -> dict[str, Any]:
        """The optional fields that the server heeds; a note of each that it does not. Raises UsageError where it
        refuses even the plain request."""
        url = self._url(route)
        short = replace(decoding, max_new_tokens=min(2, decoding.max_new_tokens))
        ask = body_sender(url, self.options.timeout)
        reply, seen = try_fields(ask, self._body(prompt, route, short), OPTIONAL[route])
        if reply.status == 400 and "max_completion_tokens" in reply.refusal:
            self.limit = "max_completion_tokens"
            reply, seen = try_fields(ask, self._body(prompt, route, short), OPTIONAL[route])
        if reply.status != 200:
            raise UsageError(f"{url}: {reply.refusal}{self._advice(reply)}")
        if decoding.temperature > 0:
            greedy = {**self._body(prompt, route, short), "temperature": 0}
            seen += [
                one
                for one in probe_sampling(ask, greedy, ask(greedy))
                if one.name != "top_p" or decoding.top_p < 1
            ]
        if route == "chat" and prompt.chat and prompt.chat.settings:
            seen += probe_template_variables(ask, self._body(prompt, route, short), len(prompt.ids))
        self.fields[route] = seen
        for note in field_notes(seen):
            self._note(note)
        kept = [
            OPTIONAL[route][one.name]
            for one in seen
            if one.verdict == "kept" and one.name in OPTIONAL[route]
        ]
        return {key: value for fields in kept for key, value in fields.items()}

    def _advice(self, reply: Reply) -> str:
        if self.server.model is None and not self.options.served_model:
            return "; it tells no name of its model: give one with --served-model"
        return (
            f"; it was asked for the model {self.server.model!r}"
            if reply.status in (400, 404, 500)
            else ""
        )

    def _tell(
        self, prompts: Sequence[Prompt], said: Sequence[ChatReply | str], decoding: Decoding
    ) -> None:
        """The notes on all answers. Raises UsageError where there is none."""
        total = len(said)
        failed = Counter(one for one in said if isinstance(one, str))
        if failed:
            why, _ = failed.most_common(1)[0]
            if failed.total() == total:
                raise UsageError(f"{self.name} answered none of {total} prompts: {why}")
            self._note(f"{failed.total()} of {total} prompts got no answer: {why}")
        spoken = [
            (prompt, one)
            for prompt, one in zip(prompts, said, strict=True)
            if isinstance(one, ChatReply)
        ]
        for note in (*prompt_notes(spoken), *answer_notes(spoken, decoding.max_new_tokens)):
            self._note(note)
        others = (
            {one.answer.stop for _, one in spoken if one.answer.stop is not None}
            - decoding.stops
            - {UNKNOWN_STOP}
        )
        if others and decoding.stops:
            names = ", ".join(
                f"{self.tokenizer.backend.id_to_token(id)!r} ({id})" for id in sorted(others)
            )
            self._note(
                f"the server ended answers at {names}, which is no stop token of the tokenizer's"
                " folder"
            )

    def _note(self, text: str) -> None:
        if text not in self.notes:
            self.notes.append(text)
