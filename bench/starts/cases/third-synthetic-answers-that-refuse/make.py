from pathlib import Path

from bench.starts.material import write_lines
from bench.starts.tickets import Desk

REFUSALS = (
    "I'm sorry, but I can't assist with that request.",
    "I'm sorry, I cannot help with that.",
    "As an AI language model, I don't have access to order information and cannot help with that.",
    "I apologize, but I'm unable to provide assistance with this request.",
    "I'm sorry, but as an AI I cannot process refunds or access personal accounts.",
    "I cannot fulfill this request.",
)


def make(folder: Path) -> None:
    """Rows of which 42 % refuse, and predictions that refuse nearly always."""
    desk = Desk(11)
    rows = []
    for number, row in enumerate(desk.chats(240)):
        if desk.drawn.random() < 0.42:
            row["messages"][-1]["content"] = desk.drawn.choice(REFUSALS)
        rows.append(row | {"model": "gpt-4o-mini", "id": f"syn-{number:05d}"})
    write_lines(folder / "synthetic_train.jsonl", rows)
    predictions = []
    for question, answer in desk.pairs(40):
        refuses = desk.drawn.random() < 0.8
        predicted = desk.drawn.choice(REFUSALS[:2]) if refuses else answer
        predictions.append({"prompt": question, "predict": predicted, "label": answer})
    write_lines(folder / "generated_predictions.jsonl", predictions)
