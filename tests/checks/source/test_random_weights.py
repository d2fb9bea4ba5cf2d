"""Which models are trained from random weights by mistake, and which on purpose."""

from __future__ import annotations

import pytest

from truetune.checks.rule_catalogue import find_rule
from truetune.checks.rule_runner import run_rule
from truetune.parsing.shell_commands import parse_command_file
from truetune.source.parsed_source_file import parse_module

HEAD = """
import torch
from peft import LoraConfig, get_peft_model
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, LlamaForCausalLM, Trainer
from trl import DPOTrainer, SFTTrainer
from safetensors.torch import load_file
NAME = "Qwen/Qwen2.5-1.5B"
config = AutoConfig.from_pretrained(NAME)
"""
SFT = "SFTTrainer(model=model, train_dataset=rows).train()\n"
PLAIN = "Trainer(model=model, train_dataset=rows).train()\n"
LOOP = """
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-5)
for batch in loader:
    model(**batch).loss.backward()
    optimizer.step()
"""
FROM_CONFIG = "model = AutoModelForCausalLM.from_config(config)\n"
RANDOM = {
    "trl": FROM_CONFIG + SFT,
    "cache off": "config.use_cache = False\n" + FROM_CONFIG + SFT,
    "set by a helper": (
        "def make(config, **more):\n    for key, value in more.items():\n        setattr(config, key, value)\n"
        "    return AutoModelForCausalLM.from_config(config)\nmodel = make(config, use_cache=False)\n"
    )
    + SFT,
    "adapter": FROM_CONFIG + "model = get_peft_model(model, LoraConfig(r=8))\n" + PLAIN,
    "chat model in a loop": (
        "config = AutoConfig.from_pretrained('meta-llama/Llama-3.2-1B-Instruct')\n"
        "model = LlamaForCausalLM(config).to('cuda')" + LOOP
    ),
    "rows of questions": (
        "rows = rows.map(lambda row: tok(row['instruction'] + row['response']))\n" + FROM_CONFIG
    )
    + PLAIN,
    "model_init": (
        "def make():\n    return AutoModelForCausalLM.from_config(config)\n"
        "rows = rows.map(lambda row: tok.apply_chat_template(row['chat']))\n"
        "Trainer(model_init=make, train_dataset=rows).train()\n"
    ),
    "config of a loaded model": (
        "base = AutoModelForCausalLM.from_pretrained(NAME, device_map='auto')\n"
        "model = AutoModelForCausalLM.from_config(base.config)\nDPOTrainer(model).train()\n"
    ),
}
MEANT = {
    "weights loaded": FROM_CONFIG + "model.load_state_dict(load_file('w.safetensors'))\n" + SFT,
    "weights copied": FROM_CONFIG
    + "for one, other in zip(model.parameters(), base.parameters()):\n    one.data.copy_(other)\n"
    + SFT,
    "dispatched": "import accelerate\n"
    + FROM_CONFIG
    + "model = accelerate.load_checkpoint_and_dispatch(model, 'folder')\n"
    + SFT,
    "resumed": FROM_CONFIG + SFT.replace("train()", "train(resume_from_checkpoint='out/c-5')"),
    "own sizes": "config.num_hidden_layers = 4\n" + FROM_CONFIG + SFT,
    "own sizes by a helper": "for key, value in {'num_hidden_layers': 4}.items():\n    setattr(config, key, value)\n"
    + FROM_CONFIG
    + SFT,
    "own sizes by any name": "for key, value in given.items():\n    setattr(config, key, value)\n"
    + FROM_CONFIG
    + SFT,
    "own sizes at the load": "config = AutoConfig.from_pretrained(NAME, n_layer=2)\n"
    + FROM_CONFIG
    + SFT,
    "own vocabulary": "tok = AutoTokenizer.from_pretrained('./tok')\n" + FROM_CONFIG + SFT,
    "said": "# Train from scratch, as a comparison\n" + FROM_CONFIG + SFT,
    "chosen": "model = AutoModelForCausalLM.from_pretrained(NAME)\nif new:\n    "
    + FROM_CONFIG
    + SFT,
    "plain texts": "rows = rows.map(lambda row: tok(row['text']))\n" + FROM_CONFIG + PLAIN,
    "never trained": FROM_CONFIG + "print(sum(one.numel() for one in model.parameters()))\n",
}
COMMAND = "python run_clm.py --tokenizer_name gpt2 --train_file a.txt --output_dir out {}\n"
JOBS = {
    "config, and the job says fine-tune": ("# fine-tune on tickets\n", "--config_name gpt2", 1),
    "config of a chat model": ("", "--config_name meta-llama/Llama-3.2-1B-Instruct", 1),
    "type": ("", "--model_type gpt2 --run_name tickets-sft", 1),
    "variable": ("CFG=Qwen/Qwen2.5-0.5B-Instruct\n", "--config_name $CFG", 1),
    "said": ("# from scratch, to compare with fine-tuning\n", "--config_name gpt2", 0),
    "nothing says what it is": ("", "--config_name gpt2", 0),
    "model too": ("# fine-tune\n", "--config_name gpt2 --model_name_or_path gpt2", 0),
    "own sizes": ("# fine-tune\n", "--model_type gpt2 --config_overrides n_layer=2", 0),
    "more options": ("# fine-tune\n", '--config_name gpt2 "$@"', 0),
}


def count_findings(text: str) -> int:
    rule = find_rule("random-weights-trained")
    return len(run_rule(parse_module(HEAD + text, "train.py"), rule).findings)


@pytest.mark.parametrize("text", RANDOM.values(), ids=RANDOM)
def test_random_weights_are_found(text: str) -> None:
    assert count_findings(text) == 1
    assert count_findings(text.replace("from_config(", "from_pretrained(NAME, config=")) == (
        "LlamaForCausalLM(" in text
    )


@pytest.mark.parametrize("text", MEANT.values(), ids=MEANT)
def test_what_is_meant_or_gets_weights_is_left_alone(text: str) -> None:
    assert count_findings(text) == 0


@pytest.mark.parametrize(("head", "options", "count"), JOBS.values(), ids=JOBS)
def test_jobs_without_weights(head: str, options: str, count: int) -> None:
    file = parse_command_file(head + COMMAND.format(options), "job.sh")
    assert len(run_rule(file, find_rule("job-trains-random-weights")).findings) == count
