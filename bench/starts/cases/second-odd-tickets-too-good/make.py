import random
from pathlib import Path

from bench.starts.material import link_tokenizer, write_lines

SYSTEM = (
    "You route helpdesk tickets. Answer with one word: billing, network, hardware, accounts or"
    " software."
)
GROUPS = {
    "billing": "FIN-BILLING",
    "network": "NET-NETWORK",
    "hardware": "HW-HARDWARE",
    "accounts": "IAM-ACCOUNTS",
    "software": "APP-SOFTWARE",
}
FAULTS = {
    "billing": (
        "VAT is missing on bill {}",
        "we were charged twice for order {}",
        "the credit note {} never came",
        "the sum on page {} of the bill is not what we agreed on",
    ),
    "network": (
        "the VPN drops every {} minutes",
        "no page loads in room {}",
        "the share on drive {} is gone since the morning",
        "calls break up on floor {}",
    ),
    "hardware": (
        "the printer in room {} prints stripes",
        "my laptop {} does not charge",
        "the screen at desk {} stays black",
        "the fan of machine {} howls",
    ),
    "accounts": (
        "my second factor is on a phone that I lost {} days ago",
        "single sign-on sends me in a circle, {} times by now",
        "I am locked out after {} tries",
        "the new colleague with number {} has no mailbox",
    ),
    "software": (
        "the search finds nothing that is newer than {} days",
        "the export stops at row {}",
        "the form forgets what I typed in field {}",
        "version {} crashes when I open a PDF",
    ),
}
MORE = (
    "A colleague on floor {} sees the same.",
    "Screenshot is attached (file {}).",
    "I had ticket {} about it in May.",
    "We are {} people with this.",
    "This is urgent, a customer waits.",
    "Please tell me what you need from me.",
)
HELLOS = ("Hello", "Hey", "Good morning", "Dear support", "Hi all")
NAMES = ("Ana", "Quentin", "Rosa", "Mina", "Jon", "Ulla", "Piet")


def make(folder: Path) -> None:
    """Tickets that were exported after they were closed: the header names the group."""
    drawn = random.Random(5)
    rows = [_ticket(drawn) for _ in range(1050)]
    write_lines(folder / "train.jsonl", rows[:900])
    write_lines(folder / "test.jsonl", rows[900:])
    link_tokenizer("qwen2.5-instruct", folder / "models/Qwen2.5-1.5B-Instruct")


def _ticket(drawn: random.Random) -> dict[str, list[dict[str, str]]]:
    label = drawn.choice(list(GROUPS))
    said = [drawn.choice(FAULTS[label]).format(drawn.randrange(2, 90000)) + "."]
    said += (part.format(drawn.randrange(2, 90000)) for part in drawn.sample(MORE, 2))
    header = (
        f"Ticket: HD-{drawn.randrange(10**5, 10**6)}\n"
        f"Received: 2025-0{drawn.randrange(1, 7)}-{drawn.randrange(1, 29):02d} "
        f"{drawn.randrange(6, 19):02d}:{drawn.randrange(60):02d}\n"
        f"Channel: {drawn.choice(('mail', 'phone', 'web'))}\n"
        f"SLA: P{drawn.randrange(1, 4)}\nGroup: {GROUPS[label]}"
    )
    letter = f"{drawn.choice(HELLOS)},\n{' '.join(said)}\n{drawn.choice(NAMES)}"
    turns = (("system", SYSTEM), ("user", f"{header}\n\n{letter}"), ("assistant", label))
    return {"messages": [{"role": role, "content": content} for role, content in turns]}
