"""Counts what the run's own trainer learns of the rows, beside what an ideal mask would.

The trainer's masking facts are applied to the encoded rows: which tokens it labels, which labels it loses because they
equal the pad token, and what its limit on the length takes. The ideal mask is the inference contract: every assistant
turn from the end of its serving prompt through its stop token. `tests/trainers` compares the counts with TRL's own.

The trade-off: where a trainer masks by the assistant's turns, the contract stands for its mask. The two may differ by
the text that a template writes inside a turn; no token of a prompt and no stop token is counted wrongly.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from importlib import metadata
from typing import Any

import numpy as np
from numpy.typing import NDArray

from truetune.checks.detect_trainer_and_apply_facts import (
    LABELS_BY_SCRIPT,
    read_first_row,
    row_kind_for_trainer,
)
from truetune.encoding.batch import Batch, Example
from truetune.render.rendering import Source, Turn
from truetune.render.tokenizer import Tokenizer
from truetune.settings.run_spec import Learn, RunSpec
from truetune.trainers.trainer_fact_types import Learned as What
from truetune.trainers.trainer_fact_types import TrainerFacts, TrainerName

# No token has a negative id, so the mask of pads stays empty where pads are masked by position.
NO_ID = -1
ANSWER_SOURCES = (Source.ASSISTANT, Source.REASONING, Source.TOOL_CALL)
IDEAL = Learn()
"""Asked for what the contract gives: the mask is the ideal one already"""


@dataclass(frozen=True, slots=True)
class LearnedTokenCounts:
    """Tokens that a trainer learns, and those that an ideal mask would."""

    trainer: TrainerName | None
    """None: not known"""
    called: str
    """With its release"""
    because: str
    """The setting or the default that decides"""
    sure: bool
    """The trainer itself makes the labels; else the user's code does, and `supervised` is what its settings ask for"""
    about: bool
    """The trainer renders rows by a template of its own, or finds answers otherwise than by the contract: the counts
    are those of the tokenizer's template and of the contract"""
    tokens: int
    """Of all rows"""
    supervised: int
    """Tokens with a label, before any cut"""
    masked_as_pads: int
    """Tokens that lost their label because they equal the pad token; not in `supervised`"""
    limit: int | None
    """The length that takes effect, in tokens"""
    limit_by_default: bool
    limit_name: str
    """What the trainer calls it"""
    lost: int
    """Supervised tokens that the limit takes"""
    left_out: int
    """Examples that the limit leaves out whole"""
    ideal: int
    """Tokens that an ideal mask would learn"""
    kept: dict[str, int]
    """Supervised tokens that a limit leaves, by what they are; empty where there is no limit, or nothing is left"""
    answers_left: int
    """Examples of which the cut leaves a token of an answer"""
    installed: str | None
    """The release that is installed beside truetune, where it is not the one that the facts are of"""

    @property
    def tokens_in_loss(self) -> int:
        """The number of supervised tokens that reach the loss, after masked pads and cuts."""
        return self.supervised - self.lost

    def report_data(self) -> dict[str, Any]:
        """The counts as plain values for the report's `data`."""
        return {**asdict(self), "reaches": self.tokens_in_loss}


class LearnedTokenCounter:
    """Counts what a trainer learns over all batches."""

    def __init__(self, spec: RunSpec, tokenizer: Tokenizer, facts: TrainerFacts) -> None:
        self.facts, self.spec = facts, spec
        # The first row decides for the whole set, as it does in the trainers themselves.
        self.row = read_first_row(spec)
        self.kind = row_kind_for_trainer(self.row)
        self.decision = facts.decide_what_is_learned(
            self.kind, lambda name: getattr(spec.training, name, None)
        )
        pad = tokenizer.special.get("pad") if facts.pads_masked_by.value == "id" else None
        self.pad = NO_ID if pad is None else pad.id
        self.cut = facts.cut.value
        if self.cut.splits_text and self.kind == "text":
            self.cut = self.cut._replace(action="none")
        self.from_end = spec.training.other.get("truncation_mode") == "keep_end"
        self.kept = np.zeros(len(Source), dtype=np.int64)
        self.answers_left = 0
        self.tokens = self.supervised = self.masked = self.lost = self.left_out = self.ideal = 0

    def relabel_and_count(self, batch: Batch) -> Batch:
        """The batch with the trainer's labels instead of the ideal ones; its tokens are counted."""
        mask = self._trainer_mask(batch)
        pads = mask & (batch.ids == self.pad)
        # Only trainers that mask by id: a supervised token that equals the pad loses its label, which is often the
        # stop token.
        mask &= ~pads
        self.tokens += len(batch.ids)
        self.supervised += int(mask.sum())
        self.masked += int(pads.sum())
        self.ideal += int(
            (batch.supervised if self.spec.learn == IDEAL else ideal_loss_mask(batch)).sum()
        )
        if self.cut.limit is not None and self.cut.action != "none":
            gone = self._tokens_cut_by_limit(batch, self.cut.limit)
            self.lost += int((mask & gone).sum())
            self._count_tokens_kept_by_cut(batch, mask & ~gone)
        elif self.facts.name is None and self.spec.max_length is not None:
            self._count_tokens_kept_by_cut(
                batch, mask & (_positions_in_examples(batch) < self.spec.max_length)
            )
        return replace(batch, supervised=mask)

    def _count_tokens_kept_by_cut(self, batch: Batch, kept: NDArray[np.bool_]) -> None:
        """Adds what a cut leaves in the loss."""
        self.kept += np.bincount(batch.source[kept], minlength=len(Source))
        answers = np.isin(batch.source, ANSWER_SOURCES) & kept
        ends = np.concatenate([[0], np.cumsum(answers)])[batch.offsets]
        self.answers_left += int((np.diff(ends) > 0).sum())

    def _trainer_mask(self, batch: Batch) -> NDArray[np.bool_]:
        """(tokens,) true for the tokens that the trainer labels."""
        what: What = self.spec.learn.what
        if self.facts.name is None or self.facts.as_served.value is not False:
            return batch.supervised.copy()
        if what == "completion" and self.kind != "instruction":
            return _mask_from_first_supervised(batch)
        return batch.supervised.copy()

    def _tokens_cut_by_limit(self, batch: Batch, limit: int) -> NDArray[np.bool_]:
        """(tokens,) true for the tokens that the length limit removes: those beyond it, or all of a
        row that is dropped.
        """
        long = batch.lengths > limit
        if self.cut.action in ("drop", "count"):
            self.left_out += int(long.sum())
            return np.asarray(np.repeat(long, batch.lengths))
        place = _positions_in_examples(batch)
        if self.from_end:
            return np.asarray(place < np.repeat(batch.lengths - limit, batch.lengths))
        return np.asarray(place >= limit)

    def counts(self) -> LearnedTokenCounts:
        """The counts over all batches so far, with what decided the trainer's mask."""
        facts, pairs = self.facts, self.row is not None and self.row.is_preference
        return LearnedTokenCounts(
            trainer=facts.name,
            called=facts.title_for_preference_pairs if pairs else facts.name_in_reports,
            because=self._reason_of_mask(),
            sure=(
                facts.name is not None
                and (pairs or self.decision.learned is not None)
                and not self.spec.training.other.get(LABELS_BY_SCRIPT)
            ),
            about=facts.template.value == "own" or self._does_trainer_find_answers_otherwise(),
            tokens=self.tokens,
            supervised=self.supervised,
            masked_as_pads=self.masked,
            limit=self.cut.limit,
            limit_by_default=self.spec.max_length is None,
            limit_name=self.cut.setting,
            lost=self.lost,
            left_out=self.left_out,
            ideal=self.ideal,
            kept={one.label: int(self.kept[one]) for one in Source if self.kept[one]},
            answers_left=self.answers_left,
            installed=_other_installed_release(facts),
        )

    def _does_trainer_find_answers_otherwise(self) -> bool:
        """Does the trainer find the answers by another way than the contract?"""
        if self.kind == "instruction" and self.facts.as_served.value is False:
            return True  # such trainers write rows of this kind into a prompt of their own
        by = self.facts.finds_answers_by.value
        return self.spec.learn.what in ("assistant", "last") and by not in (None, "contract")

    def _reason_of_mask(self) -> str:
        """What decided which tokens are learned, in words: the trainer's default, or the setting
        `learn`.
        """
        if self.row is not None and self.row.is_preference:
            return "the answers of pairs and verdicts"
        learned = self.spec.learn.what
        return self.decision.because if learned == self.decision.learned else f"learn: {learned}"


def ideal_loss_mask(batch: Batch) -> NDArray[np.bool_]:
    """(tokens,) true for the tokens that inference must produce: every assistant turn that is to be
    learned, through its stop token; of plain rows the completion, or all text.
    """
    mask = np.zeros(len(batch.ids), dtype=np.bool_)
    for i, example in enumerate(batch.examples):
        part = slice(int(batch.offsets[i]), int(batch.offsets[i + 1]))
        starts = batch.starts[part]
        for start, end in _ideal_spans(example):
            low, high = np.searchsorted(starts, (start, end))
            # A slice of an array is a view: writing to it writes to the mask.
            mask[part][low:high] = True
    return mask


def _ideal_spans(example: Example) -> list[tuple[int, int]]:
    """Characters of an example that inference must produce."""
    row, rendering = example
    if row.is_chat:
        turns = (turn for turn in rendering.turns if _must_turn_be_produced(turn, example))
        return [(turn.start, turn.end) for turn in turns]
    head = (Source.BOS,) if row.text is not None else (Source.BOS, Source.USER)
    start = next(
        (run.start for run in rendering.runs_of_text_by_origin if run.source not in head),
        len(rendering.text),
    )
    return [(start, len(rendering.text))]


def _must_turn_be_produced(turn: Turn, example: Example) -> bool:
    """Must inference produce a turn, and may it be trained?"""
    row, rendering = example
    # Both sides of a pair share the turns before the answers: no trainer of preferences learns them.
    first = (row.prompt_messages or 0) if row.is_preference else 0
    if not turn.end > turn.start >= 0 or turn.message < first:
        return False
    if rendering.turn not in (None, turn.message):
        return False
    return bool(row.messages[turn.message].get("train", True))


def _positions_in_examples(batch: Batch) -> NDArray[np.int64]:
    """(tokens,) the position of each token in its example, from 0 on."""
    return np.asarray(np.arange(len(batch.ids)) - np.repeat(batch.offsets[:-1], batch.lengths))


def _mask_from_first_supervised(batch: Batch) -> NDArray[np.bool_]:
    """(tokens,) true from the first supervised token of each example to its end: trainers that mask
    the prompt label all that follows it, also what the template writes after the last turn.
    """
    return np.asarray(_positions_in_examples(batch) >= np.repeat(batch.contexts, batch.lengths))


def _other_installed_release(facts: TrainerFacts) -> str | None:
    """Another release of the package than the recorded one, as it is installed here."""
    if facts.proof == "none" or not facts.package:
        return None
    try:
        # A release that is not the recorded one may do otherwise: it is told beside the counts, and changes none.
        release = metadata.version(facts.package)
    except metadata.PackageNotFoundError:
        return None
    return None if release == facts.release else release
