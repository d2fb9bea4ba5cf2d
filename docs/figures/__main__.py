"""`python docs/figures` draws the figures of the documents; `--check` only says which ones differ.

Those of prompts and ledgers are made from the demo that ships with truetune, that of audits from audited.json
(`python docs/figures/measure.py`), the others from the measured tables of
docs/laws.md (`python -m bench.laws --write`) and docs/recitation.md (`python -m bench.recitation --write`).
"""

from __future__ import annotations

import sys
from pathlib import Path

import first_page
import ledgers
import prompts
import tables

HERE = Path(__file__).parent
FIGURES = {
    "checked": first_page.checked,
    "provenance": prompts.provenance,
    "contract": prompts.contract,
    "ledger": ledgers.ledger,
    "audited": ledgers.audited,
    "laws": tables.laws,
    "recitation": tables.recitation,
}


def main() -> int:
    """The number of files that differ."""
    differ = 0
    for name, draw in FIGURES.items():
        path, svg = HERE / f"{name}.svg", draw().svg()
        if not path.exists() or path.read_text(encoding="utf-8") != svg:
            differ += 1
            print(f"{path.name} differs")
            if "--check" not in sys.argv:
                path.write_text(svg, encoding="utf-8")
    return differ if "--check" in sys.argv else 0


if __name__ == "__main__":
    raise SystemExit(main())
