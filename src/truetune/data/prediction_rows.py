"""Rows of predictions as other programs write them: out of the objects, tables and events that hold them.

A batch of OpenAI, vLLM or Anthropic holds each answer in a response; lm-eval beside a document; Evals in events; W&B
and MLflow in a table; pipelines in lists. Here each becomes a row with columns, and an object that holds an answer
becomes its text.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from truetune.data.prediction_columns import COLUMN_NAMES, plain_name
from truetune.errors import DataError
from truetune.parsing.json_reader import parse_json
from truetune.parsing.limits import ROW
from truetune.parsing.python_reader import parse_literal

TEXT_KEYS = (
    "choices", "body", "message", "messages", "content", "text", "generated_text", "turns", "outputs", "output",
    "sampled", "result", "response", "completion", "answer", "question", "raw", "value",
)  # fmt: skip
"""Keys of an object that holds an answer or a prompt, the surest first"""
STOP_REASON_KEYS = ("finish_reason", "stop_reason")
MAX_DEPTH = 8
"""Objects inside each other that are looked through"""
Row = Mapping[str, Any]


class RowLine(NamedTuple):
    """A row, and where it stands."""

    row: Row
    path: str
    line: int


class AnswerText(NamedTuple):
    """A text inside an object, and what ended it."""

    text: str
    ended: Any = None


def unfold_rows(values: Sequence[tuple[Any, str, int]]) -> list[RowLine]:
    """The rows of (value, file, line): those inside tables, lists and events too. Raises DataError for choices of
    lm-eval, of which no answer was generated."""
    if len(values) == 1 and _is_answers_by_id(values[0][0]):
        answers, path, line = values[0]
        return [
            RowLine({"id": name, "prediction": text}, path, line) for name, text in answers.items()
        ]
    lines = [RowLine(row, path, line) for value, path, line in values for row in _rows_in(value)]
    if not lines:
        return []
    if any(_is_sampling(line.row) for line in lines):
        return list(_rows_of_evals(lines))
    if all("doc" in line.row and "resps" in line.row for line in lines):
        return list(_rows_of_lm_eval(lines))
    if all(_is_object(line.row.get(name)) for line in lines for name in ("inputs", "outputs")):
        return [
            RowLine({name: _parse_cell(cell) for name, cell in row.items()}, path, line)
            for row, path, line in lines
        ]
    return lines


def texts_in(value: Any, depth: int = MAX_DEPTH) -> Iterator[AnswerText]:
    """The texts of an answer: one, or several of a list; the answer in the objects that servers give.

    Of a list of messages it is the last one, if that is the assistant's. Numbers are as they are written.
    """
    value = _parse_messages(value)
    if isinstance(value, str):
        yield AnswerText(value)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield AnswerText(str(value))
    elif isinstance(value, list) and depth:
        yield from _texts_of_list(value, depth)
    elif isinstance(value, Mapping) and depth:
        holder = next((name for name in TEXT_KEYS if value.get(name) is not None), None)
        holder = holder or (next(iter(value)) if len(value) == 1 else None)
        ended = next(
            (value[name] for name in STOP_REASON_KEYS if value.get(name) is not None), None
        )
        for said in texts_in(value.get(holder), depth - 1) if holder is not None else ():
            yield AnswerText(said.text, said.ended if said.ended is not None else ended)


def messages_of(value: Any) -> list[dict[str, Any]] | None:
    """The messages of a prompt, also where a table holds them as text, or a request around them."""
    value = _parse_messages(value)
    if isinstance(value, Mapping):
        inner = value.get("messages", value.get("body"))
        return messages_of(inner) if inner is not None else None
    if not isinstance(value, list):
        return None
    messages = [message for message in value if is_message(message)]
    return messages or None


def is_message(value: Any) -> bool:
    """Is it a turn of a chat, in the form of OpenAI or of ShareGPT?"""
    return isinstance(value, Mapping) and ("role" in value or "from" in value)


def _parse_messages(value: Any) -> Any:
    """The messages that a text holds, as CSV files have them; else the value itself. Other JSON may be the answer."""
    parsed = _parse_cell(value)
    return parsed if isinstance(parsed, list) and parsed and all(map(is_message, parsed)) else value


def _parse_cell(value: Any) -> Any:
    """A list or an object that a text holds, in JSON or as Python prints it; else the value itself."""
    text = value.strip() if isinstance(value, str) else ""
    if text[:1] not in ("[", "{") or text[-1:] not in ("]", "}"):
        return value
    try:
        return parse_json(text, ROW)
    except ValueError:
        try:
            return parse_literal(text)
        except (ValueError, SyntaxError):
            return value


def _texts_of_list(values: list[Any], depth: int) -> Iterator[AnswerText]:
    if values and all(map(is_message, values)):
        role = values[-1].get("role", values[-1].get("from"))
        yield from (
            texts_in(values[-1], depth - 1) if role in ("assistant", "gpt", "bot", "model") else ()
        )
    elif values and all(isinstance(value, Mapping) and "type" in value for value in values):
        parts = [value["text"] for value in values if isinstance(value.get("text"), str)]
        yield from [AnswerText("\n".join(parts))] if parts else ()
    else:
        for value in values:
            yield from texts_in(value, depth - 1)


def _is_object(cell: Any) -> bool:
    """Does a cell hold an object in JSON, as exported runs have them?"""
    return isinstance(cell, str) and isinstance(_parse_cell(cell), dict)


def _rows_in(value: Any) -> Iterator[Row]:
    """The rows that one value of a file stands for."""
    if isinstance(value, list):
        for inner in value:
            yield from _rows_in(inner)
    elif isinstance(value, Mapping):
        names, rows = value.get("columns"), value.get("data")
        if isinstance(names, list) and isinstance(rows, list):
            names = [str(name) for name in names]
            yield from (
                dict(zip(names, row, strict=False)) for row in rows if isinstance(row, list)
            )
        else:
            yield value


def _is_answers_by_id(value: Any) -> bool:
    """Is it an object of answers by the ids of their questions, as scripts on SQuAD write it?"""
    if (
        not isinstance(value, Mapping)
        or len(value) < 2
        or not all(isinstance(text, str) for text in value.values())
    ):
        return False
    known = {name for names in COLUMN_NAMES.values() for name in names}
    return all(plain_name(name) not in known and any(map(str.isdigit, name)) for name in value)


def _is_sampling(row: Row) -> bool:
    return (
        row.get("type") == "sampling"
        and isinstance(row.get("data"), Mapping)
        and "sampled" in row["data"]
    )


def _rows_of_evals(lines: Sequence[RowLine]) -> Iterator[RowLine]:
    """The samples of a log of Evals, with what was expected of each."""
    expected = {
        line.row.get("sample_id"): line.row["data"].get("expected")
        for line in lines
        if line.row.get("type") == "match" and isinstance(line.row.get("data"), Mapping)
    }
    for line in lines:
        if _is_sampling(line.row):
            data = line.row["data"]
            row = {"prompt": data.get("prompt"), "sampled": data["sampled"]}
            wanted = expected.get(line.row.get("sample_id"))
            yield RowLine(
                row if wanted is None else {**row, "expected": wanted}, line.path, line.line
            )


def _rows_of_lm_eval(lines: Sequence[RowLine]) -> Iterator[RowLine]:
    """The samples of lm-eval: the document's question, else the prompt that was sent; each once, not once a filter."""
    first = lines[0].row.get("filter")
    for row, path, line in lines:
        if row.get("filter") != first:
            continue
        if _are_likelihoods(row["resps"]):
            raise DataError(
                f"{path}:{line}: the log-likelihoods of choices, and no answer that was generated; "
                "expected samples of a task that generates (output_type: generate_until)"
            )
        doc = row["doc"] if isinstance(row["doc"], Mapping) else {}
        question = next(
            (doc[name] for name in COLUMN_NAMES["prompt"] if isinstance(doc.get(name), str)), None
        )
        yield RowLine(
            {"prompt": question or _prompt_in_arguments(row.get("arguments")), **row}, path, line
        )


def _prompt_in_arguments(arguments: Any) -> str:
    """The prompt in the arguments of a request: by name, or the first of a list."""
    while isinstance(arguments, Mapping | list) and arguments:
        arguments = (
            next(iter(arguments.values())) if isinstance(arguments, Mapping) else arguments[0]
        )
    return arguments if isinstance(arguments, str) else ""


def _are_likelihoods(responses: Any) -> bool:
    """[[[-3.2, false]], ...]: a number and whether it is the greedy choice."""
    while isinstance(responses, list) and responses and isinstance(responses[0], list):
        responses = responses[0]
    return (
        isinstance(responses, list)
        and len(responses) == 2
        and str(responses[1]).casefold() in ("true", "false")
    )
