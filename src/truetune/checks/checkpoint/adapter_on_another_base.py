"""The adapter was trained on another base model.

## What it does
Compares the adapter with the base that is given (else with the one that adapter_config.json names): the sizes of each
pair with the module's, the embedding that peft saved with that of the base, and the digests in `base_fingerprint.json`,
if truetune wrote one. An empty `base_model_name_or_path` is a warning, or info if a base is given. If it names another
model than the one that is given, and that model is on this machine too, samples of the weights of both are compared:
other values are a warning. Another name alone is info.

## Why it is bad
A base of the same shape loads the adapter without a message (base and instruct model, another revision). The answers
are plausible and worse.

## Example
```yaml
lora: [q_proj]
base:
  llama: 2
  tensors:
    model.layers.0.self_attn.q_proj.weight: {shape: [24, 16]}
```

## Use instead
```yaml
lora: [q_proj]
base: {llama: 2}
```

## Fix safety
Load the adapter on the base that it was trained on, and write its `revision` into adapter_config.json. This changes no
weight.

## References
- artidoro/qlora#28
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import PurePath
from typing import NamedTuple

import numpy as np

from truetune.checkpoint.adapter_tensor_names import (
    BASE_LAYER,
    FACTOR_NAMES,
    find_replacement_tensors,
    group_low_rank_tensors,
    parse_adapter_tensor,
)
from truetune.checkpoint.base_fingerprint import (
    FINGERPRINT_FILE,
    base_differences_and_compared_count,
)
from truetune.checkpoint.compare_tensor_samples import SampledChange, compare_sampled_tensors
from truetune.checkpoint.find_input_embedding_and_output_head import (
    EMBEDDING_NAMES,
    HEAD_NAMES,
    TokenMatrix,
)
from truetune.checkpoint.load_checkpoint import Checkpoint, find_model_folder, is_checkpoint
from truetune.checkpoint.read_and_check_safetensors_header import StoredTensor
from truetune.checkpoint.read_weight_files_and_faults import (
    read_json_object,
    read_weight_headers,
)
from truetune.checkpoint.summarise_floats_by_bits import NUMPY_TYPES
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.rule import CheckpointRule

# Rows of a matrix that are compared, spread over the vocabulary. Chosen for speed; fewer would miss the rows that
# training left as they were.
MAX_COMPARED_ROWS = 512
# Median cosine of a row with the base's. Chosen, not measured: training turns rows by some hundredths, rows of two
# models are at right angles (0). At 0.25 a sister model would pass, at 0.9 an embedding that was trained hard would
# not.
MIN_COSINE = 0.5
SHOWN_PROOFS = 10
# Chosen for speed: a training changes nearly all of them, so that any few show it.
MAX_COMPARED_MATRICES = 64
# bfloat16 has 8 bits of a fraction: rounding to it moves a value by 2 ** -9 of itself at most.
ROUNDING_TO_16_BITS = 2.0**-8
"""Change of a matrix, over its size, that two formats of the same weights may have"""


class DifferingWeights(NamedTuple):
    """How two models differ that go by different names."""

    folder: str
    """Of the one that the adapter names"""
    name: str
    """Of the matrix that differs most"""
    change: float
    """Root mean square of its difference, over that of the matrix"""
    differing: int
    """Matrices that differ"""
    compared: int


class AdapterOnAnotherBase(CheckpointRule):
    code = "CKP009"
    fault = Fault.ADAPTER_PUT_ON_WRONG_BASE
    severity = "error"
    stability = "stable"
    since = "0.1.0"
    judges_changes = True
    kind = "adapter"
    compares = True
    opens = False

    def measurement_if_clean(self) -> str:
        """How many adapted modules have the sizes of the base, and whether digests of it were recorded."""
        base = self.subject.base
        assert base is not None
        pairs = group_low_rank_tensors(self.subject.tensors)
        sized = sum(f"{module}.weight" in base.tensors for module in pairs)
        record = (
            ""
            if self.subject.has_file(FINGERPRINT_FILE)
            else "; no digests of the base were recorded"
        )
        return (
            f"{sized:,} of {len(pairs):,} adapted modules have the sizes of"
            f" {base.folder.name}{record}"
        )

    def findings(self) -> Iterator[Finding]:
        checkpoint = self.subject
        if checkpoint.kind != "adapter":
            return
        named = checkpoint.adapter_config.get("base_model_name_or_path")
        if checkpoint.adapter_config and not named:
            yield self.finding(
                "adapter_config.json does not name the base model",
                "write base_model_name_or_path (and revision) into adapter_config.json",
                severity="warning" if checkpoint.base is None else "info",
            )
        base = checkpoint.base
        if base is None:
            return
        proofs = [
            *self._evidence_of_differing_digests(base),
            *self._evidence_of_unfitting_sizes(base),
            *self._evidence_of_unlike_saved_matrices(base),
        ]
        if proofs:
            yield self.finding(
                f"the adapter was not trained on {base.folder.name}: {proofs[0]}",
                "load it on the base that it was trained on (base_model_name_or_path and revision in its"
                " adapter_config.json), or train it again on this one",
                evidence=[
                    *proofs[1:SHOWN_PROOFS],
                    f"adapter_config.json names {named or 'no base'}",
                ],
                count=len(proofs),
            )
            return
        base_name = checkpoint.base_name
        differing = _weights_unlike_named_base(checkpoint, base)
        if differing is not None:
            yield self._finding_on_other_weights(str(named), base, differing)
            return
        # A note: the same weights are found under several names.
        if named and base_name and _own_name_of_model(str(named)) != _own_name_of_model(base_name):
            yield self.finding(
                f"adapter_config.json names the base {named}, but this one is {base_name}",
                "check that both have the same weights (truetune movement A --base B); equal shapes do not show it",
                severity="info",
            )

    def _finding_on_other_weights(
        self, named: str, base: Checkpoint, differing: DifferingWeights
    ) -> Finding:
        """The finding on a base that is given, while the one that the adapter names has other weights."""
        return self.finding(
            f"adapter_config.json names the base {named}, and {base.folder.name} has other weights: what {named} had"
            " learned is missing below the adapter",
            f"use the base that adapter_config.json names: --base {differing.folder}; or merge the adapter that made"
            f" {named} first",
            severity="warning",
            evidence=[
                f"{differing.differing:,} of {differing.compared:,} matrices that the adapter changes differ between"
                f" {base.folder.name} and {differing.folder}",
                f"{differing.name}: they are {differing.change:.2%} of its size apart",
            ],
            count=differing.differing,
            total=differing.compared,
        )

    def _evidence_of_differing_digests(self, base: Checkpoint) -> Iterator[str]:
        """Evidence: tensors of the base whose digests are not those that truetune wrote down in
        training.
        """
        record = read_json_object(self.subject.folder / FINGERPRINT_FILE, [])
        if record is not None:
            texts, compared = base_differences_and_compared_count(record, base)
            for text in texts:
                yield f"{text} ({len(texts):,} of {compared:,} recorded tensors differ)"

    def _evidence_of_unfitting_sizes(self, base: Checkpoint) -> Iterator[str]:
        """Evidence: modules whose sizes do not fit their pair.

        One of (out, in) takes lora_A (r, in) and lora_B (out, r).
        """
        for module, parts in group_low_rank_tensors(self.subject.tensors).items():
            weight = base.tensors.get(f"{module}.weight")
            factors = [parts[name].shape for name in FACTOR_NAMES[0] if name in parts]
            # Quantized weights are packed, and have other shapes than their module.
            if weight is None or weight.dtype not in NUMPY_TYPES or len(factors) != 2:
                continue
            if any(len(shape) != 2 for shape in (weight.shape, *factors)):
                continue
            (_, columns), (rows, _) = factors
            # Sorted: GPT-2's Conv1D stores its matrices transposed.
            if sorted((rows, columns)) != sorted(weight.shape):
                yield (
                    f"{module} is {list(weight.shape)} in the base, but the adapter is for [{rows},"
                    f" {columns}]"
                )

    def _evidence_of_unlike_saved_matrices(self, base: Checkpoint) -> Iterator[str]:
        """Evidence: whole matrices that peft saved beside the pairs, and whose rows are far from
        the base's.

        In training most rows stay as they were, or near.
        """
        copies = {
            parse_adapter_tensor(tensor).whole: tensor
            for name, tensor in self.subject.tensors.items()
            if f".{BASE_LAYER}.weight" in name
        }
        for name, tensor in {**find_replacement_tensors(self.subject.tensors), **copies}.items():
            other = base.tensors.get(name)
            if other is None or not name.endswith((*EMBEDDING_NAMES, *HEAD_NAMES)):
                continue
            if {tensor.dtype, other.dtype} - NUMPY_TYPES.keys():
                continue
            if tensor.shape[1:] != other.shape[1:]:
                yield (
                    f"{name} has rows of {other.shape[1:]} in the base but {tensor.shape[1:]} in"
                    " the adapter"
                )
                continue
            cosine = _median_row_cosine(tensor, other)
            if cosine is not None and cosine < MIN_COSINE:
                yield f"no row of {name} is like the base's (median cosine {cosine:.2f})"


def _is_more_than_rounding(change: SampledChange, *, is_same_type: bool) -> bool:
    """Do values of two tensors differ by more than their types make them differ?"""
    return change.same < change.seen and (is_same_type or change.change > ROUNDING_TO_16_BITS)


def _weights_unlike_named_base(adapter: Checkpoint, base: Checkpoint) -> DifferingWeights | None:
    """How the given base differs from the one that the adapter names; None where that is not here, or no other.

    Only matrices that the adapter changes are compared: a vocabulary may have grown on the way.
    """
    named = adapter.adapter_config.get("base_model_name_or_path")
    folder = find_model_folder(named, adapter.folder) if isinstance(named, str) and named else None
    if folder is None or folder.resolve() == base.folder.resolve() or not is_checkpoint(folder):
        return None
    other = read_weight_headers(folder, adapter=False).tensors
    wanted = [f"{module}.weight" for module in group_low_rank_tensors(adapter.tensors)]
    wanted = wanted[:: max(1, len(wanted) // MAX_COMPARED_MATRICES)]
    tensors = {name: base.tensors[name] for name in wanted if name in base.tensors}
    changes = compare_sampled_tensors(tensors, other)
    differing = {
        name: change
        for name, change in changes.items()
        if _is_more_than_rounding(change, is_same_type=tensors[name].dtype == other[name].dtype)
    }
    if not differing:
        return None
    name = max(differing, key=lambda one: differing[one].change)
    return DifferingWeights(str(folder), name, differing[name].change, len(differing), len(changes))


def _median_row_cosine(tensor: StoredTensor, other: StoredTensor) -> float | None:
    """The median cosine of rows of two matrices of one width; None where a row is the same in both."""
    count = min(tensor.shape[0], other.shape[0])
    places = np.linspace(0, count - 1, num=min(MAX_COMPARED_ROWS, count))
    ids = np.unique(places.astype(np.int64))
    rows, other_rows = TokenMatrix(tensor).rows(ids), TokenMatrix(other).rows(ids)
    # Rows of tokens that no training row holds get no gradient: one equal row proves the base.
    if (rows == other_rows).all(axis=1).any():
        return None
    lengths = np.linalg.norm(rows, axis=1) * np.linalg.norm(other_rows, axis=1)
    # Rows of padding are zero; 1e-30 only keeps them from a division by 0.
    cosines = (rows * other_rows).sum(axis=1) / np.maximum(lengths, 1e-30)
    return float(np.median(cosines))


def _own_name_of_model(name: str) -> str:
    """The model's own name, without its namespace or folder."""
    return PurePath(name.rstrip("/")).name.lower()
