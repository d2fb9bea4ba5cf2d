"""The token view on a terminal."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from truetune.checks.check_data import view_row_tokens
from truetune.checks.reports import TokenView
from truetune.checks.tokens_with_text_source_and_label import range_of_tokens_kept_by_limit
from truetune.data.conversation import Conversation, Origin
from truetune.demo import DATA, TOKENIZER
from truetune.encoding.batch import Example
from truetune.render.rendering import Rendering, Source
from truetune.report.token_view_terminal import (
    SOURCE_COLOURS,
    render_token_view,
    token_view_json,
)
from truetune.report.visible_text import token_text_with_visible_symbols
from truetune.settings.run_spec import RunSpec


def views(path: Path, **settings: object) -> list[TokenView]:
    return view_row_tokens(
        RunSpec.model_validate({"data": str(path), "tokenizer": str(TOKENIZER), **settings}), 0
    )


def drawn(token_view: TokenView, *, ids: bool = False, colour: bool = False) -> str:
    buffer = io.StringIO()
    colours: dict[str, Any] = {}
    if colour:
        colours = {"force_terminal": True, "color_system": "standard", "_environ": {}}
    render_token_view(token_view, Console(file=buffer, width=80, **colours), ids=ids)
    return buffer.getvalue()


def chat(path: Path, *turns: str) -> Path:
    roles = ("user", "assistant")
    messages = [{"role": roles[i % 2], "content": turn} for i, turn in enumerate(turns)]
    path.write_text(json.dumps({"messages": messages}))
    return path


def test_the_whole_view_at_80_columns() -> None:
    pieces = (
        "<|im_start|>",
        "user",
        "\n",
        "Is",
        " it",
        "?",
        "<|im_end|>",
        "\n",
        "<|im_start|>",
        "assistant",
        "\n",
    )
    answer = ("Yes", ".", "\n\n", "Un", "til\t", " 5", "\udce6\udc97", "\udca5", "<|im_end|>", "\n")
    template, user, said = Source.TEMPLATE, Source.USER, Source.ASSISTANT
    source = [template] * 3 + [user] * 3 + [template] * 5 + [said] * 8 + [Source.STOP, template]
    example = Example(
        Conversation(Origin("data/chats.jsonl", 8, 7), "messages"),
        Rendering("", [0], (), (), [], [], turn=1),
    )
    token_view = TokenView(
        example=example, ids=np.arange(21, dtype=np.int32), source=np.array(source, dtype=np.uint8),
        supervised=np.array([False] * 11 + [True] * 9 + [False]), starts=np.zeros(21, dtype=np.int32),
        pieces=pieces + answer,
    )  # fmt: skip
    assert drawn(token_view) == WHOLE
    assert drawn(token_view, ids=True).splitlines()[3:5] == [
        "<|im_start|>/8 assistant/9 ↵/10 ",
        "[Yes/11][./12][↵↵/13]",
    ]


WHOLE = """\
data/chats.jsonl:8 (row 7, messages), example 1: trains turn 1 alone
<|im_start|>user↵
Is it?<|im_end|>↵
<|im_start|>assistant↵
[Yes][.][↵↵]

[Un][til→][ 5][⟨E6 97⟩][⟨A5⟩][<|im_end|>]↵

21 tokens, 9 [supervised]; supervised/all by source: template text 0/9, user
0/3, assistant content 8/8, stop token 1/1
"""


def test_ids_and_colours(tmp_path: Path) -> None:
    (token_view,) = views(chat(tmp_path / "a.jsonl", "Hi", "Yo"))
    text = drawn(token_view, ids=True)
    assert "<|im_start|>/2 " in text
    assert "[<|im_end|>/3]" in text
    assert "\x1b" not in text
    assert "\x1b[1;31m[<|im_end|>]\x1b[0m" in drawn(token_view, colour=True)
    assert set(SOURCE_COLOURS) == set(Source)


def test_hostile_text_is_spelled_out(tmp_path: Path) -> None:
    (token_view,) = views(
        chat(tmp_path / "[red]\x1b.jsonl", "\x1b[31m[bold]x[/]\u202e\x00", "\t\u200b \\x41 日本")
    )
    text = drawn(token_view)
    assert all(line.isprintable() for line in text.split("\n"))
    assert "\\x1b[31m[bold]x[/]" in text
    assert "[red]\\x1b.jsonl:1" in text
    assert "[→]" in text
    assert "⟨E6⟩" in text


def test_one_example_a_turn_names_its_turn(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    messages = [
        {"role": "user", "content": "a"}, {"role": "assistant", "content": "b", "reasoning_content": "r"},
        {"role": "user", "content": "c"}, {"role": "assistant", "content": "d"},
    ]  # fmt: skip
    path.write_text(json.dumps({"messages": messages}))
    made = views(path)
    for number, token_view in enumerate(made):
        buffer = io.StringIO()
        render_token_view(token_view, Console(file=buffer, width=80), number=number)
        turn = token_view.example.rendering.turn
        assert (f"example {number + 1}: trains turn {turn} alone" in buffer.getvalue()) == (
            turn is not None
        )


def test_every_span_of_the_demo_ends_in_a_stop_token() -> None:
    (token_view,) = views(DATA)
    assert drawn(token_view).count("[<|im_end|>]") == len(token_view.example.rendering.spans)


def test_twenty_thousand_tokens(tmp_path: Path) -> None:
    (token_view,) = views(chat(tmp_path / "a.jsonl", "a", "Happy to help. " * 5_000))
    assert drawn(token_view).count("][") > 19_000


@pytest.mark.parametrize(
    ("piece", "shown"),
    [
        ("\n", "↵"),
        ("\t", "→"),
        ("\udce6\udc97", "⟨E6 97⟩"),
        (" \udcf0\udc9d", " ⟨F0 9D⟩"),
        ("\\x41", "\\x41"),
        ("\u200b", "\\u200b"),
        ("日本", "日本"),
        ("\x1b", "\\x1b"),
        ("a b", "a b"),
        ("", "⟨⟩"),
    ],
)
def test_spelling_of_tokens(piece: str, shown: str) -> None:
    assert token_text_with_visible_symbols(piece) == shown


def cut_view(path: Path, limit: int, **settings: object) -> tuple[TokenView, str]:
    """The view of an example that is cut, and how it is drawn."""
    spec = RunSpec.model_validate(
        {"data": str(path), "tokenizer": str(TOKENIZER), "max_length": limit, **settings}
    )
    (token_view,) = view_row_tokens(spec, 0)
    buffer = io.StringIO()
    kept = range_of_tokens_kept_by_limit(len(token_view.ids), token_view.example.row, spec)
    render_token_view(token_view, Console(file=buffer, width=80), kept=kept)
    return token_view, buffer.getvalue()


def test_tokens_that_max_length_drops_are_marked(tmp_path: Path) -> None:
    path = chat(tmp_path / "a.jsonl", "Hi", "Yes. No. Yes. No.")
    (whole,) = views(path)
    limit = len(whole.ids) - 4
    token_view, text = cut_view(path, limit)
    lost = int(whole.supervised[limit:].sum())
    assert f"--- max_length drops 4 tokens after this line, {lost} of them supervised ---" in text
    assert f"{limit} of {len(whole.ids)} tokens" in " ".join(text.split())
    kept, dropped = text.split("--- max_length")
    assert "[" in kept
    # Nothing that is dropped is learned.
    assert "[<|im_end|>]" not in dropped
    assert "<|im_end|>" in dropped
    assert token_view_json(token_view, (0, limit))["kept"] == [0, limit]


def test_nothing_is_marked_where_all_fits_or_is_split(tmp_path: Path) -> None:
    path = chat(tmp_path / "a.jsonl", "Hi", "Yes. No. Yes. No.")
    (whole,) = views(path)
    assert cut_view(path, len(whole.ids))[1] == drawn(whole)
    assert cut_view(path, 8, encode={"overflow": "split"})[1] == drawn(whole)
    assert token_view_json(whole)["kept"] is None
    token_view, cut = cut_view(path, 8)
    assert token_view.ids.tolist() == whole.ids.tolist()
    assert cut != drawn(whole)


def test_a_cut_may_keep_the_end(tmp_path: Path) -> None:
    (token_view,) = views(chat(tmp_path / "a.jsonl", "Hi", "Yes."))
    buffer = io.StringIO()
    last = len(token_view.ids)
    render_token_view(token_view, Console(file=buffer, width=80), kept=(3, last))
    before, after = buffer.getvalue().split("--- max_length drops 3 tokens before this line")
    assert "<|im_start|>" in before
    assert "[<|im_end|>]" in after
