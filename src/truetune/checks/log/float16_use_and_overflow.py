"""Whether a run is in float16, on which GPU, and whether its model overflows in it, by its log and the files beside it.

A batch without a label and an overflow in float16 look alike in the records: loss 0.0 (a NaN that is hidden), a norm
that is no number, and a rate that stays where it is because the loss scaler skips each step. The command and the banner
above the records tell which is likely.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from truetune.checks.identify_model_by_published_name import family_known_to_overflow_float16
from truetune.logs.console.steps_skipped_on_float16_overflow import SkippedSteps
from truetune.logs.facts_in_files_beside_log import SettingBeside
from truetune.logs.run_log import RunLog

FLOAT16_SETTING = "fp16"
MODEL_SETTING = "model"
MIN_SKIPPED_SHARE = 0.1
"""Of the steps. Chosen: below a tenth, single batches overflow, and the run learns from the others"""
MIN_RECORDS = 8
"""Records of a learning rate that does not move: a scale of float16 that is still looked for skips the first steps"""


def skipped_steps_of(log: RunLog) -> SkippedSteps:
    """What the output says of skipped steps."""
    return log.output.skips if log.output is not None else SkippedSteps()


def count_made_or_skipped_steps(log: RunLog) -> int | None:
    """The number of steps that were made or skipped; None where the log does not say it."""
    skips = skipped_steps_of(log)
    done = log.output.done if log.output is not None else 0
    numbered = int(log.last_step) if log.is_numbered else 0
    steps = skips.steps or done or numbered
    # A count may be older than the last overflows.
    return max(steps, skips.overflows) if steps else None


def is_float16_run(log: RunLog) -> bool:
    """Is the run in float16, as its output or the settings beside its log say?"""
    printed = log.output is not None and log.output.settings.half
    return (
        printed
        or log.facts.get(FLOAT16_SETTING) is True
        or _float16_setting_beside(log) is not None
    )


def _float16_setting_beside(log: RunLog) -> SettingBeside | None:
    """The line of a file beside the log that sets float16; None where none does, or one does and
    one does not.
    """
    setting_beside = log.files_beside.setting(FLOAT16_SETTING)
    return (
        setting_beside
        if setting_beside is not None and setting_beside.value is True and setting_beside.line
        else None
    )


def _model_name_of_run(log: RunLog) -> str:
    """The model that the output names, else the one that the files beside the log name."""
    printed = log.output.settings.model if log.output is not None else ""
    beside = log.files_beside.setting(MODEL_SETTING)
    return printed or (str(beside.value) if beside is not None else "")


def precision_in_place_of_float16(log: RunLog) -> str:
    """The dtype to train in: `bf16`, or `float32` where the log names a GPU without bfloat16."""
    gpu = log.output.settings.old_gpu if log.output is not None else ""
    if gpu:
        return f"float32 (a {gpu} has no bfloat16)"
    return "bf16 (float32 on a GPU without it: V100, T4, P100)"


def float16_overflow_remedy(log: RunLog) -> str:
    """Advice in which dtype to train instead of float16, on the GPU that the log names."""
    gpu = log.output.settings.old_gpu if log.output is not None else ""
    if gpu:
        return (
            f"load the weights as float32 and set fp16=False (a {gpu} has no bfloat16, and emulates it slowly), or"
            " train in bf16 on an Ampere GPU or newer"
        )
    return (
        "train in bf16 (bf16=True, fp16=False), or in float32 on a GPU without it (V100, T4, P100)"
    )


def family_overflowing_in_float16(log: RunLog) -> str | None:
    """The family of the model that the output or a file beside it names, where the run is in
    float16 and the family overflows in it; else None.
    """
    return (
        family_known_to_overflow_float16(_model_name_of_run(log)) if is_float16_run(log) else None
    )


def float16_overflow_evidence(log: RunLog) -> Iterator[str]:
    """Evidence that float16 is the reason for norms that are not finite; nothing where the log does
    not say it.
    """
    settings = log.output.settings if log.output is not None else None
    if is_float16_run(log):
        family = family_overflowing_in_float16(log)
        printed = settings is not None and settings.half
        line = _float16_setting_beside(log)
        beside = "the settings beside the log say" if line is None else f"{line.place} says"
        source = "the output says" if printed else beside
        yield (
            f"{source} that the run uses float16 (fp16), whose largest number is 65,504"
            + (f"; activations of {family} are larger" if family else "")
        )
    rate = log.curve("learning_rate").finite()
    if rate.step.size >= MIN_RECORDS and np.ptp(rate.value) == 0 and rate.value[0] == 0:
        yield (
            "the learning rate stays at 0: the schedule advances only with steps that are made, and the loss scaler of"
            " fp16 skipped every step"
        )
