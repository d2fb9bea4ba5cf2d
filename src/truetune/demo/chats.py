"""Made-up chats of a web shop's support, varied enough to learn from."""

from __future__ import annotations

from random import Random
from typing import Any

Row = dict[str, Any]

ITEMS = (
    *("walking boots", "a tea kettle", "two desk lamps", "a wool blanket", "a bicycle pump", "a chess set"),
    *("garden shears", "a raincoat", "three picture frames", "a camping stove", "a violin case", "a bread knife"),
)
TOWNS = (
    "Lisbon",
    "Aarhus",
    "Ghent",
    "Krakow",
    "Turku",
    "Bergen",
    "Graz",
    "Nantes",
    "Bilbao",
    "Leeds",
    "Tartu",
    "Basel",
)
DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday")
NAMES = ("Ana", "Jonas", "Mira", "Piotr", "Leila", "Sven", "Clara", "Idris", "Noor", "Tomas", "Hanna", "Kofi")

TOPICS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "delivery": (
        (
            "Where is order {n}? I am waiting for {item} in {town}.",
            "My parcel {n} was to reach {town} by {day}, and it is not here.",
            "Could you tell me when {item} from order {n} will arrive?",
        ),
        (
            "Order {n} left our store on {day} and is on its way to {town}; the carrier plans {hours} more hours.",
            "I have asked the carrier about {item}. They hold the parcel in {town} and bring it on {day} after {hour}.",
            "The parcel with {item} missed its lorry. It now reaches {town} on {day}, and we pay back {price} euros.",
        ),
    ),
    "refund": (
        (
            "I sent {item} back {hours} days ago. When do I get my {price} euros?",
            "Order {n} was cancelled, and the money is still missing.",
            "You charged me {price} euros twice for {item}.",
        ),
        (
            "We received {item} on {day}. Your bank should show {price} euros within {hours} working days.",
            "I see two charges for order {n}. One of {price} euros goes back to your card today.",
            "The refund for order {n} stopped because the card expired. Please name another account, {name}.",
        ),
    ),
    "damage": (
        (
            "{item} came with a crack, order {n}. What now?",
            "The box for {town} was wet and {item} is stained.",
            "One part of {item} is broken, I unpacked it on {day}.",
        ),
        (
            "I am sorry, {name}. A new one leaves on {day}; keep the cracked one, or bring it to our {town} shop.",
            "Please send a photo of the box to our desk. We replace {item} or pay back {price} euros, as you like.",
            "Thank you for telling us so soon. Part {n} is on the shelf and goes out before {hour} on {day}.",
        ),
    ),
    "account": (
        (
            "I can't log in any more, the page says code {n}.",
            "How do I change the address of my account to {town}?",
            "Please delete my account, {name} from {town}.",
        ),
        (
            "Code {n} means the password is too old. Choose one with at least {hours} letters at the sign-in page.",
            "Open your profile, choose addresses, and add {town}. Orders placed before {day} still go to the old one.",
            "I can close it, {name}. Order {n} must be paid first; then all is erased within {hours} days.",
        ),
    ),
    "product": (
        (
            "Is {item} in stock at the {town} shop?",
            "Does {item} cost {price} euros with or without tax?",
            "Which size do I need of {item} for a child of {hours}?",
        ),
        (
            "There are {hours} left in {town}. I can keep {item} for you until {hour} on {day}, {name}.",
            "The {price} euros hold everything, tax and a warranty of {hours} months.",
            "At that age most families take the smaller one. You may swap {item} until {day} if it does not fit.",
        ),
    ),
    "invoice": (
        (
            "I need an invoice for {item} made out to my firm in {town}.",
            "The invoice of order {n} shows {price} euros, that is wrong.",
            "Can {name} get the bill as well?",
        ),
        (
            "The invoice for order {n} is on its way to your mailbox, now with the address in {town}.",
            "You are right, {item} was on offer that {day}. The new bill says {price} euros.",
            "Of course. I have sent a copy of bill {n} to {name}, who should see it before {hour}.",
        ),
    ),
}
THANKS = (
    "Thank you. And does that also hold for {town}?",
    "Fine. What if I am not at home on {day}?",
    "All right, and who pays the {price} euros for sending it?",
    "Good. Could {name} collect it instead?",
)
REPLIES = (
    "It does; only parcels over {hours} kilos take a day longer to {town}.",
    "Then the driver leaves it at the post office in {town} until {day}, {hour}.",
    "We do. The label inside the box is paid, so you owe nothing of the {price} euros.",
    "Gladly, if {name} brings number {n} and a passport.",
)
SYSTEM = ("You help the customers of a small web shop.", "Answer briefly and politely, for the shop's customers.")


def chats(count: int, rng: Random) -> list[Row]:
    """That many chats of one to three questions, in mixed order."""
    rows = []
    topics = list(TOPICS)
    for i in range(count):
        questions, answers = TOPICS[topics[i % len(topics)]]
        kind = rng.randrange(3)
        messages = [{"role": "system", "content": rng.choice(SYSTEM)}] if rng.random() < 0.3 else []
        messages += _exchange(questions[kind], answers[kind], rng)
        for _ in range(rng.choice((0, 0, 1, 2))):
            more = rng.randrange(len(THANKS))
            messages += _exchange(THANKS[more], REPLIES[more], rng)
        rows.append({"messages": messages})
    rng.shuffle(rows)
    return rows


def _exchange(question: str, answer: str, rng: Random) -> list[dict[str, str]]:
    facts: dict[str, Any] = {
        "n": rng.randrange(10_000, 99_999),
        "item": rng.choice(ITEMS),
        "town": rng.choice(TOWNS),
        "day": rng.choice(DAYS),
        "name": rng.choice(NAMES),
        "hour": f"{rng.randrange(8, 20)}:{rng.choice(('00', '15', '30', '45'))}",
        "hours": rng.randrange(3, 30),
        "price": f"{rng.randrange(4, 180)}.{rng.randrange(10, 99)}",
    }
    said = [_sentence(text.format(**facts)) for text in (question, answer)]
    return [{"role": role, "content": text} for role, text in zip(("user", "assistant"), said, strict=True)]


def _sentence(text: str) -> str:
    return text[0].upper() + text[1:]
