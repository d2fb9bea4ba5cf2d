"""Signs of what causes a training in which nothing is learned."""

from __future__ import annotations

from truetune.troubleshooting.signs.learning_asked import ASKED_SIGNS
from truetune.troubleshooting.signs.learning_rows import ROW_SIGNS
from truetune.troubleshooting.signs.learning_runs import RUN_SIGNS
from truetune.troubleshooting.signs.sign import Sign

SIGNS: tuple[Sign, ...] = (*ASKED_SIGNS, *ROW_SIGNS, *RUN_SIGNS)
