from pathlib import Path

from bench.bugs.inputs.rows import chats, write
from bench.bugs.inputs.tokenizers import edited


def make(folder: Path, broken: bool, tokenizer: Path) -> None:
    write(folder / "train.jsonl", chats(40))
    edits = {
        "qwen2.5-instruct": {"eos_token": "<|endoftext|>", "pad_token": "<|fim_pad|>"},
        "llama3.1-instruct": {"eos_token": "<|end_of_text|>"},
        "gemma3": {"eos_token": "<eos>"},
    }[tokenizer.name]
    if not broken:
        edits["eos_token"] = {"q": "<|im_end|>", "l": "<|eot_id|>", "g": "<end_of_turn>"}[
            tokenizer.name[0]
        ]
    edited(tokenizer, folder / "tokenizer", {"tokenizer_config.json": edits})
    (folder / "tokenizer" / "generation_config.json").unlink()
