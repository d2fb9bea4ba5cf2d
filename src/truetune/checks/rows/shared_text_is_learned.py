"""Most of the loss is on a text that all rows share.

## What it does
Looks for text that most of the first rows have in common, word for word (8 tokens in a row; 32 characters without a
tokenizer): an instruction, a policy, examples, boilerplate. It is a warning if such text is prompt or plain text, has
labels, and makes up half of all tokens in the loss. It is an info if the labels are right, but such text is still 80 %
of all tokens. It counts what the length limit leaves. If that is hardly any answer, the rules on length limits report
it.

## Why it is bad
The loss is an average over tokens. Of a thousand tokens that never change and two that decide, the model learns the
thousand within a few steps. The loss falls to nearly zero, and the decision is hardly learned.

## Example
```yaml
data:
  rows: 40
  text: >-
    Rules: be kind, be brief, never swear, allow jokes, remove spam and threats, and report all that is sold here
    without a licence. Comment {i}: {label}. Decision: {label}
```

## Use instead
```yaml
data:
  rows: 40
  instruction: >-
    Rules: be kind, be brief, never swear, allow jokes, remove spam and threats, and report all that is sold here
    without a licence. Comment {i}: {label}.
  output: "{label}"
```

## Fix safety
Training on the answers only is safe. For chats, set `assistant_only_loss=True` (TRL), `train_on_responses_only`
(Unsloth) or `train_on_inputs: false` (Axolotl). Convert plain text to rows with messages, or with prompt and
completion.

## References
- unslothai/unsloth#823, huggingface/alignment-handbook#56
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from truetune.checks.boilerplate_tokens import (
    BYTES_IN_A_ROW,
    IN_A_ROW,
    BoilerplateTokens,
    ExampleTokens,
    find_boilerplate_tokens,
)
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.judgement import Unmet
from truetune.checks.learned_tokens_against_ideal_mask import ANSWER_SOURCES
from truetune.checks.measurement_without_findings import Measurement, make_count_measurement
from truetune.checks.rule import DataRule, Setup
from truetune.checks.severity_by_trainer import is_nearly_all
from truetune.encoding.batch import Batch
from truetune.render.rendering import Source

# Comparing costs the product of examples and tokens; a text that most rows share is in 500 of them
# as well.
MAX_EXAMPLES = 500
"""Distinct examples that are compared"""
# Chosen, not measured: of a few rows one subject alone shares long passages.
MIN_EXAMPLES = 20
MAX_TOKENS = 8_192
"""Tokens of an example that are compared, from its beginning"""
# In LLaMA-Factory's demo data and tinker-cookbook's chats (eleven sets, 4,268 rows) at most 0.03.
# From half on, the loss says more about the shared text, which is known after some steps, than
# about the answers. At 0.25 plain text with a short system prompt in each row would warn.
LEARNED_SHARE = 0.5
"""Share of what is learned, from which it is a warning"""
TOTAL_SHARE = 0.8
"""Share of all tokens from which it is a note"""
BYTES_OF_A_TOKEN = 4
"""Of English, where each token is a byte because no tokenizer is available"""
MIN_TOKENS = 16
"""Tokens of it that an example learns: a header of a few tokens costs nothing"""
MIN_CONTEXT = 256
"""Tokens of it in an example that learns none of them, from which they cost time"""
ANSWERS_CUT = Unmet(
    "hardly any row keeps a token of its answer within the length limit; the rules on the limit report that"
)
CHATS_REMEDY = (
    "train on the answers only: set assistant_only_loss=True in TRL's SFTConfig (0.19 or newer), use"
    " train_on_responses_only in Unsloth, or set train_on_inputs: false in Axolotl"
)
IS_PROMPT = np.ones(len(Source), dtype=np.bool_)
IS_PROMPT[[Source.ASSISTANT, Source.REASONING, Source.TOOL_CALL, Source.STOP, Source.BOS]] = False
"""Answers that are alike are `few-distinct-answers`"""


class SharedTextIsLearned(DataRule):
    code = "ROW030"
    fault = Fault.TEMPLATE_TEXT_IN_LOSS
    symptoms = ("nothing-is-learned",)
    severity = "warning"
    needs_tokenizer = False
    moot_where = ("answer-is-little-of-the-loss",)

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self.examples: list[ExampleTokens] = []
        self.known: set[bytes] = set()
        self.shared: BoilerplateTokens | None = None
        cut = setup.trainer.cut.value
        training = setup.spec.training
        keeps_end = training.packing or training.other.get("truncation_mode") == "keep_end"
        self.limit = setup.spec.max_length or cut.limit
        if cut.action == "none" or keeps_end:
            self.limit = None
        self.answered = self.chats = 0
        self.unit = BYTES_OF_A_TOKEN if setup.are_tokens_single_bytes else 1
        self.units = "characters" if setup.are_tokens_single_bytes else "tokens"

    def add_batch(self, batch: Batch) -> None:
        """Keep the tokens of the first different examples, to look for what they share."""
        for i in range(len(batch.examples)):
            if len(self.examples) == MAX_EXAMPLES:
                return
            start = int(batch.offsets[i])
            longest = MAX_TOKENS * self.unit
            most = min(longest, self.limit or longest)
            part = slice(start, min(int(batch.offsets[i + 1]), start + most))
            ids = batch.ids[part].copy()
            key = ids.tobytes()
            # Copies share all of their text, and are duplicate-rows'.
            if key not in self.known:
                self.known.add(key)
                is_prompt = IS_PROMPT[batch.source[part]]
                self.examples.append(ExampleTokens(ids, is_prompt, batch.supervised[part].copy()))
                row = batch.examples[i].row
                self.chats += row.is_chat
                # Plain text has no answer that could be told from the rest.
                self.answered += row.text is not None or bool(
                    np.isin(batch.source[part], ANSWER_SOURCES).any()
                )

    def unmet(self) -> Unmet | None:
        """Unmet where different examples are too few, or the limit of length leaves no answers."""
        if len(self.examples) < MIN_EXAMPLES:
            return Unmet(f"it is about {MIN_EXAMPLES} different examples or more")
        return ANSWERS_CUT if self._does_limit_leave_no_answer() else None

    def _does_limit_leave_no_answer(self) -> bool:
        """Does the limit leave nearly no answer, so that the prompts are all there is?"""
        return is_nearly_all(len(self.examples) - self.answered, len(self.examples))

    def measurement_if_clean(self) -> Measurement:
        """How much of what is learned are prompts, and text that most rows share."""
        shared = self._shared_text()
        return make_count_measurement(
            f"{self.units} in the loss that are prompts or text that most rows share",
            shared.shared_learned,
            max(shared.learned, shared.shared_learned),
        )

    def findings(self) -> Iterator[Finding]:
        if len(self.examples) < MIN_EXAMPLES or self._does_limit_leave_no_answer():
            return
        shared = self._shared_text()
        each = shared.shared / shared.examples
        if shared.shared_learned >= max(
            LEARNED_SHARE * shared.learned, MIN_TOKENS * self.unit * shared.examples
        ):
            yield self.finding(
                f"{shared.shared_learned / shared.learned:.0%} of the {self.units} in the loss are text that most"
                f" rows share (about {each:,.0f} per row, beginning {self._shared_beginning(shared)!r}): the model"
                " learns to repeat it, and the loss hardly shows the rest",
                self._remedy_for_learned_prompts(),
                evidence=[
                    f"in {shared.examples:,} different examples; only"
                    f" {(shared.learned - shared.shared_learned) / shared.examples:,.0f} {self.units} per row in the"
                    " loss differ"
                ],
                count=shared.shared_learned,
                total=shared.learned,
            )
        elif shared.shared >= max(
            TOTAL_SHARE * shared.tokens, MIN_CONTEXT * self.unit * shared.examples
        ):
            yield self.finding(
                f"{shared.shared / shared.tokens:.0%} of all {self.units} are text that most rows share (about"
                f" {each:,.0f} per row), while {shared.learned / shared.examples:,.0f} per row are in the loss: most"
                " of the compute goes into repeated text",
                "shorten the shared text, in training and in serving: a tuned model does not need a long"
                " instruction",
                severity="info",
                count=shared.shared,
                total=shared.tokens,
            )

    def _remedy_for_learned_prompts(self) -> str:
        """How to leave prompts out of the loss: by the setting, where it is what lets them in."""
        if self.spec.training.train_on_inputs:
            return (
                "set train_on_inputs: false (train_on_prompt: false in LLaMA-Factory): the loss then covers the"
                " answers only"
            )
        if self.chats:
            return CHATS_REMEDY
        return (
            "train on the answers only: convert the `text` rows to messages, or to prompt and completion, and leave"
            " the prompts out of the loss (completion_only_loss or assistant_only_loss in TRL)"
        )

    def _shared_text(self) -> BoilerplateTokens:
        """What the examples have in common; computed once."""
        if self.shared is None:
            in_a_row = BYTES_IN_A_ROW if self.setup.are_tokens_single_bytes else IN_A_ROW
            self.shared = find_boilerplate_tokens(self.examples, in_a_row)
        return self.shared

    def _shared_beginning(self, shared: BoilerplateTokens) -> str:
        """The first characters of the text that they share."""
        ids = self.examples[0].ids[shared.begins]
        return str(self.tokenizer.backend.decode(ids.tolist())).strip()[:40]
