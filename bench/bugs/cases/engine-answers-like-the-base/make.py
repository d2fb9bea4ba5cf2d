from pathlib import Path

from bench.bugs.inputs.adapters import adapter, renamed, served


def make(folder: Path, broken: bool, tokenizer: None) -> None:
    """The engine looks for its tensors below another prefix than they have: it warns, and applies none."""
    adapter(folder)
    served(folder)
    if broken:
        renamed(
            folder / "served",
            lambda name: name.replace("base_model.model.", "base_model.model._orig_mod."),
        )
