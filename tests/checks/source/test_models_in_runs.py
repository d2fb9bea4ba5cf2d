"""Which object an optimizer or a reference holds, however the script is written (SRC082, SRC087)."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.checks.source.table import codes

STEPS = "for batch in loader:\n    model(**batch).loss.backward()\n    opt.step()\n    opt.zero_grad()\n"
ADAMW = "opt = torch.optim.AdamW(model.parameters(), lr=1e-4)\n"
LORA = "model = get_peft_model(model, LoraConfig())\n"
SFT = "from trl import SFTTrainer\nt = SFTTrainer(model, peft_config={}, optimizers=(opt, None))\nt.train()\n"
OPTIMIZERS = {
    "trainer's adapter": (ADAMW + SFT.format("LoraConfig()"), True),
    "function": (
        "def make(m):\n    return torch.optim.AdamW([{'params': list(m.parameters())}], lr=1e-4)\n"
        f"opt = make(model)\n{LORA}{STEPS}",
        True,
    ),
    "prepared": (
        f"a = Accelerator()\n{ADAMW}{LORA}model, opt = a.prepare(model, opt)\n"
        "for batch in loader:\n    a.backward(model(**batch).loss)\n    opt.step()\n    opt.zero_grad()\n",
        True,
    ),
    "groups": (
        "opt = torch.optim.AdamW([{'params': [p for n, p in model.named_parameters() if 'bias' in n]}], lr=1e-4)\n"
        + LORA
        + STEPS,
        True,
    ),
    "no adapter": (ADAMW + SFT.format("None"), False),
    "adapter first": (LORA + ADAMW + STEPS, False),
    "other arm": (
        f"if full:\n    {ADAMW}else:\n    {LORA}    {ADAMW}{STEPS}",
        False,
    ),
    "trained before": (ADAMW + STEPS + LORA + ADAMW + STEPS, False),
}
FROZEN = "model.requires_grad_(False)\nmodel.lm_head.requires_grad_(True)\n"
TRAINABLE = "opt = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-4)\n"
FILTERED = (
    "opt = torch.optim.AdamW(filter(lambda p: p.requires_grad, model.parameters()), lr=1e-4)\n"
)
UNFREEZE = "for p in model.model.layers[-2:].parameters():\n    p.requires_grad = True\n"
NEW_HEAD = "model.lm_head = torch.nn.Linear(8, 4)\n"
RESIZE = "model.resize_token_embeddings(len(tok))\n"
FULLY_SHARD = (
    "from torch.distributed.fsdp import fully_shard\n"
    "for layer in model.model.layers:\n    fully_shard(layer)\nfully_shard(model)\n"
)
OWN_LORA = (
    "class Lora(torch.nn.Module):\n    def __init__(self, inner):\n        super().__init__()\n"
    "        self.inner = inner\n        self.a = torch.nn.Parameter(torch.zeros(8, 4))\n"
)


def indented(text: str) -> str:
    """The text as the body of a block."""
    return "".join(f"    {line}\n" for line in text.splitlines())


CHANGES = {
    "8-bit Adam": (
        "import bitsandbytes as bnb\nopt = bnb.optim.PagedAdamW8bit(model.parameters(), lr=1e-4)\n"
        + LORA
        + STEPS,
        ["SRC087e"],
    ),
    "8-bit Adam by its module": (
        "from bitsandbytes.optim.adamw import AdamW8bit\nopt = AdamW8bit(model.parameters(), lr=1e-4)\n"
        + LORA
        + STEPS,
        ["SRC087e"],
    ),
    "another library's optimizer": (
        "from lion_pytorch import Lion\nopt = Lion(model.parameters(), lr=1e-4)\n" + LORA + STEPS,
        ["SRC087e"],
    ),
    "another library's optimizer behind it": (
        "from lion_pytorch import Lion\n"
        + LORA
        + "opt = Lion(model.parameters(), lr=1e-4)\n"
        + STEPS,
        [],
    ),
    "injected": (
        ADAMW
        + "from peft import inject_adapter_in_model\nmodel = inject_adapter_in_model(LoraConfig(), model)\n"
        + STEPS,
        ["SRC087e"],
    ),
    "unfrozen later": (FROZEN + TRAINABLE + UNFREEZE + STEPS, ["SRC087e"]),
    "unfrozen later, filter": (FROZEN + FILTERED + UNFREEZE + STEPS, ["SRC087e"]),
    "unfrozen later by a method": (
        FROZEN + TRAINABLE + "model.model.norm.requires_grad_(True)\n" + STEPS,
        ["SRC087e"],
    ),
    "norms of an adapter's base": (
        LORA
        + TRAINABLE
        + "for n, p in model.named_parameters():\n    if 'norm' in n:\n        p.requires_grad = True\n"
        + STEPS,
        ["SRC087e"],
    ),
    "unfrozen before": (FROZEN + UNFREEZE + TRAINABLE + STEPS, []),
    "all given": (FROZEN + ADAMW + UNFREEZE + STEPS, []),
    "nothing was frozen": (TRAINABLE + UNFREEZE + STEPS, []),
    "handed on": (
        FROZEN
        + TRAINABLE
        + UNFREEZE
        + "opt.add_param_group({'params': list(model.model.parameters())})\n"
        + STEPS,
        [],
    ),
    "unfrozen behind the training": (FROZEN + TRAINABLE + STEPS + UNFREEZE, []),
    "made again": (FROZEN + TRAINABLE + UNFREEZE + TRAINABLE + STEPS, []),
    "replaced": (ADAMW + NEW_HEAD + STEPS, ["SRC087e"]),
    "replaced by setattr": (
        ADAMW + "setattr(model, 'lm_head', torch.nn.Linear(8, 4))\n" + STEPS,
        ["SRC087e"],
    ),
    "replaced before": (NEW_HEAD + ADAMW + STEPS, []),
    "replaced by nothing": (ADAMW + "model.score = torch.nn.Identity()\n" + STEPS, []),
    "replaced, its weight kept": (
        ADAMW
        + "new = torch.nn.Linear(8, 4)\nnew.weight = model.lm_head.weight\nmodel.lm_head = new\n"
        + STEPS,
        [],
    ),
    "shards": (ADAMW + FULLY_SHARD + STEPS, ["SRC087e"]),
    "shards of the layers alone": (
        ADAMW + FULLY_SHARD.replace("fully_shard(model)", "pass") + STEPS,
        ["SRC087e"],
    ),
    "shards by a helper, for several processes": (
        "def groups(m):\n    a, b = [], []\n    for n, p in m.named_parameters():\n"
        "        (a if p.ndim < 2 else b).append(p)\n    return [{'params': a}, {'params': b}]\n"
        "def shard(m):\n    from torch.distributed.fsdp import fully_shard\n    for layer in m.model.layers:\n"
        "        fully_shard(layer)\n    return fully_shard(m)\n"
        "def main(world):\n"
        + indented(
            "model = AutoModelForCausalLM.from_pretrained('org/some')\n"
            "opt = torch.optim.AdamW(groups(model), lr=1e-4)\n"
            "if world > 1:\n    model = shard(model)\nelse:\n    model.cuda()\n" + STEPS
        )
        + "main(4)\n",
        ["SRC087e"],
    ),
    "shards of a model of one's own": (
        "class Net(torch.nn.Module):\n    def __init__(self):\n        super().__init__()\n"
        "        self.layers = torch.nn.ModuleList(torch.nn.Linear(4, 4) for _ in range(3))\n"
        "model = Net().cuda()\n"
        + ADAMW
        + "from torch.distributed._composable.fsdp import fully_shard\n"
        "for block in model.layers:\n    fully_shard(block)\nfully_shard(model)\n" + STEPS,
        ["SRC087e"],
    ),
    "shards of a model that a function gets": (
        "from torch.distributed.fsdp import FullyShardedDataParallel as FSDP\n"
        "def fit(model, loader):\n" + indented(ADAMW + "model = FSDP(model)\n" + STEPS),
        ["SRC087e"],
    ),
    "tensor parallel": (
        ADAMW
        + "from torch.distributed.tensor.parallel import parallelize_module\n"
        + "parallelize_module(model, mesh, plan)\n"
        + STEPS,
        ["SRC087e"],
    ),
    "assigned": (ADAMW + "model.load_state_dict(state, assign=True)\n" + STEPS, ["SRC087e"]),
    "materialized": (ADAMW + "model.to_empty(device='cuda')\n" + STEPS, ["SRC087e"]),
    "head replaced by its method": (
        ADAMW + "model.set_output_embeddings(torch.nn.Linear(8, 4))\n" + STEPS,
        ["SRC087e"],
    ),
    "layers with low-rank weights of one's own": (
        OWN_LORA
        + ADAMW
        + "for n, m in model.named_modules():\n    for c, child in m.named_children():\n"
        "        setattr(m, c, Lora(child))\n" + STEPS,
        ["SRC087e"],
    ),
    "low-rank weights first": (
        OWN_LORA + "for n, m in model.named_modules():\n    for c, child in m.named_children():\n"
        "        setattr(m, c, Lora(child))\n" + ADAMW + STEPS,
        [],
    ),
    "a wrapper without weights": (
        OWN_LORA.replace("self.a = torch.nn.Parameter(torch.zeros(8, 4))", "self.scale = 2")
        + ADAMW
        + "for c, child in model.named_children():\n    setattr(model, c, Lora(child))\n"
        + STEPS,
        [],
    ),
    "shards first": (FULLY_SHARD + ADAMW + STEPS, []),
    "shards of another model": (
        "ref = AutoModelForCausalLM.from_pretrained('org/some')\n"
        + ADAMW
        + FULLY_SHARD.replace("model.model", "ref.model").replace("(model)", "(ref)")
        + STEPS,
        [],
    ),
    "shards in another arm": (
        "if world > 1:\n"
        + indented(FULLY_SHARD + ADAMW)
        + f"else:\n    model.cuda()\n    {ADAMW}{STEPS}",
        [],
    ),
    "parameters kept by FSDP": (
        ADAMW
        + "from torch.distributed.fsdp import FullyShardedDataParallel as FSDP\n"
        + "model = FSDP(model, use_orig_params=True)\n"
        + STEPS,
        [],
    ),
    "moved, cast and compiled": (
        ADAMW + "model = torch.compile(model.to('cuda').bfloat16())\n" + STEPS,
        [],
    ),
    "loaded in place": (ADAMW + "model.load_state_dict(state)\n" + STEPS, []),
    "resized": (ADAMW + RESIZE + STEPS, ["SRC087w"]),
    "resized if needed": (ADAMW + "if n > 4:\n    " + RESIZE + STEPS, ["SRC087w"]),
    "resized before": (RESIZE + ADAMW + STEPS, []),
    "resized, in another arm": (
        f"if new:\n    {RESIZE}    {ADAMW}else:\n    {ADAMW}{STEPS}",
        [],
    ),
}
DPO = "from trl import DPOTrainer\nDPOTrainer(model, {}).train()\n"
REFERENCES = {
    "one object": (DPO.format("model"), True),
    "by a name": ("ref = model.eval()\n" + DPO.format("ref_model=ref"), True),
    "by a function": ("def f(m):\n    return m.eval()\n" + DPO.format("f(model)"), True),
    "base of the adapter": (
        "from trl import DPOTrainer\nbase = model\n"
        "DPOTrainer(model=get_peft_model(model, LoraConfig()), ref_model=base).train()\n",
        True,
    ),
    "copy": ("import copy\n" + DPO.format("copy.deepcopy(model)"), False),
    "none": (DPO.format("None"), False),
    "loaded apart": (
        DPO.format("AutoModelForCausalLM.from_pretrained('org/some')"),
        False,
    ),
}


@pytest.mark.parametrize("case", OPTIMIZERS)
def test_an_optimizer_made_before_the_adapter_is_told(case: str, tmp_path: Path) -> None:
    text, is_told = OPTIMIZERS[case]
    assert codes(text, tmp_path, "SRC087") == ["SRC087e"] * is_told


@pytest.mark.parametrize("case", CHANGES)
def test_weights_that_change_behind_the_optimizer_are_told(case: str, tmp_path: Path) -> None:
    text, expected = CHANGES[case]
    assert codes(text, tmp_path, "SRC087") == expected


@pytest.mark.parametrize("case", REFERENCES)
def test_a_reference_that_is_the_policy_is_told(case: str, tmp_path: Path) -> None:
    text, is_told = REFERENCES[case]
    assert codes(text, tmp_path, "SRC082") == ["SRC082e"] * is_told
