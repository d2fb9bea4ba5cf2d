import random
from pathlib import Path

from bench.starts.material import write_lines

SUBJECTS = (
    "invoice 4471",
    "the boiler in flat 3",
    "Thursday's delivery",
    "my login",
    "the lost parcel",
    "the seminar room",
    "the broken lamp",
    "a refund",
    "the yearly report",
    "our meeting",
)
SENTENCES = (
    "Could you tell me when {} will be dealt with?",
    "I am writing once more about {}, since nobody has called back.",
    "Thank you for the quick help with {}.",
    "Please cancel everything to do with {}.",
    "We have looked into {} and will write again by Monday.",
    "There seems to be a mistake in what you sent about {}.",
)
ENDS = ("Kind regards, {}", "Best, {}", "Thanks in advance. {}", "Yours, {}")
NAMES = ("Maya", "Tom", "Priya", "Oleg", "Sara", "Ben", "Lucia", "Ahmed", "Ines", "Kofi", "Jonas")


def make(folder: Path) -> None:
    """160 short mails, each another one."""
    drawn = random.Random(404)
    mails: dict[str, None] = {}
    while len(mails) < 160:
        subjects = (drawn.choice(SUBJECTS), "it")
        sentences = drawn.sample(SENTENCES, drawn.choice((1, 1, 2)))
        said = " ".join(text.format(of) for text, of in zip(sentences, subjects, strict=False))
        mails[f"Hello,\n{said}\n{drawn.choice(ENDS).format(drawn.choice(NAMES))}"] = None
    write_lines(folder / "mails_val.jsonl", ({"text": mail} for mail in mails))
