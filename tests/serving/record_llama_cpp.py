"""Records what llama.cpp's converter does with adapters: `python -m tests.serving.record_llama_cpp LLAMA_CPP CONFIGS`.

LLAMA_CPP is a folder with convert_lora_to_gguf.py and conversion/, CONFIGS the folder that `record_hf_modules` laid.
The script itself is run, in this process, on random tensors; it needs torch, transformers and gguf. It takes two
minutes.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import json
import runpy
import sys
import tempfile
from pathlib import Path
from typing import Any

import gguf
import torch
from safetensors.torch import save_file

from tests.serving.adapter_variants import TEXT_PREFIXES, AdapterVariant, HfModule, adapter_variants
from tests.serving.write_engine_loaders import LLAMA_CPP_RELEASE, RECORDS

ALL_LINEAR = "all linear modules of layers"
Outcome = int | str
"""How many tensors the converted adapter has, or `refused`"""


def main() -> None:
    """Write the record."""
    folder, configs = Path(sys.argv[1]), Path(sys.argv[2])
    torch.manual_seed(0)
    sys.path.insert(0, str(folder))
    files: dict[str, str] = importlib.import_module("conversion").TEXT_MODEL_MAP
    architectures: dict[str, dict[str, Any]] = {}
    for name, rows in json.loads((RECORDS / "modules.json").read_text("utf-8")).items():
        modules = [HfModule(pattern, kind, one, tuple(size)) for pattern, kind, one, size in rows]
        outcomes = {
            variant.name: convert(folder / "convert_lora_to_gguf.py", configs / name, variant)
            for variant in adapter_variants(modules)
        }
        is_known = name in files
        # A class that is known and whose tiny configuration fails in all cases tells nothing.
        if is_known and set(outcomes.values()) == {"refused"}:
            continue
        entry = _patterns_by_effect(modules, outcomes)
        source = f"conversion/{files[name]}.py" if is_known else "conversion/__init__.py"
        architectures[name] = {"source": source, **entry, "outcomes": outcomes}
        if not is_known:
            architectures[name]["takes_adapters"] = False
    record = {"engine": "llama.cpp", "release": LLAMA_CPP_RELEASE, "architectures": architectures}
    (RECORDS / "llama_cpp.json").write_text(json.dumps(record, indent=0), "utf-8")


def convert(script: Path, base: Path, variant: AdapterVariant) -> Outcome:
    """What the converter makes of one adapter."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        tensors = {one: torch.rand(shape) + 0.5 for one, shape in variant.shapes.items()}
        save_file(tensors, folder / "adapter_model.safetensors")
        (folder / "adapter_config.json").write_text(json.dumps(variant.whole_config))
        out = folder / "out.gguf"
        sys.argv = [str(script), "--base", str(base), name, "--outfile", str(out)]
        try:
            with (
                contextlib.redirect_stdout(io.StringIO()),
                contextlib.redirect_stderr(io.StringIO()),
            ):
                runpy.run_path(str(script), run_name="__main__")
        # It exits with a message, or fails with an error of any class.
        except (Exception, SystemExit):
            return "refused"
        return len(gguf.GGUFReader(out).tensors)


def _patterns_by_effect(
    modules: list[HfModule], outcomes: dict[str, Outcome]
) -> dict[str, list[str]]:
    """Patterns of modules by what becomes of them, also under the prefixes of which all were taken."""
    by_effect: dict[str, list[str]] = {"served": [], "ignored": [], "refused": []}
    for module in modules:
        outcome = outcomes.get(f"only {module.pattern}")
        if outcome is not None:
            effect = "refused" if outcome == "refused" else "served" if outcome else "ignored"
            by_effect[effect].append(module.pattern)
    own = next(
        (
            p
            for p in TEXT_PREFIXES
            if any(m.is_text_layer and m.name.startswith(p) for m in modules)
        ),
        None,
    )
    text = [m.pattern for m in modules if m.is_text_layer and m.pattern in by_effect["served"]]
    for prefix in TEXT_PREFIXES:
        taken = outcomes.get(f"layers under {prefix}")
        if own is not None and taken not in (None, "refused") and taken == outcomes[ALL_LINEAR]:
            by_effect["served"] += [prefix + pattern.removeprefix(own) for pattern in text]
    return {effect: patterns for effect, patterns in by_effect.items() if patterns}


if __name__ == "__main__":
    main()
