"""Known messages of FSDP, DeepSpeed ZeRO and quantized layers under them: weights that are held in
shards.
"""

from __future__ import annotations

from truetune.logs.console.messages.known_message import define_message

MESSAGES = (
    define_message(
        "quantized-weights-under-fsdp",
        "FSDP can't flatten quantized weights: they are stored as integers (uint8, int8)",
        r"Cannot flatten integer dtype tensors",
        "bnb_4bit_quant_storage is not set, so that 4-bit weights are stored as uint8; or the model is"
        " loaded in 8-bit, which FSDP can't shard at all",
        "BitsAndBytesConfig(..., bnb_4bit_quant_storage=torch.bfloat16), the same dtype as that which"
        " the model is loaded in (dtype=torch.bfloat16); 4-bit instead of 8-bit",
        "huggingface/peft#1432",
        "axolotl-ai-cloud/axolotl#2250",
        "torch/distributed/fsdp/_flat_param.py",
    ),
    define_message(
        "fsdp-mixed-dtypes",
        "FSDP can't put weights of different dtypes into one flat tensor",
        r"Must flatten tensors with uniform dtype",
        "an adapter or norms in float32 beside a base in bfloat16; bnb_4bit_quant_storage of another"
        " dtype than the model's; a wrap class that is not that of the model's layers",
        "one dtype for all: model.to(torch.bfloat16) before the trainer, or autocast_adapter_dtype="
        "False for the adapter; bnb_4bit_quant_storage equal to dtype; `truetune check CHECKPOINT`"
        " lists the dtypes",
        "huggingface/trl#1723",
        "axolotl-ai-cloud/axolotl#1494",
        "torch/distributed/fsdp/_flat_param.py",
    ),
    define_message(
        "fsdp-mixed-requires-grad",
        "FSDP flattens frozen and trained weights together",
        r"Must flatten tensors with uniform `requires_grad`",
        "LoRA or frozen layers under FSDP with use_orig_params=False",
        "fsdp_use_orig_params: true, or peft.utils.other.fsdp_auto_wrap_policy(model), which wraps"
        " adapters apart",
        "torch/distributed/fsdp/_flat_param.py",
        "peft/utils/other.py",
    ),
    define_message(
        "checkpoint-of-empty-tensors",
        "the checkpoint holds empty tensors: shards of ZeRO-3 or FSDP were saved without being"
        " gathered",
        r"shape torch\.Size\(\[0\]\) from checkpoint|tensor of shape torch\.Size\(\[0\]\) in"
        r"|saved .{0,40}torch\.Size\(\[0\]\)",
        "model.save_pretrained() or torch.save(model.state_dict()) on one rank under ZeRO-3, where"
        " each process holds a part and the module holds an empty tensor. The vocabulary is not the"
        " matter, and ignore_mismatched_sizes would load a random model",
        "the weights are in the training's own checkpoint: `python zero_to_fp32.py . out` in the"
        " folder that has global_step*; save with trainer.save_model(), or"
        " save_pretrained(..., state_dict=accelerator.get_state_dict(model)) called by every rank,"
        " and stage3_gather_16bit_weights_on_model_save: true",
        "huggingface/transformers#20082",
        "deepspeedai/DeepSpeed#1394",
    ),
    define_message(
        "weight-is-a-shard",
        "a layer was called outside of its wrapper while it holds only a shard of its weights",
        r"'weight' must be 2-D|out of bounds for storage of size 0|Tensor on device meta is not on"
        r" the expected device|non-root FSDP instance",
        "ZeRO-3 or FSDP: generate(), a reference or teacher model, or a submodule was called without"
        " its weights being gathered (a model that was not given to accelerator.prepare, or"
        " model.module(...))",
        "prepare every model that runs (accelerator.prepare, deepspeed.initialize); for generate():"
        " synced_gpus=True, or within deepspeed.zero.GatheredParameters or"
        " FSDP.summon_full_params; ZeRO-2 keeps whole weights",
        "huggingface/trl#600",
        "deepspeedai/DeepSpeed#2746",
    ),
    define_message(
        "zero3-and-device-map",
        "ZeRO-3 places the weights itself and can't be joined with device_map or low_cpu_mem_usage",
        r"DeepSpeed Zero-3 is not compatible with",
        "device_map='auto' (or {'': 0}) in from_pretrained of a script that DeepSpeed starts",
        "remove device_map and low_cpu_mem_usage; `truetune lint SCRIPT` finds device maps in"
        " distributed scripts",
        "transformers/modeling_utils.py",
    ),
    define_message(
        "device-map-in-a-distributed-run",
        "a model that is spread over all GPUs is trained by several processes",
        r"can't train a model that has been loaded with `device_map='auto'` in any distributed mode",
        "device_map='auto' spreads the layers over all GPUs, and each process does so",
        "remove device_map, or device_map={'': int(os.environ['LOCAL_RANK'])} for quantized models;"
        " `truetune lint SCRIPT` finds it",
        "accelerate/accelerator.py",
        "huggingface/transformers#24410",
    ),
    define_message(
        "quantized-model-offloaded",
        "a quantized model does not fit the GPU, and its layers can't be offloaded",
        r"Some modules are dispatched on the CPU or the disk",
        "the model in 4-bit or 8-bit is larger than what is free on the GPU: another process holds"
        " memory, or device_map splits by too small a limit",
        "see what is in use with `nvidia-smi`; compute the size with `truetune plan SETTINGS --gpu"
        " {gpu}`; llm_int8_enable_fp32_cpu_offload=True only for inference",
        "transformers/quantizers/quantizer_bnb_4bit.py",
    ),
    define_message(
        "optimizer-not-of-deepspeed",
        "offloading to the CPU is slow with an optimizer that is not DeepSpeed's",
        r"using ZeRO-Offload with a client provided optimizer",
        "optimizer states on the CPU are updated by torch's AdamW, which DeepSpeed refuses by default",
        "give the optimizer in DeepSpeed's JSON (AdamW becomes DeepSpeedCPUAdam), or"
        ' "zero_force_ds_cpu_optimizer": false',
        "deepspeed/runtime/engine.py",
    ),
    define_message(
        "no-sync-under-zero",
        "no_sync() is called under ZeRO-2 or ZeRO-3, which split gradients at once",
        r"no_sync context manager is incompatible with gradient partitioning",
        "a transformers or accelerate that calls no_sync for accumulation beside a newer DeepSpeed,"
        " or a hand-written loop that does",
        "update accelerate and transformers together with DeepSpeed (`truetune doctor` lists them); in"
        " your own loop leave no_sync out under ZeRO",
        "deepspeed/runtime/engine.py",
    ),
    define_message(
        "gradient-reduced-twice",
        "a weight got its gradient twice within one step of ZeRO",
        r"has already been reduced\.\s+Gradient computed twice",
        "reentrant gradient checkpointing, a model that runs twice in one step (two forwards, shared"
        " layers), or two backward calls",
        "gradient_checkpointing_kwargs={'use_reentrant': False}; one forward over both halves"
        " (concatenated) instead of two; ZeRO-1 or ZeRO-3 instead of 2",
        "deepspeedai/DeepSpeed#988",
        "deepspeedai/DeepSpeed#627",
    ),
    define_message(
        "zero3-inflight-params",
        "ZeRO-3 fetched weights that the step never used",
        r"still have inflight params|Invalidate trace cache.{0,80}but got module .{0,200}Error",
        "layers that depend on the rows (experts, a vision tower that text rows skip) or another order"
        " in the evaluation than in the training",
        "deepspeed.utils.set_z3_leaf_modules(model, [EXPERT_CLASS]) for mixtures of experts;"
        ' "stage3_prefetch_bucket_size": 0; a newer DeepSpeed',
        "deepspeedai/DeepSpeed#5828",
        "deepspeedai/DeepSpeed#5648",
    ),
    define_message(
        "resumed-on-other-gpus",
        "optimizer states of another number of processes can't be loaded",
        r"checkpoint being loaded used a DP world size of \d+|world size .{0,80}not currently supported"
        r"|Loading a checkpoint with a different (?:DP|data parallel)",
        "ZeRO saves one file of states for each process, and the run was resumed on more or fewer GPUs",
        "resume on the same number of GPUs; or ds_to_universal.py and "
        '"load_universal_checkpoint": true; or start again from the weights alone',
        "deepspeed/runtime/zero/stage_1_and_2.py",
    ),
    define_message(
        "fp16-step-skipped",
        "steps are skipped again and again: gradients overflow in float16",
        r"(?:\[deepspeed\] )?OVERFLOW! Rank \d+ Skipping step|(?:Gradient overflow|Grad overflow)"
        r".{0,60}[Ss]kip\w* step",
        "the loss scale begins at 65,536 and is halved at each overflow, which is normal for the first"
        " ten steps or so; if it does not end, activations are beyond float16's range (Gemma, T5,"
        " models trained in bfloat16)",
        "train in bf16 (bf16=True, fp16=False), or in float32 on a GPU without it (V100, T4, P100); a lower learning"
        " rate does not help where the first steps overflow already",
        "deepspeed/runtime/zero/stage_1_and_2.py",
        "deepspeed/runtime/fp16/loss_scaler.py",
        shown="notice",
        severity="warning",
        least=20,
    ),
    define_message(
        "heads-not-divisible",
        "the attention heads can't be shared by this number of GPUs",
        r"(?:attention heads|num_(?:attention_|kv_)?heads).{0,40}must be divisible by.{0,40}tensor"
        r"[ _-](?:model[ _-])?parallel",
        "tensor parallelism splits heads: 14 heads (Qwen2.5-0.5B) fit 1, 2 or 7 GPUs, not on 4",
        "a --tensor-parallel-size that divides num_attention_heads of config.json",
        "vllm/config/model.py",
    ),
    define_message(
        "wrapper-has-no-attribute",
        "a method of the model is asked of the wrapper around it (DDP, FSDP, DeepSpeed)",
        r"'(?:DistributedDataParallel|DataParallel|FullyShardedDataParallel|DeepSpeedEngine)' object has no attribute",
        "the wrapper has the forward pass and little else: generate, save_pretrained, config and your own"
        " methods are the model's, which is its `.module`",
        "call it on the model inside: `model.module.generate(...)` or `accelerator.unwrap_model(model)`; under FSDP"
        " and ZeRO-3 gather the weights first, since each process holds a part; the forward pass of a training"
        " step must stay on the wrapper",
        "torch/nn/parallel/distributed.py",
        "huggingface/accelerate#2139",
    ),
    define_message(
        "precision-of-accelerate-and-deepspeed",
        "accelerate and the DeepSpeed file ask for different precisions",
        r"`--mixed_precision` arg cannot be set to",
        "mixed_precision of accelerate's configuration (or of the command) beside fp16 or bf16 of the DeepSpeed file:"
        " one says fp16, the other bf16",
        'set both to the same: mixed_precision: bf16 and "bf16": {"enabled": true}, or "auto" in the DeepSpeed'
        " file; `truetune lint COMMAND.sh` names the two places",
        "accelerate/utils/dataclasses.py",
    ),
    define_message(
        "layer-class-to-wrap-not-found",
        "FSDP is set to wrap a class of layers that the model does not have",
        r"Could not find the transformer layer class",
        "fsdp_transformer_layer_cls_to_wrap names another architecture's class",
        "name the class of this model's layers, as `print(model)` shows it (of Llama LlamaDecoderLayer, of Qwen2.5"
        " Qwen2DecoderLayer, of Qwen3 Qwen3DecoderLayer), in fsdp_transformer_layer_cls_to_wrap; or leave the setting"
        " out, and accelerate takes model._no_split_modules",
        "accelerate/utils/dataclasses.py",
    ),
    define_message(
        "quantized-again",
        "weights that are quantized already are quantized again",
        r"Blockwise quantization only supports 16/32-bit floats|quantization state not initialized"
        r"|only supports 16/32-bit floats, but got torch\.u?int8",
        "a 4-bit checkpoint that is loaded with another quantization config, moved between devices"
        " twice, or merged and saved as if it were plain",
        "load a quantized checkpoint without quantization_config; merge into the base in bfloat16"
        " (`truetune merge ADAPTER -o MERGED`)",
        "bitsandbytes/functional.py",
        "bitsandbytes/nn/modules.py",
    ),
)
"""By how special they are"""
