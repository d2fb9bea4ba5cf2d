"""Each sign of a loss that does not fall: a text that shows it, and one that looks alike and does not."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from truetune.troubleshooting.project_words import ProjectText
from truetune.troubleshooting.signs.find_signs_in_statements import find_signs
from truetune.troubleshooting.signs.flat_losses import SIGNS

LOOP = (
    "for batch in loader:\n    loss = model(**batch).loss\n    loss.backward()\n"
    "    optimizer.step()\n    optimizer.zero_grad()\n"
)
TRAINED = "trainer = Trainer(model, args)\ntrainer.train()\n"
REWARDS = "from trl import GRPOConfig\nargs = GRPOConfig(out)\n"


def shows(text: str, cause: str) -> bool:
    """Does a project of this one file show a sign of the cause that begins so?"""
    found = find_signs([ProjectText(Path("a.py"), text, True)])
    return any(cause in sign.words and sign in SIGNS for sign in found)


@pytest.mark.parametrize(
    ("cause", "text", "near_miss"),
    [
        (
            "nothing is trainable",
            "trainable params: 0 || all params: 10\n",
            "trainable params: 9,437,184 || all\n",
        ),
        (
            "nothing is trainable",
            f"model = PeftModel.from_pretrained(model, first)\n{TRAINED}",
            f"model = PeftModel.from_pretrained(model, first, is_trainable=True)\n{TRAINED}",
        ),
        (
            "nothing is trainable",
            "net = get_peft_model(net, c)\nnet = prepare_model_for_kbit_training(net)\n",
            "net = prepare_model_for_kbit_training(net)\nnet = get_peft_model(net, c)\n",
        ),
        (
            "reentrant gradient checkpointing",
            "model.gradient_checkpointing_enable()\nmodel = get_peft_model(model, lora)\n",
            "model.gradient_checkpointing_enable()\nmodel.enable_input_require_grads()\n"
            "model = get_peft_model(model, lora)\n",
        ),
        ("the graph is cut", f"loss = torch.tensor(total)\n{LOOP}", LOOP),
        (
            "the graph is cut",
            f"torch.set_grad_enabled(False)\n{LOOP}",
            f"torch.set_grad_enabled(True)\n{LOOP}",
        ),
        (
            "training_step of Lightning",
            "def training_step(self, batch, i):\n    self.log('x', self.net(**batch).loss)\n",
            "def training_step(self, batch, i):\n    return self.net(**batch).loss\n",
        ),
        (
            "no token has a label",
            'f(tr, response_part="<|im_start|>assistant")\n',
            "response = ask(prompt)\n",
        ),
        (
            "no token has a label",
            "MAX_LEN = 256\nlabels = ([-100] * n + answer)[:MAX_LEN]\n",
            "MAX_LEN = 4096\nlabels = ([-100] * n + answer)[:MAX_LEN]\n",
        ),
        (
            "labels are a plain copy",
            "row['labels'] = row['input_ids'].copy()\n",
            "ids = row['input_ids'].copy()\n",
        ),
        (
            "labels do not belong",
            "model = AutoModelForCausalLM.from_pretrained(p)\nx = ids[:, :-1]\n"
            "labels = ids[:, 1:]\nmodel(x, labels=labels)\n",
            "model = AutoModelForCausalLM.from_pretrained(p)\nlabels = ids.clone()\n"
            "model(ids, labels=labels)\n",
        ),
        (
            "a custom loss of a causal model",
            "model = AutoModelForCausalLM.from_pretrained(p)\nloss = F.cross_entropy(logits, labels)\n",
            "model = AutoModelForCausalLM.from_pretrained(p)\n"
            "loss = F.cross_entropy(logits[:, :-1], labels)\n",
        ),
        (
            "a loss is given scores on another scale",
            "p = logits.softmax(-1)\nloss = F.cross_entropy(p, y)\n",
            "loss = F.cross_entropy(logits, y)\n",
        ),
        (
            "the Kullback-Leibler loss",
            "l = F.kl_div(a, b)\n",
            "l = F.kl_div(a, b, reduction='batchmean')\n",
        ),
        ("a classifier has one output", "num_labels=1,\n", "num_labels=12,\n"),
        (
            "a classifier reads its answer off a pad",
            "m = AutoModelForSequenceClassification.from_pretrained('Llama')\n",
            "m = AutoModelForSequenceClassification.from_pretrained('Llama')\n"
            "m.config.pad_token_id = tok.pad_token_id\n",
        ),
        (
            "answers are paired with",
            "a = a.sample(frac=1)\nframe = pd.DataFrame({'q': q, 'a': a})\n",
            "frame = frame.sample(frac=1)\nframe.to_json('rows.json')\n",
        ),
        (
            "the answers can't be learned",
            "row['answer'] = base64.b64encode(body)\n",
            "row['answer'] = body.strip()\n",
        ),
        ("the rows are not shuffled", "shuffle_dataset: false\n", "shuffle_dataset: true\n"),
        ("rows are transformed", "ds.map(encode)\n", "ds = ds.map(encode)\n"),
        (
            "training rows are too long",
            "base_model: x\nsequence_len: 512\n",
            "base_model: x\nsequence_len: 8192\n",
        ),
        (
            "max_length is not set, so TRL",
            "args = SFTConfig('out')\n",
            "args = SFTConfig('out', max_length=4096)\n",
        ),
        (
            "the evaluation's rows",
            "val_rows = raw_val.map(encode_eval)\n",
            "rows = raw.map(encode)\n",
        ),
        ("the learning rate is far too small", "learning_rate: 1e-8\n", "learning_rate: 2e-5\n"),
        ("the learning rate is far too small", "peak: 3.0e-9\n", "layer_norm_eps: 3.0e-9\n"),
        (
            "the learning rate is far too small",
            'p.add_argument("--lr", type=float, default=1e-8)\n',
            'p.add_argument("--lr", type=float, default=1e-4)\n',
        ),
        (
            "the learning rate is far too small",
            "adapter: lora\nlearning_rate: 0.000005\n",
            "adapter: lora\nlearning_rate: 0.0002\n",
        ),
        (
            "the learning rate is far too small",
            "lr = 1e-8\n",
            "{'loss': 2.1, 'learning_rate': 1e-08, 'epoch': 2.9}\n",
        ),
        ("the learning rate is far too large", "lr: float = 1e-2\n", "lr: float = 1e-5\n"),
        (
            "the learning rate is far too large",
            "learning_rate: 3e-4\n",
            "adapter: lora\nlearning_rate: 3e-4\n",
        ),
        (
            "the optimizer and scheduler of ds_config",
            '"zero_optimization": {\n"lr": 1e-3,\n',
            '"zero_optimization": {\n"lr": "auto",\n',
        ),
        (
            "an optimizer that scales nothing",
            "o = torch.optim.SGD(w, lr=1e-4)\n",
            "o = torch.optim.AdamW(w, lr=1e-4)\n",
        ),
        (
            "Adafactor sets its own rate",
            "o = Adafactor(w, lr=None)\n",
            "o = Adafactor(w, lr=1e-3, relative_step=False)\n",
        ),
        (
            "the adapter is scaled away",
            "lora_r: 64\nlora_alpha: 1\n",
            "lora_r: 64\nlora_alpha: 64\n",
        ),
        ("the adapter is scaled far up", "lora_alpha: 1024\n", "lora_alpha: 128\n"),
        (
            "LoRA has rank 1 on a single",
            "c = LoraConfig(r=1, lora_alpha=2)\n",
            "rank: 1 (local_rank: 1)\nc = LoraConfig(r=16)\n",
        ),
        ("nearly every gradient is clipped", "max_grad_norm: 0.001\n", "max_grad_norm: 1.0\n"),
        ("a hyperparameter in code", "lora_dropout=0.95,\n", "lora_dropout=0.05,\n"),
        ("the schedule has ended", "warmup_steps: 5000\n", "warmup_steps: 50\n"),
        ("the schedule has ended", '"warmup_ratio": 0.9,\n', '"warmup_ratio": 0.03,\n'),
        ("the schedule has ended", "total_num_steps: 200\n", "total_num_steps: auto\n"),
        (
            "the scheduler counts",
            "def configure_optimizers(self):\n    return [opt], [sched]\n",
            "def configure_optimizers(self):\n"
            '    return [opt], [{"scheduler": sched, "interval": "step"}]\n',
        ),
        (
            "a warm-up is set, but the schedule",
            "lr_scheduler_type: constant\nwarmup_steps: 9\n",
            "lr_scheduler_type: constant_with_warmup\nwarmup_steps: 9\n",
        ),
        (
            "the optimizer never steps",
            "o = torch.optim.AdamW(m.parameters())\nm = get_peft_model(m, c)\n",
            "m = get_peft_model(m, c)\no = torch.optim.AdamW(m.parameters())\n",
        ),
        (
            "the optimizer never steps",
            "loss.backward()\noptimizer.zero_grad()\noptimizer.step()\n",
            "loss.backward()\noptimizer.step()\noptimizer.zero_grad()\n",
        ),
        ("the optimizer never steps", "loss.backward()\nprint(loss)\n", LOOP),
        ("a hand-written loop never clears", "loss.backward()\noptimizer.step()\n", LOOP),
        (
            "a hand-written loop updates float16",
            f"m = AutoModel.from_pretrained(p, torch_dtype=torch.float16)\n{LOOP}",
            f"m = AutoModel.from_pretrained(p, torch_dtype=torch.bfloat16)\n{LOOP}",
        ),
        (
            "the run makes only a few",
            "gradient_accumulation_steps: 64\n",
            "gradient_accumulation_steps: 4\n",
        ),
        (
            "the run makes only a few",
            "  Total optimization steps = 6\n",
            "  Total optimization steps = 600\n",
        ),
        ("the data do not fill one packed", "sample_packing: true\n", "sample_packing: false\n"),
        (
            "one row is a step",
            f"per_device_train_batch_size=1,\n{TRAINED}",
            f"per_device_train_batch_size=1,\ngradient_accumulation_steps=16,\n{TRAINED}",
        ),
        ("the printed loss is a mean", "print(running / (step + 1))\n", "print(loss.item())\n"),
        (
            "activations or gradients overflow",
            "fp16: true\n",
            "fp16: false\nbnb_4bit_compute_dtype: float16\n",
        ),
        ("DeepSpeed's loss scale", '"loss_scale": 65536,\n', '"loss_scale": 0,\n'),
        (
            "weights in bfloat16 alone",
            f"m = AutoModel.from_pretrained(p, torch_dtype=torch.bfloat16)\n{TRAINED}",
            "m = AutoModel.from_pretrained(p, torch_dtype=torch.bfloat16)\n"
            f"m = get_peft_model(m, lora)\n{TRAINED}",
        ),
        (
            "the logged loss is multiplied",
            "def compute_loss(self, m, x):\n    return loss.mean()\n",
            "def compute_loss(self, m, x, n):\n    return loss / num_items_in_batch\n",
        ),
        (
            "the run starts with a loss above",
            "m = AutoModelForCausalLM.from_config(c)\n",
            "m = AutoModelForCausalLM.from_pretrained(c)\n",
        ),
        (
            "the run resumed from a checkpoint",
            "resume_from_checkpoint: out/checkpoint-90\n",
            "resume_from_checkpoint: null\n",
        ),
        (
            "the rows were generated",
            "out = model.generate(**x)\nopen('train.jsonl', 'a').write(out)\n",
            "out = model.generate(**x)\nprint(out)\n",
        ),
        (
            "of GRPO the loss is no measure",
            f"{REWARDS}def reward(c):\n    return [1.0 if re.search(p, t) else 0.0 for t in c]\n",
            "def reward(c):\n    return [1.0 if re.search(p, t) else 0.0 for t in c]\n",
        ),
    ],
)
def test_a_sign_is_shown_by_its_text_and_not_by_a_near_miss(
    cause: str, text: str, near_miss: str
) -> None:
    assert shows(text, cause)
    assert not shows(near_miss, cause)


def test_an_order_of_statements_is_that_of_one_file() -> None:
    optimizer = ProjectText(Path("a.py"), "o = torch.optim.AdamW(m.parameters())\n", True)
    adapter = ProjectText(Path("b.py"), "m = get_peft_model(m, c)\n", True)
    assert not any(
        re.search(sign.words, "the optimizer never steps")
        for sign in find_signs([optimizer, adapter])
    )
