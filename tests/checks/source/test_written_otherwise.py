"""Common faults in programs that are written otherwise: in classes, in several files, through other APIs.

Beside each stand near misses: the same words, and no fault.
"""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent

import pytest

from truetune.checks.lint import lint

LOAD = """
import torch, transformers, peft
import torch.nn.functional as F
from torch.utils.data import DataLoader
from functools import partial
tok = transformers.AutoTokenizer.from_pretrained("meta-llama/Llama-3.2-1B")
model = transformers.AutoModelForCausalLM.from_pretrained("meta-llama/Llama-3.2-1B")
"""


def severities(folder: Path, rule: str, **files: str) -> list[str]:
    """The severities of what a rule says of files that are given together, by their names."""
    for name, text in files.items():
        (folder / f"{name}.py").write_text(dedent(text))
    paths = [folder / f"{name}.py" for name in files]
    return [finding.severity for finding in lint(paths, select=[rule]).findings]


PAD = "pad-equals-eos-lm-collator"


@pytest.mark.parametrize(
    "masking",
    [
        "labels = ids.masked_fill(ids.eq(tok.pad_token_id), -100)",
        "labels = torch.where(torch.ne(ids, tok.pad_token_id), ids, -100)",
        "for i, t in enumerate(ids):\n    if t == tok.pad_token_id:\n        labels[i] = -100",
        "batch = {'input_ids': ids, 'labels': [t if t != tok.pad_token_id else -100 for t in ids]}",
    ],
)
def test_masks_by_the_id_of_the_pad(masking: str, tmp_path: Path) -> None:
    text = LOAD + "tok.pad_token = tok.eos_token\n" + masking
    assert severities(tmp_path, PAD, train=text) == ["error"]


@pytest.mark.parametrize(
    "text",
    [
        "labels[labels == tok.eos_token_id] = -100",
        "end = tok.eos_token_id\nlabels = ids.masked_fill(ids.eq(end), -100)",
        "loss = F.cross_entropy(logits, ids, ignore_index=tok.eos_token_id)",
    ],
)
def test_labels_masked_by_the_id_of_eos(text: str, tmp_path: Path) -> None:
    assert severities(tmp_path, PAD, train=LOAD + text) == ["error"]


@pytest.mark.parametrize(
    ("name", "pad", "expected"),
    [
        ("meta-llama/Llama-3.2-3B-Instruct", "<|eot_id|>", ["error"]),
        ("Qwen/Qwen2.5-7B-Instruct", "<|im_end|>", ["error"]),
        ("meta-llama/Llama-3.2-3B-Instruct", "<|finetune_right_pad_id|>", []),
        ("Qwen/Qwen2.5-7B-Instruct", "<|endoftext|>", []),
        ("meta-llama/Llama-3.2-3B", "<|eot_id|>", []),
    ],
)
def test_pad_that_is_the_eos_of_its_model(
    name: str, pad: str, expected: list[str], tmp_path: Path
) -> None:
    text = f"tok = transformers.AutoTokenizer.from_pretrained('{name}', pad_token='{pad}')\n"
    masking = "labels[labels == tok.pad_token_id] = -100"
    assert severities(tmp_path, PAD, train=LOAD + text + masking) == expected


@pytest.mark.parametrize(
    "text",
    [
        "batch = {'attention_mask': ids.ne(tok.pad_token_id), 'labels': labels.masked_fill(keep, -100)}",
        "row = {'attention_mask': ids != tok.pad_token_id, 'labels': [-100] * n + answer}",
        "n = ids.ne(tok.eos_token_id).sum()",
        "if ids[-1] != tok.eos_token_id:\n    ids.append(tok.eos_token_id)\n    labels = [-100] * n + ids[n:]",
    ],
)
def test_ids_are_compared_and_no_label_is_masked_by_them(text: str, tmp_path: Path) -> None:
    assert severities(tmp_path, PAD, train=LOAD + "tok.pad_token = tok.eos_token\n" + text) == []


COPY = "labels-copy-input-ids"
COLLATE = """
def collate(rows):
    return tok([row["text"] for row in rows], padding=True, return_tensors="pt")
class Collator:
    def __init__(self, tok):
        self.tok = tok
    def __call__(self, rows):
        texts = [row["text"] for row in rows]
        return self.tok(texts, padding="longest", return_tensors="pt")
def batches(tok, rows):
    return tok([row["text"] for row in rows], padding=True, return_tensors="pt")
loader = DataLoader(rows, batch_size=8, collate_fn=COLLATE_FN)
optimizer = torch.optim.AdamW(model.parameters())
"""
LOOP = """
for step, batch in enumerate(loader):
    batch = {k: v.cuda() for k, v in batch.items()}
    loss = LOSS
    loss.backward()
    optimizer.step()
"""
OWN_LOSS = """
def loss_of(model, ids, mask):
    logits = model(input_ids=ids, attention_mask=mask).logits[:, :-1]
    targets = ids[:, 1:]
    return F.cross_entropy(logits.flatten(0, 1), targets.reshape(-1))
"""
MODEL_LOSS = "model(**batch, labels=batch['input_ids']).loss"


def loop(collate_fn: str, loss: str, functions: str = "") -> str:
    """A loop of one's own, by what collates its batches and what computes its loss."""
    text = functions + COLLATE.replace("COLLATE_FN", collate_fn) + LOOP.replace("LOSS", loss)
    return LOAD + text


@pytest.mark.parametrize(
    "text",
    [
        loop("collate", MODEL_LOSS),
        loop("Collator(tok)", MODEL_LOSS),
        loop("partial(batches, tok)", "model(**batch, labels=batch['input_ids'].clone()).loss"),
        loop("lambda rows: collate(rows)", MODEL_LOSS),
        loop("collate", "loss_of(model, batch['input_ids'], batch['attention_mask'])", OWN_LOSS),
        loop("collate", MODEL_LOSS).replace(
            "for step", "model, loader = accelerate.Accelerator().prepare(model, loader)\nfor step"
        ),
    ],
)
def test_labels_are_the_ids_of_a_padded_batch(text: str, tmp_path: Path) -> None:
    assert severities(tmp_path, COPY, train="import accelerate\n" + text) == ["error"]


@pytest.mark.parametrize(
    "text",
    [
        loop("collate", MODEL_LOSS).replace("padding=True, ", ""),
        loop("collate", MODEL_LOSS.replace("input_ids", "labels")),
        loop(
            "collate",
            "loss_of(model, batch['input_ids'], batch['attention_mask'])",
            OWN_LOSS.replace("reshape(-1))", "reshape(-1), ignore_index=tok.pad_token_id)"),
        ),
        loop(
            "collate",
            "loss_of(model, batch['input_ids'], batch['attention_mask'])",
            OWN_LOSS.replace("logits.flatten(0, 1)", "logits[mask[:, 1:]]").replace(
                "ids[:, 1:]", "ids[:, 1:][mask[:, 1:]]"
            ),
        ),
        loop(
            "collate",
            "(loss_of(model, batch['input_ids'], None) * batch['attention_mask']).mean()",
            OWN_LOSS.replace("reshape(-1))", "reshape(-1), reduction='none')"),
        ),
    ],
)
def test_labels_without_the_pads_of_a_batch(text: str, tmp_path: Path) -> None:
    assert severities(tmp_path, COPY, train=text) == []


FROZEN = "adapter-loaded-frozen"
TRAIN = "\ntransformers.Trainer(model=model, train_dataset=rows).train()\n"


@pytest.mark.parametrize(
    "text",
    [
        "model.load_adapter('runs/one')" + TRAIN,
        "model.load_adapter('runs/one', is_trainable=False)\nmodel.to('cuda')" + TRAIN,
        "model.load_adapter('runs/one')\n"
        "optimizer = torch.optim.AdamW([{'params': [p for p in model.parameters()]}])",
        "model = peft.PeftModel.from_pretrained(model, 'runs/one')\n"
        "groups = [p for n, p in model.named_parameters()]\noptimizer = torch.optim.AdamW(groups)",
        "model = peft.PeftModel.from_pretrained(model, 'runs/one')\n"
        "for p in model.base_model.embed.parameters():\n    p.requires_grad = False" + TRAIN,
    ],
)
def test_adapter_that_is_loaded_frozen(text: str, tmp_path: Path) -> None:
    assert severities(tmp_path, FROZEN, train=LOAD + text) == ["error"]


@pytest.mark.parametrize(
    "text",
    [
        "model.load_adapter('runs/one', is_trainable=True)" + TRAIN,
        "model.load_adapter('runs/one')\nmodel.set_adapter('one')" + TRAIN,
        "model.load_adapter('runs/one')\n"
        "for n, p in model.named_parameters():\n    p.requires_grad = 'lora' in n" + TRAIN,
        "model.load_adapter('runs/one')\nmodel.generate(**batch)",
        "model = peft.get_peft_model(model, config)\nmodel.load_adapter('runs/one', 'one')" + TRAIN,
        "judge = transformers.AutoModelForCausalLM.from_pretrained('x')\njudge.load_adapter('y')"
        + TRAIN,
        "adapted = peft.PeftModel.from_pretrained(model, 'runs/one')\nhead = torch.nn.Linear(8, 1)\n"
        "optimizer = torch.optim.AdamW([*adapted.parameters(), *head.parameters()])",
    ],
)
def test_adapter_that_is_trained_or_not_of_the_model(text: str, tmp_path: Path) -> None:
    assert severities(tmp_path, FROZEN, train=LOAD + text) == []


def test_adapter_that_another_file_loads_frozen(tmp_path: Path) -> None:
    loading = (
        LOAD
        + """
def load(path):
    return peft.AutoPeftModelForCausalLM.from_pretrained(path), tok
"""
    )
    training = """
import torch
from models import load
model, tok = load("runs/one")
optimizer = torch.optim.AdamW(model.parameters())
"""
    assert severities(tmp_path, FROZEN, models=loading, train=training) == ["error"]
    asking = "from models import load\nmodel, tok = load('runs/one')\nmodel.generate(**batch)\n"
    assert severities(tmp_path, FROZEN, models=loading, train=asking) == []


UNUSED = "gradients-never-used"
STEPS = """
for batch in loader:
    model(**batch).loss.backward()
    optimizer.step()
    optimizer.zero_grad()
"""
RUNNER = """
import torch, transformers, peft
class Runner:
    def __init__(self):
        self.model = transformers.AutoModelForCausalLM.from_pretrained("x")
        self.FIRST()
        self.SECOND()
    def attach(self):
        self.model = peft.get_peft_model(self.model, config)
    def optimize(self):
        decayed = [p for p in self.model.parameters() if p.ndim > 1]
        self.optimizer = torch.optim.AdamW([{"params": decayed}])
    def fit(self):
        for batch in loader:
            self.model(**batch).loss.backward()
            self.optimizer.step()
"""
MAKE = """
def optimize(model):
    return torch.optim.AdamW(model.parameters())
def attach(model):
    return peft.get_peft_model(model, config)
"""
AGAIN = "transformers.AutoModelForCausalLM.from_pretrained('checkpoint')"
OPTIMIZER = "\noptimizer = torch.optim.AdamW(model.parameters())\n"


@pytest.mark.parametrize(
    "text",
    [
        RUNNER.replace("FIRST", "optimize").replace("SECOND", "attach"),
        LOAD + MAKE + "optimizer = optimize(model)\nmodel = attach(model)\n" + STEPS,
        LOAD + OPTIMIZER + "model = peft.PeftModel.from_pretrained(model, 'one')\n" + STEPS,
        LOAD + OPTIMIZER + "model.add_adapter(config)\n" + STEPS,
        LOAD + OPTIMIZER + f"if last:\n    model = {AGAIN}\n" + STEPS,
        LOAD
        + OPTIMIZER
        + "def run(net):\n    for batch in loader:\n        net(**batch).loss.backward()\n        optimizer.step()\n"
        + f"for rank in (4, 8):\n    model = {AGAIN}\n    run(model)\n",
    ],
)
def test_optimizer_that_holds_other_weights(text: str, tmp_path: Path) -> None:
    assert severities(tmp_path, UNUSED, train=text) == ["error"]


@pytest.mark.parametrize(
    "text",
    [
        RUNNER.replace("FIRST", "attach").replace("SECOND", "optimize"),
        LOAD + MAKE + "model = attach(model)\noptimizer = optimize(model)\n" + STEPS,
        LOAD + OPTIMIZER + STEPS + "model = peft.PeftModel.from_pretrained(model, 'one')\n",
        LOAD + OPTIMIZER + STEPS + f"model = {AGAIN}\nmodel.generate(**batch)\n",
        LOAD + OPTIMIZER + "model = model.to('cuda')\n" + STEPS,
        LOAD + f"if last:\n    model = {AGAIN}\n" + OPTIMIZER + STEPS,
        LOAD
        + MAKE
        + "if full:\n    optimizer = optimize(model)\nelse:\n    model = attach(model)\n"
        + STEPS,
        LOAD
        + OPTIMIZER
        + STEPS
        + f"def evaluate(net):\n    return net(**batch).loss.item()\nmodel = {AGAIN}\nevaluate(model)\n",
    ],
)
def test_optimizer_that_holds_the_trained_weights(text: str, tmp_path: Path) -> None:
    assert severities(tmp_path, UNUSED, train=text) == []


GROUPS = {
    "one of two lists": """
def groups(model):
    decay, rest = [], []
    for name, weight in model.named_parameters():
        (rest if "norm" in name else decay).append(weight)
    return [{"params": decay, "weight_decay": 0.1}, {"params": rest, "weight_decay": 0.0}]
optimizer = torch.optim.AdamW(groups(model))
""",
    "lists of a dictionary": """
lists = {"decay": [], "rest": []}
for name, weight in model.named_parameters():
    lists["decay" if weight.ndim > 1 else "rest"].append(weight)
optimizer = torch.optim.AdamW([{"params": lists["decay"]}, {"params": lists["rest"]}])
""",
    "modules": """
groups = []
for module_name, module in model.named_modules():
    for name, weight in module.named_parameters(recurse=False):
        groups += [{"params": weight, "weight_decay": 0.0 if name == "bias" else 0.01}]
optimizer = torch.optim.AdamW(groups)
""",
    "comprehensions": """
groups = [
    {"params": [p for n, p in model.named_parameters() if "bias" not in n], "weight_decay": 0.1},
    {"params": [p for n, p in model.named_parameters() if "bias" in n], "weight_decay": 0.0},
]
optimizer = torch.optim.AdamW(groups)
""",
}
PUT_ON = "model = peft.get_peft_model(model, config)\n"


@pytest.mark.parametrize("form", GROUPS)
def test_groups_of_weights_that_are_made_before_the_adapter(form: str, tmp_path: Path) -> None:
    assert severities(tmp_path, UNUSED, train=LOAD + GROUPS[form] + PUT_ON + STEPS) == ["error"]
    assert severities(tmp_path, UNUSED, train=LOAD + PUT_ON + GROUPS[form] + STEPS) == []


REWRAPPED = "adapter-rewrapped"
STAGE = """
from dataclasses import dataclass
import peft, transformers, trl
@dataclass
class Stage:
    name: str
    init: str = "some/base"
stage = Stage("second", init="INIT")
def prepare(stage):
    model = transformers.AutoModelForCausalLM.from_pretrained(stage.init)
    return peft.get_peft_model(model, peft.LoraConfig(r=8))
model = prepare(stage)
"""


def test_model_that_is_loaded_from_an_adapter_folder(tmp_path: Path) -> None:
    folder = tmp_path / "runs" / "first"
    folder.mkdir(parents=True)
    (folder / "adapter_config.json").write_text("{}")
    assert severities(tmp_path, REWRAPPED, train=STAGE.replace("INIT", "runs/first")) == ["error"]
    assert severities(tmp_path, REWRAPPED, train=STAGE.replace("INIT", "runs/second")) == []
    changed = STAGE.replace("INIT", "runs/first").replace(
        "model = prepare", "stage.init = base\nmodel = prepare"
    )
    assert severities(tmp_path, REWRAPPED, train=changed) == []
    named = (
        "import trl, peft\ntrl.SFTTrainer('runs/first', peft_config=peft.LoraConfig()).train()\n"
    )
    assert severities(tmp_path, REWRAPPED, train=named) == ["error"]


SAVED = (
    LOAD
    + """
first = peft.get_peft_model(model, peft.LoraConfig())
SAVES
second = transformers.AutoModelForCausalLM.from_pretrained("out/sft")
second = peft.get_peft_model(second, peft.LoraConfig())
"""
)


@pytest.mark.parametrize(
    ("saves", "expected"),
    [
        ("first.save_pretrained('out/sft')", ["error"]),
        ("first.save_pretrained('out/sft')\ntok.save_pretrained('out/sft')", ["error"]),
        ("first.merge_and_unload().save_pretrained('out/sft')", []),
        ("first.save_pretrained('out/other')", []),
    ],
)
def test_model_that_is_loaded_from_where_an_adapter_was_saved(
    saves: str, expected: list[str], tmp_path: Path
) -> None:
    assert severities(tmp_path, REWRAPPED, train=SAVED.replace("SAVES", saves)) == expected


LEFT = "added-tokens-left-frozen"
GROWN = """
def extend(model, tokenizer, terms):
    tokenizer.add_tokens(terms)
    model.resize_token_embeddings(len(tokenizer))
"""
LORA = """
import yaml, peft
from words import extend, tok, model
cfg = yaml.safe_load(open(path))
extend(model, tok, [line.strip() for line in open(words)])
model = peft.get_peft_model(model, peft.LoraConfig(**cfg["lora"]))
"""


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ("lora:\n  r: 8\n  target_modules: [q_proj]\n", ["error"]),
        ("lora:\n  r: 8\n  modules_to_save: [embed_tokens, lm_head]\n", []),
        ("lora:\n  r: 8\n  target_modules: [q_proj, embed_tokens]\n", []),
        ("adapter:\n  r: 8\n", []),
    ],
)
def test_added_tokens_beside_settings(settings: str, expected: list[str], tmp_path: Path) -> None:
    (tmp_path / "run.yaml").write_text(settings)
    assert severities(tmp_path, LEFT, words=LOAD + GROWN, train=LORA) == expected


OF_FIELDS = """
from dataclasses import dataclass, field
from transformers import AutoModelForCausalLM, AutoTokenizer, HfArgumentParser
from peft import LoraConfig

@dataclass
class ModelArgs:
    base: str = "meta-llama/Llama-3.1-8B-Instruct"
    tags: list[str] = field(default_factory=lambda: ["<plan>", "</plan>"])

def load(args: ModelArgs):
    tokenizer = AutoTokenizer.from_pretrained(args.base)
    GIVEN
    model = AutoModelForCausalLM.from_pretrained(args.base)
    RESIZE
    return model, tokenizer

(args,) = HfArgumentParser(ModelArgs).parse_args_into_dataclasses()
model, tokenizer = load(args)
config = LoraConfig(r=8, MORE)
"""
SPECIALS = 'tokenizer.add_special_tokens({"additional_special_tokens": args.tags})'
RESIZED = "model.resize_token_embeddings(len(tokenizer))"


@pytest.mark.parametrize(
    ("given", "resize", "more", "expected"),
    [
        (SPECIALS, RESIZED, 'target_modules=["q_proj"]', ["error"]),
        (
            'extra = {"extra_special_tokens": args.tags}; tokenizer.add_special_tokens(extra)',
            RESIZED,
            'target_modules=["q_proj"]',
            ["error"],
        ),
        (SPECIALS, RESIZED, 'modules_to_save=["embed_tokens", "lm_head"]', []),
        (SPECIALS, RESIZED, 'trainable_token_indices={"embed_tokens": new}', []),
        (f"if args.tags: {SPECIALS}", RESIZED, 'target_modules=["q_proj"]', []),
        (SPECIALS, "pass", 'target_modules=["q_proj"]', []),
    ],
)
def test_special_tokens_of_a_field_of_the_arguments(
    given: str, resize: str, more: str, expected: list[str], tmp_path: Path
) -> None:
    text = OF_FIELDS.replace("GIVEN", given).replace("RESIZE", resize).replace("MORE", more)
    assert severities(tmp_path, LEFT, train=text) == expected


CLONED = """
import trl
model, tok, new = trl.clone_chat_template(model, tok, "SOURCE")
config = peft.LoraConfig(r=8, target_modules="all-linear")
"""


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (CLONED.replace("SOURCE", "Qwen/Qwen3-0.6B"), ["error"]),
        (CLONED.replace('"SOURCE"', "args.template"), ["info"]),
        (CLONED.replace("SOURCE", "meta-llama/Llama-3.2-1B-Instruct"), []),
        (
            CLONED.replace("SOURCE", "Qwen/Qwen3-0.6B").replace(
                "r=8", "r=8, trainable_token_indices=new"
            ),
            [],
        ),
        (
            CLONED.replace("SOURCE", "Qwen/Qwen3-0.6B")
            + "model.get_input_embeddings().weight.requires_grad = True\n",
            [],
        ),
    ],
)
def test_tokens_of_a_cloned_template(text: str, expected: list[str], tmp_path: Path) -> None:
    assert severities(tmp_path, LEFT, train=LOAD + text) == expected


KEPT = "evaluation-keeps-all-logits"
METRIC = """
def metric(pred):
    return {"accuracy": (pred.predictions.argmax(-1)[:, :-1] == pred.label_ids[:, 1:]).mean()}
def reduce(logits, labels):
    return logits.argmax(-1)
"""
BUILT = """
def build(cfg):
    parts = {"model": model, "eval_dataset": rows}
    if cfg.metrics:
        parts["compute_metrics"] = metric
    SET
    return parts
transformers.Trainer(**build(cfg)).train()
"""
DERIVED = """
class Tuner(transformers.Trainer):
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.compute_metrics = metric
        SET
Tuner(model=model, eval_dataset=rows).train()
"""
LATER = """
trainer = transformers.Trainer(model=model, eval_dataset=rows)
trainer.compute_metrics = metric
SET
trainer.train()
"""


@pytest.mark.parametrize(
    ("text", "less"),
    [
        (BUILT, "parts['preprocess_logits_for_metrics'] = reduce"),
        (DERIVED, "self.preprocess_logits_for_metrics = reduce"),
        (LATER, "trainer.preprocess_logits_for_metrics = reduce"),
    ],
)
def test_metrics_that_a_trainer_gets_by_other_ways(text: str, less: str, tmp_path: Path) -> None:
    head = LOAD + METRIC
    assert severities(tmp_path, KEPT, train=head + text.replace("SET", "pass")) == ["warning"]
    assert severities(tmp_path, KEPT, train=head + text.replace("SET", less)) == []


UNSHIFTED = "metrics-unshifted"
LOGGING = """
import transformers
class Logging(transformers.Trainer):
    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        OUTPUTS
        top = outputs.logits.argmax(-1)
        self.hits += (COMPARED).sum().item()
        return (loss, outputs) if return_outputs else loss
"""
OF_SUPER = "loss, outputs = super().compute_loss(model, inputs, return_outputs=True)"
OF_MODEL = "outputs = model(**inputs)\n        loss = outputs.loss"
USES = """
import transformers
from logging_trainer import Logging
model = transformers.AutoModelForCausalLM.from_pretrained("x")
Logging(model=model, train_dataset=rows).train()
"""


@pytest.mark.parametrize(
    ("outputs", "compared", "expected"),
    [
        (OF_SUPER, "top == inputs['input_ids']", ["error"]),
        (OF_SUPER, "top == inputs['labels']", ["error"]),
        (OF_MODEL, "top.eq(inputs['labels'])", ["error"]),
        (OF_MODEL, "(top == inputs['input_ids']) & inputs['attention_mask'].bool()", ["error"]),
        (OF_SUPER, "top[:, :-1] == inputs['labels'][:, 1:]", []),
        (OF_SUPER, "top == self.expected", []),
        (OF_MODEL, "inputs['input_ids'] == inputs['labels']", []),
    ],
)
def test_tokens_compared_in_a_method_of_a_trainer(
    outputs: str, compared: str, expected: list[str], tmp_path: Path
) -> None:
    text = LOGGING.replace("OUTPUTS", outputs).replace("COMPARED", compared)
    assert severities(tmp_path, UNSHIFTED, logging_trainer=text, train=USES) == expected
    encoder = USES.replace("CausalLM", "Seq2SeqLM")
    assert severities(tmp_path, UNSHIFTED, logging_trainer=text, train=encoder) == []


GRAPH = "losses-kept-with-graph"
METERS = """
class Meter:
    def __init__(self):
        self.sum, self.values = 0.0, []
    def update(self, value, n=1):
        KEEP
    def reset(self):
        self.sum = 0.0
class Meters:
    def __init__(self, *names):
        self.meters = {name: Meter() for name in names}
    def update(self, name, value):
        self.meters[name].update(value)
"""
METERED = (
    LOAD
    + """
from meters import Meter, Meters
optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad])
meter = MADE
for batch in loader:
    out = model(**batch)
    out.loss.backward()
    optimizer.step()
    UPDATED
"""
)


@pytest.mark.parametrize(
    ("keep", "made", "updated", "expected"),
    [
        ("self.sum = self.sum + value * n", "Meter()", "meter.update(out.loss)", ["warning"]),
        ("self.values.append(value)", "Meter()", "meter.update(out.loss, n=4)", ["warning"]),
        ("self.sum += value.mean()", "Meters('a')", "meter.update('a', out.loss)", ["warning"]),
        ("self.sum += float(value)", "Meter()", "meter.update(out.loss)", []),
        (
            "value = value.item()\n        self.sum += value",
            "Meter()",
            "meter.update(out.loss)",
            [],
        ),
        ("self.sum += value", "Meters('a')", "meter.update('a', out.loss.item())", []),
        ("self.last = value", "Meter()", "meter.update(out.loss)", []),
        ("self.sum += value", "Meter()", "meter.update(out.loss)\n    meter.reset()", []),
    ],
)
def test_losses_that_an_object_keeps(
    keep: str, made: str, updated: str, expected: list[str], tmp_path: Path
) -> None:
    training = METERED.replace("MADE", made).replace("UPDATED", updated)
    files = {"train": training, "meters": METERS.replace("KEEP", keep)}
    assert severities(tmp_path, GRAPH, **files) == expected


PARTS = """
import transformers
import torch.nn.functional as F
class Weighted(transformers.Trainer):
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.parts = []
    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        outputs = model(**inputs)
        answer = F.cross_entropy(outputs.logits.flatten(0, 1), inputs["labels"].flatten())
        KEEP
        loss = answer + outputs.loss
        return (loss, outputs) if return_outputs else loss
    def log(self, logs):
        LOG
        super().log(logs)
"""


@pytest.mark.parametrize(
    ("keep", "log", "expected"),
    [
        ("self.parts.append(answer)", "logs['a'] = sum(self.parts)", ["warning"]),
        ("self.total = self.total + answer", "logs['a'] = self.total", ["warning"]),
        ("self.parts.append(answer.detach())", "pass", []),
        ("self.parts.append(answer)", "self.parts = []", []),
        ("self.parts.append(answer)", "self.parts.clear()", []),
        ("parts = []\n        parts.append(answer)", "pass", []),
        ("self.parts.append(answer.item())", "pass", []),
    ],
)
def test_losses_that_a_method_of_a_trainer_keeps(
    keep: str, log: str, expected: list[str], tmp_path: Path
) -> None:
    text = PARTS.replace("KEEP", keep).replace("LOG", log)
    assert severities(tmp_path, GRAPH, train=text) == expected


GRAPHS = "evaluation-builds-graphs"
SCORER = """
import torch, transformers
class Scorer:
    def __init__(self, path):
        self.tok = transformers.AutoTokenizer.from_pretrained(path)
        self.model = transformers.AutoModelForCausalLM.from_pretrained(path).eval()
    DECORATOR
    def score(self, text):
        return self.model(**self.tok(text, return_tensors="pt")).logits.log_softmax(-1).sum()
    def choose(self, texts):
        return max(texts, key=lambda text: self.score(text))
"""
CHOOSES = """
from scorer import Scorer
def main():
    scorer = Scorer("x")
    LOOP
if __name__ == "__main__":
    main()
"""
EACH = "for row in rows:\n        print(scorer.score(row))"


@pytest.mark.parametrize(
    ("decorator", "loop", "expected"),
    [
        ("", EACH, ["warning"]),
        ("", EACH.replace("    print", "    with open(row):\n            print"), ["warning"]),
        ("@torch.no_grad()", EACH, []),
        ("@torch.inference_mode()", EACH, []),
        ("", "with torch.no_grad():\n        for row in rows:\n            scorer.score(row)", []),
        ("", "print(scorer.score(row))", []),
        ("", "scorer.model.requires_grad_(False)\n    " + EACH, []),
    ],
)
def test_passes_of_an_object_in_a_loop_elsewhere(
    decorator: str, loop: str, expected: list[str], tmp_path: Path
) -> None:
    scorer = SCORER.replace("DECORATOR", decorator)
    files = {"scorer": scorer, "run": CHOOSES.replace("LOOP", loop)}
    assert severities(tmp_path, GRAPHS, **files) == expected


HELPER = (
    LOAD
    + """
def loss_of(net, batch):
    return net(**batch).loss
def evaluate(net):
    net.eval()
    total = 0.0
    for batch in loader:
        BODY
    return total
for batch in loader:
    loss_of(model, batch).backward()
evaluate(model)
"""
)


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("total += loss_of(net, batch).item()", ["warning"]),
        ("with torch.no_grad():\n            total += loss_of(net, batch).item()", []),
        ("total += float(net.generate(**batch).sum())", []),
    ],
)
def test_passes_of_a_helper_that_training_calls_too(
    body: str, expected: list[str], tmp_path: Path
) -> None:
    assert severities(tmp_path, GRAPHS, train=HELPER.replace("BODY", body)) == expected


@pytest.mark.parametrize(
    ("needed", "advice"),
    [
        ("torch.tensor(pred.predictions).log_softmax(-1).mean()", "log-probability"),
        ("pred.predictions.argmax(-1).mean()", "logits.argmax(-1)"),
    ],
)
def test_remedy_keeps_what_the_metrics_need(needed: str, advice: str, tmp_path: Path) -> None:
    metric = f"def metric(pred):\n    return {{'m': {needed}}}\n"
    text = LOAD + metric + LATER.replace("SET", "pass")
    (tmp_path / "train.py").write_text(text)
    (finding,) = lint([tmp_path / "train.py"], select=[KEPT]).findings
    assert advice in finding.remedy
