from pathlib import Path

from datasets import Dataset
from transformers import AutoTokenizer

from tests.parts.lay_out import tokenizer_folder


def make(folder: Path) -> None:
    tokenizer = AutoTokenizer.from_pretrained(tokenizer_folder("qwen2.5-instruct"))
    ids = []
    for number in range(60):
        messages = [
            {"role": "user", "content": f"What is {number} plus {number + 3}?"},
            {"role": "assistant", "content": f"It is {2 * number + 3}."},
        ]
        text = tokenizer.apply_chat_template(messages, tokenize=False)
        ids.append(tokenizer(text)["input_ids"])
    Dataset.from_dict({"input_ids": ids}).save_to_disk(str(folder / "cache"))
