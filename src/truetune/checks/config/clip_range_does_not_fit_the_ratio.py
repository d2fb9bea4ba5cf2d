"""The clip range is one for ratios of whole answers, but the ratios are of single tokens, or the reverse.

## What it does
Compares the clip range (TRL's and ms-swift's `epsilon` and `epsilon_high`, verl's `clip_ratio_low` and
`clip_ratio_high`, OpenRLHF's `eps_clip`,
NeMo RL's `ratio_clip_min` and `ratio_clip_max`) with the kind of ratio that is clipped: that of a token, as in PPO and
GRPO, or of a whole answer, as in GSPO (`importance_sampling_level: sequence`, `loss_mode: gspo`, `policy_loss_type:
gspo`, `sequence_level_importance_ratios`). It fires for a range below 0.005 around ratios of tokens. A range of 0.1 or
more around ratios of answers is info. A run that makes one update on each rollout clips nothing, and is left alone.

## Why it is bad
GSPO takes the mean over the tokens of an answer: its ratio hardly leaves 1, and its range is 0.0003 to 0.0004. A
token's ratio moves by some percent in one update, and by 0.4 % through the rounding of bfloat16 alone. With GSPO's
range nearly every token is clipped after the first update, and has no gradient. With 0.2 around GSPO's ratios nothing
is ever clipped.

## Example
```yaml
config:
  model_name_or_path: some/model
  dataset_name: some/rows
  num_generations: 8
  max_completion_length: 2048
  gradient_accumulation_steps: 2
  steps_per_generation: 8
  importance_sampling_level: token
  epsilon: 0.0003
  epsilon_high: 0.0004
```

## Use instead
```yaml
config:
  model_name_or_path: some/model
  dataset_name: some/rows
  num_generations: 8
  max_completion_length: 2048
  gradient_accumulation_steps: 2
  steps_per_generation: 8
  importance_sampling_level: sequence
  epsilon: 0.0003
  epsilon_high: 0.0004
```

## Fix safety
Change the level for GSPO, or the range (0.2) for GRPO: the two train differently.

## References
- modelscope/ms-swift#7229, verl-project/verl#2775
- GSPO (arXiv 2507.18071), section 5.1: 3e-4 and 4e-4 for ratios of answers, 0.2 and 0.27 for those of tokens
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from truetune.checks.config.evidence.settings_of_reward_training import (
    RewardTrainingSetting,
    case_of_setting,
    setting_or_default,
)
from truetune.checks.config.evidence.updates_on_one_rollout import updates_on_one_rollout
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.hyperparameter_limits import parse_setting_number
from truetune.checks.judgement import Unmet
from truetune.checks.rule import ConfigRule
from truetune.settings.config import Config
from truetune.settings.stacks.read_nested_rl_settings import ACTOR

# Probabilities in bfloat16 are rounded by up to 2 ** -8 = 0.0039: below that, rounding alone leaves the range.
MAX_RANGE_OF_ANSWERS = 0.005
# The smallest range of published recipes for tokens, some 300 times that of GSPO.
MIN_RANGE_OF_TOKENS = 0.1
USUAL_FOR_TOKENS, USUAL_FOR_ANSWERS = "0.2", "0.0003 to 0.0004"


class ClipKeys(NamedTuple):
    """What one program calls the clip range and the kind of ratio."""

    lower: str
    upper: str
    default: float | None
    """Of both sides; None where the program has none"""
    is_upper_the_lower: bool
    """Is the upper side that of the lower one where it is not set?"""
    level: str
    of_tokens: str
    """Value of the level, in small letters, with which ratios of tokens are clipped; the default"""
    of_answers: tuple[str, ...]
    """Values with which ratios of whole answers are; another value is a loss of its own"""


OF_TRL = ClipKeys(
    "epsilon",
    "epsilon_high",
    0.2,
    True,
    "importance_sampling_level",
    "token",
    ("sequence", "sequence_token"),
)
KEYS: Mapping[str, ClipKeys] = {
    "trl": OF_TRL,
    "ms-swift": OF_TRL,
    "verl": ClipKeys(
        f"{ACTOR}.clip_ratio_low",
        f"{ACTOR}.clip_ratio_high",
        0.2,
        False,
        f"{ACTOR}.policy_loss.loss_mode",
        "vanilla",
        ("gspo",),
    ),
    "openrlhf": ClipKeys(
        "eps_clip", "eps_clip_low_high", 0.2, True, "policy_loss_type", "ppo", ("gspo",)
    ),
    "nemo-rl": ClipKeys(
        "loss_fn.ratio_clip_min",
        "loss_fn.ratio_clip_max",
        None,
        False,
        "loss_fn.sequence_level_importance_ratios",
        "false",
        ("true",),
    ),
}
"""Stack -> its names and defaults: TRL 1.16, ms-swift 4.6, verl 0.8, OpenRLHF 0.11, NeMo RL 0.5"""


class ClipRangeDoesNotFitTheRatio(ConfigRule):
    code = "CFG211"
    fault = Fault.POLICY_LOSS_WRONG
    severity = "warning"
    symptoms = ("reward-does-not-rise",)
    methods = ("grpo", "ppo")
    stacks = tuple(KEYS)

    def unmet(self) -> Unmet | None:
        """Also unmet where neither range nor kind is set, one of them is not known, or nothing can be clipped."""
        if (lacking := super().unmet()) is not None:
            return lacking
        settings = (*_sides_of_range(self.subject), _level(self.subject))
        is_range_known = _widest_side(self.subject) is not None
        if not is_range_known or _are_ratios_of_answers(self.subject) is None:
            return Unmet("the clip range, or what its ratios are of, is not known")
        if not any(one.is_written for one in settings):
            return Unmet("it is about trainings that set a clip range, or what its ratios are of")
        updates = updates_on_one_rollout(self.subject)
        if updates is not None and updates.number <= 1:
            return Unmet("it is about trainings with several updates on a rollout")
        return None

    def measurement_if_clean(self) -> str:
        """The range and the level."""
        settings = (*_sides_of_range(self.subject), _level(self.subject))
        return ", ".join(f"{one.key}: {one.value_as_text}" for one in settings)

    def findings(self) -> Iterator[Finding]:
        """The finding on a range of another kind of ratio."""
        if self.unmet() is not None:
            return
        config = self.subject
        sides, level, widest = _sides_of_range(config), _level(config), _widest_side(config)
        assert widest is not None, "unmet() asked"
        names = " and ".join(f"{one.key} {one.value_as_text}" for one in sides)
        what_is_clipped = f"{level.key} {level.value_as_text} clips those of"
        cases = [case_of_setting(config, one) for one in (*sides, level)]
        if not _are_ratios_of_answers(config) and 0 < widest <= MAX_RANGE_OF_ANSWERS:
            yield self.finding(
                f"{names} is a clip range for ratios of whole answers, but {what_is_clipped} single tokens: nearly"
                " every token leaves it after one update, and has no gradient",
                f"set {level.key} to {KEYS[config.stack].of_answers[0]}, or the clip range to {USUAL_FOR_TOKENS}",
                cases=cases,
            )
        elif _are_ratios_of_answers(config) and widest >= MIN_RANGE_OF_TOKENS:
            yield self.finding(
                f"{names} is a clip range for ratios of tokens, but {what_is_clipped} whole answers, which hardly"
                " leave 1: nothing is ever clipped",
                f"set the clip range to {USUAL_FOR_ANSWERS}",
                severity="info",
                cases=cases,
            )


def _level(config: Config) -> RewardTrainingSetting:
    """The setting that says what ratios are of."""
    keys = KEYS[config.stack]
    level = setting_or_default(config, keys.level)
    return level if level.is_written else level._replace(value=keys.of_tokens)


def _are_ratios_of_answers(config: Config) -> bool | None:
    """Are the clipped ratios those of whole answers? None for a loss of its own, or if it is not known."""
    keys, level = KEYS[config.stack], _level(config)
    text = level.value_as_text.lower()
    if text in keys.of_answers:
        return True
    return False if text == keys.of_tokens else None


def _sides_of_range(config: Config) -> list[RewardTrainingSetting]:
    """The sides of the clip range, by default where the file sets none."""
    keys = KEYS[config.stack]
    lower, upper = (setting_or_default(config, key) for key in (keys.lower, keys.upper))
    if not lower.is_written:
        lower = lower._replace(value=keys.default)
    if upper.is_written:
        return [lower, upper]
    if keys.is_upper_the_lower:
        return [lower]
    return [lower, upper._replace(value=keys.default)]


def _widest_side(config: Config) -> float | None:
    """The wider side of the clip range; None if one side is not known.

    A range with one wide side, as that of CISPO, clips only on the other one.
    """
    numbers = [
        parse_setting_number(part)
        for side in _sides_of_range(config)
        for part in (side.value if isinstance(side.value, (list, tuple)) else [side.value])
    ]
    known = [number for number in numbers if number is not None]
    return max(known) if known and len(known) == len(numbers) else None
