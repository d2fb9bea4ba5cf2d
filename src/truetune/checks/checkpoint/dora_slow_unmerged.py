"""A DoRA adapter generates slowly until it is merged.

## What it does
Reports `use_dora` in adapter_config.json, as info.

## Why it is bad
DoRA scales each adapted matrix by the norm of base and adapter together. Unmerged, every forward pass computes B A for
all of these matrices, adds it to the base and computes the norm of each column, for one token as for a thousand.
Generation takes a few times as long as with the base. Merged weights cost nothing.

## Example
```yaml
lora: [q_proj]
adapter_config: {use_dora: true}
```

## Use instead
```yaml
lora: [q_proj]
```

## Fix safety
`merge_and_unload` gives the same answers except for rounding. Merge into 16-bit weights, not into quantized ones.

## References
- Liu et al., DoRA (arXiv:2402.09353); peft documentation, "Weight-Decomposed Low-Rank Adaptation": merge for inference
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.faults import Fault
from truetune.checks.findings import Case, Finding
from truetune.checks.judgement import Unmet
from truetune.checks.rule import CheckpointRule


class DoraSlowUnmerged(CheckpointRule):
    code = "CKP036"
    fault = Fault.GENERATION_OPTIONS_SLOW
    symptoms = ("slow-generation",)
    severity = "info"
    kind = "adapter"
    opens = False

    def unmet(self) -> Unmet | None:
        unmet = super().unmet()
        if unmet is not None:
            return unmet
        if not self.subject.adapter_config:
            return Unmet("there is no adapter_config.json", "put it beside the weights")
        return None

    def measurement_if_clean(self) -> str:
        """Whether the adapter uses DoRA."""
        return f"use_dora is {bool(self.subject.adapter_config.get('use_dora'))}; 1 adapter"

    def findings(self) -> Iterator[Finding]:
        if self.subject.adapter_config.get("use_dora"):
            yield self.finding(
                "a DoRA adapter generates a few times slower than its base until it is merged: each"
                " forward pass computes the norms of all adapted matrices",
                "merge it before serving: model = model.merge_and_unload(), or `truetune merge ADAPTER`",
                cases=[
                    Case("use_dora: true", file=str(self.subject.folder / "adapter_config.json"))
                ],
            )
