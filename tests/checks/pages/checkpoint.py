"""Blocks that are a checkpoint: small tensors and JSON files, written to a folder that is looked at.

`llama: 2` stands for the tensors and the config.json of a tiny Llama of two layers, `lora: [q_proj]` for those of an
adapter of rank 4 on them. `tensors` adds or replaces ({shape, fill: random | zero | one | nan, dtype, seed}; what is
left out stays) or deletes (null), `shards: {file: tensors}` writes further files; `add: 0.1` is added to all values,
`moved_below: 0.1` changes the last bit of the smaller ones, `rows: {3: 0.0}` sets rows, `turn_rows: 2` moves all rows
by two, the last ones to the front; `principal: 4` adds the part of the four largest singular values again. A random
tensor depends on its name and `seed` (0) alone. `config`,
`adapter_config`, `generation_config`, `tokenizer_config`, `trainer_state` are edits of these files, `tokens` adds
tokens to the demo's tokenizer ({text: id}; {} for the plain one), `files` holds others whole; `base` is the base,
`adapter` an adapter, both described the same way; `merge: 0.5` adds the adapter's change, times that, to the tensors.
"""

from __future__ import annotations

import json
import struct
import zlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from tests.checkpoint.make import TOKENIZER
from truetune.checkpoint.load_checkpoint import read_checkpoint
from truetune.checks.findings import Finding
from truetune.checks.rule import Rule
from truetune.report.rule_pages.examples_of_training_results import (
    VOCABULARY,
    WIDTH,
    objects_of_checkpoint,
)

LINEAR = {
    **{f"self_attn.{name}_proj": (WIDTH, WIDTH) for name in "qkvo"},
    **{"mlp.gate_proj": (32, WIDTH), "mlp.up_proj": (32, WIDTH), "mlp.down_proj": (WIDTH, 32)},
}


def findings(rule: type[Rule[Any]], text: str, folder: Path) -> tuple[Finding, ...]:
    """What the rule says about the checkpoint that a block describes."""
    block = yaml.safe_load(text)
    base = write(block.pop("base"), folder / "base") if "base" in block else None
    adapter = write(block.pop("adapter"), folder / "adapter") if "adapter" in block else None
    made = write(block, folder / "checkpoint")
    if adapter is not None:
        _merge(made / "model.safetensors", adapter / "adapter_model.safetensors", block["merge"])
    other = read_checkpoint(adapter, base=base) if adapter else None
    return tuple(rule(replace(read_checkpoint(made, base=base), adapter=other)).findings())


def _merge(model: Path, adapter: Path, times: float) -> None:
    """Add 8 / 4 x B A x `times`"""
    from safetensors.numpy import load_file, save_file

    tensors, pairs = load_file(model), load_file(adapter)
    for name, a in pairs.items():
        if name.endswith("lora_A.weight"):
            module = name.removeprefix("base_model.model.").removesuffix("lora_A.weight")
            tensors[f"{module}weight"] += np.float32(times * 2) * (
                pairs[name.replace("lora_A", "lora_B")] @ a
            )
    save_file(tensors, model)


def write(block: dict[str, Any], folder: Path) -> Path:
    """Lay out what a block describes."""
    folder.mkdir(parents=True)
    tensors: dict[str, Any] = {}
    objects = objects_of_checkpoint(block)
    if "llama" in block:
        tensors = _llama(block["llama"])
    if "lora" in block:
        tensors = _lora(block["lora"])
    for name, edit in (block.get("tensors") or {}).items():
        tensors[name] = None if edit is None else {**tensors.get(name, {}), **edit}
    adapter = "adapter_config" in block or "lora" in block
    tensors = {name: entry for name, entry in tensors.items() if entry is not None}
    if tensors or "tensors" in block:
        write_tensors(
            folder / ("adapter_model.safetensors" if adapter else "model.safetensors"), tensors
        )
    if "tokens" in block:
        _tokenizer(folder, block["tokens"])
        published = json.loads((TOKENIZER / "tokenizer_config.json").read_text(encoding="utf-8"))
        edits = block.get("tokenizer_config") or {}
        objects["tokenizer_config"] = {
            key: value for key, value in {**published, **edits}.items() if value is not None
        }
    for name, value in objects.items():
        if value:
            (folder / f"{name}.json").write_text(json.dumps(value), encoding="utf-8")
    for name, shard in (block.get("shards") or {}).items():
        write_tensors(folder / name, shard)
    for name, body in (block.get("files") or {}).items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(
            body if isinstance(body, str) else json.dumps(body), encoding="utf-8"
        )
    return folder


def write_tensors(path: Path, tensors: dict[str, dict[str, Any]]) -> None:
    """A safetensors file."""
    header, bodies, at = {}, [], 0
    for name, entry in tensors.items():
        dtype, body = entry.get("dtype", "F32"), _body(name, entry)
        header[name] = {
            "dtype": dtype,
            "shape": list(entry["shape"]),
            "data_offsets": [at, at + len(body)],
        }
        bodies.append(body)
        at += len(body)
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(bodies))


def _body(name: str, entry: dict[str, Any]) -> bytes:
    shape, fill = tuple(entry["shape"]), entry.get("fill", "random")
    rng = np.random.default_rng((zlib.crc32(name.encode()), entry.get("seed", 0)))
    values = rng.normal(size=shape) * 0.05 if fill == "random" else np.zeros(shape)
    values = np.ones(shape) if fill == "one" else values
    values = values.astype(np.float32) + np.float32(entry.get("add", 0))
    if "moved_below" in entry:
        values = np.where(
            np.abs(values) < entry["moved_below"], values * np.float32(1 + 2**-7), values
        )
    if "principal" in entry:
        rank = entry["principal"]
        left, sizes, right = np.linalg.svd(values, full_matrices=False)
        values += ((left[:, :rank] * sizes[:rank]) @ right[:rank]).astype(np.float32)
    if fill == "nan":
        values[..., 0] = np.nan
    for row, value in (entry.get("rows") or {}).items():
        values[row] = value
    values = np.roll(values, entry.get("turn_rows", 0), axis=0)
    bits = values.view(np.uint32)
    return {
        "F32": lambda: values.tobytes(),
        "F16": lambda: values.astype(np.float16).tobytes(),
        "BF16": lambda: ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16).tobytes(),
        "U8": lambda: values.astype(np.uint8).tobytes(),
    }[entry.get("dtype", "F32")]()


def _llama(layers: int) -> dict[str, Any]:
    tensors: dict[str, Any] = {"model.embed_tokens.weight": {"shape": [VOCABULARY, WIDTH]}}
    for i in range(layers):
        at = f"model.layers.{i}"
        tensors |= {f"{at}.{name}.weight": {"shape": list(shape)} for name, shape in LINEAR.items()}
        for norm in ("input_layernorm", "post_attention_layernorm"):
            tensors[f"{at}.{norm}.weight"] = {"shape": [WIDTH], "fill": "one"}
    tensors["model.norm.weight"] = {"shape": [WIDTH], "fill": "one"}
    return tensors | {"lm_head.weight": {"shape": [VOCABULARY, WIDTH]}}


def _lora(targets: list[str], layers: int = 2) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for i in range(layers):
        for module, (out, into) in LINEAR.items():
            if module.rpartition(".")[2] in targets:
                at = f"base_model.model.model.layers.{i}.{module}"
                found[f"{at}.lora_A.weight"] = {"shape": [4, into]}
                found[f"{at}.lora_B.weight"] = {"shape": [out, 4]}
    return found


def _tokenizer(folder: Path, tokens: dict[str, int]) -> None:
    for path in TOKENIZER.iterdir():
        if path.name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
            (folder / path.name).write_bytes(path.read_bytes())
    whole = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))
    for text, id in tokens.items():
        whole["added_tokens"].append(
            {
                "id": id,
                "content": text,
                "special": True,
                "normalized": False,
                "single_word": False,
                "lstrip": False,
                "rstrip": False,
            }
        )
    (folder / "tokenizer.json").write_text(json.dumps(whole), encoding="utf-8")
