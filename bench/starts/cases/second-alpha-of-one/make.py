from pathlib import Path

from bench.starts.material import instructions, link_tokenizer, write_list


def make(folder: Path) -> None:
    """The rows and the tokenizer that the config names."""
    write_list(folder / "data/support_alpaca.json", instructions()[:500])
    link_tokenizer("qwen2.5-instruct", folder / "models/Qwen2.5-7B-Instruct")
