"""Feeds the readers of some modules with broken input, in a process with limits.

    python -m tests.parsing.fuzz_worker MODULE[,MODULE...] COUNT SEED PROGRESS

Prints one JSON object a line for each input that ended as none may: with an exception that the reader does not
promise, late, or with too much memory. The last line names the number of inputs. What is being read stands in the file
PROGRESS, so that the parent knows it even after a crash.
"""

from __future__ import annotations

import io
import json
import random
import resource
import sys
import tempfile
import time
import warnings
import zlib
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

from tests.parsing.readers import Reader, compressed, of_others
from truetune.errors import TruetuneError

MAX_SECONDS = 10.0
"""Processor time of one input"""
LONG_RUN = 500
"""From so many changed inputs for each reader on, each is fed with all broken ones, and with longer ones"""
MAX_GROWTH = 1 << 30
"""Bytes by which the process may grow over all inputs: the documented bound"""
ADDRESS_SPACE = 6 << 30
PIECES = (b"\0", b'"', b"{", b"[", b"}", b"\xff", b"\\ud800", b"1" * 500, b"&a *a", b"\r")
NASTY: tuple[Any, ...] = (
    None,
    True,
    False,
    0,
    -1,
    1.5,
    "",
    "x",
    [],
    {},
    [[]],
    [{}],
    {"": None},
    "\ud800",
    "a\0b",
    "é" * 300,
    10**30,
    -(10**30),
    10**400,
    float("inf"),
    float("nan"),
    "1e400",
    "9" * 400,
    "../..",
    "x" * 70_000,
    {"role": "user"},
    {"name": []},
    ["x"] * 300,
    [0.5, None, "x"],
    {"a": {"a": {"a": {}}}},
)


def of_bytes(kind: str, big: int) -> Iterator[bytes]:
    """Inputs that are broken for every format; the long ones have about `big` bytes."""
    yield b""
    yield b"\0" * 5000
    yield bytes(range(256)) * 20
    yield b"\xef\xbb\xbf"
    yield "{}".encode("utf-16")
    yield b"\xff\xfe\xff\xfe"
    yield b"\xed\xa0\x80" * 10
    for deep in (65, 900, big):
        for opener in (
            b"{",
            b"[",
            b'{"a":',
            b"[{",
            b"- ",
            b"? ",
            b"(",
            b"x=[",
            b"-",
            b"a.",
            b'{"messages":[',
        ):
            yield opener * (deep // len(opener) + 1)
    yield b'{"a": ' + b"[" * 60 + b"]" * 60 + b"}"
    yield b'{"a": ' + b"[" * 900 + b"]" * 900 + b"}"
    yield (
        b'{"messages": [{"role": "user", "content": ' + b'{"a":' * 900 + b"1" + b"}" * 900 + b"}]}"
    )
    yield b'"' + b'\\"' * big
    yield b'{"a": ' + b"1" * 5_000 + b"}"
    yield b'{"a": ' + b"1" * 400 + b"}"
    yield b'{"a": 1e400, "b": NaN, "c": -Infinity}'
    yield b'{"a": 1, "a": 2}'
    yield b'{"messages": [], "messages": [{"role": "user", "role": "x", "content": "\\ud83d"}]}'
    yield b"x" * (10 * big)
    yield b"," * (10 * big)
    yield b"[" + b"[]," * (5 * big) + b"[]]"
    yield b"{},\n" * (big // 2)
    yield b"\n" * (10 * big)
    yield b'"\n' * big
    yield b"a: &a [*a]\n"
    yield b"data: &d [*d]\n"
    yield b"&x : {<<: *x}\n"
    yield b"a0: &a0 [x]\n" + b"".join(
        b"a%d: &a%d [%s]\n" % (i, i, b",".join([b"*a%d" % (i - 1)] * 10)) for i in range(1, 20)
    )
    yield b"a0: &a0 {k: 1}\n" + b"".join(
        b"a%d: &a%d {<<: [*a%d, *a%d]}\n" % (i, i, i - 1, i - 1) for i in range(1, 60)
    )
    yield b"max_steps: 1" + b"0" * 400
    yield b"max_steps: 0x" + b"f" * 4000
    yield b"max_steps: " + b":".join([b"1"] * 50_000)
    yield b"a: !!timestamp x\nb: !!bool y\n"
    yield b'a: !!int ""'
    yield b"!!set {a, b}"
    yield b"? [a, b]\n: 1\n"
    yield b"a = 0x" + b"f" * 5000
    yield b".".join([b"a"] * 20_000) + b" = 1"
    yield b"a = " + b"[" * 3000
    yield b"x = " + b"+".join([b"1"] * 20_000)
    yield b"x = " + b"a" + b".b" * 20_000
    yield b"x = " + b"f(" * 150 + b")" * 150
    yield b"if a:\n  pass\n" + b"elif b:\n  pass\n" * 3000
    yield b"x = " + b"not " * 30_000 + b"a"
    yield b"step,loss\n" + b'1,"' + b"9" * 300_000
    yield b"{'loss': " + b"[" * 5000 + b", 'epoch': 1}\n"
    yield b"{'loss': 2, 'epoch': " + b"-" * 50_000 + b"1}\n"
    if kind in ("gz", "bz2", "xz", "zst"):
        yield compressed(kind, b"\n" * (1000 * big))
        yield compressed(kind, b"x" * (18 << 20))
        yield compressed(kind, b"[" * (18 << 20))
        yield compressed(kind, b'{"text": "a"}\n') * 3
        yield compressed(kind, b'{"text": "a"}\n')[:-3]


def changed_value(value: Any, rng: random.Random) -> Any:
    """A copy with one nasty value somewhere inside."""
    if rng.random() < 0.25 or not isinstance(value, (dict, list)) or not value:
        return rng.choice(NASTY)
    made = dict(value) if isinstance(value, dict) else list(value)
    key: Any = rng.choice(list(made)) if isinstance(made, dict) else rng.randrange(len(made))
    if isinstance(made, dict) and rng.random() < 0.1:
        made[rng.choice(("", "\ud800", "a" * 5000, *made))] = made.pop(key)
    else:
        made[key] = changed_value(made[key], rng)
    return made


def changed_bytes(body: bytes, rng: random.Random) -> bytes:
    """The bytes cut, repeated, with others between or instead of some."""
    at = rng.randrange(len(body) + 1)
    upto = min(len(body), at + rng.randrange(1, 40))
    return rng.choice(
        (
            body[:at],
            body[:at] + bytes(rng.randrange(256) for _ in range(upto - at)) + body[upto:],
            body[:at] + rng.choice(PIECES) + body[at:],
            body[:at] + body[upto:],
            body[:at] + body[at:upto] * rng.randrange(2, 2000) + body[upto:],
            body * rng.randrange(2, 50),
        )
    )


def mutants(reader: Reader, rng: random.Random) -> Iterator[bytes]:
    """Without end: the sound input, changed."""
    documents = []
    for text in (reader.sound, *reader.sound.splitlines()):
        try:
            documents.append(json.loads(text))
        except ValueError:
            continue
    while True:
        if documents and rng.random() < 0.6:
            value = changed_value(rng.choice(documents), rng)
            yield json.dumps(value, ensure_ascii=True).encode() + rng.choice((b"", b"\n"))
        else:
            body = changed_bytes(reader.sound, rng)
            yield changed_bytes(body, rng) if rng.random() < 0.3 else body


def inputs(reader: Reader, count: int, rng: random.Random) -> Iterator[bytes]:
    yield reader.sound
    kind, long_run = reader.file.rpartition(".")[2], count >= LONG_RUN
    broken = of_bytes(kind, 300_000 if long_run else 10_000)
    # A short run feeds each reader with a third of these, another third for each file name: all are fed to some.
    yield from broken if long_run else islice(broken, zlib.crc32(reader.file.encode()) % 3, None, 3)
    changed = mutants(reader, rng)
    for _ in range(count):
        yield next(changed)


def feed(reader: Reader, body: bytes, folder: Path) -> str | None:
    """What is wrong with how the reader ends; None where nothing is."""
    path = folder / reader.file
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(body)
    begin = time.process_time()
    said = None
    try:
        reader.read(path)
    except TruetuneError as error:
        message = str(error)
        if len(message) > 4000:
            said = f"a message of {len(message):,} characters: {message[:100]}"
        message.encode("utf-8", "backslashreplace")
    except BaseException as error:
        if type(error).__name__ not in reader.allowed:
            said = f"{type(error).__name__}: {str(error)[:200]}"
    seconds = time.process_time() - begin
    if said is None and seconds > MAX_SECONDS:
        said = f"{seconds:.1f} s"
    path.unlink()
    return said


def main(modules: list[str], count: int, seed: int, progress: Path) -> None:
    warnings.simplefilter("ignore")
    resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_SPACE, ADDRESS_SPACE))
    total = 0
    known = of_others()
    with tempfile.TemporaryDirectory() as name:
        for number, reader in enumerate(reader for module in modules for reader in known[module]):
            rng = random.Random(f"{reader.file} {seed}")
            folder = Path(name, str(number))
            folder.mkdir()
            if (said := feed(reader, reader.sound, folder)) is not None:
                print(
                    json.dumps(
                        {"file": reader.file, "said": f"the sound input: {said}", "input": ""}
                    )
                )
            before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
            for body in inputs(reader, count, rng):
                progress.write_bytes(f"{reader.file}: ".encode() + body[:500])
                said = feed(reader, body, folder)
                total += 1
                grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10) - before
                if said is None and grown > MAX_GROWTH:
                    said, before = f"{grown >> 20} MiB more memory", before + grown
                if said is not None:
                    print(
                        json.dumps({"file": reader.file, "said": said, "input": repr(body[:200])}),
                        flush=True,
                    )
    print(json.dumps({"inputs": total}))


if __name__ == "__main__":
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
    main(sys.argv[1].split(","), int(sys.argv[2]), int(sys.argv[3]), Path(sys.argv[4]))
