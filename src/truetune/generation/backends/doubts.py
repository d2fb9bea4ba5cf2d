"""What a reader must know of a server's replies: a sentence each."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from truetune.generation.answer_samples import Answer, Prompt
from truetune.generation.backends.chat_reply import ChatReply
from truetune.generation.backends.request_fields import FieldSupport

Asked = Sequence[tuple[Prompt, ChatReply]]
DID = {"ignored": "ignores", "refused": "refuses"}
WITHOUT = {
    "logprobs": "the log-probabilities of its answers are not known",
    "return_token_ids": "the ids of its answers are those of their text",
    "temperature": "its answers are not sampled as asked",
    "seed": "another run gives other answers",
    "top_p": "its answers are drawn from all tokens",
    "chat_template_kwargs": "its prompts are made without the variables of the template",
}
OTHER = "the server makes other prompts than the template of the tokenizer's folder"


def field_notes(seen: Iterable[FieldSupport]) -> Iterator[str]:
    """What a server did with fields that it was asked to heed, where it did not heed them."""
    for one in seen:
        if one.verdict in DID:
            why = f" ({one.why})" if one.why else ""
            yield f"the server {DID[one.verdict]} `{one.name}`{why}: {WITHOUT[one.name]}"


def prompt_notes(asked: Asked) -> Iterator[str]:
    """Is the server's prompt the one that was meant?"""
    other = [
        (p, o.prompt_ids)
        for p, o in asked
        if o.prompt_ids is not None and o.prompt_ids != list(p.ids)
    ]
    longer = [
        (p, o.prompt_count)
        for p, o in asked
        if o.prompt_ids is None and o.prompt_count not in (None, len(p.ids))
    ]
    if other:
        prompt, ids = other[0]
        pairs = enumerate(zip(ids, prompt.ids, strict=False))
        at = next(
            (i for i, (there, here) in pairs if there != here), min(len(ids), len(prompt.ids))
        )
        yield (
            f"{OTHER}: {len(other)} of {len(asked)}, that of {prompt.file}:{prompt.line} from token"
            f" {at} on"
        )
    if longer:
        prompt, count = longer[0]
        yield (
            f"{OTHER}: {len(longer)} of {len(asked)}, that of {prompt.file}:{prompt.line} has"
            f" {count} tokens there and {len(prompt.ids)} here"
        )


def answer_notes(asked: Asked, limit: int) -> Iterator[str]:
    """`limit`: tokens that were asked for at most"""
    said = [one for _, one in asked]
    if longer := [
        one
        for one in said
        if max(one.counted or 0, len(one.answer.ids) if one.own_ids else 0) > limit + 1
    ]:
        yield (
            f"the server ignores `max_tokens`: {len(longer)} answers have more than {limit} tokens"
        )
    if apart := sum(one.apart for one in said):
        yield (
            f"the server took reasoning or tool calls out of {apart} answers: they are put back as"
            " <think> and as JSON, not as the model wrote them"
        )
    if certain := sum(one.certain for one in said):
        yield (
            f"the server's log-probabilities of {certain} answers are all 0, which no model means:"
            " they are not used"
        )
    hidden = [
        one for one in said if not one.own_ids and one.counted not in (None, *_lengths(one.answer))
    ]
    if hidden:
        yield (
            f"{len(hidden)} answers have other tokens than their text shows: the server counts"
            f" {hidden[0].counted}, the text has {len(hidden[0].answer.ids)}; it takes off control"
            " tokens or white space"
        )


def _lengths(answer: Answer) -> tuple[int, int]:
    """Without and with its stop token; servers count either."""
    return len(answer.ids), len(answer.ids) + (answer.stop is not None)
