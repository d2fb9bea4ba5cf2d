"""Reads the rows that a reward function is tried on: their prompts, their columns, and the right answer of each.

A right answer is what an answer's form is filled with: the final answer of the reference where it marks one (`#### 72`,
`\\boxed{72}`), else the reference as a whole. Which column holds the references follows from the columns that the
function takes. The trade-off: where several could, the user has to say it, for a guess would make every verdict wrong.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

from truetune.data.find_data_files import find_data_files_of_paths, open_raw
from truetune.data.read_file_records import read_records
from truetune.errors import DataError, UsageError, format_name_list
from truetune.generation.final_answers import (
    AnswerKind,
    FinalAnswer,
    answer_marks,
    find_final_answer,
)
from truetune.generation.split_words import split_words
from truetune.parsing.input_limits import REPLY
from truetune.parsing.parse_json_within_limits import parse_json
from truetune.rewards.reward_process import LoadedFunction

PROMPT_COLUMNS = ("prompt", "question", "problem", "instruction", "query", "input", "messages")
"""Columns that hold the prompt; TRL itself reads `prompt`, which scripts make of one of the others"""
REFERENCE_COLUMNS = (
    "answer", "solution", "ground_truth", "target", "label", "answers", "reference", "references",
    "labels", "gold", "expected_answer", "correct_answer", "final_answer", "expected", "gt", "output",
)  # fmt: skip
"""Columns that hold the right answer, the usual names first"""
TARGET_KEYS = ("target", "answer", "ground_truth", "solution", "expected_answer", "label")
"""Of an object that stands as a right answer: under which it has the answer itself"""
GIVEN_BY_TRL = (
    "prompts", "completions", "completion_ids", "trainer_state", "log_extra", "log_metric",
    "environments",
)  # fmt: skip
"""Arguments that are no columns"""
NOT_HANDED_ON = ("prompt", "completion", "completion_ids")
"""Columns that TRL hands to no reward function"""
# Chosen, not measured: an answer of more words is prose, of which no other wording is known to be equal.
MAX_SHORT_ANSWER_CHARACTERS = 60
_FORMULA = re.compile(r"\\[A-Za-z]+|\w\^[\w{-]")
_FRACTION = re.compile(r"\\?[dt]?frac\{(-?\d+)\}\{(\d+)\}|(-?\d+)\s*/\s*(\d+)")
_BETWEEN_ANSWERS = re.compile(r"\||;| or ")


@dataclass(frozen=True, slots=True)
class RewardRow:
    """One row that the function is tried on."""

    number: int
    """From 1, over all files"""
    prompt: str
    """The last question, as text"""
    messages: tuple[Mapping[str, Any], ...] | None
    """The prompt where it is a list of messages"""
    columns: Mapping[str, Any]
    """All that TRL hands on"""


@dataclass(frozen=True, slots=True)
class RightAnswer:
    """The right answer of a row."""

    reference: str
    """As it is in the column"""
    text: str
    """What a form is filled with"""
    kind: AnswerKind | None
    """None where it is prose, a formula or code"""
    value: str
    """What two equal answers have in common"""

    @property
    def is_short(self) -> bool:
        """Is it an answer of one line, and neither prose nor a JSON object?"""
        if self.text.startswith("{"):
            return False
        return "\n" not in self.text and len(self.text) <= MAX_SHORT_ANSWER_CHARACTERS

    @property
    def is_fraction(self) -> bool:
        """Is it a fraction of two whole numbers, whose value is known?"""
        return _FRACTION.fullmatch(self.text) is not None

    @property
    def is_formula(self) -> bool:
        """Is it a short formula of LaTeX, whose value is not known here: `2\\sqrt{2}`?"""
        return (
            self.kind is None
            and self.is_short
            and not self.is_fraction
            and _FORMULA.search(self.text) is not None
        )


@dataclass(frozen=True, slots=True)
class ColumnChoice:
    """Which column holds the right answers."""

    reference: str
    """Empty where the function takes no column, or where it is not known"""
    others: tuple[str, ...]
    """Further columns that the function takes"""
    problem: str = ""
    """Why it is not known"""


class MissingColumn(UsageError):
    """The rows that could be read lack a column that is named or that the function needs."""


@dataclass(frozen=True, slots=True)
class ReadRows:
    """The first rows of some files, and the lines among them that hold no row."""

    rows: tuple[RewardRow, ...]
    broken: tuple[str, ...] = ()
    """Why each such line holds no row, with its file and line"""

    @property
    def lines_without_row(self) -> str:
        """How many lines hold no row, and why the first one does not; empty where all do."""
        if not self.broken:
            return ""
        lines = "1 line holds" if len(self.broken) == 1 else f"{len(self.broken):,} lines hold"
        return f"{lines} no row: {self.broken[0]}"


def read_reward_rows(paths: Sequence[str], limit: int) -> ReadRows:
    """The first rows of some files.

    Args:
        paths: files, folders or globs.
        limit: how many rows.

    Raises:
        DataError: a file can't be read, or none of its first lines holds a row.
    """
    rows: list[RewardRow] = []
    broken: list[str] = []
    for source in find_data_files_of_paths(paths):
        with open_raw(source.path) as raw:
            for record in read_records(source, raw):
                if len(rows) == limit:
                    return ReadRows(tuple(rows), tuple(broken))
                if record.error is not None or not isinstance(record.row, dict):
                    broken.append(str(record.error or f"{source.path}:{record.line}: no object"))
                    continue
                rows.append(_make_row(record.row, len(rows) + 1))
    if not rows:
        raise DataError(broken[0] if broken else f"{', '.join(paths)}: the file holds no row")
    return ReadRows(tuple(rows), tuple(broken))


def _make_row(row: Mapping[str, Any], number: int) -> RewardRow:
    """A row with its prompt."""
    name = next((column for column in PROMPT_COLUMNS if row.get(column)), None)
    prompt = row[name] if name else ""
    columns = {column: value for column, value in row.items() if column not in NOT_HANDED_ON}
    # Rows of verl's Parquet files have the right answer in a table.
    graded = row.get("reward_model")
    if isinstance(graded, Mapping) and "ground_truth" in graded:
        columns.setdefault("ground_truth", graded["ground_truth"])
    if isinstance(prompt, list) and all(isinstance(one, dict) for one in prompt):
        return _make_row_of_messages(tuple(prompt), number, columns)
    return RewardRow(number, str(prompt), None, columns)


def _make_row_of_messages(
    messages: tuple[dict[str, Any], ...], number: int, columns: dict[str, Any]
) -> RewardRow:
    """A row whose prompt is a chat; what its user says last is the question."""
    # Rows of messages end with the answer, which is no part of the prompt.
    if len(messages) > 1 and messages[-1].get("role") == "assistant":
        messages = messages[:-1]
    users = [str(one.get("content") or "") for one in messages if one.get("role") == "user"]
    return RewardRow(number, users[-1] if users else "", messages, columns)


def with_labels(rows: Sequence[RewardRow], asked: str | None) -> list[RewardRow]:
    """The rows with their right answers as `labels`, as OpenRLHF hands them on, where a usual column holds them.

    Args:
        rows: that are tried.
        asked: the column that the user names.
    """
    columns = {name for row in rows for name in row.columns}
    known = asked or next((name for name in REFERENCE_COLUMNS if name in columns), None)
    if known is None or known not in columns or "labels" in columns:
        return list(rows)
    return [
        replace(
            row,
            # OpenRLHF hands on no other column.
            columns={
                **{name: value for name, value in row.columns.items() if name != known},
                "labels": row.columns.get(known),
            },
        )
        for row in rows
    ]


def choose_reference_column(
    function: LoadedFunction, rows: Sequence[RewardRow], reference_named_by_user: str | None
) -> ColumnChoice:
    """The column with the right answers.

    Args:
        function: what it takes tells which columns it reads.
        rows: that have the columns.
        reference_named_by_user: the column that the user names.

    Raises:
        MissingColumn: that column is missing, or the function needs one that the rows don't have.
    """
    columns = list(dict.fromkeys(name for row in rows for name in row.columns))
    _refuse_missing_columns(function, columns, reference_named_by_user)
    taken = [name for name in columns if name in function.parameters]
    named_in_code = _columns_named_in_code(function, columns)
    reference = reference_named_by_user or _find_reference_column(taken, named_in_code, rows)
    not_read = {*function.unused, reference}
    others = tuple(name for name in dict.fromkeys([*taken, *named_in_code]) if name not in not_read)
    if reference:
        return ColumnChoice(reference, others)
    if not taken:
        return ColumnChoice("", ())
    problem = f"the function takes {format_name_list(taken)}, and which of them holds the right answer is not known"
    return ColumnChoice("", others, problem)


def _columns_named_in_code(function: LoadedFunction, columns: Sequence[str]) -> list[str]:
    """The columns that a function of `**kwargs` names in its code: `kwargs["answer"]`."""
    return [name for name in columns if name in function.texts] if function.takes_any else []


def _refuse_missing_columns(
    function: LoadedFunction, columns: Sequence[str], asked: str | None
) -> None:
    """Raise MissingColumn where the rows lack the column that is asked for, or one that the function needs."""
    if asked is not None and asked not in columns:
        raise MissingColumn(
            f"--reference {asked}: the rows have no such column; they have {format_name_list(columns)}"
        )
    given = {*columns, *GIVEN_BY_TRL, *function.optional}
    missing = [name for name in function.parameters if name not in given]
    if missing:
        raise MissingColumn(
            f"the function takes {format_name_list(missing)}, and the rows have no such column; they"
            f" have {format_name_list(columns)}"
        )


def _find_reference_column(
    taken: Sequence[str], named: Sequence[str], rows: Sequence[RewardRow]
) -> str:
    """The column of right answers among those that a function takes or names; empty where it is not known."""
    for names in (taken, named):
        known = [name for name in REFERENCE_COLUMNS if name in names]
        if known:
            return known[0]
    if len(taken) == 1 and _are_answers([row.columns.get(taken[0]) for row in rows]):
        return taken[0]
    return ""


def _are_answers(values: Sequence[Any]) -> bool:
    """Are the values of a column short texts or numbers, as answers are?"""
    return all(
        isinstance(value, str | int | float) and 0 < len(str(value)) <= MAX_SHORT_ANSWER_CHARACTERS
        for value in values
    )


def _text_of_reference(value: Any) -> str:
    """A reference as text, the first of several; empty where it is neither text nor number.

    verl's rows may hold an object, as a table or as JSON: `{"target": 42, "numbers": [6, 7]}`.
    """
    value = _target_of_object(value)
    if isinstance(value, list) and value and isinstance(value[0], str | int | float):
        value = value[0]
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return ""
    return str(value).strip()


def _target_of_object(value: Any) -> Any:
    """What an object holds under the usual names of a right answer; any other value as it is."""
    content = value
    if isinstance(value, str) and value.lstrip().startswith("{"):
        try:
            content = parse_json(value, REPLY, exact_integers=True)
        except ValueError:
            return value
    if not isinstance(content, Mapping):
        return value
    return next((content[name] for name in TARGET_KEYS if content.get(name) is not None), value)


def right_answer_of(value: Any) -> RightAnswer | None:
    """The right answer that a reference holds; None where it is empty, or neither text nor number."""
    reference = _text_of_reference(value)
    if not reference:
        return None
    final = _final_answer_of_reference(reference)
    text = (_boxed_content(reference) or reference) if final is None else final.text
    text = text.strip()
    if len(text) > 2 and text[0] == text[-1] == "$" and "$" not in text[1:-1]:
        text = text[1:-1].strip()
        is_number = text.lstrip("-").replace(".", "", 1).isdigit()
        final = find_final_answer(text) if is_number else None
    if final is None:
        return RightAnswer(reference, text, None, _comparable_value(text, ""))
    return RightAnswer(reference, text, final.kind, _comparable_value(text, final.value))


def several_right_answers(text: str) -> list[str]:
    """The answers of a reference that names several (`Vienna|Wien`, `0.5 or 1/2`); none of one answer."""
    names = [one.strip() for one in _BETWEEN_ANSWERS.split(text)]
    return names if len(names) > 1 and all(names) and "\n" not in text else []


def _final_answer_of_reference(reference: str) -> FinalAnswer | None:
    """The final answer that a reference is, or that it marks as its own.

    A short text that holds a number or a letter is not that number: `\\sqrt{2}`, `3 apples`, `(B)`.
    """
    final = find_final_answer(reference)
    if final is None:
        return None
    is_whole = final.text.strip() == reference
    return final if is_whole or (final.kind != "json" and _is_marked(reference)) else None


def _is_marked(reference: str) -> bool:
    """Does a reference mark its final answer: `#### 72`, `\\boxed{72}`, `the answer is 72`?"""
    return bool(answer_marks(reference)) or re.search(r"(?i)answer|答案", reference) is not None


def _boxed_content(text: str) -> str | None:
    """What is in the last `\\boxed{}` of a text, with braces in it; None where there is none."""
    start = text.rfind("\\boxed{")
    if start < 0:
        return None
    depth, begin = 0, start + len("\\boxed{")
    for place in range(begin, len(text)):
        if text[place] == "{":
            depth += 1
        elif text[place] == "}":
            if depth == 0:
                return text[begin:place]
            depth -= 1
    return None


def _comparable_value(text: str, value: str) -> str:
    """What equal answers have in common: of a fraction and of a number its value, else its words."""
    fraction = _FRACTION.fullmatch(text)
    if fraction:
        above, below = (fraction[1], fraction[2]) if fraction[1] else (fraction[3], fraction[4])
        if int(below):
            return str(Fraction(int(above), int(below)))
    try:
        return str(Fraction(value))
    except (ValueError, ZeroDivisionError):
        return value.casefold() or " ".join(split_words(text))
