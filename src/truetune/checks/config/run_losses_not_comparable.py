"""The losses of two runs are means over different tokens or rows, so they can't be compared.

## What it does
Compares the SFT runs in the given files: TRL, Axolotl, LLaMA-Factory and torchtune settings, training commands, and
scripts whose settings are calls. It fires if two of them train one model on the same rows, but a setting that defines
the loss differs: which tokens are in the loss (`assistant_only_loss`, `completion_only_loss`, `train_on_inputs`,
`train_on_prompt`, `mask_history`, `roles_to_train`), how it is computed (`label_smoothing_factor`, `loss_type`), or
which rows are evaluated (`val_set_size`, `eval_dataset`). Packing and another vocabulary are info, if a log or a
checkpoint shows that a run was made. It does not fire if one run starts from the other, for other training rows or
methods, or for collections of settings: three or more of which none was run, such as a library's examples, or more than
five for one set of rows.

## Why it is bad
A prompt that repeats in every row is learned after a few steps, and its tokens then have a loss near 0. A mean over all
tokens is far below a mean over the answers, and falls although the answers are no better. The lower of two such losses
does not show which run is better.

## Example
```yaml
beside:
  a.yaml:
    model_name_or_path: some/model
    dataset_name: some/chats
    output_dir: runs/a
    assistant_only_loss: false
    eval_strategy: steps
    max_length: 2048
config:
  model_name_or_path: some/model
  dataset_name: some/chats
  output_dir: runs/b
  assistant_only_loss: true
  eval_strategy: steps
  max_length: 2048
```

## Use instead
```yaml
beside:
  a.yaml:
    model_name_or_path: some/model
    dataset_name: some/chats
    output_dir: runs/a
    assistant_only_loss: true
    eval_strategy: steps
    max_length: 2048
config:
  model_name_or_path: some/model
  dataset_name: some/chats
  output_dir: runs/b
  assistant_only_loss: true
  eval_strategy: steps
  max_length: 2048
```

## Fix safety
There is no automatic fix: each run may be right as it is. Evaluate both checkpoints with the same settings before you
compare them.

## References
- huggingface/trl documentation, "SFT Trainer" (`assistant_only_loss`, `completion_only_loss`)
- Shi et al. 2024, Instruction Tuning With Loss Over Instructions, arXiv 2405.14394
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import PurePath
from typing import NamedTuple

from truetune.checks.config.evidence.count_tokens_of_prompts_and_answers import (
    count_prompt_and_answer_tokens,
)
from truetune.checks.config.evidence.prompt_share_of_learned_text import measure_prompt_characters
from truetune.checks.describe_what_loss_averages import (
    LEARNED_BY,
    PACKING_SWITCHES,
    ROW_SWITCHES,
    SUM_SWITCHES,
    TOKEN_SWITCHES,
)
from truetune.checks.faults import Fault
from truetune.checks.find_training_stages_of_files import stage_of_config
from truetune.checks.find_uses_of_weight_folders import is_same_folder, is_same_or_below
from truetune.checks.findings import Case, Finding
from truetune.checks.judgement import Unmet
from truetune.checks.rule import ConfigRule
from truetune.checks.source.evidence.shared_vocabularies import vocabulary_group
from truetune.settings.config import Config, LossBasis, LossSetting, TrainingStage
from truetune.settings.has_program_trained_with_these_settings import has_script_trained_before

MAX_UNRUN = 2
"""Settings in all files of which none was run, up to which two are compared: a folder of examples has more, and nobody
compares losses that do not exist. Chosen, not measured"""
MAX_RUNS = 5
"""Runs on the same rows. Chosen: more of them are a collection of examples or a sweep, whose losses nobody compares"""
NO_OTHER_RUN = Unmet(
    "it is about two SFT runs on the same rows that are given together",
    "give the settings of both: truetune check RUN_A RUN_B",
)


class LossDifference(NamedTuple):
    """A switch that differs between two runs."""

    own: LossSetting
    other: LossSetting


class ComparedLosses(NamedTuple):
    """Two runs whose losses are not comparable."""

    differences: list[LossDifference]
    """Empty where only the vocabularies differ"""
    is_certain: bool
    """Do both runs log evaluation losses of one vocabulary, and does more than packing differ?"""


class RunLossesNotComparable(ConfigRule):
    code = "CFG098"
    fault = Fault.EVALUATION_LOSS_NOT_COMPARABLE
    severity = "warning"
    methods = ("sft", "pretrain")

    def unmet(self) -> Unmet | None:
        """Why the rule can't judge this run; None if it can.

        Also unmet where no comparable run lies beside it.
        """
        lacking = super().unmet()
        if lacking is not None:
            return lacking
        return None if comparable_runs_beside(self.subject) else NO_OTHER_RUN

    def measurement_if_clean(self) -> str:
        """What was measured: the runs whose losses are means over the same tokens and rows."""
        others = ", ".join(PurePath(one.file).name for one in comparable_runs_beside(self.subject))
        return f"the loss is a mean over the same tokens and rows as in {others}"

    def findings(self) -> Iterator[Finding]:
        own = _own_stage(self.subject)
        if own is None or own.loss is None:
            return
        for other in comparable_runs_beside(self.subject):
            # Each pair once, from the file whose name comes last.
            if _file_and_output(own) < _file_and_output(other):
                continue
            compared = _compare_losses(own, other)
            if compared is None:
                continue
            yield self.finding(
                _message(own, other, compared.differences),
                _remedy_for_comparison(compared.differences),
                severity="warning" if compared.is_certain else "info",
                evidence=_supervised_share_evidence(self.subject, compared.differences),
                cases=_cases_of_differing_settings(own, other, compared.differences),
            )


def comparable_runs_beside(config: Config) -> list[TrainingStage]:
    """The other runs of the same method on the same rows, of which none starts from another."""
    own = _own_stage(config)
    if own is None or own.loss is None or not own.loss.rows:
        return []
    runs = [
        one
        for one in config.stages
        if _have_same_method_and_rows(own, one) and _start_from_comparable_models(own, one)
    ]
    files = {one.file for one in (own, *config.stages)}
    was_run = any(_has_either_run_logged_losses(own, one) for one in runs)
    is_collection = len(files) > MAX_UNRUN and not was_run
    return runs if len(runs) < MAX_RUNS and not is_collection else []


def _has_either_run_logged_losses(own: TrainingStage, other: TrainingStage) -> bool:
    """Was one of two runs made, so that there are losses to compare?"""
    return has_script_trained_before(own.file) or has_script_trained_before(other.file)


def _have_same_method_and_rows(own: TrainingStage, other: TrainingStage) -> bool:
    """Are the settings of another file for the same method and the same rows?"""
    if own.file == other.file or own.method != other.method:
        return False
    return own.loss is not None and other.loss is not None and own.loss.rows == other.loss.rows


def _compare_losses(own: TrainingStage, other: TrainingStage) -> ComparedLosses | None:
    """How the losses of two runs differ; None where they are comparable, or nobody compares them."""
    if own.loss is None or other.loss is None:
        return None
    differences = list(_loss_differences(own.loss, other.loss))
    has_one_vocabulary = vocabulary_group(own.model) == vocabulary_group(other.model)
    if not differences and has_one_vocabulary:
        return None
    is_strong = any(one.own.key not in PACKING_SWITCHES for one in differences)
    if not is_strong and not _has_either_run_logged_losses(own, other):
        return None
    has_comparable_evaluation = has_one_vocabulary and _both_evaluate(own.loss, other.loss)
    return ComparedLosses(differences, is_strong and has_comparable_evaluation)


def _own_stage(config: Config) -> TrainingStage | None:
    """The run that settings are, as it stands among the runs of the given files: its rows were read for these."""
    own = stage_of_config(config)
    if own is None:
        return None
    same = (one for one in config.stages if _file_and_output(one) == _file_and_output(own))
    return next(same, own)


def _start_from_comparable_models(own: TrainingStage, other: TrainingStage) -> bool:
    """Do two runs start from one model, or two published ones of known vocabularies, and neither from the other?"""
    if _starts_from(own, other) or _starts_from(other, own):
        return False
    if is_same_folder(own.model, other.model):
        return own.adapters == other.adapters
    return None not in (vocabulary_group(own.model), vocabulary_group(other.model))


def _starts_from(one: TrainingStage, other: TrainingStage) -> bool:
    """Does a run start from what the other writes?"""
    return any(is_same_or_below(name, other.output) for name in (one.model, *one.adapters))


def _file_and_output(stage: TrainingStage) -> tuple[str, str]:
    """The file and the output folder of a stage, by which two stages are told apart."""
    return stage.file, stage.output


def _both_evaluate(own: LossBasis, other: LossBasis) -> bool:
    """Do both runs evaluate, so that their evaluation losses stand side by side?"""
    return own.is_evaluated and other.is_evaluated


def _loss_differences(own: LossBasis, other: LossBasis) -> Iterator[LossDifference]:
    """The switches that differ, and come to another loss."""
    is_same_part = bool(own.learned) and own.learned == other.learned
    without_effect = {
        *(LEARNED_BY if is_same_part else ()),
        *(() if _both_evaluate(own, other) else ROW_SWITCHES),
    }
    others = {setting.key: setting for setting in other.settings}
    for setting in own.settings:
        there = others.get(setting.key)
        if there is None or there.value == setting.value or setting.key in without_effect:
            continue
        # A switch on the evaluation that follows one on the training is in no file: the finding names the one set.
        if setting.line or there.line:
            yield LossDifference(setting, there)


def _message(own: TrainingStage, other: TrainingStage, differences: list[LossDifference]) -> str:
    """The finding's message: what differs, and what that makes of the two losses."""
    names = f"{_file_name(other)} and {_file_name(own)}"
    if not differences:
        return (
            f"{names} train models with different vocabularies ({other.model}, {own.model}) on the same rows: a loss"
            " is a mean over tokens, and their tokens differ, so their losses can't be compared"
        )
    values = "; ".join(
        f"{one.own.key}: {one.other.value} and {one.own.value}" for one in differences
    )
    return (
        f"the losses of {names} can't be compared: the rows are the same, but the losses are"
        f" {_difference_in_words(differences)}: {values}"
    )


def _difference_in_words(differences: list[LossDifference]) -> str:
    """How two losses differ, in words: in their tokens, their quantities, their rows or their
    weights.
    """
    keys = {one.own.key for one in differences}
    if keys & TOKEN_SWITCHES.keys():
        return "means over different tokens"
    if keys & SUM_SWITCHES.keys():
        return "means of different quantities"
    if keys & ROW_SWITCHES.keys():
        return "means over different evaluation rows"
    return (
        "weighted differently (packing weights all tokens equally, a batch of single rows its rows)"
    )


def _remedy_for_comparison(differences: list[LossDifference]) -> str:
    """The remedy: how to compare two such runs."""
    if not differences:
        return "compare the answers to the same held-out prompts, or the loss per character instead of per token"
    first = differences[0].own
    return (
        f"evaluate both checkpoints on the same rows with {first.key}: {first.value}, or compare their answers to"
        " the same held-out prompts; neither run needs to be trained again"
    )


def _supervised_share_evidence(config: Config, differences: list[LossDifference]) -> Iterator[str]:
    """Evidence: what the switches on the supervised tokens come to, where the rows are on this
    machine.
    """
    if not any(one.own.key in TOKEN_SWITCHES for one in differences):
        return
    counts = count_prompt_and_answer_tokens(config)
    if counts is not None:
        yield (
            f"the texts of the first {counts.rows:,} rows have {counts.prompts + counts.answers:,} tokens,"
            f" {counts.answers:,} of them in answers"
        )
        return
    share = measure_prompt_characters(config)
    if share is not None:
        yield (
            f"in the first {share.rows:,} rows, {share.share:.0%} of the characters are in prompts and"
            f" {1 - share.share:.0%} in answers"
        )


def _cases_of_differing_settings(
    own: TrainingStage, other: TrainingStage, differences: list[LossDifference]
) -> Iterator[Case]:
    """Cases: each differing setting in both files."""
    if not differences:
        yield Case(f"model: {other.model}", file=other.file)
        yield Case(f"model: {own.model}", file=own.file)
    for one in differences:
        for setting, stage in ((one.other, other), (one.own, own)):
            text = f"{setting.key}: {setting.value}"
            if setting.line:
                yield Case(text, file=stage.file, line=setting.line)
            else:
                yield Case(f"{text} by default", file=stage.file)


def _file_name(stage: TrainingStage) -> str:
    """The name of the file that a stage is read from."""
    return PurePath(stage.file).name
