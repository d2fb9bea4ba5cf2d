"""Retypes numbers and truth values: as text where text is read, and from text where they are read."""

from __future__ import annotations

import re
from collections.abc import Iterator
from math import isfinite
from typing import Any

from truetune.data.column_name_aliases import COLUMN_ALIASES
from truetune.fixing.base_of_row_remedies import (
    Attempt,
    ProblemRemedy,
    RowView,
    Stage,
    combine_into_one_attempt,
)
from truetune.fixing.row_edits import Edit, PutValue

NUMBER = re.compile(r"\s*\d+(?:\.\d+)?\s*")
TRUTH = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}
TEXT_COLUMNS = (
    "instruction",
    "input",
    "output",
    "prompt",
    "completion",
    "chosen",
    "rejected",
    "text",
    "system",
)


class WriteScalarsAsText(ProblemRemedy):
    """Writes numbers and truth values as text, as truetune reads them there: a number with its
    digits, `true` as `true`.
    """

    rule = "malformed-rows"
    what = "write numbers and truth values in contents as text"
    safe = True
    stage = Stage.SHAPE
    kinds = ("not-a-string",)

    def attempts(self, row: RowView) -> Iterator[Attempt]:
        """One attempt that makes text of all numbers and truth values in contents and columns of
        the row.
        """
        yield from combine_into_one_attempt(self._edits_to_text(row))

    def _edits_to_text(self, row: RowView) -> Iterator[Edit]:
        """Edits that make text of each number or truth value where text is read."""
        for turn in row.turns:
            for key in ("content", "value"):
                if _is_scalar(turn.message.get(key)):
                    path = (*turn.path, key)
                    # As the file spells it: `1.50` must not become `1.5`.
                    yield PutValue(path, row.json_text_at(path))
        columns = {alias for name in TEXT_COLUMNS for alias in COLUMN_ALIASES[name]} | set(
            self.context.spec.map.values()
        )
        for column in columns & row.value.keys() - set(row.conversation.unused):
            if (
                _is_scalar(row.value[column])
                and self.context.truetune_column_by_file_column.get(column) != "label"
            ):
                yield PutValue((column,), row.json_text_at((column,)))


def _is_scalar(value: Any) -> bool:
    """Is a value a number or a truth value? NaN is none: it says that nothing is there."""
    return isinstance(value, int) or (isinstance(value, float) and isfinite(value))


class WriteTurnSettings(ProblemRemedy):
    """Makes numbers and truth values of `weight` and `train` of a turn that are kept as text."""

    rule = "malformed-rows"
    what = "write weight and train of turns as number and truth value"
    safe = True
    stage = Stage.SHAPE
    kinds = ("not-a-number", "not-a-bool")

    def attempts(self, row: RowView) -> Iterator[Attempt]:
        """One attempt that retypes `weight` and `train` of all turns of the row."""
        yield from combine_into_one_attempt(
            edit
            for turn in row.turns
            for edit in _edits_of_weight_and_train_texts(turn.path, turn.message)
        )


def _edits_of_weight_and_train_texts(
    path: tuple[str | int, ...], message: dict[str, Any]
) -> Iterator[Edit]:
    """Edits of the weight and the train of a message, where their text is a number or a truth
    value.
    """
    for key in ("weight", "loss_weight"):
        value = message.get(key)
        if isinstance(value, str) and NUMBER.fullmatch(value):
            yield PutValue((*path, key), float(value) if "." in value else int(value))
    train = message.get("train")
    if isinstance(train, str) and train.strip().lower() in TRUTH:
        yield PutValue((*path, "train"), TRUTH[train.strip().lower()])


# Words of which the opposite is plain, too: `neutral` or a number of stars is no verdict.
LABELS = {
    **TRUTH,
    **dict.fromkeys(("1.0", "t", "y", "good", "desirable", "chosen", "positive"), True),
    **dict.fromkeys(("0.0", "f", "n", "bad", "undesirable", "rejected", "negative"), False),
}


class WriteLabels(ProblemRemedy):
    """Makes a truth value of KTO's label, where it is a word whose meaning is plain."""

    rule = "malformed-rows"
    what = "write labels as true or false"
    safe = True
    stage = Stage.SHAPE
    kinds = ("bad-label",)

    def attempts(self, row: RowView) -> Iterator[Attempt]:
        """An attempt that makes a truth value of the row's label."""
        names = {
            *COLUMN_ALIASES["label"],
            *(
                column
                for column, name in self.context.truetune_column_by_file_column.items()
                if name == "label"
            ),
        }
        for column in row.value:
            meant = LABELS.get(str(row.value[column]).strip().lower())
            if column in names and meant is not None:
                yield [PutValue((column,), meant)]
