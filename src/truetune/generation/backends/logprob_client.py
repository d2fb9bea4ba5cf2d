"""Asks a server for log-probabilities: of given ids, and of the next token.

OpenAI's protocol has no route that scores a text, so each server has its own way, or none: vLLM's `prompt_logprobs`,
`echo` with `logprobs` (llama-cpp-python and older ones), and of the next token alone the top `logprobs` of one
generated token. `LogprobClient` tries which of them a server heeds, and believes none of them unseen: what it tells of
the likeliest next token, given, must be what it told of it before (`_is_next_token_equally_likely_when_given`).

A prompt is sent as ids where the server takes them, else as a text. Then only ids that survive decoding and encoding
can be asked for, and the number of tokens that the server counts must be theirs: a probability of another token than
the one that was meant is worse than none. What can't be told is None, and a sentence in `notes`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from truetune.encoding.token_bytes import TokenBytes
from truetune.generation.backends.backend import Ids, ScoredIds
from truetune.generation.backends.heeded_request_fields import (
    ask_with_accepted_fields,
    make_request_sender,
)
from truetune.generation.backends.http_client import (
    Reply,
    Server,
    Wait,
    first_choice,
    list_field,
    send_request,
    usage_count,
)
from truetune.generation.build_prompts import make_decoder
from truetune.render.tokenizer import Tokenizer

TOP_LOGPROBS = (20, 5)
"""Likeliest tokens that are asked for; 20 are the most of vLLM where it is not set to tell more, 5 of OpenAI's route"""
# As `server_backend.TRIES`, which says why.
TRIES = 4
"""Times that one question is sent, where the server is busy or fails"""
# Chosen, not measured: few are cheap, and a text of one token is the least likely to be encoded to the same id again.
PROBE_IDS = 8
"""Tokens that a server is tried with, where they can be sent as they are"""
# Chosen, not measured: more than rounding does in half precision, and far less than an echo that is off by one token,
# which is wrong by whole nats.
MAX_LOGPROB_DIFFERENCE = 0.05
"""Nats by which two answers to the same question may differ"""
IMPOSSIBLE_LOGPROB = -1000.0
"""Nats that stand for none at all: vLLM writes -9999 instead of minus infinity"""
PROBABILITY_FIELDS = frozenset({"logprobs", "echo", "prompt_logprobs"})
"""Fields of which one at least is needed to know anything"""


class LogprobClient:
    """Asks the route of completions, whose prompt can be given as it is: as ids, else as a text whose number of tokens
    must be that of the ids.

    Attributes:
        notes: what it can't tell, one sentence each.
        top: how many of the likeliest tokens this server tells.
        model_field: the field of a request that names the model; empty where it has no name.
    """

    def __init__(self, server: Server, tokenizer: Tokenizer, seconds: float) -> None:
        """`seconds` is the limit of one answer."""
        self.url, self.tokenizer, self.seconds = f"{server.root}/v1/completions", tokenizer, seconds
        self.model_field = {"model": server.model} if server.model else {}
        self.top = TOP_LOGPROBS[0]
        self.notes: list[str] = []
        self._decode = make_decoder(tokenizer)
        bos = tokenizer.special.get("bos")
        self._bos = bos.id if bos else None
        self._takes_ids: bool | None = None
        """None: not tried yet"""
        self._has_probed = False
        self._fields: frozenset[str] = frozenset()
        """The fields that it heeds: logprobs, echo, prompt_logprobs, return_tokens_as_token_ids"""
        self._given_is_right: dict[bool, bool] = {}
        """Of ids that begin with BOS, and of others: what it tells of given ids is what it tells of the next one.
        Apart, for llama-cpp-python is right of the first kind and off by one token of the second."""

    def prompt_field(self, ids: Ids, text: str = "") -> list[int] | str:
        """A prompt as the server takes it; a text without the BOS that a tokenizer adds by itself.

        Args:
            ids: of the prompt.
            text: what they were made of; decoded from them where it is empty.
        """
        if self._takes_ids is None:
            body = {**self.model_field, "prompt": list(ids), "max_tokens": 1, "temperature": 0}
            self._takes_ids = make_request_sender(self.url, self.seconds)(body).status == 200
        if self._takes_ids:
            return list(ids)
        text, bos = text or self._decode(ids), self.tokenizer.special.get("bos")
        return text.removeprefix(bos.token) if bos and self.tokenizer.adds_bos else text

    def probe_what_server_tells(self, sequences: Sequence[Ids], wait: Wait) -> None:
        """Try with the beginning of some of these ids what the server tells. Raises NoReply."""
        for sequence in filter(None, sequences):
            ids = self._shortest_beginning_sent_unchanged(sequence)
            if not self._has_probed:
                self._has_probed = True
                self._probe_fields(ids)
            has_bos = ids[0] == self._bos
            if has_bos not in self._given_is_right and self._fields & {"echo", "prompt_logprobs"}:
                self._given_is_right[has_bos] = self._is_next_token_equally_likely_when_given(
                    ids, wait
                )

    def score(self, ids: Ids, wait: Wait) -> ScoredIds | None:
        """Log-probabilities of given ids, by prompt_logprobs (vLLM), else by echo; None where they are not told."""
        if len(ids) < 2:
            return ScoredIds(np.full(len(ids), np.nan, np.float32))
        given = (
            self._logprobs_of_given_ids_and_last_rank(ids, wait)
            if self._are_given_logprobs_right(ids)
            else None
        )
        return None if given is None else ScoredIds(given[0])

    def stop_probability_and_best_rank(
        self, ids: Ids, stops: Sequence[int], wait: Wait
    ) -> tuple[float | None, int | None]:
        """How likely a stop is behind some ids.

        Returns:
            The probability that any of `stops` is next, and the rank of the likeliest of them, 0 = first; None for what
            is not told. Of stops that are not among the likeliest, where the server tells those alone, nothing is
            known.
        """
        if self._are_given_logprobs_right(ids):
            estimate = self._stop_estimate_by_giving_each_stop(ids, stops, wait)
            if estimate is not None:
                return estimate
        nearest = self.likeliest(ids, self.top, wait) or {}
        probabilities = [math.exp(nearest[stop]) for stop in stops if stop in nearest]
        return (math.fsum(probabilities) if probabilities else None), _rank_of_likeliest_stop(
            nearest, stops
        )

    def likeliest(self, ids: Ids, count: int, wait: Wait) -> dict[int, float] | None:
        """The likeliest next tokens: id -> log-probability in nats.

        By the top log-probabilities of one generated token; tokens that are not those of one id are left out. None
        where they are not told, or are not the model's.
        """
        if "logprobs" not in self._fields:
            return None
        fields: dict[str, Any] = {"logprobs": min(count, self.top)}
        # Texts of tokens are ambiguous (several ids may spell the same), so ids are asked for where that is heeded.
        if "return_tokens_as_token_ids" in self._fields:
            fields["return_tokens_as_token_ids"] = True
        reply = self._ask(ids, fields, wait)
        if reply is None:
            return None
        logprobs = {
            self._token_id(token): value
            for token, value in _likeliest_tokens_of_last_place(_choice_logprobs(reply))
        }
        if len(logprobs) > 1 and sorted(logprobs.values())[-2] < IMPOSSIBLE_LOGPROB:
            self._add_note(
                f"{self.url} tells the log-probabilities of greedy decoding, not the model's: they"
                " are not used"
            )
            return None
        return {id: value for id, value in logprobs.items() if id is not None} or None

    def _are_given_logprobs_right(self, ids: Ids) -> bool:
        """Does the server tell the right log-probabilities of given ids, by what a trial of such
        ids has shown?
        """
        return self._given_is_right.get(ids[0] == self._bos, False)

    def _stop_estimate_by_giving_each_stop(
        self, ids: Ids, stops: Sequence[int], wait: Wait
    ) -> tuple[float, int | None] | None:
        """That of `stop_probability_and_best_rank`, by giving each stop in turn; None where one of them is not told."""
        given = [self._logprobs_of_given_ids_and_last_rank([*ids, stop], wait) for stop in stops]
        complete = [one for one in given if one is not None and math.isfinite(one[0][-1])]
        if len(complete) < len(stops):
            return None
        probability = math.fsum(math.exp(logprobs[-1]) for logprobs, _ in complete)
        ranks = [rank for _, rank in complete if rank is not None]
        if ranks:
            return probability, min(ranks)
        return probability, _rank_of_likeliest_stop(self.likeliest(ids, self.top, wait), stops)

    def _shortest_beginning_sent_unchanged(self, ids: Ids) -> Ids:
        """Some of its first ids, as few as can be sent as they are."""
        # Asked for what it does to the server: whether that takes ids decides what can be sent as it is.
        self.prompt_field(ids[:PROBE_IDS])
        ends = range(PROBE_IDS, len(ids))
        return next((ids[:end] for end in ends if self._can_ids_be_sent_unchanged(ids[:end])), ids)

    def _can_ids_be_sent_unchanged(self, ids: Ids) -> bool:
        """Can they be sent as they are? Not every text becomes the ids again that it was made of."""
        if self._takes_ids:
            return True
        encoded = self.tokenizer.backend.encode(self._decode(ids), add_special_tokens=False)
        return list(encoded.ids) == list(ids)

    def _probe_fields(self, ids: Ids) -> None:
        """Find out what the server tells of these ids; a note where that is too little."""
        ask, plain = (
            make_request_sender(self.url, self.seconds),
            self._request_for_one_greedy_token(ids),
        )
        for self.top in TOP_LOGPROBS:
            top = {"logprobs": self.top}
            fields = {
                "logprobs": top,
                "return_tokens_as_token_ids": {**top, "return_tokens_as_token_ids": True},
                "prompt_logprobs": {"prompt_logprobs": 1},
                "echo": {**top, "echo": True},
            }
            reply, support = ask_with_accepted_fields(ask, plain, fields)
            self._fields = frozenset(field.name for field in support if field.verdict == "kept")
            refused = {field.name for field in support if field.verdict == "refused"}
            if "logprobs" not in refused:
                break
        count = usage_count(reply.body, "prompt_tokens")
        if reply.status != 200:
            self._add_note(
                f"{self.url}: {reply.refusal_message_in_one_line}: probabilities are not known"
            )
        elif count not in (None, len(ids)):
            self._fields = frozenset()
            self._add_note(
                f"{self.url} makes {count} tokens of {len(ids)}: probabilities are not asked for"
            )
        elif not self._fields & PROBABILITY_FIELDS:
            self._add_note(
                f"{self.url} gives no log-probabilities: how likely a stop is after a reference is"
                " not known"
            )

    def _is_next_token_equally_likely_when_given(self, ids: Ids, wait: Wait) -> bool:
        """Is the next token, given, told to be as likely as it was before?"""
        nearest = self.likeliest(ids, self.top, wait) or {}
        sendable = [id for id in nearest if self._can_ids_be_sent_unchanged([*ids, id])]
        best = max(sendable, key=nearest.__getitem__, default=None)
        given = (
            None if best is None else self._logprobs_of_given_ids_and_last_rank([*ids, best], wait)
        )
        if best is None or given is None:
            return False
        if abs(given[0][-1] - nearest[best]) < MAX_LOGPROB_DIFFERENCE:
            return True
        self._add_note(
            f"{self.url} tells log-probabilities of given tokens that are not those of the model:"
            " they are not used"
        )
        return False

    def _logprobs_of_given_ids_and_last_rank(
        self, ids: Ids, wait: Wait
    ) -> tuple[NDArray[np.float32], int | None] | None:
        """What the server tells of given ids, by the way that it heeds.

        Returns:
            (n,) log-probability of each in nats, nan where it is not told, and the rank of the last, where that is
            told; None where nothing is.
        """
        if "prompt_logprobs" in self._fields:
            return self._logprobs_by_prompt(ids, wait)
        return self._logprobs_by_echo(ids, wait)

    def _logprobs_by_prompt(
        self, ids: Ids, wait: Wait
    ) -> tuple[NDArray[np.float32], int | None] | None:
        """By vLLM's prompt_logprobs: a dictionary a place, id as a text -> its entry. The first place has none."""
        reply = self._ask(ids, {"prompt_logprobs": 1}, wait)
        places = [] if reply is None else _prompt_logprobs_of_reply(reply)
        pairs = zip(ids[1:], places[1:], strict=False)
        entries = [place.get(str(id)) for id, place in pairs if isinstance(place, dict)]
        known = [entry for entry in entries if isinstance(entry, dict) and "logprob" in entry]
        if len(known) != len(ids) - 1:
            return None
        logprobs = np.full(len(ids), np.nan, np.float32)
        logprobs[1:] = [entry["logprob"] for entry in known]
        rank = known[-1].get("rank")
        # vLLM counts ranks from 1.
        return logprobs, rank - 1 if type(rank) is int else None

    def _logprobs_by_echo(
        self, ids: Ids, wait: Wait
    ) -> tuple[NDArray[np.float32], int | None] | None:
        """By the log-probabilities of the echoed prompt; ranks are not told."""
        reply = self._ask(ids, {"echo": True, "logprobs": 1}, wait)
        completed = None if reply is None else usage_count(reply.body, "completion_tokens")
        if reply is None or completed is None:
            return None
        values = list_field(_choice_logprobs(reply), "token_logprobs")
        # The list holds the generated token as well, behind the prompt's.
        values = values[: len(values) - completed]
        # Some servers echo the BOS, some don't: which tokens the numbers belong to follows from how many there are.
        without_bos = [i for i, id in enumerate(ids) if id != self._bos]
        for places in (list(range(len(ids))), without_bos):
            if len(places) == len(values):
                logprobs = np.full(len(ids), np.nan, np.float32)
                logprobs[places] = [np.nan if value is None else value for value in values]
                return logprobs, None
        self._add_note(
            f"{self.url} echoes {len(values)} tokens of {len(ids)}: their probabilities are not used"
        )
        return None

    def _ask(self, ids: Ids, fields: Mapping[str, Any], wait: Wait) -> Reply | None:
        """The reply to these ids with some fields; None, and why, where it refuses, or makes other tokens."""
        if not self._can_ids_be_sent_unchanged(ids):
            self._add_note(
                f"{self.url} is sent texts, and some do not become the ids again that they were"
                " made of: their probabilities are not known"
            )
            return None
        body = {**self._request_for_one_greedy_token(ids), **fields}
        reply = send_request(self.url, body, self.seconds, tries=TRIES, wait=wait)
        count = usage_count(reply.body, "prompt_tokens")
        if reply.status != 200:
            self._add_note(f"{self.url}: {reply.refusal_message_in_one_line}")
            return None
        if count not in (None, len(ids)):
            self._add_note(
                f"{self.url} makes {count} tokens of {len(ids)}: their probabilities are not used"
            )
            return None
        return reply

    def _request_for_one_greedy_token(self, ids: Ids) -> dict[str, Any]:
        """A request for one greedy token behind some ids."""
        prompt = self.prompt_field(ids)
        return {**self.model_field, "prompt": prompt, "max_tokens": 1, "temperature": 0}

    def _add_note(self, text: str) -> None:
        """Add a note, once."""
        if text not in self.notes:
            self.notes.append(text)

    def _token_id(self, token: Mapping[str, Any]) -> int | None:
        """The id of a token as a server names it: by id, as `token_id:42`, by its bytes, or by its text; None where it
        may be that of several."""
        if type(token.get("id")) is int:
            return int(token["id"])
        text = str(token.get("token"))
        if text.startswith("token_id:") and text[9:].isdigit():
            return int(text[9:])
        spelling = token.get("bytes")
        key = bytes(spelling) if isinstance(spelling, list) else text.encode()
        return self._ids_by_spelling.get(key)

    @cached_property
    def _ids_by_spelling(self) -> dict[bytes, int | None]:
        """The id that spells these bytes; None where several spell the same."""
        vocabulary = TokenBytes(self.tokenizer.backend)
        ids: dict[bytes, int | None] = {}
        for id in range(self.tokenizer.vocabulary):
            spelling = vocabulary.spell(id)
            ids[spelling] = None if spelling in ids else id
        return ids


def _rank_of_likeliest_stop(
    nearest: Mapping[int, float] | None, stops: Sequence[int]
) -> int | None:
    """Rank of the likeliest stop, 0 = first; None where none of them is among the likeliest tokens."""
    logprobs = nearest or {}
    best = max((logprobs[stop] for stop in stops if stop in logprobs), default=None)
    return None if best is None else sum(value > best for value in logprobs.values())


def _likeliest_tokens_of_last_place(logprobs: Any) -> list[tuple[Mapping[str, Any], float]]:
    """(token, log-probability) of the likeliest in the last place: OpenAI's form for completions, or that for chats."""
    content = list_field(logprobs, "content")
    if content and isinstance(content[-1], dict):
        entries = [e for e in list_field(content[-1], "top_logprobs") if isinstance(e, dict)]
        return [
            (entry, float(entry["logprob"]))
            for entry in entries
            if isinstance(entry.get("logprob"), int | float)
        ]
    places = list_field(logprobs, "top_logprobs")
    place = places[-1] if places and isinstance(places[-1], dict) else {}
    return [
        ({"token": token}, float(value))
        for token, value in place.items()
        if isinstance(value, int | float)
    ]


def _choice_logprobs(reply: Reply) -> Any:
    """The log-probabilities in the first choice of a reply; None where it has none."""
    return first_choice(reply.body).get("logprobs")


def _prompt_logprobs_of_reply(reply: Reply) -> list[Any]:
    """One entry a token of the prompt: in the choice of completions, beside it of chats."""
    in_choice = list_field(first_choice(reply.body), "prompt_logprobs")
    return in_choice or list_field(reply.body, "prompt_logprobs")
