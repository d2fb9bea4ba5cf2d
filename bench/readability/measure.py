"""Figures of a code base's syntax: comments, names, complexity, dense expressions.

Each figure is counted over the syntax trees of all files below a folder, so that another project can be measured in
the same way. The trade-off: complexity counts each branch and each `and`/`or` of a function with those of functions
inside of it, which is stricter than mccabe (ruff's C901); the limit of 12 is meant in this count.
"""

from __future__ import annotations

import ast
import io
import re
import statistics
import tokenize
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

LONGEST_LINE = 100
MAX_COMPLEXITY = 12
"""The issue's limit; a function above it takes several readings to follow"""
VAGUE_NAMES = frozenset(
    [
        "found",
        "made",
        "told",
        "said",
        "mine",
        "asked",
        "given",
        "shown",
        "theirs",
        "tried",
        "spoken",
        "proven",
        "judged",
    ]
)
"""Participles and pronouns that do not say what a value is"""
PRAGMA = re.compile(r"#\s*(noqa|type:|fmt:|ruff|pragma|!)")
"""Comments for tools, which explain nothing"""
BRANCHES = (ast.If, ast.For, ast.While, ast.IfExp, ast.ExceptHandler, ast.Assert, ast.match_case)
Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True, slots=True)
class MeasuredFile:
    """What is counted in one file."""

    lines: int
    long_lines: int
    comments: int
    """Comments that are not for a tool"""
    top_level_functions: int
    one_word_functions: int
    """Of the top-level functions, those whose name is a single word"""
    bindings: int
    """Parameters and assigned names"""
    vague_bindings: int
    comprehensions: int
    ternaries: int
    walruses: int
    complexities: tuple[int, ...]
    """Of each function"""


@dataclass(frozen=True, slots=True)
class Readability:
    """Figures of all files together."""

    lines: int
    files: int
    median_file: float
    """Lines"""
    comments_per_1000: float
    one_word_share: float
    vague_share: float
    comprehensions_per_1000: float
    ternaries_per_1000: float
    walruses_per_1000: float
    mean_complexity: float
    functions: int
    too_complex: int
    """Functions above MAX_COMPLEXITY"""
    long_line_share: float


def measure_folder(folder: Path) -> Readability:
    """Figures over all Python files below a folder.

    Raises:
        ValueError: there is none.
    """
    files = [measure_file(path) for path in sorted(folder.rglob("*.py"))]
    if not files:
        raise ValueError(f"{folder}: no Python files below")
    lines = sum(file.lines for file in files)
    complexities = [value for file in files for value in file.complexities]
    return Readability(
        lines=lines,
        files=len(files),
        median_file=statistics.median(file.lines for file in files),
        comments_per_1000=_per_thousand([file.comments for file in files], lines),
        one_word_share=_share(
            [file.one_word_functions for file in files],
            [file.top_level_functions for file in files],
        ),
        vague_share=_share([f.vague_bindings for f in files], [f.bindings for f in files]),
        comprehensions_per_1000=_per_thousand([file.comprehensions for file in files], lines),
        ternaries_per_1000=_per_thousand([file.ternaries for file in files], lines),
        walruses_per_1000=_per_thousand([file.walruses for file in files], lines),
        mean_complexity=statistics.mean(complexities) if complexities else 0,
        functions=len(complexities),
        too_complex=sum(value > MAX_COMPLEXITY for value in complexities),
        long_line_share=_share([file.long_lines for file in files], [file.lines for file in files]),
    )


def measure_file(path: Path) -> MeasuredFile:
    """What is counted in one file."""
    text = path.read_text(encoding="utf-8")
    tree = ast.parse(text)
    nodes = list(ast.walk(tree))
    top_level = [node for node in tree.body if isinstance(node, Function)]
    names = list(_bound_names(nodes))
    return MeasuredFile(
        lines=text.count("\n"),
        long_lines=sum(len(line) > LONGEST_LINE for line in text.splitlines()),
        comments=sum(not PRAGMA.match(comment) for comment in _comments(text)),
        top_level_functions=len(top_level),
        one_word_functions=sum("_" not in function.name.strip("_") for function in top_level),
        bindings=len(names),
        vague_bindings=sum(name.strip("_") in VAGUE_NAMES for name in names),
        comprehensions=sum(isinstance(node, ast.comprehension) for node in nodes),
        ternaries=sum(isinstance(node, ast.IfExp) for node in nodes),
        walruses=sum(isinstance(node, ast.NamedExpr) for node in nodes),
        complexities=tuple(complexity(node) for node in nodes if isinstance(node, Function)),
    )


def complexity(function: Function) -> int:
    """One more than the branches, conditions and loops of a function."""
    count = 1
    for node in ast.walk(function):
        if isinstance(node, BRANCHES):
            count += 1
        elif isinstance(node, ast.comprehension):
            count += 1 + len(node.ifs)
        elif isinstance(node, ast.BoolOp):
            count += len(node.values) - 1
    return count


def functions_too_complex(folder: Path) -> Iterator[tuple[int, Path, str]]:
    """(complexity, file, name) of each function above MAX_COMPLEXITY."""
    for path in sorted(folder.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, Function) and complexity(node) > MAX_COMPLEXITY:
                yield complexity(node), path, node.name


def _comments(text: str) -> Iterator[str]:
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            yield token.string


def _bound_names(nodes: Sequence[ast.AST]) -> Iterator[str]:
    """The names of parameters and of assigned variables."""
    for node in nodes:
        if isinstance(node, ast.arg):
            yield node.arg
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id


def _per_thousand(counts: Sequence[int], lines: int) -> float:
    return 1000 * sum(counts) / lines


def _share(counts: Sequence[int], totals: Sequence[int]) -> float:
    total = sum(totals)
    return sum(counts) / total if total else 0
