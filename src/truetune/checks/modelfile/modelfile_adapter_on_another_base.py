"""Ollama puts the adapter on another model than the one that it was trained on.

## What it does
Compares FROM with `base_model_name_or_path` in the adapter_config.json of ADAPTER, where both say it: family,
generation, size, release, and whether the model is instruction-tuned.

## Why it is bad
An adapter is a difference to certain weights. On another model of the same shapes Ollama takes it without a word, and
the answers are word salad, or plausible and worse.

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
Safe where the model of FROM was a slip.

## References
- Ollama documentation, "Modelfile Reference", "ADAPTER": on another base the behaviour is erratic
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.findings import Case, Finding
from truetune.checks.judgement import Unmet
from truetune.checks.model_identity import base_of_adapter, other_weights
from truetune.checks.rule import ModelfileRule


class ModelfileAdapterOnAnotherBase(ModelfileRule):
    code = "MFL002"
    severity = "error"

    def unmet(self) -> Unmet | None:
        if self.subject.last("adapter") is None:
            return Unmet("it is about adapters, and none is named")
        if self._base() is None:
            return Unmet(
                "no adapter_config.json of the adapter is on this machine",
                "lay the adapter's folder where ADAPTER names it",
            )
        return None

    def figure(self) -> str:
        found, base = self._base(), self.subject.last("from")
        assert found is not None, "else the rule is not judged"
        assert base is not None, "a Modelfile has a FROM"
        return f"1 adapter of {found[0]}, on {base.value}"

    def _base(self) -> tuple[str, str] | None:
        """The base that the adapter names, and the file that says so."""
        adapter = self.subject.last("adapter")
        found = base_of_adapter(adapter.value, self.subject.path) if adapter is not None else None
        return (found[0], str(found[1])) if found is not None else None

    def findings(self) -> Iterator[Finding]:
        found, base = self._base(), self.subject.last("from")
        if found is None or base is None:
            return
        apart = other_weights(base.value, found[0])
        if apart is None:
            return
        yield self.finding(
            f"the adapter was trained on {found[0]}, and FROM is {base.value}: {apart}",
            f"name the model that it was trained on: {found[0]}",
            cases=[
                self.case(base),
                Case(f"base_model_name_or_path: {found[0]}", file=found[1]),
            ],
        )
