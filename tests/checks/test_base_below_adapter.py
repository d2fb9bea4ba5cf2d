"""An adapter of a second stage on the model that the first stage began with, in every form of putting it on."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import truetune

HUB = "Qwen/Qwen2.5-7B-Instruct"
BASE = "work/first-stage"
MERGE = f"""
from peft import PeftModel
from transformers import AutoModelForCausalLM
base = AutoModelForCausalLM.from_pretrained("{HUB}")
model = PeftModel.from_pretrained(base, "work/sft-lora").merge_and_unload()
model.save_pretrained("{BASE}")
"""
EXPORT = f"model_name_or_path: {HUB}\nadapter_name_or_path: work/sft-lora\ntemplate: qwen\nexport_dir: {BASE}\n"
FULL = f"""
from trl import SFTConfig, SFTTrainer
args = SFTConfig("{BASE}", learning_rate=1e-5)
SFTTrainer("{HUB}", args=args, train_dataset=rows).train()
"""
LOAD = """
from peft import PeftModel
from transformers import AutoModelForCausalLM
base = AutoModelForCausalLM.from_pretrained("{base}")
model = PeftModel.from_pretrained(base, "work/dpo")
print(model.generate(**inputs))
"""
JSON_MODULE = '{"name": "dpo", "path": "work/dpo"}'
PUTS_ON = {
    "vllm": ("serve.sh", "vllm serve {base} --enable-lora --lora-modules dpo=work/dpo\n"),
    "vllm, JSON": ("serve.sh", "vllm serve {base} --enable-lora --lora-modules '" + JSON_MODULE + "'\n"),
    "compose": (
        "compose.yaml",
        "services:\n  llm:\n    image: vllm/vllm-openai:latest\n"
        "    command: --model {base} --enable-lora --lora-modules dpo=work/dpo\n",
    ),
    "sglang": (
        "serve.sh",
        "python -m sglang.launch_server --model-path {base} --lora-paths dpo=work/dpo\n",
    ),
    "vllm in a container": (
        "serve.sh",
        "docker run --gpus all -v $PWD/work:/models vllm/vllm-openai:v0.9.2 --model {mounted} --enable-lora"
        " --lora-modules dpo=/models/dpo\n",
    ),
    "sglang in a container": (
        "serve.sh",
        'podman run --mount type=bind,source="$(pwd)/work",target=/m lmsysorg/sglang:latest python3 -m'
        " sglang.launch_server --model-path {base} --lora-paths dpo=/m/dpo\n",
    ),
    "tgi in a container": (
        "serve.sh",
        "docker run -v ./work:/data ghcr.io/huggingface/text-generation-inference:3.3 --model-id {base}"
        " --lora-adapters dpo=/data/dpo\n",
    ),
    "compose with a volume": (
        "compose.yaml",
        "services:\n  llm:\n    image: vllm/vllm-openai:latest\n    volumes:\n      - type: bind\n"
        "        source: ./work\n        target: /w\n"
        "    command: --model {base} --enable-lora --lora-modules dpo=/w/dpo\n",
    ),
    "script": ("ask.py", LOAD),
    "merge": ("merge.py", LOAD.replace("print(", "model.merge_and_unload().save_pretrained('out')\nprint(")),
    "llama-factory": (
        "export.yaml",
        "model_name_or_path: {base}\nadapter_name_or_path: work/dpo\ntemplate: qwen\nexport_dir: out\n",
    ),
    "modelfile": ("Modelfile", "FROM {base}\nADAPTER work/dpo\n"),
    "options of a merge": ("go.sh", "python put_on.py --base_model {base} --lora work/dpo --out out\n"),
}  # fmt: skip
PUT_ON = "import sys\nfrom peft import PeftModel\nmodel = PeftModel.from_pretrained(load(sys.argv), sys.argv[4])\n"
RULES = [
    "server-puts-adapter-on-another-base",
    "script-puts-adapter-on-another-base",
    "settings-put-adapter-on-another-base",
    "modelfile-adapter-on-another-base",
]


def found(
    folder: Path, form: str, base: str, trained: str = BASE, **writers: str
) -> list[tuple[str, int]]:
    (folder / "work" / "dpo").mkdir(parents=True)
    config = {"base_model_name_or_path": trained, "peft_type": "LORA", "r": 16}
    (folder / "work" / "dpo" / "adapter_config.json").write_text(json.dumps(config))
    name, text = PUTS_ON[form]
    mounted = base.replace("work/", "/models/") if base.startswith("work/") else base
    text = text.replace("{base}", base).replace("{mounted}", mounted)
    (folder / name).write_text(text, encoding="utf-8")
    (folder / "put_on.py").write_text(PUT_ON, encoding="utf-8")
    for stem, content in writers.items():
        suffix = "yaml" if content is EXPORT else "py"
        (folder / f"{stem}.{suffix}").write_text(content, encoding="utf-8")
    paths = [str(path) for path in sorted(folder.iterdir()) if path.is_file()]
    report = truetune.check(paths, select=RULES, allow_unjudged=True)
    return [(finding.severity, len(finding.cases)) for finding in report.findings]


@pytest.mark.parametrize("form", PUTS_ON)
def test_the_first_stage_is_missing(tmp_path: Path, form: str) -> None:
    assert found(tmp_path, form, HUB, prepare=MERGE) == [("error", 3)]


@pytest.mark.parametrize("writer", [EXPORT, FULL])
@pytest.mark.parametrize("form", ["vllm", "script", "llama-factory"])
def test_whatever_wrote_the_first_stage(tmp_path: Path, form: str, writer: str) -> None:
    assert found(tmp_path, form, HUB, prepare=writer) == [("error", 3)]


@pytest.mark.parametrize("form", PUTS_ON)
def test_the_right_base(tmp_path: Path, form: str) -> None:
    assert found(tmp_path, form, BASE, prepare=MERGE) == []


@pytest.mark.parametrize("form", PUTS_ON)
def test_an_adapter_of_the_hub_model(tmp_path: Path, form: str) -> None:
    assert found(tmp_path, form, HUB, trained=HUB, prepare=MERGE) == []


@pytest.mark.parametrize("form", ["vllm", "script", "llama-factory"])
def test_a_folder_that_holds_the_model_itself(tmp_path: Path, form: str) -> None:
    # A folder of a download: nothing in sight changes its weights.
    assert found(tmp_path, form, HUB, trained="/models/qwen") == []


@pytest.mark.parametrize("form", ["vllm", "script"])
def test_a_base_by_its_absolute_path(tmp_path: Path, form: str) -> None:
    assert found(tmp_path, form, f"/srv/agent/{BASE}", prepare=MERGE) == []


def test_a_folder_called_so_is_suspected(tmp_path: Path) -> None:
    assert found(tmp_path, "vllm", HUB, trained="work/sft-merged") == [("warning", 2)]


def test_a_name_of_the_hub_may_be_called_so(tmp_path: Path) -> None:
    assert found(tmp_path, "vllm", HUB, trained="somebody/Qwen2.5-7B-sft") == []


def test_without_the_file_of_the_adapter_the_training_says_its_base(tmp_path: Path) -> None:
    train = f"""
from peft import LoraConfig
from trl import DPOConfig, DPOTrainer
args = DPOConfig(output_dir="work/dpo", learning_rate=5e-6)
DPOTrainer(model="{BASE}", args=args, train_dataset=rows, peft_config=LoraConfig(r=8)).train()
"""
    (tmp_path / "dpo.py").write_text(train, encoding="utf-8")
    (tmp_path / "merge.py").write_text(MERGE, encoding="utf-8")
    serve = PUTS_ON["vllm"][1].replace("{base}", HUB)
    (tmp_path / "serve.sh").write_text(serve, encoding="utf-8")
    report = truetune.check([str(tmp_path)], select=RULES, allow_unjudged=True)
    (finding,) = report.findings
    assert (finding.severity, finding.rule) == ("error", "settings-put-adapter-on-another-base")
