"""One of the model's weight files is the base's, while the others were trained.

## What it does
Compares the tensors with the base's, file by file. It warns if all tensors of one file, at least two matrices, equal
the base's bit by bit, while nearly all matrices of the other files changed.

## Why it is bad
The folder was prepared as a copy of the base, and the save, the download or the sync replaced only some of the files.
Such a model loads without a message: its first layers are tuned, its last ones are not, and it answers badly.

## Example
```yaml
shards:
  model-00001-of-00002.safetensors:
    model.layers.0.self_attn.q_proj.weight: {shape: [16, 16], add: 0.01}
    model.layers.0.self_attn.k_proj.weight: {shape: [16, 16], add: 0.01}
  model-00002-of-00002.safetensors:
    model.layers.1.self_attn.q_proj.weight: {shape: [16, 16]}
    model.layers.1.self_attn.k_proj.weight: {shape: [16, 16]}
files:
  model.safetensors.index.json:
    weight_map:
      model.layers.0.self_attn.q_proj.weight: model-00001-of-00002.safetensors
      model.layers.0.self_attn.k_proj.weight: model-00001-of-00002.safetensors
      model.layers.1.self_attn.q_proj.weight: model-00002-of-00002.safetensors
      model.layers.1.self_attn.k_proj.weight: model-00002-of-00002.safetensors
base:
  tensors:
    model.layers.0.self_attn.q_proj.weight: {shape: [16, 16]}
    model.layers.0.self_attn.k_proj.weight: {shape: [16, 16]}
    model.layers.1.self_attn.q_proj.weight: {shape: [16, 16]}
    model.layers.1.self_attn.k_proj.weight: {shape: [16, 16]}
```

## Use instead
```yaml
shards:
  model-00001-of-00002.safetensors:
    model.layers.0.self_attn.q_proj.weight: {shape: [16, 16], add: 0.01}
    model.layers.0.self_attn.k_proj.weight: {shape: [16, 16], add: 0.01}
  model-00002-of-00002.safetensors:
    model.layers.1.self_attn.q_proj.weight: {shape: [16, 16], add: 0.01}
    model.layers.1.self_attn.k_proj.weight: {shape: [16, 16], add: 0.01}
files:
  model.safetensors.index.json:
    weight_map:
      model.layers.0.self_attn.q_proj.weight: model-00001-of-00002.safetensors
      model.layers.0.self_attn.k_proj.weight: model-00001-of-00002.safetensors
      model.layers.1.self_attn.q_proj.weight: model-00002-of-00002.safetensors
      model.layers.1.self_attn.k_proj.weight: model-00002-of-00002.safetensors
base:
  tensors:
    model.layers.0.self_attn.q_proj.weight: {shape: [16, 16]}
    model.layers.0.self_attn.k_proj.weight: {shape: [16, 16]}
    model.layers.1.self_attn.q_proj.weight: {shape: [16, 16]}
    model.layers.1.self_attn.k_proj.weight: {shape: [16, 16]}
```

## Fix safety
Save the model again into an empty folder, or copy the missing files from where it was trained. If layers were frozen on
purpose, they may end where a file ends: then no change is needed.

## References
- NVIDIA/Model-Optimizer#2199
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.faults import Fault
from truetune.checks.findings import Case, Finding
from truetune.checks.judgement import Unmet
from truetune.checks.rule import CheckpointRule

MIN_MATRICES = 2
"""Matrices of a file that must all equal the base's: a file of an embedding alone is frozen often"""
# Chosen, not measured: a few matrices of trained files may stay by rounding in bfloat16.
MIN_MOVED_SHARE = 0.9
"""Share of the matrices of the other files that must have moved"""


class WeightFileIsTheBases(CheckpointRule):
    code = "CKP040"
    fault = Fault.SAVED_MODEL_IS_THE_BASE
    symptoms = ("garbage-output", "nothing-is-learned")
    severity = "warning"
    judges_changes = True
    kind = "model"
    compares = True

    def unmet(self) -> Unmet | None:
        unmet = super().unmet()
        if unmet is not None:
            return unmet
        if len(self._matrices_by_file()) < 2:
            return Unmet(
                "it is about weights in several files that can be compared with the base's"
            )
        return None

    def measurement_if_clean(self) -> str:
        """How many of the weight files hold a matrix that moved."""
        files = self._matrices_by_file()
        moved = sum(any(self._has_moved(name) for name in names) for names in files.values())
        return f"{moved:,} of {len(files):,} weight files contain a matrix that changed"

    def _matrices_by_file(self) -> dict[str, list[str]]:
        """File -> its matrices that can be compared with the base's."""
        files: dict[str, list[str]] = {}
        for name in self.subject.sampled_changes_from_base:
            tensor = self.subject.tensors[name]
            if len(tensor.shape) > 1:
                files.setdefault(tensor.file.name, []).append(name)
        return files

    def _has_moved(self, name: str) -> bool:
        """Does a value of a tensor differ from the base's?"""
        movement = self.subject.sampled_changes_from_base[name]
        return movement.same < movement.seen

    def findings(self) -> Iterator[Finding]:
        checkpoint, base = self.subject, self.subject.base
        if checkpoint.kind != "model" or base is None:
            return
        unmoved = self._unmoved_matrices_by_file()
        others = [
            name
            for file, names in self._matrices_by_file().items()
            for name in names
            if file not in unmoved
        ]
        moved = sum(map(self._has_moved, others))
        if not unmoved or not moved or moved < MIN_MOVED_SHARE * len(others):
            return
        shown = ", ".join(sorted(unmoved))
        count = sum(map(len, unmoved.values()))
        yield self.finding(
            f"all {count:,} matrices of {shown} equal those of {base.folder.name} bit by bit, while"
            f" {moved:,} of {len(others):,} in the other files changed",
            "save the model again into an empty folder, or copy these files from where it was trained; if these layers"
            " were frozen on purpose, no change is needed",
            cases=[
                Case(name, file=file) for file, names in sorted(unmoved.items()) for name in names
            ],
            count=count,
            total=count + len(others),
        )

    def _unmoved_matrices_by_file(self) -> dict[str, list[str]]:
        """File -> its matrices, for the files with several of which none has moved."""
        return {
            file: names
            for file, names in self._matrices_by_file().items()
            if len(names) >= MIN_MATRICES and not any(map(self._has_moved, names))
        }
