"""Canaries: one unique string in each text of a copied row, followed through the trainer's own preparation.

What comes out says of every field whether it is learned, read, or lost, whatever the formatting function does.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any, NamedTuple

from truetune.probe.canary_dataset import SAMPLED_ROWS, canary_dataset_of, no_progress_bars
from truetune.probe.preserve_state import preserve_state
from truetune.probe.watermarks import Watermark, add_watermarks, texts_by_field, tokenized_columns

NOTE_TOKENIZED = (
    "the rows were tokenized before the trainer saw them, so no field can be followed; `truetune"
    " run --canary` follows data sets of `datasets` from the program's start"
)
NOTE_SEVERAL_PROCESSES = (
    "with several processes a canary is sent by `truetune run --canary` alone: the preparation"
    " waits for all of them"
)
NOTE_NO_TOKENIZER = (
    "its tokens can't be read, for the trainer has no tokenizer: give it processing_class=tokenizer"
)
LENGTH_LIMITS = ("max_length", "max_seq_length", "cutoff_len", "sequence_len")
KEY_PREFIXES = ("", "chosen_", "rejected_", "prompt_", "completion_")


class PreparedCanary(NamedTuple):
    """The canary as it reaches the collator."""

    rows: Any
    """None where there is no way to make them"""
    marks: tuple[Watermark, ...] = ()
    given: tuple[dict[str, Any], ...] = ()
    """As they were before any preparation"""
    note: str = ""
    sampled: tuple[dict[str, str], ...] = ()
    """Texts of the first rows that were given, by their field"""


class CollatedLine(NamedTuple):
    """One line of the collated canary."""

    ids: list[int]
    learned: list[bool]


def trace_canary(trainer: Any, given: Any = None) -> dict[str, Any]:
    """What becomes of each text of a copied row: {"fields": [{path, role, text, seen}], "formatted", "sampled",
    "note"}, as JSON.

    `seen` is supervised, context, cut (it reaches into the length limit) or lost; `formatted` are the paths that the
    formatting function writes; `sampled` are the texts of some rows, by their field. The run is not changed; what
    its own code raises on the canary is told in `note`.
    """
    if trainer is None or getattr(trainer, "train_dataset", None) is None:
        return {"fields": [], "note": "canaries need a trainer with a data set"}
    try:
        with preserve_state(), no_progress_bars():
            made = _prepare_canary(trainer, given)
            if made.rows is None:
                return {"fields": [], "note": made.note}
            if _tokenizer_of(trainer) is None:
                return {"fields": [], "note": NOTE_NO_TOKENIZER}
            seen = _outcomes(trainer, made)
            formatted = _paths_in_formatted_text(trainer, made)
    except Exception as error:
        return {
            "fields": [],
            "note": f"the preparation failed on the canary: {type(error).__name__}: {error}",
        }
    fields = [{"path": m.path, "role": m.role, "text": m.text, "seen": seen[m]} for m in made.marks]
    return {
        "fields": fields,
        "formatted": formatted,
        "sampled": list(made.sampled),
        "note": made.note,
    }


def _prepare_canary(trainer: Any, given: Any) -> PreparedCanary:
    """By the twin that was followed, by the trainer's own preparation, or as it is where there is none."""
    twin = canary_dataset_of(trainer.train_dataset)
    if twin is not None and twin.dataset is not None:
        return PreparedCanary(twin.dataset, twin.marks, twin.rows, twin.note, twin.sampled)
    source = trainer.train_dataset if given is None else given
    row = next(iter(source), None) if not isinstance(source, Iterator) else None
    if not isinstance(row, Mapping):
        return PreparedCanary(None, note="no row of the data can be copied")
    made, done = getattr(trainer, "_prepare_dataset", None), tokenized_columns(row)
    lost = twin.note if twin is not None else NOTE_TOKENIZED
    if done and (given is not None or made is None):
        return PreparedCanary(None, note=lost)
    canary, marks = add_watermarks({name: value for name, value in row.items() if name not in done})
    sampled = tuple(
        texts_by_field(one) for one in islice(source, SAMPLED_ROWS) if isinstance(one, Mapping)
    )
    if marks and made is not None and getattr(trainer.args, "world_size", 1) > 1:
        return PreparedCanary(None, note=NOTE_SEVERAL_PROCESSES)
    if marks and made is not None and not getattr(trainer, "_skip_prepare_dataset", False):
        import datasets

        features = None if done else getattr(source, "features", None)
        table = datasets.Dataset.from_list([canary], features=features)
        return PreparedCanary(
            made(**_prepare_arguments(trainer, made, table)), marks, (canary,), sampled=sampled
        )
    if marks and (given is None or set(row) == set(next(iter(trainer.train_dataset)))):
        return PreparedCanary([canary], marks, (canary,), sampled=sampled)
    return PreparedCanary(None, note=lost)


def _paths_in_formatted_text(trainer: Any, made: PreparedCanary) -> list[str]:
    """Paths of the texts that the formatting function writes, where the trainer has one."""
    function = getattr(trainer, "_formatting_func", None)
    if function is None:
        return []
    text = strip_whitespace_and_case(" ".join(str(function(row)) for row in made.given))
    return [mark.path for mark in made.marks if strip_whitespace_and_case(mark.text) in text]


def _prepare_arguments(trainer: Any, made: Any, table: Any) -> dict[str, Any]:
    """By the names that this version of TRL's `_prepare_dataset` has."""
    args = copy.deepcopy(trainer.args)
    if hasattr(args, "dataset_num_proc"):
        args.dataset_num_proc = None
    tokenizer = getattr(trainer, "processing_class", None) or getattr(trainer, "tokenizer", None)
    known = {
        "dataset": table,
        "processing_class": tokenizer,
        "tokenizer": tokenizer,
        "args": args,
        "packing": getattr(args, "packing", False),
        "formatting_func": getattr(trainer, "_formatting_func", None),
        "dataset_name": "canary",
    }
    wanted = inspect.signature(made).parameters.values()
    return {
        p.name: known[p.name] if p.name in known else getattr(args, p.name, None)
        for p in wanted
        if p.name in known or p.default is p.empty
    }


def _collate_canary(trainer: Any, prepared: Any) -> list[CollatedLine]:
    """As the loader does it: columns removed, then the collator; on a copy of the trainer, whose state it may set."""
    shadow = copy.copy(trainer)
    if hasattr(prepared, "column_names") and getattr(shadow.args, "remove_unused_columns", False):
        prepared = shadow._remove_unused_columns(prepared, description="canary")
    batch = shadow.data_collator([prepared[i] for i in range(len(prepared))])
    return list(_collated_lines(batch))


def _collated_lines(batch: Mapping[str, Any]) -> Iterator[CollatedLine]:
    for prefix in KEY_PREFIXES:
        ids = batch.get(f"{prefix}input_ids")
        if ids is None or getattr(ids, "ndim", 0) != 2:
            continue
        labels, mask = batch.get(f"{prefix}labels"), batch.get(f"{prefix}completion_mask")
        for i, line in enumerate(ids.tolist()):
            learned = [prefix not in ("", "prompt_")] * len(line)
            if labels is not None and labels.shape == ids.shape:
                learned = [label != -100 for label in labels[i].tolist()]
            elif mask is not None:
                learned = [bool(kept) for kept in mask[i].tolist()]
            yield CollatedLine(line, learned)


class LineDecoder:
    """The text of a line without white space, which tokenizers write in ways of their own."""

    def __init__(self, tokenizer: Any) -> None:
        self.tokenizer = tokenizer
        self.known: dict[int, str] = {}

    def __call__(self, line: CollatedLine) -> tuple[str, list[int]]:
        """The text, and the token that each of its characters is from."""
        pieces = [self._piece(id) for id in line.ids]
        return "".join(pieces), [i for i, piece in enumerate(pieces) for _ in piece]

    def _piece(self, id: int) -> str:
        if id not in self.known:
            self.known[id] = (
                strip_whitespace_and_case(self.tokenizer.decode([id])) if id >= 0 else ""
            )
        return self.known[id]


def strip_whitespace_and_case(text: str) -> str:
    """A text without white space and case."""
    return "".join(text.split()).casefold()


def _tokenizer_of(trainer: Any) -> Any:
    """The trainer's, else that of its collator; None where neither has one."""
    return next(
        (
            found
            for holder, name in (
                (trainer, "processing_class"),
                (trainer, "tokenizer"),
                (trainer.data_collator, "tokenizer"),
            )
            if (found := getattr(holder, name, None)) is not None
        ),
        None,
    )


def _outcomes(trainer: Any, made: PreparedCanary) -> dict[Watermark, str]:
    tokenizer = _tokenizer_of(trainer)
    spell = LineDecoder(getattr(tokenizer, "tokenizer", tokenizer))
    limits = (getattr(trainer.args, name, None) for name in LENGTH_LIMITS)
    limit = next((value for value in limits if isinstance(value, int)), None)
    lines = _collate_canary(trainer, made.rows)
    return {mark: _outcome_of(mark, lines, spell, limit) for mark in made.marks}


def _outcome_of(
    mark: Watermark, lines: list[CollatedLine], spell: LineDecoder, limit: int | None
) -> str:
    wanted, found = strip_whitespace_and_case(mark.text), "lost"
    for line in lines:
        text, owner = spell(line)
        start = text.find(wanted)
        if start >= 0:
            tokens = {owner[i] for i in range(start, start + len(wanted))}
            if sum(line.learned[i] for i in tokens) * 2 > len(tokens):
                return "supervised"
            found = "context"
        elif found == "lost" and limit is not None and len(line.ids) >= limit:
            found = "cut"
    return found
