"""Rules on what a script does with a model (SRC069, SRC070, SRC073 to SRC077), in several spellings."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent

import pytest

from tests.checks.source.table import codes
from truetune.checks.source.evidence.shared_vocabularies import vocabulary_group


def loaded(model: str, tokenizer: str) -> str:
    return (
        f"tok = AutoTokenizer.from_pretrained('{tokenizer}')\nmodel ="
        f" AutoModelForCausalLM.from_pretrained('{model}')\n"
    )


TRAINS = "Trainer(model=model, processing_class=tok)\n"
OLDER = TRAINS.replace("processing_class", "tokenizer")
ASKS = "out = model.generate(**tok('Hello you', return_tensors='pt'), max_new_tokens=9)\n"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (loaded("meta-llama/Llama-3.1-8B", "gpt2") + TRAINS, True),
        (loaded("Qwen/Qwen2.5-0.5B", "meta-llama/Llama-2-7b-hf") + TRAINS, True),
        (loaded("google/gemma-2-2b", "mistralai/Mistral-7B-v0.1") + OLDER, True),
        (loaded("EleutherAI/pythia-160m", "openai-community/gpt2") + ASKS, True),
        (loaded("facebook/opt-350m", "gpt2") + ASKS.replace("**tok", "tok").replace("'pt')", "'pt').input_ids"), True),
        (loaded("bigscience/bloom-560m", "gpt2") + "peft_model = get_peft_model(model, LoraConfig())\n"
         "Trainer(model=peft_model, processing_class=tok)\n", True),
        ("name = 'gpt2'\ntok = AutoTokenizer.from_pretrained(name)\n"
         "model = AutoModelForCausalLM.from_pretrained('Qwen/Qwen3-8B').to('cuda')\n" + TRAINS, True),
        (loaded("google/flan-t5-base", "google/mt5-base") + TRAINS, True),
        (loaded("bert-base-uncased", "bert-base-cased") + TRAINS, True),
        ("from trl import SFTTrainer\ntok = AutoTokenizer.from_pretrained('gpt2')\n"
         "SFTTrainer(model='Qwen/Qwen2.5-0.5B', processing_class=tok)\n", True),
        # The same vocabulary under two names
        (loaded("meta-llama/Llama-3.1-8B", "meta-llama/Llama-3.1-8B-Instruct") + TRAINS, False),
        (loaded("Qwen/Qwen2.5-7B", "Qwen/Qwen2.5-0.5B-Instruct") + TRAINS, False),
        (loaded("EleutherAI/pythia-1b", "EleutherAI/gpt-neox-20b") + TRAINS, False),
        (loaded("state-spaces/mamba-130m-hf", "EleutherAI/gpt-neox-20b") + TRAINS, False),
        (loaded("EleutherAI/gpt-neo-125m", "gpt2") + TRAINS, False),
        (loaded("lmsys/vicuna-7b-v1.5", "meta-llama/Llama-2-7b-hf") + TRAINS, False),
        (loaded("distilbert-base-uncased", "bert-base-uncased") + TRAINS, False),
        # What is not known
        (loaded("me/my-model", "gpt2") + TRAINS, False),
        (loaded("./mt5-tuned", "Qwen/Qwen2.5-0.5B") + TRAINS, False),
        (loaded("/models/qwen2.5-7b", "gpt2") + TRAINS, False),
        (loaded("deepseek-ai/DeepSeek-R1-Distill-Llama-8B", "Qwen/Qwen2.5-7B") + TRAINS, False),
        ("tok = AutoTokenizer.from_pretrained(args.tokenizer or 'gpt2')\n"
         "model = AutoModelForCausalLM.from_pretrained('Qwen/Qwen3-8B')\n" + TRAINS, False),
        ("name = 'gpt2' if small else 'Qwen/Qwen3-8B'\ntok = AutoTokenizer.from_pretrained(name)\n"
         "model = AutoModelForCausalLM.from_pretrained('Qwen/Qwen3-8B')\n" + TRAINS, False),
        # Not used together: a judge, a new model, a vocabulary that is changed
        (loaded("Qwen/Qwen3-8B", "gpt2") + "lengths = [len(tok(row['text'])['input_ids']) for row in ds]\n", False),
        ("tok = AutoTokenizer.from_pretrained('gpt2')\nfrom transformers import AutoConfig\n"
         "model = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained('Qwen/Qwen3-8B'))\n" + TRAINS, False),
        (loaded("gpt2", "Qwen/Qwen3-8B") + "model.set_input_embeddings(new)\n" + TRAINS, False),
    ],
)  # fmt: skip
def test_tokenizer_of_another_family(text: str, found: bool, tmp_path: Path) -> None:
    assert codes(text, tmp_path, "SRC073") == ["SRC073e"] * found


@pytest.mark.parametrize(
    ("name", "group"),
    [
        ("meta-llama/Meta-Llama-3-8B", "Llama 3"),
        ("unsloth/llama-3-8b-bnb-4bit", "Llama 3"),
        ("NousResearch/Llama-2-7b-hf", "Llama 2"),
        ("huggyllama/llama-7b", "Llama 2"),
        ("microsoft/phi-2", "GPT-2"),
        ("gpt2-medium", "GPT-2"),
        ("t5-small", "T5"),
        ("my/llama-something", None),
        ("../gpt2", None),
        ("gpt2/checkpoint-3/x", None),
        ("", None),
    ],
)
def test_vocabulary_groups(name: str, group: str | None) -> None:
    assert vocabulary_group(name) == group


LOOP = """
opt = torch.optim.AdamW({params}, lr=1e-5)
{before}
for epoch in range(3):
    {start}
    for batch in loader:
        loss = model(**batch).loss
        loss.backward()
        opt.step()
        opt.zero_grad()
    {end}
"""
EVALUATES = (
    "def evaluate(model):\n    model.eval()\n    with torch.no_grad():\n        return"
    " model(**held).loss\n"
)
RESTORES = (
    "def evaluate(model):\n    model.eval()\n    loss = model(**held).loss\n    model.train()\n   "
    " return loss\n"
)
KEEPS = RESTORES.replace("    model.eval()", "    was = model.training\n    model.eval()").replace(
    "train()", "train(was)"
)


def loop(
    before: str = "model.train()",
    start: str = "pass",
    end: str = "model.eval()",
    params: str = "model.parameters()",
) -> str:
    return LOOP.format(before=before, start=start, end=end, params=params)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (loop(), True),
        (loop(before="pass"), True),
        (loop(before="model.train(); model.to('cuda')"), True),
        (EVALUATES + loop(end="evaluate(model)"), True),
        (loop(start="model.eval()", end="pass"), True),
        (loop(params="[p for p in model.parameters() if p.requires_grad]"), True),
        (loop(params="[{'params': model.parameters()}]"), True),
        (loop(params="(p for n, p in model.named_parameters() if 'lora' in n)"), True),
        (loop(end="torch.save(model.state_dict(), 'a'); model.eval()"), True),
        (loop(start="model.train()"), False),
        (loop(end="model.eval(); model.train()"), False),
        (RESTORES + loop(end="evaluate(model)"), False),
        (KEEPS + loop(end="evaluate(model)"), False),
        (loop(end="pass") + "\nmodel.eval()\n", False),
        (loop(end="pass"), False),
        (loop(end="teacher.eval()"), False),
        (
            "teacher = AutoModelForCausalLM.from_pretrained('t')\n" + loop(end="teacher.eval()"),
            False,
        ),
        (loop(params="[prompt]"), False),
        ("for batch in loader:\n    model.eval()\n    print(model(**batch).loss)\n", False),
    ],
)
def test_trained_in_eval_mode(text: str, found: bool, tmp_path: Path) -> None:
    assert codes(text, tmp_path, "SRC074") == ["SRC074w"] * found


CHAT = loaded("Qwen/Qwen2.5-7B-Instruct", "Qwen/Qwen2.5-7B-Instruct")


def asked(text: str, head: str = CHAT) -> str:
    return (
        f"{head}inputs = tok({text}, return_tensors='pt')\nmodel.generate(**inputs,"
        " max_new_tokens=9)\n"
    )


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (asked("'What is the capital of France?'"), True),
        (asked("['Who wrote this book?', 'Name three red fruits.']"), True),
        ("question = 'Who wrote this old book?'\n" + asked("question"), True),
        (asked("'What is the capital of France?'").replace("**inputs", "inputs['input_ids']"), True),
        (asked("'Write a short poem.'", loaded("meta-llama/Llama-2-7b-chat-hf", "org/some")), True),
        (asked("'Write a short poem.'", loaded("google/gemma-2-2b-it", "google/gemma-2-2b-it")), True),
        (CHAT + "ids = tok.encode_plus('Write a short poem.', return_tensors='pt').to('cuda')\n"
         "model.generate(**ids, max_new_tokens=9)\n", True),
        (asked("'What is the capital of France?'", loaded("Qwen/Qwen2.5-7B", "Qwen/Qwen2.5-7B")), False),
        (asked("'<|im_start|>user\\nHi there you<|im_end|>\\n<|im_start|>assistant\\n'"), False),
        (asked("'[INST] Write a poem. [/INST]'"), False),
        (asked("'### Instruction:\\nWrite a poem.'"), False),
        (asked("'User: who are you? Assistant:'"), False),
        (asked("'The lighthouse stands on'"), False),
        (asked("row['text']"), False),
        (asked("'Who is it, and why?'") + "text = tok.apply_chat_template(rows)\n", False),
        (asked("'Who is it, and why?'") + "trainer = Trainer(model=model)\ntrainer.train()\n", False),
        (asked("'Who is it, and why?'", loaded("me/my-tuned", "me/my-tuned")), False),
        (CHAT + "print(len(tok('Who is it, and why?')['input_ids']))\n", False),
    ],
)  # fmt: skip
def test_bare_text_to_chat_model(text: str, found: bool, tmp_path: Path) -> None:
    assert codes(text, tmp_path, "SRC075") == ["SRC075w"] * found


GENERATES = (
    "ids = tok(prompt, return_tensors='pt').input_ids\nout = model.generate(ids,"
    " max_new_tokens=64)\n"
)
METRIC = "import evaluate\nmetric = evaluate.load('rouge')\n"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("text = tok.decode(out[0])\nprint({'response': text})\n", True),
        ("text = tok.decode(out[0], skip_special_tokens=True).strip()\nrow = {'prediction': text}\n", True),
        ("row['answer'] = tok.decode(out[0])\n", True),
        ("text = tok.batch_decode(out)[0]\nprint({'completion': text})\n", True),
        ("good = tok.decode(out[0]) == row['gold']\n", True),
        ("text = tok.decode(out[0])\nright = row['gold'] in text\n", True),
        (METRIC + "metric.compute(predictions=tok.batch_decode(out), references=gold)\n", True),
        (METRIC + "texts = []\ntexts.append(tok.decode(out[0]))\nmetric.compute(predictions=texts)\n", True),
        ("pair = {'chosen': tok.decode(out[0]), 'rejected': row['bad']}\n", True),
        ("row = {'response': tok.decode(model.generate(ids, max_new_tokens=9)[0])}\n", True),
        ("for row, text in zip(rows, tok.batch_decode(out)):\n    if row['answer'].lower() in text.lower():\n"
         "        right += 1\n", True),
        ("n = len(rows)\nhits = sum(g in t.strip() for g, t in zip(golds, tok.batch_decode(out))) / n\n", True),
        ("def ask():\n    return tok.decode(out[0])\npred = ask()\nhits += pred == wanted\n", True),
        ("text = tok.decode(out[0])\ngood = any(a in text for a in row['answers'])\n", True),
        ("text = tok.decode(out[0])\nif cut:\n    text = text[len(prompt):]\nn += gold in text\n", False),
        ("text = tok.decode(out[0])\nassert prompt in text\n", False),
        ("done = any(s in tok.decode(out[0]) for s in ['</s>', 'END'])\n", False),
        ("if cut:\n    out = out[:, n:]\nfor text in tok.batch_decode(out):\n    hits += gold in text\n", False),
        ("for text in tok.batch_decode(out):\n    if text in seen:\n        break\n", False),
        ("print(tok.decode(out[0]))\n", False),
        ("row = {'response': tok.decode(behind_prompt(out)[0])}\n", False),
        ("text = tok.decode(out[0])\nrow = {'text': text}\n", False),
        ("text = tok.decode(out[0][ids.shape[1]:])\nrow = {'response': text}\n", False),
        ("text = tok.decode(out[0])[len(prompt):]\nrow = {'response': text}\n", False),
        ("text = tok.decode(out[0])\nrow = {'response': text.split('assistant')[-1]}\n", False),
        ("text = tok.decode(out[0]).replace(prompt, '')\nrow = {'response': text}\n", False),
        ("new = out[:, ids.shape[-1]:]\nrow = {'response': tok.decode(new[0])}\n", False),
        ("row = {'response': tok.decode(labels[0])}\n", False),
    ],
)  # fmt: skip
def test_prompt_left_in_answers(text: str, found: bool, tmp_path: Path) -> None:
    assert codes(GENERATES + text, tmp_path, "SRC076") == ["SRC076w"] * found


def test_a_model_with_an_encoder_returns_answers_alone(tmp_path: Path) -> None:
    seq2seq = "model = AutoModelForSeq2SeqLM.from_pretrained('t5-small')\n" + GENERATES
    assert codes(seq2seq + "row = {'response': tok.decode(out[0])}\n", tmp_path, "SRC076") == []


SERVER = """
from fastapi import FastAPI
from fastapi.responses import JSONResponse
from transformers import AutoModelForCausalLM, AutoTokenizer

app = FastAPI()
tok = AutoTokenizer.from_pretrained("out/tuned")
model = AutoModelForCausalLM.from_pretrained("out/tuned").to("cuda").eval()


def reply(question):
    chat = [{"role": "user", "content": question}]
    ids = tok.apply_chat_template(chat, add_generation_prompt=True, return_tensors="pt").to("cuda")
    out = model.generate(ids, max_new_tokens=200)
    DECODE


@app.post("/ask")
def ask(request):
    answer = reply(request.question)
    return RESULT
"""
DEMO = """
import gradio as gr
from transformers import AutoModelForCausalLM, AutoTokenizer

tok = AutoTokenizer.from_pretrained("out/tuned")
model = AutoModelForCausalLM.from_pretrained("out/tuned")


def respond(message, history):
    enc = tok(PROMPT, return_tensors="pt")
    out = model.generate(**enc, max_new_tokens=100)
    return tok.decode(out[0], skip_special_tokens=True)


gr.ChatInterface(respond).launch()
"""
WHOLE = "return tok.decode(out[0], skip_special_tokens=True).strip()"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (SERVER.replace("DECODE", WHOLE).replace("RESULT", "answer"), True),
        (SERVER.replace("DECODE", WHOLE).replace("RESULT", "{'text': answer, 'model': 'tuned'}"), True),
        (SERVER.replace("DECODE", WHOLE).replace("RESULT", "JSONResponse({'data': {'out': answer}})"), True),
        (SERVER.replace("DECODE", "return tok.batch_decode(out)[0]").replace("RESULT", "{'reply': answer}"), True),
        (DEMO.replace("PROMPT", 'f"### Instruction:\\n{message}\\n\\n### Response:\\n"'), True),
        # Cut before it is returned, or kept whole on purpose
        (SERVER.replace("DECODE", "return tok.decode(out[0, ids.shape[1]:])").replace("RESULT", "answer"), False),
        (SERVER.replace("DECODE", WHOLE).replace("RESULT", "answer.split('assistant')[-1]"), False),
        (SERVER.replace("DECODE", WHOLE).replace("RESULT", "{'full_text': answer, 'reply': answer[9:]}"), False),
        (SERVER.replace("DECODE", WHOLE).replace("RESULT", "trim(answer)"), False),
        (SERVER.replace("CausalLM", "Seq2SeqLM").replace("DECODE", WHOLE).replace("RESULT", "answer"), False),
        # A text that goes on behind what the user typed
        (DEMO.replace("PROMPT", "message"), False),
    ],
)  # fmt: skip
def test_prompt_left_in_what_a_handler_returns(text: str, found: bool, tmp_path: Path) -> None:
    assert codes(text, tmp_path, "SRC076") == ["SRC076w"] * found


BATCHES = """
import pandas as pd
from transformers import AutoModelForCausalLM, AutoTokenizer

tok = AutoTokenizer.from_pretrained("out/tuned")
model = AutoModelForCausalLM.from_pretrained("out/tuned")
frame = pd.read_csv("test.csv")
found = []
for i in range(0, len(frame), 8):
    enc = tok(list(frame["question"][i : i + 8]), padding=True, return_tensors="pt")
    out = model.generate(**enc, max_new_tokens=30)
"""


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("    found += tok.batch_decode(out)\nframe['prediction'] = found\n", True),
        ("    found.extend(tok.batch_decode(out))\nframe['answer'] = [one.strip() for one in found]\n", True),
        ("    found += tok.batch_decode(out)\nframe['out'] = found\n"
         "print(sum(g.strip() in p for g, p in zip(frame['gold'], frame['out'])))\n", True),
        ("    found += [tok.decode(one) for one in out]\nframe.assign(x=1)\nframe['response'] = found\n", True),
        ("    found += tok.batch_decode(out)\nframe['prediction'] = [one.split('A:')[1] for one in found]\n", False),
        ("    found += tok.batch_decode(out)\nframe['prediction'] = found\n"
         "frame['prediction'] = [clean(one) for one in frame['prediction']]\n", False),
        ("    found += tok.batch_decode(out[:, enc['input_ids'].shape[1] :])\nframe['prediction'] = found\n", False),
        ("    found += tok.batch_decode(out)\nframe['whole'] = found\n", False),
    ],
)  # fmt: skip
def test_prompt_left_in_batches_of_answers(text: str, found: bool, tmp_path: Path) -> None:
    assert codes(BATCHES + text, tmp_path, "SRC076") == ["SRC076w"] * found


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("client.chat.completions.create(model=m, messages=c, n=4, temperature=0)", True),
        ("k = 4\nclient.chat.completions.create(model=m, messages=c, n=k, temperature=0.0)", True),
        (
            (
                "from vllm import SamplingParams\np = SamplingParams(n=8, temperature=0.0,"
                " max_tokens=99)"
            ),
            True,
        ),
        ("model.generate(ids, num_return_sequences=4, do_sample=False)", True),
        ("GenerationConfig(num_return_sequences=2, do_sample=False)", True),
        ("from trl import GRPOConfig\nGRPOConfig('out', num_generations=8, temperature=0.0)", True),
        ("from trl import GRPOConfig\nGRPOConfig('out', temperature=0.0)", True),
        ("from trl import RLOOConfig\nRLOOConfig('out', temperature=0)", True),
        ("settings = dict(n=4, temperature=0)\nclient.create(**settings)", True),
        ("import litellm\nlitellm.completion(model='m', messages=c, n=2, temperature=0)", True),
        ("client.chat.completions.create(model=m, messages=c, n=1, temperature=0)", False),
        ("client.chat.completions.create(model=m, messages=c, temperature=0)", False),
        ("client.chat.completions.create(model=m, messages=c, n=4, temperature=0.7)", False),
        ("client.chat.completions.create(model=m, messages=c, n=4, temperature=t)", False),
        ("model.generate(ids, num_beams=4, num_return_sequences=4, do_sample=False)", False),
        ("from trl import GRPOConfig\nGRPOConfig('out', num_generations=8)", False),
        ("from trl import SFTConfig\nSFTConfig('out', temperature=0)", False),
        ("plot(n=4, temperature=0)", False),
    ],
)
def test_samples_all_greedy(text: str, found: bool, tmp_path: Path) -> None:
    assert codes(text + "\n", tmp_path, "SRC077") == ["SRC077w"] * found


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("torch.optim.AdamW(model.parameters(), lr=5.0)", True),
        ("torch.optim.Adam(model.parameters(), 0.5)", True),
        ("rate = 2\ntorch.optim.AdamW(model.parameters(), lr=rate)", True),
        ("torch.optim.NAdam([p for p in model.parameters() if p.requires_grad], lr=1e-1)", True),
        ("torch.optim.AdamW([{'params': model.parameters()}], lr=1.0)", True),
        ("groups = [{'params': [p for n, p in model.named_parameters()]}]\ntorch.optim.AdamW(groups, lr=1.0)", True),
        ("import bitsandbytes as bnb\nbnb.optim.AdamW8bit(model.parameters(), lr=2.0)", True),
        ("tuned = get_peft_model(model, LoraConfig())\ntorch.optim.AdamW(tuned.parameters(), lr=3.0)", True),
        ("torch.optim.AdamW(model.to('cuda').parameters(), lr=1.5)", True),
        ("torch.optim.AdamW(model.parameters(), lr=2e-5)", False),
        ("torch.optim.AdamW(model.parameters(), lr=0.01)", False),
        ("torch.optim.AdamW(model.parameters())", False),
        ("torch.optim.AdamW(model.parameters(), lr=args.lr)", False),
        ("torch.optim.SGD(model.parameters(), lr=1.0)", False),
        ("torch.optim.Adagrad(model.parameters(), lr=1.0)", False),
        ("head = torch.nn.Linear(3, 2)\ntorch.optim.AdamW(head.parameters(), lr=1.0)", False),
        ("torch.optim.AdamW([prompt], lr=0.5)", False),
        ("from peft import PromptTuningConfig\ntuned = get_peft_model(model, PromptTuningConfig())\n"
         "torch.optim.AdamW(tuned.parameters(), lr=0.3)", False),
        ("new = AutoModelForCausalLM.from_config(c)\ntorch.optim.AdamW(new.parameters(), lr=0.3)", False),
    ],
)  # fmt: skip
def test_learning_rate_beyond_reason(text: str, found: bool, tmp_path: Path) -> None:
    assert codes(text + "\n", tmp_path, "SRC069") == ["SRC069e"] * found


SCORED = """
import evaluate
metric = evaluate.load({metric!r})
inputs = tok(texts, return_tensors="pt")
out = model.generate(**inputs, max_new_tokens={limit})
said = tok.batch_decode(out[:, inputs["input_ids"].shape[1]:])
metric.{use}(predictions=said, references=gold)
"""


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (SCORED.format(metric="rouge", limit=20, use="compute"), True),
        (SCORED.format(metric="sacrebleu", limit=8, use="add_batch"), True),
        (SCORED.format(metric="bertscore", limit=32, use="compute"), True),
        (SCORED.format(metric="rouge", limit=128, use="compute"), False),
        (SCORED.format(metric="accuracy", limit=4, use="compute"), False),
        (SCORED.format(metric="exact_match", limit=4, use="compute"), False),
        (SCORED.format(metric="rouge", limit="args.limit", use="compute"), False),
        (
            SCORED.format(metric="rouge", limit=20, use="compute").replace(
                "predictions=said", "predictions=others"
            ),
            False,
        ),
    ],
)
def test_answers_limited_to_few_tokens(text: str, found: bool, tmp_path: Path) -> None:
    assert codes(dedent(text), tmp_path, "SRC070") == ["SRC070w"] * found
