"""Signs of what causes a training in which nothing is learned."""

from __future__ import annotations

from truetune.troubleshooting.signs.sign import Sign

SIGNS: tuple[Sign, ...] = ()
