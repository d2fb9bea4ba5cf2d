"""Which patterns can't match the form that a script asks for, and which can."""

from __future__ import annotations

import pytest

from truetune.checks.rule_catalogue import find_rule
from truetune.checks.rule_runner import run_rule
from truetune.source.parsed_source_file import parse_module

THINK = 'S = "Use this form:\\n<think>\\n...\\n</think>\\n<answer>\\n...\\n</answer>"\n'
ONE_LINE = 'S = "Use this form:\\n<think> ... </think> <answer> ... </answer>"\n'
CODE = 'S = """Answer with code:\n```python\ndef f():\n    return 1\n```\n"""\n'
STOPPED = {
    "compiled": THINK
    + 'P = re.compile(r"^<think>.*?</think>\\s*<answer>.*?</answer>$")\nP.match(t)',
    "in place": THINK + 're.search(r"<answer>(.*?)</answer>", t)',
    "findall": THINK + 'x = [re.findall("<answer>(.+?)</answer>", one) for one in t]',
    "other flags": THINK + 're.search(r"<ANSWER>(.*)</ANSWER>", t, re.I)',
    "fence": CODE + 're.search(r"```python(.*?)```", t)',
    "strict lines": THINK.replace("...", "a\\nb") + 're.match(r"^<think>\\n.*?\\n</think>\\n", t)',
    "pattern by name": THINK + 'p = r"<answer>(.*?)</answer>"\nre.search(p, t)',
    "reward": THINK + "from trl import GRPOTrainer\n"
    'def r(completions, **k):\n    return [bool(re.search(r"<answer>(.*?)</answer>", c)) for c in completions]\n'
    "GRPOTrainer(model='m', reward_funcs=r, train_dataset=rows).train()",
}
SOUND = {
    "dotall": THINK + 're.search(r"<answer>(.*?)</answer>", t, re.DOTALL)',
    "short name": THINK + 're.search(r"<answer>(.*?)</answer>", t, flags=re.S | re.I)',
    "inline flag": THINK + 're.search(r"(?s)<answer>(.*?)</answer>", t)',
    "class of all": THINK + 're.search(r"<answer>([\\s\\S]*?)</answer>", t)',
    "one line": ONE_LINE + 're.search(r"<answer>(.*?)</answer>", t)',
    "newlines written": THINK + 're.search(r"<answer>\\n(.*?)\\n</answer>", t)',
    "spaces written": THINK + 're.search(r"<answer>\\s*(.*?)\\s*</answer>", t)',
    "both forms": THINK + ONE_LINE + 're.search(r"<answer>(.*?)</answer>", t)',
    "no marks": 'S = "Name: x\\nAge: 3"\nre.search(r"Name: (.*) Age", t)',
    "documentation": '"""Form:\n<answer>\nx\n</answer>\n"""\nre.search(r"<answer>(.*?)</answer>", t)',
    "brackets": 'S = "call(\\n)"\nre.search(r"\\((.*)\\)", t)',
    "may take for ever": THINK + 're.search(r"<answer>((.*)+)+</answer>", t)',
    "other tag": THINK + 're.search(r"<tool>(.*?)</tool>", t)',
}


def findings_in(code: str) -> list[str]:
    module = parse_module("import re\n" + code, "train.py")
    findings = run_rule(module, find_rule("pattern-stops-at-line-end")).findings
    return [finding.severity for finding in findings]


@pytest.mark.parametrize("name", STOPPED)
def test_a_pattern_that_stops_at_the_line_end_is_found(name: str) -> None:
    assert findings_in(STOPPED[name]) == ["warning"]


@pytest.mark.parametrize("name", SOUND)
def test_patterns_that_match_are_left_alone(name: str) -> None:
    assert findings_in(SOUND[name]) == []
