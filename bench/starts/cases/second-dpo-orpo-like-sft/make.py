from pathlib import Path

from bench.starts.material import link_tokenizer, preferences, write_list


def make(folder: Path) -> None:
    """The pairs and the tokenizer that the config names."""
    write_list(folder / "data/prefs.json", preferences())
    link_tokenizer("qwen2.5-instruct", folder / "models/Qwen2.5-1.5B-Instruct")
