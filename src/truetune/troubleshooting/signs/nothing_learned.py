"""Signs of what causes a training in which nothing is learned."""

from __future__ import annotations

from truetune.troubleshooting.signs.nothing_learned_faulty_rows import ROW_SIGNS
from truetune.troubleshooting.signs.nothing_learned_faulty_runs import RUN_SIGNS
from truetune.troubleshooting.signs.nothing_learned_wrong_model_asked import ASKED_SIGNS
from truetune.troubleshooting.signs.sign_as_statement_patterns import Sign

SIGNS: tuple[Sign, ...] = (*ASKED_SIGNS, *ROW_SIGNS, *RUN_SIGNS)
