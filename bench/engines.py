"""Do all engines answer alike? `python -m bench.engines MODEL --data FILE [--gguf FILE] [--vllm PY] [--llama PY]`

Outside CI: the engines are asked the same prompts greedily, each in a process of its own, with the Python in which it
is installed (which needs Truetune's own dependencies too): transformers and `transformers serve` in this one, vLLM
and its server under `--vllm`, llama.cpp and its server under `--llama` with the GGUF file of the same model. Each is
compared with transformers in float32. Exit code 1 where one is DIFFERENT. Two ways to see that this is seen:
`--break-template` gives the servers another chat template, and `--wrong MODEL` gives another model to all but the
reference.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.error import HTTPError, URLError
from urllib.request import urlopen

if TYPE_CHECKING:
    from truetune.generation.answer_samples import Prompt
    from truetune.generation.backends.server_backend import ServerBackend

ROOT = Path(__file__).parent.parent
STARTED = 600.0
"""Seconds in which a server must be up"""
PATIENCE = 600.0
"""Seconds for one answer of a server"""
BROKEN = "{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}\n{% endfor %}assistant:"
LENGTH = 2048
"""Tokens of the servers' contexts"""


@dataclass(frozen=True)
class Engine:
    """Who is asked."""

    name: str
    python: str
    backend: str
    model: str
    """A folder, or a GGUF file"""
    serve: list[str] = field(default_factory=list)
    """How its server is started, of `backend` server; `{port}` is filled in"""
    served_model: str | None = None


def engines(given: argparse.Namespace, served: str) -> list[Engine]:
    """The reference first. `served` is the folder that servers are given."""
    model = given.wrong or given.model
    found = [Engine("transformers", sys.executable, "transformers", given.model)]
    if given.wrong:
        found.append(Engine("transformers, another model", sys.executable, "transformers", model))
    command = [
        sys.executable,
        "-c",
        "from transformers.cli.transformers import main; main()",
        "serve",
        served,
        "--device",
        "cpu",
        "--dtype",
        "float32",
        "--port",
        "{port}",
    ]
    found.append(Engine("transformers serve", sys.executable, "server", served, command, served))
    if given.llama:
        for file in given.gguf:
            found.append(Engine(f"llama.cpp, {Path(file).name}", given.llama, "llama.cpp", file))
            command = [
                given.llama,
                "-m",
                "llama_cpp.server",
                "--model",
                file,
                "--n_ctx",
                str(LENGTH),
                "--port",
                "{port}",
                *(["--chat_format", "vicuna"] if given.break_template else []),
            ]
            found.append(
                Engine(
                    f"llama.cpp's server, {Path(file).name}",
                    sys.executable,
                    "server",
                    file,
                    command,
                )
            )
    if given.vllm:
        found.append(Engine("vLLM", given.vllm, "vllm", model))
        command = [
            given.vllm,
            "-m",
            "vllm.entrypoints.openai.api_server",
            "--model",
            served,
            "--dtype",
            "float32",
            "--max-model-len",
            str(LENGTH),
            "--enforce-eager",
            "--port",
            "{port}",
        ]
        found.append(Engine("vLLM's server", sys.executable, "server", served, command))
    return found


def place_of(name: str, tokenizer: str) -> tuple[Any, Any]:
    """Place, and tokenizer."""
    from truetune.generation.backends.model_source import find_model_source

    place = find_model_source(name, tokenizer=tokenizer)
    return place, place.prepared().tokenizer


def read_prompts(path: str) -> list[Any]:
    from truetune.generation.answer_samples import Chat, Prompt

    rows = json.loads(Path(path).read_text(encoding="utf-8"))
    lists = ("ids", "reference_ids")
    return [
        Prompt(
            **{
                **row,
                **{key: tuple(row[key]) for key in lists},
                "chat": row["chat"] and Chat(**row["chat"]),
            }
        )
        for row in rows
    ]


def ask(asked: dict[str, Any]) -> dict[str, Any]:
    """In the engine's own process: greedy answers, what they took, P(stop) and scores of the references."""
    from dataclasses import asdict, replace

    from truetune.generation.backends.backend import Decoding
    from truetune.generation.backends.model_source import serving_stops
    from truetune.generation.backends.open_backend import Options, open_backend
    from truetune.generation.backends.server_backend import ServerBackend

    place, tokenizer = place_of(asked["place"], asked["tokenizer"])
    prompts = read_prompts(asked["prompts"])
    stops = serving_stops(tokenizer)
    bare = [replace(prompt, reference_ids=()) for prompt in prompts]
    options = Options(
        backend=asked["backend"],
        dtype=asked["dtype"],
        served_model=asked["served_model"],
        timeout=PATIENCE,
    )
    with open_backend(place, tokenizer, options) as backend:
        backend.answers(bare[:1], Decoding(stops, 4))
        began = time.perf_counter()
        said = backend.answers(bare, Decoding(stops, asked["tokens"]))
        seconds = time.perf_counter() - began
        taught = backend.answers(prompts, Decoding(stops, 1))
        scores = backend.score([(*prompt.ids, *prompt.reference_ids) for prompt in prompts])
        fields = (
            surveys(backend, prompts[0])
            if asked["survey"] and isinstance(backend, ServerBackend)
            else {}
        )
        best = backend.likeliest([prompts[0].ids], 2)
        return {
            "answers": [answer and asdict(answer) for answer in said],
            "seconds": seconds,
            "stop": [answer and answer.stop_probability for answer in taught],
            "scores": (
                scores
                and [
                    [float(value) for value in one.logprobs[len(prompt.ids) :]]
                    for one, prompt in zip(scores, prompts, strict=True)
                ]
            ),
            "likeliest": best is not None,
            "notes": backend.notes,
            "fields": fields,
        }


def surveys(backend: ServerBackend, prompt: Prompt) -> dict[str, dict[str, list[str]]]:
    """By route and verdict: the fields of a request that this server does not heed."""
    from truetune.generation.backends.heeded_request_fields import (
        make_request_sender,
        survey_heeded_fields,
    )
    from truetune.generation.backends.server_prompt_ids import chat_request

    assert prompt.chat is not None
    chat = {
        "messages": prompt.chat.messages,
        "tools": prompt.chat.tools,
        "settings": prompt.chat.settings,
    }
    bodies = {
        "chat/completions": chat_request(backend.server, chat),
        "completions": {"model": backend.server.model, "prompt": prompt.text},
    }
    found: dict[str, dict[str, list[str]]] = {}
    for route, body in bodies.items():
        verdicts: dict[str, list[str]] = {}
        for seen in survey_heeded_fields(
            make_request_sender(f"{backend.server.root}/v1/{route}"), body
        ):
            verdicts.setdefault(seen.verdict, []).append(seen.name)
        found[route] = verdicts
    return found


def likeliest(asked: dict[str, Any]) -> list[dict[int, float]]:
    """Of the reference: the likeliest tokens behind each of these prefixes."""
    from truetune.generation.backends.open_backend import Options, open_backend

    place, tokenizer = place_of(asked["place"], asked["tokenizer"])
    with open_backend(
        place, tokenizer, Options(backend="transformers", dtype="float32")
    ) as backend:
        return backend.likeliest(asked["prefixes"], 50) or []


@contextmanager
def running(command: Sequence[str], log: Path) -> Iterator[str | None]:
    """URL of a server while it runs; None where the command is empty."""
    if not command:
        yield None
        return
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    environment = {"HF_HUB_OFFLINE": "1", "VLLM_CPU_KVCACHE_SPACE": "1", **os.environ}
    with log.open("w") as out:
        process = subprocess.Popen(
            [part.replace("{port}", port) for part in command],
            stdout=out,
            stderr=out,
            env=environment,
        )
    try:
        await_up(f"http://localhost:{port}", process, log)
        yield f"http://localhost:{port}"
    finally:
        process.terminate()
        process.wait(timeout=60)


def await_up(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    until = time.monotonic() + STARTED
    while time.monotonic() < until and process.poll() is None:
        try:
            with urlopen(f"{url}/v1/models", timeout=5):
                return
        except HTTPError:
            return
        except (URLError, OSError):
            time.sleep(0.5)
    raise SystemExit(f"{url} is not up:\n{log.read_text()[-2000:]}")


def asked_apart(python: str, what: str, asked: Mapping[str, Any], work: Path) -> Any:
    """In a process of its own. Raises RuntimeError with what it wrote where it fails."""
    question, reply = work / "question.json", work / "reply.json"
    question.write_text(json.dumps(dict(asked)), encoding="utf-8")
    reply.unlink(missing_ok=True)
    environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"}
    command = [python, "-m", "bench.engines", f"--{what}", str(question), str(reply)]
    done = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True)
    if done.returncode or not reply.is_file():
        raise RuntimeError((done.stderr or done.stdout).strip().rpartition("\n")[2])
    return json.loads(reply.read_text(encoding="utf-8"))


def broken(model: str, out: Path) -> str:
    """A copy of a model's folder with another chat template."""
    shutil.copytree(
        model, out, symlinks=True, ignore=shutil.ignore_patterns("*.safetensors", "chat_template*")
    )
    for file in Path(model).resolve().glob("*.safetensors"):
        (out / file.name).symlink_to(file)
    (out / "chat_template.jinja").write_text(BROKEN, encoding="utf-8")
    return str(out)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Do all engines answer alike?")
    parser.add_argument("model")
    parser.add_argument("--data", required=True, action="append")
    parser.add_argument(
        "--gguf", action="append", default=[], help="the same model as a GGUF file; several times"
    )
    parser.add_argument("--vllm", metavar="PYTHON")
    parser.add_argument("--llama", metavar="PYTHON")
    parser.add_argument("-n", type=int, default=10)
    parser.add_argument("--tokens", type=int, default=48)
    parser.add_argument(
        "--only", default="", help="a regular expression: only engines of such a name"
    )
    parser.add_argument("--break-template", action="store_true")
    parser.add_argument("--wrong", metavar="MODEL")
    parser.add_argument(
        "--survey", action="store_true", help="ask servers which fields they ignore, too"
    )
    parser.add_argument(
        "--keep", type=Path, metavar="DIR", help="replies are put there, and not asked for again"
    )
    parser.add_argument("--json", type=Path)
    given = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        rows = compared(given, Path(folder))
    print(table(rows))
    if given.json:
        given.json.write_text(json.dumps(rows, indent=1), encoding="utf-8")
    return int(any(row["verdict"] == "DIFFERENT" for row in rows))


def compared(given: argparse.Namespace, work: Path) -> list[dict[str, Any]]:
    """One row of the table for each engine."""
    from bench.engines_agree import agreement, parted

    prompts = made_prompts(given, work / "prompts.json")
    model = given.wrong or given.model
    served = broken(model, work / "broken") if given.break_template else model
    replies: dict[str, Any] = {}
    for engine in engines(given, served):
        if replies and not re.search(given.only, engine.name):
            continue
        kept = given.keep and given.keep / f"{engine.name}.json"
        if kept and kept.is_file():
            replies[engine.name] = json.loads(kept.read_text(encoding="utf-8"))
            continue
        print(f"{engine.name} ...", file=sys.stderr, flush=True)
        try:
            with running(engine.serve, work / "server.log") as url:
                replies[engine.name] = asked_apart(
                    engine.python,
                    "ask",
                    {
                        "place": url or engine.model,
                        "backend": engine.backend,
                        "tokenizer": given.model,
                        "dtype": None if engine.backend == "llama.cpp" else "float32",
                        "tokens": given.tokens,
                        "served_model": engine.served_model,
                        "survey": given.survey,
                        "prompts": str(work / "prompts.json"),
                    },
                    work,
                )
        except (RuntimeError, SystemExit) as error:
            replies[engine.name] = {"failed": str(error)}
        else:
            if kept:
                kept.write_text(json.dumps(replies[engine.name]), encoding="utf-8")
    reference = replies["transformers"]
    if "failed" in reference:
        raise SystemExit(f"the reference fails: {reference['failed']}")
    prefixes = [
        place
        for reply in replies.values()
        if "failed" not in reply
        for place in parted(prompts, reference, reply)
    ]
    told = (
        asked_apart(
            sys.executable,
            "likeliest",
            {
                "place": given.model,
                "tokenizer": given.model,
                "prefixes": [list(one.prefix) for one in prefixes],
            },
            work,
        )
        if prefixes
        else []
    )
    known = {
        one.prefix: {int(id): float(value) for id, value in best.items()}
        for one, best in zip(prefixes, told, strict=True)
    }
    return [agreement(name, prompts, reference, reply, known) for name, reply in replies.items()]


def made_prompts(given: argparse.Namespace, out: Path) -> list[Any]:
    from dataclasses import asdict

    from truetune.data.read_rows_as_conversations import read_conversations
    from truetune.generation.backends.model_source import find_model_source
    from truetune.generation.build_prompts import build_prompts

    probes = find_model_source(given.model).prepared()
    prompts = build_prompts(probes.spec, read_conversations(given.data), given.n, probes=probes)
    out.write_text(json.dumps([asdict(prompt) for prompt in prompts]), encoding="utf-8")
    return prompts


def table(rows: Sequence[Mapping[str, Any]]) -> str:
    from bench.engines_agree import HEAD, line

    notes = [f"- {row['name']}: {note}" for row in rows for note in row["notes"]]
    return "\n".join([*HEAD, *map(line, rows), "", *notes])


def worker(what: str, question: str, reply: str) -> None:
    asked = json.loads(Path(question).read_text(encoding="utf-8"))
    made = {"ask": ask, "likeliest": likeliest}[what](asked)
    Path(reply).write_text(json.dumps(made), encoding="utf-8")


if __name__ == "__main__":
    if sys.argv[1:2] in (["--ask"], ["--likeliest"]):
        worker(sys.argv[1][2:], sys.argv[2], sys.argv[3])
    else:
        sys.exit(main())
