from pathlib import Path

from bench.bugs.inputs.rows import chats, write
from bench.bugs.inputs.tokenizers import chatml, templated


def make(folder: Path, broken: bool, tokenizer: Path) -> None:
    rows = chats(150)
    write(
        folder / "train.jsonl", [row for row in rows if row["messages"][0]["role"] != "system"][:40]
    )
    said = "{{ '<|im_start|>system\\nYou are a helpful assistant.<|im_end|>\\n' }}"
    default = "{% if messages[0]['role'] != 'system' %}" + said + "{% endif %}"
    templated(tokenizer, folder / "tokenizer", chatml(before=default if broken else ""))
