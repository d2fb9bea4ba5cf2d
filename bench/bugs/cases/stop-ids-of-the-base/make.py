from pathlib import Path

from bench.bugs.inputs.rows import chats, write
from bench.bugs.inputs.tokenizers import edited


def make(folder: Path, broken: bool, tokenizer: Path) -> None:
    write(folder / "train.jsonl", chats(40))
    eos, id_, pad = {
        "qwen2.5-instruct": ("<|endoftext|>", 151643, "<|fim_pad|>"),
        "llama3.1-instruct": ("<|end_of_text|>", 128001, "<|finetune_right_pad_id|>"),
        "gemma3": ("<eos>", 1, "<pad>"),
    }[tokenizer.name]
    edits = {
        "tokenizer_config.json": {"eos_token": eos, "pad_token": pad},
        "generation_config.json": {"eos_token_id": id_},
    }
    edited(tokenizer, folder / "tokenizer", edits if broken else {})
