"""What a server tells of probabilities: of given ids, and of the next one."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from truetune.encoding.token_bytes import TokenBytes
from truetune.generation.backends.backend import Ids, ScoredIds
from truetune.generation.backends.crew import Wait
from truetune.generation.backends.http_client import Reply, Server, list_field, send_request
from truetune.generation.backends.request_fields import body_sender, try_fields
from truetune.generation.build_prompts import make_decoder
from truetune.render.tokenizer import Tokenizer

TOP_LOGPROBS = (20, 5)
"""Likeliest tokens that are asked for; 20 are the most of vLLM where it is not set to tell more, 5 of OpenAI's route"""
TRIES = 4
"""Times that one question is sent, where the server is busy or fails"""
PROBE_IDS = 8
"""Tokens that a server is tried with, where they can be sent as they are"""
MAX_LOGPROB_DIFFERENCE = 0.05
"""Nats by which two answers to the same question may differ"""
IMPOSSIBLE_LOGPROB = -1000.0
"""Nats that stand for none at all"""


class LogprobClient:
    """Asks the route of completions, whose prompt can be given as it is: as ids, else as a text whose number of tokens
    must be that of the ids."""

    def __init__(self, server: Server, tokenizer: Tokenizer, seconds: float) -> None:
        self.url, self.tokenizer, self.seconds = f"{server.root}/v1/completions", tokenizer, seconds
        self.named = {"model": server.model} if server.model else {}
        self.decode = make_decoder(tokenizer)
        bos = tokenizer.special.get("bos")
        self.bos = bos.id if bos else None
        self.takes_ids: bool | None = None
        """None: not tried yet"""
        self.tried = False
        self.kept: frozenset[str] = frozenset()
        """The fields that it heeds: logprobs, echo, prompt_logprobs, return_tokens_as_token_ids"""
        self.proven: dict[bool, bool] = {}
        """Of ids that begin with BOS, and of others: what it tells of given ids is what it tells of the next one"""
        self.most = TOP_LOGPROBS[0]
        self.why: list[str] = []
        """What it can't tell"""

    def written(self, ids: Ids, text: str = "") -> list[int] | str:
        """A prompt as the server takes it; a text without the BOS that a tokenizer adds by itself."""
        if self.takes_ids is None:
            ask = body_sender(self.url, self.seconds)
            self.takes_ids = (
                ask({**self.named, "prompt": list(ids), "max_tokens": 1, "temperature": 0}).status
                == 200
            )
        if self.takes_ids:
            return list(ids)
        text, bos = text or self.decode(ids), self.tokenizer.special.get("bos")
        return text.removeprefix(bos.token) if bos and self.tokenizer.adds_bos else text

    def prepare(self, sequences: Sequence[Ids], wait: Wait) -> None:
        """Try with the beginning of some of these ids what the server tells. Raises Unanswered."""
        for ids in filter(None, sequences):
            ids = self._beginning(ids)
            if not self.tried:
                self.tried = True
                self._try(ids)
            begins = ids[0] == self.bos
            if begins not in self.proven and self.kept & {"echo", "prompt_logprobs"}:
                self.proven[begins] = self._proof(ids, wait)

    def _beginning(self, ids: Ids) -> Ids:
        """Some of its first ids, as few as can be sent as they are."""
        self.written(ids[:PROBE_IDS])
        return next((ids[:end] for end in range(PROBE_IDS, len(ids)) if self._fits(ids[:end])), ids)

    def _fits(self, ids: Ids) -> bool:
        """Can they be sent as they are? Not every text becomes the ids again that it was made of."""
        if self.takes_ids:
            return True
        return list(
            self.tokenizer.backend.encode(self.decode(ids), add_special_tokens=False).ids
        ) == list(ids)

    def _try(self, ids: Ids) -> None:
        ask, plain = body_sender(self.url, self.seconds), self._body(ids)
        for self.most in TOP_LOGPROBS:
            top = {"logprobs": self.most}
            reply, seen = try_fields(
                ask,
                plain,
                {
                    "logprobs": top,
                    "return_tokens_as_token_ids": {**top, "return_tokens_as_token_ids": True},
                    "prompt_logprobs": {"prompt_logprobs": 1},
                    "echo": {**top, "echo": True},
                },
            )
            self.kept = frozenset(one.name for one in seen if one.verdict == "kept")
            if not any(one.name == "logprobs" and one.verdict == "refused" for one in seen):
                break
        if reply.status != 200:
            self._say(f"{self.url}: {reply.refusal}: probabilities are not known")
        elif _counted(reply) not in (None, len(ids)):
            self.kept = frozenset()
            self._say(
                f"{self.url} makes {_counted(reply)} tokens of {len(ids)}: probabilities are not"
                " asked for"
            )
        elif not self.kept & {"logprobs", "echo", "prompt_logprobs"}:
            self._say(
                f"{self.url} tells no log-probabilities: how likely a stop is behind a reference is"
                " not known"
            )

    def _proof(self, ids: Ids, wait: Wait) -> bool:
        """Is the next token, given, told to be as likely as it was before? (llama-cpp-python's echo is off by one token
        where a prompt has no BOS.)"""
        near = self.likeliest(ids, self.most, wait) or {}
        best = max(
            (id for id in near if self._fits([*ids, id])), key=near.__getitem__, default=None
        )
        given = None if best is None else self._given([*ids, best], wait)
        if best is None or given is None:
            return False
        if abs(given[0][-1] - near[best]) < MAX_LOGPROB_DIFFERENCE:
            return True
        self._say(
            f"{self.url} tells log-probabilities of given tokens that are not those of the model:"
            " they are not used"
        )
        return False

    def score(self, ids: Ids, wait: Wait) -> ScoredIds | None:
        """By prompt_logprobs (vLLM), else by echo."""
        if len(ids) < 2:
            return ScoredIds(np.full(len(ids), np.nan, np.float32))
        told = self._given(ids, wait) if self.proven.get(ids[0] == self.bos) else None
        return None if told is None else ScoredIds(told[0])

    def stopping(
        self, ids: Ids, stops: Sequence[int], wait: Wait
    ) -> tuple[float | None, int | None]:
        """(probability that any of `stops` is next, rank of the likeliest of them); None for what is not told. Of stops
        that are not among the likeliest, where the server tells those alone, nothing is known."""
        if self.proven.get(ids[0] == self.bos):
            each = [told for stop in stops if (told := self._given([*ids, stop], wait))]
            if len(each) == len(stops) and all(math.isfinite(worth[-1]) for worth, _ in each):
                ranks = [rank for _, rank in each if rank is not None]
                chance = math.fsum(math.exp(worth[-1]) for worth, _ in each)
                return chance, (
                    min(ranks) if ranks else _best_rank(self.likeliest(ids, self.most, wait), stops)
                )
        near = self.likeliest(ids, self.most, wait) or {}
        held = [math.exp(near[stop]) for stop in stops if stop in near]
        return (math.fsum(held) if held else None), _best_rank(near, stops)

    def likeliest(self, ids: Ids, count: int, wait: Wait) -> dict[int, float] | None:
        """By the top log-probabilities of one generated token; tokens that are not those of one id are left out."""
        if "logprobs" not in self.kept:
            return None
        as_ids = (
            {"return_tokens_as_token_ids": True}
            if "return_tokens_as_token_ids" in self.kept
            else {}
        )
        reply = self._ask(ids, {"logprobs": min(count, self.most), **as_ids}, wait)
        told = (
            {}
            if reply is None
            else {self._id(token): worth for token, worth in _top_logprobs(_choice_logprobs(reply))}
        )
        if len(told) > 1 and sorted(told.values())[-2] < IMPOSSIBLE_LOGPROB:
            self._say(
                f"{self.url} tells the log-probabilities of greedy decoding, not the model's: they"
                " are not used"
            )
            return None
        return {id: worth for id, worth in told.items() if id is not None} or None

    def _given(self, ids: Ids, wait: Wait) -> tuple[NDArray[np.float32], int | None] | None:
        """Log-probability of each, nan where it is not told; and the rank of the last, where that is."""
        found = np.full(len(ids), np.nan, np.float32)
        if "prompt_logprobs" in self.kept:
            reply = self._ask(ids, {"prompt_logprobs": 1}, wait)
            places = [] if reply is None else _prompt_logprobs(reply)
            known = zip(ids[1:], places[1:], strict=False)
            said = [place.get(str(id)) for id, place in known if isinstance(place, dict)]
            told = [one for one in said if isinstance(one, dict) and "logprob" in one]
            if len(told) != len(ids) - 1:
                return None
            found[1:] = [one["logprob"] for one in told]
            rank = told[-1].get("rank")
            return found, rank - 1 if type(rank) is int else None
        reply = self._ask(ids, {"echo": True, "logprobs": 1}, wait)
        if reply is None:
            return None
        worth = list_field(_choice_logprobs(reply), "token_logprobs")
        usage = reply.body.get("usage") if isinstance(reply.body, dict) else None
        made = usage.get("completion_tokens") if isinstance(usage, dict) else None
        if type(made) is not int:
            return None
        worth = worth[: len(worth) - made]
        for told_of in (range(len(ids)), [i for i, id in enumerate(ids) if id != self.bos]):
            if len(told_of) == len(worth):
                found[list(told_of)] = [np.nan if one is None else one for one in worth]
                return found, None
        self._say(
            f"{self.url} echoes {len(worth)} tokens of {len(ids)}: their probabilities are not used"
        )
        return None

    def _ask(self, ids: Ids, fields: Mapping[str, Any], wait: Wait) -> Reply | None:
        """None, and why, where it refuses, or makes other tokens."""
        if not self._fits(ids):
            self._say(
                f"{self.url} is sent texts, and some do not become the ids again that they were"
                " made of: their probabilities are not known"
            )
            return None
        reply = send_request(
            self.url, {**self._body(ids), **fields}, self.seconds, tries=TRIES, wait=wait
        )
        if reply.status != 200:
            self._say(f"{self.url}: {reply.refusal}")
        elif _counted(reply) not in (None, len(ids)):
            self._say(
                f"{self.url} makes {_counted(reply)} tokens of {len(ids)}: their probabilities are"
                " not used"
            )
        else:
            return reply
        return None

    def _body(self, ids: Ids) -> dict[str, Any]:
        return {**self.named, "prompt": self.written(ids), "max_tokens": 1, "temperature": 0}

    def _say(self, text: str) -> None:
        if text not in self.why:
            self.why.append(text)

    def _id(self, token: Mapping[str, Any]) -> int | None:
        """Of a token as a server names it; None where it may be that of several."""
        if type(token.get("id")) is int:
            return int(token["id"])
        text = str(token.get("token"))
        if text.startswith("token_id:") and text[9:].isdigit():
            return int(text[9:])
        spelled = token.get("bytes")
        return self._ids.get(bytes(spelled) if isinstance(spelled, list) else text.encode())

    @cached_property
    def _ids(self) -> dict[bytes, int | None]:
        """By what they spell; None where several spell the same."""
        vocabulary, found = TokenBytes(self.tokenizer.backend), {}
        for id in range(self.tokenizer.vocabulary):
            spelled = vocabulary.spell(id)
            found[spelled] = None if spelled in found else id
        return found


def _best_rank(near: Mapping[int, float] | None, stops: Sequence[int]) -> int | None:
    near = near or {}
    best = max((near[stop] for stop in stops if stop in near), default=None)
    return None if best is None else sum(worth > best for worth in near.values())


def _top_logprobs(held: Any) -> list[tuple[Mapping[str, Any], float]]:
    """(token, log-probability) of the likeliest in the last place: OpenAI's form for completions, or that for chats."""
    content = list_field(held, "content")
    if content and isinstance(content[-1], dict):
        entries = [
            entry for entry in list_field(content[-1], "top_logprobs") if isinstance(entry, dict)
        ]
        return [
            (entry, float(entry["logprob"]))
            for entry in entries
            if isinstance(entry.get("logprob"), int | float)
        ]
    places = list_field(held, "top_logprobs")
    place = places[-1] if places and isinstance(places[-1], dict) else {}
    return [
        ({"token": token}, float(worth))
        for token, worth in place.items()
        if isinstance(worth, int | float)
    ]


def _choice(reply: Reply) -> Any:
    return next(iter(list_field(reply.body, "choices")), None)


def _choice_logprobs(reply: Reply) -> Any:
    choice = _choice(reply)
    return choice.get("logprobs") if isinstance(choice, dict) else None


def _prompt_logprobs(reply: Reply) -> list[Any]:
    return list_field(_choice(reply), "prompt_logprobs") or list_field(
        reply.body, "prompt_logprobs"
    )


def _counted(reply: Reply) -> int | None:
    usage = reply.body.get("usage") if isinstance(reply.body, dict) else None
    count = usage.get("prompt_tokens") if isinstance(usage, dict) else None
    return count if type(count) is int else None
