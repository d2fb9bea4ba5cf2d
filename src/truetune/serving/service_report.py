"""The report of a serve-check: the findings of the rules on serving, with what the server was seen to do."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from truetune.checks.reports import Report
from truetune.generation.server_observations import ServerObservations


@dataclass(frozen=True, kw_only=True, repr=False)
class ServiceReport(Report):
    """What a server was seen to do, and what is wrong with it."""

    service: ServerObservations

    def more(self) -> dict[str, Any]:
        """The observations of the server, for the JSON."""
        return {"service": asdict(self.service)}
