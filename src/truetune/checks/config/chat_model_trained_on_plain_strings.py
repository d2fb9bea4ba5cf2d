"""A chat model is trained on rows of plain strings, to which the chat template is not applied.

## What it does
Reads the first local rows that TRL settings name, in a file or in the options of commands such as `trl dpo`. It fires
if all texts are plain strings without any turn token and the model is a chat model by its name (instruct, chat, it). It
does not fire if a script shapes the rows, or if the scripts next to it prompt the model in plain text. For OpenRLHF
commands it fires if neither `--apply_chat_template` nor `--input_template` is given. If the tokenizer is on this
machine, `plain-string-pair-skips-template` judges the rows by its template instead.

## Why it is bad
TRL applies the chat template only to lists of messages, and joins strings as they are. The curves look perfect. At
inference the model gets its chat template, a format that it was never trained on: it answers as it did before training,
or repeats itself and does not stop.

## Example
```yaml
files:
  pairs.jsonl:
    - {prompt: "When is the shop open?", chosen: At nine., rejected: Who knows.}
config:
  model_name_or_path: some/model-instruct
  dataset_name: pairs.jsonl
  beta: 0.1
```

## Use instead
```yaml
files:
  pairs.jsonl:
    - prompt: [{role: user, content: "When is the shop open?"}]
      chosen: [{role: assistant, content: At nine.}]
      rejected: [{role: assistant, content: Who knows.}]
config:
  model_name_or_path: some/model-instruct
  dataset_name: pairs.jsonl
  beta: 0.1
```

## Fix safety
Rows of messages go through the template. If you also prompt the model in plain text, the strings are right.

## References
- huggingface/trl#3468, huggingface/trl#3140; TRL documentation, dataset formats
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from truetune.checks.config.evidence.columns_and_age_of_training_files import (
    local_data_files,
    local_training_sources,
)
from truetune.checks.config.evidence.is_tokenizer_on_this_machine import has_local_tokenizer
from truetune.checks.config.evidence.reasons_setting_rules_lack_their_inputs import NO_ROWS
from truetune.checks.config.evidence.setting_places_and_known_keys import setting_case
from truetune.checks.faults import Fault
from truetune.checks.findings import Case, Finding
from truetune.checks.judgement import Unmet
from truetune.checks.measurement_without_findings import Measurement, make_count_measurement
from truetune.checks.rule import ConfigRule
from truetune.checks.source.evidence.chat_model_and_turn_mark_patterns import (
    CHAT_MODEL_NAME,
    TURN_MARKS,
)
from truetune.checks.source.evidence.prompt_forms import (
    asks_model_and_trains_none,
    first_line_asking_model_in_chat_turns,
    project_scripts_around,
    trains_a_model,
)
from truetune.data.find_data_files import DataFile, open_raw
from truetune.data.read_file_records import read_records
from truetune.errors import DataError
from truetune.parsing.decompress_within_limits import UNREADABLE
from truetune.settings.config import Config
from truetune.settings.row_formats import is_script_named_as_format

MAX_ROWS = 200
"""Rows of a file that are read; a file is written in one form"""
ANSWERED = (
    ("prompt", "chosen", "rejected"),
    ("chosen", "rejected"),
    ("prompt", "completion"),
)
"""The columns of strings that TRL's trainers join as they are"""
TEMPLATES_OF_OPENRLHF = ("apply_chat_template", "input_template")
"""Options with which OpenRLHF writes marks of turns"""
ASKED_ALONE = ("grpo", "rloo")
"""Methods that read a prompt and make the answer themselves"""


class _PlainRows(NamedTuple):
    """Counts of plain strings among the first rows of a run."""

    rows: int
    plain: int
    columns: tuple[str, ...]
    first: Case | None
    """The first row of plain strings"""


class ChatModelTrainedOnPlainStrings(ConfigRule):
    code = "CFG080"
    fault = Fault.CHAT_MODEL_TRAINED_WITHOUT_TEMPLATE
    symptoms = ("garbage-output", "dpo-without-effect", "good-here-bad-there")
    severity = "warning"
    stacks = ("trl", "openrlhf")

    def unmet(self) -> Unmet | None:
        """Why the rule can't judge this run; None if it can.

        Also unmet where the tokenizer is here, a script reads the settings, or no rows are known.
        """
        if (lacking := super().unmet()) is not None:
            return lacking
        config = self.subject
        if not CHAT_MODEL_NAME.search(config.spec.model or ""):
            return Unmet("it is about models whose name says that they chat (instruct, chat, it)")
        if config.stack == "openrlhf":
            # A template that the shell puts in, as `$'User: {}'`, is one too.
            if any(config.raw.get(key) not in (None, False, "") for key in TEMPLATES_OF_OPENRLHF):
                return Unmet("it is about commands that name no template")
            if config.own_keys:
                return Unmet("a variable of the command may name a template")
            return None if self._count_plain_rows().rows else NO_ROWS
        if has_local_tokenizer(config):
            return Unmet("the tokenizer is here, and the rows are judged by its template")
        if self._may_script_read_settings():
            return Unmet("a script reads the settings, and may shape the rows")
        return None if self._count_plain_rows().rows else NO_ROWS

    def measurement_if_clean(self) -> Measurement:
        """What was measured: how many of the first rows are plain strings without a turn."""
        plain_rows = self._count_plain_rows()
        return make_count_measurement(
            "rows of plain strings without a turn", plain_rows.plain, plain_rows.rows
        )

    def findings(self) -> Iterator[Finding]:
        if self.unmet() is not None:
            return
        config, plain_rows = self.subject, self._count_plain_rows()
        if (
            plain_rows.first is None
            or plain_rows.plain < plain_rows.rows
            or self._scripts_ask_without_template()
        ):
            return
        if config.stack == "openrlhf":
            yield self._finding_on_openrlhf(plain_rows)
            return
        what = "preference pairs" if "chosen" in plain_rows.columns else "rows"
        columns = ", ".join(plain_rows.columns)
        cases = [setting_case(config, config.spec.model or "", "model"), plain_rows.first]
        yield self.finding(
            f"{config.spec.model} is a chat model, but its {what} are plain strings ({columns}), so the chat"
            " template is not applied",
            f"write {columns} as lists of messages ([{{'role': 'user' or 'assistant', 'content': ...}}]); TRL"
            " applies the template only to such lists, even if its log says `Applying chat template`",
            cases=[*cases, *self._first_case_asking_with_template()],
            count=plain_rows.plain,
            total=plain_rows.rows,
        )

    def _finding_on_openrlhf(self, plain_rows: _PlainRows) -> Finding:
        """The finding on a command of OpenRLHF that hands the rows on as they are."""
        config = self.subject
        column = plain_rows.columns[0] if plain_rows.columns else ""
        return self.finding(
            f"{config.spec.model} is a chat model, but --apply_chat_template is not given: OpenRLHF passes the"
            f" strings of {column} to it without any turn tokens",
            "add --apply_chat_template, which turns each string into a user message, or --input_template with the"
            " model's own turn tokens",
            cases=[
                setting_case(config, config.spec.model or "", "pretrain", "model"),
                *([plain_rows.first] if plain_rows.first else []),
            ],
            count=plain_rows.plain,
            total=plain_rows.rows,
        )

    def _may_script_read_settings(self) -> bool:
        """Does a script of the project read these settings, or may one?"""
        config = self.subject
        if is_script_named_as_format(config.path):
            return True
        if config.read_by:
            return not config.read_by.startswith(("trl ", "--trainer trl"))
        return any(trains_a_model(script) for script in project_scripts_around(Path(config.path)))

    def _first_case_asking_with_template(self) -> Iterator[Case]:
        """The first place at which a script beside asks the model by the chat template; nothing
        without one.
        """
        for script in project_scripts_around(Path(self.subject.path)):
            place = (
                None if trains_a_model(script) else first_line_asking_model_in_chat_turns(script)
            )
            if place is not None:
                yield Case(place[1], file=script.path, line=place[0])
                return

    def _scripts_ask_without_template(self) -> bool:
        """Do the scripts beside ask a model, and none of them through a chat template?"""
        asking = [
            one
            for one in project_scripts_around(Path(self.subject.path))
            if asks_model_and_trains_none(one)
        ]
        return bool(asking) and all(
            first_line_asking_model_in_chat_turns(one) is None for one in asking
        )

    def _count_plain_rows(self) -> _PlainRows:
        """How many of the first rows are plain strings."""
        rows = plain = 0
        columns: tuple[str, ...] = ()
        first: Case | None = None
        is_asked_alone = self.subject.spec.training.method in ASKED_ALONE
        for path, line, row in self._first_rows():
            if self.subject.stack == "openrlhf":
                names = _columns_read_by_openrlhf(self.subject, row)
            else:
                names = _columns_read_by_trl(row, is_asked_alone)
            rows += bool(names)
            texts = [row[name] for name in names]
            if not texts or not _are_strings_without_turn_marks(texts):
                continue
            plain += 1
            columns = columns or names
            first = first or Case(f"{names[0]} {texts[0][-60:]!r}", file=path, line=line)
        return _PlainRows(rows, plain, columns, first)

    def _first_rows(self) -> Iterator[tuple[str, int, Mapping[str, Any]]]:
        """The first rows of each file, with their places."""
        named = [one for name in self.subject.row_files for one in local_data_files(name)]
        for source in local_training_sources(self.subject) or named:
            yield from _first_rows_of_source(source)


def _first_rows_of_source(source: DataFile) -> Iterator[tuple[str, int, Mapping[str, Any]]]:
    """The first rows of one file."""
    try:
        with open_raw(source.path) as raw:
            for record in islice(read_records(source, raw), MAX_ROWS):
                if isinstance(record.row, Mapping):
                    yield str(source.path), record.line, record.row
    except (DataError, *UNREADABLE):
        return


def _columns_read_by_openrlhf(config: Config, row: Mapping[str, Any]) -> tuple[str, ...]:
    """The column of prompts that OpenRLHF reads of a row; none where it has none."""
    column = config.raw.get("input_key") or "input"
    return (column,) if isinstance(column, str) and column in row else ()


def _columns_read_by_trl(row: Mapping[str, Any], is_asked_alone: bool) -> tuple[str, ...]:
    """The columns that TRL's trainer reads of a row; none where it has none of them."""
    if is_asked_alone:
        return ("prompt",) if "prompt" in row else ()
    return next((names for names in ANSWERED if all(name in row for name in names)), ())


def _are_strings_without_turn_marks(texts: list[Any]) -> bool:
    """Are all of the texts strings, and is no mark of a turn in any?"""
    return all(isinstance(text, str) for text in texts) and not any(
        TURN_MARKS.search(text) for text in texts
    )
