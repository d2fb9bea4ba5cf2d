"""Scripts that ask the base instead of the tuned model, loops that use no gradient, and near misses of both."""

from __future__ import annotations

from pathlib import Path

import pytest

from truetune.checks.lint import lint

HEAD = """
from peft import LoraConfig, PeftModel, get_peft_model, set_peft_model_state_dict
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer
from vllm import LLM, SamplingParams
tokenizer = AutoTokenizer.from_pretrained("some/base")
base = AutoModelForCausalLM.from_pretrained("some/base")
"""
ASK = 'print(model.generate(**tokenizer("Is it?", return_tensors="pt"), max_new_tokens=9))\n'
BASE = {
    "a new adapter": "model = get_peft_model(base, LoraConfig(r=8))\n" + ASK,
    "not strict": (
        'model = base\nmodel.load_state_dict(load_file("out/adapter_model.safetensors"), strict=False)\n'
        + ASK
    ),
    "switched off": (
        'model = PeftModel.from_pretrained(base, "out")\nwith model.disable_adapter():\n    ' + ASK
    ),
    "without a request": (
        'model = LLM(model="some/base", enable_lora=True)\nprint(model.chat(rows, SamplingParams(max_tokens=9)))\n'
    ),
}
UNSLOTH = """
from unsloth import FastLanguageModel
model, tokenizer = FastLanguageModel.from_pretrained("{}")
model = FastLanguageModel.get_peft_model(model, r=16)
"""
BASE |= {
    "a new adapter of Unsloth": UNSLOTH.format("unsloth/Qwen2.5-7B-Instruct-bnb-4bit") + ASK,
    "a new adapter of transformers": "model = base\nmodel.add_adapter(LoraConfig(r=8))\n" + ASK,
    "a new adapter around it": "model = PeftModel(base, LoraConfig(r=8))\n" + ASK,
}
ENGINE = """
from vllm.lora.request import LoRARequest
llm = LLM(model="some/base", enable_lora=True)
def answers(texts, lora=None):
    return llm.generate(texts, SamplingParams(max_tokens=9){})
before, after = answers(rows), answers(rows, {})
"""
REQUEST = 'LoRARequest("tone", 1, "out")'
LOADER = """
def load(name, adapter_path=None):
    net = AutoModelForCausalLM.from_pretrained(name){}
    return net
before, after = load("some/base"), load("some/base", adapter_path="out")
print(before.generate(**rows), after.generate(**rows))
"""
CLIENT = """
from openai import OpenAI
client = OpenAI(base_url="http://localhost:8000/v1")
def ask(question, model):
    reply = client.chat.completions.create(model={}, messages=[{{"role": "user", "content": question}}])
    return reply.choices[0].message.content
print(ask("Is it?", "some/base"), ask("Is it?", "tone"))
"""
BASE |= {
    "a request that a function takes and does not pass on": ENGINE.format("", REQUEST),
    "a request by its place": ENGINE.format("", REQUEST).replace("lora=None", "adapter"),
    "a request that is made and kept": (
        'model = LLM(model="some/base", enable_lora=True)\nfrom vllm.lora.request import LoRARequest\n'
        f"request = {REQUEST}\nprint(model.generate(rows))\n"
    ),
    "an adapter that a loader takes and does not load": LOADER.format(""),
    "a name that a client takes and does not send": CLIENT.format('"some/base"'),
}
TUNED = {
    "a request that is passed on": ENGINE.format(", lora_request=lora", REQUEST),
    "a request that nobody gives": ENGINE.format("", "None"),
    "an adapter that a loader loads": LOADER.format(
        "\n    if adapter_path:\n        net = PeftModel.from_pretrained(net, adapter_path)"
    ),
    "a name that a client sends": CLIENT.format("model"),
    "one name, for a report": CLIENT.format('"tone"').replace(', ask("Is it?", "tone")', ""),
    "an adapter that Unsloth leaves alone": UNSLOTH.format("lora_model") + ASK,
    "an adapter of a hub": UNSLOTH.format("me/parcels-lora") + ASK,
    "an adapter of transformers": "model = base\nmodel.load_adapter('out')\n" + ASK,
    "trained by the loop of a library": (
        "import torch\nfrom cookbook import train\nmodel = get_peft_model(base, LoraConfig(r=8))\n"
        "train(model, torch.optim.AdamW(model.parameters(), lr=3e-4))\n" + ASK
    ),
    "loaded": 'model = PeftModel.from_pretrained(base, "out")\n' + ASK,
    "weights are set": (
        "model = get_peft_model(base, LoraConfig(r=8))\n"
        'set_peft_model_state_dict(model, load_file("out/adapter_model.safetensors"))\n' + ASK
    ),
    "compared with the base": (
        f'model = PeftModel.from_pretrained(base, "out")\n{ASK}with model.disable_adapter():\n    {ASK}'
    ),
    "a whole model, not strict": (
        'model = base\nmodel.load_state_dict(load_file("out/model.safetensors"), strict=False)\n'
        + ASK
    ),
    "with a request": (
        'model = LLM(model="some/base", enable_lora=True)\n'
        "print(model.chat(rows, SamplingParams(max_tokens=9), lora_request=request))\n"
    ),
    "no adapters at all": 'model = LLM(model="out/merged")\nprint(model.chat(rows))\n',
}
LOOP = """
import torch
from transformers import AutoModelForCausalLM
model = AutoModelForCausalLM.from_pretrained("some/base")
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-5)
for batch in batches:
{}
"""
USED = {
    "cleared behind the step": (
        "model(**batch).loss.backward()",
        "optimizer.step()",
        "optimizer.zero_grad()",
    ),
    "cleared first": (
        "optimizer.zero_grad()",
        "model(**batch).loss.backward()",
        "optimizer.step()",
    ),
    "a scaler steps": (
        "scaler.scale(model(**batch).loss).backward()",
        "scaler.step(optimizer)",
        "optimizer.zero_grad()",
    ),
    "an engine steps": (
        "engine = wrap(optimizer)",
        "model(**batch).loss.backward()",
        "engine.advance()",
    ),
}
UNUSED = {
    "never stepped": ("model(**batch).loss.backward()", "optimizer.zero_grad()"),
    "cleared between": (
        "model(**batch).loss.backward()",
        "optimizer.zero_grad()",
        "optimizer.step()",
    ),
    "cleared at the end": (
        "optimizer.step()",
        "model(**batch).loss.backward()",
        "optimizer.zero_grad()",
    ),
}


def said(folder: Path, code: str, rule: str) -> list[str]:
    path = folder / "script.py"
    path.write_text(code, encoding="utf-8")
    return [finding.message for finding in lint([str(path)], select=[rule]).findings]


@pytest.mark.parametrize("name", BASE)
def test_the_base_is_asked(name: str, tmp_path: Path) -> None:
    assert len(said(tmp_path, HEAD + BASE[name], "base-asked-instead")) == 1


@pytest.mark.parametrize("name", TUNED)
def test_the_tuned_model_is_asked(name: str, tmp_path: Path) -> None:
    assert said(tmp_path, HEAD + TUNED[name], "base-asked-instead") == []


def test_the_base_beside_the_tokenizer_of_the_training_is_found(tmp_path: Path) -> None:
    train = 'from trl import SFTConfig, SFTTrainer\nSFTTrainer("some/base", args=SFTConfig(output_dir="out")).train()\n'
    (tmp_path / "train.py").write_text(train, encoding="utf-8")
    code = (HEAD + "model = base\n" + ASK).replace(
        'Tokenizer.from_pretrained("some/base', 'Tokenizer.from_pretrained("out/last'
    )
    assert "the base answers" in said(tmp_path, code, "base-asked-instead")[0]
    whole = code.replace(
        'CausalLM.from_pretrained("some/base', 'CausalLM.from_pretrained("out/last'
    )
    assert said(tmp_path, whole, "base-asked-instead") == []


@pytest.mark.parametrize("name", UNUSED)
def test_gradients_that_nothing_uses_are_found(name: str, tmp_path: Path) -> None:
    code = LOOP.format("\n".join(f"    {line}" for line in UNUSED[name]))
    assert len(said(tmp_path, code, "gradients-never-used")) == 1


ADAPTED = """
import torch
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM
model = AutoModelForCausalLM.from_pretrained("some/base")
{}
for batch in batches:
    model(**batch).loss.backward()
    optimizer.step()
    optimizer.zero_grad()
"""
OPTIMIZER = "optimizer = torch.optim.AdamW(model.parameters(), lr=2e-4)"
WRAP = "model = get_peft_model(model, LoraConfig(r=8))"


def test_an_optimizer_that_is_made_before_its_adapter_is_found(tmp_path: Path) -> None:
    early = ADAPTED.format(f"{OPTIMIZER}\n{WRAP}")
    assert "before get_peft_model" in said(tmp_path, early, "gradients-never-used")[0]
    late = ADAPTED.format(f"{WRAP}\n{OPTIMIZER}")
    assert said(tmp_path, late, "gradients-never-used") == []
    either = ADAPTED.format(f"if whole:\n    {OPTIMIZER}\nelse:\n    {WRAP}\n    {OPTIMIZER}")
    assert said(tmp_path, either, "gradients-never-used") == []


@pytest.mark.parametrize(
    ("params", "count"),
    [
        ("model.lm_head.parameters()", 1),
        ("model.get_output_embeddings().parameters()", 1),
        ("model.parameters()", 0),
        ("list(model.lm_head.parameters()) + list(model.model.parameters())", 0),
        ("classifier.lm_head.parameters()", 0),
    ],
)
def test_an_optimizer_over_the_head_alone_is_found(params: str, count: int, tmp_path: Path) -> None:
    code = ADAPTED.format(f"optimizer = torch.optim.AdamW({params}, lr=2e-4)")
    assert len(said(tmp_path, code, "gradients-never-used")) == count


def test_a_step_of_ones_own_is_no_step_of_the_optimizer(tmp_path: Path) -> None:
    code = """
import torch
from transformers import AutoModelForCausalLM
class Tuner:
    def __init__(self):
        self.model = AutoModelForCausalLM.from_pretrained("some/base")
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=2e-5)
    def step(self, batch):
        self.model(**batch).loss.backward()
        {}
    def fit(self, batches):
        for batch in batches:
            self.step(batch)
"""
    assert said(tmp_path, code.format("self.optimizer.zero_grad()"), "gradients-never-used")
    assert said(tmp_path, code.format("self.optimizer.step()"), "gradients-never-used") == []


@pytest.mark.parametrize("name", USED)
def test_gradients_that_are_used_are_left_alone(name: str, tmp_path: Path) -> None:
    code = LOOP.format("\n".join(f"    {line}" for line in USED[name]))
    assert said(tmp_path, code, "gradients-never-used") == []
