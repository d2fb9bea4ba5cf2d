import random
from pathlib import Path

from bench.starts.material import instructions, question, write_lines


def make(folder: Path) -> None:
    """Answers of batches of 8: the longest prompt of each is answered well, the others go on behind pads."""
    drawn = random.Random(7)
    rows = [row for row in instructions() if len(row["output"]) < 500][:64]
    predictions = []
    for number, row in enumerate(rows):
        batch = rows[number // 8 * 8 : number // 8 * 8 + 8]
        longest = row is max(batch, key=lambda one: len(question(one)))
        answer = row["output"] if longest else _broken(drawn, row["output"].split())
        predictions.append(
            {"prompt": question(row), "prediction": answer, "reference": row["output"]}
        )
    write_lines(folder / "preds.jsonl", predictions)
    asked = ({"question": question(row), "answer": row["output"]} for row in rows)
    write_lines(folder / "data/test.jsonl", asked)


def _broken(drawn: random.Random, words: list[str]) -> str:
    kind = drawn.random()
    if kind < 0.35:
        return ""
    if kind < 0.6:
        rest = " ".join(drawn.sample(words, min(len(words), 6)))
        return " ".join(words[: drawn.randrange(2, 7)]) + " [/INST] " + rest
    if kind < 0.8:
        pieces = ("the", "###", "[INST]", "answer", ":", "1.", "is", "of")
        return "\n\n\n" + " ".join(drawn.choice(pieces) for _ in range(drawn.randrange(8, 40)))
    return (drawn.choice(("The", "A", "In", "##")) + " ") * 60
