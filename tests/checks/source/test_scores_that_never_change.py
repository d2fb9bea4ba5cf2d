"""Scripts whose score is one for every model: a path that is written, answers that are kept, requests that fail."""

from __future__ import annotations

import pytest

from truetune.checks.rule_catalogue import find_rule
from truetune.checks.rule_runner import run_rule
from truetune.source.parsed_source_file import parse_module


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
    "printed": (
        "p.add_argument('--ckpt')\n"
        "args = p.parse_args()\n"
        "m = AutoModelForCausalLM.from_pretrained('out/c-100')\n"
        "print(args.ckpt)"
    ),
    "a constant of the file": (
        "p.add_argument('--model-path')\n"
        "a = p.parse_args()\n"
        "M = 'out/c-100'\n"
        "m = AutoModelForCausalLM.from_pretrained(M)\n"
        "print(f'{a.model_path}: {f(m)}')"
    ),
    "an adapter": (
        "p.add_argument('--adapter')\n"
        "args = p.parse_args()\n"
        "b = AutoModelForCausalLM.from_pretrained('base')\n"
        "m = PeftModel.from_pretrained(b, 'out/c-100')"
    ),
    "vllm": (
        "p.add_argument('model')\n"
        "args, rest = p.parse_known_args()\n"
        "llm = LLM(model='out/merged')\n"
        "logger.info(args.model)"
    ),
    "dest": (
        "p.add_argument('-m', dest='checkpoint_dir')\n"
        "args = p.parse_args()\n"
        "llm = LLM('out/merged')"
    ),
}
OTHER_FORMS = {
    "an adapter beside an optional base": (
        "p.add_argument('--base')\np.add_argument('--adapter')\nargs = p.parse_args()\n"
        "m = AutoModelForCausalLM.from_pretrained(args.base)\n"
        "json.dump({'adapter': args.adapter, 'score': f(m)}, open('s.json', 'w'))"
    ),
    "a path that is joined": (
        "p.add_argument('--ckpt')\nargs = p.parse_args()\nROOT = Path('runs') / 'a'\n"
        "m = AutoModelForCausalLM.from_pretrained(ROOT / 'checkpoint-100')\nprint(args.ckpt)"
    ),
    "a pipeline": (
        "p.add_argument('--model')\nargs = p.parse_args()\n"
        "g = pipeline('text-generation', model='out/c-100')\nprint(args.model)"
    ),
    "a parameter": (
        "cfg = {'path': 'out/c-100'}\n"
        "def score(ckpt):\n    return f(LLM(model=cfg['path']))\n"
        "for c in files:\n    print(c, score(c))"
    ),
    "a parameter that is printed": (
        "def score(model_path):\n    print(model_path)\n"
        "    return f(AutoModelForCausalLM.from_pretrained('out/c-100'))\n"
        "a, b = score('x'), score('y')"
    ),
}
OTHER_SOUND_FORMS = {
    "an adapter that is loaded": (
        "p.add_argument('--base')\np.add_argument('--adapter')\nargs = p.parse_args()\n"
        "m = AutoModelForCausalLM.from_pretrained(args.base)\nm.load_adapter(args.adapter)"
    ),
    "a model that is made before its pipeline": (
        "p.add_argument('--model')\nargs = p.parse_args()\n"
        "m = AutoModelForCausalLM.from_pretrained(args.model)\ng = pipeline('text-generation', model=m)"
    ),
    "a parameter that is loaded": (
        "def score(ckpt):\n    return f(LLM(model=ckpt))\nfor c in files:\n    print(c, score(c))"
    ),
    "one call": ("def score(ckpt):\n    return f(LLM(model='out/merged'))\nscore('out/merged')"),
    "a parameter that another call takes": (
        "def judge(model):\n    j = LLM(model='judge')\n    return j.chat(model.answers)\n"
        "for m in models:\n    judge(m)"
    ),
    "an option among the rest": (
        "p.add_argument('--base')\np.add_argument('--lora_path')\nargs = p.parse_args()\n"
        "m = AutoModelForCausalLM.from_pretrained(args.base)\nserve(m, args.lora_path)"
    ),
}
FORM_HEAD = """
import argparse, json
from pathlib import Path
from transformers import AutoModelForCausalLM, pipeline
from vllm import LLM
p = argparse.ArgumentParser()
"""


@pytest.mark.parametrize("code", OTHER_FORMS.values(), ids=OTHER_FORMS)
def test_a_model_that_is_never_loaded(code: str) -> None:
    assert len(found("model-argument-never-loaded", FORM_HEAD + code)) == 1


@pytest.mark.parametrize("code", OTHER_SOUND_FORMS.values(), ids=OTHER_SOUND_FORMS)
def test_a_model_that_is_loaded(code: str) -> None:
    assert not found("model-argument-never-loaded", FORM_HEAD + code)


LOADED = {
    "loaded": (
        "p.add_argument('--ckpt')\n"
        "args = p.parse_args()\n"
        "m = AutoModelForCausalLM.from_pretrained(args.ckpt)"
    ),
    "through a name": (
        "p.add_argument('--ckpt')\n"
        "args = p.parse_args()\n"
        "path = args.ckpt\n"
        "m = AutoModelForCausalLM.from_pretrained(path)"
    ),
    "adapter on a fixed base": (
        "p.add_argument('--adapter')\n"
        "args = p.parse_args()\n"
        "b = AutoModelForCausalLM.from_pretrained('base')\n"
        "m = PeftModel.from_pretrained(b, args.adapter)"
    ),
    "handed on": (
        "p.add_argument('--ckpt')\n"
        "args = p.parse_args()\n"
        "m = AutoModelForCausalLM.from_pretrained('base')\n"
        "load(m, args)"
    ),
    "loaded into": (
        "p.add_argument('--ckpt')\n"
        "args = p.parse_args()\n"
        "m = AutoModelForCausalLM.from_pretrained('base')\n"
        "m.load_state_dict(torch.load(args.ckpt))"
    ),
    "another option": (
        "p.add_argument('--lora_r')\n"
        "args = p.parse_args()\n"
        "m = AutoModelForCausalLM.from_pretrained('base')"
    ),
    "a server": (
        "p.add_argument('--model')\n"
        "args = p.parse_args()\n"
        "client.chat.completions.create(model=args.model)\n"
        "j = AutoModelForCausalLM.from_pretrained('judge')"
    ),
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
    "os": (
        "if os.path.exists('p.jsonl'):\n"
        "    a = load('p.jsonl')\n"
        "else:\n"
        "    a = LLM(model).chat(x)\n"
        "    json.dump(a, open('p.jsonl', 'w'))"
    ),
    "turned": (
        "P = Path('cache.json')\n"
        "if not P.exists():\n"
        "    a = LLM(model).generate(x)\n"
        "    P.write_text(json.dumps(a))\n"
        "a = json.loads(P.read_text())"
    ),
    "function": (
        "def ask():\n"
        "    return LLM(model).generate(x)\n"
        "if os.path.isfile('p.csv'):\n"
        "    a = 1\n"
        "else:\n"
        "    a = ask()\n"
        "    with open('p.csv', 'w') as f:\n"
        "        f.write(a)"
    ),
    "loop": (
        "for c in ['a', 'b']:\n"
        "    m = AutoModelForCausalLM.from_pretrained(c)\n"
        "    if not os.path.exists('o.json'):\n"
        "        a = m.generate(x)\n"
        "        json.dump(a, open('o.json', 'w'))"
    ),
    "mode by name": (
        "m = LLM(os.environ['MODEL'])\n"
        "if not Path('o.jsonl').is_file():\n"
        "    a = m.chat(x)\n"
        "    with Path('o.jsonl').open(mode='w') as f:\n"
        "        f.write(a)"
    ),
    "environment": (
        "m = LLM(os.environ['MODEL'])\n"
        "if not Path('o.jsonl').is_file():\n"
        "    a = m.chat(x)\n"
        "    with Path('o.jsonl').open('w') as f:\n"
        "        f.write(a)"
    ),
}
CACHE_HEAD = """
import hashlib, json, shelve, sys
from diskcache import Cache
from openai import OpenAI
client = OpenAI()
"""
ASK = "        r = client.chat.completions.create(model=model, messages=m)\n"
CACHED = {
    "diskcache": "cache = Cache('.c')\ndef ask(model, m):\n    k = str(m)\n    if k not in cache:\n"
    + ASK
    + "        cache[k] = r\n    return cache[k]",
    "shelve": "db = shelve.open('c')\ndef ask(m, model='a'):\n    if m in db:\n        return db[m]\n    if 1:\n"
    + ASK
    + "    db[m] = r\n    return r",
    "a file": "seen = json.load(open('c.json'))\ndef ask(model, m):\n    k = hashlib.md5(m).hexdigest()\n"
    "    if seen.get(k) is None:\n" + ASK + "        seen[k] = r\n    return seen[k]",
}
KEYED = {
    "in the key": "cache = Cache('.c')\ndef ask(model, m):\n    k = str([model, m])\n    if k not in cache:\n"
    + ASK
    + "        cache[k] = r\n    return cache[k]",
    "in memory": "cache = {}\ndef ask(model, m):\n    if m not in cache:\n"
    + ASK
    + "        cache[m] = r\n    return cache[m]",
    "a cache of one model": "cache = Cache('.c/' + sys.argv[1])\ndef ask(model, m):\n    if m not in cache:\n"
    + ASK
    + "        cache[m] = r\n    return cache[m]",
    "one model for all": "cache = Cache('.c')\ndef ask(m):\n    model = 'judge'\n    if m not in cache:\n"
    + ASK
    + "        cache[m] = r\n    return cache[m]",
    "through two names": "cache = Cache('.c')\ndef ask(model, m):\n    parts = (model, m)\n    k = str(parts)\n"
    "    if k not in cache:\n" + ASK + "        cache[k] = r\n    return cache[k]",
}


@pytest.mark.parametrize("code", CACHED.values(), ids=CACHED)
def test_caches_without_the_model(code: str) -> None:
    assert len(found("answer-cache-shared-by-models", CACHE_HEAD + code)) == 1


@pytest.mark.parametrize("code", KEYED.values(), ids=KEYED)
def test_caches_of_one_model(code: str) -> None:
    assert not found("answer-cache-shared-by-models", CACHE_HEAD + code)


OWN = {
    "by model": (
        "p = f'{model}.jsonl'\n"
        "if os.path.exists(p):\n"
        "    a = load(p)\n"
        "else:\n"
        "    a = LLM(model).chat(x)\n"
        "    json.dump(a, open(p, 'w'))"
    ),
    "one model": (
        "if os.path.exists('p.jsonl'):\n"
        "    a = load('p.jsonl')\n"
        "else:\n"
        "    a = LLM('out/merged').chat(x)\n"
        "    json.dump(a, open('p.jsonl', 'w'))"
    ),
    "rows": (
        "if os.path.exists('rows.jsonl'):\n"
        "    a = load('rows.jsonl')\n"
        "else:\n"
        "    a = download()\n"
        "    json.dump(a, open('rows.jsonl', 'w'))\n"
        "LLM(model).chat(a)"
    ),
    "override": (
        "if os.path.exists('p.jsonl') and not args.force:\n"
        "    a = load('p.jsonl')\n"
        "else:\n"
        "    a = LLM(model).chat(x)\n"
        "    json.dump(a, open('p.jsonl', 'w'))"
    ),
    "removed": (
        "if os.path.exists('p.jsonl'):\n"
        "    os.remove('p.jsonl')\n"
        "a = LLM(model).chat(x)\n"
        "json.dump(a, open('p.jsonl', 'w'))"
    ),
    "never written": (
        "if os.path.exists('gold.jsonl'):\n"
        "    a = load('gold.jsonl')\n"
        "else:\n"
        "    a = LLM(model).chat(x)"
    ),
}


@pytest.mark.parametrize("code", KEPT.values(), ids=KEPT)
def test_answers_of_any_model(code: str) -> None:
    assert len(found("answer-cache-shared-by-models", KEPT_HEAD + code)) == 1


@pytest.mark.parametrize("code", OWN.values(), ids=OWN)
def test_answers_of_one_model(code: str) -> None:
    assert found("answer-cache-shared-by-models", KEPT_HEAD + code) == []


ASK = "client.chat.completions.create(model='m', messages=p)"
SCORED = {
    "constant": (
        f"def judge(p):\n"
        f"    try:\n"
        f"        return int({ASK}.text)\n"
        f"    except Exception:\n"
        f"        return 5"
    ),
    "bare": (
        f"def score(p):\n"
        f"    try:\n"
        f"        r = {ASK}\n"
        f"        return float(r.text)\n"
        f"    except:\n"
        f"        print('failed')\n"
        f"        return 0.0"
    ),
    "tie": (
        f"def compare(p):\n"
        f"    try:\n"
        f"        return parse({ASK})\n"
        f"    except (openai.RateLimitError, ValueError):\n"
        f"        return 'tie'"
    ),
    "a name": (
        f"for p in rows:\n"
        f"    try:\n"
        f"        score = int({ASK}.text)\n"
        f"    except Exception as e:\n"
        f"        score = 3\n"
        f"    scores.append(score)"
    ),
    "attempts": (
        f"def rate(p):\n"
        f"    for i in range(3):\n"
        f"        try:\n"
        f"            return int({ASK}.text)\n"
        f"        except Exception:\n"
        f"            time.sleep(2)\n"
        f"    return 5"
    ),
    "helper": (
        f"def ask(p):\n"
        f"    return {ASK}\n"
        f"def grade(p):\n"
        f"    try:\n"
        f"        return int(ask(p))\n"
        f"    except Exception:\n"
        f"        return 1"
    ),
    "requests": (
        "def judge(p):\n"
        "    try:\n"
        "        return requests.post(URL, json=p).json()['score']\n"
        "    except requests.RequestException:\n"
        "        return 5"
    ),
}
TOLD = {
    "none": (
        f"def judge(p):\n"
        f"    try:\n"
        f"        return int({ASK}.text)\n"
        f"    except Exception:\n"
        f"        return None"
    ),
    "nan": (
        f"def judge(p):\n"
        f"    try:\n"
        f"        return int({ASK}.text)\n"
        f"    except Exception:\n"
        f"        return float('nan')"
    ),
    "mark": (
        f"def judge(p):\n"
        f"    try:\n"
        f"        return int({ASK}.text)\n"
        f"    except Exception:\n"
        f"        return -1"
    ),
    "counted": (
        f"def judge(p):\n"
        f"    global bad\n"
        f"    try:\n"
        f"        return int({ASK}.text)\n"
        f"    except Exception:\n"
        f"        bad += 1\n"
        f"        return 5"
    ),
    "raised": (
        f"def judge(p):\n"
        f"    try:\n"
        f"        return int({ASK}.text)\n"
        f"    except Exception as e:\n"
        f"        raise RuntimeError() from e"
    ),
    "no number": (
        f"def judge(p):\n"
        f"    r = {ASK}\n"
        f"    try:\n"
        f"        return int(r.text)\n"
        f"    except ValueError:\n"
        f"        return 5"
    ),
    "no request": (
        "def judge(p):\n    try:\n        return int(p)\n    except Exception:\n        return 5"
    ),
    "an answer": (
        f"def answer(p):\n"
        f"    try:\n"
        f"        return {ASK}.text\n"
        f"    except Exception:\n"
        f"        return 0"
    ),
    "attempts": (
        f"def judge(p):\n"
        f"    for i in range(3):\n"
        f"        try:\n"
        f"            return int({ASK}.text)\n"
        f"        except Exception:\n"
        f"            time.sleep(2)\n"
        f"    return None"
    ),
}


@pytest.mark.parametrize("code", SCORED.values(), ids=SCORED)
def test_failures_that_are_scored(code: str) -> None:
    assert len(found("failed-request-gets-a-score", "import requests\n" + code)) == 1


@pytest.mark.parametrize("code", TOLD.values(), ids=TOLD)
def test_failures_that_are_told(code: str) -> None:
    assert found("failed-request-gets-a-score", "import requests\n" + code) == []


JUDGE_HEAD = """
import asyncio, json
from anthropic import AsyncAnthropic
from openai import OpenAI
client = OpenAI()
REPLY = client.chat.completions.create(model="j", messages=m)
"""
DEFAULTS = {
    "a default of a parser": "def parse_score(text, default=5):\n    try:\n        return int(text)\n"
    "    except ValueError:\n        return default",
    "a constant of a parser": "def extract_rating(text):\n    try:\n        v = json.loads(text)['rating']\n"
    "    except (ValueError, KeyError):\n        v = 3\n    return v",
    "a default of a judge": "def judge(m, *, failed=5.0):\n    try:\n"
    "        return f(client.chat.completions.create(model='j', messages=m))\n"
    "    except Exception:\n        return failed",
    "exceptions among the results": "async def grade(r):\n    x = await c.messages.create(model='j', messages=r)\n"
    "    return float(x)\n"
    "async def main():\n    got = await asyncio.gather(*[grade(r) for r in rows], return_exceptions=True)\n"
    "    scores = [5.0 if isinstance(g, Exception) else g for g in got]",
}
COUNTED = {
    "nothing for what is not read": "def parse_score(text, default=None):\n    try:\n        return int(text)\n"
    "    except ValueError:\n        return default",
    "zero for what is not read": "def parse_score(text):\n    try:\n        return int(text)\n"
    "    except ValueError:\n        return 0",
    "a negative mark": "def parse_score(text):\n    try:\n        return int(text)\n"
    "    except ValueError:\n        return -1",
    "another function": "def parse_page(text):\n    try:\n        return int(text)\n"
    "    except ValueError:\n        return 1",
    "exceptions that are left out": "async def grade(r):\n    x = await c.messages.create(model='j', messages=r)\n"
    "    return float(x)\n"
    "async def main():\n    got = await asyncio.gather(*[grade(r) for r in rows], return_exceptions=True)\n"
    "    scores = [g for g in got if not isinstance(g, Exception)]",
    "None for exceptions": "async def grade(r):\n    x = await c.messages.create(model='j', messages=r)\n"
    "    return float(x)\n"
    "async def main():\n    got = await asyncio.gather(*[grade(r) for r in rows], return_exceptions=True)\n"
    "    scores = [None if isinstance(g, Exception) else g for g in got]",
}


@pytest.mark.parametrize("code", DEFAULTS.values(), ids=DEFAULTS)
def test_scores_of_what_is_not_read(code: str) -> None:
    assert len(found("failed-request-gets-a-score", JUDGE_HEAD + code)) == 1


@pytest.mark.parametrize("code", COUNTED.values(), ids=COUNTED)
def test_replies_that_are_counted(code: str) -> None:
    assert found("failed-request-gets-a-score", JUDGE_HEAD + code) == []


PERPLEXITY_HEAD = """
import torch
import torch.nn.functional as F
from transformers import AutoModelForCausalLM, AutoTokenizer
tok = AutoTokenizer.from_pretrained("m")
model = AutoModelForCausalLM.from_pretrained("m").eval()
"""
PADS_COUNT = {
    "a collate function": "def collate(rows):\n    enc = tok(rows, padding=True, return_tensors='pt')\n"
    "    enc['labels'] = enc['input_ids'].clone()\n    return enc\n"
    "for b in DataLoader(ds, collate_fn=collate):\n    total += model(**b).loss",
    "a sum": "enc = tok(texts, padding=True, return_tensors='pt')\nlogits = model(**enc).logits\n"
    "nll = F.cross_entropy(logits[:, :-1].transpose(1, 2), enc.input_ids[:, 1:], reduction='sum')",
    "each token": "enc = tok(texts, padding=True, return_tensors='pt')\nlogits = model(**enc).logits\n"
    "t = enc['input_ids'][:, 1:]\n"
    "nll = F.cross_entropy(logits[:, :-1].transpose(1, 2), t, reduction='none')\nprint(nll.mean())",
}
PADS_LEFT_OUT = {
    "masked": "enc = tok(texts, padding=True, return_tensors='pt')\nlogits = model(**enc).logits\n"
    "t = enc['input_ids'][:, 1:]\n"
    "nll = F.cross_entropy(logits[:, :-1].transpose(1, 2), t, reduction='none')\n"
    "print(nll[enc.attention_mask[:, 1:].bool()].mean())",
    "ignored": "enc = tok(texts, padding=True, return_tensors='pt')\nlogits = model(**enc).logits\n"
    "nll = F.cross_entropy(logits[:, :-1].transpose(1, 2), enc.input_ids[:, 1:], ignore_index=tok.pad_token_id)",
    "no padding": "enc = tok(text, return_tensors='pt')\nlogits = model(**enc).logits\n"
    "nll = F.cross_entropy(logits[:, :-1].transpose(1, 2), enc.input_ids[:, 1:], reduction='sum')",
    "labels that are filled": "def collate(rows):\n    enc = tok(rows, padding=True, return_tensors='pt')\n"
    "    enc['labels'] = enc['input_ids'].masked_fill(enc['attention_mask'] == 0, -100)\n    return enc\n"
    "for b in DataLoader(ds, collate_fn=collate):\n    total += model(**b).loss",
}


@pytest.mark.parametrize("code", PADS_COUNT.values(), ids=PADS_COUNT)
def test_perplexities_that_count_pads(code: str) -> None:
    assert len(found("labels-copy-input-ids", PERPLEXITY_HEAD + code)) == 1


@pytest.mark.parametrize("code", PADS_LEFT_OUT.values(), ids=PADS_LEFT_OUT)
def test_perplexities_without_pads(code: str) -> None:
    assert found("labels-copy-input-ids", PERPLEXITY_HEAD + code) == []
