"""Known messages about GPUs and drivers, and about how a script was started."""

from __future__ import annotations

from truetune.logs.console.messages.known_message import define_message

MESSAGES = (
    define_message(
        "driver-too-old",
        "the NVIDIA driver is older than the CUDA that torch was built with",
        r"driver on your system is too old|CUDA driver version is insufficient"
        r"|forward compatibility was attempted|version mismatch: .{0,60}libcuda|Driver/library"
        r" version mismatch"
        r"|provided PTX was compiled with an unsupported toolchain",
        "torch of a newer CUDA than the driver can run; a driver that was updated without a"
        " restart",
        "`truetune doctor` lists the driver and torch's CUDA; install the torch built for that"
        " CUDA, or update the driver and restart",
        "torch/cuda/__init__.py",
        "pytorch/pytorch#4546",
    ),
    define_message(
        "no-gpu-found",
        "torch sees no GPU",
        r"Found no NVIDIA driver|[Nn]o CUDA GPUs are available|Torch not compiled with CUDA enabled"
        r"|no CUDA-capable device|CUDA is not available|torch\.cuda\.is_available\(\)"
        r" (?:is|returned"
        r"|should be) (?:False|True)|cannot find any torch accelerator|needs? (?:a|an NVIDIA)"
        r" GPU|No GPU found",
        "a torch for the CPU; a container without --gpus all; a job without a GPU;"
        " CUDA_VISIBLE_DEVICES that is empty",
        "`truetune doctor` says which; install torch for CUDA, or ask the scheduler for a GPU"
        " (--gres=gpu:1)",
        "torch/cuda/__init__.py",
    ),
    define_message(
        "gpu-not-supported",
        "torch, or a package, was not built for this GPU",
        r"no kernel image is available for execution|is not compatible with the current PyTorch"
        r" installation"
        r"|FlashAttention only supports (?:Ampere|Turing|Hopper)|requires compute capability"
        r"|sm_\d+ is not compatible",
        "a GPU that is newer or older than the build knows",
        "`truetune doctor` names the GPU and torch's architectures; install a torch of newer CUDA"
        " for new GPUs; for old ones attn_implementation='sdpa'",
        "torch/cuda/__init__.py",
        "pytorch/pytorch#31285",
    ),
    define_message(
        "gpu-lost",
        "the GPU stopped answering",
        r"uncorrectable ECC error|GPU is lost|fallen off the bus|CUDA error: (?:the launch timed"
        r" out|hardware"
        r"|initialization error|unknown error|CUDA-capable device\(s\) is/are busy)|Xid ?\(",
        "a hardware fault, heat or power; or CUDA used in a forked process (initialization error)",
        "`nvidia-smi -q -d ECC,PAGE_RETIREMENT`; restart the machine or take another; for"
        " `initialization error`: start workers with the spawn method",
        "docs.nvidia.com/deploy/xid-errors",
    ),
    define_message(
        "cuda-in-a-forked-process",
        "CUDA was used before a process was forked",
        r"Cannot re-initialize CUDA in forked subprocess|CUDA has been initialized before importing"
        r"|To launch a multi-GPU training from your notebook",
        "a model on the GPU before notebook_launcher or dataset.map with several processes",
        "load the model inside the function that is launched; num_proc=1 where a map uses the"
        " model",
        "torch/cuda/__init__.py",
        "accelerate/launchers.py",
    ),
    define_message(
        "main-guard-missing",
        "workers import the script again, and it starts again in each",
        r"An attempt has been made to start a new process before the current process has finished"
        r" its "
        r"bootstrapping",
        "on Windows and macOS workers begin with a fresh interpreter, and the script has no `if"
        ' __name__ == "__main__":`',
        'put the training under `if __name__ == "__main__":`, or dataloader_num_workers=0',
        "docs.python.org/3/library/multiprocessing.html",
    ),
    define_message(
        "launcher-variables-missing",
        "the script was started as one process and expects several",
        r"environment variable (?:RANK|WORLD_SIZE|LOCAL_RANK|MASTER_ADDR|MASTER_PORT) expected"
        r"|KeyError: '(?:LOCAL_RANK|RANK|WORLD_SIZE)'|Default process group has not been"
        r" initialized"
        r"|ValueError: Error initializing torch\.distributed",
        "`python train.py` where torchrun or accelerate launch is needed, or DeepSpeed without its"
        " launcher",
        "start with `torchrun --nproc-per-node N train.py` or `accelerate launch train.py`",
        "torch/distributed/rendezvous.py",
    ),
    define_message(
        "tasks-differ-from-devices",
        "Slurm starts another number of processes on a node than Lightning is set to use GPUs",
        r"You set `(?:devices|--ntasks|num_nodes)=\d+`.{0,200}SLURM",
        "Lightning starts no processes under Slurm: srun must start one for each GPU, and --ntasks-per-node says how"
        " many",
        "set #SBATCH --ntasks-per-node to the number of GPUs (devices=N), and start it by srun; devices=1 would leave"
        " the other GPUs idle",
        "lightning/fabric/plugins/environments/slurm.py",
    ),
    define_message(
        "deepspeed-ignores-visible-devices",
        "DeepSpeed ignores CUDA_VISIBLE_DEVICES, and takes the first GPUs of the machine",
        r"Detected (?:CUDA_)?VISIBLE_DEVICES=\S{1,80} but ignoring it",
        "the command names GPUs itself (--num_gpus, --include), which overrules the variable: other runs may use"
        " the GPUs that are taken instead",
        "name the GPUs in the command: `deepspeed --include localhost:2,3 SCRIPT` instead of --num_gpus and"
        " CUDA_VISIBLE_DEVICES",
        "deepspeed/launcher/runner.py",
        "deepspeedai/DeepSpeed#3069",
        shown="notice",
    ),
    define_message(
        "checkpoint-parts-of-another-node",
        "a part of the checkpoint that another process wrote is not there",
        r"FileNotFoundError: .{0,400}(?:zero_pp_rank_\d+_mp_rank_\d+|__\d+_\d+\.distcp|rng_state_\d+\.pth"
        r"|(?:optimizer|model)_rank_?\d+)",
        "each process writes its own part of the optimizer. With several nodes and no file system that all of them"
        " share, the parts of the other nodes are on their own disks; or the run was resumed on another number of GPUs",
        "copy the parts of all nodes into one folder, or put output_dir on a shared file system; resume with as many"
        " GPUs as before. DeepSpeed's ds_to_universal makes a checkpoint for another number of GPUs",
        "deepspeed/runtime/engine.py (_get_all_zero_checkpoint_names); torch/distributed/checkpoint",
    ),
    define_message(
        "file-not-found",
        "a file or folder that the run names is not there",
        r"FileNotFoundError|No such file or directory|NotADirectoryError|IsADirectoryError",
        "a path that is relative to another folder, or that only exists on another machine; a"
        " checkpoint that save_total_limit removed",
        "give whole paths; `truetune check PATH` says what is there, and names what is nearly"
        " called so",
        "docs.python.org/3/library/exceptions.html",
    ),
    define_message(
        "command-not-found",
        "the shell does not find the program or the script that was to be started",
        r"\S{1,80}: (?:line \d+: |\d+: )?\S{1,80}: (?:command )?not found$|python\S*: can't open"
        r" file|(?:env"
        r"|nohup|srun|slurmstepd): .{1,160}: (?:No such file or directory|command not found)",
        "the environment is not active in this shell or job; the package of the command is not"
        " installed; a path that is relative to another folder",
        "activate the environment inside the job, or call the module: `python -m"
        " torch.distributed.run`, `python -m accelerate.commands.launch`; `truetune doctor` names"
        " the interpreter that runs",
        "gnu.org/software/bash/manual: Exit Status (127)",
        shown="end",
    ),
    define_message(
        "permission-denied",
        "the run may not read or write a file",
        r"PermissionError|\[Errno 13\]|Read-only file system|\[Errno 30\]",
        "an output folder or cache of another user; a data set mounted read-only, where caches"
        " can't be written",
        "set output_dir and HF_HOME to a folder of your own (`ls -ld FOLDER` shows whose it is)",
        "docs.python.org/3/library/exceptions.html",
    ),
)
"""By how special they are"""
