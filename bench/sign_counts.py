"""`python -m bench.sign_counts`: in how many starts each sign of a cause is shown; writes what the ranking reads.

A sign that hardly any project shows says more of its cause than one that each third shows. The counts are those of
`bench.starts`: projects of many hands, of which each has one fault, so that nearly all that show a sign lack its cause.
"""

from __future__ import annotations

import json
import tempfile
from collections import Counter
from pathlib import Path

from bench.starts.start import starts
from tests.parts.shelf import Missing
from truetune.troubleshooting.project_words import read_project_texts
from truetune.troubleshooting.signs.find_signs_in_statements import SIGNS, find_signs
from truetune.troubleshooting.signs.sign_rarity import COUNTS, count_key_of_sign


def main() -> None:
    """Count, and write the file."""
    counts: Counter[str] = Counter()
    read = 0
    for start in starts():
        with tempfile.TemporaryDirectory(prefix="signs-") as scratch:
            try:
                start.lay_out(Path(scratch))
            except Missing:
                continue
            read += 1
            counts.update(map(count_key_of_sign, find_signs(read_project_texts([scratch]))))
    keys = sorted(set(map(count_key_of_sign, SIGNS)))
    text = json.dumps({"starts": read, "counts": {key: counts[key] for key in keys}}, indent=1)
    COUNTS.write_text(f"{text}\n", encoding="utf-8")
    print(f"{len(keys)} signs, counted in {read} starts")


if __name__ == "__main__":
    main()
