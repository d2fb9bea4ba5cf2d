"""Reads from NCCL's debug output over what the processes of a run exchange their gradients
(sockets, InfiniBand, P2P, shared memory).

Each channel between two GPUs is one line (`via NET/Socket/0`, `via P2P/CUMEM`, `via SHM/direct`). `Using network
Socket` alone says little: NCCL prints it on a single machine too, where nothing goes over the network.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field

HOST = re.compile(r"(?:^|\s)(?P<host>[\w.-]{1,63}):\d{1,8}:\d{1,8} \[\d{1,3}\] NCCL ")
CHANNEL = re.compile(r"\bvia (?P<kind>NET/Socket|NET/IB|NET/[\w ]{1,30}?|P2P|SHM|direct)(?=/|\s|$)")
NETWORK = re.compile(
    r"Using network (?P<name>[\w-]{1,40})|Initialized NET plugin (?P<plugin>[\w-]{1,40})"
)
DISABLED = re.compile(
    r"\b(?P<name>NCCL_(?:IB|P2P|SHM)_DISABLE|NCCL_NET_GDR_LEVEL|NCCL_NET) set by environment to (?P<value>\w{1,20})"
)
SIZES = re.compile(
    r"\bnranks (?P<ranks>\d{1,6})\b|\bnRanks (?P<ranks2>\d{1,6}) nNodes (?P<nodes>\d{1,5})\b"
)
WITHOUT_DEVICE = re.compile(r"NET/IB : No device found")
WITHOUT_LIBRARY = re.compile(r"Failed to open libibverbs\.so|Unable to open libibverbs")
WITHOUT_DIRECT = re.compile(r"\bGDR 0\b|GPU Direct RDMA (?:\([^)]{1,40}\) )?[Dd]isabled")
SWITCHED_OFF = {
    "NCCL_IB_DISABLE": ("1",),
    "NCCL_P2P_DISABLE": ("1",),
    "NCCL_SHM_DISABLE": ("1",),
    "NCCL_NET_GDR_LEVEL": ("0", "LOC"),
    "NCCL_NET": ("Socket",),
}
"""Values that switch a transport off"""
TCP, INFINIBAND = "NET/Socket", "NET/IB"


@dataclass(frozen=True, slots=True)
class NcclTransports:
    """How NCCL joined the processes; empty where the log does not say."""

    channels: tuple[tuple[str, int], ...] = ()
    """Kind (`NET/Socket`, `P2P`, `SHM`) and number"""
    network: str = ""
    nodes: int = 0
    ranks: int = 0
    disabled: tuple[tuple[str, str, int], ...] = ()
    """Variable, line of the log, its number"""
    finds_no_device: bool = False
    """NCCL looked for InfiniBand and found none"""
    lacks_library: tuple[int, str] = (0, "")
    """The line that says that the library of InfiniBand is not there, and its text"""
    is_direct: bool = False
    """Network cards read the memory of GPUs (GDRDMA)"""
    lacks_direct: bool = False
    """NCCL says that they do not"""
    line: int = 0
    text: str = ""
    """Of the first channel over TCP, else of the line that names the network"""

    def count(self, kind: str) -> int:
        """The number of channels of a kind of transport."""
        return dict(self.channels).get(kind, 0)

    @property
    def disabling_variables(self) -> frozenset[str]:
        """The variables that switch a transport off."""
        return frozenset(name for name, _, _ in self.disabled)


@dataclass(slots=True)
class TransportReader:
    """Takes the lines of one log, with their prefixes."""

    _hosts: set[str] = field(default_factory=set)
    _channels: Counter[str] = field(default_factory=Counter)
    _network: str = ""
    _nodes: int = 0
    _ranks: int = 0
    _disabled: dict[str, tuple[str, int]] = field(default_factory=dict)
    _no_device: bool = False
    _library: tuple[int, str] = (0, "")
    _direct: bool = False
    _no_direct: bool = False
    _first: tuple[int, str] = (0, "")
    _named: tuple[int, str] = (0, "")

    def add_line(self, text: str, number: int) -> None:
        """Read one line, with its prefixes."""
        if "NCCL" not in text:
            return
        host = HOST.search(text)
        if host is not None and len(self._hosts) < 1_000:
            self._hosts.add(host["host"])
        self._read_channel(text, number)
        self._read_network(text, number)
        self._read_disabling_variable(text, number)
        self._read_ranks_and_nodes(text)
        self._read_missing_hardware(text, number)

    def finish(self) -> NcclTransports:
        """The transports that NCCL printed."""
        line, text = self._first if self._first[0] else self._named
        return NcclTransports(
            channels=tuple(self._channels.items()),
            network=self._network,
            nodes=max(self._nodes, len(self._hosts)),
            ranks=self._ranks,
            disabled=tuple((name, said, at) for name, (said, at) in self._disabled.items()),
            finds_no_device=self._no_device,
            lacks_library=self._library,
            is_direct=self._direct,
            lacks_direct=self._no_direct,
            line=line,
            text=text,
        )

    def _read_channel(self, text: str, number: int) -> None:
        """Read a line on a channel between two GPUs."""
        channel = CHANNEL.search(text)
        if channel is None:
            return
        self._channels[channel["kind"]] += 1
        self._direct = self._direct or "GDRDMA" in text
        if channel["kind"] == TCP and not self._first[0]:
            self._first = (number, text.strip()[-200:])

    def _read_network(self, text: str, number: int) -> None:
        """Read which network NCCL says it uses."""
        network = NETWORK.search(text)
        if network is None:
            return
        self._network = network["name"] or network["plugin"]
        if not self._named[0]:
            self._named = (number, text.strip()[-200:])

    def _read_disabling_variable(self, text: str, number: int) -> None:
        """Read a variable that switches a transport off."""
        disabled = DISABLED.search(text)
        if disabled is not None and disabled["value"] in SWITCHED_OFF.get(disabled["name"], ()):
            self._disabled.setdefault(disabled["name"], (disabled[0], number))

    def _read_ranks_and_nodes(self, text: str) -> None:
        """Read the number of ranks and nodes."""
        sizes = SIZES.search(text)
        if sizes is not None:
            self._ranks = max(self._ranks, int(sizes["ranks"] or sizes["ranks2"]))
            self._nodes = max(self._nodes, int(sizes["nodes"] or 0))

    def _read_missing_hardware(self, text: str, number: int) -> None:
        """Read that there is no InfiniBand device, no library for it, or no direct way to the
        memory of a GPU.
        """
        self._no_device = self._no_device or WITHOUT_DEVICE.search(text) is not None
        if not self._library[0] and WITHOUT_LIBRARY.search(text) is not None:
            self._library = (number, text.strip()[-200:])
        self._no_direct = self._no_direct or WITHOUT_DIRECT.search(text) is not None
