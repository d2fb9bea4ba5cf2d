"""Blocks that are data and a tokenizer: they become files that are checked.

The blocks are YAML: `files` edits a copy of the demo tokenizer (JSON files key by key, null deletes; others whole;
special_tokens_map.json, which would win, is left out), `spec` holds fields of RunSpec, `data` and `eval_data` rows,
`weights: {zero: [tokens]}` writes an embedding in which the rows of these tokens are zero. How rows may be described in
place of written is said by `truetune.report.rule_pages.generated_rows`. `script` is the training script
that shapes the rows; it reads data.jsonl beside it.
"""

from __future__ import annotations

import json
import shutil
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from truetune.checks.check_data import check
from truetune.checks.findings import Finding
from truetune.checks.reports import DataReport
from truetune.checks.rule import Rule
from truetune.report.rule_pages.generated_rows import rows_of_example
from truetune.settings.read_truetune_settings import validate_settings
from truetune.settings.run_spec import RunSpec

DEMO = Path(str(resources.files("truetune.demo"))) / "tokenizer"


def findings(rule: type[Rule[Any]], text: str, folder: Path) -> tuple[Finding, ...]:
    """What this rule alone finds in what a block describes."""
    return report(rule, text, folder).findings


def report(rule: type[Rule[Any]], text: str, folder: Path) -> DataReport:
    """Check what a block describes, with this rule alone."""
    spec = write_data(text, folder)
    return check(spec.model_copy(update={"select": (rule.name(),)}))


def write_data(text: str, folder: Path) -> RunSpec:
    """Write the tokenizer and the rows that a block describes, and give the run that has them."""
    example = yaml.safe_load(text)
    tokenizer = folder / "tokenizer"
    shutil.copytree(DEMO, tokenizer, ignore=shutil.ignore_patterns("special_tokens_map.json"))
    for name, edit in (example.get("files") or {}).items():
        _edit(tokenizer / name, edit)
    if "weights" in example:
        _write_weights(tokenizer, example["weights"]["zero"])
    settings = dict(example.get("spec") or {})
    settings.pop("ignore", None)
    for name in ("data", "eval_data"):
        if name in example:
            path = folder / f"{name}.jsonl"
            path.write_text(
                "".join(json.dumps(row) + "\n" for row in rows_of_example(example[name])),
                encoding="utf-8",
            )
            settings[name] = str(path)
    if "script" in example:
        script = folder / "train.py"
        script.write_text(example["script"], encoding="utf-8")
        settings["format"] = str(script)
    return validate_settings({**settings, "tokenizer": str(tokenizer)}, "page")


def _edit(path: Path, edit: Any) -> None:
    if edit is None:
        path.unlink()
    elif isinstance(edit, dict):
        value = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
        value = {key: item for key, item in {**value, **edit}.items() if item is not None}
        path.write_text(json.dumps(value), encoding="utf-8")
    else:
        path.write_text(str(edit), encoding="utf-8")


def _write_weights(folder: Path, zero: list[str]) -> None:
    import tokenizers
    from safetensors.numpy import save_file

    backend = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    rows = np.random.default_rng(0).normal(size=(backend.get_vocab_size(), 8)).astype(np.float32)
    for token in zero:
        rows[backend.token_to_id(token)] = 0
    save_file({"model.embed_tokens.weight": rows}, folder / "model.safetensors")
