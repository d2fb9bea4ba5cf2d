"""Generates a model's greedy answers to prompts, and tells how likely it finds a given answer and how an answer
compares.

Trade-off: answers are generated without a key-value cache, each token by a whole forward pass. A miniature is small
enough, and nothing is asked of the model but the causal order of its tokens: a cache that is wrong (a law of its own)
would be taken for a row that was not learned.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch

# Tokens of an answer that are asked for. Chosen, not measured: rows of a rehearsal are its shortest. With half, longer
# answers count as cut; each further token costs a forward pass over all rows.
MAX_NEW_TOKENS = 160
# Tokens by which an answer may run on before it counts as not stopping: one that ends a sentence later has stopped.
SPARE_TOKENS = 16


class GreedyAnswer(NamedTuple):
    """What a model generated after a prompt."""

    ids: list[int]
    """Generated ids, without the stop id"""
    stopped: bool
    """Did it end with a stop id, before its limit?"""


@torch.no_grad()
def generate_greedily(
    model: torch.nn.Module, prompts: list[list[int]], stops: set[int], limits: list[int]
) -> list[GreedyAnswer]:
    """Greedy answers, as a server would generate them.

    Args:
        model: a causal model whose forward takes `input_ids`, `attention_mask` and `use_cache`.
        prompts: ids of each prompt.
        stops: ids that end an answer.
        limits: tokens that each answer may have.

    Returns:
        One answer for each prompt, in their order.
    """
    rows = [list(prompt) for prompt in prompts]
    ended = [False] * len(rows)
    device = next(model.parameters()).device
    pad = next(iter(stops), 0)
    for _ in range(max(limits, default=0)):
        unfinished = [
            i
            for i, row in enumerate(rows)
            if not ended[i] and len(row) - len(prompts[i]) < limits[i]
        ]
        if not unfinished:
            break
        ids, mask = pad_right([rows[i] for i in unfinished], pad)
        logits = model(
            input_ids=ids.to(device), attention_mask=mask.to(device), use_cache=False
        ).logits
        last = torch.tensor([len(rows[i]) - 1 for i in unfinished])
        chosen = logits[torch.arange(len(unfinished)), last].argmax(dim=-1).tolist()
        for i, id in zip(unfinished, chosen, strict=True):
            if id in stops:
                ended[i] = True
            else:
                rows[i].append(id)
    return [
        GreedyAnswer(row[len(prompt) :], end)
        for row, prompt, end in zip(rows, prompts, ended, strict=True)
    ]


def pad_right(rows: list[list[int]], pad: int) -> tuple[torch.Tensor, torch.Tensor]:
    """(rows, longest) int64 ids, padded on the right, and the attention mask of that shape.

    On the right, so that positions are those of a row alone even in a model that counts padding as positions.
    """
    longest = max(len(row) for row in rows)
    ids = torch.tensor([row + [pad] * (longest - len(row)) for row in rows])
    mask = torch.tensor([[1] * len(row) + [0] * (longest - len(row)) for row in rows])
    return ids, mask


class AnswerScore(NamedTuple):
    """What the model thinks of an answer that is given to it token by token."""

    right: float
    """Share of its tokens that are the most likely ones, 0 to 1"""
    stop_after: float
    """Probability of the stop ids after its last token"""
    stop_inside: float
    """Largest one before that"""
    log_probability: float
    """Of the whole answer, in nats"""


@torch.no_grad()
def score_answer(
    model: torch.nn.Module, prompt: list[int], answer: list[int], stops: set[int]
) -> AnswerScore:
    """Score an answer (without its stop token) after a prompt, in one forward pass."""
    device = next(model.parameters()).device
    ids = torch.tensor([prompt + answer], device=device)
    logits = model(
        input_ids=ids, attention_mask=torch.ones_like(ids), use_cache=False
    ).logits.float()
    # Position i predicts token i + 1: from the prompt's last token to the answer's last one.
    logits = logits[0, len(prompt) - 1 :]
    target = torch.tensor(answer, device=device)
    log_probabilities = logits.log_softmax(dim=-1)
    # Sorted, so that the sum of floats does not depend on the order of a set.
    stopping = sum(
        (log_probabilities[:, stop].exp() for stop in sorted(stops)),
        torch.zeros(len(answer) + 1, device=device),
    )
    if not answer:
        return AnswerScore(1.0, float(stopping[-1]), 0.0, 0.0)
    return AnswerScore(
        right=float((logits[:-1].argmax(dim=-1) == target).float().mean()),
        stop_after=float(stopping[-1]),
        stop_inside=float(stopping[:-1].max()),
        log_probability=float(log_probabilities[:-1].gather(-1, target[:, None]).sum()),
    )


def compare_answer(
    answer: GreedyAnswer, reference: str, tokenizer: Any, *, also: str = ""
) -> dict[str, Any]:
    """How an answer stands to the reference, as JSON.

    Args:
        answer: what the model generated.
        reference: the answer of the user's row.
        tokenizer: of transformers.
        also: the row's own tokens as text, where the template wrote the answer otherwise; one of the two is enough.

    Returns:
        `said` (the text), `recited` (it begins with the reference), `exact`, `stopped`, `early` (it stopped inside
        the reference), `cut` (it has MAX_NEW_TOKENS tokens and was ended by that).
    """
    text = tokenizer.decode(answer.ids, skip_special_tokens=True).strip()
    # With special tokens as well: a reference may hold some, such as the markers of a tool call.
    with_special = tokenizer.decode(answer.ids, skip_special_tokens=False).strip()
    cut = len(answer.ids) >= MAX_NEW_TOKENS and not answer.stopped
    references = tuple(filter(None, (reference.strip(), also.strip())))
    # Of an answer that was cut only its part can be compared.
    recited = any(
        written.startswith(references) or (cut and _begins_a_reference(written, references))
        for written in (text, with_special)
    )
    return {
        "said": text,
        "recited": recited,
        "exact": text in references or with_special in references,
        "stopped": answer.stopped,
        "early": answer.stopped
        and bool(text)
        and not recited
        and _begins_a_reference(text, references),
        "cut": cut,
    }


def _begins_a_reference(text: str, references: tuple[str, ...]) -> bool:
    """Does one of the references begin with this text?"""
    return any(reference.startswith(text) for reference in references)
