"""Scripts that generate after their training, in training mode or not, and models that overflow in float16."""

from __future__ import annotations

from pathlib import Path

import pytest

from truetune.checks.lint import lint

TRAINING = """
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import SFTConfig, SFTTrainer
tokenizer = AutoTokenizer.from_pretrained("some/base")
model = AutoModelForCausalLM.from_pretrained("some/base")
def ask(text):
    return model.generate(**tokenizer(text, return_tensors="pt"), max_new_tokens=9)
args = SFTConfig("out", {settings})
trainer = SFTTrainer(model, args=args, train_dataset=rows)
trainer.train()
{after}
"""
ON = "gradient_checkpointing=True"
SLOW = [(ON, "ask(1)"), (ON, "model = trainer.model\nfor row in rows:\n    ask(row)")]
QUICK = [
    ("gradient_checkpointing=False", "ask(1)"),
    ("", "ask(1)"),
    (ON, "model.eval()\nask(1)"),
    (ON, "model.gradient_checkpointing_disable()\nask(1)"),
    (ON + ", eval_strategy='epoch'", "ask(1)"),
    (ON, "print(trainer.evaluate())\nask(1)"),
    (ON, "model = AutoModelForCausalLM.from_pretrained('out')\nask(1)"),
    (ON, "trainer.save_model()"),
]


def said(folder: Path, code: str, rule: str) -> list[str]:
    path = folder / "job.py"
    path.write_text(code, encoding="utf-8")
    return [finding.message for finding in lint([path], select=[rule]).findings]


@pytest.mark.parametrize(("settings", "after"), SLOW)
def test_generation_in_training_mode_has_no_cache(
    settings: str, after: str, tmp_path: Path
) -> None:
    code = TRAINING.format(settings=settings, after=after)
    (message,) = said(tmp_path, code, "kv-cache-left-off")
    assert "do not use the key-value cache" in message


@pytest.mark.parametrize(("settings", "after"), QUICK)
def test_generation_with_its_cache_is_left_alone(settings: str, after: str, tmp_path: Path) -> None:
    code = TRAINING.format(settings=settings, after=after)
    assert said(tmp_path, code, "kv-cache-left-off") == []


ANSWER = """
import torch
from transformers import AutoModelForCausalLM, AutoModelForSeq2SeqLM, AutoTokenizer, pipeline
tokenizer = AutoTokenizer.from_pretrained("some/base")
model = {model}
out = model.generate(**tokenizer("Hi", return_tensors="pt"), max_new_tokens=9)
"""
LOAD = 'AutoModelForCausalLM.from_pretrained("{}", dtype={})'
OVERFLOWS = [
    LOAD.format("google/gemma-3-1b-it", "torch.float16"),
    LOAD.format("/srv/gemma3-4b-tickets", "'float16'") + ".to('cuda').eval()",
    LOAD.format("gemma-3-4b-merged", "torch.bfloat16") + ".half()",
    LOAD.format("tuned", "torch.float16"),
    'AutoModelForSeq2SeqLM.from_pretrained("google/flan-t5-large").half()',
]
FITS = [
    LOAD.format("google/gemma-3-1b-it", "torch.bfloat16"),
    LOAD.format("google/gemma-3-1b-it", "torch.float16") + ".float()",
    LOAD.format("google/gemma-2b-it", "torch.float16"),
    LOAD.format("Qwen/Qwen2.5-7B-Instruct", "torch.float16"),
    'AutoModelForSeq2SeqLM.from_pretrained("google/flan-t5-large", dtype=torch.float16)',
]


@pytest.mark.parametrize("model", OVERFLOWS)
def test_a_family_that_overflows_in_float16_is_found(model: str, tmp_path: Path) -> None:
    (tmp_path / "tuned").mkdir()
    (tmp_path / "tuned" / "config.json").write_text('{"model_type": "gemma3_text"}')
    (message,) = said(tmp_path, ANSWER.format(model=model), "generation-overflows-float16")
    assert "generates in float16" in message


@pytest.mark.parametrize("model", FITS)
def test_what_stays_in_range_is_left_alone(model: str, tmp_path: Path) -> None:
    assert said(tmp_path, ANSWER.format(model=model), "generation-overflows-float16") == []


TRAINING_OF_FOLDER = """
import torch
from transformers import AutoModelForCausalLM
from trl import SFTConfig, SFTTrainer
model = AutoModelForCausalLM.from_pretrained("{base}", dtype=torch.bfloat16)
trainer = SFTTrainer(model, args=SFTConfig(output_dir="runs/desk", bf16=True), train_dataset=rows)
trainer.train()
trainer.model.merge_and_unload().save_pretrained("runs/desk-merged")
"""


@pytest.mark.parametrize(
    ("base", "folder", "dtype", "is_found"),
    [
        ("google/gemma-3-1b-it", "runs/desk-merged", "torch.float16", True),
        ("google/gemma-3-1b-it", "./runs/desk/checkpoint-40", "torch.float16", True),
        ("google/gemma-3-1b-it", "runs/desk-merged", "torch.bfloat16", False),
        ("Qwen/Qwen2.5-7B-Instruct", "runs/desk-merged", "torch.float16", False),
        ("google/gemma-3-1b-it", "other/model", "torch.float16", False),
    ],
)
def test_the_base_of_a_folder_that_a_training_wrote_counts(
    base: str, folder: str, dtype: str, is_found: bool, tmp_path: Path
) -> None:
    (tmp_path / "train.py").write_text(TRAINING_OF_FOLDER.format(base=base), encoding="utf-8")
    code = ANSWER.format(model=LOAD.format(folder, dtype))
    assert bool(said(tmp_path, code, "generation-overflows-float16")) is is_found


def test_a_merge_is_followed_to_the_base_of_its_adapter(tmp_path: Path) -> None:
    training = TRAINING_OF_FOLDER.format(base="google/gemma-3-1b-it").rpartition("trainer.model")[0]
    (tmp_path / "train.py").write_text(training, encoding="utf-8")
    (tmp_path / "merge.py").write_text(
        "from peft import AutoPeftModelForCausalLM\n"
        'model = AutoPeftModelForCausalLM.from_pretrained("runs/desk")\n'
        'model.merge_and_unload().save_pretrained("merged")\n',
        encoding="utf-8",
    )
    code = ANSWER.format(model=LOAD.format("merged", "torch.float16"))
    assert said(tmp_path, code, "generation-overflows-float16")


DECODING = """
import torch
from transformers import AutoModelForCausalLM
model = AutoModelForCausalLM.from_pretrained("some/base")
past = None
for _ in range(99):
{}
"""
AGAIN = [
    "    new = model(ids).logits[:, -1:].argmax(-1)\n    ids = torch.cat([ids, new], dim=1)",
    "    out = model(input_ids=ids)\n    ids = torch.cat((ids, out.logits[:, -1:].argmax(-1)), -1)",
]
KEPT = [
    "    out = model(new, past_key_values=past)\n    ids = torch.cat([ids, new], dim=1)",
    "    out = model(ids[:, -1:])\n    ids = torch.cat([ids, out.logits[:, -1:].argmax(-1)], dim=1)",
    "    loss = model(ids).loss\n    losses = torch.cat([losses, loss[None]])",
    "    ids = torch.cat([ids, mask], dim=1)[:, :9]\n    out = model(ids, **kwargs)",
]


@pytest.mark.parametrize("body", AGAIN)
def test_a_decoding_loop_without_a_cache_is_found(body: str, tmp_path: Path) -> None:
    (message,) = said(tmp_path, DECODING.format(body), "kv-cache-left-off")
    assert "keeps no past_key_values" in message


@pytest.mark.parametrize("body", KEPT)
def test_a_decoding_loop_with_a_cache_is_left_alone(body: str, tmp_path: Path) -> None:
    assert said(tmp_path, DECODING.format(body), "kv-cache-left-off") == []


@pytest.mark.parametrize(
    ("arguments", "severity"),
    [
        ("max_num_seqs=1", "warning"),
        ("cpu_offload_gb=8, enforce_eager=True", "warning"),
        ("dtype='float32'", "warning"),
        ("enforce_eager=True", "info"),
        ("max_num_seqs=64, cpu_offload_gb=0, dtype='bfloat16', enforce_eager=False", None),
        ("max_num_seqs=count, quantization='awq_marlin'", None),
    ],
)
def test_engines_that_answer_slowly(arguments: str, severity: str | None, tmp_path: Path) -> None:
    path = tmp_path / "answer.py"
    path.write_text(f"from vllm import LLM\nllm = LLM('m', {arguments})\nllm.generate(rows)\n")
    found = lint([path], select=["vllm-engine-arguments-slow-generation"]).findings
    assert [one.severity for one in found] == ([severity] if severity else [])


LOADED_OFF = """
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments
settings = dict({settings})
model = AutoModelForCausalLM.from_pretrained("m", **settings)
trainer = Trainer(model=model, args=TrainingArguments("out"))
trainer.train()
{behind}
"""


@pytest.mark.parametrize(
    ("settings", "behind", "found"),
    [
        ("use_cache=False", "model.generate(**inputs, max_new_tokens=90)", True),
        ("use_cache=False", "trainer.model.generate(ids, max_new_tokens=90)", True),
        ("use_cache=False", "model.config.use_cache = False\nmodel.generate(ids)", True),
        ("use_cache=False", "model.generate(ids, use_cache=True)", False),
        ("use_cache=False", "model.generation_config.use_cache = True\nmodel.generate(ids)", False),
        ("use_cache=False", "model.save_pretrained('out')", False),
        ("use_cache=bool(input())", "model.generate(ids)", False),
        ("", "model.config.use_cache = False\nmodel.eval()\nmodel.generate(ids)", False),
    ],
)
def test_a_load_without_cache(settings: str, behind: str, found: bool, tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    path.write_text(LOADED_OFF.format(settings=settings, behind=behind), encoding="utf-8")
    assert bool(lint([path], select=["kv-cache-left-off"]).findings) == found


GIVEN_MODEL = """
def train(model, tok, loader, opt):
    model.gradient_checkpointing_enable()
    model.train()
    for step, batch in enumerate(loader):
        model(**batch).loss.backward()
        opt.step()
        opt.zero_grad()
        if step % 200 == 0:
            show(model, tok)


def show({name}, tok):
{body}
"""


@pytest.mark.parametrize(
    ("name", "body", "found"),
    [
        ("model", "    print(model.generate(**tok('a', return_tensors='pt')))", True),
        ("net", "    print(net.generate(**tok('a', return_tensors='pt')))", True),
        (
            "model",
            "    model.eval()\n    print(model.generate(**tok('a', return_tensors='pt')))\n    model.train()",
            False,
        ),
        # a server, and no model of this process
        ("engine", "    print(engine.generate('a'))", False),
    ],
)
def test_a_model_that_a_loop_is_given_generates_without_its_cache(
    name: str, body: str, found: bool, tmp_path: Path
) -> None:
    text = GIVEN_MODEL.format(name=name, body=body)
    assert bool(said(tmp_path, text, "kv-cache-left-off")) == found


HOOKS = """
import lightning as L
import torch
from transformers import AutoModelForCausalLM, Trainer, TrainerCallback, TrainingArguments

class Tuned(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.model = AutoModelForCausalLM.from_pretrained("some/base")
        self.model.gradient_checkpointing_enable()
    def on_train_start(self):
        {start}
    def training_step(self, batch, _):
        return self.model(**batch).loss

def write(model, ids):
    return model.generate(ids, max_new_tokens=512)

{code}
"""
IN_HOOKS = {
    "callback": """
class Samples(L.Callback):
    def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
        module.model.generate(batch["input_ids"], max_new_tokens=512)
""",
    "helper method": """
class Samples(L.pytorch.Callback):
    def on_train_epoch_end(self, trainer, module):
        self.show(module)
    def show(self, module):
        with torch.inference_mode():
            print(module.model.generate(self.ids))
""",
    "helper function": """
class Samples(TrainerCallback):
    def on_step_end(self, args, state, control, model=None, **kwargs):
        if state.global_step % 100 == 0:
            print(write(model, self.ids))
""",
    "module": """
class Other(Tuned):
    pass
class Whole(L.LightningModule):
    def training_step(self, batch, index):
        if index % 500 == 0:
            print(self.model.generate(batch["input_ids"]))
        return self.model(**batch).loss
""",
    "trainer": """
class Mine(Trainer):
    def training_step(self, model, inputs, *rest):
        print(model.generate(inputs["input_ids"]))
        return super().training_step(model, inputs, *rest)
""",
}
NOT_IN_TRAINING = {
    "eval around it": """
class Samples(L.Callback):
    def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
        module.model.eval()
        module.model.generate(batch["input_ids"], max_new_tokens=512)
        module.model.train()
""",
    "a context of its own": """
from contextlib import contextmanager
@contextmanager
def evaluating(model):
    model.eval()
    yield
    model.train()
class Samples(TrainerCallback):
    def on_step_end(self, args, state, control, model=None, **kwargs):
        with evaluating(model):
            model.generate(self.ids)
""",
    "validation": """
class Samples(L.Callback):
    def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
        self.step = trainer.global_step
    def on_validation_epoch_end(self, trainer, module):
        module.model.generate(self.ids)
    def validation_step(self, batch, _):
        self.model.generate(batch["input_ids"])
""",
    "on_evaluate": """
class Samples(TrainerCallback):
    def on_step_end(self, args, state, control, **kwargs):
        self.step = state.global_step
    def on_evaluate(self, args, state, control, model=None, **kwargs):
        model.generate(self.ids)
""",
    "another model": """
class Samples(TrainerCallback):
    def __init__(self):
        self.other = AutoModelForCausalLM.from_pretrained("some/judge")
    def on_step_end(self, args, state, control, model=None, **kwargs):
        self.other.generate(self.ids)
""",
}


@pytest.mark.parametrize("code", IN_HOOKS.values(), ids=IN_HOOKS)
def test_a_hook_that_generates_in_training_mode_is_found(code: str, tmp_path: Path) -> None:
    text = HOOKS.format(start="self.model.train()", code=code)
    (message,) = said(tmp_path, text, "kv-cache-left-off")
    assert "while the model trains with gradient checkpointing" in message


@pytest.mark.parametrize("code", NOT_IN_TRAINING.values(), ids=NOT_IN_TRAINING)
def test_a_hook_in_eval_mode_is_left_alone(code: str, tmp_path: Path) -> None:
    text = HOOKS.format(start="self.model.train()", code=code)
    assert said(tmp_path, text, "kv-cache-left-off") == []


def test_lightning_leaves_a_loaded_model_in_eval_mode(tmp_path: Path) -> None:
    text = HOOKS.format(start="print('start')", code=IN_HOOKS["callback"])
    assert said(tmp_path, text, "kv-cache-left-off") == []
