"""Training rows are too long for the token limit, whatever the tokenizer.

## What it does
If the tokenizer is not on this machine, compares the length limit with the characters of the first local rows. No
common tokenizer packs ordinary text into more than six characters per token on average, so a row with more characters
than six times the limit is certainly too long. Rows that are only probably too long are not reported.

## Why it is bad
Most trainers truncate such a row at the limit: the answer at its end is lost, with the stop token. Axolotl and ms-swift
drop the row. LLaMA-Factory splits the limit between prompt and answer: an answer longer than half of it loses its end.
The run ends without an error, but was trained only on prompts, or only on short rows.

## Example
```yaml
files:
  rows.jsonl:
    - messages:
        - {role: user, content: The boiler has been loud since Monday. What should we ask for}
        - {role: assistant, content: Ask for the pump to be bled first. If that does not help the valve has to be
           changed and that takes about an hour and is paid for by the house.}
config:
  base_model: some/model
  datasets: [{path: rows.jsonl, type: chat_template}]
  sequence_len: 24
  micro_batch_size: 2
  learning_rate: 0.0002
```

## Use instead
```yaml
files:
  rows.jsonl:
    - messages:
        - {role: user, content: The boiler has been loud since Monday. What should we ask for}
        - {role: assistant, content: Ask for the pump to be bled first. If that does not help the valve has to be
           changed and that takes about an hour and is paid for by the house.}
config:
  base_model: some/model
  datasets: [{path: rows.jsonl, type: chat_template}]
  sequence_len: 4096
  micro_batch_size: 2
  learning_rate: 0.0002
```

## Fix safety
A higher limit takes more memory; `truetune plan` says how much. With a tokenizer (`-t`) the exact rows are counted.

## References
- TRL documentation, `SFTConfig.max_length`; Axolotl documentation, `sequence_len` (longer rows are dropped)
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from truetune.checks.config.evidence.is_tokenizer_on_this_machine import has_local_tokenizer
from truetune.checks.config.evidence.read_first_rows_and_count_characters import (
    CHATS,
    count_characters,
    first_rows_of_run,
    text_columns_of_torchtune_recipe,
)
from truetune.checks.config.evidence.reasons_setting_rules_lack_their_inputs import NO_ROWS
from truetune.checks.config.evidence.script_token_ids_by_stand_in_tokenizer import (
    RowsAtLimit,
    find_rows_cut_by_script,
)
from truetune.checks.config.evidence.setting_places_and_known_keys import setting_case
from truetune.checks.faults import Fault
from truetune.checks.findings import Case, Finding
from truetune.checks.judgement import Unmet
from truetune.checks.measurement_without_findings import Measurement, make_count_measurement
from truetune.checks.rule import ConfigRule
from truetune.checks.severity_by_trainer import is_nearly_all
from truetune.checks.shared_by_rules_on_cut_answers import ENDS_ARE_LOST
from truetune.data.answering_roles import is_answering_role
from truetune.data.row_text_bytes import MOST_CHARACTERS_PER_TOKEN
from truetune.settings.config import Config
from truetune.settings.row_formats import is_script_named_as_format

# Chosen: an outlier or two are cut in every set of rows, and nobody means them.
MIN_SHARE = 0.05
SHORTER_PROMPTS = (
    "raise the limit to the length of the longest row, or shorten the prompts: a prompt that fills the limit leaves"
    " no room for the answers"
)
SHARED_OUT = (
    "LLaMA-Factory splits cutoff_len between prompt and answer: it keeps an answer shorter than half of it and"
    " truncates the prompt; a longer answer loses its end, and with it the stop token, unless the template adds EOS"
    " after the cut"
)
"""`infer_seqlen` and `efficient_eos` of LLaMA-Factory 0.9"""
PAIR_METHODS = ("dpo", "ipo", "orpo", "cpo", "simpo", "kto", "reward")
ANSWERS = ("output", "completion", "response", "answer")


class _LongRows(NamedTuple):
    rows: int
    too_long: int
    unanswered: int
    """Rows whose answer begins behind the limit for certain"""
    ends_cut: int
    """Rows of one answer that alone has half of the limit for certain"""
    first: Case | None
    """The first row that is too long"""


class RowsSurelyCut(ConfigRule):
    code = "CFG064"
    fault = Fault.TRAINING_ROWS_CUT
    symptoms = (
        "loss-does-not-fall",
        "nothing-is-learned",
        "dpo-without-effect",
        "garbage-output",
        "never-stops",
    )
    severity = "error"
    methods = ("sft",)
    # Where a tokenizer is named beside the settings, these count the same rows by their tokens.
    moot_where = (
        "truncation-leaves-no-label",
        "truncation-cuts-the-terminator",
        "rows-longer-than-default-max-length",
        "token-rows-cut-at-the-limit",
    )

    def unmet(self) -> Unmet | None:
        """Why the rule can't judge this run; None if it can.

        Also unmet where the tokenizer is here, no limit cuts single rows, or the rows are not here.
        """
        if (lacking := super().unmet()) is not None:
            return lacking
        if has_local_tokenizer(self.subject):
            return Unmet("the tokenizer is here, and the rows are counted with it")
        if self._rows_cut_by_script() is not None:
            return None
        if self.subject.limit is None or self.subject.spec.training.packing:
            return Unmet("it is about a limit in tokens that cuts single rows")
        return None if self._measure_long_rows().rows else NO_ROWS

    def measurement_if_clean(self) -> Measurement | str:
        """What was measured: how many rows are too long for certain."""
        cut = self._rows_cut_by_script()
        if cut is not None:
            return make_count_measurement(
                "rows that the script cuts for certain", cut.cut, cut.rows
            )
        long_rows = self._measure_long_rows()
        return make_count_measurement(
            "rows that are too long for certain", long_rows.too_long, long_rows.rows
        )

    def findings(self) -> Iterator[Finding]:
        cut = self._rows_cut_by_script()
        if cut is None:
            yield from self._findings_on_rows_past_settings_limit()
        elif cut.cut >= MIN_SHARE * cut.rows:
            yield self._finding_on_script_cut(cut)

    def _findings_on_rows_past_settings_limit(self) -> Iterator[Finding]:
        """Findings on the rows that pass the limit of the settings, by what their trainer does with
        them.
        """
        config, long_rows = self.subject, self._measure_long_rows()
        # truetune's own trainer cuts each row before it packs.
        joins_rows = config.spec.training.packing and config.stack != "truetune"
        if config.limit is None or joins_rows:
            return
        if long_rows.first is None or long_rows.too_long < MIN_SHARE * long_rows.rows:
            return
        is_dropped = _are_long_rows_dropped(config)
        if config.stack == "llama-factory":
            yield self._finding_on_limit_of_prompt_and_answer(long_rows)
        elif not is_dropped and is_nearly_all(long_rows.unanswered, long_rows.rows):
            yield self._finding_on_lost_answers(long_rows)
        else:
            yield self._finding_on_long_rows(
                long_rows, long_rows.first, "dropped" if is_dropped else "cut"
            )

    def _finding_on_long_rows(self, long_rows: _LongRows, first: Case, fate: str) -> Finding:
        """The finding that rows are dropped, or lose their ends."""
        config = self.subject
        assert config.limit is not None
        is_of_pairs = config.spec.training.method in PAIR_METHODS
        return self.finding(
            f"{long_rows.too_long:,} of {long_rows.rows:,} rows are certainly {fate}: they have more than"
            f" {MOST_CHARACTERS_PER_TOKEN} characters per token of the limit of {config.limit:,}",
            SHORTER_PROMPTS if is_of_pairs else _describe_edit_that_raises_limit(config),
            evidence=list(_evidence_of_cut(config, fate, is_of_pairs=is_of_pairs)),
            severity="warning",
            cases=[_limit_case(config), first],
            count=long_rows.too_long,
            total=long_rows.rows,
        )

    def _finding_on_limit_of_prompt_and_answer(self, long_rows: _LongRows) -> Finding:
        """The finding on a limit that is shared out between prompt and answer: no answer is lost
        whole.
        """
        config = self.subject
        assert config.limit is not None
        are_ends_lost = long_rows.ends_cut >= MIN_SHARE * long_rows.rows
        counted = long_rows.ends_cut if are_ends_lost else long_rows.too_long
        fate = "certainly lose the end of their answer" if are_ends_lost else "are certainly cut"
        return self.finding(
            f"{counted:,} of {long_rows.rows:,} rows {fate}: {long_rows.too_long:,} have more than"
            f" {MOST_CHARACTERS_PER_TOKEN} characters per token of the limit of {config.limit:,}",
            "raise cutoff_len to the length of the longest row, or split the rows",
            severity="error" if is_nearly_all(long_rows.ends_cut, long_rows.rows) else "warning",
            evidence=[
                f"estimated from characters: {_explain_why_characters_are_measured(config)}",
                SHARED_OUT,
            ],
            cases=[_limit_case(config), *([long_rows.first] if long_rows.first else [])],
            count=counted,
            total=long_rows.rows,
        )

    def _finding_on_lost_answers(self, long_rows: _LongRows) -> Finding:
        """The finding that nearly no row keeps a token of its answer."""
        config = self.subject
        assert config.limit is not None
        assert long_rows.first is not None
        return self.finding(
            f"{long_rows.unanswered:,} of {long_rows.rows:,} rows certainly lose the whole answer: more than"
            f" {MOST_CHARACTERS_PER_TOKEN} characters per token of the limit of {config.limit:,} come before it",
            "raise the limit to the length of the longest row, or shorten the text before the answers",
            severity="error",
            evidence=[f"estimated from characters: {_explain_why_characters_are_measured(config)}"],
            cases=[_limit_case(config), long_rows.first],
        )

    def _rows_cut_by_script(self) -> RowsAtLimit | None:
        """The rows that a script cuts which makes token ids itself; None where it makes none, or cuts none."""
        path = self.subject.path
        if not is_script_named_as_format(path):
            return None
        return find_rows_cut_by_script(path, MOST_CHARACTERS_PER_TOKEN)

    def _finding_on_script_cut(self, cut: RowsAtLimit) -> Finding:
        """The finding on the script's own cut."""
        lost = (
            f", and in {cut.without_label:,} of them no token of the answer is left"
            if cut.without_label
            else ""
        )
        is_column_lost = cut.without_column > 0
        if is_column_lost and not lost:
            lost = (
                f", and in {cut.without_column:,} of them nothing of the column {cut.lost_column!r} is left, which"
                " is at the end"
            )
        is_spoiled = is_nearly_all(cut.without_column, cut.rows)
        first = Case("the first row that is cut", file=cut.file, line=cut.line)
        return self.finding(
            f"{cut.cut:,} of {cut.rows:,} rows are certainly cut: they have more than {MOST_CHARACTERS_PER_TOKEN}"
            f" characters per token of the script's limit of {cut.limit:,}{lost}",
            (
                "raise the limit to the length of the longest row, or shorten the text before that column"
                if is_column_lost
                else "raise the limit to the length of the longest row, or split the rows"
            ),
            severity="error" if is_spoiled else "warning",
            evidence=["the code that makes the token ids was followed, not run"],
            cases=[first],
        )

    def _measure_long_rows(self) -> _LongRows:
        """The rows that surely pass the limit, of those that are read."""
        most = (self.subject.limit or 0) * MOST_CHARACTERS_PER_TOKEN
        rows = too_long = unanswered = ends_cut = 0
        first: Case | None = None
        columns = text_columns_of_torchtune_recipe(self.subject)
        for path, line, row in first_rows_of_run(self.subject):
            characters = count_characters(row, columns)
            rows += bool(characters)
            if characters <= most:
                continue
            too_long += 1
            unanswered += _count_characters_before_answer(row) > most
            # An answer of half the limit and more is cut where the whole row passes it: see SHARED_OUT.
            ends_cut += 2 * _count_characters_of_only_answer(row) > most
            if first is None:
                text = f"{characters:,} characters"
                first = Case(text, file=path, line=line)
        return _LongRows(rows, too_long, unanswered, ends_cut, first)


def _limit_case(config: Config) -> Case:
    """The place of the limit; of TRL's own, which nobody set, where the settings stand."""
    if "max_length" in config.places or config.stack != "trl":
        return setting_case(config, config.limit, "max_length")
    return Case(f"max_length is not set: {config.limit:,} by default", file=config.path)


def _describe_edit_that_raises_limit(config: Config) -> str:
    """The edit that keeps the rows whole; a limit that nobody set has to be written first."""
    if "max_length" in config.places or config.stack != "trl":
        return "raise the limit to the length of the longest row, or split the rows"
    return "set max_length to the token count of the longest row, or split the rows"


def _evidence_of_cut(config: Config, fate: str, *, is_of_pairs: bool) -> Iterator[str]:
    """Evidence: how the cut is known, and what is lost with the end of a row."""
    yield f"estimated from characters: {_explain_why_characters_are_measured(config)}"
    if fate == "cut" and not is_of_pairs:
        yield ENDS_ARE_LOST


def _explain_why_characters_are_measured(config: Config) -> str:
    """Why rows are measured by their characters: which tokenizer is not here, or that none makes a difference."""
    name = config.spec.tokenizer
    if has_local_tokenizer(config):
        return "no tokenizer packs text into more characters per token, including this run's"
    return (
        f"the tokenizer {name} is not on this machine" if name else "the settings name no tokenizer"
    )


def _count_characters_before_answer(row: Mapping[str, Any]) -> int:
    """The characters of the turns before the first answer, or of the prompt's columns; 0 where no answer is told."""
    chat = next((row[name] for name in CHATS if isinstance(row.get(name), list)), None)
    if chat is None:
        has_answer = any(isinstance(row.get(name), str) for name in ANSWERS)
        prompt = {name: value for name, value in row.items() if name not in ANSWERS}
        return count_characters(prompt) if has_answer and "text" not in row else 0
    return count_characters({"messages": _turns_before_answer(chat)})


def _count_characters_of_only_answer(row: Mapping[str, Any]) -> int:
    """The characters of the answer of a row that has one; 0 where it has several, or none is told."""
    chat = next((row[name] for name in CHATS if isinstance(row.get(name), list)), None)
    if chat is not None:
        return _count_characters_of_only_answer_in_chat(chat)
    # Turns before are further answers, each with a limit of its own.
    if "text" in row or row.get("history"):
        return 0
    texts = [row[name] for name in ANSWERS if isinstance(row.get(name), str)]
    return count_characters({"output": texts[0]}) if len(texts) == 1 else 0


def _count_characters_of_only_answer_in_chat(chat: list[Any]) -> int:
    """The characters of the one answer of a chat; 0 where it has several, or none."""
    answers = [turn for turn in chat if isinstance(turn, Mapping) and _is_answer_turn(turn)]
    return count_characters({"messages": answers}) if len(answers) == 1 else 0


def _is_answer_turn(turn: Mapping[str, Any]) -> bool:
    """Is it a turn of the model?"""
    return is_answering_role(turn.get("role") or turn.get("from"))


def _turns_before_answer(chat: list[Any]) -> list[Mapping[str, Any]]:
    """The turns before the first answer; none where no turn is an answer."""
    turns = [turn for turn in chat if isinstance(turn, Mapping)]
    first = next((place for place, turn in enumerate(turns) if _is_answer_turn(turn)), 0)
    return turns[:first]


def _are_long_rows_dropped(config: Config) -> bool:
    """Does the stack leave rows out that are too long? ms-swift does unless it is told how to cut them."""
    if config.stack == "ms-swift":
        return config.raw.get("truncation_strategy") in (None, "delete")
    return config.stack == "axolotl"
