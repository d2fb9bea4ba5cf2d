"""Prompts that hold their reference, and ROUGE on texts without a Latin letter; with near misses of both."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from truetune.checks.lint import lint

USER = {"role": "user", "content": "One?"}
ANSWER = {"role": "assistant", "content": "First."}
WHOLE = [{"messages": [USER, ANSWER]}] * 6
ASKED = [{"messages": [USER], "answer": "First."}] * 6
HEAD = (
    "import json\n"
    "from vllm import LLM\n"
    "from openai import OpenAI\n"
    "client = OpenAI()\n"
    "rows = [json.loads(l) for l in open('test.jsonl')]\n"
)
CHECK = "\nright = out == row['messages'][-1]['content']"
TEMPLATE = (
    "for row in rows:\n"
    "    t = tok.apply_chat_template({given}, add_generation_prompt={opens})\n"
    "    out = model.generate(t)"
)


def found(folder: Path, code: str, rows: list[dict[str, Any]], text: str) -> list[str]:
    lines = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    (folder / "test.jsonl").write_text(lines, encoding="utf-8")
    path = folder / "score.py"
    path.write_text(text, encoding="utf-8")
    return [one.message for one in lint([str(path)], select=(code,)).findings]


@pytest.mark.parametrize(
    "code",
    [
        TEMPLATE.format(given="row['messages']", opens=True) + CHECK,
        (
            "texts = [tok.apply_chat_template(r['messages'], tokenize=False, add_generation_prompt=True)"
            " for r in rows]\n"
            "out = model.generate(texts)\n"
            "gold = [r['messages'][-1] for r in rows]"
        ),
        (
            "for row in rows:\n"
            "    chat = row['messages']\n"
            "    t = tok.apply_chat_template(chat, add_generation_prompt=True)\n"
            "    out = model.generate(t)"
        )
        + CHECK,
        (
            "llm = LLM('m')\n"
            "outs = llm.chat([r['messages'] for r in rows])\n"
            "gold = [r['messages'][-1]['content'] for r in rows]"
        ),
        (
            "for row in rows:\n"
            "    out = client.chat.completions.create(model='m', messages=row['messages'])"
        )
        + CHECK,
    ],
)
def test_whole_conversations(tmp_path: Path, code: str) -> None:
    assert len(found(tmp_path, "SRC304", WHOLE, HEAD + code)) == 1
    assert found(tmp_path, "SRC304", ASKED, HEAD + code) == []


@pytest.mark.parametrize(
    "code",
    [
        TEMPLATE.format(given="row['messages'][:-1]", opens=True) + CHECK,
        (
            "for row in rows:\n"
            "    gold = row['messages'].pop()\n"
            "    t = tok.apply_chat_template(row['messages'], add_generation_prompt=True)\n"
            "    out = model.generate(t)"
        )
        + CHECK,
        TEMPLATE.format(given="row['messages']", opens=False) + CHECK,
        TEMPLATE.format(given="[row['messages'][0]]", opens=True) + CHECK,
        (
            "for row in rows:\n"
            "    t = tok.apply_chat_template(row['messages'], add_generation_prompt=True)"
        )
        + CHECK,
    ],
)
def test_cut_conversations(tmp_path: Path, code: str) -> None:
    assert found(tmp_path, "SRC304", WHOLE, HEAD + code) == []


ROUGE = (
    "import json\n"
    "from rouge_score import rouge_scorer\n"
    "import evaluate\n"
    "rows = [json.loads(l) for l in open('test.jsonl')]\n"
)
READ = "\nfor row in rows:\n    s = scorer.score(row['reference'], row['prediction'])"
CHINESE = [{"reference": "明年新建三条地铁。", "prediction": "明年新建地铁。"}] * 5
MIXED = [{"reference": "2024年新建地铁。", "prediction": "2024年新建地铁。"}] * 5
ENGLISH = [{"reference": "A new line.", "prediction": "A line."}] * 5
RUSSIAN = [{"reference": "Новая линия.", "prediction": "Линия."}] * 5


@pytest.mark.parametrize(
    ("code", "rows", "fires"),
    [
        ("scorer = rouge_scorer.RougeScorer(['rougeL'])" + READ, CHINESE, True),
        ("scorer = rouge_scorer.RougeScorer(['rouge1'], use_stemmer=True)" + READ, RUSSIAN, True),
        (
            (
                "rouge = evaluate.load('rouge')\n"
                "rouge.compute(predictions=[r['prediction'] for r in rows], references=[r['reference'] for r in rows])"
            ),
            CHINESE,
            True,
        ),
        (
            (
                "rouge = evaluate.load('rouge')\n"
                "rouge.compute(predictions=[r['prediction'] for r in rows], references=x, tokenizer=list)"
            ),
            CHINESE,
            False,
        ),
        ("scorer = rouge_scorer.RougeScorer(['rougeL'], tokenizer=T())" + READ, CHINESE, False),
        ("scorer = rouge_scorer.RougeScorer(['rougeL'])" + READ, ENGLISH, False),
        ("scorer = rouge_scorer.RougeScorer(['rougeL'])" + READ, MIXED, False),
        ("scorer = rouge_scorer.RougeScorer(['rougeL'])" + READ, CHINESE[:2], False),
        (
            (
                "bleu = evaluate.load('sacrebleu')\n"
                "bleu.compute(predictions=[r['prediction'] for r in rows])"
            ),
            CHINESE,
            False,
        ),
    ],
)
def test_rouge_and_scripts(
    tmp_path: Path, code: str, rows: list[dict[str, Any]], fires: bool
) -> None:
    assert bool(found(tmp_path, "SRC303", rows, ROUGE + code)) == fires
