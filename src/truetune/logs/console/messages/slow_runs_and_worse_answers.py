"""Known messages that explain why a run is slow, or its answers are worse, while nothing fails."""

from __future__ import annotations

from truetune.logs.console.messages.known_message import define_message

MESSAGES = (
    define_message(
        "llama-cpp-without-gpu",
        "llama.cpp was built without support for the GPU, or sees none: the whole model runs on the CPU",
        r"(?:warning: )?(?:no usable GPU found, --(?:n-)?gpu-layers"
        r"|one possible reason is that llama\.cpp was compiled without GPU support"
        r"|not compiled with GPU offload support|llama\.cpp was compiled without)",
        "cmake without -DGGML_CUDA=ON (the default is a build for the CPU; on a Mac Metal is on), llama-cpp-python"
        " from a plain `pip install`, or a container that is not given the GPU. --gpu-layers (-ngl) is ignored then,"
        " and each token takes ten times as long or more. Python's package prints no warning: all layers are"
        " `assigned to device CPU`, and all buffers are the CPU's",
        "build again: cmake -B build -DGGML_CUDA=ON (AMD: -DGGML_HIP=ON; any: -DGGML_VULKAN=ON), then cmake --build"
        " build; llama-cpp-python: CMAKE_ARGS=-DGGML_CUDA=on pip install --force-reinstall --no-cache-dir; docker:"
        " --gpus all. `llama-server --list-devices` shows what it sees",
        "llama.cpp/common/arg.cpp; llama.cpp/docs/build.md",
        shown="notice",
        severity="warning",
    ),
    define_message(
        "generation-under-zero-3",
        "answers are generated while ZeRO-3 holds the weights in parts: each token gathers all weights from the GPUs",
        r"(?:Attempting to initialize|[Ii]nitializ(?:ing|ed)) ZeRO[- ]?(?:3 )?[Ii]nference",
        "a prediction or an evaluation with predict_with_generate, or generate, under a DeepSpeed file of stage 3",
        "generate in a run of its own without DeepSpeed, or by vLLM (LLaMA-Factory: scripts/vllm_infer.py) from the"
        " saved weights; in training, stage 2 where the model fits",
        "huggingface/transformers, integrations/deepspeed.py",
        shown="notice",
        severity="warning",
    ),
    define_message(
        "container-without-gpu",
        "the container sees no GPU: what runs in it runs on the CPU, or stops",
        r"(?:WARNING: )?The NVIDIA Driver was not detected",
        "the container was started without a GPU: docker run without --gpus all, a compose service without"
        " deploy.resources.reservations.devices (or gpus: all), a job of Kubernetes without nvidia.com/gpu",
        "docker run --gpus all; compose: gpus: all, or deploy.resources.reservations.devices with capabilities [gpu];"
        " Kubernetes: resources.limits nvidia.com/gpu: 1; Slurm: --gres=gpu:1. `nvidia-smi` in the container lists it"
        " then",
        "docs.nvidia.com/datacenter/cloud-native/container-toolkit",
        shown="notice",
        severity="warning",
    ),
    define_message(
        "model-loaded-on-the-cpu",
        "the model was loaded on the CPU: each token takes ten times as long as on a GPU, or more",
        r"(?:[Mm]odel (?:is |was )?loaded|[Ll]oaded (?:the )?(?:model |checkpoint )?[\w./-]{2,80}"
        r"|[Mm]odel (?:is )?(?:running|placed)|(?:Serving|serving) [\w./-]{2,80})"
        r"(?: in [\d.]+ ?s(?:econds)?)? on (?:the )?(?:device[:=]? ?)?[\"'(]?(?:cpu|CPU)\b"
        r"(?![ -](?:memory|RAM|first|offload))",
        "a container, a job or a service that was given no GPU; a torch for the CPU; a device that falls back to cpu"
        " where torch.cuda.is_available() is False",
        "give it a GPU (docker --gpus all, compose gpus: all, Slurm --gres=gpu:1); `truetune doctor` says whether torch"
        " sees one",
        "torch/cuda/__init__.py",
        shown="notice",
        severity="warning",
    ),
    define_message(
        "layers-left-on-the-cpu",
        "a part of the model's layers is computed on the CPU: every token waits for it",
        r"(?:llm_)?load_tensors: offloaded (?!(\d+)/\1 )\d+/\d+ layers to GPU"
        r"|\S+ +[0-9a-f]{12} +[\d.]+ [GM]B +(?:\d+%/\d+% CPU/GPU|100% CPU)\b.*",
        "weights and the cache of the whole context do not fit the GPU, so that Ollama keeps layers in the machine's"
        " memory (`ollama ps` shows 40%/60% CPU/GPU); or fewer layers were asked for: num_gpu in Ollama, and"
        " llama.cpp without -ngl (--n-gpu-layers) or with a low one",
        "a shorter context (num_ctx, -c: the cache grows with it), a quantized cache (OLLAMA_KV_CACHE_TYPE=q8_0, -ctk"
        " q8_0 -ctv q8_0), a smaller quantization (Q4_K_M takes 4.8 bits a weight), or a smaller model; llama.cpp"
        " besides: -ngl 99",
        "llama.cpp/src/llama-model.cpp; ollama/ollama#1906",
        shown="notice",
        severity="warning",
    ),
    define_message(
        "tgi-without-flash-attention",
        "text-generation-inference runs without flash attention: requests share no batch, and each token is slow",
        r"(?:[^ ]{10,40} +)?(?:WARN(?:ING)? +)?(?:text_generation_launcher: )?Could not import Flash Attention enabled"
        r" models",
        "a GPU before Turing, a container without the GPU, or a build without the kernels: TGI falls back to plain"
        " transformers models, which have no continuous batching and no paged cache",
        "start the official image with --gpus all on a GPU since Turing (A10, A100, L4, T4); else serve by vLLM or"
        " llama.cpp",
        "huggingface/text-generation-inference, server/text_generation_server/models/__init__.py",
        shown="notice",
        severity="warning",
    ),
    define_message(
        "ollama-without-gpu",
        "Ollama finds no GPU that it can use: models run on the CPU",
        r'(?:time=\S+ )?(?:level=\w+ )?(?:source=\S+ )?msg="(?:no compatible GPUs were discovered'
        r'|inference compute" id=\w+ library=cpu)',
        "the driver is missing or too old, the container was started without --gpus=all, or CUDA_VISIBLE_DEVICES is"
        " empty for the service",
        "nvidia-smi on the host and in the container; docker run --gpus=all; after the machine slept: reload"
        " nvidia_uvm. `ollama ps` shows `100% GPU` once it is right",
        "ollama docs/gpu.md, docs/troubleshooting.md",
        shown="notice",
        severity="warning",
    ),
    define_message(
        "requests-wait-for-the-cache",
        "requests wait while vLLM's cache of keys and values is full: few are answered at once",
        r"(?:Engine \d+: )?Avg prompt throughput: .{1,120}Running: \d+ reqs?, (?:Swapped: \d+ reqs?, )?"
        r"(?:Waiting|Pending): [1-9]\d* reqs?,.{0,40}?KV cache usage: (?:9\d(?:\.\d+)?|100(?:\.0+)?)%",
        "the cache takes what --gpu-memory-utilization leaves beside the weights, and each running request holds its"
        " whole prompt and answer in it (`Available KV cache memory`, `Maximum concurrency` at the start say how"
        " much): a low utilization, weights that fill the GPU, or long prompts",
        "raise --gpu-memory-utilization to 0.90 (vLLM's default) where nothing else uses the GPU; then"
        " --kv-cache-dtype fp8, quantized weights (FP8, AWQ), or more GPUs (--tensor-parallel-size). A larger"
        " --max-num-seqs changes nothing here",
        "vllm/v1/metrics/loggers.py; vLLM documentation, optimization and tuning",
        shown="notice",
        severity="warning",
        least=10,
    ),
    define_message(
        "pipeline-called-row-by-row",
        "a pipeline is called for one row at a time: the GPU generates with a batch of one",
        r"You seem to be using the pipelines sequentially on GPU",
        "pipe(text) in a loop, in apply() or in a function that a loop calls: each call generates alone, where a GPU"
        " answers 32 rows in nearly the time of one",
        "give the pipeline all rows at once, as a list or a dataset, with batch_size=16 and a tokenizer that pads on"
        " the left: pipe(rows, batch_size=16); `truetune lint SCRIPT` names the loop (generation-row-by-row)",
        "transformers/pipelines/base.py",
        shown="notice",
        severity="warning",
    ),
    define_message(
        "pipeline-on-the-cpu",
        "the pipeline runs on the CPU",
        r"Device set to use cpu|Hardware accelerator e\.g\. GPU is available in the environment, but no `device`",
        "torch sees no GPU, or no device is named: pipeline(..., device=0) or device_map='auto'",
        "truetune doctor says what torch sees; name the device: pipeline(..., device_map='auto')",
        "transformers/pipelines/base.py",
        shown="notice",
        severity="warning",
    ),
    define_message(
        "weights-offloaded",
        "a part of the weights does not fit the GPU and was offloaded to the CPU or the disk: each"
        " step is slow",
        r"Some parameters are on the meta device (?:device )?because they were offloaded to the"
        r" (?:cpu|disk)",
        "weights that are offloaded are copied to the GPU for every forward pass, so every token of"
        " a generation waits for them. device_map='auto' does so where the model in its dtype is"
        " larger than the free memory: float32 instead of bfloat16, no quantization, or another"
        " process on the GPU",
        "see which modules are where with `print(model.hf_device_map)`, and compute the size with"
        " `truetune plan SETTINGS --gpu {gpu}`; then load with dtype=torch.bfloat16, in 4-bit, or"
        " on more GPUs; free the GPU that `nvidia-smi` shows in use. Weights that are offloaded"
        " can't be trained",
        "accelerate/big_modeling.py",
        shown="notice",
        severity="warning",
    ),
    define_message(
        "inputs-on-another-device",
        "the prompt is on another device than the model: generation is slower, or its results are"
        " wrong",
        r"You are calling \.generate\(\) with the `input_ids` being on a device type different",
        "the tokens were not moved to the model's device, or the model was left on the CPU",
        "model.generate(**inputs.to(model.device)); see that model.device is the GPU; `truetune"
        " doctor` says what torch sees",
        "transformers/generation/utils.py",
        shown="notice",
        severity="warning",
    ),
    define_message(
        "generation-flags-ignored",
        "settings of generate() have no effect",
        r"The following generation flags are not valid and may be ignored",
        "temperature, top_p or top_k without do_sample=True (the answers are greedy), or names that"
        " generate() does not know",
        "set do_sample=True to sample, or drop the settings for greedy answers; `truetune check"
        " MODEL` reads generation_config.json",
        "transformers/generation/configuration_utils.py",
        shown="notice",
        severity="info",
    ),
    define_message(
        "four-bit-computes-in-float32",
        "4-bit layers compute in float32, which is slow",
        r"Input type into Linear4bit is torch\.(?:float16|bfloat16), but"
        r" bnb_4bit_compute_d?type=torch\.float32",
        "bnb_4bit_compute_dtype is not set, and its default is float32",
        "BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_compute_dtype=torch.bfloat16), and torch.float16"
        " on a card without bfloat16 (T4, V100, RTX 20)",
        "bitsandbytes/nn/modules.py",
        shown="notice",
        severity="warning",
    ),
    define_message(
        "flash-attention-in-float32",
        "flash attention is asked for with weights that it does not support (float32)",
        r"Flash Attention [\d.]+ only supports torch\.float16 and torch\.bfloat16 dtypes, but"
        r"|You are attempting to use Flash Attention [\d.]+ without specifying a (?:torch )?dtype",
        "the model was loaded without dtype, so in float32: it fails or is slow unless autocast is"
        " on everywhere, also in generate()",
        "load with dtype=torch.bfloat16 (torch_dtype before transformers 4.56)",
        "transformers/modeling_utils.py",
        shown="notice",
        severity="warning",
    ),
    define_message(
        "flash-attention-on-the-cpu",
        "the model is on the CPU, though flash attention is asked for",
        r"You are attempting to use Flash Attention [\d.]+ with a model not initialized on GPU",
        "the model is loaded without device_map: harmless if a trainer or model.to('cuda') moves it"
        " afterwards",
        "without a trainer: device_map={'': 0}, or model.to('cuda') before the first batch",
        "transformers/modeling_utils.py",
        shown="notice",
        severity="info",
    ),
    define_message(
        "attention-falls-back",
        "another attention than the one asked for is used, which is slower and takes more memory",
        r"`?sdpa`? attention does not support `(?:output_attentions=True|head_mask|softcap)`"
        r"|\w+ is using \w+SdpaAttention, but `torch\.nn\.functional\.scaled_dot_product_attention`"
        r" does not support"
        r"|You are not running the flash-attention implementation, expect numerical differences",
        "output_attentions=True, or a feature of the model that the fast kernel lacks; or"
        " flash-attn is not installed",
        "leave output_attentions out unless the attention weights are read; `truetune doctor` lists"
        " what is installed",
        "transformers/integrations/sdpa_attention.py",
        shown="notice",
        severity="warning",
    ),
    define_message(
        "kernels-not-installed",
        "fast kernels of this model are not installed: a slow implementation in Python is used",
        r"(?:`?\w+`?: )?[Tt]he fast path (?:for \w+ )?is not available because (?:one? of)"
        r"|Although .{1,80}, the decode fast path is not available",
        "causal-conv1d, mamba-ssm or flash-linear-attention is missing, or was built for another"
        " torch (Mamba, Jamba, Zamba, Falcon-H1, Qwen3-Next)",
        "install the packages that the line names, built for this torch; `truetune doctor` lists"
        " versions",
        "transformers/models/mamba/modeling_mamba.py",
        shown="notice",
        severity="warning",
    ),
    define_message(
        "unused-parameters-searched",
        "DDP looks for unused weights at every step, and there are none",
        r"(?:Warning: )?find_unused_parameters=True was specified in DDP constructor, but did not"
        r" find any unused",
        "ddp_find_unused_parameters=True walks over the whole graph once more at each step",
        "ddp_find_unused_parameters=False, unless a branch of the model is used at later steps"
        " alone",
        "torch/csrc/distributed/c10d/reducer.cpp",
        shown="notice",
        severity="info",
    ),
    define_message(
        "mapped-function-without-a-hash",
        "datasets can't name the result of the mapped function: all rows are prepared again at each start",
        r"(?:Parameter '\w{1,40}'=|The transform |Transform ).{1,300}couldn't be hashed properly",
        "the function holds something that can't be pickled (a lock, a client, a model, an open file), or something"
        " that is another at each start. The cache of the result is found by a hash of the function, and is random"
        " then",
        "make such objects inside of the function, or give it what it needs as fn_kwargs of plain values; or prepare"
        " once, save_to_disk, and train from load_from_disk",
        "datasets/fingerprint.py",
        shown="notice",
        severity="warning",
    ),
    define_message(
        "stream-has-few-shards",
        "the stream has fewer shards than there are workers to read them: the surplus ones stop",
        r"Too many dataloader workers: \d+ \(max is (?:dataset\.)?(?:num|n)_shards=\d+\)",
        "a worker reads whole shards. With fewer shards than processes x workers the others stop, and where the shards"
        " can't be split evenly, each process reads all rows and throws those of the others away",
        "write the rows as more files (dataset.to_iterable_dataset(num_shards=64), or 64 parquet files): a multiple of"
        " processes x dataloader_num_workers; or set dataloader_num_workers to the shards of a process",
        "datasets/iterable_dataset.py",
        shown="notice",
        severity="warning",
    ),
    define_message(
        "unsloth-without-fast-adapters",
        "Unsloth computes the adapter without its fast kernels",
        r"Unsloth: (?:Dropout|bias) = (?:0|`none`|none) is supported for fast patching",
        "lora_dropout above 0, or bias other than 'none': the fused kernels of LoRA have neither, so that these layers"
        " are those of PEFT",
        "lora_dropout=0, bias='none' in FastLanguageModel.get_peft_model",
        "unsloth/models/llama.py",
        shown="notice",
        severity="warning",
    ),
    define_message(
        "logged-steps-go-back",
        "a run logs steps that lie before those that its W&B run has: they are dropped",
        r"(?:wandb: )?(?:WARNING )?(?:Tried to log to |\(User provided\) )?[Ss]tep:? \d+ (?:that )?is less than"
        r" (?:the )?current step",
        "the run continues another one (the same WANDB_RUN_ID, resume='allow') and counts its steps from 0, or two runs"
        " write into one",
        "a new WANDB_RUN_ID for a new run; a resumed one must load its step too (resume_from_checkpoint), or log with"
        " wandb.define_metric('*', step_metric='train/global_step')",
        "wandb/sdk/wandb_run.py; wandb internal handler",
        shown="notice",
        severity="warning",
    ),
    define_message(
        "trained-batches-are-skipped",
        "the resumed run first reads the batches that it had trained, and throws them away",
        r"Will skip the first \d+ epochs? then the first [\d,]{4,} batches",
        "resume_from_checkpoint goes through the data to the place where the run stopped: each row is read, tokenized"
        " and collated for nothing, and the GPU waits. With a stream that takes hours",
        "ignore_data_skip=True begins at once (with another data_seed, so that the order is a new one); or a loader"
        " that keeps its place: torchdata's StatefulDataLoader, dataset.skip(n) of a stream",
        "transformers/trainer.py",
        shown="notice",
        severity="info",
    ),
    define_message(
        "trained-without-gpu",
        "the Trainer sees no GPU: everything runs on the CPU",
        r"(?:Process rank: ?-?\d+, )?device: cpu,? n_gpu: 0\b",
        "torch is a build without CUDA (its version ends in +cpu), its CUDA is newer than the driver, or"
        " CUDA_VISIBLE_DEVICES is empty",
        "`truetune doctor` says which; a build with CUDA comes from `pip install torch --index-url"
        " https://download.pytorch.org/whl/cu128` (no +cpu in requirements), and assert torch.cuda.is_available() at"
        " the top of the script stops such a run",
        "transformers/training_args.py",
        "transformers/examples/pytorch/language-modeling/run_clm.py",
        shown="notice",
        severity="warning",
    ),
    define_message(
        "gradient-strides-differ",
        "DDP copies gradients whose layout in memory differs from its buckets",
        r"(?:Warning: )?Grad strides do not match bucket view strides",
        "weights in channels_last, or of a transposed or sliced layout",
        "call .contiguous() on such weights before DDP wraps the model; the result is right, only"
        " slower",
        "torch/csrc/distributed/c10d/reducer.cpp",
        shown="notice",
        severity="info",
    ),
    define_message(
        "fsdp-upcasts-weights",
        "FSDP holds the weights that the line names in float32, though they were loaded in 16 bits:"
        " twice their memory",
        r"Upcasted low precision parameters in .{1,200} because mixed precision turned on in FSDP"
        r"|FSDP upcast of low precision parameters",
        "mixed precision (bf16=True) with FSDP trains weights in float32, which is right for full"
        " fine-tuning",
        "plan for 4 bytes a weight: `truetune plan SETTINGS --gpu {gpu}`; load in float32 so that"
        " what is saved does not surprise",
        "accelerate/accelerator.py",
        shown="notice",
        severity="info",
    ),
    define_message(
        "too-many-dataloader-workers",
        "the DataLoader starts more workers than the process may use processors",
        r"This DataLoader will create \d+ worker processes in total\. Our suggested max number of"
        r" worker",
        "dataloader_num_workers is for each process, and the job was given few processors",
        "ask the scheduler for processors: in Slurm `#SBATCH --cpus-per-task` of workers + 1 for each process of the"
        " task (without it a task has one); else lower dataloader_num_workers to what the processors can feed",
        "torch/utils/data/dataloader.py",
        shown="notice",
        severity="warning",
    ),
    define_message(
        "weights-not-tied",
        "accelerate plans the devices of a model whose tied weights are not tied yet",
        r"The model weights are not tied\. Please use the `tie_weights` method before",
        "device_map='auto' on a model made from its config: the head and the embedding are counted"
        " twice, so that more is offloaded than needed; with a checkpoint that lacks the head, the"
        " head stays random",
        "model.tie_weights() before infer_auto_device_map; `truetune check CHECKPOINT` names"
        " weights that are missing",
        "accelerate/utils/modeling.py",
        shown="notice",
        severity="info",
    ),
    define_message(
        "tied-weights-differ",
        "the config ties two weights, and the checkpoint holds different values for them: they are"
        " not tied",
        r"The tied weights mapping and config for this model specifies to tie",
        "an adapter was merged into one of them alone, or the head was trained apart from the"
        " embedding. Programs that tie them (vLLM, GGUF) give other answers",
        "set tie_word_embeddings to false in config.json before serving; `truetune check CHECKPOINT"
        " --base MODEL`",
        "transformers/modeling_utils.py",
        shown="notice",
        severity="warning",
    ),
    define_message(
        "merged-into-quantized-weights",
        "an adapter is merged into 4-bit or 8-bit weights, which rounds it",
        r"Merge lora module to (?:4|8)-bit linear may get different generations due to rounding"
        r" errors",
        "merge_and_unload() on a model that was loaded quantized",
        "load the base in bfloat16 and merge there: `truetune merge ADAPTER -o MERGED` proves what"
        " is kept",
        "peft/tuners/lora/bnb.py",
        shown="notice",
        severity="warning",
    ),
    define_message(
        "vllm-without-cuda-graphs",
        "vLLM runs without CUDA graphs, so each token takes longer",
        r"Cudagraph is disabled under eager mode|Enforce eager set, disabling torch\.compile and"
        r" CUDAGraphs"
        r"|CUDA graphs? (?:is|are) not supported .{0,80}(?:fall\w* back|eager)",
        "enforce_eager=True (--enforce-eager), which saves 1 to 3 GiB of memory and costs speed,"
        " most with small models and few requests",
        "start without --enforce-eager; if memory is short, lower --max-model-len or --max-num-seqs"
        " instead",
        "vllm/config/vllm.py",
        "vllm-project/vllm#4449",
        shown="notice",
        severity="info",
    ),
    define_message(
        "vllm-quantization-is-slow",
        "the quantization of this server has no fast kernel: it is slower than the plain weights",
        r"(?!awq |gptq )\S{1,40} quantization is not fully optimized yet\. The speed can be slower",
        "--quantization bitsandbytes dequantizes each layer at each token",
        "serve bfloat16 where it fits, or quantize to AWQ, GPTQ or FP8, which have Marlin kernels",
        "vllm/config/model.py; vllm/model_executor/layers/quantization/awq_marlin.py",
        shown="notice",
        severity="warning",
    ),
    define_message(
        "vllm-quantization-kernel-forced",
        "the slow kernel of AWQ or GPTQ is in use, and not the Marlin kernel (awq_marlin, gptq_marlin)",
        r"Detected that the model can run with \w+, however you specified quantization=\w+"
        r" explicitly|(?:awq|gptq) quantization is not fully optimized yet",
        "--quantization awq (or gptq) is an order for that kernel; without it vLLM takes awq_marlin or"
        " gptq_marlin, several times as fast, where the GPU can run it (Ampere and later)",
        "drop --quantization (the checkpoint says how it is quantized), or give --quantization"
        " awq_marlin (gptq_marlin for GPTQ)",
        "vllm/model_executor/layers/quantization/awq_marlin.py (override_quantization_method)",
        shown="notice",
        severity="warning",
    ),
    define_message(
        "quantization-kernels-not-installed",
        "the CUDA kernels of the quantized weights are not installed: each token is computed by a"
        " slow fallback",
        r"(?:- )?CUDA extension not installed\."
        r"|CUDA kernels for auto_gptq are not installed|Exllama(?:v2)? kernels? (?:is|are) not installed"
        r"|AutoAWQ could not load \w+ kernels extension",
        "the package of GPTQ or AWQ was installed without its compiled part, or for another torch or"
        " CUDA",
        "install gptqmodel (or a wheel of the same torch and CUDA), or serve the model with vLLM,"
        " which has kernels of its own; `truetune doctor` lists versions",
        "auto_gptq/nn_modules/qlinear/qlinear_cuda.py; awq/modules/linear",
        shown="notice",
        severity="warning",
    ),
    define_message(
        "drafts-are-refused",
        "speculative decoding: next to no drafted token is accepted, so the drafts cost more than"
        " they save",
        r"SpecDecoding metrics: .{0,400}Avg Draft acceptance rate: 1?\d(?:\.\d{1,4})?%",
        "the draft model is not of this model: another family, or the tuning moved the answers away"
        " from it. Speculation is worth it from about half accepted",
        "start without --speculative-config, take n-gram drafts, or tune the draft model on the same"
        " rows",
        "vllm/v1/spec_decode/metrics.py",
        shown="notice",
        severity="warning",
        least=2,
    ),
    define_message(
        "one-process-copies-to-all-gpus",
        "one process works on several GPUs (nn.DataParallel): little faster than one, and the first is fullest",
        r"(?:UserWarning: )?Was asked to gather along dimension 0, but all input tensors were scalars",
        "a Trainer that is started by plain `python` and sees several GPUs wraps the model in nn.DataParallel: at each"
        " step the weights are copied to all of them, and the logits are gathered on GPU 0. The batch of a step is as"
        " many times per_device_train_batch_size as there are GPUs",
        "start one process for each GPU: torchrun --nproc-per-node N train.py, or accelerate launch --num_processes N"
        " train.py; or show the run one GPU with CUDA_VISIBLE_DEVICES=0",
        "torch/nn/parallel/_functions.py",
        "huggingface/transformers#15544",
        shown="notice",
        severity="warning",
    ),
    define_message(
        "tensor-parallel-over-pcie",
        "the server splits each layer over GPUs that are joined by PCIe alone: they exchange results in every layer",
        r".{0,80}Custom allreduce is disabled because it's not supported on more than two PCIe-only GPUs",
        "--tensor-parallel-size is more than two on cards without NVLink. A model that one card holds is served faster"
        " by copies of it",
        "where one card holds the model: --data-parallel-size N instead of --tensor-parallel-size N (or one server for"
        " each card behind a load balancer); where it does not: the smallest tensor-parallel-size that holds it, and"
        " --pipeline-parallel-size for the rest",
        "vllm/distributed/device_communicators/custom_all_reduce.py",
        shown="notice",
        severity="info",
    ),
    define_message(
        "vllm-preempts-requests",
        "vLLM interrupts requests and computes them again: its key-value cache is too small",
        r"Sequence group \S{1,80} is preempted by PreemptionMode\.",
        "more or longer requests at once than the cache holds",
        "lower --max-num-seqs or --max-model-len, raise --gpu-memory-utilization, or take more GPUs"
        " (--tensor-parallel-size)",
        "docs.vllm.ai/en/latest/configuration/optimization.html",
        shown="notice",
        severity="warning",
    ),
)
"""By how special they are"""
