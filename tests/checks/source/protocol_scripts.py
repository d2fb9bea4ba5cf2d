"""Scripts in a broken and in a right order of calls, for each order of the protocols of training code."""

from __future__ import annotations

from textwrap import dedent

HEAD = """\
import torch
from accelerate import Accelerator
from datasets import load_dataset
from peft import AutoPeftModelForCausalLM, LoraConfig, PeftModel, get_peft_model
from torch.distributed.fsdp import FullyShardedDataParallel
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler
from transformers import (
    AutoConfig, AutoModelForCausalLM, AutoModelForSequenceClassification, AutoTokenizer, Trainer,
    get_linear_schedule_with_warmup,
)
from trl import SFTConfig, SFTTrainer
from unsloth import FastLanguageModel
from unsloth.chat_templates import train_on_responses_only
rows = load_dataset("json", data_files="rows.jsonl", split="train")
tokenizer = AutoTokenizer.from_pretrained("model")
model = AutoModelForCausalLM.from_pretrained("model")
"""
OPTIMIZER = "optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)\n"
SCALER = OPTIMIZER + 'scaler = torch.amp.GradScaler("cuda")\n'
TRAIN = "trainer = SFTTrainer(model=model, args=SFTConfig('out'), train_dataset=rows)\ntrainer.train()\n"
SHARD = "model = FullyShardedDataParallel(model, device_id=0)\n"
LOOP = """\
for batch in DataLoader(rows):
    loss = model(**batch).loss
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
"""


AVERAGED = """\
from diffusers.training_utils import EMAModel
ema = EMAModel(model.parameters())
for epoch in range(3):
    for batch in DataLoader(rows):
        model(**batch).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    ema.store(model.parameters())
    ema.copy_to(model.parameters())
"""


def loop(*lines: str) -> str:
    """A loop over batches that computes a loss and then runs some lines."""
    body = ("loss = model(**batch).loss", *lines)
    return "for batch in DataLoader(rows):\n" + "".join(f"    {line}\n" for line in body)


def script(*parts: str) -> str:
    """The head and some lines or blocks."""
    return HEAD + "".join(dedent(part).rstrip("\n") + "\n" for part in parts)


SCALED = "scaler.scale(loss).backward()"
UNSCALE = "scaler.unscale_(optimizer)"
CLIP = "torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)"
STEP = "scaler.step(optimizer)"
UPDATE = "scaler.update()"
CLEAR = "optimizer.zero_grad()"
ADAPT = "model = get_peft_model(model, LoraConfig(task_type='CAUSAL_LM'))"
FIRST = "model = PeftModel.from_pretrained(model, 'first', adapter_name='first')"
COMBINE = "model.add_weighted_adapter(['first', 'style'], [0.7, 0.3], adapter_name='both')"
MERGE = "merged = model.merge_and_unload()"
FREEZE = "model.requires_grad_(False)"
WRAP = "model = DistributedDataParallel(model)"
RESIZE = "model.resize_token_embeddings(len(tokenizer))"
ADD = "tokenizer.add_tokens(['[NEW]', '[OLD]'])"
ENCODE = "rows = rows.map(lambda row: tokenizer(row['text']))"
RENDER = "rows = rows.map(lambda row: {'text': tokenizer.apply_chat_template(row['messages'], tokenize=False)})"
TEMPLATE = "tokenizer.chat_template = open('chat.jinja').read()"
PAD = "tokenizer.pad_token = tokenizer.eos_token"
TAKE_PAD = "model.config.pad_token_id = tokenizer.pad_token_id"
CLASSIFIER = "model = AutoModelForSequenceClassification.from_pretrained('model'{})"
ACCELERATOR = "accelerator = Accelerator({})\n"
PREPARE = "model, optimizer = accelerator.prepare(model, optimizer)"

SCRIPTS: dict[str, tuple[str, str]] = {
    "accumulation-never-entered": (
        script(
            OPTIMIZER,
            ACCELERATOR.format("gradient_accumulation_steps=4"),
            PREPARE,
            loop("accelerator.backward(loss)", "optimizer.step()", CLEAR),
        ),
        script(
            OPTIMIZER,
            ACCELERATOR.format("gradient_accumulation_steps=4"),
            PREPARE,
            loop(
                "with accelerator.accumulate(model):",
                "    accelerator.backward(loss)",
                "    optimizer.step()",
                f"    {CLEAR}",
            ),
        ),
    ),
    "clip-before-unscale": (
        script(SCALER, loop(SCALED, CLIP, STEP, UPDATE, CLEAR)),
        script(SCALER, loop(SCALED, UNSCALE, CLIP, STEP, UPDATE, CLEAR)),
    ),
    "clip-of-one-shard": (
        script(SHARD, OPTIMIZER, loop("loss.backward()", CLIP, "optimizer.step()", CLEAR)),
        script(
            SHARD,
            OPTIMIZER,
            loop("loss.backward()", "model.clip_grad_norm_(1.0)", "optimizer.step()", CLEAR),
        ),
    ),
    "scaled-gradients-stepped": (
        script(SCALER, loop(SCALED, "optimizer.step()", UPDATE, CLEAR)),
        script(SCALER, loop(SCALED, STEP, UPDATE, CLEAR)),
    ),
    "unscaled-twice": (
        script(SCALER, loop(SCALED, UNSCALE, CLIP, UNSCALE, STEP, UPDATE, CLEAR)),
        script(SCALER, loop(SCALED, UNSCALE, CLIP, STEP, UPDATE, CLEAR)),
    ),
    "unscaled-after-step": (
        script(SCALER, loop(SCALED, UNSCALE, CLIP, STEP, CLEAR)),
        script(SCALER, loop(SCALED, UNSCALE, CLIP, STEP, UPDATE, CLEAR)),
    ),
    "stepped-without-update": (
        script(SCALER, loop(SCALED, STEP, CLEAR)),
        script(SCALER, loop(SCALED, STEP, UPDATE, CLEAR)),
    ),
    "clip-beside-accelerate": (
        script(OPTIMIZER, ACCELERATOR.format("mixed_precision='fp16'"), PREPARE,
               loop("accelerator.backward(loss)", CLIP, "optimizer.step()", CLEAR)),
        script(OPTIMIZER, ACCELERATOR.format("mixed_precision='fp16'"), PREPARE,
               loop("accelerator.backward(loss)", "accelerator.clip_grad_norm_(model.parameters(), 1.0)",
                    "optimizer.step()", CLEAR)),
    ),
    "backward-beside-accelerate": (
        script(OPTIMIZER, ACCELERATOR.format("mixed_precision='fp16'"), PREPARE,
               loop("loss.backward()", "optimizer.step()", CLEAR)),
        script(OPTIMIZER, ACCELERATOR.format("mixed_precision='fp16'"), PREPARE,
               loop("accelerator.backward(loss)", "optimizer.step()", CLEAR)),
    ),
    "clip-after-step": (
        script(OPTIMIZER, loop("loss.backward()", "optimizer.step()", CLIP, CLEAR)),
        script(OPTIMIZER, loop("loss.backward()", CLIP, "optimizer.step()", CLEAR)),
    ),
    "clip-before-backward": (
        script(OPTIMIZER, loop(CLEAR, CLIP, "loss.backward()", "optimizer.step()")),
        script(OPTIMIZER, loop(CLEAR, "loss.backward()", CLIP, "optimizer.step()")),
    ),
    "schedule-before-optimizer": (
        script(OPTIMIZER, "scheduler = get_linear_schedule_with_warmup(optimizer, 10, 100)",
               loop("loss.backward()", "scheduler.step()", "optimizer.step()", CLEAR)),
        script(OPTIMIZER, "scheduler = get_linear_schedule_with_warmup(optimizer, 10, 100)",
               loop("loss.backward()", "optimizer.step()", "scheduler.step()", CLEAR)),
    ),
    "trained-on-averaged-weights": (
        script(OPTIMIZER, AVERAGED),
        script(OPTIMIZER, AVERAGED + "    ema.restore(model.parameters())\n"),
    ),
    "epoch-of-the-sampler-fixed": (
        script("sampler = DistributedSampler(rows)", "for epoch in range(3):\n    sampler.set_epoch(0)"),
        script("sampler = DistributedSampler(rows)", "for epoch in range(3):\n    sampler.set_epoch(epoch)"),
    ),
    "frozen-after-adapter": (script(ADAPT, FREEZE, TRAIN), script(FREEZE, ADAPT, TRAIN)),
    "adapter-after-wrapper": (
        script(WRAP, ADAPT, OPTIMIZER, LOOP), script(ADAPT, WRAP, OPTIMIZER, LOOP)
    ),
    "resize-after-wrapper": (
        script(WRAP, "model.module.resize_token_embeddings(len(tokenizer))", OPTIMIZER, LOOP),
        script(RESIZE, WRAP, OPTIMIZER, LOOP),
    ),
    "unfrozen-after-wrapper": (
        script(WRAP, "for weight in model.module.lm_head.parameters():\n    weight.requires_grad = True",
               OPTIMIZER, LOOP),
        script("for weight in model.lm_head.parameters():\n    weight.requires_grad = True", WRAP, OPTIMIZER, LOOP),
    ),
    "batch-norm-after-wrapper": (
        script(WRAP, "model = torch.nn.SyncBatchNorm.convert_sync_batchnorm(model)", OPTIMIZER, LOOP),
        script("model = torch.nn.SyncBatchNorm.convert_sync_batchnorm(model)", WRAP, OPTIMIZER, LOOP),
    ),
    "positions-set-after-load": (
        script("model.config.rope_scaling = {'rope_type': 'linear', 'factor': 4.0}", TRAIN),
        script("config = AutoConfig.from_pretrained('model')",
               "config.rope_scaling = {'rope_type': 'linear', 'factor': 4.0}",
               "model = AutoModelForCausalLM.from_pretrained('model', config=config)", TRAIN),
    ),
    "dropout-set-after-load": (
        script("model.config.attention_dropout = 0.1", TRAIN),
        script("model = AutoModelForCausalLM.from_pretrained('model', attention_dropout=0.1)", TRAIN),
    ),
    "labels-set-after-load": (
        script(CLASSIFIER.format(""), "model.config.num_labels = 7", TRAIN),
        script(CLASSIFIER.format(", num_labels=7"), "model.config.num_labels = 7", TRAIN),
    ),
    "resized-before-tokens": (script(RESIZE, ADD, TRAIN), script(ADD, RESIZE, TRAIN)),
    "length-taken-before-tokens": (
        script("length = len(tokenizer)", ADD, "model.resize_token_embeddings(length)", TRAIN),
        script(ADD, "length = len(tokenizer)", "model.resize_token_embeddings(length)", TRAIN),
    ),
    "tokens-added-after-rows": (
        script(ENCODE, ADD, RESIZE, TRAIN), script(ADD, RESIZE, ENCODE, TRAIN)
    ),
    "template-set-after-rows": (script(RENDER, TEMPLATE, TRAIN), script(TEMPLATE, RENDER, TRAIN)),
    "pad-id-taken-before-pad-token": (script(TAKE_PAD, PAD, TRAIN), script(PAD, TAKE_PAD, TRAIN)),
    "new-vocabulary-under-old-embedding": (
        script("tokenizer = tokenizer.train_new_from_iterator(rows['text'], vocab_size=32_000)",
               "trainer = Trainer(model=model, train_dataset=rows, processing_class=tokenizer)", "trainer.train()"),
        script("tokenizer = tokenizer.train_new_from_iterator(rows['text'], vocab_size=32_000)",
               "model = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained('model'))",
               "trainer = Trainer(model=model, train_dataset=rows, processing_class=tokenizer)", "trainer.train()"),
    ),
    "adapter-after-trainer": (
        script("trainer = Trainer(model=model, train_dataset=rows)", ADAPT, "trainer.train()"),
        script(ADAPT, "trainer = Trainer(model=model, train_dataset=rows)", "trainer.train()"),
    ),
    "trained-while-merged": (
        script(ADAPT, "model.merge_adapter()", TRAIN),
        script(ADAPT, "model.merge_adapter()", "model.unmerge_adapter()", TRAIN),
    ),
    "trained-while-switched-off": (
        script(ADAPT, "model.disable_adapter_layers()", TRAIN),
        script(ADAPT, "model.disable_adapter_layers()", "model.enable_adapter_layers()", TRAIN),
    ),
    "trained-in-inference-mode": (
        script(OPTIMIZER, "FastLanguageModel.for_inference(model)", LOOP),
        script(OPTIMIZER, "FastLanguageModel.for_inference(model)",
               "FastLanguageModel.for_training(model)", LOOP),
    ),
    "padding-side-set-after-batch": (
        script("batch = tokenizer(['Hi', 'Good day'], padding=True, return_tensors='pt')",
               "tokenizer.padding_side = 'left'", "answers = model.generate(**batch, max_new_tokens=200)"),
        script("tokenizer.padding_side = 'left'",
               "batch = tokenizer(['Hi', 'Good day'], padding=True, return_tensors='pt')",
               "answers = model.generate(**batch, max_new_tokens=200)"),
    ),
    "compiled-model-dropped": (
        script(OPTIMIZER, "torch.compile(model)", LOOP), script(OPTIMIZER, "model = torch.compile(model)", LOOP)
    ),
    "second-adapter-not-active": (
        script(ADAPT, "model.add_adapter('second', LoraConfig(task_type='CAUSAL_LM'))", TRAIN),
        script(ADAPT, "model.add_adapter('second', LoraConfig(task_type='CAUSAL_LM'))",
               "model.set_adapter('second')", TRAIN),
    ),
    "second-adapter-not-merged": (
        script(FIRST, "model.load_adapter('style', adapter_name='style')", MERGE),
        script(FIRST, "model.load_adapter('style', adapter_name='style')", "model.set_adapter('style')", MERGE),
    ),
    "combined-adapter-not-merged": (
        script(FIRST, COMBINE, MERGE), script(FIRST, COMBINE, "model.set_adapter('both')", MERGE),
    ),
    "combined-adapter-not-asked": (
        script(FIRST, COMBINE, "answers = model.generate(**batch, max_new_tokens=200)"),
        script(FIRST, COMBINE, "model.set_adapter('both')", "answers = model.generate(**batch, max_new_tokens=200)"),
    ),
    "resize-after-embedding-adapter": (
        script("model = get_peft_model(model, LoraConfig(modules_to_save=['embed_tokens']))", RESIZE),
        script(RESIZE, "model = get_peft_model(model, LoraConfig(modules_to_save=['embed_tokens']))"),
    ),
    "sampler-sharded-twice": (
        script(ACCELERATOR.format(""), "loader = DataLoader(rows, sampler=DistributedSampler(rows))",
               "loader = accelerator.prepare(loader)"),
        script(ACCELERATOR.format(""), "loader = DataLoader(rows, shuffle=True)",
               "loader = accelerator.prepare(loader)"),
    ),
    "wrapper-dropped": (
        script(OPTIMIZER, ACCELERATOR.format(""), "accelerator.prepare(model, optimizer)", LOOP),
        script(OPTIMIZER, ACCELERATOR.format(""), PREPARE, LOOP),
    ),
    "prompts-masked-after-training": (
        script(TRAIN, "trainer = train_on_responses_only(trainer)"),
        script(TRAIN.replace("trainer.train()", ""), "trainer = train_on_responses_only(trainer)", "trainer.train()"),
    ),
    "callback-added-after-training": (
        script(TRAIN, "trainer.add_callback(Early())"),
        script(TRAIN.replace("trainer.train()", ""), "trainer.add_callback(Early())", "trainer.train()"),
    ),
    "state-loaded-before-prepare": (
        script(OPTIMIZER, ACCELERATOR.format(""), "accelerator.load_state('last')", PREPARE),
        script(OPTIMIZER, ACCELERATOR.format(""), PREPARE, "accelerator.load_state('last')"),
    ),
    "registered-after-load": (
        script(OPTIMIZER, ACCELERATOR.format(""), PREPARE, "accelerator.load_state('last')",
               "accelerator.register_for_checkpointing(counter)"),
        script(OPTIMIZER, ACCELERATOR.format(""), PREPARE, "accelerator.register_for_checkpointing(counter)",
               "accelerator.load_state('last')"),
    ),
    "moved-after-optimizer-state": (
        script(OPTIMIZER, "optimizer.load_state_dict(torch.load('last.pt'))", "model.to('cuda')", LOOP),
        script("model.to('cuda')", OPTIMIZER, "optimizer.load_state_dict(torch.load('last.pt'))", LOOP),
    ),
    "method-of-the-model-on-wrapper": (
        script(WRAP, OPTIMIZER, LOOP, "model.save_pretrained('out')"),
        script(WRAP, OPTIMIZER, LOOP, "model.module.save_pretrained('out')"),
    ),
    "changed-after-tokenizer-saved": (
        script("tokenizer.save_pretrained('out')", ADD, RESIZE, TRAIN),
        script(ADD, RESIZE, "tokenizer.save_pretrained('out')", TRAIN),
    ),
}  # fmt: skip
"""Name of an order -> a script that breaks it, and one that does not"""
