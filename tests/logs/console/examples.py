"""How each known message reads: written in the shape that the library prints, with other names and numbers.

An exception is `Type: text`; a notice or an end is a whole line.
"""

# ruff: noqa: E501 - lines of logs stand as they are printed
from __future__ import annotations

EXAMPLES: dict[str, tuple[str, ...]] = {
    "batches-skipped-by-ratio": (
        "The average ratio of batch (12.34) exceeds threshold 10.00. Skipping batch.",
    ),
    "gemma-without-eager-attention": (
        "It is strongly recommended to train Gemma2 models with the `eager` attention implementation instead of"
        " `sdpa`.",
        "It is strongly recommended to train Gemma3 models with the `eager` attention implementation instead of"
        " `flash_attention_2`. Use `eager` with `AutoModelForCausalLM.from_pretrained(...)`.",
    ),
    "state-dict-keys-differ": (
        (
            "_IncompatibleKeys(missing_keys=['embed_tokens.weight', 'norm.weight'],"
            " unexpected_keys=['module.embed_tokens.weight', 'module.norm.weight'])"
        ),
        "resumed from last.pt, missing keys: 290, unexpected keys: 290",
        "loaded weights: 12 missing, 3 unexpected",
    ),
    "one-process-copies-to-all-gpus": (
        (
            "/usr/lib/python3/site-packages/torch/nn/parallel/_functions.py:71: UserWarning: Was asked to gather along"
            " dimension 0, but all input tensors were scalars; will instead unsqueeze and return a vector."
        ),
    ),
    "tensor-parallel-over-pcie": (
        (
            "WARNING 05-01 09:00:04 custom_all_reduce.py:143] Custom allreduce is disabled because it's not supported"
            " on more than two PCIe-only GPUs. To silence this warning, specify disable_custom_all_reduce=True"
        ),
        (
            "(VllmWorker rank=2 pid=411) WARNING 07-11 10:10:10 [custom_all_reduce.py:137] Custom allreduce is disabled"
            " because it's not supported on more than two PCIe-only GPUs."
        ),
    ),
    "nothing-trainable": (
        "trainable params: 0 || all params: 8,030,261,248 || trainable%: 0.0000",
        "trainable params: 0 || all params: 494,032,768 || trainable%: 0.0",
    ),
    "cuda-out-of-memory": (
        (
            "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 7.83 GiB. GPU 0 has a"
            " total capacity of 23.65 GiB of which 1.06 GiB is free."
        ),
        (
            "RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB (GPU 0; 15.78 GiB total"
            " capacity; 13.10 GiB already allocated; 1.20 GiB free; 13.90 GiB reserved in total by"
            " PyTorch)"
        ),
        "torch.AcceleratorError: CUDA error: out of memory",
        "RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
        (
            "RuntimeError: MPS backend out of memory (MPS allocated: 17.10 GB, other allocations:"
            " 1.02 GB)"
        ),
        (
            "torch.OutOfMemoryError: HIP out of memory. Tried to allocate 64.00 MiB. GPU 0 has a"
            " total capacity of 63.98 GiB"
        ),
    ),
    "vllm-memory-not-free": (
        "ValueError: Free memory on device (31.02/47.53 GiB) on startup is less than desired GPU memory utilization "
        "(0.9, 42.77 GiB). Decrease GPU memory utilization or reduce GPU memory used by other processes.",
    ),
    "vllm-no-memory-for-the-cache": (
        "ValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization` when "
        "initializing the engine.",
    ),
    "vllm-warm-up-out-of-memory": (
        "RuntimeError: CUDA out of memory occurred when warming up sampler with 1024 dummy requests. Please try lowering "
        "`max_num_seqs` or `gpu_memory_utilization` when initializing the engine.",
    ),
    "llama-cpp-out-of-memory": (
        "ggml_backend_cuda_buffer_type_alloc_buffer: allocating 16384.00 MiB on device 0: cudaMalloc failed: out of memory",
        "llama_kv_cache_init: failed to allocate buffer for kv cache",
        "llama_init_from_model: failed to initialize the context: failed to allocate buffer for kv cache",
        "alloc_tensor_range: failed to allocate CUDA0 buffer of size 15317020672",
        "llama_model_load: error loading model: unable to allocate CUDA0 buffer",
        "ggml_gallocr_reserve_n: failed to allocate CUDA0 buffer of size 2147483648",
    ),
    "host-memory-killed": (
        (
            "slurmstepd: error: Detected 1 oom_kill event in StepId=4711.batch. Some of the step"
            " tasks have been OOM Killed."
        ),
        "slurmstepd: error: Detected 2 oom-kill event(s) in step 4711.0 cgroup.",
        "srun: error: node17: task 0: Out Of Memory",
        "Out of memory: Killed process 4711 (python) total-vm:91234567kB",
        "Your session crashed after using all available RAM.",
    ),
    "killed": (
        "Killed",
        "./train.sh: line 12:  4711 Killed                  python train.py",
        "[1]+  Killed                  nohup python train.py > out.log",
        "failed (exitcode: -9) local_rank: 2 (pid: 4711) of binary: /opt/venv/bin/python",
        "  traceback : Signal 9 (SIGKILL) received by PID 4711",
        "  exitcode  : -9 (pid: 4711)",
        (
            "subprocess.CalledProcessError: Command '['python', 'train.py']' died with"
            " <Signals.SIGKILL: 9>."
        ),
        "Command exited with exit code 137",
        (
            "[launch.py:325:sigkill_handler] ['/usr/bin/python3', '-u', 'train.py'] exits with"
            " return code = -9"
        ),
        "train.sh: line 3: 99 Killed python train.py",
    ),
    "logits-fill-host-memory": (
        "numpy._core._exceptions._ArrayMemoryError: Unable to allocate 23.1 GiB for an array with shape"
        " (310, 790, 128256) and data type float32",
    ),
    "map-process-died": (
        "RuntimeError: One of the subprocesses has abruptly died during map operation.To debug the error, disable"
        " multiprocessing.",
    ),
    "system-memory-error": (
        "numpy._core._exceptions._ArrayMemoryError: Unable to allocate 12.0 GiB for an array with shape"
        " (1000, 400, 4096) and data type float64",
        "MemoryError",
        (
            "numpy.core._exceptions._ArrayMemoryError: Unable to allocate 12.1 GiB for an array"
            " with shape (1626, 1000000)"
        ),
        (
            "RuntimeError: [enforce fail at alloc_cpu.cpp:117] err == 0. DefaultCPUAllocator: can't"
            " allocate memory: you tried to allocate 524288000 bytes."
        ),
        "OSError: [Errno 12] Cannot allocate memory",
        "OSError: [WinError 1455] The paging file is too small for this operation to complete.",
    ),
    "nccl-shared-memory-raised": (
        (
            "torch.distributed.DistBackendError: NCCL error in: /pytorch/torch/csrc/distributed/c10d/NCCLUtils.cpp:77,"
            " unhandled system error (run with NCCL_DEBUG=INFO for details), NCCL version 2.26.2\nncclSystemError: System"
            " call (e.g. socket, malloc) or external library call failed or device error.\nLast error:\nError while creating"
            " shared memory segment /dev/shm/nccl-hRk2Zb (size 33030528), error: No space left on device (28)"
        ),
        (
            "torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:1970, unhandled system error\nLast"
            " error:\nError while creating shared memory segment /dev/shm/nccl-zN9Gqb (size 9637888)"
        ),
        (
            "RuntimeError: NCCL error: unhandled system error\nLast error:\nCall to posix_fallocate failed : No space left"
            " on device"
        ),
    ),
    "shared-memory-too-small": (
        "OSError: [Errno 28] No space left on device: '/dev/shm/psm_1f0a'",
        "ray.exceptions.RaySystemError: /dev/shm/plasma: No space left on device",
        (
            "RuntimeError: unable to write to file </torch_4711_1_0>: unable to open shared memory"
            " object </torch_4711_1_0> in read-write mode"
        ),
        (
            "RuntimeError: DataLoader worker (pid 4711) is killed by signal: Bus error. It is"
            " possible that dataloader's workers are out of shared memory."
        ),
        "RuntimeError: received 0 items of ancdata",
    ),
    "dataloader-worker-killed": (
        "RuntimeError: DataLoader worker (pid 4711) is killed by signal: Killed.",
        "RuntimeError: DataLoader worker (pid(s) 17, 18) exited unexpectedly",
    ),
    "worker-died-of-a-bus-error": (
        "ERROR: Unexpected bus error encountered in worker. This might be caused by insufficient shared memory (shm).",
    ),
    "disk-full": (
        "OSError: [Errno 28] No space left on device: 'out/checkpoint-50/model.safetensors'",
        (
            "RuntimeError: [enforce fail at inline_container.cc:603] . unexpected pos 4194304 vs"
            " 4194202"
        ),
        "RuntimeError: PytorchStreamWriter failed writing file data/3: file write failed",
        (
            "safetensors_rust.SafetensorError: Error while serializing: I/O error: No space left on"
            " device (os error 28)"
        ),
        "OSError: [Errno 122] Disk quota exceeded",
    ),
    "too-many-open-files": ("OSError: [Errno 24] Too many open files: 'train-00017.arrow'",),
    "paged-optimizer-memory": (
        "Error out of memory at line 380 in file /src/csrc/pythonInterface.c",
    ),
    "nccl-timeout": (
        (
            "[Rank 3] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=91,"
            " OpType=ALLREDUCE, Timeout(ms)=1800000) ran for 1800311 milliseconds before timing"
            " out."
        ),
        (
            "Some NCCL operations have failed or timed out. Due to the asynchronous nature of CUDA"
            " kernels, subsequent GPU operations might run on corrupted data."
        ),
    ),
    "nodes-did-not-meet": ("torch.distributed.elastic.rendezvous.api.RendezvousTimeoutError",),
    "nccl-timeout-raised": (
        (
            "RuntimeError: [1] is setting up NCCL communicator and retrieving ncclUniqueId from [0]"
            " via c10d key-value store by key '0', but store->get('0') got error: Socket Timeout"
        ),
    ),
    "nccl-error": (
        (
            "torch.distributed.DistBackendError: NCCL error in:"
            " ../torch/csrc/distributed/c10d/NCCLUtils.hpp:275, unhandled system error"
        ),
        "RuntimeError: ncclInternalError: Internal check failed.",
    ),
    "process-of-the-run-failed": (
        "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: ",
        (
            "subprocess.CalledProcessError: Command '['/opt/venv/bin/python', 'train.py']' returned"
            " non-zero exit status 1."
        ),
        "RuntimeError: Caught KeyError in DataLoader worker process 0.",
        "torch.multiprocessing.spawn.ProcessRaisedException: ",
    ),
    "peer-gone": (
        "ConnectionResetError: [Errno 104] Connection reset by peer",
        "BrokenPipeError: [Errno 32] Broken pipe",
        (
            "RuntimeError: [../third_party/gloo/gloo/transport/tcp/pair.cc:534] Connection closed"
            " by peer [10.0.0.7]:41231"
        ),
    ),
    "time-limit": (
        "slurmstepd: error: *** JOB 4711 ON node17 CANCELLED AT 2025-03-01T10:00:00 DUE TO TIME LIMIT ***",
        "slurmstepd: error: *** STEP 4711.0 ON node17 CANCELLED AT 2025-03-01T10:00:00 DUE TO TIME LIMIT ***",
        "=>> PBS: job killed: walltime 86430 exceeded limit 86400",
    ),
    "preempted": (
        "slurmstepd: error: *** STEP 4711.0 ON node17 CANCELLED AT 2025-03-01T10:00:00 DUE TO PREEMPTION ***",
        "slurmstepd: error: *** JOB 4711 ON node17 CANCELLED AT 2025-03-01T10:00:00 DUE TO JOB REQUEUE ***",
    ),
    "node-failed": (
        "slurmstepd: error: *** JOB 4711 ON node17 CANCELLED AT 2025-03-01T10:00:00 DUE TO NODE FAILURE, SEE SLURMCTLD LOG ***",
        "srun: error: Node failure on node17",
    ),
    "cancelled": (
        "slurmstepd: error: *** JOB 4711 ON node17 CANCELLED AT 2025-03-01T10:00:00 ***",
        "srun: Force Terminated job 4711",
    ),
    "terminated": (
        "Terminated",
        "  exitcode  : -15 (pid: 17)",
        "Received 15 death signal, shutting down workers",
    ),
    "segmentation-fault": (
        "Segmentation fault (core dumped)",
        "Fatal Python error: Segmentation fault",
        "failed (exitcode: -11) local_rank: 0 (pid: 17) of binary: /usr/bin/python3",
        "train.sh: line 9: 4711 Aborted                 (core dumped) python train.py",
    ),
    "port-in-use": (
        (
            "torch.distributed.DistNetworkError: The server socket has failed to listen on any"
            " local network address. port: 29500, useIpv6: false, code: -98, name: EADDRINUSE,"
            " message: address already in use"
        ),
        "OSError: [Errno 98] Address already in use",
    ),
    "stopped-by-hand": (
        "KeyboardInterrupt",
        "torch.distributed.elastic.multiprocessing.api.SignalException: Process 4711 got signal: 2",
    ),
    "rank-device-mismatch": (
        "RuntimeError: CUDA error: invalid device ordinal",
        "torch.AcceleratorError: CUDA error: invalid device ordinal",
    ),
    "ids-beyond-the-embedding": ("IndexError: index out of range in self",),
    "ids-beyond-the-embedding-on-the-gpu": (
        (
            "../aten/src/ATen/native/cuda/Indexing.cu:1290: indexSelectLargeIndex: block: [97,0,0],"
            " thread: [3,0,0] Assertion `srcIndex < srcSelectDimSize` failed."
        ),
        (
            "/pytorch/aten/src/ATen/native/cuda/IndexKernel.cu:93: operator(): block: [0,0,0],"
            ' thread: [12,0,0] Assertion `-sizes[i] <= index && index < sizes[i] && "index out of'
            ' bounds"` failed.'
        ),
    ),
    "labels-beyond-the-classes-on-the-gpu": (
        (
            "../aten/src/ATen/native/cuda/Loss.cu:245: nll_loss_forward_reduce_cuda_kernel_2d:"
            " block: [0,0,0], thread: [4,0,0] Assertion `t >= 0 && t < n_classes` failed."
        ),
    ),
    "labels-beyond-the-classes": ("IndexError: Target 32003 is out of bounds.",),
    "device-side-assert": (
        "RuntimeError: CUDA error: device-side assert triggered",
        (
            "RuntimeError: CUDA error: CUBLAS_STATUS_NOT_INITIALIZED when calling"
            " `cublasCreate(handle)`"
        ),
    ),
    "illegal-memory-access": (
        "RuntimeError: CUDA error: an illegal memory access was encountered",
    ),
    "embedding-size-mismatch": (
        (
            "RuntimeError: Error(s) in loading state_dict for PeftModelForCausalLM:\n\tsize"
            " mismatch for base_model.model.model.embed_tokens.weight: copying a param with shape"
            " torch.Size([32001, 64]) from checkpoint, the shape in current model is"
            " torch.Size([32000, 64])."
        ),
    ),
    "size-mismatch": (
        (
            "RuntimeError: Error(s) in loading state_dict for PeftModelForCausalLM:\n\tsize"
            " mismatch for base_model.model.layers.0.q_proj.lora_A.default.weight: copying a param"
            " with shape torch.Size([16, 64])"
        ),
    ),
    "missing-or-unexpected-keys": (
        (
            "RuntimeError: Error(s) in loading state_dict for LlamaForCausalLM:\n\tMissing key(s)"
            ' in state_dict: "model.norm"'
        ),
    ),
    "batch-rows-of-different-length": (
        (
            "ValueError: Unable to create tensor, you should probably activate truncation and/or"
            " padding with 'padding=True' 'truncation=True' to have batched tensors with the same"
            " length."
        ),
        (
            "RuntimeError: stack expects each tensor to be equal size, but got [17] at entry 0 and"
            " [23] at entry 1"
        ),
        "ValueError: expected sequence of length 17 at dim 1 (got 23)",
    ),
    "batch-size-of-logits-and-labels": (
        "ValueError: Expected input batch_size (2048) to match target batch_size (2044).",
    ),
    "matrix-shapes": (
        "RuntimeError: mat1 and mat2 shapes cannot be multiplied (37x64 and 1x2048)",
    ),
    "tensor-sizes": (
        (
            "RuntimeError: The size of tensor a (2049) must match the size of tensor b (2048) at"
            " non-singleton dimension 3"
        ),
        (
            "RuntimeError: The expanded size of the tensor (1024) must match the existing size"
            " (1030) at non-singleton dimension 1."
        ),
    ),
    "dtypes-do-not-fit": (
        "RuntimeError: mat1 and mat2 must have the same dtype, but got Float and BFloat16",
        "RuntimeError: expected scalar type Half but found Float",
        "RuntimeError: expected m1 and m2 to have the same dtype, but got: float != c10::BFloat16",
    ),
    "two-devices": (
        (
            "RuntimeError: Expected all tensors to be on the same device, but found at least two"
            " devices, cuda:0 and cpu!"
        ),
        "NotImplementedError: Cannot copy out of meta tensor; no data!",
    ),
    "not-implemented-for-half": ("RuntimeError: \"addmm_impl_cpu_\" not implemented for 'Half'",),
    "sampling-from-nan": (
        "RuntimeError: probability tensor contains either `inf`, `nan` or element < 0",
    ),
    "loss-scale-at-minimum": (
        (
            "Exception: Current loss scale already at minimum - cannot decrease scale anymore."
            " Exiting run."
        ),
    ),
    "loss-is-nan": (
        "ValueError: Loss is nan, stopping training",
        "RuntimeError: Function 'MulBackward0' returned nan values in its 0th output.",
    ),
    "all-labels-masked": (
        (
            "ZeroDivisionError: Unsloth: All labels in your dataset are -100. Training losses will"
            " be all 0."
        ),
        "ValueError: The loss mask is all zero for row 17",
    ),
    "response-marker-tokenized-otherwise": (
        "Could not find response key `### Response:` in the following instance: <s> Q ### Response: A</s>",
    ),
    "all-labels-masked-warned": (
        (
            "Could not find response key `### Response:` in the following instance: ###"
            " Instruction: ..."
        ),
        "Loss mask is all zero for this batch",
        "Unsloth: Most labels in your dataset are -100. Training losses will be 0.",
    ),
    "no-gradient": (
        "RuntimeError: element 0 of tensors does not require grad and does not have a grad_fn",
    ),
    "checkpointing-without-gradient": (
        "None of the inputs have requires_grad=True. Gradients will be None",
    ),
    "unscale-fp16": (
        "ValueError: Attempting to unscale FP16 gradients.",
        "AssertionError: No inf checks were recorded for this optimizer.",
    ),
    "backward-twice": (
        (
            "RuntimeError: Trying to backward through the graph a second time (or directly access"
            " saved tensors after they have already been freed)."
        ),
    ),
    "recomputed-values-differ": (
        (
            "torch.utils.checkpoint.CheckpointError: torch.utils.checkpoint: A different number of"
            " tensors was saved during the original forward and recomputation."
        ),
    ),
    "unused-parameters": (
        (
            "RuntimeError: Expected to have finished reduction in the prior iteration before"
            " starting a new one. This error indicates that your module has parameters that were"
            " not used in producing loss."
        ),
        (
            "RuntimeError: It looks like your LightningModule has parameters that were not used in"
            " producing the loss returned by training_step. If this is intentional, you must enable"
            " the detection of unused parameters in DDP, either by setting the string value"
            " `strategy='ddp_find_unused_parameters_true'` or by setting the flag in the strategy with"
            " `strategy=DDPStrategy(find_unused_parameters=True)`."
        ),
    ),
    "marked-ready-twice": ("RuntimeError: Expected to mark a variable ready only once.",),
    "mismatched-weights-begin-at-random": (
        (
            "Some weights of LlamaForCausalLM were not initialized from the model checkpoint at out/final and are newly"
            " initialized because the shapes did not match:"
        ),
        "model.embed_tokens.weight | MISMATCH | Reinit due to size mismatch",
    ),
    "weights-newly-initialized": (
        (
            "Some weights of LlamaForSequenceClassification were not initialized from the model"
            " checkpoint at m and are newly initialized: ['score.weight']"
        ),
        "lm_head.weight | MISSING |",
    ),
    "wrapped-weights-not-used": (
        (
            "Some weights of the model checkpoint at m were not used when initializing"
            " LlamaForCausalLM: ['_orig_mod.model.norm.weight']"
        ),
        "module.model.layers.{0...3}.mlp.up_proj.weight | UNEXPECTED |",
    ),
    "weights-not-used": (
        (
            "Some weights of the model checkpoint at m were not used when initializing"
            " LlamaForCausalLM: ['x.weight']"
        ),
        "model.layers.{0...3}.extra.weight | UNEXPECTED |",
    ),
    "adapter-weights-not-loaded": (
        (
            "Found missing adapter keys while loading the checkpoint:"
            " ['base_model.model.lm_head.weight']"
        ),
    ),
    "gated-or-private-repository": (
        (
            "OSError: You are trying to access a gated repo.\nMake sure to have access to it at "
            "https://huggingface.co/a/b."
        ),
        "huggingface_hub.errors.GatedRepoError: 401 Client Error. (Request ID: x)",
        "huggingface_hub.errors.RepositoryNotFoundError: 404 Client Error.",
    ),
    "hub-not-reachable": (
        (
            "OSError: We couldn't connect to 'https://huggingface.co' to load the files, and"
            " couldn't find them in the cached files."
        ),
        (
            "requests.exceptions.ConnectionError: HTTPSConnectionPool(host='h', port=443): Max"
            " retries exceeded with url: /x"
        ),
    ),
    "not-a-model": (
        "OSError: out/run-3 does not appear to have a file named config.json.",
        (
            "OSError: my-modl is not a local folder and is not a valid model identifier listed on "
            "'https://huggingface.co/models'"
        ),
        (
            "huggingface_hub.errors.HFValidationError: Repo id must be in the form 'repo_name' or "
            "'namespace/repo_name': './out/checkpoint-9'."
        ),
    ),
    "architecture-not-known": (
        (
            "ValueError: The checkpoint you are trying to load has model type `newmodel4` but"
            " Transformers does not recognize this architecture."
        ),
        "KeyError: 'qwen3'",
        (
            "Exception: data did not match any variant of untagged enum ModelWrapper at line 757367"
            " column 3"
        ),
        (
            "ValueError: Tokenizer class TokenizersBackend does not exist or is not currently"
            " imported."
        ),
        "ValueError: Tokenizer class NewTokenizer is not currently imported.",
    ),
    "remote-code-refused": (
        (
            "ValueError: Loading this model requires you to execute custom code contained in the"
            " model repository on your local machine. Please set the option"
            " `trust_remote_code=True` to permit loading of this model."
        ),
    ),
    "safetensors-header": (
        "safetensors_rust.SafetensorError: Error while deserializing header: HeaderTooLarge",
        (
            "safetensors_rust.SafetensorError: Error while deserializing header: incomplete"
            " metadata, file not fully covered"
        ),
        "_pickle.UnpicklingError: invalid load key, 'v'.",
        (
            "RuntimeError: PytorchStreamReader failed reading zip archive: failed finding central"
            " directory"
        ),
    ),
    "adapter-targets-not-found": (
        (
            "ValueError: Target modules {'query_key_value'} not found in the base model. Please"
            " check the target modules and try again."
        ),
        "ValueError: Please specify `target_modules` in `peft_config`",
    ),
    "quantized-model-not-trainable": (
        (
            "ValueError: You cannot perform fine-tuning on purely quantized models. Please attach"
            " trainable adapters on top of"
        ),
        "ValueError: `.to` is not supported for `4-bit` or `8-bit` bitsandbytes models.",
    ),
    "adapter-on-an-adapter": (
        (
            "ValueError: You passed a `PeftModel` instance together with a `peft_config` to the"
            " trainer."
        ),
    ),
    "tokenizer-file-missing": (
        "TypeError: stat: path should be string, bytes, os.PathLike or integer, not NoneType",
        (
            "ImportError: LlamaTokenizer requires the SentencePiece library but it was not found in"
            " your environment."
        ),
    ),
    "longer-than-the-model": (
        (
            "Token indices sequence length is longer than the specified maximum sequence length for"
            " this model (5120 > 2048). Running this sequence through the model will result in"
            " indexing errors"
        ),
    ),
    "chat-template-missing": (
        (
            "ValueError: Cannot use chat template functions because tokenizer.chat_template is not"
            " set and no template argument was passed!"
        ),
    ),
    "chat-template-refuses": (
        (
            "jinja2.exceptions.TemplateError: Conversation roles must alternate"
            " user/assistant/user/assistant/..."
        ),
        "jinja2.exceptions.UndefinedError: 'dict object' has no attribute 'content'",
    ),
    "no-pad-token": (
        (
            "ValueError: Asking to pad but the tokenizer does not have a padding token. Please"
            " select a token to use as `pad_token`"
        ),
        "ValueError: Cannot handle batch sizes > 1 if no padding token is defined.",
    ),
    "column-missing": (
        "KeyError: 'messages'",
        (
            "ValueError: No columns in the dataset match the model's forward method signature:"
            " (input_ids, labels)."
        ),
    ),
    "no-loss-returned": (
        (
            "ValueError: The model did not return a loss from the inputs, only the following keys:"
            " logits."
        ),
    ),
    "empty-data": (
        "ValueError: num_samples should be a positive integer value, but got num_samples=0",
        "ValueError: `train_dataset` is required",
        (
            "datasets.exceptions.DataFilesNotFoundError: No (supported) data files found in"
            " /data/chats"
        ),
        (
            "datasets.exceptions.EmptyDatasetError: The directory at /data/chats doesn't contain"
            " any data files"
        ),
        'ValueError: Instruction "validation" corresponds to no data!',
    ),
    "rows-of-mixed-types": (
        (
            "datasets.exceptions.DatasetGenerationError: An error occurred while generating the"
            " dataset"
        ),
        (
            "pyarrow.lib.ArrowInvalid: JSON parse error: Column(/messages) changed from array to"
            " string in row 12"
        ),
        "json.decoder.JSONDecodeError: Expecting ',' delimiter: line 1 column 20 (char 19)",
    ),
    "text-that-is-no-text": (
        (
            "TypeError: TextEncodeInput must be Union[TextInputSequence, Tuple[InputSequence,"
            " InputSequence]]"
        ),
        "TypeError: TextInputSequence must be str",
        (
            "ValueError: text input must of type `str` (single example), `List[str]` (batch or"
            " single pretokenized example) or `List[List[str]]` (batch of pretokenized examples)."
        ),
        'TypeError: can only concatenate str (not "NoneType") to str',
        "AttributeError: 'float' object has no attribute 'strip'",
    ),
    "not-utf-8": (
        (
            "UnicodeDecodeError: 'utf-8' codec can't decode byte 0x92 in position 1200: invalid"
            " start byte"
        ),
    ),
    "tokenizer-forked": (
        (
            "huggingface/tokenizers: The current process just got forked, after parallelism has"
            " already been used. Disabling parallelism to avoid deadlocks..."
        ),
    ),
    "right-padding-at-generation": (
        (
            "A decoder-only architecture is being used, but right-padding was detected! For correct"
            " generation results, please set `padding_side='left'`"
        ),
    ),
    "attention-mask-not-set": (
        "The attention mask and the pad token id were not set, with a batched input.",
        (
            "The attention mask is not set and cannot be inferred from input because pad token is"
            " same as eos token."
        ),
    ),
    "pad-token-of-generation": (
        "Setting `pad_token_id` to `eos_token_id`:2 for open-end generation.",
        "Setting `pad_token_id` to `eos_token_id`:None for open-end generation.",
    ),
    "llama-cpp-without-gpu": (
        "warning: no usable GPU found, --gpu-layers option will be ignored",
        "warning: one possible reason is that llama.cpp was compiled without GPU support",
        "warning: not compiled with GPU offload support, --n-gpu-layers option will be ignored",
    ),
    "layers-left-on-the-cpu": (
        "load_tensors: offloaded 29/49 layers to GPU",
        "llm_load_tensors: offloaded 0/33 layers to GPU",
        "quotes:latest    5c1f0a7e9d34    33 GB    56%/44% CPU/GPU    131072    4 minutes from now",
        "quotes:latest    5c1f0a7e9d34    9.1 GB    100% CPU    4096    4 minutes from now",
    ),
    "tgi-without-flash-attention": (
        "2025-03-01T10:00:09.001Z  WARN text_generation_launcher: Could not import Flash Attention enabled models: x",
        "Could not import Flash Attention enabled models: CUDA is not available",
    ),
    "generation-under-zero-3": (
        "[INFO|deepspeed.py:392] 2025-05-01 10:00:00,123 >> Attempting to initialize ZeRO inference",
    ),
    "container-without-gpu": (
        "WARNING: The NVIDIA Driver was not detected.  GPU functionality will not be available.",
    ),
    "model-loaded-on-the-cpu": (
        "Model loaded on cpu",
        "2025-05-01 10:00:03 INFO loaded out/merged in 41.2 s on cpu",
        "Loaded ./merged on device: cpu",
    ),
    "ollama-without-gpu": (
        (
            'time=2026-10-02T10:11:40.400+02:00 level=INFO source=types.go:131 msg="inference compute"'
            ' id=cpu library=cpu compute="" driver=0.0 name=cpu total="62.7 GiB"'
        ),
        (
            "time=2025-03-01T09:00:00.000Z level=INFO source=gpu.go:377"
            ' msg="no compatible GPUs were discovered"'
        ),
    ),
    "requests-wait-for-the-cache": (
        (
            "INFO 10-14 09:00:10 [loggers.py:123] Engine 000: Avg prompt throughput: 915.4 tokens/s, Avg generation"
            " throughput: 171.9 tokens/s, Running: 6 reqs, Waiting: 76 reqs, GPU KV cache usage: 98.3%, Prefix cache"
            " hit rate: 10.2%"
        ),
        (
            "INFO 03-02 10:11:12 metrics.py:455] Avg prompt throughput: 90.1 tokens/s, Avg generation throughput: 71.5"
            " tokens/s, Running: 4 reqs, Swapped: 0 reqs, Pending: 31 reqs, GPU KV cache usage: 99.1%, CPU KV cache"
            " usage: 0.0%."
        ),
    ),
    "pipeline-called-row-by-row": (
        (
            "You seem to be using the pipelines sequentially on GPU. In order to maximize efficiency"
            " please use a dataset"
        ),
    ),
    "pipeline-on-the-cpu": ("Device set to use cpu",),
    "weights-offloaded": (
        "Some parameters are on the meta device because they were offloaded to the cpu.",
        (
            "WARNING:accelerate.big_modeling:Some parameters are on the meta device because they"
            " were offloaded to the disk and cpu."
        ),
        (
            "Some parameters are on the meta device device because they were offloaded to the cpu"
            " and disk."
        ),
        "[rank1]: Some parameters are on the meta device because they were offloaded to the disk.",
    ),
    "inputs-on-another-device": (
        (
            "/opt/venv/lib/python3.12/site-packages/transformers/generation/utils.py:2976:"
            " UserWarning: You are calling .generate() with the `input_ids` being on a device type"
            " different than your model's device. `input_ids` is on cpu, whereas the model is on"
            " cuda."
        ),
    ),
    "generation-flags-ignored": (
        (
            "The following generation flags are not valid and may be ignored: ['temperature',"
            " 'top_p']."
        ),
    ),
    "four-bit-computes-in-float32": (
        (
            "/opt/bitsandbytes/nn/modules.py:226: UserWarning: Input type into Linear4bit is"
            " torch.float16, but bnb_4bit_compute_type=torch.float32 (default). This will lead to"
            " slow inference or training speed."
        ),
        (
            "Input type into Linear4bit is torch.float16, but bnb_4bit_compute_dtype=torch.float32"
            " (default). This will lead to slow inference."
        ),
    ),
    "flash-attention-in-float32": (
        (
            "Flash Attention 2 only supports torch.float16 and torch.bfloat16 dtypes, but the"
            " current dype in LlamaForCausalLM is torch.float32."
        ),
        (
            "Flash Attention 2.0 only supports torch.float16 and torch.bfloat16 dtypes, but the"
            " current dype in MistralModel is torch.float32."
        ),
        (
            "You are attempting to use Flash Attention 2.0 without specifying a torch dtype. This"
            " might lead to unexpected behaviour"
        ),
    ),
    "flash-attention-on-the-cpu": (
        (
            "You are attempting to use Flash Attention 2.0 with a model not initialized on GPU."
            " Make sure to move the model to GPU after initializing it on CPU with"
            " `model.to('cuda')`."
        ),
    ),
    "attention-falls-back": (
        "`sdpa` attention does not support `output_attentions=True` or `head_mask`.",
        (
            "LlamaModel is using LlamaSdpaAttention, but"
            " `torch.nn.functional.scaled_dot_product_attention` does not support"
            " `output_attentions=True`. Falling back to the manual attention implementation"
        ),
        "You are not running the flash-attention implementation, expect numerical differences.",
    ),
    "kernels-not-installed": (
        (
            "The fast path is not available because one of the required library is not installed."
            " Falling back to torch implementation."
        ),
        (
            "The fast path is not available because on of `(selective_state_update,"
            " causal_conv1d_fn)` is None. Falling back to the naive implementation."
        ),
    ),
    "checkpoint-parts-of-another-node": (
        "FileNotFoundError: [Errno 2] No such file or directory: '/scratch/run/checkpoint-90/global_step90/bf16_zero_pp_rank_5_mp_rank_00_optim_states.pt'",
        "FileNotFoundError: [Errno 2] No such file or directory: 'out/step-100/__12_0.distcp'",
    ),
    "mapped-function-without-a-hash": (
        "Parameter 'function'=<function clean at 0x7f10> of the transform datasets.arrow_dataset.Dataset._map_single couldn't be hashed properly, a random hash was used instead.",
        "The transform <function encode at 0x7f11> couldn't be hashed properly, a random hash was used instead.",
    ),
    "stream-has-few-shards": (
        "Too many dataloader workers: 4 (max is dataset.num_shards=2). Stopping 2 dataloader workers.",
        "Too many dataloader workers: 16 (max is dataset.n_shards=1). Stopping 15 dataloader workers.",
    ),
    "unsloth-without-fast-adapters": (
        "Unsloth: Dropout = 0 is supported for fast patching. You are using dropout = 0.1.",
        "Unsloth: bias = `none` is supported for fast patching. You are using bias = lora_only.",
    ),
    "logged-steps-go-back": (
        "wandb: WARNING Tried to log to step 12 that is less than the current step 44. Steps must be monotonically increasing, so this data will be ignored.",
        "wandb: WARNING Step 3 is less than current step: 50. Dropping entry.",
    ),
    "trained-batches-are-skipped": (
        "  Will skip the first 0 epochs then the first 336000 batches in the first epoch.",
        "Will skip the first 2 epochs then the first 4120 batches in the first epoch.",
    ),
    "trained-without-gpu": (
        "device: cpu, n_gpu: 0, distributed training: False",
        "Process rank: -1, device: cpu, n_gpu: 0, distributed training: False, 16-bits training: False",
    ),
    "unused-parameters-searched": (
        (
            "[rank0]:[W101 16:12:25.508892781 reducer.cpp:1400] Warning:"
            " find_unused_parameters=True was specified in DDP constructor, but did not find any"
            " unused parameters in the forward pass."
        ),
        (
            "[W reducer.cpp:1303] Warning: find_unused_parameters=True was specified in DDP"
            " constructor, but did not find any unused parameters in the forward pass."
        ),
    ),
    "gradient-strides-differ": (
        (
            "[rank2]:[W320 02:29:25.960059248 reducer.cpp:327] Warning: Grad strides do not match"
            " bucket view strides."
        ),
    ),
    "fsdp-upcasts-weights": (
        (
            "/opt/accelerate/accelerator.py:2045: UserWarning: Upcasted low precision parameters in"
            " Qwen2ForCausalLM because mixed precision turned on in FSDP. Affects:"
            " model.embed_tokens.weight."
        ),
    ),
    "masked-labels-decoded": (
        "OverflowError: out of range integral type conversion attempted",
        "OverflowError: can't convert negative int to unsigned",
    ),
    "prompt-cut-by-ollama": (
        (
            'time=2025-04-22T11:21:47.546Z level=WARN source=runner.go:131 msg="truncating input'
            ' prompt" limit=2048 prompt=5065 keep=5 new=2048'
        ),
    ),
    "too-many-dataloader-workers": (
        (
            "/opt/torch/utils/data/dataloader.py:627: UserWarning: This DataLoader will create 16"
            " worker processes in total. Our suggested max number of worker in current system is 4,"
            " which is smaller than what this DataLoader is going to create."
        ),
    ),
    "weights-not-tied": (
        (
            "The model weights are not tied. Please use the `tie_weights` method before using the"
            " `infer_auto_device` function."
        ),
    ),
    "tied-weights-differ": (
        (
            "The tied weights mapping and config for this model specifies to tie"
            " model.embed_tokens.weight to lm_head.weight, but both are present in the checkpoints"
            " with different values, so we will NOT tie them."
        ),
    ),
    "merged-into-quantized-weights": (
        (
            "/opt/peft/tuners/lora/bnb.py:378: UserWarning: Merge lora module to 4-bit linear may"
            " get different generations due to rounding errors."
        ),
    ),
    "vllm-without-cuda-graphs": (
        "INFO 11-25 08:00:42 [vllm.py:500] Cudagraph is disabled under eager mode",
        (
            "(EngineCore pid=3709775) INFO 05-19 02:38:06 [vllm.py:1081] Cudagraph is disabled"
            " under eager mode"
        ),
        (
            "WARNING 05-19 02:38:06 [vllm.py:1172] Enforce eager set, disabling torch.compile and"
            " CUDAGraphs. This is equivalent to setting -cc.mode=none -cc.cudagraph_mode=none"
        ),
    ),
    "vllm-quantization-is-slow": (
        (
            "WARNING 11-12 09:14:03 [config.py:960] bitsandbytes quantization is not fully optimized"
            " yet. The speed can be slower than non-quantized models."
        ),
    ),
    "vllm-quantization-kernel-forced": (
        "WARNING 11-12 09:14:03 [config.py:960] awq quantization is not fully optimized yet. The speed can be slower",
        (
            "INFO 11-12 09:14:03 [awq_marlin.py:122] Detected that the model can run with"
            " awq_marlin, however you specified quantization=awq explicitly, so forcing awq. Use"
            " quantization=awq_marlin for faster inference"
        ),
    ),
    "quantization-kernels-not-installed": (
        "WARNING:auto_gptq.nn_modules.qlinear.qlinear_cuda:CUDA extension not installed.",
        "WARNING - CUDA extension not installed.",
        "CUDA kernels for auto_gptq are not installed, this will result in very slow inference",
    ),
    "drafts-are-refused": (
        (
            "INFO 11-12 09:16:01 [metrics.py:96] SpecDecoding metrics: Mean acceptance length: 1.21,"
            " Accepted throughput: 3.30 tokens/s, Accepted: 33 tokens, Drafted: 801 tokens, Avg"
            " Draft acceptance rate: 4.1%"
        ),
    ),
    "vllm-preempts-requests": (
        (
            "WARNING 05-09 00:49:33 scheduler.py:1057] Sequence group 0 is preempted by"
            " PreemptionMode.SWAP mode because there is not enough KV cache space."
        ),
        (
            "WARNING 06-23 14:33:09 [scheduler.py:1800] Sequence group eb1c91ce-4ffb-11f0 is"
            " preempted by PreemptionMode.RECOMPUTE mode because there is not enough KV cache"
            " space."
        ),
    ),
    "stop-token-not-supervised": (
        (
            "The chat template does not include the assistant turn's end-of-turn token in the loss"
            " mask; the model may not learn to stop."
        ),
    ),
    "local-rank-as-an-argument": (
        "error: finetune_ddp.py: error: unrecognized arguments: --local-rank=1",
        "error: train.py: error: unrecognized arguments: --local_rank=0",
    ),
    "ranks-on-one-gpu": (
        (
            "torch.distributed.DistBackendError: NCCL error in: x.cpp:1691, invalid"
            " usage\nDuplicate GPU detected : rank 1"
        ),
        "torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:3690, invalid usage, NCCL version 2.27.5\nncclInvalidUsage: This usually reflects invalid usage of NCCL library.\nLast error:\nDuplicate GPU detected : rank 1 and rank 0 both on CUDA device 1b000",
    ),
    "precision-of-accelerate-and-deepspeed": (
        "ValueError: `--mixed_precision` arg cannot be set to `fp16` when `bf16` is set in the DeepSpeed config file.",
    ),
    "quantized-model-on-another-gpu": (
        "ValueError: You can't train a model that has been loaded in 8-bit or 4-bit precision on a different device than the one you're training on.",
    ),
    "tasks-differ-from-devices": (
        "ValueError: You set `devices=4` in Lightning, but the number of tasks per node configured in SLURM `--ntasks-per-node=1` does not match. HINT: Set `devices=1`.",
    ),
    "deepspeed-ignores-visible-devices": (
        "Detected VISIBLE_DEVICES=2,3 but ignoring it because one or several of --include/--exclude/--num_gpus/--num_nodes cl args were used. If you want to use CUDA_VISIBLE_DEVICES don't pass any of these arguments to deepspeed.",
        "Detected CUDA_VISIBLE_DEVICES=4,5 but ignoring it because one or several of --include/--exclude/--num_gpus/--num_nodes cl args were used.",
    ),
    "argument-removed": (
        "TypeError: SFTTrainer.__init__() got an unexpected keyword argument 'tokenizer'",
        (
            "TypeError: TrainingArguments.__init__() got an unexpected keyword argument"
            " 'evaluation_strategy'"
        ),
        (
            "ValueError: Some specified arguments are not used by the HfArgumentParser:"
            " ['--max_seq_length', '512']"
        ),
    ),
    "name-removed": (
        (
            "ImportError: cannot import name 'DataCollatorForCompletionOnlyLM' from 'trl'"
            " (/opt/trl/__init__.py)"
        ),
        "AttributeError: module 'torch' has no attribute 'float8_e4m3fn'",
    ),
    "use-cache-with-checkpointing": (
        "`use_cache=True` is incompatible with gradient checkpointing. Setting `use_cache=False`.",
    ),
    "deepspeed-values-mismatch": (
        (
            "ValueError: Please correct the following DeepSpeed config values that mismatch"
            " TrainingArguments values:"
        ),
        (
            "AssertionError: Check batch related parameters. train_batch_size is not equal to"
            " micro_batch_per_gpu * gradient_acc_step * world_size 64 != 4 * 2 * 4"
        ),
    ),
    "deepspeed-not-usable": (
        (
            "deepspeed.ops.op_builder.builder.MissingCUDAException: CUDA_HOME does not exist,"
            " unable to compile CUDA op(s)"
        ),
        "RuntimeError: Error building extension 'cpu_adam'",
    ),
    "evaluation-settings": (
        "ValueError: Trainer: evaluation requires an eval_dataset.",
        "KeyError: 'eval_accuracy'",
    ),
    "precision-not-supported": (
        (
            "ValueError: Your setup doesn't support bf16/gpu. You need to assign use_cpu if you"
            " want to train the model on CPU."
        ),
        "ValueError: fp16 mixed precision requires a GPU (not 'mps').",
        "ValueError: bf16 mixed precision requires PyTorch >= 1.10 and a supported device.",
    ),
    "generation-settings-invalid": (
        (
            "ValueError: The generation config instance is invalid -- `.validate()` throws warnings"
            " and/or exceptions."
        ),
        "ValueError: GenerationConfig is invalid: ",
        (
            "ValueError: `temperature` (=0.0) has to be a strictly positive float, otherwise your"
            " next token scores will be invalid."
        ),
    ),
    "logging-needs-a-login": (
        "wandb.errors.UsageError: api_key not configured (no-tty). call wandb.login(key=[key])",
    ),
    "resume-not-possible": (
        "ValueError: No valid checkpoint found in output directory (out)",
        (
            "ValueError: loaded state dict contains a parameter group that doesn't match the size"
            " of optimizer's group"
        ),
    ),
    "resumed-run-was-over": (
        (
            "{'train_runtime': 0.0112, 'train_samples_per_second': 1371428.4,"
            " 'train_steps_per_second': 42857.1, 'train_loss': 0.0, 'epoch': 3.0}"
        ),
        (
            "{'train_runtime': '0.0231', 'train_samples_per_second': '3.9e+05',"
            " 'train_loss': '0', 'epoch': '3'}"
        ),
    ),
    "peft-saves-embedding": (
        "Setting `save_embedding_layers` to `True` as the embedding layer has been resized",
    ),
    "tied-weights-warned": (
        (
            "Model with `tie_word_embeddings=True` and the tied_target_modules=['lm_head'] are part"
            " of the adapter."
        ),
    ),
    "driver-too-old": (
        "RuntimeError: The NVIDIA driver on your system is too old (found version 11040).",
        "RuntimeError: CUDA error: CUDA driver version is insufficient for CUDA runtime version",
    ),
    "no-gpu-found": (
        (
            "RuntimeError: Found no NVIDIA driver on your system. Please check that you have an"
            " NVIDIA GPU"
        ),
        "AssertionError: Torch not compiled with CUDA enabled",
        "RuntimeError: No CUDA GPUs are available",
    ),
    "gpu-not-supported": (
        "RuntimeError: CUDA error: no kernel image is available for execution on the device",
        "RuntimeError: FlashAttention only supports Ampere GPUs or newer.",
    ),
    "gpu-lost": (
        "RuntimeError: CUDA error: uncorrectable ECC error encountered",
        "RuntimeError: CUDA error: unknown error",
    ),
    "cuda-in-a-forked-process": (
        (
            "RuntimeError: Cannot re-initialize CUDA in forked subprocess. To use CUDA with"
            " multiprocessing, you must use the 'spawn' start method"
        ),
    ),
    "main-guard-missing": (
        (
            "RuntimeError: \n        An attempt has been made to start a new process before the"
            " current process has finished its bootstrapping phase."
        ),
    ),
    "launcher-variables-missing": (
        (
            "ValueError: Error initializing torch.distributed using env:// rendezvous: environment"
            " variable RANK expected, but not set"
        ),
        "KeyError: 'LOCAL_RANK'",
    ),
    "file-not-found": (
        "FileNotFoundError: [Errno 2] No such file or directory: 'data/train.jsonl'",
    ),
    "command-not-found": (
        "./run.sh: line 4: torchrun: command not found",
        "python: can't open file '/w/train.py': [Errno 2] No such file or directory",
        "sh: 1: accelerate: not found",
    ),
    "permission-denied": ("PermissionError: [Errno 13] Permission denied: '/data/cache'",),
    "bitsandbytes-without-gpu": (
        "AttributeError: 'NoneType' object has no attribute 'cquantize_blockwise_fp16_nf4'",
        (
            "RuntimeError: None of the available devices `available_devices = None` are supported"
            " by the bitsandbytes version"
        ),
    ),
    "bitsandbytes-warned": (
        (
            "The installed version of bitsandbytes was compiled without GPU support. 8-bit"
            " optimizers are unavailable."
        ),
    ),
    "flash-attention-not-usable": (
        (
            "ImportError: FlashAttention2 has been toggled on, but it cannot be used due to the"
            " following error: the package flash_attn seems to be not installed."
        ),
        "RuntimeError: FlashAttention only support fp16 and bf16 data type",
        "ModuleNotFoundError: No module named 'flash_attn'",
    ),
    "compile-failed": (
        "torch._dynamo.exc.BackendCompilerFailed: backend='inductor' raised:",
        "RuntimeError: Failed to find C compiler. Please specify via CC environment variable.",
        (
            "triton.runtime.errors.OutOfResources: out of resource: shared memory, Required:"
            " 147456, Hardware limit: 101376."
        ),
    ),
    "undefined-symbol": (
        "ImportError: /opt/x/_C.so: undefined symbol: _ZN3c104cuda9SetDeviceEi",
        "OSError: libcudart.so.11.0: cannot open shared object file: No such file or directory",
    ),
    "numpy-abi": (
        (
            "ValueError: numpy.dtype size changed, may indicate binary incompatibility. Expected 96"
            " from C header, got 88"
        ),
    ),
    "package-version": (
        (
            "ImportError: tokenizers>=0.21,<0.22 is required for a normal functioning of this"
            " module, but found 0.20.1."
        ),
        "ImportError: Using the `Trainer` with `PyTorch` requires `accelerate>=1.1.0`",
    ),
    "package-missing": (
        "ModuleNotFoundError: No module named 'peft'",
        "importlib.metadata.PackageNotFoundError: No package metadata was found for bitsandbytes",
    ),
    "nccl-no-interface": (
        "node1:17:17 [0] misc/socket.cc:237 NCCL WARN Net : No interface found in the same subnet as remote address 10.0.0.2<1778>",
        "node1:17:17 [0] NCCL WARN Bootstrap : no socket interface found",
    ),
    "nccl-connection-failed": (
        "node2:9:91 [3] misc/socket.cc:457 NCCL WARN socketStartConnect: Connect to 172.17.0.1<48913> failed : Software caused connection abort",
        "[2025-03-01 10:00:00] node2:9:91 [3] misc/socket.cc:484 NCCL WARN socketPollConnect: connect to 10.0.0.2<40001> timed out",
        "node2:9:91 [0] include/socket.h:361 NCCL WARN Call to connect timeout : Connection refused",
        "node2:9:91 [0] include/socket.h:395 NCCL WARN Connect to 10.1.0.4<55001> failed : No route to host",
    ),
    "gpu-peer-access-blocked": (
        "[ 5120.441021] nvidia 0000:41:00.0: AMD-Vi: Event logged [IO_PAGE_FAULT domain=0x0021 address=0x40100000000 flags=0x0030]",
        "[12.1] DMAR: [DMA Read NO_PASID] Request device [01:00.0] fault addr 0x387fc000 [fault reason 0x06] PTE Read access is not set",
    ),
    "wrapper-has-no-attribute": (
        "AttributeError: 'DistributedDataParallel' object has no attribute 'generate'",
        "AttributeError: 'DeepSpeedEngine' object has no attribute 'save_pretrained'",
    ),
    "nccl-local-interface": (
        "node1:17:17 [0] NCCL INFO Bootstrap: Using docker0:172.17.0.1<0>",
        "node1:17:17 [0] NCCL INFO Bootstrap : Using [0]virbr0:192.168.122.1<0>",
        "node1:17:17 [0] NCCL INFO NET/Socket : Using [0]lo:127.0.0.1<0>",
    ),
    "nccl-infiniband-failed": (
        "node1:17:99 [0] transport/net_ib.cc:1295 NCCL WARN NET/IB : Got completion from peer 10.0.0.2<37262> with status=12 opcode=0 len=0 vendor err 129",
        "node1:17:99 [0] misc/ibvwrap.cc:252 NCCL WARN Call to ibv_reg_mr failed with error Cannot allocate memory",
    ),
    "nccl-shared-memory": (
        "node1:17:99 [0] misc/shmutils.cc:72 NCCL WARN Error: failed to extend /dev/shm/nccl-iCwVQy to 9637892 bytes",
        "node1:17:99 [0] NCCL WARN Error while creating shared memory segment nccl-shm-recv-1 (size 9637888)",
    ),
    "nccl-same-gpu-twice": (
        "node1:17:99 [0] init.cc:943 NCCL WARN Duplicate GPU detected : rank 1 and rank 0 both on CUDA device 1000",
    ),
    "master-not-reached": (
        "[W socket.cpp:663] [c10d] The client socket has failed to connect to [node1]:29500 (errno: 110 - Connection timed out).",
        "[W socket.cpp:601] [c10d] The IPv6 network addresses of (node1, 29500) cannot be retrieved (gai error: -2 - Name or service not known).",
    ),
    "ranks-did-not-join": (
        "torch.distributed.DistStoreError: Timed out after 901 seconds waiting for clients. 1/2 clients joined.",
        "torch.distributed.DistNetworkError: The client socket has timed out after 60000ms while trying to connect to (node1, 29500).",
    ),
    "quantized-weights-under-fsdp": ("ValueError: Cannot flatten integer dtype tensors",),
    "fsdp-mixed-dtypes": (
        "ValueError: Must flatten tensors with uniform dtype but got torch.bfloat16 and torch.float32",
    ),
    "fsdp-mixed-requires-grad": (
        "ValueError: Must flatten tensors with uniform `requires_grad` when `use_orig_params=False`",
    ),
    "checkpoint-of-empty-tensors": (
        "RuntimeError: Error(s) in loading state_dict for LlamaForCausalLM:\n\tsize mismatch for"
        " model.embed_tokens.weight: copying a param with shape torch.Size([0]) from checkpoint, the"
        " shape in current model is torch.Size([128256, 4096]).",
        'ValueError: Trying to set a tensor of shape torch.Size([0]) in "weight" (which has shape'
        " torch.Size([128256, 4096])), this looks incorrect.",
    ),
    "weight-is-a-shard": (
        "RuntimeError: 'weight' must be 2-D",
        "RuntimeError: setStorage: sizes [4096, 4096], strides [1, 4096], storage offset 0, and itemsize 2"
        " requiring a storage size of 33554432 are out of bounds for storage of size 0",
    ),
    "zero3-and-device-map": (
        "ValueError: DeepSpeed Zero-3 is not compatible with `low_cpu_mem_usage=True` or with passing a `device_map`.",
    ),
    "device-map-in-a-distributed-run": (
        "ValueError: You can't train a model that has been loaded with `device_map='auto'` in any distributed mode.",
    ),
    "quantized-model-offloaded": (
        "ValueError: Some modules are dispatched on the CPU or the disk. Make sure you have enough GPU RAM"
        " to fit the quantized model.",
    ),
    "optimizer-not-of-deepspeed": (
        "deepspeed.runtime.zero.utils.ZeRORuntimeException: You are using ZeRO-Offload with a client"
        " provided optimizer (<class 'torch.optim.adamw.AdamW'>)",
    ),
    "no-sync-under-zero": (
        "AssertionError: no_sync context manager is incompatible with gradient partitioning logic of ZeRO stage 3",
    ),
    "gradient-reduced-twice": (
        "AssertionError: The parameter 195 has already been reduced.             Gradient computed twice"
        " for this partition.             Multiple gradient reduction is currently not supported",
    ),
    "zero3-inflight-params": (
        "RuntimeError: still have inflight params [{'id': 723, 'status': 'AVAILABLE', 'numel': 4194304}]",
    ),
    "resumed-on-other-gpus": (
        "deepspeed.runtime.zero.utils.ZeRORuntimeException: The checkpoint being loaded used a DP world"
        " size of 8 but the current world size is 4.",
    ),
    "allocator-caches-flushed": (
        "[2026-10-02 08:17:13,950] [WARNING] [stage3.py:2157:step] 3 pytorch allocator cache flushes since"
        " last step. this happens when there is high memory pressure and is detrimental to performance.",
    ),
    "fp16-step-skipped": (
        "[2025-03-01 10:00:00,123] [INFO] [loss_scaler.py:190:update_scale] [deepspeed] OVERFLOW! Rank 0"
        " Skipping step. Attempted loss scale: 4294967296, reducing to 4294967296",
    ),
    "layer-class-to-wrap-not-found": (
        "ValueError: Could not find the transformer layer class LlamaDecoderLayer in the model.",
        "Exception: Could not find the transformer layer class to wrap in the model.",
    ),
    "quantized-again": (
        "ValueError: Blockwise quantization only supports 16/32-bit floats, but got torch.uint8",
        "AssertionError: FP4 quantization state not initialized. Please call .cuda() or .to(device) on"
        " the LinearFP4 layer first.",
    ),
    "vllm-context-larger-than-cache": (
        "ValueError: The model's max seq len (131072) is larger than the maximum number of tokens that can"
        " be stored in KV cache (9776).",
        "ValueError: To serve at least one request with the models's max seq len (262144), (24.0 GiB KV"
        " cache is needed, which is larger than the available KV cache memory (3.18 GiB).",
    ),
    "vllm-cache-below-one-request": (
        "WARNING 11-04 14:03:00 [kv_cache_utils.py:712] Maximum concurrency for 32,768 tokens per request: 0.30x",
    ),
    "vllm-lora-rank": ("ValueError: LoRA rank 64 is greater than max_lora_rank 16.",),
    "request-longer-than-context": (
        "openai.BadRequestError: Error code: 400 - This model's maximum context length is 8192 tokens."
        " However, you requested 9000 tokens",
    ),
    "engine-died": (
        "RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {}",
        "vllm.v1.engine.exceptions.EngineDeadError: EngineCore encountered an issue. See stack trace above.",
    ),
    "heads-not-divisible": (
        "ValueError: Total number of attention heads (14) must be divisible by tensor parallel size (4).",
    ),
    "generation-length": (
        "Input length of input_ids is 120, but `max_length` is set to 20. This can lead to unexpected behavior.",
    ),
    "generation-length-raised": (
        "ValueError: Input length of input_ids is 120, but `max_length` is set to 20. This can lead to"
        " unexpected behavior.",
    ),
    "generation-beyond-positions": (
        "This is a friendly reminder - the current text generation call will exceed the model's predefined"
        " maximum length (2048).",
    ),
    "arguments-of-generate-not-used": (
        "ValueError: The following `model_kwargs` are not used by the model: ['token_type_ids']",
    ),
    "flash-attention-padded-right": (
        "ValueError: You are attempting to perform batched generation with padding_side='right' this may"
        " lead to unexpected behaviour for Flash Attention version of Qwen2.",
    ),
    "code-of-the-model-too-old": (
        "AttributeError: 'DynamicCache' object has no attribute 'get_max_length'. Did you mean: 'get_seq_length'?",
        "AttributeError: 'DynamicCache' object has no attribute 'seen_tokens'",
    ),
    "batch-not-a-multiple-of-generations": (
        "ValueError: The global train batch size (2 x 1) must be evenly divisible by the number of"
        " generations per prompt (8).",
        "ValueError: generation_batch_size (6) must be divisible by num_generations (4).",
    ),
    "kto-batch-of-one": (
        "ValueError: Actual (not effective) batch size must be > 1. KTO will not work properly because the"
        " KL term will be equivalent to the implied reward.",
    ),
    "packed-without-flash-attention": (
        "Padding-free training is enabled, but the attention implementation is not set to a supported flash"
        " attention variant.",
        "You are using packing, but the attention implementation is not set to 'flash_attention_2'.",
    ),
    "prompt-tokens-merge": (
        "Mismatch between tokenized prompt and the start of tokenized prompt+completion. This may be due to"
        " unexpected tokenizer behavior",
    ),
    "several-adapters": (
        "/opt/venv/lib/python3.11/site-packages/peft/tuners/tuners_utils.py:167: UserWarning: Already found a"
        " `peft_config` attribute in the model. This will lead to having multiple adapters in the model.",
    ),
    "checkpointing-not-supported": (
        "ValueError: GPTBigCodeForCausalLM does not support gradient checkpointing.",
    ),
    "shared-weights-not-saved": (
        "RuntimeError: Some tensors share memory, this will lead to duplicate memory on disk and potential"
        " differences when loading them again",
    ),
    "no-adapter-to-merge": (
        "AttributeError: 'LlamaForCausalLM' object has no attribute 'merge_and_unload'",
    ),
    "unsloth-untrained-tokens": (
        "ValueError: Unsloth: Untrained tokens of [[128256]] found, but embed_tokens & lm_head not trainable,"
        " causing NaNs.",
    ),
    "unsloth-several-gpus": (
        "NotImplementedError: Unsloth currently does not support multi GPU setups in unsloth-2024.8",
    ),
    "unsloth-no-memory-for-the-loss": (
        "RuntimeError: Unsloth: No or negligible GPU memory available for fused cross entropy.",
    ),
    "unsloth-formatting-function": ("RuntimeError: Unsloth: You must specify a `formatting_func`",),
    "llamafactory-no-valid-rows": (
        "RuntimeError: Cannot find valid samples, check `data/README.md` for the data format.",
    ),
    "llamafactory-dataset-not-listed": (
        "ValueError: Undefined dataset mllm_demo in dataset_info.json.",
    ),
    "llamafactory-needs-torchrun": (
        "ValueError: Please use `FORCE_TORCHRUN=1` to launch DeepSpeed training.",
    ),
    "images-against-placeholders": (
        "ValueError: The number of images does not match the number of <image> tokens in [{'role': 'user'}].",
        "ValueError: Image features and image tokens do not match: tokens: 576, features 1152",
    ),
    "settings-not-valid": (
        "pydantic_core._pydantic_core.ValidationError: 1 validation error for AxolotlConfigWCapabilities",
    ),
    "accelerator-state-reset": (
        "AttributeError: `AcceleratorState` object has no attribute `distributed_type`.",
        "RuntimeError: You must initialize the accelerate state by calling either `PartialState()` or"
        " `Accelerator()` before using the logging utility.",
    ),
    "empty-loader": (
        "ValueError: Batch does not contain any data (`None`). At the end of all iterable data available"
        " before expected stop iteration.",
    ),
    "stream-without-steps": (
        "ValueError: The train_dataset does not implement __len__, max_steps has to be specified.",
    ),
    "no-inputs-given": (
        "ValueError: You have to specify either input_ids or inputs_embeds",
        "ValueError: You must specify exactly one of input_ids or inputs_embeds",
    ),
    "attention-kernel-missing": (
        "RuntimeError: cutlassF: no kernel found to launch!",
        "RuntimeError: No available kernel. Aborting execution.",
        "RuntimeError: CUDA error: CUBLAS_STATUS_NOT_SUPPORTED when calling `cublasGemmEx`",
    ),
}
