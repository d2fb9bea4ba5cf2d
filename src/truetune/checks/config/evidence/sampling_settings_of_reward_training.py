"""How many answers a training by rewards samples for a prompt, and how, as its settings say.

Sources: verl 0.8, NeMo RL 0.5, OpenRLHF 0.11, ms-swift 4.6, TRL 1.16, prime-rl (August 2026).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from truetune.checks.config.evidence.setting_places_and_known_keys import (
    is_config_of_python_program,
    key_as_written,
    value_at_dotted_key,
)
from truetune.checks.config.evidence.settings_read_by_another_program import keeps_stack_defaults
from truetune.checks.hyperparameter_limits import parse_setting_number
from truetune.settings.config import Config
from truetune.settings.stacks.config_draft import holds_unknown_value
from truetune.settings.stacks.read_nested_rl_settings import ROLLOUT

GROUP_ESTIMATORS = frozenset((
    "grpo", "grpo_vectorized", "grpo_passk", "rloo", "rloo_vectorized", "opo", "gpg", "reinforce_plus_plus_baseline",
    "group_norm", "dr_grpo", "reinforce_baseline", "gdpo",
))  # fmt: skip
"""Estimators of the advantage that take the mean of a group"""


@dataclass(frozen=True, slots=True)
class SamplingKeys:
    """What one program calls the settings of its sampling, and their defaults."""

    group: str
    temperature: str
    top_k: str
    group_default: int | None = None
    temperature_default: float | None = None
    estimator: str = ""
    """Empty: the method says that groups are compared"""
    estimator_default: str = ""
    fate_of_one: str = ""
    """What becomes of a group of one answer; empty: it is right"""


KEYS: Mapping[str, SamplingKeys] = {
    "verl": SamplingKeys(
        f"{ROLLOUT}.n",
        f"{ROLLOUT}.temperature",
        f"{ROLLOUT}.top_k",
        1,
        1.0,
        "algorithm.adv_estimator",
        "gae",
        "verl uses the bare reward as its advantage",
    ),
    "nemo-rl": SamplingKeys(
        "grpo.num_generations_per_prompt",
        "policy.generation.temperature",
        "policy.generation.top_k",
        # `opd` takes its advantages from a teacher's probabilities: one answer a prompt is right there.
        estimator="grpo.adv_estimator.name",
        estimator_default="grpo",
        fate_of_one="its advantage is 0, so the model learns nothing",
    ),
    "prime-rl": SamplingKeys(
        "orchestrator.group_size",
        "orchestrator.train.sampling.temperature",
        "orchestrator.train.sampling.top_k",
        # Each environment may have a group of its own, so that the default says nothing.
        None,
        1.0,
        fate_of_one="its advantage is 0, so prime-rl drops every answer",
    ),
    "openrlhf": SamplingKeys(
        "n_samples_per_prompt",
        "temperature",
        "top_k",
        1,
        1.0,
        "advantage_estimator",
        "gae",
        fate_of_one="OpenRLHF stops at its start",
    ),
    "ms-swift": SamplingKeys(
        "num_generations",
        "temperature",
        "top_k",
        8,
        None,
        fate_of_one="the trainer stops at its start",
    ),
    "trl": SamplingKeys(
        "num_generations",
        "temperature",
        "top_k",
        8,
        1.0,
        fate_of_one="the trainer stops at its start",
    ),
}
"""Stack -> its settings"""
TEACHER_KEYS = {"verl": "distillation.enabled", "ms-swift": "teacher_model"}
"""Stack -> the setting of a distillation on the student's own answers; both call its method grpo"""
VALIDATION = SamplingKeys(
    f"{ROLLOUT}.val_kwargs.n",
    f"{ROLLOUT}.val_kwargs.temperature",
    f"{ROLLOUT}.val_kwargs.top_k",
    1,
    0.0,
)
"""Of verl's validation"""


@dataclass(frozen=True, slots=True)
class SamplingSetting:
    """One setting of the sampling, and its value: the file's, or the default."""

    key: str
    value: float | None
    """None where it is not known"""

    @property
    def value_as_text(self) -> str:
        """The value as a message shows it."""
        return "" if self.value is None else f"{self.value:g}"


@dataclass(frozen=True, slots=True)
class AnswerSampling:
    """How a training samples its answers."""

    group: SamplingSetting
    """Answers for a prompt"""
    temperature: SamplingSetting
    top_k: SamplingSetting
    estimator: str
    fate_of_one: str

    @property
    def setting_making_answers_greedy(self) -> SamplingSetting | None:
        """The setting by which the answers are the most likely ones; None where they differ, or are one."""
        if self.group.value == 1:
            return None
        if self.temperature.value == 0:
            return self.temperature
        return self.top_k if self.top_k.value == 1 else None


def answer_sampling(config: Config) -> AnswerSampling | None:
    """How a training samples its answers; None where it compares no group, or that is not known."""
    keys = KEYS.get(config.stack)
    if keys is None or is_config_of_python_program(config) or _learns_from_teacher(config):
        return None
    estimator = str(config.spec.training.method)
    if keys.estimator:
        written = value_at_dotted_key(config.raw, keys.estimator)
        estimator = str(written or keys.estimator_default).lower()
        if estimator not in GROUP_ESTIMATORS:
            return None
    return _sampling_by_keys(config, keys, estimator)


def _learns_from_teacher(config: Config) -> bool:
    """Do the advantages come from a teacher's probabilities, so that one answer to a prompt is right?"""
    key = TEACHER_KEYS.get(config.stack)
    value = value_at_dotted_key(config.raw, key) if key is not None else None
    return bool(value) and str(value).lower() != "false"


def validation_sampling(config: Config) -> AnswerSampling | None:
    """How verl's validation samples its answers; None for other programs."""
    if config.stack != "verl":
        return None
    return _sampling_by_keys(config, VALIDATION, "")


def _sampling_by_keys(config: Config, keys: SamplingKeys, estimator: str) -> AnswerSampling:
    """The settings of the sampling by their names."""
    return AnswerSampling(
        _sampling_setting_or_default(config, keys.group, keys.group_default),
        _sampling_setting_or_default(config, keys.temperature, keys.temperature_default),
        _sampling_setting_or_default(config, keys.top_k, None),
        estimator,
        keys.fate_of_one,
    )


def _sampling_setting_or_default(
    config: Config, key: str, default: float | None
) -> SamplingSetting:
    """One setting: the file's value, else the default where the file leaves it to the program."""
    written: Any = value_at_dotted_key(config.raw, key)
    if written is None:
        return SamplingSetting(key, default if keeps_stack_defaults(config) else None)
    number = None if holds_unknown_value(written) else parse_setting_number(written)
    return SamplingSetting(key_as_written(config, key), number)
