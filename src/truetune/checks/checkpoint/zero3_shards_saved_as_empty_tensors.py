"""Tensors have other shapes than in config.json: they were saved while they were sharded.

## What it does
Looks for tensors without values and for flattened parameters, and compares the shapes of embedding, head, attention and
MLP with config.json. It reads only the headers. A folder with ZeRO shards (`zero_to_fp32.py`) and no weights is
reported too.

## Why it is bad
With ZeRO-3 or FSDP, each process has only a part of each tensor. A script that saves without gathering writes empty
tensors or the part of one process. Loading fails, or leaves these layers random with `ignore_mismatched_sizes`.

## Example
```yaml
llama: 2
tensors:
  model.layers.0.mlp.up_proj.weight: {shape: [0]}
```

## Use instead
```yaml
llama: 2
```

## Fix safety
Save with `trainer.save_model()` or `accelerator.get_state_dict(model)` and `stage3_gather_16bit_weights_on_model_save:
true`. Gathering needs host memory for the whole model. ZeRO's own shards are joined by its `zero_to_fp32.py`, which
changes no value.

## References
- huggingface/transformers#10789, huggingface/transformers#28510, deepspeedai/DeepSpeed#2413, hiyouga/LlamaFactory#477
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checkpoint.find_input_embedding_and_output_head import EMBEDDING_NAMES, HEAD_NAMES
from truetune.checkpoint.read_and_check_safetensors_header import StoredTensor
from truetune.checks.checkpoint.read_text_part_of_model_config import (
    first_positive_text_model_setting,
)
from truetune.checks.faults import Fault
from truetune.checks.findings import Case, Finding
from truetune.checks.rule import CheckpointRule

FLAT_MARKS = ("_flat_param", "_fsdp_wrapped_module")
# Dots in the name of a model's own embedding or head (`model.embed_tokens.weight`); deeper ones belong to parts with
# another vocabulary.
MAX_DOTS = 2
FAMILIES_OF_LLAMA_FORM = ("llama", "mistral", "qwen2", "qwen3", "smollm3", "gemma", "gemma2")
"""Values of `model_type` whose projections have the shapes that config.json gives, without exceptions"""
NAMES_OF_OTHER_PARTS = ("vis", "audio", "image")
REMEDY = (
    "gather before saving (trainer.save_model, or accelerator.get_state_dict, with"
    " stage3_gather_16bit_weights_on_model_save: true), or run zero_to_fp32.py on the shards"
)


class Zero3ShardsSavedAsEmptyTensors(CheckpointRule):
    code = "CKP004"
    fault = Fault.SHARDED_WEIGHTS_SAVED_EMPTY
    symptoms = ("garbage-output", "several-gpus")
    severity = "error"
    stability = "stable"
    since = "0.1.0"

    def measurement_if_clean(self) -> str:
        """That no tensor is empty, flattened or against the shapes of config.json, of how many."""
        return (
            f"0 of {len(self.subject.tensors):,} tensors are empty, flattened or against the shapes"
            " of config.json"
        )

    def findings(self) -> Iterator[Finding]:
        checkpoint = self.subject
        weights = checkpoint.weights
        if checkpoint.has_file("zero_to_fp32.py") and not weights.files and not weights.pickled:
            yield self.finding(
                "the folder contains ZeRO's shards but not the weights of the whole model", REMEDY
            )
        partial = []
        for tensor in checkpoint.tensors.values():
            reason = self._why_not_whole(tensor)
            if reason is not None:
                partial.append((tensor, reason))
        if not partial:
            return
        empty = sum(not tensor.value_count for tensor, _ in partial)
        fault = f"{empty:,} {'is' if empty == 1 else 'are'} empty" if empty else partial[0][1]
        yield self.finding(
            f"{len(partial):,} of {len(checkpoint.tensors):,} tensors are incomplete: {fault}",
            REMEDY,
            evidence=[f"{checkpoint.total_tensor_bytes:,} bytes in all"],
            cases=[
                Case(f"{tensor.name} {list(tensor.shape)}: {reason}", file=tensor.file.name)
                for tensor, reason in partial
            ],
            count=len(partial),
            total=len(checkpoint.tensors),
        )

    def _why_not_whole(self, tensor: StoredTensor) -> str | None:
        """Why a tensor is not a whole one; None where it is, or where config.json does not tell."""
        if not tensor.value_count:
            return "no values"
        if any(mark in tensor.name for mark in FLAT_MARKS):
            return "a flattened parameter of FSDP"
        if not self._is_plain_weight(tensor):
            return None
        hidden = first_positive_text_model_setting(
            self.subject.config, "hidden_size", "n_embd", "d_model"
        )
        reason = self._why_no_whole_embedding_or_head(tensor, hidden) if hidden else None
        if reason is not None:
            return reason
        if len(tensor.shape) == 1 and tensor.name.endswith("_proj.weight"):
            return "a matrix is expected"
        return self._why_no_whole_projection(tensor, hidden) if hidden else None

    def _is_plain_weight(self, tensor: StoredTensor) -> bool:
        """Is a tensor a plain weight of a model?

        An adapter's have the shapes of its rank, and quantized ones are packed.
        """
        is_quantized = bool(self.subject.config.get("quantization_config"))
        is_plain = tensor.dtype.startswith(("F", "BF")) and not is_quantized
        return self.subject.kind != "adapter" and is_plain and tensor.name.endswith(".weight")

    def _why_no_whole_projection(self, tensor: StoredTensor, hidden: int) -> str | None:
        """Why it has not the shape of its projection; None where it has, or where no shape is known."""
        if any(part in tensor.name for part in NAMES_OF_OTHER_PARTS) or len(tensor.shape) != 2:
            return None
        expected = self._shape_of_projection(tensor.name, hidden)
        if not expected or tensor.shape == expected:
            return None
        return f"config.json says {list(expected)}"

    def _why_no_whole_embedding_or_head(self, tensor: StoredTensor, hidden: int) -> str | None:
        """Why it is no whole embedding or head; None where it is one, or is something else."""
        is_of_tokens = tensor.name.endswith((*EMBEDDING_NAMES, *HEAD_NAMES))
        if not is_of_tokens or tensor.name.count(".") > MAX_DOTS:
            return None
        if len(tensor.shape) != 2:
            return f"a matrix is expected, with rows of {hidden:,}"
        config = self.subject.config
        rows = (
            first_positive_text_model_setting(config, "vocab_size")
            if "text_config" not in config
            else None
        )
        if rows is not None and tensor.shape[0] < rows:
            return f"vocab_size is {rows:,}"
        return None

    def _shape_of_projection(self, name: str, hidden: int) -> tuple[int, int] | None:
        """The shape of a projection, where config.json leaves no doubt (families of Llama's form)."""
        config = self.subject.config
        heads = first_positive_text_model_setting(config, "num_attention_heads")
        is_known = config.get("model_type") in FAMILIES_OF_LLAMA_FORM
        if not is_known or not heads or "layers." not in name:
            return None
        # Without grouped heads there is no setting for them; head_dim is left out where it divides evenly.
        groups = first_positive_text_model_setting(config, "num_key_value_heads") or heads
        size = first_positive_text_model_setting(config, "head_dim") or hidden // heads
        shapes = {
            "k_proj": (groups * size, hidden),
            "v_proj": (groups * size, hidden),
            "q_proj": (heads * size, hidden),
            "o_proj": (hidden, heads * size),
        }
        inner = first_positive_text_model_setting(config, "intermediate_size")
        if inner:
            shapes["gate_proj"] = (inner, hidden)
            shapes["up_proj"] = (inner, hidden)
            shapes["down_proj"] = (hidden, inner)
        return shapes.get(name.split(".")[-2])
