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
from truetune.checks.rule import ModelfileRule
from truetune.parsing.modelfile import Instruction

LOCAL = (".", "/", "~", "\\")
"""How the path of a file begins; the library has names such as `llama3.1:8b`"""
WEIGHTS = (".gguf", ".bin", ".safetensors")


class ModelfileServesTheBase(ModelfileRule):
    code = "MFL001"
    severity = "warning"

    def figure(self) -> str:
        names = [one.value for word in ("from", "adapter") for one in self.subject.all(word)]
        return f"FROM and ADAPTER: {len(names):,} ({', '.join(names)})"

    def findings(self) -> Iterator[Finding]:
        base, adapter = self.subject.last("from"), self.subject.last("adapter")
        if adapter is not None and not _is_here(self.subject.local("adapter") is not None, adapter):
            yield self.finding(
                f"the adapter {adapter.value} is not there: `ollama create` stops, or an older"
                " model of that name is still served",
                "name the folder or GGUF file of the adapter, from the Modelfile's folder",
                cases=[self.case(adapter)],
            )
        if (
            base is None
            or adapter is not None
            or is_own(base, self.subject.local("from") is not None)
        ):
            return
        off = self.subject.commented_adapter
        yield self.finding(
            f"Ollama serves {base.value} as it is: no ADAPTER is named"
            + (", for its line is a comment" if off is not None else ""),
            f"take the comment away: ADAPTER {off.value}"
            if off is not None
            else "add ADAPTER with the folder of the adapter, or name merged weights: FROM ./merged",
            evidence=[
                "FROM names a model of Ollama's library, which holds nothing that was trained here"
            ],
            cases=[self.case(base), *([self.case(off)] if off is not None else [])],
        )


def is_own(base: Instruction, is_here: bool) -> bool:
    """Does FROM name weights of the user's own: a file, or a model under a namespace?"""
    name = base.value
    return is_here or name.startswith(LOCAL) or name.endswith(WEIGHTS) or "/" in name


def _is_here(is_found: bool, adapter: Instruction) -> bool:
    """Is the adapter there, or on another machine by an absolute path?"""
    return is_found or adapter.value.startswith(("/", "~"))
