"""Prompts: what a server makes of messages, against the training record."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from truetune.generation.backends.http_client import ANSWER_TIMEOUT_S, Server, map_concurrently
from truetune.generation.backends.server_prompt_ids import ServerPrompt, ask_server_prompt
from truetune.generation.server_observations import PromptComparison
from truetune.render.probes import Probes
from truetune.serving.suspects import likely, suspects
from truetune.serving.trained import Trained

SHOWN = 80
"""Characters of a text that are shown"""
BEFORE = 24
"""Of them, those before the difference"""
Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class Asked:
    """A prompt, and what came of asking the server for it."""

    trained: Trained
    served: ServerPrompt | None
    """None where the server refused"""
    compared: PromptComparison


def asked_of(
    server: Server,
    prompts: Sequence[Trained],
    made: Probes,
    base: Probes | None,
    concurrency: int = 1,
    progress: Progress | None = None,
    seconds: float = ANSWER_TIMEOUT_S,
) -> list[Asked]:
    """By the ids or the number of them that the server tells; `same` is None where neither is told.

    Raises Unanswered.
    """
    served = map_concurrently(
        lambda trained, _: ask_server_prompt(server, trained.chat, seconds),
        prompts,
        concurrency,
        progress,
    )
    return [_asked(trained, one, made, base) for trained, one in zip(prompts, served, strict=True)]


def _asked(
    trained: Trained, served: ServerPrompt | str, made: Probes, base: Probes | None
) -> Asked:
    known = PromptComparison(
        trained.name, len(trained.ids), None, of_data=trained.of_data, tools=bool(trained.tools)
    )
    if isinstance(served, str):
        return Asked(trained, None, replace(known, refused=served))
    if served.ids is None and served.count is None:
        return Asked(trained, served, known)
    if served.ids is None:
        same = served.count == len(trained.ids)
        return Asked(trained, served, replace(known, same=same, by="count", served=served.count))
    known = replace(known, same=served.ids == trained.ids, by="ids", served=len(served.ids))
    if not known.same:
        known = replace(
            known,
            difference=difference(trained.ids, served.ids, made),
            cause=cause(trained, served.ids, made, base),
        )
    return Asked(trained, served, known)


def cause(trained: Trained, served: list[int], made: Probes, base: Probes | None) -> str:
    """The mistake that makes these ids; else what the place of the difference looks like; empty where unknown."""
    for mistake, ids in suspects(trained, made, base):
        if ids == served:
            return mistake
    whole = _text(made, served)
    if whole == trained.text:
        return "the text is the same, and encoded otherwise"
    first, same = _borders(trained.text, whole)
    was, now = trained.text[first : len(trained.text) - same], whole[first : len(whole) - same]
    return likely(trained, was, now, whole)


def mistakes(
    asked: Sequence[Asked], made: Probes, base: Probes | None
) -> dict[str, dict[str, list[int]]]:
    """Mistake -> name of a prompt -> the ids that it makes of it, where their number is the one that is served; those
    that explain most prompts first."""
    found: dict[str, dict[str, list[int]]] = {}
    for one in asked:
        for mistake, ids in suspects(one.trained, made, base):
            if one.served is None or one.served.count in (None, len(ids)):
                found.setdefault(mistake, {})[one.trained.name] = ids
    return dict(sorted(found.items(), key=lambda pair: -len(pair[1])))


def by_offset(asked: Sequence[Asked]) -> str:
    """What the same number of tokens more, or fewer, in all prompts looks like; empty where it is not the same."""
    more = {
        one.served.count - len(one.trained.ids)
        for one in asked
        if one.served is not None and one.served.count is not None
    }
    number = more.pop() if len(more) == 1 and len(asked) >= 3 else 0
    if not number:
        return ""
    text = f"a fixed text of {abs(number)} tokens, such as a system prompt,"
    return (
        f"as where {'a token such as BOS' if abs(number) == 1 else text} is"
        f" {'put in' if number > 0 else 'left out'}"
    )


def guessed(trained: Sequence[int], other: Sequence[int], made: Probes) -> str:
    """The difference to a prompt that would explain what the server does, whose own text it does not tell."""
    return f"guessed, as the server does not tell its text: {difference(trained, other, made)}"


def difference(trained: Sequence[int], served: Sequence[int], made: Probes) -> str:
    """From the first differing token on: what was trained, and what is served."""
    first, same = _borders(trained, served)
    was, now = trained[first : len(trained) - same], served[first : len(served) - same]
    if not was:
        what = f"the server puts in {shown(made, now)}"
    elif not now:
        what = f"the server leaves out {shown(made, was)}"
    else:
        what = f"trained {shown(made, was)}, served {shown(made, now)}"
    before = _text(made, trained[:first])[-BEFORE:]
    place = f"from token {first} on, behind {before!r}" if before else "at the beginning"
    return f"{place}: {what}"


def shown(made: Probes, ids: Sequence[int]) -> str:
    """Ids as text in quotes, the ids themselves where they are few."""
    text = _text(made, ids)
    quoted = repr(
        text if len(text) <= SHOWN else text[: SHOWN // 2] + " ... " + text[-SHOWN // 2 :]
    )
    return quoted + (f" (ids {list(ids)})" if len(ids) < 4 else "")


def _text(made: Probes, ids: Sequence[int]) -> str:
    try:
        return str(made.tokenizer.backend.decode(list(ids), skip_special_tokens=False))
    except (OverflowError, TypeError):
        return str(list(ids))


def _borders(one: Sequence[object], other: Sequence[object]) -> tuple[int, int]:
    """How many are equal from the beginning on, and from the end back."""
    shorter = min(len(one), len(other))
    first = next((i for i in range(shorter) if one[i] != other[i]), shorter)
    same = next(
        (i for i in range(shorter - first) if one[-1 - i] != other[-1 - i]), shorter - first
    )
    return first, same
