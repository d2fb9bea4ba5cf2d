import random
from pathlib import Path

from bench.starts.material import instructions, link_tokenizer, question, write_table

DROPPED = 23


def make(folder: Path) -> None:
    """Questions and answers of which one answer was dropped: from there on all are one row off."""
    drawn = random.Random(23)
    rows = [row for row in instructions() if len(row["output"]) > 60][:520]
    answers = [row["output"] for row in rows]
    answers = [*answers[:DROPPED], *answers[DROPPED + 1 :], answers[-1]]
    write_table(
        folder / "data/faq.parquet",
        [
            {
                "qid": f"Q{number:05d}",
                "question": question(row),
                "answer": answer,
                "reviewed_by": drawn.choice(("ml", "kt", "ab", None)),
            }
            for number, (row, answer) in enumerate(zip(rows, answers, strict=True))
        ],
    )
    link_tokenizer("qwen2.5-instruct", folder / "models/Qwen2.5-0.5B-Instruct")
