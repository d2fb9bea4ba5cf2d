"""The code blocks of README.md, CONTRIBUTING.md and docs/, and how they are run. For whoever writes a page:

- `sh`: run, line by line, from the top, in a new copy of the prepared folder; a block with `<<`, `for`, `if`, `cd` or
  variables as one script. Each line must end with exit code 0, or 1 (findings). `truetune` is this one, `python` this
  Python. A comment behind a command is fine; a line that goes on ends with a backslash. Long commands get smaller
  numbers (unrun.SMALL), as `--max-new-tokens 16`.
- `console`: the same for the lines behind `$ `, with their own numbers. The lines below one are its output, whole, from
  the first to the last: `...` on a line of its own stands for lines left out, in a line for anything. Times, speeds,
  versions and ports may differ, and so may fractions where a model is trained or asked; all else may not (shown.py).
- `python`: run in a new copy of the prepared folder. Names that it does not make are made for it, where they are one
  of preludes.NAMES: `model`, `tokenizer`, `trainer`, `rows`, `dataset`, `loader`, ... All else must stand in the block.
- `yaml`: read by the reader of whatever it is (truetune's settings, Axolotl, LLaMA-Factory, TRL, accelerate, a
  workflow): an unknown key is a failure.
- `json`, `jsonl`: parsed. `text` and blocks without a language, the next behind one that is run, are its output, and
  compared as in `console`; or else shown.py has a reason for them. `diff`, `jinja`: not run.
- `truetune` commands in all of these, indented blocks (all lines from one that begins with `truetune `), and `inline
  code` that begins with `truetune ` are held against the command line: unknown commands and options fail.
- A comment straight above a block says what is different: `<!-- test: continues -->` (in the same folder, and with the
  same names, as the block before), `<!-- test: exit=1 -->` (this exit code, of the last line, and no other),
  `<!-- test: needs=math_verify -->` (run only where this module is installed).
- Directives (`{toctree}`, `{figure}`) are the site's.
- Slow commands (test_blocks.SLOW) are run once, however often the line stands on the pages, but where blocks go on:
  write them the same (`truetune rehearse -- python train.py`), they cost seconds.
- What can't be run here (another machine, a GPU, a package index) stands in unrun.py with its reason; its commands are
  held against the command line all the same. Write blocks that run.

The prepared folder (stage.py) holds, all of it small and made by truetune where truetune makes it:

    path/to/model, path/to/base, model     a model of two layers with its tokenizer (ChatML; pad is not eos) and weights
    chats.jsonl, data/*.parquet            64 support chats (messages)
    held-out.jsonl                         20 more
    pairs.jsonl, judged.jsonl              preference pairs; KTO (prompt, completion, label)
    truetune.yaml                          settings of a short LoRA run: model, chats.jsonl, outputs; there only for
                                           blocks that name it
    axolotl.yaml, llama_factory.yaml, trl.yaml, sft.yaml     configs of the others over the same model and chats
    train.py, notebook.ipynb, notebooks/   a script that trains with transformers' Trainer, notebooks
    train_trl.py                           the same with TRL's SFTTrainer
    outputs/                               what `truetune train truetune.yaml` left: an adapter, record, samples, log
    outputs/adapter, outputs/checkpoint-4  the same adapter alone; a checkpoint of the run
    outputs/run-3, outputs/run-3/checkpoint-500     a plain Trainer's run: its log (trainer_state.json), a checkpoint
    trainer_log.jsonl                      a log alone
    merged/                                outputs merged into its base
    encoded/, packed/, weighted/           chats.jsonl encoded: plain, --packing best-fit, --loss-weights
    http://localhost:8000                  transformers serve (at another port) of `merged`, or of a folder named
                                           by --served-model

A command finds absent what it is to make: `truetune init` its file, `train`, `merge` and `encode` their output folder.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from markdown_it import MarkdownIt

ROOT = Path(__file__).parents[2]
INDENTED = "indented"
GENERATED = ("docs/rules/", "docs/reference/")
"""Pages that the site's build writes: their blocks are those of docstrings, which tests/checks/test_pages.py runs"""
_NOTE = re.compile(r"<!-- test: (.*?) -->\s*$")


@dataclass(frozen=True, slots=True)
class Block:
    """One code block."""

    page: str
    """From the root"""
    line: int
    """Of its first line of code, from 1"""
    language: str
    """Of its fence; INDENTED where it has none"""
    text: str
    note: str = ""
    """Of the comment above it"""

    @property
    def id(self) -> str:
        """As pytest names it."""
        return f"{self.page}:{self.line}"


def pages() -> list[Path]:
    """All of them, in one order."""
    found = sorted((ROOT / "docs").rglob("*.md"))
    written = [
        page for page in found if not page.relative_to(ROOT).as_posix().startswith(GENERATED)
    ]
    return [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *written]


@cache
def blocks() -> tuple[Block, ...]:
    """Of all pages."""
    return tuple(block for page in pages() for block in blocks_of(page))


def blocks_of(page: Path) -> Iterator[Block]:
    """Of one page, in their order."""
    note = ""
    for token in MarkdownIt("commonmark").enable("table").parse(page.read_text(encoding="utf-8")):
        if token.type in ("fence", "code_block") and not token.info.startswith("{"):
            first = (token.map or [0])[0] + (2 if token.type == "fence" else 1)
            language = (token.info.split() or ["text"])[0] if token.type == "fence" else INDENTED
            yield Block(page.relative_to(ROOT).as_posix(), first, language, token.content, note)
        found = _NOTE.search(token.content) if token.type == "html_block" else None
        note = found[1] if found else ""


def inline(page: Path) -> Iterator[tuple[int, str]]:
    """(line, code) of a page's inline code, tables included."""
    for token in MarkdownIt("commonmark").enable("table").parse(page.read_text(encoding="utf-8")):
        if token.type == "inline":
            for child in token.children or []:
                if child.type == "code_inline":
                    yield (token.map or [0])[0] + 1, child.content
