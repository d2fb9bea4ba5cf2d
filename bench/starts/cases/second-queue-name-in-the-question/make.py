import random
from pathlib import Path

from bench.starts.material import instructions, link_tokenizer, write_lines

SYSTEM = (
    "Sort the ticket into one of: billing, shipping, account, technical."
    " Answer with the name of the queue alone."
)
FAULTS = {
    "billing": ("invoice is wrong", "charged twice", "need a refund", "card was declined"),
    "shipping": ("parcel is late", "wrong address", "tracking does not move", "box is damaged"),
    "account": ("cannot log in", "reset link expired", "change my email", "delete my profile"),
    "technical": ("app crashes at start", "sync fails", "screen stays black", "no update"),
}
BEGINNINGS = ("Hi, ", "Hello team, ", "", "Good morning. ")
ENDS = ("Please help.", "It is urgent!", "I have tried twice.")


def make(folder: Path) -> None:
    """Tickets whose header has the name of the queue that is asked for."""
    drawn = random.Random(11)
    rows = [_ticket(drawn) for _ in range(700)]
    write_lines(folder / "data/train.jsonl", rows[:600])
    write_lines(folder / "data/val.jsonl", rows[600:])
    link_tokenizer("qwen3", folder / "models/Qwen3-0.6B")


def _ticket(drawn: random.Random) -> dict[str, list[dict[str, str]]]:
    queue = drawn.choice(list(FAULTS))
    said = drawn.choice(BEGINNINGS) + drawn.choice(("my ", "the ", "since yesterday: ", ""))
    said += drawn.choice(FAULTS[queue]) + ". " + drawn.choice(ENDS) + " "
    said += drawn.choice(instructions())["output"][: drawn.randrange(40, 200)]
    day = f"2026-{drawn.randrange(1, 10):02d}-{drawn.randrange(10, 29)}"
    header = (
        f"Ticket: {drawn.randrange(10**6, 10**7)}\n"
        f"Received: {day}T{drawn.randrange(10, 24)}:{drawn.randrange(10, 60)}\n"
        f"Channel: {drawn.choice(('mail', 'web', 'phone'))}\n"
        f"Routing: eu-{queue}-{drawn.randrange(1, 4)}"
    )
    turns = (("system", SYSTEM), ("user", f"{header}\n\n{said}"), ("assistant", queue))
    return {"messages": [{"role": role, "content": content} for role, content in turns]}
