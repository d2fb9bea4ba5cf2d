"""The LoRA rank is larger than the matrices that it adapts.

## What it does
Compares `r` with the smaller side of each matrix that LoRA adapts, from the headers of the model's weights.

## Why it is bad
The change of a matrix can't have a higher rank than its smaller side. A larger `r` costs memory and time for nothing,
and lowers the factor alpha / r.

## Example
```yaml
files:
  model/config.json: {model_type: llama}
weights:
  model: {model.layers.0.self_attn.q_proj.weight: [64, 64], model.layers.0.self_attn.k_proj.weight: [16, 64]}
config:
  base_model: model
  datasets: [{path: some/rows, type: alpaca}]
  sequence_len: 2048
  micro_batch_size: 2
  adapter: lora
  lora_r: 64
  lora_alpha: 64
  lora_target_modules: [q_proj, k_proj]
```

## Use instead
```yaml
files:
  model/config.json: {model_type: llama}
weights:
  model: {model.layers.0.self_attn.q_proj.weight: [64, 64], model.layers.0.self_attn.k_proj.weight: [16, 64]}
config:
  base_model: model
  datasets: [{path: some/rows, type: alpaca}]
  sequence_len: 2048
  micro_batch_size: 2
  adapter: lora
  lora_r: 16
  lora_alpha: 16
  lora_target_modules: [q_proj, k_proj]
```

## Fix safety
Lower alpha in proportion, so that alpha / r stays the same.

## References
- Hu et al., LoRA (arXiv:2106.09685), section 4.1
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.config.evidence.facts_from_model_folder import linear_module_shapes
from truetune.checks.config.evidence.match_module_names_like_peft import (
    PATTERN_SIGN,
    modules_matching_name,
)
from truetune.checks.config.evidence.reasons_setting_rules_lack_their_inputs import (
    NO_LORA,
    NO_WEIGHTS,
)
from truetune.checks.config.evidence.setting_places_and_known_keys import setting_case
from truetune.checks.faults import Fault
from truetune.checks.findings import Case, Finding
from truetune.checks.judgement import Unmet
from truetune.checks.measurement_without_findings import Measurement, make_count_measurement
from truetune.checks.read_and_format_setting_values import format_setting
from truetune.checks.rule import ConfigRule


class LoraRankBeyondTheMatrix(ConfigRule):
    code = "CFG019"
    fault = Fault.LORA_RANK_OR_SCALE_UNSUITABLE
    symptoms = ("garbage-output", "nothing-is-learned")
    severity = "info"
    since = "0.1.0"

    def unmet(self) -> Unmet | None:
        """Why the rule can't judge this run; None if it can.

        Unmet without LoRA on named modules, or where the shapes of the weights are not known.
        """
        lora = self.subject.spec.training.lora
        if lora is None:
            return NO_LORA
        if not isinstance(lora.target_modules, tuple) or self.subject.spec.training.load_in:
            return Unmet("it is about LoRA on named modules whose weights are not quantized")
        return None if self._target_matrices() else NO_WEIGHTS

    def measurement_if_clean(self) -> Measurement:
        """What was measured: how many of the target matrices the rank exceeds."""
        what = f"matrices whose rank is below {format_setting(self.subject, 'training.lora.r')}"
        return make_count_measurement(what, 0, len(self._target_matrices()))

    def _target_matrices(self) -> set[str]:
        """The matrices that the named targets mean; none where the weights are not here."""
        lora, linear = self.subject.spec.training.lora, linear_module_shapes(self.subject)
        targets = (
            lora.target_modules
            if lora is not None and isinstance(lora.target_modules, tuple)
            else ()
        )
        return {
            name
            for target in targets
            if not PATTERN_SIGN.search(target)
            for name in modules_matching_name(target, linear)
        }

    def findings(self) -> Iterator[Finding]:
        config, training = self.subject, self.subject.spec.training
        lora = training.lora
        if lora is None or not isinstance(lora.target_modules, tuple) or training.load_in:
            return
        linear = linear_module_shapes(config)
        chosen = self._target_matrices()
        small = {name: min(linear[name]) for name in sorted(chosen) if min(linear[name]) < lora.r}
        if small:
            yield self.finding(
                f"r is {lora.r}, but {len(small):,} of {len(chosen):,} matrices have a rank of at most"
                f" {max(small.values())}: the rest is wasted",
                f"set r to {min(small.values())} or less, and lower alpha in proportion",
                cases=[
                    setting_case(config, lora.r, "training.lora.r"),
                    *(
                        Case(f"{name}: {' x '.join(map(str, linear[name]))}")
                        for name in list(small)[:2]
                    ),
                ],
                count=len(small),
                total=len(chosen),
            )
