"""Rules on loops written by hand, and on models and adapters (SRC045, SRC048, SRC053, SRC055 to SRC060)."""

from __future__ import annotations

from pathlib import Path
from textwrap import indent

import pytest

from tests.checks.source.table import codes

OPT = "opt = torch.optim.AdamW(model.parameters(), lr=1e-3)\n"


def loop(body: str, head: str = OPT) -> str:
    return f"{head}for step, batch in enumerate(loader):\n{indent(body, '    ')}"


STEP = "loss = model(**batch).loss\nloss.backward()\nopt.step()\n"
ACCUMULATED = (
    "loss = model(**batch).loss\nloss.backward()\nif (step + 1) % n == 0:\n    opt.step()\n   "
    " opt.zero_grad()\n"
)
SCALED = STEP.replace("loss.backward", "scaler.scale(loss).backward").replace(
    "opt.step()", "scaler.step(opt)"
)

BF16 = (
    "b = AutoModelForCausalLM.from_pretrained('a', dtype=torch.bfloat16)\n{}\n"
    "opt = torch.optim.AdamW({}.parameters(), lr=8e-6)\n"
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (loop(STEP), ["SRC056e"]),
        (loop(SCALED), ["SRC056e"]),
        (loop(STEP + "opt.zero_grad()\n"), []),
        (loop(STEP + "model.zero_grad(set_to_none=True)\n"), []),
        (loop(STEP + "for p in model.parameters():\n    p.grad.zero_()\n"), []),
        (loop("model(**batch)\nscheduler.step()\n"), []),
        (loop(ACCUMULATED), ["SRC055w"]),
        (loop(ACCUMULATED.replace("opt.step()", "scaler.step(opt)")), ["SRC055w"]),
        (loop(ACCUMULATED.replace(".loss\n", ".loss / n\n")), []),
        (loop(ACCUMULATED.replace("% n", "% 1")), []),
        (loop(ACCUMULATED.replace("loss.backward", "loss /= n\nloss.backward")), []),
        (
            loop(
                ACCUMULATED.replace("loss.backward()", "acc.backward(loss)"),
                "acc = Accelerator(gradient_accumulation_steps=n)\n" + OPT,
            ),
            [],
        ),
        (
            (
                "model = PeftModel.from_pretrained(model,"
                " 'a')\nmodel.merge_and_unload()\nmodel.save_pretrained('b')"
            ),
            ["SRC048e"],
        ),
        (
            (
                "wrap = PeftModel.from_pretrained(model,"
                " 'a')\nwrap.merge_and_unload()\nmodel.save_pretrained('b')"
            ),
            [],
        ),
        (
            (
                "wrap = PeftModel.from_pretrained(model, 'a')\nwrap ="
                " wrap.merge_and_unload()\nwrap.save_pretrained('b')"
            ),
            [],
        ),
        ("tok.add_special_tokens({'pad_token': '[PAD]'})", []),
        (
            (
                "t = AutoTokenizer.from_pretrained('gpt2')\nt.add_special_tokens({'pad_token':"
                " '[PAD]'})"
            ),
            ["SRC045w"],
        ),
        ("tok.add_tokens(['<new>'])\nmodel.resize_token_embeddings(len(tok))", []),
        (
            (
                "import trl\ntok.add_special_tokens({'pad_token':"
                " '[PAD]'})\ntrl.PPOTrainer(model=model)"
            ),
            [],
        ),
        ("model.train()\nwith torch.no_grad():\n    out = model(x)", ["SRC053w"]),
        ("model.train()\nout = model.generate(x)", ["SRC053w"]),
        ("model.train()\nmodel.eval()\nwith torch.no_grad():\n    out = model(x)", []),
        ("model.train()\nmodel.train(False)\nwith torch.no_grad():\n    out = model(x)", []),
        (
            (
                "ref = AutoModelForCausalLM.from_pretrained('b')\nmodel.train()\nwith"
                " torch.no_grad():\n    out = ref(x)\n"
            ),
            [],
        ),
        ("row['attention_mask'][: len(prompt_ids)] = 0", ["SRC057e"]),
        (
            "attention_mask = mask.clone()\nattention_mask[:, :prompt_len] = 0\n"
            "model(ids, attention_mask=attention_mask)",
            ["SRC057e"],
        ),
        (
            "attention_mask = mask.clone()\nattention_mask[:, :prompt_len] = 0\npool(hidden, attention_mask)",
            [],
        ),
        ("loss_attention_mask = mask.clone()\nloss_attention_mask[:, :prompt_len] = 0", []),
        ("attention_mask[:, :pad_len] = 0", []),
        (
            (
                "from torch.nn.utils.rnn import pad_sequence\npad_sequence(labels, True,"
                " padding_value=tok.pad_token_id)"
            ),
            ["SRC058e"],
        ),
        (
            (
                "from torch.nn.utils.rnn import pad_sequence\nfrom mine import IGNORE_INDEX\n"
                "labels = pad_sequence(labels, True, padding_value=tok.pad_token_id)\n"
                "labels[labels == tok.pad_token_id] = IGNORE_INDEX"
            ),
            [],
        ),
        (
            BF16.format("ddp = torch.nn.parallel.DistributedDataParallel(b.to(0))", "ddp"),
            ["SRC060w"],
        ),
        (
            BF16.format("ddp = torch.nn.parallel.DistributedDataParallel(b)", "ddp.module"),
            ["SRC060w"],
        ),
        (BF16.format("b.train()\nfast = torch.compile(b.cuda())", "fast"), ["SRC060w"]),
        (BF16.format("ddp = torch.nn.parallel.DistributedDataParallel(b.float())", "ddp"), []),
        (BF16.format("wide = b.to(torch.float32)", "wide"), []),
        (
            BF16.format(
                "ddp = torch.nn.parallel.DistributedDataParallel(get_peft_model(b, LoraConfig()))",
                "ddp",
            ),
            [],
        ),
        (
            "b = model.to(torch.bfloat16)\nopt = torch.optim.AdamW(b.parameters(), lr=1e-5)",
            ["SRC060w"],
        ),
        (
            (
                "b = get_peft_model(model.to(torch.bfloat16),"
                " LoraConfig())\ntorch.optim.AdamW(b.parameters(), lr=1e-5)"
            ),
            [],
        ),
        ("opt = torch.optim.AdamW(model.parameters(), lr=1e-5)", []),
    ],
)
def test_loops(text: str, expected: list[str], tmp_path: Path) -> None:
    rules = ("SRC045", "SRC048", "SRC053", "SRC055", "SRC056", "SRC057", "SRC058", "SRC060")
    assert codes(text, tmp_path, *rules) == expected


DPO = """
import argparse
import copy
import bitsandbytes as bnb
import torch
from transformers import AutoModelForCausalLM

parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float, default=5e-7)
args = parser.parse_args()
policy = AutoModelForCausalLM.from_pretrained("base", dtype=torch.{dtype}).to("cuda")
reference = copy.deepcopy(policy).eval()
{frozen}
{optimizer}
policy(**batch).logits.float().sum().backward()
"""
FROZEN = "reference.requires_grad_(False)"


@pytest.mark.parametrize(
    ("dtype", "frozen", "optimizer", "faults"),
    [
        ("bfloat16", FROZEN, "torch.optim.AdamW(policy.parameters(), lr=args.lr)", 1),
        (
            "bfloat16",
            "for p in reference.parameters():\n    p.requires_grad = False",
            "torch.optim.Adam([p for p in policy.parameters() if p.requires_grad], lr=1e-6)",
            1,
        ),
        ("bfloat16", FROZEN, "bnb.optim.AdamW8bit(policy.parameters(), lr=5e-7)", 1),
        ("float32", FROZEN, "torch.optim.AdamW(policy.parameters(), lr=args.lr)", 0),
        (
            "bfloat16",
            "for n, p in policy.named_parameters():\n    p.requires_grad = False\npolicy.lm_head.float()",
            "torch.optim.AdamW([p for p in policy.parameters() if p.requires_grad], lr=1e-6)",
            0,
        ),
        (
            "bfloat16",
            "copies = [p.detach().clone().float() for p in policy.parameters()]",
            "torch.optim.AdamW(copies, lr=5e-7)",
            0,
        ),
    ],
)
def test_a_frozen_reference_says_nothing_of_the_weights_that_train(
    tmp_path: Path, dtype: str, frozen: str, optimizer: str, faults: int
) -> None:
    text = DPO.format(dtype=dtype, frozen=frozen, optimizer=optimizer)
    assert codes(text, tmp_path, "SRC060") == ["SRC060w"] * faults


EVALUATED = """
lora = get_peft_model(model, LoraConfig(lora_dropout=0.1))
opt = torch.optim.AdamW(lora.parameters(), lr=1e-4)
{functions}
lora.train()
for epoch in range(3):
    for batch in rows:
        lora(**batch).loss.backward()
        opt.step()
        opt.zero_grad()
    {each_epoch}
{end}
"""
EVALUATE = (
    "@torch.no_grad()\ndef evaluate(net):\n    {}return sum(net(**b).loss.item() for b in held_out)"
)


@pytest.mark.parametrize(
    ("functions", "each_epoch", "end", "faults"),
    [
        (EVALUATE.format(""), "print(evaluate(lora))", "", 1),
        (
            EVALUATE.format("").replace("no_grad()", "inference_mode()"),
            "print(evaluate(lora))",
            "",
            1,
        ),
        (EVALUATE.format(""), "print(evaluate(lora))", "lora.eval()\nlora.generate(**row)", 1),
        (
            "def loss_of(b):\n    return lora(**b).loss",
            "with torch.no_grad():\n        loss_of(row)",
            "",
            1,
        ),
        (
            "base = AutoModel.from_pretrained('b').eval()\n" + EVALUATE.format(""),
            "evaluate(lora)",
            "",
            1,
        ),
        (EVALUATE.format("net.eval()\n    "), "evaluate(lora)", "", 0),
        (EVALUATE.format(""), "lora.eval()\n    evaluate(lora)\n    lora.train()", "", 0),
        (EVALUATE.format(""), "", "lora.eval()\nevaluate(lora)", 0),
        (EVALUATE.format("switch(net.eval)\n    "), "evaluate(lora)", "", 0),
        (
            "base = AutoModelForCausalLM.from_pretrained('b')\ndef logits_of(net):\n    return net(**row).logits",
            "logits_of(lora)\n    with torch.no_grad():\n        logits_of(base)",
            "",
            0,
        ),
    ],
)
def test_who_calls_an_evaluation_decides_its_mode(
    tmp_path: Path, functions: str, each_epoch: str, end: str, faults: int
) -> None:
    text = EVALUATED.format(functions=functions, each_epoch=each_epoch, end=end)
    assert codes(text, tmp_path, "SRC053") == ["SRC053w"] * faults
