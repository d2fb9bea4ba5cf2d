from pathlib import Path

from bench.starts.material import link_tokenizer, preferences, write_lines

ROLES = {"human": "user", "gpt": "assistant", "system": "system"}


def make(folder: Path) -> None:
    """The pairs and the tokenizer that the config names."""
    rows = (
        {
            "messages": [_turn(turn) for turn in row["conversations"]],
            "chosen": _turn(row["chosen"]),
            "rejected": _turn(row["rejected"]),
        }
        for row in preferences()
    )
    write_lines(folder / "data/prefs.jsonl", rows)
    link_tokenizer("llama3.1-instruct", folder / "models/Llama-3.1-8B-Instruct")


def _turn(turn: dict[str, str]) -> dict[str, str]:
    return {"role": ROLES[turn["from"]], "content": turn["value"]}
