from pathlib import Path

from bench.starts.material import chats, instructions, link_tokenizer, write_lines


def make(folder: Path) -> None:
    """The rows and the tokenizer that the config names."""
    write_lines(folder / "data/chats.jsonl", chats(instructions()[:300]))
    link_tokenizer("llama3.1-instruct", folder / "Meta-Llama-3.1-8B-Instruct")
