"""Shapes of references at calls of corpus metrics."""

from __future__ import annotations

import pytest

from truetune.checks.rule_catalogue import find_rule
from truetune.checks.rule_runner import run_rule
from truetune.source.parsed_source_file import parse_module

HEAD = """
import sacrebleu
from sacrebleu import corpus_bleu as score
from sacrebleu.metrics import BLEU, CHRF
from nltk.translate.bleu_score import corpus_bleu
import evaluate
"""
WRONG = {
    "streams": "refs = [[r['a'].strip()] for r in rows]\nsacrebleu.corpus_bleu(out, refs)",
    "in place": "sacrebleu.corpus_chrf(out, [[r] for r in refs])",
    "by name": "score(out, references=[[r] for r in refs])",
    "a metric": "metric = CHRF()\nmetric.corpus_score(out, [[r] for r in refs])",
    "a metric at once": "BLEU(lowercase=True).corpus_score(out, [[r] for r in refs])",
    "flat texts": "refs = [r['a'].strip() for r in rows]\nsacrebleu.corpus_bleu(out, refs)",
    "flat rows of a file": (
        "import json\nrows = [json.loads(line) for line in open('t.jsonl')]\n"
        "refs = [r['de'] for r in rows]\nsacrebleu.corpus_bleu(out, refs)"
    ),
    "flat decoded labels": "refs = tok.batch_decode(labels)\nBLEU().corpus_score(out, refs)",
    "flat column of a table": "sacrebleu.corpus_chrf(out, frame['de'].tolist())",
    "flat texts of a loop": (
        "refs = []\nfor row in rows:\n    refs.append(tok.decode(row['labels']))\nscore(out, refs)"
    ),
    "nltk": "corpus_bleu([r.split() for r in refs], [o.split() for o in out])",
    "nltk by a name": "words = [r.lower().split() for r in refs]\ncorpus_bleu(words, out)",
    "texts": "corpus_bleu([r['a'].strip() for r in rows], [o.strip() for o in out])",
    "texts of a loop": (
        "refs, outs = [], []\nfor row in rows:\n"
        "    refs.append([row['a'].strip()])\n    outs.append(ask(row).lower())\n"
        "corpus_bleu(refs, outs)"
    ),
    "texts of a template": "corpus_bleu(refs, [f'{o.text}' for o in out])",
}
RIGHT = {
    "one stream": "refs = [r['a'] for r in rows]\nsacrebleu.corpus_bleu(out, [refs])",
    "one stream of a file": (
        "import json\nrows = [json.loads(line) for line in open('t.jsonl')]\n"
        "sacrebleu.corpus_bleu(out, [[r['de'] for r in rows]])"
    ),
    "streams of several files": (
        "refs = [open(name).read().splitlines() for name in names]\nsacrebleu.corpus_bleu(out, refs)"
    ),
    "streams of several columns": "refs = [table[name] for name in names]\nsacrebleu.corpus_bleu(out, refs)",
    "streams of data sets": "refs = [one['text'] for one in parts]\nsacrebleu.corpus_bleu(out, refs)",
    "two streams": "sacrebleu.corpus_bleu(out, [[r[i] for r in refs] for i in range(2)])",
    "turned": "sacrebleu.corpus_bleu(out, list(zip(*refs)))",
    "whole columns": "sacrebleu.corpus_bleu(out, [[*column] for column in streams])",
    "evaluate": "evaluate.load('sacrebleu').compute(predictions=out, references=[[r] for r in refs])",
    "nltk": "corpus_bleu([[r.split()] for r in refs], [o.split() for o in out])",
    "split in the loop": (
        "refs, outs = [], []\nfor row in rows:\n"
        "    refs.append([row['a'].split()])\n    outs.append(ask(row).split())\n"
        "corpus_bleu(refs, outs)"
    ),
    "columns that are not seen": "corpus_bleu([r['words'] for r in rows], [r['output'] for r in rows])",
    "a parameter": "def f(out, refs):\n    return sacrebleu.corpus_bleu(out, refs)",
    "one sentence": "sacrebleu.sentence_bleu(out, [r for r in refs])",
}


def found(code: str) -> list[str]:
    module = parse_module(HEAD + code, "score.py")
    rule = find_rule("references-nested-wrongly")
    return [one.message for one in run_rule(module, rule).findings]


@pytest.mark.parametrize("code", WRONG.values(), ids=WRONG)
def test_another_nesting(code: str) -> None:
    assert len(found(code)) == 1


@pytest.mark.parametrize("code", RIGHT.values(), ids=RIGHT)
def test_the_right_nesting(code: str) -> None:
    assert found(code) == []
