"""Follows a canary, a copied row with a unique string in each text, through the trainer's own preparation.

What comes out says of every field whether it is learned, read, or lost, whatever the formatting function does. The
canary is that which was followed through the user's own `map` calls (`truetune.probe.follow_canary_through_maps`);
else the trainer's preparation is run on a copied row here; else the row is given to the collator as it is. The
collator makes a batch of it, whose lines are decoded token by token (`LineDecoder`) and searched for the strings.

Trade-off: one row stands for all. A field that only some rows have, or a branch of the formatting function that this
row does not take, is not seen.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any, NamedTuple

from truetune.probe.follow_canary_through_maps import (
    SAMPLED_ROWS,
    canary_dataset_of,
    no_progress_bars,
)
from truetune.probe.mark_row_texts_with_unique_strings import (
    Watermark,
    add_watermarks,
    columns_that_hold_ids_or_labels,
    texts_by_field,
)
from truetune.probe.restore_state_changed_by_observing_run import preserve_state

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
# What releases of TRL and Axolotl call the limit on a row's tokens; the first that is a number holds.
LENGTH_LIMITS = ("max_length", "max_seq_length", "cutoff_len", "sequence_len")
# Of a batch's keys: plain rows, and the sides of preference pairs.
KEY_PREFIXES = ("", "chosen_", "rejected_", "prompt_", "completion_")


class PreparedCanary(NamedTuple):
    """The canary as it reaches the collator."""

    rows: Any
    """A list or data set of rows; None where there is no way to make them"""
    marks: tuple[Watermark, ...] = ()
    source: tuple[dict[str, Any], ...] = ()
    """The watermarked rows as they were before any preparation"""
    note: str = ""
    sampled: tuple[dict[str, str], ...] = ()
    """Texts of the first rows of the user's data, by their field"""


class CollatedLine(NamedTuple):
    """One line of the collated canary."""

    ids: list[int]
    learned: list[bool]
    """Of each token: is it in the loss?"""


def trace_canary(trainer: Any, source_data: Any = None) -> dict[str, Any]:
    """What becomes of each text of a copied row, as JSON.

    The run is not changed; what its own code raises on the canary is told in `note`.

    Args:
        trainer: about to train; None in a loop of the user's own.
        source_data: the data set before the trainer's own preparation; None where it is not known.

    Returns:
        `fields`: of each text its `path`, `role`, `text`, and `seen`: supervised, context, cut (it reaches into the
        length limit) or lost; `formatted`: the paths that the formatting function writes; `sampled`: the texts of some
        rows, by their field; `note`: why there is nothing, else empty.
    """
    if trainer is None or getattr(trainer, "train_dataset", None) is None:
        return {"fields": [], "note": "canaries need a trainer with a data set"}
    try:
        with preserve_state(), no_progress_bars():
            canary = _find_or_make_prepared_canary(trainer, source_data)
            if canary.rows is None:
                return {"fields": [], "note": canary.note}
            if _tokenizer_of(trainer) is None:
                return {"fields": [], "note": NOTE_NO_TOKENIZER}
            outcomes = _outcome_by_watermark(trainer, canary)
            formatted = _paths_of_marks_in_formatted_text(trainer, canary)
    except Exception as error:
        return {
            "fields": [],
            "note": f"the preparation failed on the canary: {type(error).__name__}: {error}",
        }
    fields = [
        {"path": mark.path, "role": mark.role, "text": mark.text, "seen": outcomes[mark]}
        for mark in canary.marks
    ]
    return {
        "fields": fields,
        "formatted": formatted,
        "sampled": list(canary.sampled),
        "note": canary.note,
    }


def _find_or_make_prepared_canary(trainer: Any, source_data: Any) -> PreparedCanary:
    """The canary that was followed, else one made by the trainer's own preparation, else a row as it is."""
    followed = canary_dataset_of(trainer.train_dataset)
    if followed is not None and followed.dataset is not None:
        return PreparedCanary(
            followed.dataset, followed.marks, followed.rows, followed.note, followed.sampled
        )
    source = trainer.train_dataset if source_data is None else source_data
    # An iterator is not asked: the row that it gives would be missing from the run.
    row = None if isinstance(source, Iterator) else next(iter(source), None)
    if not isinstance(row, Mapping):
        return PreparedCanary(None, note="no row of the data can be copied")
    why_lost = followed.note if followed is not None else NOTE_TOKENIZED
    return _make_and_prepare_canary_row(trainer, source_data, source, row, why_lost)


def _make_and_prepare_canary_row(
    trainer: Any, source_data: Any, source: Any, row: Mapping[str, Any], why_lost: str
) -> PreparedCanary:
    """A canary made of this row of `source`; `why_lost` is the note where there is no way to prepare it."""
    prepare, tokenized = (
        getattr(trainer, "_prepare_dataset", None),
        columns_that_hold_ids_or_labels(row),
    )
    if tokenized and (source_data is not None or prepare is None):
        return PreparedCanary(None, note=why_lost)
    canary, marks = add_watermarks(_row_without_columns(row, tokenized))
    sampled = _texts_of_first_rows(source)
    if not marks:
        return PreparedCanary(None, note=why_lost)
    if prepare is not None:
        # TRL's preparation waits at a barrier for the other processes, which this canary is not sent through.
        if getattr(trainer.args, "world_size", 1) > 1:
            return PreparedCanary(None, note=NOTE_SEVERAL_PROCESSES)
        if not getattr(trainer, "_skip_prepare_dataset", False):
            # Without the columns of ids the features of the whole data set do not fit.
            features = None if tokenized else getattr(source, "features", None)
            rows = _prepare_as_trainer(trainer, prepare, canary, features)
            return PreparedCanary(rows, marks, (canary,), sampled=sampled)
    if source_data is None or _has_same_columns(row, trainer.train_dataset):
        return PreparedCanary([canary], marks, (canary,), sampled=sampled)
    return PreparedCanary(None, note=why_lost)


def _row_without_columns(row: Mapping[str, Any], columns: set[str]) -> dict[str, Any]:
    """A row without these columns."""
    return {name: value for name, value in row.items() if name not in columns}


def _has_same_columns(row: Mapping[str, Any], dataset: Any) -> bool:
    """Has the prepared data set the columns of this row, so that nothing was done to it?"""
    return set(row) == set(next(iter(dataset)))


def _texts_of_first_rows(source: Any) -> tuple[dict[str, str], ...]:
    """The texts of the first rows, by their field."""
    rows = islice(source, SAMPLED_ROWS)
    return tuple(texts_by_field(row) for row in rows if isinstance(row, Mapping))


def _prepare_as_trainer(trainer: Any, prepare: Any, canary: dict[str, Any], features: Any) -> Any:
    """Prepare the canary's rows as the trainer does, by its own preparation of data sets."""
    import datasets

    table = datasets.Dataset.from_list([canary], features=features)
    return prepare(**_arguments_for_trl_prepare_dataset(trainer, prepare, table))


def _paths_of_marks_in_formatted_text(trainer: Any, canary: PreparedCanary) -> list[str]:
    """Paths of the texts that the formatting function writes, where the trainer has one."""
    function = getattr(trainer, "_formatting_func", None)
    if function is None:
        return []
    text = strip_whitespace_and_case(" ".join(str(function(row)) for row in canary.source))
    return [mark.path for mark in canary.marks if strip_whitespace_and_case(mark.text) in text]


def _arguments_for_trl_prepare_dataset(trainer: Any, prepare: Any, table: Any) -> dict[str, Any]:
    """Arguments for `_prepare_dataset`, by the names that this version of TRL gives its parameters."""
    args = copy.deepcopy(trainer.args)
    if hasattr(args, "dataset_num_proc"):
        args.dataset_num_proc = None  # no other processes for one row
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
    arguments = {}
    for parameter in inspect.signature(prepare).parameters.values():
        if parameter.name in known:
            arguments[parameter.name] = known[parameter.name]
        elif parameter.default is parameter.empty:
            # A parameter of another release: TRL names those as it names its settings.
            arguments[parameter.name] = getattr(args, parameter.name, None)
    return arguments


def _collate_canary(trainer: Any, prepared: Any) -> list[CollatedLine]:
    """Collate the canary as the loader does: columns removed, then the collator; on a copy of the trainer,
    whose state it may set.
    """
    shadow = copy.copy(trainer)
    if hasattr(prepared, "column_names") and getattr(shadow.args, "remove_unused_columns", False):
        prepared = shadow._remove_unused_columns(prepared, description="canary")
    batch = shadow.data_collator([prepared[i] for i in range(len(prepared))])
    return list(_collated_lines(batch))


def _collated_lines(batch: Mapping[str, Any]) -> Iterator[CollatedLine]:
    """Yield each line of ids of a batch, with what of it is learned."""
    for prefix in KEY_PREFIXES:
        ids = batch.get(f"{prefix}input_ids")
        if ids is None or getattr(ids, "ndim", 0) != 2:
            continue
        labels, mask = batch.get(f"{prefix}labels"), batch.get(f"{prefix}completion_mask")
        for i, line in enumerate(ids.tolist()):
            # Without labels or mask the loss takes the answers of pairs whole, and no prompt.
            learned = [prefix not in ("", "prompt_")] * len(line)
            if labels is not None and labels.shape == ids.shape:
                learned = [label != -100 for label in labels[i].tolist()]
            elif mask is not None:
                learned = [bool(in_loss) for in_loss in mask[i].tolist()]
            yield CollatedLine(line, learned)


class LineDecoder:
    """Decodes lines token by token, without white space, which tokenizers write in ways of their own.

    Token by token, since a whole line decodes to text of which no character knows its token.
    """

    def __init__(self, tokenizer: Any) -> None:
        """`tokenizer` is one of transformers."""
        self.tokenizer = tokenizer
        self._pieces: dict[int, str] = {}

    def __call__(self, line: CollatedLine) -> tuple[str, list[int]]:
        """The text, and the position of the token that each of its characters is from."""
        pieces = [self._text_of_token(id) for id in line.ids]
        return "".join(pieces), [i for i, piece in enumerate(pieces) for _ in piece]

    def _text_of_token(self, id: int) -> str:
        """The text of one token; of a negative id (a mask) there is none."""
        if id not in self._pieces:
            text = self.tokenizer.decode([id]) if id >= 0 else ""
            self._pieces[id] = strip_whitespace_and_case(text)
        return self._pieces[id]


def strip_whitespace_and_case(text: str) -> str:
    """A text without white space and case: formatting functions change both, and mean the same text."""
    return "".join(text.split()).casefold()


def _tokenizer_of(trainer: Any) -> Any:
    """The trainer's tokenizer, else that of its collator; None where neither has one."""
    for holder, name in (
        (trainer, "processing_class"),
        (trainer, "tokenizer"),
        (trainer.data_collator, "tokenizer"),
    ):
        tokenizer = getattr(holder, name, None)
        if tokenizer is not None:
            return tokenizer
    return None


def _outcome_by_watermark(trainer: Any, canary: PreparedCanary) -> dict[Watermark, str]:
    """What became of each watermark in the collated canary."""
    tokenizer = _tokenizer_of(trainer)
    decode = LineDecoder(getattr(tokenizer, "tokenizer", tokenizer))
    limits = (getattr(trainer.args, name, None) for name in LENGTH_LIMITS)
    limit = next((value for value in limits if isinstance(value, int)), None)
    lines = _collate_canary(trainer, canary.rows)
    return {mark: _best_outcome_of_watermark(mark, lines, decode, limit) for mark in canary.marks}


def _best_outcome_of_watermark(
    mark: Watermark, lines: list[CollatedLine], decode: LineDecoder, limit: int | None
) -> str:
    """supervised, context, cut or lost: the best that one of the lines says of a watermark."""
    watermark, outcome = strip_whitespace_and_case(mark.text), "lost"
    for line in lines:
        text, owner = decode(line)
        start = text.find(watermark)
        if start >= 0:
            tokens = {owner[i] for i in range(start, start + len(watermark))}
            # More than half: its first token may also hold the end of what stands before it.
            if sum(line.learned[i] for i in tokens) * 2 > len(tokens):
                return "supervised"
            outcome = "context"
        elif outcome == "lost" and limit is not None and len(line.ids) >= limit:
            outcome = "cut"
    return outcome
