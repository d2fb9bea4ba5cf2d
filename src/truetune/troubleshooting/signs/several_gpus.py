"""Signs of what causes faults of several GPUs."""

from __future__ import annotations

from truetune.troubleshooting.signs.sign_as_statement_patterns import SET, Sign

LAUNCHER = (
    r"\b(?:torchrun|accelerate[- ]launch|torch\.distributed\.(?:run|launch)"
    r"|deepspeed (?:--|\S+\.py))"
)
DISTRIBUTED = (
    rf"{LAUNCHER}|init_process_group|DistributedDataParallel|strategy\s*=\s*['\"](?:ddp"
    r"|fsdp|deepspeed)"
    r"|\bsrun\b|mpirun|fully_shard|Accelerator\("
)
OWN_PROCESSES = r"init_process_group|DistributedDataParallel|Accelerator\(|fully_shard|Fabric\("
MAIN_ONLY = (
    r"\bif\b.{0,80}(?:is_(?:local_)?main_process|is_world_process_zero|is_global_zero"
    r"|is_main\b|\bmain\b|rank\w*(?:\(\))?\s*==\s*0|not rank\b)"
)
COLLECTIVE = (
    r"\b(?:all_gather\w*|all_reduce|gather\w*|reduce|broadcast\w*|get_state_dict"
    r"|save_state|save_checkpoint|barrier"
    r"|summon_full_params|get_model_state_dict|dist\.\w+)\("
)
SHARDED = r"(?i:\bfsdp|FullyShardedDataParallel|fully_shard)"
ZERO3 = r"(?i:['\"]stage['\"]\s*:\s*3|zero_?stage['\"]?\s*[:=]\s*3|zero-?3|\bz3_|ds_z3)"
NODES = (
    r"#SBATCH\s+(?:--nodes|-N)[= ]\s*(?:[2-9]|\d\d)|nnodes[= ]\s*(?:[2-9]|\d\d|\$)"
    r"|num_machines['\"]?\s*[:= ]\s*(?:[2-9]|\d\d)"
    r"|\bnode_rank\b|machine_rank['\"]?\s*[:= ]\s*[1-9]|num_nodes\s*=\s*[2-9]"
)
SEVERAL = (
    r"(?:nproc[-_]per[-_]node|num_processes|NPROC_PER_NODE"
    r"|num_gpus)['\"]?\s*[=: ]\s*['\"]?(?:[2-9]|\d\d)\b"
    r"|CUDA_VISIBLE_DEVICES['\"\]]*\s*=\s*['\"]?\d,\d|gpu:\w{0,12}:?[2-9]\b"
    r"|gpus(?:-per-\w+)?=(?:\w+:)?[2-9]\b|world_?size\W{1,4}(?:[2-9]|\d\d)\b"
)
TRAINER = r"\b\w{0,12}Trainer\(|\btrainer\.train\(|llamafactory|axolotl|\bswift (?:sft|pt|rlhf)"
# A script that reads its place from the variables of Slurm or MPI makes its own group of processes.
READS_TASKS = (
    r"SLURM_(?:PROCID|LOCALID|NTASKS)|OMPI_COMM|PMI_RANK|lightning|SLURMEnvironment"
    r"|init_distributed"
)

IDLE = (
    r"^one process was started, and the other GPUs|^GPUs are mostly idle"
    r"|^one GPU of several works"
)
SHARDS_SAVED = r"^shards of ZeRO-3 or FSDP were saved|^tensors have other shapes than in config"
FOUR_BITS = r"^4-bit weights under FSDP|^FSDP gets 4-bit|^FSDP cannot shard the quantized"
WHOLE_UNIT = (
    r"^FSDP has no wrap policy, so|^a script wraps its model in FSDP"
    r"|^FSDP makes one unit|^FSDP treats the whole model"
)
NCCL_OFF = r"^a script switches off a fast NCCL transport|^a job switches off a fast NCCL"
INTERFACE = r"^the machines can't reach one another|^several nodes are set to communicate"
GENERATES = r"^under ZeRO-3, every generated token|^a script generates with a model whose weights"
HIDDEN = r"^CUDA_VISIBLE_DEVICES "
CONTRADICT = (
    r"^the files of the launch contradict|^DeepSpeed's batch size is not"
    r"|^DeepSpeed's settings in a script"
)
SKIPPED = r"^a batch is skipped on one rank"
WAITING = r"^one process tokenizes or maps"

SIGNS: tuple[Sign, ...] = (
    # --- rows
    Sign(
        r"^every process reads the same rows|^a streamed data set is not",
        r"^class \w+\(.{0,60}IterableDataset|\.(?:to_iterable_dataset|from_generator)\("
        r"|\bstreaming['\"]?\s*[=:]\s*[Tt]rue",
        beside=DISTRIBUTED,
        unless=r"split_dataset_by_node|split_by_node|\[\s*\w*rank\w*\s*::|%\s*\w*world"
        r"|get_rank\(\).{0,40}num_|dispatch_batches",
    ),
    Sign(
        r"^every process reads the same rows|^a streamed data set is not",
        rf"use_distributed_sampler{SET}False|replace_sampler_ddp{SET}False"
        r"|\bdef get_train_dataloader\(",
    ),
    Sign(
        r"^every process reads the same rows",
        r"^(?!.{0,120}(?i:val|test|eval|dev)).{0,200}\bDataLoader\((?!.{0,400}sampler\w*\s*=).*\)",
        beside=rf"{DISTRIBUTED}|{SEVERAL}",
        unless=r"DistributedSampler\(|\.prepare\(|setup_dataloaders\(|\.shard\(|\[\s*\w*rank\w*\s*::"
        r"|split_dataset_by_node|LightningModule|\bTrainer\(",
    ),
    Sign(
        r"^each process takes its part of the rows, and a trainer",
        r"\.shard\(|\[\s*\w*rank\w*\s*::|split_dataset_by_node\(|%\s*\w*world\w*\s*==",
        beside=rf"{TRAINER}|\.prepare\(|DistributedSampler\(",
    ),
    Sign(
        r"^each process shuffles or splits",
        r"\brandom\.shuffle\(|\brandom_split\((?!.{0,200}generator)"
        r"|\.sample\(\s*frac(?!.{0,80}random_state)|random\.permutation\("
        r"|randperm\((?!.{0,80}generator)|train_test_split\((?!.{0,200}(?:seed|random_state))"
        r"|\.shuffle\(\s*\)",
        beside=DISTRIBUTED,
        unless=r"\b(?:random\.seed|set_seed|seed_everything|manual_seed|np\.random\.seed)\((?!.{0,40}rank)",
    ),
    Sign(
        r"^unequal numbers of batches",
        r"\[\s*\w*rank\w*\s*::|\.shard\(|%\s*\w*world\w*\s*[=!]="
        r"|enumerate\(.{0,60}\).{0,60}%\s*\w*(?:world|size)|\brank\w*\}.{0,20}\.(?:jsonl?"
        r"|parquet|bin|txt|pt|npy)|drop_last\s*=\s*False",
        beside=OWN_PROCESSES,
        unless=r"\bJoin\(|even_batches",
    ),
    Sign(
        r"^a stream has fewer shards",
        r"streaming['\"]?\s*[=:]\s*[Tt]rue|to_iterable_dataset\(|IterableDataset\b.{0,4}\)"
        r"|WebDataset\(|num_shards",
        beside=rf"{DISTRIBUTED}|num_workers",
    ),
    Sign(
        r"^a sampler without set_epoch",
        r"\bDistributedSampler\(",
        unless=r"set_epoch\(|\bTrainer\(",
    ),
    Sign(r"^answers are gathered process by process", r"all_gather_object\(|gather_object\("),
    Sign(
        r"^the metric counts rows twice",
        r"\.gather\(|\ball_gather(?:_into_tensor|_object)?\(",
        beside_in_file=r"(?i)accurac|metric|f1|pred|correct|score|loss",
        unless_in_file=r"gather_for_metrics\(",
    ),
    # --- a single process
    Sign(
        r"^layers on several GPUs",
        r"\bdevice_map(?:['\"])?(?:\s*:\s*str)?\s*[=: ]\s*['\"]?(?:auto|balanced\w*|sequential)\b",
        beside=r"Trainer\(|\.backward\(|base_model|model_name_or_path|\.fit\(",
    ),
    Sign(
        r"^device_map is set together with",
        r"\bdevice_map['\"]?\s*[=:]",
        beside=rf"{ZERO3}|{SHARDED}",
    ),
    Sign(
        r"^one process works on all GPUs",
        r"Was asked to gather along dimension 0|\bDataParallel\(|\bn_gpu\W{1,3}[2-9]",
    ),
    Sign(
        r"^one process works on all GPUs",
        r"^(?!.{0,300}(?:torchrun|accelerate|deepspeed|torch\.distributed|pip |#SBATCH"
        r"|mpirun))(?:.{0,200}[\s=/;\"'\[])?python3?(?:\.\d+)?\s+(?:-u\s+)?[\w./$\{\}-]{1"
        r",80}\.py\b",
        beside=TRAINER,
        unless=rf"{LAUNCHER}|device_map|notebook_launcher|\bstrategy\s*=",
    ),
    Sign(
        IDLE,
        rf"(?:num_processes|num_gpus|nproc[-_]per[-_]node|NPROC_PER_NODE){SET}1\b(?![.\d])"
        rf"|distributed_type{SET}['\"]?NO\b",
    ),
    Sign(
        IDLE,
        rf"\b(?:devices|gpus){SET}\[?1\]?(?![.\d,])"
        r"|CUDA_VISIBLE_DEVICES['\"\]]*\s*[=:]\s*['\"]?\d['\"]?(?![,\d])|\bsingle_device\b"
        r"|Num GPUs(?: used)? = 1\b|world size: 1\b",
    ),
    Sign(
        IDLE,
        r"^(?:.{0,60}\s)?python3?\s+[\w./-]{1,80}\.py\b|^llamafactory-cli train"
        r"|^(?:.{0,60}\s)?trl (?:sft|dpo)",
        unless=LAUNCHER,
        beside=SEVERAL,
    ),
    Sign(
        r"^ms-swift without NPROC_PER_NODE", r"\bswift (?:sft|pt|rlhf)\b", unless=r"NPROC_PER_NODE"
    ),
    Sign(r"^ms-swift without NPROC_PER_NODE", r"\btune run\b.{0,80}single_device|single_device"),
    Sign(
        r"^Unsloth works on one GPU",
        r"Num GPUs used = 1|Fast\w{0,10}Model\.from_pretrained\(|\bunsloth import\b",
        unless=LAUNCHER,
    ),
    Sign(r"^every process puts its model on GPU 0", r"Duplicate GPU detected"),
    Sign(
        r"^every process puts its model on GPU 0",
        r"device_map['\"]?\s*[=:]\s*(?:\{\s*['\"]{2}\s*:\s*(?:['\"]cuda(?::0)?['\"]|0)"
        r"|['\"]cuda)|\.to\(\s*['\"]cuda(?::0)?['\"]|\.cuda\(\s*0?\s*\)"
        r"|torch\.device\(\s*['\"]cuda(?::0)?['\"]|['\"]cuda:0['\"]"
        r"|\bdevice\s*=\s*['\"]cuda['\"]",
        beside=DISTRIBUTED,
        unless=r"set_device\(|cuda:\{|device_map.{0,30}(?:local_rank|process_index|PartialState)"
        r"|torch\.device\(\s*['\"]cuda['\"],\s*\w|\.prepare\(",
    ),
    Sign(
        r"^every process puts its model on GPU 0",
        r"device_map['\"]?\s*[=:]\s*(?:\{\s*['\"]{2}\s*:\s*0|['\"](?:cuda(?::0)?|auto)['\"])",
        beside=DISTRIBUTED,
    ),
    Sign(
        HIDDEN,
        r"(?:CUDA|NVIDIA|HIP|ROCR)_VISIBLE_DEVICES['\"\]]*\s*[=:]\s*['\"]?\d|device_ids\s*:"
        r"|--gpus\s+['\"\\]*device|\bcount\s*:\s*1\b|visible_devices",
    ),
    Sign(
        r"^WORLD_SIZE, RANK, LOCAL_RANK",
        r"\b(?:WORLD_SIZE|RANK|LOCAL_RANK|NODE_RANK)['\"\]]*\s*=\s*['\"]?\d",
    ),
    Sign(
        r"^CUDA was used in the notebook",
        r"\.cuda\(|\.to\([^)]{0,40}cuda|device_map|cuda\.(?:is_available|device_count"
        r"|get_device|mem_get|empty_cache)|Fast\w*Model\.from_pretrained|nvidia-smi",
        followed_by=r"notebook_launcher\(",
    ),
    Sign(r"^CUDA was used in the notebook", r"notebook_launcher\("),
    # --- the launch
    Sign(
        CONTRADICT,
        r"['\"](?:train_batch_size|train_micro_batch_size_per_gpu|gradient_accumulation_steps"
        r"|gradient_clipping)['\"]\s*:\s*\d",
        beside=r"(?i)deepspeed|zero_optimization",
    ),
    Sign(
        CONTRADICT,
        rf"deepspeed_config_file|\bgpu_ids{SET}\d|--config_file.{{0,200}}--num_processes"
        r"|--num_processes.{0,200}--config_file",
    ),
    Sign(
        r"^a DeepSpeed or FSDP config",
        r"['\"]zero_optimization['\"]\s*:",
        unless=r"--deepspeed\b|\bdeepspeed['\"]?\s*[=:]|deepspeed_config|deepspeed\.initialize"
        r"|--config_file|DeepSpeedPlugin",
    ),
    Sign(r"^FSDP is set to wrap a layer class", r"transformer_layer_cls\w*|transformer_cls_names"),
    Sign(
        r"^the nodes wait at MASTER_ADDR",
        r"(?:MASTER_ADDR|master_addr|main_process_ip"
        r"|rdzv[-_]endpoint)['\"\]]*\s*[=: ]\s*['\"]?(?:localhost|127\.)",
        beside=rf"{NODES}|\bsrun\b",
    ),
    Sign(
        r"^torchrun for several nodes is in the batch script",
        rf"^(?!.{{0,300}}srun).{{0,300}}{LAUNCHER}.{{0,400}}(?:nnodes|num_machines|rdzv)",
        beside=r"#SBATCH|SLURM_",
        unless=rf"\bsrun\b.{{0,300}}(?:{LAUNCHER}|bash|\.sh)",
    ),
    Sign(
        r"^each node or task starts a run of its own",
        r"--standalone\b",
        beside=rf"{NODES}|\bsrun\b",
    ),
    Sign(
        r"^each node or task starts a run of its own",
        rf"{LAUNCHER}(?!.{{0,500}}(?:nnodes|num_machines|rdzv|config_file|hostfile))",
        beside=NODES,
    ),
    Sign(
        r"^every node gets the same number",
        r"^(?!.{0,400}bash -l?c\s+').{0,600}(?:node[_-]rank|machine[_-]rank"
        r"|NODE_RANK)['\"]?\s*[= ]\s*['\"]?\$\{?SLURM_(?:NODEID|PROCID)",
    ),
    Sign(
        r"^each task of Slurm or MPI starts plain",
        r"\b(?:srun|mpirun|mpiexec)\b(?!.{0,300}(?:torchrun|accelerate|deepspeed"
        r"|torch\.distributed|axolotl|llamafactory)).{0,300}\bpython|^-?\s*['\"]?(?:mpirun"
        r"|mpiexec)['\"]?,?$",
        unless=rf"{READS_TASKS}|idr_torch",
    ),
    Sign(
        r"^each task of Slurm or MPI starts plain",
        r"#SBATCH\s+(?:--ntasks-per-node|--ntasks|-n)[= ]\s*(?:[2-9]|\d\d)",
        unless=rf"{LAUNCHER}|{READS_TASKS}",
    ),
    Sign(
        r"^each task of a node starts the launcher|^every Slurm or MPI task of",
        r"(?:--ntasks-per-node|--ntasks|tasks_per_node|-np?"
        r"|slotsPerWorker)['\"]?[=: ]\s*['\"]?(?:[2-9]|\d\d)\b",
        beside=LAUNCHER,
    ),
    Sign(
        r"^the container has 64 MB",
        r"\bshm_size\s*:\s*['\"]?\d{1,3}\s*m|--shm-size[= ]\d{1,3}m|/dev/shm.{0,40}64",
    ),
    Sign(
        r"^the container has 64 MB|^the limit on shared memory",
        r"\bdocker run\b|^\s*(?:-\s+)?(?:driver|runtime)\s*:\s*['\"]?nvidia|nvidia\.com/gpu"
        r"|capabilities\s*:\s*\[\s*['\"]?gpu",
        unless=r"shm[-_]size|\bipc\b|/dev/shm|medium:\s*Memory",
    ),
    Sign(
        r"^Lightning's devices is not",
        r"\bTrainer\(.{0,300}\b(?:devices|num_nodes)\s*=",
        beside=r"#SBATCH|\bsrun\b",
    ),
    Sign(
        INTERFACE,
        r"(?:NCCL|GLOO)_SOCKET_IFNAME['\"\]]*\s*[=:]|(?:Using|Bootstrap"
        r"|NET/Socket).{0,60}\b(?:docker0|virbr0|lo|br-\w+|veth\w+)[: ]|172\.17\.0\.1",
    ),
    Sign(
        INTERFACE,
        r"(?:MASTER_ADDR|master_addr|main_process_ip|rdzv[-_]endpoint)['\"\]]*\s*[=: ]",
        beside=NODES,
    ),
    Sign(
        NCCL_OFF,
        r"\bNCCL_(?:IB|P2P|SHM|NVLS|CUMEM)_DISABLE['\"\]]*\s*[=:,]\s*['\"]?1|NCCL_(?:NET"
        r"|P2P_LEVEL)['\"\]]*\s*[=:]\s*['\"]?(?:Socket|LOC)"
        r"|NCCL_IB_DISABLE set by environment to 1|NET/Socket",
    ),
    Sign(
        r"^copies from GPU to GPU",
        r"(?i:IO_PAGE_FAULT|iommu)|ACSCtl|NCCL_P2P_DISABLE['\"\]]*\s*[=:]\s*['\"]?0",
    ),
    Sign(
        r"^copies from GPU to GPU",
        r"(?:GeForce )?RTX (?:30[6-9]0|40[6-9]0|50[6-9]0|A[456]000|6000)|\bPHB\b|\bSYS\b",
        beside=SEVERAL,
    ),
    Sign(
        r"^(?:vLLM, SGLang and TGI use one|vLLM is started on one)",
        r"\bvllm[- ]serve\b|\bLLM\(|vllm\.entrypoints|sglang\.launch_server"
        r"|text-generation-launcher|vllm/vllm-openai",
        unless=r"tensor[-_]parallel|data[-_]parallel|--tp\b|\btp_size|num[-_]shard|pipeline[-_]parallel",
    ),
    # --- the steps
    Sign(
        r"^gradients are not averaged",
        r"(?<!self)\.module(?:\.forward)?\(|unwrap\w*\([^)]{0,60}\)\s*\(|=\s*\w+\.module$"
        r"|(?:^return|=)\s+[\w.]{1,40}\.module if\b|\bgetattr\([\w.]{1,40}, ?['\"]module['\"]",
        beside_in_file=r"DistributedDataParallel|\bDDP\b|\.prepare\(|\.backward\(",
    ),
    Sign(
        r"^gradients are not averaged",
        r"\.backward\(",
        beside_in_file=r"init_process_group\(|set_device\(",
        unless_in_file=r"DistributedDataParallel|\bDDP\(|FSDP\(|fully_shard|all_reduce\(|\.prepare\(|deepspeed",
    ),
    Sign(
        r"^gradients are averaged at each micro-step",
        r"%\s*[\w.]{0,40}(?i:acc)\w*",
        beside_in_file=r"DistributedDataParallel|\bDDP\(",
        unless_in_file=r"no_sync|require_backward_grad_sync",
    ),
    Sign(
        r"^the loss of a step depends on how rows",
        rf"average_tokens_across_devices{SET}[Ff]alse|/\s*\(?\s*\w*(?:mask|labels|valid|tok\w*"
        r"|weights?)\w*\)?\.sum\(|reduction\s*=\s*['\"]none",
        beside=rf"{DISTRIBUTED}|{SEVERAL}",
    ),
    Sign(
        r"^the loss of a step depends on how rows",
        r"cross_entropy\(|\bdef compute_loss\(|CrossEntropyLoss\(",
        beside=rf"{DISTRIBUTED}|{SEVERAL}",
    ),
    Sign(
        r"^a call that all processes must make",
        r"\b(?:state_dict_type|summon_full_params|get_model_state_dict|get_state_dict)\(",
        beside=MAIN_ONLY,
    ),
    Sign(r"^a call that all processes must make", rf"{MAIN_ONLY}.{{0,60}}:.{{0,80}}{COLLECTIVE}"),
    Sign(
        r"^a call that all processes must make",
        r"\b(?:all_gather\w*|all_reduce|gather\w*|get_state_dict|save_state|summon_full_params"
        r"|get_model_state_dict|unshard|evaluate|validate|state_dict|full_state\w*)\(",
        preceded_by=MAIN_ONLY,
        beside=OWN_PROCESSES,
    ),
    Sign(
        r"^a call that all processes must make",
        MAIN_ONLY,
        beside=r"\b(?:gather_for_metrics|all_reduce|all_gather|gather|reduce|get_state_dict"
        r"|save_state|save_checkpoint)\(|\bFSDP\b|stage['\"]?\s*:\s*3",
    ),
    Sign(
        r"^one process leaves the loop alone",
        r"^if\b.{0,80}(?:patience|bad|wait|best|stop\w*|no_improve\w*|counter)\b.{0,20}(?:>=|>"
        r"|==|:)|^break$",
        beside_in_file=OWN_PROCESSES,
        unless_in_file=r"broadcast|all_reduce|set_trigger|check_trigger",
    ),
    Sign(
        SKIPPED,
        r"^(?:if\b.{0,160}:\s*)?continue$|\bisnan\(|\bisfinite\("
        r"|^except\b.{0,60}(?:OutOfMemory|RuntimeError)",
        followed_by=r"\.backward\(",
        beside=DISTRIBUTED,
    ),
    Sign(
        SKIPPED,
        r"^(?:if\b.{0,160}:\s*)?continue$|\bisnan\(|\bisfinite\("
        r"|^except\b.{0,60}(?:OutOfMemory|RuntimeError)",
        beside_in_file=r"def training_step",
        beside=DISTRIBUTED,
    ),
    Sign(
        r"^every process deletes, renames",
        r"rmtree\(|os\.(?:rename|replace|remove|unlink)\(|shutil\.move\("
        r"|makedirs\((?!.{0,80}exist_ok)|mkdir\((?!.{0,80}exist_ok)|\.unlink\(|symlink",
        beside=DISTRIBUTED,
        unless_in_file=MAIN_ONLY,
    ),
    Sign(
        r"^every process writes the same checkpoint",
        r"torch\.save\(|\.save_pretrained\(",
        beside=r"init_process_group|torchrun|DistributedDataParallel",
        unless_in_file=MAIN_ONLY + r"|rank\w*\s*!=\s*0|Trainer\(",
    ),
    Sign(
        WAITING,
        r"main_process_first\(|\.barrier\(|wait_for_everyone\(",
        followed_by=r"\.map\(|\.save_to_disk\(|load_from_disk\(",
    ),
    Sign(
        WAITING,
        r"\b(?:Map|Tokenizing|Running tokenizer on dataset|Converting format)\b.{0,80}\d{1,2}%",
        beside=r"(?i:watchdog|timeout|timed out)",
    ),
    Sign(
        WAITING,
        rf"(?:preprocessing_num_workers|dataset_(?:processes|num_proc)){SET}[1-4]\b(?!\d)",
        beside=rf"{SEVERAL}|FORCE_TORCHRUN",
    ),
    Sign(WAITING, r"ddp_timeout|init_process_group\((?!.{0,200}timeout)", followed_by=r"\.map\("),
    Sign(
        r"^a part of the model gets no gradient",
        r"^if\b.{0,120}\.(?:any|sum|numel|item)\(.{0,80}:$",
        beside_in_file=r"nn\.(?:Linear|Sequential)\(",
        beside=r"\b(?:DistributedDataParallel|DDP)\(|strategy\s*=\s*['\"]ddp['\"]",
        unless_in_file=r"find_unused_parameters",
    ),
    Sign(
        r"^a part of the model gets no gradient",
        r"Expected to have finished reduction|find_unused_parameters\W{1,3}[Ff]alse",
    ),
    Sign(
        r"^a part of the model gets no gradient",
        r"\b(?:DistributedDataParallel|DDP)\((?!.{0,200}find_unused)|strategy\s*=\s*['\"]ddp['\"]",
        beside=r"nn\.Linear\(|nn\.Module\)|(?i:pixel|image|router|head)",
    ),
    Sign(
        r"^the processes take different branches",
        r"\bif\b.{0,100}(?i:pixel_values|images?\b|audio|video|vision)",
        beside=rf"{ZERO3}|{SHARDED}",
    ),
    Sign(
        r"^a mixture of experts under ZeRO-3",
        r"(?i:mixtral|deepseek|olmoe|qwen\d?(?:\.\d)?-?moe|\bmoe\b|-A\d{1,2}B)",
        beside=ZERO3,
        unless=r"set_z3_leaf|leaf_module",
    ),
    Sign(
        r"^new weights \(an adapter",
        r"(?:seed\w*|manual_seed)\(.{0,60}\+\s*[\w.\[\]'\"()]{0,30}(?i:rank|process_index)"
        rf"|\bseed\s*=.{{0,60}}\+\s*\w*rank|sync_module_states{SET}[Ff]alse",
    ),
    Sign(
        r"^new weights \(an adapter",
        r"get_peft_model\(|nn\.Linear\(|resize_token_embeddings\(",
        beside=SHARDED,
        unless=r"set_seed\(|manual_seed\(|sync_module_states|seed_everything|Trainer\(",
    ),
    Sign(
        r"^rank 0 logs its own loss",
        r"\bself\.log\w*\(.{0,60}(?:val|loss|acc)(?!.{0,200}sync_dist\s*=\s*True)",
        beside=r"strategy\s*=|devices\s*=\s*(?:[2-9]|-1)",
    ),
    Sign(
        r"^rank 0 logs its own loss",
        r"(?:print|log\w*(?:\.info)?|write)\(.{0,160}loss.{0,40}\.item\(\)",
        beside_in_file=OWN_PROCESSES,
        unless_in_file=r"all_reduce\(|gather\w*\(|\.reduce\(",
    ),
    Sign(
        r"^a scheduler that is stepped by every process",
        r"\bget_\w{0,30}schedul\w*\((?!.{0,400}num_processes)|\b(?:LambdaLR|CosineAnnealingLR"
        r"|OneCycleLR|LinearLR)\((?!.{0,400}num_processes)",
        beside_in_file=r"\.prepare\(.{0,200}sche?d|\.prepare\(.{0,200}\blr_",
    ),
    Sign(
        r"^the batch grew with the processes",
        r"(?i:grad\w{0,10}_accum\w{0,20})(?::\s*int)?['\"]?(?:,[^()]{0"
        r",60}?default)?\s*[=: ]\s*['\"]?(?:[89]|\d\d+)\b(?![.\d])",
        beside=SEVERAL,
    ),
    Sign(
        r"^two runs make the same number of steps",
        r"\bmax_steps['\"]?\s*[=: ]\s*['\"]?[1-9]\d+",
        beside=rf"{SEVERAL}|{DISTRIBUTED}|num_processes",
    ),
    Sign(
        r"^the run was resumed on another number",
        r"resume_from_checkpoint['\"]?\s*[=: ]\s*['\"]?(?!None|[Ff]alse|null)[\w./]"
        r"|Continuing training from|\bload_state\(|ckpt_path\s*=",
        beside=rf"{SEVERAL}|{DISTRIBUTED}",
    ),
    # --- sharding, saving
    Sign(
        r"^weights or optimizer states are offloaded",
        r"offload_(?:optimizer|param)\w*['\"]?\s*:\s*\{?.{0,40}(?:cpu|nvme)"
        r"|['\"]device['\"]\s*:\s*['\"](?:cpu|nvme)|offload_params['\"]?\s*[:=]\s*[Tt]rue"
        r"|cpu_offload['\"]?\s*[:=]\s*(?!False|None|false)\w|offload_(?:optimizer"
        r"|param)_device['\"]?\s*[:=]\s*['\"]?(?:cpu|nvme)|z3_offload|z2_offload"
        r"|offload\w*\.json",
    ),
    Sign(
        SHARDS_SAVED,
        r"torch\.Size\(\[0\]\)|gather_16bit_weights_on_model_save['\"]?\s*[:=]\s*[Ff]alse"
        r"|zero3_save_16bit_model['\"]?\s*[:=]\s*[Ff]alse",
    ),
    Sign(
        SHARDS_SAVED,
        r"\.save_pretrained\((?!.{0,200}state_dict)|torch\.save\(\s*\w*\.?(?:module\.)?state_dict\(",
        beside=rf"{ZERO3}|{SHARDED}",
    ),
    Sign(
        r"^FSDP or torch.distributed.checkpoint saved",
        r"SHARDED_STATE_DICT|LOCAL_STATE_DICT|\bdcp\.save|distributed\.checkpoint|\.distcp"
        r"|StateDictType\.SHARDED",
    ),
    Sign(
        r"^FSDP or torch.distributed.checkpoint saved",
        r"state_dict_type['\"]?\s*[:=]",
        beside=SHARDED,
        unless=r"FULL_STATE_DICT",
    ),
    Sign(r"^the saved weights have module\.", r"\.load_state_dict\(.{0,200}strict\s*=\s*False"),
    Sign(
        r"^the saved weights have module\.",
        r"torch\.save\(\s*(?:\{.{0,60})?(?:model|ddp\w*|net)\.state_dict\(",
        beside=r"DistributedDataParallel|\bDDP\(|DataParallel",
    ),
    Sign(FOUR_BITS, r"load_in_4bit|BitsAndBytesConfig\(", beside=SHARDED, unless=r"quant_storage"),
    Sign(FOUR_BITS, r"quant_storage", beside=SHARDED),
    Sign(r"^FSDP joins frozen weights", rf"use_orig_params{SET}[Ff]alse"),
    Sign(
        r"^FSDP joins frozen weights",
        r"\bFSDP\((?!.{0,400}use_orig_params)|FullyShardedDataParallel\((?!.{0,400}use_orig_params)",
        beside=r"(?i:lora|peft)|requires_grad\s*=\s*False",
    ),
    Sign(
        WHOLE_UNIT,
        r"auto_wrap_policy['\"]?\s*[:=]\s*['\"]?NO_WRAP|\b(?:FSDP"
        r"|FullyShardedDataParallel)\((?!.{0,400}auto_wrap_policy).*\)"
        r"|fsdp['\"]?\s*[:= ]\s*['\"](?:full_shard|shard_grad_op)['\"]",
    ),
    Sign(
        r"^FSDP is configured to shard",
        r"NO_SHARD|sharding_strategy['\"]?\s*[:=]\s*['\"]?(?:3|NO_SHARD)\b",
    ),
    Sign(
        r"^FULL_SHARD or ZeRO-3 over several nodes",
        r"FULL_SHARD|full_shard\b|['\"]stage['\"]\s*:\s*3|fsdp_sharding_strategy['\"]?\s*:\s*1"
        r"|ds_z3|zero3|stage3",
        beside=NODES,
        unless=r"HYBRID_SHARD|hpz_partition",
    ),
    Sign(
        GENERATES,
        r"\.generate\(|ds3_gather_for_generation['\"]?\s*[:=]\s*False"
        r"|predict_with_generate['\"]?\s*[:= ]\s*[Tt]rue",
        beside=ZERO3,
    ),
    Sign(r"^gradients under FSDP1 are clipped", r"nn\.utils\.clip_grad_norm_\(", beside=SHARDED),
    Sign(
        r"^each node wrote its part",
        r"(?:output_dir|save_dir|checkpoint\w*|ckpt_dir|default_root_dir"
        r"|OUT\w*)['\"]?\s*[=: ]\s*['\"]?(?:/tmp|/scratch|/local|/raid|/nvme|/dev/shm"
        r"|/mnt/(?:local|nvme|ssd)|\$TMPDIR|\$\{?SLURM_TMPDIR)"
        r"|save_on_each_node['\"]?\s*[=: ]\s*[Tt]rue",
        beside=NODES,
    ),
    Sign(
        r"^the cards are not alike",
        r"(?i:thermal slowdown|hw slowdown|power brake)\W{1,30}Active|\b(?:8[6-9]|9\d)C\b"
        r"|clocks?_throttle\w*\W+(?!0x0+\b)\w",
    ),
)
"""The most telling sign of a cause first: its lines are those that are printed."""
