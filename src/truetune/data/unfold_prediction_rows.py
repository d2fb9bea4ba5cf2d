"""Unfolds the objects, tables and events in which other programs write predictions into rows with
columns.

A batch of OpenAI, vLLM or Anthropic holds each answer in a response; lm-eval beside a document; Evals in events; W&B
and MLflow in a table; pipelines in lists. Here each becomes a row with columns, and an object that holds an answer
becomes its text.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from truetune.data.answering_roles import is_answering_role
from truetune.data.recognise_prediction_columns import COLUMN_NAMES, normalize_column_name
from truetune.errors import DataError
from truetune.parsing.input_limits import ROW
from truetune.parsing.parse_json_within_limits import parse_json
from truetune.parsing.parse_python_within_limits import parse_literal

TEXT_KEYS = (
    *("choices", "body", "message", "messages", "content", "text", "generated_text", "turns"),
    *("outputs", "output", "sampled", "result", "response", "completion", "answer", "question"),
    *("raw", "value"),
)
"""Keys of an object that holds an answer or a prompt, the surest first"""
STOP_REASON_KEYS = ("finish_reason", "stop_reason")
# Chosen, not measured: a reply of a batch has five (response, body, choices, message, content);
# double would only follow values that hold themselves.
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
    """The rows in (value, file, line): those inside tables, lists and events too. Raises DataError
    for choices of lm-eval, of which no answer was generated.
    """
    if len(values) == 1 and _is_answers_by_id(values[0][0]):
        return _rows_of_answers_by_id(*values[0])
    lines = list(_row_lines_in(values))
    if not lines:
        return []
    # A log of Evals mixes samplings with other events, so that one of them tells; the others are whole files.
    if any(_is_sampling_event_of_evals(line.row) for line in lines):
        return list(_rows_of_openai_evals_log(lines))
    if all({"doc", "resps"} <= line.row.keys() for line in lines):
        return list(_rows_of_lm_eval(lines))
    if all(_has_json_cells(line.row) for line in lines):
        return [_parse_json_cells(line) for line in lines]
    return lines


def _row_lines_in(values: Sequence[tuple[Any, str, int]]) -> Iterator[RowLine]:
    """All rows in (value, file, line), each with the file and line of its value."""
    for value, path, number in values:
        for row in _rows_in(value):
            yield RowLine(row, path, number)


def _rows_of_answers_by_id(answers: Mapping[str, str], path: str, number: int) -> list[RowLine]:
    """An object of answers as rows, with the id of each question."""
    return [
        RowLine({"id": name, "prediction": text}, path, number) for name, text in answers.items()
    ]


def _has_json_cells(row: Row) -> bool:
    """Does a row hold its inputs and outputs as JSON text, as exported traces of MLflow do?"""
    return all(_is_json_object_text(row.get(name)) for name in ("inputs", "outputs"))


def _parse_json_cells(line: RowLine) -> RowLine:
    """The row with each cell of JSON parsed."""
    row = {name: _parse_list_or_object_text(cell) for name, cell in line.row.items()}
    return RowLine(row, line.path, line.line)


def answer_texts(value: Any, depth: int = MAX_DEPTH) -> Iterator[AnswerText]:
    """The texts of an answer: one, or several of a list; or the answer inside the objects that
    servers give. Of a list of messages it is the last one, if that is the assistant's. Numbers
    are as they are written.
    """
    value = _parse_messages_text(value)
    if isinstance(value, str):
        yield AnswerText(value)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield AnswerText(str(value))
    elif isinstance(value, list) and depth:
        yield from _answer_texts_of_list(value, depth)
    elif isinstance(value, Mapping) and depth:
        yield from _answer_texts_of_object(value, depth)


def _answer_texts_of_object(value: Mapping[str, Any], depth: int) -> Iterator[AnswerText]:
    """The answers in an object, by the key that holds an answer; what ended it is beside the text
    or around it.
    """
    key = next((name for name in TEXT_KEYS if value.get(name) is not None), None)
    if key is None and len(value) == 1:
        # `{"summary": "..."}`: with a single key there is no doubt which one it is.
        key = next(iter(value))
    if key is None:
        return
    ended = next((value[name] for name in STOP_REASON_KEYS if value.get(name) is not None), None)
    for answer in answer_texts(value.get(key), depth - 1):
        # The reason nearest to the text is the text's own.
        yield answer if answer.ended is not None else answer._replace(ended=ended)


def prompt_messages(value: Any) -> list[dict[str, Any]] | None:
    """The messages of a prompt, also where a table holds them as text, or a request around them."""
    value = _parse_messages_text(value)
    if isinstance(value, Mapping):
        inner = value.get("messages", value.get("body"))
        return prompt_messages(inner) if inner is not None else None
    if not isinstance(value, list):
        return None
    messages = [message for message in value if is_message(message)]
    return messages or None


def is_message(value: Any) -> bool:
    """Is it a turn of a chat, in the form of OpenAI or of ShareGPT?"""
    return isinstance(value, Mapping) and ("role" in value or "from" in value)


def _parse_messages_text(value: Any) -> Any:
    """The messages that a text holds as JSON, as CSV files have them; otherwise the value itself.
    Other JSON may be the answer.
    """
    parsed = _parse_list_or_object_text(value)
    return parsed if isinstance(parsed, list) and parsed and all(map(is_message, parsed)) else value


def _parse_list_or_object_text(value: Any) -> Any:
    """The list or object that a text holds, in JSON or as Python prints it; otherwise the value
    itself.
    """
    text = value.strip() if isinstance(value, str) else ""
    # Most answers are no JSON: two characters tell it without a parser.
    if text[:1] not in ("[", "{") or text[-1:] not in ("]", "}"):
        return value
    try:
        return parse_json(text, ROW)
    except ValueError:
        try:
            # `str(dict)` in a CSV file: Python's quotes are no JSON.
            return parse_literal(text)
        except (ValueError, SyntaxError):
            return value


def _answer_texts_of_list(values: list[Any], depth: int) -> Iterator[AnswerText]:
    """The answers in a list: of a chat its last turn, of content blocks one text, otherwise each
    item's.
    """
    if values and all(map(is_message, values)):
        # Where the last turn is the user's, the chat is a prompt and holds no answer.
        role = values[-1].get("role", values[-1].get("from"))
        yield from (answer_texts(values[-1], depth - 1) if is_answering_role(role) else ())
    elif values and all(isinstance(value, Mapping) and "type" in value for value in values):
        # Anthropic's and OpenAI's content blocks: the texts of one answer, beside tool calls and
        # thinking.
        parts = [value["text"] for value in values if isinstance(value.get("text"), str)]
        yield from [AnswerText("\n".join(parts))] if parts else ()
    else:
        for value in values:
            yield from answer_texts(value, depth - 1)


def _is_json_object_text(cell: Any) -> bool:
    """Is a cell the text of a JSON object, as exported runs have it?"""
    return isinstance(cell, str) and isinstance(_parse_list_or_object_text(cell), dict)


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
    # Ids of questions have digits; an object of settings has not.
    return all(
        normalize_column_name(name) not in known and any(map(str.isdigit, name)) for name in value
    )


def _is_sampling_event_of_evals(row: Row) -> bool:
    """Is the row an event in a log of OpenAI Evals that holds an answer?"""
    return (
        row.get("type") == "sampling"
        and isinstance(row.get("data"), Mapping)
        and "sampled" in row["data"]
    )


def _rows_of_openai_evals_log(lines: Sequence[RowLine]) -> Iterator[RowLine]:
    """The samples in a log of OpenAI Evals, with what was expected of each."""
    # Evals writes what it expects in an event of its own, with the same sample_id.
    expected = {
        line.row.get("sample_id"): line.row["data"].get("expected")
        for line in lines
        if line.row.get("type") == "match" and isinstance(line.row.get("data"), Mapping)
    }
    for line in lines:
        if _is_sampling_event_of_evals(line.row):
            data = line.row["data"]
            row = {"prompt": data.get("prompt"), "sampled": data["sampled"]}
            wanted = expected.get(line.row.get("sample_id"))
            yield RowLine(
                row if wanted is None else {**row, "expected": wanted}, line.path, line.line
            )


def _rows_of_lm_eval(lines: Sequence[RowLine]) -> Iterator[RowLine]:
    """The samples of lm-eval, each once and not once for each filter, with the document's question,
    or the prompt that was sent.
    """
    # lm-eval writes a row for each filter of a task; the answer under all of them is the same.
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
            {"prompt": question or _prompt_in_request_arguments(row.get("arguments")), **row},
            path,
            line,
        )


def _prompt_in_request_arguments(arguments: Any) -> str:
    """The prompt in the arguments of a request: by name, or the first of a list."""
    while isinstance(arguments, Mapping | list) and arguments:
        arguments = (
            next(iter(arguments.values())) if isinstance(arguments, Mapping) else arguments[0]
        )
    return arguments if isinstance(arguments, str) else ""


def _are_likelihoods(responses: Any) -> bool:
    """Are the responses of lm-eval log-likelihoods of choices, [[[-3.2, false]], ...]: a number and
    whether it is the greedy choice?
    """
    while isinstance(responses, list) and responses and isinstance(responses[0], list):
        responses = responses[0]
    return (
        isinstance(responses, list)
        and len(responses) == 2
        and str(responses[1]).casefold() in ("true", "false")
    )
