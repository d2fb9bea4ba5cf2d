"""Seeds that each pass of a loop sets again."""

from __future__ import annotations

import pytest

from truetune.checks.rule_catalogue import find_rule
from truetune.checks.rule_runner import run_rule
from truetune.source.parsed_source_file import parse_module

HEAD = """
args = None
"""
FAULTY = {
    "before each answer": """
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer
model = AutoModelForCausalLM.from_pretrained("m"); tok = AutoTokenizer.from_pretrained("m")
def sample(ids):
    torch.manual_seed(0)
    return model.generate(ids, do_sample=True)
for row in rows:
    outs = [sample(row) for _ in range(4)]
""",
    "a seed of each request": """
from openai import OpenAI
client = OpenAI()
def ask(q):
    votes = []
    for _ in range(5):
        r = client.chat.completions.create(model="out", messages=q, temperature=1.0, seed=7)
        votes.append(r.choices[0].message.content)
    return max(set(votes), key=votes.count)
""",
    "before each epoch": """
import random, numpy as np, torch
from transformers import AutoModelForCausalLM
def set_seed(seed):
    pass
def train_epoch(model, loader, optimizer):
    set_seed(args.seed)
    for batch in loader:
        model(**batch).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
model = AutoModelForCausalLM.from_pretrained("m")
optimizer = torch.optim.AdamW(model.parameters())
for epoch in range(3):
    train_epoch(model, loader, optimizer)
""",
}
RIGHT = {
    "a measurement of the time": """
import time, torch
from transformers import AutoModelForCausalLM
model = AutoModelForCausalLM.from_pretrained("m")
times = []
for _ in range(10):
    torch.manual_seed(0)
    start = time.perf_counter()
    model.generate(**inputs, do_sample=True, max_new_tokens=64)
    times.append(time.perf_counter() - start)
""",
    "runs of their own": """
import torch
from transformers import AutoModelForCausalLM, set_seed
for seed in (1, 2, 3):
    set_seed(seed)
    model = AutoModelForCausalLM.from_pretrained("m")
    opt = torch.optim.AdamW(model.parameters())
    for batch in loader:
        model(**batch).loss.backward(); opt.step(); opt.zero_grad()
for fold in range(5):
    set_seed(42)
    model = AutoModelForCausalLM.from_pretrained("m")
    opt = torch.optim.AdamW(model.parameters())
    for epoch in range(3):
        torch.manual_seed(42 + epoch)
        for batch in loader:
            model(**batch).loss.backward(); opt.step(); opt.zero_grad()
""",
    "each prompt once": """
import torch
from vllm import LLM, SamplingParams
from transformers import set_seed
llm = LLM("m")
for row in rows:
    set_seed(42)
    print(llm.generate(row, SamplingParams(temperature=0.8, seed=1)))
for k in range(8):
    print(llm.generate(rows, SamplingParams(temperature=0.8, seed=k)))
out = llm.generate(rows, SamplingParams(temperature=0.8, seed=1, n=8))
""",
    "a generator that is restored": """
import torch
for step, batch in enumerate(loader):
    model(**batch).loss.backward()
    optimizer.step()
    with torch.random.fork_rng():
        torch.manual_seed(42)
        evaluate()
""",
}


def findings_of(text: str) -> list[str]:
    """The messages of the rule's findings in a script."""
    module = parse_module(HEAD + text, "train.py")
    return [one.message for one in run_rule(module, find_rule("seed-set-again-in-a-loop")).findings]


@pytest.mark.parametrize("case", sorted(FAULTY))
def test_set_again(case: str) -> None:
    """The seed is named, once."""
    assert len(findings_of(FAULTY[case])) == 1


@pytest.mark.parametrize("case", sorted(RIGHT))
def test_set_for_a_run(case: str) -> None:
    """A seed of each run, or of each draw, is right."""
    assert findings_of(RIGHT[case]) == []
