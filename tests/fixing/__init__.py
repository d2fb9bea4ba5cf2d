"""Fixing rows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

from truetune.fixing.fix_file import Fixed, fix_data_file
from truetune.settings.run_spec import RunSpec


class Done(NamedTuple):
    """What a fix gave."""

    fixed: Fixed
    body: bytes
    """Of the fixed file"""
    changes: list[dict[str, Any]]
    """Without the first and the last line of the record"""
    path: Path


def fixed(
    data: Path, tokenizer: Path | None = None, *, unsafe: bool = False, **settings: Any
) -> Done:
    """The data fixed into a new file beside it."""
    suffixes = "".join(data.suffixes)
    output = data.with_name(f"fixed{suffixes}")
    spec = RunSpec(
        data=(str(data),), tokenizer=None if tokenizer is None else str(tokenizer), **settings
    )
    made = fix_data_file(spec, str(output), unsafe=unsafe)
    lines = Path(f"{output}.changes.jsonl").read_text(encoding="ascii").splitlines()
    return Done(made, output.read_bytes(), [json.loads(line) for line in lines[1:-1]], output)


def chat(
    question: Any = "Is the light house open?", answer: Any = "It is open.", **more: Any
) -> dict[str, Any]:
    """A row of one question and its answer."""
    messages = [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]
    return {"messages": messages, **more}
