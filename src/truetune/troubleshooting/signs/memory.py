"""Signs of what causes memory that runs out."""

from __future__ import annotations

from truetune.troubleshooting.signs.sign import Sign

SIGNS: tuple[Sign, ...] = ()
