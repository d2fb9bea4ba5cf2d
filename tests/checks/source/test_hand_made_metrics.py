"""Rules on figures that scripts compute by hand (SRC005, SRC107, SRC108, SRC109) and their near misses."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.parts import folder
from truetune.checks.lint import lint

LOOP = """
import torch
from torch.utils.data import DataLoader
from transformers import AutoModelForCausalLM

model = AutoModelForCausalLM.from_pretrained("m")
rows = read("eval.jsonl")
loader = DataLoader(rows, batch_size={size}, collate_fn=collate)


def encode(ids, head):
    return [-100] * len(head) + ids


def validate():
    total, right, n = 0.0, 0, 0
    with torch.no_grad():
        for batch in loader:
            out = model(**batch)
            guess, gold = out.logits[:, :-1].argmax(-1), batch["labels"][:, 1:]
            total += {added}
            right += {counted}
            n += {of}
    return {result}
"""
PLAIN = {
    "size": "8",
    "added": "out.loss.item()",
    "counted": "((guess == gold) & (gold != -100)).sum().item()",
    "of": "(gold != -100).sum().item()",
    "result": "total / len(loader), right / n",
}
KEPT = "torch.eq(guess, gold)[gold != -100].sum().item()"


def names(text: str, folder: Path) -> set[str]:
    path = folder / "eval.py"
    path.write_text(text, encoding="utf-8")
    return {finding.code for finding in lint([path]).findings}


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"result": "total / len(rows)"}, {"SRC107"}),
        ({"result": "total / len(loader.dataset)"}, {"SRC107"}),
        ({"counted": "(guess == gold).sum().item()", "of": "gold.numel()"}, {"SRC005"}),
        ({}, set()),
        ({"counted": KEPT}, set()),
        ({"result": "total / len(rows) * 8, right / n"}, set()),
        ({"added": "out.loss.item() * len(gold)", "result": "total / len(rows)"}, set()),
        ({"size": "1", "result": "total / len(rows)"}, set()),
        ({"size": "args.size", "result": "total / len(rows)"}, set()),
    ],
)
def test_loops_of_evaluation(changes: dict[str, str], expected: set[str], tmp_path: Path) -> None:
    found = names(LOOP.format(**{**PLAIN, **changes}), tmp_path)
    assert found & {"SRC107", "SRC005"} == expected


ASK = """
from transformers import AutoTokenizer
from vllm import LLM, SamplingParams

name = "{model}"
tok = AutoTokenizer.from_pretrained(name)
engine = LLM(name)
prompts = [tok.apply_chat_template(r["m"], tokenize=False, add_generation_prompt=True{more}) for r in rows]
hits = 0
for r, out in zip(rows, engine.generate(prompts, SamplingParams(temperature=0, max_tokens=500))):
    guess = {read}
    hits += guess == r["label"]
"""
WHOLE = "out.outputs[0].text.strip().lower()"


@pytest.mark.parametrize(
    ("model", "more", "read", "expected"),
    [
        ("Qwen/Qwen3-8B", "", WHOLE, True),
        ("deepseek-ai/DeepSeek-R1-Distill-Qwen-7B", "", WHOLE, True),
        ("Qwen/Qwen3-8B", ", enable_thinking=False", WHOLE, False),
        ("Qwen/Qwen3-4B-Instruct-2507", "", WHOLE, False),
        ("Qwen/Qwen2.5-7B-Instruct", "", WHOLE, False),
        ("Qwen/Qwen3-8B", "", 'out.outputs[0].text.split("</think>")[-1].strip()', False),
        ("Qwen/Qwen3-8B", "", "parse(out.outputs[0].text)", False),
    ],
)
def test_reasoning_in_the_score(
    model: str, more: str, read: str, expected: bool, tmp_path: Path
) -> None:
    found = names(ASK.format(model=model, more=more, read=read), tmp_path)
    assert ("SRC108" in found) == expected


OPTIONS = """
from transformers import AutoModelForCausalLM, AutoTokenizer

tok = AutoTokenizer.from_pretrained("{name}")
model = AutoModelForCausalLM.from_pretrained("{name}")
ids = {ids}
print(model(**tok("Which?", return_tensors="pt")).logits[0, -1][ids])
"""


@pytest.mark.parametrize(
    ("name", "ids", "expected"),
    [
        ("meta-llama/Llama-3.1-8B", "[tok(x).input_ids[0] for x in 'ABCD']", True),
        ("google/gemma-2-2b", '{x: tok(x)["input_ids"][0] for x in "ABCD"}', True),
        ("mistralai/Mistral-7B-v0.3", "[tok.encode('A')[0], tok.encode('B')[0]]", True),
        ("runs/llama31-quiz/merged", "[tok.encode(f' {x}')[0] for x in 'ABCD']", True),
        ("out/gemma-2b-exam/checkpoint-90", "[tok.encode(x)[0] for x in 'ABCD']", True),
        ("runs/qwen25-quiz/merged", "[tok.encode(f' {x}')[0] for x in 'ABCD']", False),
        ("runs/quiz/merged", "[tok.encode(f' {x}')[0] for x in 'ABCD']", False),
        ("runs/llama31-quiz/qwen3/merged", "[tok.encode(x)[0] for x in 'ABCD']", False),
        ("gemma-fans/quiz", "[tok.encode(x)[0] for x in 'ABCD']", False),
        ("microsoft/Phi-3-mini-4k-instruct", "[tok.encode(x)[0] for x in 'ABCD']", False),
        ("meta-llama/Llama-3.1-8B", "[tok(x).input_ids[-1] for x in 'ABCD']", False),
        ("meta-llama/Llama-3.1-8B", "tok('yes').input_ids[0]", False),
        ("Qwen/Qwen2.5-7B", "[tok(x).input_ids[0] for x in 'ABCD']", False),
        (
            "meta-llama/Llama-3.1-8B",
            "[tok(x, add_special_tokens=False).input_ids[0] for x in 'ABCD']",
            False,
        ),
    ],
)
def test_first_ids_of_options(name: str, ids: str, expected: bool, tmp_path: Path) -> None:
    assert ("SRC109" in names(OPTIONS.format(name=name, ids=ids), tmp_path)) == expected


LOOPED = """
LETTERS = ["A", "B", "C", "D"]
ids = []
for letter in LETTERS:
    ids.append(tok.encode(" " + letter)[0])
"""
HELPER = """
def id_of(text):
    return tok.encode(text)[0]
ids = {letter: id_of(letter) for letter in "ABCD"}
"""
ASKED_FOR_BOS = """
def begins_with_bos(text):
    return tok.encode(text)[0] == tok.bos_token_id
ids = [begins_with_bos(text) for text in ("a", "b")]
"""
ONE_IN_A_LOOP = """
ids = []
for row in open("rows.txt"):
    ids.append(tok.encode(row)[0])
"""


@pytest.mark.parametrize(
    ("code", "expected"),
    [(LOOPED, True), (HELPER, True), (ONE_IN_A_LOOP, False), (ASKED_FOR_BOS, False)],
)
def test_first_ids_in_loops_and_helpers(code: str, expected: bool, tmp_path: Path) -> None:
    whole = OPTIONS.replace("ids = {ids}\n", "@CODE@").format(name="meta-llama/Llama-3.1-8B")
    assert ("SRC109" in names(whole.replace("@CODE@", code), tmp_path)) == expected


@pytest.mark.parametrize(("kept", "expected"), [("llama3.1-base", True), ("qwen2.5-base", False)])
def test_first_ids_by_the_files(kept: str, expected: bool, tmp_path: Path) -> None:
    code = OPTIONS.format(name=folder(kept), ids="[tok.encode(x)[0] for x in 'ABCD']")
    assert ("SRC109" in names(code, tmp_path)) == expected


def test_two_imports_of_one_statement_are_two_objects(tmp_path: Path) -> None:
    text = """import torch
from torch.utils.data import DataLoader
from transformers import AutoModelForCausalLM
from mine import rows, held_out
model = AutoModelForCausalLM.from_pretrained("m")
loader = DataLoader(rows, batch_size=16)
with torch.no_grad():
    print(sum(model(**batch).loss.item() for batch in held_out) / len(held_out))
"""
    (tmp_path / "a.py").write_text(text, encoding="utf-8")
    assert not lint([tmp_path / "a.py"], select=["SRC107"], allow_unjudged=True).findings
