"""Files that are given together: what is merged or served, against what a run trains."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import truetune
from truetune.checks.find_uses_of_weight_folders import is_same_folder, is_same_or_below
from truetune.checks.lint import lint

TRAINING = """model_name_or_path: some/model
stage: dpo
do_train: true
finetuning_type: {kind}
dataset: pairs
template: {template}
output_dir: {output}
learning_rate: 5.0e-6
"""
EXPORT = "model_name_or_path: some/model\nadapter_name_or_path: {adapter}\ntemplate: qwen\nexport_dir: merged\n"
CHAT = "model_name_or_path: some/model\nadapter_name_or_path: {adapter}\ntemplate: {template}\n"


def training(
    output: str, *, start: str = "", template: str = "qwen", kind: str = "lora", more: str = ""
) -> str:
    text = TRAINING.format(output=output, template=template, kind=kind)
    return text + (f"adapter_name_or_path: {start}\n" if start else "") + more


def messages(folder: Path, rule: str, **files: str) -> list[str]:
    """What a rule says of files that are given together; `__` in a name is its dot."""
    paths = []
    for name, text in files.items():
        paths.append(folder / name.replace("__", "."))
        paths[-1].write_text(text, encoding="utf-8")
    found = truetune.check([str(path) for path in paths]).findings
    return [finding.message for finding in found if finding.rule == rule]


@pytest.mark.parametrize(
    ("other", "text"),
    [
        ("export__yaml", EXPORT.format(adapter="saves/sft")),
        ("run__sh", "llamafactory-cli export --adapter_name_or_path saves/sft --export_dir m\n"),
        ("serve__sh", "vllm serve some/model --enable-lora --lora-modules chat=saves/sft\n"),
        ("Modelfile", "FROM some/model\nADAPTER ./saves/sft\n"),
        (
            "eval__sh",
            "lm_eval --model hf --model_args pretrained=some/model,peft=saves/sft --tasks a --apply_chat_template\n",
        ),
        (
            "merge__py",
            "from peft import PeftModel\nfrom transformers import AutoModelForCausalLM\n"
            'base = AutoModelForCausalLM.from_pretrained("some/model")\n'
            'PeftModel.from_pretrained(base, "saves/sft").merge_and_unload().save_pretrained("m")\n',
        ),
    ],
)
def test_the_adapter_of_the_start_is_used_again(other: str, text: str, tmp_path: Path) -> None:
    files = {"dpo__yaml": training("saves/dpo", start="saves/sft"), other: text}
    (message,) = messages(tmp_path, "trained-adapter-not-used", **files)
    assert "the output of this run, saves/dpo, is not" in message
    assert "saves/sft, from which the run started" in message


@pytest.mark.parametrize(
    ("run", "other", "text"),
    [
        # The output itself, a checkpoint of it, by an absolute path, and beside the start
        (
            training("saves/dpo", start="saves/sft"),
            "export__yaml",
            EXPORT.format(adapter="saves/dpo"),
        ),
        (
            training("./saves/dpo/", start="saves/sft"),
            "export__yaml",
            EXPORT.format(adapter="saves/dpo/checkpoint-400"),
        ),
        (
            training("saves/dpo", start="saves/sft"),
            "serve__sh",
            "vllm serve some/model --enable-lora --lora-modules a=/data/saves/dpo b=saves/sft\n",
        ),
        # Merged weights of another name lie beside the output; an adapter of another project
        (training("outputs/lora"), "serve__sh", "vllm serve outputs/merged\n"),
        (training("saves/dpo"), "export__yaml", EXPORT.format(adapter="elsewhere/other")),
        # An evaluation of the stage before has no file of the output beside it, but another run wrote it
        (training("saves/sft"), "serve__sh", "vllm serve some/model\n"),
    ],
)
def test_what_may_be_right_is_silent(run: str, other: str, text: str, tmp_path: Path) -> None:
    assert messages(tmp_path, "trained-adapter-not-used", **{"run__yaml": run, other: text}) == []


def test_a_new_adapter_is_merged_with_that_below_it(tmp_path: Path) -> None:
    run = training("saves/dpo", start="saves/sft", more="create_new_adapter: true\n")
    alone = EXPORT.format(adapter="saves/dpo")
    (message,) = messages(tmp_path, "trained-adapter-not-used", dpo__yaml=run, export__yaml=alone)
    assert "was trained on top of the adapter saves/sft" in message
    both = EXPORT.format(adapter="saves/sft,saves/dpo")
    assert not messages(tmp_path, "trained-adapter-not-used", dpo__yaml=run, export__yaml=both)


SCRIPT = """
from peft import PeftModel
from transformers import AutoModelForCausalLM
from trl import DPOConfig, DPOTrainer
model = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained("some/model"), "out/sft", is_trainable=True)
trainer = DPOTrainer(model, args=DPOConfig("out/dpo", learning_rate=5e-6), train_dataset=rows, processing_class=tok)
trainer.train()
trainer.save_model({saved!r})
"""
MERGE = """
from peft import AutoPeftModelForCausalLM
AutoPeftModelForCausalLM.from_pretrained({adapter!r}).merge_and_unload().save_pretrained("merged")
"""


@pytest.mark.parametrize(
    ("saved", "adapter", "count"),
    [("out/dpo", "out/sft", 1), ("out/dpo", "out/dpo", 0), ("final", "final", 0)],
)
def test_scripts_that_are_given_together(
    saved: str, adapter: str, count: int, tmp_path: Path
) -> None:
    (tmp_path / "dpo.py").write_text(SCRIPT.format(saved=saved), encoding="utf-8")
    (tmp_path / "merge.py").write_text(MERGE.format(adapter=adapter), encoding="utf-8")
    found = lint([tmp_path / "dpo.py", tmp_path / "merge.py"]).findings
    assert sum(one.rule == "trained-adapter-not-used" for one in found) == count


@pytest.mark.parametrize(
    ("trained", "other", "text", "count"),
    [
        ("alpaca", "chat__yaml", CHAT.format(adapter="out", template="qwen"), 1),
        ("qwen", "chat__yaml", CHAT.format(adapter="out", template="qwen3"), 0),  # the same marks
        ("alpaca", "chat__yaml", CHAT.format(adapter="another", template="qwen"), 0),
        ("llama3", "serve__sh", "vllm serve out --chat-template t/chatml.jinja\n", 1),
        ("llama3", "serve__sh", "vllm serve out --chat-template t/llama-3-tools.jinja\n", 0),
        ("llama3", "serve__sh", "vllm serve out --chat-template t/ours.jinja\n", 0),
        ("llama3", "Modelfile", "FROM ./out.gguf\nTEMPLATE <|im_start|>user {{ .Prompt }}\n", 1),
        ("qwen", "Modelfile", "FROM ./out.gguf\nTEMPLATE <|im_start|>user {{ .Prompt }}\n", 0),
    ],
)
def test_templates_of_training_and_of_serving(
    trained: str, other: str, text: str, count: int, tmp_path: Path
) -> None:
    files = {"run__yaml": training("out", template=trained), other: text}
    found = messages(tmp_path, "served-template-differs", **files)
    assert len(found) == count
    assert all("another one" in message for message in found)


@pytest.mark.parametrize(
    ("base", "count"),
    [
        ("Qwen/Qwen2.5-7B-Instruct", 1),
        ("Qwen/Qwen3-8B", 1),
        ("unsloth/Qwen2.5-7B-bnb-4bit", 0),  # a copy of the same weights
        ("/models/ours", 0),
    ],
)
def test_the_adapter_is_put_on_another_model(base: str, count: int, tmp_path: Path) -> None:
    run = training("saves/faq").replace("some/model", "Qwen/Qwen2.5-7B")
    chat = CHAT.format(adapter="saves/faq", template="qwen").replace("some/model", base)
    serve = f"vllm serve {base} --enable-lora --lora-modules faq=saves/faq/checkpoint-9\n"
    for name, text in (("chat__yaml", chat), ("serve__sh", serve)):
        found = messages(
            tmp_path, "settings-put-adapter-on-another-base", run__yaml=run, **{name: text}
        )
        assert len(found) == count, name


SFT_AND_DPO = {
    "serve.sh": "vllm serve {base} --enable-lora --lora-modules dpo=./dpo\n",
    "job.slurm": "#!/bin/bash\n#SBATCH --gres=gpu:1\nBASE={base}\n"
    'vllm serve "$BASE" --enable-lora --max-lora-rank 64 --lora-modules dpo=dpo\n',
    "compose.yaml": "services:\n  llm:\n    image: vllm/vllm-openai:v0.9.1\n    volumes: [./dpo:/adapters/dpo]\n"
    "    command: [--model, {base}, --enable-lora, --lora-modules, dpo=/adapters/dpo]\n",
    "serve.bash": "python -m vllm.entrypoints.openai.api_server --model {base} --enable-lora \\\n"
    "  --lora-modules dpo=/srv/models/dpo\n",
}


@pytest.mark.parametrize("server", sorted(SFT_AND_DPO))
@pytest.mark.parametrize(
    ("trained", "served", "severity"),
    [
        ("/data/out/sft-merged", "Qwen/Qwen2.5-7B-Instruct", "warning"),
        ("./merged", "Qwen/Qwen2.5-7B", "warning"),
        ("Qwen/Qwen2.5-7B-Instruct", "Qwen/Qwen2.5-7B", "warning"),
        ("Qwen/Qwen2.5-7B", "Qwen/Qwen3-8B", "error"),
        ("Qwen/Qwen2.5-7B", "unsloth/Qwen2.5-7B-bnb-4bit", None),
        ("/data/out/sft-merged", "/srv/sft-merged", None),
        ("/models/Qwen2.5-7B", "Qwen/Qwen2.5-7B", None),
    ],
)
def test_servers_that_put_an_adapter_on_another_base(
    server: str, trained: str, served: str, severity: str | None, tmp_path: Path
) -> None:
    # The folders next to a project are searched as well: here they would be those of other tests.
    project = tmp_path / "project"
    (project / "dpo").mkdir(parents=True)
    config = json.dumps({"base_model_name_or_path": trained, "r": 16})
    (project / "dpo" / "adapter_config.json").write_text(config)
    (project / server).write_text(SFT_AND_DPO[server].replace("{base}", served))
    found = lint([project], select=("server-puts-adapter-on-another-base",)).findings
    assert [one.severity for one in found] == ([severity] if severity else [])


@pytest.mark.parametrize(
    ("names", "count"),
    [
        (("dpo_adapter_config.json",), 1),
        (("adapter_config.json",), 1),
        (("adapter_config.json", "sft_adapter_config.json"), 0),
        (("sft/adapter_config.json",), 0),  # another adapter's folder
    ],
)
def test_an_adapter_file_beside_the_server_under_another_name(
    names: tuple[str, ...], count: int, tmp_path: Path
) -> None:
    for name in names:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text('{"base_model_name_or_path": "./out/sft-merged"}')
    (tmp_path / "serve.sh").write_text(
        "vllm serve Qwen/Qwen2.5-7B --enable-lora --lora-modules dpo=/opt/adapters/dpo\n"
    )
    found = lint([tmp_path], select=("server-puts-adapter-on-another-base",)).findings
    assert len(found) == count


def test_a_training_on_merged_weights_is_served_on_the_base_from_the_hub(tmp_path: Path) -> None:
    run = training("saves/dpo").replace("some/model", "./saves/sft-merged")
    serve = "vllm serve Qwen/Qwen2.5-7B --enable-lora --lora-modules dpo=saves/dpo\n"
    rule = "settings-put-adapter-on-another-base"
    assert len(messages(tmp_path, rule, run__yaml=run, serve__sh=serve)) == 1
    healthy = serve.replace("Qwen/Qwen2.5-7B", "./saves/sft-merged")
    assert not messages(tmp_path, rule, run__yaml=run, serve__sh=healthy)


def test_names_of_one_folder() -> None:
    assert is_same_folder("./saves/dpo/", "saves/dpo")
    assert is_same_folder("/data/run/saves/dpo", "saves/dpo")
    assert not is_same_folder("/data/dpo", "saves/dpo")
    assert is_same_folder("$PWD/saves/dpo", "saves/dpo")
    assert is_same_folder("${SLURM_SUBMIT_DIR}/saves/dpo", "/data/run/saves/dpo")
    assert is_same_folder("$(pwd)/saves/dpo/", "./saves/dpo")
    assert not is_same_folder("$OUT/dpo", "saves/dpo")
    assert not is_same_folder("$OUT", "saves/dpo")
    assert is_same_or_below("saves/dpo/checkpoint-40", "./saves/dpo")
    assert not is_same_or_below("saves/dpo-2", "saves/dpo")


STAGE_TWO = """from peft import LoraConfig, PeftModel
from transformers import AutoModelForCausalLM
from trl import DPOConfig, DPOTrainer

base = AutoModelForCausalLM.from_pretrained("some/model")
model = PeftModel.from_pretrained(base, "out/sft").merge_and_unload()
trainer = DPOTrainer(model, args=DPOConfig(output_dir="out/dpo"), train_dataset=pairs, peft_config=LoraConfig(r=8))
trainer.train()
trainer.save_model("out/dpo")
"""
MERGE_OF_START = """from peft import PeftModel
from transformers import AutoModelForCausalLM

model = AutoModelForCausalLM.from_pretrained("some/model")
model = PeftModel.from_pretrained(model, "out/sft").merge_and_unload()
model.save_pretrained("out/merged")
"""
BOTH = MERGE_OF_START.replace(
    "model.save",
    'model = PeftModel.from_pretrained(model, "out/dpo").merge_and_unload()\nmodel.save',
)
OF_MERGED = {
    "serve__sh": "python merge.py\nvllm serve out/merged --port 8000\n",
    "app__py": 'from vllm import LLM\n\nllm = LLM("out/merged")\nprint(llm.generate("x"))\n',
    "Modelfile": "FROM ./out/merged\n",
    "gguf__sh": "python convert_hf_to_gguf.py out/merged --outfile tone.gguf\nllama-server -m tone.gguf\n",
}


@pytest.mark.parametrize("name", OF_MERGED)
def test_what_serves_a_merge_says_nothing_of_which_adapter_is_in_it(
    name: str, tmp_path: Path
) -> None:
    rule = "trained-adapter-not-used"
    files = {"dpo__py": STAGE_TWO, name: OF_MERGED[name]}
    (message,) = messages(tmp_path, rule, merge__py=MERGE_OF_START, **files)
    assert "merge.py loads out/sft, from which the run started" in message
    assert messages(tmp_path, rule, merge__py=BOTH, **files) == []


def test_an_adapter_on_top_of_a_merged_one_is_merged_second(tmp_path: Path) -> None:
    (tmp_path / "dpo.py").write_text(STAGE_TWO, encoding="utf-8")
    (tmp_path / "merge.py").write_text(MERGE_OF_START, encoding="utf-8")
    (finding,) = lint([str(tmp_path)], select=["trained-adapter-not-used"]).findings
    assert finding.remedy.index("out/sft") < finding.remedy.index("out/dpo")
    # The same adapter, trained on: its folder holds all of it.
    alone = STAGE_TWO.replace(").merge_and_unload()", ", is_trainable=True)")
    alone = alone.replace(", peft_config=LoraConfig(r=8)", "")
    (tmp_path / "dpo.py").write_text(alone, encoding="utf-8")
    (finding,) = lint([str(tmp_path)], select=["trained-adapter-not-used"]).findings
    assert finding.remedy == "name out/dpo in merge.py"


SFT_BY_COMMAND = (
    "trl sft --model_name_or_path {base} --dataset_name a --output_dir runs/sft --max_length 2048\n"
)
DPO_BY_COMMAND = "trl dpo --model_name_or_path {start} --dataset_name b --output_dir runs/dpo --max_length 2048\n"


@pytest.mark.parametrize(("start", "count"), [("some/base", 1), ("runs/sft", 0), ("else/other", 0)])
def test_stages_of_shell_scripts_in_one_folder(start: str, count: int, tmp_path: Path) -> None:
    (tmp_path / "sft.sh").write_text(SFT_BY_COMMAND.format(base="some/base"), encoding="utf-8")
    (tmp_path / "dpo.sh").write_text(DPO_BY_COMMAND.format(start=start), encoding="utf-8")
    found = truetune.check([str(tmp_path)]).findings
    assert [one.rule for one in found].count("preference-run-ignores-sft-beside-it") == count


COMMON = "from pathlib import Path\nBASE = 'some/base'\nRUNS = Path('runs')\nSFT = RUNS / 'sft'\nDPO = RUNS / 'dpo'\n"
STAGE = """
from common import BASE, DPO, SFT
from transformers import AutoModelForCausalLM
from trl import {kind}Config, {kind}Trainer
model = AutoModelForCausalLM.from_pretrained({start})
{kind}Trainer(model, args={kind}Config(str({out}), max_length=2048), train_dataset=rows).train()
"""


@pytest.mark.parametrize(("start", "count"), [("BASE", 1), ("SFT", 0), ("f'{SFT}'", 0)])
def test_stages_that_share_a_module_of_names(start: str, count: int, tmp_path: Path) -> None:
    (tmp_path / "common.py").write_text(COMMON, encoding="utf-8")
    sft = STAGE.format(kind="SFT", start="BASE", out="SFT")
    (tmp_path / "one.py").write_text(sft, encoding="utf-8")
    dpo = STAGE.format(kind="DPO", start=start, out="DPO")
    (tmp_path / "two.py").write_text(dpo, encoding="utf-8")
    found = truetune.check([str(tmp_path)]).findings
    assert [one.rule for one in found].count("preference-run-ignores-sft-beside-it") == count


MERGE_BY_OPTIONS = """
import argparse
from peft import PeftModel
from transformers import AutoModelForCausalLM
parser = argparse.ArgumentParser()
parser.add_argument("--base", default="Qwen/Qwen2.5-7B")
parser.add_argument("--adapter", required=True)
options = vars(parser.parse_args())
base = AutoModelForCausalLM.from_pretrained(options["base"])
PeftModel.from_pretrained(base, options["adapter"]).merge_and_unload().save_pretrained("out/final")
"""


@pytest.mark.parametrize(("more", "count"), [("", 1), ("--base out/sft-merged", 0)])
def test_a_merge_whose_names_a_command_gives(more: str, count: int, tmp_path: Path) -> None:
    train = (
        "trl dpo --model_name_or_path out/sft-merged --dataset_name b --output_dir out/dpo --use_peft"
        " --max_length 2048\n"
    )
    command = f"python merge.py --adapter out/dpo {more}\n"
    (tmp_path / "dpo.sh").write_text(train + command, encoding="utf-8")
    (tmp_path / "merge.py").write_text(MERGE_BY_OPTIONS, encoding="utf-8")
    found = truetune.check([str(tmp_path)]).findings
    assert [one.rule for one in found].count("settings-put-adapter-on-another-base") == count


@pytest.mark.parametrize(
    ("trained", "severity"),
    [("./merged", "warning"), ("merged", "warning"), ("out/merged", "error")],
)
def test_a_folder_of_the_project_next_door_is_another_one(
    trained: str, severity: str, tmp_path: Path
) -> None:
    """Two projects side by side both have `merged`; `out/merged` is a path from the folder above both."""
    mine, other = tmp_path / "mine", tmp_path / "other"
    (mine / "dpo").mkdir(parents=True)
    other.mkdir()
    config = json.dumps({"base_model_name_or_path": trained, "r": 16})
    (mine / "dpo" / "adapter_config.json").write_text(config)
    (mine / "serve.sh").write_text(SFT_AND_DPO["serve.sh"].replace("{base}", "Qwen/Qwen2.5-7B"))
    (other / "export.yaml").write_text(
        "model_name_or_path: Qwen/Qwen2.5-7B\nadapter_name_or_path: out/sft\nfinetuning_type: lora\n"
        f"export_dir: {trained}\n"
    )
    found = lint([mine], select=("server-puts-adapter-on-another-base",)).findings
    assert [one.severity for one in found] == [severity]
