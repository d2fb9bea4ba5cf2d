"""States of compiled models, with a script beside them that takes the prefix away, and with scripts that do not."""

from __future__ import annotations

from pathlib import Path

import pytest

from truetune.checks.lint import lint

TRAIN = """
import torch
from transformers import AutoModelForCausalLM
model = torch.compile(AutoModelForCausalLM.from_pretrained("some/base"))
for batch in batches:
    model(**batch).loss.backward()
torch.save({"model": model.state_dict(), "step": 9}, "out/last.pt")
"""
LOADS = 'import torch\nstate = torch.load("out/last.pt")["model"]\n'
STRIPPED = (
    LOADS + "state = {name.removeprefix('_orig_mod.'): value for name, value in state.items()}\n",
    LOADS + 'state = {name.replace("_orig_mod.", ""): value for name, value in state.items()}\n',
    LOADS + 'for name in list(state):\n    if name.startswith("_orig_mod."):\n'
    '        state[name[len("_orig_mod."):]] = state.pop(name)\n',
    "from safetensors.torch import load_file\nprefix = '_orig_mod.'\nstate = load_file('out/last')\n",
    LOADS + "import re\nstate = {re.sub('^_orig_mod[.]', '', k): v for k, v in state.items()}\n",
)
KEPT = (
    None,
    LOADS,
    LOADS + "model.load_state_dict(state, strict=False)\n",
    'print("_orig_mod. is what torch.compile writes")\n',
    'import torch\nprint(torch.load("other.pt").keys())\n',
)


def rules_of(tmp_path: Path, beside: str | None) -> list[str]:
    path = tmp_path / "train.py"
    path.write_text(TRAIN, encoding="utf-8")
    if beside is not None:
        (tmp_path / "export.py").write_text(beside, encoding="utf-8")
    return [one.rule for one in lint([str(path)], select=("SRC026",)).findings]


@pytest.mark.parametrize("beside", STRIPPED)
def test_a_script_beside_takes_the_prefix_away(tmp_path: Path, beside: str) -> None:
    assert rules_of(tmp_path, beside) == []


@pytest.mark.parametrize("beside", KEPT)
def test_nothing_takes_the_prefix_away(tmp_path: Path, beside: str | None) -> None:
    assert rules_of(tmp_path, beside) == ["compiled-model-saved"]
