"""The template removes the reasoning from earlier turns.

## What it does
Counts the chats with reasoning in a turn that is not the last, and the turns whose reasoning the template drops once
another one follows, or never writes at all. If each turn is already an example of its own (`history: as-served`), it is
an info.

## Why it is bad
One rendering of the whole conversation cannot train such a turn as it will be served. Its reasoning is not in the
labels, and what is left, an answer without reasoning, is a format that the server never produces. A fine-tune for
reasoning then does not reason.

## Example
```yaml
spec: {history: single}
files:
  chat_template.jinja: >-
    {% for m in messages %}<|im_start|>{{ m.role }}
    {% if m.reasoning_content and loop.last %}<think>{{ m.reasoning_content }}</think>{% endif %}
    {{ m.content }}<|im_end|>
    {% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
    {% endif %}
data:
  - messages:
      - {role: user, content: "Is it open?"}
      - {role: assistant, reasoning_content: It is Monday., content: It is open.}
      - {role: user, content: "And on Sunday?"}
      - {role: assistant, reasoning_content: Sundays are free., content: It is closed.}
```

## Use instead
```yaml
data:
  - messages:
      - {role: user, content: "Is it open?"}
      - {role: assistant, reasoning_content: It is Monday., content: It is open.}
      - {role: user, content: "And on Sunday?"}
      - {role: assistant, reasoning_content: Sundays are free., content: It is closed.}
```

## Fix safety
`history: as-served` makes one example per assistant turn, each as the model sees it at inference; the data set grows by
the earlier turns of those chats.

## References
- axon-rl/gem#44, THUDM/slime#330, huggingface/open-r1#585, thinking-machines-lab/tinker-cookbook#142
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from truetune.checks.faults import Fault
from truetune.checks.findings import Case, Finding
from truetune.checks.judgement import Unmet
from truetune.checks.make_cases_at_tokens_and_turns import case_at_turn
from truetune.checks.measurement_without_findings import Measurement, make_count_measurement
from truetune.checks.rule import MAX_CASES, DataRule, Setup
from truetune.checks.template.evidence.does_learned_message_hold_reasoning import holds_reasoning
from truetune.data.conversation import Conversation
from truetune.encoding.batch import Batch
from truetune.render.inference_contract import REWRITTEN, turn_weights
from truetune.render.rendering import Rendering, Source
from truetune.render.unfilled_example_plan import THINK_END


class ThinkingStrippedFromHistory(DataRule):
    code = "TPL004"
    fault = Fault.EARLIER_TURNS_REWRITTEN_BY_TEMPLATE
    symptoms = ("nothing-is-learned",)
    severity = "warning"
    stability = "stable"
    since = "0.1.0"

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self.renderer = setup.probes.renderer()
        self.split = self.rewritten = self.unseen = self.turns = 0
        self.cases: list[Case] = []

    def add_batch(self, batch: Batch) -> None:
        """Count the turns with reasoning, those whose reasoning the template drops later, and those
        where it never writes it.
        """
        thinking: dict[int, set[int]] = {}
        for row in batch.rows:
            turns = self._learned_turns_with_reasoning(row)
            if turns:
                thinking[row.origin.row] = turns
                self.turns += len(turns)
        if not thinking:
            return
        told = self._count_rewritten_turns(batch, thinking)
        # A row that was never rendered is template-rejects-rows', and says nothing here.
        for row in (row for row in batch.rows if row.origin.row in told):
            for index in sorted(thinking[row.origin.row] - told[row.origin.row]):
                self.unseen += 1
                self._keep_case(Case("its reasoning is in no training text", row.origin, index))

    def _count_rewritten_turns(
        self, batch: Batch, thinking: Mapping[int, set[int]]
    ) -> dict[int, set[int]]:
        """Count the turns that the template rewrites, and collect those that lose nothing else.

        Args:
            batch: rows with their renderings.
            thinking: by row, the turns whose reasoning is to be learned.

        Returns:
            By row, the turns whose reasoning stands in some text, or whose loss is counted already.
        """
        known: dict[int, set[int]] = {}
        for i, (row, rendering) in enumerate(batch.examples):
            wanted = thinking.get(row.origin.row)
            if wanted is None:
                continue
            # An example of one turn was split off because the template rewrites it later: nothing
            # is lost.
            self.split += rendering.turn in wanted
            known.setdefault(row.origin.row, set()).update(
                _turns_with_rendered_reasoning(rendering)
            )
            for turn in rendering.turns:
                if turn.skew == REWRITTEN and turn.message in wanted:
                    self.rewritten += 1
                    known[row.origin.row].add(turn.message)
                    text = "its reasoning is dropped once the next turn follows"
                    self._keep_case(case_at_turn(batch, i, turn, text))
        return known

    def _learned_turns_with_reasoning(self, row: Conversation) -> set[int]:
        """The turns that hold reasoning and are to be learned; of the others templates drop it by design."""
        weights = turn_weights(row, self.renderer.spec_of(row))
        return {i for i, weight in weights.items() if weight and holds_reasoning(row.messages[i])}

    def _keep_case(self, case: Case) -> None:
        """Keep a case, as long as there is room."""
        if len(self.cases) < MAX_CASES:
            self.cases.append(case)

    def unmet(self) -> Unmet | None:
        """Unmet where no assistant turn has reasoning."""
        return (
            None
            if self.turns
            else Unmet("it is about assistant turns with reasoning, and there are none")
        )

    def measurement_if_clean(self) -> Measurement:
        """The number of assistant turns with reasoning that is not trained."""
        return make_count_measurement(
            "assistant turns with reasoning that is not trained",
            self.rewritten + self.unseen,
            self.turns,
        )

    def findings(self) -> Iterator[Finding]:
        lost = self.rewritten + self.unseen
        if lost:
            yield self.finding(
                f"the reasoning of {lost:,} of {self.turns:,} assistant turns is not in the loss, because the"
                " template drops it",
                (
                    "set `history: as-served` (--history as-served), which makes one example per assistant turn"
                    if self.rewritten
                    else "use a chat template that writes reasoning_content (--template FILE)"
                ),
                cases=self.cases,
                count=lost,
                total=self.turns,
            )
        elif self.split:
            yield self.finding(
                f"the template drops reasoning from earlier turns, so {self.split:,} turns are separate examples",
                "change nothing: `history: as-served` trains each turn as it will be served",
                severity="info",
                count=self.split,
                total=self.turns,
            )


def _turns_with_rendered_reasoning(rendering: Rendering) -> set[int]:
    """The turns whose reasoning stands in the text: as such, or as content with its closing tag."""
    turns = set()
    for run in rendering.runs_of_text_by_origin:
        # Where nothing opens the reasoning, all of it is content, and is trained as that.
        is_closed_content = (
            run.source is Source.ASSISTANT and THINK_END in rendering.text[run.start : run.end]
        )
        if run.source is Source.REASONING or is_closed_content:
            turns.add(int(run.path.split("[")[1].split("]")[0]))
    return turns
