"""Ollama serves the base: the Modelfile names no adapter and no weights of one's own.

## What it does
Looks for a FROM that names a model of Ollama's library, in a file without ADAPTER, and says where an ADAPTER line is a
comment. An ADAPTER whose path is not there is named too.

## Why it is bad
`ollama create` ends without an error, and answers are those of the base, word for word. What was trained is in no file
that is served.

## Example
```text
FROM llama3.1:8b-instruct-q8_0
# ADAPTER ./lora
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
Put the adapter on the model that it was trained on, in 8 or 16 bits: merged weights (`FROM ./merged`) are safer.

## References
- Ollama documentation, "Modelfile Reference"; the adapter must be made for the model of FROM
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.findings import Finding
from truetune.checks.modelfile.weights_of_modelfile import is_own_weights
from truetune.checks.rule import ModelfileRule
from truetune.parsing.read_modelfile import Instruction


class ModelfileServesTheBase(ModelfileRule):
    code = "MFL001"
    severity = "warning"

    def figure(self) -> str:
        names = [one.value for word in ("from", "adapter") for one in self.subject.all(word)]
        return f"FROM and ADAPTER: {len(names):,} ({', '.join(names)})"

    def findings(self) -> Iterator[Finding]:
        base, adapter = self.subject.last("from"), self.subject.last("adapter")
        if adapter is not None:
            if not self._may_exist(adapter):
                yield self._missing_adapter(adapter)
            return
        if base is None or is_own_weights(base, self.subject.local("from") is not None):
            return
        commented = self.subject.commented_adapter
        message = f"Ollama serves {base.value} as it is: no ADAPTER is named"
        remedy = "add ADAPTER with the folder of the adapter, or name merged weights: FROM ./merged"
        cases = [self.case(base)]
        if commented is not None:
            message += ", for its line is a comment"
            remedy = f"take the comment away: ADAPTER {commented.value}"
            cases.append(self.case(commented))
        yield self.finding(
            message,
            remedy,
            evidence=[
                "FROM names a model of Ollama's library, which holds nothing that was trained here"
            ],
            cases=cases,
        )

    def _may_exist(self, adapter: Instruction) -> bool:
        """Is the adapter there, or may it be: an absolute path may be one of another machine?"""
        return self.subject.local("adapter") is not None or adapter.value.startswith(("/", "~"))

    def _missing_adapter(self, adapter: Instruction) -> Finding:
        """The finding on an ADAPTER whose path is not there."""
        return self.finding(
            f"the adapter {adapter.value} is not there: `ollama create` stops, or an older"
            " model of that name is still served",
            "name the folder or GGUF file of the adapter, from the Modelfile's folder",
            cases=[self.case(adapter)],
        )
