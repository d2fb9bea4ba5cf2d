"""Rules on loops of one's own: references that are the policy (TT794), loaders without a sampler (TT799), and models
that compute in float32 (TT784)."""

from __future__ import annotations

from pathlib import Path
from textwrap import indent

import pytest

from tests.checks.source.table import codes

STEP = """
for b in pairs:
    c, r = logps(policy, b)
    with torch.no_grad():
        rc, rr = logps(ref, b)
    loss = -torch.nn.functional.logsigmoid(0.1 * ((c - rc) - (r - rr))).mean()
    loss.backward()
"""
OWN = STEP.replace("logps(ref", "logps(policy").replace("rc, rr", "ref_c, ref_r")
LOAD = "AutoModelForCausalLM.from_pretrained('m')"
IN_CLASS = """
class T:
    def __init__(self):
        self.model = {0}
        self.ref_model = {1}

    def step(self, b):
        c = self.logps(self.model, b)
        with torch.no_grad():
            rc = self.logps(self.ref_model, b)
        torch.nn.functional.logsigmoid(c - rc).mean().backward()
"""
TRAIN = "def train(policy, ref):\n" + indent(STEP, "    ")
BEFORE = """
policy = model
refs = []
for b in pairs:
    with torch.no_grad():
        ref_c = logps(policy, b)
    refs.append(ref_c)
for b, rc in zip(pairs, refs):
    torch.nn.functional.logsigmoid(logps(policy, b) - rc).mean().backward()
"""


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (f"policy = {LOAD}\nref = policy{STEP}", True),
        (f"policy = {LOAD}\nref = policy.eval(){STEP}", True),
        (f"ref = {LOAD}.cuda()\npolicy = ref{STEP}", True),
        (f"ref = {LOAD}\npolicy = get_peft_model(ref, LoraConfig()){STEP}", True),
        (f"policy = {LOAD}{OWN}", True),
        (IN_CLASS.format(LOAD, "self.model"), True),
        (f"{TRAIN}\nm = {LOAD}\ntrain(m, m)\n", True),
        (f"policy = {LOAD}\nref = {LOAD}{STEP}", False),
        (f"import copy\npolicy = {LOAD}\nref = copy.deepcopy(policy){STEP}", False),
        (f"def load():\n    return {LOAD}\npolicy, ref = load(), load(){STEP}", False),
        (f"policy, ref = ({LOAD} for _ in range(2)){STEP}", False),
        (f"policy = {LOAD}\nref = policy if lora else {LOAD}{STEP}", False),
        (
            (
                "policy ="
                f" {LOAD}{OWN.replace('torch.no_grad()', 'torch.no_grad(), policy.disable_adapter()')}"
            ),
            False,
        ),
        (IN_CLASS.format(LOAD, LOAD), False),
        (f"import copy\n{TRAIN}\nm = {LOAD}\ntrain(m, copy.deepcopy(m))\n", False),
        (BEFORE, False),
    ],
)
def test_a_reference_that_is_the_policy(text: str, found: bool, tmp_path: Path) -> None:
    assert codes(text, tmp_path, "TT794") == ["TT794e"] * found


PARALLEL = """
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler
model = DistributedDataParallel(model)
"""
LOOP = "for n, b in enumerate(loader):\n    model(**b).loss.backward()\n"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("loader = DataLoader(ds, shuffle=True)\n", True),
        ("loader = DataLoader(ds, 4, True, None)\n", True),
        ("loader = DataLoader(ds)\n", True),
        (
            (
                "held = DataLoader(ds, sampler=DistributedSampler(ds))\nloader = DataLoader(ds,"
                " shuffle=True)\n"
            ),
            True,
        ),
        ("def made(rows):\n    return DataLoader(rows, shuffle=True)\nloader = made(ds)\n", True),
        ("loader = DataLoader(ds, sampler=DistributedSampler(ds))\n", False),
        ("loader = DataLoader(ds, batch_sampler=Mine(ds))\n", False),
        (
            (
                "s = DistributedSampler(ds) if many else None\nloader = DataLoader(ds, sampler=s,"
                " shuffle=s is None)\n"
            ),
            False,
        ),
        ("loader = DataLoader(ds, **options)\n", False),
        ("loader = DataLoader(ds.select(range(rank, 99, world)), shuffle=True)\n", False),
        (
            (
                "if many:\n    loader = DataLoader(ds, sampler=s)\nelse:\n    loader ="
                " DataLoader(ds, shuffle=True)\n"
            ),
            False,
        ),
        ("loader = Accelerator().prepare(DataLoader(ds, shuffle=True))\n", False),
        ("held = DataLoader(ds, shuffle=True)\nfor b in held:\n    model(**b)\n", False),
    ],
)
def test_loaders_of_several_processes(text: str, found: bool, tmp_path: Path) -> None:
    assert codes(PARALLEL + text + LOOP, tmp_path, "TT799") == ["TT799e"] * found


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("q = BitsAndBytesConfig(load_in_4bit=True)", True),
        ("q = BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_compute_dtype=None)", True),
        ("q = BitsAndBytesConfig(**{'load_in_4bit': True, 'bnb_4bit_quant_type': 'nf4'})", True),
        ("m = AutoModelForCausalLM.from_pretrained('m', load_in_4bit=True)", True),
        ("q = BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_compute_dtype=torch.bfloat16)", False),
        (
            "q = BitsAndBytesConfig(load_in_4bit=True)\nq.bnb_4bit_compute_dtype = torch.float16",
            False,
        ),
        ("q = BitsAndBytesConfig(load_in_4bit=True, **options)", False),
        ("q = BitsAndBytesConfig(load_in_4bit=options.four)", False),
        ("q = BitsAndBytesConfig(load_in_8bit=True)", False),
    ],
)
def test_four_bits_without_a_compute_dtype(text: str, found: bool, tmp_path: Path) -> None:
    assert codes(text, tmp_path, "TT784") == ["TT784w"] * found
