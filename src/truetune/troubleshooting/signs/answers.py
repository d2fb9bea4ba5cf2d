"""Signs of what causes garbage in answers, answers that never stop, and answers that are good here and bad there."""

from __future__ import annotations

from truetune.troubleshooting.signs.sign import Sign

SIGNS: tuple[Sign, ...] = ()
