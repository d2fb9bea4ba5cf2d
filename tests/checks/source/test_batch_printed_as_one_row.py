"""Which functions of `map` print whole columns into a text, and which take them apart."""

from __future__ import annotations

import pytest

from truetune.checks.rule_catalogue import find_rule
from truetune.checks.rule_runner import run_rule
from truetune.source.parsed_source_file import parse_module

HEAD = """
import functools, logging
from datasets import load_dataset
from transformers import AutoTokenizer
log = logging.getLogger()
tokenizer = AutoTokenizer.from_pretrained("m")
T = "Q: {question} A: {answer}"
rows = load_dataset("json", data_files="a.jsonl", split="train")
"""
MAP = "\nrows = rows.map(f, batched=True, remove_columns=rows.column_names)\n"
PRINTED = {
    "f-string": "def f(ex):\n    return {'text': [f\"Q: {ex['question']} A: {ex['answer']}\"]}"
    + MAP,
    "format": "def f(ex):\n    t = T.format(question=ex['question'], answer=ex['answer'])\n"
    "    return {'text': [t]}" + MAP,
    "format of the batch": "def f(ex):\n    return {'text': [T.format(**ex)]}" + MAP,
    "percent": "def f(ex):\n    return {'text': ['Q %s A %s' % (ex['q'], ex['a'])]}" + MAP,
    "through a name": "def f(ex):\n    q = ex['q'] if 1 else ''\n    q = ex.get('q')\n"
    "    ex['text'] = [f'### {q}']\n    return ex" + MAP,
    "str": "def f(ex):\n    return {'text': ['Q: ' + str(ex['q'])]}" + MAP,
    "message": "def f(ex):\n    m = [{'role': 'user', 'content': ex['q']}]\n"
    "    return {'messages': [m]}" + MAP,
    "lambda": "rows = rows.map(lambda r: tokenizer(f\"{r['q']}{r['a']}\"), batched=True)",
    "columns by name": "def f(q, a):\n    return {'text': [f'{q} {a}']}\n"
    "rows = rows.map(f, batched=True, input_columns=['q', 'a'])",
    "partial": "def f(ex, tok):\n    return tok([f\"{ex['q']}\"])\n"
    "rows = rows.map(functools.partial(f, tok=tokenizer), batched=True)",
    "transform": "def f(ex):\n    return tokenizer([f\"Q: {ex['q']}\"])\nrows.set_transform(f)",
}
SOUND = {
    "one row": "def f(ex):\n    return {'text': f\"Q: {ex['q']}\"}\nrows = rows.map(f)",
    "not batched": "def f(ex):\n    return {'text': f\"Q: {ex['q']}\"}\nrows = rows.map(f, batched=False)",
    "zip": "def f(ex):\n    return {'text': [f'Q: {q} A: {a}' for q, a in zip(ex['q'], ex['a'])]}"
    + MAP,
    "index": "def f(ex):\n    return {'text': [f\"Q: {ex['q'][i]}\" for i in range(len(ex['q']))]}"
    + MAP,
    "loop": "def f(ex):\n    out = []\n    q = ex['q']\n    for q in ex['q']:\n        out.append(f'Q {q}')\n"
    "    return {'text': out}" + MAP,
    "joined": "def f(ex):\n    return {'text': ['\\n'.join(ex['q'])]}" + MAP,
    "number of rows": "def f(ex):\n    n = len(ex['q'])\n    return {'id': [f'{n}-{i}' for i in range(n)]}"
    + MAP,
    "logged": "def f(ex):\n    log.info(f\"got {ex['q']}\")\n    print(str(ex['q']))\n"
    "    return tokenizer(ex['q'])" + MAP,
    "raised": "def f(ex):\n    if not ex['q']:\n        raise ValueError(f\"bad {ex['q']}\")\n"
    "    return tokenizer(ex['q'])" + MAP,
    "same name inside": "def f(ex):\n    return {'text': [(lambda ex: f\"{ex['q']}\")(r) for r in by_row(ex)]}"
    + MAP,
    "taken apart first": "def f(batch):\n    rows = [dict(zip(batch, v)) for v in zip(*batch.values())]\n"
    "    return {'text': [T.format(**row) for row in rows]}" + MAP,
    "a pool": "from multiprocessing import Pool\ndef f(ex):\n    return f\"{ex['q']}\"\n"
    "out = Pool(2).map(f, list(rows))",
    "rest of code": "def f(ex):\n    return tokenizer(ex['q'])\n"
    "def show(ex):\n    return f\"{ex['q']}\"" + MAP,
}


def findings_in(code: str) -> list[str]:
    rule = find_rule("batch-printed-as-one-row")
    return [
        finding.message for finding in run_rule(parse_module(HEAD + code, "a.py"), rule).findings
    ]


@pytest.mark.parametrize("name", PRINTED)
def test_a_whole_column_in_one_text_is_found(name: str) -> None:
    found = findings_in(PRINTED[name])
    assert len(found) == 1
    assert "whole batches" in found[0]


@pytest.mark.parametrize("name", SOUND)
def test_columns_that_are_taken_apart_are_no_fault(name: str) -> None:
    assert findings_in(SOUND[name]) == []


def test_the_map_and_the_text_are_both_named() -> None:
    module = parse_module(HEAD + PRINTED["f-string"], "a.py")
    (finding,) = run_rule(module, find_rule("batch-printed-as-one-row")).findings
    lines = HEAD.count("\n")
    assert [case.line for case in finding.cases] == [lines + 3, lines + 2]
