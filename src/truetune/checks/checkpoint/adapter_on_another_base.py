"""The adapter was trained on another base model.

## What it does
Compares the adapter with the base that is given (else with the one that adapter_config.json names): the sizes of each
pair with the module's; the embedding that peft saved along with that of the base; and the digests of
`base_fingerprint.json`, where truetune wrote one. Names nobody: `base_model_name_or_path` is empty.

## Why it is bad
A base of the same shape takes the adapter without a word (base and instruct model, another revision). The answers are
plausible and worse.

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
Load the adapter on the base that it was trained on, and note its revision in adapter_config.json (`revision`).

## References
- artidoro/qlora#28
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import PurePath

import numpy as np

from truetune.checkpoint.adapter_tensor_names import (
    BASE_LAYER,
    FACTOR_NAMES,
    find_replaced_tensors,
    group_low_rank_tensors,
    parse_adapter_tensor,
)
from truetune.checkpoint.base_fingerprint import FINGERPRINT_FILE, compare_fingerprint
from truetune.checkpoint.embedding_matrices import EMBEDDING_NAMES, HEAD_NAMES, TokenMatrix
from truetune.checkpoint.float_formats import NUMPY_TYPES
from truetune.checkpoint.load_checkpoint import Checkpoint
from truetune.checkpoint.weight_files import read_object
from truetune.checks.findings import Finding
from truetune.checks.rule import CheckpointRule

ROWS = 512
ALIKE = 0.5
"""Cosine of a row before and after training, of half of the rows at least"""


class AdapterOnAnotherBase(CheckpointRule):
    code = "CKP009"
    severity = "error"
    stability = "stable"
    since = "0.1.0"
    judges_changes = True
    kind = "adapter"
    compares = True
    opens = False

    def figure(self) -> str:
        base = self.subject.base
        assert base is not None
        pairs = group_low_rank_tensors(self.subject.tensors)
        sized = sum(f"{module}.weight" in base.tensors for module in pairs)
        record = (
            "" if self.subject.has(FINGERPRINT_FILE) else "; no digests of the base were recorded"
        )
        return (
            f"{sized:,} of {len(pairs):,} adapted modules have the sizes of"
            f" {base.folder.name}{record}"
        )

    def findings(self) -> Iterator[Finding]:
        found = self.subject
        if found.kind != "adapter":
            return
        named = found.adapter_config.get("base_model_name_or_path")
        if found.adapter_config and not named:
            yield self.finding(
                "adapter_config.json does not name the base model",
                "write base_model_name_or_path (and revision) into adapter_config.json",
                severity="warning" if found.base is None else "info",
            )
        if found.base is None:
            return
        proofs = [*self._recorded(found.base), *self._sizes(found.base), *self._rows(found.base)]
        if proofs:
            yield self.finding(
                f"the adapter was not trained on {found.base.folder.name}: {proofs[0]}",
                "load it on the base that it was trained on",
                evidence=[*proofs[1:10], f"adapter_config.json names {named or 'no base'}"],
                count=len(proofs),
            )
        elif named and found.base_name and _last(str(named)) != _last(found.base_name):
            yield self.finding(
                f"adapter_config.json names the base {named}, this one is {found.base_name}",
                "make sure that both are the same weights; shapes alone can't tell",
                severity="info",
            )

    def _recorded(self, base: Checkpoint) -> Iterator[str]:
        record = read_object(self.subject.folder / FINGERPRINT_FILE, [])
        if record is not None:
            texts, compared = compare_fingerprint(record, base)
            for text in texts:
                yield f"{text} ({len(texts):,} of {compared:,} recorded tensors differ)"

    def _sizes(self, base: Checkpoint) -> Iterator[str]:
        """A module of (out, in) takes lora_A (r, in) and lora_B (out, r)."""
        for module, parts in group_low_rank_tensors(self.subject.tensors).items():
            weight = base.tensors.get(f"{module}.weight")
            pair = [parts.get(name) for name in FACTOR_NAMES[0]]
            if (
                weight is None
                or weight.dtype not in NUMPY_TYPES
                or len(weight.shape) != 2
                or None in pair
            ):
                continue
            a, b = (part.shape for part in pair if part is not None)
            if len(a) == len(b) == 2 and sorted((b[0], a[1])) != sorted(weight.shape):
                yield (
                    f"{module} is {list(weight.shape)} in the base, the adapter is for [{b[0]},"
                    f" {a[1]}]"
                )

    def _rows(self, base: Checkpoint) -> Iterator[str]:
        """Whole matrices that peft saved beside the pairs: most rows stay as they were, or near."""
        copies = {
            parse_adapter_tensor(t).whole: t
            for name, t in self.subject.tensors.items()
            if f".{BASE_LAYER}.weight" in name
        }
        for name, tensor in {**find_replaced_tensors(self.subject.tensors), **copies}.items():
            other = base.tensors.get(name)
            if (
                other is None
                or not name.endswith((*EMBEDDING_NAMES, *HEAD_NAMES))
                or {tensor.dtype, other.dtype} - NUMPY_TYPES.keys()
            ):
                continue
            if tensor.shape[1:] != other.shape[1:]:
                yield (
                    f"{name} has rows of {other.shape[1:]} in the base and {tensor.shape[1:]} in"
                    " the adapter"
                )
                continue
            count = min(tensor.shape[0], other.shape[0])
            ids = np.unique(np.linspace(0, count - 1, num=min(ROWS, count)).astype(np.int64))
            a, b = TokenMatrix(tensor).rows(ids), TokenMatrix(other).rows(ids)
            if (a == b).all(axis=1).any():
                continue
            cosine = (a * b).sum(axis=1) / np.maximum(
                np.linalg.norm(a, axis=1) * np.linalg.norm(b, axis=1), 1e-30
            )
            if float(np.median(cosine)) < ALIKE:
                yield (
                    f"no row of {name} is as in the base (median cosine"
                    f" {float(np.median(cosine)):.2f})"
                )


def _last(name: str) -> str:
    return PurePath(name.rstrip("/")).name.lower()
