"""Healthy answers have nothing against them, and broken ones have what they have."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.parts import data
from truetune.data.read_rows_as_conversations import read_conversations
from truetune.demo import DATA
from truetune.generation.answer_parsers_named_by_user import make_parser
from truetune.generation.answer_samples import Answer, Prompt, Scores
from truetune.generation.repetition_loops import is_looping
from truetune.generation.score_answer_by_prompt_and_reference import score_answer

CONTROL = ("<|im_start|>", "<|im_end|>", "<|endoftext|>", "<think>")
EN = (
    "The lighthouse stands on the northern cliff, and its lamp is lit every evening by the old"
    " keeper."
)
DE = (
    "Der Leuchtturm steht auf der nördlichen Klippe, und seine Lampe wird jeden Abend vom alten"
    " Wärter angezündet."
)
ZH = "灯塔矗立在北边的悬崖上，每天傍晚都由那位年老的看守人点亮它的灯，为过往的船只指引方向。"
TH = "ประภาคารตั้งอยู่บนหน้าผาทางเหนือและตะเกียงจะถูกจุดทุกเย็นโดยผู้ดูแลชราคนเดิมเสมอมา"
HI = "प्रकाशस्तंभ उत्तरी चट्टान पर खड़ा है और उसका दीपक हर शाम बूढ़े रखवाले द्वारा जलाया जाता है।"


def scored(
    text: str,
    reference: str = "",
    question: str = "Where is it?",
    *,
    cut: bool = False,
    **given: Any,
) -> Scores:
    asked = Prompt((1, 2), question, reference, (1,) * (len(reference.split()) + 1), "a.jsonl", 1)
    ids = (1,) * len(text.split())
    return score_answer(asked, Answer(ids, text, None if cut else 2), control=CONTROL, **given)


@pytest.mark.parametrize("text", [EN, DE, ZH, TH, HI])
def test_the_reference_itself_is_flawless(text: str) -> None:
    found = scored(text, text)
    assert (found.stopped, found.empty, found.looped, found.echoed, found.markers) == (
        True,
        False,
        False,
        False,
        (),
    )
    assert (found.length_ratio, found.exact, found.overlap, found.switched) == (
        1.0,
        True,
        1.0,
        False,
    )
    assert found.language in {"en", "de", "zh", "th", "hi"}
    assert (found.parsed, found.agrees) == (None, None)


def test_without_a_reference() -> None:
    found = scored(EN)
    assert (found.exact, found.overlap, found.switched) == (None, None, None)
    assert found.language == "en"


def test_an_empty_answer() -> None:
    found = scored(" \n", EN)
    assert (found.empty, found.stopped, found.looped, found.language) == (True, True, False, None)
    assert (found.overlap, found.exact, found.repetition) == (0.0, False, 0.0)


LOOPS = {
    "a word": "It is very" + " very" * 30,
    "a word cut in the middle": "It is very" + " very" * 30 + " ve",
    "a sentence": "I like figs. " + "They are good for you and me. " * 6,
    "a long sentence": (EN + " ") * 3 + EN[:40],
    "a numbered list": "".join(
        f"{i}. Visit the old lighthouse on the cliff\n" for i in range(1, 9)
    ),
    "bullets": "Here they are:\n" + "- a red apple\n" * 8,
    "Chinese": "我喜欢无花果。" + "它们对身体很好。" * 8,
    "Thai": TH[:20] + "ดีมากสำหรับคุณ" * 10,
    "Hindi": HI + "यह बहुत अच्छा है। " * 8,
    "letters without end": "ha" * 60,
    "marks": "Well" + "!" * 120,
    "lines": "Well" + "\n" * 60,
    "control tokens": "Yes." + "<|im_end|>" * 20,
    "two in turn": "Are you there? " + "Yes, I am. Are you? " * 9,
}
HEALTHY = {
    "a list": "\n".join(
        f"{i}. {word} is a fruit" for i, word in enumerate(("Fig", "Pear", "Plum", "Lime"), 1)
    ),
    "a refrain": "We sing of the sea.\n" + "Roll on, roll on, my sailor boy.\n" * 3,
    "laughter": "Ha ha ha ha ha ha, that is a good one!",
    "code": (
        "for i in range(3):\n    print(i)\nfor j in range(3):\n    print(j)\nreturn [[0, 0], [0,"
        " 0], [0, 0]]"
    ),
    "a table": (
        "| name | price |\n|------|-------|\n| fig | 1 |\n| pear | 1 |\n| plum | 1 |\n| lime | 1"
        " |\n| nut | 1 |"
    ),
    "the rule of a table": "| name | price | shelf |\n|" + "-" * 24 + "|" + "-" * 24 + "|",
    "HTML": "<ul>" + "<li>fig</li><li>pear</li><li>plum</li>" + "</ul></div></div></div></div>",
    "numbers": ", ".join(str(i % 3) for i in range(30)),
    "CSV": "".join(f"2024-01-{i:02},EUR,{i * 7 % 5}\n" for i in range(1, 13)),
    "Chinese verse": "床前明月光，疑是地上霜。\n举头望明月，低头思故乡。\n床前明月光，疑是地上霜。",
    "laughter in Chinese": "哈哈哈哈哈哈哈哈，太好笑了",
    "JSON": json.dumps([{"name": name, "ok": True} for name in ("fig", "pear", "plum")]),
    "an essay": EN + " " + DE,
}


@pytest.mark.parametrize("name", LOOPS)
def test_loops(name: str) -> None:
    assert is_looping(LOOPS[name], cut=True)
    assert scored(LOOPS[name], EN, cut=True).looped
    assert not scored(LOOPS[name], LOOPS[name], cut=True).looped


@pytest.mark.parametrize("name", HEALTHY)
@pytest.mark.parametrize("cut", [True, False])
def test_no_loops(name: str, cut: bool) -> None:
    assert not is_looping(HEALTHY[name], cut=cut)


def test_a_loop_that_stopped_by_itself_needs_more() -> None:
    assert is_looping("Yes, I am. " * 4, cut=False)
    assert not is_looping(
        "Well, that is so. Yes, I am. Yes, I am. Yes, I am. Yes, I am.", cut=False
    )
    assert is_looping("Well, that is so. Yes, I am. Yes, I am. Yes, I am. Yes, I am.", cut=True)


INSIDE = {
    "a word": "The sum of both equals equals equals equals four.",
    "a word alone": "equals equals equals equals.",
    "some words": (
        "We went to the cat sat the cat sat the cat sat the cat sat on the mat, and home."
    ),
    "a sentence": "Yes, I am. " * 12 + EN,
    "Chinese": "法国的首都是巴黎巴黎巴黎巴黎巴黎巴黎，很美。",
    "Hindi": "यह नमस्ते नमस्ते नमस्ते नमस्ते नमस्ते है।",
    "Russian": "Ответ: столица столица столица столица Франции.",
    "copies of a line": (
        "I like red figs.\nI like green figs.\n" * 6 + "And so on, I think, is all."
    ),
    "parts of a word": "It is called Amisaamisaamisaamisaamisa today.",
    "marks": "Well " + "? " * 40,
    "digits": "It is 1" + "0" * 60,
}
NOT_INSIDE = {
    "a song": "Row, row, row your boat,\nMerrily, merrily, merrily, merrily,\nlife is but a dream.",
    "a chorus": "Let it be, let it be, let it be, let it be.\nWhisper words of wisdom, let it be.",
    "emphasis": "It is very very very good, no no no no doubt.",
    "emphasis in Chinese": "非常非常非常好，看看看看，谢谢谢谢。",
    "a column of a table": "| yes | yes | yes | yes | yes |\n| no | yes | yes | yes | yes |",
    "JSON": json.dumps(["yes"] * 12),
    "SQL": "INSERT INTO t VALUES (NULL, NULL, NULL, NULL, NULL, NULL);",
    "laughter": "hahahahahahaha, ha ha ha ha ha!",
    "code": "```\n" + "x.append(item to the list)\n" * 8 + "```",
    "a number": "A third is 0.3333333333, and pi is 3.141592653589793238462643383279.",
    "labels": "A, A, A, A, B, A, A",
}


@pytest.mark.parametrize("name", INSIDE)
def test_loops_inside(name: str) -> None:
    assert is_looping(INSIDE[name], cut=False)


@pytest.mark.parametrize("name", NOT_INSIDE)
def test_no_loops_inside(name: str) -> None:
    assert not is_looping(NOT_INSIDE[name], cut=False)


def test_repetition() -> None:
    assert scored(EN).repetition == 0.0
    assert scored("one two three four " * 2).repetition == pytest.approx(1 / 5)
    assert scored("one two three four " * 40).repetition > 0.9
    assert scored("它们很好。" * 20).repetition > 0.9
    assert scored("one two").repetition == 0.0


QUESTION = "Where does the old lighthouse stand?"


def test_echoes() -> None:
    assert scored(f"{QUESTION} On the cliff.", EN, QUESTION).echoed
    assert scored(f'"{QUESTION.lower()}"\n\nOn the cliff.', EN, QUESTION).echoed
    assert scored("灯塔在哪里？它是谁建的？\n在悬崖上。", ZH, "灯塔在哪里？它是谁建的？").echoed
    long = " ".join(f"word{i}" for i in range(300))
    assert scored(" ".join(long.split()[:100]), EN, long, cut=True).echoed


@pytest.mark.parametrize(
    "question",
    [
        "What is 2+2?",
        "Why?",
        "How are you?",
        "法国的首都是哪里？",
        "Почему?",
        "¿Por qué?",
        "لماذا؟",
    ],
)
def test_a_short_question_again_and_again(question: str) -> None:
    assert scored(" ".join([question] * 4), "", question).echoed


def test_little_else_than_the_question() -> None:
    assert scored("How are you today?", "", "How are you today?").echoed
    assert scored("Какой столица Франции?", "", "Какая столица Франции?").echoed
    assert not scored("Hello there!", "", "Hello there").echoed
    assert not scored("What is 2+2? It is 4.", "", "What is 2+2?").echoed
    assert not scored("I am fine.", "", "Repeat after me: I am fine.").echoed


def test_no_echoes() -> None:
    assert not scored("The old lighthouse stands on the cliff.", EN, QUESTION).echoed
    assert not scored("Who? Me.", EN, "Who?").echoed
    assert not scored(f"{QUESTION} On the cliff.", f"{QUESTION} There.", QUESTION).echoed
    assert not scored("五件可以在飞机上做的事有看书和睡觉。", ZH, "五件可以在飞机上做的事。").echoed
    assert not scored(EN, EN, "").echoed


@pytest.mark.parametrize(
    ("text", "markers"),
    [
        ("Sure.\nUser: and you?", ("User:",)),
        ("Assistant: Sure.", ("Assistant:",)),
        ("Sure.\n\n### Instruction:\nGo on", ("### Instruction:",)),
        ("Sure.\n**Human:** Go on", ("Human:",)),
        ("Sure.<|im_end|>\n<|im_start|>user\nHi", ("<|im_end|>", "<|im_start|>")),
        ("Sure.\n<start_of_turn>user", ("<start_of_turn>",)),
        ("[INST] Hi [/INST]", ("[/INST]", "[INST]")),
        ("好的。\n用户：你呢？", ("用户：",)),
        ("The user: a person who uses it.", ()),
        ("A power user: one who knows.\nThe end", ()),
        ("Usernames:\nfig", ()),
        ("# Instruction manual\nAssistants help.", ()),
    ],
)
def test_markers(text: str, markers: tuple[str, ...]) -> None:
    assert scored(text, EN).markers == markers
    assert scored(text, EN, text).markers == ()


@pytest.mark.parametrize(
    ("text", "markers"),
    [
        ("Paris.</s> <s>[INST] And Rome? [/INST]", ("</s>", "<s>", "[/INST]", "[INST]")),
        ("Sure, here it is <|eot_id|> and more", ("<|eot_id|>",)),
        ("It is 4 <｜User｜> and", ("<｜User｜>",)),
        ("Sure. <|tool▁x|> <end_of_turn> Yes", ("<end_of_turn>",)),
        ("Fine. [PAD] [PAD]", ("[PAD]",)),
        ("The price is <s>$10</s> $8 now.", ()),
        ("Each turn ends with the <|eot_id|> token.", ()),
        ("It is written `[INST]` and `</s>`, or '<pad>'.", ()),
        ("```\nx <|eot_id|>\n```", ()),
        ("let f = x <| g |> h", ()),
    ],
)
def test_control_tokens_of_any_template(text: str, markers: tuple[str, ...]) -> None:
    assert scored(text, EN).markers == markers


def test_a_marker_of_the_reference_is_none_unless_it_begins_a_turn() -> None:
    assert scored("Go <|sep|> on", "Stop <|sep|> it").markers == ()
    assert scored("Go [INST] on", "Stop [INST] it").markers == ("[INST]",)
    assert scored("Sure.\nUser: and you?", "Yes.\nUser: and you?").markers == ()


def test_a_marker_of_the_question_is_none() -> None:
    assert scored("User: Hi\nBot: Ho", EN, "Write a talk that begins with\nUser: Hi").markers == ()
    assert scored("<think>x</think> 1", "<think>y</think> 2").markers == ()


@pytest.mark.parametrize(
    ("text", "reference", "switched"),
    [
        (DE, EN, True),
        (ZH, EN, True),
        (EN, ZH, True),
        (TH, HI, True),
        (EN, EN + " Yes.", False),
        ("Yes.", EN, None),
        (EN, "Ja.", None),
        ("x = [1, 2, 3]\nprint(x)\n" * 5, EN, None),
    ],
)
def test_switched(text: str, reference: str, switched: bool | None) -> None:
    assert scored(text, reference).switched is switched


QUESTION_ZH, QUESTION_RU = "天空为什么是蓝色的？", "Почему небо голубое?"
PLAIN = (
    "The sky is blue because the air scatters the short waves of its light more than the long ones."
)


@pytest.mark.parametrize(
    ("question", "text", "reference"),
    [
        ("What is 2+2?", ZH, "4"),
        ("What is the capital of France?", ZH, "Paris"),
        (QUESTION_ZH, PLAIN, ""),
        (QUESTION_RU, PLAIN, ""),
        ("Wie bleibt man gesund?", PLAIN, ""),
        ("Why is it dark?", "It is dark, 因为太阳已经下山了，所以天空变得很黑。", ""),
        ("Why is it dark?", f"{EN} {DE}", ""),
        ("Why is it dark?", TH, "Night."),
    ],
)
def test_the_question_tells_the_language_where_the_reference_does_not(
    question: str, text: str, reference: str
) -> None:
    assert scored(text, reference, question).switched


@pytest.mark.parametrize(
    ("question", "text", "reference"),
    [
        ("Translate to Chinese: I am here.", ZH, ""),
        ("把这句话翻译成英文：我在这里。", EN, ""),
        ("写一个函数。", "def f(a, b):\n    return a + b", ""),
        ("法国的首都是哪里？", "Paris", ""),
        (
            "请介绍《老人与海》",
            "《老人与海》（The Old Man and the Sea）是海明威的作品，讲述了一位老渔夫。",
            "",
        ),
        ("Who wrote War and Peace?", "Leo Tolstoy (Лев Толстой) wrote it.", ""),
        ("生成一个使用“opulent”一词的例句", PLAIN, ""),
        ("What does 山 mean?", "It means mountain, as in 富士山 (Mount Fuji).", ""),
        ("Say it.", EN, "Yes."),
        ("ls -la /tmp", EN, ""),
        ("Solve it.", "$$x = \\alpha + \\beta$$, so α = 2 and β = 3.", ""),
        ("Was ist Python?", "x = 1\ny = 2\nprint(x + y)", ""),
    ],
)
def test_good_answers_keep_their_language(question: str, text: str, reference: str) -> None:
    assert not scored(text, reference, question).switched


def test_too_long() -> None:
    many = " ".join(f"word{i} is next" for i in range(40))
    assert scored(many, "An apple.").too_long
    assert scored(many * 3, EN).too_long
    assert not scored(many, EN).too_long
    assert not scored(f"{many} So it is 72.", "72").too_long
    assert not scored(f"Yes, because {many}.", "Yes").too_long
    assert scored(f"Yes, because {many * 4}.", "Yes").too_long
    assert scored(many).too_long is None


def test_what_is_left_of_a_template() -> None:
    assert scored("Paris.\nsystem\n\nuser\nAnd you?\nassistant\nI am.").markers == (
        "assistant",
        "system",
        "user",
    )
    assert scored("The user\nis here.\nassistant").markers == ()


def test_length_and_overlap() -> None:
    found = scored("a b c d", "a b x y z")
    assert found.length_ratio == pytest.approx(5 / 6)
    assert scored("a b c d", "a b x y z", cut=True).length_ratio == pytest.approx(4 / 6)
    assert found.overlap == pytest.approx(2 * 2 / 9)
    assert scored("On the CLIFF!", "on the cliff").overlap == 1.0
    assert scored("在悬崖上", "在山崖上").overlap == pytest.approx(3 / 4)
    assert scored("a  b\n c ", "a b c").exact
    assert not scored("A b c", "a b c").exact
    assert scored("a a a a", "a b c d").overlap == pytest.approx(1 / 4)


def test_parsed() -> None:
    parse = make_parser("number")
    found = scored("<think>It is 3 or 4</think>It is 1,200.", "The sum is 1200", parse=parse)
    assert (found.parsed, found.agrees) == (True, True)
    assert scored("7", "8", parse=parse).agrees is False
    found = scored("I do not know", "8", parse=parse)
    assert (found.parsed, found.agrees) == (False, False)
    assert scored("8", "no number", parse=parse).agrees is None
    assert scored("8", parse=parse).agrees is None

    def fails(text: str) -> Any:
        raise RuntimeError(text)

    assert scored("8", "8", parse=fails).parsed is False


def references(name: str) -> Iterator[tuple[str, str]]:
    """(question, answer) of each row."""
    for row in read_conversations((name,)):
        texts = [
            message["content"]
            for message in row.messages
            if isinstance(message.get("content"), str)
        ]
        if (
            row.messages
            and row.messages[-1]["role"] == "assistant"
            and len(texts) > 1
            and texts[-1].strip()
        ):
            yield texts[-2], texts[-1]


def flaws(pairs: list[tuple[str, str]]) -> dict[str, int]:
    """What references have against them, as answers to their questions, where they are not compared with themselves."""
    found = [scored(answer, "", question) for question, answer in pairs]
    cut = [
        is_looping(answer, cut=True) or is_looping(answer[: len(answer) // 2], cut=True)
        for _, answer in pairs
    ]
    return {
        "looped": sum(scores.looped for scores in found),
        "looped if cut": sum(cut),
        "echoed": sum(scores.echoed for scores in found),
        "markers": sum(bool(scores.markers) for scores in found),
        "other language": sum(scores.language not in (None, "en", "zh") for scores in found),
    }


def test_answers_of_the_demo_are_healthy() -> None:
    assert set(flaws(list(references(str(DATA)))).values()) == {0}


@pytest.mark.parametrize("name", ["alpaca_en_demo.json", "alpaca_zh_demo.json"])
def test_answers_of_real_data_are_healthy(name: str) -> None:
    pairs = list(references(str(data(f"llamafactory/{name}"))))[::5]
    found = flaws(pairs)
    assert len(pairs) > 100
    assert all(count <= 0.01 * len(pairs) for count in found.values()), found


def test_it_is_fast() -> None:
    started = time.process_time()
    for _ in range(40):
        for text in (EN * 8, DE * 8, ZH * 8, TH * 8, " ".join(f"word{i}" for i in range(400))):
            scored(text, EN, cut=True)
    assert time.process_time() - started < 4


def test_no_torch_is_needed() -> None:
    code = (
        "import sys\n"
        "from truetune.generation.score_answer_by_prompt_and_reference import score_answer\n"
        "from truetune.generation.build_prompts import build_prompts\n"
        "print(sorted({'torch', 'transformers', 'py3langid'} & sys.modules.keys()))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize(
    "text",
    [
        "I cannot be more than a way to adjust the test of the day.\n\n" * 2 + "I cannot be more",
        "アプリエラスは、アプリエラスでは、アプリエラスでは、アプリエ",
        "صحتي؟\n\n" * 7,
        "It is the way of it, and the way of it, and the way of it, and the way of it,",
    ],
)
def test_loops_that_were_cut_early(text: str) -> None:
    assert scored(text, "").looped


@pytest.mark.parametrize(
    "text",
    [
        "Row, row, row your boat,\nGently down the stream.\nMerrily, merrily, merrily, merrily,\nLife is but a dream",
        "今日は本を読み、明日は本を書き、来週は本を売ります",
        "I came, I saw, I conquered, and then",
        "Ha ha ha! Ha ha ha!",
        "The first step is to mix the flour and the sugar. The first step is to mix the eggs",
    ],
)
def test_refrains_and_lists_that_were_cut_are_no_loops(text: str) -> None:
    assert not scored(text, "").looped


def test_names_in_other_letters_are_no_garbage() -> None:
    names = "Python, Java, JavaScript, Go, Rust, Kotlin, Swift, Ruby, Scala, Perl"
    assert not scored(names, "", "列出十个编程语言").garbage
    stutter = "Pamaliy fresco -Pamaliy Pasifo -Pamaliy Marblemimino -Pamaliy Anj -Pamaliy"
    assert scored(stutter, "", "اذكر ثلاث فواكه.").garbage
