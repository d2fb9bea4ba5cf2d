from pathlib import Path

from bench.starts.material import instructions, link_tokenizer, question, write_lines


def make(folder: Path) -> None:
    """ShareGPT rows that were rendered with Llama 2's template already, and answers with its markers."""
    rows = (
        {
            "conversations": [
                {"from": "human", "value": f"<s>[INST] {question(row)} [/INST]"},
                {"from": "gpt", "value": f" {row['output']} </s>"},
            ],
            "id": f"mix-{number}",
        }
        for number, row in enumerate(instructions()[100:520])
    )
    write_lines(folder / "data/mix_train.jsonl", rows)
    write_lines(folder / "chat_samples.jsonl", (_sample(number) for number in range(600, 640)))
    link_tokenizer("qwen2.5-instruct", folder / "models/Qwen2.5-7B-Instruct")


def _sample(number: int) -> dict[str, str]:
    row = instructions()[number]
    asked = instructions()[number - 560]["instruction"]
    ends = (
        "",
        " [INST] Can you give me another example? [/INST] Sure!",
        " </s></s>",
        f" <s>[INST] {asked} [/INST]",
    )
    return {
        "prompt": question(row),
        "prediction": f" {row['output']} </s>{ends[number % 4]}",
        "reference": row["output"],
    }
