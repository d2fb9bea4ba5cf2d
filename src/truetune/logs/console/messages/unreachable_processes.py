"""Known messages of processes that can't reach one another: NCCL's sockets and InfiniBand, the
rendezvous of torch.
"""

from __future__ import annotations

from truetune.logs.console.messages.known_message import define_message

NCCL = r"(?:\S{1,80}\.(?:cc|cu|h):\d{1,5} )?(?:NCCL )?WARN "
"""How a warning of NCCL begins behind `host:pid:thread [device]`"""
MESSAGES = (
    define_message(
        "gpu-peer-access-blocked",
        "the IOMMU stops copies from one GPU to another: the first exchange between the processes never ends",
        r".{0,120}(?:AMD-Vi: Event logged \[IO_PAGE_FAULT|amd_iommu_report_page_fault|iommu ivhd\d+: AMD-Vi)"
        r"|.{0,120}DMAR: \[DMA (?:Read|Write)[^\]]{0,40}\] Request device",
        "NCCL copies between PCIe cards directly (P2P), and the IOMMU (AMD-Vi, VT-d), or ACS on a PCIe switch,"
        " catches these copies; all GPUs show 100 % and little power, and no step is done",
        "export NCCL_P2P_DISABLE=1 before the launch (copies go through the machine's memory then, a little"
        " slower); for full speed turn the IOMMU to pass-through (kernel parameter iommu=pt, amd_iommu=off) or"
        " switch ACS off in the BIOS, and prove it with `all_reduce_perf` of nccl-tests",
        "docs.nvidia.com/deeplearning/nccl/user-guide/docs/troubleshooting.html",
        "NVIDIA/nccl#199",
        "pytorch/pytorch#1637",
        shown="notice",
    ),
    define_message(
        "nccl-no-interface",
        "NCCL finds no network interface that it may use: the processes can't meet",
        NCCL + r".{0,80}(?:[Nn]o socket interface found|No interface found in the same subnet"
        r"|No usable listening interface)|.{0,80}Bootstrap ?: no socket interface found",
        "NCCL_SOCKET_IFNAME names an interface that this machine does not have (the name differs"
        " between machines, or between host and container); or the container has only lo",
        "`ip -br addr` on each machine; export NCCL_SOCKET_IFNAME with a prefix that fits all (eth,"
        " ens, ib, bond) or unset it; start the container with --network=host",
        "NVIDIA/nccl#286",
        "NVIDIA/nccl#929",
        shown="notice",
    ),
    define_message(
        "nccl-connection-failed",
        "NCCL can't connect to a process of another machine: the run waits before its first step",
        NCCL + r".{0,80}(?:Connect to .{1,60} failed|[Cc]all to connect .{0,40}(?:failed|timeout)"
        r"|connect(?:ion)? to .{1,60} (?:failed|refused|timed out)|No route to host|Connection"
        r" (?:refused|timed out))",
        "the line shows the address: 172.17.* and docker0, virbr0, br-* or 127.0.0.1 are local to"
        " each machine, so NCCL took the wrong interface; an address of the cluster's network is"
        " blocked by a firewall (NCCL takes ports at random), or the process there has died",
        "export NCCL_SOCKET_IFNAME with the interface of the network that joins the machines (`ip -br"
        " addr`; eth0, ens5, ib0, bond0; `^docker,lo,virbr` leaves others out) in the job script, so"
        " that all ranks get it; MASTER_ADDR an address of the same network; open all ports between"
        " the machines; then NCCL_DEBUG=INFO prints `Bootstrap: Using INTERFACE`",
        "docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html",
        "NVIDIA/nccl#929",
        "NVIDIA/nccl-tests#15",
        shown="notice",
    ),
    define_message(
        "nccl-local-interface",
        "NCCL talks over an interface that other machines can't reach (docker0, virbr0, lo)",
        r"(?:NCCL )?INFO (?:Bootstrap ?: Using|NET/Socket ?: Using|NET ?: Using interface) ?(?:\[\d\])?"
        r"(?:docker|br-|virbr|veth|podman|cni|lo)\S{0,40}",
        "NCCL takes the first interface that is up, and on this machine that is one of containers or"
        " virtual machines; within one machine it is harmless",
        "for several machines: export NCCL_SOCKET_IFNAME=eth0 (the interface of `ip -br addr` with"
        " the address that the other machines reach), or NCCL_SOCKET_IFNAME=^docker,lo,virbr",
        "docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html",
        "horovod/horovod#310",
        shown="notice",
        severity="info",
    ),
    define_message(
        "nccl-infiniband-failed",
        "NCCL's InfiniBand or RoCE connection failed",
        NCCL + r".{0,60}(?:NET/IB ?:.{0,120}(?:error|failed|status=)|ibv_\w+ failed|Call to ibv_)",
        "locked memory is limited (`ulimit -l`) in the container or job; a wrong GID index on RoCE; a"
        " port that is down; machines whose HCAs are cabled to different fabrics",
        "`ibstat` on each machine; --ulimit memlock=-1 for containers; NCCL_IB_HCA and"
        " NCCL_IB_GID_INDEX name the port; NCCL_IB_DISABLE=1 once proves that it is InfiniBand"
        " (slower, over sockets)",
        "docs.nvidia.com/deeplearning/nccl/user-guide/docs/troubleshooting.html",
        shown="notice",
    ),
    define_message(
        "nccl-shared-memory",
        "NCCL has too little shared memory (/dev/shm)",
        NCCL + r".{0,80}(?:/dev/shm|shared memory|posix_fallocate)",
        "containers give 64 MB to /dev/shm, and processes of one machine exchange buffers there",
        "start the container with --ipc=host or --shm-size=16g; `df -h /dev/shm` says what is left",
        "docs.nvidia.com/deeplearning/nccl/user-guide/docs/troubleshooting.html",
        shown="notice",
    ),
    define_message(
        "nccl-same-gpu-twice",
        "two processes of the run use the same GPU",
        NCCL + r".{0,40}Duplicate GPU detected",
        "CUDA_VISIBLE_DEVICES or local_rank is the same in both: every process calls .cuda() without"
        " torch.cuda.set_device(local_rank), or more processes than GPUs were started",
        "torch.cuda.set_device(int(os.environ['LOCAL_RANK'])) before the first tensor; `truetune"
        " doctor` lists the GPUs",
        "pytorch/pytorch#62316",
        shown="notice",
    ),
    define_message(
        "master-not-reached",
        "a process can't reach the first one (MASTER_ADDR:MASTER_PORT)",
        r"(?:\[c10d\] )?The (?:client socket has (?:failed to connect|timed out)|IPv[46] network"
        r" addresses of \(.{1,80}\) cannot be retrieved).{0,80}(?:gai error|Connection (?:refused|timed"
        r" out)|No route to host|timed out after|trying to connect|\(errno: 11[013])",
        "MASTER_ADDR is a name that this machine can't resolve, localhost, or of another network; the"
        " port is closed between the machines; rank 0 has not started, or has died",
        "MASTER_ADDR must be the address of the first machine as the others see it (Slurm:"
        " `scontrol show hostnames $SLURM_JOB_NODELIST | head -1`); `nc -zv $MASTER_ADDR"
        " $MASTER_PORT` from each machine",
        "torch/csrc/distributed/c10d/socket.cpp",
        "pytorch/pytorch#73320",
        shown="notice",
    ),
    define_message(
        "nodes-did-not-meet",
        "the nodes of the run did not meet within the time for it",
        r"RendezvousTimeoutError",
        "MASTER_ADDR (or rdzv_endpoint) means each node itself (localhost, 127.0.0.1); a firewall closes the port"
        " between the nodes; the nodes have different ports or rdzv ids; fewer nodes were started than nnodes names",
        "give all nodes the name of the first one (Slurm: `MASTER_ADDR=$(scontrol show hostnames"
        ' "$SLURM_JOB_NODELIST" | head -n 1)`), one port and one --rdzv-id; try `nc -zv $MASTER_ADDR'
        " $MASTER_PORT` from another node; `truetune check JOB` reads the job's file",
        "torch/distributed/elastic/rendezvous/dynamic_rendezvous.py",
        "pytorch/pytorch#116304",
        "ymcui/Chinese-LLaMA-Alpaca-2#274",
        is_consequence=True,
    ),
    define_message(
        "ranks-did-not-join",
        "not all processes of the run came to the meeting: some never started, or can't reach it",
        r"waiting for clients\. \d+/\d+ clients joined|DistNetworkError: The client socket has"
        r"|connect\(\) timed out|failed to connect to \[?\S{1,80}\]?:\d+",
        "num_machines or nnodes is larger than what was started; a machine failed at once (its own"
        " exception is in its own file); MASTER_ADDR or the port can't be reached; machine_rank is"
        " the same on two machines",
        "start the same command on every machine with its own --node-rank (or --machine_rank);"
        " `nc -zv $MASTER_ADDR $MASTER_PORT` from each; read `truetune diagnose` on each machine's"
        " output",
        "torch/csrc/distributed/c10d/TCPStore.cpp",
        "pytorch/pytorch#118369",
        is_consequence=True,
    ),
)
"""By how special they are"""
