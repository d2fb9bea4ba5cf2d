"""A batch is padded on the right and then passed to generation.

## What it does
Traces a batch that a tokenizer pads into `generate`, and checks the padding side. It is an error if the file sets
`padding_side="right"` or `pad_sequence` pads on the right, and a warning if it sets none (most tokenizers pad on the
right). A text-generation pipeline with `batch_size` pads on the side of its tokenizer. A single row has no padding, so
it does not fire on a single prompt, or if only one answer is read (`outputs[0]`). It also does not fire if the answers
are discarded (a speed benchmark), or if Unsloth loads the model, which sets the left side. Scripts that read the next
token themselves, as `logits[:, -1]`, are judged in the same way, and so are those that take the hidden state of the
last position for the embedding of a text.

## Why it is bad
New tokens are appended after the padding: short rows of a batch get garbage, while a batch of one row works.

## Example
```python
from transformers import AutoModelForCausalLM, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained("model", padding_side="right")
model = AutoModelForCausalLM.from_pretrained("model")
batch = tokenizer(["Hi", "How do you do?"], padding=True, return_tensors="pt")
out = model.generate(**batch, max_new_tokens=20)
```

## Use instead
```python
from transformers import AutoModelForCausalLM, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained("model", padding_side="left")
model = AutoModelForCausalLM.from_pretrained("model")
batch = tokenizer(["Hi", "How do you do?"], padding=True, return_tensors="pt")
out = model.generate(**batch, max_new_tokens=20)
```

## Fix safety
`padding_side="left"` for generation is safe. If the same tokenizer is also used for training, you may want the right
side there.

## References
- huggingface/transformers#34842, kserve/kserve#3534, Vision-CAIR/MiniGPT-4#129
- unslothai/unsloth#772 (what the last position of a batch holds)
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from truetune.checks.examined_code_places import CodePlaces
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.judgement import Unmet
from truetune.checks.rule import SourceRule
from truetune.checks.source.evidence.cases_and_fixes_of_nodes import case_of_node
from truetune.checks.source.evidence.generate_call_inputs import (
    does_tokenizer_call_pad,
    encoding_calls_of_dictionary,
    generate_calls,
    has_encoder_models_only,
    input_ids_argument,
    tokenizer_call_of_input_ids,
)
from truetune.checks.source.evidence.last_states_pooled_under_right_padding import (
    last_states_pooled_under_right_padding,
)
from truetune.checks.source.evidence.pad_token_settings_and_edits_that_change_them import (
    padding_sides_set,
)
from truetune.checks.source.evidence.pads_read_or_pooled_as_tokens import last_positions_read
from truetune.checks.source.evidence.prompts_padded_on_the_right import prompts_padded_on_the_right
from truetune.checks.source.evidence.reads_more_than_one_generated_answer import (
    reads_at_most_first_generated_answer,
)
from truetune.settings.run_spec import Severity
from truetune.source.call_with_resolved_names_and_arguments import Call
from truetune.source.parsed_source_file import Module

ENCODES_APART = Unmet(
    "it is about decoder-only models, and these have an encoder, which takes padding on the right"
)


def _generate_calls_and_last_position_reads(module: Module) -> Iterator[object]:
    """The calls of `generate` in a file, and its reads of a last position (`logits[:, -1]`)."""
    yield from generate_calls(module)
    for node in module.nodes(ast.Subscript):
        keys = node.slice.elts if isinstance(node.slice, ast.Tuple) else []
        if len(keys) > 1 and isinstance(keys[0], ast.Slice) and ast.unparse(keys[1]) == "-1":
            yield node


class RightPaddingAtGeneration(SourceRule):
    code = "SRC042"
    fault = Fault.PADDING_CHANGES_RESULTS
    severity = "error"
    stability = "stable"
    since = "0.1.0"
    looks_at = CodePlaces(
        "generations, and reads of a last position", _generate_calls_and_last_position_reads
    )

    def unmet(self) -> Unmet | None:
        """Also unmet where all models encode prompts apart from their answers."""
        if has_encoder_models_only(self.subject):
            return ENCODES_APART
        return super().unmet()

    def findings(self) -> Iterator[Finding]:
        module = self.subject
        if has_encoder_models_only(module):
            return
        # Both ways of unsloth pad on the left, whatever the tokenizer's file says.
        if any(module.calls("unsloth.Fast*Model.for_inference")):
            return  # it sets the tokenizer to the left
        reported: set[ast.AST] = set()
        for call, batch, side in _generations_padded_but_not_left(module):
            reported.add(call.node)
            side_text = (
                "on the right" if side else "on the tokenizer's default side (usually right)"
            )
            yield self._finding_on_generation(
                side_text, "error" if side else "warning", call.node, batch.node
            )
        for prompts in prompts_padded_on_the_right(module):
            node = prompts.generation.node
            if node not in reported:
                yield self._finding_on_generation("on the right", "error", node, prompts.padding)
        yield from self._findings_on_last_positions()

    def _findings_on_last_positions(self) -> Iterator[Finding]:
        """The findings on scripts that read the next token of a batch at its last position."""
        traced = {one.node: one for one in last_positions_read(self.subject)}
        pooled = {one.node: one for one in last_states_pooled_under_right_padding(self.subject)}
        for last_position_read in (pooled | traced).values():
            if _is_chosen_by_mask(self.subject, last_position_read.node):
                continue  # the script reads it where the mask shows that no row ends in padding
            side = (
                "on the right"
                if last_position_read.is_right
                else "on the tokenizer's default side (usually right)"
            )
            yield self.finding(
                f"a batch is padded {side}, and its last position is read: for all rows but the longest it is padding",
                'set padding_side="left" on the tokenizer (or in its call), or read position'
                " attention_mask.sum(1) - 1 of each row",
                severity="error" if last_position_read.is_right else "warning",
                cases=[
                    case_of_node(self.subject, last_position_read.node),
                    case_of_node(self.subject, last_position_read.padding),
                ],
            )

    def _finding_on_generation(
        self, side: str, severity: Severity, generation: ast.AST, padding: ast.AST
    ) -> Finding:
        """The finding on a generation and on what pads its prompts."""
        return self.finding(
            f"a batch is padded {side} and passed to generation: new tokens come after the padding, and short rows get"
            " garbage",
            'set padding_side="left" on the tokenizer (or in its call) before generation',
            severity=severity,
            cases=[case_of_node(self.subject, generation), case_of_node(self.subject, padding)],
        )


def _is_chosen_by_mask(module: Module, node: ast.AST) -> bool:
    """Does a place run only where a mask has some value?"""
    return any(
        isinstance(outer, ast.If | ast.IfExp) and "mask" in ast.unparse(outer.test)
        for outer in module.parents(node)
    )


def _generations_padded_but_not_left(module: Module) -> Iterator[tuple[Call, Call, str | None]]:
    """The generations from a batch that is padded, and not on the left, each with its batch and the
    side that is set.
    """
    for call in generate_calls(module):
        if _is_tokenizer_of_unsloth(module, call) or reads_at_most_first_generated_answer(
            module, call
        ):
            continue
        batch = next(
            (
                one
                for one in _tokenizer_calls_giving_prompts(module, call)
                if does_tokenizer_call_pad(module, one)
            ),
            None,
        )
        side = None if batch is None else _padding_side_set(module, batch)
        if batch is not None and side != "left":
            yield call, batch, side


def _tokenizer_calls_giving_prompts(module: Module, call: Call) -> Iterator[Call]:
    """The calls of a tokenizer whose result this `generate` gets."""
    starred = [keyword.value for keyword in call.node.keywords if keyword.arg is None]
    for node in starred:
        yield from encoding_calls_of_dictionary(module, node)
    ids = input_ids_argument(call)
    encoded = tokenizer_call_of_input_ids(module, ids) if ids is not None else None
    if encoded is not None:
        yield encoded.call


def _is_tokenizer_of_unsloth(module: Module, call: Call) -> bool:
    """Does Unsloth load the tokenizer, which then pads on the left from its loading on?"""
    load = (
        [origin.node for origin in module.flow.origins(call.receiver)]
        if call.receiver is not None
        else []
    )
    return any(
        isinstance(node, ast.Call) and module.flow.call(node).named("unsloth.Fast*Model.*")
        for node in load
    )


def _padding_side_set(module: Module, batch: Call) -> str | None:
    """The side that is set anywhere for tokenizers: left wins, then right; None where none is."""
    if "padding_side" in batch.keywords:
        return str(module.flow.value(batch.keywords["padding_side"]))
    if not module.mentions("padding_side"):
        return None
    sides = {
        str(module.flow.value(value))
        for part in module.self_and_files_run_together
        for value in padding_sides_set(part)
    }
    if not sides:
        return None
    # One `left` anywhere is taken for these prompts: scripts switch sides between training and generation.
    return "right" if sides == {"right"} else "left"
