"""Tensors are missing that the architecture needs.

## What it does
In a model: names that a wrapper or an adapter has left its mark on, layers that lack what most other layers have
(first and last may go without a norm), gaps in their numbers, fewer layers than `num_hidden_layers`, no input
embedding, and tensors that the base has in the same stacks and this checkpoint has not.
In an adapter: a `lora_A` without its `lora_B` or the other way round, and, where the base is at hand, modules that
`target_modules` names and that have no tensors.

## Why it is bad
What is missing is filled with random numbers on loading, with a warning at most. An adapter without one half of a
pair has no effect there.

## Example
```yaml
llama: 3
tensors:
  model.layers.1.mlp.up_proj.weight: null
```

## Use instead
```yaml
llama: 3
```

## Fix safety
Save again from the model in memory. Do not load with `ignore_mismatched_sizes` or `strict=False`.

## References
- huggingface/transformers#26259, huggingface/transformers#10789, hiyouga/LlamaFactory#477
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from truetune.checkpoint.adapter_tensor_names import group_low_rank_tensors
from truetune.checkpoint.embedding_matrices import HEAD_NAMES
from truetune.checkpoint.safetensors_header import StoredTensor
from truetune.checks.checkpoint.adapted import half_pairs, unadapted
from truetune.checks.checkpoint.architecture import makes_text, number, setting
from truetune.checks.checkpoint.layers import stacks
from truetune.checks.findings import Case, Finding
from truetune.checks.judgement import Unmet
from truetune.checks.rule import CheckpointRule
from truetune.checks.unmet_reasons import BROKEN

SHARED = ("k_proj", "v_proj", "k_norm", "v_norm")
"""What layers leave out that take the keys and values of an earlier layer"""
MARKS = re.compile(
    r"^(?:_orig_mod|module|_forward_module|base_model\.model)\.|\.(?:lora_[AB]|base_layer)\."
)
"""What torch.compile, DDP, Lightning and peft put into names"""
BUFFERS = ("inv_freq", "attn.bias", "masked_bias", "rotary_emb")
EMBEDDING = ("emb", "wte", "shared.weight")
"""Parts of the names that families give to their input embedding"""
REMEDY = "save again from the model in memory; loading would fill the rest with random numbers"


class TensorsMissing(CheckpointRule):
    code = "CKP005"
    severity = "error"
    stability = "stable"
    since = "0.1.0"

    def unmet(self) -> Unmet | None:
        if unmet := super().unmet():
            return unmet
        if self.subject.faults:
            return BROKEN
        quantized = self.subject.kind == "model" and self.subject.config.get("quantization_config")
        return Unmet("the model is quantized") if quantized else None

    def figure(self) -> str:
        found = self.subject
        if found.kind == "adapter":
            return f"{len(group_low_rank_tensors(found.tensors)):,} adapted modules have both halves of their pairs"
        layers = max((len(stack.layers) for stack in stacks(found.tensors)), default=0)
        said = number(found.config, "num_hidden_layers")
        against = (
            f"num_hidden_layers is {said:,}" if said else "config.json names no number of layers"
        )
        return f"{len(found.tensors):,} tensors in {layers:,} layers; {against}"

    def findings(self) -> Iterator[Finding]:
        found = self.subject
        if found.faults or not found.tensors:
            return
        halves, missing = (
            (list(half_pairs(found)), list(unadapted(found)))
            if found.kind == "adapter"
            else ([], [])
        )
        if halves:
            message = (
                f"{len(halves):,} adapted modules have one half of their pair only: they have no"
                " effect"
            )
            yield self.finding(message, REMEDY, cases=halves, count=len(halves))
        if missing:
            message = (
                f"{len(missing):,} modules of the base fit target_modules and have no tensors in"
                " the adapter"
            )
            remedy = "compare the names in the run with those of the base; save the whole adapter"
            yield self.finding(
                message, remedy, severity="warning", cases=missing, count=len(missing)
            )
        marked = [name for name in found.tensors if found.kind == "model" and MARKS.search(name)]
        if marked:
            message = (
                f"{len(marked):,} names are those of a wrapper or an adapter, which no loader"
                f" takes: {marked[0]}"
            )
            remedy = (
                "save the model itself (accelerator.unwrap_model), adapters merged"
                " (merge_and_unload)"
            )
            yield self.finding(
                message, remedy, cases=[Case(name) for name in marked], count=len(marked)
            )
        elif found.kind == "model" and not found.config.get("quantization_config"):
            lost = list(dict.fromkeys((*self._by_layers(), *self._by_base())))
            if lost:
                cases = [Case(text) for text in lost]
                message = f"tensors are missing: {lost[0]}" + (
                    f", and {len(lost) - 1:,} more" if lost[1:] else ""
                )
                yield self.finding(message, REMEDY, cases=cases, count=len(lost))

    def _by_layers(self) -> Iterator[str]:
        found = self.subject
        shares = bool(setting(found.config, "num_kv_shared_layers"))
        here = stacks(found.tensors)
        for stack in here:
            for first, last in stack.gaps():
                to = f" to {last:,}" if last > first else ""
                yield f"{stack.prefix}.{first}{to} (the whole layer)"
            ends = (min(stack.layers), max(stack.layers))
            for i, names in stack.poor().items():
                for name in sorted(names):
                    shared = shares and any(part in name for part in SHARED)
                    if not shared and not (i in ends and "norm" in name):
                        yield f"{stack.prefix}.{i}.{name}"
        layers = number(found.config, "num_hidden_layers")
        most = max((max(stack.layers) + 1 for stack in here), default=0)
        if layers is not None and 0 < most < layers:
            yield f"layers {most:,} to {layers - 1:,} (num_hidden_layers is {layers:,})"
        if makes_text(found.config) and not any(
            self._embeds(tensor) for tensor in found.tensors.values()
        ):
            yield "the input embedding"

    def _embeds(self, tensor: StoredTensor) -> bool:
        """Can it be an input embedding: by its name, or by its rows, as long as it is no head?"""
        rows = number(self.subject.config, "vocab_size")
        tall = rows is not None and len(tensor.shape) == 2 and tensor.shape[0] >= rows
        return any(mark in tensor.name for mark in EMBEDDING) or (
            tall and not tensor.name.endswith(HEAD_NAMES)
        )

    def _by_base(self) -> Iterator[str]:
        found, base = self.subject, self.subject.base
        if base is None or base.config.get("quantization_config"):
            return
        layers = number(found.config, "num_hidden_layers") or 1 << 20
        prefixes = {stack.prefix for stack in stacks(found.tensors)}
        for stack in stacks(base.tensors):
            for i, names in stack.layers.items() if stack.prefix in prefixes else ():
                for name in sorted(names):
                    full = f"{stack.prefix}.{i}.{name}"
                    if full not in found.tensors and i < layers and not name.endswith(BUFFERS):
                        yield full
