"""Signs of what causes odd metrics."""

from __future__ import annotations

from truetune.troubleshooting.signs.sign import Sign

SIGNS: tuple[Sign, ...] = ()
