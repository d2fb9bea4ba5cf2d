"""The share of answers cut at one number of characters from which a slice cut them."""

from __future__ import annotations

MIN_SHARE_AT_ONE_LENGTH = 0.8
"""Share of the cut answers with one number of characters from which a slice cut them. Chosen, not measured: a strip
after the slice shortens a sixth of them by a space, and texts cut by tokens hardly ever have one length"""
