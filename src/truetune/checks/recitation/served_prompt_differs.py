"""The server makes another prompt from the same messages than training does.

## What it does
With `truetune rehearse --endpoint URL`, asks a running server (vLLM, SGLang, llama.cpp, or any with an
OpenAI-compatible API) for its prompt for the messages of the rehearsed rows, and compares its ids with those of the
training rows one by one. A difference is an error. If a server can't give its ids, the number of prompt tokens is
compared, and a difference is a warning.

## Why it is bad
Servers can have other templates, default system prompts and BOS tokens, from a flag, a GGUF file or an older copy of
the tokenizer. The model then gets a format that it was not trained on, and no file of the training shows it.

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
There is no automatic fix: give the server the template that is saved with the model (vLLM: `--chat-template`), or train
with that of the server.

## References

- vllm-project/vllm#6699, unslothai/unsloth#449, ggml-org/llama.cpp#7062
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.faults import Fault
from truetune.checks.findings import Case, Finding
from truetune.checks.judgement import Unmet
from truetune.checks.measurement_without_findings import Measurement, make_count_measurement
from truetune.checks.recitation.recitation_record import (
    RecitedAnswer,
    ServerPromptIds,
    read_recitation,
    rows_with_separable_answer_if_learned,
)
from truetune.checks.rule import RecitationRule
from truetune.checks.shorten_text import quote_shortened

REMEDY = (
    "start the server with the chat template, system prompt and BOS setting from training, which"
    " are saved with the tokenizer (vLLM: --tokenizer FOLDER or --chat-template FILE)"
)
# Chosen to fit a line.
MAX_IDS_WITHOUT_TEXT = 8
MAX_IDS_BESIDE_TEXT = 3


class ServedPromptDiffers(RecitationRule):
    code = "REC009"
    fault = Fault.SERVING_PROMPT_DIFFERS_FROM_TRAINING
    symptoms = ("good-here-bad-there",)
    severity = "error"
    since = "0.1.0"

    def findings(self) -> Iterator[Finding]:
        recitation = read_recitation(self.subject)
        prompts = recitation["served"]["prompts"] if "served" in recitation else []
        rows = recitation.get("rows", ())
        with_ids = [
            (rows[prompt["row"]], prompt["ids"]) for prompt in prompts if prompt["ids"] is not None
        ]
        with_count = [
            (rows[prompt["row"]], prompt["count"]) for prompt in prompts if prompt["ids"] is None
        ]
        yield from self._finding_on_served_prompt_ids(with_ids)
        yield from self._finding_on_served_prompt_lengths(with_count)

    def _finding_on_served_prompt_ids(
        self, with_ids: list[tuple[RecitedAnswer, list[int]]]
    ) -> Iterator[Finding]:
        """The finding on prompts of which the server tells the ids."""
        others = [
            (row, ids)
            for row, ids in with_ids
            if ids != row["ids"]["trained"] and not self._is_served_prompt_of_own_template(row, ids)
        ]
        if not others:
            return
        # One mistake of a server gives the same difference in every prompt: it is shown once.
        differences = list(
            dict.fromkeys(
                self._describe_difference(row["ids"]["trained"], ids) for row, ids in others
            )
        )
        yield self.finding(
            f"{len(others)} of {len(with_ids)} prompts have other ids on the server than in"
            " training",
            REMEDY,
            evidence=differences[:1],
            cases=[Case(text) for text in differences[1:]],
            count=len(others),
            total=len(with_ids),
        )

    def _finding_on_served_prompt_lengths(
        self, with_count: list[tuple[RecitedAnswer, int]]
    ) -> Iterator[Finding]:
        """The finding on prompts of which the server tells the number of tokens alone."""
        others = [
            (row, count)
            for row, count in with_count
            if count != len(row["ids"]["trained"])
            and not self._is_served_prompt_of_own_template(row, count)
        ]
        if not others:
            return
        yield self.finding(
            f"{len(others)} of {len(with_count)} prompts have another number of tokens on the"
            " server than in training",
            REMEDY,
            # A warning: some servers count without BOS, and a number does not show what differs.
            severity="warning",
            cases=[
                Case(
                    f"row {row['number']}: {count} tokens on the server,"
                    f" {len(row['ids']['trained'])} in training"
                )
                for row, count in others
            ],
            count=len(others),
            total=len(with_count),
        )

    def _is_served_prompt_of_own_template(
        self, row: RecitedAnswer, served: list[int] | int
    ) -> bool:
        """Is the served prompt that of the tokenizer's own template?

        `answers-need-another-prompt` reports that one.
        """
        own = row["ids"]["prompt"]
        is_own = served == (own if isinstance(served, list) else len(own))
        return is_own and bool(rows_with_separable_answer_if_learned(self.subject))

    def _describe_difference(self, trained: list[int], served: list[int]) -> str:
        """What stands between the common beginning and end of both prompts, and how long they are."""
        shorter = min(len(trained), len(served))
        first = next((i for i in range(shorter) if trained[i] != served[i]), shorter)
        # The common end is looked for behind the common beginning only: of `a a` and `a` both would else claim one `a`.
        same_end = next(
            (i for i in range(shorter - first) if trained[-1 - i] != served[-1 - i]),
            shorter - first,
        )
        trained_part = trained[first : len(trained) - same_end]
        served_part = served[first : len(served) - same_end]
        if not trained_part:
            what = f"the server adds {self._describe_ids(served_part)}"
        elif not served_part:
            what = f"the server leaves out {self._describe_ids(trained_part)}"
        else:
            what = f"training {self._describe_ids(trained_part)}, server {self._describe_ids(served_part)}"
        return (
            f"from token {first} on, {what} ({len(trained)} tokens in training, {len(served)} on"
            " the server)"
        )

    def _describe_ids(self, ids: list[int]) -> str:
        """The text of ids; of a few the ids too, for two ids may look alike. The ids alone without a tokenizer."""
        if self.subject.probes is None:
            return str(ids[:MAX_IDS_WITHOUT_TEXT])
        backend = self.subject.probes.tokenizer.backend
        text = quote_shortened(backend.decode(ids, skip_special_tokens=False))
        return f"{text} (ids {ids})" if len(ids) <= MAX_IDS_BESIDE_TEXT else text

    def unmet(self) -> Unmet | None:
        """Also unmet where no server was asked for its prompts."""
        unmet = super().unmet()
        if unmet is not None:
            return unmet
        if "served" not in read_recitation(self.subject):
            return Unmet(
                "no server was asked for its prompts", "name it: truetune rehearse --endpoint URL"
            )
        return None

    def measurement_if_clean(self) -> Measurement:
        """How many prompts are the same on the server and in training."""
        prompts = read_recitation(self.subject)["served"]["prompts"]
        same = sum(self._do_served_ids_equal_trained_prompt(prompt) for prompt in prompts)
        more = "" if same == len(prompts) else "; answers-need-another-prompt is about the others"
        return make_count_measurement(
            "prompts that are the same on the server and in training", same, len(prompts), more
        )

    def _do_served_ids_equal_trained_prompt(self, prompt: ServerPromptIds) -> bool:
        """Are its ids, or their number where the server tells no ids, those of training?"""
        trained = read_recitation(self.subject)["rows"][prompt["row"]]["ids"]["trained"]
        return bool(
            prompt["count"] == len(trained) if prompt["ids"] is None else prompt["ids"] == trained
        )
