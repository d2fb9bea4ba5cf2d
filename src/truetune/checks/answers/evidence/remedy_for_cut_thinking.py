"""What to do where answers end before their thinking does."""

from __future__ import annotations

REMEDY_FOR_CUT_THINKING = (
    "they end before their thinking does: give the answers room first (max_new_tokens, max_tokens, a thinking budget),"
    " or ask without thinking (enable_thinking=False) where the references have none; what the stop token learned is"
    " not seen before"
)
"""Of answers that are cut inside of `<think>`"""
