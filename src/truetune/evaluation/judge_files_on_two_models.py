"""Judges files beside a model that tell of two models: verdicts of an LLM judge, and answers of two models.

Such files are no training rows and no predictions with references, so that nothing else reads them. They are told by
their columns. What is said of them is said of all files of a folder together: a judge's preference for a place shows
only where pairs were judged in both orders, which scripts write into two files. The trade-off: files are known by the
names of columns, folders and models (`base`, `sft`), so that unusual names leave a file unread.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations, islice
from pathlib import Path
from typing import Any, NamedTuple

from truetune.checks.judgement import Judgement
from truetune.checks.reports import Subject
from truetune.checks.rule import EvaluationRule
from truetune.checks.rule_runner import choose_rules, run_rules
from truetune.data.find_data_files import DataFile, find_data_files_of_paths, open_raw
from truetune.data.llm_judge_verdicts_and_bias import (
    JudgedPair,
    PairColumns,
    find_verdict_columns,
    parse_winning_place,
)
from truetune.data.read_file_records import read_records
from truetune.data.recognise_prediction_columns import normalize_column_name
from truetune.data.tell_training_files_from_predictions import (
    POSSIBLE_PREDICTIONS,
    SURE_PREDICTIONS,
)
from truetune.errors import DataError, TruetuneError
from truetune.generation.evaluation_loss_and_score_types import EqualAnswers, EvaluationResults
from truetune.settings.run_spec import RunSpec

SUFFIXES = frozenset((".jsonl", ".json", ".csv", ".ndjson"))
MODEL_FILES = frozenset(
    (
        "tokenizer.json",
        "vocab.json",
        "tokenizer_config.json",
        "special_tokens_map.json",
        "added_tokens.json",
        "config.json",
        "generation_config.json",
        "preprocessor_config.json",
        "processor_config.json",
        "adapter_config.json",
        "model.safetensors.index.json",
        "trainer_state.json",
    )
)
"""Files of a model, which hold no rows: reading tokenizer.json as rows took 1 to 5 s a folder"""
# Chosen: an archive of evaluations holds more, and each file takes a tenth of a second.
MAX_FILES = 40
"""Files that are read, of all folders that are named"""
MAX_ROWS = 5_000
"""Rows of one file that are read: equal answers and the leaning of a judge show in as many"""
MAX_BYTES = 64 << 20
"""Bytes of one file: answers and verdicts are small, and data sets are not"""
# Chosen, not measured: judges refuse now and then, and a column of another kind names hardly a place.
MIN_READ_SHARE = 0.8
"""Share of the verdicts that name a place or a tie, in a file of verdicts"""
KEY_COLUMNS = (
    "id",
    "question_id",
    "idx",
    "index",
    "uid",
    "question",
    "prompt",
    "instruction",
    "input",
    "query",
)
"""What tells the same question again, the surest first"""
MODEL_COLUMNS = ("model", "model_name", "model_id")
BASE_WORDS = frozenset(
    (
        "base",
        "pretrained",
        "vanilla",
        "original",
        "orig",
        "before",
        "untuned",
        "baseline",
        "zeroshot",
        "raw",
    )
)
TUNED_WORDS = frozenset(
    (
        "sft",
        "tuned",
        "finetuned",
        "finetune",
        "ft",
        "lora",
        "qlora",
        "adapter",
        "dpo",
        "orpo",
        "kto",
        "after",
        "trained",
        "grpo",
        "rlhf",
        "ours",
        "merged",
        "peft",
    )
)
"""What files and columns of answers are called by"""
LETTER_RUN = re.compile(r"[a-zA-Z]+")


class RowTable(NamedTuple):
    """The rows of a file, each with its line."""

    path: Path
    rows: list[tuple[int, dict[str, Any]]]


class ModelAnswers(NamedTuple):
    """The answers of one model, by question."""

    name: str
    by_key: Mapping[str, tuple[str, str, int]]
    """Question -> answer, file, line"""


def judge_answer_files(
    paths: Sequence[str | os.PathLike[str]], spec: RunSpec
) -> tuple[Judgement, tuple[Subject, ...]]:
    """What the rules say of the verdicts and the answers of two models among files and folders.

    Args:
        paths: files, and folders that are looked at with one level below.
        spec: which rules are asked.
    """
    tables = [rows for path in _list_row_files(paths) if (rows := _read_rows(path)) is not None]
    judged_pairs = tuple(pair for table in tables for pair in _pairs_of_table(table))
    twins = tuple(_compare_answers_of_two_models(tables))
    if not judged_pairs and not twins:
        return Judgement(), ()
    rules = [rule for rule in choose_rules(spec, EvaluationRule) if rule.of_files]
    rules = [
        rule for rule in rules if (judged_pairs if rule.name().startswith("judge-") else twins)
    ]
    judgement = run_rules(EvaluationResults(0, judged=judged_pairs, twins=twins), rules)
    return judgement, tuple(_describe_verdict_files(judged_pairs))


SCORE_COLUMNS = frozenset(
    (
        "correct",
        "is_correct",
        "right",
        "is_right",
        "match",
        "matched",
        "hit",
        "em",
        "exact_match",
        "acc",
        "accuracy",
        "score",
        "ok",
    )
)
"""Columns in which a script writes whether it counted an answer as right"""


def count_scored_right(path: str) -> int | None:
    """How many answers of a file its own script counted as right, by a column of 0 and 1; None without one."""
    table = _read_rows(Path(path))
    if table is None:
        return None
    names = [name for name in table.rows[0][1] if normalize_column_name(name) in SCORE_COLUMNS]
    for name in names:
        values = [row.get(name) for _, row in table.rows]
        if all(value in (0, 1) for value in values):
            return sum(map(int, values))  # type: ignore[arg-type]
    return None


def judge_equal_answers_of_other_model(path: str, spec: RunSpec) -> Judgement:
    """What the rules say of one file of predictions beside the files of another model's answers to
    the same questions.
    """
    own = Path(path)
    tables = [
        rows for file in _list_row_files([own.parent]) if (rows := _read_rows(file)) is not None
    ]
    twins = [
        one
        for one in _compare_answers_of_two_models(tables)
        if any(Path(file) == own for file, _ in one.places)
    ]
    rules = [rule for rule in choose_rules(spec, EvaluationRule) if rule.of_files]
    rules = [rule for rule in rules if not rule.name().startswith("judge-")]
    return run_rules(EvaluationResults(0, twins=tuple(twins)), rules) if twins else Judgement()


def _describe_verdict_files(judged_pairs: Sequence[JudgedPair]) -> Iterator[Subject]:
    """One for each file of verdicts."""
    for file in dict.fromkeys(pair.file for pair in judged_pairs):
        own = [pair for pair in judged_pairs if pair.file == file]
        counts = {
            name: sum(pair.verdict == name for pair in own)
            for name in ("first", "second", "tie", "unread")
        }
        facts = [("pairs", f"{len(own):,}")]
        facts += [(f"verdict {name}", f"{count:,}") for name, count in counts.items() if count]
        yield Subject("verdicts on pairs of answers", file, tuple(facts))


def _list_row_files(paths: Sequence[str | os.PathLike[str]]) -> Iterator[Path]:
    """The files that may hold rows, in folders those one level below too; at most so many."""
    row_files: list[Path] = []
    for path in map(Path, paths):
        if path.is_dir():
            children = sorted(islice(path.iterdir(), 1000))
            below = [
                file
                for child in children
                if child.is_dir() and not child.name.startswith(".")
                for file in sorted(islice(child.iterdir(), 200))
            ]
            row_files += [*children, *below]
        else:
            row_files.append(path)
    rows = (
        file
        for file in dict.fromkeys(row_files)
        if file.suffix.lower() in SUFFIXES and file.name not in MODEL_FILES and file.is_file()
    )
    yield from islice(rows, MAX_FILES)


def _read_rows(path: Path) -> RowTable | None:
    """The first rows of a file; None where it holds none that are objects."""
    try:
        if path.stat().st_size > MAX_BYTES:
            return None
        (source,) = find_data_files_of_paths([str(path)])
        rows = list(_numbered_rows_of_source(source))
    except (OSError, ValueError, TruetuneError):
        return None
    return RowTable(path, rows) if rows else None


def _numbered_rows_of_source(source: DataFile) -> Iterator[tuple[int, dict[str, Any]]]:
    """The rows of a file that are objects, each with its line; a file that breaks ends there."""
    try:
        with open_raw(source.path) as raw:
            for record in islice(read_records(source, raw), MAX_ROWS):
                if record.error is None and isinstance(record.row, dict):
                    yield record.line, record.row
    except DataError:
        return


def _pairs_of_table(table: RowTable) -> list[JudgedPair]:
    """The verdicts of a file; none where its columns, or their values, are no verdicts on pairs."""
    columns = find_verdict_columns(table.rows[0][1])
    if columns is None:
        return []
    pairs = [_judged_pair(table, line, row, columns) for line, row in table.rows]
    read = sum(pair.verdict != "unread" for pair in pairs)
    return pairs if read >= MIN_READ_SHARE * len(pairs) else []


def _judged_pair(
    table: RowTable, line: int, row: Mapping[str, Any], columns: PairColumns
) -> JudgedPair:
    """One row as a judged pair."""
    key = next((name for name in KEY_COLUMNS if row.get(name) not in (None, "")), None)
    return JudgedPair(
        str(row.get("question") or row.get("prompt") or (row.get(key) if key else "")),
        _texts_of_columns(row, columns.texts),
        _texts_of_columns(row, columns.models),
        parse_winning_place(row.get(columns.verdict)),
        str(table.path),
        line,
    )


def _texts_of_columns(row: Mapping[str, Any], names: tuple[str, str] | None) -> tuple[str, str]:
    """The values of two columns as texts; empty where there are none."""
    if names is None:
        return "", ""
    one, other = (row.get(name) for name in names)
    return (str(one) if one is not None else ""), (str(other) if other is not None else "")


def _compare_answers_of_two_models(tables: Sequence[RowTable]) -> Iterator[EqualAnswers]:
    """Answers of two models: in two columns, by two values of `model`, or in two files."""
    by_file: list[ModelAnswers] = []
    for table in tables:
        sides = [*_answers_by_column(table), *_answers_by_model(table)]
        for one, other in combinations(sides, 2):
            yield _count_equal_answers(one, other)
        whole = _answers_of_file(table) if not sides else None
        if whole is not None:
            by_file.append(whole)
    for one, other in combinations(by_file, 2):
        if _is_one_base_and_other_tuned(one.name, other.name):
            yield _count_equal_answers(one, other)


def _answers_by_column(table: RowTable) -> list[ModelAnswers]:
    """The answers in two columns, one called by the base and one by the tuned model."""
    names = [name for name, value in table.rows[0][1].items() if isinstance(value, str)]
    for one, other in combinations(names, 2):
        if _is_one_base_and_other_tuned(one, other) and len(LETTER_RUN.findall(one)) > 1:
            return [_answers_of_column(table, f"column {name}", name) for name in (one, other)]
    return []


def _answers_by_model(table: RowTable) -> list[ModelAnswers]:
    """The answers of each value of a column `model`, where there are two."""
    first = table.rows[0][1]
    column = next((name for name in first if name.lower() in MODEL_COLUMNS), None)
    answer = _find_answer_column(first)
    if column is None or answer is None:
        return []
    values = list(dict.fromkeys(str(row.get(column)) for _, row in table.rows))
    if len(values) != 2:
        return []
    return [
        _answers_of_column(
            RowTable(
                table.path,
                [(line, row) for line, row in table.rows if str(row.get(column)) == value],
            ),
            value,
            answer,
        )
        for value in values
    ]


def _answers_of_file(table: RowTable) -> ModelAnswers | None:
    """The answers of a file in the one column that holds what a model wrote; None where no column
    does.
    """
    answer = _find_answer_column(table.rows[0][1])
    if answer is None:
        return None
    return _answers_of_column(table, str(Path(table.path.parent.name) / table.path.name), answer)


def _find_answer_column(row: Mapping[str, Any]) -> str | None:
    """The column with what a model wrote."""
    names = {
        normalize_column_name(name): name for name, value in row.items() if isinstance(value, str)
    }
    for known in (SURE_PREDICTIONS, POSSIBLE_PREDICTIONS):
        column = next((names[name] for name in names if name in known), None)
        if column is not None:
            return column
    return None


def _answers_of_column(table: RowTable, name: str, column: str) -> ModelAnswers:
    """The answers of a column, by question; by their number where no column tells the question."""
    key = next((one for one in KEY_COLUMNS if one in table.rows[0][1]), None)
    by_key: dict[str, tuple[str, str, int]] = {}
    for number, (line, row) in enumerate(table.rows):
        text = row.get(column)
        if isinstance(text, str):
            by_key.setdefault(
                str(row.get(key)) if key else str(number), (text, str(table.path), line)
            )
    return ModelAnswers(name, by_key)


def _is_one_base_and_other_tuned(one: str, other: str) -> bool:
    """Does one name say base, and the other tuned? What both say, such as a common folder, tells neither."""
    first, second = _words_of_name(one), _words_of_name(other)
    own, theirs = first - second, second - first
    return (
        _has_one_of_words_and_no_other(own, BASE_WORDS, TUNED_WORDS)
        and _has_one_of_words_and_no_other(theirs, TUNED_WORDS, BASE_WORDS)
    ) or (
        _has_one_of_words_and_no_other(theirs, BASE_WORDS, TUNED_WORDS)
        and _has_one_of_words_and_no_other(own, TUNED_WORDS, BASE_WORDS)
    )


def _words_of_name(name: str) -> frozenset[str]:
    """The words of a name, in lower case."""
    return frozenset(word.lower() for word in LETTER_RUN.findall(name))


def _has_one_of_words_and_no_other(
    words: frozenset[str], these: frozenset[str], others: frozenset[str]
) -> bool:
    """Has a name one of these words, and none of the others?"""
    return bool(words & these) and not words & others


def _count_equal_answers(one: ModelAnswers, other: ModelAnswers) -> EqualAnswers:
    """How many answers to the same questions are equal."""
    shared = [key for key in one.by_key if key in other.by_key]
    equal = [key for key in shared if one.by_key[key][0].strip() == other.by_key[key][0].strip()]
    texts = [one.by_key[key][0] for key in shared]
    words = sum(len(text.split()) for text in texts) / max(1, len(texts))
    places = tuple(side.by_key[equal[0]][1:] for side in (one, other)) if equal else ()
    return EqualAnswers(
        (one.name, other.name), len(equal), len(shared), words, len(set(texts)), places
    )
