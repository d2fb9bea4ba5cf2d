"""What the rules on cut rows and cut answers share: what a cut loses, and how a cut by a slice is known."""

from __future__ import annotations

ENDS_ARE_LOST = (
    "what is cut is the end of a row: the rest of the answer and the stop token after it, so that the model is"
    " not taught to stop after long answers"
)
"""Evidence of a finding on rows that are cut, and not left out"""
MIN_SHARE_AT_ONE_LENGTH = 0.8
"""Share of the cut answers with one number of characters from which a slice cut them. Chosen, not measured: a strip
after the slice shortens a sixth of them by a space, and texts cut by tokens hardly ever have one length"""
