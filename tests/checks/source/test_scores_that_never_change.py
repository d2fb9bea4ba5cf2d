"""Scripts whose score is one for every model: a path that is written, answers that are kept, requests that fail."""

# ruff: noqa: E501 - scripts stand as they are written
from __future__ import annotations

import pytest

from truetune.checks.rule_catalogue import find_rule
from truetune.checks.rule_runner import run_rule
from truetune.source.module import parse_module


def found(rule: str, code: str) -> list[str]:
    module = parse_module(code, "score.py")
    return [one.message for one in run_rule(module, find_rule(rule)).findings]


HEAD = """
import argparse, click
from transformers import AutoModelForCausalLM, AutoTokenizer
from peft import PeftModel
from vllm import LLM
p = argparse.ArgumentParser()
"""
NEVER_LOADED = {
    "printed": "p.add_argument('--ckpt')\nargs = p.parse_args()\nm = AutoModelForCausalLM.from_pretrained('out/c-100')\nprint(args.ckpt)",
    "a constant of the file": "p.add_argument('--model-path')\na = p.parse_args()\nM = 'out/c-100'\nm = AutoModelForCausalLM.from_pretrained(M)\nprint(f'{a.model_path}: {f(m)}')",
    "an adapter": "p.add_argument('--adapter')\nargs = p.parse_args()\nb = AutoModelForCausalLM.from_pretrained('base')\nm = PeftModel.from_pretrained(b, 'out/c-100')",
    "vllm": "p.add_argument('model')\nargs, rest = p.parse_known_args()\nllm = LLM(model='out/merged')\nlogger.info(args.model)",
    "dest": "p.add_argument('-m', dest='checkpoint_dir')\nargs = p.parse_args()\nllm = LLM('out/merged')",
}
LOADED = {
    "loaded": "p.add_argument('--ckpt')\nargs = p.parse_args()\nm = AutoModelForCausalLM.from_pretrained(args.ckpt)",
    "through a name": "p.add_argument('--ckpt')\nargs = p.parse_args()\npath = args.ckpt\nm = AutoModelForCausalLM.from_pretrained(path)",
    "adapter on a fixed base": "p.add_argument('--adapter')\nargs = p.parse_args()\nb = AutoModelForCausalLM.from_pretrained('base')\nm = PeftModel.from_pretrained(b, args.adapter)",
    "handed on": "p.add_argument('--ckpt')\nargs = p.parse_args()\nm = AutoModelForCausalLM.from_pretrained('base')\nload(m, args)",
    "loaded into": "p.add_argument('--ckpt')\nargs = p.parse_args()\nm = AutoModelForCausalLM.from_pretrained('base')\nm.load_state_dict(torch.load(args.ckpt))",
    "another option": "p.add_argument('--lora_r')\nargs = p.parse_args()\nm = AutoModelForCausalLM.from_pretrained('base')",
    "a server": "p.add_argument('--model')\nargs = p.parse_args()\nclient.chat.completions.create(model=args.model)\nj = AutoModelForCausalLM.from_pretrained('judge')",
}


@pytest.mark.parametrize("code", NEVER_LOADED.values(), ids=NEVER_LOADED)
def test_a_path_that_is_written(code: str) -> None:
    assert len(found("model-argument-never-loaded", HEAD + code)) == 1


@pytest.mark.parametrize("code", LOADED.values(), ids=LOADED)
def test_an_argument_that_is_loaded(code: str) -> None:
    assert found("model-argument-never-loaded", HEAD + code) == []


KEPT_HEAD = """
import argparse, json, os, sys
from pathlib import Path
from vllm import LLM
from transformers import AutoModelForCausalLM
model = sys.argv[1]
"""
KEPT = {
    "os": "if os.path.exists('p.jsonl'):\n    a = load('p.jsonl')\nelse:\n    a = LLM(model).chat(x)\n    json.dump(a, open('p.jsonl', 'w'))",
    "turned": "P = Path('cache.json')\nif not P.exists():\n    a = LLM(model).generate(x)\n    P.write_text(json.dumps(a))\na = json.loads(P.read_text())",
    "function": "def ask():\n    return LLM(model).generate(x)\nif os.path.isfile('p.csv'):\n    a = 1\nelse:\n    a = ask()\n    with open('p.csv', 'w') as f:\n        f.write(a)",
    "loop": "for c in ['a', 'b']:\n    m = AutoModelForCausalLM.from_pretrained(c)\n    if not os.path.exists('o.json'):\n        a = m.generate(x)\n        json.dump(a, open('o.json', 'w'))",
    "mode by name": "m = LLM(os.environ['MODEL'])\nif not Path('o.jsonl').is_file():\n    a = m.chat(x)\n    with Path('o.jsonl').open(mode='w') as f:\n        f.write(a)",
    "environment": "m = LLM(os.environ['MODEL'])\nif not Path('o.jsonl').is_file():\n    a = m.chat(x)\n    with Path('o.jsonl').open('w') as f:\n        f.write(a)",
}
OWN = {
    "by model": "p = f'{model}.jsonl'\nif os.path.exists(p):\n    a = load(p)\nelse:\n    a = LLM(model).chat(x)\n    json.dump(a, open(p, 'w'))",
    "one model": "if os.path.exists('p.jsonl'):\n    a = load('p.jsonl')\nelse:\n    a = LLM('out/merged').chat(x)\n    json.dump(a, open('p.jsonl', 'w'))",
    "rows": "if os.path.exists('rows.jsonl'):\n    a = load('rows.jsonl')\nelse:\n    a = download()\n    json.dump(a, open('rows.jsonl', 'w'))\nLLM(model).chat(a)",
    "override": "if os.path.exists('p.jsonl') and not args.force:\n    a = load('p.jsonl')\nelse:\n    a = LLM(model).chat(x)\n    json.dump(a, open('p.jsonl', 'w'))",
    "removed": "if os.path.exists('p.jsonl'):\n    os.remove('p.jsonl')\na = LLM(model).chat(x)\njson.dump(a, open('p.jsonl', 'w'))",
    "never written": "if os.path.exists('gold.jsonl'):\n    a = load('gold.jsonl')\nelse:\n    a = LLM(model).chat(x)",
}


@pytest.mark.parametrize("code", KEPT.values(), ids=KEPT)
def test_answers_of_any_model(code: str) -> None:
    assert len(found("answers-kept-for-any-model", KEPT_HEAD + code)) == 1


@pytest.mark.parametrize("code", OWN.values(), ids=OWN)
def test_answers_of_one_model(code: str) -> None:
    assert found("answers-kept-for-any-model", KEPT_HEAD + code) == []


ASK = "client.chat.completions.create(model='m', messages=p)"
SCORED = {
    "constant": f"def judge(p):\n    try:\n        return int({ASK}.text)\n    except Exception:\n        return 5",
    "bare": f"def score(p):\n    try:\n        r = {ASK}\n        return float(r.text)\n    except:\n        print('failed')\n        return 0.0",
    "tie": f"def compare(p):\n    try:\n        return parse({ASK})\n    except (openai.RateLimitError, ValueError):\n        return 'tie'",
    "a name": f"for p in rows:\n    try:\n        score = int({ASK}.text)\n    except Exception as e:\n        score = 3\n    scores.append(score)",
    "attempts": f"def rate(p):\n    for i in range(3):\n        try:\n            return int({ASK}.text)\n        except Exception:\n            time.sleep(2)\n    return 5",
    "helper": f"def ask(p):\n    return {ASK}\ndef grade(p):\n    try:\n        return int(ask(p))\n    except Exception:\n        return 1",
    "requests": "def judge(p):\n    try:\n        return requests.post(URL, json=p).json()['score']\n    except requests.RequestException:\n        return 5",
}
TOLD = {
    "none": f"def judge(p):\n    try:\n        return int({ASK}.text)\n    except Exception:\n        return None",
    "nan": f"def judge(p):\n    try:\n        return int({ASK}.text)\n    except Exception:\n        return float('nan')",
    "mark": f"def judge(p):\n    try:\n        return int({ASK}.text)\n    except Exception:\n        return -1",
    "counted": f"def judge(p):\n    global bad\n    try:\n        return int({ASK}.text)\n    except Exception:\n        bad += 1\n        return 5",
    "raised": f"def judge(p):\n    try:\n        return int({ASK}.text)\n    except Exception as e:\n        raise RuntimeError() from e",
    "no number": f"def judge(p):\n    r = {ASK}\n    try:\n        return int(r.text)\n    except ValueError:\n        return 5",
    "no request": "def judge(p):\n    try:\n        return int(p)\n    except Exception:\n        return 5",
    "an answer": f"def answer(p):\n    try:\n        return {ASK}.text\n    except Exception:\n        return 0",
    "attempts": f"def judge(p):\n    for i in range(3):\n        try:\n            return int({ASK}.text)\n        except Exception:\n            time.sleep(2)\n    return None",
}


@pytest.mark.parametrize("code", SCORED.values(), ids=SCORED)
def test_failures_that_are_scored(code: str) -> None:
    assert len(found("failed-request-gets-a-score", "import requests\n" + code)) == 1


@pytest.mark.parametrize("code", TOLD.values(), ids=TOLD)
def test_failures_that_are_told(code: str) -> None:
    assert found("failed-request-gets-a-score", "import requests\n" + code) == []
