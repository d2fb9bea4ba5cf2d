"""Tells what needed the memory when a GPU ran out of it, by the traceback and the printed settings.

Each cause is a sign in the frames (a file, a function, a source line) with the advice that fits it. Frames are looked
through in the order of the table, what is special first: a gather of DataParallel is no matter of the batch, and states
of the optimizer do not depend on rows at all. What follows from a cause in one run is
`explain_out_of_memory_with_advice`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from truetune.logs.console.out_of_memory_message import MemoryFigures
from truetune.logs.console.parse_tracebacks import Frame
from truetune.logs.console.printed_settings import PrintedSettings


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
        """Do these frames show the cause: does each of its patterns fit one?"""
        if self.within and not any(re.search(self.within, frame.function) for frame in frames):
            return False
        files = [_posix_path(frame) for frame in frames]
        if self.without and any(re.search(self.without, file) for file in files):
            return False
        return any(self._fits_frame(frame) for frame in frames)

    def _fits_frame(self, frame: Frame) -> bool:
        """Does this frame show it? An empty pattern fits any, but not for source code: many frames
        are printed without.
        """
        if self.of_user and frame.is_in_package:
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
    "a checkpoint is loaded onto the GPU beside what lies there already, before any row: a run"
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
ATTENTION_MASK = MemoryCause(
    "attention-mask",
    "it is the attention's mask, rows x length x length: it grows with the square of the longest row",
    "shorter rows (max_length), padded to the longest of their batch; a mask is made whole for sdpa and eager"
    ' attention, and not for attn_implementation="flash_attention_2"',
)
AFTER_EVALUATION = MemoryCause(
    "after-evaluation",
    "it is the first training step after an evaluation, and those before it fitted: the model is still in eval() mode,"
    " in which gradient checkpointing is off, or the evaluation's logits, losses or the allocator's cache of them still"
    " hold the memory",
    "call model.train() after the evaluation, keep loss.item() and outputs with .cpu() or not at all (del outputs),"
    " and call torch.cuda.empty_cache() after it; the rows are no longer than those that fitted before",
    by_rows=False,
)
LEFT_IN_EVALUATION_MODE = MemoryCause(
    "left-in-evaluation-mode",
    "it is the first training step after an evaluation, which left the model in eval() mode: gradient checkpointing is"
    " off in it, so that the step keeps the activations of all layers",
    "call model.train() after the evaluation (the rows are no longer than those that fitted before)",
    by_rows=False,
)
AFTER_EVALUATION_OF_TRAINER = MemoryCause(
    "after-evaluation-of-trainer",
    "it is the first training step after an evaluation, and those before it fitted: logits or predictions of the"
    " evaluation (compute_metrics, a callback) or the allocator's cache of them still hold the memory",
    "keep predictions on the CPU (preprocess_logits_for_metrics with argmax, eval_accumulation_steps=1), set a smaller"
    " per_device_eval_batch_size and torch_empty_cache_steps; the training rows are no longer than those that fitted"
    " before",
    by_rows=False,
)
BEHIND_EVALUATION = (AFTER_EVALUATION, LEFT_IN_EVALUATION_MODE, AFTER_EVALUATION_OF_TRAINER)
"""Causes of a step that fails after an evaluation"""
MODEL_LOADING = MemoryCause(
    "loading",
    "the weights alone do not fit into what is free: they are being loaded",
    # What fits the failing line is put together in `out_of_memory_loading`.
    "",
    by_rows=False,
)
LOADED_AFTER_TRAINING = MemoryCause(
    "loaded-after-training",
    "another model is being loaded after the training: the model that was trained, its trainer and its optimizer still"
    " hold the memory, for it is PyTorch's own of this process",
    "free them above the load: del model, trainer; gc.collect(); torch.cuda.empty_cache() (every name that holds them;"
    ' in a notebook restart the kernel, and load from what was saved); or merge on the CPU: device_map="cpu" for the'
    " second load",
    by_rows=False,
)
WHOLE_WEIGHTS = MemoryCause(
    "whole-weights-on-each-gpu",
    "DeepSpeed starts, and each process moves all weights to its GPU, before any row: ZeRO's stages 1 and 2 share out"
    " the optimizer's states and gradients, and leave the weights whole (stage 3 too, where the model was loaded before"
    " zero.Init knew of it)",
    '"stage": 3, with the arguments (TrainingArguments, HfDeepSpeedConfig) made before the model is loaded; or LoRA;'
    " fewer or shorter rows do not help",
    by_rows=False,
)
WEIGHTS_COPIED = MemoryCause(
    "weights-copied",
    "a copy of all weights is made on the GPU, beside those that are trained",
    "move each tensor to the CPU before it is copied or cast: {k: v.detach().cpu() for k, v in"
    " model.state_dict().items()}; fewer or shorter rows do not help",
    by_rows=False,
)
HARNESS_BATCH = MemoryCause(
    "harness-batch",
    "it is the evaluation harness: the logits of a batch are rows x length x vocabulary, once more in log_softmax, and"
    " the length is that of the task's prompts (a few-shot prompt has thousands of tokens)",
    "a smaller --batch_size (4, or auto), max_length in --model_args, or an engine that never holds them (--model"
    " vllm)",
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
ENGINE_GRAPHS = MemoryCause(
    "engine-graphs",
    "vLLM captures CUDA graphs after it has reserved its share of the GPU (gpu_memory_utilization) for weights and"
    " cache: the graphs, of 1 to 3 GiB, must fit into the rest",
    "--gpu-memory-utilization 0.9 or less (a larger share leaves less for the graphs), a smaller --max-num-seqs, which"
    " captures fewer graphs, or --enforce-eager, which captures none and generates more slowly",
    by_rows=False,
)
GENERATION_ENGINE = MemoryCause(
    "generation-engine",
    "it is vLLM's part: it reserves its weights and its cache up front, as a share of the whole GPU, whatever else is"
    " on it",
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
    "train fewer parameters, or torch.nn.utils.clip_grad_norm_(..., foreach=False) in your own loop",
    by_rows=False,
)
EVALUATION_FUNCTION = (
    r"^_*(?:(?:run_|do_|compute_)?(?:eval|evaluate|evaluation|validate|validation)(?:_\w+)?"
    r"|(?:dev|val)_loss)$"
)
"""Functions of scripts that evaluate, by their names"""
GENERATION_FUNCTION = r"^(?:generate|_sample|_beam_search|_greedy_search|fast_generate)"
HARNESS_FILE = r"/(?:lm_eval|lighteval)/"
HARNESS_FUNCTION = r"^_?(?:loglikelihood\w*|model_call|model_generate|generate_until|greedy_until)$"
"""Code of evaluation harnesses that asks the model: their loads are those of any program"""
COPIED_WEIGHTS = (
    r"\.(?:clone|float|half|bfloat16|double)\(\).{0,120}\bstate_dict\(\)"
    r"|\bdeepcopy\(.{0,60}(?:state_dict\(\)|model)"
)
"""Source lines that copy the weights of a model where they lie"""
IMAGE_MODEL_FILE = (
    r"models/(?:qwen\d\w*_vl\w*|llava\w*|idefics\d?|internvl|mllama|pixtral|paligemma|smolvlm|siglip\w*|glm4v\w*)/"
    r"|modeling_(?:minicpmv|internvl|siglip)\w*\.py$|/(?:vision|image)_(?:encoder|tower)\w*\.py$"
)
"""Code of models that read images"""
CHECKPOINTING_FILE = re.compile(r"torch/utils/checkpoint\.py$|deepspeed/.*/checkpointing\.py$")
"""Code that only a model with gradient checkpointing passes through"""
FLOAT32_CODE = re.compile(r"\.float\(\)|torch\.float32|convert_to_fp32")
"""Source lines that make float32 of what they are given"""
LAYER_CODE = re.compile(
    r"self\.(?:self_attn|attention|attn|mlp|feed_forward|block_sparse_moe|gate_proj|up_proj|down_proj|q_proj|o_proj|act_fn"
    r"|input_layernorm|post_attention_layernorm)\("
)
"""Source lines inside of a layer: a checkpointed layer has the checkpoint's frames around them"""
FRAME_SIGNS = (
    _FrameSign(
        DATA_PARALLEL,
        file=r"nn/parallel/(?:data_parallel|replicate|parallel_apply|scatter_gather|comm)\.py$",
    ),
    _FrameSign(DATA_PARALLEL, function=r"^_worker$", file=r"parallel_apply"),
    _FrameSign(HARNESS_BATCH, file=HARNESS_FILE, function=HARNESS_FUNCTION),
    _FrameSign(ENGINE_GRAPHS, file=r"/vllm/", function=r"^_?capture_(?:model|cudagraphs?)$"),
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
    # An `evaluate` of one's own has no settings of the Trainer.
    _FrameSign(
        EVALUATION_BATCH,
        file=r"transformers/trainer\w*\.py$|/trl/|lightning",
        function=r"^(?:evaluate|evaluation_loop|prediction_step|validation_step)$",
    ),
    _FrameSign(EVALUATION_BATCH, function=r"^(?:evaluation_loop|prediction_step)$"),
    _FrameSign(CACHE_IN_GENERATION, function=GENERATION_FUNCTION),
    _FrameSign(
        OWN_EVALUATION,
        function=EVALUATION_FUNCTION,
        without=r"transformers/trainer|lightning",
        of_user=True,
    ),
    _FrameSign(
        ATTENTION_MASK,
        file=r"masking_utils\.py$|modeling_attn_mask_utils\.py$",
    ),
    _FrameSign(
        ATTENTION_MASK,
        function=r"causal_mask|_prepare_4d|create_\w*mask|make_\w*mask|expand_mask|\b(?:get|build)_\w*mask",
    ),
    _FrameSign(
        ATTENTION_MASK,
        code=r"mask\w* ?=.{0,60}torch\.(?:ones|full|triu|tril|zeros)\(|torch\.(?:triu|tril)\(\s*torch\.(?:ones|full)",
    ),
    _FrameSign(LOGITS_CAST, function=r"^_?convert_to_fp32$"),
    _FrameSign(
        LOSS_LOGITS,
        function=r"cross_entropy|ForCausalLMLoss|log_softmax|logprobs|logps|get_batch_log|^entropy_from_logits",
    ),
    _FrameSign(
        LOSS_LOGITS,
        code=r"logits\.float\(\)|self\.lm_head\(|logits\.to\(torch\.float|log_softmax\(|cross_entropy\(",
    ),
    _FrameSign(WEIGHTS_COPIED, code=COPIED_WEIGHTS, of_user=True),
    _FrameSign(
        WEIGHTS_GATHERED,
        function=r"^(?:save_model|_save_checkpoint|save_pretrained|get_state_dict|merge_and_unload|_unshard\w*full)",
    ),
    _FrameSign(
        WHOLE_WEIGHTS,
        file=r"deepspeed/runtime/engine\.py$",
        function=r"^_configure_distributed_model$",
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
    _FrameSign(MODEL_LOADING, code=r"\.from_pretrained\(", of_user=True),
    _FrameSign(IMAGE_INPUTS, file=IMAGE_MODEL_FILE),
)
"""The first that fits the frames holds"""


def add_settings_proved_by_frames(
    settings: PrintedSettings, frames: Sequence[Frame]
) -> PrintedSettings:
    """The printed settings, with what the frames of a traceback prove added: that checkpointing is
    on.
    """
    return replace(settings, checkpointing=True) if passes_checkpointed_layer(frames) else settings


def passes_checkpointed_layer(frames: Sequence[Frame]) -> bool:
    """Does a traceback go through a layer that is checkpointed?"""
    return any(CHECKPOINTING_FILE.search(_posix_path(frame)) for frame in frames)


def passes_layer_without_checkpoint(frames: Sequence[Frame]) -> bool:
    """Does a traceback go through the inside of a layer of the model, and through no checkpoint?"""
    return not passes_checkpointed_layer(frames) and any(
        LAYER_CODE.search(frame.code) for frame in frames
    )


def cause_after_evaluation(frames: Sequence[Frame], *, is_left_in_eval_mode: bool) -> MemoryCause:
    """The cause of a failure after an evaluation: what that left in memory, or that the model was
    left in eval mode. The Trainer itself puts the model back into training mode at each step.
    """
    if any(file.endswith("transformers/trainer.py") for file in map(_posix_path, frames)):
        return AFTER_EVALUATION_OF_TRAINER
    return LEFT_IN_EVALUATION_MODE if is_left_in_eval_mode else AFTER_EVALUATION


def failed_on_float32_logits(frames: Sequence[Frame]) -> bool:
    """Was it logits in float32 that did not fit, which a loss or a cast makes?"""
    return any(FLOAT32_CODE.search(f"{frame.function} {frame.code}") for frame in frames)


def failed_in_training_step(frames: Sequence[Frame]) -> bool:
    """Did a training step fail, and no evaluation, generation or saving?"""
    names = [frame.function for frame in frames]
    outside = rf"{EVALUATION_FUNCTION}|{GENERATION_FUNCTION}|^(?:evaluation_loop|prediction_step|save\w*|_save\w*)$"
    if any(re.search(outside, name) for name in names):
        return False
    inside = r"^(?:training_step|compute_loss|train_step|forward|_call_impl|backward|_engine_run_backward|__call__)$"
    return any(re.search(inside, name) for name in names) or any(
        ".backward(" in frame.code for frame in frames
    )


def find_memory_cause(frames: Sequence[Frame], text: str) -> MemoryCause | None:
    """What needed the memory, by the traceback; None where no frame is a sign."""
    # DataParallel raises again in the main thread: the frames there are of the replica, and say nothing of it
    if re.search(r"Caught \w+ in replica \d", text):
        return DATA_PARALLEL
    return next((sign.cause for sign in FRAME_SIGNS if sign.fits(frames)), None)


def cause_of_engine_cache(settings: PrintedSettings, figures: MemoryFigures) -> MemoryCause | None:
    """The cause that an inference engine's cache holds the memory which the training lacks; None if
    the figures do not prove it.
    """
    cache, capacity = settings.engine_cache, figures.capacity
    if cache is None or capacity is None or settings.engine_apart or settings.server:
        return None
    is_of_this_process = figures.allocated is not None and figures.allocated > cache
    return ENGINE_BESIDE if cache >= MIN_ENGINE_SHARE * capacity and is_of_this_process else None
