"""The result of `apply_chat_template` is taken for a list of ids, but since transformers 5 it is a dictionary.

## What it does
It follows results of `apply_chat_template` (tokenized, without `return_dict`) into `len`, slices, loops, list
arithmetic and `.shape`. `len`, slices and loops give a wrong value without an exception and are errors; what stops with
an exception is a warning.

## Why it is bad
`len` of the dictionary is 2. A prompt mask of that length leaves the whole prompt in the loss, without an error.

## Example
```python
from transformers import AutoTokenizer

tok = AutoTokenizer.from_pretrained("Qwen/Qwen3-0.6B")
prompt = tok.apply_chat_template([{"role": "user", "content": "Hi"}], add_generation_prompt=True)
labels = [-100] * len(prompt)
```

## Use instead
```python
from transformers import AutoTokenizer

tok = AutoTokenizer.from_pretrained("Qwen/Qwen3-0.6B")
prompt = tok.apply_chat_template([{"role": "user", "content": "Hi"}], add_generation_prompt=True, return_dict=False)
labels = [-100] * len(prompt)
```

## Fix safety
Safe: `return_dict=False` gives the ids, in transformers 4 too. There is no automatic fix if the result is used as a
dictionary elsewhere.

## References
- huggingface/transformers#41626, huggingface/transformers#42567, huggingface/trl#4880
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import NamedTuple

from truetune.checks.examined_code_places import places_of_method_calls
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.judgement import Unmet
from truetune.checks.rule import SourceRule
from truetune.checks.source.evidence.cases_and_fixes_of_nodes import case_of_node, fix_of_changes
from truetune.checks.source.evidence.uses_of_chat_template_results import (
    gives_dictionary_from_transformers_5,
    uses_of_result_with_failure_class,
)
from truetune.source.call_with_resolved_names_and_arguments import Call
from truetune.source.make_source_edits import Changes, set_keyword
from truetune.source.parsed_source_file import Module

OLDER = Unmet("it is about transformers 5 and later, and an older one is asked for")


class ApplyChatTemplateReturnsDict(SourceRule):
    code = "SRC010"
    fault = Fault.NAMES_GONE_IN_NEWER_RELEASE
    symptoms = ("garbage-output",)
    severity = "error"
    stability = "stable"
    since = "0.1.0"
    looks_at = places_of_method_calls("calls of apply_chat_template", "apply_chat_template")

    def unmet(self) -> Unmet | None:
        """Why the rule can say nothing, also where an older transformers is pinned, which returns a
        list; None where it can.
        """
        if self.subject.pins.is_release_surely_before("transformers", "5.0.0"):
            return OLDER
        return super().unmet()

    def findings(self) -> Iterator[Finding]:
        """Findings on results of `apply_chat_template` that are taken for a list of ids."""
        module = self.subject
        calls = [
            call
            for call in module.methods("apply_chat_template")
            if gives_dictionary_from_transformers_5(module, call)
        ]
        if not calls or module.pins.is_release_surely_before("transformers", "5.0.0"):
            return
        used = [
            _TemplateResult(call, tuple(uses_of_result_with_failure_class(module, call.node)))
            for call in calls
        ]
        misused = [one for one in used if one.of("silent") or one.of("loud")]
        for together in _group_by_statement(module, misused):
            yield self._finding_on_statement(together)

    def _finding_on_statement(self, together: list[_TemplateResult]) -> Finding:
        """The finding on the results that one statement uses; silent uses are the graver ones."""
        module = self.subject
        silent = [node for one in together for node in one.of("silent")]
        loud = [node for one in together for node in one.of("loud")]
        meant = "a list of ids" if silent else "a tensor"
        effect = "its len() is 2, whatever the prompt" if silent else "this raises an exception"
        evidence = [effect]
        if not module.pins.of("transformers"):
            evidence.append(
                "no file here says which release of transformers is used; before 5 the result is a list of ids"
            )
        calls = [one.call.node for one in together]
        # Two uses show the fault; more places would hide the calls that have to change.
        places = [*(silent + loud)[:2], *calls]
        return self.finding(
            f"apply_chat_template returns a dictionary since transformers 5; here it is used as {meant}",
            'set return_dict=False in this call, or use ["input_ids"] of its result',
            severity="error" if silent else "warning",
            evidence=evidence,
            cases=[case_of_node(module, node) for node in places],
            fix=fix_of_changes(module, _edits_for_list_of_ids(module, together)),
        )


class _TemplateResult(NamedTuple):
    """A call of apply_chat_template and the uses of its result."""

    call: Call
    uses: tuple[tuple[ast.AST, str], ...]

    def of(self, how: str) -> list[ast.AST]:
        """The uses of the result that are of this kind."""
        return [node for node, kind in self.uses if kind == how]


def _group_by_statement(module: Module, used: list[_TemplateResult]) -> list[list[_TemplateResult]]:
    """Group calls whose results are used in one statement: a prompt, and the prompt with its
    answer, have one cause.
    """
    groups: dict[ast.AST, list[_TemplateResult]] = {}
    for one in used:
        wrong = [module.statement(node) or node for node in (*one.of("silent"), *one.of("loud"))]
        group = next((groups[statement] for statement in wrong if statement in groups), [])
        group.append(one)
        groups.update(dict.fromkeys(wrong, group))
    return list({id(group): group for group in groups.values()}.values())


def _edits_for_list_of_ids(module: Module, used: list[_TemplateResult]) -> Changes:
    """The changes that make these calls return a list of ids again, but for those that a dictionary is right for."""
    return tuple(
        change
        for one in used
        if not one.of("dictionary")
        for change in set_keyword(module, one.call, "return_dict", "False")
    )
