"""Two files of the tokenizer contain different chat templates.

## What it does
Compares the default chat templates in chat_template.jinja, tokenizer_config.json and chat_template.json, if more than
one of them has one.

## Why it is bad
Each program reads another file: current transformers chat_template.jinja, older releases and several servers
tokenizer_config.json, processors chat_template.json. The model is then trained with one prompt format and served with
another.

## Example
```yaml
files:
  tokenizer_config.json: {chat_template: "{% for m in messages %}{{ m.role }}: {{ m.content }}{% endfor %}"}
```

## Use instead
```yaml
files:
  tokenizer_config.json: {chat_template: null}
```

## Fix safety
Keep the template that the model was trained with, and delete the other one.

## References
- huggingface/transformers#33957, huggingface/text-generation-inference#3247
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from truetune.checks.faults import Fault
from truetune.checks.findings import Case, Finding
from truetune.checks.judgement import Unmet
from truetune.checks.reasons_data_rules_cannot_judge import NO_TEMPLATE
from truetune.checks.rule import DataRule
from truetune.render.find_tokenizer_folder import read_default_templates_by_file


class ChatTemplatesDisagree(DataRule):
    code = "TPL014"
    fault = Fault.TOKENIZER_FILES_CONTRADICT
    symptoms = ("garbage-output", "good-here-bad-there")
    severity = "warning"
    moot_where = ("chat-template-missing-or-old-in-checkpoint",)
    judges_saved_file = True
    judges_without_rows = True

    def unmet(self) -> Unmet | None:
        """Unmet where no file holds a chat template."""
        return None if self._default_templates_by_file() else NO_TEMPLATE

    def measurement_if_clean(self) -> str:
        """The files that hold the template, and that it is the same."""
        files = list(self._default_templates_by_file())
        if len(files) == 1:
            return f"1 file contains the template, {files[0]}"
        return f"{len(files)} files contain the same template: {' and '.join(files)}"

    def findings(self) -> Iterator[Finding]:
        templates = self._default_templates_by_file()
        if len(set(templates.values())) < 2:
            return
        read, *others = templates
        differing = [file for file in others if templates[file] != templates[read]]
        yield self.finding(
            f"{read} and {' and '.join(differing)} contain different chat templates: transformers reads {read},"
            " other programs the other one",
            f"delete the chat template that was not used in training (transformers trains with the one in {read})",
            cases=[
                _case_of_first_differing_line(templates[read], templates[file], file)
                for file in differing
            ],
            count=len(differing),
        )

    def _default_templates_by_file(self) -> Mapping[str, str]:
        """The default template by file, in the order in which transformers looks."""
        return read_default_templates_by_file(self.tokenizer.folder, self.tokenizer.config)


def _case_of_first_differing_line(read: str, other: str, file: str) -> Case:
    """The first line in which another template differs from the one that is read."""
    lines, other_lines = read.splitlines(), other.splitlines()
    pairs: Any = zip(lines, other_lines, strict=False)
    number = next(
        (n for n, (a, b) in enumerate(pairs) if a != b), min(len(lines), len(other_lines))
    )
    here = other_lines[number].strip() if number < len(other_lines) else "(it ends)"
    return Case(f"line {number + 1} of the template is {here[:100]!r} there", file=file)
