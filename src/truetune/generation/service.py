"""Service: what a server was seen to do with a model, against its training record."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Service:
    """A server that was asked."""

    url: str
