import random
from pathlib import Path

from bench.starts.material import link_tokenizer, preferences, write_table

ROLES = {"human": "user", "gpt": "assistant", "system": "system"}


def make(folder: Path) -> None:
    """Pairs that a judge saw in both orders: 275 of 300 stand there the other way round as well."""
    drawn = random.Random(5)
    rows = []
    for number, row in enumerate(preferences()):
        pair = [_turn(row["chosen"])], [_turn(row["rejected"])]
        source = drawn.choice(("forum", "arena", "chat"))
        for order in ("AB", "BA") if number < 275 else ("AB",):
            chosen, rejected = pair if order == "AB" else pair[::-1]
            rows.append(
                {
                    "prompt": [_turn(turn) for turn in row["conversations"]],
                    "chosen": chosen,
                    "rejected": rejected,
                    "judge": "llama-3.3-70b",
                    "order": order,
                    "source": source,
                }
            )
    drawn.shuffle(rows)
    write_table(folder / "pairs.parquet", rows)
    link_tokenizer("smollm2", folder / "models/smollm2")


def _turn(turn: dict[str, str]) -> dict[str, str]:
    return {"role": ROLES[turn["from"]], "content": turn["value"]}
