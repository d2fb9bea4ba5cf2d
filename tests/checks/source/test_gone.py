"""Arguments that trainers no longer take, and names that TRL no longer has: by the release that runs."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent

import pytest

from tests.settings.unasked import UNASKED
from tests.source.modules import notebook
from truetune.checks.findings import Finding
from truetune.checks.lint import lint

HEAD = """
import inspect
import transformers, trl
from transformers import AutoTokenizer, Seq2SeqTrainer, Trainer, TrainingArguments
from trl import DPOConfig, DPOTrainer, GRPOTrainer, KTOTrainer, RewardTrainer, SFTConfig, SFTTrainer
tok = AutoTokenizer.from_pretrained("org/model")
"""
RULES = ("trainer-argument-gone", "trl-name-gone")


def found(text: str, folder: Path) -> list[Finding]:
    path = folder / "train.py"
    path.write_text(HEAD + dedent(text), encoding="utf-8")
    return list(lint([path], select=RULES).findings)


@pytest.mark.parametrize(
    ("call", "message", "remedy"),
    [
        ("Trainer('m', args, tokenizer=tok)", "Trainer takes no tokenizer in transformers 5.0.0",
         "tokenizer: write processing_class=..."),
        ("Seq2SeqTrainer(model='m', tokenizer=tok)", "Seq2SeqTrainer takes no tokenizer in transformers 5.0.0",
         "processing_class"),
        ("SFTTrainer('m', max_seq_length=2048)", "SFTTrainer takes no max_seq_length in trl 0.13.0",
         "write SFTConfig(max_length=...)"),
        ("SFTTrainer('m', dataset_text_field='text', packing=True)",
         "SFTTrainer takes no dataset_text_field, packing in trl 0.13.0", "SFTConfig(packing=...)"),
        ("SFTTrainer('m', infinite=True)", "SFTTrainer takes no infinite", "infinite: gone, remove it"),
        ("SFTTrainer('m', tokenizer=tok, dataset_num_proc=4)", "takes no tokenizer, dataset_num_proc in trl 0.16.1",
         "SFTConfig(dataset_num_proc=...)"),
        ("DPOTrainer('m', None, beta=0.1)", "DPOTrainer takes no beta in trl 0.13.0", "DPOConfig(beta=...)"),
        ("DPOTrainer('m', max_prompt_length=512, loss_type='ipo')", "takes no max_prompt_length, loss_type",
         "DPOConfig(loss_type=...)"),
        ("KTOTrainer('m', tokenizer=tok)", "KTOTrainer takes no tokenizer in trl 0.14.0", "processing_class"),
        ("RewardTrainer('m', tokenizer=tok, max_length=512)", "RewardTrainer takes no tokenizer, max_length",
         "RewardConfig(max_length=...)"),
        ("GRPOTrainer('m', tokenizer=tok)", None, None),
        ("options = dict(model='m', tokenizer=tok)\nTrainer(**options)", "Trainer takes no tokenizer", "processing"),
        ("trl.SFTTrainer('m', packing=True)", "SFTTrainer takes no packing", "SFTConfig"),
    ],
)  # fmt: skip
def test_an_argument_that_is_gone_is_told_with_what_to_write(
    call: str, message: str | None, remedy: str | None, tmp_path: Path
) -> None:
    findings = found(call, tmp_path)
    if (
        message is None or remedy is None
    ):  # this trainer never took it: a misspelling, and no change of releases
        assert findings == []
        return
    (finding,) = findings
    assert finding.severity == UNASKED
    assert message in finding.message
    assert remedy in finding.remedy
    assert finding.evidence[0].startswith("no file here says which release of ")


@pytest.mark.parametrize(
    "text",
    [
        "Trainer('m', args, processing_class=tok)",
        "SFTTrainer('m', args=SFTConfig('o', max_length=2048, packing=True), processing_class=tok)",
        (
            "if 'tokenizer' in inspect.signature(SFTTrainer.__init__).parameters:\n   "
            " SFTTrainer('m', tokenizer=tok)\nelse:\n    SFTTrainer('m', processing_class=tok)"
        ),
        "if transformers.__version__ < '4.46':\n    t = Trainer('m', tokenizer=tok)",
        (
            "key = {}\nif hasattr(Trainer, 'tokenizer'):\n    key['tokenizer'] = tok\nTrainer('m',"
            " **key)"
        ),
        (
            "try:\n    t = Trainer('m', tokenizer=tok)\nexcept TypeError:\n    t = Trainer('m',"
            " processing_class=tok)"
        ),
        (
            "try:\n    t = Trainer('m', processing_class=tok)\nexcept Exception:\n    t ="
            " Trainer('m', tokenizer=tok)"
        ),
        (
            "class Mine(SFTTrainer):\n    def __init__(self, tokenizer=None, **rest):\n"
            "        super().__init__(processing_class=tokenizer, **rest)\nMine('m', tokenizer=tok)"
        ),
        "from mine import SFTTrainer as Own\nOwn('m', tokenizer=tok, packing=True)",
        (
            "import unsloth\nSFTTrainer('m', tokenizer=tok, dataset_text_field='text',"
            " max_seq_length=2048)"
        ),
        "from unsloth import FastLanguageModel\nSFTTrainer('m', tokenizer=tok, packing=False)",
        "from trl.experimental.orpo import ORPOTrainer\nORPOTrainer('m', processing_class=tok)",
        "t = Trainer('m') if trl.__version__ else Trainer('m', tokenizer=tok)",
        (
            "taken = set(inspect.signature(SFTTrainer))\nkey = {}\nif 'processing_class' in"
            " taken:\n    key['processing_class'] = tok\nelif 'tokenizer' in taken:\n   "
            " key['tokenizer'] = tok\nSFTTrainer('m', **key)"
        ),
        (
            "key = {}\nif 'packing' in known and wanted:\n    key['packing'] ="
            " True\nSFTTrainer('m', **key)"
        ),
        (
            "key = {}\nif 'packing' not in known:\n    pass\nelse:\n    key['packing'] ="
            " True\nSFTTrainer('m', **key)"
        ),
        (
            "key = {}\nif not 'packing' in known:\n    print(1)\nelse:\n   "
            " key.update(packing=True)\nSFTTrainer('m', **key)"
        ),
        "SFTTrainer('m', **({'packing': True} if 'packing' in known else {}))",
        (
            "if 'tokenizer' in known:\n    t = Trainer('m', tokenizer=tok)\nelse:\n    t ="
            " Trainer('m')"
        ),
        (
            "key = {}\nif 'beta' in known:\n    if beta > 0:\n        key['beta'] ="
            " beta\nDPOTrainer('m', **key)"
        ),
    ],
)
def test_what_a_trainer_takes_or_the_program_asks_for_is_no_fault(
    text: str, tmp_path: Path
) -> None:
    assert found(text, tmp_path) == []


@pytest.mark.parametrize(
    "text",
    [
        (
            "key = {}\nif 'packing' in known:\n    print(1)\nelse:\n    key['packing'] ="
            " True\nSFTTrainer('m', **key)"
        ),
        "key = {}\nif 'other' in known:\n    key['packing'] = True\nSFTTrainer('m', **key)",
        (
            "key = {}\nif 'packing' in known or always:\n    key['packing'] = True\nSFTTrainer('m',"
            " **key)"
        ),
        "key = {}\nif 'packing' not in known:\n    key['packing'] = True\nSFTTrainer('m', **key)",
        (
            "if 'tokenizer' not in globals():\n    print('load it')\nelse:\n    t = Trainer('m',"
            " tokenizer=tok)"
        ),
        "if 'tokenizer' in locals():\n    t = Trainer('m', tokenizer=tok)",
        (
            "key = {}\nif 'packing' in settings:\n    key['packing'] ="
            " settings['packing']\nSFTTrainer('m', **key)"
        ),
        (
            "key = {}\nif 'packing' in c.sft:\n    key['packing'] ="
            " bool(c.sft.get('packing'))\nSFTTrainer('m', **key)"
        ),
        "key = {}\nif mode == 'packing':\n    key['packing'] = True\nSFTTrainer('m', **key)",
    ],
)
def test_a_test_that_does_not_find_the_name_excuses_nothing(text: str, tmp_path: Path) -> None:
    assert found(text, tmp_path)


LENGTH = ("max-length-left-to-trl-default",)


@pytest.mark.parametrize(
    ("call", "count"),
    [
        ("SFTTrainer('m', args=SFTConfig('o'), max_seq_length=512)", 0),
        (
            (
                "a = SFTConfig('o')\nSFTTrainer('m', a, max_seq_length=length,"
                " dataset_text_field='text')"
            ),
            0,
        ),
        ("SFTTrainer('m', args=SFTConfig('o'), **{'max_seq_length': 512})", 0),
        ("SFTTrainer('m', args=SFTConfig('o'))", 1),
        ("SFTTrainer('m', args=SFTConfig('o'), dataset_text_field='text')", 1),
        (
            (
                "SFTTrainer('m', args=SFTConfig('o'))\nSFTTrainer('m', args=SFTConfig('p'),"
                " max_seq_length=9)"
            ),
            1,
        ),
    ],
)
def test_a_length_that_the_trainer_is_given_is_a_length(
    call: str, count: int, tmp_path: Path
) -> None:
    path = tmp_path / "train.py"
    path.write_text(HEAD + call, encoding="utf-8")
    assert len(lint([path], select=LENGTH).findings) == count


def test_a_main_program_is_no_question_for_the_release(tmp_path: Path) -> None:
    assert found("if __name__ == '__main__':\n    Trainer('m', tokenizer=tok)", tmp_path)


def test_a_try_around_the_whole_run_is_no_second_attempt(tmp_path: Path) -> None:
    text = (
        "try:\n    Trainer('m', tokenizer=tok).train()\nexcept Exception as error:\n   "
        " print(error)"
    )
    assert found(text, tmp_path)


@pytest.mark.parametrize(
    ("asked", "severity"),
    [
        ("trl==0.9.6", None), ("trl<0.13", None), ("trl==0.12.2", None), ("trl==0.15.2", "error"), ("trl>=1", "error"),
        ("trl", "error"), ("trl>=0.9", "warning"), ("transformers==4.40", UNASKED),
    ],
)  # fmt: skip
def test_the_release_that_runs_decides(asked: str, severity: str | None, tmp_path: Path) -> None:
    (tmp_path / "requirements.txt").write_text(f"{asked}\n")
    severities = [finding.severity for finding in found("SFTTrainer('m', packing=True)", tmp_path)]
    assert severities == ([] if severity is None else [severity])


def test_a_new_name_is_written_where_the_release_is_known(tmp_path: Path) -> None:
    (tmp_path / "requirements.txt").write_text("transformers>=5\n")
    found("Trainer('m', args,\n        tokenizer=tok)  # as before", tmp_path)
    path = tmp_path / "train.py"
    lint([path], select=RULES, fix=True)
    assert path.read_text("utf-8").endswith(
        "Trainer('m', args,\n        processing_class=tok)  # as before"
    )
    assert list(lint([path], select=RULES).findings) == []


@pytest.mark.parametrize(
    ("line", "names"),
    [
        ("from trl import DataCollatorForCompletionOnlyLM", ["DataCollatorForCompletionOnlyLM"]),
        ("from trl import SFTTrainer, setup_chat_format", ["setup_chat_format"]),
        ("from trl import ORPOConfig, ORPOTrainer as T", ["ORPOConfig", "ORPOTrainer"]),
        ("from trl import PPOTrainer, PPOConfig, AutoModelForCausalLMWithValueHead",
         ["PPOTrainer", "PPOConfig", "AutoModelForCausalLMWithValueHead"]),
        ("from trl.experimental.orpo import ORPOTrainer", []),
        ("from trl.import_utils import is_vllm_available", []),
        ("from trl import SFTTrainer, DPOTrainer, GRPOConfig, get_peft_config", []),
        ("try:\n    from trl import PPOTrainer\nexcept ImportError:\n    PPOTrainer = None", []),
        ("if trl.__version__ < '0.20':\n    from trl import DataCollatorForCompletionOnlyLM", []),
        ("from .trl import PPOTrainer", []),
        ("from mytrl import PPOTrainer", []),
    ],
)  # fmt: skip
def test_a_name_that_trl_has_no_more_is_told_once_an_import(
    line: str, names: list[str], tmp_path: Path
) -> None:
    findings = found(line, tmp_path)
    assert [[case.text for case in finding.cases] for finding in findings] == (
        [names] if names else []
    )


def test_a_class_that_moved_is_told_with_its_new_home(tmp_path: Path) -> None:
    (finding,) = found("from trl import ORPOTrainer", tmp_path)
    assert finding.remedy == "import ORPOTrainer from trl.experimental.orpo"


def test_a_notebook_that_installs_what_has_the_name_is_right(tmp_path: Path) -> None:
    path = tmp_path / "n.ipynb"
    for install, count in (("!pip install trl==0.9.6", 0), ("!pip install -U trl", 1)):
        path.write_text(
            notebook(install, "from trl import DataCollatorForCompletionOnlyLM"), encoding="utf-8"
        )
        assert len(lint([path], select=RULES).findings) == count


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("from trl import ORPOConfig, ORPOTrainer as T",
         "from trl.experimental.orpo import ORPOConfig, ORPOTrainer as T"),
        ("from trl import (\n    SFTTrainer,\n    CPOTrainer,\n)  # two",
         "from trl import SFTTrainer\nfrom trl.experimental.cpo import CPOTrainer  # two"),
        ("if True:\n    from trl import ORPOTrainer, CPOTrainer",
         "if True:\n    from trl.experimental.orpo import ORPOTrainer\n"
         "    from trl.experimental.cpo import CPOTrainer"),
        ("Trainer(**{'tokenizer': tok})", "Trainer(**{\"processing_class\": tok})"),
        ("options = {}\noptions['tokenizer'] = tok\nTrainer(**options)",
         "options = {}\noptions[\"processing_class\"] = tok\nTrainer(**options)"),
        ("options = dict(tokenizer=tok)\nTrainer(**options)",
         "options = dict(processing_class=tok)\nTrainer(**options)"),
    ],
)  # fmt: skip
def test_what_only_has_another_name_or_home_is_written_anew(
    before: str, after: str, tmp_path: Path
) -> None:
    (tmp_path / "requirements.txt").write_text("transformers>=5\ntrl>=1\n")
    found(before, tmp_path)
    path = tmp_path / "train.py"
    lint([path], select=RULES, fix=True)
    assert path.read_text("utf-8") == HEAD + after
    assert list(lint([path], select=RULES).findings) == []


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("SFTConfig('o', max_seq_length=9)", "SFTConfig('o', max_length=9)"),
        ("TrainingArguments('o', evaluation_strategy='no')", "TrainingArguments('o', eval_strategy='no')"),
        ("a = {'evaluation_strategy': 'no'}\nTrainingArguments('o', **a)",
         "a = {'eval_strategy': 'no'}\nTrainingArguments('o', **a)"),
        ("a = dict(output_dir='o')\na[\"evaluation_strategy\"] = 'no'\nTrainingArguments(**a)",
         "a = dict(output_dir='o')\na[\"eval_strategy\"] = 'no'\nTrainingArguments(**a)"),
    ],
)  # fmt: skip
def test_a_setting_with_another_name_is_written_anew(
    before: str, after: str, tmp_path: Path
) -> None:
    (tmp_path / "requirements.txt").write_text("transformers>=5\ntrl>=1\n")
    path = tmp_path / "train.py"
    path.write_text(HEAD + before, encoding="utf-8")
    lint([path], select=("setting-renamed",), fix=True)
    assert path.read_text("utf-8") == HEAD + after


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("trainer = trl.ORPOTrainer('m')", ["ORPOTrainer"]),
        ("import trl as t\nt.setup_chat_format(model, tok)", ["setup_chat_format"]),
        ("trl.SFTTrainer('m')", []),
        ("class trl:\n    ORPOTrainer = 3\nprint(trl.ORPOTrainer)", []),
        ("if hasattr(trl, 'ORPOTrainer'):\n    trainer = trl.ORPOTrainer('m')", []),
    ],
)
def test_what_is_read_of_trl_counts_too(text: str, names: list[str], tmp_path: Path) -> None:
    assert [case.text for finding in found(text, tmp_path) for case in finding.cases] == names


def test_arguments_of_another_file_are_followed(tmp_path: Path) -> None:
    (tmp_path / "settings.py").write_text("def options(tok):\n    return {'tokenizer': tok}\n")
    (tmp_path / "train.py").write_text(
        HEAD + "from settings import options\nTrainer('m', **options(tok))\n"
    )
    (finding,) = lint([tmp_path], select=RULES).findings
    assert finding.cases[0].file == str(tmp_path / "settings.py")
    assert finding.cases[0].line == 2
