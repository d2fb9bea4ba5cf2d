"""A merge leaves out a layer at the end of a slice.

## What it does
Reads the slices of mergekit's YAML. It fires if a slice begins one layer after the end of the slice before it
(`[0, 15]` and `[16, 32]`), and if the last slice ends one layer before that of the published model (`[0, 31]` of 32
layers), whose number of layers is known by its name.

## Why it is bad
The end of `layer_range` is not part of it, as in Python: `[0, 15]` are the layers 0 to 14. The merged model lacks a
layer, loads without an error, and its answers are worse than those of each model in it.

## Example
```yaml
config:
  slices:
    - sources: [{model: mistralai/Mistral-7B-Instruct-v0.3, layer_range: [0, 15]}]
    - sources: [{model: ./my-mistral-sft, layer_range: [16, 32]}]
  merge_method: passthrough
  dtype: bfloat16
```

## Use instead
```yaml
config:
  slices:
    - sources: [{model: mistralai/Mistral-7B-Instruct-v0.3, layer_range: [0, 16]}]
    - sources: [{model: ./my-mistral-sft, layer_range: [16, 32]}]
  merge_method: passthrough
  dtype: bfloat16
```

## Fix safety
The merged model gets a layer more. Leave it if you prune that layer on purpose.

## References
- mergekit, README, "Merge Configuration" (`layer_range`); its examples take `[0, 32]` of a model of 32 layers
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

from truetune.checks.config.evidence.parts_of_merge import MergedModel, slices_of_merge
from truetune.checks.config.evidence.setting_places_and_known_keys import setting_case
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.judgement import Unmet
from truetune.checks.rule import ConfigRule
from truetune.memory.published_model_shapes import published_config


class MergeSkipsALayer(ConfigRule):
    code = "CFG260"
    fault = Fault.MODEL_USED_WITH_OTHER_SETTINGS
    symptoms = ("garbage-output",)
    severity = "warning"
    stacks = ("mergekit",)

    def unmet(self) -> Unmet | None:
        """Also unmet where whole models are merged."""
        if (lacking := super().unmet()) is not None:
            return lacking
        is_sliced = any(
            source.layers for sources in slices_of_merge(self.subject) for source in sources
        )
        return None if is_sliced else Unmet("it is about merges of slices")

    def measurement_if_clean(self) -> str:
        """How many slices follow each other."""
        return f"slices: {len(slices_of_merge(self.subject))}"

    def findings(self) -> Iterator[Finding]:
        """The findings on slices that end a layer before the next one, and on a last one that leaves out a layer."""
        slices = [sources for sources in slices_of_merge(self.subject) if sources]
        if self.unmet() is not None or not slices:
            return
        for before, behind in pairwise(slices):
            end, begin = before[0].layers, behind[0].layers
            if end is not None and begin is not None and begin[0] == end[1] + 1:
                yield self._finding(before[0], end[1], f"the next slice begins at {begin[0]}")
        yield from self._findings_on_last_slice(slices[-1])

    def _findings_on_last_slice(self, sources: Sequence[MergedModel]) -> Iterator[Finding]:
        """The finding on the first source of the last slice whose model has one layer more."""
        for source in sources:
            published = published_config(source.name) if source.layers else None
            if source.layers is None or published is None:
                continue
            count = published["num_hidden_layers"]
            if count == source.layers[1] + 1:
                yield self._finding(source, source.layers[1], f"the model has {count} layers")
                return

    def _finding(self, source: MergedModel, end: int, why: str) -> Finding:
        """The finding on a slice that ends a layer too early."""
        return self.finding(
            f"layer_range ends at {end}, which is not part of it, and {why}: layer {end} is left out of the merge",
            f"set the end of layer_range to {end + 1}",
            cases=[
                setting_case(
                    self.subject, source.table.get("layer_range"), f"{source.key}.layer_range"
                )
            ],
        )
