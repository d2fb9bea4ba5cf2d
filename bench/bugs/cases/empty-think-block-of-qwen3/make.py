from pathlib import Path

from bench.bugs.inputs.rows import chats, write


def make(folder: Path, broken: bool, tokenizer: Path) -> None:
    write(folder / "train.jsonl", chats(40))
    thinking = "true" if broken else "false"
    text = f"max_length: 2048\ntemplate_kwargs: {{enable_thinking: {thinking}}}\n"
    (folder / "truetune.yaml").write_text(text, encoding="utf-8")
