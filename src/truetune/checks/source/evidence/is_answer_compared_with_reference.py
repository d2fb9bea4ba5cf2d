"""Says whether code compares an answer with a reference, by the names that it uses."""

from __future__ import annotations

import ast
import re

REFERENCE = re.compile(r"answer|gold|target|label|reference|expected|truth|solution", re.I)
# Matched in the text of each side: `row["answer"]`, `gold`, `batch.target_text`. Names are all that tells a reference
# from any other string, so a reference called `x` is missed rather than every equality counted as a score.


def is_equality_with_reference(compare: ast.Compare) -> bool:
    """Is it an equality, `a == b`, where one side is named as references are?"""
    is_equal = len(compare.ops) == 1 and isinstance(compare.ops[0], ast.Eq)
    sides = [compare.left, *compare.comparators]
    return is_equal and any(REFERENCE.search(ast.unparse(side)) for side in sides)
