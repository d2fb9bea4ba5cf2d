"""Signs of what causes a loss that does not fall."""

from __future__ import annotations

from truetune.troubleshooting.signs.sign import Sign

SIGNS: tuple[Sign, ...] = ()
