"""Clients of servers with adapters, marks that a base never trained, labels that a collator shifts."""

from __future__ import annotations

from pathlib import Path

import pytest

from truetune.checks.lint import lint


def found(folder: Path, rule: str, **files: str) -> list[str]:
    """What a rule says of files in one folder; `__` in a name is its dot."""
    (folder / ".git").mkdir()  # the project ends here
    for name, text in files.items():
        (folder / name.replace("__", ".")).write_text(text, encoding="utf-8")
    scripts = sorted(folder.glob("*.py"))
    return [one.message for one in lint(scripts, select=[rule]).findings]


SERVE = (
    "vllm serve some/base --enable-lora --lora-modules support=out/final sales=out/two --port 80\n"
)
ASK = """
from openai import OpenAI
client = OpenAI(base_url="http://localhost:80/v1", api_key="none")
NAME = {name!r}
answer = client.chat.completions.create(model={given}, messages=[dict(role="user", content="Hi")])
"""
POST = """
import requests
body = {"model": "some/base", "messages": [{"role": "user", "content": "Hi"}]}
print(requests.post("http://localhost:80/v1/chat/completions", json=body).json())
"""
BOTH = ASK + 'after = client.chat.completions.create(model="support", messages=[])\n'


@pytest.mark.parametrize(
    ("serve", "ask", "count"),
    [
        (SERVE, ASK.format(name="some/base", given="NAME"), 1),
        (SERVE, POST, 1),
        (SERVE, ASK.format(name="support", given="NAME"), 0),
        (SERVE, BOTH.format(name="some/base", given="NAME"), 0),  # a comparison
        (SERVE, ASK.format(name="", given="os.environ['MODEL']"), 0),
        ("vllm serve some/base --port 80\n", ASK.format(name="some/base", given="NAME"), 0),
        (SERVE, ASK.format(name="gpt-4o", given="NAME"), 0),
        (
            SERVE.replace("some/base", "some/base --served-model-name chat"),
            ASK.format(name="chat", given="NAME"),
            1,
        ),
    ],
)
def test_requests_that_name_the_base(serve: str, ask: str, count: int, tmp_path: Path) -> None:
    messages = found(tmp_path, "client-asks-for-the-base", serve__sh=serve, ask__py=ask)
    assert len(messages) == count


FIRST_LISTED = {
    "attribute": "client.models.list().data[0].id",
    "item": "requests.get(URL + '/v1/models').json()['data'][0]['id']",
    "list": "list(client.models.list())[0].id",
}
OTHER_LISTED = {
    "last": "client.models.list().data[-1].id",
    "chosen": "[m for m in client.models.list() if m.parent][0].id",
    "any": "[m.id for m in client.models.list()][-1]",
    "other list": "client.files.list().data[0].id",
}
LISTED = "import requests\nURL = 'http://localhost:80'\n" + ASK.replace(
    "{given}", "served()"
).replace("NAME =", "def served():\n    return {given}\nNAME =")


@pytest.mark.parametrize(
    ("given", "count"),
    [*((one, 1) for one in FIRST_LISTED.values()), *((one, 0) for one in OTHER_LISTED.values())],
    ids=[*FIRST_LISTED, *OTHER_LISTED],
)
def test_the_first_model_of_a_server_is_its_base(given: str, count: int, tmp_path: Path) -> None:
    ask = LISTED.replace("{name!r}", "''").replace("{given}", given)
    messages = found(tmp_path, "client-asks-for-the-base", serve__sh=SERVE, ask__py=ask)
    assert len(messages) == count


def test_a_command_in_an_array_is_read_whole(tmp_path: Path) -> None:
    serve = (
        "ARGS=(\n  some/base  # the base\n  --port 80\n)\n"
        'if [[ "$1" == tuned ]]; then\n  ARGS+=(--enable-lora --lora-modules support=out/final)\nfi\n'
        'exec vllm serve "${ARGS[@]}"\n'
    )
    ask = ASK.format(name="some/base", given="NAME")
    assert len(found(tmp_path, "client-asks-for-the-base", serve__sh=serve, ask__py=ask)) == 1


LORA = """
from peft import LoraConfig
from transformers import AutoModelForCausalLM, AutoTokenizer
model = AutoModelForCausalLM.from_pretrained({model!r})
tokenizer = AutoTokenizer.from_pretrained({tokenizer!r})
config = LoraConfig(r=16, target_modules="all-linear"{more})
"""
BASE = "meta-llama/Meta-Llama-3-8B"


@pytest.mark.parametrize(
    ("model", "tokenizer", "more", "count"),
    [
        (BASE, f"{BASE}-Instruct", "", 1),
        ("NousResearch/Meta-Llama-3.1-8B", "meta-llama/Llama-3.1-8B-Instruct", "", 1),
        (BASE, BASE, "", 0),  # plain text, as far as is seen
        (f"{BASE}-Instruct", f"{BASE}-Instruct", "", 0),
        (BASE, f"{BASE}-Instruct", ', modules_to_save=["embed_tokens", "lm_head"]', 0),
        ("cognitivecomputations/dolphin-2.9-llama3-8b", f"{BASE}-Instruct", "", 0),
        ("Qwen/Qwen2.5-7B", "Qwen/Qwen2.5-7B-Instruct", "", 0),  # its base was trained on them
    ],
)
def test_marks_that_the_base_never_trained(
    model: str, tokenizer: str, more: str, count: int, tmp_path: Path
) -> None:
    text = LORA.format(model=model, tokenizer=tokenizer, more=more)
    assert len(found(tmp_path, "added-tokens-left-frozen", train__py=text)) == count


def test_marks_in_the_text_of_the_script(tmp_path: Path) -> None:
    text = LORA.format(model=BASE, tokenizer=BASE, more="")
    text += "tokenizer.chat_template = '<|start_header_id|>{{ role }}<|end_header_id|>{{ text }}<|eot_id|>'\n"
    (message,) = found(tmp_path, "added-tokens-left-frozen", train__py=text)
    assert message.startswith(f"the base {BASE} was never trained on")


LOOP = """
import torch
from transformers import AutoModelForCausalLM
model = AutoModelForCausalLM.from_pretrained("some/model")
def collate(rows):
    ids = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True)
    return {{"input_ids": ids[:, :-1], "labels": {labels}}}
for batch in torch.utils.data.DataLoader(rows, collate_fn=collate):
    {loss}
    loss.backward()
"""
OWN = "loss = model(**batch).loss"
HAND = "loss = torch.nn.functional.cross_entropy(model(batch['input_ids']).logits.transpose(1, 2), batch['labels'])"


@pytest.mark.parametrize(
    ("labels", "loss", "count"),
    [("ids[:, 1:]", OWN, 1), ("ids[:, :-1].clone()", OWN, 0), ("ids[:, 1:]", HAND, 0)],
)
def test_labels_that_a_collator_shifts(labels: str, loss: str, count: int, tmp_path: Path) -> None:
    text = LOOP.format(labels=labels, loss=loss)
    assert len(found(tmp_path, "labels-shifted-by-hand", train__py=text)) == count


PUT_ON = """
from peft import PeftModel
from transformers import AutoModelForCausalLM
model = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained({name!r}), "adapter")
"""


@pytest.mark.parametrize(
    ("base", "name", "count"),
    [
        ("/data/runs/sft-merged", "Qwen/Qwen2.5-7B-Instruct", 1),
        ("./out/merged", "Qwen/Qwen2.5-7B-Instruct", 1),
        ("/models/Qwen2.5-7B-Instruct", "Qwen/Qwen2.5-7B-Instruct", 0),
        ("/models/base", "Qwen/Qwen2.5-7B-Instruct", 0),
        ("/data/runs/sft-merged", "/data/runs/sft-merged", 0),
    ],
)
def test_an_adapter_of_merged_weights_on_the_published_model(
    base: str, name: str, count: int, tmp_path: Path
) -> None:
    (tmp_path / "adapter").mkdir()
    config = tmp_path / "adapter/adapter_config.json"
    config.write_text(f'{{"base_model_name_or_path": "{base}"}}', encoding="utf-8")
    assert (
        len(
            found(
                tmp_path, "script-puts-adapter-on-another-base", merge__py=PUT_ON.format(name=name)
            )
        )
        == count
    )
