"""Prompts and stored rows that each row makes longer, and lists that are made for each row."""

from __future__ import annotations

import pytest

from truetune.checks.rule_catalogue import find_rule
from truetune.checks.rule_runner import run_rule
from truetune.source.parsed_source_file import parse_module

HEAD = """
import copy, json
from datasets import load_dataset
SHOTS = [{"role": "system", "content": "Be short."}]
rows = [json.loads(line) for line in open("test.jsonl")]
"""
USER = '{"role": "user", "content": row["question"]}'
GROW = {
    "function": f"""
def ask(row):
    messages = SHOTS
    messages.append({USER})
    return client.chat.completions.create(model="m", messages=messages)
for row in rows:
    ask(row)
""",
    "loop": f"""
messages = [{{"role": "system", "content": "Be short."}}]
for row in rows:
    messages.append({USER})
    text = tokenizer.apply_chat_template(messages, tokenize=False)
""",
    "default": f"""
def build(row, messages=[]):
    messages.append({USER})
    return tokenizer.apply_chat_template(messages)
prompts = [build(row) for row in rows]
""",
    "extended": f"""
def build(row):
    SHOTS.extend([{USER}])
    return tokenizer.apply_chat_template(SHOTS, add_generation_prompt=True)
prompts = [build(row) for row in tqdm(rows)]
""",
    "augmented": f"""
for row in load_dataset("json", data_files="a.jsonl", split="train"):
    SHOTS += [{USER}]
    out = pipe.generate(SHOTS)
""",
    "mapped": f"""
def build(row):
    messages = SHOTS
    messages.append({USER})
    return {{"text": tokenizer.apply_chat_template(messages, tokenize=False)}}
data = load_dataset("json", data_files="a.jsonl", split="train").map(build)
""",
}
STAY = {
    "new list": f"""
def ask(row):
    messages = [*SHOTS, {USER}]
    return client.chat.completions.create(model="m", messages=messages)
for row in rows:
    ask(row)
""",
    "copied": f"""
def ask(row):
    messages = copy.deepcopy(SHOTS)
    messages.append({USER})
    return client.chat.completions.create(model="m", messages=messages)
for row in rows:
    ask(row)
""",
    "sliced": f"""
def ask(row):
    messages = SHOTS[:]
    messages.append({USER})
    return client.chat.completions.create(model="m", messages=messages)
for row in rows:
    ask(row)
""",
    "taken back": f"""
for row in rows:
    SHOTS.append({USER})
    client.chat.completions.create(model="m", messages=SHOTS)
    SHOTS.pop()
""",
    "shots of all rows": """
messages = [{"role": "system", "content": "Be short."}]
for shot in rows[:4]:
    messages.append({"role": "user", "content": shot["question"]})
client.chat.completions.create(model="m", messages=messages)
""",
    "turns of one dialogue": """
messages = [{"role": "system", "content": "Be short."}]
for turn in json.load(open("dialogue.json")):
    messages.append({"role": "user", "content": turn})
    reply = client.chat.completions.create(model="m", messages=messages)
    messages.append({"role": "assistant", "content": reply})
""",
    "turns of one chat": """
for row in rows:
    messages = []
    for turn in row["turns"]:
        messages.append({"role": "user", "content": turn})
        client.chat.completions.create(model="m", messages=messages)
""",
    "collected": f"""
results = []
for row in rows:
    results.append({USER})
json.dump(results, open("out.json", "w"))
""",
    "with a user": """
messages = []
while True:
    messages.append({"role": "user", "content": input()})
    client.chat.completions.create(model="m", messages=messages)
""",
}
STORED = """
import json
from torch.utils.data import Dataset
class Chats(Dataset):
    def __init__(self, path):
        self.rows = {rows}
    def __getitem__(self, index):
{body}
"""
LINES = "[json.loads(line) for line in open(path)]"
KEPT = {
    "inserted": 'messages = self.rows[index]["messages"]\n        messages.insert(0, S)\n        return messages',
    "prefixed": 'row = self.rows[index]\n        row["text"] = S + row["text"]\n        return row',
    "added": 'row = self.rows[index]\n        row["text"] += EOS\n        return row',
}
FRESH = {
    "copied": 'messages = [*self.rows[index]["messages"]]\n        messages.insert(0, S)\n        return messages',
    "asked first": 'm = self.rows[index]["messages"]\n        if m[0]["role"] != "system":\n'
    "            m.insert(0, S)\n"
    "        return m",
    "new text": 'row = self.rows[index]\n        text = S + row["text"]\n        return text',
    "new row": 'row = dict(self.rows[index])\n        row["text"] = S + row["text"]\n        return row',
}


def count(text: str) -> int:
    rule = find_rule("prompt-grows-with-each-row")
    return len(run_rule(parse_module(text, "evaluate.py"), rule).findings)


@pytest.mark.parametrize("way", GROW)
def test_a_prompt_that_grows_is_reported(way: str) -> None:
    assert count(HEAD + GROW[way]) == 1


@pytest.mark.parametrize("way", STAY)
def test_a_list_of_each_row_is_fine(way: str) -> None:
    assert count(HEAD + STAY[way]) == 0


@pytest.mark.parametrize("way", KEPT)
def test_a_stored_row_that_is_changed_is_reported(way: str) -> None:
    assert count(STORED.format(rows=LINES, body="        " + KEPT[way])) == 1


@pytest.mark.parametrize("way", FRESH)
def test_a_copy_of_a_stored_row_is_fine(way: str) -> None:
    assert count(STORED.format(rows=LINES, body="        " + FRESH[way])) == 0


def test_rows_of_datasets_are_new_at_each_access() -> None:
    text = "from datasets import load_dataset\n" + STORED.format(
        rows="load_dataset('json', data_files=path, split='train')", body="        " + KEPT["added"]
    )
    assert count(text) == 0


def test_replies_to_questions_of_rows_are_no_dialogue() -> None:
    text = GROW["loop"] + '    messages.append({"role": "assistant", "content": reply(text)})\n'
    assert count(HEAD + text) == 2
