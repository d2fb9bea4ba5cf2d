"""The scale of the adapter is far outside every published one.

## What it does
Compares lora_alpha / r (or / sqrt(r) with rsLoRA) and lora_dropout in adapter_config.json with the ranges that
`setting-out-of-range` uses for the settings of runs.

## Why it is bad
The adapter's output is multiplied by the scale. At 1/256 it changes almost nothing at usual learning rates: the loss
does not move, and the answers are those of the base.

## Example
```yaml
lora: [q_proj]
adapter_config: {lora_alpha: 0.01}
```

## Use instead
```yaml
lora: [q_proj]
adapter_config: {lora_alpha: 8}
```

## Fix safety
Train again with the other value. If you only raise it after training, it multiplies what was learned for the small
scale.

## References
- Hu et al., LoRA (arXiv:2106.09685), section 4.1; Kalajdzievski, rsLoRA (arXiv:2312.03732)
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from truetune.checks.faults import Fault
from truetune.checks.findings import Case, Finding
from truetune.checks.hyperparameter_limits import (
    NOTHING,
    OUT_OF_RANGE,
    SCALE,
    SCALE_NAMES,
    limit_breaches,
    lora_scale,
)
from truetune.checks.judgement import Unmet
from truetune.checks.rule import CheckpointRule

FILE = "adapter_config.json"
KEYS = {
    "training.lora.lora_alpha": "lora_alpha",
    "training.lora.lora_dropout": "lora_dropout",
}
"""Setting of the table -> key of the file"""


class AdapterScaleOutOfRange(CheckpointRule):
    code = "CKP035"
    fault = Fault.LORA_RANK_OR_SCALE_UNSUITABLE
    symptoms = ("garbage-output", "nothing-is-learned")
    severity = "warning"
    kind = "adapter"
    opens = False

    def unmet(self) -> Unmet | None:
        unmet = super().unmet()
        if unmet is not None:
            return unmet
        if self._values_judged_by_limits().get(SCALE) is None:
            return Unmet(
                "adapter_config.json names no lora_alpha and r", "put it beside the weights"
            )
        return None

    def measurement_if_clean(self) -> str:
        """The scale of the adapter, and how it is computed."""
        return f"{self._scale_formula()} is {self._values_judged_by_limits()[SCALE]:g}"

    def findings(self) -> Iterator[Finding]:
        values, config = self._values_judged_by_limits(), self.subject.adapter_config
        for breach in limit_breaches(values, OUT_OF_RANGE, NOTHING):
            setting = breach.limit.setting
            name = self._scale_formula() if setting == SCALE else KEYS[setting]
            parts = ("lora_alpha", "r") if setting == SCALE else (name,)
            yield self.finding(
                breach.text(breach.limit.says, values, name),
                breach.text(breach.limit.fix, values, name) + ", and train again",
                severity=breach.limit.severity,
                evidence=[breach.limit.source],
                cases=[
                    Case(f"{part}: {config[part]}", file=str(self.subject.folder / FILE))
                    for part in parts
                ],
            )

    def _values_judged_by_limits(self) -> dict[str, Any]:
        """The values that the table of limits judges, under the table's names."""
        config = self.subject.adapter_config
        alpha, rank = config.get("lora_alpha"), config.get("r")
        # The scale and not alpha alone: alpha of 16 is usual with r = 16 and far out with r = 4096.
        strength = lora_scale(alpha, rank, rank_stabilised=bool(config.get("use_rslora")))
        values = {setting: config.get(key) for setting, key in KEYS.items()}
        return {**values, "training.lora.r": rank, SCALE: strength}

    def _scale_formula(self) -> str:
        """How the scale is computed: lora_alpha / r, or / sqrt(r)."""
        return SCALE_NAMES[bool(self.subject.adapter_config.get("use_rslora"))]
