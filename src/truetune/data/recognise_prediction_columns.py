"""Recognises which column of a file of predictions is the prediction, the prompt, the reference and
so on, by its name.

Names are compared without case, and `Model Output`, `model-output` and `modelOutput` are one. A name that is not known
as a whole is taken by its parts (`gold_label`, `input_text`), where the column holds text and no other one has such a
part.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from truetune.errors import DataError, UsageError, format_name_list
from truetune.settings.suggest_spelling import did_you_mean

# Collected from the outputs of lm-eval, vLLM, LLaMA-Factory, W&B tables and scripts. The order
# decides: `answer` is a prediction where nothing surer is there, and the reference beside a
# `response`.
COLUMN_NAMES: Mapping[str, tuple[str, ...]] = {
    name: tuple(aliases.split())
    for name, aliases in {
        "prediction": (
            "prediction predictions predict predicted pred preds generated_text generated generation"
            " generations generated_texts gen model_output model_answer model_response"
            " generated_answer llm_output llm_response actual_output resps filtered_resps hypothesis"
            " hypotheses hyp sampled decoded response responses resp output outputs answer"
            " completion completions choices reply replies result text_out out text"
        ),
        "prompt": (
            "messages conversations prompt prompts question questions instruction query user_input"
            " user_query user_prompt input inputs input_text text_in problem request user human"
            " q source src in x"
        ),
        "reference": (
            "reference references reference_answer reference_output reference_outputs ref gold"
            " gold_answer golden_answer golden ground_truth groundtruth gt truth expected"
            " expected_output expected_answer target targets label labels ideal correct_answer"
            " solution answer output completion chosen a y"
        ),
        "step": "step global_step training_step train_step checkpoint_step iteration",
        "stopped": "stopped finish_reason stop_reason finished",
    }.items()
}
"""What a column is, and what files call it, the surest name first"""
NAME_PARTS: Mapping[str, str] = {
    "reference": "reference ref gold golden true truth gt target expected label ideal",
    "prediction": (
        "prediction predictions predict predicted pred preds generated generation hypothesis hyp"
        " response resp completion output answer infer inference"
    ),
    "prompt": "prompt question query instruction input problem",
}
"""Parts of a name that tell what a column is; the first that fits is taken: `expected_output` is a reference"""
_NO_TEXT = (
    "id ids token tokens len length type time latency count score scores hash index idx num logprob"
    " logprobs cost file path category lang language url date embedding rating correct accuracy"
    " loss format"
)
NO_TEXT_PARTS = frozenset(_NO_TEXT.split())
"""Parts of the names of columns that say something about a text, and are none"""
CURVE_COLUMNS = frozenset(("loss", "train_loss", "eval_loss", "learning_rate", "grad_norm"))
_ABOUT_AN_ANSWER = (
    "comment comments note notes reason reasoning explanation rationale thinking thought analysis judge judgement"
    " judgment verdict critique feedback review error errors warning title name model system annotator raw baseline"
    " base before after parsed"
)
ABOUT_AN_ANSWER = frozenset(_ABOUT_AN_ANSWER.split())
"""Parts of the names of columns whose text is about an answer, or is another one"""
# Chosen, not measured: a wrong prompt only costs a comparison, and a right one is nearly always of this kind.
MIN_PROMPT_WORDS = 3
"""Words of the median text from which a column of an unknown name may hold prompts: ids, names and labels have fewer"""
MIN_DISTINCT = 0.9
"""Share of different texts from which they differ from row to row"""
MIN_ROWS = 5
"""Rows from which texts that differ say that a column holds prompts: in fewer, labels and names
differ by chance as well. More would leave the first rows of a small test set without prompts"""
NAMES_OF_EITHER = frozenset(("answer", "output", "result"))
"""Names that references have as often as predictions"""
QUESTION_NAMES = frozenset(("question", "questions", "problem", "query", "q"))
"""Names that data sets of questions and answers give their prompts"""
# Chosen, not measured: a number, a letter or a name has three words at most, and a text that gives one has far more.
MAX_VALUE_WORDS, MIN_TEXT_RATIO = 3, 3
"""Words of a column of values, and how many times more a column of texts has"""
MAX_LOOKED_AT = 1_000
"""Rows that are looked at for a prompt of an unknown name"""
ID_COLUMNS = frozenset(("output_ids", "token_ids", "generated_ids", "input_ids"))
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_OTHER_SEPARATORS = re.compile(r"[;\t|]")
_GAPS = re.compile(r"[\W_]+")
Row = Mapping[str, Any]


def recognise_prediction_columns(
    rows: Sequence[Row], columns: Mapping[str, str], where: str
) -> dict[str, str]:
    """The column of each kind in rows of predictions: `prediction` -> `response`.

    Args:
        rows: the rows of a file, or some of them.
        columns: what the user says of some columns; it is not doubted.
        where: the file, for messages.

    Raises UsageError for a map of no known column, DataError where no column holds predictions.
    """
    names = _names_without_inference_hypothesis(rows, columns)
    _refuse_unknown_columns_in_map(names, columns, where)
    _refuse_other_csv_separator(names, where)
    taken = dict(columns)
    # Whole names first: a part of a name is a guess, and must not take a column from a name that is known.
    _take_columns_of_known_names(names, taken)
    if "prediction" not in columns and "reference" not in columns:
        _prefer_completion_over_answer(rows, taken)
    for kind in NAME_PARTS:
        candidates = [] if kind in taken else _columns_named_in_part(kind, rows, names, taken)
        if len(candidates) == 1:
            taken[kind] = candidates[0]
    if "prediction" not in taken and taken.get("prompt") in ("messages", "conversations"):
        # Chats whose last turn is the model's: one column holds the question and the answer.
        taken["prediction"] = taken["prompt"]
    if not columns:
        _take_prompt_of_unknown_name(rows, names, taken)
    if "prediction" not in taken:
        raise DataError(
            f"{where}: no column of predictions; the rows have {format_name_list(names)}"
            f"{_advise_on_missing_prediction_column(rows, names, taken)}"
        )
    return taken


def _names_without_inference_hypothesis(
    rows: Sequence[Row], columns: Mapping[str, str]
) -> list[str]:
    """The names of columns, without `hypothesis` beside `premise`: two texts of natural language inference."""
    names = list(dict.fromkeys(name for row in rows for name in row))
    is_inference = {"premise", "hypothesis"} <= set(names)
    if is_inference and "hypothesis" not in columns.values():
        names.remove("hypothesis")
    return names


def _prefer_completion_over_answer(rows: Sequence[Row], taken: dict[str, str]) -> None:
    """Take `completion` as the prediction and `answer` as the reference where the rows show that it is so.

    Both names are used for both. A data set of questions calls its references answers, an API what the model wrote a
    completion; and where one of the two is a word or a number, and the other a text, the model wrote the text.
    """
    prediction, reference = taken.get("prediction"), taken.get("reference")
    if prediction is None or reference is None:
        return
    if not normalize_column_name(reference).startswith("completion"):
        return
    if normalize_column_name(prediction) not in NAMES_OF_EITHER:
        return
    asks = normalize_column_name(taken.get("prompt", "")) in QUESTION_NAMES
    short, long = _median_word_count(rows, prediction), _median_word_count(rows, reference)
    is_value = short <= MAX_VALUE_WORDS and long >= MIN_TEXT_RATIO * max(short, 1)
    if is_value or (asks and "stopped" in taken):
        taken["prediction"], taken["reference"] = reference, prediction


def _median_word_count(rows: Sequence[Row], name: str) -> int:
    """The median number of words of a column's texts."""
    texts = [row.get(name) for row in rows[:MAX_LOOKED_AT]]
    words = sorted(len(text.split()) for text in texts if isinstance(text, str))
    return words[len(words) // 2] if words else 0


def _take_prompt_of_unknown_name(
    rows: Sequence[Row], names: Sequence[str], taken: dict[str, str]
) -> None:
    """Take the one column whose texts may be the prompts, where no name says which one holds them."""
    if "prediction" in taken and "prompt" not in taken:
        prompts = list(_unknown_columns_like_prompts(rows[:MAX_LOOKED_AT], names, taken))
        if len(prompts) == 1:
            taken["prompt"] = prompts[0]


def _unknown_columns_like_prompts(
    rows: Sequence[Row], names: Sequence[str], taken: Mapping[str, str]
) -> Iterator[str]:
    """Columns of an unknown name whose texts may be the prompts: sentences that differ from row to row.

    Only in front of the prediction, for scripts write what they ask before what they get.
    """
    answers = {taken[kind] for kind in ("prediction", "reference") if kind in taken}
    ahead = names[: names.index(taken["prediction"])] if taken["prediction"] in names else []
    for name in ahead:
        parts = set(normalize_column_name(name).split("_"))
        if name in taken.values() or parts & (NO_TEXT_PARTS | ABOUT_AN_ANSWER):
            continue
        if _differ_like_prompts(rows, name, answers):
            yield name


def _differ_like_prompts(rows: Sequence[Row], name: str, answers: set[str]) -> bool:
    """Are the texts of a column several words long, different in nearly all rows, and none of the
    row's answers?
    """
    texts = [row.get(name) for row in rows]
    found = [text for text in texts if isinstance(text, str) and text.strip()]
    if len(found) < MIN_ROWS or len(found) < MIN_DISTINCT * len(rows):
        return False
    if len(set(found)) < MIN_DISTINCT * len(found):
        return False
    if sorted(len(text.split()) for text in found)[len(found) // 2] < MIN_PROMPT_WORDS:
        return False
    return not any(row.get(name) == row.get(answer) for row in rows for answer in answers)


def _refuse_other_csv_separator(names: Sequence[str], where: str) -> None:
    """Raise DataError for a table whose separator is a semicolon or a tab: read by commas, it has
    one column.
    """
    parts = _OTHER_SEPARATORS.split(names[0]) if len(names) == 1 else []
    if len(parts) > 1:
        separator = names[0][len(parts[0])]
        raise DataError(
            f"{where}: {len(parts)} columns that are parted by {separator!r}; expected commas"
        )


def _take_columns_of_known_names(names: Sequence[str], taken: dict[str, str]) -> None:
    """Take the columns whose whole names are known, the surest name of each kind first."""
    # Reversed, so that of two columns whose plain names are the same the first one wins.
    by_plain_name = {normalize_column_name(name): name for name in reversed(names)}
    for kind, known_names in COLUMN_NAMES.items():
        present = [by_plain_name[name] for name in known_names if name in by_plain_name]
        free = [name for name in present if name not in taken.values()]
        if kind not in taken and free:
            taken[kind] = free[0]


def normalize_column_name(name: str) -> str:
    """A column's name in lower case, with `_` between its parts."""
    return _GAPS.sub("_", _CAMEL.sub("_", name)).strip("_").casefold()


def _refuse_unknown_columns_in_map(
    names: Sequence[str], columns: Mapping[str, str], where: str
) -> None:
    """Raise if a map names no known kind of column, or a column that the rows lack."""
    for ours, column in columns.items():
        if ours not in COLUMN_NAMES:
            raise UsageError(
                f"--map {ours}={column}: {ours} is no column of predictions{did_you_mean(ours, COLUMN_NAMES)};"
                f" known are {', '.join(COLUMN_NAMES)}"
            )
        # A dot goes into an object of a column: `doc.question`.
        if column not in names and column.partition(".")[0] not in names:
            raise DataError(
                f"{where}: --map {ours}={column}: there is no column {column}{did_you_mean(column, names)};"
                f" the rows have {format_name_list(names)}"
            )


def _columns_named_in_part(
    ours: str, rows: Sequence[Row], names: Sequence[str], taken: Mapping[str, str]
) -> list[str]:
    """The columns of text that a part of their name says to be of this kind."""
    return [
        name
        for name in names
        if name not in taken.values()
        and _kind_by_parts_of_name(name) == ours
        and _column_holds_text(rows, name)
    ]


def _kind_by_parts_of_name(name: str) -> str | None:
    """What a column holds by the parts of its name; None if no part tells, or one says that it is
    no text.
    """
    # `prediction_length` speaks of a prediction and holds none: a part that says so wins.
    parts = set(normalize_column_name(name).split("_"))
    if parts & NO_TEXT_PARTS:
        return None
    return next((ours for ours, known in NAME_PARTS.items() if parts & set(known.split())), None)


def _column_holds_text(rows: Sequence[Row], name: str) -> bool:
    """Does any row hold a text, a list or an object in this column?"""
    return any(isinstance(row.get(name), str | list | dict) for row in rows)


def _advise_on_missing_prediction_column(
    rows: Sequence[Row], names: Sequence[str], taken: Mapping[str, str]
) -> str:
    """What to do about a file without a column of predictions."""
    plain = {normalize_column_name(name) for name in names}
    # What people give by mistake, told by names that nothing else has.
    if plain & CURVE_COLUMNS:
        return ": this is a log of curves; did you mean truetune diagnose?"
    if plain & ID_COLUMNS:
        return ": these are token ids; decode them (tokenizer.batch_decode) and write the texts"
    if {"custom_id", "body"} <= plain:
        return ": these are the requests of a batch; score its output, with --data and this file"
    free = list(_unassigned_text_columns(rows, names, taken))
    # More than three are a list to read, and no hint.
    if 0 < len(free) < 4:
        return f"; did you mean {' or '.join(f'--map prediction={name}' for name in free)}?"
    return ": name it with --map prediction=COLUMN"


def _unassigned_text_columns(
    rows: Sequence[Row], names: Sequence[str], taken: Mapping[str, str]
) -> Iterator[str]:
    """The columns of text that were taken for nothing, and whose names say nothing else."""
    for name in names:
        if (
            name not in taken.values()
            and not set(normalize_column_name(name).split("_")) & NO_TEXT_PARTS
            and _column_holds_text(rows, name)
        ):
            yield name
