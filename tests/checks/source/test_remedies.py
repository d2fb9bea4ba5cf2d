"""The remedy of a finding in source ends it, without bringing another: as its page's right form, and word by word.

A remedy is read as a user reads it: alternatives behind `or`, names of code (`padding_side="left"`, `model.eval()`,
`LoraConfig`), and words that take something out (`leave device_map out`). "Use instead" must be one alternative, done
to "Example". A remedy that says what to write (`set NAME=VALUE`) or to leave out is done to the example by this file.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.checks.pages import block, sections
from tests.checks.pages.source import lay_out
from truetune.checks.findings import Finding
from truetune.checks.lint import lint
from truetune.checks.rule import Rule
from truetune.checks.rule_catalogue import all_rules
from truetune.report.rule_pages.examples_of_code import files_of_script
from truetune.source.make_source_edits import apply_changes, set_keyword
from truetune.source.parsed_source_file import Module, parse_module

RULES = all_rules("source")
ASIDE = re.compile(r" \([^()]*\)")
ALTERNATIVES = re.compile(r",? or (?=\w+ [\w(\"'{\[])|; ")
NAME = re.compile(r"[A-Za-z_]\w*(?=\(|\[|=)|\b[A-Za-z]+_\w+\b|\b[A-Z][a-z0-9]+[A-Z]\w+\b|-100")
"""`eval(`, `x[`, `x=`; `snake_case`, `CamelCase`; -100"""
TAKES_OUT = re.compile(r"\bleave [^,]* out\b|\b(?:remove|take no|do not prepare)\b")
WORD = re.compile(r"-?\w+|[^\w\s]")
UNNAMED = frozenset(
    (
        "roles-exchanged-in-code",
        "source-not-parsed",
        "lora-target-names-joined",
        "visible-devices-set-too-late",
        "append-result-as-value",
        "references-nested-wrongly",
        "adapter-made-again-after-training",
        "reference-stands-in-the-prompt",
        "collective-call-on-one-rank",
        "gradients-never-used",
        "pattern-misses-the-answers",
        "label-comparison-miscounts-answers",
        "label-names-in-another-order",
        "model-loaded-for-each-answer",
        "model-saved-before-training",
        "model-made-before-zero3",
        "several-gpus-in-one-process",
        "prompts-labelled-in-place-of-answers",
        "margin-prefers-the-rejected",
        "score-skips-fields-left-out",
        "metric-sides-exchanged",
        "setup-calls-in-wrong-order",
        "save-calls-in-wrong-order",
        "seed-set-again-in-a-loop",
        "iterator-empty-after-first-epoch",
        "softmax-over-the-wrong-axis",
        "gradients-clipped-at-each-micro-batch",
        "model-inside-the-adapter-saved",
        "shots-among-the-evaluated-rows",
        "policy-loss-with-wrong-sign",
        "reward-grows-with-the-distance",
        "own-sampling-distorts-answers",
    )
)
"""What ends them is no name: brackets, a comma, another indent, another place or order, another number or sign"""
SETS = re.compile(
    r"\b(?:give|set|with) (?P<name>\w+)=(?P<value>\"[^\"]*\"|lambda .*?\)|\w+)(?=$|,| )"
)
LEAVES_OUT = re.compile(r"\bleave (?P<name>\w+_\w+) out")
FOLLOWED = frozenset((
    "adapter-leaves-head-out", "adapter-loaded-frozen", "classes-learned-as-numbers",
    "divergence-averaged-over-the-vocabulary", "apply-chat-template-returns-dict",
    "device-map-in-a-distributed-script", "vllm-engine-arguments-slow-generation",
    "eval-without-chat-template", "evaluation-keeps-all-logits",
    "four-bit-computed-in-float32",
    "file-read-in-another-encoding",
    "formatting-func-ignored", "generation-settings-distort-answers", "map-cache-ignores-imported-function",
    "model-left-on-the-cpu", "plateau-in-the-wrong-direction",
    "answer-option-ids-are-all-bos", "predictions-are-not-generated",
    "prompts-end-in-eos", "prompts-lose-their-end", "sampled-answers-scored-once",
    "prompts-padded-to-a-fixed-length", "remove-unused-columns-drops-input", "rendered-text-tokenized-again",
    "repetition-forbidden-in-structured-answers", "right-padding-at-generation",
    "thinking-switched-otherwise", "words-read-as-missing", "wrapper-keys-not-loaded",
))  # fmt: skip
"""Their remedies say word by word what to write into a call, or what to leave out of it"""


def _findings(text: str, folder: Path) -> tuple[Finding, ...]:
    path = folder / "train.py"
    lay_out(text, path)
    return lint([path]).findings


def _forms(rule: type[Rule[Any]]) -> tuple[str, str]:
    found = sections(rule)
    return block(found["Example"]), block(found["Use instead"])


def _words(text: str) -> Counter[str]:
    return Counter(WORD.findall(text))


def _is_done(alternative: str, wrong: str, right: str) -> bool:
    """Are the names of a remedy in the right form; is of what it takes out less there than in the wrong one?"""
    before, after = _words(wrong), _words(right)
    for step in alternative.split(", and "):
        if TAKES_OUT.search(step):
            if not any(after[word] < before[word] for word in _words(step)):
                return False
        elif not all(after[name] for name in NAME.findall(step)):
            return False
    return True


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name())
def test_the_right_form_is_the_remedy(rule: type[Rule[Any]], tmp_path: Path) -> None:
    wrong, right = _forms(rule)
    before = _findings(wrong, tmp_path)
    remedy = next(finding.remedy for finding in before if finding.rule == rule.name())
    alternatives = ALTERNATIVES.split(ASIDE.sub("", remedy))
    assert any(_is_done(alternative, wrong, right) for alternative in alternatives), remedy
    changed = (_words(right) - _words(wrong)) + (_words(wrong) - _words(right))
    named = {word for word in changed if word.isalnum() or "_" in word or word == "-100"} & set(
        _words(remedy)
    )
    assert bool(named) == (rule.name() not in UNNAMED), remedy
    assert {f.rule for f in _findings(right, tmp_path)} <= {f.rule for f in before} - {rule.name()}


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name())
def test_a_remedy_that_says_what_to_write_is_followed(
    rule: type[Rule[Any]], tmp_path: Path
) -> None:
    wrong, _ = _forms(rule)
    before = _findings(wrong, tmp_path)
    finding = next(finding for finding in before if finding.rule == rule.name())
    done = list(_followed(wrong, finding))
    ends = [
        {f.rule for f in _findings(text, tmp_path)} <= {f.rule for f in before} - {rule.name()}
        for text in done
    ]
    assert any(ends) == (rule.name() in FOLLOWED), finding.remedy


def _followed(text: str, finding: Finding) -> Iterator[str]:
    """The text after the remedy is done to one of the calls on the finding's lines."""
    # The comments that stand for other files are not in the script whose lines the finding names.
    script = files_of_script(text).script
    beside = [line for line in text.splitlines() if line not in script.splitlines()]
    files = "".join(f"\n{line}" for line in beside) + "\n"
    module = parse_module(script, "train.py")
    lines = {case.line for case in finding.cases}
    calls = [
        call
        for call in module.all_calls
        if call.node.lineno in lines or call.node.end_lineno in lines
    ]
    for match in SETS.finditer(finding.remedy):
        for call in calls:
            change = set_keyword(module, call, match["name"], match["value"])
            yield apply_changes(script, change) + files
    for match in LEAVES_OUT.finditer(finding.remedy):
        for call in calls:
            if match["name"] in call.keywords:
                yield _without(module, call.node, match["name"])


def _without(module: Module, call: ast.Call, name: str) -> str:
    """The text without one keyword argument of a call."""
    kept = [module.text_of(argument) for argument in call.args]
    kept += [module.text_of(keyword) for keyword in call.keywords if keyword.arg != name]
    start, end = module.span(call)
    return f"{module.text[:start]}{module.text_of(call.func)}({', '.join(kept)}){module.text[end:]}"
