"""What holds of one release of a library alone: by pins, by exports, and by arguments that no later release takes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.checks.source.table import HEAD, codes
from tests.source.modules import notebook
from truetune.checks.lint import lint

SFT = (
    "from trl import SFTTrainer\ntok.pad_token = tok.eos_token\nSFTTrainer(model,"
    " train_dataset=ds{}).train()\n"
)


@pytest.mark.parametrize(
    ("requirements", "arguments", "expected"),
    [
        ("", "", []),
        ("trl==0.8.6", "", ["SRC007w"]),
        ("trl<=0.16.0", "", ["SRC007w"]),
        ("trl==0.16.1", "", []),
        ("trl>=0.20", "", []),
        ("trl", "", []),
        ("", ", tokenizer=tok", []),
        ("", ", tokenizer=tok, dataset_text_field='text'", ["SRC007w"]),
        ("", ", packing=True", ["SRC007w"]),
        ("", ", max_seq_length=512", ["SRC007w"]),
        ("trl", ", max_seq_length=512", ["SRC007w"]),
        ("trl==1.2", ", max_seq_length=512", []),
        ("trl==0.8.6", ", data_collator=mine", []),
    ],
)
def test_the_collator_of_an_older_trl_masks_by_id(
    requirements: str, arguments: str, expected: list[str], tmp_path: Path
) -> None:
    (tmp_path / "requirements.txt").write_text(f"torch\n{requirements}\n")
    assert codes(SFT.format(arguments), tmp_path, "SRC007") == expected


def test_unsloth_takes_the_old_arguments_still(tmp_path: Path) -> None:
    text = (
        "from unsloth import FastLanguageModel\nm, t ="
        " FastLanguageModel.from_pretrained('org/some')\n"
    )
    assert codes(text + SFT.format(", max_seq_length=512"), tmp_path, "SRC007") == []


def test_arguments_for_one_release_among_others_say_nothing(tmp_path: Path) -> None:
    text = (
        "from trl import SFTTrainer\ntok.pad_token = tok.eos_token\nmore ="
        " dict(processing_class=tok)\nif older:\n    more['max_seq_length'] ="
        " 512\nSFTTrainer(model, **more)\n"
    )
    assert codes(text, tmp_path, "SRC007") == []


TWICE = (
    "from trl import {0}\nadapted = get_peft_model(model, LoraConfig(r=8))\n"
    "{0}(adapted, train_dataset=ds, peft_config=LoraConfig(r=8){1}).train()\n"
)


@pytest.mark.parametrize("trainer", ["SFTTrainer", "DPOTrainer"])
@pytest.mark.parametrize(
    ("requirements", "arguments", "expected"),
    [
        ("", "", ["SRC020e"]),
        ("trl==0.7.1", "", []),
        ("trl<0.27", "", []),
        ("trl==0.27.0", "", ["SRC020e"]),
        ("trl>=0.9", "", ["SRC020e"]),
        ("", ", tokenizer=tok", ["SRC020e"]),
        ("", ", model_init_kwargs={}", []),
    ],
)
def test_a_second_adapter_harms_in_later_releases(
    trainer: str, requirements: str, arguments: str, expected: list[str], tmp_path: Path
) -> None:
    (tmp_path / "requirements.txt").write_text(f"torch\n{requirements}\n")
    assert codes(TWICE.format(trainer, arguments), tmp_path, "SRC020") == expected


def test_get_peft_model_twice_is_wrong_in_any_release(tmp_path: Path) -> None:
    (tmp_path / "requirements.txt").write_text("trl==0.7.1\n")
    text = "a = get_peft_model(model, LoraConfig())\nb = get_peft_model(a, LoraConfig())\n"
    assert codes(text, tmp_path, "SRC020") == ["SRC020e"]


LOSS = (
    "class Mine(Trainer):\n    def compute_loss(self, model, inputs, return_outputs=False):\n"
    "        return model(**inputs).loss\n"
)


@pytest.mark.parametrize(
    ("requirements", "count"),
    [("", 1), ("transformers==4.44.2", 0), ("transformers<4.46", 0), ("transformers==4.46.0", 1),
     ("transformers>=4.40", 1)],
)  # fmt: skip
def test_items_are_counted_from_one_release_on(
    requirements: str, count: int, tmp_path: Path
) -> None:
    (tmp_path / "requirements.txt").write_text(f"torch\n{requirements}\n")
    assert len(codes(LOSS, tmp_path, "SRC013")) == count


LIST = "n = len(tok.apply_chat_template(chat))\n"


@pytest.mark.parametrize(
    ("line", "count"),
    [
        ("# get_ipython().system('uv pip install transformers==4.56.2')", 0),
        ("get_ipython().system('pip install transformers==4.56.2')", 0),
        ("#     get_ipython().system('pip install \"transformers<5\"')", 0),
        (r"# get_ipython().run_cell_magic('capture', '', '!pip install trl\n!pip install transformers==4.56.2\n')", 0),
        # A command that is commented out in the cell installs nothing.
        (r"# get_ipython().run_cell_magic('capture', '', '!pip list\n# !pip install transformers==4.56.2\n')", 1),
        ("# get_ipython().system('uv pip install transformers==5.3.0')", 1),
        ("# get_ipython().system('pip install transformers')", 1),
        ("# pip install transformers==4.56.2", 0),
        ("# get_ipython().system('ls transformers==4.56.2')", 1),
        ("", 1),
    ],
)  # fmt: skip
def test_a_notebook_that_was_exported_has_its_pins(line: str, count: int, tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    path.write_text(f"{line}\n{HEAD}{LIST}")
    assert len(lint([path], select=["SRC010"]).findings) == count


@pytest.mark.parametrize(
    ("install", "count"),
    [
        ("!pip install unsloth==2025.3.19 vllm==0.8.2", 0),
        ('!pip install "unsloth==2025.11.6"', 0),
        ("!pip install unsloth", 1),
        ("!pip install unsloth==2026.4.8", 1),
        ("!pip install unsloth==2025.3.19 transformers==5.3.0", 1),
        ("!pip install unsloth==2025.3.19\n!pip install -U transformers", 0),
        ("!pip install unsloth_zoo==2025.3.19", 1),
        ("# !pip install unsloth==2025.3.19", 1),
        ("!pip install git+https://github.com/unslothai/unsloth.git", 1),
        ("!uv pip install 'unsloth<2026'", 0),
    ],
)
def test_a_pinned_package_bounds_what_it_asks_for(install: str, count: int, tmp_path: Path) -> None:
    path = tmp_path / "n.ipynb"
    path.write_text(notebook(install, HEAD, LIST), encoding="utf-8")
    assert len(lint([path], select=["SRC010"]).findings) == count


ADAPTED = (
    "from trl import SFTTrainer\nmodel = PeftModel.from_pretrained(model, 'a',"
    " is_trainable=True)\nc = LoraConfig()\n"
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("kwargs = {'model': model}\nif not hasattr(model, 'peft_config'):\n    kwargs['peft_config'] = c\n"
         "SFTTrainer(**kwargs)", []),
        ("kwargs = {'model': model}\nif new and getattr(model, 'peft_config', None) is None:\n"
         "    kwargs['peft_config'] = c\nSFTTrainer(**kwargs)", []),
        ("kwargs = dict(model=model)\nif 'peft_config' in parameters:\n    kwargs['peft_config'] = c\n"
         "SFTTrainer(**kwargs)", []),
        ("if not isinstance(model, PeftModel):\n    SFTTrainer(model=model, peft_config=c)", []),
        ("if isinstance(model, (PeftModel, PeftMixedModel)):\n    SFTTrainer(model=model)\nelse:\n"
         "    SFTTrainer(model=model, peft_config=c)", []),
        ("wrapped = isinstance(model, PeftModel)\nif not wrapped:\n    model = get_peft_model(model, c)", []),
        ("SFTTrainer(model=model, peft_config=None if hasattr(model, 'peft_config') else c)", []),
        ("if isinstance(model, PeftModel):\n    SFTTrainer(model=model, peft_config=c)", ["SRC020e"]),
        ("if c is not None:\n    SFTTrainer(model=model, peft_config=c)", ["SRC020e"]),
        ("if not quiet:\n    SFTTrainer(model=model, peft_config=c)", ["SRC020e"]),
        ("kwargs = {'model': model}\nkwargs['peft_config'] = c\nif long:\n    SFTTrainer(**kwargs)", ["SRC020e"]),
        ("if t:\n    kwargs = {'model': model}\n    kwargs['peft_config'] = c\n    SFTTrainer(**kwargs)", ["SRC020e"]),
    ],
)  # fmt: skip
def test_a_model_that_is_asked_for_its_adapter_gets_no_second(
    text: str, expected: list[str], tmp_path: Path
) -> None:
    assert codes(ADAPTED + text, tmp_path, "SRC020") == expected
