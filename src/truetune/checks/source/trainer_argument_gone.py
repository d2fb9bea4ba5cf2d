"""A trainer gets an argument that newer releases no longer accept.

## What it does
Compares the arguments of `Trainer`, `SFTTrainer`, `DPOTrainer` and the others with what their constructors accept,
release by release (`settings/stacks/signatures.json`). It does not fire if the notebook, the script or the project's
requirements pin a release that accepts the argument. If none of them names a release, it is an error if the release
installed with truetune rejects the argument, else a warning that names the first release that does. Arguments are
followed through dictionaries (`**options`), also in other files that are checked. It does not report code that checks
first (`inspect.signature`, a version) or tries again, and files that import Unsloth, which accepts the old arguments.

## Why it is bad
The call fails with a TypeError: `tokenizer` is now `processing_class`, and `max_seq_length`, `packing`, `beta` and
others moved to the trainer's class of arguments. If you delete such an argument instead of moving it, the run uses the
default: rows cut at 1,024 tokens, beta 0.1.

## Example
```python
from transformers import AutoTokenizer
from trl import SFTConfig, SFTTrainer

tokenizer = AutoTokenizer.from_pretrained("some/model")
SFTTrainer(
    "some/model",
    args=SFTConfig("out"),
    train_dataset=rows,
    tokenizer=tokenizer,
    max_seq_length=2048,
    dataset_text_field="text",
).train()
```

## Use instead
```python
from transformers import AutoTokenizer
from trl import SFTConfig, SFTTrainer

tokenizer = AutoTokenizer.from_pretrained("some/model")
SFTTrainer(
    "some/model",
    args=SFTConfig("out", max_length=2048, dataset_text_field="text"),
    train_dataset=rows,
    processing_class=tokenizer,
).train()
```

## Fix safety
The automatic fix renames an argument if nothing else in the call is gone; it is safe if your release is known to be new
enough. Arguments that moved to another class must be moved by hand.

## References
- huggingface/trl#2400, huggingface/transformers#34787, huggingface/trl#2161
"""

from __future__ import annotations

from collections.abc import Iterator

from packaging.version import Version

from truetune.checks.examined_code_places import places_of_calls
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.judgement import Unmet
from truetune.checks.rule import SourceRule
from truetune.checks.source.evidence.cases_and_fixes_of_nodes import case_of_node, fix_of_changes
from truetune.checks.source.evidence.make_edits_that_rename_arguments import (
    changes_renaming_arguments,
    node_of_argument,
)
from truetune.settings.has_program_trained_with_these_settings import (
    severity_of_name_removed_in_later_release,
)
from truetune.settings.stacks.removed_arguments import RemovedArgument, find_removed_argument
from truetune.source.call_with_resolved_names_and_arguments import Call
from truetune.source.find_arguments_guarded_against_refusal import (
    arguments_guarded_by_support_checks,
    qualified_names_over_try_and_if_branches,
)
from truetune.source.parsed_source_file import Module

TRAINERS = ("trl.*Trainer", "transformers.*Trainer")

REWRITTEN = Unmet("it is about trainers as they are released, and unsloth rewrites them")


class TrainerArgumentGone(SourceRule):
    code = "SRC067"
    fault = Fault.NAMES_GONE_IN_NEWER_RELEASE
    symptoms = ("nothing-is-learned",)
    severity = "error"
    looks_at = places_of_calls("trainers that are made", *TRAINERS)

    def unmet(self) -> Unmet | None:
        """Also unmet where Unsloth rewrites the trainers."""
        if self.subject.this_or_linked_file_imports_unsloth:
            return REWRITTEN
        return super().unmet()

    def findings(self) -> Iterator[Finding]:
        module = self.subject
        if module.this_or_linked_file_imports_unsloth:
            return
        for call in module.calls(*TRAINERS):
            gone = list(_refused_arguments(module, call))
            if gone:
                yield self._finding_on_call(call, gone)

    def _finding_on_call(self, call: Call, gone: list[RemovedArgument]) -> Finding:
        """The finding on the arguments of one call that are gone."""
        module = self.subject
        package, _, trainer = _library_class_name(module, call).partition(".")
        changes = [(one.taken.last, one.taken.gone) for one in gone]
        severity = severity_of_name_removed_in_later_release(
            module.pins, package, changes, module.path
        )
        named = ", ".join(one.name for one in gone)
        return self.finding(
            f"{trainer} takes no {named} in {package}"
            f" {max((one.taken.gone for one in gone), key=Version)} and later",
            "; ".join(f"{one.name}: {_advice_on_argument(package, one)}" for one in gone),
            severity=severity,
            evidence=[module.pins.describe_asked_release(package)],
            cases=[
                case_of_node(module, node_of_argument(call, one.name), f"{one.name}=...")
                for one in gone
            ],
            count=len(gone),
            is_loud=module.pins.of(package) is None,
            fix=(
                fix_of_changes(
                    module, changes_renaming_arguments(module, call, gone), safe=severity == "error"
                )
                if all(one.renamed for one in gone)
                else None
            ),
        )


def _library_class_name(module: Module, call: Call) -> str:
    """The name of the class that is called, `trl.SFTTrainer`; empty for a class of the file, which
    may take more.
    """
    return module.flow.name(call.node.func) or ""


def _refused_arguments(module: Module, call: Call) -> Iterator[RemovedArgument]:
    """The arguments of a call that a release refuses which may run."""
    package, _, trainer = _library_class_name(module, call).partition(".")
    of_one_class = len(qualified_names_over_try_and_if_branches(module, call.node.func)) == 1
    if (
        # Of several possible classes one may take the argument.
        package not in ("trl", "transformers")
        or not of_one_class
        or "experimental" in module.text_of(call.node.func)
    ):
        return
    excused = arguments_guarded_by_support_checks(module, call)
    for name in call.keywords:
        gone = find_removed_argument(package, trainer, name) if name not in excused else None
        # A pin to an older release means that the script runs where the argument is there.
        if gone is not None and module.pins.age_of_asked_releases(package, *gone.taken) != "older":
            yield gone


def _advice_on_argument(package: str, gone: RemovedArgument) -> str:
    """The advice what to write instead of an argument."""
    if gone.instead is None:
        return f"gone, remove it (from {package} {gone.taken.gone})"
    return f"write {gone.instead} (from {package} {gone.taken.gone})"
