"""The remedy of a finding in source ends it, without bringing another: as its page's right form, and word by word.

A remedy is read as a user reads it: alternatives behind `or`, names of code (`padding_side="left"`, `model.eval()`,
`LoraConfig`), and words that take something out (`leave device_map out`). "Use instead" must be one alternative, done
to "Example". A remedy that says what to write (`set NAME=VALUE`) or to leave out is done to the example by this file.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

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
        "texts-cut-by-the-embedding-model",
        # Another model is to be named, or the same operation is to be done to both sides.
        "reward-model-with-a-random-head",
        "teacher-of-another-vocabulary",
        "temperature-on-one-side-of-a-distillation",
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


class BrokenExample(NamedTuple):
    """A rule's page: its two forms, and what is found in the wrong one."""

    rule: str
    wrong: str
    right: str
    findings: tuple[Finding, ...]
    own: Finding


@pytest.fixture(scope="module", params=RULES, ids=lambda rule: rule.name())
def example(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> BrokenExample:
    """Each page in turn. Its example is linted once for all tests."""
    rule: type[Rule[Any]] = request.param
    wrong, right = _forms(rule)
    found = _findings(wrong, tmp_path_factory.mktemp("example"))
    own = next(finding for finding in found if finding.rule == rule.name())
    return BrokenExample(rule.name(), wrong, right, found, own)


def _ends(example: BrokenExample, found: Iterable[Finding]) -> bool:
    """Is the rule's finding gone, and none come that was not there?"""
    before = {finding.rule for finding in example.findings}
    return {finding.rule for finding in found} <= before - {example.rule}


def test_the_right_form_is_the_remedy(example: BrokenExample, tmp_path: Path) -> None:
    remedy, wrong, right = example.own.remedy, example.wrong, example.right
    alternatives = ALTERNATIVES.split(ASIDE.sub("", remedy))
    assert any(_is_done(alternative, wrong, right) for alternative in alternatives), remedy
    changed = (_words(right) - _words(wrong)) + (_words(wrong) - _words(right))
    named = {word for word in changed if word.isalnum() or "_" in word or word == "-100"} & set(
        _words(remedy)
    )
    assert bool(named) == (example.rule not in UNNAMED), remedy
    assert _ends(example, _findings(right, tmp_path))


def test_a_remedy_that_says_what_to_write_is_followed(
    example: BrokenExample, tmp_path: Path
) -> None:
    done = _followed(example.wrong, example.own)
    ends = [_ends(example, _findings(text, tmp_path)) for text in done]
    assert any(ends) == (example.rule in FOLLOWED), example.own.remedy


def test_the_fix_of_a_finding_ends_it(example: BrokenExample, tmp_path: Path) -> None:
    if not any(finding.fix for finding in example.findings if finding.rule == example.rule):
        pytest.skip("it has no fix of its own")
    path = tmp_path / "train.py"
    lay_out(example.wrong, path)
    lint([path], select=[example.rule], fix=True, unsafe=True)
    assert _ends(example, lint([path]).findings)


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
