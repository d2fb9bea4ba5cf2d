"""Compares the prompts that a server makes of messages with those of the training record.

Where a server tells the ids of its prompt (or their number), these are held against the trained ones. Where ids
differ, the prompts that known mistakes make are tried in turn: the one that gives just these ids names the cause. The
trade-off: only mistakes that `prompts_of_known_mistakes` lists can be named; for all others the first difference is
shown and the reader judges.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from truetune.generation.backends.http_client import ANSWER_TIMEOUT_S, Server, map_concurrently
from truetune.generation.backends.server_prompt_ids import ServerPrompt, ask_server_prompt
from truetune.generation.server_observations import PromptComparison
from truetune.render.template_probes import Probes
from truetune.serving.load_contract_of_trained_prompts import TrainedPrompt
from truetune.serving.prompts_of_known_mistakes import (
    guess_cause_at_difference,
    list_mistakes_with_ids_that_differ,
)

# Chosen for a line of a terminal: the difference, with what stands before it.
MAX_SHOWN_CHARS = 80
"""Characters of a text that are shown"""
SHOWN_CHARS_BEFORE = 24
"""Of them, those before the difference"""
Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class ComparedPrompt:
    """A prompt of the training, with what the server made of it."""

    trained: TrainedPrompt
    served: ServerPrompt | None
    """None where the server refused"""
    comparison: PromptComparison


def compare_server_prompts(
    server: Server,
    prompts: Sequence[TrainedPrompt],
    probes: Probes,
    base: Probes | None,
    concurrency: int = 1,
    progress: Progress | None = None,
    seconds: float = ANSWER_TIMEOUT_S,
) -> list[ComparedPrompt]:
    """Compare the server's prompts with the trained ones, by the ids or the number of them that it
    tells; `same` is None where neither is told. Raises Unanswered.

    Raises Unanswered.
    """
    served = map_concurrently(
        lambda trained, _: ask_server_prompt(server, trained.as_chat_request_body, seconds),
        prompts,
        concurrency,
        progress,
    )
    return [
        _compare_prompt(trained, prompt, probes, base)
        for trained, prompt in zip(prompts, served, strict=True)
    ]


def _compare_prompt(
    trained: TrainedPrompt, served: ServerPrompt | str, probes: Probes, base: Probes | None
) -> ComparedPrompt:
    """Compare one prompt of the training with what the server made of it."""
    known = PromptComparison(
        trained.name,
        len(trained.ids),
        None,
        of_data=trained.is_from_data_row,
        tools=bool(trained.tools),
    )
    # A text is the server's refusal.
    if isinstance(served, str):
        return ComparedPrompt(trained, None, replace(known, refused=served))
    if served.ids is None and served.count is None:
        return ComparedPrompt(trained, served, known)
    if served.ids is None:
        # Equal numbers are no proof (two changes may cancel out), so such prompts are compared by answers as well.
        same = served.count == len(trained.ids)
        return ComparedPrompt(
            trained, served, replace(known, same=same, by="count", served=served.count)
        )
    known = replace(known, same=served.ids == trained.ids, by="ids", served=len(served.ids))
    if not known.same:
        known = replace(
            known,
            difference=describe_id_difference(trained.ids, served.ids, probes),
            cause=find_mistake_that_makes_ids(trained, served.ids, probes, base),
        )
    return ComparedPrompt(trained, served, known)


def find_mistake_that_makes_ids(
    trained: TrainedPrompt, served: list[int], probes: Probes, base: Probes | None
) -> str:
    """The mistake that makes these ids; else what the place of the difference looks like; empty where unknown."""
    for mistake, ids in list_mistakes_with_ids_that_differ(trained, probes, base):
        if ids == served:
            return mistake
    # No known mistake: what differs is looked at as text, where ids of one cause look different in each prompt.
    whole = _decode_ids(probes, served)
    if whole == trained.text:
        return "the text is the same, and encoded otherwise"
    first, same = _count_common_items_at_start_and_end(trained.text, whole)
    in_training, on_server = (
        trained.text[first : len(trained.text) - same],
        whole[first : len(whole) - same],
    )
    return guess_cause_at_difference(trained, in_training, on_server, whole)


def find_mistakes_of_served_length(
    prompts: Sequence[ComparedPrompt], probes: Probes, base: Probes | None
) -> dict[str, dict[str, list[int]]]:
    """Mistake -> name of a prompt -> the ids that it makes of it, where their number is the one that is served; those
    that explain most prompts first."""
    ids_by_mistake: dict[str, dict[str, list[int]]] = {}
    for prompt in prompts:
        for mistake, ids in list_mistakes_with_ids_that_differ(prompt.trained, probes, base):
            # Where the server tells a number, only a mistake of that length can be the cause.
            if prompt.served is None or prompt.served.count in (None, len(ids)):
                ids_by_mistake.setdefault(mistake, {})[prompt.trained.name] = ids
    return dict(sorted(ids_by_mistake.items(), key=lambda pair: -len(pair[1])))


def explain_constant_offset(prompts: Sequence[ComparedPrompt]) -> str:
    """What the same number of tokens more, or fewer, in all prompts looks like; empty where it is not the same."""
    more = {
        prompt.served.count - len(prompt.trained.ids)
        for prompt in prompts
        if prompt.served is not None and prompt.served.count is not None
    }
    # With fewer than three prompts the same offset is chance.
    number = more.pop() if len(more) == 1 and len(prompts) >= 3 else 0
    if not number:
        return ""
    text = f"a fixed text of {abs(number)} tokens, such as a system prompt,"
    return (
        f"as where {'a token such as BOS' if abs(number) == 1 else text} is"
        f" {'put in' if number > 0 else 'left out'}"
    )


def describe_difference_that_would_explain_server(
    trained: Sequence[int], other: Sequence[int], probes: Probes
) -> str:
    """The difference from a prompt that would explain what the server does, which does not tell its
    own.
    """
    return f"guessed, as the server does not tell its text: {describe_id_difference(trained, other, probes)}"


def describe_id_difference(trained: Sequence[int], served: Sequence[int], probes: Probes) -> str:
    """What was trained and what is served, from the first differing token on."""
    first, same = _count_common_items_at_start_and_end(trained, served)
    in_training, on_server = (
        trained[first : len(trained) - same],
        served[first : len(served) - same],
    )
    if not in_training:
        what = f"the server puts in {quote_ids_as_text(probes, on_server)}"
    elif not on_server:
        what = f"the server leaves out {quote_ids_as_text(probes, in_training)}"
    else:
        what = f"trained {quote_ids_as_text(probes, in_training)}, served {quote_ids_as_text(probes, on_server)}"
    before = _decode_ids(probes, trained[:first])[-SHOWN_CHARS_BEFORE:]
    place = f"from token {first} on, after {before!r}" if before else "at the beginning"
    return f"{place}: {what}"


def quote_ids_as_text(probes: Probes, ids: Sequence[int]) -> str:
    """Ids as text in quotes; the ids themselves where they are few."""
    text = _decode_ids(probes, ids)
    quoted = repr(
        text
        if len(text) <= MAX_SHOWN_CHARS
        else text[: MAX_SHOWN_CHARS // 2] + " ... " + text[-MAX_SHOWN_CHARS // 2 :]
    )
    return quoted + (f" (ids {list(ids)})" if len(ids) < 4 else "")


def _decode_ids(probes: Probes, ids: Sequence[int]) -> str:
    """The text of some ids, control tokens included."""
    try:
        return str(probes.tokenizer.backend.decode(list(ids), skip_special_tokens=False))
    # A server may name ids that are negative or beyond 32 bits; the decoder takes neither.
    except (OverflowError, TypeError):
        return str(list(ids))


def _count_common_items_at_start_and_end(
    prompt: Sequence[object], other: Sequence[object]
) -> tuple[int, int]:
    """How many are equal from the beginning on, and from the end back."""
    shorter = min(len(prompt), len(other))
    # The end only as far as the beginning leaves it: in `aa` against `aaa` nothing may be counted twice.
    first = next((i for i in range(shorter) if prompt[i] != other[i]), shorter)
    same = next(
        (i for i in range(shorter - first) if prompt[-1 - i] != other[-1 - i]), shorter - first
    )
    return first, same
