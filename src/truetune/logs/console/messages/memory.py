"""Known messages about memory: of the GPU, of the machine, of its disks."""

from __future__ import annotations

from truetune.logs.console.messages.known_message import define_message

MESSAGES = (
    define_message(
        "cuda-out-of-memory",
        "the GPU's memory is too small for this step",
        r"(?:CUDA|HIP|MPS backend|XPU) out of memory(?:\.|"
        r" \()|(?:torch\.|torch\.cuda\.)?OutOfMemoryError:"
        r"|CUDA error: out of memory|CUBLAS_STATUS_ALLOC_FAILED|cudaMalloc failed: out of memory"
        r"|RESOURCE_EXHAUSTED: Out of memory",
        "more rows or longer rows in one batch than fit beside weights, gradients and optimizer"
        " states; an evaluation batch larger than the training batch; logits of a large vocabulary;"
        " another process on the same GPU",
        "compute which part is too large, and what to change, with `truetune plan SETTINGS --gpu"
        " {gpu}` (or a script, or the model's folder, for SETTINGS); without settings: halve"
        " per_device_train_batch_size, double gradient_accumulation_steps, and turn"
        " gradient_checkpointing on",
        "pytorch/pytorch#16417",
        "c10/cuda/CUDACachingAllocator.cpp",
    ),
    define_message(
        "allocator-caches-flushed",
        "the GPU's memory is at its limit at many steps: its caches are emptied again and again, which takes time",
        r"\d+ pytorch allocator cache flushes since last step",
        "a step needs nearly all of the memory: an allocation fails at first, PyTorch gives its cache back to the"
        " driver, and asks for it again. The losses are right, and the steps take several times as long",
        "halve per_device_train_batch_size and double gradient_accumulation_steps, turn gradient_checkpointing on, or"
        " shard or offload more (`truetune plan SETTINGS --gpu {gpu}` computes what is needed);"
        " PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True where the memory is only in pieces",
        "deepspeed/runtime/zero/stage3.py",
        shown="notice",
        severity="warning",
        least=10,
        # Chosen, not measured: flushes at a quarter of the steps are more than the longest rows of each epoch.
        least_share_of_steps=0.25,
    ),
    define_message(
        "vllm-memory-not-free",
        "vLLM is to take a share of the GPU's memory that is not free",
        r"Free memory on device .{0,80}is less than desired GPU memory utilization",
        "the policy that is trained, or another process, is on the same GPU: vLLM's gpu_memory_utilization (0.9 by "
        "default; vllm_gpu_memory_utilization in TRL) is a share of the whole GPU",
        "beside a training, set vllm_gpu_memory_utilization (gpu_memory_utilization of LLM) to 0.3, or give vLLM a "
        "GPU of its own (vllm_mode server); alone, end what else runs there: `nvidia-smi` names it. `truetune lint` "
        "of the script says where it is set",
        "vllm/v1/worker/gpu_worker.py",
    ),
    define_message(
        "vllm-no-memory-for-the-cache",
        "vLLM's share of the GPU holds the weights, and nothing is left of it for the cache",
        r"No available memory for the cache blocks",
        "the weights take the whole share (gpu_memory_utilization of the GPU, 0.9 by default), with --enable-lora"
        " together with the places that are reserved for adapters: --max-loras x --max-lora-rank in each layer; or the"
        " share is small, as beside a training",
        "set --max-lora-rank to the r of adapter_config.json and --max-loras to the adapters that are asked at the same"
        " time; raise --gpu-memory-utilization (vllm_gpu_memory_utilization in TRL); quantized weights, or more GPUs"
        " (--tensor-parallel-size)",
        "vllm/v1/core/kv_cache_utils.py",
        "vllm/lora/models.py",
    ),
    define_message(
        "vllm-warm-up-out-of-memory",
        "vLLM tries its sampler with as many requests as it may serve at once, and their logits do not fit",
        r"CUDA out of memory occurred when warming up sampler with \d+ dummy requests",
        "--max-num-seqs is 256 to 1,024 by default: the sampler holds the logits of so many requests (requests x"
        " vocabulary x 4 bytes, several times) beside the share that weights and cache have reserved",
        "lower --max-num-seqs (64 is enough for most servers), or --gpu-memory-utilization, which leaves more beside"
        " the share",
        "vllm/v1/worker/gpu_model_runner.py",
    ),
    define_message(
        "llama-cpp-out-of-memory",
        "llama.cpp finds too little memory on the GPU for the weights, the key-value cache or its buffers",
        r"(?:.{0,60}\b)?(?:ggml_backend_cuda_buffer_type_alloc_buffer|ggml_gallocr_reserve_n\w*|alloc_tensor_range)"
        r": (?:allocating [\d.]+ MiB on device \d+: cudaMalloc failed|failed to allocate).{0,80}"
        r"|.{0,60}failed to allocate (?:CUDA\d+ )?buffer(?: of size \d+| for kv cache).{0,60}"
        r"|.{0,60}unable to allocate CUDA\d+ buffer.{0,60}",
        "a key-value cache of the whole context (-c 0, or no -c, takes that of the model: 131,072 tokens are 16 GiB for"
        " a model of 8 billion), all layers on the GPU (-ngl 99) of a 16-bit file, or several places for requests"
        " (--parallel)",
        "give the context that prompts and answers need (-c 8192), take a quantized file (llama-quantize IN OUT Q4_K_M)"
        " and a quantized cache (-ctk q8_0 -ctv q8_0 -fa on), or put fewer layers on the GPU (-ngl 20)",
        "ggml/src/ggml-cuda/ggml-cuda.cu",
        "src/llama-kv-cache.cpp",
        shown="notice",
    ),
    define_message(
        "host-memory-killed",
        "the operating system killed the process: the machine's memory (not the GPU's) was used up",
        r"(?:slurmstepd: |srun: )?(?:error: )?(?:Detected \d+ oom[-_ ]kill event|.{0,80}Out Of"
        r" Memory$"
        r"|TERM_MEMLIMIT|=>> PBS: job killed: mem |.{0,60}OOM Killed|.{0,160}DUE TO OUT.OF.MEMORY)"
        r"|(?:.{0,80}kernel: )?(?:\[ *[\d.]{3,20}\] |\[\w{3} \w{3} [ \d]\d [\d:]{8} \d{4}\] )?"
        r"(?:Memory cgroup out of memory|Out of memory): Kill(?:ed)? process"
        r"|.{0,60}\bOOMKilled\b|.{0,200}\bYour notebook (?:tried to allocate more memory"
        r"|restarted because it (?:ran out of memory|allocated))"
        r"|Your session crashed after using all available RAM",
        "the data set is held whole in memory by each worker and each process; a model loaded in"
        " float32, or by every process at once; checkpoints merged or saved on the CPU; the job"
        " asked for too little memory",
        "compute the model's size with `truetune plan SETTINGS`; where it ends while several processes load the"
        " weights, let one of them do it (fsdp_cpu_ram_efficient_loading: true with fsdp_sync_module_states: true, or"
        " ZeRO-3's zero3_init_flag: true), in bfloat16; where it ends while rows are prepared or trained, lower"
        " dataset_num_proc and dataloader_num_workers; or ask the scheduler for more memory (--mem)",
        "docs.nesi.org.nz/General/FAQs/What_does_oom_kill_mean",
        "osc.edu/documentation/knowledge_base",
        shown="end",
    ),
    define_message(
        "killed",
        "the process was killed from outside (SIGKILL, exit code 137): most often the machine's"
        " memory was used up",
        r"Killed(?:$| {2,}| python)|\S{0,80}:? ?line \d+: +\d+ Killed\b|\[\d+\]\+? +Killed\b"
        r"|.{0,120}\bexitcode {0,2}: -9\b|.{0,120}\(exitcode: -9\)|.{0,160}Signal 9 \(SIGKILL\)"
        r"|.{0,200}died with <Signals\.SIGKILL: 9>|.{0,80}[Ee]xit(?:ed with)? (?:code|status):?"
        r" {0,2}(?:137|-9)\b"
        r"|.{0,300}exits with return code = -9\b|.{0,200}returned non-zero exit status 137\b",
        "the kernel's memory killer, while a model is loaded, a data set is mapped, or a checkpoint"
        " is gathered; else the scheduler, or a person",
        "look for `oom` in `dmesg -T | tail`; compute the model's size with `truetune plan"
        " SETTINGS`; lower dataloader_num_workers and dataset_num_proc, and load the model in"
        " bfloat16; where it ends while several processes load the weights, let one of them do it:"
        " fsdp_cpu_ram_efficient_loading: true with fsdp_sync_module_states: true, or ZeRO-3's"
        " zero3_init_flag: true",
        "OpenBMB/MiniCPM-V#917",
        "zai-org/ChatGLM-6B#736",
        "zai-org/ChatGLM2-6B#525",
        "yangjianxin1/Firefly#171",
        shown="end",
    ),
    define_message(
        "logits-fill-host-memory",
        "the machine's memory (not the GPU's) was used up by logits: rows x length x vocabulary",
        # A vocabulary has 30,000 to 262,000 tokens; hidden states and images are narrower.
        r"Unable to allocate [\d.]+ [MGT]iB for an array with shape \(\d+, \d+, (?:[3-9]\d{4}|\d{6})\)",
        "the evaluation keeps the logits of all rows in memory for compute_metrics; the shape in the"
        " message says how many rows there were at this moment",
        "preprocess_logits_for_metrics=lambda logits, labels: logits.argmax(-1) keeps one number for each"
        " token (eval_accumulation_steps only moves logits here from the GPU), or prediction_loss_only=True"
        " where the loss is enough; `truetune lint SCRIPT` checks it",
        "transformers/trainer_pt_utils.py",
        "numpy/_core/_exceptions.py",
    ),
    define_message(
        "system-memory-error",
        "the machine's memory (not the GPU's) was used up",
        r"^MemoryError\b|numpy\._?core\._exceptions\.\w*MemoryError|DefaultCPUAllocator: (?:can't"
        r" allocate"
        r"|not enough) memory|WinError 1455|ArrowMemoryError|Cannot allocate memory|std::bad_alloc"
        r"|ray\.exceptions\.OutOfMemoryError",
        "a data set or a model held whole in memory, once for each process or worker",
        "compute the model's size with `truetune plan SETTINGS`; read the data as a stream or as"
        " Arrow files (`truetune encode DATA -t TOKENIZER -o encoded`), and lower dataset_num_proc",
        "c10/core/impl/alloc_cpu.cpp",
        "pytorch/pytorch#20618",
    ),
    define_message(
        "nccl-shared-memory-raised",
        "NCCL has too little shared memory (/dev/shm), and no disk is full",
        r"Error while creating shared memory segment (?!.{0,160}error: (?!No space)).{0,160}"
        r"|failed to extend /dev/shm/\S{1,80}.{0,120}|posix_fallocate failed ?: No space.{0,40}"
        r"|/dev/shm/nccl.{0,120}No space left.{0,40}",
        "containers give 64 MB to /dev/shm, and NCCL lays buffers of 6 to 33 MB there for each pair of GPUs"
        " of one machine",
        "start the container with --shm-size=16g or --ipc=host (Kubernetes: an emptyDir with medium: Memory"
        " on /dev/shm); inside of it `df -h /dev/shm` says what it has; remove what an earlier run left there"
        " (/dev/shm/nccl-*); NCCL_SHM_DISABLE=1 runs without it, and slower",
        "docs.nvidia.com/deeplearning/nccl/user-guide/docs/troubleshooting.html",
        "NVIDIA/nccl#290",
        "NVIDIA/nccl#342",
    ),
    define_message(
        "shared-memory-too-small",
        "a process, most often a worker of the DataLoader, found too little shared memory (/dev/shm)",
        r"unable to (?:open|allocate|write to|mmap).{0,80}shared memory|insufficient shared memory"
        r" \(shm\)"
        r"|is killed by signal: Bus error|unable to mmap \d+ bytes from file"
        r"|unable to write to file </torch_"
        r"|No space left on device.{0,80}(?:/dev/shm|/psm_)|/dev/shm.{0,160}No space left on device"
        r"|received 0 items of ancdata",
        "containers give 64 MB to /dev/shm, and workers hand each batch over in it; or too many"
        " open files",
        "start the container with --ipc=host or --shm-size=16g; or dataloader_num_workers=0; for"
        " `ancdata`: torch.multiprocessing.set_sharing_strategy('file_system')",
        "torch/utils/data/_utils/signal_handling.py",
        "pytorch/pytorch#5040",
        "pytorch/pytorch#973",
    ),
    define_message(
        "dataloader-worker-killed",
        "a worker of the DataLoader was killed or ended by itself",
        r"DataLoader worker \(pid(?:\(s\))? [\d, ]+\) (?:is killed by signal|exited unexpectedly)",
        "`Killed` or `Bus error`: memory or /dev/shm is used up, once for each worker;"
        " `Segmentation fault`: a library that does not survive a fork; `exited unexpectedly`: the"
        " worker's own message is above",
        "set dataloader_num_workers=0 and run again: the real exception is printed then; with"
        " workers, lower their number or raise --shm-size; `truetune check DATA -t TOKENIZER` reads"
        " every row without workers",
        "torch/utils/data/dataloader.py",
        "pytorch/pytorch#8976",
        refined_by=("worker-died-of-a-bus-error",),
    ),
    define_message(
        "worker-died-of-a-bus-error",
        "a worker of the DataLoader died of a bus error: /dev/shm, through which it hands batches over, is full",
        r"(?:ERROR: )?Unexpected bus error encountered in worker",
        "containers give 64 MB to /dev/shm, and each worker keeps prefetch_factor batches in it",
        "start the container with --ipc=host or --shm-size=16g (Kubernetes: an emptyDir of medium Memory at"
        " /dev/shm); or dataloader_num_workers=0",
        "torch/utils/data/_utils/signal_handling.py",
        "pytorch/pytorch#5040",
        shown="notice",
    ),
    define_message(
        "disk-full",
        "the disk, or the user's quota on it, is full",
        r"No space left on device|Disk quota exceeded|OSError: \[Errno 28\]|\[Errno 122\]"
        r"|PytorchStreamWriter failed writing file|unexpected pos \d+ vs \d+|file write failed"
        r"|I/O error: No space left on device",
        "checkpoints with optimizer states (4 to 12 bytes for each trained parameter), caches of"
        " data sets and of the hub, or the temporary folder",
        "see what is full with `df -h . /tmp ~`; set save_total_limit and save_only_model, and"
        " HF_HOME to a larger disk; the checkpoint that was being written is broken: `truetune"
        " check CHECKPOINT` says so",
        "caffe2/serialize/inline_container.cc",
        "h2oai/h2o-llmstudio#214",
        refined_by=("nccl-shared-memory",),
    ),
    define_message(
        "too-many-open-files",
        "the process may open no more files",
        r"Too many open files",
        "each shard, worker and shared tensor takes a file descriptor, and the limit is often"
        " 1,024",
        "`ulimit -n 65535` before the run, or"
        " torch.multiprocessing.set_sharing_strategy('file_system')",
        "pytorch/pytorch#11201",
    ),
    define_message(
        "paged-optimizer-memory",
        "paged or pinned memory could not be had from the driver",
        r"CUDA error: (?:mapping of buffer object failed|an illegal memory access).{0,40}(?:paged"
        r"|cget_managed_ptr)|Error out of memory at line \d+ in file"
        r" .{0,80}(?:pythonInterface|ops)\.(?:c|cu)",
        "bitsandbytes' paged optimizers fall back on the machine's memory, which is full too",
        "compute the optimizer's states with `truetune plan SETTINGS --gpu {gpu}`; train fewer"
        " parameters (LoRA) or take adamw_8bit without paging",
        "bitsandbytes-foundation/bitsandbytes#726",
        "bitsandbytes-foundation/bitsandbytes#959",
    ),
)
"""By how special they are"""
