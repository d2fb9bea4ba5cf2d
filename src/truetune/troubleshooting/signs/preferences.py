"""Signs of what causes a preference training without effect."""

from __future__ import annotations

from truetune.troubleshooting.signs.sign import Sign

SIGNS: tuple[Sign, ...] = ()
