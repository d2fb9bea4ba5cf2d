"""The ways in which a distillation may compare the student's prediction with the teacher's, by name.

They stand apart from the measurement, which needs torch: rules read them where torch is not installed.
"""

from __future__ import annotations

AS_SET = "as the settings say"
OPPOSITE = "in the opposite direction"
TOKEN_BEFORE = "with the teacher's prediction of the token before"
TOKEN_AFTER = "with the teacher's prediction of the token after"
