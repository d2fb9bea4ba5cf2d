"""A batch of generated answers does not hold whole groups, so that the trainer stops or groups are torn apart.

## What it does
For GRPO and RLOO of TRL and ms-swift, divides the answers that are generated at once (batch per device, times
processes, times `steps_per_generation`, which is the accumulation by default) by `num_generations`. The number of
processes is known from `num_processes`, or from `NPROC_PER_NODE` before a command of ms-swift. For verl, it fires if
`ppo_mini_batch_size` is above `train_batch_size`. It also fires if `generation_batch_size` and `steps_per_generation`
are both set.

## Why it is bad
An answer is compared with the others to its prompt, so a group has to be in one batch. The trainer stops with
"generation_batch_size must be divisible by num_generations" after the model was loaded. `per_device_train_batch_size`
counts answers, not prompts, which most reports of this error did not expect.

## Example
```yaml
config:
  model_name_or_path: some/model
  dataset_name: some/rows
  num_processes: 2
  num_generations: 6
  per_device_train_batch_size: 4
  gradient_accumulation_steps: 4
  max_completion_length: 512
```

## Use instead
```yaml
config:
  model_name_or_path: some/model
  dataset_name: some/rows
  num_processes: 2
  num_generations: 8
  per_device_train_batch_size: 4
  gradient_accumulation_steps: 4
  max_completion_length: 512
```

## Fix safety
A group of 8 instead of 6 takes a third more time to sample. Raising `gradient_accumulation_steps` instead makes each
step longer and changes how many prompts it sees.

## References
- huggingface/trl#2858, huggingface/trl#3061 (answers are counted, not prompts), huggingface/open-r1#249,
  gensyn-ai/rl-swarm#240
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.config.evidence.settings_of_reward_training import (
    RewardTrainingSetting,
    case_of_setting,
    reward_training_setting,
    setting_or_default,
)
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.judgement import Unmet
from truetune.checks.rule import ConfigRule
from truetune.settings.config import Config
from truetune.settings.stacks.config_draft import is_switched_on

GENERATION_BATCH, STEPS_PER_GENERATION = "generation_batch_size", "steps_per_generation"
DYNAMIC_BATCH = "actor_rollout_ref.actor.use_dynamic_bsz"
TRAIN_BATCH, UPDATE_BATCH = "data.train_batch_size", "actor_rollout_ref.actor.ppo_mini_batch_size"


class GeneratedBatchSplitsGroups(ConfigRule):
    code = "CFG203"
    fault = Fault.COMPLETIONS_GROUPED_ACROSS_PROMPTS
    symptoms = ("reward-does-not-rise", "nothing-is-learned")
    severity = "error"
    methods = ("grpo",)
    stacks = ("trl", "ms-swift", "verl")

    def unmet(self) -> Unmet | None:
        """Also unmet where the size of the batch or of the group is not known."""
        if (lacking := super().unmet()) is not None:
            return lacking
        config = self.subject
        if config.stack == "verl":
            both = [setting_or_default(config, key).number for key in (TRAIN_BATCH, UPDATE_BATCH)]
            return None if all(both) else Unmet("it is about batches, and they are not set")
        if _are_both_batch_settings_set(config):
            return None
        if _generated_answers(config) is None or not _group_size(config):
            return Unmet(
                "the batch of generated answers is not known: it depends on the number of processes"
            )
        return None

    def measurement_if_clean(self) -> str:
        """The generated answers and the size of a group."""
        config = self.subject
        if config.stack == "verl":
            return f"{TRAIN_BATCH}: {setting_or_default(config, TRAIN_BATCH).value_as_text}"
        return f"{_generated_answers(config)} answers at once, groups of {_group_size(config)}"

    def findings(self) -> Iterator[Finding]:
        """Findings on groups that do not fit into a batch."""
        config = self.subject
        if self.unmet() is not None:
            return
        if config.stack == "verl":
            yield from self._findings_on_batches_of_verl()
            return
        if _are_both_batch_settings_set(config):
            steps = setting_or_default(config, STEPS_PER_GENERATION)
            batch = setting_or_default(config, GENERATION_BATCH)
            yield self.finding(
                f"{GENERATION_BATCH} and {STEPS_PER_GENERATION} are both set: the trainer stops, since one follows from"
                " the other",
                f"remove {GENERATION_BATCH}",
                cases=[case_of_setting(config, batch), case_of_setting(config, steps)],
            )
            return
        yield from self._findings_on_torn_groups()

    def _findings_on_torn_groups(self) -> Iterator[Finding]:
        """The finding on a batch that is no multiple of the group."""
        config = self.subject
        total, size = _generated_answers(config), _group_size(config)
        assert total is not None, "unmet() asked"
        assert size, "unmet() asked"
        if total % size == 0:
            return
        group = reward_training_setting(config, "answers per prompt")
        yield self.finding(
            f"{total:,} answers are generated at once, which is no multiple of {group.key} {size}: the trainer stops",
            f"set {group.key} to {_nearest_fitting_group(total, size)}, or the batch to a multiple of {size}",
            cases=[case_of_setting(config, group), case_of_setting(config, _batch_setting(config))],
        )

    def _findings_on_batches_of_verl(self) -> Iterator[Finding]:
        """The finding on an update that needs more prompts than a step samples."""
        config = self.subject
        sampled, updated = (setting_or_default(config, key) for key in (TRAIN_BATCH, UPDATE_BATCH))
        if not sampled.number or not updated.number or updated.number <= sampled.number:
            return
        # With batches by tokens verl takes all that a step has for one update, and says nothing.
        if is_switched_on(setting_or_default(config, DYNAMIC_BATCH).value):
            return
        yield self.finding(
            f"an update takes {updated.value_as_text} prompts ({UPDATE_BATCH}), but a step samples"
            f" {sampled.value_as_text} ({TRAIN_BATCH}): verl stops",
            f"set {UPDATE_BATCH} to {sampled.value_as_text} or less",
            cases=[case_of_setting(config, updated), case_of_setting(config, sampled)],
        )


def _group_size(config: Config) -> int:
    """Answers to one prompt; 0 where that is not known."""
    return int(reward_training_setting(config, "answers per prompt").number or 0)


def _are_both_batch_settings_set(config: Config) -> bool:
    """Are the generated batch and the steps that it lasts both set?"""
    both = [setting_or_default(config, key) for key in (GENERATION_BATCH, STEPS_PER_GENERATION)]
    return all(one.number for one in both)


def _generated_answers(config: Config) -> int | None:
    """The answers that all processes generate at once; None where that is not known."""
    batch = setting_or_default(config, GENERATION_BATCH)
    if batch.is_written:
        return int(batch.number) if batch.number else None
    per_process = _answers_per_process(config)
    # Without a place it is the default of 1, which a launch on several GPUs changes.
    if per_process is None or "training.devices" not in config.places:
        return None
    return per_process * config.spec.training.devices


def _answers_per_process(config: Config) -> int | None:
    """The answers that one process generates at once; None where that is not known."""
    training = config.spec.training
    batch, accumulation = training.per_device_train_batch_size, training.gradient_accumulation_steps
    steps = setting_or_default(config, STEPS_PER_GENERATION)
    if steps.is_written and not steps.number:
        return None
    repeated = int(steps.number) if steps.number else accumulation
    return batch * repeated if batch and repeated else None


def _batch_setting(config: Config) -> RewardTrainingSetting:
    """The setting that gives the batch, as the file calls it."""
    batch = setting_or_default(config, GENERATION_BATCH)
    size = config.spec.training.per_device_train_batch_size
    return (
        batch if batch.number else setting_or_default(config, "per_device_train_batch_size", size)
    )


def _nearest_fitting_group(total: int, size: int) -> int:
    """The size of a group nearest to the wanted one that divides the batch; at least 2."""
    fitting = [one for one in range(2, total + 1) if total % one == 0] or [2]
    return min(fitting, key=lambda one: (abs(one - size), -one))
