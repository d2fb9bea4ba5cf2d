"""The settings of a run that the table of limits judges: their values in effect, and those that are out of range."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from truetune.checks.config.evidence.sampling_settings_of_reward_training import answer_sampling
from truetune.checks.config.evidence.setting_places_and_known_keys import (
    key_as_written,
    setting_case,
    value_at_dotted_key,
)
from truetune.checks.config.evidence.settings_of_reward_training import KEYS, SettingName
from truetune.checks.config.evidence.upper_bound_of_optimizer_steps import (
    count_training_rows,
    max_steps_of_run,
)
from truetune.checks.count_optimizer_steps import OptimizerSteps
from truetune.checks.findings import Case
from truetune.checks.hyperparameter_limits import (
    ASKED_EPOCHS,
    BETA,
    DECAY_RATE,
    KL_COEFFICIENT,
    KTO_STEP_ROWS,
    NOTHING,
    OUT_OF_RANGE,
    ROW_TOKENS,
    SCALE,
    SCALE_NAMES,
    SCALED_RATE,
    SEEN,
    UPDATES,
    Breach,
    limit_breaches,
    lora_scale,
    parse_setting_number,
    settings_with_limits,
)
from truetune.checks.read_and_format_setting_values import displayed_setting_name, effective_value
from truetune.settings.config import Config

MIN_ROWS = 20
"""Rows from which on somebody means to train; examples and trials of a script have a handful"""
BOUND_OVER_ESTIMATE = 6
"""Packed sequences at most (one byte a token, half full) for each that is likely (three bytes a token, full)"""
SAME_SETTING = (
    "adam_beta1",
    "adam_beta2",
    "adam_epsilon",
    "neftune_noise_alpha",
    "label_smoothing_factor",
)
"""Settings without a field in Training that all stacks call alike"""
LIMITED_REWARD_SETTINGS: Mapping[str, SettingName] = {
    "temperature": "temperature",
    "top_p": "top_p",
    KL_COEFFICIENT: "KL coefficient",
}
"""Setting of the table of limits -> its common name in trainings by rewards"""
SPELLED: Mapping[str, Mapping[str, str]] = {
    "trl": {
        "label_smoothing": "label_smoothing",
        "cpo_alpha": "cpo_alpha",
        "num_generations": "num_generations",
        "temperature": "temperature",
        "top_k": "top_k",
        "top_p": "top_p",
    },
    "axolotl": {
        "label_smoothing": "dpo_label_smoothing",
        "num_generations": "trl.num_generations",
        "temperature": "trl.temperature",
        "top_k": "trl.top_k",
        "top_p": "trl.top_p",
    },
    "llama-factory": {"label_smoothing": "dpo_label_smoothing"},
    **{
        stack: {
            limited: KEYS[stack][name].key
            for limited, name in LIMITED_REWARD_SETTINGS.items()
            if name in KEYS[stack]
        }
        for stack in ("ms-swift", "verl", "openrlhf", "nemo-rl", "prime-rl")
    },
}
"""Stack -> setting -> its key there; a dot leads into a table"""
MADE_OF: Mapping[str, tuple[str, ...]] = {
    SCALE: ("training.lora.lora_alpha", "training.lora.r"),
    SCALED_RATE: ("training.learning_rate", "training.lora.lora_alpha", "training.lora.r"),
    DECAY_RATE: ("training.weight_decay", "training.learning_rate"),
    KTO_STEP_ROWS: ("training.per_device_train_batch_size",),
    UPDATES: (
        "training.gradient_accumulation_steps",
        "training.per_device_train_batch_size",
        "training.num_train_epochs",
    ),
    SEEN: (
        "training.max_steps",
        "training.gradient_accumulation_steps",
        "training.per_device_train_batch_size",
    ),
}
"""What several settings decide -> these settings"""
SIMPO_DEFAULTS = ("training.beta", "cpo_alpha")
"""Settings whose defaults are those of another loss than SimPO, which is chosen by `loss_type`"""
CPO_ALPHA = 1.0
"""The default of TRL's CPOConfig"""
TRL_STACKS = ("trl", "transformers")
"""Where settings are those of TRL's classes"""


class OutOfRangeSetting(NamedTuple):
    """A setting out of its range, in the words of a file of settings."""

    breach: Breach
    text: str
    fix: str
    cases: list[Case]
    evidence: list[str]


def values_in_effect(config: Config) -> dict[str, Any]:
    """The values that take effect, those of a stack's defaults too, under the names of the table."""
    training = config.spec.training
    values: dict[str, Any] = {
        "method": training.method,
        "METHOD": training.method.upper(),
        "loss_type": training.loss_type,
    }
    fields = [name for name in _settings_with_limits() if name.startswith("training.")]
    for name in {*fields, "training.max_steps", "training.lora.r", "training.optim"}:
        if name.startswith("training.lora.") and training.lora is None:
            continue
        values[name] = effective_value(config, name)
    for name, key in _keys_of_fieldless_settings(config).items():
        values[name] = value_at_dotted_key(config.raw, key)
    for name in _settings_making_answers_greedy(config):
        values[name] = None
    return {**values, **_values_derived_from_several(config, values)}


def _settings_making_answers_greedy(config: Config) -> Iterator[str]:
    """The settings that `grouped-answers-cannot-differ` names already: they make all answers to a prompt one."""
    sampling = answer_sampling(config) if config.spec.training.method == "grpo" else None
    greedy = sampling.setting_making_answers_greedy if sampling is not None else None
    if sampling is not None and greedy is not None:
        yield "temperature" if greedy is sampling.temperature else "top_k"


def _settings_with_limits() -> tuple[str, ...]:
    """The settings in the rows of the table of limits that are judged here."""
    return settings_with_limits(OUT_OF_RANGE, BETA, NOTHING)


def _values_derived_from_several(config: Config, found: Mapping[str, Any]) -> dict[str, Any]:
    """Values under the names of the table that several settings decide together, such as a quotient
    of two.
    """
    lora, rate = (
        config.spec.training.lora,
        parse_setting_number(found.get("training.learning_rate")),
    )
    decay = parse_setting_number(found.get("training.weight_decay"))
    strength = None
    if lora is not None and _is_set_in_file(config, SCALE):
        strength = lora_scale(lora.lora_alpha, lora.r, rank_stabilised=lora.use_rslora)
    return {
        **_step_and_epoch_values(config),
        SCALE: strength,
        SCALED_RATE: strength * rate if strength is not None and rate is not None else None,
        DECAY_RATE: decay * rate if decay is not None and rate is not None else None,
        **_defaults_of_kto_and_simpo(config, found),
    }


KEYS_OF_ROW_LIMIT = (
    "cutoff_len",
    "sequence_len",
    "max_length",
    "max_seq_length",
    "train.max_seq_length",
    "tokenizer.max_seq_len",
    "params.block_size",
    "max_len",
)
"""Of the stacks, where rows are cut"""


def _key_of_row_limit(config: Config) -> str | None:
    """The key by which a file sets where rows are cut; None where it sets none, or its rows are here to be measured."""
    if config.spec.data:
        return None
    return next(
        (key for key in KEYS_OF_ROW_LIMIT if type(value_at_dotted_key(config.raw, key)) is int),
        None,
    )


def _defaults_of_kto_and_simpo(config: Config, found: Mapping[str, Any]) -> dict[str, Any]:
    """The values that KTO and SimPO of these stacks take where the file does not set them."""
    training = config.spec.training
    if config.stack not in TRL_STACKS:
        return {}
    if training.method == "kto" and training.per_device_train_batch_size:
        return {KTO_STEP_ROWS: training.per_device_train_batch_size * training.devices}
    if training.loss_type == "simpo" and found.get("cpo_alpha") is None:
        return {"cpo_alpha": CPO_ALPHA}
    return {}


def _may_fill_no_batch(config: Config, run: OptimizerSteps, rows: int) -> bool:
    """May packed rows be too few for one batch?"""
    size = config.spec.training.per_device_train_batch_size
    if not config.spec.training.packing or not size:
        return False
    packed = (run.rows or rows) / BOUND_OVER_ESTIMATE if run.is_packed else rows
    return packed < size if config.stack == "axolotl" else rows < size


def _step_and_epoch_values(config: Config) -> dict[str, Any]:
    """The optimizer steps that epochs leave, or the share of an epoch that `max_steps` sees; nothing of few rows."""
    run, there = max_steps_of_run(config), count_training_rows(config)
    if run is None or there is None or there.count < MIN_ROWS:
        return {}
    training = config.spec.training
    size = training.per_device_train_batch_size
    if _may_fill_no_batch(config, run, there.count):
        return {}  # `sample-packing-trains-no-step` is about that
    if not run.is_limit:
        steps = f"{run.most:,} optimizer step" + "s" * (run.most != 1)
        return {UPDATES: run.most, "steps": f"at most {steps}" if run.is_packed else steps}
    if not size:
        return {}
    seen = run.most * size * training.devices * max(1, training.gradient_accumulation_steps or 1)
    text = f"{seen:,} of {there.count:,} rows"
    is_asked = "training.num_train_epochs" in config.places
    asked = training.num_train_epochs if is_asked else None
    return {SEEN: seen / there.count, "rows_seen": text, ASKED_EPOCHS: asked}


def _keys_of_fieldless_settings(config: Config) -> dict[str, str]:
    """Settings without a field, and their keys in this stack."""
    stack = "trl" if config.stack == "transformers" else config.stack
    limit = _key_of_row_limit(config)
    return {
        **{name: name for name in SAME_SETTING},
        **SPELLED.get(stack, {}),
        **({ROW_TOKENS: limit} if limit is not None else {}),
    }


def _is_set_in_file(config: Config, name: str) -> bool:
    """Does the file set the setting, or one of those that make it? Defaults are in range by
    themselves.
    """
    if name in MADE_OF:
        return any(_is_set_in_file(config, part) for part in MADE_OF[name])
    if name in SIMPO_DEFAULTS and _does_file_choose_simpo(config):
        return True
    if name.startswith("training."):
        return name in config.places
    return (
        value_at_dotted_key(config.raw, _keys_of_fieldless_settings(config).get(name, name))
        is not None
    )


def _does_file_choose_simpo(config: Config) -> bool:
    """Does the file choose SimPO, whose settings have the defaults of DPO and CPO?"""
    is_simpo = config.spec.training.loss_type == "simpo"
    return is_simpo and "training.loss_type" in config.places


def list_limited_settings(config: Config, *rules: str) -> list[str]:
    """The settings of these rules' rows that the file sets, as `name: value`."""
    known = values_in_effect(config)
    return [
        f"{user_name_of_setting(config, name)} {known[name]:g}"
        if isinstance(known[name], float)
        else f"{user_name_of_setting(config, name)} {known[name]}"
        for name in settings_with_limits(*rules)
        if parse_setting_number(known.get(name)) is not None and _is_set_in_file(config, name)
    ]


def user_name_of_setting(config: Config, name: str) -> str:
    """The name by which the user knows a setting: its key in the stack's files."""
    if name in (SCALE, SCALED_RATE):
        lora = config.spec.training.lora
        return SCALE_NAMES[lora is not None and lora.use_rslora]
    if name in (SEEN, KTO_STEP_ROWS):
        name = MADE_OF[name][0]
    if name.startswith("training."):
        return displayed_setting_name(config, name).rpartition(".")[2]
    return key_as_written(config, _keys_of_fieldless_settings(config).get(name, name))


def out_of_range_settings(config: Config, *rules: str) -> Iterator[OutOfRangeSetting]:
    """The settings of a file that are out of range, by the rows of these rules."""
    known = values_in_effect(config)
    for breach in limit_breaches(known, *rules):
        name = breach.limit.setting
        if not _is_set_in_file(config, name):
            continue
        parts = MADE_OF.get(name, (name,))
        shown = [part for part in parts if _is_set_in_file(config, part)]
        run = max_steps_of_run(config) if name in (UPDATES, SEEN) else None
        yield OutOfRangeSetting(
            breach,
            breach.text(breach.limit.says, known, user_name_of_setting(config, name)),
            breach.text(breach.limit.fix, known, user_name_of_setting(config, name)),
            [
                setting_case(
                    config,
                    known.get(part, effective_value(config, part)),
                    part,
                    _keys_of_fieldless_settings(config).get(part, part),
                )
                for part in shown
            ],
            [*([run.why] if run is not None else []), breach.limit.source],
        )
