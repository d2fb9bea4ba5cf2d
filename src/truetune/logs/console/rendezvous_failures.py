"""Reads why the machines of a torchrun job could not meet (rendezvous): endpoints and ids that
their launchers print.

Each machine's launcher prints its own settings. A meeting fails where the endpoint is a name that means each machine
itself, or where two launchers print different endpoints or ids.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

LAUNCHER_SETTING = re.compile(
    r"^\W{0,4}(?P<name>max_nodes|run_id|rdzv_endpoint)\s{0,20}:\s(?P<value>\S{1,200})\s*$"
)
LOOPBACK_ADDRESS = re.compile(
    r"(?:localhost(?:\.localdomain)?|127(?:\.\d{1,3}){3}|0\.0\.0\.0|\[?::1\]?)(?::\d+)?"
)
"""Addresses that mean, on each machine, the machine itself"""
MAX_VALUES = 64
"""Chosen, not measured: it bounds the memory; two values that differ are enough"""


@dataclass(slots=True)
class RendezvousReader:
    """Collects the values of all launchers of the output."""

    _values: dict[str, dict[str, None]] = field(default_factory=dict)

    def add_line(self, text: str) -> None:
        """Read one line without its prefixes."""
        if ":" not in text or not ("_nodes" in text or "run_id" in text or "rdzv_" in text):
            return
        match = LAUNCHER_SETTING.match(text)
        if match is not None:
            values = self._values.setdefault(match["name"], {})
            if len(values) < MAX_VALUES:
                values[match["value"]] = None

    def finish(self) -> tuple[str, ...]:
        """Why the machines could not meet, as lines of evidence; empty if nothing printed says it."""
        # one machine meets nobody: localhost is right there
        nodes = [value for value in self._values.get("max_nodes", ()) if value.isdecimal()]
        count = max(map(int, nodes), default=1)
        return tuple(self._evidence_lines(count)) if count > 1 else ()

    def _evidence_lines(self, nodes: int) -> Iterator[str]:
        """Evidence of what is wrong with the endpoint, and with the ids."""
        endpoints = list(self._values.get("rdzv_endpoint", ()))
        own = next(
            (endpoint for endpoint in endpoints if LOOPBACK_ADDRESS.fullmatch(endpoint)), None
        )
        if own is not None:
            yield (
                f"rdzv_endpoint is {own} with {nodes} nodes: on each of them that is the node itself, which waits"
                " there for the others"
            )
        elif len(endpoints) > 1:
            yield f"the launchers wait at different endpoints: {', '.join(endpoints[:4])}"
        ids = list(self._values.get("run_id", ()))
        if len(ids) > 1:
            yield f"the launchers have different rdzv ids, and so never meet: {', '.join(ids[:4])}"
