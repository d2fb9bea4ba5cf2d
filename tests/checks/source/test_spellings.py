"""The same fault in many spellings is found; the same words without the fault are not."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent

import pytest

from truetune.checks.lint import lint

PAD = "pad-equals-eos-lm-collator"
HEAD = """
from transformers import *
import transformers, torch, trl, peft
from datasets import load_dataset, Dataset
tok = transformers.AutoTokenizer.from_pretrained("meta-llama/Llama-3.1-8B-Instruct")
model = transformers.AutoModelForCausalLM.from_pretrained("meta-llama/Llama-3.1-8B-Instruct")
data = load_dataset("some/rows", split="train")
"""
SINK = "\nc = transformers.DataCollatorForLanguageModeling(tok, mlm=False)\n"


def found(text: str, folder: Path, rule: str) -> list[str]:
    path = folder / "train.py"
    path.write_text(HEAD + dedent(text))
    return [f.severity for f in lint([path], select=[rule]).findings]


@pytest.mark.parametrize(
    "text",
    [
        "tok.pad_token = tok.eos_token",
        "tok.pad_token_id = tok.eos_token_id",
        "t = tok\neos = t.eos_token\nt.pad_token = eos",
        "tok.pad_token = '</s>'",
        "tok.add_special_tokens({'pad_token': tok.eos_token})",
        "tok.add_special_tokens(dict(pad_token=tok.eos_token))",
        "new = {}\nnew['pad_token'] = tok.eos_token\ntok.add_special_tokens(new)",
        "setattr(tok, 'pad_token', tok.eos_token)",
        "tok = transformers.AutoTokenizer.from_pretrained('x', pad_token='</s>')",
        "tok = transformers.AutoTokenizer.from_pretrained('x', **{'pad_token': '</s>'})",
        (
            "tok = transformers.AutoTokenizer.from_pretrained('x', pad_token='<|e|>',"
            " eos_token='<|e|>')"
        ),
        "tok.add_special_tokens({'pad_token': '<|e|>', 'eos_token': '<|e|>'})",
        "tok.pad_token = tok.unk_token or tok.eos_token",
        "tok.pad_token_id = model.config.eos_token_id",
        "if torch.cuda.is_available():\n    tok.pad_token = tok.eos_token",
        "def prepare(tokenizer):\n    tokenizer.pad_token = tokenizer.eos_token\nprepare(tok)",
    ],
)
def test_every_pad_is_found(text: str, tmp_path: Path) -> None:
    assert found(text + SINK, tmp_path, PAD) == ["error"]
    assert found(
        text + "\ncollator = trl.DataCollatorForCompletionOnlyLM('x', tokenizer=tok)\n",
        tmp_path,
        PAD,
    ) == ["error"]
    assert (
        found(
            text + "\nt = trl.SFTTrainer(model, train_dataset=data, processing_class=tok)\n",
            tmp_path,
            PAD,
        )
        == []
    )
    older = (
        "\nt = trl.SFTTrainer(model, train_dataset=data, tokenizer=tok,"
        " dataset_text_field='text')\n"
    )
    assert found(text + older, tmp_path, PAD) == ["warning"]
    assert (
        found(text + "\nout = model.generate(**tok('x', return_tensors='pt'))\n", tmp_path, PAD)
        == []
    )


@pytest.mark.parametrize(
    "sink",
    [
        "labels[labels == tok.pad_token_id] = -100",
        (
            "IGNORE = -100\npad = tok.pad_token_id\nlabels = torch.where(labels == pad, IGNORE,"
            " labels)"
        ),
        "labels = labels.masked_fill(labels == tok.pad_token_id, -100)",
        "labels = [[-100 if t == tok.pad_token_id else t for t in row] for row in labels]",
        "labels = [(t if t != tok.pad_token_id else -100) for t in labels]",
        "loss = torch.nn.CrossEntropyLoss(ignore_index=tok.pad_token_id)",
    ],
)
def test_every_mask_by_id_is_found(sink: str, tmp_path: Path) -> None:
    assert found("tok.pad_token = tok.eos_token\n" + sink, tmp_path, PAD) == ["error"]
    assert found("tok.pad_token = '<pad>'\n" + sink, tmp_path, PAD) == []
    assert found(sink, tmp_path, PAD) == []


HEALTHY = {
    PAD: [
        "tok.pad_token = tok.eos_token\ntok.pad_token = '<|pad|>'" + SINK,
        "tok.pad_token = tok.unk_token" + SINK,
        "tok.pad_token = tok.eos_token\nc = transformers.DataCollatorForLanguageModeling(tok)",
        "tok.pad_token = tok.eos_token\nc = transformers.DataCollatorForSeq2Seq(tok)",
        "tok.eos_token = tok.pad_token" + SINK,
        "tok.pad_token = tok.eos_token\nlabels[mask == 0] = -100",
    ],
    "lm-collator-overwrites-labels": [
        "data = data.map(lambda r: {'labels': r['input_ids']})" + SINK,
        (
            "def f(r):\n    return {'labels': [-100] + r['x']}\ndata.map(f)\nc ="
            " transformers.DataCollatorForSeq2Seq(tok)"
        ),
        (
            "class C(transformers.DataCollatorForLanguageModeling):\n    def torch_call(self, e):\n"
            "        b = super().torch_call(e)\n        b['labels'] ="
            " b['labels'].masked_fill(b['m'] == 0, -100)\n        return b\nc = C(tok, mlm=False)"
        ),
    ],
    "rendered-text-tokenized-again": [
        "s = tok.apply_chat_template(m, tokenize=False)\ntok(s, add_special_tokens=False)",
        (
            "s = tok.apply_chat_template(m, tokenize=False)\nkw = {'add_special_tokens':"
            " False}\ntok(s, **kw)"
        ),
        "s = tok.apply_chat_template(m, tokenize=False)\nprint(s)\ntok('hello')",
        "s = tok.apply_chat_template(m)\nmodel.generate(**s)",
        (
            "t = transformers.AutoTokenizer.from_pretrained('Qwen/Qwen3-8B')\n"
            "s = t.apply_chat_template(m, tokenize=False)\nt(s)"
        ),
        "s = tok.apply_chat_template(m, tokenize=False)\nkw = options()\ntok(s, **kw)",
    ],
    "apply-chat-template-returns-dict": [
        "s = tok.apply_chat_template(m, tokenize=False)\nlen(s)\ns[1:]",
        "s = tok.apply_chat_template(m, return_dict=False)\nlen(s)",
        "s = tok.apply_chat_template(m)['input_ids']\nlen(s)",
        "s = tok.apply_chat_template(m)\nlen(s['input_ids'])\nmodel.generate(**s)",
        "s = tok.apply_chat_template(m).input_ids\nlen(s)",
        "s = tok.apply_chat_template(m, **options)\nlen(s)",
        "for s in rows:\n    len(s)\n    s = tok.apply_chat_template(m)\n",
    ],
    "formatting-func-ignored": [
        (
            "def f(r):\n    return r['question']\ntrl.SFTTrainer(model, train_dataset=data,"
            " formatting_func=f)"
        ),
        "trl.SFTTrainer(model, train_dataset=data, formatting_func=None)",
        (
            "trl.SFTTrainer(model, train_dataset=data.map(lambda r: {'text':"
            " r['messages'][0]['content']}))"
        ),
    ],
    "custom-loss-breaks-gradient-accumulation": [
        (
            "class T(transformers.Trainer):\n    loss_is_scaled_for_ga = False\n    def"
            " compute_loss(self, m, i, return_outputs=False, **k):\n        return m(**i).loss"
        ),
        (
            "class T(transformers.Trainer):\n    def compute_loss(self, *args, **k):\n"
            "        return super().compute_loss(*args, **k)"
        ),
        (
            "class T(transformers.Trainer):\n"
            "    def compute_loss(self, m, i, return_outputs=False, num_items_in_batch=None):\n"
            "        return m(**i, num_items_in_batch=num_items_in_batch).loss"
        ),
        "class T(Base):\n    def compute_loss(self, m, i, **k):\n        return 1",
        (
            "class T(transformers.Trainer):\n    def compute_loss(self, m, i, return_outputs=False,"
            " **k):\n        return -(m(input_ids=i['chosen_ids'])[0] -"
            " m(input_ids=i['rejected_ids'])[0]).mean()"
        ),
        (
            "class T(transformers.Trainer):\n    def compute_loss(self, m, i,"
            " num_items_in_batch=None):\n        return f(m(i.pop('student_ids')).logits,"
            " i.get('teacher_logits'))"
        ),
        (
            "class T(transformers.Trainer):\n    def compute_loss(self, m, i,"
            " num_items_in_batch=None):\n        i = {k: v.to('cuda') for k, v in i.items()}\n     "
            "   return f(m(i['ids']), i['chosen_labels'])"
        ),
        (
            "a = TrainingArguments('out', gradient_accumulation_steps=1)\nclass"
            " T(transformers.Trainer):\n    def compute_loss(self, m, i, return_outputs=False,"
            " **k):\n        return m(**i).loss"
        ),
        (
            "a = TrainingArguments('out', num_train_epochs=2)\nclass T(transformers.Trainer):\n   "
            " def compute_loss(self, m, i, return_outputs=False, **k):\n        return"
            " f(m(**i).logits, i['labels'])"
        ),
    ],
    "labels-copy-input-ids": [
        "b = tok(x, truncation=True)\nb['labels'] = b['input_ids'].copy()",
        "b = tok(x, padding=True)\nb['labels'] = b['input_ids'].copy()" + SINK,
        (
            "b = tok(x, padding=True)\nb['labels'] ="
            " b['input_ids'].copy()\nb['labels'][b['attention_mask'] == 0] ="
            " -100\nb['labels'][b['labels'] == tok.pad_token_id] = -100"
        ),
        "b = tok(x, padding=True)\nb['labels'] = ys",
        "b = tok(f'a {x}', padding=True, return_tensors='pt')\nmodel(**b, labels=b['input_ids'])",
        "b = tok([x], padding='longest')\nb['labels'] = b['input_ids'].copy()",
    ],
    "adapter-loaded-frozen": [
        "m = peft.PeftModel.from_pretrained(model, 'a')\nm.generate()",
        (
            "m = peft.PeftModel.from_pretrained(model, 'a')\nt = trl.SFTTrainer(m,"
            " train_dataset=data)\nt.evaluate()"
        ),
        (
            "m = peft.PeftModel.from_pretrained(model, 'a', is_trainable=True)\nt ="
            " trl.SFTTrainer(m)\nt.train()"
        ),
        (
            "m = peft.PeftModel.from_pretrained(model, 'a').merge_and_unload()\nt ="
            " trl.SFTTrainer(m, peft_config=c)\nt.train()"
        ),
        "m = peft.PeftModel.from_pretrained(model, 'a', **kw)\nt = trl.SFTTrainer(m)\nt.train()",
        (
            "m = peft.PeftModel.from_pretrained(model, 'a')\nfor p in m.parameters():\n   "
            " p.requires_grad = True\nt = trl.SFTTrainer(m)\nt.train()"
        ),
        (
            "ref = peft.PeftModel.from_pretrained(model, 'a')\nt = trl.DPOTrainer(model,"
            " ref_model=ref)\nt.train()"
        ),
    ],
    "lora-target-names-joined": [
        "peft.LoraConfig(target_modules=['q_proj', 'v_proj'])",
        "peft.LoraConfig(target_modules=('q_proj|'\n 'v_proj'))",
        "print(['a' 'b'])\npeft.LoraConfig(target_modules='all-linear')",
    ],
    "append-result-as-value": [
        "n = ['a']\nn.append('b')\npeft.LoraConfig(target_modules=n)",
        (
            "class N:\n    def append(self, x):\n        return [x]\n    def go(self):\n"
            "        peft.LoraConfig(target_modules=self.append('b'))"
        ),
    ],
    "state-dict-method-replaced": ["s = model.state_dict()\nmodel.state_dict = other"],
    "adapter-rewrapped": [
        "m = peft.get_peft_model(model, c)",
        (
            "if a:\n    m = peft.get_peft_model(model, c)\nelse:\n    m ="
            " peft.PeftModel.from_pretrained(model, 'x')"
        ),
        (
            "m = peft.PeftModel.from_pretrained(model, 'x') if a else model\nm ="
            " peft.get_peft_model(m, c)"
        ),
        "m = peft.get_peft_model(model, c)\ntrl.SFTTrainer(m, peft_config=None)",
        "trl.SFTTrainer(model, peft_config=peft.LoraConfig())",
    ],
    "prepared-schedule-length-divided-by-processes": [
        (
            "from accelerate import Accelerator\na = Accelerator()\nl ="
            " torch.utils.data.DataLoader(data)\no = torch.optim.AdamW(model.parameters())\ns ="
            " transformers.get_scheduler('linear', o, 0, len(l) * 3)\nmodel, o, l, s ="
            " a.prepare(model, o, l, s)"
        ),
        (
            "from accelerate import Accelerator\na ="
            " Accelerator(step_scheduler_with_optimizer=False)\nl ="
            " a.prepare(torch.utils.data.DataLoader(data))\ns ="
            " a.prepare(transformers.get_scheduler('linear', o, 0, len(l)))"
        ),
        (
            "from accelerate import Accelerator\na = Accelerator()\nl ="
            " a.prepare(torch.utils.data.DataLoader(data))\ns ="
            " transformers.get_scheduler('linear', o, 0, len(l))"
        ),
    ],
    "scheduler-length-miscounted": [
        "n = len(data) // 8\ns = transformers.get_scheduler('linear', o, 0, n)",
        (
            "l = torch.utils.data.DataLoader(data, batch_size=8)\n"
            "s = transformers.get_scheduler('linear', o, 0, len(l) * 3)\n"
            "for b in l:\n    s.step()"
        ),
        "import math\ns = transformers.get_scheduler('linear', o, 0, math.ceil(len(data) / 8) * 3)",
    ],
}


@pytest.mark.parametrize(
    ("rule", "text"), [(rule, text) for rule, texts in HEALTHY.items() for text in texts]
)
def test_healthy_code_is_left_alone(rule: str, text: str, tmp_path: Path) -> None:
    assert found(text, tmp_path, rule) == []


WEIGHTED = """
class Weighted(transformers.Trainer):
    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        weight = inputs.pop("weight", None)
        return model(**inputs).loss if weight is None else (model(**inputs).loss * weight).mean()
def collate(rows):
    batch = tok.pad(rows)
    batch["weight"] = torch.ones(len(rows))
    return batch
Weighted(model=model, args=transformers.TrainingArguments("o"), {})
"""
BROKEN = {
    "rendered-text-tokenized-again": [
        "t = tok\nkw = dict(tokenize=False)\ns = t.apply_chat_template(m, **kw)\nt.encode(s)",
        "tok([tok.apply_chat_template(m, tokenize=False) for m in ms])",
        (
            "def render(m):\n    return tok.apply_chat_template(m,"
            " tokenize=False)\ntok(text=render(m))"
        ),
        (
            "class D:\n    def __init__(self, tokenizer):\n        self.t = tokenizer\n    def"
            " go(self, m):\n        s = self.t.apply_chat_template(m, tokenize=False)\n       "
            " return self.t(s)\nD(tok)"
        ),
    ],
    "apply-chat-template-returns-dict": [
        "ids = tok.apply_chat_template(m, tokenize=True)\nlabels[: len(ids)] = -100",
        "ids = tok.apply_chat_template(m)\nids[:5]",
        "for t in tok.apply_chat_template(m):\n    print(t)",
        "def n(m):\n    return len(tok.apply_chat_template(m))",
    ],
    "formatting-func-ignored": [
        (
            "d = Dataset.from_list([{'messages': []}])\ndef f(r):\n    return r['x']\n"
            "trl.SFTTrainer(model, train_dataset=d, formatting_func=f)"
        ),
        (
            "trl.SFTTrainer(model, train_dataset=data, formatting_func=lambda r: 'Q: ' +"
            " r['messages'][0]['content'])"
        ),
    ],
    "adapter-loaded-frozen": [
        (
            "m = peft.AutoPeftModelForCausalLM.from_pretrained('a')\nt ="
            " transformers.Trainer(model=m)\nt.train()"
        ),
        (
            "m = peft.PeftModel.from_pretrained(model, 'a', is_trainable=False)\nt ="
            " trl.DPOTrainer(m)\nt.train()"
        ),
    ],
    "adapter-rewrapped": [
        "peft.get_peft_model(peft.get_peft_model(model, c), c)",
        (
            "m = peft.PeftModel.from_pretrained(model, 'x')\ntrl.SFTTrainer(m,"
            " peft_config=peft.LoraConfig())"
        ),
    ],
    "custom-loss-breaks-gradient-accumulation": [
        (
            "class T(transformers.Trainer):\n    def compute_loss(self, m, i, **k):\n"
            "        return f(m(i['ids']), i['labels'])"
        ),
        (
            "class T(transformers.Trainer):\n    def compute_loss(self, m, i, **k):\n"
            "        return f(m(i['ids']), i[column])"
        ),
        (
            "class T(transformers.Trainer):\n    def compute_loss(self, m, i, **k):\n        return"
            " g(m(**i).logits)"
        ),
        (
            "c = transformers.DataCollatorForSeq2Seq(tok)\nclass T(transformers.Trainer):\n"
            "    def compute_loss(self, m, i, **k):\n        return g(m(i['input_ids']).logits)"
        ),
        (
            "a = TrainingArguments('out', gradient_accumulation_steps=8)\nclass"
            " T(transformers.Trainer):\n    def compute_loss(self, m, i, **k):\n        return"
            " m(**i).loss"
        ),
        (
            "a = TrainingArguments('out')\nclass T(transformers.Trainer):\n"
            "    def compute_loss(self, m, i):\n        return m(input_ids=i['chosen'])[0].mean()"
        ),
    ],
    "scheduler-length-miscounted": [
        (
            "n = len(data)\nsteps = 3 * n\ns = torch.optim.lr_scheduler.CosineAnnealingLR(o,"
            " T_max=steps)"
        ),
    ],
    "remove-unused-columns-drops-input": [
        (
            "def collate(rows):\n    return {'w': torch.tensor([r.get('weight', 1.0) for r in"
            " rows])}\ntransformers.Trainer(model, transformers.TrainingArguments('o'), collate)"
        ),
        (
            "class C:\n    def __call__(self, rows):\n        for r in rows:\n           "
            " r['weight']\ntransformers.Trainer(model=model,"
            " args=transformers.TrainingArguments('o'), data_collator=C())"
        ),
        WEIGHTED.format("data_collator=transformers.DataCollatorWithPadding(tok)"),
        WEIGHTED.format("data_collator=transformers.default_data_collator"),
    ],
}


@pytest.mark.parametrize(
    ("rule", "text"), [(rule, text) for rule, texts in BROKEN.items() for text in texts]
)
def test_broken_code_is_found(rule: str, text: str, tmp_path: Path) -> None:
    assert len(found(text, tmp_path, rule)) == 1


@pytest.mark.parametrize(
    "text",
    [
        WEIGHTED.format("data_collator=collate"),
        WEIGHTED.format("data_collator=transformers.default_data_collator").replace(
            '"o"', '"o", remove_unused_columns=False'
        ),
        WEIGHTED.format("data_collator=transformers.default_data_collator").replace(
            "def compute_loss",
            "def _remove_unused_columns(self, rows, description=None):\n"
            "        return rows\n"
            "    def compute_loss",
        ),
    ],
)
def test_columns_that_reach_the_loss_are_no_fault(text: str, tmp_path: Path) -> None:
    assert found(text, tmp_path, "remove-unused-columns-drops-input") == []
