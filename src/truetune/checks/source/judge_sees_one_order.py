"""An LLM judge sees each pair of answers in one order only, so its position bias counts as a result.

## What it does
Looks for a prompt that asks a model to compare two answers (a text with `judge`, `compare`, `better` and two places for
answers: `{a}` and `{b}`, `[Answer A]` and `[Answer B]`, `Response 1` and `Response 2`), in a script that sends it to a
model. The prompt, or the rubric before the answers, may be in a file that the script reads (`judge.txt`, a Jinja
template). It fires if nothing in the script changes the order: no second call with the answers swapped, no shuffle, no
random choice, no name like `swap`, `flip` or `order`.

## Why it is bad
Judges prefer one position, most of them the first, in up to one of four pairs of equal quality. If one model always has
that position, this preference counts as its wins: the tuned model beats the base, and the base would beat the tuned
model as well.

## Example
```python
from openai import OpenAI

client = OpenAI()
PROMPT = "You are an impartial judge. Which answer is better, A or B? [Answer A] {a} [Answer B] {b}"
wins = 0
for ours, theirs in pairs:
    text = PROMPT.format(a=ours, b=theirs)
    reply = client.chat.completions.create(model="judge", messages=[{"role": "user", "content": text}])
    wins += reply.choices[0].message.content == "A"
```

## Use instead
```python
from openai import OpenAI

client = OpenAI()
PROMPT = "You are an impartial judge. Which answer is better, A or B? [Answer A] {a} [Answer B] {b}"


def verdict(first, second):
    text = PROMPT.format(a=first, b=second)
    reply = client.chat.completions.create(model="judge", messages=[{"role": "user", "content": text}])
    return reply.choices[0].message.content


wins = 0
for ours, theirs in pairs:
    wins += verdict(ours, theirs) == "A" and verdict(theirs, ours) == "B"
```

## Fix safety
There is no automatic fix. Two verdicts per pair cost twice as much. If you randomise the order of each pair instead,
one verdict gives the right mean.

## References
- Zheng et al. 2023, Judging LLM-as-a-Judge with MT-Bench and Chatbot Arena, arXiv 2306.05685
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from truetune.checks.examined_code_places import CodePlaces
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.rule import SourceRule
from truetune.checks.source.evidence.cases_and_fixes_of_nodes import case_of_node
from truetune.checks.source.evidence.prompt_files import prompt_files_beside
from truetune.source.parsed_source_file import Module

JUDGING = re.compile(
    r"\bjudg|impartial|\bbetter\b|\bprefer|\bcompar|\bwinner\b|\bwhich (?:answer|response|output|assistant|model"
    r"|reply)",
    re.IGNORECASE,
)
"""What a prompt says that asks for the better of two answers"""
THINGS = (
    r"(?:answer|response|output|assistant|model|reply|completion|candidate|summary|translation)s?"
)
SLOTS = (
    re.compile(rf"\b{THINGS}['’]?s?[ _-]*\(?(?P<slot>a|b|1|2)\b", re.IGNORECASE),
    re.compile(
        r"\{(?:\w*_|answer|response|output|assistant|model|reply|completion|candidate|ans|resp|out)?"
        r"(?P<slot>a|b|1|2)\}",
        re.IGNORECASE,
    ),
)
"""The places of the two answers in its text"""
LETTERED_HOLE = re.compile(
    r"(?:^|[\n(\[*#\"'>]|\. |: )\s*(?P<slot>[a-d])\s*[\])*]*\s*[:.)\]][\s*\"'<`]*\{", re.IGNORECASE
)
"""A letter before a place, as in `A: {answer}`: of two answers, or of a question's options"""
BETTER = re.compile(r"\bjudg|\bbetter\b|\bprefer|\bcompar|\bwinner\b", re.IGNORECASE)
"""What a prompt says only where the better of two is asked for; options have a right one"""
GOLD = re.compile(r"gold|label|correct|answer_?(?:key|idx|index)|\bsol[12]\b", re.IGNORECASE)
"""What a file names where an option is the right one"""
HOLES = re.compile(r"\{\w*\}|%s|\{\w+[.\[!:][^}]*\}")
SENDERS = re.compile(
    r"(?:^|\.)(?:create|completion|acompletion|generate|generate_content|chat|invoke|ainvoke|post|complete|converse"
    r"|text_generation|chat_completion|predict|parse|messages)$"
)
"""Calls that ask a model"""
CHANGES_ORDER = re.compile(
    r"swap|shuffl|flip|revers|permut|both_|\border|randint|getrandbits|coin|position|\bfirst_is",
    re.I,
)
"""Names of what changes the order"""
DRAWS = frozenset(
    (
        "random",
        "choice",
        "randint",
        "shuffle",
        "getrandbits",
        "integers",
        "permutation",
        "rand",
        "permutations",
    )
)


def _pairwise_comparison_prompts(module: Module) -> Iterator[ast.expr]:
    """Texts that ask a model for the better of two answers, in files that send something to a model."""
    if not any(
        SENDERS.search(ast.unparse(call.node.func))
        for part in module.self_and_files_run_together
        for call in part.all_calls
    ):
        return
    files = list(prompt_files_beside(module))
    # A rubric in a file of its own is put before the answers.
    rubric = "\n".join(one.text for one in files if JUDGING.search(one.text) is not None)
    for node in module.nodes(ast.Constant, ast.JoinedStr, ast.BinOp):
        # A part of a longer text is judged with it.
        if isinstance(module.scopes.parent.get(node), ast.JoinedStr | ast.BinOp):
            continue
        text = _text_with_placeholders(node)
        if text is not None and _asks_for_better_in_words(module, text, rubric):
            yield node
    yield from (one.node for one in files if _asks_for_better_in_words(module, one.text, ""))


def _asks_for_better_in_words(module: Module, text: str, rubric: str) -> bool:
    """Does a text ask for the better of two answers, alone or below a rubric that a file holds?"""
    if len(HOLES.findall(text)) < 2:
        return False
    return _asks_for_better_of_two(text, rubric) or _has_lettered_pair(module, text, rubric)


class JudgeSeesOneOrder(SourceRule):
    code = "SRC228"
    fault = Fault.JUDGE_BIASED
    symptoms = ("odd-metrics", "dpo-without-effect")
    severity = "warning"
    looks_at = CodePlaces("prompts that compare two answers", _pairwise_comparison_prompts)

    def findings(self) -> Iterator[Finding]:
        module = self.subject
        prompts = list(_pairwise_comparison_prompts(module))
        if not prompts or any(_changes_order(part) for part in module.self_and_files_run_together):
            return
        yield self.finding(
            "the judge sees each pair of answers in one order only: its preference for a position counts as a win",
            "ask twice with the answers swapped, and count a win only if both verdicts name the same answer; or"
            " randomise the order of each pair",
            evidence=["nothing in the script changes which answer is first"],
            cases=[case_of_node(module, prompts[0])],
        )


def _text_with_placeholders(node: ast.expr) -> str | None:
    """A text as it is written, an f-string with its names in braces; None of anything else."""
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else None
    if isinstance(node, ast.JoinedStr):
        return "".join(
            part.value
            if isinstance(part, ast.Constant) and isinstance(part.value, str)
            else "{hole}"
            for part in node.values
        )
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return "".join(
            _text_with_placeholders(side) or "{hole}" for side in (node.left, node.right)
        )
    return _text_with_placeholders(node.left) if isinstance(node, ast.BinOp) else None


def _asks_for_better_of_two(text: str, rubric: str) -> bool:
    """Does a text have places for two answers, and it or its rubric ask for the better one?"""
    if JUDGING.search(text) is None and not rubric:
        return False
    for pattern in SLOTS:
        slots = {match["slot"].lower() for match in pattern.finditer(text)}
        if {"a", "b"} <= slots or {"1", "2"} <= slots:
            return True
    return False


def _has_lettered_pair(module: Module, text: str, rubric: str) -> bool:
    """Are two places lettered A and B, where the better of both is asked for, and no option is the right one?"""
    letters = [match["slot"].lower() for match in LETTERED_HOLE.finditer(text)]
    return (
        letters == ["a", "b"]
        and BETTER.search(f"{rubric}\n{text}") is not None
        and not GOLD.search(module.text)
    )


def _changes_order(module: Module) -> bool:
    """Does a file change the order of something: by a name, a draw, a reversed slice, or a call with two arguments
    exchanged?"""
    for node in module.order:
        if CHANGES_ORDER.search(_name_read_set_or_defined(node)):
            return True
        if isinstance(node, ast.Slice) and node.step is not None and ast.unparse(node.step) == "-1":
            return True
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute | ast.Name):
            if ast.unparse(node.func).rpartition(".")[2] in DRAWS:
                return True
    return _calls_function_with_arguments_swapped(module) or _swaps_or_loops_over_both_orders(
        module
    )


def _name_read_set_or_defined(node: ast.AST) -> str:
    """The name that a node reads, sets or defines."""
    for attribute in ("id", "attr", "arg", "name"):
        value = getattr(node, attribute, None)
        if isinstance(value, str):
            return value
    return ""


def _calls_function_with_arguments_swapped(module: Module) -> bool:
    """Is one function called twice, with the same arguments in another order?"""
    seen: dict[tuple[str, tuple[str, ...]], tuple[str, ...]] = {}
    for call in module.all_calls:
        values = [*call.node.args, *(keyword.value for keyword in call.node.keywords)]
        texts = tuple(ast.unparse(value) for value in values)
        if len(set(texts)) < 2:
            continue
        key = ast.unparse(call.node.func), tuple(sorted(texts))
        if seen.setdefault(key, texts) != texts:
            return True
    return False


def _swaps_or_loops_over_both_orders(module: Module) -> bool:
    """Does a file exchange two names, or loop over both orders of two?

    `a, b = b, a`, and `for x, y in ((a, b), (b, a))`.
    """
    tuples = [
        tuple(ast.unparse(one) for one in node.elts)
        for node in module.nodes(ast.Tuple)
        if len(node.elts) >= 2
    ]
    known = set(tuples)
    return any(len(one) == 2 and one[0] != one[1] and one[::-1] in known for one in tuples)
