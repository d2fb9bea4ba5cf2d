"""Known messages of launchers, schedulers and NCCL: processes that wait for one another, or were
killed.
"""

from __future__ import annotations

from truetune.logs.console.messages.known_message import define_message

MESSAGES = (
    define_message(
        "stopped-by-hand",
        "the run was interrupted by hand",
        r"^(?:error: )?KeyboardInterrupt\b|SignalException: Process \d+ got signal: 2\b",
        "Ctrl-C, or the stop button of a notebook",
        "nothing has to be corrected; a training continues from its newest checkpoint with"
        " resume_from_checkpoint=True",
        "docs.python.org/3/library/exceptions.html",
        severity="info",
    ),
    define_message(
        "nccl-timeout",
        "one process waited for the others until NCCL's watchdog ended it",
        r".{0,60}Watchdog caught collective operation timeout"
        r"|.{0,80}Some NCCL operations have failed or timed out|.{0,200}(?:Timeout|timed out) at"
        r" NCCL work"
        r"|.{0,120}Timed out waiting \d+ms for (?:recv|send) operation to complete",
        "another process died (its own exception is above, or in another file), or does"
        " something else: an evaluation, a save or a download on rank 0 alone; batches of different"
        " number; a `if rank == 0` around a collective call. It is rarely the network",
        "look for the first exception of another rank above; check the script with `truetune lint"
        " SCRIPT` (collective calls on one rank) and each rank's rows with `truetune run -- CMD`; a"
        " long evaluation or tokenization needs a longer limit (ddp_timeout=7200 of the Trainer, timeout= of"
        " init_process_group)",
        "pytorch/pytorch#118369",
        "hiyouga/LlamaFactory#7396",
        "NVIDIA/Megatron-LM#1207",
        shown="end",
        is_consequence=True,
    ),
    define_message(
        "nccl-timeout-raised",
        "one process waited for the others until NCCL's watchdog ended it",
        r"Watchdog caught collective operation timeout|DistBackendError.{0,400}(?:timed"
        r" out|timeout)"
        r"|Timed out initializing process group|DistStoreError.{0,200}(?:[Tt]imed? ?out|Timed out)"
        r"|wait timeout after \d+ms|Socket Timeout|failed to pass monitoredBarrier|monitoredBarrier.{0,80}timed? ?out"
        r"|Detected mismatch between collectives on ranks",
        "another process died or never started (its own exception is above, or in another"
        " file), or does something else: an evaluation, a save or a download on rank 0 alone; or"
        " the ranks can't reach one another",
        "look for the first exception of another rank above; check the script with `truetune lint"
        " SCRIPT`; a long evaluation or tokenization needs a longer limit (ddp_timeout=7200 of"
        " the Trainer, timeout= of init_process_group); between machines,"
        " check MASTER_ADDR, MASTER_PORT and NCCL_SOCKET_IFNAME",
        "pytorch/pytorch#118369",
        "torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp",
        is_consequence=True,
    ),
    define_message(
        "ranks-on-one-gpu",
        "two processes of the run use the same GPU",
        r"Duplicate GPU detected",
        'each process takes the same one: `cuda:0`, `.cuda()` or `.to("cuda")` without'
        " torch.cuda.set_device(local_rank) before it; a CUDA_VISIBLE_DEVICES of one GPU for all of them;"
        " or more processes than GPUs were started",
        "torch.cuda.set_device(int(os.environ['LOCAL_RANK'])) before the first tensor, and"
        ' device = torch.device("cuda", local_rank); `truetune doctor` lists the GPUs',
        "pytorch/pytorch#62316",
        refined_by=("nccl-same-gpu-twice",),
    ),
    define_message(
        "rank-device-mismatch",
        "the run starts more processes than it sees GPUs",
        r"CUDA error: invalid device ordinal|device_id.{0,60}(?:out of"
        r" range|invalid)"
        r"|Invalid device id|does not have enough GPUs",
        "CUDA_VISIBLE_DEVICES (in the shell, .env, or the environment of a compose file) or docker's --gpus device=0"
        " hides the others; or nproc-per-node or num_processes is more than the machine has",
        "print torch.cuda.device_count(): where it is less than the machine has, remove CUDA_VISIBLE_DEVICES or give"
        " --gpus all; else give that number to torchrun --nproc-per-node or accelerate's num_processes",
        "c10/cuda/CUDAFunctions.cpp",
    ),
    define_message(
        "nccl-error",
        "NCCL could not connect the GPUs of the run",
        r"ncclUnhandledCudaError|ncclSystemError|ncclInternalError|ncclRemoteError|ncclInvalidUsage"
        r"|NCCL error in:|NCCL WARN .{0,200}",
        "another rank died (ncclRemoteError); two ranks on one GPU (`Duplicate GPU detected`); too"
        " little /dev/shm in a container; a network interface that can't be reached",
        "run once more with NCCL_DEBUG=INFO and read the first `NCCL WARN`; `truetune doctor` lists"
        " GPUs and versions; in a container: --ipc=host",
        "torch/csrc/distributed/c10d/NCCLUtils.hpp",
        "pytorch/pytorch#62316",
        refined_by=(
            "nccl-no-interface",
            "nccl-connection-failed",
            "nccl-infiniband-failed",
            "nccl-shared-memory",
            "nccl-same-gpu-twice",
        ),
    ),
    define_message(
        "map-process-died",
        "a process that prepares rows (datasets.map) was killed: most often the machine's memory was used up",
        r"One of the subprocesses has abruptly died",
        "num_proc processes each hold their rows, a tokenizer, and a batch of results; the kernel ended one"
        " of them without an exception",
        "lower num_proc (dataset_num_proc), batch_size and writer_batch_size of map; with num_proc=1 an"
        " exception of the function is printed; `dmesg -T | tail` shows `oom` where the memory was at fault",
        "datasets/utils/py_utils.py",
        "huggingface/datasets#6357",
    ),
    define_message(
        "process-of-the-run-failed",
        "the launcher reports that one of its processes failed",
        r"ChildFailedError|Caught \w+ in (?:DataLoader worker|pin"
        r" memory|replica)|CalledProcessError"
        r"|ProcessRaisedException|ProcessExitedException|TorchElasticError|elastic\.multiprocessing\.(?:errors"
        r"|api)|RendezvousConnectionError|RendezvousClosedError"
        r"|SignalException: Process \d+ got signal|RayTaskError",
        "the exception of that process is the cause: it is above, or in the other ranks' files",
        "read the first exception of the ranks; if none was kept, start with `torchrun --redirects"
        " 3 --log-dir logs ...` and read `truetune diagnose logs/.../stderr.log`",
        "torch/distributed/elastic/multiprocessing/errors/__init__.py",
        "apple/ml-recurrent-drafter#5",
        is_consequence=True,
    ),
    define_message(
        "peer-gone",
        "another process of the run has ended, and this one noticed",
        r"[Cc]onnection (?:reset|closed|refused) by peer|Broken pipe|\[Errno 104\]"
        r"|Connection closed by remote peer|sendBytes failed|recvValue failed|failed to recv, got 0"
        r" bytes"
        r"|DDP expects same model across all ranks|EOFError$|RuntimeError: Aborted due"
        r" to|ConnectionResetError",
        "the other process's own exception is the cause",
        "look for the first exception of another rank; `truetune diagnose` on the file of each"
        " rank",
        "torch/csrc/distributed/c10d/socket.cpp",
        is_consequence=True,
    ),
    define_message(
        "time-limit",
        "the scheduler ended the job at its time limit",
        r"(?:(?:slurmstepd|srun): (?:error|Force).{0,120}|.{0,60}(?:JOB|STEP) \d+.{0,80})DUE TO TIME"
        r" LIMIT|=>> PBS: job killed: walltime|TERM_RUNLIMIT|User defined signal 2"
        r"|Your notebook was stopped because it exceeded the max allowed",
        "the run takes longer than the job was given, or it hung: then the last lines before it are"
        " hours older",
        "start again from the newest checkpoint (resume_from_checkpoint=True, in a job with more"
        " time); `truetune diagnose RUN` says whether the resume took up the optimizer and the"
        " schedule",
        "slurm.schedmd.com/sbatch.html",
        shown="end",
    ),
    define_message(
        "preempted",
        "the scheduler took the machine back for another job",
        r"(?:(?:slurmstepd|srun): (?:error|Force).{0,120}|.{0,60}(?:JOB|STEP) \d+.{0,80})DUE TO"
        r" (?:PREEMPTION|JOB REQUEUE)|TERM_PREEMPT|.{0,80}[Ss]pot instance .{0,40}(?:interrupt|reclaim)",
        "a partition or a price at which machines may be taken back",
        "start again from the newest checkpoint (resume_from_checkpoint=True), with save_steps so small"
        " that little is lost and --requeue in the job script; nothing is wrong with the run",
        "slurm.schedmd.com/preempt.html",
        shown="end",
        severity="warning",
    ),
    define_message(
        "node-failed",
        "a machine of the job failed",
        r"(?:(?:slurmstepd|srun): (?:error|Force).{0,120}|.{0,60}(?:JOB|STEP) \d+.{0,80})DUE TO NODE"
        r" FAILURE|srun: error: Node failure on",
        "the machine lost power, its network or its driver; nothing is wrong with the run",
        "start again from the newest checkpoint without that machine (--exclude NODE), and report it",
        "slurm.schedmd.com/sbatch.html",
        shown="end",
        severity="warning",
    ),
    define_message(
        "cancelled",
        "the job was cancelled, and no reason is printed: by a person (scancel), or because another"
        " task of the job had failed",
        r"(?:slurmstepd|srun): (?:error|Force).{0,160}(?:CANCELLED AT|Terminat(?:ed|ing) (?:job|task))"
        r"|.{0,60}(?:JOB|STEP) \d+.{0,60}CANCELLED AT|TERM_OWNER",
        "somebody ended it, often because it hung; a time limit, a preemption or a failed"
        " machine would be named (DUE TO ...)",
        "read the lines before it: warnings of NCCL, the exception of another task, or the last step"
        " and its time; `sacct -j JOB -o State,ExitCode,End` says who ended it",
        "slurm.schedmd.com/scancel.html",
        shown="end",
        severity="warning",
        is_consequence=True,
    ),
    define_message(
        "terminated",
        "the process was asked to end (SIGTERM, exit code 143)",
        r"Terminated$|.{0,160}Signal 15 \(SIGTERM\)|.{0,120}\bexitcode {0,2}: -15\b|.{0,80}[Ee]xit"
        r" (?:code"
        r"|status):? {0,2}143\b|.{0,120}Received (?:15|1) death signal",
        "the launcher ended it because another process failed; else the scheduler, or a closed"
        " terminal (SIGHUP)",
        "look for the first exception of another rank; run under nohup, tmux or the scheduler, so"
        " that no terminal holds the run",
        "torch/distributed/elastic/agent/server/api.py",
        "pytorch/pytorch#150916",
        shown="end",
        severity="warning",
        is_consequence=True,
    ),
    define_message(
        "segmentation-fault",
        "compiled code failed: the process ended without an exception",
        r"(?:Fatal Python error: )?Segmentation fault|\S{0,60}: line \d+: +\d+ Segmentation fault"
        r"|.{0,120}\bexitcode {0,2}: -11\b|.{0,160}Signal 11 \(SIGSEGV\)|.{0,80}[Ee]xit (?:code"
        r"|status):? {0,2}139\b|Fatal Python error: \w+|Illegal instruction|\S{0,60}: line \d+:"
        r" +\d+ (?:Bus error"
        r"|Aborted)",
        "packages built against different versions of torch or CUDA (flash-attn, xformers,"
        " bitsandbytes, triton); a forked worker; a full /dev/shm",
        "`truetune doctor` lists versions that do not fit; run once more with `python -X"
        " faulthandler`, which names the last Python line",
        "docs.python.org/3/library/faulthandler.html",
        shown="end",
    ),
    define_message(
        "port-in-use",
        "another process holds the port of the run",
        r"[Aa]ddress already in use|EADDRINUSE|errno: 98\b|\[Errno 98\]|server socket has failed to"
        r" (?:listen"
        r"|bind)",
        "another run or server on the same machine with the same port, or a process of an earlier run; or several"
        " tasks of one job that each start the launcher",
        "end the process that holds it (`ss -ltnp` names it), or take another port: on one machine"
        " `torchrun --master-port 0` (or --standalone), `accelerate launch --main_process_port 0`; for several"
        " machines a fixed one, the same on all",
        "pytorch/pytorch#73320",
        "torch/csrc/distributed/c10d/socket.cpp",
    ),
)
"""By how special they are"""
