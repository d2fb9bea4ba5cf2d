"""The weights are quantized with other settings than quantization-aware training used.

## What it does
Compares the `qat` block of an Axolotl training (quantization-aware training: weights are rounded in every step) with
the `quantization` block of the settings files next to it that name the training's output folder, as `output_dir` (from
which `axolotl quantize` loads) or `base_model`. It compares the group size and the types of weights and activations,
and fires if both files set a value and the values differ.

## Why it is bad
Training made the weights robust against one way of rounding: one scale per group of a certain size. Other groups or
types round them differently, and part of the recovered quality is lost. No error is raised.

## Example
```yaml
beside:
  quantize.yaml:
    base_model: some/model
    quantization: {weight_dtype: int4, group_size: 32}
    output_dir: outputs/qat
config:
  base_model: some/model
  datasets: [{path: rows.jsonl, type: chat_template}]
  sequence_len: 2048
  qat: {weight_dtype: int4, group_size: 256}
  output_dir: outputs/qat
```

## Use instead
```yaml
beside:
  quantize.yaml:
    base_model: some/model
    quantization: {weight_dtype: int4, group_size: 256}
    output_dir: outputs/qat
config:
  base_model: some/model
  datasets: [{path: rows.jsonl, type: chat_template}]
  sequence_len: 2048
  qat: {weight_dtype: int4, group_size: 256}
  output_dir: outputs/qat
```

## Fix safety
Quantizing again takes minutes, and the trained model does not change. If the program that serves the model needs the
other settings, train again with those.

## References
- Axolotl, src/axolotl/cli/quantize.py (it takes `qat` of the training's own file, or `quantization` of another, and
  loads `--base-model` of the command or else `output_dir`), src/axolotl/utils/schemas/quantization.py
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from truetune.checks.config.evidence.setting_places_and_known_keys import setting_case
from truetune.checks.faults import Fault
from truetune.checks.find_uses_of_weight_folders import is_same_or_below
from truetune.checks.findings import Case, Finding
from truetune.checks.judgement import Unmet
from truetune.checks.rule import ConfigRule
from truetune.errors import TruetuneError
from truetune.settings import located_document

COMPARED_KEYS = ("group_size", "weight_dtype", "activation_dtype")
NAMES_OF_FLOAT8 = ("float8_e4m3fn", "float8", "fp8")
"""Axolotl takes them for one type"""
LOADED_FROM = ("output_dir", "base_model")
"""Settings of a file that quantizes by which it may name the trained weights"""
MAX_FILES = 60
"""Settings files of a folder that are read. Chosen by hand: a bound on time"""
NO_QUANTIZATION = Unmet(
    "it is about quantization-aware trainings whose output a settings file beside them quantizes"
)


class _Quantization(NamedTuple):
    """A block of settings that quantizes the output of a training."""

    file: Path
    block: dict[str, Any]


class QuantizedOtherwiseThanTrained(ConfigRule):
    code = "CFG195"
    fault = Fault.MODEL_USED_WITH_OTHER_SETTINGS
    symptoms = ("garbage-output",)
    severity = "warning"

    def unmet(self) -> Unmet | None:
        """Why the rule can't judge this run; None if it can.

        Also unmet where the training is not quantization-aware, or nothing beside it quantizes its output.
        """
        if (lacking := super().unmet()) is not None:
            return lacking
        return None if self._quantizations_of_output_by_other_files() else NO_QUANTIZATION

    def measurement_if_clean(self) -> str:
        """The values that both give."""
        trained = self._quantization_block_of_training()
        shared = [f"{key} {trained[key]}" for key in COMPARED_KEYS if key in trained]
        return f"trained and quantized with {', '.join(shared)}"

    def _quantization_block_of_training(self) -> dict[str, Any]:
        """The block of the training that says how weights are rounded in it; empty where there is none."""
        block = self.subject.raw.get("qat")
        return block if isinstance(block, dict) else {}

    def _quantizations_of_output_by_other_files(self) -> list[_Quantization]:
        """The blocks of other settings files in the folder that quantize what this training writes."""
        config = self.subject
        output = config.raw.get("output_dir")
        if (
            config.stack != "axolotl"
            or not self._quantization_block_of_training()
            or not isinstance(output, str)
        ):
            return []
        folder = Path(config.path).parent
        files = sorted((*folder.glob("*.yaml"), *folder.glob("*.yml")))[:MAX_FILES]
        quantizations = []
        for file in files:
            settings = _read_settings_or_empty(file) if file != Path(config.path) else {}
            block = settings.get("quantization")
            if isinstance(block, dict) and _do_settings_quantize_folder(settings, output):
                quantizations.append(_Quantization(file, block))
        return quantizations

    def findings(self) -> Iterator[Finding]:
        trained = self._quantization_block_of_training()
        for file, block in self._quantizations_of_output_by_other_files():
            differing = [
                key
                for key in COMPARED_KEYS
                if _are_different_values(trained.get(key), block.get(key))
            ]
            if not differing:
                continue
            values = " and ".join(f"{key} {trained[key]}" for key in differing)
            others = " and ".join(f"{key} {block[key]}" for key in differing)
            yield self.finding(
                f"quantization-aware training used {values}, but {file.name} quantizes with {others}: the weights"
                " are rounded in another way, and quality is lost",
                f"set {', '.join(f'quantization.{key}: {trained[key]}' for key in differing)} in {file.name}",
                cases=[
                    *(setting_case(self.subject, trained[key], f"qat.{key}") for key in differing),
                    *(
                        Case(f"quantization.{key}: {block[key]}", file=str(file))
                        for key in differing
                    ),
                ],
                count=len(differing),
            )


def _do_settings_quantize_folder(settings: dict[str, Any], folder: str) -> bool:
    """Do settings that quantize name a folder as the one of the weights?"""
    names = (settings.get(key) for key in LOADED_FROM)
    return any(isinstance(name, str) and is_same_or_below(name, folder) for name in names)


def _are_different_values(trained: object, quantized: object) -> bool:
    """Are both values given, and mean different things?"""
    if trained is None or quantized is None:
        return False
    is_float8 = trained in NAMES_OF_FLOAT8 and quantized in NAMES_OF_FLOAT8
    return trained != quantized and not is_float8


def _read_settings_or_empty(file: Path) -> dict[str, Any]:
    """The settings of a file; empty where it holds none, or can't be read."""
    try:
        value = located_document.read_located_document(file).value
    except TruetuneError:
        return {}
    return value if isinstance(value, dict) else {}
