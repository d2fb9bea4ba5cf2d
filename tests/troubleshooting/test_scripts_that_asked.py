"""Symptoms in predictions, and the faults of the scripts that asked for them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from truetune.settings.run_spec import RunSpec
from truetune.troubleshooting.check_project import check_project
from truetune.troubleshooting.troubleshoot import troubleshoot

HEAD = """import json
from transformers import AutoModelForCausalLM, AutoTokenizer
tok = AutoTokenizer.from_pretrained("me/model")
tok.pad_token = tok.eos_token
tok.padding_side = "left"
model = AutoModelForCausalLM.from_pretrained("me/model").eval()
rows = [json.loads(line) for line in open("test.jsonl")]
prompts = [tok.apply_chat_template(r["messages"][:-1], tokenize=False, add_generation_prompt={ends}) for r in rows]
enc = tok(prompts, return_tensors="pt", padding=True, add_special_tokens=False)
out = model.generate({given}, max_new_tokens=64)
texts = tok.batch_decode(out[:, enc["input_ids"].shape[1]:], skip_special_tokens=True)
with open("preds.jsonl", "w") as f:
    for r, t in zip(rows, texts):
        f.write(json.dumps({{"prompt": r["prompt"], "reference": r["reference"], "prediction": t}}) + "\\n")
"""
BARE, WHOLE = 'enc["input_ids"]', "**enc"
WARNING = (
    "The attention mask is not set and cannot be inferred from input because pad token is same as eos token. As a"
    " consequence, you may observe unexpected behavior.\n"
)


def write(
    folder: Path,
    script: str,
    log: str = "",
    header: str = "assistant assistant ",
    more: str = "is is " * 20,
) -> None:
    rows = [
        {
            "prompt": f"Where is parcel {n}?",
            "reference": f"Parcel {n} is in the depot of Bern.",
            "prediction": f"{header}Parcel {n} {more}"
            if n % 3
            else f"Parcel {n} is in the depot of Bern.",
        }
        for n in range(48)
    ]
    (folder / "preds.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "predict.py").write_text(script)
    if log:
        (folder / "predict.log").write_text(log)


@pytest.mark.parametrize(
    "words",
    [
        "most predictions over the test set are garbage, a few are perfect, one by one it is fine",
        "the tuned model gives garbage",
        "the answers never stop and repeat words",
        "it writes assistant assistant",
    ],
)
def test_the_fault_of_the_script_comes_first_in_any_words(tmp_path: Path, words: str) -> None:
    write(tmp_path, HEAD.format(ends=True, given=BARE))
    report = troubleshoot(words, [str(tmp_path)], RunSpec())
    assert report.findings[0].rule == "generation-without-attention-mask"
    assert report.findings[0] not in report.folded_findings()
    about_answers = [one for one in report.findings if one.code.startswith("ANS")]
    assert about_answers
    assert all("add_generation_prompt" not in one.remedy for one in about_answers)


def test_the_log_makes_it_certain(tmp_path: Path) -> None:
    write(tmp_path, HEAD.format(ends=True, given=BARE), WARNING)
    first = check_project([str(tmp_path)], RunSpec()).findings[0]
    assert (first.rule, first.severity) == ("generation-without-attention-mask", "error")


@pytest.mark.parametrize(("is_beside", "is_advised"), [(True, False), (False, True)])
def test_advice_that_the_script_follows_is_withdrawn(
    tmp_path: Path, is_beside: bool, is_advised: bool
) -> None:
    script = HEAD.format(ends=True, given=WHOLE) if is_beside else "print(1)\n"
    write(tmp_path, script, header="assistant\n", more="is in the depot of Bern.")
    report = check_project([str(tmp_path)], RunSpec())
    (markers,) = [one for one in report.findings if one.rule == "role-markers-in-answers"]
    assert ("before generation" in markers.remedy) is is_advised
    assert ("predict.py:8" in markers.remedy) is not is_advised
