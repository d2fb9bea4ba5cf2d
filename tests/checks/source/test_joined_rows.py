"""Which joins by position give rows the values of others, and which do not."""

from __future__ import annotations

import pytest

from truetune.checks.rule_catalogue import find_rule
from truetune.checks.rule_runner import run_rule
from truetune.source.parsed_source_file import parse_module

HEAD = """
import itertools, json, random
import pandas as pd
import torch
from datasets import load_dataset
rows = [json.loads(line) for line in open("rows.jsonl")]
frame = pd.read_csv("rows.csv")
"""
WRONG = {
    "comprehension": """
prompts = [row["prompt"] for row in rows]
answers = [row["answer"] for row in rows if row["answer"]]
pairs = list(zip(prompts, answers))
""",
    "loop with a test": """
answers = []
for row in rows:
    if len(row["answer"]) > 3:
        answers.append(row["answer"])
for row, answer in zip(rows, answers):
    row["answer"] = answer
""",
    "loop with continue": """
def clean(rows):
    kept = []
    for row in rows:
        if not row["answer"]:
            continue
        kept.append(row["answer"].strip())
    return kept
pairs = [dict(p=row["prompt"], a=a) for row, a in zip(rows, clean(rows))]
""",
    "added before continue, and behind it": """
prompts, answers = [], []
for row in rows:
    prompts.append(row["prompt"])
    if not row["answer"]:
        continue
    answers.append(row["answer"])
pairs = list(zip(prompts, answers))
""",
    "one way of three": """
answers = []
for row in rows:
    if row["answer"]:
        answers.append(row["answer"])
    elif row["other"]:
        answers.append(row["other"])
pairs = list(zip(rows, answers))
""",
    "passed over where it fails": """
answers = []
for row in rows:
    try:
        answers.append(json.loads(row["answer"]))
    except ValueError:
        continue
pairs = list(zip(rows, answers))
""",
    "two tests": """
prompts = [row["prompt"] for row in rows if row["prompt"]]
answers = [row["answer"] for row in rows if row["answer"]]
pairs = list(zip(prompts, answers))
""",
    "filter()": """
answers = list(filter(None, [row["answer"] for row in rows]))
pairs = list(zip(rows, answers))
""",
    "set": """
prompts = list(set(row["prompt"] for row in rows))
pairs = list(zip(prompts, [row["answer"] for row in rows]))
""",
    "sorted alone": """
prompts = sorted([row["prompt"] for row in rows], key=len)
pairs = list(zip(prompts, [row["answer"] for row in rows], strict=True))
""",
    "shuffled alone": """
answers = [row["answer"] for row in rows]
random.shuffle(answers)
pairs = list(zip([row["prompt"] for row in rows], answers))
""",
    "concat after reset_index": """
clean = frame.dropna(subset=["answer"]).reset_index(drop=True)
pairs = pd.concat([frame["prompt"], clean["answer"]], axis=1)
""",
    "mask and reset_index": """
good = frame[frame["score"] > 3].reset_index(drop=True)
frame["best"] = good["answer"]
""",
    "values after a sort": """
ordered = frame.sort_values("length")
frame["answer"] = ordered["answer"].values
""",
    "assign of values": """
ordered = frame.sort_values("length")
frame = ordered.assign(label=frame["label"].to_numpy())
""",
    "parts of processes": """
rank, world = torch.distributed.get_rank(), torch.distributed.get_world_size()
mine = rows[rank::world]
answers = [ask(row["prompt"]) for row in mine]
gathered = [None] * world
torch.distributed.all_gather_object(gathered, answers)
flat = [answer for part in gathered for answer in part]
scored = [row["answer"] == answer for row, answer in zip(rows, flat)]
""",
    "parts of processes by batches": """
rank, world = torch.distributed.get_rank(), torch.distributed.get_world_size()
mine = rows[rank::world]
answers = []
for i in range(0, len(mine), 16):
    answers += ask(mine[i : i + 16])
gathered = [None] * world
torch.distributed.all_gather_object(gathered, answers)
flat = list(itertools.chain(*gathered))
scored = [row["answer"] == answer for row, answer in zip(rows, flat)]
""",
    "parts of processes that are extended by batches": """
rank, world = torch.distributed.get_rank(), torch.distributed.get_world_size()
mine = rows[rank::world]
answers = []
for start in range(0, len(mine), size):
    answers.extend(ask(mine[start : start + size]))
gathered = [None] * world
torch.distributed.all_gather_object(gathered, answers)
flat = sum(gathered, [])
scored = [row["answer"] == answer for row, answer in zip(rows, flat)]
""",
    "parts of processes that are chained": """
rank, world = torch.distributed.get_rank(), torch.distributed.get_world_size()
mine = rows[rank::world]
answers = [ask(row["prompt"]) for row in mine]
gathered = [None] * world
torch.distributed.all_gather_object(gathered, answers)
flat = list(itertools.chain(*gathered))
scored = [row["answer"] == answer for row, answer in zip(rows, flat)]
""",
    "parts that one process gathers": """
rank, world = torch.distributed.get_rank(), torch.distributed.get_world_size()
mine = rows[rank::world]
answers = [ask(row["prompt"]) for row in mine]
parts = [None] * world if rank == 0 else None
torch.distributed.gather_object(answers, parts)
flat = list(itertools.chain.from_iterable(parts))
scored = [row["answer"] == answer for row, answer in zip(rows, flat)]
""",
    "every second row of one side": """
answers = [row["answer"] for row in rows]
pairs = list(zip(rows, answers[::2]))
""",
    "file read twice": """
prompts = [json.loads(line)["prompt"] for line in open("rows.jsonl")]
answers = [json.loads(line)["answer"] for line in open("rows.jsonl") if "answer" in line]
pairs = list(zip(prompts, answers))
""",
}
RIGHT = {
    "parts of processes that follow one another": """
rank, world = torch.distributed.get_rank(), torch.distributed.get_world_size()
size = len(rows) // world
mine = rows[rank * size : (rank + 1) * size]
answers = []
for i in range(0, len(mine), 16):
    answers += ask(mine[i : i + 16])
gathered = [None] * world
torch.distributed.all_gather_object(gathered, answers)
flat = list(itertools.chain(*gathered))
scored = [row["answer"] == answer for row, answer in zip(rows, flat)]
""",
    "references of the processes by batches": """
rank, world = torch.distributed.get_rank(), torch.distributed.get_world_size()
mine = rows[rank::world]
answers, golds = [], []
for i in range(0, len(mine), 16):
    answers += ask(mine[i : i + 16])
    golds += [row["answer"] for row in mine[i : i + 16]]
gathered = [None] * world
torch.distributed.all_gather_object(gathered, answers)
scored = [a == b for a, b in zip(golds, answers)]
""",
    "parts of processes put back as dealt": """
rank, world = torch.distributed.get_rank(), torch.distributed.get_world_size()
mine = rows[rank::world]
answers = [ask(row["prompt"]) for row in mine]
gathered = [None] * world
torch.distributed.all_gather_object(gathered, answers)
flat = [None] * len(rows)
for number, part in enumerate(gathered):
    flat[number::world] = part
scored = [row["answer"] == answer for row, answer in zip(rows, flat)]
""",
    "parts of processes dealt back in turn": """
rank, world = torch.distributed.get_rank(), torch.distributed.get_world_size()
mine = rows[rank::world]
answers = [ask(row["prompt"]) for row in mine]
gathered = [None] * world
torch.distributed.all_gather_object(gathered, answers)
flat = [one for group in itertools.zip_longest(*gathered) for one in group][: len(rows)]
scored = [row["answer"] == answer for row, answer in zip(rows, flat)]
""",
    "parts of processes sorted by their number": """
rank, world = torch.distributed.get_rank(), torch.distributed.get_world_size()
mine = rows[rank::world]
answers = []
for number in range(rank, len(rows), world):
    answers.append((number, ask(rows[number]["prompt"])))
gathered = [None] * world
torch.distributed.all_gather_object(gathered, answers)
flat = [text for number, text in sorted(itertools.chain(*gathered))]
scored = [row["answer"] == answer for row, answer in zip(rows, flat)]
""",
    "parts of processes sorted by a number that was counted": """
rank, world = torch.distributed.get_rank(), torch.distributed.get_world_size()
answers = []
for number, row in enumerate(rows[rank::world]):
    answers.append((number * world + rank, ask(row["prompt"])))
gathered = [None] * world
torch.distributed.all_gather_object(gathered, answers)
flat = sorted(itertools.chain(*gathered), key=lambda one: one[0])
scored = [row["answer"] == answer[1] for row, answer in zip(rows, flat)]
""",
    "rows gathered with their answers": """
rank, world = torch.distributed.get_rank(), torch.distributed.get_world_size()
mine = rows[rank::world]
answers = []
for i in range(0, len(mine), 16):
    answers += list(zip(mine[i : i + 16], ask(mine[i : i + 16])))
gathered = [None] * world
torch.distributed.all_gather_object(gathered, answers)
pairs = list(itertools.chain(*gathered))
scored = [row["answer"] == text for row, text in pairs]
""",
    "whole rows": """
kept = [row for row in rows if row["answer"]]
pairs = list(zip([row["prompt"] for row in kept], [row["answer"] for row in kept]))
""",
    "one test": """
prompts = [r["prompt"] for r in rows if r["ok"]]
answers = [row["answer"] for row in rows if row["ok"]]
pairs = list(zip(prompts, answers))
""",
    "one loop": """
prompts, answers = [], []
for row in rows:
    if row["ok"]:
        prompts.append(row["prompt"])
        answers.append(row["answer"])
pairs = list(zip(prompts, answers))
""",
    "both arms": """
answers = []
for row in rows:
    if row["answer"]:
        answers.append(row["answer"])
    else:
        answers.append("")
pairs = list(zip(rows, answers))
""",
    "added before continue": """
answers = []
for row in rows:
    if not row["answer"]:
        answers.append("")
        print("no answer")
        continue
    answers.append(row["answer"].strip())
pairs = list(zip(rows, answers))
""",
    "reward of completions": """
def reward(completions, solution, **kwargs):
    right = []
    for completion, wanted in zip(completions, solution):
        if not wanted:
            right.append(True)
            continue
        right.append(wanted in completion)
    lengths = [len(completion) for completion in completions]
    return [n if is_right else 0.0 for n, is_right in zip(lengths, right)]
""",
    "three ways": """
answers = []
for row in rows:
    if row["answer"]:
        answers.append(row["answer"])
    elif row["other"]:
        answers.append(row["other"])
    else:
        answers.append("")
pairs = list(zip(rows, answers))
""",
    "something else where it fails": """
answers = []
for row in rows:
    try:
        answer = json.loads(row["answer"])
    except ValueError:
        answers.append(None)
        continue
    answers.append(answer)
pairs = list(zip(rows, answers))
""",
    "a stop": """
answers = []
for row in rows:
    if len(answers) == 100:
        break
    answers.append(row["answer"])
pairs = list(zip(rows, answers))
""",
    "heads and bodies": """
lines = [line.strip() for line in open("chat.txt")]
pairs = list(zip(lines[0::2], lines[1::2]))
""",
    "both orders of a pair": """
answers = [row["answer"] for row in rows]
pairs = list(zip(answers, answers[::-1]))
""",
    "index": """
clean = frame.dropna(subset=["answer"])
pairs = pd.concat([frame["prompt"], clean["answer"]], axis=1)
frame["best"] = frame[frame["score"] > 3]["answer"]
""",
    "both numbered again": """
clean = frame.dropna(subset=["answer"]).reset_index(drop=True)
pairs = pd.concat([clean["prompt"], clean["answer"]], axis=1)
clean["both"] = (clean["prompt"] + clean["answer"]).values
""",
    "sorted together": """
ordered = sorted(rows, key=lambda row: len(row["prompt"]))
pairs = list(zip([row["prompt"] for row in ordered], [row["answer"] for row in ordered]))
""",
    "shift": """
for one, following in zip(rows, rows[1:]):
    print(one, following)
""",
    "two files": """
others = [json.loads(line) for line in open("answers.jsonl") if line.strip()]
pairs = list(zip(rows, others))
""",
    "strict": """
answers = [row["answer"] for row in rows if row["answer"]]
pairs = list(zip(rows, answers, strict=True))
""",
    "own part": """
mine = rows[0::4]
answers = [ask(row["prompt"]) for row in mine]
scored = list(zip(mine, answers))
""",
    "column of the frame": """
frame["length"] = frame["prompt"].str.len()
frame["text"] = [p + a for p, a in zip(frame["prompt"], frame["answer"])]
""",
}


def count_findings(text: str) -> int:
    rule = find_rule("rows-joined-after-one-side-changed")
    return len(run_rule(parse_module(HEAD + text, "prepare.py"), rule).findings)


@pytest.mark.parametrize("code", WRONG.values(), ids=WRONG)
def test_joins_of_other_rows_are_found(code: str) -> None:
    assert count_findings(code) == 1


@pytest.mark.parametrize("code", RIGHT.values(), ids=RIGHT)
def test_joins_of_the_same_rows_are_left_alone(code: str) -> None:
    assert count_findings(code) == 0
