"""The server makes another prompt of the same messages than the one that is trained.

## What it does

With `truetune rehearse --endpoint URL`, asks a running server (vLLM, SGLang, llama.cpp, or any with an
OpenAI-compatible API) for its prompt of the recited rows' messages, and compares its ids with those of the training
rows one by one (error). Of a server that can't tell its ids, the number of prompt tokens is compared (warning).

## Why it is bad

Servers have templates, default system prompts and BOS tokens of their own, from a flag, a GGUF file or an older copy of
the tokenizer. The model is then asked in a format that it was not taught, and no file of the training shows it.

## Example

```python
run = sft(rows)
brief = "{{ '<|im_start|>system\\nYou are a helpful assistant<|im_end|>\\n' }}"
serve = server(tokenizer, chat_template=brief + tokenizer.chat_template)
```

## Use instead

```python
run = sft(rows)
serve = server(tokenizer, chat_template=tokenizer.chat_template)
```

## Fix safety

There is no automatic fix: give the server the template that is saved with the model, or train with that of the server.

## References

- vllm-project/vllm#6699, unslothai/unsloth#449, ggml-org/llama.cpp#7062
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from truetune.checks.findings import Case, Finding
from truetune.checks.judgement import Unmet
from truetune.checks.measurement import Measurement, counted
from truetune.checks.recitation.recited import answers, recitation, short
from truetune.checks.rule import RecitationRule

REMEDY = (
    "serve with the chat template, system prompt and BOS setting that the rows are trained with,"
    " which are saved with the tokenizer"
)


class ServedPromptDiffers(RecitationRule):
    code = "REC009"
    severity = "error"
    since = "0.1.0"

    def findings(self) -> Iterator[Finding]:
        found = recitation(self.subject)
        prompts = found.get("served", {}).get("prompts", ())
        told = [
            (found["rows"][prompt["row"]], prompt["ids"])
            for prompt in prompts
            if prompt["ids"] is not None
        ]
        counted = [
            (found["rows"][prompt["row"]], prompt["count"])
            for prompt in prompts
            if prompt["ids"] is None
        ]
        others = [
            (row, ids)
            for row, ids in told
            if ids != row["ids"]["trained"] and not self._known(row, ids)
        ]
        longer = [
            (row, n)
            for row, n in counted
            if n != len(row["ids"]["trained"]) and not self._known(row, n)
        ]
        if others:
            shown = dict.fromkeys(
                self._difference(row["ids"]["trained"], ids) for row, ids in others
            )
            yield self.finding(
                f"{len(others)} of {len(told)} prompts have other ids on the server than in"
                " training",
                REMEDY,
                evidence=list(shown)[:1],
                cases=[Case(text) for text in list(shown)[1:]],
                count=len(others),
                total=len(told),
            )
        if longer:
            yield self.finding(
                f"{len(longer)} of {len(counted)} prompts have another number of tokens on the"
                " server than in training",
                REMEDY,
                severity="warning",
                cases=[
                    Case(
                        f"row {row['number']}: {n} tokens on the server,"
                        f" {len(row['ids']['trained'])} in training"
                    )
                    for row, n in longer
                ],
                count=len(longer),
                total=len(counted),
            )

    def _known(self, row: dict[str, Any], served: list[int] | int) -> bool:
        """Is it the prompt of the tokenizer's own template? `answers-need-another-prompt` reports that one."""
        own = row["ids"]["prompt"]
        return served == (own if isinstance(served, list) else len(own)) and bool(
            answers(self.subject)
        )

    def _difference(self, trained: list[int], served: list[int]) -> str:
        """What stands between the common begin and end, and before that, how long both are."""
        shorter = min(len(trained), len(served))
        first = next((i for i in range(shorter) if trained[i] != served[i]), shorter)
        same = next(
            (i for i in range(shorter - first) if trained[-1 - i] != served[-1 - i]),
            shorter - first,
        )
        was, now = trained[first : len(trained) - same], served[first : len(served) - same]
        if not was:
            what = f"the server puts in {self._text(now)}"
        elif not now:
            what = f"the server leaves out {self._text(was)}"
        else:
            what = f"trained {self._text(was)}, served {self._text(now)}"
        return (
            f"from token {first} on, {what} ({len(trained)} tokens in training, {len(served)} on"
            " the server)"
        )

    def _text(self, ids: list[int]) -> str:
        if self.subject.probes is None:
            return str(ids[:8])
        return short(
            self.subject.probes.tokenizer.backend.decode(ids, skip_special_tokens=False)
        ) + (f" (ids {ids})" if len(ids) < 4 else "")

    def unmet(self) -> Unmet | None:
        if (lacking := super().unmet()) is not None:
            return lacking
        if "served" not in recitation(self.subject):
            return Unmet(
                "no server was asked for its prompts", "name it: truetune rehearse --endpoint URL"
            )
        return None

    def figure(self) -> Measurement:
        prompts = recitation(self.subject)["served"]["prompts"]
        same = sum(self._is_trained(prompt) for prompt in prompts)
        more = "" if same == len(prompts) else "; answers-need-another-prompt is about the others"
        return counted(
            "prompts that are the same on the server and in training", same, len(prompts), more
        )

    def _is_trained(self, prompt: dict[str, Any]) -> bool:
        """Are its ids, or their number where the server tells no ids, those of training?"""
        trained = recitation(self.subject)["rows"][prompt["row"]]["ids"]["trained"]
        return bool(
            prompt["count"] == len(trained) if prompt["ids"] is None else prompt["ids"] == trained
        )
