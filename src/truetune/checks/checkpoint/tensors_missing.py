"""Tensors that the architecture needs are missing.

## What it does
In a model, it looks for

- tensor names that contain the mark of a wrapper or an adapter;
- layers that lack what most other layers have (first and last may lack a norm), and gaps in the layer numbers;
- fewer layers than `num_hidden_layers`, or no input embedding;
- tensors that the base has in the same layers and this checkpoint has not.

In an adapter, it looks for a `lora_A` without its `lora_B` or the other way round, and for the magnitudes or biases
that `use_dora` and `lora_bias` in adapter_config.json call for. If the base is available, modules
that `target_modules` names and that have no tensors are a warning.

## Why it is bad
What is missing is filled with random numbers on loading, with a warning at most. If one half of a pair is missing in an
adapter, the pair has no effect.

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
Save again from the model in memory. Loading with `ignore_mismatched_sizes` or `strict=False` only hides it.

## References
- huggingface/transformers#26259, huggingface/transformers#10789, hiyouga/LlamaFactory#477
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from truetune.checkpoint.adapter_tensor_names import group_low_rank_tensors
from truetune.checkpoint.find_input_embedding_and_output_head import HEAD_NAMES
from truetune.checkpoint.read_and_check_safetensors_header import StoredTensor
from truetune.checks.checkpoint.find_layer_stacks_by_tensor_names import Stack, find_stacks
from truetune.checks.checkpoint.find_missing_adapter_tensors import (
    NO_LAYER_LIMIT,
    list_modules_with_half_pair,
    list_parts_that_settings_call_for,
    list_unadapted_modules,
)
from truetune.checks.checkpoint.read_text_part_of_model_config import (
    first_positive_text_model_setting,
    first_set_text_model_setting,
    has_text_output_head,
)
from truetune.checks.faults import Fault
from truetune.checks.findings import Case, Finding
from truetune.checks.judgement import Unmet
from truetune.checks.reasons_rules_cannot_judge import BROKEN
from truetune.checks.rule import CheckpointRule

SHARED_PARTS = ("k_proj", "v_proj", "k_norm", "v_norm")
"""What layers leave out that take the keys and values of an earlier layer"""
WRAPPER_MARKS = re.compile(
    r"^(?:_orig_mod|module|_forward_module|base_model\.model)\.|\.(?:lora_[AB]|base_layer)\."
)
"""What torch.compile, DDP, Lightning and peft put into names"""
BUFFERS = ("inv_freq", "attn.bias", "masked_bias", "rotary_emb")
EMBEDDING_PARTS = ("emb", "wte", "shared.weight")
"""Parts of the names that families give to their input embedding"""
REMEDY = "save again from the model in memory; otherwise loading fills the missing tensors with random numbers"


class TensorsMissing(CheckpointRule):
    code = "CKP005"
    fault = Fault.CHECKPOINT_INCOMPLETE
    severity = "error"
    stability = "stable"
    since = "0.1.0"

    def unmet(self) -> Unmet | None:
        unmet = super().unmet()
        if unmet is not None:
            return unmet
        if self.subject.faults:
            return BROKEN
        # Quantized files hold other tensors for a matrix: packed values, scales, zeros.
        if self.subject.kind == "model" and self.subject.config.get("quantization_config"):
            return Unmet("the model is quantized")
        return None

    def measurement_if_clean(self) -> str:
        """The numbers of tensors and layers, beside config.json; of an adapter, the modules with both halves."""
        checkpoint = self.subject
        if checkpoint.kind == "adapter":
            count = len(group_low_rank_tensors(checkpoint.tensors))
            return f"{count:,} adapted modules have both halves of their pairs"
        stacks = find_stacks(checkpoint.tensors)
        layers = max((len(stack.layers) for stack in stacks), default=0)
        configured = first_positive_text_model_setting(checkpoint.config, "num_hidden_layers")
        expected = "config.json names no number of layers"
        if configured:
            expected = f"num_hidden_layers is {configured:,}"
        return f"{len(checkpoint.tensors):,} tensors in {layers:,} layers; {expected}"

    def findings(self) -> Iterator[Finding]:
        checkpoint = self.subject
        if checkpoint.faults or not checkpoint.tensors:
            return
        if checkpoint.kind == "adapter":
            yield from self._findings_on_incomplete_adapter()
        elif checkpoint.kind == "model":
            marked = [name for name in checkpoint.tensors if WRAPPER_MARKS.search(name)]
            # Under other names nothing else can be found.
            if marked:
                yield self._finding_on_wrapper_names(marked)
            elif not checkpoint.config.get("quantization_config"):
                yield from self._finding_on_missing_model_tensors()

    def _findings_on_incomplete_adapter(self) -> Iterator[Finding]:
        """The findings on halves of pairs, and on modules that target_modules names."""
        halves = list(list_modules_with_half_pair(self.subject))
        if halves:
            yield self.finding(
                f"{len(halves):,} adapted modules have only one half of their pair, so they have no"
                " effect",
                REMEDY,
                cases=halves,
                count=len(halves),
            )
        for setting, part in list_parts_that_settings_call_for(self.subject):
            yield self.finding(
                f"adapter_config.json says {setting}, but the file has no {part}: they start from nothing on loading,"
                " so that the adapter acts otherwise than in training",
                "save the whole adapter again (model.save_pretrained), or correct the setting",
            )
        unadapted = list(list_unadapted_modules(self.subject))
        if unadapted:
            yield self.finding(
                f"{len(unadapted):,} modules of the base match target_modules but have no tensors in"
                " the adapter",
                "compare the module names in the run with those of the base, and save the whole adapter"
                " (model.save_pretrained)",
                severity="warning",
                cases=unadapted,
                count=len(unadapted),
            )

    def _finding_on_wrapper_names(self, marked: list[str]) -> Finding:
        """The finding on names that torch.compile, DDP or peft has left its mark on."""
        return self.finding(
            f"{len(marked):,} tensor names contain the mark of a wrapper or an adapter, and no loader"
            f" reads them: {marked[0]}",
            "save the model itself: accelerator.unwrap_model(model).save_pretrained(FOLDER), with adapters merged first"
            " (merge_and_unload)",
            cases=[Case(name) for name in marked],
            count=len(marked),
        )

    def _finding_on_missing_model_tensors(self) -> Iterator[Finding]:
        """The finding on tensors that the layers, config.json or the base say must be there."""
        missing = list(dict.fromkeys((*self._missing_by_layers(), *self._missing_by_base())))
        if not missing:
            return
        more = f", and {len(missing) - 1:,} more" if len(missing) > 1 else ""
        yield self.finding(
            f"tensors are missing: {missing[0]}{more}",
            REMEDY,
            cases=[Case(text) for text in missing],
            count=len(missing),
        )

    def _missing_by_layers(self) -> Iterator[str]:
        """What the layers themselves and config.json show to be missing."""
        checkpoint = self.subject
        stacks = find_stacks(checkpoint.tensors)
        for stack in stacks:
            for first, last in stack.missing_number_ranges():
                to_last = f" to {last:,}" if last > first else ""
                yield f"{stack.prefix}.{first}{to_last} (the whole layer)"
            yield from self._missing_in_stack(stack)
        layers = first_positive_text_model_setting(checkpoint.config, "num_hidden_layers")
        present = max((max(stack.layers) + 1 for stack in stacks), default=0)
        if layers is not None and 0 < present < layers:
            yield f"layers {present:,} to {layers - 1:,} (num_hidden_layers is {layers:,})"
        has_embedding = any(map(self._may_be_embedding, checkpoint.tensors.values()))
        if has_text_output_head(checkpoint.config) and not has_embedding:
            yield "the input embedding"

    def _missing_in_stack(self, stack: Stack) -> Iterator[str]:
        """Tensors that some layers of a stack lack and most have, but for those that families leave out."""
        shares_keys = bool(
            first_set_text_model_setting(self.subject.config, "num_kv_shared_layers")
        )
        first_and_last = (min(stack.layers), max(stack.layers))
        for i, names in stack.incomplete_layers().items():
            for name in sorted(names):
                is_shared = shares_keys and any(part in name for part in SHARED_PARTS)
                is_optional_norm = i in first_and_last and "norm" in name
                if not is_shared and not is_optional_norm:
                    yield f"{stack.prefix}.{i}.{name}"

    def _may_be_embedding(self, tensor: StoredTensor) -> bool:
        """May a tensor be an input embedding, by its name, or by its number of rows if it is no
        head?
        """
        if any(part in tensor.name for part in EMBEDDING_PARTS):
            return True
        rows = first_positive_text_model_setting(self.subject.config, "vocab_size")
        if rows is None or len(tensor.shape) != 2 or tensor.name.endswith(HEAD_NAMES):
            return False
        return tensor.shape[0] >= rows

    def _missing_by_base(self) -> Iterator[str]:
        """Tensors of layers that the base has in the same stacks."""
        checkpoint, base = self.subject, self.subject.base
        if base is None or base.config.get("quantization_config"):
            return
        prefixes = {stack.prefix for stack in find_stacks(checkpoint.tensors)}
        for stack in find_stacks(base.tensors):
            if stack.prefix not in prefixes:
                continue
            for name in self._expected_tensors_of_stack(stack):
                if name not in checkpoint.tensors:
                    yield name

    def _expected_tensors_of_stack(self, stack: Stack) -> Iterator[str]:
        """The tensors of a stack of the base that this checkpoint should have too."""
        # Pruned models have fewer layers than their base, and their config.json says so.
        layers = (
            first_positive_text_model_setting(self.subject.config, "num_hidden_layers")
            or NO_LAYER_LIMIT
        )
        for i, names in stack.layers.items():
            # Buffers are computed on loading; releases differ in whether they save them.
            weights = sorted(name for name in names if not name.endswith(BUFFERS))
            if i < layers:
                yield from (f"{stack.prefix}.{i}.{name}" for name in weights)
