import random
from pathlib import Path

from bench.starts.material import pages, write_lines

SHORT = ("Abb. 7", "Fig. 3b", "IP67", "M8x40", "QX-11", "Rev C", "p. 12", "— 3 —")


def make(folder: Path) -> None:
    """Texts of manuals, and a few that are no longer than a caption."""
    drawn = random.Random(5)
    texts = [*pages()[:213], *(drawn.choice(SHORT) for _ in range(30))]
    drawn.shuffle(texts)
    write_lines(folder / "heldout.jsonl", ({"text": text} for text in texts))
