"""The run sets a factor for the balance of experts that its model does not have, or trains all experts without any.

## What it does
For a mixture of experts, compares `router_aux_loss_coef` with what the type of the model has: models whose routers are
balanced by a bias (DeepSeek-V3, GLM-4.5) have no such loss. It notes, as information, that all weights of a mixture are
trained without the loss that its type has, since nothing sets `output_router_logits`.

## Why it is bad
Where the model has no such loss, the factor does nothing, or the trainer stops at it. Where it has one that is off,
routers are free to send most tokens to a few experts, and the others learn nothing; in a short training that hardly
shows.

## Example
```yaml
files:
  model/config.json: {model_type: deepseek_v3, n_routed_experts: 256, num_experts_per_tok: 8}
config:
  model_name_or_path: model
  dataset_name: some/rows
  max_length: 2048
  router_aux_loss_coef: 0.001
```

## Use instead
```yaml
files:
  model/config.json: {model_type: qwen3_moe, num_experts: 128, num_experts_per_tok: 8}
config:
  model_name_or_path: model
  dataset_name: some/rows
  max_length: 2048
  router_aux_loss_coef: 0.001
```

## Fix safety
Leaving the factor out changes nothing for such a model. Switching a loss on that was off changes the training: the
factor in the model's config.json is the one that it was trained with.

## References
- huggingface/trl#7222, huggingface/trl#7248, huggingface/trl#6085, huggingface/transformers#44586
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.config.evidence.experts_of_run_model import (
    config_of_run_model,
    experts_of_run_model,
)
from truetune.checks.config.evidence.setting_places_and_known_keys import (
    case_at_place,
    setting_place,
)
from truetune.checks.faults import Fault
from truetune.checks.findings import Case, Finding
from truetune.checks.judgement import Unmet
from truetune.checks.rule import ConfigRule

FACTORS = ("router_aux_loss_coef", "moe_aux_loss_coef")
SWITCH = "output_router_logits"
STACKS_THAT_SWITCH_IT_ON = ("trl", "truetune")
"""TRL from 1.7 on, where the model has the loss"""
STACKS = ("trl", "transformers", "axolotl", "llama-factory", "truetune")
NO_EXPERTS = Unmet(
    "its model is no mixture of experts, or is of a type that was not measured",
    "run the training with `truetune run`, which says what is trained",
)


class BalanceLossOfExpertsMissing(ConfigRule):
    code = "CFG282"
    fault = Fault.BALANCE_OF_EXPERTS_WRONG
    symptoms = ("nothing-is-learned",)
    severity = "warning"
    stacks = STACKS

    def unmet(self) -> Unmet | None:
        """Why the rule can't judge this run; None if it can."""
        if (lacking := super().unmet()) is not None:
            return lacking
        return None if experts_of_run_model(self.subject) is not None else NO_EXPERTS

    def measurement_if_clean(self) -> str:
        """The factor that the run sets, and the one that the type has."""
        facts = experts_of_run_model(self.subject)
        assert facts is not None, "else the rule is not judged"
        return (
            f"factor {self._factor() or 'not set'}; {facts.model_type} has"
            f" {facts.balance_coefficient if facts.balance_coefficient is not None else 'no such loss'}"
        )

    def findings(self) -> Iterator[Finding]:
        facts = experts_of_run_model(self.subject)
        if facts is None or self.subject.stack not in STACKS:
            return
        key = self._factor()
        if key is not None and facts.balance_coefficient is None:
            place = setting_place(self.subject, key)
            yield self.finding(
                f"{key} is set, but models of type {facts.model_type} have no loss for the balance of their experts",
                f"remove {key}: their routers are balanced otherwise, or not at all",
                cases=[case_at_place(place, f"{key}: {self.subject.raw[key]}")],
            )
        elif key is None and facts.balance_coefficient and self._is_balance_off():
            yield self.finding(
                "all weights of a mixture of experts are trained without the loss that balances them"
                f" ({SWITCH} is off)",
                f"set {SWITCH}: true in the model's config, for a long training",
                severity="info",
                cases=[
                    Case(f"model_type: {facts.model_type}", file=self.subject.spec.model or None)
                ],
            )

    def _factor(self) -> str | None:
        """The key that sets a factor above 0; None where none does."""
        for key, value in self.subject.raw.items():
            is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
            if key.rpartition(".")[2] in FACTORS and is_number and value > 0:
                return key
        return None

    def _is_balance_off(self) -> bool:
        """Are all weights trained, and does nothing switch the balance on?"""
        config = self.subject
        if config.spec.training.lora is not None or config.stack in STACKS_THAT_SWITCH_IT_ON:
            return False
        is_on = bool(config_of_run_model(config).get(SWITCH))
        return not is_on and SWITCH not in config.text
