"""A server's answers are those of its model, and what it does not tell is not made up."""

from __future__ import annotations

import json
import math
import shutil
import signal
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM

from bench.engines import surveys
from tests import parts
from tests.auditing import tiny
from tests.generation.imitated_server import Completions, started
from tests.generation.serving import taught, tiny_folder, transformers_serve
from truetune.data.read_rows_as_conversations import read_conversations
from truetune.errors import UsageError
from truetune.generation.answer_samples import Answer, Prompt
from truetune.generation.backends.backend import Backend, Decoding
from truetune.generation.backends.heeded_request_fields import (
    make_request_sender,
    survey_heeded_fields,
)
from truetune.generation.backends.http_client import API_KEY_VARIABLE, find_server, send_request
from truetune.generation.backends.model_source import find_model_source, serving_stops
from truetune.generation.backends.open_backend import Options, open_backend
from truetune.generation.backends.read_server_replies import ReplyReader
from truetune.generation.backends.server_backend import ServerBackend
from truetune.generation.build_prompts import build_prompts, make_decoder
from truetune.generation.generate_answers import generate_answers
from truetune.render.tokenizer import Tokenizer, load_tokenizer
from truetune.settings.run_spec import RunSpec

__all__ = ["tiny_folder", "transformers_serve"]
PLAIN = Decoding(frozenset({3}), max_new_tokens=20)


def backend(url: str, folder: Path, **options: Any) -> Backend:
    place = find_model_source(url, tokenizer=str(folder))
    return open_backend(
        place,
        place.prepared().tokenizer,
        Options(**{"served_model": str(folder), **options}),
    )


def prompts(folder: Path, path: Path, count: int = 6) -> list[Prompt]:
    """Of the chats that the tiny model has learnt, and some more."""
    file = path / "rows.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in tiny.chats(count)), encoding="utf-8")
    spec = RunSpec(tokenizer=str(folder))
    return build_prompts(spec, read_conversations((str(file),)), count)


def local(folder: Path, asked: list[Prompt], limit: int) -> list[Answer | None]:
    tokenizer = load_tokenizer(str(folder))
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    stops = serving_stops(tokenizer)
    return generate_answers(
        model, asked, stops=stops, pad=0, max_new_tokens=limit, decode=make_decoder(tokenizer)
    )


def heard(said: list[Answer | None]) -> list[tuple[tuple[int, ...], str, int | None] | None]:
    return [None if one is None else (one.ids, one.text, one.stop) for one in said]


@pytest.mark.parametrize("route", ["chat", "completions"])
def test_the_answers_of_the_model(
    route: str, transformers_serve: str, tiny_folder: Path, tmp_path: Path
) -> None:
    asked = prompts(tiny_folder, tmp_path)
    counted: list[tuple[int, int]] = []
    with backend(transformers_serve, tiny_folder, route=route, concurrency=3) as server:
        said = server.answers(asked, PLAIN, lambda *at: counted.append(at))
        cut = server.answers(asked, replace(PLAIN, max_new_tokens=3))
    assert heard(said) == heard(local(tiny_folder, asked, 20))
    assert [one and one.stop for one in said] == [3] * 6
    assert heard(cut) == [
        (one.ids[:3], tiny.tokenizer().decode(list(one.ids[:3])), None) for one in said if one
    ]
    assert counted == [(i, 6) for i in range(1, 7)]
    assert all(one and one.logprob is one.stop_probability is None for one in said)
    assert [note.partition("(")[0].rstrip(": ") for note in server.notes] == [
        "the server ignores `logprobs`: the log-probabilities of its answers are not known",
        "the server refuses `return_token_ids`",
        (
            f"{transformers_serve}/v1/completions gives no log-probabilities: how likely a stop is"
            " after a reference is not known"
        ),
    ]
    assert server.score([asked[0].ids]) is None
    assert server.likeliest([asked[0].ids], 3) is None


def test_smollm2(transformers_serve: str, tmp_path: Path) -> None:
    folder = parts.model()
    asked = prompts(folder, tmp_path, 2)
    with backend(transformers_serve, folder) as server:
        said = server.answers(asked, Decoding(frozenset({2}), max_new_tokens=8))
    assert heard(said) == heard(local(folder, asked, 8))


@pytest.mark.parametrize("route", ["chat", "completions"])
def test_fields_of_transformers_serve(
    route: str, transformers_serve: str, tiny_folder: Path
) -> None:
    chat = tiny.chats(1)[0]["messages"][:1]
    text = tiny.tokenizer().apply_chat_template(chat, tokenize=False, add_generation_prompt=True)
    what = {"messages": chat} if route == "chat" else {"prompt": text}
    path = "chat/completions" if route == "chat" else route
    seen = survey_heeded_fields(
        make_request_sender(f"{transformers_serve}/v1/{path}"), {"model": str(tiny_folder), **what}
    )
    verdicts = {one.name: one.verdict for one in seen}
    own = {"add_generation_prompt": "refused"} if route == "chat" else {"echo": "ignored"}
    assert verdicts == own | {
        "logprobs": "ignored",
        "return_token_ids": "refused",
        "return_tokens_as_token_ids": "refused",
        "prompt_logprobs": "refused",
        "max_tokens": "kept",
        "stop": "kept",
        "n": "ignored",
        "temperature": "ignored",
        "seed": "unknown",
        "top_p": "unknown",
        "min_p": "refused",
    }


def test_variables_of_the_template(
    transformers_serve: str, tiny_folder: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "model"
    shutil.copytree(tiny_folder, folder)
    template = folder / "chat_template.jinja"
    template.write_text("{% if brief %}{{ 'Be brief. ' }}{% endif %}" + template.read_text())
    url, chat = f"{transformers_serve}/v1/chat/completions", tiny.chats(1)[0]["messages"][:1]
    for settings, verdict in (({"brief": True}, "kept"), ({"long": True}, "ignored")):
        seen = survey_heeded_fields(
            make_request_sender(url), {"model": str(folder), "messages": chat}, settings=settings
        )
        assert seen[-1].name == "chat_template_kwargs"
        assert seen[-1].verdict == verdict


def test_another_prompt_is_said(transformers_serve: str, tiny_folder: Path, tmp_path: Path) -> None:
    asked = [replace(prompt, ids=prompt.ids[:-1]) for prompt in prompts(tiny_folder, tmp_path, 2)]
    with backend(transformers_serve, tiny_folder) as server:
        server.answers(asked, PLAIN)
    count = len(asked[0].ids)
    assert (
        "the server makes other prompts than the template of the tokenizer's folder: 2 of 2, that"
        f" of {asked[0].file}:1 has {count + 1} tokens there and {count} here" in server.notes
    )


def test_an_answer_without_a_temperature(
    transformers_serve: str, tiny_folder: Path, tmp_path: Path
) -> None:
    with backend(transformers_serve, tiny_folder) as server:
        server.answers(prompts(tiny_folder, tmp_path, 1), replace(PLAIN, temperature=1.0))
    why = "(the greedy answer at a temperature of 50): its answers are not sampled as asked"
    assert f"the server ignores `temperature` {why}" in server.notes


@pytest.mark.parametrize("route", ["chat", "completions"])
def test_a_min_p_that_is_refused(
    route: str, transformers_serve: str, tiny_folder: Path, tmp_path: Path
) -> None:
    asked = prompts(tiny_folder, tmp_path, 1)
    said = r"the server refuses `min_p` \(422 .*drawn from unlikely tokens too; leave out --min-p"
    with backend(transformers_serve, tiny_folder, route=route) as server:
        with pytest.raises(UsageError, match=said):
            server.answers(asked, replace(PLAIN, temperature=1.0, min_p=0.1))
        server.answers(asked, PLAIN)


SAMPLES = {"temperature", "seed", "top_p", "min_p"}


def test_a_min_p_that_is_heeded(model: Any, tiny_folder: Path, tmp_path: Path) -> None:
    served = Completions(model, tiny.tokenizer(), SAMPLES)
    asked = prompts(tiny_folder, tmp_path, 4)
    hot = replace(PLAIN, temperature=5.0, max_new_tokens=8)
    with backend(started(served), tiny_folder, served_model=None, route="completions") as server:
        greedy = server.answers(asked, replace(hot, temperature=0.0))
        assert not any("min_p" in body for body in served.asked)
        drawn = server.answers(asked, hot)
        answers = [body for body in served.asked if body["max_tokens"] == 8]
        assert not any("min_p" in body for body in answers)
        cut = server.answers(asked, replace(hot, min_p=1.0))
    assert [body.get("min_p") for body in served.asked if body["max_tokens"] == 8][-4:] == [1.0] * 4
    assert heard(cut) == heard(greedy) == heard(local(tiny_folder, asked, 8))
    assert heard(drawn) != heard(greedy)
    assert not any("min_p" in note for note in server.notes)


# Without a seed, the same answer twice must not be taken for what min_p left.
@pytest.mark.parametrize("heeds", [{"temperature", "seed", "top_p"}, {"temperature"}])
def test_a_min_p_that_is_ignored(
    heeds: set[str], model: Any, tiny_folder: Path, tmp_path: Path
) -> None:
    url = started(Completions(model, tiny.tokenizer(), heeds))
    asked = prompts(tiny_folder, tmp_path, 2)
    said = r"the server ignores `min_p`: .*; leave out --min-p"
    with backend(url, tiny_folder, served_model=None, route="completions") as server:
        with pytest.raises(UsageError, match=said):
            server.answers(asked, replace(PLAIN, temperature=1.0, min_p=0.1))
        server.answers(asked, replace(PLAIN, temperature=1.0))
        assert not any("min_p" in note for note in server.notes)


def test_a_min_p_whose_effect_can_not_be_seen(
    model: Any, tiny_folder: Path, tmp_path: Path
) -> None:
    url = started(Completions(model, tiny.tokenizer(), set()))
    with backend(url, tiny_folder, served_model=None, route="completions") as server:
        server.answers(
            prompts(tiny_folder, tmp_path, 1), replace(PLAIN, temperature=1.0, min_p=0.1)
        )
    why = "(the greedy answer at a temperature of 50)"
    assert f"whether the server heeds `min_p` can't be seen {why}" in server.notes


class EquallyLikely(torch.nn.Module):
    """A model whose every token has a twin that is as likely."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    def forward(self, ids: torch.Tensor) -> Any:
        output = self.model(ids)
        half = output.logits.shape[-1] // 2
        output.logits = output.logits.clone()
        output.logits[..., half : 2 * half] = output.logits[..., :half]
        return output


def test_a_min_p_that_leaves_two_tokens_is_heeded(model: Any, tiny_folder: Path) -> None:
    served = Completions(EquallyLikely(model), tiny.tokenizer(), SAMPLES)
    ask = make_request_sender(f"{started(served)}/v1/completions")
    for text in ("one", "two", "ten figs", "apples"):
        seen = survey_heeded_fields(ask, {"prompt": text})
        assert {"min_p": "kept", "seed": "kept"}.items() <= {
            one.name: one.verdict for one in seen
        }.items()


def test_a_model_that_is_not_there(
    transformers_serve: str, tiny_folder: Path, tmp_path: Path
) -> None:
    said = r"500 Internal Server Error; it was asked for the model '/no/such'"
    with (
        backend(transformers_serve, tiny_folder, served_model="/no/such") as server,
        pytest.raises(UsageError, match=said),
    ):
        server.answers(prompts(tiny_folder, tmp_path, 1), PLAIN)


ALL = {"ids", "logprobs", "prompt_logprobs", "return_token_ids", "return_tokens_as_token_ids"}


@pytest.fixture(scope="module")
def model() -> Any:
    return taught()


def worth(model: Any, ids: Any) -> Any:
    with torch.no_grad():
        return model(torch.tensor([list(ids)])).logits[0].log_softmax(-1)


@pytest.mark.parametrize(
    ("heeds", "most"),
    [(ALL, 20), ({"ids", "logprobs", "echo"}, 20), ({"logprobs", "echo"}, 5), ({"logprobs"}, 5)],
)
def test_probabilities(
    heeds: set[str], most: int, model: Any, tiny_folder: Path, tmp_path: Path
) -> None:
    url = started(Completions(model, tiny.tokenizer(), heeds, most=most))
    asked = prompts(tiny_folder, tmp_path, 3)
    with backend(url, tiny_folder, route="completions", served_model=None) as server:
        said, scored = server.answers(asked, PLAIN), server.score([prompt.ids for prompt in asked])
        near = server.likeliest([prompt.ids for prompt in asked], 4)
    assert heard(said) == heard(local(tiny_folder, asked, 20))
    assert near is not None
    for i, (prompt, answer) in enumerate(zip(asked, said, strict=True)):
        assert answer is not None
        ids = [*prompt.ids, *answer.ids, 3]
        own = worth(model, ids)[range(len(prompt.ids) - 1, len(ids) - 1), ids[len(prompt.ids) :]]
        assert answer.logprob == pytest.approx(float(own.mean()), abs=1e-4)
        behind = worth(model, prompt.ids + prompt.reference_ids[:-1])[-1]
        if "echo" in heeds or "prompt_logprobs" in heeds or answer.stop_probability is not None:
            assert answer.stop_probability == pytest.approx(math.exp(behind[3]), abs=1e-4)
        if "prompt_logprobs" in heeds or answer.stop_rank is not None:
            assert answer.stop_rank == int((behind > behind[3]).sum())
        last = worth(model, prompt.ids)[-1]
        assert near[i] == pytest.approx(
            {int(id): float(last[id]) for id in last.topk(4).indices}, abs=1e-4
        )
        if scored is not None:
            own = worth(model, prompt.ids)[range(len(prompt.ids) - 1), prompt.ids[1:]]
            np.testing.assert_allclose(scored[i].logprobs[1:], own, atol=1e-4)
    assert (scored is not None) == bool(heeds & {"echo", "prompt_logprobs"})
    assert [one.stop_probability for one in said if one][:1] != [None]


def test_an_echo_that_is_off_by_one(model: Any, tiny_folder: Path, tmp_path: Path) -> None:
    url = started(Completions(model, tiny.tokenizer(), {"logprobs", "echo"}, shift=True))
    with backend(url, tiny_folder, served_model=None) as server:
        assert server.score([prompt.ids for prompt in prompts(tiny_folder, tmp_path, 2)]) is None
    assert server.notes == [
        f"{url}/v1/completions tells log-probabilities of given tokens that are not those of the"
        " model: they are not used"
    ]


def flaky(tiny_folder: Path, *replies: Any) -> tuple[str, list[dict[str, Any]]]:
    """A server of chats that gives these replies first, then right ones, to all but trials; and what it was asked."""
    left, heard = list(replies), []
    lock = threading.Lock()

    def handle(path: str, body: dict[str, Any], headers: dict[str, str]) -> Any:
        if path != "/v1/chat/completions":
            return {"data": []}
        heard.append({**body, "key": headers.get("Authorization")})
        with lock:
            reply = left.pop(0) if left and body["max_tokens"] > 2 else None
        if callable(reply):
            reply = reply()
        text = body["messages"][-1]["content"]
        return reply or {"choices": [{"message": {"content": text}, "finish_reason": "stop"}]}

    return started(handle), heard


def test_ids_that_no_text_becomes(model: Any, tiny_folder: Path) -> None:
    letters: Any = [tiny.tokenizer().convert_tokens_to_ids(letter) for letter in "apples"]
    assert tiny.tokenizer().encode("apples") != letters
    for heeds, told in (({"logprobs", "echo"}, False), ({"ids", "logprobs", "echo"}, True)):
        url = started(Completions(model, tiny.tokenizer(), heeds))
        with backend(url, tiny_folder, served_model=None) as server:
            assert (
                server.score([tiny.tokenizer().encode("ten figs"), letters]) is not None
            ) is told
        assert any("do not become the ids again" in note for note in server.notes) is not told


def test_ignored_limits_and_variables(tiny_folder: Path, tmp_path: Path) -> None:
    usage = {"prompt_tokens": 9, "completion_tokens": 50}
    reply = {"choices": [{"message": {"content": "a"}, "finish_reason": "stop"}], "usage": usage}
    asked = prompts(tiny_folder, tmp_path, 1)
    asked = [
        replace(prompt, chat=prompt.chat and replace(prompt.chat, settings={"brief": True}))
        for prompt in asked
    ]
    with backend(started(lambda *_: reply), tiny_folder) as server:
        server.answers(asked, PLAIN)
    for said in (
        "the server ignores `max_tokens`: 1 answers have more than 20 tokens",
        (
            "the server ignores `chat_template_kwargs` (9 tokens of a prompt of"
            f" {len(asked[0].ids)}): its prompts are made without the variables of the template"
        ),
    ):
        assert said in server.notes


BUSY = 429, {"Retry-After": "0"}, b"slow down"
BROKEN: tuple[int, dict[str, str], bytes] = 500, {}, b"<html><h1>oops</h1></html>"
REFUSED: tuple[int, dict[str, str], bytes] = (
    400,
    {},
    b'{"error": {"message": "the prompt is too long"}}',
)
TORN = 200, {"Content-Length": "999"}, b'{"choices": ['


@pytest.mark.parametrize(
    "reply",
    [
        BUSY,
        (429, {"Retry-After": "Wed, 21 Oct 2015 07:28:00 GMT"}, b""),
        BROKEN,
        TORN,
        (503, {}, b""),
    ],
)
def test_passing_trouble(reply: Any, tiny_folder: Path, tmp_path: Path) -> None:
    url, heard = flaky(tiny_folder, reply)
    asked = prompts(tiny_folder, tmp_path, 2)
    with backend(url, tiny_folder, concurrency=1) as server:
        said = server.answers(asked, PLAIN)
    assert [one and one.text for one in said] == [prompt.question for prompt in asked]
    assert sum(body["max_tokens"] == 20 for body in heard) == 3
    assert not any("no answer" in note for note in server.notes)


def hang() -> None:
    threading.Event().wait(5)


@pytest.mark.parametrize(
    ("reply", "why"),
    [
        (REFUSED, "400 the prompt is too long"),
        (
            hang,
            "no answer within 2 s; --timeout gives it more, --concurrency sends fewer at a time",
        ),
        ({"choices": []}, 'its reply holds no answer: {"choices": []}'),
        ((200, {}, b"<p>Hello</p>"), 'its reply holds no answer: "<p>Hello</p>"'),
        (
            {"choices": [{"text": "", "finish_reason": "blocked"}]},
            "its answer ended for the reason 'blocked'",
        ),
    ],
)
def test_one_prompt_fails(reply: Any, why: str, tiny_folder: Path, tmp_path: Path) -> None:
    url, heard = flaky(tiny_folder, reply)
    with backend(url, tiny_folder, concurrency=1, timeout=2 if reply is hang else 60) as server:
        said = server.answers(prompts(tiny_folder, tmp_path, 3), PLAIN)
    assert [one is None for one in said] == [True, False, False]
    assert sum(body["max_tokens"] == 20 for body in heard) == 3
    (note,) = (note for note in server.notes if note.startswith("1 of 3 prompts got no answer: "))
    assert note.endswith(why)


def test_all_fail(tiny_folder: Path, tmp_path: Path) -> None:
    url, _ = flaky(tiny_folder, REFUSED, REFUSED)
    with (
        backend(url, tiny_folder) as server,
        pytest.raises(UsageError, match=r"none of 2 prompts: 400 the prompt is"),
    ):
        server.answers(prompts(tiny_folder, tmp_path, 2), PLAIN)


def test_an_interrupt_does_not_wait() -> None:
    url = started(lambda *_: threading.Event().wait(30))
    code = (
        "import sys\nfrom truetune.generation.backends.http_client import map_concurrently\n"
        "from truetune.generation.backends.http_client import send_request\n"
        f"print('up', flush=True)\nmap_concurrently(lambda n, wait: send_request({url!r}, None), range(9), 4)\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "up\n"
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=25)
    assert said.rstrip().endswith("KeyboardInterrupt")


def test_the_key_is_sent_and_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(API_KEY_VARIABLE, "sk-secret-1234")
    url = started(
        lambda _, body, headers: (401, {}, f"no: {headers.get('Authorization')}".encode())
    )
    assert send_request(url, {}).body == "no: Bearer sk-secret-1234"
    assert send_request(url, {}).refusal_message_in_one_line == "401 no: Bearer ***"
    with pytest.raises(
        UsageError, match=r"wants a key \(401 no: Bearer \*\*\*\): set OPENAI_API_KEY"
    ):
        find_server(url)
    monkeypatch.setenv(API_KEY_VARIABLE, "sk-secret\n1234")
    with pytest.raises(
        UsageError, match=r"^OPENAI_API_KEY holds characters that no key has"
    ) as error:
        send_request(url, {})
    assert "secret" not in str(error.value)


def test_a_redirect_is_not_followed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(API_KEY_VARIABLE, "sk-secret-1234")
    reached: list[str] = []

    def note_path(path: str, *_: Any) -> Any:
        reached.append(path)
        return {}

    there = started(note_path)
    for status in (301, 302, 307, 308):
        url = started(lambda *_, status=status: (status, {"Location": f"{there}/x"}, b""))
        assert (
            send_request(url, {}).refusal_message_in_one_line
            == f"{status} redirects to {there}/x: name that URL"
        )
    assert reached == []


def test_a_large_answer_is_not_read_to_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("truetune.generation.backends.http_client.MAX_REPLY_BYTES", 1 << 20)
    with pytest.raises(UsageError, match=r"no answer \(more than 1 MB\)"):
        send_request(started(lambda *_: (200, {}, bytes(1 << 21))), {})


def read_message(tokenizer: Tokenizer, path: Path, **fields: Any) -> tuple[str, bool]:
    """An answer of these fields: its text, and whether that is a guess."""
    body = {"choices": [{"message": fields, "finish_reason": "stop"}]}
    made = ReplyReader(tokenizer).read(
        body, prompts(tokenizer.folder, path, 1)[0], frozenset({3}), 20
    )
    assert not isinstance(made, str)
    return made.answer.text, made.is_guess


def test_reasoning_and_tool_calls_are_put_back(tmp_path: Path) -> None:
    call = {
        "id": "1",
        "type": "function",
        "function": {"name": "weigh", "arguments": '{"fruit": "figs"}'},
    }
    qwen = load_tokenizer(str(parts.folder("qwen3")))
    text, guess = read_message(
        qwen, tmp_path, content="So.", reasoning_content="Hm.", tool_calls=[call]
    )
    assert not guess
    assert (
        text
        == '<think>\nHm.\n</think>\n\nSo.\n<tool_call>\n{"name": "weigh", "arguments": {"fruit":'
        ' "figs"}}\n</tool_call>'
    )
    plain = replace(load_tokenizer(str(tiny.TOKENIZER)), templates={})
    assert read_message(plain, tmp_path, content="So.", reasoning="Hm.") == (
        "<think>\nHm.\n</think>\n\nSo.",
        True,
    )
    text, guess = read_message(plain, tmp_path, content=None, tool_calls=[call])
    assert json.loads(text)["function"] == {"name": "weigh", "arguments": {"fruit": "figs"}}
    assert guess
    assert read_message(plain, tmp_path, content="So.") == ("So.", False)


@pytest.mark.parametrize(
    ("choice", "stop"),
    [
        ({"token_ids": [5, 6, 3], "stop_reason": None}, 3),
        ({"token_ids": [5, 6, 2], "stop_reason": 2}, 2),
        ({"token_ids": [5, 6]}, 3),
        ({"token_ids": [5, 6], "finish_reason": "length"}, None),
        (
            {
                "logprobs": {
                    "content": [
                        {"id": 5, "logprob": -1.0},
                        {"id": 6, "logprob": -2.0},
                        {"id": 3, "logprob": 0.0},
                    ]
                }
            },
            3,
        ),
    ],
)
def test_ids_that_a_server_tells(choice: dict[str, Any], stop: int | None, tmp_path: Path) -> None:
    tokenizer = load_tokenizer(str(tiny.TOKENIZER))
    asked = prompts(Path(tiny.TOKENIZER), tmp_path, 1)[0]
    body = {
        "choices": [{"message": {"content": "?"}, "finish_reason": "stop", **choice}],
        "prompt_token_ids": [1],
    }
    made = ReplyReader(tokenizer).read(body, asked, frozenset({3}), 20)
    assert not isinstance(made, str)
    assert (made.answer.ids, made.answer.stop, made.has_server_ids, made.prompt_ids) == (
        (5, 6),
        stop,
        True,
        [1],
    )
    assert made.answer.logprob == (-1.0 if "logprobs" in choice else None)


def test_the_bench_surveys_a_server(model: Any, tiny_folder: Path, tmp_path: Path) -> None:
    url = started(Completions(model, tiny.tokenizer(), {"ids", "logprobs", "echo"}))
    with backend(url, tiny_folder, route="completions", served_model=None) as server:
        assert isinstance(server, ServerBackend)
        verdicts = surveys(server, prompts(tiny_folder, tmp_path, 1)[0])
    assert "logprobs" in verdicts["completions"]["kept"]
    # This server has no other route.
    assert "kept" not in verdicts["chat/completions"]
