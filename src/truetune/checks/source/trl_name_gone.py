"""A name is imported from TRL that newer releases no longer have there.

## What it does
Looks at what a file imports from `trl` or reads from it (`trl.ORPOTrainer`), and at what TRL exported, release by
release (`settings/stacks/signatures.json`). It does not fire if the notebook, the script or the project's requirements
pin a release that has the name. If none of them names a release, it is an error if the release installed with truetune
lacks the name, else a warning that names the first release that does. It does not report an import that is tried
(`except ImportError`), or made only for one release.

## Why it is bad
The import fails with an ImportError. `DataCollatorForCompletionOnlyLM` masked prompts: if you remove it without a
replacement, the model is trained on the prompts too. The trainers of ORPO, CPO and others moved to `trl.experimental`.

## Example
```python
from transformers import AutoTokenizer
from trl import DataCollatorForCompletionOnlyLM, SFTTrainer

tokenizer = AutoTokenizer.from_pretrained("some/model")
collator = DataCollatorForCompletionOnlyLM("### Answer:", tokenizer=tokenizer)
SFTTrainer("some/model", train_dataset=rows, data_collator=collator).train()
```

## Use instead
```python
from trl import SFTConfig, SFTTrainer

SFTTrainer("some/model", args=SFTConfig("out", completion_only_loss=True, max_length=2048), train_dataset=pairs).train()
```

## Fix safety
The automatic fix rewrites imports of names that moved to another module of TRL; it is safe if your release is known to
be new enough. There is no fix for the others: the replacement of a class has other arguments.

## References
- huggingface/trl#3631, huggingface/trl#3473
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from packaging.version import Version

from truetune.checks.examined_code_places import CodePlaces
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.rule import SourceRule
from truetune.checks.source.evidence.cases_and_fixes_of_nodes import case_of_node, fix_of_changes
from truetune.settings.has_program_trained_with_these_settings import (
    severity_of_name_removed_in_later_release,
)
from truetune.settings.stacks.removed_arguments import RemovedExport, find_removed_export
from truetune.source.find_arguments_guarded_against_refusal import (
    is_behind_release_or_signature_check,
)
from truetune.source.make_source_edits import Changes, insert_statements_before, replace_expression
from truetune.source.parsed_source_file import Module

INSTEAD = {
    "DataCollatorForCompletionOnlyLM": (
        "set completion_only_loss=True in SFTConfig if the rows have prompt and completion, or set"
        " assistant_only_loss=True if they have messages"
    ),
    "setup_chat_format": "set tokenizer.chat_template and add its tokens to the tokenizer yourself, before the trainer",
    "PPOTrainer": "use RLOOTrainer or GRPOTrainer",
    "PPOConfig": "use RLOOConfig or GRPOConfig, with their trainers",
}
"""What does the same today, where that is no class of the same name"""


class TrlName(NamedTuple):
    """One place that names something of `trl` itself."""

    node: ast.alias | ast.Attribute
    name: str
    statement: ast.ImportFrom | None
    """The import, where it is one"""


def _names_of_trl(module: Module) -> Iterator[TrlName]:
    """All names of `trl` that a file imports or reads from the module."""
    for node in module.nodes(ast.ImportFrom):
        if not node.level and node.module == "trl":
            yield from (TrlName(alias, alias.name, node) for alias in node.names)
    for attribute in module.nodes(ast.Attribute):
        if isinstance(attribute.value, ast.Name) and module.flow.name(attribute.value) == "trl":
            yield TrlName(attribute, attribute.attr, None)


class TrlNameGone(SourceRule):
    code = "SRC068"
    fault = Fault.NAMES_GONE_IN_NEWER_RELEASE
    symptoms = ("nothing-is-learned",)
    severity = "error"
    looks_at = CodePlaces("names used from trl", _names_of_trl)

    def findings(self) -> Iterator[Finding]:
        module = self.subject
        together: dict[tuple[ast.AST | None, bool], dict[TrlName, RemovedExport]] = {}
        for use in _names_of_trl(module):
            name = find_removed_export("trl", use.name)
            if (
                name is None
                or module.pins.age_of_asked_releases("trl", *name.taken) == "older"
                or _is_used_only_if_available(module, use)
            ):
                continue
            together.setdefault((use.statement, name.home is not None), {})[use] = name
        for gone in together.values():
            yield self._finding_on_import(gone)

    def _finding_on_import(self, gone: Mapping[TrlName, RemovedExport]) -> Finding:
        """The finding on names that one statement imports."""
        pins = self.subject.pins
        changes = [(name.taken.last, name.taken.gone) for name in gone.values()]
        severity = severity_of_name_removed_in_later_release(
            pins, "trl", changes, self.subject.path
        )
        # By version and not as text: 0.10 comes after 0.9.
        newest = max((name.taken.gone for name in gone.values()), key=Version)
        names = list(dict.fromkeys(use.name for use in gone))
        remedies = dict.fromkeys(_advice_on_name(use.name, name) for use, name in gone.items())
        return self.finding(
            f"trl no longer has {', '.join(names)} in {newest} and later: the import fails",
            "; ".join(remedies),
            severity=severity,
            evidence=[pins.describe_asked_release("trl")],
            cases=[case_of_node(self.subject, use.node, use.name) for use in gone],
            count=len(gone),
            is_loud=pins.of("trl") is None,
            fix=fix_of_changes(
                self.subject, _edits_of_imports(self.subject, gone), safe=severity == "error"
            ),
        )


def _edits_of_imports(module: Module, gone: Mapping[TrlName, RemovedExport]) -> Changes:
    """The statement without the names that moved, and one import for each module that they moved to."""
    statement = next(iter(gone)).statement
    homes: dict[str, list[ast.alias]] = {}
    for use, name in gone.items():
        if name.home is None or not isinstance(use.node, ast.alias):
            return ()
        homes.setdefault(name.home, []).append(use.node)
    if statement is None:
        return ()
    moved = {use.node for use in gone}
    left = [alias for alias in statement.names if alias not in moved]
    imports = [("trl", left)] * bool(left) + list(homes.items())
    lines = [
        f"from {home} import {', '.join(map(ast.unparse, aliases))}" for home, aliases in imports
    ]
    return (
        *insert_statements_before(module, statement, *lines[:-1]),
        *replace_expression(module, statement, lines[-1]),
    )


def _advice_on_name(name: str, gone: RemovedExport) -> str:
    """The advice what to import or to use instead of a name."""
    if gone.home is not None:
        return f"import {name} from {gone.home}"
    if name in INSTEAD:
        return f"remove {name} (the import and its use), and {INSTEAD[name]}"
    return f'pin "trl<{gone.taken.gone}", or remove the use of {name}'


def _is_used_only_if_available(module: Module, use: TrlName) -> bool:
    """Is a name used only where it is there: imported in a `try`, or for one release?"""
    node = use.statement or use.node
    if (
        # An attribute in a try is used for other reasons too; an import there is tried for its release.
        any(isinstance(parent, ast.Try) for parent in module.parents(node))
        and use.statement is not None
    ):
        return True
    return is_behind_release_or_signature_check(module, node)
