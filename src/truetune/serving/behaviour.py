"""Behaviour: which prompt a server made, told by what it answers.

The greedy answer to messages (/v1/chat/completions) is held against the greedy answer to the trained prompt itself
(/v1/completions). Equal prompts give equal answers; and to see that other prompts would give others, the prompt that a
known mistake makes is sent too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice

from truetune.generation.backends.http_client import map_concurrently
from truetune.render.probes import Probes
from truetune.serving.client import GREEDY, Client, Said
from truetune.serving.prompts import Asked, by_offset, guessed, mistakes
from truetune.serving.suspects import suspects

TOKENS = 8
"""Of an answer that is compared"""
NEAR = 0.05
"""Nats by which a first token's log-probability differs, at most, after the same prompt"""
CONFIRMED = 3
"""Prompts by which a cause is confirmed"""
COUNTED = 6
"""Prompts whose number of tokens is right, and as many where it is not, that are compared by answers too"""
LEAST = 2
"""Prompts that a mistake must explain"""
CONTROLS = 2
"""Prompts with a known mistake that are sent in place of each, at most"""
LOGPROBS = {"logprobs": True, "top_logprobs": 2}
"""Of a chat; a completion has the number in `logprobs`"""
Progress = Callable[[int, int], None]


def answered(
    client: Client,
    asked: Sequence[Asked],
    made: Probes,
    base: Probes | None,
    progress: Progress | None = None,
) -> tuple[list[Asked], list[str]]:
    """Those whose ids are not told, compared by answers as well; and what that could not tell."""
    heard = [
        _Heard(one, [ids for _, ids in islice(suspects(one.trained, made, base), CONTROLS)])
        for one in chosen(asked)
    ]
    map_concurrently(lambda one, _: one.listen(client, made), heard[:1], 1)
    map_concurrently(
        lambda one, _: one.listen(client, made), heard[1:], client.concurrency, progress
    )
    found = {one.asked.trained.name: one for one in heard}
    told = [
        found[one.trained.name].compared() if one.trained.name in found else one for one in asked
    ]
    said = {name: one.chat for name, one in found.items()}
    return _explained(client, told, said, made, base), list(_notes(client, told))


def chosen(asked: Sequence[Asked]) -> list[Asked]:
    """Those of whose prompts nothing is told, and some of those whose number of tokens is: it says most already."""
    open_ = [one for one in asked if one.compared.by != "ids" and not refused(one)]
    counted = [[one for one in open_ if one.compared.same is same] for same in (True, False)]
    spread = [group[:: -(-len(group) // COUNTED)] for group in counted if group]
    return [
        one for one in open_ if one.compared.same is None or any(one in group for group in spread)
    ]


def refused(one: Asked) -> bool:
    """Did the server give no answer to it?"""
    return bool(one.compared.refused)


def _notes(client: Client, found: Iterable[Asked]) -> Iterable[str]:
    compared = [one.compared for one in found if one.compared.by != "ids" and not refused(one)]
    unsure = [one.name for one in compared if one.same is None]
    counted = [one.name for one in compared if one.by == "count" and one.same]
    if unsure:
        yield (
            f"{len(unsure)} prompts can't be told from others by the answers:"
            f" {', '.join(unsure[:5])}"
        )
    if counted and client.way is None:
        yield (
            "the server tells the number of its prompts' tokens and takes no exact prompt: "
            f"{len(counted)} prompts were compared by that number alone"
        )


@dataclass
class _Heard:
    """What the server answers to a chat, to the trained prompt, and to prompts with a mistake in them."""

    asked: Asked
    mistakes: list[list[int]]
    chat: Said = field(default_factory=Said)
    exact: Said = field(default_factory=Said)
    told: bool = False
    """An answer to one with a mistake is another."""

    def listen(self, client: Client, made: Probes) -> None:
        trained = self.asked.trained
        self.chat = client.chat(trained.chat, TOKENS, **GREEDY, **LOGPROBS)
        if self.chat.refusal:
            return
        self.exact = client.complete(trained.ids, trained.text, TOKENS, **GREEDY, logprobs=2)
        if self.asked.compared.same is not False and alike(self.chat, self.exact):
            self.told = any(
                alike(self.exact, _complete(client, ids, made)) is False for ids in self.mistakes
            )

    def compared(self) -> Asked:
        """By answers, where they say more than the number of tokens does."""
        known = self.asked.compared
        if self.chat.refusal:
            return replace(self.asked, compared=replace(known, refused=self.chat.refusal))
        same = alike(self.chat, self.exact)
        if known.same is False:
            return replace(self.asked, compared=replace(known, sure=self.exact.read is not None))
        if same is None or (same and not self.told):
            return self.asked
        return replace(self.asked, compared=replace(known, same=same, by="answers", refused=""))


def alike(one: Said, other: Said) -> bool | None:
    """Were these answers given to the same prompt? None where it can't be told."""
    if one.refusal or other.refusal or not (one.finish and other.finish):
        return None
    if one.steps and other.steps:
        near = abs(one.steps[0].logprob - other.steps[0].logprob) <= NEAR
        return near and one.steps[0].token.strip() == other.steps[0].token.strip()
    return None if one.parsed or other.parsed else one.text.strip() == other.text.strip()


def _complete(client: Client, ids: Sequence[int], made: Probes) -> Said:
    text = str(made.tokenizer.backend.decode(list(ids), skip_special_tokens=False))
    return client.complete(ids, text, TOKENS, **GREEDY, logprobs=2)


def _explained(
    client: Client, asked: Sequence[Asked], said: dict[str, Said], made: Probes, base: Probes | None
) -> list[Asked]:
    """With the cause of those that differ: the mistake that explains most of them, and gives the same answers."""
    others = [one for one in asked if one.compared.same is False and one.compared.by != "ids"]
    sure = any(one.compared.sure for one in others)
    others = [
        replace(one, compared=replace(one.compared, sure=sure, cause=by_offset(others)))
        for one in others
    ]
    made_by = {one.trained.name: one.compared for one in others}
    for mistake, ids in mistakes(others, made, base).items():
        if len(ids) >= min(LEAST, len(others)) and _confirmed(client, ids, said, made):
            for one in others:
                name = one.trained.name
                if name in ids:
                    text = guessed(one.trained.ids, ids[name], made)
                    as_long = (
                        "" if one.compared.served is None else "a prompt made so is as long, and "
                    )
                    cause = (
                        f"probably {mistake} ({as_long}the server answers as it does to that one)"
                    )
                    made_by[name] = replace(one.compared, cause=cause, difference=text)
            break
    return [replace(one, compared=made_by.get(one.trained.name, one.compared)) for one in asked]


def _confirmed(
    client: Client, ids: dict[str, list[int]], said: dict[str, Said], made: Probes
) -> bool:
    """Does the server answer the prompts of this mistake as it answers the messages?"""
    tried = [(said[name], prompt) for name, prompt in ids.items() if name in said][:CONFIRMED]
    return bool(tried) and all(
        alike(chat, _complete(client, prompt, made)) for chat, prompt in tried
    )
