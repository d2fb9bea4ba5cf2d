"""Settings: what a run's settings mean for memory, with the defaults of its stack resolved."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from truetune.memory.architecture import Architecture, Matrix
from truetune.memory.optimizers import STATES
from truetune.spec.config import Config, Stack
from truetune.spec.run import RunSpec
from truetune.spec.training import Lora, Method

Head = Literal["full", "tiles", "liger", "none"]
"""How logits become a loss: all at once; TRL's tiles; Liger's chunks; there are none (a reward head)."""
Sharding = Literal["none", "zero1", "zero2", "zero3", "fsdp"]
Offload = Literal["optimizer", "weights"]

COMPLETION, PROMPT = 256, 512
"""Defaults of TRL: GRPOConfig.max_completion_length, and max_prompt_length of the releases that have it"""
BATCH = 8
"""Rows on each device where a run sets none: the default of transformers, for training and for evaluation"""
LENGTH = 1024
"""Tokens of a row where neither the run nor the user says; TRL's default"""
TILES_SINCE = (1, 16)
"""The version of TRL that has no other loss than the tiled one"""
WIDE = ("float32", "float", "fp32", "torch.float32")
SIDES: Mapping[Method, int] = {"dpo": 2, "orpo": 2, "cpo": 2, "reward": 2}
"""Sequences that one row becomes: the chosen and the rejected answer go through the model in one batch."""


@dataclass(frozen=True, slots=True)
class Settings:
    """A run, as far as its memory depends on it."""

    stack: Stack
    method: Method
    batch: int
    """Rows on one device in one forward pass"""
    eval_batch: int
    accumulation: int
    length: int
    """Tokens of one sequence"""
    world: int
    """Processes, one a GPU"""
    base: int
    """Bytes of a weight that is not quantized"""
    compute: int
    """Bytes of an activation"""
    autocast: bool
    """Mixed precision: weights are cast where they are used"""
    load_in: Literal[4, 8] | None
    nested: bool
    """The quantization constants are quantized too (double quantization)."""
    lora: Lora | None
    adapter: int
    """Bytes of an adapter's weight"""
    checkpointing: bool
    attention: Literal["sdpa", "eager"]
    masked: bool
    """Rows are padded, so that attention gets a mask"""
    head: Head
    liger: bool
    """Kernels that keep less for the backward pass"""
    optimizer: str
    sharding: Sharding
    deepspeed: bool
    offload: frozenset[Offload]
    reference: bool
    """A second copy of the model is held (DPO, KTO)."""
    evaluates: bool
    notes: tuple[str, ...] = ()
    """What was assumed"""

    @property
    def stream(self) -> int:
        """Bytes of an item that passes from block to block."""
        return self.base

    @property
    def sequences(self) -> int:
        """Sequences in one forward pass"""
        return self.batch * SIDES.get(self.method, 1)

    @property
    def tokens(self) -> int:
        """Tokens in one forward pass on one device"""
        return self.sequences * self.length

    @property
    def effective(self) -> int:
        """Rows in one step of the optimizer"""
        return self.batch * self.accumulation * self.world

    def adapts(self, matrix: Matrix, architecture: Architecture) -> bool:
        """Does an adapter stand beside this matrix?"""
        if self.lora is None or not matrix.linear:
            return False
        targets = self.lora.target_modules
        if targets == "all-linear":
            return True
        if isinstance(targets, str):
            return matrix.name in re.findall(r"\w+", targets)
        wanted = targets if targets is not None else architecture.family.targets
        return matrix.name in {target.rsplit(".", 1)[-1] for target in wanted}


def _generated_length(run: Config, other: Mapping[str, Any]) -> int | None:
    """Tokens of a prompt and its completion, where the policy generates what it is trained on; None elsewhere."""
    if run.spec.training.method != "grpo":
        return None
    completion = other.get("max_completion_length", COMPLETION)
    prompt = other.get("max_prompt_length", PROMPT)
    sizes = [size for size in (completion, prompt) if isinstance(size, int)]
    return sum(sizes) if len(sizes) == 2 else None


def resolve(
    config: Config | RunSpec,
    architecture: Architecture,
    *,
    length: int | None = None,
    gpus: int | None = None,
) -> Settings:
    """What `config` means for the memory of one GPU; `length` and `gpus` win over it."""
    run = config if isinstance(config, Config) else Config("truetune", "", "", config)
    training, other, notes = (
        run.spec.training,
        flat(run.spec.training.other),
        [*architecture.notes, *run.notes],
    )
    length = length or run.spec.max_length or run.limit
    if length is None and (length := _generated_length(run, other)) is not None:
        notes.append(f"prompt and completion are counted as {length:,} tokens (--max-length)")
    if length is None:
        length = LENGTH
        notes.append(f"no max_length is set; {LENGTH:,} tokens are assumed (--max-length)")
    if training.per_device_train_batch_size is None:
        notes.append(
            f"no batch size is set; {BATCH} rows on each GPU are assumed, the default of"
            " transformers"
        )
    if training.method in ("grpo", "ppo"):
        notes.append("the generation of answers, and an engine for it, are not counted")
    if training.optim is not None and training.optim.lower() not in STATES:
        notes.append(f"the optimizer {training.optim} is counted as AdamW")
    low = bool(training.bf16 or training.fp16)
    world = gpus or training.devices
    stage = training.deepspeed_stage
    sharding = _sharding(training.fsdp, stage, world)
    if world < 2 and (training.fsdp or stage):
        how = "FSDP" if training.fsdp else f"ZeRO-{stage}"
        notes.append(
            f"{how} shares out among processes, and one is counted: --gpus N counts more; a run that is shown one GPU"
            " (CUDA_VISIBLE_DEVICES=0) shares nothing"
        )
    base = _base(run, architecture, sharding)
    if loads_float32(run):
        base = 4
        notes.append(
            f"no dtype is set, and {run.pins.told('transformers')}: before 5.0 it loads the weights as float32"
        )
    compute = 2 if low else base
    offload = _offload(other)
    head = _head(run)
    padded = (
        not (training.packing or training.padding_free)
        and _batch(training.per_device_train_batch_size) > 1
    )
    attention = (
        "eager" if training.attn_implementation == "eager" or architecture.softcap else "sdpa"
    )
    held = (
        training.method in ("dpo", "kto")
        and training.lora is None
        and not training.precompute_ref_log_probs
    )
    return Settings(
        stack=run.stack,
        method=training.method,
        batch=_batch(training.per_device_train_batch_size),
        eval_batch=_batch(training.per_device_eval_batch_size),
        accumulation=training.gradient_accumulation_steps or 1,
        length=length,
        world=world,
        base=base,
        compute=compute,
        autocast=low,
        load_in=training.load_in,
        nested=_nested(run, other),
        lora=training.lora,
        adapter=2 if _narrow_adapter(run, sharding) and compute == 2 else 4,
        checkpointing=bool(training.gradient_checkpointing),
        attention="eager" if attention == "eager" else "sdpa",
        masked=padded and "flash" not in (training.attn_implementation or ""),
        head=head,
        liger=bool(training.use_liger_kernel),
        optimizer=training.optim or "adamw_torch_fused",
        sharding=sharding,
        deepspeed=stage is not None,
        offload=offload,
        reference=held and training.reference != "none",
        evaluates=(training.eval_strategy or "no") != "no",
        notes=tuple(notes),
    )


def _batch(rows: int | None) -> int:
    return max(1, rows or BATCH)


def flat(other: Mapping[str, Any]) -> dict[str, Any]:
    """The stack's own settings by name, those in nested mappings too."""
    found: dict[str, Any] = {}
    for name, value in other.items():
        if isinstance(value, Mapping):
            found |= flat(value)
        found[name] = value
    return found


def _sharding(fsdp: bool, stage: int | None, world: int) -> Sharding:
    if world < 2:
        return "none"
    stages: dict[int | None, Sharding] = {1: "zero1", 2: "zero2", 3: "zero3"}
    return "fsdp" if fsdp else stages.get(stage, "none")


def _base(run: Config, architecture: Architecture, sharding: Sharding) -> int:
    """Bytes of a weight.

    transformers 5 loads what config.json says. LLaMA-Factory trains float32 weights unless `pure_bf16` is set.
    """
    training = run.spec.training
    dtype = training.dtype if training.dtype not in (None, "auto") else architecture.dtype
    if training.lora is None and run.stack == "llama-factory":
        if not training.other.get("pure_bf16") and sharding not in ("zero3", "fsdp"):
            return 4
    return 4 if str(dtype) in WIDE else 2


def loads_float32(run: Config) -> bool:
    """Does a program load a model without a dtype by a release of transformers that takes float32 then?

    Quantized weights are loaded as float16 there, and unsloth takes what the checkpoint says.
    """
    is_program = run.path.endswith((".py", ".ipynb")) and run.stack in ("trl", "transformers")
    training = run.spec.training
    if not is_program or training.dtype is not None or training.load_in is not None:
        return False
    is_named = re.search(r"\b(?:torch_)?dtype\b\s*[=:'\"]", run.text) is not None
    return not is_named and "unsloth" not in run.text and run.pins.before("transformers", "5.0.0")


def _narrow_adapter(run: Config, sharding: Sharding) -> bool:
    """peft makes adapters float32; TRL casts them to bfloat16 on a quantized base, and under ZeRO-3."""
    return run.stack == "trl" and (run.spec.training.load_in is not None or sharding == "zero3")


def _nested(run: Config, other: Mapping[str, Any]) -> bool:
    names = ("bnb_4bit_use_double_quant", "use_bnb_nested_quant", "double_quantization")
    said = [other[name] for name in names if other.get(name) is not None]
    return bool(said[0]) if said else run.stack in ("axolotl", "llama-factory")


def _offload(other: Mapping[str, Any]) -> frozenset[Offload]:
    found: set[Offload] = set()
    if other.get("offload_optimizer") or other.get("offload_optimizer_device") == "cpu":
        found.add("optimizer")
    if other.get("offload_param") or other.get("offload_param_device") == "cpu":
        found.add("weights")
    if other.get("fsdp_offload_params") or other.get("offload_params") or other.get("cpu_offload"):
        found |= {"optimizer", "weights"}
    return frozenset(found)


def _head(run: Config) -> Head:
    """transformers computes all logits; TRL (and so truetune) tiles since 1.16; Liger and Axolotl's cut cross-entropy
    chunk."""
    training = run.spec.training
    if training.method == "reward":
        return "none"
    chunked = ("liger_fused_linear_cross_entropy", "cut_cross_entropy", "chunked_cross_entropy")
    if any(training.other.get(name) for name in chunked):
        return "liger"
    tiles = run.stack == "truetune" or (run.stack == "trl" and _version(run.version) >= TILES_SINCE)
    if tiles and training.method in ("sft", "dpo", "kto", "grpo"):
        return "tiles"
    return "liger" if training.use_liger_kernel and run.stack != "axolotl" else "full"


def _version(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", text)[:2])
