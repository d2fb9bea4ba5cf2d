"""The experts in the files are not those that config.json describes.

## What it does
Counts, in each layer of a mixture of experts, the experts that have tensors and the rows of the router, and compares
them with the number in config.json. It fires if no layer has experts, if some are missing or too many, if a router has
another number of rows, and, where no base is named, if several experts of a layer have the same values.

## Why it is bad
Loading fills experts that are missing with random numbers, and with `strict=False` or `ignore_mismatched_sizes` a
router of another size too; both pass with a warning among many. Converters have saved mixtures without any expert, or
the first one in all places. The model loads and answers nonsense, or as one expert does.

## Example
```yaml
llama: 1
config: {model_type: mixtral, num_local_experts: 4, num_experts_per_tok: 2}
tensors:
  model.layers.0.block_sparse_moe.gate.weight: {shape: [4, 8]}
  model.layers.0.block_sparse_moe.experts.0.w1.weight: {shape: [16, 8]}
  model.layers.0.block_sparse_moe.experts.1.w1.weight: {shape: [16, 8]}
```

## Use instead
```yaml
llama: 1
config: {model_type: mixtral, num_local_experts: 2, num_experts_per_tok: 1}
tensors:
  model.layers.0.block_sparse_moe.gate.weight: {shape: [2, 8]}
  model.layers.0.block_sparse_moe.experts.0.w1.weight: {shape: [16, 8]}
  model.layers.0.block_sparse_moe.experts.1.w1.weight: {shape: [16, 8]}
```

## Fix safety
Convert or save again. A dense model that was copied into a mixture (upcycling) has equal experts on purpose, until it
is trained.

## References
- NVIDIA/Megatron-LM#5844, kekzl/imp#1192, pjlab-sys4nlp/llama-moe#74
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from functools import cached_property

from truetune.checkpoint.compare_tensor_samples import sample_values
from truetune.checkpoint.expert_tensors import (
    ExpertLayer,
    ExpertTensors,
    configured_expert_count,
    find_expert_tensors,
)
from truetune.checkpoint.read_and_check_safetensors_header import StoredTensor
from truetune.checkpoint.summarise_floats_by_bits import NUMPY_TYPES
from truetune.checks.faults import Fault
from truetune.checks.findings import Case, Finding
from truetune.checks.judgement import Unmet
from truetune.checks.reasons_rules_cannot_judge import BROKEN
from truetune.checks.rule import CheckpointRule

NO_EXPERTS = Unmet("config.json describes no mixture of experts")
REMEDY = "convert or save the model again, from the one in memory; then count the experts with truetune check"
SAMPLED_STRETCHES = 4
"""Stretches of an expert's tensor that are compared: equal in all of them, by chance, they never are"""
SHOWN_EXPERTS = 8


class ExpertsDoNotFitConfig(CheckpointRule):
    code = "CKP061"
    fault = Fault.CHECKPOINT_INCOMPLETE
    symptoms = ("garbage-output",)
    severity = "error"
    kind = "model"

    def unmet(self) -> Unmet | None:
        """Unmet for broken files, and where config.json describes no experts."""
        unmet = super().unmet()
        if unmet is not None:
            return unmet
        if self.subject.faults:
            return BROKEN
        return None if configured_expert_count(self.subject.config) else NO_EXPERTS

    def measurement_if_clean(self) -> str:
        """In how many layers there are experts, and how many config.json says."""
        configured = configured_expert_count(self.subject.config)
        assert configured is not None, "else the rule is not judged"
        layers = len(self._experts.layers)
        return f"{layers:,} layers have experts, and {configured[0]} is {configured[1]:,}"

    def findings(self) -> Iterator[Finding]:
        configured = configured_expert_count(self.subject.config)
        if configured is None or self.subject.faults or not self.subject.tensors:
            return
        setting, count = configured
        if not self._experts.layers:
            yield from self._finding_on_no_expert(setting, count)
            return
        counts = list(self._finding_on_counts(setting, count))
        yield from counts
        # Where the experts are others, so is the router: one finding says it.
        if not counts:
            yield from self._finding_on_single_tensors()
            yield from self._finding_on_routers(setting, count)
            yield from self._finding_on_equal_experts()

    @cached_property
    def _experts(self) -> ExpertTensors:
        return find_expert_tensors(self.subject.tensors)

    def _finding_on_no_expert(self, setting: str, count: int) -> Iterator[Finding]:
        """The finding on a mixture without any expert: routers are there, and nothing to route to."""
        routers = self._experts.routers
        # Families that call their experts otherwise have no router of these names either.
        if not routers:
            return
        yield self.finding(
            f"no layer has tensors of experts, but config.json says {setting} {count:,}: loading fills them with random"
            " numbers",
            REMEDY,
            cases=[Case(f"{name} has a row for each expert") for name in routers],
            count=len(routers),
        )

    def _finding_on_counts(self, setting: str, count: int) -> Iterator[Finding]:
        """The finding on layers with another number of experts than config.json says."""
        wrong = {
            name: layer
            for name, layer in self._experts.layers.items()
            if layer.stored_counts() - {count}
        }
        if not wrong:
            return
        name, layer = next(iter(wrong.items()))
        present = min(layer.stored_counts() - {count})
        effect = (
            "loading fills the others with random numbers"
            if present < count
            else "the others are never read"
        )
        yield self.finding(
            f"{name} has {present:,} experts, but config.json says {setting} {count:,}: {effect}",
            f"{REMEDY}; or set {setting} to {present:,}, if experts were removed on purpose",
            cases=[Case(_describe_layer(one, wrong[one], count)) for one in wrong],
            count=len(wrong),
            total=len(self._experts.layers),
        )

    def _finding_on_single_tensors(self) -> Iterator[Finding]:
        """The finding on matrices that some experts of a layer lack, and on layers without a router."""
        missing = [*self._missing_matrices(), *self._missing_routers()]
        if not missing:
            return
        more = f", and {len(missing) - 1:,} more" if len(missing) > 1 else ""
        yield self.finding(
            f"tensors are missing: {missing[0]}{more}",
            REMEDY,
            cases=[Case(name) for name in missing],
            count=len(missing),
        )

    def _missing_matrices(self) -> Iterator[str]:
        """The matrices that some experts of a layer have and others lack."""
        for name, layer in self._experts.layers.items():
            for rest, tensors in layer.single.items():
                lacking = sorted(layer.numbers - tensors.keys())
                yield from (f"{name}.{expert}.{rest}" for expert in lacking)

    def _missing_routers(self) -> Iterator[str]:
        """The layers with experts and without a router, where other layers have one."""
        blocks = {name.rpartition(".")[0] for name in self._experts.layers}
        routers = self._experts.routers
        routed = {block for block in blocks if any(one.startswith(f"{block}.") for one in routers)}
        # Families that call their routers otherwise have none of these names in any layer.
        if routed:
            yield from (f"the router of {block}" for block in sorted(blocks - routed))

    def _finding_on_routers(self, setting: str, count: int) -> Iterator[Finding]:
        """The finding on routers with another number of rows than there are experts."""
        wrong = {
            name: tensor.shape
            for name, tensor in self._experts.routers.items()
            if name.endswith(".weight") and len(tensor.shape) == 2 and count not in tensor.shape
        }
        if not wrong:
            return
        name, shape = next(iter(wrong.items()))
        yield self.finding(
            f"{name} has {shape[0]:,} rows, but config.json says {setting} {count:,}",
            "take the router from the model that was trained, or correct the number of experts",
            cases=[Case(f"{one}: {list(rows)}") for one, rows in wrong.items()],
            count=len(wrong),
            total=len(self._experts.routers),
        )

    def _finding_on_equal_experts(self) -> Iterator[Finding]:
        """The finding on experts that are copies of each other, in the first and in the last layer."""
        # With a base, matrices-swapped-permuted-or-transposed compares each with it; packed numbers tell nothing.
        if self.subject.base is not None or self.subject.config.get("quantization_config"):
            return
        names = list(self._experts.layers)
        found = {name: self._equal_experts(name) for name in (names[0], names[-1])}
        if not all(found.values()):
            return
        name, equal = next(iter(found.items()))
        shown = ", ".join(map(str, equal[:SHOWN_EXPERTS]))
        yield self.finding(
            f"{len(equal):,} experts of {name} have the same values",
            f"{REMEDY}; nothing is wrong if a dense model was just copied into them",
            severity="warning",
            cases=[Case(f"{one}: experts {shown}") for one in found],
            count=len(equal),
        )

    def _equal_experts(self, name: str) -> list[int]:
        """The experts of a layer that have a copy among the others."""
        return _copies_among(self._experts.layers[name])


def _copies_among(layer: ExpertLayer) -> list[int]:
    """The experts that are stored one by one and have the values of another, in all of their matrices."""
    matrices = [tensors for tensors in layer.single.values() if _are_comparable(tensors)]
    if not matrices:
        return []
    values = {
        expert: tuple(
            sample_values(tensors[expert], SAMPLED_STRETCHES).tobytes()
            for tensors in matrices
            if expert in tensors
        )
        for expert in sorted(layer.numbers)
    }
    counts = Counter(values.values())
    return [expert for expert, sample in values.items() if counts[sample] > 1]


def _are_comparable(tensors: Mapping[int, StoredTensor]) -> bool:
    """Are these matrices of plain numbers, and not zero throughout, which another rule reports?"""
    first = next(iter(tensors.values()))
    is_plain = first.whole and first.dtype in NUMPY_TYPES and len(first.shape) == 2
    return is_plain and bool(sample_values(first, SAMPLED_STRETCHES).any())


def _describe_layer(name: str, layer: ExpertLayer, count: int) -> str:
    """Which experts of a layer are there, or how many one tensor holds."""
    missing = sorted(set(range(count)) - layer.numbers)
    if layer.numbers and missing:
        return f"{name}: experts {', '.join(map(str, missing[:SHOWN_EXPERTS]))} are missing"
    return f"{name}: {', '.join(f'{one:,}' for one in sorted(layer.stored_counts()))} experts"
