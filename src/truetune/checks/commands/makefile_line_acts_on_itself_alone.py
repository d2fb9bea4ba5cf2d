"""A line of a Makefile sets something that the next line does not see.

## What it does
Finds lines in a Makefile's recipes that only set a variable (`export CUDA_VISIBLE_DEVICES=0`), change the folder
(`cd train`) or activate an environment (`source .venv/bin/activate`, `conda activate x`), with another line of the same
recipe after them. It skips files with `.ONESHELL`.

## Why it is bad
make starts a shell for each line. The variable, the folder and the environment are gone when the next line starts: the
training uses all GPUs, another folder's files or another Python.

## Example
```yaml
files:
  Makefile: "train:\\n\\texport CUDA_VISIBLE_DEVICES=0,1\\n\\ttorchrun --nproc_per_node 2 sft.py --output_dir out\\n"
```

## Use instead
```yaml
files:
  Makefile: "train:\\n\\tCUDA_VISIBLE_DEVICES=0,1 torchrun --nproc_per_node 2 sft.py --output_dir out\\n"
```

## Fix safety
The line takes effect for the first time.

## References
- GNU make manual, "Recipe Execution" and "One Shell"
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.rule import CommandRule
from truetune.parsing.makefile_recipes_as_shell_lines import is_makefile
from truetune.parsing.shell_commands import CommandFile

SETS_ALONE = re.compile(
    r"(?:export\s+\w+=\S*(?:\s+\w+=\S*)*|cd\s+\S+|(?:source|\.)\s+\S*activate\S*|conda\s+activate\s+\S+|\w+=\S+)"
    r"\s*;?"
)
"""A whole line of a recipe that ends with its shell"""


class RecipeLine(NamedTuple):
    """A line of a recipe, with the line behind it."""

    number: int
    text: str
    following: str


class MakefileLineActsOnItselfAlone(CommandRule):
    code = "CMD252"
    fault = Fault.CODE_WITHOUT_EFFECT
    symptoms = ("several-gpus",)
    severity = "error"
    what = "lines of a Makefile's recipes"

    @staticmethod
    def examined_places(file: CommandFile) -> Iterator[RecipeLine]:
        """The lines of recipes that have another one behind them."""
        if not is_makefile(Path(file.path)) or ".ONESHELL" in file.text:
            return
        lines = file.text.splitlines()
        for number, (line, following) in enumerate(pairwise(lines), 1):
            if line.startswith("\t") and following.startswith("\t") and not line.endswith("\\"):
                yield RecipeLine(number, line.strip().lstrip("@+-").strip(), following.strip())

    def findings(self) -> Iterator[Finding]:
        for line in self.examined_places(self.subject):
            if SETS_ALONE.fullmatch(line.text) is None:
                continue
            yield self.finding(
                f"make runs each line in a shell of its own: `{line.text}` has no effect on the lines after it",
                "put it on the line of the command that needs it, with && between",
                cases=[self.case_at(line.number, line.text)],
            )
