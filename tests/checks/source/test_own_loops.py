"""Rules on loops of one's own: references that are the policy (SRC082), loaders without a sampler (SRC084), and models
that compute in float32 (SRC072)."""

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
CACHED = "from functools import cache, lru_cache\n@{0}\ndef load(n):\n    return "
CACHED += "AutoModelForCausalLM.from_pretrained(n)\n"
KTO = """
import copy
class K:
    def __init__(self, policy):
        self.policy, self.anchor = policy, {0}

    def ratio(self, b):
        with torch.no_grad():
            ref = logps(self.anchor, b)
        return logps(self.policy, b) - ref

{1}
policy = AutoModelForCausalLM.from_pretrained('m').cuda()
torch.sigmoid(K(policy).ratio(batch)).mean().backward()
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
        (f"import copy\npolicy = {LOAD}\nref = copy.copy(policy).eval(){STEP}", True),
        (f"{CACHED.format('cache')}policy, ref = load('a'), load('a').eval(){STEP}", True),
        (KTO.format("policy", ""), True),
        (KTO.format("copy.copy(policy)", ""), True),
        (KTO.format("copy.deepcopy(policy)", ""), False),
        (KTO.format("policy", "optim.load_state_dict(s)"), True),
        (KTO.format("policy", "anchor.load_state_dict(s)"), False),
        (f"{CACHED.format('cache')}policy, ref = load('a'), load('b'){STEP}", False),
        (f"{CACHED.format('lru_cache(0)')}policy, ref = load('a'), load('a'){STEP}", False),
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
    assert codes(text, tmp_path, "SRC082") == ["SRC082e"] * found


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
    assert codes(PARALLEL + text + LOOP, tmp_path, "SRC084") == ["SRC084e"] * found


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
    given = "\nAutoModelForCausalLM.from_pretrained('m', quantization_config=q)"
    text += given * text.startswith("q =")
    assert codes(text, tmp_path, "SRC072") == ["SRC072w"] * found


LOADED = "q = BitsAndBytesConfig(load_in_4bit=True)\n{}\n"
LOADS = "m = AutoModelForCausalLM.from_pretrained('a'{})"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (LOADED.format(LOADS.format("")), True),
        (LOADED.format(LOADS.format(", device_map={'': 0}") + "\nprint(q)"), True),
        (LOADED.format("q.bnb_4bit_quant_type = 'nf4'\n" + LOADS.format("")), True),
        (
            (
                "def load():\n    q = BitsAndBytesConfig(load_in_8bit=True)\n"
                "    return AutoModelForCausalLM.from_pretrained('a')\nload()"
            ),
            True,
        ),
        (
            "def f():\n    q = BitsAndBytesConfig()\ndef g(q):\n    "
            + LOADS.format(", quantization_config=q"),
            True,
        ),
        (LOADED.format(LOADS.format(", quantization_config=q")), False),
        (LOADED.format(LOADS.format(", **{'quantization_config': q}")), False),
        (LOADED.format("k = dict(quantization_config=q)\n" + LOADS.format(", **k")), False),
        (LOADED.format("import trl\na = trl.SFTConfig(model_init_kwargs={'q': q})"), False),
        (
            LOADED.format("def load():\n    return " + LOADS.format(", quantization_config=q")[4:]),
            False,
        ),
        (
            "class A:\n    q = BitsAndBytesConfig()\n" + LOADS.format(", quantization_config=A.q"),
            False,
        ),
        ("class A:\n    def f(self):\n        self.q = BitsAndBytesConfig()\n", False),
        ("def f():\n    q = BitsAndBytesConfig()\n    return q\n", False),
        ("q = None\nif x:\n    " + LOADED.format(LOADS.format(", quantization_config=q")), False),
        (LOADED.format(LOADS.format(", quantization_config=globals()['q']")), False),
        ("def f():\n    global q\n    q = BitsAndBytesConfig()\n", False),
    ],
)
def test_settings_of_a_quantization_that_nothing_reads(
    text: str, found: bool, tmp_path: Path
) -> None:
    assert codes(text, tmp_path, "SRC039") == ["SRC039e"] * found
    if found:  # what says that 4-bit weights are there is silent
        assert codes(text, tmp_path, "SRC072", "SRC081") == []


HALF = "m = AutoModelForCausalLM.from_pretrained('m', dtype=torch.float16).cuda()\n"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (HALF + "o = torch.optim.AdamW(m.parameters(), lr=2e-5)", True),
        (HALF.replace("dtype", "torch_dtype") + "o = torch.optim.Adam(m.parameters())", True),
        (
            HALF.replace("torch.float16", "'float16'")
            + "o = torch.optim.AdamW(list(m.parameters()))",
            True,
        ),
        ("m = model.half()\no = torch.optim.AdamW(m.parameters(), eps=1e-9)", True),
        ("m = model.to('cuda', torch.half)\no = torch.optim.AdamW(m.parameters())", True),
        (
            "m = model.to(dtype=torch.float16)\no = torch.optim.AdamW(m.parameters(), foreach=False)",
            True,
        ),
        (HALF + "o = torch.optim.AdamW([p for p in m.parameters() if p.requires_grad])", True),
        (
            HALF
            + "g = [{'params': [p for n, p in m.named_parameters() if 'bias' in n], 'weight_decay': 0}]\n"
            "o = torch.optim.AdamW(g)",
            True,
        ),
        (HALF + "o = torch.optim.AdamW(m.parameters(), eps=1e-6)", False),
        (HALF + "o = torch.optim.AdamW(m.parameters(), eps=args.eps)", False),
        (HALF + "o = torch.optim.AdamW(m.parameters(), fused=True)", False),
        (HALF + "o = torch.optim.SGD(m.parameters(), lr=1e-2)", False),
        (HALF.replace("float16", "bfloat16") + "o = torch.optim.AdamW(m.parameters())", False),
        (HALF + "m = m.float()\no = torch.optim.AdamW(m.parameters())", False),
        (
            HALF
            + "for p in m.parameters():\n    p.data = p.data.float()\no = torch.optim.AdamW(m.parameters())",
            False,
        ),
        (
            HALF + "m = get_peft_model(m, LoraConfig())\no = torch.optim.AdamW(m.parameters())",
            False,
        ),
        (HALF + "head = torch.nn.Linear(8, 8)\no = torch.optim.AdamW(head.parameters())", False),
        (
            HALF + "a = Accelerator(deepspeed_plugin=x)\no = torch.optim.AdamW(m.parameters())",
            False,
        ),
        (
            HALF
            + "m.requires_grad_(False)\nfor p in m.lm_head.float().parameters(): p.requires_grad = True\n"
            "o = torch.optim.AdamW([p for p in m.parameters() if p.requires_grad])",
            False,
        ),
        (HALF + "import deepspeed\no = torch.optim.AdamW(m.parameters())", False),
    ],
)
def test_float16_weights_under_adam(text: str, found: bool, tmp_path: Path) -> None:
    assert codes(text, tmp_path, "SRC038") == ["SRC038e"] * found
