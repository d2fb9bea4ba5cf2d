"""Ollama loads the adapter on another base model than the one that it was trained on.

## What it does
Compares FROM with `base_model_name_or_path` in the adapter_config.json of ADAPTER, if both are known: family,
generation, size, release, and whether the model is instruction-tuned.

## Why it is bad
An adapter is a change to particular weights. Ollama silently accepts it on another model with the same shapes, and the
answers are word salad, or plausible but worse.

## Example
```text
# lora/adapter_config.json: {"base_model_name_or_path": "meta-llama/Llama-3.1-8B-Instruct"}
FROM llama3:8b-instruct-q8_0
ADAPTER ./lora
PARAMETER num_ctx 8192
```

## Use instead
```text
# lora/adapter_config.json: {"base_model_name_or_path": "meta-llama/Llama-3.1-8B-Instruct"}
FROM llama3.1:8b-instruct-q8_0
ADAPTER ./lora
PARAMETER num_ctx 8192
```

## Fix safety
Safe if the model in FROM was a mistake.

## References
- Ollama documentation, "Modelfile Reference", "ADAPTER": on another base the behaviour is erratic
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.faults import Fault
from truetune.checks.findings import Case, Finding
from truetune.checks.identify_model_by_published_name import base_of_adapter
from truetune.checks.is_adapter_on_its_trained_base import explain_other_base_below_adapter
from truetune.checks.judgement import Unmet
from truetune.checks.rule import ModelfileRule


class ModelfileAdapterOnAnotherBase(ModelfileRule):
    code = "MFL002"
    fault = Fault.ADAPTER_PUT_ON_WRONG_BASE
    symptoms = ("garbage-output", "good-here-bad-there")
    severity = "error"

    def unmet(self) -> Unmet | None:
        """Unmet where no adapter is named, or its base is not known here."""
        if self.subject.last("adapter") is None:
            return Unmet("it is about adapters, and none is named")
        if self._trained_base_and_file_naming_it() is None:
            return Unmet(
                "no adapter_config.json of the adapter is on this machine",
                "lay the adapter's folder where ADAPTER names it",
            )
        return None

    def measurement_if_clean(self) -> str:
        """The base that the adapter names, and the model that FROM names."""
        trained_base, base = self._trained_base_and_file_naming_it(), self.subject.last("from")
        assert trained_base is not None, "else the rule is not judged"
        assert base is not None, "a Modelfile has a FROM"
        return f"1 adapter of {trained_base[0]}, on {base.value}"

    def _trained_base_and_file_naming_it(self) -> tuple[str, str] | None:
        """(base that the adapter names, file that says so); None if that is not known."""
        adapter = self.subject.last("adapter")
        if adapter is None:
            return None
        name_and_file = base_of_adapter(adapter.value, self.subject.path)
        if name_and_file is None:
            return None
        name, file = name_and_file
        return name, str(file)

    def findings(self) -> Iterator[Finding]:
        trained_base, base = self._trained_base_and_file_naming_it(), self.subject.last("from")
        if trained_base is None or base is None:
            return
        name, file = trained_base
        # Names differ in form (`llama3.1:8b`, `meta-llama/Llama-3.1-8B`), so what they mean is compared.
        other = explain_other_base_below_adapter(base.value, name, self.subject.path)
        # Of a name of Ollama it is not told whether the model is instruction-tuned.
        if other is None or not (other.is_proved or other.cases):
            return
        yield self.finding(
            f"the adapter was trained on {name}, but FROM is {base.value}: {other.why}",
            f"set FROM to the model that the adapter was trained on: {name}",
            cases=[
                self.case_of_instruction(base),
                Case(f"base_model_name_or_path: {name}", file=file),
                *other.cases,
            ],
        )
