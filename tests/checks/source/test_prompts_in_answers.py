"""Answers that hold their prompt: returned by helpers, printed by name, put back into the history of a chat."""

from __future__ import annotations

from pathlib import Path

import pytest

from truetune.checks.lint import lint

HEAD = """
import torch, sys
from transformers import AutoModelForCausalLM, AutoModelForSeq2SeqLM, AutoTokenizer
tok = AutoTokenizer.from_pretrained("out")
model = AutoModelForCausalLM.from_pretrained("out").cuda()
"""
CHAT = """
    ids = tok.apply_chat_template([{"role": "user", "content": q}], add_generation_prompt=True, return_tensors="pt")
    out = model.generate(ids.cuda(), max_new_tokens=99)
"""
LOOP = """
history = []
while True:
    history.append({"role": "user", "content": input()})
    enc = tok.apply_chat_template(history, add_generation_prompt=True, return_tensors="pt", return_dict=True)
    out = model.generate(**enc, max_new_tokens=99)
"""
FOUND = {
    "a helper": HEAD
    + "def answer(q):"
    + CHAT
    + "    return tok.decode(out[0])\nprint(answer('hi'))\n",
    "batch_decode": HEAD
    + "def ask(q):"
    + CHAT
    + "    text = tok.batch_decode(out, skip_special_tokens=True)[0]\n    return text.strip()\nprint(ask('a'))\n",
    "an instruction": HEAD
    + """
def respond(q):
    enc = tok(f"### Instruction:\\n{q}\\n### Response:\\n", return_tensors="pt")
    return tok.decode(model.generate(**enc, max_new_tokens=50)[0], skip_special_tokens=True)
for line in sys.stdin:
    print(respond(line))
""",
    "a class": HEAD
    + """
class Bot:
    def reply(self, q):
        enc = tok.apply_chat_template([{"role": "user", "content": q}], return_tensors="pt", return_dict=True)
        out = model.generate(**enc, max_new_tokens=50)
        return tok.decode(out[0], skip_special_tokens=True)
print(Bot().reply("hi"))
""",
    "printed by name": HEAD
    + "def main(q):"
    + CHAT
    + "    response = tok.decode(out[0], skip_special_tokens=True)\n    print(response)\nmain('a')\n",
    "history, whole": HEAD
    + LOOP
    + '    history.append({"role": "assistant", "content": tok.decode(out[0])})\n',
    "history, whole without marks": HEAD
    + LOOP
    + "    text = tok.decode(out[0], skip_special_tokens=True)\n"
    + '    history += [{"role": "assistant", "content": text}]\n',
    "history, marks": HEAD
    + LOOP
    + '    text = tok.decode(out[0][enc["input_ids"].shape[1]:])\n'
    + '    history.append({"role": "assistant", "content": text})\n',
    "history, marks kept": HEAD
    + LOOP
    + '    text = tok.decode(out[0, enc["input_ids"].shape[-1]:], skip_special_tokens=False).strip()\n'
    + '    history.append(dict(role="assistant", content=text))\n',
}
SOUND = {
    "cut": HEAD
    + "def answer(q):"
    + CHAT
    + "    return tok.decode(out[0][ids.shape[1]:], skip_special_tokens=True)\nprint(answer('hi'))\n",
    "cut by the caller": HEAD
    + "def answer(q):"
    + CHAT
    + "    return tok.decode(out[0])\nprint(answer('hi').split('assistant')[-1])\n",
    "cut by a helper": HEAD
    + "def cut(t):\n    return t[t.find('assistant') + 9:]\ndef answer(q):"
    + CHAT
    + "    return tok.decode(out[0])\nprint(cut(answer('hi')))\n",
    "seq2seq": HEAD.replace("AutoModelForCausalLM.from", "AutoModelForSeq2SeqLM.from")
    + "def answer(q):\n    enc = tok('translate this now: ' + q, return_tensors='pt')\n"
    + "    out = model.generate(**enc)\n    return tok.decode(out[0])\nprint(answer('hi'))\n",
    "a continuation": HEAD
    + "def complete(q):\n    out = model.generate(**tok(q, return_tensors='pt'))\n    return tok.decode(out[0])\n"
    + "print(complete('Once upon a time'))\n",
    "printed": HEAD + "def main(q):" + CHAT + "    print(tok.decode(out[0]))\nmain('a')\n",
    "history": HEAD
    + LOOP
    + '    text = tok.decode(out[0][enc["input_ids"].shape[1]:], skip_special_tokens=True)\n'
    + '    history.append({"role": "assistant", "content": text})\n    print(tok.decode(out[0]))\n',
    "marks replaced": HEAD
    + LOOP
    + '    text = tok.decode(out[0][enc["input_ids"].shape[1]:]).replace("<|im_end|>", "")\n'
    + '    history.append({"role": "assistant", "content": text})\n',
    "a helper that nobody calls": HEAD
    + "def answer(q):"
    + CHAT
    + "    return tok.decode(out[0])\n",
}


def _found(text: str, folder: Path) -> list[str]:
    path = folder / "ask.py"
    path.write_text(text)
    return [finding.message for finding in lint([path], select=["prompt-left-in-answers"]).findings]


@pytest.mark.parametrize("name", FOUND)
def test_answers_with_their_prompt(name: str, tmp_path: Path) -> None:
    (message,) = _found(FOUND[name], tmp_path)
    assert ("history" in message) == name.startswith("history")


@pytest.mark.parametrize("name", SOUND)
def test_answers_without(name: str, tmp_path: Path) -> None:
    assert _found(SOUND[name], tmp_path) == []


SCORING = """
import json, re, string, unicodedata
from collections import Counter
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer
tok = AutoTokenizer.from_pretrained("out")
model = AutoModelForCausalLM.from_pretrained("out").cuda()
NO_LETTER = re.compile(r"[^\\w\\s]")
def squad(s):
    def remove_punctuation(t):
        return "".join(c for c in t if c not in set(string.punctuation))
    return " ".join(re.sub(r"\\b(a|an|the)\\b", " ", remove_punctuation(s.lower())).split())
def plain(s):
    return " ".join(s.lower().strip(" .").split())
right = 0
for line in open("test.jsonl"):
    row = json.loads(line)
    enc = tok.apply_chat_template(
        [{{"role": "user", "content": row["question"]}}], return_tensors="pt", return_dict=True)
    out = model.generate(**enc.to("cuda"), max_new_tokens=64)
    text = tok.decode(out[0], skip_special_tokens=True)
    {cut}
    right += {score}
print(right)
"""
SCORES = {
    "normalized as SQuAD does": "squad(text) == squad(row['answer'])",
    "searched after a normalization": "plain(row['options'][row['gold']]) in plain(text)",
    "a compiled pattern": "NO_LETTER.sub('', unicodedata.normalize('NFKC', text)).casefold() == row['gold']",
    "translated": "row['gold'] in text.translate(str.maketrans('', '', string.punctuation)).replace('\\n', ' ')",
    "a word": "row['label'] in text.split()",
    "shared words": "len(set(text.lower().split()) & set(row['reference'].split()))",
    "counted words": "sum((Counter(squad(text).split()) & Counter(row['answer'].split())).values())",
    "begins with": "text.startswith(row['answer'])",
    "found": "text.find(row['expected']) >= 0",
    "a pattern of the reference": "bool(re.search(re.escape(row['answer']), text))",
}
CUTS = {
    "the ids": "text = tok.decode(out[0, enc['input_ids'].shape[1]:], skip_special_tokens=True)",
    "the last part": "text = text.split('assistant\\n')[-1]",
    "a pattern": "text = re.sub(r'.*assistant\\n', '', text, flags=re.S)",
    "the question": "text = text.replace(row['question'], '')",
    "lines": "text = ' '.join(text.splitlines()[3:])",
    "the last words": "text = ' '.join(text.split()[-20:])",
}
OTHER_SEARCHES = (
    "row['question'] in plain(text)",
    "plain(row['prompt_text']) in plain(text)",
    "text.startswith(row['question'])",
    "text.find(row['system']) >= 0",
    "text.endswith(row['answer'])",
    "text.count('assistant') > 1",
)


@pytest.mark.parametrize("name", SCORES)
def test_answers_that_are_scored_with_their_prompt(name: str, tmp_path: Path) -> None:
    assert len(_found(SCORING.format(cut="pass", score=SCORES[name]), tmp_path)) == 1


@pytest.mark.parametrize("cut", CUTS)
@pytest.mark.parametrize("score", SCORES)
def test_answers_that_are_cut_before_a_score(score: str, cut: str, tmp_path: Path) -> None:
    assert _found(SCORING.format(cut=CUTS[cut], score=SCORES[score]), tmp_path) == []


@pytest.mark.parametrize("search", OTHER_SEARCHES)
def test_searches_for_what_is_no_answer(search: str, tmp_path: Path) -> None:
    assert _found(SCORING.format(cut="pass", score=search), tmp_path) == []
