"""Signs of what causes memory that runs out."""

from __future__ import annotations

from truetune.troubleshooting.signs.shared_patterns_of_project_statements import (
    BATCH,
    EAGER,
    EVAL_BATCH,
    FULL_IMAGES,
    GENERATES,
    GPU_PROCESS,
    KILLED,
    LENGTH,
    LIMITS_IMAGES,
    LOAD,
    LORA,
    MEMORY_ERROR,
    NO_DTYPE,
    OFF,
    ON,
    OWN_LOOP,
    PADS,
    SEVERAL_PROCESSES,
    SIXTEEN_BITS,
    TRAINS,
    VISION,
    ZERO3,
)
from truetune.troubleshooting.signs.sign_as_statement_patterns import SET, Sign

CHECKPOINTS = (
    rf"(?:gradient|activation)_checkpointing['\"]?(?:{ON}|{SET}unsloth)"
    r"|gradient_checkpointing_enable\("
    rf"|--gradient_checkpointing\b(?! [Ff]alse)|activation_checkpointing\w*{ON}"
    r"|torch\.utils\.checkpoint"
)
CHECKPOINTS_OFF = (
    rf"disable_gradient_checkpointing{ON}|(?:gradient|activation)_checkpointing{OFF}"
    r"|gradient_checkpointing_disable\("
)
# Chosen, not measured: what fits beside a 7B model in 24 GB is 2 to 4 rows of 2,048 tokens.
MANY_ROWS = rf"{BATCH}{SET}(?:[89]|[1-9]\d{{1,2}})\b(?![.\d])"
SEVERAL_ROWS = rf"{BATCH}{SET}(?:[2-9]|[1-9]\d{{1,2}})\b(?![.\d])"
LONG_ROWS = rf"{LENGTH}{SET}(?:8192|9\d{{3}}|[1-9]\d{{4,6}})\b"
NO_LONG_LOGITS = r"(?i:liger|cut_cross_entropy|fused_linear|fused_cross|LinearCrossEntropy|unsloth)"
LARGE_VOCABULARY = r"(?i:gemma|qwen|llama-?3|mistral-nemo|mt5|xlm)"
WHOLE_MODULES = (
    r"\b(?:lora_)?(?:modules_to_save|additional_target)\W{1,8}[^=:]{0,80}?(?:embed|lm_head"
    r"|wte|score)"
)
KEPT = r"\.item\(|\.cpu\(|float\(|\.tolist\(|\.numpy\(|decode\(|len\(|\.detach\(\)\.cpu"
GRAPH_LOSS = (
    r"(?:\+=|=\s*\w{0,20}loss\w*\s*\+)\s*(?:\w+\."
    r"|\w+\[['\"])?\w*loss\b(?!.*(?:\.item\(|\.detach\(|\.cpu\(|float\())"
)
ONE_ADAMW = (
    rf"optim(?:izer)?(?:_name|_type)?{SET}['\"]?(?:adamw|AdamW|Adam"
    r"|adam)(?:_torch(?:_fused)?|_hf|W)?\b(?!_)|\bAdamW?\("
)
FULL_TRAINING = rf"(?:finetuning_type|train_type|tuner_type){SET}full\b|full_finetun\w*|{ONE_ADAMW}"
SMALL_STATES = rf"{LORA}|8bit|8_bit|paged|adafactor|galore|optimizer_in_bwd{ON}|[Ll]ion|offload"
FSDP = r"\bFSDP\b|fsdp|fully_shard|FullyShardedDataParallel"
QUANTIZES = rf"load_in_[48]bit{ON}|quantization_bit{SET}[48]|BitsAndBytesConfig\("
PREFERENCE = (
    r"(?:DPO|ORPO|CPO|SimPO|KTO|IPO)(?:Config|Trainer)\(|pref_loss|stage: ?(?:dpo|kto)"
    r"|rl: ?(?:dpo|orpo|ipo|kto|simpo)|\b(?:dpo|orpo|simpo|kto)\w*\.(?:py|ya?ml)"
)
BIG_BUCKET = r"(?:reduce|allgather)_bucket_size\W{1,4}(?:[1-9](?:\.\d+)?[eE]\+?(?:9|1\d)\b|\d{10,})"
EXPERTS = (
    r"\d+B-A\d|[Mm]ixtral|\b\w{0,20}MoE\b|gpt-oss|DeepSeek-V[23]|OLMoE"
    r"|num_(?:local_)?experts|Scout|Maverick"
)
SERVES = r"vllm serve|vllm\.entrypoints|\bLLM\(|llama-server|ollama|sglang|vllm/vllm-openai"
LONG_CONTEXT = (
    r"(?:max[-_]model[-_]len|num_ctx|n_ctx|ctx[-_]size|context[-_]length"
    rf"|CONTEXT_LENGTH){SET}(?:0\b|[2-9]\d{{4}}|1[6-9]\d{{3}}|\d{{6,}})"
    r"|llama-server.*\s-c (?:0|[2-9]\d{4}|\d{6,})\b|--max-total-tokens (?:[2-9]\d{4}|\d{6,})"
)
TWO_MODELS_HELD = (
    r"\.merge_and_unload\(|\bPeft\w*\.from_pretrained\(|AutoPeft\w*\.from_pretrained\("
)
ADAPTER_PASSED = (
    r"peft_config|get_peft_model\(|add_adapter\(|inject_adapter|get_peft_config|PeftModel\("
)
HARNESS = r"\blm[_-]eval\b|lm_eval\.|lighteval|simple_evaluate\("
UNEVEN = r"padding\s*=\s*(?:True|['\"]longest)|pad_sequence\("
GROUPS = r"group_by_length|packing|LengthGrouped|bucket|padding_free|flattening"
CHECKS_WORKERS = (
    r"(?:uvicorn|gunicorn|fastapi).*(?:--workers|-w)[ =](?:[2-9]|\d\d)\b"
    r"|\bworkers\s*=\s*(?:[2-9]|\d\d)\b|WEB_CONCURRENCY\W{1,3}[2-9]"
)
SAVES = r"save_pretrained\(|save_model\(|torch\.save\(|on_save|save_steps|save_strategy"

SIGNS: tuple[Sign, ...] = (
    Sign(r"^activations: too many", MANY_ROWS, beside=TRAINS, unless=CHECKPOINTS),
    Sign(r"^activations: too many", LONG_ROWS, beside=TRAINS),
    Sign(r"^activations: too many", SEVERAL_ROWS, beside=MEMORY_ERROR),
    Sign(r"^the run needs more memory than", MANY_ROWS, beside=MEMORY_ERROR),
    Sign(r"^the run needs more memory than", LONG_ROWS, beside=MEMORY_ERROR),
    Sign(r"^(?:eager attention holds|attention runs in the eager)", r"eager_attention_forward"),
    Sign(r"^(?:eager attention holds|attention runs in the eager)", EAGER),
    Sign(r"^nn\.DataParallel", r"data_parallel\.py|\bDataParallel\("),
    Sign(
        r"^a key in the DeepSpeed settings has no effect",
        r"\b(?:stage3_\w+|offload_(?:optimizer|param)|activation_checkpointing|partition_activations)['\"]?\s*:",
    ),
    Sign(
        r"^nn\.DataParallel",
        r"CUDA_VISIBLE_DEVICES=\d,\d[\d,]*\s+(?:nohup )?python3? (?!-m)",
        unless=r"torchrun|accelerate launch|deepspeed|device_map",
    ),
    Sign(r"^embeddings and head are trained whole", WHOLE_MODULES),
    Sign(
        r"^embeddings and head are trained whole",
        r"^-\s*['\"]?(?:embed_tokens|lm_head|wte)\b",
        beside_in_file=r"modules_to_save|additional_target",
    ),
    Sign(r"^embeddings and head are trained whole", r"trainable%:? ?(?:[4-9]|[1-9]\d)(?:\.\d|\b)"),
    Sign(
        r"^(?:tensors of each step are kept|a loop keeps the model's large outputs)",
        rf"\.append\((?!.*(?:{KEPT})).*\b(?:loss(?:es)?|logits|hidden\w*|outputs?|out"
        r"|attentions?|emb\w*|grads?)\b|\bhistory\[.*\]\s*=\s*loss\b",
        beside_in_file=r"\.backward\(|training_step|compute_loss|no_grad|inference_mode|validation_step"
        r"|\.logits",
    ),
    Sign(
        r"^(?:tensors of each step are kept|a loop keeps the model's large outputs)",
        r"\b\w{0,30}(?:logits|outputs|hidden\w*|preds)\w*\s*=\s*torch\.cat\(",
        beside_in_file=r"torch\.no_grad|inference_mode|\.backward\(",
    ),
    Sign(
        r"^logits of a large vocabulary",
        r"File .*(?:loss_utils|fused_cross|torch/nn/functional)\.py.*|logits = logits\.float\("
        r"|in cross_entropy\b|ForCausalLMLoss",
        beside=MEMORY_ERROR,
    ),
    Sign(
        r"^logits of a large vocabulary",
        LONG_ROWS,
        unless=NO_LONG_LOGITS,
        beside=LARGE_VOCABULARY,
    ),
    Sign(
        r"^hidden states or attentions that the model returns",
        rf"output_(?:hidden_states|attentions){ON}",
        beside=r"compute_metrics|evaluat|eval_",
    ),
    Sign(r"^(?:images of full size|pictures go into)", FULL_IMAGES),
    Sign(r"^(?:images of full size|pictures go into)", VISION, unless=LIMITS_IMAGES, beside=TRAINS),
    Sign(
        r"^(?:CUDA_VISIBLE_DEVICES is set in the script|CUDA_VISIBLE_DEVICES hides)",
        r"environ(?:\[|\.setdefault\(|\.update\(\W{0,4})['\"]?CUDA_VISIBLE_DEVICES",
    ),
    Sign(r"^CUDA_VISIBLE_DEVICES hides", r"\bCUDA_VISIBLE_DEVICES\W{1,4}[\d\"']"),
    Sign(
        r"^(?:all weights are trained instead of an adapter|LoRA settings are given, but)",
        r"\bLoraConfig\(",
        unless=ADAPTER_PASSED,
    ),
    Sign(
        r"^(?:all weights are trained instead of an adapter|LoRA settings are given, but)",
        rf"^\W*(?:--)?lora_(?:r|alpha|rank|target\w*|dropout){SET}",
        unless=rf"\badapter{SET}q?(?:lora|dora)|finetuning_type{SET}\w*lora|use_peft|use_lora"
        rf"|get_peft_model|LoraConfig|(?:train|tuner)_type{SET}\w*lora|torchtune",
    ),
    Sign(
        r"^(?:all weights are trained instead of an adapter|LoRA settings are given, but)",
        r"trainable%:? ?100\b|(?i:trainable param\w*\W{1,3}(?:[1-9]\d{0,2},\d{3},\d{3},\d{3}"
        r"|\d{10,}))",
    ),
    Sign(
        r"^(?:states of the optimizer|full training does not fit)",
        r"optim/adamw?\.py|_init_group|exp_avg(?:_sq)?\b.*(?:zeros|empty)_like"
        r"|in _multi_tensor_adam",
        beside=MEMORY_ERROR,
    ),
    Sign(
        r"^(?:states of the optimizer|full training does not fit)",
        FULL_TRAINING,
        unless=SMALL_STATES,
    ),
    Sign(
        r"^full training does not fit",
        LOAD,
        unless=rf"{SMALL_STATES}|{SEVERAL_PROCESSES}",
        beside=TRAINS,
    ),
    Sign(r"^a second model is loaded", TWO_MODELS_HELD, beside_in_file=r"\.train\(\)|\.backward\("),
    Sign(
        r"^a second model is loaded",
        LOAD,
        beside_in_file=r"(?:trainer|tr|t)\.train\(",
        beside=r"def on_(?:save|evaluate|train_end|epoch_end)|copy\.deepcopy\(",
    ),
    Sign(
        r"^an evaluation with larger batches",
        r"\bcompute_metrics\s*=(?!\s*None)",
        unless=r"preprocess_logits_for_metrics|prediction_loss_only|batch_eval_metrics"
        r"|predict_with_generate",
    ),
    Sign(
        r"^an evaluation with larger batches",
        rf"{EVAL_BATCH}{SET}(?:[89]|[1-9]\d{{1,2}})\b(?![.\d])",
    ),
    Sign(
        r"^an evaluation with larger batches",
        rf"\.append\((?!.*(?:{KEPT}|argmax)).*\blogits\b|val\w*\.(?:append"
        rf"|extend)\((?!.*(?:{KEPT})).*\b(?:out|loss)\b",
    ),
    Sign(
        r"^(?:an evaluation with larger batches|the evaluation batch size is)",
        rf"per_device_train_batch_size{SET}[12]\b(?![.\d])",
        unless=rf"{EVAL_BATCH}|do_eval{OFF}|eval_strategy{SET}no",
        beside=r"eval(?:uation)?_(?:strategy|steps|dataset)\b|val_size|do_eval",
    ),
    Sign(
        r"^(?:one row far longer|a few rows are many times)",
        rf"\b(?:max_(?:seq_)?length|truncation|cutoff_len){SET}(?:None|False|false|null)\b",
        beside=TRAINS,
    ),
    Sign(
        r"^(?:one row far longer|a few rows are many times)",
        r"(?<!def )\b(?:self\.)?(?:tok\w*|processor)\((?!.*(?:truncation|max_length|\.\.\."
        r"|\[:)).*\)",
        unless=r"truncation|max_(?:seq_)?length|\[:\s*(?:self\.)?\w*(?:max|len|block|ctx)\w*"
        r"|input_ids\[:",
        beside_in_file=TRAINS + r"|Dataset\)|collate",
    ),
    Sign(r"^(?:one row far longer|a few rows are many times)", LONG_ROWS, beside=MEMORY_ERROR),
    Sign(
        r"^losses that a loop keeps with their graphs",
        GRAPH_LOSS,
        beside_in_file=r"\bloss\w*\.backward\(|\.backward\(\w*loss|training_step|validation_step",
    ),
    Sign(
        r"^losses that a loop keeps with their graphs",
        r"\.append\((?:\w+\.|\w+\[['\"])?\w*loss\w*(?:['\"]\])?\)",
        beside_in_file=r"\.backward\(|training_step|compute_loss",
    ),
    Sign(
        r"^all weights are gathered on one GPU to be saved",
        rf"state_dict_type{SET}FULL_STATE_DICT|StateDictType\.FULL_STATE_DICT"
        r"|FullStateDictConfig\((?!.*offload_to_cpu=True).*"
        rf"|summon_full_params\(|full_state_dict{ON}|gather_16bit_weights_on_model_save{ON}",
        unless=r"offload_to_cpu=True",
    ),
    Sign(
        r"^torch\.load without map_location",
        r"\btorch\.load\((?!.*map_location).*\)",
        beside=SEVERAL_PROCESSES,
    ),
    Sign(
        r"^every process puts its model on GPU 0",
        r"device_map\W{1,4}\{\s*['\"]{2}:\s*(?:0|['\"]cuda:0['\"])|device_map\W{1,4}cuda:0"
        r"|\.to\(['\"]cuda(?::0)?['\"]|\.cuda\((?:0|)\)"
        r"|torch\.device\(['\"]cuda(?::0)?['\"](?: if |\))"
        r"|\bdevice(?:: ?str)?\s*=\s*['\"]cuda(?::0)?['\"]",
        unless=r"set_device\(|cuda:\{|\.cuda\(\w*rank|to\(\w*rank|device\(['\"]cuda['\"],\s*\w*rank",
        beside=SEVERAL_PROCESSES,
    ),
    Sign(
        r"^gradient checkpointing is inactive|^the model of a hand-written loop is in eval\(\) mode",
        r"\.eval\(\)",
        unless_in_file=r"\.train\(\)|Trainer\(",
        beside_in_file=OWN_LOOP,
    ),
    Sign(
        r"^gradient checkpointing is inactive",
        r"gradient_checkpointing_enable\(",
        unless=r"\.train\(\)|Trainer\(",
    ),
    Sign(
        r"^gradient checkpointing is inactive|^the model of a hand-written loop is in eval\(\) mode",
        r"\.eval\(\)",
        beside_in_file=OWN_LOOP,
    ),
    Sign(
        r"^an evaluation or a teacher without torch\.no_grad",
        r"\b(?:self\.)?(?:teacher|ref_?model|reference\w*|ref|critic|reward_?model)\((?!.*nn\.)",
        unless_in_file=r"no_grad|inference_mode|requires_grad_?\(False",
        beside_in_file=OWN_LOOP,
    ),
    Sign(
        r"^an evaluation or a teacher without torch\.no_grad",
        r"\.eval\(\)|^def (?:eval|valid|test)\w*\(",
        unless_in_file=r"no_grad|inference_mode|set_grad_enabled",
        beside_in_file=OWN_LOOP,
    ),
    Sign(
        r"^weights are cast to float32",
        r"\b\w*(?:model|net|lm)\w*(?:\.float\(\)|\.to\(\s*(?:dtype\s*=\s*)?torch\.float32)",
    ),
    Sign(r"^weights are cast to float32", r"prepare_model_for_(?:kbit|int8)_training\("),
    Sign(
        r"^(?:all rows are padded to max_length|padding stored in"
        r"|most of each batch is padding)",
        PADS,
        beside=TRAINS,
    ),
    Sign(
        r"^prompts are padded to a fixed length",
        PADS,
        beside=rf"{GENERATES}|predict_with_generate",
    ),
    Sign(
        r"^the model is loaded before ZeRO-3",
        LOAD,
        beside=ZERO3,
        unless=r"zero\.Init|HfDeepSpeedConfig",
    ),
    Sign(
        r"^the machine's memory, not the GPU's",
        rf"keep_in_memory{ON}|low_cpu_mem_usage{OFF}|fsdp_cpu_ram_efficient_loading{OFF}",
    ),
    Sign(
        r"^the machine's memory, not the GPU's",
        r"^#SBATCH.*--mem(?:-per-\w+)?[= ]\d+|mem_limit\W|^memory\W{1,3}\d+ ?G|--memory[= ]\d+"
        r"|-v?mem=\d+",
        beside=KILLED,
    ),
    Sign(r"^the machine's memory, not the GPU's", KILLED),
    Sign(
        r"^a merge loads the whole base on the GPU",
        rf"{LOAD}.*device_map|export_device{SET}(?:auto|cuda)|merge[-_]lora|--cuda\b",
        unless=rf"device_map{SET}cpu",
        beside=r"merge_and_unload\(|merge[-_]lora|export_dir|mergekit",
    ),
    Sign(
        r"^(?:FSDP makes one unit|FSDP treats the whole model|FSDP has no wrap policy, so"
        r"|FSDP is configured to shard|a script wraps its model in FSDP)",
        r"\bNO_WRAP\b|\b(?:FSDP|FullyShardedDataParallel)\((?!.*auto_wrap).*\)",
    ),
    Sign(
        r"^(?:FSDP makes one unit|FSDP treats the whole model|FSDP has no wrap policy, so"
        r"|FSDP is configured to shard|a script wraps its model in FSDP)",
        r"\bfully_shard\(\s*\w*(?:model|net|lm)\w*\b",
        unless_in_file=r"^for .*(?:layers|blocks|modules|\.h\b)",
    ),
    Sign(
        r"^(?:FSDP makes one unit|FSDP treats the whole model|FSDP has no wrap policy, so"
        r"|FSDP is configured to shard)",
        rf"\bfsdp{SET}\[?['\"]?(?:full_shard|shard_grad_op|hybrid)|--fsdp\b|FULL_SHARD",
        unless=r"auto_wrap|transformer_layer_cls|min_num_params|TRANSFORMER_BASED",
    ),
    Sign(
        r"^the states of the optimizer are offloaded",
        r"^#SBATCH.*--mem(?:-per-\w+)?[= ]\d+|mem_limit\W|^memory\W{1,3}\d+ ?G|--memory[= ]\d+",
        beside=r"offload_optimizer|CPUOffload|fsdp_offload_params\W{1,3}true|cpu_offload",
    ),
    Sign(
        r"^the states of the optimizer are offloaded",
        rf"offload_optimizer|CPUOffload\(|fsdp_offload_params{ON}|--offload_optimizer",
    ),
    Sign(
        r"^a load without a dtype",
        NO_DTYPE,
        unless_in_file=SIXTEEN_BITS,
        unless=r"transformers\W{1,3}5\.",
    ),
    Sign(
        r"^vLLM on the GPU that trains",
        rf"(?:vllm_)?gpu_memory_utilization{SET}|vllm_gpu\w*",
        beside=r"(?:GRPO|RLOO|OnlineDPO|PPO)|Trainer\(|use_vllm|colocate",
    ),
    Sign(
        r"^vLLM on the GPU that trains",
        rf"use_vllm{ON}|--use_vllm\b|vllm_mode{SET}colocate|fast_inference{ON}",
    ),
    Sign(r"^vLLM on the GPU that trains", r"\bLLM\(", beside_in_file=r"Trainer\(|\.backward\("),
    Sign(
        r"^DPO holds a second whole model",
        rf"\bref_model\w*{SET}(?!None\b|null\b)\w|ref_model_name",
    ),
    Sign(
        r"^DPO holds a second whole model",
        rf"{PREFERENCE}",
        unless=rf"{LORA}|precompute_ref_log_probs{ON}|reference_free{ON}|ORPO|CPO|orpo|simpo",
    ),
    Sign(r"^chosen and rejected answers go through", r"concatenated_forward|concatenated_inputs"),
    Sign(
        r"^chosen and rejected answers go through",
        rf"{BATCH}{SET}(?:[2-9]|[1-9]\d)\b(?![.\d])",
        beside=PREFERENCE,
    ),
    Sign(
        r"^a cell of the notebook that loads the model",
        rf"{LOAD}|FastLanguageModel\.from_pretrained\(",
        beside_in_file=r"^[!%] ?(?:pip|uv|env|cd|nvidia)|get_ipython|notebook_login|google\.colab|display\("
        r"|^!",
    ),
    Sign(
        r"^(?:one backward\(\) for many batches|a loop adds up the losses)",
        r"\b(?:total|sum|acc\w*|batch|all|running|step|mean|big)_?\w*\.backward\(|(?:sum|stack"
        r"|mean)\(\w*loss\w*\)[\w.()/ ]{0,40}\.backward\(",
        beside_in_file=r"\+=.{0,60}loss|loss\w*\.append\(|=\s*\w{1,30} \+ .{0,40}loss",
    ),
    Sign(
        r"^all prompts of a file go into one generate",
        r"\btok\w*\((?:self\.)?(?:\[[^\]]{0,80}\bfor\b|\w*(?:prompts|texts|questions|inputs"
        r"|sentences|queries|rows|data|docs|ds\[))(?!\[\w*:)",
        unless_in_file=r"\[\w+ ?: ?\w+ ?\+|range\(\s*0,\s*len|DataLoader\(|batched\(|chunk|\.iter\(|\.map\(",
        beside_in_file=GENERATES,
    ),
    Sign(
        r"^all prompts of a file go into one generate",
        rf"output_(?:scores|logits|hidden_states|attentions){ON}",
        beside=GENERATES,
    ),
    Sign(
        r"^the evaluation harness takes a batch",
        r"--batch_size[ =]['\"]?(?:[89]|[1-9]\d{1,2})\b|batch_size\s*=\s*(?:[89]|[1-9]\d{1,2})\b",
        beside_in_file=HARNESS,
    ),
    Sign(
        r"^weights were saved in float32",
        r"['\"](?:torch_)?dtype['\"]\s*:\s*['\"](?:torch\.)?float32",
    ),
    Sign(
        r"^weights were saved in float32",
        r"\.save_pretrained\(",
        unless_in_file=SIXTEEN_BITS,
        beside_in_file=r"merge_and_unload\(",
    ),
    Sign(
        r"^device_map spreads layers by the size",
        rf"device_map{SET}(?:auto|balanced|sequential)",
        unless=r"max_memory",
        beside=TRAINS,
    ),
    Sign(
        r"^rows of like length come into one batch",
        rf"group_by_length(?:{ON}|\b(?! ?[=: ]))|LengthGroupedSampler"
        r"|sort(?:ed)?\(.*key=.*len\(.*reverse=True",
    ),
    Sign(
        r"^gradient checkpointing is switched off|^gradient checkpointing, on by default",
        CHECKPOINTS_OFF,
    ),
    Sign(
        r"^gradient checkpointing is switched off|^gradient checkpointing, on by default",
        SEVERAL_ROWS,
        unless=r"checkpointing",
        beside=MEMORY_ERROR,
    ),
    Sign(
        r"^packing fills every row",
        rf"\b(?:sample_|neat_)?packing{ON}|--packing\b(?! [Ff]alse)|packed{ON}",
        beside=rf"{SEVERAL_ROWS}|{LONG_ROWS}",
    ),
    Sign(r"^packing fills every row", rf"pad_to_sequence_len{ON}"),
    Sign(
        r"^ZeRO's stages 1 and 2",
        rf"['\"]stage['\"]\s*:\s*[012]\b|zero_?stage{SET}[012]\b|zero_?[12]\b|ds_z[02]"
        rf"|\bNO_SHARD\b|\bSHARD_GRAD_OP\b|sharding_strategy{SET}(?:[23]\b|NO_SHARD)",
    ),
    Sign(
        r"^ZeRO's stages 1 and 2",
        r"DistributedDataParallel\(|distributed_type: MULTI_GPU|multi_gpu",
    ),
    Sign(r"^DeepSpeed's buffers|^DeepSpeed's gradient buffers take gigabytes", BIG_BUCKET),
    Sign(r"^a mixture of experts holds all|^quantization skips the experts, which", EXPERTS),
    Sign(r"^the server's cache: vLLM takes", LONG_CONTEXT),
    Sign(
        r"^the server's cache: vLLM takes",
        rf"OLLAMA_NUM_PARALLEL{SET}(?:[2-9]|\d\d)|KV cache is needed|max seq len \(\d+\)",
    ),
    Sign(
        r"^the server's cache: vLLM takes",
        r"vllm serve|vllm\.entrypoints|(?<!\w)LLM\(|vllm/vllm-openai",
        unless=r"max[-_]model[-_]len",
    ),
    Sign(
        r"^vLLM's share leaves nothing",
        rf"gpu[-_]memory[-_]utilization{SET}(?:0?\.9[4-9]\d?|1\.0|1\b)"
        rf"|max[-_]loras{SET}(?:[4-9]|\d\d)|max[-_]lora[-_]rank{SET}\d{{3}}",
    ),
    Sign(
        r"^a copy of all weights on the GPU",
        r"deepcopy\(\s*(?:self\.)?\w*(?:model|net|state|policy)|state_dict\(\)(?:.*\.(?:clone"
        r"|float|to)\()|\.clone\(\).*state_dict|AveragedModel\(|ExponentialMovingAverage\("
        r"|EMA\w*\(",
    ),
    Sign(
        r"^a copy of all weights on the GPU",
        rf"{LOAD}|(?<!\w)pipeline\(",
        beside_in_file=r"def on_(?:save|evaluate|step_end|log|epoch_end|train_batch_end)\b",
    ),
    Sign(
        r"^the job asks for no memory",
        r"^#SBATCH.*--(?:gres|gpus)\S*|\bsrun .*--(?:gres|gpus)",
        unless=r"--mem(?:-per-\w+)?[= ]",
    ),
    Sign(
        r"^rows are held as Python objects",
        r"\bjson\.load\(|readlines\(\)|json\.loads\(.* for |pickle\.load\(|\bpd\.read_"
        r"|list\(load_dataset|\.to_list\(\)|\.to_dict\(",
        beside=KILLED,
    ),
    Sign(
        r"^rows are held as Python objects",
        r"self\.\w+\s*=\s*(?:\[|list\(|json\.load\(|pickle\.load\()",
        beside=rf"num_workers{SET}(?:[2-9]|\d\d)",
        beside_in_file=r"Dataset\)",
    ),
    Sign(r"^the GPU is a slice \(MIG", r"\bMIG \d+g|\bMIG-|\b\d+g\.\d+gb\b|mig-\d"),
    Sign(r"^the GPU is a slice \(MIG", r"Process \d+ has \d+(?:\.\d+)? [GM]iB memory in use"),
    Sign(r"^the GPU is a slice \(MIG", GPU_PROCESS),
    Sign(
        r"^memory is held in pieces",
        r"reserved by PyTorch but unallocated|reserved but unallocated memory is large",
        unless=r"expandable_segments\W{1,3}True",
    ),
    Sign(
        r"^GRPO computes log probabilities for all completions",
        r"(?:max_completion_length|max_new_tokens|response_length"
        rf"|max_prompt_length){SET}\d{{3,5}}|num_generations{SET}(?:[4-9]|\d\d)",
        beside=r"GRPO|RLOO|grpo|rloo",
    ),
    Sign(
        r"^several sequences are generated for each prompt",
        rf"\b(?:num_return_sequences|num_beams|num_generations|best_of){SET}(?:[2-9]"
        rf"|[1-9]\d{{1,2}})\b",
        beside=GENERATES,
    ),
    Sign(
        r"^a quantization config is created",
        r"\bBitsAndBytesConfig\(",
        unless=r"quantization_config",
    ),
    Sign(r"^both bf16 and fp16 are on", rf"\bfp16{ON}", beside_in_file=rf"\bbf16{ON}"),
    Sign(r"^under ZeRO-3, every generated token", rf"ds3_gather_for_generation{OFF}"),
    Sign(
        r"^(?:FSDP cannot shard the quantized|FSDP gets 4-bit)",
        QUANTIZES,
        beside=FSDP,
        unless=r"quant_storage",
    ),
    Sign(
        r"^(?:most of each batch is padding|a DataLoader pads rows)",
        UNEVEN,
        unless=GROUPS,
        beside=TRAINS,
    ),
    Sign(
        r"^(?:a large model is trained in float32|the log shows that a large model)",
        NO_DTYPE,
        unless=SIXTEEN_BITS + rf"|\b(?:bf16|fp16){ON}|precision",
        beside=TRAINS,
    ),
    Sign(
        r"^(?:a large model is trained in float32|the log shows that a large model)",
        rf"\b(?:torch_)?dtype{SET}(?:torch\.)?(?:float32|fp32)\b|precision{SET}(?:32|fp32)\b",
        beside=TRAINS,
    ),
    Sign(r"^each worker of (?:a|the) web server", CHECKS_WORKERS),
    Sign(
        r"^the limit on shared memory",
        r"--shm-size|shm_size|ulimit|memlock|Bus error|Too many open files",
    ),
)
