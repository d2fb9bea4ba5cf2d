"""Resolves a run's settings, with the defaults of its stack, to what its memory depends on.

Each stack has its own defaults, names and habits (LLaMA-Factory trains float32 weights, TRL computes its loss in
tiles); here they become one record that the arithmetic reads. The trade-off: what a stack does is written down for the
releases that were looked at, and what is assumed is told in the notes of the plan.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from truetune.memory.matrices_and_parameters_from_config import Architecture, Matrix
from truetune.memory.optimizer_state_bytes import OPTIMIZER_STATES
from truetune.settings.config import Config, Stack
from truetune.settings.run_spec import RunSpec
from truetune.settings.training_settings import Lora, Method, Training
from truetune.trainers.experts_of_model_types import (
    ExpertsOfModelType,
    experts_of_model_type,
    reach_of_lora,
)

Head = Literal["full", "tiles", "liger", "none"]
"""How logits become a loss: all at once; TRL's tiles; Liger's chunks; there are none (a reward head)."""
Sharding = Literal["none", "zero1", "zero2", "zero3", "fsdp"]
Offload = Literal["optimizer", "weights"]
Engine = Literal["", "transformers", "vllm beside", "vllm elsewhere"]
"""What samples the answers that are trained on; empty: none are sampled, or it is not known"""

DEFAULT_COMPLETION, DEFAULT_PROMPT = 256, 512
"""Defaults of TRL: GRPOConfig.max_completion_length, and max_prompt_length of the releases that have it"""
DEFAULT_ENGINE_SHARE = 0.3
"""Of a GPU's memory: GRPOConfig.vllm_gpu_memory_utilization of TRL"""
DEFAULT_BATCH = 8
"""Rows on each device where a run sets none: the default of transformers, for training and for evaluation"""
DEFAULT_LENGTH = 1024
"""Tokens of a row where neither the run nor the user says; TRL's default"""
TILES_SINCE = (1, 16)
"""The version of TRL that has no other loss than the tiled one"""
KBIT_PREPARATION = "prepare_model_for_kbit_training("
"""The call of peft that makes all that is not quantized float32"""
FLOAT32_NAMES = ("float32", "float", "fp32", "torch.float32")
SEQUENCES_PER_ROW: Mapping[Method, int] = {"dpo": 2, "orpo": 2, "cpo": 2, "reward": 2}
"""Sequences that one row becomes: the chosen and the rejected answer go through the model in one batch."""


# Published recipes train adapters at 1e-4 to 2e-4, and all weights of models of billions at 1e-5 to 2e-5.
LEAST_RATE_OF_ADAPTER = 1e-4


@dataclass(frozen=True, slots=True)
class MemorySettings:
    """The settings of a run, as far as its memory depends on them."""

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
    needed_length: int = 0
    """Tokens that hold each row by itself, where packing or padding makes all rows longer; 0: nothing does"""
    notes: tuple[str, ...] = ()
    """What was assumed"""

    @property
    def hidden_state_item_bytes(self) -> int:
        """Bytes of an item in the stream of hidden states, which pass from block to block."""
        return self.base

    @property
    def sequences_per_forward_pass(self) -> int:
        """How many sequences one forward pass has."""
        return self.batch * SEQUENCES_PER_ROW.get(self.method, 1)

    saved: int = 0
    """Bytes of a weight of modules that are trained whole beside an adapter; 0: those of the base"""
    is_program: bool = False
    """The settings are arguments in a script or notebook, not lines of a file"""
    unused_adapter: str = ""
    """What passes the script's own LoraConfig on (`peft_config=lora`), where it makes one that nothing is given"""
    has_rate_of_adapter: bool = False
    """The learning rate is one that adapters are trained with"""
    completion: int = 0
    """Tokens of a sampled answer; 0 where the rows hold the answers"""
    engine: Engine = ""
    passes_per_generation: int = 0
    """Forward passes whose rows are sampled at once (TRL's steps_per_generation); 0: those of one optimizer step"""
    engine_share: float = 0.0
    """The share of the GPU that an engine in the same process reserves"""
    does_engine_sleep: bool = False
    """The engine gives its memory back while the policy is trained"""
    engine_bytes: float = 0.0
    """What the engine reserves on a GPU of known size"""

    @property
    def sequences_per_generation(self) -> int:
        """How many answers one device samples at once, num_generations to each prompt."""
        return self.batch * (self.passes_per_generation or self.accumulation)

    @property
    def scored_tokens_per_forward_pass(self) -> int:
        """Tokens of a forward pass that get logits: of a sampled row those of the completion alone."""
        per_sequence = min(self.completion, self.length) if self.completion else self.length
        return self.sequences_per_forward_pass * per_sequence

    @property
    def tokens_per_forward_pass(self) -> int:
        """How many tokens one forward pass on one device has."""
        return self.sequences_per_forward_pass * self.length

    @property
    def effective_batch_size(self) -> int:
        """The effective batch: how many rows one step of the optimizer has."""
        return self.batch * self.accumulation * self.world

    def has_adapter_on(self, matrix: Matrix, architecture: Architecture) -> bool:
        """Is there an adapter on this matrix?"""
        return self.adapter_rank_on(matrix, architecture) > 0

    def adapter_rank_on(self, matrix: Matrix, architecture: Architecture) -> int:
        """The rank of the adapter on this matrix; 0 where there is none."""
        if self.lora is None:
            return 0
        facts = experts_of_model_type(architecture.model_type)
        if facts is None:
            is_adapted = matrix.linear and self._is_target(matrix, architecture)
            return self.lora.r if is_adapted else 0
        if matrix.part == "experts":
            return self._rank_on_experts(matrix, facts)
        # peft takes these names for parameters of the experts, and no longer for linear layers.
        is_taken = matrix.name in facts.renamed_targets and matrix.part == "mlp"
        is_adapted = not is_taken and self._is_target(matrix, architecture)
        return self.lora.r if is_adapted else 0

    def _rank_on_experts(self, matrix: Matrix, facts: ExpertsOfModelType) -> int:
        """The rank of the adapter on the experts, or on the router, of a layer; 0 where there is none."""
        assert self.lora is not None, "else there is no adapter"
        names = self._target_names()
        adapted = reach_of_lora(facts, names, self.lora.target_parameters).adapted
        parameters = facts.router if matrix.name == "router" else facts.experts
        last = matrix.name.rpartition(".")[2]
        own = {name for name in parameters if last in ("router", *name.split("."))}
        if not adapted & own:
            return 0
        # Two layers became one parameter: peft gives it both of their ranks.
        sources = {name for name, parameter in facts.renamed_targets.items() if parameter == last}
        lasts = sources if names == "all-linear" else {name.rpartition(".")[2] for name in names}
        return self.lora.r * (len(sources) if sources & lasts else 1)

    def _target_names(self) -> str | tuple[str, ...]:
        """The names in the targets, with those of a pattern; `all-linear` as it is."""
        targets = self.lora.target_modules if self.lora is not None else None
        if targets is None or targets == "all-linear":
            return targets or ()
        return tuple(re.findall(r"\w+", targets)) if isinstance(targets, str) else targets

    def _is_target(self, matrix: Matrix, architecture: Architecture) -> bool:
        """Do the targets mean this matrix, by its name?"""
        if self.lora is None:
            return False
        targets = self.lora.target_modules
        if targets == "all-linear":
            return True
        if isinstance(targets, str):
            # peft reads a text as a regular expression; names in it are mostly whole.
            return matrix.name in re.findall(r"\w+", targets)
        # Names are given with or without their modules: `self_attn.q_proj` is `q_proj`.
        wanted = targets if targets is not None else architecture.family.targets
        return matrix.name in {target.rsplit(".", 1)[-1] for target in wanted}


def _prompt_and_completion_length_if_generated(run: Config, other: Mapping[str, Any]) -> int | None:
    """How many tokens a prompt and its completion have, where the policy generates what it is
    trained on; None elsewhere.
    """
    completion = _completion_length_if_generated(run, other)
    prompt = other.get("max_prompt_length", DEFAULT_PROMPT)
    return completion + prompt if completion and isinstance(prompt, int) else None


def _completion_length_if_generated(run: Config, other: Mapping[str, Any]) -> int:
    """Tokens of a sampled answer at most; 0 where none are sampled, or the setting is no number."""
    if run.spec.training.method != "grpo":
        return 0
    completion = run.spec.training.max_completion_length
    if completion is None:
        completion = other.get("max_completion_length", DEFAULT_COMPLETION)
    return completion if isinstance(completion, int) else 0


@dataclass(frozen=True, slots=True)
class _Sampling:
    """How the answers of a run are sampled, as far as its memory depends on it."""

    completion: int = 0
    engine: Engine = ""
    passes: int = 0
    share: float = 0.0
    sleeps: bool = False


def _resolve_sampling(run: Config, other: Mapping[str, Any], world: int) -> _Sampling:
    """How the answers are sampled: TRL's GRPOTrainer and RLOOTrainer, and `truetune train` over it.

    Other stacks keep the engine in processes of its own, whose memory no setting of the trainer says.
    """
    if run.spec.training.method != "grpo" or run.stack not in ("trl", "truetune"):
        return _Sampling()
    completion = _completion_length_if_generated(run, other)
    passes = other.get("steps_per_generation")
    whole = other.get("generation_batch_size")
    if isinstance(whole, int) and not isinstance(passes, int):
        rows = _at_least_one_row(run.spec.training.per_device_train_batch_size)
        passes = max(1, whole // (rows * world))
    passes = passes if isinstance(passes, int) else 0
    if not other.get("use_vllm"):
        return _Sampling(completion, "transformers", passes)
    if other.get("vllm_mode", "colocate") == "server":
        return _Sampling(completion, "vllm elsewhere", passes)
    share = other.get("vllm_gpu_memory_utilization", DEFAULT_ENGINE_SHARE)
    share = float(share) if isinstance(share, int | float) else DEFAULT_ENGINE_SHARE
    sleeps = bool(other.get("vllm_enable_sleep_mode"))
    return _Sampling(completion, "vllm beside", passes, share, sleeps)


def resolve_memory_settings(
    config: Config | RunSpec,
    architecture: Architecture,
    *,
    length: int | None = None,
    gpus: int | None = None,
    needed_length: int = 0,
) -> MemorySettings:
    """Resolve what a run's configuration means for the memory of one GPU.

    Args:
        config: of the run.
        architecture: of its model.
        length: tokens of a row; wins over the run's.
        gpus: wins over the run's.
        needed_length: tokens that hold each row, where rows are filled to a longer length; else 0.
    """
    run = config if isinstance(config, Config) else Config("truetune", "", "", config)
    training = run.spec.training
    other = flatten_stack_settings({**training.other, **run.spec.trainer})
    length, length_notes = _resolve_row_length_and_assumptions(run, other, length)
    world = gpus or training.devices
    sharding = _resolve_sharding(training.fsdp, training.deepspeed_stage, world)
    base, dtype_notes = _loaded_bytes_per_weight(run, architecture, sharding), list[str]()
    if loads_float32_by_default(run):
        base = 4
        dtype_notes.append(
            f"no dtype is set, and {run.pins.describe_asked_release('transformers')}: before"
            " 5.0 it loads the weights as float32"
        )
    is_mixed = bool(training.bf16 or training.fp16)
    compute = 2 if is_mixed else base
    batch = _at_least_one_row(training.per_device_train_batch_size)
    narrow_adapter = _adapter_is_bf16(run, sharding) and compute == 2
    sampling = _resolve_sampling(run, other, world)
    return MemorySettings(
        stack=run.stack,
        method=training.method,
        batch=batch,
        eval_batch=_at_least_one_row(training.per_device_eval_batch_size),
        accumulation=training.gradient_accumulation_steps or 1,
        length=length,
        world=world,
        base=base,
        compute=compute,
        autocast=is_mixed,
        load_in=training.load_in,
        nested=_is_double_quantized(run, other),
        lora=training.lora,
        adapter=2 if narrow_adapter else 4,
        saved=_bytes_per_saved_weight(run, compute),
        checkpointing=bool(training.gradient_checkpointing),
        attention=_choose_attention(training, architecture),
        masked=_has_attention_mask(training, batch),
        head=_choose_loss_head(run),
        liger=bool(training.use_liger_kernel),
        optimizer=training.optim or "adamw_torch_fused",
        sharding=sharding,
        deepspeed=training.deepspeed_stage is not None,
        offload=find_cpu_offload(other),
        reference=_holds_reference_copy(training),
        evaluates=(training.eval_strategy or "no") != "no",
        needed_length=needed_length,
        is_program=run.path.endswith((".py", ".ipynb")),
        unused_adapter=run.unused_adapter,
        has_rate_of_adapter=(training.learning_rate or 0.0) >= LEAST_RATE_OF_ADAPTER,
        completion=sampling.completion,
        engine=sampling.engine,
        passes_per_generation=sampling.passes,
        engine_share=sampling.share,
        does_engine_sleep=sampling.sleeps,
        notes=(
            *architecture.notes,
            *run.notes,
            *length_notes,
            *_note_assumptions(training),
            *_note_sampling(training, sampling),
            *_note_sharding_of_one(training, world),
            *dtype_notes,
        ),
    )


def _resolve_row_length_and_assumptions(
    run: Config, other: Mapping[str, Any], length: int | None
) -> tuple[int, list[str]]:
    """(tokens of a row, what was assumed); what a user says wins over the run, and that over defaults."""
    length = length or run.spec.max_length or run.limit
    if length is not None:
        return length, []
    generated = _prompt_and_completion_length_if_generated(run, other)
    if generated is not None:
        return generated, [
            f"prompt and completion are counted as {generated:,} tokens (--max-length)"
        ]
    return DEFAULT_LENGTH, [
        f"no max_length is set; {DEFAULT_LENGTH:,} tokens are assumed (--max-length)"
    ]


def _note_sharding_of_one(training: Training, world: int) -> Iterator[str]:
    """A note where weights are to be shared out, and only one process is counted."""
    if world >= 2 or not (training.fsdp or training.deepspeed_stage):
        return
    how = "FSDP" if training.fsdp else f"ZeRO-{training.deepspeed_stage}"
    yield (
        f"{how} shares out among processes, and one is counted: --gpus N counts more; a run that is shown one GPU"
        " (CUDA_VISIBLE_DEVICES=0) shares nothing"
    )


def _note_assumptions(training: Training) -> Iterator[str]:
    """Notes on what is assumed or not counted, for settings that are missing or not known."""
    if training.per_device_train_batch_size is None:
        yield (
            f"no batch size is set; {DEFAULT_BATCH} rows on each GPU are assumed, the default of"
            " transformers"
        )
    if training.optim is not None and training.optim.lower() not in OPTIMIZER_STATES:
        yield f"the optimizer {training.optim} is counted as AdamW"


def _note_sampling(training: Training, sampling: _Sampling) -> Iterator[str]:
    """A note on what samples the answers, where its memory is not counted on this GPU."""
    if training.method not in ("grpo", "ppo"):
        return
    if not sampling.engine:
        yield "the generation of answers, and an engine for it, are not counted"
    elif sampling.engine == "vllm elsewhere":
        yield "vLLM serves on other GPUs (vllm_mode: server), which are not planned"
    elif sampling.engine == "vllm beside":
        yield (
            f"vLLM reserves {sampling.share:.0%} of this GPU (vllm_gpu_memory_utilization), for its own copy of the"
            " weights and its cache; that is counted where the size of the GPU is named (--gpu)"
        )


def _choose_attention(training: Training, architecture: Architecture) -> Literal["sdpa", "eager"]:
    """How attention is computed: SDPA has no softcap, so that transformers falls back for it."""
    is_eager = training.attn_implementation == "eager" or architecture.softcap
    return "eager" if is_eager else "sdpa"


def _has_attention_mask(training: Training, batch: int) -> bool:
    """Does attention get a mask? A single row needs none, and FlashAttention reads lengths instead."""
    if training.packing or training.padding_free or batch == 1:
        return False
    return "flash" not in (training.attn_implementation or "")


def _holds_reference_copy(training: Training) -> bool:
    """Is a second copy of the model held? With an adapter the base itself is the reference.

    TRL's GRPOTrainer loads one only where `beta` is not 0, which is its default.
    """
    if training.lora is not None:
        return False
    if training.method == "grpo":
        return bool(training.beta)
    if training.method not in ("dpo", "kto"):
        return False
    return not training.precompute_ref_log_probs and training.reference != "none"


def _at_least_one_row(rows: int | None) -> int:
    """Rows on one device, at least one."""
    return max(1, rows or DEFAULT_BATCH)


def flatten_stack_settings(other: Mapping[str, Any]) -> dict[str, Any]:
    """The stack's own settings by name, those in nested mappings too; an outer name wins."""
    flat: dict[str, Any] = {}
    for name, value in other.items():
        if isinstance(value, Mapping):
            flat |= flatten_stack_settings(value)
        flat[name] = value
    return flat


def _resolve_sharding(fsdp: bool, stage: int | None, world: int) -> Sharding:
    """How weights and states are shared out; on one GPU there is nobody to share with."""
    if world < 2:
        return "none"
    stages: dict[int | None, Sharding] = {1: "zero1", 2: "zero2", 3: "zero3"}
    return "fsdp" if fsdp else stages.get(stage, "none")


def _loaded_bytes_per_weight(run: Config, architecture: Architecture, sharding: Sharding) -> int:
    """Bytes of a weight as the stack loads it.

    transformers 5 loads what config.json says. LLaMA-Factory trains float32 weights unless `pure_bf16` is set.
    """
    training = run.spec.training
    # `auto` is what the checkpoint says.
    dtype = training.dtype if training.dtype not in (None, "auto") else architecture.dtype
    if training.lora is None and run.stack == "llama-factory":
        if not training.other.get("pure_bf16") and sharding not in ("zero3", "fsdp"):
            return 4
    return 4 if str(dtype) in FLOAT32_NAMES else 2


def loads_float32_by_default(run: Config) -> bool:
    """Does a program load a model without a dtype by a release of transformers that takes float32 then?

    Quantized weights are loaded as float16 there, and unsloth takes what the checkpoint says.
    """
    # A settings file names a stack of a newer release; only scripts are run with whatever is installed.
    is_program = run.path.endswith((".py", ".ipynb")) and run.stack in ("trl", "transformers")
    training = run.spec.training
    if not is_program or training.dtype is not None or training.load_in is not None:
        return False
    is_named = re.search(r"\b(?:torch_)?dtype\b\s*[=:'\"]", run.text) is not None
    return (
        not is_named
        and "unsloth" not in run.text
        and run.pins.is_release_surely_before("transformers", "5.0.0")
    )


def _adapter_is_bf16(run: Config, sharding: Sharding) -> bool:
    """Are the adapter's weights bfloat16?"""
    return run.stack == "trl" and (run.spec.training.load_in is not None or sharding == "zero3")


def _bytes_per_saved_weight(run: Config, compute: int) -> int:
    """Bytes of a weight that peft copies whole (`modules_to_save`) from a quantized base; 0: those of the base.

    LLaMA-Factory casts what is trained to float32, unless `pure_bf16` is on; TRL casts it to bfloat16. A script that
    calls `prepare_model_for_kbit_training` has all in float32 that is not quantized, and so the copies of it. Axolotl
    calls it too, and casts embeddings and head back to the dtype of the run before peft copies them
    (`_configure_embedding_dtypes` in loaders/model.py). What peft itself casts to float32 are the layers of adapters.
    """
    if run.spec.training.load_in is None:
        return 0
    if run.stack in ("trl", "axolotl"):
        return compute
    if run.stack == "llama-factory":
        return compute if run.raw.get("pure_bf16") is True else 4
    return 4 if KBIT_PREPARATION in run.text else 0


def _is_double_quantized(run: Config, other: Mapping[str, Any]) -> bool:
    """Are the constants of quantization quantized too? Two stacks do so unless told not to."""
    names = ("bnb_4bit_use_double_quant", "use_bnb_nested_quant", "double_quantization")
    values = [other[name] for name in names if other.get(name) is not None]
    return bool(values[0]) if values else run.stack in ("axolotl", "llama-factory")


def find_cpu_offload(other: Mapping[str, Any]) -> frozenset[Offload]:
    """What lies in the memory of the CPU, by the spellings of DeepSpeed, FSDP and accelerate."""
    offload: set[Offload] = set()
    if other.get("offload_optimizer") or other.get("offload_optimizer_device") == "cpu":
        offload.add("optimizer")
    if other.get("offload_param") or other.get("offload_param_device") == "cpu":
        offload.add("weights")
    # FSDP has one switch for both.
    if other.get("fsdp_offload_params") or other.get("offload_params") or other.get("cpu_offload"):
        offload |= {"optimizer", "weights"}
    return frozenset(offload)


def _choose_loss_head(run: Config) -> Head:
    """How the stack computes logits and loss: all at once, in tiles or in chunks."""
    training = run.spec.training
    if training.method == "reward":
        return "none"
    # Names of Axolotl; its own plugin chunks whatever use_liger_kernel says.
    chunked = ("liger_fused_linear_cross_entropy", "cut_cross_entropy", "chunked_cross_entropy")
    if any(training.other.get(name) for name in chunked):
        return "liger"
    # Of the methods that TRL has tiled the loss of; the others compute all logits in any release.
    tiles = run.stack == "truetune" or (
        run.stack == "trl" and _parse_version(run.version) >= TILES_SINCE
    )
    if tiles and training.method in ("sft", "dpo", "kto", "grpo"):
        return "tiles"
    return "liger" if training.use_liger_kernel and run.stack != "axolotl" else "full"


def _parse_version(text: str) -> tuple[int, ...]:
    """(major, minor); empty where there is none, which is older than any."""
    return tuple(int(part) for part in re.findall(r"\d+", text)[:2])
