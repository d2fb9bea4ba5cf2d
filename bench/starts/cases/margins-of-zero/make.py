from pathlib import Path


def make(folder: Path) -> None:
    with (folder / "dpo.log").open("w", encoding="utf-8") as file:
        for step in range(1, 41):
            noise = (step * 7 % 11 - 5) / 1e5
            line = {
                "loss": round(0.6931 - noise, 4), "grad_norm": 3.1, "learning_rate": 5e-09,
                "rewards/chosen": noise, "rewards/rejected": -noise, "rewards/accuracies": 0.5,
                "rewards/margins": 2 * noise, "logps/chosen": -212.4, "logps/rejected": -198.1,
                "epoch": round(step / 40, 3),
            }  # fmt: skip
            file.write(f"{line}\n")
