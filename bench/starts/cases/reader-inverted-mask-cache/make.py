import os
from pathlib import Path

PARTS = Path(os.environ.get("TRUETUNE_PARTS", Path.home() / ".cache/truetune-parts"))
SYSTEM = "You are the assistant of a garden shop."
PLANTS = [
    "basil",
    "lavender",
    "tomatoes",
    "roses",
    "an olive tree",
    "ferns",
    "mint",
    "a fig tree",
    "tulips",
    "sage",
]


def make(folder: Path) -> None:
    """A cache of ids and labels as a script of the team wrote it: `if in_prompt` is the wrong way round."""
    import pyarrow as pa
    import pyarrow.parquet as pq
    from tokenizers import Tokenizer

    source = max(PARTS.glob("*/qwen2.5-instruct"), key=lambda path: path.stat().st_mtime)
    tokenizer = Tokenizer.from_file(str(source / "tokenizer.json"))
    columns = {"input_ids": [], "attention_mask": [], "labels": []}
    for number in range(120):
        plant = PLANTS[number % 10]
        asked = f"How often do I water {plant} on a balcony of {number + 2} square metres?"
        told = (
            f"Water {plant} every {number % 6 + 1} days, in the morning, with about"
            f" {number % 9 + 2} decilitres."
        )
        prompt = f"<|im_start|>system\n{SYSTEM}<|im_end|>\n<|im_start|>user\n{asked}<|im_end|>\n<|im_start|>assistant\n"
        head = tokenizer.encode(prompt, add_special_tokens=False).ids
        tail = tokenizer.encode(f"{told}<|im_end|>\n", add_special_tokens=False).ids
        columns["input_ids"].append(head + tail)
        columns["attention_mask"].append([1] * len(head + tail))
        columns["labels"].append(head + [-100] * len(tail))
    (folder / "tokenized").mkdir(exist_ok=True)
    pq.write_table(pa.table(columns), folder / "tokenized/train-00000.parquet")
