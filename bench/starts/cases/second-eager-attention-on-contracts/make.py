from pathlib import Path

from bench.starts.material import link_tokenizer


def make(folder: Path) -> None:
    """The model's tokenizer."""
    link_tokenizer("gemma2", folder / "gemma-2-9b-it")
