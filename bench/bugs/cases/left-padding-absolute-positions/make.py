from pathlib import Path

from bench.bugs.inputs.rows import questions, write
from bench.bugs.inputs.tokenizers import edited


def make(folder: Path, broken: bool, tokenizer: Path) -> None:
    write(
        folder / "train.jsonl",
        [{"text": f"Q: {asked}\nA: {answer}"} for asked, answer in questions(40)],
    )
    config = {
        "model_type": "gpt2",
        "architectures": ["GPT2LMHeadModel"],
        "vocab_size": 50304,
        "n_positions": 1024,
    }
    side = "left" if broken else "right"
    edited(
        tokenizer,
        folder / "tokenizer",
        {"config.json": config, "tokenizer_config.json": {"padding_side": side}},
    )
