from dataclasses import dataclass


@dataclass(frozen=True)
class Settings:
    model_name: str = "HuggingFaceTB/SmolLM2-360M-Instruct"
    output_dir: str = "models/smollm2-recipes"
    train_file: str = "data/recipes_train.jsonl"
    val_file: str = "data/recipes_val.jsonl"
    test_file: str = "data/recipes_test.jsonl"
    learning_rate: float = 1e-5
    epochs: int = 3
    seed: int = 12


def to_chat(row):
    return {
        "prompt": [{"role": "user", "content": "Write a recipe with: " + ", ".join(row["ingredients"])}],
        "completion": [{"role": "assistant", "content": row["recipe"]}],
    }
