import random
from pathlib import Path

from bench.starts.material import articles, instructions, link_tokenizer, question, write_lines


def make(folder: Path) -> None:
    """Rows of which all that are trained on are short, and 40 of 100 for validation are too long."""
    train = (_row(question(row), row["output"][:900]) for row in instructions()[:640])
    write_lines(folder / "train.jsonl", train)
    valid = [_row(question(row), row["output"][:300]) for row in instructions()[664:724]]
    for article in articles()[:40]:
        first, _, rest = article.partition(". ")
        valid.append(_row(f"Summarise the article in one sentence.\n\n{rest}", f"{first}."))
    random.Random(5).shuffle(valid)
    write_lines(folder / "valid.jsonl", valid)
    link_tokenizer("qwen2.5-instruct", folder / "models/Qwen2.5-1.5B-Instruct")


def _row(prompt: str, completion: str) -> dict[str, str]:
    return {"prompt": prompt, "completion": completion}
