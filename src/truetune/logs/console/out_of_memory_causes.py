"""What needed the memory when a GPU ran out of it, by the traceback, the printed settings and the curve of memory.

Each cause is a sign in the frames (a file, a function, a source line) with the advice that fits it. Frames are looked
through in the order of the table, what is special first: a gather of DataParallel is no matter of the batch, and states
of the optimizer do not depend on rows at all. Where no frame is a sign, what is left is advised: the batch and
checkpointing, each only where the output does not say that it is in use already.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from truetune.logs.console.out_of_memory_message import MemoryFigures
from truetune.logs.console.printed_settings import PrintedSettings
from truetune.logs.console.tracebacks import Frame
from truetune.logs.run_log import Curve

MAX_ADAPTER_SHARE = 0.04
"""Trained share from which an adapter holds whole embeddings: LoRA on all linear layers trains 0.3 to 3 % at ranks of
8 to 128, an embedding and a head of 128,000 tokens add 10 % and more to an 8-billion model"""
FULL_TRAINED_SHARE = 0.9
"""Trained share of a full fine-tune"""
MIN_FITTED_STEPS = 10
"""Steps that fitted from which the first batches, and the optimizer's states, are no cause any more. Chosen, not
measured: the states are made at step 1, kernels are compiled in the first few"""
MIN_GROWTH_GIB, MIN_GROWTH_RECORDS = 1.0, 8
"""Memory that grows with the steps: by this much, in records enough to see a line"""
MIN_CORRELATION = 0.97
"""Correlation of memory with the step from which it grows with each step: a peak that follows the longest row rises in
few jumps and then stays"""


@dataclass(frozen=True, slots=True)
class MemoryCause:
    """What needed the memory, and what to change."""

    name: str
    cause: str
    advice: str
    by_rows: bool = True
    """Do fewer or shorter rows help?"""


@dataclass(frozen=True, slots=True)
class _FrameSign:
    """What a frame of the traceback looks like when this cause is behind it: patterns, of which each must fit."""

    cause: MemoryCause
    file: str = ""
    function: str = ""
    code: str = ""
    within: str = ""
    """A function that stands above it in the traceback"""
    without: str = ""
    """A file that must not stand in the traceback"""
    of_user: bool = False
    """The frame stands in a file of the user, not of a package"""

    def fits(self, frames: Sequence[Frame]) -> bool:
        """Is it in these frames?"""
        if self.within and not any(re.search(self.within, frame.function) for frame in frames):
            return False
        files = [_posix_path(frame) for frame in frames]
        if self.without and any(re.search(self.without, file) for file in files):
            return False
        return any(self._fits_frame(frame) for frame in frames)

    def _fits_frame(self, frame: Frame) -> bool:
        """Is it this frame? An empty pattern fits all, but for source code: many frames are printed without."""
        if self.of_user and frame.is_installed:
            return False
        if not re.search(self.file, _posix_path(frame)):
            return False
        if not re.search(self.function, frame.function):
            return False
        return not self.code or re.search(self.code, frame.code) is not None


def _posix_path(frame: Frame) -> str:
    """The frame's file with slashes: the patterns are written for them, and Windows prints backslashes."""
    return frame.file.replace("\\", "/")


DATA_PARALLEL = MemoryCause(
    "data-parallel",
    "the traceback goes through nn.DataParallel: a script that was started with plain python on a machine of several"
    " GPUs copies the model to each at every step, and the first GPU gathers the logits of all",
    "start one process for each GPU (`torchrun --nproc-per-node N SCRIPT` or `accelerate launch"
    " SCRIPT`), or name one GPU:"
    " CUDA_VISIBLE_DEVICES=0",
)
KEPT_LOGITS = MemoryCause(
    "evaluation-keeps-logits",
    "the evaluation keeps the logits of all rows on the GPU (rows x length x vocabulary), for compute_metrics",
    "preprocess_logits_for_metrics=lambda logits, labels: logits.argmax(-1), or eval_accumulation_steps=1, or"
    " prediction_loss_only=True where the loss is enough; `truetune lint SCRIPT` checks it",
    by_rows=False,
)
KEPT_OUTPUTS = MemoryCause(
    "evaluation-keeps-outputs",
    "the evaluation keeps several tensors of each batch on the GPU: logits, and whatever else the model returns"
    " (hidden states and attentions of all layers, a key-value cache)",
    "output_hidden_states=False and output_attentions=False in the model's config (or"
    ' trainer.evaluate(ignore_keys=["hidden_states", "attentions", "past_key_values"])), and'
    " preprocess_logits_for_metrics=lambda logits, labels: logits[0].argmax(-1);"
    " eval_accumulation_steps=1 moves what is left to the machine's memory",
    by_rows=False,
)
IMAGE_INPUTS = MemoryCause(
    "images",
    "the model reads images, and an image of full size is thousands of tokens: one for each 28 x 28 pixels in"
    " Qwen2-VL and Qwen2.5-VL, several crops in others; the attention of the image encoder grows with their square",
    "make images smaller before they are read: max_pixels (AutoProcessor.from_pretrained(..., max_pixels=1024*28*28)),"
    " image_max_pixels in LLaMA-Factory, MAX_PIXELS in ms-swift, or image.thumbnail((1024, 1024));"
    ' attn_implementation="flash_attention_2"',
)
EVALUATION_BATCH = MemoryCause(
    "evaluation-batch",
    "it is an evaluation: per_device_eval_batch_size is 8 by default, whatever the training's is",
    "per_device_eval_batch_size=1, and prediction_loss_only=True where no metric is computed",
)
EAGER_ATTENTION = MemoryCause(
    "eager-attention",
    "eager attention holds the scores of all heads, rows x heads x length x length, once more"
    " in float32 for the softmax",
    'attn_implementation="sdpa" or "flash_attention_2" (Gemma 2: flash_attention_2 keeps its soft-capping), which never'
    " hold the scores; output_attentions=True brings the eager one back",
)
OPTIMIZER_STATES = MemoryCause(
    "optimizer-states",
    "the optimizer's states are made at its first step: 8 bytes for each trained parameter in"
    " float32, whatever the batch",
    "train fewer parameters, or take optim=paged_adamw_8bit (2 bytes for each); several GPUs share them (FSDP, ZeRO);"
    " fewer or shorter rows do not help",
    by_rows=False,
)
CACHE_IN_GENERATION = MemoryCause(
    "generation-cache",
    "the key-value cache of a generation grows with each token of each prompt of the batch",
    "fewer prompts at a time, a smaller max_new_tokens, prompts padded to the longest of the batch (padding=True)",
    by_rows=False,
)
CACHE_IN_TRAINING = MemoryCause(
    "cache-in-training",
    "the model fills a key-value cache in a forward pass of the training, which nothing reads",
    "model.config.use_cache=False (gradient checkpointing does so)",
)
REFERENCE_MODEL = MemoryCause(
    "reference-model",
    "the reference model's pass is another model beside the policy",
    "with LoRA leave ref_model out: the adapter is turned off for it; else precompute_ref_log_probs=True",
)
LOGITS_ADVICE = (
    "a loss that never holds all logits (use_liger_kernel=True, enable_liger_kernel in LLaMA-Factory, Cut Cross Entropy"
    " in Axolotl and Unsloth), or fewer or shorter rows"
)
LOSS_LOGITS = MemoryCause(
    "logits",
    "it is the loss: logits are rows x length x vocabulary, and the cross entropy holds them again in float32",
    LOGITS_ADVICE,
)
LOGITS_CAST = MemoryCause(
    "logits-cast",
    "Accelerate casts what the model returns to float32: the logits, rows x length x vocabulary, once more at twice"
    " the size",
    LOGITS_ADVICE,
)
CHECKPOINT_RESUMED = MemoryCause(
    "checkpoint-resumed",
    "a checkpoint is loaded onto the GPU beside the model and its states that lie there already, before any row: a run"
    " that fits from its start may not fit when it is resumed",
    'load it to the CPU (torch.load(..., map_location="cpu")), and drop what it gave before the first step; of the'
    " Trainer: optim=paged_adamw_8bit, sharded states (FSDP, ZeRO), or start from the saved weights without"
    " optimizer.pt",
    by_rows=False,
)
OWN_EVALUATION = MemoryCause(
    "own-evaluation",
    "it is an evaluation of your own, and no step of the training: without torch.no_grad() each pass keeps the"
    " activations of all layers (eval() alone keeps them), and a sum or list of losses those of every batch",
    "put torch.no_grad() (or inference_mode) around it, add up loss.item(), keep outputs with .detach().cpu() or not at"
    " all, and give its batches the training's size; `truetune lint SCRIPT` names the line",
    by_rows=False,
)
MODEL_LOADING = MemoryCause(
    "loading",
    "the weights alone do not fit into what is free: they are being loaded, before any row",
    "dtype=torch.bfloat16 (transformers before 5 loads float32 by default), 4-bit (a BitsAndBytesConfig that"
    " from_pretrained is given as quantization_config: one that is only built does nothing), or more GPUs;"
    " end what else runs on the GPU (nvidia-smi)",
    by_rows=False,
)
WEIGHTS_GATHERED = MemoryCause(
    "weights-gathered",
    "all weights are gathered on one GPU to be saved or merged",
    "save sharded (fsdp_state_dict_type: SHARDED_STATE_DICT), offload the full state_dict to"
    " the CPU, or merge later on the"
    " CPU: `truetune merge ADAPTER -o MERGED`",
    by_rows=False,
)
GENERATION_ENGINE = MemoryCause(
    "generation-engine",
    "it is vLLM's part: its cache is reserved beside the training's memory",
    "a smaller vllm_gpu_memory_utilization (gpu_memory_utilization for a server) or"
    " max_model_len; vllm_enable_sleep_mode"
    " gives the memory back between generations",
    by_rows=False,
)
ENGINE_BESIDE = MemoryCause(
    "engine-beside-training",
    "vLLM holds most of this GPU: it has reserved its weights and its cache beside the training, which stopped where"
    " the rest was full",
    "set vllm_gpu_memory_utilization to 0.3 (a share of the whole GPU, weights included), and"
    " vllm_enable_sleep_mode=True, which gives the memory back while the policy is trained; or vllm_mode server with"
    " GPUs of its own",
    by_rows=False,
)
MIN_ENGINE_SHARE = 0.3
"""Of a GPU's memory in vLLM's cache alone from which it is the cause: TRL's default gives weights and cache together
0.3"""
GRADIENT_CLIPPING = MemoryCause(
    "clipping",
    "gradients are clipped with copies of all of them at once (foreach)",
    "train fewer parameters, or torch.nn.utils.clip_grad_norm_(..., foreach=False) in a loop of one's own",
    by_rows=False,
)
EVALUATION_FUNCTION = (
    r"^_*(?:(?:run_|do_|compute_)?(?:eval|evaluate|evaluation|validate|validation)(?:_\w+)?"
    r"|(?:dev|val)_loss)$"
)
"""Functions of scripts that evaluate, by their names"""
GENERATION_FUNCTION = r"^(?:generate|_sample|_beam_search|_greedy_search|fast_generate)"
IMAGE_MODEL_FILE = (
    r"models/(?:qwen\d\w*_vl\w*|llava\w*|idefics\d?|internvl|mllama|pixtral|paligemma|smolvlm|siglip\w*|glm4v\w*)/"
    r"|modeling_(?:minicpmv|internvl|siglip)\w*\.py$|/(?:vision|image)_(?:encoder|tower)\w*\.py$"
)
"""Code of models that read images"""
CHECKPOINTING_FILE = re.compile(r"torch/utils/checkpoint\.py$|deepspeed/.*/checkpointing\.py$")
"""Code that only a model with gradient checkpointing passes through"""
FRAME_SIGNS = (
    _FrameSign(
        DATA_PARALLEL,
        file=r"nn/parallel/(?:data_parallel|replicate|parallel_apply|scatter_gather|comm)\.py$",
    ),
    _FrameSign(DATA_PARALLEL, function=r"^_worker$", file=r"parallel_apply"),
    _FrameSign(GENERATION_ENGINE, file=r"/vllm/(?:worker|v1|engine|executor|model_executor)/"),
    _FrameSign(
        KEPT_OUTPUTS,
        function=r"^(?:<genexpr>|nested_concat)$",
        code=r"type\(tensors\)\(\s*nested_concat",
    ),
    _FrameSign(
        KEPT_LOGITS,
        function=r"^(?:nested_concat|torch_pad_and_concatenate|nested_detach|_nested_gather)$",
    ),
    _FrameSign(KEPT_LOGITS, function=r"^(?:add|to_cpu_and_numpy)$", file=r"trainer_pt_utils"),
    _FrameSign(KEPT_LOGITS, function=r"pad_across_processes|^gather_for_metrics$"),
    _FrameSign(
        CHECKPOINT_RESUMED, function=r"^_load_optimizer_and_scheduler$|^_load_from_checkpoint$"
    ),
    _FrameSign(OPTIMIZER_STATES, function=r"^_init_group$|^init_state|^_init_state$"),
    _FrameSign(OPTIMIZER_STATES, code=r"exp_avg|state\[.{1,20}\] = torch\.(?:zeros|empty)"),
    _FrameSign(
        OPTIMIZER_STATES, file=r"bitsandbytes/optim/|deepspeed/ops/adam/|torch/optim/|/optimizers?/"
    ),
    _FrameSign(
        GRADIENT_CLIPPING, function=r"^clip_grad_norm|^_get_total_norm$|^_clip_grads_with_norm_?$"
    ),
    _FrameSign(EAGER_ATTENTION, function=r"^eager_attention_forward$|^eager_attention|^_attn$"),
    _FrameSign(
        EAGER_ATTENTION, code=r"attn_weights.{0,40}(?:softmax|matmul)|torch\.matmul\(query\w*, ?key"
    ),
    _FrameSign(EAGER_ATTENTION, code=r"scores.{0,40}softmax|baddbmm\(.{0,60}query"),
    _FrameSign(CACHE_IN_GENERATION, file=r"cache_utils\.py$", within=GENERATION_FUNCTION),
    _FrameSign(CACHE_IN_TRAINING, file=r"cache_utils\.py$"),
    _FrameSign(REFERENCE_MODEL, function=r"^(?:compute_ref|compute_reference|null_ref_context)"),
    _FrameSign(
        EVALUATION_BATCH, function=r"^(?:evaluate|evaluation_loop|prediction_step|validation_step)$"
    ),
    _FrameSign(CACHE_IN_GENERATION, function=GENERATION_FUNCTION),
    _FrameSign(
        OWN_EVALUATION,
        function=EVALUATION_FUNCTION,
        without=r"transformers/trainer|lightning",
        of_user=True,
    ),
    _FrameSign(LOGITS_CAST, function=r"^_?convert_to_fp32$"),
    _FrameSign(
        LOSS_LOGITS,
        function=r"cross_entropy|ForCausalLMLoss|log_softmax|logprobs|logps|get_batch_log|^entropy_from_logits",
    ),
    _FrameSign(
        LOSS_LOGITS,
        code=r"logits\.float\(\)|self\.lm_head\(|logits\.to\(torch\.float|\.log_softmax\(|cross_entropy\(",
    ),
    _FrameSign(
        WEIGHTS_GATHERED,
        function=r"^(?:save_model|_save_checkpoint|save_pretrained|get_state_dict|merge_and_unload|_unshard\w*full)",
    ),
    _FrameSign(
        MODEL_LOADING,
        function=r"^(?:from_pretrained|_load_pretrained_model|load_checkpoint_and_dispatch|load_model)$",
    ),
    _FrameSign(MODEL_LOADING, function=r"^convert$", file=r"nn/modules/module\.py$"),
    # What summons full parameters is no forward pass: that one gathers in _runtime_utils.
    _FrameSign(
        WEIGHTS_GATHERED, file=r"fsdp/(?:_state_dict_utils|_unshard_param_utils|_optim_utils)\.py$"
    ),
    _FrameSign(CHECKPOINT_RESUMED, file=r"torch/serialization\.py$"),
    _FrameSign(IMAGE_INPUTS, file=IMAGE_MODEL_FILE),
)
"""The first that fits the frames holds"""


def settings_with_frames(settings: PrintedSettings, frames: Sequence[Frame]) -> PrintedSettings:
    """The printed settings, with what the frames of a traceback prove: that checkpointing is on."""
    if any(CHECKPOINTING_FILE.search(_posix_path(frame)) for frame in frames):
        return replace(settings, checkpointing=True)
    return settings


def find_memory_cause(frames: Sequence[Frame], text: str) -> MemoryCause | None:
    """What needed the memory, by the traceback; None where no frame is a sign."""
    # DataParallel raises again in the main thread: the frames there are of the replica, and say nothing of it
    if re.search(r"Caught \w+ in replica \d", text):
        return DATA_PARALLEL
    return next((sign.cause for sign in FRAME_SIGNS if sign.fits(frames)), None)


def find_engine_beside(settings: PrintedSettings, figures: MemoryFigures) -> MemoryCause | None:
    """That an engine's cache holds the memory which the training lacks; None where the figures do not prove it."""
    cache, capacity = settings.engine_cache, figures.capacity
    if cache is None or capacity is None or settings.engine_apart or settings.server:
        return None
    is_of_this_process = figures.allocated is not None and figures.allocated > cache
    return ENGINE_BESIDE if cache >= MIN_ENGINE_SHARE * capacity and is_of_this_process else None


def memory_growth(memory: Curve) -> tuple[float, float] | None:
    """Memory of the first and the last record in GiB where it grows with each step; None where it does not."""
    curve = memory.finite()
    if curve.step.size < MIN_GROWTH_RECORDS or np.ptp(curve.step) == 0:
        return None
    first, last = float(curve.value[0]), float(curve.value[-1])
    # A leak grows in the second half too. A peak that was reached early (the longest row) does not.
    half = float(curve.value[curve.value.size // 2])
    if last - first < MIN_GROWTH_GIB or last - half < 0.25 * (last - first):
        return None
    correlation = float(np.corrcoef(curve.step, curve.value)[0, 1])
    return (first, last) if correlation > MIN_CORRELATION else None


def trains_embeddings(settings: PrintedSettings) -> bool:
    """Does the printed share of trained parameters say that more than an adapter's matrices is trained?"""
    return settings.share is not None and MAX_ADAPTER_SHARE < settings.share < FULL_TRAINED_SHARE


@dataclass(frozen=True, slots=True)
class MemoryStory:
    """How a run came to use up the memory of its GPU."""

    cause: MemoryCause | None
    """What the traceback shows"""
    settings: PrintedSettings
    memory: Curve
    """GiB in use by step, where the log has it"""
    step: float
    """Steps that fitted"""
    pieces: float | None = None
    """GiB that PyTorch holds in pieces, where that is more than the tensor needs that failed"""

    @property
    def asks_on(self) -> bool:
        """Would more tensors follow the one that failed, so that room for this one alone is not enough?"""
        grows = memory_growth(self.memory) is not None
        return grows or (self.cause is not None and not self.cause.by_rows)

    @property
    def comes_late(self) -> bool:
        """Did many steps fit, so that the batch which failed was larger than those before?"""
        by_rows = self.cause is None or self.cause in (LOSS_LOGITS, LOGITS_CAST, EAGER_ATTENTION)
        return self.step >= MIN_FITTED_STEPS and by_rows and memory_growth(self.memory) is None

    @property
    def is_fragmented(self) -> bool:
        """Is there room enough, in pieces that are each too small?"""
        return self.pieces is not None and not self.asks_on

    def evidence(self) -> Iterator[str]:
        """What the traceback and the output prove, one line each."""
        grown = memory_growth(self.memory)
        if grown is not None:
            steps = float(np.ptp(self.memory.finite().step))
            yield (
                f"memory in use grows from {grown[0]:.2f} to {grown[1]:.2f} GiB over {steps:,.0f}"
                f" steps, by {(grown[1] - grown[0]) / steps * 1024:.3g} MiB a step: something of"
                " each step is kept on the GPU, and the line that failed is only where it was full"
            )
        elif self.cause is not None:
            yield f"what needed the memory: {self.cause.cause}"
        if self.comes_late and self.is_fragmented:
            yield (
                f"{self.step:,.0f} steps fitted before: rows of many lengths leave pieces that later batches"
                " can't use"
            )
        elif self.comes_late:
            yield (
                f"{self.step:,.0f} steps fitted before: most likely the batch that failed has longer rows"
                " than those, one row many times as long as the others"
            )
        settings = self.settings
        if trains_embeddings(settings) and settings.share is not None:
            yield (
                f"{settings.trained:,} parameters are trained, {settings.share:.1%} of all: an"
                " adapter has 0.1 to 3 %, so embeddings or the head are trained whole"
                " (modules_to_save, lora_modules_to_save, additional_target)"
            )

    def advice(self, gpu: str) -> str:
        """What to change, in order; nothing that the output says is in use already."""
        plan = (
            f"compute which part is too large with `truetune plan SETTINGS --gpu {gpu}` (or a"
            " script, or the model's folder, for SETTINGS)"
        )
        if memory_growth(self.memory):
            return (
                "keep losses with .item() and outputs (hidden states, logits) with"
                " .detach().cpu(), or not at all: look in the loop for lists and sums of tensors"
                " (`truetune lint SCRIPT`); smaller batches only delay it"
            )
        return "; ".join((*self._changes(), plan))

    def _changes(self) -> Iterator[str]:
        """Changes in the order of their price: a variable first, then the data, the cause itself, smaller steps."""
        if self.is_fragmented:
            yield (
                f"first set PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True: PyTorch holds {self.pieces:.1f}"
                " GiB in pieces, more than what failed needs"
            )
        if self.comes_late:
            yield (
                "see the longest rows with `truetune check DATA -t TOKENIZER -v`, and drop them or"
                " cut them with max_length"
            )
        if trains_embeddings(self.settings) and self.cause in (
            None,
            OPTIMIZER_STATES,
            GRADIENT_CLIPPING,
        ):
            yield (
                "leave embed_tokens and lm_head out of what is saved whole, unless tokens were"
                " added (then trainable_token_indices trains these rows alone)"
            )
        if self.cause is LOSS_LOGITS and self.settings.fused_loss:
            yield "fewer or shorter rows: a loss kernel is on already (see that it knows this model's class)"
        elif self.cause is not None:
            yield self.cause.advice
        if self.cause is None or self.cause.by_rows:
            yield from _smaller_steps(self.settings, advises_rows=not self.comes_late)


def _smaller_steps(settings: PrintedSettings, *, advises_rows: bool) -> Iterator[str]:
    """What makes a step smaller and is not in use yet; rows unless those are advised already."""
    if settings.batch is None or settings.batch > 1:
        yield "halve per_device_train_batch_size and double gradient_accumulation_steps"
    if not settings.checkpointing:
        yield "turn gradient_checkpointing on, unless it is"
    if settings.batch == 1 and settings.checkpointing and advises_rows:
        yield (
            "the batch is 1 and checkpointing is on already: shorter rows (`truetune check DATA -t"
            " TOKENIZER -v` prints the lengths), or more GPUs"
        )
