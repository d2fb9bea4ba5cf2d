"""Lines that show what single causes take, and near misses that do not."""

from __future__ import annotations

from pathlib import Path

import pytest

from truetune.checks.explaining.guides import GUIDES, Cause
from truetune.checks.explaining.recognise_questions_about_speed import guides_of_named_speed
from truetune.checks.findings import Finding
from truetune.troubleshooting.find_traits_shown_by_project_lines import read_facts_of_project
from truetune.troubleshooting.project_evidence_for_ruling_out_causes import read_evidence
from truetune.troubleshooting.project_words import ProjectText
from truetune.troubleshooting.rank_causes import (
    _causes_of_guide_and_if_listed,
    choose_guides,
    rank_causes,
    share_of_cause_in_finding,
)
from truetune.troubleshooting.rule_out_causes import find_reason_against
from truetune.troubleshooting.signs import slow_training_or_generation
from truetune.troubleshooting.signs.find_signs_in_statements import (
    SIGNS,
    find_signs,
    signs_belonging_to_cause_text,
)

LOAD = "model = AutoModelForCausalLM.from_pretrained(path).to('cuda')\n"
ADAPTER = "model = AutoPeftModelForCausalLM.from_pretrained(folder)\n"


def shown(text: str) -> set[str]:
    """The signs of slowness alone: other symptoms have tables and tests of their own."""
    found = find_signs([ProjectText(Path("a.py"), text, True)])
    return {
        sign.words.lstrip("^").replace("\\", "")
        for sign in found
        if sign in slow_training_or_generation.SIGNS
    }


@pytest.mark.parametrize(
    ("text", "sign"),
    [
        ("trainer = pl.Trainer(val_check_interval=0.01)\n", "an evaluation, or saving, too often"),
        ("    --eval_steps 10 \\\n", "an evaluation, or saving, too often"),
        ("save_steps: 20\n", "whole checkpoints are written too often"),
        (
            "loader = DataLoader(rows, batch_size=8, collate_fn=lambda rows: tok(rows))\n",
            "data loader of one process",
        ),
        (
            "per_device_train_batch_size=1,\ngradient_accumulation_steps=64,\n",
            "a tiny batch with many accumulation steps",
        ),
        ("attn: eager\n", "the attention is computed eagerly"),
        (
            "net = GPT2LMHeadModel.from_pretrained('gpt2-xl')\n",
            "weights and matrix products in float32",
        ),
        ("args = GRPOConfig(\n", "the completions of GRPO or RLOO"),
        (
            "tok = AutoTokenizer.from_pretrained(m, use_fast=False)\n",
            "rows are tokenized one at a time",
        ),
        ("ds = raw.map(tokenize, remove_columns=cols)\n", "rows are tokenized one at a time"),
        ("llama-server -m a.gguf -t 64\n", "llama.cpp runs more threads"),
        (LOAD, "the model is loaded in float32"),
    ],
)
def test_lines_that_show_a_cause(text: str, sign: str) -> None:
    assert sign in shown(text)


@pytest.mark.parametrize(
    "text",
    [
        "trainer = pl.Trainer(val_check_interval=1.0)\n",
        "--eval_steps 500 --save_steps 1000 --logging_steps 10\n",
        "eval_strategy: epoch\nsave_strategy: epoch\n",
        "loader = DataLoader(rows, batch_size=8, num_workers=4)\n",
        "per_device_train_batch_size=16,\ngradient_accumulation_steps=64,\n",
        "per_device_train_batch_size=1,\ngradient_accumulation_steps=4,\n",
        "attn_implementation: sdpa\n",
        "args = GRPOConfig(\n    use_vllm=True,\n",
        "ds = raw.map(tokenize, batched=True, num_proc=8)\n",
        'labels = frame["label"].map(label2id)\n',
        "model = AutoModelForCausalLM.from_pretrained(path, torch_dtype=torch.bfloat16)\n",
        # cast, or computed in 16 bits, elsewhere
        LOAD + "model.half()\n",
        LOAD + "args = TrainingArguments('out', bf16=True)\nprint(torch.bfloat16)\n",
        ADAPTER.replace("bfloat16", "") + "model = model.merge_and_unload().bfloat16()\n",
        "# val_check_interval=0.01\n",
    ],
)
def test_sound_lines_show_none(text: str) -> None:
    assert shown(text) == set()


def test_each_sign_is_of_a_cause() -> None:
    texts = [
        cause.text for guide in GUIDES for cause, _ in _causes_of_guide_and_if_listed(guide.name)
    ]
    assert {sign for text in texts for sign in signs_belonging_to_cause_text(text)} == set(SIGNS)


def test_a_sign_gives_its_cause_a_line_and_a_better_place() -> None:
    question = "training at 16k context is slow"
    text = ProjectText(Path("conf.yaml"), "lr: 1e-5\nattention: x\nattn: eager\n", True)
    [first, *_] = rank_causes(
        choose_guides(question), question, frozenset(), read_facts_of_project(question, [text])
    )
    assert first.cause.text.startswith("the attention is computed eagerly")
    assert [line.place for line in first.lines] == ["conf.yaml:3"]


def test_a_load_in_16_bits_is_no_load_in_float32() -> None:
    [cause] = [
        one
        for guide in GUIDES
        for one in guide.causes
        if one.text.startswith("the model is loaded in float32")
    ]

    def reason(text: str) -> str:
        evidence = read_evidence("slow", [ProjectText(Path("a.py"), text, True)], [])
        return find_reason_against(cause.text, evidence)

    assert reason("m = X.from_pretrained(p, torch_dtype=torch.bfloat16)\n")
    assert not reason(LOAD)


def test_a_training_in_16_bits_says_nothing_of_the_load_after_it() -> None:
    texts = [
        ProjectText(Path("train.py"), "args = SFTConfig(bf16=True)\nkind = torch.bfloat16\n", True),
        ProjectText(Path("ask.py"), f"{LOAD}model.generate(**batch)\n", True),
    ]
    name = "the model is loaded in float32"
    found = [lines for sign, lines in find_signs(texts).items() if name in sign.words]
    assert [[line.place for line in lines] for lines in found] == [["ask.py:1"]]
    evidence = read_evidence("slow", texts, [])
    assert not find_reason_against(f"{name}: from_pretrained without a dtype", evidence)


@pytest.mark.parametrize(
    ("question", "guides"),
    [
        ("training is slow, GPU utilisation jumps between 0 and 100%", ("slow-training",)),
        ("deepspeed training of a 1.5B model is slow on 8 A100", ("slow-training",)),
        ("llama-server is slow though I have a RTX 4090", ("slow-generation",)),
        ("evaluation takes forever", ("slow-training", "slow-generation")),
        ("predictions take hours", ("slow-generation",)),
        (
            "the evaluation through vLLM takes over a second per row on an H100",
            ("slow-generation",),
        ),
        ("the tokenizing of my rows takes 3 minutes per file", ()),
        # a unit says it more surely
        ("generation during training is slow, 3 tokens per second", ("slow-generation",)),
        ("training is slow and the loss is nan", ()),
        ("the model trains, its answers repeat", ()),
        ("the learning rate decays too slowly for my loss", ()),
        ("training converges very slowly", ()),
    ],
)
def test_work_that_is_called_slow(question: str, guides: tuple[str, ...]) -> None:
    assert guides_of_named_speed(question) == guides


@pytest.mark.parametrize(
    ("question", "is_kept"),
    [
        ("gpu memory grows with each step until it is full", True),
        ("there is a memory leak in my loop", True),
        ("CUDA out of memory when I increase the batch size", False),
        ("out of memory after increasing max_seq_length", False),
        ("memory error after we increased the length", False),
        ("host RAM: memory grows", False),
    ],
)
def test_memory_that_grows_by_itself(question: str, is_kept: bool) -> None:
    text = ProjectText(Path("train.py"), "model.train()\n", True)
    guides = choose_guides(question)
    [first, *_] = rank_causes(
        guides, question, frozenset(), read_facts_of_project(question, [text])
    )
    rules = {"outputs-kept-on-the-device", "losses-kept-with-graph"}
    assert (not rules.isdisjoint(first.cause.rules)) is is_kept


@pytest.mark.parametrize(
    ("question", "guide"),
    [
        ("loss is 0 from the start", "loss-does-not-fall"),
        ("my training loss is zero at every step", "loss-does-not-fall"),
        ("the model makes things up although the loss is near zero", "nothing-is-learned"),
        ("the loss goes down to zero but it behaves like the base", "nothing-is-learned"),
        ("training on 4 GPUs is not faster than on one", "several-gpus"),
    ],
)
def test_the_guide_of_a_loss_of_zero_and_of_several_gpus(question: str, guide: str) -> None:
    assert choose_guides(question)[0][0].name == guide


@pytest.mark.parametrize(
    ("message", "named", "other"),
    [
        ("a learning rate of 1e-09 for SFT is far below the published 1e-4", "small", "large"),
        ("a learning rate of 0.1 for SFT is far above the published 1e-4", "large", "small"),
    ],
)
def test_a_rate_that_is_too_large_is_none_that_is_too_small(
    message: str, named: str, other: str
) -> None:
    finding = Finding("learning-rate-far-from-published", "CFG015", "warning", message, "")
    shares = {
        size: share_of_cause_in_finding(finding, Cause(f"the learning rate is far too {size}", ""))
        for size in (named, other)
    }
    assert shares[named] > 0
    assert shares[other] == 0


@pytest.mark.parametrize(
    ("text", "is_narrow"),
    [
        ("args = SFTConfig(bf16=True)\n", True),
        ("bf16: auto\n", True),
        ("torchrun train.py --bf16\n", True),
        ("torchrun train.py --bf16 False\n", False),
        ("args = SFTConfig(bf16=True)\nmodel = load(torch_dtype=torch.float32)\n", False),
        ("args = SFTConfig(output_dir='out')\n", False),
    ],
)
def test_a_training_in_16_bits_is_none_in_float32(text: str, is_narrow: bool) -> None:
    evidence = read_evidence("slow", [ProjectText(Path("train.py"), text, True)], [])
    cause = "weights and matrix products in float32, without bf16 and TF32"
    assert bool(find_reason_against(cause, evidence)) is is_narrow
