"""The adapter is on the routers of a mixture of experts too.

## What it does
Works out, as peft matches names, whether an adapter reaches the routers: by `gate` or `router` in the targets, or by
`all-linear`, which means them too for many types of models. For trainings by rewards it warns, for others it notes it.

## Why it is bad
A router decides which experts a token is given to. A small change sends tokens to experts that were never trained for
them. In training by rewards, the engine that samples routes otherwise than the trainer, and the ratios of probabilities
become wrong. Recipes for mixtures leave the router alone.

## Example
```yaml
files:
  model/config.json: {model_type: qwen3_moe, num_experts: 128, num_experts_per_tok: 8}
config:
  model_name_or_path: model
  dataset_name: some/rows
  max_length: 2048
  use_peft: true
  lora_dropout: 0
  lora_target_modules: all-linear
```

## Use instead
```yaml
files:
  model/config.json: {model_type: qwen3_moe, num_experts: 128, num_experts_per_tok: 8}
config:
  model_name_or_path: model
  dataset_name: some/rows
  max_length: 2048
  use_peft: true
  lora_dropout: 0
  lora_target_modules: [q_proj, k_proj, v_proj, o_proj, gate_proj, up_proj, down_proj]
```

## Fix safety
Without the router fewer weights are trained. Where experts are to take over a new domain, training it may be meant.

## References
- modelscope/ms-swift#5512, AgileRL/AgileRL#630, foundation-model-stack/fms-hf-tuning#545,
  PrimeIntellect-ai/prime-rl#1836
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.config.adapter_leaves_experts_out import CHOSEN_BY_STACK, NO_EXPERTS, TARGETS
from truetune.checks.config.evidence.experts_of_run_model import (
    experts_of_run_model,
    reach_of_adapter,
)
from truetune.checks.config.evidence.reasons_setting_rules_lack_their_inputs import NO_LORA
from truetune.checks.config.evidence.setting_places_and_known_keys import setting_case
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.judgement import Unmet
from truetune.checks.rule import ConfigRule
from truetune.trainers.experts_of_model_types import LoraReach


class AdapterTrainsTheRouter(ConfigRule):
    code = "CFG283"
    fault = Fault.BALANCE_OF_EXPERTS_WRONG
    symptoms = ("reward-does-not-rise",)
    severity = "info"

    def unmet(self) -> Unmet | None:
        """Why the rule can't judge this run; None if it can."""
        if self.subject.spec.training.lora is None:
            return NO_LORA
        facts = experts_of_run_model(self.subject)
        if facts is None:
            return NO_EXPERTS
        return CHOSEN_BY_STACK if reach_of_adapter(self.subject, facts) is None else None

    def measurement_if_clean(self) -> str:
        """That the routers stay as they are."""
        return "the routers get no adapter"

    def findings(self) -> Iterator[Finding]:
        reach = self._reach()
        if reach is None or not reach.share("router"):
            return
        router = next(name for name in reach.facts.router if name in reach.adapted)
        lora = self.subject.spec.training.lora
        targets = lora.target_modules if lora is not None else None
        shown = targets if isinstance(targets, str) else ", ".join(targets or ())
        is_by_rewards = self.subject.spec.training.method == "grpo"
        yield self.finding(
            f"the adapter is on the routers too ({router}): it changes which experts a token is given to",
            "name the layers of attention, and of the experts if they are meant, instead of all-linear or the router",
            severity="warning" if is_by_rewards else "info",
            cases=[setting_case(self.subject, shown, TARGETS)],
        )

    def _reach(self) -> LoraReach | None:
        """What the adapter reaches; None where that is not known."""
        facts = experts_of_run_model(self.subject)
        return None if facts is None else reach_of_adapter(self.subject, facts)
