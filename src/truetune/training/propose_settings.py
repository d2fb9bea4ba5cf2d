"""Proposes settings for `truetune init`, from what was found of the data and the model.

The recipe (LoRA, DPO, ...) follows from the format of the rows, the length from their lengths, all else from the same
defaults that `truetune train` would take. So the file says nothing that a run without it would do otherwise.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from truetune.errors import UsageError
from truetune.memory.estimate_memory import GIB
from truetune.memory.plan_memory import Plan, plan_memory
from truetune.settings.run_spec import RunSpec
from truetune.settings.training_settings import Training
from truetune.training.default_settings import DEFAULT_MAX_LENGTH, MAX_COMPLETION_TOKENS
from truetune.training.reward_names import is_built_in
from truetune.training.survey_data_and_model_for_init import DataSurvey, ExampleLengths
from truetune.training.training_recipe import Recipe, make_recipe

RECIPES: Mapping[str, dict[str, Any]] = {
    "sft": {},
    "lora": {"lora": {}},
    "qlora": {"lora": {}, "load_in": 4},
    "dora": {"lora": {"use_dora": True}},
    "dpo": {"method": "dpo", "lora": {}},
    "orpo": {"method": "orpo", "lora": {}},
    "kto": {"method": "kto", "lora": {}},
    "grpo": {"method": "grpo", "lora": {}},
}
"""Name -> settings of training"""
RECIPE_MEANINGS = {
    "sft": "all weights, from answers",
    "lora": "an adapter, from answers",
    "qlora": "an adapter on a base of 4 bits, from answers; needs a GPU",
    "dora": "an adapter that keeps size and direction apart, from answers",
    "dpo": "an adapter, from pairs, against a reference",
    "orpo": "an adapter, from pairs, without a reference",
    "kto": "an adapter, from answers judged good or bad",
    "grpo": "an adapter, from rewards for answers that the model samples to your prompts",
}
RECIPE_OF_FORMAT = {"preference": "dpo", "kto": "kto"}
"""Format of the rows -> the recipe that is proposed, where it is not lora"""
REQUIRED_FORMATS = {
    "dpo": ("preference", "pairs (columns chosen and rejected)"),
    "orpo": ("preference", "pairs (columns chosen and rejected)"),
    "kto": ("kto", "answers with a label (true or false)"),
}
# Chosen, not measured: a round number survives a few longer rows; half of it would do as well.
LENGTH_MULTIPLE = 256
"""A proposed max_length is a multiple of this, where the model takes as much"""
# Chosen, not measured: what stays empty in a row is shorter than an example, and so a smaller share
# of a longer row; twice as long takes twice the activations.
MIN_PACKED_LENGTH = 1024
"""Packed rows are at least so long: short rows waste less of one another"""
# Chosen, not measured on the user's rows, which have not been packed yet: used for the number of
# steps that `init` shows, not in the run.
PACK_FILL = 0.97
"""The share of a packed row that examples fill"""


@dataclass(frozen=True, slots=True)
class StartingSettings:
    """Proposed settings, and what they were chosen from."""

    name: str
    survey: DataSurvey
    settings: RunSpec
    """What the user said, with the proposed max_length"""
    recipe: Recipe
    plan: Plan | None
    """None where the model's config.json could not be read"""
    notes: tuple[str, ...]

    @property
    def summary_lines(self) -> tuple[str, ...]:
        """What was found and proposed, in lines for people."""
        return tuple(_summary_lines(self))


def propose_recipe_name(survey: DataSurvey) -> str:
    """The name of the recipe that fits the format of the rows."""
    return RECIPE_OF_FORMAT.get(survey.format or "", "lora")


def propose_settings(
    spec: RunSpec,
    survey: DataSurvey,
    name: str,
    *,
    gpu: bool,
    gpu_memory: float | None = None,
    rewards: tuple[str, ...] = (),
) -> StartingSettings:
    """Propose settings for data and model as they were found.

    Args:
        spec: what the user said.
        survey: what was found of its data and model.
        name: one of RECIPES.
        gpu: settings are for a GPU.
        gpu_memory: bytes of one GPU of this machine; None where it has none.
        rewards: what answers are rewarded by (grpo); where empty, what fits the answers of the rows.

    Raises:
        UsageError: the recipe needs other rows, or rewards that nobody named.
    """
    _check_recipe_fits_format(name, survey, spec)
    # The recipe wins over what the user set: whoever names qlora means 4 bits, whatever a template
    # file says.
    settings = {**spec.training.model_dump(exclude_unset=True), "method": "sft", **RECIPES[name]}
    if name == "grpo":
        settings["rewards"] = rewards or (_reward_that_fits_answers(survey, spec),)
    elif rewards:
        raise UsageError(f"--reward: {name} learns from rows and not from rewards; take grpo")
    training = Training.model_validate(settings)
    length = _choose_max_length(survey, packs=training.method == "sft")
    if name == "grpo":
        length = _add_room_for_sampled_answer(length, training, survey)
    settings_spec = spec.model_copy(update={"training": training, "max_length": length})
    # A quantized run cannot be for this machine where it has no GPU: the sheet is then written for
    # the one that it will run on.
    gpu = gpu or training.load_in is not None
    filled = make_recipe(
        settings_spec, rows=_estimate_rows_per_epoch(survey, settings_spec), gpu=gpu, bf16=gpu
    )
    planned = None
    if survey.shape is not None:
        planned = plan_memory(
            filled.spec, model=survey.shape.architecture, gpu_memory=gpu_memory and gpu_memory / GIB
        )
    return StartingSettings(
        name,
        survey,
        settings_spec,
        filled,
        planned,
        tuple(_notes_to_user_on_proposal(survey, settings_spec)),
    )


def _reward_that_fits_answers(survey: DataSurvey, spec: RunSpec) -> str:
    """The built-in reward for the answers of the rows. Raises UsageError where they have none."""
    if survey.answers is None:
        raise UsageError(
            f"{spec.data[0]}: grpo needs a reward, and these rows have no answer to compare with; name a function of"
            " your own (--reward FILE.py:FUNCTION)"
        )
    return "agrees:number" if survey.answers == "numbers" else "exact"


def _add_room_for_sampled_answer(length: int, training: Training, survey: DataSurvey) -> int:
    """The limit of a prompt with the answer that is sampled to it, within the model's positions.

    The survey measures prompts with the answers of their rows, so that there is room for either.
    """
    longest = length + (training.max_completion_length or MAX_COMPLETION_TOKENS)
    known = survey.shape.positions if survey.shape else None
    return min(longest, known or longest)


def _check_recipe_fits_format(name: str, survey: DataSurvey, spec: RunSpec) -> None:
    """Raise UsageError where a recipe needs rows of another format."""
    wanted, means = REQUIRED_FORMATS.get(name, ("", ""))
    if wanted and survey.format != wanted:
        raise UsageError(f"{spec.data[0]}: {name} needs {means}; these rows are {survey.format}")
    if not wanted and survey.format in RECIPE_OF_FORMAT:
        proper = "dpo or orpo" if survey.format == "preference" else "kto"
        source = "rewards for its own answers to prompts" if name == "grpo" else "answers"
        raise UsageError(
            f"{spec.data[0]}: {name} learns from {source}; these rows are {survey.format}: take"
            f" {proper}"
        )


def _choose_max_length(survey: DataSurvey, *, packs: bool) -> int:
    """The length limit to propose: that of the longest example, unless few are so long; no more
    than the model's positions.
    """
    lengths = survey.lengths
    wanted = DEFAULT_MAX_LENGTH if lengths is None else _round_length_that_covers_examples(lengths)
    # Rows of the shortest data would otherwise be so short that each holds one or two examples.
    if packs:
        wanted = max(wanted, MIN_PACKED_LENGTH)
    known = survey.shape.positions if survey.shape else None
    return min(wanted, known or wanted)


def _round_length_that_covers_examples(lengths: ExampleLengths) -> int:
    """A round length that holds all examples, or 95 of 100 where a few are much longer."""
    most = (
        lengths.longest
        # A single outlier must not set the length of all rows: beyond twice the 95th percentile it
        # is left out and counted.
        if lengths.longest <= max(DEFAULT_MAX_LENGTH, 2 * lengths.most)
        else lengths.most
    )
    return math.ceil(most / LENGTH_MULTIPLE) * LENGTH_MULTIPLE


def _estimate_rows_per_epoch(survey: DataSurvey, spec: RunSpec) -> int:
    """Rows that the trainer sees in an epoch, about."""
    if survey.lengths is None or spec.training.method != "sft" or spec.max_length is None:
        return survey.rows
    return max(1, math.ceil(survey.rows * survey.lengths.mean / (PACK_FILL * spec.max_length)))


def _summary_lines(start: StartingSettings) -> Iterator[str]:
    """Lines on the data, the recipe, the run and its memory."""
    survey, filled = start.survey, start.recipe
    rows = f"{survey.rows:,} rows" if survey.exact else f"about {survey.rows:,} rows"
    lengths = survey.lengths
    long = (
        f", 95 of 100 at most {lengths.most:,} tokens, the longest {lengths.longest:,}"
        if lengths
        else ""
    )
    yield f"data: {rows} ({survey.format}){long}"
    yield f"recipe: {start.name}, {RECIPE_MEANINGS[start.name]}"
    steps = "steps" if filled.steps is None else f"about {filled.steps:,} steps"
    if filled.method == "grpo":
        group = filled.training.num_generations or 1
        yield f"rewards: {', '.join(filled.training.rewards)}"
        yield (
            f"run: {steps} of {filled.effective_batch // group} prompts x {group} sampled answers, of at most"
            f" {filled.max_length:,} tokens together"
        )
    else:
        yield f"run: {steps} of {filled.effective_batch} x at most {filled.max_length:,} tokens"
    if start.plan is None:
        return
    memory = f"about {start.plan.estimate.peak.total / GIB:,.1f} GiB on a GPU"
    verdict = {
        None: "",
        "fits": ": fits",
        "tight": ": tight",
        "too large": ": too large, see `truetune plan`",
    }
    yield f"memory: {memory}{verdict[start.plan.verdict]}"


def _notes_to_user_on_proposal(survey: DataSurvey, spec: RunSpec) -> Iterator[str]:
    """What a user should know of the proposal."""
    yield from survey.notes
    length, rewards = spec.max_length or 0, spec.training.rewards
    if survey.lengths is not None and survey.lengths.longest > length:
        yield f"examples longer than {length:,} tokens are left out and counted (encode.overflow)"
    if rewards == ("exact",) and survey.answers == "texts":
        yield (
            "exact pays answers that are the row's word for word, and these answers are texts: write a reward function"
            " of your own (--reward FILE.py:FUNCTION)"
        )
    if rewards:
        yield (
            f"try the reward before the run: truetune reward FILE.py:FUNCTION --data {spec.data[0]}"
            if not all(map(is_built_in, rewards))
            else "prompts have to ask for an answer that the reward can read"
        )
