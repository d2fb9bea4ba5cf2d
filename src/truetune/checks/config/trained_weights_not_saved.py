"""Training saves no trained weights.

## What it does
For programs that only save at checkpoints: verl's reinforcement learning with a `trainer.save_freq` that is not
positive, which is the default (-1), and NeMo RL with `checkpointing.enabled: false`. verl's SFT always saves at its
last step and is not checked.

For stacks that save through transformers' Trainer: ZeRO-3 in a full training without
`stage3_gather_16bit_weights_on_model_save`, and FSDP with `state_dict_type: SHARDED_STATE_DICT` in the settings. It
does not fire if a file beside the settings merges the shards (`zero_to_fp32.py`, `accelerate merge-weights`).

It is a warning if the setting is left at its default, or if the same settings say where checkpoints go or how many are
kept. It is info if saving is explicitly switched off, as for a run of which only the curves are wanted.

## Why it is bad
verl saves in its training loop if `save_freq` is positive (also at the last step), and nowhere else. The curves rise,
the run ends without an error, and there is no trained model. Shards can't be loaded: the folder that was to be served
contains settings and a tokenizer.

## Example
```yaml
config:
  actor_rollout_ref:
    model: {path: some/model}
    actor: {optim: {lr: 0.000001}}
    rollout: {name: vllm, n: 8}
  algorithm: {adv_estimator: grpo}
  trainer: {total_epochs: 2, default_local_dir: outputs/grpo}
```

## Use instead
```yaml
config:
  actor_rollout_ref:
    model: {path: some/model}
    actor: {optim: {lr: 0.000001}}
    rollout: {name: vllm, n: 8}
  algorithm: {adv_estimator: grpo}
  trainer: {total_epochs: 2, default_local_dir: outputs/grpo, save_freq: 20}
```

## Fix safety
A checkpoint contains the optimizer too, three times the size of the weights or more; `trainer.max_actor_ckpt_to_keep`
limits their number. If you only measure speed, you don't need to save.

## References
- verl-project/verl#4534, verl-project/verl#260
- verl 0.8, verl/trainer/ppo/ray_trainer.py (`fit`); verl documentation, "Config Explanation" (`trainer.save_freq`)
- huggingface/transformers#34524, huggingface/transformers#25817; transformers, `Trainer.save_model`
- NeMo RL, nemo_rl/algorithms/grpo.py (`checkpointing.enabled`)
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.config.evidence.saves_without_gathered_weights import (
    save_without_gathered_weights,
)
from truetune.checks.config.evidence.setting_places_and_known_keys import (
    setting_case,
    value_at_dotted_key,
)
from truetune.checks.config.evidence.settings_read_by_another_program import keeps_stack_defaults
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.hyperparameter_limits import parse_setting_number
from truetune.checks.judgement import Unmet
from truetune.checks.rule import ConfigRule
from truetune.settings.stacks.config_draft import holds_unknown_value, is_switched_on

SAVE_FREQ, ONLY_VALIDATES = "trainer.save_freq", "trainer.val_only"
SAVES = "checkpointing.enabled"
VERL_DEFAULT = -1
FOLDER = "trainer.default_local_dir"
DEFAULT_FOLDER = "checkpoints/${trainer.project_name}/${trainer.experiment_name}"
"""In verl's own file, of which projects keep copies"""
KEPT = ("trainer.max_actor_ckpt_to_keep", "trainer.max_critic_ckpt_to_keep")

SAVED_BY_TRANSFORMERS = ("trl", "transformers", "llama-factory", "axolotl", "ms-swift")
"""Stacks whose weights transformers' Trainer saves"""


class TrainedWeightsNotSaved(ConfigRule):
    code = "CFG182"
    fault = Fault.TRAINING_RESULT_LOST
    symptoms = ("nothing-is-learned",)
    severity = "warning"
    stacks = ("verl", "nemo-rl", *SAVED_BY_TRANSFORMERS)

    def unmet(self) -> Unmet | None:
        """Why the rule can't judge this run; None if it can.

        Also unmet for verl's SFT, which saves at its end, for a run that only validates, and where no value is known.
        """
        if (lacking := super().unmet()) is not None:
            return lacking
        config = self.subject
        if config.stack in SAVED_BY_TRANSFORMERS:
            is_sharded = config.raw.get("deepspeed") or config.raw.get("fsdp")
            return None if is_sharded else Unmet("it is about runs with DeepSpeed or FSDP")
        if config.stack == "verl" and (
            config.spec.training.method == "sft"
            or is_switched_on(value_at_dotted_key(config.raw, ONLY_VALIDATES))
        ):
            return Unmet("it is about trainings by rewards, which save at their checkpoints alone")
        if self._value_of_save_setting_or_default() is None:
            return Unmet(f"the settings do not say {self._key_of_setting_that_saves()}")
        return None

    def measurement_if_clean(self) -> str:
        """What was measured: when the run saves."""
        if self.subject.stack in SAVED_BY_TRANSFORMERS:
            return "no setting keeps the saved weights in shards"
        return f"{self._key_of_setting_that_saves()} {self._value_of_save_setting_or_default()}"

    def findings(self) -> Iterator[Finding]:
        if self.unmet() is not None:
            return
        if self.subject.stack in SAVED_BY_TRANSFORMERS:
            save = save_without_gathered_weights(self.subject)
            if save is not None:
                yield self.finding(save.message, save.remedy, cases=save.cases)
            return
        value = self._value_of_save_setting_or_default()
        if self.subject.stack == "nemo-rl":
            if value is False:
                yield self._finding("false", "true")
            return
        frequency = parse_setting_number(value)
        if frequency is not None and frequency <= 0:
            yield self._finding(f"{frequency:g}", "a number of steps such as 20")

    def _finding(self, shown: str, wanted: str) -> Finding:
        """The finding on a run without checkpoints."""
        config, key = self.subject, self._key_of_setting_that_saves()
        is_written = value_at_dotted_key(config.raw, key) is not None
        wishes = self._verl_settings_that_need_checkpoints()
        # Verl's own examples write -1 in 51 of 129 scripts: a run may be for its curves alone.
        is_chosen = is_written and not wishes
        origin = "" if is_written else " by default"
        contradicted = f" ({wishes[0]} is set)" if wishes else ""
        return self.finding(
            f"{key} is {shown}{origin}: no checkpoint is written{contradicted}, not even at the end, and the trained"
            " weights are lost",
            f"set {key} to {wanted}",
            severity="info" if is_chosen else "warning",
            cases=[
                setting_case(config, shown, key),
                *(setting_case(config, self._shown_value(one), one) for one in wishes),
            ],
        )

    def _verl_settings_that_need_checkpoints(self) -> list[str]:
        """The settings of verl in the file that only mean something where checkpoints are written."""
        values = {key: value_at_dotted_key(self.subject.raw, key) for key in (FOLDER, *KEPT)}
        return [key for key, value in values.items() if value not in (None, DEFAULT_FOLDER)]

    def _shown_value(self, key: str) -> object:
        """The value of a setting as a case shows it."""
        value = value_at_dotted_key(self.subject.raw, key)
        return "a variable" if holds_unknown_value(value) else value

    def _key_of_setting_that_saves(self) -> str:
        """The setting that decides."""
        return SAVES if self.subject.stack == "nemo-rl" else SAVE_FREQ

    def _value_of_save_setting_or_default(self) -> object:
        """The value of the setting; None where it is not known."""
        config = self.subject
        written = value_at_dotted_key(config.raw, self._key_of_setting_that_saves())
        if written is not None:
            return None if holds_unknown_value(written) else written
        is_verl = config.stack == "verl"
        return VERL_DEFAULT if is_verl and keeps_stack_defaults(config) else None
