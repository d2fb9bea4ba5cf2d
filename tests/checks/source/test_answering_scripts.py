"""Rules on scripts that generate and score: speed (rows, devices, loading) and figures (masks, limits, labels)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.checks.source.table import codes
from truetune.checks.lint import lint

ASK = """
def ask(question):
    chat = [{"role": "user", "content": question}]
    ids = tok.apply_chat_template(chat, add_generation_prompt=True, return_tensors="pt", return_dict=True)
    return tok.decode(model.generate(**ids.to(model.device), max_new_tokens=200)[0])

"""
PIPE = "from transformers import pipeline\npipe = pipeline('text-generation', model='out/tuned', device=0)\n"
LLM = "from vllm import LLM, SamplingParams\nllm = LLM('out/tuned')\nparams = SamplingParams(max_tokens=99)\n"
CLIENT = "from openai import OpenAI\nclient = OpenAI(base_url='http://localhost:8000/v1')\n"
SEND = "client.chat.completions.create(model='m', messages={0}, max_tokens=99)"
LOADER = (
    "from torch.utils.data import DataLoader\n"
    "for batch in DataLoader(ds{0}):\n    model.generate(**batch, max_new_tokens=99)\n"
)


@pytest.mark.parametrize(
    ("text", "level"),
    [
        (ASK + "answers = [ask(row['question']) for row in ds]\n", "w"),
        (ASK + "df['answer'] = df.question.apply(ask)\n", "i"),
        (ASK + "for i in range(len(ds)):\n    print(ask(ds[i]['question']))\n", "w"),
        (PIPE + "for text in ds['text']:\n    pipe(text, max_new_tokens=40)\n", "w"),
        (PIPE + "def tag(row):\n    return pipe(row['text'])\ndf.apply(tag, axis=1)\n", "i"),
        (LLM + "for row in ds:\n    llm.generate(row['prompt'], params)\n", "w"),
        (CLIENT + f"for row in ds:\n    {SEND.format('row[1]')}\n", "w"),
        (
            "import requests\nfor row in ds:\n"
            "    requests.post('http://h/v1/chat/completions', json={'messages': row['messages']})\n",
            "w",
        ),
        (LOADER.format(""), "w"),
        (LOADER.format(", batch_size=1"), "w"),
        (ASK + "print(ask('Who are you?'))\n", None),
        (ASK + "for question in ['Hi', 'Who are you?']:\n    print(ask(question))\n", None),
        (ASK + "for epoch in range(3):\n    print(ask('Who are you?'))\n", None),
        (ASK + "for game in range(20):\n    print(ask(f'Board {game}'))\n", None),
        (LOADER.format(", batch_size=16"), None),
        (PIPE + "pipe([row['text'] for row in ds], batch_size=16)\n", None),
        (PIPE + "for batch in batches(ds):\n    pipe(batch, batch_size=16)\n", None),
        (LLM + "llm.generate([row['prompt'] for row in ds], params)\n", None),
        (
            CLIENT + "from concurrent.futures import ThreadPoolExecutor\n"
            f"def send(row):\n    return {SEND.format('row[1]')}\n"
            "with ThreadPoolExecutor(32) as pool:\n    list(pool.map(send, ds))\n",
            None,
        ),
        (
            PIPE + "chat = []\nfor line in open('turns.txt'):\n"
            "    chat.append({'role': 'user', 'content': line})\n    pipe(chat)\n",
            None,
        ),
        (
            "for start in range(0, len(ds), 8):\n"
            "    ids = tok(ds[start:start + 8]['text'], padding=True, return_tensors='pt')\n"
            "    model.generate(**ids, max_new_tokens=99)\n",
            None,
        ),
    ],
)
def test_rows_are_asked_one_by_one(text: str, level: str | None, tmp_path: Path) -> None:
    # A note where the rows may be few: `df` is not seen to come from a file, as `ds` is.
    assert codes(text, tmp_path, "SRC043") == [f"SRC043{level}"] * (level is not None)


LARGE = "big = AutoModelForCausalLM.from_pretrained('org/chat-8B-Instruct'{0})\n"
SAY = "ids = tok('Hi', return_tensors='pt')\nprint(big.generate(**ids, max_new_tokens=99))\n"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (LARGE.format("") + SAY, True),
        (LARGE.replace("-8B", "").format(", dtype=torch.bfloat16") + SAY, True),
        (LARGE.format("") + "big = PeftModel.from_pretrained(big, 'out').merge_and_unload()\n" + SAY, True),
        ("class Bot:\n    def __init__(self):\n        self.net = AutoModelForCausalLM.from_pretrained('a-7b')\n"
         "    def say(self, ids):\n        return self.net.generate(ids, max_new_tokens=9)\n", True),
        ("from llama_cpp import Llama\nllm = Llama(model_path='a.gguf', n_ctx=8192)\n", True),
        (LARGE.format(", device_map='auto'") + SAY, False),
        (LARGE.format("") + "big.to('cuda')\n" + SAY, False),
        (LARGE.format("") + "big = big.cuda()\n" + SAY, False),
        (LARGE.format("") + "big.to(torch.device('cpu'))\n" + SAY, False),
        (LARGE.format("") + "device = 'cpu'  # a small machine\nprint(\"cpu\")\n" + SAY, False),
        (LARGE.format("").replace("8B-Instruct", "8B-GPTQ") + SAY, False),
        ("print(model.generate(**tok('Hi', return_tensors='pt'), max_new_tokens=9))\n", False),
        (LARGE.format("") + "torch.set_default_device('cuda')\n" + SAY, False),
        ("from llama_cpp import Llama\nllm = Llama(model_path='a.gguf', n_gpu_layers=-1)\n", False),
    ],
)  # fmt: skip
def test_a_model_that_stays_on_the_cpu(text: str, found: bool, tmp_path: Path) -> None:
    assert codes(text, tmp_path, "SRC034") == ["SRC034w"] * found


APP = "from fastapi import FastAPI\napp = FastAPI()\n"
GET = (
    "def get():\n    return AutoModelForCausalLM.from_pretrained('out/tuned', device_map='auto')\n"
)
HANDLE = "@app.post('/ask')\ndef answer(question: str):\n    net = get()\n    return net.generate(question)\n"
ROWS = "for row in ds:\n    net = get()\n    ids = tok(row['q'], return_tensors='pt')\n    net.generate(**ids)\n"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (APP + GET + HANDLE, True),
        (GET + ROWS, True),
        ("import gradio as gr\n" + GET + "def say(text, turns):\n    return get().generate(text)\n"
         "gr.ChatInterface(say).launch()\n", True),
        (APP + "from functools import lru_cache\n@lru_cache\n" + GET + HANDLE, False),
        (APP + GET + "net = get()\n" + HANDLE.replace("    net = get()\n", ""), False),
        (APP + "net = None\ndef get():\n    global net\n    if net is None:\n"
         "        net = AutoModelForCausalLM.from_pretrained('out')\n    return net\n" + HANDLE, False),
        ("for path in paths:\n    net = AutoModelForCausalLM.from_pretrained(path)\n"
         "    for row in ds:\n        net.generate(**tok(row['q'], return_tensors='pt'))\n", False),
        (GET + ROWS + "loss.backward()\ntorch.optim.AdamW(net.parameters())\n", False),
    ],
)  # fmt: skip
def test_a_model_that_is_loaded_for_each_answer(text: str, found: bool, tmp_path: Path) -> None:
    assert codes(text, tmp_path, "SRC003") == ["SRC003w"] * found


METRICS = """
def compute_metrics(pred):
    predictions, labels = pred.predictions[:, :-1], pred.label_ids[:, 1:]
    {0}
    return {{"accuracy": ((predictions == labels){1}).mean()}}

def pick(logits, labels):
    return logits.argmax(-1)

trainer = Trainer(model=model, data_collator={2}, compute_metrics=compute_metrics, preprocess_logits_for_metrics=pick)
"""
SEQ2SEQ = "DataCollatorForSeq2Seq(tok)"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (METRICS.format("", "", SEQ2SEQ), True),
        ("labels = [-100] * n + ids\n" + METRICS.format("", "", "default_data_collator"), True),
        (METRICS.format("", "[labels != -100]", SEQ2SEQ), False),
        (METRICS.format("mask = labels >= 0", "[mask]", SEQ2SEQ), False),
        (METRICS.format("", "", "default_data_collator"), False),
        ("block_size = 1024\n" + METRICS.format("", "", SEQ2SEQ), False),
        ("AutoModelForSequenceClassification\n" + METRICS.format("", "", SEQ2SEQ), False),
    ],
)  # fmt: skip
def test_metrics_count_ignored_labels(text: str, found: bool, tmp_path: Path) -> None:
    assert codes(text, tmp_path, "SRC005") == ["SRC005e"] * found


EVALUATES = """
import math
model.eval()
for start in range(0, len(texts), 8):
    enc = tok(texts[start:start + 8], {0}return_tensors="pt").to("cuda")
    loss = model(**enc, labels={1}).loss
print(math.exp(loss))
"""


@pytest.mark.parametrize(
    ("padding", "labels", "found"),
    [
        ("padding=True, ", "enc['input_ids']", True),
        ("padding='max_length', max_length=512, ", "enc.input_ids.clone()", True),
        ("", "enc['input_ids']", False),
        ("padding=True, ", "enc['input_ids'].masked_fill(enc['attention_mask'] == 0, -100)", False),
        ("padding=False, ", "enc['input_ids']", False),
    ],
)
def test_padding_in_the_loss_of_an_evaluation(
    padding: str, labels: str, found: bool, tmp_path: Path
) -> None:
    assert codes(EVALUATES.format(padding, labels), tmp_path, "SRC015") == ["SRC015w"] * found


SOLVE = r"""
import re
ids = tok(["2 + 2?"], return_tensors="pt")
out = model.generate(**ids, max_new_tokens={0})
for text in tok.batch_decode(out, skip_special_tokens=True):
    print({1})
"""
GOLD = "import re\ngold = re.search(r'#### (\\d+)', row['answer'])\n"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (SOLVE.format(64, r're.search(r"####\s*(\d+)", text)'), True),
        (SOLVE.format(100, r're.compile(r"\\boxed{(.*)}").findall(text)'), True),
        (SOLVE.format(128, 'text.split("####")[-1]'), True),
        (SOLVE.format(512, 'text.split("####")[-1]'), False),
        (SOLVE.format(16, 'text.split(".")[0]'), False),
        (
            GOLD + "print(model.generate(**tok(['a'], return_tensors='pt'), max_new_tokens=64))\n",
            False,
        ),
    ],
)
def test_a_limit_below_the_steps_of_a_solution(text: str, found: bool, tmp_path: Path) -> None:
    assert codes(text, tmp_path, "SRC070") == ["SRC070w"] * found


NUMBERED = "NAMES = {0: 'negative', 1: 'positive'}\nrows = [NAMES[row.label] for row in data]\n"
EVALUATION = (
    "from transformers import pipeline\npipe = pipeline('text-generation', model='out', batch_size=8)\n"
    "LABELS = {0}\nright = [a == LABELS[n] for a, n in zip(pipe(texts), numbers)]\n"
)


@pytest.mark.parametrize(
    ("labels", "beside", "found"),
    [
        ("['positive', 'negative']", NUMBERED, True),
        ("['Positive', 'Negative']", "label2id = {'negative': 0, 'positive': 1}\n", True),
        ("['negative', 'positive']", NUMBERED, False),
        ("['positive', 'negative', 'neutral']", NUMBERED, False),
        ("['positive', 'negative']", "CLASSES = ['negative', 'positive']\nprint(CLASSES)\n", False),
    ],
)
def test_label_names_in_another_order(
    labels: str, beside: str, found: bool, tmp_path: Path
) -> None:
    (tmp_path / "prepare.py").write_text(beside, encoding="utf-8")
    script = tmp_path / "evaluate.py"
    script.write_text(EVALUATION.replace("{0}", labels), encoding="utf-8")
    report = lint([script], select=["SRC098"])
    assert [finding.code for finding in report.findings] == ["SRC098"] * found


GIVEN = "outputs = llm.generate(prompts, SamplingParams({0}))\n"


@pytest.mark.parametrize(
    ("given", "found"),
    [
        ("temperature=0", ["SRC041w"]),
        ("temperature=0, max_tokens=512", []),
        ("**settings", []),
    ],
)
def test_vllm_without_a_length(given: str, found: list[str], tmp_path: Path) -> None:
    assert codes(LLM + GIVEN.format(given), tmp_path, "SRC041") == found


def test_a_trainer_sets_the_length_of_its_own_samples(tmp_path: Path) -> None:
    text = (
        LLM
        + "from trl import GRPOConfig\nGRPOConfig('o', vllm_sampling_params=SamplingParams(min_p=0.1))\n"
    )
    assert codes(text, tmp_path, "SRC041") == []


def test_streamlit_keeps_what_is_cached(tmp_path: Path) -> None:
    head = "import streamlit as st\nfrom transformers import AutoModelForCausalLM\n"
    script = tmp_path / "app.py"
    script.write_text(f"{head}@st.cache_resource\n{GET}net = get()\n", encoding="utf-8")
    assert not lint([script], select=["SRC003"]).findings
    script.write_text(f"{head}{GET}net = get()\n", encoding="utf-8")
    assert lint([script], select=["SRC003"]).findings


OLLAMA = "import ollama\nollama.chat(model='own', messages=chat, options={'num_predict': %s})\n"
REQUEST = (
    "import requests\nCOMMON = {'max_tokens': %s, 'temperature': 0}\n"
    "requests.post('http://h/v1/chat/completions', json={'model': 'own', 'messages': chat, **COMMON})\n"
)


@pytest.mark.parametrize(
    ("script", "words", "expected"),
    [
        (OLLAMA % 64, 100, 1),
        (REQUEST % 64, 100, 1),
        (OLLAMA % 64, 60, 0),
        (OLLAMA % 512, 100, 0),
        (OLLAMA % 1 + OLLAMA % 512, 100, 0),
        (OLLAMA % "limit", 100, 0),
        ((OLLAMA % 64).replace("own", "gpt-4o-mini"), 100, 0),
        ((OLLAMA % 64).replace("own", "qwen2.5:7b-instruct"), 100, 0),
        ("ASK = 'Is it right? Reply yes or no.'\n" + OLLAMA % 64, 100, 0),
        (
            "from datasets import load_dataset\nrows = load_dataset('cais/mmlu')\n" + OLLAMA % 64,
            100,
            0,
        ),
    ],
)
def test_a_limit_below_the_trained_answers(
    script: str, words: int, expected: int, tmp_path: Path
) -> None:
    turns = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "words " * words}]
    (tmp_path / "rows.jsonl").write_text((json.dumps({"messages": turns}) + "\n") * 24)
    path = tmp_path / "ask.py"
    path.write_text(script)
    assert len(lint([path], select=["scored-answers-limited-to-few-tokens"]).findings) == expected


def test_of_pairs_beside_it_no_answer_is_too_long(tmp_path: Path) -> None:
    """Of LLaMA-Factory's pairs the sides are the answers, and none of them stands in the turns."""
    turns = [{"from": "human", "value": "a"}]
    row = {
        "conversations": turns,
        "chosen": {"from": "gpt", "value": "b"},
        "rejected": {"from": "gpt", "value": "c"},
    }
    (tmp_path / "pairs.json").write_text(json.dumps([row] * 24))
    path = tmp_path / "ask.py"
    path.write_text(OLLAMA % 64)
    assert not lint([path], select=["scored-answers-limited-to-few-tokens"]).findings
