"""Signs of what makes a training or a generation slow."""

from __future__ import annotations

from truetune.troubleshooting.signs.shared_patterns_of_project_statements import (
    EAGER,
    FULL_IMAGES,
    GENERATES,
    GPU_PROCESS,
    LIMITS_IMAGES,
    LOAD,
    NO_DTYPE,
    OFF,
    OLD_GPU,
    ON,
    OWN_LOOP,
    PADS,
    SIXTEEN_BITS,
    SLOW_CARD,
    TRAINS,
    VISION,
    ZERO3,
)
from truetune.troubleshooting.signs.sign_as_statement_patterns import SET, Sign

ASKS = (
    r"\.generate\(|\bpipe(?:line)?\(|\.create\(|requests\.post\(|\.chat\("
    r"|create_chat_completion\(|ollama\.\w+\("
)
ASKS_SERVER = r"\.create\(|requests\.post\(|\.post\(|\.chat\(|urlopen\(|invoke\("
AT_ONCE = r"gather\(|ThreadPool|ProcessPool|TaskGroup|as_completed|Semaphore\(|\.abatch\(|\.batch\("
ROWS = (
    r"^(?:async )?for \w+(?:, \w+)? in (?:tqdm\(|track\("
    r"|enumerate\()?(?:\w+\[)?\w*(?:rows?|prompts?|questions?|texts?|lines|data\w*|ds"
    r"|samples|examples|test\w*|tickets|records|items|open\(|load_dataset|json)"
)
WEB = (
    r"@app\.(?:post|get|route)|gr\.(?:ChatInterface|Interface|Blocks)|FastAPI\(|Flask\("
    r"|streamlit|def handler\(|runpod|BaseHTTPRequestHandler"
)
LOADED_ONCE = r"lru_cache|cache_resource|lifespan|on_event\(.startup|\bglobal \w+|@cache\b"
LOADS = rf"{LOAD}|merge_and_unload\(|(?<!\w)pipeline\(|(?<!\w)(?:Llama|LLM)\("
ZERO_DEVICE = (
    r"device_map|\.cuda\(|\.to\(|\bdevice\s*=|\.prepare\(|accelerator|n_gpu_layers|Trainer\("
)
LARGE_CONTEXT = r"(?:1[6-9]\d{3}|[2-9]\d{4}|\d{6,})\b"
SEVERAL_NODES = (
    r"\bnnodes[= ]['\"]?[2-9]|--nodes[= ][2-9]|num_machines\W{1,3}[2-9]"
    r"|^#SBATCH.* -N ?[2-9]|num_nodes\s*=\s*[2-9]"
)
MEASURES_MEMORY = r"\d{4,6}MiB ?/|max_memory_allocated|memory_allocated|GB free"
SLOW_MOUNT = r"/(?:mnt|nfs|lustre|gpfs|efs|content/drive|home/\w+/nfs|gdrive|fsx)\b"
EMPTIES = r"torch\.cuda\.empty_cache\(|\bgc\.collect\("
SERVER_SPEC = (
    r"speculative|assistant_model|draft[-_]model|--model-draft|num_speculative"
    r"|prompt_lookup|(?i:medusa|eagle)|[Aa]cceptance rate"
)
LM_EVAL = r"\blm[_-]eval\b"
GGUF_QUANTIZED = r"llama-quantize|\b[qQ][2-8]_[kK0-9]|Q8_0|q8_0|IQ\d"
ADAPTER_SERVED = r"--lora-modules|lora_modules|LoRARequest\(|enable[-_]lora"

SIGNS = (
    Sign(
        r"^an evaluation, or saving, too often",
        rf"\beval_steps{SET}(?:\d{{1,2}}|0?\.0\d+)\b(?![.\d])"
        rf"|\bval_check_interval{SET}(?:0?\.[0-2]\d*|\d{{1,2}}\b(?!\.))"
        rf"|\bevals_per_epoch{SET}\d\d",
    ),
    Sign(
        r"^an evaluation, or saving, too often",
        rf"predict_with_generate{ON}|\bval_set_size{SET}0?\.[2-9]|\bval_size{SET}0?\.[2-9]"
        rf"|(?<!no_)\bsave_steps{SET}\d{{1,2}}\b(?![.\d])",
    ),
    Sign(
        r"^whole checkpoints are written too often",
        rf"\bsave_steps{SET}\d{{1,2}}\b(?![.\d])|\bevery_n_train_steps{SET}\d{{1,2}}\b",
        unless=rf"save_strategy{SET}(?:no|epoch)\b|save_only_model{SET}[Tt]rue",
    ),
    Sign(
        r"^weights or optimizer are offloaded",
        rf"offload_(?:param|optimizer)\w*['\"]?\s*[:=]\s*(?:\{{.*cpu|cpu|nvme|[Tt]rue|\{{\s*$)"
        rf"|fsdp_offload_params{ON}|CPUOffload\(|cpu_offload{ON}|(?i:cpu_offload_policy)"
        rf"|offload_params{ON}",
    ),
    Sign(r"^rows are padded to max_length", PADS, beside=TRAINS),
    Sign(
        r"^the kernels of a model's linear attention",
        r"fast path is not available|[Ff]alling back to (?:torch|the torch|naive)"
        r"|flash-linear-attention|causal[-_]conv1d|mamba[-_]ssm",
    ),
    Sign(
        r"^the kernels of a model's linear attention",
        r"(?i:qwen3[-_.](?:next|5)|mamba|jamba|falcon-h1|granite-4|zamba|nemotron-h)",
    ),
    Sign(
        r"data loader of one process",
        rf"\bnum_workers{SET}[01]\b|dataloader_num_workers{SET}[01]\b|cpus-per-task[= ][1-4]\b"
        rf"|taskset|OMP_NUM_THREADS\W{{1,3}}1\b",
    ),
    Sign(
        r"data loader of one process",
        r"\bDataLoader\((?!.*num_workers).*\)",
        beside_in_file=r"Image\.open|processor\(|def __getitem__|\btok\w*\(",
    ),
    Sign(
        r"^gradient checkpointing, although the memory is free",
        rf"gradient_checkpointing(?:{ON}|_enable\()|activation_checkpointing{ON}"
        rf"|use_gradient_checkpointing{SET}unsloth",
        beside=MEASURES_MEMORY,
    ),
    Sign(
        r"^a tiny batch with many accumulation steps",
        rf"(?:accum\w*|ACCUM\w*){SET}(?:1[6-9]|[2-9]\d|\d{{3,4}})\b(?!\.)",
        beside=rf"batch_?size\w*{SET}[12]\b(?!\.)",
    ),
    Sign(r"^the attention is computed eagerly", EAGER),
    Sign(
        r"^weights and matrix products in float32",
        rf"\b(?:torch_)?dtype{SET}(?:torch\.)?(?:float32|fp32)\b"
        rf"|(?<!mixed_)precision{SET}['\"]?(?:32|fp32)\b|mixed_precision{SET}['\"]?no\b"
        rf"|\b(?:bf16|fp16){SET}[Ff]alse"
        r"|(?:Model\w*|For[A-Z]\w+)\.from_pretrained\((?!.*(?:dtype|\*\*)).*\)",
        unless=rf"\b(?:bf16|fp16|tf32){SET}(?:[Tt]rue|auto)|--(?:bf16|fp16)\b|bfloat16|(?<!b)float16"
        r"|autocast|\.half\("
        rf"|mixed[-_]precision{SET}(?:bf|fp)|load_in_[48]bit|set_float32_matmul_precision|bf16-"
        r"|16-mixed",
    ),
    Sign(
        r"^weights and matrix products in float32",
        r"BitsAndBytesConfig\((?=.*4bit)(?!.*compute_dtype).*"
        rf"|bnb_4bit_compute_dtype{SET}(?:torch\.)?float32",
    ),
    Sign(
        r"^weights and matrix products in float32", OLD_GPU, beside=rf"bfloat16|\bbf16{ON}|--bf16\b"
    ),
    Sign(
        r"^(?:torch\.compile compiles again|torch\.compile or a static cache"
        r"|torch\.compile recompiles the model|a compiled model generates)",
        rf"torch\.compile\(|cache_implementation{SET}static|\btorch_compile{ON}|--torch-compile"
        rf"|recompile_limit|\bcompile_model{ON}|^compile{ON}",
    ),
    Sign(
        r"^gradients cross a slow network",
        r"NCCL_(?:IB_DISABLE|P2P_DISABLE|SHM_DISABLE)\W{1,3}1|NCCL_(?:SOCKET_IFNAME|NET)\b"
        r"|Using network Socket|NET/Socket",
    ),
    Sign(r"^gradients cross a slow network", SEVERAL_NODES),
    Sign(
        r"^gradients cross a slow network",
        r"DistributedDataParallel\(|\bDDP\(",
        unless=r"no_sync\(",
        beside=r"accum",
    ),
    Sign(
        r"^(?:one GPU of several works|device_map='auto' on several GPUs)",
        rf"device_map{SET}(?:auto|balanced|sequential)",
    ),
    Sign(
        r"^one GPU of several works",
        r"CUDA_VISIBLE_DEVICES\W{1,4}\d\b(?!,)|--nproc[-_]per[-_]node[= ]1\b"
        r"|num_processes\W{1,3}1\b",
    ),
    Sign(
        r"^the completions of GRPO or RLOO",
        rf"\b(?:GRPO|RLOO)(?:Config|Trainer)\(|use_vllm{OFF}",
        unless=rf"use_vllm{SET}[Tt]rue|--use_vllm(?! [Ff]alse)|fast_inference{SET}True|rollout_func",
    ),
    Sign(
        r"^samples are generated, or tables logged",
        r"def on_(?:step_end|log|train_batch_end|evaluate)\b|wandb\.Table\(",
        beside=r"\.generate\(",
    ),
    Sign(r"^samples are generated, or tables logged", GENERATES, beside_in_file=OWN_LOOP),
    Sign(
        r"^rows are tokenized one at a time",
        rf"use_fast{OFF}|(?:preprocessing_num_workers|dataset_num_proc"
        rf"|dataset_processes){SET}1\b|overwrite_cache{ON}|\bnum_proc{SET}1\b",
        beside=r"[Tt]okeni[sz]|\btok\(|cutoff_len",
    ),
    Sign(
        r"^rows are tokenized one at a time",
        r"(?:\bds\w*|data\w*|raw\w*|train\w*|rows?"
        r"|corpus)(?:\[[^\]]{1,30}\])?\.map\((?!.*(?:batched|num_proc)).*\)",
        beside_in_file=r"[Tt]okeni[sz]|\btok\w*\(|processor\(",
    ),
    Sign(
        r"^datasets can't hash", rf"load_from_cache_file{OFF}|disable_caching\(|couldn't be hashed"
    ),
    Sign(
        r"^rows or checkpoints lie on a slow disk",
        rf"(?:dir|path|file\w*|cache|HF_HOME|ROOT|root){SET}{SLOW_MOUNT}",
    ),
    Sign(
        r"^rows or checkpoints lie on a slow disk",
        rf"(?:open|load_\w+|from_pretrained|Path)\(\s*f?['\"]{SLOW_MOUNT}",
    ),
    Sign(
        r"^(?:the run became slower: another process|another process uses the same GPU)",
        SLOW_CARD,
    ),
    Sign(
        r"^(?:the run became slower: another process|another process uses the same GPU)",
        GPU_PROCESS,
    ),
    Sign(
        r"^CUDA_LAUNCH_BLOCKING=1, a profiler",
        rf"\bprofile\(|profiler{SET}['\"](?:simple|advanced|pytorch)|with_stack{ON}"
        rf"|record_shapes{ON}|set_detect_anomaly\(|detect_anomaly(?:{ON}|\()"
        r"|use_deterministic_algorithms\(True|TORCH_DISTRIBUTED_DEBUG\W{1,3}DETAIL",
    ),
    Sign(r"^CUDA_LAUNCH_BLOCKING=1", r"CUDA_LAUNCH_BLOCKING\W{1,6}1"),
    Sign(
        r"^torch\.cuda\.empty_cache\(\)",
        EMPTIES,
        beside_in_file=rf"{OWN_LOOP}|on_step_end|training_step",
    ),
    Sign(r"^torch\.cuda\.empty_cache\(\)", rf"torch_empty_cache_steps{SET}[1-9]\b"),
    Sign(
        r"^a resumed run first reads",
        rf"resume_from_checkpoint{SET}(?!None|[Ff]alse|null)\S|skip_first_batches\("
        r"|islice\(\w*loader",
        unless=rf"ignore_data_skip{ON}",
    ),
    Sign(
        r"^torch is a build without CUDA",
        rf"\btorch(?:==| ?\|? ?)[\d.]{{3,9}}\+cpu|\b(?:no_cuda|use_cpu){ON}"
        r"|download\.pytorch\.org/whl/cpu|CUDA available: False|cuda: False",
    ),
    Sign(
        r"^Windows and WSL2 move",
        r"\bWDDM\b|[A-Z]:\\\w|microsoft-standard-WSL|[Ss]hared GPU memory|/mnt/c/",
    ),
    Sign(
        r"^each checkpoint is uploaded",
        rf"hub_strategy{SET}(?:every_save|all_checkpoints|checkpoint)|push_to_hub{ON}"
        r"|--push_to_hub\b",
    ),
    Sign(
        r"^the evaluation keeps the logits|^evaluation keeps the logits of",
        r"\bcompute_metrics\s*=(?!\s*None)",
        unless=r"preprocess_logits_for_metrics|predict_with_generate|batch_eval_metrics",
    ),
    Sign(
        r"^the rows are hundreds of thousands of small files",
        r"\bos\.(?:listdir|walk|scandir)\(|\.r?glob\(|imagefolder",
        beside=TRAINS,
    ),
    Sign(
        r"^a stream reads its shards",
        rf"\bstreaming{ON}|\b(?:s3|gs|hf|https)://\S+\.(?:tar|parquet|jsonl|arrow)|Webdataset\("
        r"|WebDataset\(",
    ),
    Sign(
        r"^a whole column is made a list",
        r"self\.\w+\[['\"]\w+['\"]\]\[\s*(?:i|idx|index|item|n|k)\s*\]",
    ),
    Sign(r"^(?:photos are trained at their full size|pictures go into)", FULL_IMAGES),
    Sign(
        r"^(?:photos are trained at their full size|pictures go into)",
        VISION,
        unless=LIMITS_IMAGES,
        beside=TRAINS,
    ),
    Sign(r"^DPO runs a second whole model", rf"\bref_model{SET}(?!None\b|null\b)\w"),
    Sign(
        r"^DPO runs a second whole model",
        r"\bDPO(?:Config|Trainer)\(|pref_loss|rl: ?dpo|stage: ?dpo",
        unless=rf"precompute_ref_log_probs{ON}|(?i:lora|peft)",
    ),
    Sign(
        r"^lora_dropout above 0",
        rf"\blora_dropout{SET}0?\.0*[1-9]|\bbias{SET}(?:all|lora_only)",
        beside=r"[Uu]nsloth|Fast(?:Language|Vision)?Model",
    ),
    Sign(
        r"^FULL_SHARD or ZeRO-3 over several nodes",
        rf"\bFULL_SHARD\b|{ZERO3}|full_shard",
        beside=SEVERAL_NODES,
        unless=r"HYBRID|hpz|hybrid_shard",
    ),
    Sign(
        r"^DDP looks for unused weights",
        r"\w*find_unused_parameters['\"]?(?:\s*[=:]\s*|\s)['\"]?[Tt]rue",
    ),
    Sign(
        r"^(?:most of each batch is padding|a DataLoader pads rows)",
        r"padding\s*=\s*(?:True|['\"]longest)|pad_sequence\(",
        unless=r"group_by_length|packing|LengthGrouped|bucket|padding_free",
        beside=r"\.backward\(|Trainer\(|training_step",
    ),
    Sign(
        r"^weights are held in 4 bits, although",
        rf"load_in_4bit{ON}|adapter{SET}qlora|quantization_bit{SET}4\b|--load_in_4bit\b",
        beside=TRAINS,
    ),
    # -- generation
    Sign(
        r"^the cache is off",
        rf"\buse_cache{OFF}",
        unless_in_file=r"Trainer\((?!.*predict)|\.backward\(|gradient_checkpointing",
    ),
    Sign(
        r"^the cache is off",
        r"=\s*torch\.(?:cat|hstack|concat)\(\s*[\[(]\s*\w*(?:ids|tokens|seq|idx|input|x|ctx"
        r"|context|prompt|out)\w*\b",
        unless_in_file=r"past_key_values\s*=\s*(?:out|past|cache|kv)|\.generate\(",
        beside_in_file=r"multinomial\(|argmax\(|logits\[:, -1|\[0, -1\]",
    ),
    Sign(r"^the cache is off", rf"\buse_cache{OFF}", beside=GENERATES),
    Sign(
        r"^answers that never stop",
        rf"\b(?:max_new_tokens|max_tokens|num_predict){SET}(?:\d{{4,}}|-1|-2)\b"
        rf"|finish_reason\W{{1,6}}length",
    ),
    Sign(
        r"^answers that never stop",
        rf"\b(?:max_new_tokens|max_tokens|num_predict){SET}(?:51[2-9]|5[2-9]\d|[6-9]\d\d)\b",
    ),
    Sign(
        r"^weights saved or merged in float32",
        r"['\"](?:torch_)?dtype['\"]\s*:\s*['\"](?:torch\.)?float32",
    ),
    Sign(
        r"^weights saved or merged in float32",
        rf"\.merge_and_unload\(|{NO_DTYPE}",
        unless_in_file=SIXTEEN_BITS,
        beside_in_file=r"merge_and_unload\(",
    ),
    Sign(
        r"^the model is loaded in float32",
        rf"\b(?:torch_)?dtype{SET}(?:torch\.)?float32"
        r"|(?:Model\w*|For[A-Z]\w+)\.from_pretrained\((?!.*(?:dtype|\*\*)).*\)"
        r"|\bpipeline\((?!.*dtype).*\)",
        unless_in_file=r"bfloat16|(?<!b)float16|\.half\(|load_in_[48]bit|autocast|dtype\s*=\s*['\"]auto",
    ),
    Sign(
        r"^prompts (?:padded to max_length|are padded to a fixed length)",
        PADS,
        beside_in_file=GENERATES,
    ),
    Sign(
        r"^prompts (?:padded to max_length|are padded to a fixed length)",
        PADS,
        beside=rf"{GENERATES}|vllm|pipeline\(",
    ),
    Sign(
        r"^the server's key-value cache is too small",
        r"[Pp]reempt|RECOMPUTE|KV cache usage: (?:9\d|100)|Waiting: [1-9]\d* reqs.*usage: [89]\d",
    ),
    Sign(
        r"^the server's key-value cache is too small",
        rf"gpu[-_]memory[-_]utilization{SET}0?\.[1-7]\d?\b",
        beside=r"vllm|LLM\(",
    ),
    Sign(
        r"^one row or prompt is asked at a time",
        rf"\bbatch_?size\w*(?::\s*int)?{SET}(?:field\(\s*default=)?1\b(?![\d.])"
        rf"|max[-_]num[-_]seqs{SET}1\b",
        beside=r"\.generate\(|\bpipeline\(|vllm",
    ),
    Sign(
        r"^one row or prompt is asked at a time",
        ROWS,
        beside_in_file=ASKS,
        unless_in_file=rf"{AT_ONCE}|batch_size\s*=|DataLoader\(",
    ),
    Sign(
        r"^one row or prompt is asked at a time",
        r"\btok\w*\(\s*\[?\s*f?['\"]?\w*(?:prompt|text|question|query|q|s|msg|message"
        r"|instruction|line)\b(?!s).*return_tensors",
        beside_in_file=GENERATES,
        unless_in_file=r"padding\s*=|DataLoader\(",
    ),
    Sign(
        r"^(?:one row or prompt|the client waits)", r"Running: [12] reqs,.*(?:Waiting|Pending): 0"
    ),
    Sign(
        r"^(?:the model was left in training mode|generate after the training)",
        GENERATES,
        unless_in_file=r"\.eval\(\)|for_inference|gradient_checkpointing_disable"
        r"|gradient_checkpointing\w*[=:( ]+[Ff]alse",
        beside_in_file=r"trainer\.train\(|\.backward\(|\.train\(\)|gradient_checkpointing",
    ),
    Sign(
        r"^(?:the model was left in training mode|generate after the training)",
        r"incompatible with gradient checkpointing|past_key_values=None"
        r"|gradient_checkpointing_enable\(|\b(?:model|net|lm|policy)\.train\(\)",
        beside=GENERATES,
    ),
    Sign(
        r"^an adapter (?:is computed beside its base|that is not merged)",
        r"\b(?:Auto)?Peft\w*\.from_pretrained\(|\.load_adapter\(|\bADAPTER ",
        unless=r"merge_and_unload|merge_adapter|\.backward\(|Trainer\(",
    ),
    Sign(
        r"^(?:an adapter that is not merged|an adapter with DoRA|a DoRA adapter)",
        rf"use_dora{ON}|peft_use_dora{ON}",
    ),
    Sign(
        r"^the server runs without CUDA graphs|^an engine of vLLM",
        r"enforce[-_]eager(?![=: ]+['\"]?[Ff]alse)|disable[-_]cuda[-_]graph",
    ),
    Sign(
        r"^an engine of vLLM",
        r"(?<!\w)LLM\((?=.*(?:max_num_seqs\s*=\s*1\b|cpu_offload_gb|bitsandbytes)).*",
    ),
    Sign(
        r"^weights that are offloaded, or on the CPU",
        rf"offload_folder|offload_state_dict|\bmax_memory\s*=|cpu[-_]offload(?:[-_]gb|{ON})"
        rf"|offloaded to the (?:cpu|disk)|on the meta device|device_map{SET}cpu\b"
        r"|--device[= ]cpu\b",
    ),
    Sign(
        r"^weights that are offloaded, or on the CPU",
        r"image: .*(?:ollama|vllm|text-generation-inference|llama\.cpp|sglang)"
        r"|docker run (?!.*--gpus).*(?:ollama|vllm|llama|tgi)",
        unless_in_file=r"capabilities|nvidia|--gpus|runtime:",
    ),
    Sign(
        r"^(?:ZeRO-3 holds the weights|under ZeRO-3, every generated token)",
        rf"predict_with_generate{ON}|{GENERATES}|ds3_gather_for_generation{OFF}",
        beside=ZERO3,
    ),
    Sign(
        r"^a quantized model that computes in float32",
        rf"bnb_4bit_compute_dtype{SET}(?:torch\.)?float32"
        r"|BitsAndBytesConfig\((?=.*4bit)(?!.*compute_dtype).*"
        r"|from_pretrained\((?=.*load_in_4bit).*",
    ),
    Sign(r"^LLM\.int8", rf"load_in_8bit{ON}|--load[-_](?:in[-_])?8bit\b|quantization_bit{SET}8\b"),
    Sign(
        r"^the model was never moved to the GPU",
        rf"{LOAD}(?!.*device).*|(?<!\w)pipeline\((?!.*device).*\)",
        unless_in_file=ZERO_DEVICE,
        beside_in_file=r"\.generate\(|pipeline\(",
    ),
    Sign(
        r"^the model was never moved to the GPU",
        r"(?<!\w)Llama\((?!.*n_gpu_layers).*\)|\|\s+0%\s+Default|No running processes found",
    ),
    Sign(
        r"^llama\.cpp or llama-cpp-python was built without CUDA",
        r"[Nn]o usable GPU found|compiled without GPU|offloaded 0/|no GPU (?:found|detected)"
        r"|not compiled with GPU|n_gpu_layers.*ignored",
    ),
    Sign(
        r"^llama\.cpp or llama-cpp-python was built without CUDA",
        r"pip install .*llama-cpp-python|^llama[-_]cpp[-_]python|cmake -B build|\bmake -j"
        r"|(?<!\w)Llama\(",
        unless=r"(?:GGML|LLAMA)_CUDA|CUBLAS|whl/cu\d",
    ),
    Sign(
        r"^the context \(num_ctx",
        r"\b(?:num_ctx|n_ctx|ctx[-_]size|CONTEXT_LENGTH"
        rf"|max[-_]model[-_]len){SET}{LARGE_CONTEXT}|llama-(?:server|cli).*\s-c (?:0"
        rf"|{LARGE_CONTEXT})|\bn_ctx(?:_per_seq)?\s*=\s*{LARGE_CONTEXT}",
    ),
    Sign(
        r"^layers that do not fit the GPU",
        r"\d{1,2}%/\d{1,2}% CPU/GPU|offloaded \d+/\d+ layers|on the meta device"
        r"|offloaded to the cpu",
    ),
    Sign(
        r"^layers that do not fit the GPU",
        rf"\b(?:n_gpu_layers|num_gpu|n-gpu-layers){SET}\d{{1,2}}\b|\s-ngl \d{{1,2}}\b"
        r"|\bmax_memory\s*=",
    ),
    Sign(
        r"^the model is loaded, or merged, again",
        LOADS,
        unless_in_file=LOADED_ONCE,
        beside_in_file=WEB,
    ),
    Sign(
        r"^the model is loaded, or merged, again",
        r"(?:subprocess\.\w+|os\.system)\(.*(?:llama-cli|ollama|generate|predict|infer)",
    ),
    Sign(
        r"^a long prompt is computed again",
        rf"no[-_]enable[-_]prefix[-_]caching|enable[-_]prefix[-_]caching{OFF}|cache_prompt{OFF}",
    ),
    Sign(
        r"^a long prompt is computed again",
        r"(?:datetime\.now|date\.today|strftime|time\.time|uuid4?)\(.*|\{now|\{today",
        beside_in_file=r"role\W{1,6}system|SYSTEM|system_prompt",
    ),
    Sign(
        r"^a long prompt is computed again",
        r"role\W{1,6}system|\bsystem_prompt\b|SYSTEM\w*\s*=",
        beside=r"vllm|base_url|/v1|chat/completions",
        unless=r"prefix[-_]caching",
    ),
    Sign(
        r"^the client waits for each answer",
        rf"{ASKS_SERVER}",
        unless_in_file=AT_ONCE,
        beside_in_file=r"^(?:async )?for ",
    ),
    Sign(r"^keep_alive is 0", rf"(?i:keep_alive){SET}0\w?\b"),
    Sign(
        r"^the server answers one request at a time",
        rf"NUM_PARALLEL{SET}1\b|max[-_]num[-_]seqs{SET}[1-8]\b|llama-server.*(?:-np"
        r"|--parallel) 1\b|max[-_](?:concurrent[-_]requests|running[-_]requests"
        rf"|batch[-_]size){SET}1\b|threading\.Lock\(|Semaphore\(1\)",
    ),
    Sign(
        r"^the server answers one request at a time",
        r"\bllama-server\b|ollama serve",
        unless=r"-np |--parallel|NUM_PARALLEL",
    ),
    Sign(
        r"^an async handler \(FastAPI\) calls generate",
        r"^async def ",
        unless_in_file=r"to_thread|run_in_executor|run_in_threadpool|AsyncLLM|AsyncOpenAI|httpx|aiohttp"
        r"|AsyncClient",
        beside_in_file=r"\.generate\(|\bpipe\w*\(|\bllm\w*[.(]",
    ),
    Sign(
        r"^beam search",
        r"\b(?:num_beams|n_beams|beam_size|beam_width"
        rf"|best_of)(?::\s*int)?{SET}(?:field\(\s*default=)?(?:[2-9]|[1-9]\d)\b"
        r"|--num_beams[= ](?:[2-9]|\d\d)|['\"]--num_beams['\"].*default=(?:[2-9]|\d\d)",
    ),
    Sign(r"^speculative decoding whose drafts", SERVER_SPEC),
    Sign(
        r"^a quantization without a fast kernel",
        rf"quantization{SET}(?:bitsandbytes|awq|gptq)\b|load[-_]format{SET}bitsandbytes"
        r"|CUDA extension not installed|not fully optimized|[Ss]pecified quantization|\b(?:awq"
        r"|gptq)_marlin",
    ),
    Sign(r"^a quantization without a fast kernel", r"(?i:[-_/](?:awq|gptq|bnb-4bit)\b)"),
    Sign(
        r"^a model that one card holds is split",
        rf"tensor[-_]parallel[-_]size{SET}[2-9]|-tp[= ][2-9]\b|--tp(?:-size)?[= ][2-9]"
        r"|Custom allreduce is disabled",
    ),
    Sign(
        r"^a batch of generate ends when its longest",
        rf"\bmax_new_tokens{SET}(?:[5-9]\d\d|\d{{4,}})\b",
        beside_in_file=GENERATES,
        beside=r"padding\s*=\s*True|padding_side|batch_size|batch_decode",
    ),
    Sign(
        r"^lm_eval asks one row at a time",
        rf"{LM_EVAL}(?=.*--(?:tasks|model\b))(?!.*--batch_size [^1]).*"
        r"|simple_evaluate\((?!.*batch_size).*|--batch_size[= ]1\b",
        beside=LM_EVAL,
    ),
    Sign(
        r"^a task of lm_eval whose answers end nowhere",
        r"^until: ?(?:\[\s*\]|$)|max_gen_toks|output_type: ?generate_until",
    ),
    Sign(
        r"^Unsloth's model was not switched to inference",
        GENERATES,
        unless=r"for_inference",
        beside=r"Fast(?:Language|Vision)?Model\.from_pretrained",
    ),
    Sign(
        r"^the GGUF file holds float32 or 16-bit",
        r"\b[\w.-]*(?:f32|f16|fp16|bf16|F32|F16|BF16)\.gguf|outtype[= ](?:f32|f16|bf16)"
        r"|file type\s*= (?:F16|all F32|BF16)",
    ),
    Sign(r"^the GGUF file holds float32 or 16-bit", r"convert_hf_to_gguf", unless=GGUF_QUANTIZED),
    Sign(
        r"^llama\.cpp runs more threads",
        # A socket of a desktop has up to 16 cores.
        rf"(?:\s|['\"]|\()(?:-t|--threads|n_threads|num_thread){SET}(?:1[6-9]|[2-9]\d"
        rf"|\d{{3}})\b|n_threads\s*=\s*os\.cpu_count|-t ['\"]?\$\(nproc",
    ),
    Sign(
        r"^vLLM works on the requests of one adapter",
        ADAPTER_SERVED,
        unless=r"max[-_]loras[= ]['\"]?(?:[2-9]|\d\d)",
    ),
    Sign(
        r"^vLLM pads each adapter to --max-lora-rank",
        rf"max[-_]lora[-_]rank{SET}(?:6[4-9]|[7-9]\d|\d{{3}})",
    ),
    Sign(
        r"^a hand-written StoppingCriteria or LogitsProcessor",
        r"^class \w+\((?:\w+\.)?(?:StoppingCriteria|LogitsProcessor|LogitsWarper"
        r"|BaseStreamer)\)|prefix_allowed_tokens_fn\s*=",
    ),
    Sign(
        r"^each worker of (?:a|the) web server",
        r"(?:uvicorn|gunicorn|fastapi|hypercorn)\b.*(?:--workers|-w)['\", =]+(?:[2-9]|\d\d)\b"
        r"|\bworkers\s*=\s*(?:[2-9]|\d\d)\b|WEB_CONCURRENCY\W{1,3}[2-9]",
    ),
    Sign(
        r"^the whole history of a chat",
        r"\b\w*(?:history|messages|log|msgs|chat|conversation)\w*(?:\.append\("
        r"|\s*\+=).*(?:assistant|user|role)",
        beside_in_file=ASKS,
        unless_in_file=r"\[-\w+\s*:\]|max_turns|trim|truncat|summar",
    ),
    Sign(
        r"^clients ask Ollama for the same model",
        r"\bnum_ctx\b",
        beside=r"11434|ollama\.\w+\(|ChatOllama|/api/(?:chat|generate)",
    ),
    Sign(
        r"^the model reasons before each answer",
        r"enable_thinking|</?think>|reasoning[-_]parser|(?i:qwen3(?![-_.]?vl|.*instruct)|qwq"
        r"|deepseek-r1|magistral|gpt-oss)",
        unless=r"enable_thinking\W{1,4}[Ff]alse|/no_think",
        beside=rf"{ASKS}|vllm|ollama",
    ),
    Sign(r"^the card has no fast bfloat16", OLD_GPU, beside=r"bfloat16|bf16"),
    Sign(
        r"^a loop keeps the model's large outputs",
        rf"output_(?:scores|logits|hidden_states|attentions){ON}",
        beside=GENERATES,
    ),
    Sign(
        r"^answers are bound to a schema or grammar",
        r"guided_(?:json|regex|grammar|choice|decoding)|response_format\s*=|json_schema"
        r"|structured_outputs|\bgrammar\s*=|--grammar\b|outlines\.|lm-format-enforcer|xgrammar",
    ),
    Sign(
        r"^quantization skips the experts, which",
        r"\d+B-A\d|[Mm]ixtral|gpt-oss|OLMoE|num_(?:local_)?experts",
    ),
)
