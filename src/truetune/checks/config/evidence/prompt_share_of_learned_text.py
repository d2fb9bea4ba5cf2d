"""How much of what a run learns is its prompts, where its settings take the loss on whole rows.

How it works: the characters of the turns before an answer, beside those of the answers, in the first local rows. The
tokenizer need not be here: a share in characters is close to that in tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from truetune.checks.config.evidence.columns_and_age_of_training_files import (
    local_data_files,
    local_training_sources,
)
from truetune.data.answering_roles import is_answering_role
from truetune.data.conversation import Conversation
from truetune.data.read_rows_as_conversations import read_conversations
from truetune.data.tell_training_files_from_predictions import classify_folder_files
from truetune.errors import TruetuneError
from truetune.settings.config import Config

MAX_ROWS = 500
"""Rows that are read; a share does not change with more"""


class PromptShare(NamedTuple):
    """Amounts of prompts and answers in some rows, in characters or in tokens."""

    rows: int
    prompts: int
    answers: int

    @property
    def share(self) -> float:
        """The share of the prompts in what is learned."""
        return self.prompts / (self.prompts + self.answers)


def measure_prompt_characters(config: Config) -> PromptShare | None:
    """Characters of prompts and answers in the first local rows; None where no row with an answer
    is available.
    """
    return measure_prompts_by(config, len)


def measure_prompts_by(config: Config, measure: Callable[[str], int]) -> PromptShare | None:
    """Prompts and answers of the first local rows, measured by a function of a text: in characters
    or in tokens; None where no row with an answer is available.
    """
    rows = prompts = answers = 0
    try:
        for row in islice(_conversations_of_run(config), MAX_ROWS):
            before, answer = _measure_prompts_and_answers(row, measure)
            if answer:
                rows, prompts, answers = rows + 1, prompts + before, answers + answer
    except (TruetuneError, OSError):
        return None
    return PromptShare(rows, prompts, answers) if rows else None


def _conversations_of_run(config: Config) -> Iterator[Conversation]:
    """The rows of the files that settings name; else those of the one file of rows beside the settings."""
    spec = config.spec
    named = [str(source.path) for source in local_training_sources(config)] or list(
        config.row_files
    )
    if named:
        return read_conversations(named, format=spec.format, columns=spec.map)
    beside = only_rows_file_beside(config)
    return read_conversations(beside, columns=_column_map_of_recipe(config)) if beside else iter(())


def only_rows_file_beside(config: Config) -> tuple[str, ...]:
    """The one file of training rows in the folder of the settings; none where there are several."""
    if not config.path:
        return ()
    folder = Path(config.path).parent
    files = classify_folder_files(folder)
    all_files = tuple(str(source.path) for source in local_data_files(str(folder)))
    row_files = all_files if files is None else files.training
    return row_files if len(row_files) == 1 else ()


def _column_map_of_recipe(config: Config) -> dict[str, str]:
    """The columns that a torchtune recipe maps, by truetune's names."""
    dataset: Any = config.raw.get("dataset")
    named = dataset.get("column_map") if isinstance(dataset, dict) else None
    if not isinstance(named, dict):
        return {}
    ours = {"input": "instruction", "output": "output"}
    return {ours[key]: name for key, name in named.items() if key in ours and name != ours[key]}


def _measure_prompts_and_answers(
    row: Conversation, measure: Callable[[str], int]
) -> tuple[int, int]:
    """Sizes of what stands in a row before its answers and in them; no answer where it is one text."""
    if not row.is_chat:
        return measure(row.prompt or ""), measure(row.completion or "")
    prompts = answers = 0
    for message in row.messages:
        content = message.get("content")
        size = measure(content) if isinstance(content, str) else 0
        if is_answering_role(message.get("role")):
            answers += size
        else:
            prompts += size
    return prompts, answers
