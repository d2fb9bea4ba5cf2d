"""LoRA has rank 1 on a single projection, so it can learn hardly anything.

## What it does
Looks for an `r` of 1 if the only target is one attention projection (`q_proj`, `v_proj`, ...) and the run trains on
given answers or pairs. It does not fire for reinforcement learning: its rewards contain so little information that rank
1 can suffice.

## Why it is bad
Rank 1 on one projection is about a hundredth of a percent of the weights. The loss falls a little, as the adapter
learns style and format, but the content of the answers stays that of the base model.

## Example
```yaml
config:
  base_model: some/model
  datasets: [{path: some/rows, type: alpaca}]
  sequence_len: 2048
  micro_batch_size: 2
  adapter: lora
  lora_r: 1
  lora_alpha: 2
  lora_target_modules: [q_proj]
```

## Use instead
```yaml
config:
  base_model: some/model
  datasets: [{path: some/rows, type: alpaca}]
  sequence_len: 2048
  micro_batch_size: 2
  adapter: lora
  lora_r: 16
  lora_alpha: 32
  lora_target_modules: [q_proj, k_proj, v_proj, o_proj, gate_proj, up_proj, down_proj]
```

## Fix safety
The adapter takes more memory, still far less than 1 % of the model's.

## References
- Schulman et al., "LoRA Without Regret" (2025): all layers need an adapter, and its rank has to hold what the rows
  teach; Biderman et al., "LoRA Learns Less and Forgets Less" (arXiv:2405.09673)
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.config.evidence.reasons_setting_rules_lack_their_inputs import NO_LORA
from truetune.checks.config.evidence.setting_places_and_known_keys import setting_case
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.judgement import Unmet
from truetune.checks.read_and_format_setting_values import format_setting
from truetune.checks.rule import ConfigRule

LEARNS_FROM_REWARDS = ("grpo", "ppo")
"""Methods that rank 1 may do for"""
ATTENTION_PROJECTIONS = frozenset(
    ("q_proj", "k_proj", "v_proj", "o_proj", "query", "key", "value", "q", "k", "v", "o")
)
"""Projections of the attention that are one matrix; `query_key_value` is three"""


class LoraRank1OnOneProjection(ConfigRule):
    code = "CFG070"
    fault = Fault.LORA_RANK_OR_SCALE_UNSUITABLE
    symptoms = ("nothing-is-learned", "loss-does-not-fall")
    severity = "warning"

    def unmet(self) -> Unmet | None:
        """Why the rule can't judge this run; None if it can.

        Also unmet where the settings have no LoRA.
        """
        lacking = super().unmet()
        if lacking is not None:
            return lacking
        return NO_LORA if self.subject.spec.training.lora is None else None

    def measurement_if_clean(self) -> str:
        """What was measured: the rank and the targets of LoRA."""
        rank = format_setting(self.subject, "training.lora.r")
        return f"rank and targets of LoRA: {rank}, {', '.join(_target_names(self)) or 'by default'}"

    def findings(self) -> Iterator[Finding]:
        config, training = self.subject, self.subject.spec.training
        if training.lora is None or training.method in LEARNS_FROM_REWARDS:
            return
        targets = _target_names(self)
        is_one_projection = len(targets) == 1 and targets[0] in ATTENTION_PROJECTIONS
        if training.lora.r == 1 and is_one_projection:
            yield self.finding(
                f"the adapter has rank 1, only on {targets[0]}: it can learn hardly anything, and the answers stay"
                " those of the base model",
                "set the rank to 16 with an alpha of 32, and adapt all linear layers",
                cases=[
                    setting_case(config, 1, "training.lora.r"),
                    setting_case(config, targets[0], "training.lora.target_modules"),
                ],
            )


def _target_names(rule: LoraRank1OnOneProjection) -> tuple[str, ...]:
    """The names of the modules that get an adapter; none where a pattern or the default says it."""
    lora = rule.subject.spec.training.lora
    targets = None if lora is None else lora.target_modules
    if isinstance(targets, str):
        return (targets,)
    return targets or ()
