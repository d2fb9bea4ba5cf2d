"""Writes tiny configurations and the modules of each architecture in transformers, for trials of real loaders.

`python -m tests.serving.record_hf_modules FOLDER` lays `FOLDER/ARCHITECTURE/config.json` with the demo's tokenizer, and
writes real_loaders/modules.json: one module of each pattern, as peft would name it. The models are on the meta device.
"""

from __future__ import annotations

import json
import re
import shutil
import sys
from pathlib import Path
from typing import Any

import torch
import transformers
from transformers.pytorch_utils import Conv1D

from tests.serving.tiny_architectures import ALL, make_config
from truetune.demo import TOKENIZER

RECORD = Path(__file__).parent / "real_loaders" / "modules.json"
TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json")


def main() -> None:
    """Write all configurations, and the record."""
    folder = Path(sys.argv[1])
    record = {}
    for architecture in ALL:
        config = make_config(architecture)
        config.save_pretrained(folder / architecture)
        # llama.cpp's converter asks for a tokenizer to write embeddings.
        for name in TOKENIZER_FILES:
            shutil.copy(Path(str(TOKENIZER)) / name, folder / architecture / name)
        with torch.device("meta"):
            model = getattr(transformers, architecture)._from_config(config)
        record[architecture] = _modules_by_pattern(model)
    RECORD.write_text(json.dumps(record, separators=(",", ":")), "utf-8")


def _modules_by_pattern(model: torch.nn.Module) -> list[list[Any]]:
    """[pattern, kind, name, size as (out, in)] of the first module of each pattern."""
    found: dict[str, list[Any]] = {}
    for name, module in model.named_modules():
        pattern = name_pattern(name)
        if (
            isinstance(module, torch.nn.Linear | Conv1D | torch.nn.Embedding)
            and pattern not in found
        ):
            size = list(module.weight.shape)
            kind = "embedding" if isinstance(module, torch.nn.Embedding) else "linear"
            # GPT-2's linear modules store their weight as (in, out).
            found[pattern] = [
                pattern,
                kind,
                name,
                size[::-1] if isinstance(module, Conv1D) else size,
            ]
    for name, parameter in model.named_parameters():
        if parameter.dim() == 3 and "expert" in name:
            found.setdefault(
                name_pattern(name), [name_pattern(name), "parameter", name, list(parameter.shape)]
            )
    return list(found.values())


def name_pattern(name: str) -> str:
    """A name with `*` for each number in it."""
    return re.sub(r"\.\d+(?=\.|$)", ".*", name)


if __name__ == "__main__":
    main()
