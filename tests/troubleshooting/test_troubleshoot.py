"""A symptom and files lead to its causes: proved ones first, then those that fit words and files."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import truetune
from truetune.checks.explaining.guides import GUIDES, Cause
from truetune.checks.explaining.recognise_project_traits_behind_causes import (
    Trait,
    precondition_of_cause,
)
from truetune.checks.rule_catalogue import all_rules, station_of_rule
from truetune.cli import truetune_group
from truetune.errors import UsageError
from truetune.report.symptom_terminal import _cause_lines
from truetune.troubleshooting.find_traits_shown_by_project_lines import (
    ProjectFacts,
    read_facts_of_project,
)
from truetune.troubleshooting.project_evidence_for_ruling_out_causes import Evidence
from truetune.troubleshooting.project_words import (
    MAX_BYTES_PER_FILE,
    TextLine,
    read_project_texts,
    read_word_stems_of_project,
)
from truetune.troubleshooting.rank_causes import LikelyCause, choose_guides, rank_causes
from truetune.troubleshooting.troubleshoot import _judge_cause

FROZEN_ADAPTER = """
from datasets import load_dataset
from peft import PeftModel
from transformers import AutoModelForCausalLM
from trl import SFTConfig, SFTTrainer

model = AutoModelForCausalLM.from_pretrained("org/base")
model = PeftModel.from_pretrained(model, "org/adapter")
rows = load_dataset("json", data_files="chats.jsonl", split="train")
args = SFTConfig(output_dir="out", max_length=1024)
SFTTrainer(model, args=args, train_dataset=rows).train()
"""
SOUND_SCRIPT = """
from datasets import load_dataset
from trl import SFTConfig, SFTTrainer

rows = load_dataset("json", data_files="chats.jsonl", split="train")
SFTTrainer("org/base", args=SFTConfig(output_dir="out", max_length=1024), train_dataset=rows).train()
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project whose script trains nothing."""
    tmp_path.joinpath("train.py").write_text(FROZEN_ADAPTER)
    return tmp_path


def test_what_proves_a_cause_of_the_symptom_comes_first(project: Path) -> None:
    report = truetune.troubleshoot("the loss does not fall", project)
    assert report.guides[0] == "loss-does-not-fall"
    assert report.explaining >= 1
    explaining = {finding.rule for finding in report.findings[: report.explaining]}
    assert "adapter-loaded-frozen" in explaining
    found = [judged for judged in report.causes if judged.state == "found"]
    assert found == list(report.causes[: len(found)])
    assert {rule for judged in found for rule in judged.rules} >= explaining
    assert report.exit_code() == truetune.check(project).exit_code() == 1


def test_findings_are_those_of_check(project: Path) -> None:
    report = truetune.troubleshoot("slow generation", project)
    assert sorted(f.rule for f in report.findings) == sorted(
        f.rule for f in truetune.check(project).findings
    )


def test_without_a_finding_likely_causes_are_listed_and_no_verdict_is_given(tmp_path: Path) -> None:
    tmp_path.joinpath("train.py").write_text(SOUND_SCRIPT)
    done = CliRunner().invoke(
        truetune_group, ["troubleshoot", "out of memory in the first step", str(tmp_path)]
    )
    assert "No rule found a cause here." in done.output
    assert "truetune explain out-of-memory" in done.output
    listed = [line for line in done.output.splitlines() if line.strip()[:2] in ("1.", "5.", "6.")]
    assert len(listed) == 2


def test_what_the_files_rule_out_is_told_with_its_reason(tmp_path: Path) -> None:
    tmp_path.joinpath("train.py").write_text(SOUND_SCRIPT)
    question = "training is slow: a tiny batch, and the rows are padded"
    report = truetune.troubleshoot(question, tmp_path)
    ruled_out = report.ruled_out()
    assert ruled_out
    assert all(judged.against for judged in ruled_out)
    assert not set(ruled_out) & set(report.remaining())
    command = ["troubleshoot", question, str(tmp_path)]
    short = CliRunner().invoke(truetune_group, command).output
    whole = CliRunner().invoke(truetune_group, [*command, "-v"]).output
    assert "ruled out by these files" not in short
    assert whole.count("ruled out by these files") == len(ruled_out)


def test_causes_that_point_at_a_finding_come_last(tmp_path: Path) -> None:
    """They say in other words what was found: `which nothing here proves` would be wrong of them."""
    (tmp_path / "serve.sh").write_text(
        "vllm serve Qwen/Qwen2.5-7B-Instruct --enable-lora --lora-modules claims=out/claims\n"
    )
    (tmp_path / "ask.py").write_text(
        "from openai import OpenAI\nclient = OpenAI(base_url='http://localhost:8000/v1')\n"
        "answer = client.chat.completions.create(\n    model='Qwen/Qwen2.5-7B-Instruct',\n"
        "    messages=[{'role': 'user', 'content': 'a'}],\n)\n"
    )
    report = truetune.troubleshoot("the served model answers like the base model", tmp_path)
    (finding,) = (one for one in report.findings if one.rule == "client-asks-for-the-base")
    assert finding in report.proving_findings()
    remaining = report.remaining()
    shown = [n for n, one in enumerate(remaining) if report._are_all_cause_lines_at_findings(one)]
    assert shown
    assert shown == list(range(len(remaining)))[-len(shown) :]


def test_words_of_the_files_order_the_causes(tmp_path: Path) -> None:
    guide = next(guide for guide in GUIDES if guide.name == "garbage-output")
    modelfile = tmp_path / "Modelfile"
    modelfile.write_text("FROM ./model.gguf\nPARAMETER num_ctx 4096\n# ollama\n")
    words = read_word_stems_of_project([tmp_path])

    def place(words: frozenset[str]) -> int:
        ranked = rank_causes(((guide, 1.0),), "answers are garbage", words)
        return next(
            place
            for place, likely in enumerate(ranked)
            if "modelfile-context-left-to-default" in likely.cause.rules
        )

    # How far it comes hangs on the words of all rules' pages, so that each new rule moves it.
    assert place(words) < place(frozenset()) // 2


def test_equal_words_keep_the_order_of_the_guide() -> None:
    guide = GUIDES[0]
    ranked = rank_causes(((guide, 1.0),), "", frozenset())
    # Rules that no cause of the guide has come after those that it lists.
    assert tuple(likely.cause for likely in ranked)[: len(guide.causes)] == guide.causes


def test_a_question_of_no_guide_takes_all() -> None:
    assert len(choose_guides("qqxzv")) == len(GUIDES)
    assert choose_guides("slow generation")[0][0].name == "slow-generation"


def test_rows_vocabularies_and_binary_files_have_no_words(tmp_path: Path) -> None:
    tmp_path.joinpath("rows.jsonl").write_text('{"text": "zebra"}')
    tmp_path.joinpath("tokenizer.json").write_text('{"zebra": 1}')
    tmp_path.joinpath("core.log").write_bytes(b"zebra\0\0")
    hidden = tmp_path / ".cache"
    hidden.mkdir()
    hidden.joinpath("notes.txt").write_text("zebra")
    tmp_path.joinpath("bad.log").write_bytes(b"\xff\xfe giraffe")
    words = read_word_stems_of_project([tmp_path, tmp_path / "missing.py"])
    assert "giraf" in words
    assert not any(word.startswith("zebra") for word in words)


def test_both_ends_of_a_long_log_are_read(tmp_path: Path) -> None:
    log = tmp_path / "train.log"
    log.write_text("zebra\n" + "step loss\n" * (MAX_BYTES_PER_FILE // 5) + "giraffe\n")
    words = read_word_stems_of_project([log])
    assert any(word.startswith("zebra") for word in words)
    assert any(word.startswith("giraf") for word in words)


def test_json_has_the_causes(project: Path) -> None:
    done = CliRunner().invoke(
        truetune_group, ["troubleshoot", "loss is flat", str(project), "--json"]
    )
    symptom = json.loads(done.stdout)["symptom"]
    assert symptom["question"] == "loss is flat"
    states = [cause["state"] for cause in symptom["causes"]]
    assert states[0] == "found"
    assert {"open", "looked for"} & set(states)


@pytest.mark.parametrize(
    ("question", "paths", "message"),
    [("  ", ["."], "what do you see"), ("loss is flat", [], "name the files")],
)
def test_what_is_lacking_is_said(question: str, paths: list[str], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        truetune.troubleshoot(question, paths)


def test_a_path_that_is_not_there_is_one_clear_error() -> None:
    with pytest.raises(UsageError, match=r"missing\.log"):
        truetune.troubleshoot("loss is flat", "missing.log")


def test_symptoms_of_rules_are_guides() -> None:
    guides = {guide.name for guide in GUIDES}
    named = {name for rule in all_rules() for name in rule.symptoms}
    assert named <= guides
    assert len(named) == len(guides)


def test_every_grave_rule_leads_to_a_symptom() -> None:
    """Those below are about a file that is no run, or say by themselves what is seen."""
    without = {
        "output-dir-is-the-model",
        "lora-target-names-joined",
        "weights-are-pickle",
        "packed-document-differs-from-alone",
        "resume-state-missing",
        "source-not-parsed",
        "stops-too-early",
        # The run stops at such a row, and says so.
        "pictures-too-narrow",
        "truncation-cuts-pictures",
    }
    of_guides = {rule for guide in GUIDES for cause in guide.causes for rule in cause.rules}
    lacking = {
        rule.name()
        for rule in all_rules()
        if not rule.symptoms
        and rule.name() not in of_guides
        and rule.severity == "error"
        # `troubleshoot` reads files. These rules judge a running trainer, or call a function.
        and station_of_rule(rule) not in ("rollout", "reward")
    }
    assert lacking <= without


def test_a_rule_that_names_its_symptom_comes_first(tmp_path: Path) -> None:
    rows = [{"prompt": f"What is {n}?", "completion": "It is none of these."} for n in range(40)]
    file = tmp_path / "rows.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in [*rows, *rows]))
    report = truetune.troubleshoot("accuracy is too good on held-out rows", file)
    assert report.guides[0] == "odd-metrics"
    assert "duplicate-rows" in {finding.rule for finding in report.findings[: report.explaining]}


DPO_SCRIPT = """
from trl import DPOConfig, DPOTrainer

args = DPOConfig(output_dir="out", learning_rate=5e-7, packing=False)
DPOTrainer("org/base", args=args, train_dataset=rows).train()
"""


def _facts(tmp_path: Path, script: str, question: str = "") -> ProjectFacts:
    tmp_path.joinpath("train.py").write_text(script)
    return read_facts_of_project(question, read_project_texts([tmp_path]))


def _place(text: str, facts: ProjectFacts, question: str, guide_name: str) -> int:
    guide = next(guide for guide in GUIDES if guide.name == guide_name)
    ranked = rank_causes(((guide, 1.0),), question, frozenset(), facts)
    return next(place for place, one in enumerate(ranked) if one.cause.text.startswith(text))


def test_what_the_files_make_impossible_comes_last(tmp_path: Path) -> None:
    question, guide = "the loss does not fall", "loss-does-not-fall"
    rewarded = "of GRPO the loss is no measure"
    sft = _facts(tmp_path, SOUND_SCRIPT)
    assert Trait.REINFORCEMENT not in sft.traits_shown_by_project | sft.traits_files_could_not_show
    grpo = _facts(tmp_path, SOUND_SCRIPT.replace("SFT", "GRPO"))
    assert _place(rewarded, grpo, question, guide) < 5 < 20 < _place(rewarded, sft, question, guide)


def test_a_project_without_training_excludes_nothing_of_it(tmp_path: Path) -> None:
    facts = _facts(tmp_path, "print('hello')\n")
    assert Trait.PREFERENCE in facts.traits_files_could_not_show
    assert Trait.VLLM in facts.traits_files_could_not_show


def test_what_the_user_names_is_there(tmp_path: Path) -> None:
    facts = _facts(tmp_path, SOUND_SCRIPT, "the loss is flat on 8 GPUs")
    assert Trait.SEVERAL_PROCESSES in facts.traits_shown_by_project


def test_a_comment_and_an_import_are_not_the_line_to_look_at(tmp_path: Path) -> None:
    facts = _facts(tmp_path, "# GRPOTrainer was tried\n" + DPO_SCRIPT)
    assert Trait.REINFORCEMENT not in facts.lines
    assert facts.lines[Trait.PREFERENCE][0].place.endswith("train.py:5")


def test_lines_of_a_notebook_are_those_of_its_cells(tmp_path: Path) -> None:
    cells: list[dict[str, Any]] = [
        {"cell_type": "code", "metadata": {}, "outputs": [], "execution_count": None,
         "source": ["x = 1\n", "model.generate(ids, temperature=1.5)"]},
    ]  # fmt: skip
    notebook = {"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}
    tmp_path.joinpath("ask.ipynb").write_text(json.dumps(notebook))
    facts = read_facts_of_project("", read_project_texts([tmp_path]))
    assert facts.lines[Trait.SAMPLING][0].place.endswith("ask.ipynb:cell 1, line 2")


@pytest.mark.parametrize(
    ("text", "present", "is_possible"),
    [
        ("the adapter was merged into 4-bit weights, or a quantized export is coarse: look",
         {Trait.QUANTIZATION}, True),
        ("the adapter was merged into 4-bit weights, or a quantized export is coarse: look",
         set(), False),
        ("4-bit weights under FSDP are stored as uint8", {Trait.QUANTIZATION}, False),
        ("4-bit weights under FSDP are stored as uint8", {Trait.QUANTIZATION, Trait.FSDP}, True),
        ("the rate is too low: with LoRA take 2e-4", set(), True),
    ],
)  # fmt: skip
def test_a_text_declares_what_its_fault_takes(
    text: str, present: set[Trait], is_possible: bool
) -> None:
    lacking = precondition_of_cause(text).missing_traits_that_exclude_cause(
        frozenset(present), frozenset()
    )
    assert (not lacking) == is_possible


def test_findings_on_something_else_are_named_in_a_line(project: Path) -> None:
    report = truetune.troubleshoot("the loss does not fall", project)
    # What explains it is an error, so that nothing else is graver.
    assert report.folded_findings() == report.findings[report.explaining :]
    output = (
        CliRunner().invoke(truetune_group, ["troubleshoot", "loss is flat", str(project)]).output
    )
    for finding in report.folded_findings():
        assert f"[{finding.code}]" not in output
        assert finding.rule in output


def test_the_line_to_look_at_is_named(tmp_path: Path) -> None:
    tmp_path.joinpath("train.py").write_text(DPO_SCRIPT.replace(", packing=False", ""))
    report = truetune.troubleshoot("dpo loss stuck at 0.69", tmp_path)
    rate = next(one for one in report.causes if one.cause.text.startswith("the learning rate"))
    assert rate in report.remaining()[:5]
    assert [line.place.rpartition(":")[2] for line in rate.lines] == ["4"]
    loop = [one for one in report.causes if one.cause.text.startswith("in a hand-written loop")]
    assert loop
    assert all(one.lacking == ("a training loop of its own",) for one in loop)


def test_what_is_graver_than_all_that_explains_is_shown(project: Path) -> None:
    report = truetune.troubleshoot("the loss does not fall", project)
    error = report.findings[0]
    warning = replace(error, severity="warning")
    beside = replace(report, findings=(warning, error, warning), explaining=1)
    assert beside.folded_findings() == (warning,)
    assert replace(beside, explaining=0).folded_findings() == ()


VISION_SCRIPT = """
from transformers import AutoProcessor, Qwen2_5_VLForConditionalGeneration, Trainer

processor = AutoProcessor.from_pretrained("Qwen/Qwen2.5-VL-7B-Instruct")
model = Qwen2_5_VLForConditionalGeneration.from_pretrained("Qwen/Qwen2.5-VL-7B-Instruct", dtype="bfloat16")
Trainer(model, args, train_dataset=rows, data_collator=collate).train()
"""
OUT_OF_MEMORY = """
{'loss': 1.9, 'grad_norm': 1.2, 'learning_rate': 2e-05, 'epoch': 0.1}
Traceback (most recent call last):
  File "train.py", line 5, in <module>
    Trainer(model, args, train_dataset=rows, data_collator=collate).train()
torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.50 GiB. GPU 0 has a total capacity of 23.53 GiB of
 which 1.02 GiB is free.
"""


def test_an_exception_proves_none_of_its_many_causes(tmp_path: Path) -> None:
    """`run-ended-in-an-exception` stands in causes of eight kinds: that it fires says nothing of images."""
    tmp_path.joinpath("train.py").write_text(VISION_SCRIPT)
    tmp_path.joinpath("run.log").write_text(OUT_OF_MEMORY)
    report = truetune.troubleshoot("out of memory with the vision model", tmp_path)
    assert "run-ended-in-an-exception" in {finding.rule for finding in report.findings}
    assert not report.proving_findings()
    listed = [judged.cause.text for judged in report.remaining()[:5]]
    assert any(text.startswith("images of full size") for text in listed)


def test_a_cause_that_the_finding_names_is_not_listed_again(tmp_path: Path) -> None:
    """The help of `flat-loss` says the learning rate and the scale of the adapter."""
    records = (
        str({"loss": 1.9 + (step % 3) / 100, "epoch": step / 30}) + "\n" for step in range(1, 91)
    )
    tmp_path.joinpath("run.log").write_text("".join(records))
    report = truetune.troubleshoot("the loss does not fall", tmp_path)
    states = {judged.cause.text: judged.state for judged in report.causes}
    assert states["the adapter is scaled away: lora_alpha far below its rank"] == "found"
    assert any("base64" in text and state != "found" for text, state in states.items())


def test_a_cause_whose_fault_was_found_is_not_said_to_lack_a_proof(tmp_path: Path) -> None:
    tmp_path.joinpath("label.py").write_text(
        "from openai import OpenAI\nclient = OpenAI(base_url='http://localhost:8000/v1')\n"
        "for ticket in open('tickets.txt'):\n"
        "    reply = client.chat.completions.create(model='labels', messages=[{'role': 'user', 'content': ticket}])\n"
        "    print(reply.choices[0].message.content)\n"
    )
    report = truetune.troubleshoot("labelling all tickets takes days, vLLM is slow", str(tmp_path))
    assert report.findings[0].rule == "generation-row-by-row"
    open_causes = [one for one in report.remaining() if "generation-row-by-row" in one.rules]
    assert not [one.cause.text for one in open_causes if one.cause.text.startswith("one prompt")]


@pytest.mark.parametrize(
    ("line", "is_there"),
    [
        ("ids = tok(text, add_special_tokens=False)", False),
        ("tok.add_special_tokens({'pad_token': '<pad>'})", True),
        ("tok.add_tokens(['<call>'])", True),
    ],
)
def test_an_argument_adds_no_token(line: str, is_there: bool, tmp_path: Path) -> None:
    facts = _facts(tmp_path, SOUND_SCRIPT + line + "\n")
    assert (Trait.ADDED_TOKENS in facts.lines) == is_there


def test_of_a_cause_that_was_looked_for_lines_of_the_cause_itself_are_shown() -> None:
    taken = TextLine("train.py:16", "def training_step(self, batch):", "train.py")
    itself = TextLine("train.py:20", "self.log('loss', loss)", "train.py")
    cause = Cause("training_step returns nothing", "no crash", ("training-step-returns-nothing",))
    likely = LikelyCause(cause, "loss-does-not-fall", 1.0, (itself, taken), (itself,))
    evidence = Evidence("the loss is flat", (), ())
    for examined, lines in ((set(), (itself, taken)), ({cause.rules[0]}, (itself,))):
        judged = _judge_cause(likely, {}, examined, evidence, frozenset())
        assert judged.lines == lines
        shown = " ".join(one.plain for one in _cause_lines(1, judged, 100))
        assert ("train.py:16" in shown, "train.py:20" in shown) == (taken in lines, True)
