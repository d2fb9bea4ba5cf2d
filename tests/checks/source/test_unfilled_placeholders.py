"""Prompts that go to a model with a placeholder that nothing fills in, and texts whose braces are meant."""

from __future__ import annotations

import pytest

from truetune.checks.rule_catalogue import find_rule
from truetune.checks.rule_runner import run_rule
from truetune.source.parsed_source_file import parse_module

RULE = "placeholder-never-filled"
HEAD = """
import json
from datasets import load_dataset
from transformers import AutoModelForCausalLM, AutoTokenizer, Trainer
tok = AutoTokenizer.from_pretrained("model")
rows = load_dataset("json", data_files="rows.jsonl", split="train")
"""
TRAIN = "\nTrainer(model='model', train_dataset=rows.map(encode)).train()\n"
FIRING = {
    "chat": (
        HEAD
        + """
ASK = "Translate this: {source}"
def encode(row):
    source = row["en"]
    ids = tok.apply_chat_template([{"role": "user", "content": ASK}], return_dict=False)
    return {"input_ids": ids, "labels": ids}
"""
        + TRAIN
    ),
    "f in front is missing": (
        HEAD
        + """
def encode(row):
    ids = tok("Question: {row['question']} Answer: " + row["answer"])["input_ids"]
    return {"input_ids": ids, "labels": ids}
"""
        + TRAIN
    ),
    "rows of text": '''
from datasets import load_dataset
from trl import SFTConfig, SFTTrainer
TEMPLATE = """### Instruction:
{instruction}

### Response:
"""
rows = load_dataset("json", data_files="rows.jsonl", split="train")
rows = rows.map(lambda row: {"prompt": TEMPLATE, "completion": row["output"], "n": len(row["instruction"])})
SFTTrainer("model", args=SFTConfig("out"), train_dataset=rows).train()
''',
    "client of a server": """
from openai import OpenAI
client = OpenAI(base_url="http://localhost:8000/v1", api_key="x")
def ask(ticket):
    messages = [{"role": "user", "content": "Summarise the ticket: {ticket}"}]
    return client.chat.completions.create(model="m", messages=messages).choices[0].message.content
for line in open("tickets.txt"):
    print(ask(line))
""",
    "request by http": """
import requests
PROMPT = "Review: {review}\\nSentiment:"
def ask(review):
    body = {"model": "m", "prompt": PROMPT, "max_tokens": 5}
    return requests.post("http://localhost:8000/v1/completions", json=body).json()
for line in open("reviews.txt"):
    print(ask(line))
""",
    "rows that are written": """
import csv, json
SYSTEM = "You sort mails for {company}."
with open("out.jsonl", "w") as out:
    for row in csv.DictReader(open("mails.csv")):
        company = row["company"]
        messages = [
            {"role": "system", "content": SYSTEM},
            {"role": "user", "content": row["mail"]},
            {"role": "assistant", "content": row["team"]},
        ]
        out.write(json.dumps({"messages": messages}) + "\\n")
""",
    "engine": """
from vllm import LLM, SamplingParams
llm = LLM("model")
PROMPT = "Extract the names: {document}".strip()
prompts = []
for document in open("documents.txt"):
    prompts.append(PROMPT)
outputs = llm.generate(prompts, SamplingParams(max_tokens=64))
""",
    "generation": """
from transformers import AutoModelForCausalLM, AutoTokenizer
tok = AutoTokenizer.from_pretrained("model")
model = AutoModelForCausalLM.from_pretrained("model")
def answer(question):
    batch = tok("Question: {question}\\nAnswer:", return_tensors="pt")
    return tok.decode(model.generate(**batch, max_new_tokens=20)[0])
print(answer("Who?"))
""",
}
SILENT = {
    "formatted": FIRING["chat"].replace('"content": ASK', '"content": ASK.format(source=source)'),
    "f is there": FIRING["f in front is missing"].replace('tok("Q', 'tok(f"Q'),
    "replaced": FIRING["chat"].replace(
        '"content": ASK', '"content": ASK.replace("{source}", source)'
    ),
    "format_map": FIRING["rows of text"].replace(
        '"prompt": TEMPLATE', '"prompt": TEMPLATE.format_map(row)'
    ),
    "formatted later": FIRING["client of a server"].replace(
        "    return client",
        '    messages[0]["content"] = messages[0]["content"].format(ticket=ticket)\n    return client',
    ),
    "escaped": FIRING["client of a server"].replace(
        '"Summarise the ticket: {ticket}"', 'f"Summarise {ticket}, with {{ticket}} for its name"'
    ),
    "latex": FIRING["client of a server"].replace(
        '"Summarise the ticket: {ticket}"',
        'f"Solve {ticket}." + r"Put it in \\\\boxed{ticket} or \\\\frac{ticket}{2}"',
    ),
    "form of the answer": FIRING["client of a server"]
    .replace('"Summarise the ticket: {ticket}"', '"End with: {answer}. " + ticket')
    .replace("return client", "answer = client")
    .replace(".content\n", ".content\n    return answer\n"),
    "json": FIRING["client of a server"].replace(
        '"Summarise the ticket: {ticket}"', "'Give {\"ticket\": 1} or {} for: ' + ticket"
    ),
    "measured": (
        HEAD
        + """
ASK = "Translate this: {source}"
overhead = len(tok(ASK)["input_ids"])
def encode(row):
    source = row["en"]
    ids = tok(ASK.format(source=source), max_length=512 - overhead)["input_ids"]
    return {"input_ids": ids, "labels": ids}
"""
        + TRAIN
    ),
    "a name that the code does not have": FIRING["client of a server"].replace(
        '"Summarise the ticket: {ticket}"',
        '"Write a letter that begins with Dear {customer_name}: " + ticket',
    ),
    "template of a library": """
from langchain_core.prompts import ChatPromptTemplate
from langchain_openai import ChatOpenAI
prompt = ChatPromptTemplate.from_messages([("user", "Summarise: {text}")])
chain = prompt | ChatOpenAI(model="m")
for text in open("texts.txt"):
    print(chain.invoke({"text": text}))
""",
    "percent": FIRING["request by http"]
    .replace("{review}", "%s")
    .replace('"prompt": PROMPT', '"prompt": PROMPT % review'),
}


@pytest.mark.parametrize("name", FIRING)
def test_a_placeholder_that_nothing_fills_in_is_named(name: str) -> None:
    found = run_rule(parse_module(FIRING[name], "train.py"), find_rule(RULE)).findings
    assert len(found) == 1, name


@pytest.mark.parametrize("name", SILENT)
def test_braces_that_are_meant_or_filled_are_left_alone(name: str) -> None:
    assert not run_rule(parse_module(SILENT[name], "train.py"), find_rule(RULE)).findings


def test_a_prompt_with_other_parts_that_differ_is_a_warning() -> None:
    [found] = run_rule(
        parse_module(FIRING["rows that are written"], "train.py"), find_rule(RULE)
    ).findings
    assert found.severity == "warning"
    assert "{company}" in found.message
