"""The one remedy for pad = eos: a token that the vocabulary has, and a resize only where it has none."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.checks.source.table import HEAD
from tests.parts import folder
from truetune.checks.findings import Finding
from truetune.checks.lint import lint
from truetune.checks.source.evidence.pad_token_candidates_instead_of_eos import (
    ADD_TOKEN,
    ANY_TOKENIZER,
    BY_GOOD_PAD,
    FREE_PADS,
    free_pad_of_model,
)
from truetune.render.choose_pad_token import choose_pad_token
from truetune.render.template_probes import make_probes
from truetune.render.tokenizer import load_tokenizer
from truetune.settings.run_spec import RunSpec

PARTS = [
    ("llama3.1-base", "meta-llama/Llama-3.1-8B"),
    ("llama3.1-instruct", "meta-llama/Meta-Llama-3.1-70B-Instruct"),
    ("llama3.2-instruct", "unsloth/Llama-3.2-1B-Instruct-bnb-4bit"),
    ("llama3-base", "meta-llama/Meta-Llama-3-8B"),
    ("llama3-instruct", "meta-llama/Meta-Llama-3-8B-Instruct"),
    ("llama2-base", "meta-llama/Llama-2-7b-hf"),
    ("llama2-chat", "meta-llama/Llama-2-7b-chat-hf"),
    ("mistral-7b-v0.1", "mistralai/Mistral-7B-v0.1"),
    ("mistral-7b-v0.3", "mistralai/Mistral-7B-Instruct-v0.3"),
    ("mistral-nemo", "mistralai/Mistral-Nemo-Base-2407"),
    ("gemma2", "google/gemma-2-9b-it"),
    ("gemma3", "google/gemma-3-4b-it"),
    ("qwen2.5-instruct", "Qwen/Qwen2.5-7B-Instruct"),
    ("qwen2.5-base", "Qwen/Qwen2.5-0.5B"),
    ("qwen3", "Qwen/Qwen3-8B"),
    ("phi3", "microsoft/Phi-3-mini-4k-instruct"),
    ("phi4", "microsoft/phi-4"),
    ("smollm2", "HuggingFaceTB/SmolLM2-1.7B-Instruct"),
    ("gpt-oss", "openai/gpt-oss-20b"),
    ("gpt2", "gpt2"),
    ("deepseek-v3", "deepseek-ai/DeepSeek-V3"),
]


@pytest.mark.parametrize(("part", "name"), PARTS)
def test_what_is_recorded_of_a_name_is_what_its_tokenizer_has(part: str, name: str) -> None:
    place = str(folder(part))
    tokenizer = load_tokenizer(place)
    token, _ = choose_pad_token(tokenizer, make_probes(tokenizer, RunSpec(model=place)).stops)
    by_name, by_folder = free_pad_of_model(name), free_pad_of_model(place)
    assert by_name is not None
    assert by_folder is not None
    assert by_name.token == by_folder.token == (token.token if token is not None else None)


def test_every_entry_that_was_run_is_run_here() -> None:
    tried = {free_pad_of_model(name) for _, name in PARTS}
    assert [
        one.models for one in FREE_PADS if one.established == BY_GOOD_PAD and one not in tried
    ] == []


@pytest.mark.parametrize(
    "name",
    [
        "me/my-llama",
        "deepseek-ai/DeepSeek-R1-Distill-Qwen-7B",
        "microsoft/Phi-4-mini-instruct",
        "some/thing",
        "microsoft/Phi-3-small-8k-instruct",
        "Qwen/Qwen2.5-VL-7B-Instruct-chat-mine",
        "me/gemma-tuned",
        "t5-small",
    ],
)
def test_of_other_names_nothing_is_known(name: str) -> None:
    assert free_pad_of_model(name) is None


def judged(text: str, folder: Path, rule: str) -> list[Finding]:
    path = folder / "train.py"
    path.write_text(HEAD + text, encoding="utf-8")
    return list(lint([path], select=[rule]).findings)


PAD = "pad-equals-eos-lm-collator"
EOS = (
    "from trl import SFTTrainer\ntok = AutoTokenizer.from_pretrained({0!r})\ntok.pad_token ="
    " tok.eos_token\nc = DataCollatorForLanguageModeling(tok, mlm=False)\nSFTTrainer({0!r},"
    " processing_class=tok, data_collator=c)\n"
)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("meta-llama/Llama-3.1-8B", '"<|finetune_right_pad_id|>"'),
        ("mistralai/Mistral-7B-v0.1", '"<unk>"'),
        ("Qwen/Qwen2.5-7B-Instruct", '"<|endoftext|>"'),
        ("google/gemma-2-2b", '"<pad>"'),
        ("gpt2", ADD_TOKEN),
        ("a/b", ANY_TOKENIZER),
    ],
)
def test_the_remedy_names_the_token_of_the_family(name: str, said: str, tmp_path: Path) -> None:
    (finding,) = judged(EOS.format(name), tmp_path, PAD)
    assert said in finding.remedy
    assert ("resize the" in finding.remedy) == (name == "gpt2")


def test_several_places_of_one_file_are_one_finding_with_one_fix(tmp_path: Path) -> None:
    name = "'mistralai/Mistral-7B-v0.1'"
    text = (
        f"def a():\n    tok = AutoTokenizer.from_pretrained({name})\n    tok.pad_token ="
        " tok.eos_token\n    tok.pad_token_id = tok.eos_token_id\n    return tok\ndef b():\n   "
        f" tok = AutoTokenizer.from_pretrained({name})\n    tok.add_special_tokens({{'pad_token':"
        " tok.eos_token})\n    return tok\nc = DataCollatorForLanguageModeling(a(), mlm=False)\n"
    )
    (finding,) = judged(text, tmp_path, PAD)
    assert finding.message.startswith("pad is EOS in 2 places")
    lint([tmp_path], select=[PAD], fix=True)
    after = (tmp_path / "train.py").read_text("utf-8")
    assert 'tok.pad_token = "<unk>"' in after
    assert "tok.add_special_tokens({'pad_token': \"<unk>\"})" in after
    assert "eos_token" not in after


def test_a_default_is_likely_but_not_sure(tmp_path: Path) -> None:
    text = EOS.format("a/b").replace("'a/b'", "name")
    (finding,) = judged(
        f"def main(name='gpt-oss-20b'):\n    {text.replace(chr(10), chr(10) + '    ')}\n",
        tmp_path,
        PAD,
    )
    assert '"<|endoftext|>"' in finding.remedy
    assert finding.fix is not None
    assert not finding.fix.safe


RESIZE = "tokens-added-without-resize"
ADDED = (
    "from trl import SFTTrainer\nt = AutoTokenizer.from_pretrained({0!r})\n"
    "t.add_special_tokens({{'pad_token': '[P]'}})\n"
)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("meta-llama/Llama-3.1-8B", "<|finetune_right_pad_id|>"),
        ("gpt2", "resize_token_embeddings"),
        ("Qwen/Qwen3-8B", ""),
    ],
)
def test_a_pad_that_is_added_where_the_trainer_loads_the_model(
    name: str, said: str, tmp_path: Path
) -> None:
    findings = judged(
        ADDED.format(name) + f"SFTTrainer({name!r}, processing_class=t).train()\n", tmp_path, RESIZE
    )
    assert len(findings) == (1 if said else 0)
    assert all(said in finding.remedy for finding in findings)
