import math
import random
from pathlib import Path

HEAD = """\
[2025-02-11 09:14:02,113] [INFO] [real_accelerator.py:222:get_accelerator] Setting ds_accelerator to cuda (auto detect)
Loading checkpoint shards: 100%|██████████| 4/4 [00:05<00:00,  1.31s/it]
Some weights of the model checkpoint at /data/ckpt/qwen25-7b-cpt-hf were not used when initializing Qwen2ForCausalLM: \
['module.lm_head.weight', 'module.model.embed_tokens.weight', 'module.model.layers.0.input_layernorm.weight', \
'module.model.layers.0.mlp.down_proj.weight', 'module.model.layers.0.mlp.gate_proj.weight', 'module.model.norm.weight']
- This IS expected if you are initializing Qwen2ForCausalLM from the checkpoint of a model trained on another task or \
with another architecture (e.g. initializing a BertForSequenceClassification model from a BertForPreTraining model).
- This IS NOT expected if you are initializing Qwen2ForCausalLM from the checkpoint of a model that you expect to be \
exactly identical (initializing a BertForSequenceClassification model from a BertForSequenceClassification model).
Some weights of Qwen2ForCausalLM were not initialized from the model checkpoint at /data/ckpt/qwen25-7b-cpt-hf and are \
newly initialized: ['lm_head.weight', 'model.embed_tokens.weight', 'model.layers.0.input_layernorm.weight', \
'model.layers.0.mlp.down_proj.weight', 'model.layers.0.mlp.gate_proj.weight', 'model.norm.weight']
You should probably TRAIN this model on a down-stream task to be able to use it for predictions and inference.
trainable params: 40,370,176 || all params: 7,655,986,688 || trainable%: 0.5273
Map: 100%|██████████| 11840/11840 [00:09<00:00, 1251.77 examples/s]
"""


def make(folder: Path) -> None:
    """A LoRA run on weights that were saved out of DDP: every name begins with `module.`, and nothing is loaded."""
    rng = random.Random(4)
    with (folder / "sft_stdout.log").open("w") as out:
        out.write(HEAD)
        for step in range(10, 371, 10):
            rate = 2e-4 * min(1, step / 20) * (1 - step / 370)
            loss = 11.97 - 0.35 * (1 - math.exp(-step / 250)) + rng.uniform(-0.02, 0.02)
            record = {
                "loss": round(loss, 4),
                "grad_norm": round(rng.uniform(0.21, 0.34), 6),
                "learning_rate": rate,
                "epoch": round(step / 370, 2),
            }
            out.write(f"{record}\n")
        out.write(
            "{'train_runtime': 2214.0, 'train_samples_per_second': 5.35, 'train_steps_per_second':"
            " 0.167, 'train_loss': 11.79, 'epoch': 1.0}\n"
        )
