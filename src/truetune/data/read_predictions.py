"""Reads predictions, the answers that somebody else's code made, from files or lists.

A row has a prediction, and may have the prompt, the reference, the step of the training and what ended the answer.
Columns are found by their names; where one name may be two things (`answer`), the prediction is the one that is called
most like a prediction, and the reference is what is left. A map of columns says otherwise.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from os import PathLike, fspath
from pathlib import Path
from typing import Any

from truetune.data.conversation import Conversation
from truetune.data.find_data_files import (
    find_data_files_of_paths,
    open_decompressed_bytes,
    open_raw,
)
from truetune.data.parse_rendered_prompts import (
    cut_stop_tokens_and_say_if_found,
    parse_rendered_chat,
)
from truetune.data.read_file_records import read_records
from truetune.data.read_rows_as_conversations import read_conversations as read_conversations
from truetune.data.recognise_prediction_columns import (
    COLUMN_NAMES,
    normalize_column_name,
    recognise_prediction_columns,
)
from truetune.data.reference_files_beside_answers import (
    find_reference_and_prompt_files,
    read_text_lines,
)
from truetune.data.remote_path import parse_data_path
from truetune.data.unfold_prediction_rows import (
    AnswerText,
    RowLine,
    answer_texts,
    prompt_messages,
    unfold_rows,
)
from truetune.errors import DataError, UsageError
from truetune.parsing.read_files_within_limits import lines_within_limit

STOP_REASONS = frozenset(
    ("stop", "eos", "eos_token", "end_turn", "stop_sequence", "true", "yes", "1")
)
LENGTH_REASONS = frozenset(("length", "max_tokens", "max_length", "limit", "false", "no", "0"))
"""What `finish_reason` and the like say of an answer that ended, and of one that was cut"""
# Chosen, not measured: the form of a file shows in its first row, and some may be empty.
SAMPLED_ROWS = 8
"""Rows that tell what a file is"""
Messages = Sequence[Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class Prediction:
    """An answer, and what is known of it."""

    text: str
    prompt: str | Messages = ""
    """The question, or the messages before the answer; empty where it is not known"""
    reference: str = ""
    """What should have been said; empty where it is not known"""
    step: int = 0
    """Of the training"""
    stopped: bool | None = None
    """Did it end by itself? False where it was cut at a limit; None where that is not known"""
    file: str = ""
    line: int = 0
    custom_id: str = ""
    """Of the request of a batch that it answers"""
    stop_tokens: str = ""
    """What of stop tokens stood behind the text in the file; they are no part of it here"""
    has_prompt: bool = False
    """The prompt stood before the text in the file; it is no part of it here"""

    @property
    def question(self) -> str:
        """The last thing that was said before the answer."""
        if isinstance(self.prompt, str):
            return self.prompt
        questions = [
            _content_text(message)
            for message in self.prompt
            if _openai_role_of_message(message) == "user"
        ]
        return questions[-1] if questions else ""


@dataclass(frozen=True, slots=True)
class ReadPredictions:
    """The predictions of some files."""

    predictions: tuple[Prediction, ...]
    columns: Mapping[str, str]
    """What each column was taken for: `prediction` -> `response`"""
    without: int = 0
    """Rows that hold no prediction"""
    broken: tuple[str, ...] = ()
    """Lines that hold no row, and why"""


def read_predictions(
    paths: Sequence[str], columns: Mapping[str, str] | None = None, *, look_beside: bool = False
) -> ReadPredictions:
    """The predictions in JSONL, JSON, CSV or Parquet files, in order.

    With `look_beside`, one file of one answer a line gets its references and prompts from the text files beside it.

    `columns` says what the files call a column: {"prediction": "resp"}; a dot goes into an object ("doc.question").

    Raises DataError for a file that can't be read or holds no prediction, UsageError for a map of no known column.
    """
    values, broken = list[tuple[Any, str, int]](), list[str]()
    for path in paths:
        if _is_one_answer_per_line(path):
            values += _answers_of_text_lines(path)
        else:
            of_path, broken_of_path = _rows_and_broken_lines(path)
            values += of_path
            broken += broken_of_path
    # All files together, for a log of Evals has its expected answers in other lines than its
    # answers.
    lines = unfold_rows(values)
    if not lines:
        raise DataError(broken[0] if broken else f"{', '.join(paths)}: the file holds no row")
    read = replace(_predictions_of_lines(lines, columns or {}), broken=tuple(broken))
    if look_beside and len(paths) == 1 and _is_one_answer_per_line(paths[0]):
        return _fill_from_text_files_beside(read, Path(paths[0]))
    return read


def _rows_and_broken_lines(path: str) -> tuple[list[tuple[Any, str, int]], list[str]]:
    """The rows of a file or glob, each with its file and line, and messages for the lines that hold
    none.
    """
    values, broken = list[tuple[Any, str, int]](), list[str]()
    for source in find_data_files_of_paths([path]):
        with open_raw(source.path) as raw:
            for record in read_records(source, raw):
                if record.error is not None or not isinstance(record.row, dict | list):
                    broken.append(str(record.error or f"{source.path}:{record.line}: no object"))
                else:
                    values.append((record.row, str(source.path), record.line))
    return values, broken


def _fill_from_text_files_beside(read: ReadPredictions, path: Path) -> ReadPredictions:
    """The predictions with the references and prompts at their line in the text files beside
    theirs.
    """
    predictions = list(read.predictions)
    beside = find_reference_and_prompt_files(path, len(predictions))
    texts = {role: read_text_lines(file) for role, file in beside.items()}
    for row, one in enumerate(predictions):
        prompt = texts["prompt"][row] if "prompt" in texts else one.prompt
        reference = texts["reference"][row] if "reference" in texts else one.reference
        predictions[row] = replace(one, prompt=prompt, reference=reference)
    names = {role: file.name for role, file in beside.items()}
    return replace(read, predictions=tuple(predictions), columns={**read.columns, **names})


def _is_one_answer_per_line(path: str) -> bool:
    """Is it a file of one answer a line, as scripts on summaries and translations write it?"""
    file = parse_data_path(path)
    if file.suffix != ".txt" or not file.is_file():
        return False
    with open_raw(file) as raw:
        head = open_decompressed_bytes(raw, file).read(64).lstrip(b"\xef\xbb\xbf \t\r\n")
    # JSON is often called .txt: a bracket at its beginning tells it.
    return head[:1] not in (b"{", b"[", b"")


def _answers_of_text_lines(path: str) -> Iterator[tuple[Any, str, int]]:
    """The answers of a text file, one a line, with file and line. Raises DataError if a line is too
    long or no UTF-8.
    """
    file = parse_data_path(path)
    with open_raw(file) as raw:
        try:
            for number, (line, _) in enumerate(
                lines_within_limit(open_decompressed_bytes(raw, file)), 1
            ):
                yield (
                    {"prediction": line.decode().removeprefix("\ufeff").rstrip("\r\n")},
                    path,
                    number,
                )
        except ValueError as error:
            raise DataError(f"{path}: not text that can be read: {error}") from None


def predictions_from_lists(
    texts: Iterable[str | Mapping[str, Any] | Prediction],
    prompts: Sequence[str | Messages] | None = None,
    references: Sequence[str] | None = None,
    *,
    steps: Sequence[int] | None = None,
    stopped: Sequence[bool | None] | None = None,
) -> tuple[Prediction, ...]:
    """Predictions from parallel lists.

    Args:
        texts: texts, rows with the columns of a file, or predictions.
        prompts: the question of each, or its messages.
        references: what each should have been.
        steps: the step of the training that each was made at.
        stopped: did each end by itself? None where that is not known.

    Raises UsageError where a list is not as long as the texts, DataError for a row without a prediction.
    """
    predictions = [_prediction_of_entry(text, number) for number, text in enumerate(texts, 1)]
    columns: dict[str, Sequence[Any] | None] = {
        "prompt": prompts,
        "reference": references,
        "step": steps,
        "stopped": stopped,
    }
    for name, values in columns.items():
        if values is None:
            continue
        if len(values) != len(predictions):
            raise UsageError(
                f"truetune.score: {len(predictions):,} predictions, {len(values):,} of `{name}`; give as"
                " many"
            )
        over: list[dict[str, Any]] = [
            {name: parse_rendered_prompt(value) if name == "prompt" else value} for value in values
        ]
        predictions = [
            replace(one, **changes) for one, changes in zip(predictions, over, strict=True)
        ]
    return tuple(predictions)


def fill_prompts_and_references_from_rows(
    predictions: Sequence[Prediction], data: Sequence[str]
) -> tuple[Prediction, ...]:
    """The predictions with the prompts and references that they lack taken from the rows that they
    answer.

    They are found by the question; where the predictions have none, by their order, and then there must be as many.

    Raises DataError where the rows don't fit the predictions, or can't be read.
    """
    requests = _batch_requests_by_custom_id(data)
    if requests:
        # A batch's output comes in any order: the id of the request is the only link.
        return tuple(
            replace(one, prompt=one.prompt or requests.get(one.custom_id, ""))
            for one in predictions
        )
    rows = [_question_and_answer(row) for row in read_conversations(data)]
    matches: Sequence[QuestionAnswer | None]
    if any(prediction.question for prediction in predictions):
        matches = _match_by_question(predictions, rows, data)
    else:
        matches = _match_by_order(predictions, rows, data)
    pairs = zip(predictions, matches, strict=True)
    return tuple(_fill_what_is_missing(prediction, row) for prediction, row in pairs)


QuestionAnswer = tuple[str, str]
"""(question, answer) of a row of data"""


def _match_by_question(
    predictions: Sequence[Prediction], rows: Sequence[QuestionAnswer], data: Sequence[str]
) -> list[QuestionAnswer | None]:
    """For each prediction the row of the same question; None if there is none. Raises DataError if
    no prediction has one.
    """
    by_question = {
        _normalize_spaces_and_case(question): (question, answer) for question, answer in rows
    }
    matches = [by_question.get(_normalize_spaces_and_case(one.question)) for one in predictions]
    if not any(matches):
        raise DataError(
            f"{', '.join(data)}: no row asks what a prediction answers; expected the same questions"
        )
    return matches


def _match_by_order(
    predictions: Sequence[Prediction], rows: Sequence[QuestionAnswer], data: Sequence[str]
) -> list[QuestionAnswer]:
    """For each prediction the row at its place among those of its step. Raises DataError if their
    numbers differ.
    """
    counts = Counter(prediction.step for prediction in predictions)
    if any(count != len(rows) for count in counts.values()):
        raise DataError(
            f"{', '.join(data)}: {len(rows):,} rows for {len(predictions):,} predictions"
            " without a prompt; expected one each, in the same order"
        )
    # A run answers the same rows at each of its evaluations, so that each step begins with the first row again.
    taken: Counter[int] = Counter()
    matches = []
    for prediction in predictions:
        matches.append(rows[taken[prediction.step]])
        taken[prediction.step] += 1
    return matches


def _fill_what_is_missing(prediction: Prediction, row: QuestionAnswer | None) -> Prediction:
    """The prediction with what it lacks from its row; what it has itself stays."""
    if row is None:
        return prediction
    question, answer = row
    return replace(
        prediction,
        prompt=prediction.prompt or question,
        reference=prediction.reference or answer,
    )


def _batch_requests_by_custom_id(data: Sequence[str]) -> dict[str, Messages]:
    """The messages of the requests of a batch, by their custom_id; empty if the files hold none."""
    requests: dict[str, Messages] = {}
    for source in find_data_files_of_paths(data):
        with open_raw(source.path) as raw:
            for record in read_records(source, raw):
                row = record.row if isinstance(record.row, dict) else {}
                if "custom_id" not in row:
                    return {}
                requests[str(row["custom_id"])] = tuple(
                    prompt_messages(row.get("body", row.get("params"))) or ()
                )
    return requests


def suggest_score_command(path: str | PathLike[str]) -> str:
    """`; did you mean: truetune score PATH?` for a file of answers that is given to a command for
    models or runs; empty for any other.
    """
    try:
        source = find_data_files_of_paths([fspath(path)])[0]
        with open_raw(source.path) as raw:
            rows = [
                record.row
                for record in islice(read_records(source, raw), SAMPLED_ROWS)
                if isinstance(record.row, dict | list)
            ]
    except (DataError, IndexError):
        return ""
    try:
        lines = unfold_rows([(row, str(path), 1) for row in rows])
        taken = recognise_prediction_columns([line.row for line in lines], {}, str(path))
    except DataError:
        lines, taken = [], {}
    # Names before `response` are of predictions alone; `response` and `output` are columns of
    # training data too.
    sure = COLUMN_NAMES["prediction"][: COLUMN_NAMES["prediction"].index("response")]
    if (
        normalize_column_name(taken.get("prediction", "")) in sure
        or {"prediction", "reference"} <= taken.keys()
    ):
        return f"; did you mean: truetune score {path}?"
    if lines and next(answer_texts(lines[0].row), AnswerText("")).ended is not None:
        return f"; did you mean: truetune score {path}?"
    return (
        f"; for the answers in it: truetune score {path}; for rows to ask: --data {path}"
        if rows
        else ""
    )


def _predictions_of_lines(lines: Sequence[RowLine], columns: Mapping[str, str]) -> ReadPredictions:
    """The predictions of all rows, with the column that each was read from. Raises DataError if
    there is none.
    """
    taken = recognise_prediction_columns([line.row for line in lines], columns, lines[0].path)
    by_row = [list(_predictions_of_row(line.row, taken, line.path, line.line)) for line in lines]
    predictions = [one for row in by_row for one in row]
    if not predictions:
        raise DataError(
            f"{lines[0].path}: no row holds a prediction in `{taken['prediction']}`; expected a"
            " text"
        )
    return ReadPredictions(tuple(predictions), taken, sum(not row for row in by_row))


def _predictions_of_row(
    row: Mapping[str, Any], taken: Mapping[str, str], file: str, line: int
) -> Iterator[Prediction]:
    """The predictions of one row, one or several."""
    cells = {name: _cell_at_path(row, column) for name, column in taken.items()}
    prompt, last_answer = _prompt_and_last_answer(
        cells.get("prompt", _chat_that_ends_with_answer(cells["prediction"]))
    )
    reference = next((answer.text for answer in answer_texts(cells.get("reference"))), "")
    # Of one column with prompt and prediction, the assistant's last turn is the prediction, and no reference.
    is_one_column = taken["prediction"] == taken.get("prompt") or "prompt" not in taken
    if not reference and not is_one_column:
        reference = last_answer
    for answer in answer_texts(cells["prediction"]):
        text, has_stop = cut_stop_tokens_and_say_if_found(answer.text)
        reason = cells.get("stopped") if answer.ended is None else answer.ended
        yield Prediction(
            text,
            _add_alpaca_input_to_prompt(prompt, row, taken),
            cut_stop_tokens_and_say_if_found(reference)[0],
            _parse_training_step(cells.get("step")),
            # A stop token in the text proves that the answer ended; what a column says may be a default.
            has_stop or _did_answer_end_by_itself(reason),
            file,
            line,
            str(row.get("custom_id") or ""),
            answer.text.rstrip().removeprefix(text.rstrip()).strip() if has_stop else "",
        )


def _add_alpaca_input_to_prompt(
    prompt: str | Messages, row: Mapping[str, Any], taken: Mapping[str, str]
) -> str | Messages:
    """The prompt of a row of Alpaca's form with its `input` added, which belongs to the question."""
    if (
        not isinstance(prompt, str)
        or normalize_column_name(taken.get("prompt", "")) != "instruction"
    ):
        return prompt
    more = row.get("input")
    return f"{prompt}\n{more}" if isinstance(more, str) and more.strip() else prompt


def _chat_that_ends_with_answer(prediction: Any) -> Any:
    """The chat whose last turn the prediction is; None if the prediction is an answer alone."""
    messages = prompt_messages(prediction) if isinstance(prediction, list | str) else None
    return messages if messages is not None and len(messages) > 1 else None


def _prompt_and_last_answer(cell: Any) -> tuple[str | Messages, str]:
    """The messages that were asked, and the assistant's turn at the end, which is no part of them."""
    messages = prompt_messages(cell)
    if messages is None:
        return parse_rendered_prompt(next((answer.text for answer in answer_texts(cell)), "")), ""
    if _openai_role_of_message(messages[-1]) == "assistant":
        return tuple(messages[:-1]), _content_text(messages[-1])
    return tuple(messages), ""


def parse_rendered_prompt(prompt: str | Messages) -> str | Messages:
    """The messages of a prompt that a chat template wrote; another prompt as it is."""
    return (parse_rendered_chat(prompt) or prompt) if isinstance(prompt, str) else prompt


def _prediction_of_entry(value: str | Mapping[str, Any] | Prediction, number: int) -> Prediction:
    """One entry of a list (text, row or prediction) as a prediction. Raises UsageError, DataError."""
    if isinstance(value, Prediction):
        return value
    if isinstance(value, str):
        return Prediction(value, line=number)
    if not isinstance(value, Mapping):
        raise UsageError(
            f"truetune.score: prediction {number} is a {type(value).__name__}; expected a text, a"
            " row, or a Prediction"
        )
    taken = recognise_prediction_columns([value], {}, f"row {number}")
    prediction = next(_predictions_of_row(value, taken, "", number), None)
    if prediction is None:
        raise DataError(
            f"row {number}: it holds no prediction in `{taken['prediction']}`; expected a text"
        )
    return prediction


def _cell_at_path(row: Mapping[str, Any], name: str) -> Any:
    """The value of a column, or of a key in an object of it: `doc.question`."""
    # The whole name first: a column may have a dot in it.
    if name in row:
        return row[name]
    first, _, rest = name.partition(".")
    inner = row.get(first)
    return _cell_at_path(inner, rest) if rest and isinstance(inner, Mapping) else None


def _openai_role_of_message(message: Mapping[str, Any]) -> str:
    """The role of a message, in OpenAI's names."""
    role = str(message.get("role", message.get("from", "")))
    return {"human": "user", "gpt": "assistant", "bot": "assistant", "model": "assistant"}.get(
        role, role
    )


def _content_text(message: Mapping[str, Any]) -> str:
    """The text of a message; of content parts the texts among them."""
    content = message.get("content", message.get("value"))
    if isinstance(content, list):
        return "\n".join(
            part["text"]
            for part in content
            if isinstance(part, dict) and isinstance(part.get("text"), str)
        )
    return content if isinstance(content, str) else ""


def _parse_training_step(value: Any) -> int:
    """A training step as a number; 0 if it is not known."""
    try:
        # `500.0`, as pandas writes a column of numbers with gaps.
        return int(float(value))
    except (TypeError, ValueError, OverflowError):
        return 0


def _did_answer_end_by_itself(value: Any) -> bool | None:
    """Did the answer end by itself, by its stop reason? None if the value says neither."""
    reason = str(value).strip().casefold()
    if reason in STOP_REASONS:
        return True
    return False if reason in LENGTH_REASONS else None


def _question_and_answer(row: Conversation) -> tuple[str, str]:
    """The last question of a row, and the answer to it."""
    if not row.is_chat:
        return row.prompt or "", row.completion or row.text or ""
    answers = [at for at, message in enumerate(row.messages) if message.get("role") == "assistant"]
    end = answers[-1] if answers else len(row.messages)
    questions = [
        _content_text(message) for message in row.messages[:end] if message.get("role") == "user"
    ]
    return questions[-1] if questions else "", _content_text(row.messages[end]) if answers else ""


def _normalize_spaces_and_case(text: str) -> str:
    """A text for comparison: one space between words, and no case."""
    # White space and case often change on the way through CSV and templates.
    return " ".join(text.split()).casefold()
