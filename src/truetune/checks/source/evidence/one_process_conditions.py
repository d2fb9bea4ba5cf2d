"""Says whether only one of several processes meets a condition:

`rank == 0`, `accelerator.is_main_process`.

How it works: the text of a condition is searched for the usual spellings; a name, an attribute or a
call of a function of the project is followed to what it was set to, or returns.

The trade-off: a spelling that is not listed is no such condition, so that what depends on it is not
told.
"""

from __future__ import annotations

import ast
import re

from truetune.source.parsed_source_file import Module

ONE_PROCESS_TEST = re.compile(
    r"is_(local_)?main_process|is_(world|local)_process_zero|is_global_zero|\b(local_|global_)?rank\s*==\s*0"
    r"|get_rank\(\)\s*==\s*0|process_index\s*==\s*0|RANK['\"][\])]+\s*==\s*0"
)
NEGATION = re.compile(r"\bnot\b|\bor\b|!=")
"""What makes a condition on the first process one that others meet"""


def is_one_process_test(module: Module, test: ast.expr) -> bool:
    """Does only one process meet the condition, as it stands or by the names that it reads?"""
    text = ast.unparse(test)
    if ONE_PROCESS_TEST.search(text):
        return not NEGATION.search(text)
    parts = test.values if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And) else [test]
    return any(_names_one_process_condition(module, part) for part in parts)


def _names_one_process_condition(module: Module, part: ast.expr) -> bool:
    """Is it a name or attribute that was set to such a condition (`main =
    accelerator.is_main_process`, `self.main`), or a call of a function that returns one?"""
    follows = isinstance(part, ast.Name | ast.Attribute | ast.Call)
    origins = module.flow.origins(part) if follows else ()
    texts = [ast.unparse(origin.node) for origin in origins if isinstance(origin.node, ast.expr)]
    return bool(texts) and all(
        ONE_PROCESS_TEST.search(text) and not NEGATION.search(text) for text in texts
    )
