"""Texts about what a row loses when its end is cut, shared by all rules on length limits."""

from __future__ import annotations

ENDS_ARE_LOST = (
    "what is cut is the end of a row: the rest of the answer and the stop token after it, so that the model is"
    " not taught to stop after long answers"
)
"""Evidence of a finding on rows that are cut, and not left out"""
