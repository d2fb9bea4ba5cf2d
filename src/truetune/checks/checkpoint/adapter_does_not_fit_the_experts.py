"""The adapter's tensors on experts are not those that its settings and its base ask for.

## What it does
For an adapter with `target_parameters`, looks at its tensors on the experts of each layer: whether each parameter that
the settings name has a pair of factors, and whether the factors are for as many experts as the base has.

## Why it is bad
One pair holds the factors of all experts of a layer. Without it, these parameters are served as they are in the base,
and only the others are adapted. A pair for another number of experts does not load, or is split between the wrong ones.

## Example
```yaml
adapter_config:
  peft_type: LORA
  base_model_name_or_path: some/model
  r: 2
  lora_alpha: 4
  target_modules: []
  target_parameters: [mlp.experts.gate_up_proj, mlp.experts.down_proj]
tensors:
  base_model.model.model.layers.0.mlp.experts.lora_A.weight: {shape: [8, 8]}
  base_model.model.model.layers.0.mlp.experts.lora_B.weight: {shape: [16, 8]}
```

## Use instead
```yaml
adapter_config:
  peft_type: LORA
  base_model_name_or_path: some/model
  r: 2
  lora_alpha: 4
  target_modules: []
  target_parameters: [mlp.experts.gate_up_proj]
tensors:
  base_model.model.model.layers.0.mlp.experts.lora_A.weight: {shape: [8, 8]}
  base_model.model.model.layers.0.mlp.experts.lora_B.weight: {shape: [16, 8]}
```

## Fix safety
Save the whole adapter again from the model in memory. What was lost on saving can't be made from the file.

## References
- unslothai/unsloth#6936, unslothai/unsloth#6930, vllm-project/vllm#52194
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from truetune.checkpoint.adapter_tensor_names import parse_adapter_tensors
from truetune.checkpoint.expert_adapter_delta import ExpertPair, find_expert_pairs
from truetune.checkpoint.expert_tensors import configured_expert_count
from truetune.checks.faults import Fault
from truetune.checks.findings import Case, Finding
from truetune.checks.judgement import Unmet
from truetune.checks.rule import CheckpointRule

EXPERTS = "experts"


class AdapterDoesNotFitTheExperts(CheckpointRule):
    code = "CKP063"
    fault = Fault.CHECKPOINT_INCOMPLETE
    symptoms = ("nothing-is-learned", "garbage-output")
    severity = "error"
    kind = "adapter"

    def unmet(self) -> Unmet | None:
        """Unmet where the settings name no parameter of experts."""
        unmet = super().unmet()
        if unmet is not None:
            return unmet
        return None if self._parameters() else Unmet("target_parameters names no experts")

    def measurement_if_clean(self) -> str:
        """How many pairs of factors are on experts."""
        return f"{len(self._pairs()):,} pairs of factors are on experts"

    def findings(self) -> Iterator[Finding]:
        names = self._parameters()
        if not names or self.subject.kind != "adapter":
            return
        pairs = self._pairs()
        if not pairs:
            yield self.finding(
                f"the settings name {', '.join(names)}, but the file has no tensors on experts",
                "save the whole adapter again (model.save_pretrained)",
                cases=[Case(f"target_parameters: {', '.join(names)}", file="adapter_config.json")],
            )
            return
        yield from self._finding_on_missing_pairs(names, pairs)
        yield from self._finding_on_other_count(pairs)

    def _parameters(self) -> list[str]:
        """The names in target_parameters that are of experts in all layers."""
        names = self.subject.adapter_config.get("target_parameters")
        names = names if isinstance(names, list) else []
        # With a number of a layer in it, a name means that layer alone.
        return [
            name
            for name in names
            if isinstance(name, str)
            and EXPERTS in name.split(".")
            and not any(part.isdecimal() for part in name.split("."))
        ]

    def _pairs(self) -> list[ExpertPair]:
        """The pairs of factors on experts."""
        checkpoint = self.subject
        return find_expert_pairs(
            parse_adapter_tensors(checkpoint.tensors), checkpoint.adapter_config
        )

    def _finding_on_missing_pairs(
        self, names: list[str], pairs: list[ExpertPair]
    ) -> Iterator[Finding]:
        """The finding on layers with fewer pairs than the settings name parameters."""
        wanted = len({name.rpartition(".")[2] for name in names})
        counts = Counter(pair.module for pair in pairs)
        lacking = [module for module, count in counts.items() if count < wanted]
        if lacking:
            yield self.finding(
                f"{lacking[0]} has {counts[lacking[0]]} of {wanted} pairs of factors that target_parameters asks for",
                "save the whole adapter again (model.save_pretrained)",
                cases=[Case(module) for module in lacking],
                count=len(lacking),
                total=len(counts),
            )

    def _finding_on_other_count(self, pairs: list[ExpertPair]) -> Iterator[Finding]:
        """The finding on factors for another number of experts than the base has."""
        base, rank = self.subject.base, self.subject.adapter_config.get("r")
        configured = configured_expert_count(base.config) if base is not None else None
        if configured is None or type(rank) is not int:
            return
        pattern = self.subject.adapter_config.get("rank_pattern")
        others = pattern.values() if isinstance(pattern, dict) else ()
        count = configured[1]
        allowed = {one * count for one in (rank, *others) if type(one) is int}
        wrong = [pair for pair in pairs if pair.a.shape[0] not in allowed]
        if wrong:
            yield self.finding(
                f"{wrong[0].module} has factors of {wrong[0].a.shape[0]:,} rows, but {count:,} experts of the base at"
                f" rank {rank} make {count * rank:,}: the adapter is for another number of experts",
                "use the base that the adapter was trained on, with the adapter_config.json that was saved with it",
                cases=[Case(f"{pair.a.name}: {list(pair.a.shape)}") for pair in wrong],
                count=len(wrong),
                total=len(pairs),
            )
