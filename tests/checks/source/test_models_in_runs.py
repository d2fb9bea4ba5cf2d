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


@pytest.mark.parametrize("case", REFERENCES)
def test_a_reference_that_is_the_policy_is_told(case: str, tmp_path: Path) -> None:
    text, is_told = REFERENCES[case]
    assert codes(text, tmp_path, "SRC082") == ["SRC082e"] * is_told
