"""Finds the line of a script beside a file of predictions that cuts the prompt off the generated
tokens.

Told by the text of the scripts: a script that names the file and slices what `generate` gave. Several scripts of which
one does not cut say nothing, for which of them wrote the file is not known.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

GENERATES = re.compile(r"\.generate\(|\bpipeline\(")
CUTS = re.compile(
    r"\[[^\[\]\n]*(?:shape\[-?1\]|len\([^()\n]*\)|\w*(?:prompt|input)\w*_?len\w*)\s*:\s*\]|return_full_text\s*=\s*False"
)
"""`out[:, inputs["input_ids"].shape[1]:]`, `text[len(prompt):]`, `return_full_text=False`"""
MAX_SCRIPTS = 40
"""Scripts of a folder that are read. Chosen by hand: projects have fewer; more would only take time"""
HEAD = 1 << 18
"""Bytes of a script that are read. Chosen by hand: scripts that are written by people are shorter"""


class PromptCut(NamedTuple):
    """Where a script cuts the prompt off."""

    file: Path
    line: int
    text: str


def prompt_cut_beside(predictions: Path) -> PromptCut | None:
    """Where the script that generates beside a file cuts the prompt off; None where one does not, or there is none."""
    cuts: list[PromptCut | None] = []
    try:
        scripts = sorted(predictions.absolute().parent.glob("*.py"))[:MAX_SCRIPTS]
        texts = [(path, path.read_bytes()[:HEAD].decode("utf-8", "replace")) for path in scripts]
    except OSError:
        return None
    generating = [(path, text) for path, text in texts if GENERATES.search(text)]
    named = [(path, text) for path, text in generating if predictions.name in text]
    for path, text in named or generating:
        cuts.append(_prompt_cut_in_script(path, text))
    return cuts[0] if cuts and all(cuts) else None


def _prompt_cut_in_script(path: Path, text: str) -> PromptCut | None:
    """The line of a script that cuts the prompt off."""
    for number, line in enumerate(text.splitlines(), 1):
        if CUTS.search(line):
            return PromptCut(path, number, line.strip())
    return None
