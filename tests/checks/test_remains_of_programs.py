"""Marks that programs left in answers are named by their form, and what people write in the same signs is not."""

from __future__ import annotations

import pytest

from truetune.checks.rows.evidence.damage_of_texts import find_damage

LEFT = {
    "ids and emoji names of a chat program": (
        "<@U02AB34CDE> I have sent the invoice again.",
        "Please ask in <#C024BE7LR|billing> about it.",
        "<!channel> The server is back since nine.",
        "Done :white_check_mark: and the mail is out.",
        "<@!123456789012345678> the role is yours now.",
        "Nice work <:party:812345678901234567> all of you.",
    ),
    "a time and a name in front": (
        "[12:03] Amara: Your parcel left this morning.",
        "[12/03/24, 10:11:45] Tom W.: I have checked it.",
        "2024-03-12 09:30 Support: The code is new.",
        "10:11 PM - Lena: It is in the post.",
        "(09:05) Agent Kim: Please try again.",
    ),
    "an older mail below the answer": (
        "I sent it.\n\nOn Tue, 12 Mar 2024 at 10:22, Ann <ann@mail.com> wrote:\n> When?",
        "I sent it.\n\nAm 12.03.2024 um 10:22 schrieb Ann <ann@mail.de>:\n> Wann?",
        "I sent it.\n\n-----Original Message-----\nFrom: Ann",
        "I sent it.\n\nFrom: Ann Lee\nSent: Monday\nTo: Support\n\nWhen?",
        "I sent it.\n\n---------- Forwarded message ---------\nFrom: Ann",
    ),
    "marks of an anonymiser instead of names": (
        "I have written to [EMAIL_ADDRESS] about it.",
        "Thank you, [FIRST_NAME], it is on its way.",
        "<PERSON> can call <PHONE_NUMBER> at any time.",
        "On XX/XX/2023 the bank closed it.",
        "Order [ORDER_ID] is on the way.",
    ),
    "notices of a chat program": (
        "Marta has joined the chat.",
        "This chat was transferred to the Returns queue.",
        "Kim set the status to Pending.",
        "<Media omitted>",
        "This is an automated reply: we are closed.",
    ),
    "pieces of tokens, or the unknown token": (
        "The work ##ers left the build ##ing at noon.",
        "\u2581The\u2581work\u2581is\u2581done.",
        "The\u0120work\u0120is\u0120done.",
        "The wor@@ kers left the buil@@ ding.",
        "We met <unk> in <unk> last May.",
    ),
    "words whose letters are apart": (
        "The s t a t i o n is near the b r i d g e today.",
        "C h a p t e r one is about the r i v e r and its fish.",
        "It was a q u i e t day, and the h a r b o u r slept.",
        "Die B r \u00fc c k e ist alt, die S t a d t auch.",
        "A t o t a l of nine, and a s h a r e of two.",
    ),
    "question marks instead of letters": (
        "Die Stra?e ist lang.",
        "Il est d?j\u00e0 tard.",
        "A?o nuevo en Madrid.",
        "Gr??e aus K?ln.",
        "Die T?r ist zu.",
    ),
    "several candidates in one answer": (
        "Response 1:\nThe sea is deep.\n\nResponse 2:\nIt is wide.",
        "**Answer A:** It is blue.\n\n**Answer B:** It is grey.",
        "Option 1: Take the train.\nOption 2: Take the bus.",
        "### Version 1\nShort and kind.\n### Version 2\nLong.",
        "Draft #1 - Dear all.\nDraft #2 - Hello.",
    ),
    "another task after the answer": (
        "It is Paris.\n\nInstruction: Name the capital of Peru.\nOutput: Lima",
        "It is Paris.\n\nQ: And of Peru?\nA: Lima",
        "It is Paris.\n### Input:\nName the capital of Peru.\n### Response:\nLima",
        "It is Paris.\nQuestion 2: What about Peru?\nAnswer 2: Lima",
        "It is Paris.\n\nProblem: Find the capital of Peru.\nSolution: Lima",
    ),
    "code without indentation": (
        "def f(x):\nfor y in x:\nprint(y)\n",
        "class A:\ndef f(self):\nreturn 1\n",
        "Here:\n```python\nif a:\nb = 1\nelse:\nb = 2\n```",
        "try:\nwork()\nexcept ValueError:\npass\n",
        "    def f(self):\n    if self.a:\n    return 1\n",
    ),
    "both sides of a merge conflict": (
        "a = 1\n<<<<<<< HEAD\nb = 2\n=======\nb = 3\n>>>>>>> main\n",
        "<<<<<<< ours\nred\n=======\nblue\n>>>>>>> theirs\n",
        "x\n<<<<<<< HEAD\n=======\ny\n>>>>>>> 1a2b3c4\n",
        "<<<<<<< HEAD\n\n=======\n\n>>>>>>> feature/a\nend",
        "```\n<<<<<<< HEAD\na\n=======\nb\n>>>>>>> dev\n```",
    ),
    "line numbers or plus signs of a listing": (
        "  1 | def f(x):\n  2 |     y = x\n  3 |     return y\n  4 | print(f(1))",
        "1: import os\n2: def f():\n3:     return os.name\n4: f()",
        "10\tdef f():\n11\t    x = 1\n12\t    return x\n13\tf()",
        "+def f():\n+    x = 1\n+    return x\n+f()",
        "```\n1 | import os\n2 | import sys\n3 | x = 1\n4 | y = 2\n```",
    ),
    "prompts of an interpreter on all lines": (
        ">>> def f():\n...     x = 1\n...     return x\n>>> f()",
        ">>> import os\n>>> a = 1\n>>> b = 2\n>>> a + b",
        "```\n>>> x = [1]\n>>> x.append(2)\n>>> y = x\n>>> len(y)\n```",
        "In [1]: import os\nIn [2]: a = 1\nIn [3]: a\nOut[3]: 1",
        ">>> for x in y:\n...     f(x)\n...\n>>> g()",
    ),
}
"""A kind of damage -> texts that have it"""
WRITTEN_BY_PEOPLE = (
    "The ratio is 3:2:1, and the time 10:45. Note: bring a coat. See: the map.",
    "12:30 is noon for some. At 12:45: lunch.",
    "Use the key `:thumbsup:` in Slack to react.",
    "On Monday I wrote: the shop is closed.\nIt opens on Tuesday.",
    "She said:\n> It is late\nand left. The quote is old.",
    "[NASA] and [WHO] are names of agencies. See [1] and [TODO].",
    "They joined the club in May and left the country in June.",
    "Press <Enter> and then <Ctrl+C>. The tag <b> is bold.",
    "## Heading\nText below it. ### Next\nMore text.",
    "We use C# and F# there. A B C are the first three of them.",
    "Is it late? yes. Is it far? no, it is near.",
    "See https://example.com/a?b=c for the list.",
    "First option: the train. Second option: the bus.",
    "The answer is 4.\nAnswer: 4",
    "Question: what is it? It is a lamp.",
    "def f(x):\n    return x\n\nclass A:\n    pass\n",
    "if a: b = 1\nelse: b = 2\n",
    "1. red\n2. blue\n3. green\n4. grey\n",
    "1: one apple\n2: two pears\n3: three plums\n4: four figs",
    "- one\n- two\n+ three\n- four",
    "Call f(1):\n>>> f(1)\n2\nIt adds one to its argument.\nThat is all.",
    "The heading\n=======\nis underlined.\n",
)


@pytest.mark.parametrize(
    ("kind", "text"), [(kind, text) for kind, texts in LEFT.items() for text in texts]
)
def test_what_a_program_left_is_named(kind: str, text: str) -> None:
    damage = find_damage(text, "What is it about?")
    assert damage is not None
    assert damage.kind.name == kind


@pytest.mark.parametrize("text", WRITTEN_BY_PEOPLE)
def test_what_people_write_is_not(text: str) -> None:
    assert find_damage(text, "What is it about?") is None


@pytest.mark.parametrize(
    ("prompt", "text"),
    [
        ("Which emoji name is the tick on Slack?", "It is :white_check_mark: there."),
        ("Replace names by placeholders.", "[NAME] lives in [CITY]."),
        ("Give me two versions of it.", "Version 1:\nShort.\nVersion 2:\nLong."),
        ("Write a quiz of one question.", "Here:\nQuestion: What is red?\nAnswer: A rose."),
        ("Show the diff.", "+def f():\n+    x = 1\n+    return x\n+f()"),
        ("Spell these words.", "s t a t i o n and b r i d g e"),
        ("Write a transcript of the call.", "[12:03] Amara: Your parcel left."),
    ],
)
def test_what_the_prompt_asks_for_is_not(prompt: str, text: str) -> None:
    assert find_damage(text, prompt) is None
