"""GPUs exchange gradients over a slow path: TCP between nodes, or host memory within one.

## What it does
Reads what NCCL prints with NCCL_DEBUG=INFO: `via NET/Socket` and `Using network Socket` in a run on several nodes,
`NCCL_IB_DISABLE set by environment to 1`, `GDR 0`, and within a node channels over TCP or shared memory if
NCCL_P2P_DISABLE or NCCL_SHM_DISABLE is set. An InfiniBand library that can't be opened (`Failed to open libibverbs.so`,
as in plain Python images) is named as the cause, with the image of a Dockerfile beside the log. If logs with other
numbers of nodes were given too, their step times are shown for comparison. `Using network Socket` on one machine is not
reported: nothing goes over the network there.

## Why it is bad
At each step, every process (one per GPU) sends twice as many bytes as its gradients have. For 8 billion parameters in
bfloat16, InfiniBand at 400 Gbit/s needs less than a second and TCP at 10 Gbit/s about half a minute, while the GPUs
wait.

## Example
```yaml
output: |
  n1:7:9 [0] NCCL INFO NCCL_IB_DISABLE set by environment to 1.
  n1:7:9 [0] NCCL INFO Using network Socket
  n1:7:9 [0] NCCL INFO comm 0x5 rank 0 nRanks 16 nNodes 2 localRanks 8 localRank 0 MNNVL 0
  n1:7:9 [0] NCCL INFO Channel 00/0 : 0[0] -> 8[0] [send] via NET/Socket/0
  n1:7:9 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM
  {'loss': 2.31, 'grad_norm': 1.2, 'learning_rate': 2e-05, 'epoch': 0.1}
```

## Use instead
```yaml
output: |
  n1:7:9 [0] NCCL INFO Using network IB
  n1:7:9 [0] NCCL INFO comm 0x5 rank 0 nRanks 16 nNodes 2 localRanks 8 localRank 0 MNNVL 0
  n1:7:9 [0] NCCL INFO Channel 00/0 : 0[0] -> 8[0] [send] via NET/IB/0/GDRDMA
  n1:7:9 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM
  {'loss': 2.31, 'grad_norm': 1.2, 'learning_rate': 2e-05, 'epoch': 0.1}
```

## Fix safety
Results stay the same. If a run used to hang with the fast path enabled, that cause comes back: look for it with
NCCL_DEBUG=INFO.

## References
- docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html; huggingface/accelerate#1510 (P2P of RTX 4000)
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from truetune.checks.faults import Fault
from truetune.checks.findings import Case, Finding
from truetune.checks.rule import OutputRule
from truetune.logs.console.nccl_transports import INFINIBAND, TCP, NcclTransports
from truetune.logs.facts_in_files_beside_log import IMAGE_WITHOUT_VERBS, RunBeside
from truetune.logs.size_and_speed_of_run_by_log import outline_run
from truetune.settings.run_spec import Severity

OVER_TCP = ("NCCL_IB_DISABLE", "NCCL_NET")
WITHIN_NODE = ("NCCL_P2P_DISABLE", "NCCL_SHM_DISABLE")
SLOWER = 1.5
"""Times as long a step on more nodes that is worth a warning; the same rows on each GPU take the same time"""


class GradientsCrossASlowNetwork(OutputRule):
    code = "LOG066"
    fault = Fault.GPUS_COMMUNICATE_SLOWLY
    symptoms = ("several-gpus",)
    severity = "warning"

    def measurement_if_clean(self) -> str:
        """The number of NCCL's channels of each kind; empty where none is printed."""
        output = self.subject.output
        if output is None or not output.transports.channels:
            return ""
        named = (f"{kind} {count:,}" for kind, count in output.transports.channels)
        return f"NCCL's channels: {', '.join(named)}"

    def findings(self) -> Iterator[Finding]:
        output = self.subject.output
        if output is None:
            return
        transports = output.transports
        if transports.nodes > 1 and _uses_tcp(transports):
            yield self._finding_on_tcp(transports)
        elif transports.nodes > 1 and transports.count(INFINIBAND) and not transports.is_direct:
            yield self._finding_without_gpudirect(transports)
        if transports.disabling_variables.intersection(WITHIN_NODE) and not _has_one_gpu_per_node(
            transports
        ):
            yield self._finding_within_node(transports)

    def _finding_on_tcp(self, transports: NcclTransports) -> Finding:
        """The finding that nodes exchange gradients over TCP."""
        compared, is_slower = self._step_times_beside_and_is_slower(transports)
        switched = " and ".join(sorted(transports.disabling_variables.intersection(OVER_TCP)))
        why = f": {switched} turns InfiniBand off" if switched else ""
        lacks_library = not switched and transports.lacks_library[0] > 0
        if not switched and transports.finds_no_device:
            why = ": NCCL finds no InfiniBand device"
        elif lacks_library:
            why = ": libibverbs can't be opened, so NCCL does not look for InfiniBand"
        first = f"unset {switched} if the nodes have InfiniBand or RoCE (`ibstat` shows it)"
        if not switched:
            first = (
                "check with `ibstat` and in the container (/dev/infiniband) whether the nodes have InfiniBand or RoCE;"
                " on a cloud, install its NCCL plugin (EFA: aws-ofi-nccl; GPUDirect-TCPX)"
            )
        if lacks_library:
            first = (
                "if the nodes have InfiniBand or RoCE (`ibstat` shows it), install the library in the image (Debian and"
                " Ubuntu: rdma-core libibverbs1 ibverbs-providers) or start from an image that has it"
                " (nvcr.io/nvidia/pytorch), and give the container /dev/infiniband"
            )
        severity: Severity = "warning" if switched or is_slower or lacks_library else "info"
        return self.finding(
            f"the {transports.nodes:,} nodes exchange gradients over TCP (NET/Socket){why}",
            f"{first}; if there is only TCP, name the fastest network card (NCCL_SOCKET_IFNAME), accumulate gradients"
            " without exchanging them (no_sync), or train an adapter, whose gradients are small",
            severity=severity,
            evidence=(*_channels_by_kind(transports), *compared),
            cases=tuple(self._cases(transports, OVER_TCP)),
        )

    def _finding_without_gpudirect(self, transports: NcclTransports) -> Finding:
        """The finding that InfiniBand reads the host's memory, not the GPU's."""
        compared, _ = self._step_times_beside_and_is_slower(transports)
        return self.finding(
            f"the {transports.nodes:,} nodes use InfiniBand without GPUDirect RDMA: each message is copied"
            " through host memory",
            "load nvidia-peermem (`lsmod | grep peermem` shows it) or use a kernel with DMA-BUF; if GPU and network"
            " card are far apart, set NCCL_NET_GDR_LEVEL=PXB or SYS",
            severity="info",
            evidence=(*_channels_by_kind(transports), *compared),
            cases=tuple(self._cases(transports, ("NCCL_NET_GDR_LEVEL",))),
        )

    def _finding_within_node(self, transports: NcclTransports) -> Finding:
        """The finding that GPUs of one node do not copy directly."""
        names = sorted(transports.disabling_variables.intersection(WITHIN_NODE))
        is_over_tcp = "NCCL_SHM_DISABLE" in names and not transports.count("P2P")
        over = "TCP" if is_over_tcp else "host memory"
        return self.finding(
            f"GPUs of one node exchange gradients through {over}, because {' and '.join(names)}"
            f" {'are' if len(names) > 1 else 'is'} set",
            f"unset {' and '.join(names)}"
            + (
                ", and start the container with --shm-size 16g (or --ipc=host)"
                if is_over_tcp
                else ""
            )
            + "; only GPUs without P2P need NCCL_P2P_DISABLE (RTX 4000 with drivers before 550)",
            severity="warning" if is_over_tcp else "info",
            evidence=tuple(_channels_by_kind(transports)),
            cases=tuple(self._cases(transports, WITHIN_NODE)),
        )

    def _cases(self, transports: NcclTransports, names: tuple[str, ...]) -> Iterator[Case]:
        """Cases: the lines of the log, and those of files beside it that set the variables."""
        output = self.subject.output
        file = output.file if output is not None else None
        for name, text, line in transports.disabled:
            if name in names:
                yield Case(text, file=file, line=line)
        for setting in dict.fromkeys(self.subject.files_beside.settings_named(*names)):
            yield Case(setting.text, file=setting.file, line=setting.line)
        if names == OVER_TCP and transports.lacks_library[0]:
            line, text = transports.lacks_library
            yield Case(text, file=file, line=line)
            for setting in self.subject.files_beside.settings_named(IMAGE_WITHOUT_VERBS):
                yield Case(setting.text, file=setting.file, line=setting.line)
        if transports.line:
            yield Case(transports.text, file=file, line=transports.line)

    def _step_times_beside_and_is_slower(
        self, transports: NcclTransports
    ) -> tuple[tuple[str, ...], bool]:
        """Step times of runs on other numbers of nodes, as evidence, and whether this run is slower
        than one on fewer nodes.
        """
        own = outline_run(self.subject)
        if own is None or own.step_seconds is None:
            return (), False
        others = [
            run for run in self.subject.files_beside.runs if _is_timed_run_of_other_size(run, own)
        ]
        lines = [
            f"a step takes {own.step_seconds:.3g} s here, {run.step_seconds:.3g} s in {Path(run.file).name}"
            f" ({_size_in_words(run)})"
            for run in others
        ]
        fewer = [run.step_seconds for run in others if (run.nodes or 1) < transports.nodes]
        is_slower = any(seconds and own.step_seconds >= SLOWER * seconds for seconds in fewer)
        return tuple(lines), is_slower


def _uses_tcp(transports: NcclTransports) -> bool:
    """Do channels go over TCP, or is it the only network of a run whose channels are not printed?"""
    return transports.count(TCP) > 0 or (not transports.channels and transports.network == "Socket")


def _has_one_gpu_per_node(transports: NcclTransports) -> bool:
    """Is it a run of one GPU on each node, which exchanges nothing within a node?"""
    return transports.ranks > 0 and transports.ranks <= max(1, transports.nodes)


def _is_timed_run_of_other_size(run: RunBeside, own: RunBeside) -> bool:
    """Is it another run, with another number of nodes or processes, whose steps are timed?"""
    if run.file == own.file or run.step_seconds is None:
        return False
    return (run.nodes or 1, run.processes) != (own.nodes or 1, own.processes)


def _size_in_words(run: RunBeside) -> str:
    """The number of nodes and processes of a run: `1 node, 8 processes`, as far as it is known."""
    nodes = f"{run.nodes or 1} node{'s' * ((run.nodes or 1) > 1)}"
    return nodes + (f", {run.processes} processes" if run.processes else "")


def _channels_by_kind(transports: NcclTransports) -> Iterator[str]:
    """Evidence: how many channels there are of each kind."""
    if transports.channels:
        named = (f"{count:,} via {kind}" for kind, count in transports.channels)
        yield f"NCCL's channels: {', '.join(named)}"
    if transports.lacks_direct:
        yield "NCCL reports that network cards can't read GPU memory (GDR 0)"
