"""An adapter holds nothing: no tensors, or products that are zero.

## What it does
Counts the tensors of an adapter, and those modules whose `lora_A` or `lora_B` is zero throughout, so that their
product is zero. An `adapter_model.bin` of less than 1 kB is an empty pickle.

## Why it is bad
The tuned model is the base model. It happens when the file is saved before training, or when a script overrides
`model.state_dict`, so that the adapter is filtered away when it is saved.

## Example
```yaml
lora: [q_proj]
tensors:
  base_model.model.model.layers.0.self_attn.q_proj.lora_B.weight: {fill: zero}
  base_model.model.model.layers.1.self_attn.q_proj.lora_B.weight: {fill: zero}
```

## Use instead
```yaml
lora: [q_proj]
```

## Fix safety
Remove the assignment to `model.state_dict` and save with `model.save_pretrained` after training. The trained weights
are lost; checkpoints of the same run may still hold them.

## References
- tloen/alpaca-lora#293, tloen/alpaca-lora#334, tloen/alpaca-lora#446, artidoro/qlora#44,
huggingface/transformers#24551
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checkpoint.adapter_tensor_names import FACTOR_NAMES, group_low_rank_tensors
from truetune.checkpoint.safetensors_header import StoredTensor
from truetune.checks.findings import Case, Finding
from truetune.checks.judgement import Unmet
from truetune.checks.rule import CheckpointRule
from truetune.checks.unmet_reasons import BROKEN

SMALL = 1024
"""Bytes: a pickle of no tensors has about 440."""
REMEDY = "save with model.save_pretrained after training, without an override of model.state_dict"


class AdapterFileEmpty(CheckpointRule):
    code = "CKP003"
    severity = "error"
    stability = "stable"
    since = "0.1.0"
    judges_changes = True
    kind = "adapter"
    opens = False

    def unmet(self) -> Unmet | None:
        if unmet := super().unmet():
            return unmet
        if self.subject.faults:
            return BROKEN
        if not self.subject.tensors:
            return Unmet(
                "the weights are a pickle, which is not opened", "save them as safetensors"
            )
        return None if self._pairs() else Unmet("no tensor of it is of a low-rank pair")

    def figure(self) -> str:
        return f"lora_A or lora_B is zero in 0 of {len(self._pairs()):,} adapted modules"

    def _pairs(self) -> list[tuple[str, list[StoredTensor]]]:
        """The module and the tensors of each pair."""
        return [
            (module, [part for name in pair if (part := parts.get(name)) is not None])
            for module, parts in group_low_rank_tensors(self.subject.tensors).items()
            for pair in FACTOR_NAMES
            if any(name in parts for name in pair)
        ]

    def findings(self) -> Iterator[Finding]:
        found = self.subject
        if found.kind != "adapter" or found.faults:
            return
        small = {name: size for name, size in found.weights.pickled.items() if size < SMALL}
        if found.tensors:
            yield from self._zero()
        elif small or not found.weights.pickled:
            files = {**found.weights.files, **small}
            what = ", ".join(f"{name} has {size:,} bytes" for name, size in files.items())
            yield self.finding(
                f"the adapter holds no tensor: {what or 'there is no file with weights'}", REMEDY
            )

    def _zero(self) -> Iterator[Finding]:
        values = self.subject.values
        pairs = self._pairs()
        dead = [
            (module, tensor)
            for module, tensors in pairs
            for tensor in tensors
            if tensor.name in values and values[tensor.name].zero
        ]
        if not dead:
            return
        count = len({module for module, _ in dead})
        every = count == len(pairs)
        zero = sorted(
            {
                "lora_A" if "_A" in tensor.name.rsplit("lora_", 1)[1] else "lora_B"
                for _, tensor in dead
            }
        )
        yield self.finding(
            f"{' and '.join(zero)} is zero in {'all ' if every else f'{count:,} of '}{len(pairs):,}"
            f" adapted modules: {'the adapter does' if every else 'they do'} nothing",
            (
                REMEDY
                if every
                else "find out why these modules got no gradient: they may never be called"
            ),
            severity="error" if every else "warning",
            cases=[
                Case(f"{part.name} {list(part.shape)} is all zero", file=part.file.name)
                for _, part in dead
            ],
            count=count,
            total=len(pairs),
        )
