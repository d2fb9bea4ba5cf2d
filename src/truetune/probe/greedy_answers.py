"""Saying: what a model generates greedily from prompts, and how it answers compared with what it should."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch

MAX_NEW_TOKENS = 160
"""Tokens of an answer that are asked for"""
SPARE_TOKENS = 16
"""Tokens by which an answer may run on before it counts as not stopping"""


class GreedyAnswer(NamedTuple):
    ids: list[int]
    """Generated ids, without the stop id"""
    stopped: bool


@torch.no_grad()
def generate_greedily(
    model: torch.nn.Module, prompts: list[list[int]], stops: set[int], limits: list[int]
) -> list[GreedyAnswer]:
    """Greedy answers, as a server would generate them, until a stop id or a limit of tokens each.

    Without a cache, padded on the right: nothing but the causal order of the tokens is asked of the model.
    """
    rows = [list(prompt) for prompt in prompts]
    ended = [False] * len(rows)
    device = next(model.parameters()).device
    pad = next(iter(stops), 0)
    for _ in range(max(limits, default=0)):
        open_ = [
            i
            for i, row in enumerate(rows)
            if not ended[i] and len(row) - len(prompts[i]) < limits[i]
        ]
        if not open_:
            break
        ids, mask = pad_right([rows[i] for i in open_], pad)
        logits = model(
            input_ids=ids.to(device), attention_mask=mask.to(device), use_cache=False
        ).logits
        last = torch.tensor([len(rows[i]) - 1 for i in open_])
        for i, id in zip(
            open_, logits[torch.arange(len(open_)), last].argmax(dim=-1).tolist(), strict=True
        ):
            if id in stops:
                ended[i] = True
            else:
                rows[i].append(id)
    return [
        GreedyAnswer(row[len(prompt) :], end)
        for row, prompt, end in zip(rows, prompts, ended, strict=True)
    ]


def pad_right(rows: list[list[int]], pad: int) -> tuple[torch.Tensor, torch.Tensor]:
    """(rows, longest) ids, padded on the right, and the attention mask."""
    longest = max(len(row) for row in rows)
    ids = torch.tensor([row + [pad] * (longest - len(row)) for row in rows])
    mask = torch.tensor([[1] * len(row) + [0] * (longest - len(row)) for row in rows])
    return ids, mask


class AnswerScore(NamedTuple):
    """An answer given to the model token by token."""

    right: float
    """Share of its tokens that are the most likely ones"""
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
    """What the model thinks of an answer (without its stop token) after a prompt."""
    device = next(model.parameters()).device
    ids = torch.tensor([prompt + answer], device=device)
    logits = model(
        input_ids=ids, attention_mask=torch.ones_like(ids), use_cache=False
    ).logits.float()
    logits = logits[0, len(prompt) - 1 :]
    wanted = torch.tensor(answer, device=device)
    chances = logits.log_softmax(dim=-1)
    stopping = sum(
        (chances[:, stop].exp() for stop in sorted(stops)),
        torch.zeros(len(answer) + 1, device=device),
    )
    return AnswerScore(
        right=float((logits[:-1].argmax(dim=-1) == wanted).float().mean()) if answer else 1.0,
        stop_after=float(stopping[-1]),
        stop_inside=float(stopping[:-1].max()) if answer else 0.0,
        log_probability=float(chances[:-1].gather(-1, wanted[:, None]).sum()) if answer else 0.0,
    )


def compare_answer(
    said: GreedyAnswer, reference: str, tokenizer: Any, *, also: str = ""
) -> dict[str, Any]:
    """How an answer stands to the reference (or `also`, the row's own tokens): text, recited, stopped, early."""
    text = tokenizer.decode(said.ids, skip_special_tokens=True).strip()
    wanted = [w for w in (reference.strip(), also.strip()) if w]
    whole = tokenizer.decode(said.ids, skip_special_tokens=False).strip()
    cut = len(said.ids) >= MAX_NEW_TOKENS and not said.stopped
    recited = any(
        t.startswith(w) or (cut and w.startswith(t)) for w in wanted for t in (text, whole)
    )
    exact = any(t == w for w in wanted for t in (text, whole))
    early = said.stopped and bool(text) and not recited and any(w.startswith(text) for w in wanted)
    return {
        "said": text,
        "recited": recited,
        "exact": exact,
        "stopped": said.stopped,
        "early": early,
        "cut": cut,
    }
