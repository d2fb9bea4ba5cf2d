from pathlib import Path

from bench.bugs.inputs.adapters import adapter, served


def make(folder: Path, broken: bool, tokenizer: None) -> None:
    """The engine does not read `use_rslora`."""
    adapter(folder)
    served(folder, use_rslora=not broken)
