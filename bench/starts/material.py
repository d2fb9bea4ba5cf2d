"""What the make.py of a start builds its files from: real rows of a package, tokenizers and weights."""

from __future__ import annotations

import json
import lzma
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

from tests.parts.lay_out import model_folder, tokenizer_folder
from tests.parts.packages import unpack

Json = dict[str, Any]
PACKED = ".xz"
TOKENIZER_FILES = ("chat_template.jinja", "tokenizer.json", "tokenizer_config.json")


@cache
def instructions() -> list[Json]:
    """999 English rows instruction, input, output. Raises Missing."""
    rows: list[Json] = json.loads(_text("alpaca_en_demo.json"))
    return rows


@cache
def preferences() -> list[Json]:
    """300 English rows conversations, chosen, rejected. Raises Missing."""
    rows: list[Json] = json.loads(_text("dpo_en_demo.json"))
    return rows


@cache
def articles() -> list[str]:
    """Long paragraphs of an encyclopedia. Raises Missing."""
    text = _text("wiki_demo.txt")
    return [line for line in text.splitlines() if len(line) > 3000]


@cache
def pages() -> list[str]:
    """300 texts of English web pages. Raises Missing."""
    lines = _text("c4_demo.jsonl").splitlines()
    return [json.loads(line)["text"] for line in lines]


def _text(name: str) -> str:
    return (unpack("llamafactory") / "data" / name).read_text(encoding="utf-8")


def question(row: Json) -> str:
    """Instruction and input of a row of `instructions` as one text."""
    asked: str = row["instruction"]
    return f"{asked}\n\n{row['input']}" if row.get("input") else asked


def chats(rows: Iterable[Json]) -> Iterator[Json]:
    """Rows of `instructions` as messages."""
    for row in rows:
        turns = (("user", question(row)), ("assistant", row["output"]))
        yield {"messages": [{"role": role, "content": content} for role, content in turns]}


def write_lines(path: Path, rows: Iterable[Json]) -> None:
    """Write rows as JSON Lines."""
    path.parent.mkdir(parents=True, exist_ok=True)
    text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    path.write_text(text, encoding="utf-8")


def write_list(path: Path, rows: Iterable[Json]) -> None:
    """Write rows as one JSON list."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(list(rows), ensure_ascii=False, indent=1), encoding="utf-8")


def write_table(path: Path, rows: list[Json]) -> None:
    """Write rows as Parquet."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.Table.from_pylist(rows), path)


def link_tokenizer(family: str, folder: Path) -> None:
    """Put the tokenizer of a family into a folder. Raises Missing."""
    folder.mkdir(parents=True, exist_ok=True)
    source = tokenizer_folder(family)
    for name in TOKENIZER_FILES:
        if (source / name).exists():
            (folder / name).symlink_to(source / name)


def link_model(folder: Path) -> None:
    """Put SmolLM2 135M into a folder. Raises Missing."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    folder.symlink_to(model_folder(), target_is_directory=True)


def write_adapter(
    path: Path, sizes: dict[str, tuple[int, int]], layers: int, rank: int, **form: Any
) -> None:
    """Write an adapter's weights: random values, for each module (inputs, outputs) in each layer.

    `form` may hold `prefix`, of the keys; `magnitudes`, for DoRA; `dtype`.
    """
    import torch
    from safetensors.torch import save_file

    drawn = torch.Generator().manual_seed(3)
    dtype = getattr(torch, form.get("dtype", "float32"))
    tensors = {}
    for layer in range(layers):
        for module, (inputs, outputs) in sizes.items():
            key = f"{form.get('prefix', 'base_model.model.')}model.layers.{layer}.{module}.lora_"
            first = torch.randn(rank, inputs, generator=drawn) * 0.02
            second = torch.randn(outputs, rank, generator=drawn) * 0.01
            tensors[f"{key}A.weight"] = first.to(dtype)
            tensors[f"{key}B.weight"] = second.to(dtype)
            if form.get("magnitudes"):
                drawn_sizes = torch.rand(outputs, generator=drawn) + 1
                tensors[f"{key}magnitude_vector"] = drawn_sizes.to(dtype)
    path.parent.mkdir(parents=True, exist_ok=True)
    save_file(tensors, path, metadata={"format": "pt"})


def unpack_large_files(target: Path) -> None:
    """Write each file NAME.xz of a start's folder as NAME, and remove the packed one.

    Data that a reader brought are kept as they are; packed, a megabyte of rows takes some 100 KB.
    """
    for packed in sorted(target.rglob(f"*{PACKED}")):
        packed.with_suffix("").write_bytes(lzma.decompress(packed.read_bytes()))
        packed.unlink()
