import json
import random
from pathlib import Path

from bench.starts.material import preferences, write_list


def make(folder: Path) -> None:
    """The 56 shortest pairs whose sides differ."""
    pairs = sorted(preferences(), key=lambda row: len(json.dumps(row)))
    differ = [
        row for row in pairs if row["chosen"]["value"].strip() != row["rejected"]["value"].strip()
    ]
    chosen = differ[:56]
    random.Random(31337).shuffle(chosen)
    write_list(folder / "data/support_pairs.json", chosen)
