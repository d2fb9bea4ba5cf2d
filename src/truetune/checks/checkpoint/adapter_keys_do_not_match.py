"""The names in the adapter file do not fit the base model.

## What it does
Looks for names that peft does not load: without `base_model.model.`, with that prefix twice, with a wrapper's part
(`_orig_mod`, `module`, `_fsdp_wrapped_module`), or with the name of the adapter (`lora_A.default.weight`). Where the
base is at hand, each adapted module must be one of the base's.

## Why it is bad
Tensors whose names fit nothing are left out on loading, with a warning at most. The tuned model answers like its
base.

## Example
```yaml
lora: [q_proj]
tensors:
  base_model.model._orig_mod.model.layers.0.self_attn.q_proj.lora_A.weight: {shape: [4, 16]}
  base_model.model._orig_mod.model.layers.0.self_attn.q_proj.lora_B.weight: {shape: [16, 4]}
base: {llama: 2}
```

## Use instead
```yaml
lora: [q_proj]
base: {llama: 2}
```

## Fix safety
Renaming the tensors is safe; the values are right. Save from the unwrapped model (`accelerator.unwrap_model(model)`),
so that it does not come back.

## References
- huggingface/peft#1323, huggingface/peft#1678, huggingface/peft#2118, huggingface/peft#2566,
huggingface/transformers#34068
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checkpoint.adapter_tensor_names import (
    PEFT_PREFIX,
    AdapterTensor,
    list_modules,
    parse_adapter_tensors,
)
from truetune.checks.checkpoint.layers import layer_of
from truetune.checks.findings import Case, Finding
from truetune.checks.judgement import Unmet
from truetune.checks.rule import CheckpointRule
from truetune.checks.unmet_reasons import NOT_LORA

WRAPPERS = ("_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module", "_forward_module")
PARTS = ("vision_config", "text_config", "audio_config")


class AdapterKeysDoNotMatch(CheckpointRule):
    code = "CKP006"
    severity = "error"
    stability = "stable"
    since = "0.1.0"
    judges_changes = True
    kind = "adapter"

    def unmet(self) -> Unmet | None:
        if unmet := super().unmet():
            return unmet
        return NOT_LORA if self.subject.adapter_config.get("peft_type", "LORA") != "LORA" else None

    def figure(self) -> str:
        count, base = len(parse_adapter_tensors(self.subject.tensors)), self.subject.base
        against = (
            f", with modules of {base.folder.name}"
            if base is not None
            else "; no base was compared"
        )
        return f"{count:,} of {count:,} tensors have names as peft loads them{against}"

    def findings(self) -> Iterator[Finding]:
        found = self.subject
        if (
            found.kind != "adapter"
            or found.adapter_config.get("peft_type", "LORA") != "LORA"
            or not found.tensors
        ):
            return
        base = (
            list_modules(found.base.tensors)
            if found.base is not None and found.base.tensors
            else None
        )
        names = parse_adapter_tensors(found.tensors)
        odd = [
            (piece, why)
            for piece in names
            if (why := self._why(piece) or self._unknown(piece, base))
        ]
        if not odd:
            return
        unsure = all(why.startswith("the base names it") for _, why in odd)
        yield self.finding(
            f"{len(odd):,} of {len(names):,} tensors of the adapter have names that do not fit:"
            f" {odd[0][1]}",
            "rename them to base_model.model.MODULE.lora_A.weight, with the modules of the base",
            severity="info" if unsure else "error",
            cases=[
                Case(f"{piece.tensor.name}: {why}", file=piece.tensor.file.name)
                for piece, why in odd
            ],
            count=len(odd),
            total=len(names),
        )

    def _why(self, piece: AdapterTensor) -> str | None:
        name = piece.tensor.name
        parts = name.split(".")
        if not name.startswith(PEFT_PREFIX):
            return f"it does not begin with {PEFT_PREFIX}"
        if name.startswith(PEFT_PREFIX * 2):
            return f"{PEFT_PREFIX} stands there twice"
        wrapper = next((part for part in (*WRAPPERS, "module") if part in parts), None)
        if wrapper:
            return f"{wrapper} is a wrapper's name"
        inner = piece.rest.split(".")[0]
        if piece.part.startswith("lora_") and inner not in ("", "weight", "bias"):
            return f"it holds the adapter's name, {inner}"
        return None

    def _unknown(self, piece: AdapterTensor, base: set[str] | None) -> str | None:
        """Is its module none of the base's? Files of some bases leave out the model's own prefix (GPT-2)."""
        if base is None or self.subject.base is None or not piece.part or piece.module in base:
            return None
        parts = piece.module.split(".")
        shorter = any(".".join(parts[i:]) in base for i in (1, 2))
        headless = self.subject.adapter_config.get("task_type") in (None, "FEATURE_EXTRACTION")
        if (
            "experts" in parts
            or layer_of(piece.module) is None
            or shorter
            or (headless and f"model.{piece.module}" in base)
        ):
            return None
        tail = piece.module.partition("layers.")[2]
        several = any(part in self.subject.base.config for part in PARTS)
        other = (
            next((name for name in base if tail and name.endswith(f"layers.{tail}")), None)
            if several
            else None
        )
        return f"the base names it {other}" if other else f"the base has no {piece.module}"
