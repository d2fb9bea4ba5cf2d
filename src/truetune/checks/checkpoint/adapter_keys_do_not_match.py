"""The tensor names in the adapter file do not match the base model.

## What it does
Looks for names that peft does not load: without `base_model.model.`, with that prefix twice, with a wrapper's part
(`_orig_mod`, `module`, `_fsdp_wrapped_module`), or with the name of the adapter (`lora_A.default.weight`). If the base
is available, each adapted module must be one of the base's. It is info if the base only uses another name for the same
place and peft may map it. It is an error if no tensor fits, as with `model.layers` on a base that has
`model.language_model.layers`: peft then loads nothing. It also looks for tensors that adapter_config.json leaves out:
of modules that `target_modules` or `layers_to_transform` does not name, magnitudes without `use_dora`, biases without
`lora_bias`.

## Why it is bad
Tensors whose names match nothing are left out on loading, with a warning at most. The tuned model answers like its
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
Renaming the tensors is safe; the values are right. To avoid it next time, save from the unwrapped model
(`accelerator.unwrap_model(model)`).

## References
- huggingface/peft#1323, huggingface/peft#1678, huggingface/peft#2118, huggingface/peft#2566,
huggingface/transformers#34068
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from truetune.checkpoint.adapter_tensor_names import (
    PEFT_PREFIX,
    AdapterTensor,
    list_modules_and_parents,
    matches_target,
    parse_adapter_tensors,
)
from truetune.checks.checkpoint.find_layer_stacks_by_tensor_names import layer_number
from truetune.checks.faults import Fault
from truetune.checks.findings import Case, Finding
from truetune.checks.judgement import Unmet
from truetune.checks.reasons_rules_cannot_judge import NOT_LORA
from truetune.checks.rule import CheckpointRule

WRAPPERS = ("_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module", "_forward_module")
SHOWN_REASONS = 6
PART_SETTINGS = ("vision_config", "text_config", "audio_config")
"""Keys of config.json in models of several parts, whose layers have other names in other releases"""
NAMED_OTHERWISE = "the base names it"
"""How the reason begins where the base has the module under another name"""
# With peft 0.21 and transformers 5.23 (tiny Qwen2-VL, Qwen3-VL, Gemma 3, LLaVA): the first names fit all four whatever
# their files say, the second are mapped for Gemma 3 and LLaVA; `model.layers` and `language_model.layers` fit none.
LOADABLE_TEXT_PREFIXES = ("model.language_model.", "language_model.model.")
"""How the layers of the text part of a model of several parts may be named for peft to load them"""


class AdapterKeysDoNotMatch(CheckpointRule):
    code = "CKP006"
    fault = Fault.ADAPTER_PUT_ON_WRONG_BASE
    symptoms = ("garbage-output", "nothing-is-learned")
    severity = "error"
    stability = "stable"
    since = "0.1.0"
    judges_changes = True
    kind = "adapter"

    def unmet(self) -> Unmet | None:
        unmet = super().unmet()
        if unmet is not None:
            return unmet
        return NOT_LORA if self.subject.adapter_config.get("peft_type", "LORA") != "LORA" else None

    def measurement_if_clean(self) -> str:
        """How many tensors have names as peft loads them, and with which base they were compared."""
        count, base = len(parse_adapter_tensors(self.subject.tensors)), self.subject.base
        compared = "; no base was compared"
        if base is not None:
            compared = f", with modules of {base.folder.name}"
        return f"{count:,} of {count:,} tensors have names as peft loads them{compared}"

    def findings(self) -> Iterator[Finding]:
        checkpoint = self.subject
        is_lora = checkpoint.adapter_config.get("peft_type", "LORA") == "LORA"
        if checkpoint.kind != "adapter" or not is_lora or not checkpoint.tensors:
            return
        names = parse_adapter_tensors(checkpoint.tensors)
        misfits = list(self._unloaded_tensors(names))
        if not misfits:
            yield from self._finding_on_tensors_left_out_by_config(names)
            return
        is_unsure = _may_peft_map_names(misfits, len(names))
        remedy = (
            "rename them to base_model.model.MODULE.lora_A.weight (and lora_B), with the base's name for MODULE; next"
            " time save from accelerator.unwrap_model(model)"
        )
        evidence = []
        if len(misfits) == len(names) and misfits[0][1].startswith(NAMED_OTHERWISE):
            remedy = (
                "rename them to the base's names, or load the base with the class that it was trained with"
                " (AutoModelForCausalLM), merge there (truetune merge) and use the merged model"
            )
            evidence = ["no tensor fits: the base with this adapter answers like the base alone"]
        yield self.finding(
            f"{len(misfits):,} of {len(names):,} tensors of the adapter have names that peft does not load:"
            f" {misfits[0][1]}",
            remedy,
            severity="info" if is_unsure else "error",
            evidence=evidence,
            cases=[
                Case(f"{piece.tensor.name}: {reason}", file=piece.tensor.file.name)
                for piece, reason in misfits
            ],
            count=len(misfits),
            total=len(names),
        )

    def _finding_on_tensors_left_out_by_config(
        self, names: Sequence[AdapterTensor]
    ) -> Iterator[Finding]:
        """The finding on tensors that peft does not load because of a setting in adapter_config.json."""
        config = self.subject.adapter_config
        left_out = [
            (piece, reason)
            for piece in names
            if (reason := _why_config_leaves_out(piece, config)) is not None
        ]
        if not left_out:
            return
        reasons = list(dict.fromkeys(reason for _, reason in left_out))
        yield self.finding(
            f"{len(left_out):,} of {len(names):,} tensors of the adapter are left out on loading:"
            f" adapter_config.json says {reasons[0]}",
            "take adapter_config.json from the run that made the tensors, or correct these settings in it",
            evidence=reasons[1:SHOWN_REASONS],
            cases=[
                Case(f"{piece.tensor.name}: {reason}", file=piece.tensor.file.name)
                for piece, reason in left_out
            ],
            count=len(left_out),
            total=len(names),
        )

    def _unloaded_tensors(
        self, names: Iterable[AdapterTensor]
    ) -> Iterator[tuple[AdapterTensor, str]]:
        """Tensors that peft does not load, each with the reason."""
        base = self.subject.base
        modules = (
            list_modules_and_parents(base.tensors) if base is not None and base.tensors else None
        )
        for piece in names:
            reason = _why_name_does_not_load(piece)
            if reason is None and modules is not None:
                reason = self._why_not_in_base(piece, modules)
            if reason is not None:
                yield piece, reason

    def _why_not_in_base(self, piece: AdapterTensor, modules: set[str]) -> str | None:
        """Why its module is none of the base's; None where it is one, or where that can't be told."""
        base = self.subject.base
        if base is None or not piece.part or piece.module in modules:
            return None
        # Experts have names of their own in each release, and what stands outside the layers may be tied or renamed.
        if "experts" in piece.module.split(".") or layer_number(piece.module) is None:
            return None
        if self._is_in_base_without_prefix(piece.module, modules):
            return None
        other = None
        if any(part in base.config for part in PART_SETTINGS):
            other = _base_module_at_same_place(piece.module, modules)
        return f"{NAMED_OTHERWISE} {other}" if other else f"the base has no {piece.module}"

    def _is_in_base_without_prefix(self, module: str, modules: set[str]) -> bool:
        """Is a module in the base but for the model's own prefix?

        Files of some bases leave it out (GPT-2).
        """
        parts = module.split(".")
        if any(".".join(parts[i:]) in modules for i in (1, 2)):
            return True
        is_headless = self.subject.adapter_config.get("task_type") in (None, "FEATURE_EXTRACTION")
        return is_headless and f"model.{module}" in modules


def _may_peft_map_names(misfits: list[tuple[AdapterTensor, str]], count: int) -> bool:
    """May peft load these tensors of an adapter of `count` all the same, as it maps names of other releases?"""
    if not all(reason.startswith(NAMED_OTHERWISE) for _, reason in misfits):
        return False
    # Where some fit, the names are those of this release, and the others belong to a part with names of its own.
    if len(misfits) < count:
        return True
    return any(piece.module.startswith(LOADABLE_TEXT_PREFIXES) for piece, _ in misfits)


def _base_module_at_same_place(module: str, modules: set[str]) -> str | None:
    """A module of the base at the same place in a layer of the same number; None where there is none."""
    place = module.partition("layers.")[2]
    if not place:
        return None
    return next((name for name in modules if name.endswith(f"layers.{place}")), None)


def _why_config_leaves_out(piece: AdapterTensor, config: Mapping[str, Any]) -> str | None:
    """The setting of adapter_config.json for which peft makes no place for a tensor; None where it makes one."""
    if not piece.part.startswith("lora_"):
        return None
    if piece.part == "lora_magnitude_vector" and config.get("use_dora") is False:
        return "use_dora is false, but the file has the magnitudes of DoRA"
    if piece.rest.endswith("bias") and config.get("lora_bias") is False:
        return "lora_bias is false, but the file has biases of the pairs"
    return _why_module_is_no_target(piece.module, config)


def _why_module_is_no_target(module: str, config: Mapping[str, Any]) -> str | None:
    """The setting of adapter_config.json that leaves a module out; None where it is a target, or that is not known."""
    targets = config.get("target_modules")
    # A pattern, or parameters instead of modules, are matched by peft in other ways.
    if not isinstance(targets, list) or not targets or config.get("target_parameters"):
        return None
    names = [name for name in targets if isinstance(name, str)]
    if not any(matches_target(module, name) for name in names):
        return f"target_modules is {names}, but the file has pairs of {_last_part(module)}"
    layers, layer = _layers_to_transform(config), layer_number(module)
    if layers and layer is not None and layer not in layers:
        return f"layers_to_transform is {layers}, but the file has pairs of layer {layer}"
    return None


def _layers_to_transform(config: Mapping[str, Any]) -> list[Any]:
    """The numbers of the layers that adapter_config.json chooses; empty where it takes all."""
    layers = config.get("layers_to_transform")
    if type(layers) is int:
        return [layers]
    return layers if isinstance(layers, list) else []


def _last_part(module: str) -> str:
    return module.rpartition(".")[2]


def _why_name_does_not_load(piece: AdapterTensor) -> str | None:
    """Why peft does not load a tensor of this name, whatever the base; None where it does."""
    name = piece.tensor.name
    parts = name.split(".")
    if not name.startswith(PEFT_PREFIX):
        return f"{name} does not begin with {PEFT_PREFIX}"
    if name.startswith(PEFT_PREFIX * 2):
        return f"{PEFT_PREFIX} occurs twice in it"
    wrapper = next((part for part in (*WRAPPERS, "module") if part in parts), None)
    if wrapper:
        return f"{wrapper} is the name of a wrapper"
    inner = piece.rest.split(".")[0]
    # peft takes the adapter's name out when it saves; it stands there after torch.save of a state dict.
    if piece.part.startswith("lora_") and inner not in ("", "weight", "bias"):
        return f"it contains the adapter's name, {inner}"
    return None
