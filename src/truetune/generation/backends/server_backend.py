"""A server with OpenAI's routes: chats that it renders itself, or prompts that it completes.

How: before the first prompt each route is tried with one short request, which tells what optional fields it heeds
(`heeded_request_fields`). Then the prompts are sent, some at a time (`map_concurrently`), the replies are read
(`read_server_replies`), and where the server tells probabilities, it is asked how likely a stop is behind each
reference (`logprob_client`).

No stop strings are sent: an answer ends where the server ends it, for that is what its users get. A chat goes to the
chat route by default, so that the server's own template is tested too; `--route completions` sends our ids.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from truetune.errors import UsageError
from truetune.generation.answer_samples import Answer, Prompt
from truetune.generation.backends.backend import Backend, Decoding, Ids, Progress, ScoredIds
from truetune.generation.backends.choose_next_token import reference_ids_before_stop
from truetune.generation.backends.heeded_request_fields import (
    FieldSupport,
    SendBody,
    ask_with_accepted_fields,
    make_request_sender,
    notes_on_unheeded_fields,
    probe_sampling,
    probe_template_variables,
)
from truetune.generation.backends.http_client import (
    NoReply,
    Reply,
    Server,
    Wait,
    find_server,
    map_concurrently,
    send_request,
)
from truetune.generation.backends.logprob_client import LogprobClient
from truetune.generation.backends.model_source import ModelSource
from truetune.generation.backends.open_backend import Options
from truetune.generation.backends.read_server_replies import (
    UNKNOWN_STOP,
    ChatReply,
    ReplyReader,
    note_on_differing_server_prompt,
    notes_on_misleading_answers,
)
from truetune.generation.backends.server_prompt_ids import chat_request
from truetune.render.tokenizer import Tokenizer

T = TypeVar("T")
ROUTES = {"chat": "/v1/chat/completions", "completions": "/v1/completions"}
# Chosen, not measured: with the pauses of `send_request` a server has 3.5 s to come back, and one that is down is
# said within seconds.
TRIES = 4
"""Times that one prompt is sent, where the server is busy or fails"""
PROBE_ANSWER_TOKENS = 2
"""Tokens of the answers that a route is tried with, which nobody reads"""
MORE_TIME = "; --timeout gives it more, --concurrency sends fewer at a time"
OPTIONAL_FIELDS: dict[str, dict[str, dict[str, Any]]] = {
    "chat": {
        "logprobs": {"logprobs": True, "top_logprobs": 1},
        "return_token_ids": {"return_token_ids": True},
    },
    "completions": {"logprobs": {"logprobs": 1}, "return_token_ids": {"return_token_ids": True}},
}
"""Route -> name -> what is sent: fields that an answer is better known with, and is an answer without"""


def open_backend(source: ModelSource, options: Options, tokenizer: Tokenizer) -> Backend:
    """Reach the server at the URL of the model. Raises UsageError where nothing answers there, or
    one of several models must be named.
    """
    if options.route not in ROUTES:
        raise UsageError(f"--route {options.route}: expected one of {', '.join(ROUTES)}")
    server = find_server(source.name, options.served_model, option="--served-model")
    return ServerBackend(source.name, server, options, tokenizer)


class ServerBackend(Backend):
    """Sends some prompts at a time.

    Attributes:
        fields: by route, what the server did with the fields that it was tried with.
    """

    kind = "server"
    takes_min_p = True

    def __init__(self, name: str, server: Server, options: Options, tokenizer: Tokenizer) -> None:
        super().__init__(name)
        self.fields: dict[str, list[FieldSupport]] = {}
        self._server, self._options, self._tokenizer = server, options, tokenizer
        self._reader = ReplyReader(tokenizer)
        self._logprobs = LogprobClient(server, tokenizer, options.timeout)
        self._limit_field = "max_tokens"
        """OpenAI's newer models take `max_completion_tokens` alone, and say so"""

    def answers(
        self, prompts: Sequence[Prompt], decoding: Decoding, progress: Progress | None = None
    ) -> list[Answer | None]:
        """Answer prompts, some at a time, by the route of chats or of completions."""
        if not prompts:
            return []
        routed = [(prompt, self._route_for_prompt(prompt)) for prompt in prompts]
        routes = [route for _, route in routed]
        if self._options.route == "chat" and "completions" in routes:
            self._add_note(
                f"{routes.count('completions')} prompts are no chats: they went to"
                f" {ROUTES['completions']}"
            )
        # By the shortest prompt of each route: what is found out about a field holds for all, and this one is cheapest.
        extras = {}
        for route in dict.fromkeys(routes):
            own_prompts = [prompt for prompt, its in routed if its == route]
            shortest = min(own_prompts, key=lambda prompt: len(prompt.ids))
            extras[route] = self._probe_route(route, shortest, decoding)

        def ask(pair: tuple[Prompt, str], wait: Wait) -> ChatReply | str:
            prompt, route = pair
            return self._ask_prompt(prompt, route, extras[route], decoding, wait)

        replies = map_concurrently(ask, routed, self._options.concurrency, progress)
        self._add_notes_on_replies(prompts, replies, decoding)
        answers = [reply.answer if isinstance(reply, ChatReply) else None for reply in replies]
        return self._add_stop_estimates_to_answers(prompts, answers, decoding.stops)

    def score(
        self,
        sequences: Sequence[Ids],
        stops: frozenset[int] = frozenset(),
        progress: Progress | None = None,
    ) -> list[ScoredIds] | None:
        """Score given ids by the server's log-probabilities; None, and a note, where it does not
        tell them.
        """
        scored = self._ask_logprobs(self._logprobs.score, sequences, progress)
        return None if scored is None else [ScoredIds(one.logprobs) for one in scored]

    def likeliest(self, prefixes: Sequence[Ids], count: int) -> list[dict[int, float]] | None:
        """The `count` likeliest next tokens behind each prefix: id -> log-probability in nats;
        None, and a note, where the server does not tell them.
        """
        return self._ask_logprobs(
            lambda ids, wait: self._logprobs.likeliest(ids, count, wait), prefixes
        )

    def _ask_prompt(
        self,
        prompt: Prompt,
        route: str,
        extra_fields: dict[str, Any],
        decoding: Decoding,
        wait: Wait,
    ) -> ChatReply | str:
        """The answer to one prompt; why there is none, where that is so."""
        body = {**self._request_without_optional_fields(prompt, route, decoding), **extra_fields}
        try:
            reply = send_request(
                self._url_of_route(route), body, self._options.timeout, tries=TRIES, wait=wait
            )
        except NoReply as error:
            return f"{error}{MORE_TIME if error.timed_out else ''}"
        if reply.status != 200:
            return reply.refusal_message_in_one_line
        return self._reader.read(reply.body, prompt, decoding.stops, decoding.max_new_tokens)

    def _ask_logprobs(
        self,
        ask: Callable[[Ids, Wait], T | None],
        items: Sequence[Ids],
        progress: Progress | None = None,
    ) -> list[T] | None:
        """What the server tells of each; None, and a note, where it can't tell all."""
        # What fails here is a note and no error: answers are worth a report without probabilities.
        try:
            self._logprobs.probe_what_server_tells(items, time.sleep)
            results = map_concurrently(ask, items, self._options.concurrency, progress)
        except NoReply as error:
            self._add_note(str(error))
            return None
        for note in dict.fromkeys(self._logprobs.notes):
            self._add_note(note)
        known = [result for result in results if result is not None]
        return known if len(known) == len(results) else None

    def _add_stop_estimates_to_answers(
        self, prompts: Sequence[Prompt], answers: list[Answer | None], stops: frozenset[int]
    ) -> list[Answer | None]:
        """The answers, with how likely a stop is behind the references, where there are such."""
        answered = {
            i: [*prompt.ids, *reference_ids_before_stop(prompt, stops)]
            for i, prompt in enumerate(prompts)
            if prompt.reference_ids and answers[i] is not None and stops
        }
        if not answered:
            return answers
        ordered = sorted(stops)
        estimates = self._ask_logprobs(
            lambda ids, wait: self._logprobs.stop_probability_and_best_rank(ids, ordered, wait),
            list(answered.values()),
        )
        for i, (probability, rank) in zip(answered, estimates or (), strict=False):
            answer = answers[i]
            assert answer is not None
            answers[i] = replace(answer, stop_probability=probability, stop_rank=rank)
        return answers

    def _route_for_prompt(self, prompt: Prompt) -> str:
        """The route for a prompt: chat where it has messages and the user wants that route, else
        completions.
        """
        is_chat = self._options.route == "chat" and prompt.chat is not None
        return "chat" if is_chat else "completions"

    def _url_of_route(self, route: str) -> str:
        """The URL of a route."""
        return self._server.root + ROUTES[route]

    def _request_without_optional_fields(
        self, prompt: Prompt, route: str, decoding: Decoding
    ) -> dict[str, Any]:
        """A request, without optional fields."""
        body: dict[str, Any] = {
            "temperature": decoding.temperature,
            self._limit_field: decoding.max_new_tokens,
        }
        # Greedy requests name no seed and no top_p: they need none, and a strict server may refuse them.
        if decoding.temperature > 0:
            body |= {"top_p": decoding.top_p, "seed": decoding.seed}
            # Not 0: min_p is no field of OpenAI's, and a strict server may refuse it.
            if decoding.min_p:
                body["min_p"] = decoding.min_p
        if route == "chat":
            chat = prompt.chat
            assert chat is not None
            content = {"messages": chat.messages, "tools": chat.tools, "settings": chat.settings}
            return chat_request(self._server, content) | body
        text = self._logprobs.prompt_field(prompt.ids, prompt.text)
        return {**self._logprobs.model_field, "prompt": text, **body}

    def _probe_route(self, route: str, prompt: Prompt, decoding: Decoding) -> dict[str, Any]:
        """Try a route with one prompt; notes on what it does not heed.

        Returns:
            The optional fields that the server keeps.

        Raises:
            UsageError: where it refuses even the plain request, or does not heed a min_p that is asked for.
        """
        url = self._url_of_route(route)
        limit = min(PROBE_ANSWER_TOKENS, decoding.max_new_tokens)
        # Without min_p: a refusal of it must not pass for one of the request, and trials draw from all tokens.
        short = replace(decoding, max_new_tokens=limit, min_p=0.0)
        ask = make_request_sender(url, self._options.timeout)
        optional = OPTIONAL_FIELDS[route]
        reply, support = ask_with_accepted_fields(
            ask, self._request_without_optional_fields(prompt, route, short), optional
        )
        # Known by the words of the refusal alone: there is no code for it.
        if reply.status == 400 and "max_completion_tokens" in reply.refusal_message_in_one_line:
            self._limit_field = "max_completion_tokens"
            reply, support = ask_with_accepted_fields(
                ask, self._request_without_optional_fields(prompt, route, short), optional
            )
        if reply.status != 200:
            raise UsageError(
                f"{url}: {reply.refusal_message_in_one_line}{self._advice_on_refusal(reply)}"
            )
        sampling = self._probe_sampling(
            ask, self._request_without_optional_fields(prompt, route, short), decoding
        )
        self._refuse_unheeded_min_p(url, sampling)
        support += sampling
        # Variables of the template (`enable_thinking: false`) that a server ignores change every prompt, and no error.
        if route == "chat" and prompt.chat and prompt.chat.settings:
            body = self._request_without_optional_fields(prompt, route, short)
            support += probe_template_variables(ask, body, len(prompt.ids))
        self.fields[route] = support
        for note in notes_on_unheeded_fields(support):
            self._add_note(note)
        extra_fields: dict[str, Any] = {}
        for field in support:
            if field.verdict == "kept":
                extra_fields |= optional.get(field.name, {})
        return extra_fields

    def _probe_sampling(
        self, ask: SendBody, body: dict[str, Any], decoding: Decoding
    ) -> list[FieldSupport]:
        """What the server does with the fields of sampling that are used."""
        if decoding.temperature <= 0:
            return []
        greedy = {**body, "temperature": 0}
        support = probe_sampling(ask, greedy, ask(greedy))
        unused = {"top_p"} if decoding.top_p >= 1 else set()
        if not decoding.min_p:
            unused.add("min_p")
        return [field for field in support if field.name not in unused]

    def _refuse_unheeded_min_p(self, url: str, support: Sequence[FieldSupport]) -> None:
        """Raises UsageError where a min_p is refused or ignored; a note where that can't be seen."""
        # An error and no note, as for top_p: hardly any server that does not know it says so, and answers from all
        # tokens are then taken for the model's fault.
        for field in support:
            if field.name != "min_p" or field.verdict == "kept":
                continue
            if field.verdict == "unknown":
                self._add_note(f"whether the server heeds `min_p` can't be seen ({field.why})")
                continue
            [said] = notes_on_unheeded_fields([field])
            raise UsageError(f"{url}: {said}; leave out --min-p")

    @property
    def server(self) -> Server:
        """Where requests go, and the model that they name."""
        return self._server

    def _advice_on_refusal(self, reply: Reply) -> str:
        """What to try where a request is refused, for the end of a message."""
        if self._server.model is None and not self._options.served_model:
            return "; it tells no name of its model: give one with --served-model"
        if reply.status in (400, 404, 500):
            return f"; it was asked for the model {self._server.model!r}"
        return ""

    def _add_notes_on_replies(
        self, prompts: Sequence[Prompt], replies: Sequence[ChatReply | str], decoding: Decoding
    ) -> None:
        """The notes on all replies. Raises UsageError where none holds an answer."""
        total = len(replies)
        failures = Counter(reply for reply in replies if isinstance(reply, str))
        if failures:
            why, _ = failures.most_common(1)[0]
            # All of them: that is no property of a prompt, and nothing is left to judge.
            if failures.total() == total:
                raise UsageError(f"{self.name} answered none of {total} prompts: {why}")
            self._add_note(f"{failures.total()} of {total} prompts got no answer: {why}")
        answered = [
            (prompt, reply)
            for prompt, reply in zip(prompts, replies, strict=True)
            if isinstance(reply, ChatReply)
        ]
        for note in (
            *note_on_differing_server_prompt(answered),
            *notes_on_misleading_answers(answered, decoding.max_new_tokens),
        ):
            self._add_note(note)
        if decoding.stops:
            self._add_note_on_stops({reply.answer.stop for _, reply in answered} - decoding.stops)

    def _add_note_on_stops(self, others: set[int | None]) -> None:
        """A note where answers ended at tokens that the tokenizer's folder does not name."""
        ids = sorted(id for id in others if id is not None and id != UNKNOWN_STOP)
        if ids:
            names = ", ".join(f"{self._tokenizer.backend.id_to_token(id)!r} ({id})" for id in ids)
            self._add_note(
                f"the server ended answers at {names}, which is no stop token of the tokenizer's"
                " folder"
            )

    def _add_note(self, text: str) -> None:
        """Add a note, once."""
        if text not in self.notes:
            self.notes.append(text)
