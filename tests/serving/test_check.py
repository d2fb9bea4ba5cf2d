"""serve-check against the real `transformers serve`, with a right model and with wrong ones."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from tests.generation.serving import tiny_folder, transformers_serve  # noqa: F401
from truetune.checks.findings import Finding
from truetune.cli.serve_check_command import serve_check as command
from truetune.errors import UsageError
from truetune.generation.backends.http_client import Server
from truetune.generation.backends.model_source import find_model_source
from truetune.generation.backends.open_backend import Options
from truetune.generation.server_observations import ServerObservations
from truetune.report.report_terminal import report_as_text
from truetune.serving.check_server import judge_server, serve_check
from truetune.serving.compare_served_with_trained_prompts import compare_server_prompts
from truetune.serving.infer_prompt_from_answers import compare_prompts_by_answers
from truetune.serving.load_contract_of_trained_prompts import TrainingRecord, load_training_record
from truetune.serving.observe_how_server_samples import (
    measure_repeatability_of_greedy_requests,
    observe_sampling_defaults,
)
from truetune.serving.server_client import ServerClient
from truetune.settings.run_spec import RunSpec

ALPACA = (
    "{% for m in messages %}{% if m.role == 'user' %}### Instruction:\n{{ m.content }}\n\n"
    "{% elif m.role == 'assistant' %}### Response:\n{{ m.content }}\n\n{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}### Response:\n{% endif %}"
)
SYSTEM = "{{ '<|im_start|>system\nBe brief.<|im_end|>\n' }}"
CHOSEN = ("1 turn", "2 turns", "2 turns, system", "2 turns, tools")
Change = Callable[[str], str]
Copy = Callable[[str, Change], Path]


@pytest.fixture
def copy(tiny_folder: Path, tmp_path: Path) -> Copy:
    """A copy of the tiny model's folder in which a file is another."""

    def changed(file: str, change: Change) -> Path:
        shutil.copytree(tiny_folder, tmp_path / "served")
        path = tmp_path / "served" / file
        path.write_text(change(path.read_text(encoding="utf-8")), encoding="utf-8")
        return tmp_path / "served"

    return changed


def setting(**values: Any) -> Change:
    return lambda text: json.dumps({**json.loads(text), **values})


def client_of(url: str, served: Path) -> ServerClient:
    return ServerClient(Server(url, str(served)), seconds=60, concurrency=2, bos=None)


def record(folder: Path) -> tuple[Any, TrainingRecord]:
    place = find_model_source(str(folder))
    made = place.prepared()
    return made, load_training_record(place, made)


def prompts(url: str, folder: Path, served: Path) -> tuple[ServerObservations, tuple[Finding, ...]]:
    """What is found in a few of the prompts."""
    made, found = record(folder)
    chosen = [trained for trained in found.prompts if trained.name in CHOSEN]
    client = client_of(url, served)
    asked, notes = compare_prompts_by_answers(
        client, compare_server_prompts(client.server, chosen, made, None), made, None
    )
    service = ServerObservations(
        url, prompts=tuple(one.comparison for one in asked), notes=tuple(notes)
    )
    return service, judge_server(service, RunSpec()).findings


def test_the_right_model(transformers_serve: str, tiny_folder: Path) -> None:
    options = Options(served_model=str(tiny_folder), concurrency=2)
    report = serve_check(str(tiny_folder), transformers_serve, options=options, longest=600)
    service = report.service
    assert [finding for finding in report.findings if finding.severity != "info"] == []
    assert len(service.prompts) == 17
    assert {(prompt.same, prompt.by) for prompt in service.prompts} == {
        (True, "count"),
        (True, "answers"),
    }
    seen = report.more()["service"]
    assert (seen["repeats"]["alone_differ"], seen["repeats"]["together_differ"]) == (0, 0)
    assert seen["sampling"]["samples"] is False
    assert {ending["finish"] for ending in seen["stopping"]["endings"]} == {"stop"}
    assert seen["context"]["counted"] >= seen["context"]["sent"] >= 512
    assert {"logprobs", "n"} <= {*service.ignored}
    drawn = report_as_text(report)
    assert re.search(r"prompts +11 of 11 equal, by their number of tokens", drawn)
    assert re.search(r"the same greedy request +7 of 7 answers are equal", drawn)


@pytest.mark.parametrize(
    ("change", "message", "case"),
    [
        (
            lambda _: ALPACA,
            (
                "probably it is written in the format of Alpaca (a prompt made so is as long, and"
                " the server answers as it does to that one)"
            ),
            r"served '### Instruction:\nWhere is the lighthouse?",
        ),
        (
            lambda text: text.replace("if add_generation_prompt", "if false"),
            "probably the generation prompt is missing at its end",
            r"the server leaves out '<|im_start|>assistant\n'",
        ),
        (
            lambda text: SYSTEM + text,
            "as where a fixed text of 9 tokens, such as a system prompt, is put in",
            "tokens on the server",
        ),
    ],
    ids=["alpaca", "no generation prompt", "a system prompt"],
)
def test_another_template(
    transformers_serve: str,
    tiny_folder: Path,
    copy: Copy,
    change: Change,
    message: str,
    case: str,
) -> None:
    _, (finding,) = prompts(transformers_serve, tiny_folder, copy("chat_template.jinja", change))
    assert (finding.code, finding.severity, finding.count, finding.total) == (
        "SRV002",
        "error",
        4,
        4,
    )
    assert message in finding.message
    assert case in finding.cases[0].text
    assert ("guessed, as the server does not tell its text: " in finding.cases[0].text) is (
        "probably" in message
    )


def test_another_text_of_the_same_length(
    transformers_serve: str, tiny_folder: Path, copy: Copy
) -> None:
    """The number of tokens says that all is well; the answers do not."""
    swapped = "'\\nassistant<|im_start|>'"
    served = copy(
        "chat_template.jinja", lambda text: text.replace("'<|im_start|>assistant\\n'", swapped)
    )
    service, (finding,) = prompts(transformers_serve, tiny_folder, served)
    assert {
        (prompt.by, prompt.served == prompt.trained)
        for prompt in service.prompts
        if not prompt.same
    } == {("answers", True)}
    assert (finding.code, finding.severity) == ("SRV001", "error")


def test_no_stop(transformers_serve: str, tiny_folder: Path, copy: Copy) -> None:
    served = copy("generation_config.json", setting(eos_token_id=5))
    found = CliRunner().invoke(
        command, [str(tiny_folder), "--endpoint", transformers_serve, "--served-model", str(served), "--longest", "0",
                  "--format", "json"], standalone_mode=False, catch_exceptions=False,
    )  # fmt: skip
    assert found.return_value == 1
    report = json.loads(found.stdout)
    finding = report["findings"][0]
    assert (finding["code"], finding["count"], finding["total"]) == ("SRV004", 6, 6)
    assert "the server does not stop at <|im_end|> (3)" in finding["message"]
    assert "the model stops after" in finding["cases"][0]["text"]
    assert len(report["service"]["prompts"]) == 17


def test_sampling_and_penalties(transformers_serve: str, tiny_folder: Path, copy: Copy) -> None:
    generation = {"do_sample": True, "temperature": 50.0, "repetition_penalty": 8.0}
    client = client_of(transformers_serve, copy("generation_config.json", setting(**generation)))
    _, found = record(tiny_folder)
    sampling = observe_sampling_defaults(client, found.prompts[:1], generation, repeatable=True)
    codes = [
        (f.code, f.severity)
        for f in judge_server(ServerObservations("", sampling=sampling), RunSpec()).findings
    ]
    assert codes == [("SRV006", "warning"), ("SRV005", "info")]
    assert sampling.settings == ("temperature 50.0", "repetition_penalty 8.0")


def test_greedy_that_is_none(transformers_serve: str, tiny_folder: Path, copy: Copy) -> None:
    """A server that takes the temperature away samples what should be greedy."""
    client = client_of(
        transformers_serve,
        copy("generation_config.json", setting(do_sample=True, temperature=50.0)),
    )
    chat = client.chat
    client.chat = lambda asked, tokens, **fields: chat(asked, tokens)  # type: ignore[method-assign]
    _, found = record(tiny_folder)
    repeats = measure_repeatability_of_greedy_requests(client, found.prompts[:1])
    (finding,) = judge_server(ServerObservations("", repeats=repeats), RunSpec()).findings
    assert (finding.code, finding.severity) == ("SRV007", "warning")


@pytest.mark.parametrize(
    ("endpoint", "served", "message"),
    [
        ("http://127.0.0.1:9", None, "no answer"),
        ("localhost", None, "is no URL of a server"),
        (None, "no/such/model", "refuses all 17 chats"),
    ],
)
def test_no_such_server(
    transformers_serve: str,
    tiny_folder: Path,
    endpoint: str | None,
    served: str | None,
    message: str,
) -> None:
    with pytest.raises(UsageError, match=message):
        serve_check(
            str(tiny_folder), endpoint or transformers_serve, options=Options(served_model=served)
        )
