import random
from pathlib import Path

WARNINGS = """\
`use_cache=True` is incompatible with gradient checkpointing. Setting `use_cache=False`.
/opt/conda/lib/python3.11/site-packages/torch/utils/checkpoint.py:91: UserWarning: None of the inputs have \
requires_grad=True. Gradients will be None
  warnings.warn(
"""


def make(folder: Path) -> None:
    """A LoRA run with reentrant checkpointing and no enable_input_require_grads()."""
    rng = random.Random(8)
    with (folder / "nohup.out").open("w") as out:
        out.write("nohup: ignoring input\n")
        out.write("Loading checkpoint shards: 100%|██████████| 2/2 [00:03<00:00,  1.62s/it]\n")
        out.write(
            "trainable params: 3,407,872 || all params: 6,741,823,488 || trainable%: 0.0505\n"
        )
        out.write("  0%|          | 0/600 [00:00<?, ?it/s]" + WARNINGS)
        for step in range(20, 601, 20):
            record = {
                "loss": round(1.87 + rng.uniform(-0.09, 0.09), 4),
                "grad_norm": 0.0,
                "learning_rate": 1e-4 * (1 - step / 600),
                "epoch": round(step / 300, 2),
            }
            out.write(
                f"{record}\n {step // 6:2d}%|{'█' * (step // 60):10s}| {step}/600"
                f" [{step // 20:02d}:12<10:01,  3.1s/it]"
            )
        out.write(
            "\n{'train_runtime': 1872.4, 'train_samples_per_second': 2.56, 'train_loss': 1.869,"
            " 'epoch': 2.0}\n"
        )
