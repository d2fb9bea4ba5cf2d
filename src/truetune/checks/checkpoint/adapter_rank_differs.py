"""The rank of the adapter's tensors is not the one in adapter_config.json.

## What it does
Compares the rank of each `lora_A` and `lora_B` with each other and with `r` and the ranks in `rank_pattern`.

## Why it is bad
Loading fails, or leaves the adapter out with `ignore_mismatched_sizes`. The scale is `lora_alpha / r`: with another `r`
in the file, an engine that uses the rank of the tensors applies the adapter too strongly or too weakly.

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
Use the adapter_config.json that was saved with the tensors, or write their rank and the `lora_alpha` of the run into
this one. No weight changes.

## References
- vllm-project/vllm#10798, sgl-project/sglang#40835
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from truetune.checkpoint.adapter_tensor_names import group_low_rank_tensors
from truetune.checkpoint.read_and_check_safetensors_header import StoredTensor
from truetune.checks.faults import Fault
from truetune.checks.findings import Case, Finding
from truetune.checks.judgement import Unmet
from truetune.checks.reasons_rules_cannot_judge import NOT_LORA
from truetune.checks.rule import CheckpointRule


class AdapterRankDiffers(CheckpointRule):
    code = "CKP008"
    fault = Fault.ADAPTER_STRENGTH_DIFFERS
    symptoms = ("garbage-output",)
    severity = "error"
    stability = "stable"
    since = "0.1.0"
    kind = "adapter"

    def unmet(self) -> Unmet | None:
        unmet = super().unmet()
        if unmet is not None:
            return unmet
        config = self.subject.adapter_config
        if config.get("peft_type") != "LORA":
            return NOT_LORA
        if type(config.get("r")) is not int:
            return Unmet("adapter_config.json names no rank", "write r into adapter_config.json")
        if not group_low_rank_tensors(self.subject.tensors):
            return Unmet("no tensor of it is of a low-rank pair")
        return None

    def measurement_if_clean(self) -> str:
        """How many modules have the rank of adapter_config.json."""
        count = len(group_low_rank_tensors(self.subject.tensors))
        return (
            f"{count:,} of {count:,} modules have a rank of adapter_config.json"
            f" ({self.subject.adapter_config['r']})"
        )

    def findings(self) -> Iterator[Finding]:
        config = self.subject.adapter_config
        rank = config.get("r")
        if self.subject.kind != "adapter" or config.get("peft_type") != "LORA":
            return
        if type(rank) is not int:
            return
        pattern = config.get("rank_pattern")
        other_ranks = pattern.values() if isinstance(pattern, dict) else ()
        # Which module a pattern means is peft's matter; any of its ranks is allowed anywhere.
        allowed = {rank, *(other for other in other_ranks if type(other) is int)}
        modules = group_low_rank_tensors(self.subject.tensors)
        different = [
            _rank_case(module, ranks)
            for module, ranks in self._ranks_of_modules(modules)
            if len(set(ranks.values())) > 1 or allowed.isdisjoint(ranks.values())
        ]
        if different:
            yield self.finding(
                f"{len(different):,} of {len(modules):,} modules have another rank than"
                f" adapter_config.json ({rank}): loading fails, or the adapter is scaled wrongly",
                "use the adapter_config.json that was saved with these tensors, or write their rank into r (and the"
                " run's lora_alpha)",
                cases=different,
                count=len(different),
                total=len(modules),
            )

    def _ranks_of_modules(
        self, modules: Mapping[str, Mapping[str, StoredTensor]]
    ) -> Iterator[tuple[str, dict[str, int]]]:
        """(module, rank of each of its factors): the rows of A, the columns of B."""
        # Experts that are adapted as parameters have the factors of all experts in one tensor.
        has_stacked_experts = bool(self.subject.adapter_config.get("target_parameters"))
        for module, parts in modules.items():
            if has_stacked_experts and "experts" in module:
                continue
            ranks = {
                name: tensor.shape[0 if name.endswith("_A") else 1]
                for name, tensor in parts.items()
                if name.endswith(("_A", "_B")) and len(tensor.shape) == 2
            }
            if ranks:
                yield module, ranks


def _rank_case(module: str, ranks: Mapping[str, int]) -> Case:
    """A module with the ranks of its factors."""
    listed = ", ".join(f"{name} has rank {rank}" for name, rank in ranks.items())
    return Case(f"{module}: {listed}")
