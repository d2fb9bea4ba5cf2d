"""The rank of the tensors is not the one in adapter_config.json.

## What it does
Compares the rank of each `lora_A` and `lora_B` with each other and with `r` and the ranks of `rank_pattern`.

## Why it is bad
Loading fails, or, with `ignore_mismatched_sizes`, leaves the adapter out. The scale is `lora_alpha / r`: with another
`r` in the file an engine that goes by the tensors applies the adapter too strongly or too weakly.

## Example
```yaml
lora: [q_proj]
adapter_config: {r: 8}
```

## Use instead
```yaml
lora: [q_proj]
adapter_config: {r: 4}
```

## Fix safety
Write the rank of the tensors into adapter_config.json, and the `lora_alpha` of the run; or take the config that was
saved with them.

## References
- vllm-project/vllm#10798, sgl-project/sglang#40835
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checkpoint.adapter_tensor_names import group_low_rank_tensors
from truetune.checks.findings import Case, Finding
from truetune.checks.judgement import Unmet
from truetune.checks.rule import CheckpointRule
from truetune.checks.unmet_reasons import NOT_LORA


class AdapterRankDiffers(CheckpointRule):
    code = "CKP008"
    severity = "error"
    stability = "stable"
    since = "0.1.0"
    kind = "adapter"

    def unmet(self) -> Unmet | None:
        if unmet := super().unmet():
            return unmet
        config = self.subject.adapter_config
        if config.get("peft_type") != "LORA":
            return NOT_LORA
        if type(config.get("r")) is not int:
            return Unmet("adapter_config.json names no rank", "write r into adapter_config.json")
        return (
            None
            if group_low_rank_tensors(self.subject.tensors)
            else Unmet("no tensor of it is of a low-rank pair")
        )

    def figure(self) -> str:
        count = len(group_low_rank_tensors(self.subject.tensors))
        return (
            f"{count:,} of {count:,} modules have a rank of adapter_config.json"
            f" ({self.subject.adapter_config['r']})"
        )

    def findings(self) -> Iterator[Finding]:
        config = self.subject.adapter_config
        pattern = config.get("rank_pattern")
        given = config.get("r")
        if (
            self.subject.kind != "adapter"
            or config.get("peft_type") != "LORA"
            or type(given) is not int
        ):
            return
        ranks_of = pattern.values() if isinstance(pattern, dict) else ()
        allowed = {given, *(rank for rank in ranks_of if type(rank) is int)}
        modules = group_low_rank_tensors(self.subject.tensors)
        odd: list[Case] = []
        for module, parts in modules.items():
            ranks = {
                name: t.shape[0 if name.endswith("_A") else 1]
                for name, t in parts.items()
                if name.endswith(("_A", "_B")) and len(t.shape) == 2
            }
            if config.get("target_parameters") and "experts" in module:
                continue
            if ranks and (len(set(ranks.values())) > 1 or not allowed & set(ranks.values())):
                odd.append(
                    Case(
                        f"{module}: "
                        + ", ".join(f"{name} has rank {rank}" for name, rank in ranks.items())
                    )
                )
        if odd:
            yield self.finding(
                f"{len(odd):,} of {len(modules):,} modules have another rank than"
                f" adapter_config.json ({given})",
                "take the adapter_config.json that was saved with these tensors",
                cases=odd,
                count=len(odd),
                total=len(modules),
            )
