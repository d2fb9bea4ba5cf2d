"""Tensors have another shape than config.json says: they were saved while they were sharded.

## What it does
Looks for tensors without values, for flattened parameters, and compares the shapes of embedding, head, attention and
MLP with config.json, from the headers alone. A folder of ZeRO shards (`zero_to_fp32.py`) without weights is named
too.

## Why it is bad
Under ZeRO-3 or FSDP each process holds a part of each tensor. A script that saves without gathering writes empty
tensors or the part of one process. Loading fails, or, with `ignore_mismatched_sizes`, leaves these layers random.

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
Save with `trainer.save_model()` or `accelerator.get_state_dict(model)` and
`stage3_gather_16bit_weights_on_model_save: true`; ZeRO's own shards are put together by its `zero_to_fp32.py`.

## References
- huggingface/transformers#10789, huggingface/transformers#28510, deepspeedai/DeepSpeed#2413, hiyouga/LlamaFactory#477
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checkpoint.embedding_matrices import EMBEDDING_NAMES, HEAD_NAMES
from truetune.checkpoint.safetensors_header import StoredTensor
from truetune.checks.checkpoint.architecture import number
from truetune.checks.findings import Case, Finding
from truetune.checks.rule import CheckpointRule

FLAT = ("_flat_param", "_fsdp_wrapped_module")
DEEPEST = 2
"""Dots in the name of a model's own embedding or head; others belong to parts with another vocabulary"""
REMEDY = (
    "gather before saving (trainer.save_model, accelerator.get_state_dict), or run zero_to_fp32.py"
    " on the shards"
)


class Zero3ShardsSavedAsEmptyTensors(CheckpointRule):
    code = "CKP004"
    severity = "error"
    stability = "stable"
    since = "0.1.0"

    def figure(self) -> str:
        return (
            f"0 of {len(self.subject.tensors):,} tensors are empty, flattened or against the shapes"
            " of config.json"
        )

    def findings(self) -> Iterator[Finding]:
        found = self.subject
        if found.has("zero_to_fp32.py") and not found.weights.files and not found.weights.pickled:
            yield self.finding(
                "the folder holds ZeRO's shards and no weights of the whole model", REMEDY
            )
        bad = [(tensor, why) for tensor in found.tensors.values() if (why := self._why(tensor))]
        if not bad:
            return
        empty = sum(not tensor.items for tensor, _ in bad)
        what = f"{empty:,} are empty" if empty else bad[0][1]
        yield self.finding(
            f"{len(bad):,} of {len(found.tensors):,} tensors are not whole: {what}",
            REMEDY,
            evidence=[f"{found.size:,} bytes in all"],
            cases=[
                Case(f"{tensor.name} {list(tensor.shape)}: {why}", file=tensor.file.name)
                for tensor, why in bad
            ],
            count=len(bad),
            total=len(found.tensors),
        )

    def _why(self, tensor: StoredTensor) -> str | None:
        """Why a tensor is not a whole one; None where it is, or where config.json does not tell."""
        if not tensor.items:
            return "no values"
        if any(mark in tensor.name for mark in FLAT):
            return "a flattened parameter of FSDP"
        config = self.subject.config
        is_plain = tensor.dtype.startswith(("F", "BF")) and not config.get("quantization_config")
        # An adapter's matrices have the shapes of its rank, and quantized ones are packed.
        if self.subject.kind == "adapter" or not is_plain or not tensor.name.endswith(".weight"):
            return None
        hidden = number(config, "hidden_size", "n_embd", "d_model")
        if hidden and (why := self._why_as_vocabulary(tensor, hidden)) is not None:
            return why
        if len(tensor.shape) == 1 and tensor.name.endswith("_proj.weight"):
            return "a matrix is expected"
        is_text = not any(part in tensor.name for part in ("vis", "audio", "image"))
        wanted = self._attention(tensor.name, hidden) if hidden and is_text else None
        if wanted and len(tensor.shape) == 2 and tensor.shape != wanted:
            return f"config.json makes it {list(wanted)}"
        return None

    def _why_as_vocabulary(self, tensor: StoredTensor, hidden: int) -> str | None:
        """Why it is no whole embedding or head; None where it is one, or is something else."""
        if (
            not tensor.name.endswith((*EMBEDDING_NAMES, *HEAD_NAMES))
            or tensor.name.count(".") > DEEPEST
        ):
            return None
        if len(tensor.shape) != 2:
            return f"a matrix is expected, with rows of {hidden:,}"
        config = self.subject.config
        rows = number(config, "vocab_size") if "text_config" not in config else None
        if rows is not None and tensor.shape[0] < rows:
            return f"vocab_size is {rows:,}"
        return None

    def _attention(self, name: str, hidden: int) -> tuple[int, int] | None:
        """The shape of a projection, where config.json leaves no doubt (families of Llama's form)."""
        config = self.subject.config
        heads, size = number(config, "num_attention_heads"), number(config, "head_dim")
        kinds = ("llama", "mistral", "qwen2", "qwen3", "smollm3", "gemma", "gemma2")
        if config.get("model_type") not in kinds or not heads or "layers." not in name:
            return None
        groups = number(config, "num_key_value_heads") or heads
        size, wide = size or hidden // heads, number(config, "intermediate_size") or 0
        shapes = dict.fromkeys(("k_proj", "v_proj"), (groups * size, hidden))
        shapes |= {"q_proj": (heads * size, hidden), "o_proj": (hidden, heads * size)}
        if wide:
            shapes |= {
                "gate_proj": (wide, hidden),
                "up_proj": (wide, hidden),
                "down_proj": (hidden, wide),
            }
        return shapes.get(name.split(".")[-2])
