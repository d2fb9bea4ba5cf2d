"""What the script or its rows prove of a loss comes first, and the advice of the log does not lead elsewhere."""

from __future__ import annotations

from pathlib import Path

import pytest

from truetune.checks.drop_pad_finding_settled_by_script import drop_pad_finding_set_by_scripts
from truetune.checks.findings import Case, Finding
from truetune.checks.put_causes_of_losses_first import put_causes_of_losses_first

RATE_OF_SCRIPT = Finding(
    "deepspeed-ignores-the-scripts-rate",
    "SRC420",
    "error",
    "the run trains at the learning rate 0.001 of zero.json",
    "set optimizer.params.lr",
    cases=(Case("lr: 0.001", file="zero.json", line=4),),
)
RATE_OF_LOG = Finding(
    "deepspeed-trains-at-another-rate", "LOG160", "error", "at 0.001: by DeepSpeed", "set"
)
DIVERGES = Finding("loss-diverges", "LOG007", "error", "the loss rises", "train with a lower rate")
SCHEDULE = Finding(
    "scheduler-length-miscounted",
    "SRC021",
    "error",
    "it is stepped once an epoch",
    "return interval step",
    cases=(Case("schedule", file="module.py", line=35),),
)
FLAT = Finding(
    "flat-loss", "LOG006", "warning", "it stays", "raise the learning rate from 2e-07: so"
)
FLAT_OTHERWISE = Finding("flat-loss", "LOG006", "warning", "it stays", "look at the labels")


def test_the_rate_of_the_script_is_told_once() -> None:
    told = put_causes_of_losses_first([DIVERGES, RATE_OF_LOG, RATE_OF_SCRIPT])
    assert [one.code for one in told] == ["SRC420", "LOG007"]
    assert told[0].evidence == ("the log shows it: at 0.001",)
    assert told[1].remedy.startswith("set optimizer.params.lr (zero.json:4)")


def test_a_log_alone_keeps_its_advice() -> None:
    assert put_causes_of_losses_first([DIVERGES, RATE_OF_LOG]) == [DIVERGES, RATE_OF_LOG]
    assert put_causes_of_losses_first([FLAT]) == [FLAT]


def test_a_rate_that_a_schedule_holds_down_is_not_to_be_raised() -> None:
    _, flat = put_causes_of_losses_first([SCHEDULE, FLAT])
    assert flat.remedy.startswith("return interval step (module.py:35)")
    assert put_causes_of_losses_first([SCHEDULE, FLAT_OTHERWISE])[1] == FLAT_OTHERWISE


PAD_MISSING = Finding(
    "pad-missing", "TOK002", "warning", "the tokenizer has no pad token", "set it"
)
LOAD = "from transformers import AutoTokenizer\ntok = AutoTokenizer.from_pretrained('m')\n"


@pytest.mark.parametrize(
    ("line", "is_kept"),
    [
        ("tok.pad_token = tok.unk_token\n", False),
        ("tok.add_special_tokens({'pad_token': '<pad>'})\n", False),
        ("tok.pad_token = tok.eos_token\n", True),
        ("", True),
    ],
)
def test_a_pad_token_that_the_script_sets(line: str, is_kept: bool, tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(LOAD + line, encoding="utf-8")
    kept = drop_pad_finding_set_by_scripts([PAD_MISSING, FLAT], [str(script)])
    assert (PAD_MISSING in kept) == is_kept
    assert FLAT in kept
    # Without a script, or beside one that sets none, the files decide.
    assert PAD_MISSING in drop_pad_finding_set_by_scripts([PAD_MISSING], [])
    other = tmp_path / "other.py"
    other.write_text(LOAD, encoding="utf-8")
    assert PAD_MISSING in drop_pad_finding_set_by_scripts([PAD_MISSING], [str(script), str(other)])
