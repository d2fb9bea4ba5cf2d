"""config.json describes another model than the weights.

## What it does
Compares config.json with the names and formats of the tensors. It fires if

- the file has more layers than `num_hidden_layers` says;
- the layers have tensors that a model of this `model_type` does not read (biases of Qwen2 under `llama`, norms of
  queries and keys under `qwen2`), or lack some that it has;
- `quantization_config` names a method, but the file has none of its scales, or the matrices are whole numbers or
  8-bit floats, and no `quantization_config` says how to read them;
- quantize_config.json beside it gives another number of bits, size of groups or order than `quantization_config`;
- the scales of 8-bit matrices are all one;
- it describes a Gemma 2 whose soft caps are null (a warning).

Model types whose layers are not known here are judged by the number of layers and the quantization alone.

## Why it is bad
Loaders build the model from config.json. Tensors that it does not name are left out, and those that are missing are
filled with random numbers, with a warning at most. It happens when config.json is copied from another model, when a
converter knows only one architecture, or when weights are merged and the settings of the quantized base stay.

## Example
```yaml
llama: 3
config: {num_hidden_layers: 2}
```

## Use instead
```yaml
llama: 3
config: {num_hidden_layers: 3}
```

## Fix safety
Correcting config.json is safe: it changes no weight.

## References
- huggingface/transformers#26259, ggml-org/llama.cpp#8519, unslothai/unsloth#1062
- transformers, the classes of each `model_type` (their tensors on the meta device)
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from truetune.checkpoint.compare_tensor_samples import map_tensor_into_memory
from truetune.checkpoint.read_and_check_safetensors_header import StoredTensor
from truetune.checkpoint.read_weight_files_and_faults import read_json_object
from truetune.checkpoint.summarise_floats_by_bits import NUMPY_TYPES, to_float32
from truetune.checks.checkpoint.find_layer_stacks_by_tensor_names import Stack, find_stacks
from truetune.checks.checkpoint.read_text_part_of_model_config import (
    first_positive_text_model_setting,
)
from truetune.checks.checkpoint.tensors_missing import WRAPPER_MARKS
from truetune.checks.faults import Fault
from truetune.checks.findings import Case, Finding
from truetune.checks.judgement import Unmet
from truetune.checks.reasons_rules_cannot_judge import BROKEN
from truetune.checks.rule import CheckpointRule

STACKS_OF_DECODERS = ("model.layers", "transformer.h", "gpt_neox.layers")
"""The stack that `num_hidden_layers` counts; other stacks have settings of their own"""
EXTRA_PREDICTORS = ("num_nextn_predict_layers", "num_mtp_layers", "mtp_num_hidden_layers")
"""Settings with the number of layers that predict further tokens, and stand after the others"""
WEIGHTS_OF_ATTENTION = tuple(f"self_attn.{part}_proj.weight" for part in "qkvo")
BIASES_OF_ATTENTION = tuple(f"self_attn.{part}_proj.bias" for part in "qkvo")
BIASES_OF_QKV = BIASES_OF_ATTENTION[:3]
NORMS_OF_QK = ("self_attn.q_norm.weight", "self_attn.k_norm.weight")
NORMS_BEFORE = ("input_layernorm.weight", "post_attention_layernorm.weight")
NORMS_AROUND_MLP = ("pre_feedforward_layernorm.weight", "post_feedforward_layernorm.weight")
LLAMA = (*WEIGHTS_OF_ATTENTION, *NORMS_BEFORE)
# Read off the classes of transformers 5.23, which tests/checks/checkpoint/test_config_and_weights.py does again.
TENSORS_OF_LAYERS: dict[str, tuple[str, ...]] = {
    "llama": LLAMA,
    "mistral": LLAMA,
    "mixtral": LLAMA,
    "smollm3": LLAMA,
    "granite": LLAMA,
    "gemma": LLAMA,
    "qwen2": (*LLAMA, *BIASES_OF_QKV),
    "qwen2_moe": (*LLAMA, *BIASES_OF_QKV),
    "qwen3": (*LLAMA, *NORMS_OF_QK),
    "qwen3_moe": (*LLAMA, *NORMS_OF_QK),
    "gemma2": (*LLAMA, *NORMS_AROUND_MLP),
    "gemma3_text": (*LLAMA, *NORMS_OF_QK, *NORMS_AROUND_MLP),
    "phi3": ("self_attn.qkv_proj.weight", "self_attn.o_proj.weight", *NORMS_BEFORE),
    "olmo2": (*WEIGHTS_OF_ATTENTION, *NORMS_OF_QK, NORMS_BEFORE[1], NORMS_AROUND_MLP[1]),
}
"""Model type -> the tensors of attention and norms that each of its layers has"""
READ_ATTENTION_BIAS = ("llama", "granite", "gemma", "gemma2", "qwen3", "qwen3_moe", "olmo2")
"""Types whose `attention_bias` adds biases to queries, keys and values"""
JUDGED_PARTS = ("self_attn.", "norm")
"""Parts of the names that the table is about; MLPs and experts have too many forms"""
BUFFERS = ("inv_freq", "rotary_emb")
MARKS_OF_QUANTIZED_TENSORS = {
    "bitsandbytes": (".absmax", ".quant_state", ".SCB"),
    "gptq": (".qweight",),
    "awq": (".qweight",),
    "compressed-tensors": ("_scale", "_packed"),
    "mxfp4": ("_scales", "_blocks"),
    "fp8": ("_scale_inv", "_scale"),
}
"""Method -> parts of the names of what it stores beside or for each matrix"""
QUANTIZED_DTYPES = ("I8", "U8", "I32", "F8_E4M3", "F8_E5M2")
SCALES = ("scale", "absmax", "SCB", "zero", "qzeros", "amax")
QUANTIZATION_FILES = ("quantize_config.json", "quant_config.json")
"""What AutoGPTQ, GPTQModel and AutoAWQ write beside config.json, and some engines read"""
NAMES_IN_QUANTIZATION_FILES = (
    ("bits", "bits"),
    ("bits", "w_bit"),
    ("group_size", "group_size"),
    ("group_size", "q_group_size"),
    ("desc_act", "desc_act"),
    ("sym", "sym"),
    ("zero_point", "zero_point"),
)
"""A setting's name in config.json, and in the other file; each decides what number the stored bits are"""
SCALES_OF_WEIGHTS = (".weight_scale_inv", ".weight_scale")
"""Ends of the names of what matrices of 8 bits are multiplied with"""
MIN_SCALES = 4
"""Chosen: a few may be one by chance"""
CAPS_OF_GEMMA2 = ("attn_logit_softcapping", "final_logit_softcapping")
SHOWN_NAMES = 4


class Grouping(NamedTuple):
    """How many rows of a quantized matrix have one scale, and how they are packed."""

    size: int
    """Rows of a group"""
    rows_of_word: int
    """Rows that one stored number of 32 bits holds: GPTQ packs along the rows, AWQ along the columns"""


class ConfigDescribesAnotherModel(CheckpointRule):
    code = "CKP046"
    fault = Fault.MODEL_USED_WITH_OTHER_SETTINGS
    symptoms = ("garbage-output",)
    severity = "error"
    kind = "model"

    def unmet(self) -> Unmet | None:
        unmet = super().unmet()
        if unmet is not None:
            return unmet
        if self.subject.faults:
            return BROKEN
        return None if self.subject.config else Unmet("there is no config.json")

    def measurement_if_clean(self) -> str:
        """What of config.json was compared with the tensors."""
        layers = first_positive_text_model_setting(self.subject.config, "num_hidden_layers")
        stack = self._decoder_stack()
        counted = f"{len(stack.layers):,} layers" if stack is not None else "no stack of layers"
        model_type = self.subject.config.get("model_type")
        known = "compared" if model_type in TENSORS_OF_LAYERS else "not known"
        return f"{counted}, num_hidden_layers is {layers}; the tensors of {model_type} are {known}"

    def findings(self) -> Iterator[Finding]:
        checkpoint = self.subject
        has_nothing_to_compare = not checkpoint.config or not checkpoint.tensors
        if checkpoint.kind != "model" or checkpoint.faults or has_nothing_to_compare:
            return
        # Under the names of a wrapper nothing can be compared; tensors-missing reports them.
        if any(WRAPPER_MARKS.search(name) for name in checkpoint.tensors):
            return
        yield from self._finding_on_quantization()
        yield from self._finding_on_second_quantization_file()
        yield from self._finding_on_scales_of_one()
        yield from self._finding_on_other_groups()
        yield from self._finding_on_caps_of_gemma2()
        if checkpoint.config.get("quantization_config"):
            return
        stack = self._decoder_stack()
        if stack is not None:
            yield from self._finding_on_layers_beyond_config(stack)
            yield from self._finding_on_tensors_of_layers(stack)

    def _decoder_stack(self) -> Stack | None:
        """The stack of layers that `num_hidden_layers` counts."""
        stacks = find_stacks(self.subject.tensors)
        return next((stack for stack in stacks if stack.prefix in STACKS_OF_DECODERS), None)

    def _finding_on_layers_beyond_config(self, stack: Stack) -> Iterator[Finding]:
        """The finding on layers that config.json does not count."""
        config = self.subject.config
        layers = first_positive_text_model_setting(config, "num_hidden_layers", "n_layer")
        extra = first_positive_text_model_setting(config, *EXTRA_PREDICTORS) or 0
        present = max(stack.layers) + 1
        if layers is None or present <= layers + extra:
            return
        yield self.finding(
            f"the file has {present:,} layers, but config.json says {layers:,} (num_hidden_layers): those from"
            f" layer {layers:,} on are never used",
            f'set "num_hidden_layers": {present} in config.json, unless these layers were cut off on purpose; then'
            " delete their tensors",
            cases=[Case(f"{stack.prefix}.{i}") for i in stack.layers if i >= layers],
            count=present - layers,
            total=present,
        )

    def _finding_on_tensors_of_layers(self, stack: Stack) -> Iterator[Finding]:
        """The finding on tensors that the model type does not read, or that it has and the file lacks."""
        model_type = self.subject.config.get("model_type")
        expected = TENSORS_OF_LAYERS.get(model_type) if isinstance(model_type, str) else None
        if expected is None:
            return
        judged = _judged_tensors(stack)
        # A file of other parts altogether is no whole model of transformers, and nothing can be said.
        if not judged & set(expected):
            return
        optional = BIASES_OF_ATTENTION if self.subject.config.get("attention_bias") else ()
        unread = sorted(judged - set(expected) - set(optional))
        called_for = optional[:3] if model_type in READ_ATTENTION_BIAS else ()
        lacking = sorted({*expected, *called_for} - judged)
        if not unread and not lacking:
            return
        likely = [name for name, table in TENSORS_OF_LAYERS.items() if set(table) == judged]
        yield self.finding(
            f"config.json says model_type {model_type}, but the layers are not those of one:"
            f" {_describe_effects(unread, lacking)}",
            "take config.json from the model that was trained"
            + (f" (the tensors are those of {' or '.join(likely)})" if likely else ""),
            cases=[Case(f"{stack.prefix}.*.{name}") for name in (*unread, *lacking)],
            count=len(unread) + len(lacking),
        )

    def _finding_on_quantization(self) -> Iterator[Finding]:
        """The finding on a method of quantization of which the tensors show nothing, or the reverse."""
        quantization = self.subject.config.get("quantization_config")
        tensors = self.subject.tensors
        if not quantization:
            yield from self._finding_on_quantized_tensors_without_setting()
            return
        method = quantization.get("quant_method") if isinstance(quantization, dict) else None
        marks = MARKS_OF_QUANTIZED_TENSORS.get(method) if isinstance(method, str) else None
        if marks is None or any(mark in name for name in tensors for mark in marks):
            return
        if any(tensor.dtype in QUANTIZED_DTYPES for tensor in tensors.values()):
            return
        dtype = next(iter(tensors.values())).dtype
        yield self.finding(
            f"config.json says that the weights are quantized by {method}, but they are plain {dtype}: loaders"
            " quantize them again, or refuse them",
            "delete quantization_config from config.json: it is the base's, and was left there when the weights were"
            " merged",
            evidence=[f"no tensor has {' or '.join(marks)} in its name"],
        )

    def _finding_on_second_quantization_file(self) -> Iterator[Finding]:
        """The finding on a file of the quantizing program that contradicts config.json."""
        quantization = self.subject.config.get("quantization_config")
        file = next((name for name in QUANTIZATION_FILES if self.subject.has_file(name)), None)
        if not isinstance(quantization, dict) or file is None:
            return
        other = read_json_object(self.subject.folder / file, []) or {}
        different = [
            f"{own} is {quantization[own]} in config.json but {other[name]} in {file}"
            for own, name in NAMES_IN_QUANTIZATION_FILES
            if own in quantization and name in other and quantization[own] != other[name]
        ]
        if different:
            yield self.finding(
                f"two files say differently how the weights were quantized: {different[0]}; loaders read one,"
                " and unpack the same bits to other numbers",
                f"keep what the program that quantized the weights wrote ({file}), in both files",
                cases=[Case(text, file="config.json") for text in different],
                count=len(different),
            )

    def _finding_on_other_groups(self) -> Iterator[Finding]:
        """The finding on scales of GPTQ or AWQ whose number does not fit the size of the groups in config.json."""
        grouping = _configured_grouping(self.subject.config)
        if grouping is None:
            return
        different = dict(self._matrices_of_other_groups(grouping))
        if not different:
            return
        name, size = next(iter(different.items()))
        yield self.finding(
            f"config.json says group_size {grouping.size}, but {name} has scales for groups of {size}:"
            " the stored numbers are multiplied with the scales of other groups",
            f'set "group_size": {size} in quantization_config, as the weights were quantized',
            cases=[Case(f"{matrix}: groups of {group}") for matrix, group in different.items()],
            count=len(different),
        )

    def _matrices_of_other_groups(self, grouping: Grouping) -> Iterator[tuple[str, int]]:
        """Names of the matrices that have another number of scales, and the size of the groups that they have."""
        tensors = self.subject.tensors
        for name, tensor in tensors.items():
            scales = tensors.get(f"{name.removesuffix('.qweight')}.scales")
            if not name.endswith(".qweight") or scales is None or len(tensor.shape) != 2:
                continue
            rows = tensor.shape[0] * grouping.rows_of_word
            groups = math.ceil(rows / grouping.size)
            if scales.shape[0] != groups:
                yield name, rows // max(1, scales.shape[0])

    def _finding_on_scales_of_one(self) -> Iterator[Finding]:
        """The finding on 8-bit matrices whose scales are all one: they were never filled in."""
        scales = [
            tensor
            for name, tensor in self.subject.tensors.items()
            if name.endswith(SCALES_OF_WEIGHTS) and tensor.whole and tensor.dtype in NUMPY_TYPES
        ]
        if len(scales) < MIN_SCALES or not all(_is_one_throughout(tensor) for tensor in scales):
            return
        yield self.finding(
            f"all {len(scales):,} scales of quantized matrices are exactly one: they were not computed, and the"
            " matrices are read at a wrong size",
            "quantize the weights again; the scales of a matrix are its largest value over the largest of the format",
            cases=[Case(tensor.name) for tensor in scales],
            count=len(scales),
            total=len(scales),
        )

    def _finding_on_caps_of_gemma2(self) -> Iterator[Finding]:
        """The finding on a Gemma 2 that is computed without its soft caps."""
        config = self.subject.config
        if config.get("model_type") != "gemma2":
            return
        lacking = [name for name in CAPS_OF_GEMMA2 if config.get(name, 0) is None]
        if lacking:
            yield self.finding(
                f"{' and '.join(lacking)} in config.json {'is' if len(lacking) == 1 else 'are'} null, but every"
                " published Gemma 2 was trained with soft caps: attention and logits are computed otherwise",
                'set "attn_logit_softcapping": 50.0 and "final_logit_softcapping": 30.0 in config.json, as published',
                severity="warning",
                cases=[Case(f"{name}: null", file="config.json") for name in lacking],
                count=len(lacking),
            )

    def _finding_on_quantized_tensors_without_setting(self) -> Iterator[Finding]:
        """The finding on matrices of whole numbers or 8-bit floats, without a word in config.json."""
        tensors = self.subject.tensors
        quantized = [
            name
            for name, tensor in tensors.items()
            if tensor.dtype in QUANTIZED_DTYPES and len(tensor.shape) > 1
        ]
        if not quantized:
            return
        has_scales = any(part in name for name in tensors for part in SCALES)
        reason = "" if has_scales else ", and the file has no scales either"
        yield self.finding(
            f"{len(quantized):,} matrices are stored as {tensors[quantized[0]].dtype}, but config.json has no"
            f" quantization_config{reason}: they are read as plain numbers",
            "copy quantization_config from the program that quantized the weights"
            if has_scales
            else "save the weights again as bfloat16: without scales their sizes are lost",
            cases=[Case(name) for name in quantized],
            count=len(quantized),
            total=len(tensors),
        )


def _is_one_throughout(tensor: StoredTensor) -> bool:
    """Is each value of a tensor exactly one?"""
    return bool((to_float32(map_tensor_into_memory(tensor), tensor.dtype) == 1).all())


def _judged_tensors(stack: Stack) -> set[str]:
    """The tensors of a layer that belong to a part which the table knows."""
    return {
        name
        for name in frozenset[str]().union(*stack.layers.values())
        if any(part in name for part in JUDGED_PARTS)
        and not any(buffer in name for buffer in BUFFERS)
    }


def _describe_effects(unread: Sequence[str], lacking: Sequence[str]) -> str:
    """What happens to tensors that the model type does not have, and to those that it has."""
    effects = []
    if unread:
        effects.append(f"{_listed(unread)} of each layer are never read")
    if lacking:
        effects.append(f"{_listed(lacking)} of each layer are missing, and filled at random")
    return "; ".join(effects)


def _listed(names: Sequence[str]) -> str:
    """Some names, and how many there are besides."""
    more = f" and {len(names) - SHOWN_NAMES:,} more" if len(names) > SHOWN_NAMES else ""
    return ", ".join(names[:SHOWN_NAMES]) + more


def _configured_grouping(config: Mapping[str, Any]) -> Grouping | None:
    """The groups that config.json describes for GPTQ or AWQ; None where it describes none, or others."""
    quantization = config.get("quantization_config")
    if not isinstance(quantization, dict):
        return None
    method, bits, size = (quantization.get(key) for key in ("quant_method", "bits", "group_size"))
    if method not in ("gptq", "awq") or bits not in (2, 4, 8):
        return None
    # -1 means one group for the whole column.
    if type(size) is not int or size < 1:
        return None
    return Grouping(size, 32 // int(bits) if method == "gptq" else 1)
