"""One name for each setting of a training by rewards, whatever its program calls it, with the program's default.

TRL, ms-swift, verl, OpenRLHF, NeMo RL and prime-rl spell the same settings in six ways (`temperature`,
`actor_rollout_ref.rollout.temperature`, `rollout.temperature`). A rule asks for a setting by the name here, and so
holds for all of them. A setting that a program does not have is absent from its table: then the rule has nothing to
say. The trade-off: what one program alone has is read by its key in the rule itself.

Sources: TRL 1.16, ms-swift 4.6, verl 0.8, OpenRLHF 0.11, NeMo RL 0.5, prime-rl (August 2026).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

from truetune.checks.config.evidence.setting_places_and_known_keys import (
    key_as_written,
    setting_case,
    value_at_dotted_key,
)
from truetune.checks.config.evidence.settings_read_by_another_program import keeps_stack_defaults
from truetune.checks.findings import Case
from truetune.checks.hyperparameter_limits import parse_setting_number
from truetune.settings.config import Config
from truetune.settings.stacks.config_draft import holds_unknown_value
from truetune.settings.stacks.known_keys import load_first_releases_of_defaults
from truetune.settings.stacks.read_nested_rl_settings import ACTOR, ROLLOUT

SettingName = Literal[
    "answers per prompt", "temperature", "top_p", "top_k", "min_p", "repetition penalty", "answer limit",
    "prompt limit", "engine limit", "KL coefficient", "entropy coefficient",
    "reward functions", "reward weights", "loss denominator", "scaled by the spread",
]  # fmt: skip
"""The settings that several programs have"""


class StackKey(NamedTuple):
    """What a program calls a setting, and its value where nothing sets it."""

    key: str
    default: object = None
    """None: it is not known, or there is none"""


KEYS: Mapping[str, Mapping[SettingName, StackKey]] = {
    "trl": {
        "answers per prompt": StackKey("num_generations", 8),
        "temperature": StackKey("temperature", 1.0),
        "top_p": StackKey("top_p", 1.0),
        "top_k": StackKey("top_k", 0),
        "min_p": StackKey("min_p"),
        "repetition penalty": StackKey("repetition_penalty", 1.0),
        "answer limit": StackKey("max_completion_length"),
        "prompt limit": StackKey("max_prompt_length"),
        "engine limit": StackKey("vllm_max_model_length"),
        "KL coefficient": StackKey("beta"),
        "entropy coefficient": StackKey("entropy_coef", 0.0),
        "reward functions": StackKey("reward_funcs"),
        "reward weights": StackKey("reward_weights"),
        "loss denominator": StackKey("loss_type"),
        "scaled by the spread": StackKey("scale_rewards", "group"),
    },
    "ms-swift": {
        "answers per prompt": StackKey("num_generations", 8),
        "temperature": StackKey("temperature"),
        "top_p": StackKey("top_p"),
        "top_k": StackKey("top_k"),
        "repetition penalty": StackKey("repetition_penalty"),
        "answer limit": StackKey("max_completion_length", 512),
        "engine limit": StackKey("vllm_max_model_len"),
        "KL coefficient": StackKey("beta", 0.04),
        "reward functions": StackKey("reward_funcs"),
        "reward weights": StackKey("reward_weights"),
        "loss denominator": StackKey("loss_type", "grpo"),
        "scaled by the spread": StackKey("scale_rewards"),
    },
    "verl": {
        "answers per prompt": StackKey(f"{ROLLOUT}.n", 1),
        "temperature": StackKey(f"{ROLLOUT}.temperature", 1.0),
        "top_p": StackKey(f"{ROLLOUT}.top_p", 1.0),
        "top_k": StackKey(f"{ROLLOUT}.top_k", -1),
        "repetition penalty": StackKey(f"{ROLLOUT}.repetition_penalty", 1.0),
        "answer limit": StackKey("data.max_response_length", 512),
        "prompt limit": StackKey("data.max_prompt_length", 512),
        "engine limit": StackKey(f"{ROLLOUT}.max_model_len"),
        "KL coefficient": StackKey(f"{ACTOR}.kl_loss_coef", 0.001),
        "entropy coefficient": StackKey(f"{ACTOR}.entropy_coeff", 0.0),
        "loss denominator": StackKey(f"{ACTOR}.loss_agg_mode", "token-mean"),
        "scaled by the spread": StackKey("algorithm.norm_adv_by_std_in_grpo", True),
    },
    "openrlhf": {
        "answers per prompt": StackKey("n_samples_per_prompt", 1),
        "temperature": StackKey("temperature", 1.0),
        "top_p": StackKey("top_p", 1.0),
        "answer limit": StackKey("generate_max_len"),
        "prompt limit": StackKey("prompt_max_len"),
        "engine limit": StackKey("max_len"),
        "KL coefficient": StackKey("init_kl_coef"),
        "entropy coefficient": StackKey("entropy_loss_coef"),
    },
    "nemo-rl": {
        "answers per prompt": StackKey("grpo.num_generations_per_prompt"),
        "temperature": StackKey("policy.generation.temperature"),
        "top_p": StackKey("policy.generation.top_p"),
        "top_k": StackKey("policy.generation.top_k"),
        "answer limit": StackKey("policy.generation.max_new_tokens"),
        "engine limit": StackKey("policy.generation.vllm_cfg.max_model_len"),
        "KL coefficient": StackKey("loss_fn.reference_policy_kl_penalty"),
    },
    "prime-rl": {
        "answers per prompt": StackKey("orchestrator.group_size"),
        "temperature": StackKey("orchestrator.train.sampling.temperature", 1.0),
        "answer limit": StackKey("orchestrator.train.sampling.max_completion_tokens"),
        "engine limit": StackKey("inference.vllm.max_model_len"),
        "KL coefficient": StackKey("trainer.loss.kl_tau"),
    },
}
"""Stack -> its settings"""


class RewardTrainingSetting(NamedTuple):
    """A setting of a training by rewards: the file's value, or else the program's default."""

    key: str
    value: Any
    """None where it is not known, or not set and without a default"""
    is_written: bool

    @property
    def number(self) -> float | None:
        """The value as a number; None where it is none."""
        return parse_setting_number(self.value)

    @property
    def value_as_text(self) -> str:
        """The value as a message shows it."""
        if isinstance(self.value, bool):
            return str(self.value).lower()
        return f"{self.value:g}" if isinstance(self.value, float) else str(self.value)


ABSENT = RewardTrainingSetting("", None, False)
"""A setting that the program does not have"""


def reward_training_setting(config: Config, name: SettingName) -> RewardTrainingSetting:
    """A setting by its common name; ABSENT where the program has none."""
    known = KEYS.get(config.stack, {}).get(name)
    if known is None:
        return ABSENT
    return setting_or_default(config, known.key, known.default)


def setting_or_default(config: Config, key: str, default: object = None) -> RewardTrainingSetting:
    """A setting by the program's own key, with its default where the file leaves it to the program.

    Args:
        config: of the run.
        key: as the file spells it; a dot leads into a table.
        default: the program's; it is not taken where a script may set another one, or an older release had none.
    """
    written = value_at_dotted_key(config.raw, key)
    if written is None:
        is_kept = keeps_stack_defaults(config) and not _had_other_default(config, key)
        return RewardTrainingSetting(key, default if is_kept else None, False)
    value = None if holds_unknown_value(written) else written
    return RewardTrainingSetting(key_as_written(config, key), value, True)


def case_of_setting(config: Config, setting: RewardTrainingSetting) -> Case:
    """The case of a finding: a setting with its value, at its place."""
    return setting_case(config, setting.value, setting.key)


def _had_other_default(config: Config, key: str) -> bool:
    """Does the run ask for a release of TRL that did not have today's default of a key?"""
    if config.stack != "trl":
        return False
    since = load_first_releases_of_defaults()["trl"]["GRPOConfig"].get(key)
    return since is None or config.pins.is_release_surely_before("trl", since)
