"""Reads the scores of a reward model inside the trainer's own loss: whose they are, and how the loss depends on them.

`score_answers_inside` stands behind the model's forward while a loss is computed. It notes which answer each line of a
pass is, by its ids, and may exchange the scores for others: then the loss can be asked what it does with any scores.

The trade-off: an answer is known by its ids alone, so two rows with the same answer can't be told apart, and are left
out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch

from truetune.probe.compact_vocabulary_to_used_ids import vocab_map_of
from truetune.probe.measuring.law_input_and_result_types import Trial, Untested

CHOSEN, REJECTED = "chosen", "rejected"
SIDES = (CHOSEN, REJECTED)
# How TRL's releases and the trainers that grew from their examples name the two columns.
ID_COLUMNS = ("{}_ids", "{}_input_ids", "input_ids_{}")


@dataclass(frozen=True)
class ScoredAnswer:
    """One answer of a pair, where a pass scored it."""

    side: str
    row: int
    """Of the micro-batch"""
    ids: tuple[int, ...]
    call: int
    """Which forward pass of the loss"""
    line: int
    """Of that pass"""
    start: int
    """Where its tokens begin in the line: padding may stand before them"""


@dataclass
class ScoringPass:
    """What the passes of one loss scored."""

    answers: list[ScoredAnswer]
    scores: list[torch.Tensor]
    """(lines,) of each forward pass, as the loss was given them"""
    embedded: list[torch.Tensor]
    """(lines, tokens, width) of each forward pass: the embedded tokens; with `with_embeddings` alone"""

    def score_of(self, answer: ScoredAnswer) -> torch.Tensor:
        """The score of an answer."""
        return self.scores[answer.call][answer.line]


def require_reward_trainer(trial: Trial) -> None:
    """Raises Untested where no reward model is trained."""
    if trial.kind != "reward":
        raise Untested("the trainer trains no reward model")


def answers_of_rows(rows: Sequence[Any]) -> dict[tuple[int, ...], tuple[str, int]]:
    """The side and the row of each answer of a micro-batch, by its ids. Raises Untested where rows hold no pairs."""
    pairs = [
        (side, number, _ids_of_side(row, side)) for number, row in enumerate(rows) for side in SIDES
    ]
    counts = Counter(ids for _, _, ids in pairs)
    known = {ids: (side, number) for side, number, ids in pairs if ids and counts[ids] == 1}
    if not known:
        raise Untested("the rows hold no ids of a chosen and a rejected answer")
    return known


def _ids_of_side(row: Any, side: str) -> tuple[int, ...]:
    """The ids of one side of a prepared row; none where it has no such column."""
    if not isinstance(row, Mapping):
        return ()
    for form in ID_COLUMNS:
        ids = row.get(form.format(side))
        if ids is not None:
            return tuple(int(token) for token in ids)
    return ()


@contextmanager
def score_answers_inside(
    trial: Trial,
    known: Mapping[tuple[int, ...], tuple[str, int]],
    *,
    exchange: bool = False,
    with_embeddings: bool = False,
) -> Iterator[ScoringPass]:
    """Inside, the passes of the model note which answers they score.

    Args:
        trial: the run.
        known: the answers of the micro-batch (`answers_of_rows`).
        exchange: give the loss 0 as each score, as leaves of which a gradient can be taken.
        with_embeddings: make the embedded tokens leaves of which a gradient can be taken.
    """
    scoring_pass = ScoringPass([], [], [])

    def note(module: Any, args: Any, kwargs: Any, output: Any) -> Any:
        scores = _scores_of_output(output)
        if scores is None:
            return None
        if exchange:
            scores = torch.zeros_like(scores, dtype=torch.float32).requires_grad_()
        ids = kwargs.get("input_ids", args[0] if args else None)
        mask = kwargs.get("attention_mask", args[1] if len(args) > 1 else None)
        if ids is None or ids.dim() != 2:
            return None
        scoring_pass.answers += _answers_of_lines(trial, known, ids, mask, len(scoring_pass.scores))
        scoring_pass.scores.append(scores)
        return _with_scores(output, scores) if exchange else None

    def embed(module: Any, args: Any, output: Any) -> Any:
        leaf = output.detach().requires_grad_()
        scoring_pass.embedded.append(leaf)
        return leaf

    handles = [trial.model.register_forward_hook(note, with_kwargs=True)]
    if with_embeddings:
        handles.append(_input_embedding(trial).register_forward_hook(embed))
    try:
        yield scoring_pass
    finally:
        for handle in handles:
            handle.remove()


def _input_embedding(trial: Trial) -> torch.nn.Module:
    """The module that embeds the tokens. Raises Untested where the model does not tell it."""
    model: Any = trial.model
    layer = model.get_input_embeddings() if hasattr(model, "get_input_embeddings") else None
    if not isinstance(layer, torch.nn.Module):
        raise Untested("the model does not tell its input embedding")
    return layer


def _scores_of_output(output: Any) -> torch.Tensor | None:
    """(lines,) scores of a forward pass; None where it gives no single score a line."""
    logits = getattr(output, "logits", None)
    if logits is None and isinstance(output, Mapping):
        logits = output.get("logits")
    if not isinstance(logits, torch.Tensor):
        return None
    if logits.dim() == 2 and logits.shape[1] == 1:
        return logits[:, 0]
    return None


def _with_scores(output: Any, scores: torch.Tensor) -> Any:
    """The output of a forward pass with these scores in the place of its own."""
    logits = scores[:, None]
    if isinstance(output, dict) and not hasattr(output, "logits"):
        return {**output, "logits": logits}
    return replace(output, logits=logits)


def _answers_of_lines(
    trial: Trial,
    known: Mapping[tuple[int, ...], tuple[str, int]],
    ids: torch.Tensor,
    mask: torch.Tensor | None,
    call: int,
) -> Iterator[ScoredAnswer]:
    """The answers that the lines of a pass hold, where they are recognised."""
    vocab_map = vocab_map_of(trial.model)
    for number, line in enumerate(ids.tolist()):
        # A mask that leaves out a part of the answer is another rule's: the ids are looked for as they stand, too.
        spans = (
            [_attended_span(mask[number].tolist())] if mask is not None and mask.dim() == 2 else []
        )
        candidates = [*spans, *_spans_by_length(line, known)]
        for begin, end in candidates:
            piece = line[begin:end]
            named = known.get(tuple(piece))
            if named is None and vocab_map is not None:
                piece = vocab_map.to_ids(torch.tensor(piece, dtype=torch.long)).tolist()
                named = known.get(tuple(piece))
            if named is not None:
                yield ScoredAnswer(*named, tuple(piece), call, number, begin)
                break


def _attended_span(flags: Sequence[int]) -> tuple[int, int]:
    """From the first attended place to behind the last."""
    places = [place for place, flag in enumerate(flags) if flag]
    return (places[0], places[-1] + 1) if places else (0, 0)


def _spans_by_length(
    line: Sequence[int], known: Mapping[tuple[int, ...], tuple[str, int]]
) -> Iterator[tuple[int, int]]:
    """Where each known answer would stand at the beginning or the end of a line; the longest answers first."""
    for length in sorted({len(ids) for ids in known}, reverse=True):
        if length <= len(line):
            yield 0, length
            yield len(line) - length, len(line)
