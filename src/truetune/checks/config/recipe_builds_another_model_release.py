"""A torchtune recipe builds another model than that of its weights.

## What it does
Compares the recipe's model builder (`torchtune.models.llama3.lora_llama3_8b`) with the folder of its weights: with
`rope_scaling` in the folder's config.json, or else with the release in the folder's name. Llama 3 and its later
releases have layers of the same names and shapes, so one loads as the other. It also compares the `model_type` of the
checkpointer with the family of the builder, where one of them permutes the rows of queries and keys (Llama, Mistral,
Gemma) and the other does not (Qwen, Phi).

## Why it is bad
Llama 3.1, 3.2 and 3.3 scale the angles by which they rotate queries and keys; Llama 3 does not. The weights load
without an error and the loss falls, but the model is trained with angles that no server uses. Answers get worse, above
all long ones.

## Example
```yaml
config:
  model: {_component_: torchtune.models.llama3.lora_llama3_8b, lora_attn_modules: [q_proj, v_proj], lora_rank: 8}
  tokenizer: {_component_: torchtune.models.llama3.llama3_tokenizer, path: /models/Llama-3.1-8B-Instruct/t.model}
  checkpointer:
    _component_: torchtune.training.FullModelHFCheckpointer
    checkpoint_dir: /models/Llama-3.1-8B-Instruct
    model_type: LLAMA3
  dataset: {_component_: torchtune.datasets.chat_dataset, source: some/rows, packed: false}
  batch_size: 2
  epochs: 1
```

## Use instead
```yaml
config:
  model: {_component_: torchtune.models.llama3_1.lora_llama3_1_8b, lora_attn_modules: [q_proj, v_proj], lora_rank: 8}
  tokenizer: {_component_: torchtune.models.llama3.llama3_tokenizer, path: /models/Llama-3.1-8B-Instruct/t.model}
  checkpointer:
    _component_: torchtune.training.FullModelHFCheckpointer
    checkpoint_dir: /models/Llama-3.1-8B-Instruct
    model_type: LLAMA3
  dataset: {_component_: torchtune.datasets.chat_dataset, source: some/rows, packed: false}
  batch_size: 2
  epochs: 1
```

## Fix safety
Train again with the right builder; the weights of the wrong one can't be converted.

## References
- torchtune, torchtune/models/llama3/_model_builders.py and llama3_1/_component_builders.py (`Llama3ScaledRoPE`)
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from truetune.checks.config.evidence.facts_from_model_folder import model_config
from truetune.checks.config.evidence.setting_places_and_known_keys import setting_case
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.judgement import Unmet
from truetune.checks.rule import ConfigRule

HAS_SCALED_POSITIONS: Mapping[str, bool] = {
    "llama3": False,
    "llama3_1": True,
    "llama3_2": True,
    "llama3_3": True,
}
"""Module of torchtune's builders -> whether they scale the angles of positions"""
LLAMA_3_VOCABULARY = 128256
"""Of Llama 3 and its later releases alone"""
RELEASE_IN_NAME = re.compile(r"llama-?3(?:[._-](?P<minor>[1-3])(?![0-9]*b))?(?![0-9])", re.I)
"""`Meta-Llama-3-8B`, `Llama-3.1-8B-Instruct`; not the 1B of `Llama-3-1B`"""


PERMUTES_ROWS: Mapping[str, bool] = {
    "llama": True,
    "mistral": True,
    "qwen": False,
    "gemma": True,
    "phi": False,
}
"""Family -> whether torchtune's conversion permutes the rows of queries and keys (models/convert_weights.py)"""
MODEL_TYPES: Mapping[str, str] = {
    "llama": "LLAMA2, LLAMA3, LLAMA3_2",
    "mistral": "MISTRAL",
    "qwen": "QWEN2, QWEN3",
    "gemma": "GEMMA, GEMMA2",
    "phi": "PHI3_MINI, PHI4",
}


def _family_of_name(name: str) -> str:
    """The family that the name of a builder's module or a `model_type` begins with; empty where it is none of these."""
    plain = name.lower()
    return next((family for family in PERMUTES_ROWS if plain.startswith(family)), "")


class RecipeBuildsAnotherModelRelease(ConfigRule):
    code = "CFG165"
    fault = Fault.MODEL_USED_WITH_OTHER_SETTINGS
    symptoms = ("good-here-bad-there", "garbage-output")
    severity = "warning"
    stacks = ("torchtune",)

    def unmet(self) -> Unmet | None:
        """Also unmet where the builder, or the release of the weights, is not known."""
        if (lacking := super().unmet()) is not None:
            return lacking
        if self._checkpoint_family() is not None:
            return None
        if (
            self._model_builder_module_name() not in HAS_SCALED_POSITIONS
            or self._do_weights_expect_scaled_positions() is None
        ):
            return Unmet("it is about builders of Llama 3, beside weights whose release is known")
        return None

    def measurement_if_clean(self) -> str:
        """Whose positions are scaled."""
        return f"{self._model_builder_module_name()} and the weights compute positions alike"

    def _checkpoint_family(self) -> str | None:
        """The `model_type` of the checkpointer, where it and the family of the builder are known; None otherwise."""
        table: Any = self.subject.raw.get("checkpointer")
        kind = str(table.get("model_type", "")) if isinstance(table, Mapping) else ""
        known = PERMUTES_ROWS.get(_family_of_name(kind)) is not None
        return kind if known and _family_of_name(self._model_builder_module_name()) else None

    def _model_builder_module_name(self) -> str:
        """The module of the model's builder: `llama3_1`."""
        model: Any = self.subject.raw.get("model")
        builder = str(model.get("_component_", "")) if isinstance(model, Mapping) else ""
        return builder.removeprefix("torchtune.models.").partition(".")[0]

    def _do_weights_expect_scaled_positions(self) -> bool | None:
        """Do the weights belong to scaled positions? None where neither config.json nor the name says it."""
        known = model_config(self.subject)
        if known.get("model_type") == "llama" and known.get("vocab_size") == LLAMA_3_VOCABULARY:
            # transformers 5 writes both into one table.
            parameters = known.get("rope_parameters") or {}
            return bool(known.get("rope_scaling") or parameters.get("factor"))
        match = RELEASE_IN_NAME.search(Path(self.subject.spec.model or "").name)
        return None if match is None else match["minor"] is not None

    def findings(self) -> Iterator[Finding]:
        config, module = self.subject, self._model_builder_module_name()
        kind = self._checkpoint_family()
        family = _family_of_name(module)
        if kind is not None and PERMUTES_ROWS[_family_of_name(kind)] != PERMUTES_ROWS[family]:
            yield self.finding(
                f"the checkpointer converts the weights as {kind}, but the recipe builds {module}: it stops at names"
                " that it does not know, or leaves the rows of queries and keys in another order, and answers are"
                " garbage",
                f"set checkpointer.model_type to that of the model ({MODEL_TYPES[family]})",
                cases=[
                    setting_case(config, kind, "checkpointer.model_type", "checkpointer"),
                    setting_case(config, module, "model._component_", "model"),
                ],
            )
        builds, needs = HAS_SCALED_POSITIONS.get(module), self._do_weights_expect_scaled_positions()
        if builds is None or needs is None or builds == needs:
            return
        name = Path(config.spec.model or "").name
        other = "llama3_1, llama3_2 or llama3_3 (whichever the weights are)" if needs else "llama3"
        yield self.finding(
            f"the recipe builds {module}, which {'does not scale' if needs else 'scales'} positions, but loads"
            f" {name}, which {'needs scaled positions' if needs else 'needs plain positions'}: answers get worse",
            f"set model._component_ to the builder in torchtune.models.{other}",
            cases=[
                setting_case(config, module, "model._component_", "model"),
                setting_case(config, name, "checkpointer.checkpoint_dir", "checkpointer"),
            ],
        )
