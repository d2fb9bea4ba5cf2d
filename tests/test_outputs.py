"""No command that writes touches a file that is not its own: every one is walked, over folders full of strangers.

The commands come from the command tree. An option that names a path and stands in neither table below fails a test, so
that a new command that writes can't be forgotten here.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import stat
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import click
import pytest

import truetune
from tests.checkpoint import make
from truetune import cli
from truetune.demo import TOKENIZER
from truetune.encoding import encoded_folder_on_disk
from truetune.encoding.encoded_folder_on_disk import _owner_file_bytes
from truetune.render.template_probes import alternating_chat

READS = {
    "paths",
    "tokenizer",
    "model",
    "template",
    "config",
    "eval_data",
    "base",
    "run",
    "data",
    "python",
    "against",
    "trained_on",
    "include",
    "adapter",
    "converter",
    "compare",
    "watch",
    "merged",
    "exported",
    "folders",
    "path",
    "target",
    "command",
    "settings",
    "config_file",
    "parser",
    "names",
    "words",
    "shell",
    "baseline",
    "result",
    "predictions",
    "verify",
    "symptom",
    "function",
}
"""Parameters that name what is read, or start it"""
PLAIN = {
    "FORMAT",
    "OURS=THEIRS",
    "NAME=JSON",
    "TEXT",
    "TOKENS",
    "RULE",
    "SECONDS",
    "N",
    "NAMES",
    "SHARE",
    "NAME",
    "SIZE",
    "NAME=VALUE",
    "URL",
    "T",
    "P",
    "ADAPTER",
    "N|all",
    "RELEASE",
    "OURS=YOURS,...",
    "COLUMN",
}
"""What stands for a parameter that names no path"""
REPORTING = (
    "check",
    "diagnose",
    "doctor",
    "evaluate",
    "lint",
    "movement",
    "rehearse",
    "reward",
    "run",
    "sample",
    "score",
    "serve-check",
    "troubleshoot",
)
DRAWING = (*REPORTING, "encode", "export", "ladder", "merge", "plan", "train")
FILES = {
    **{(name, "html"): "html" for name in DRAWING},
    **{(name, "output"): "text" for name in REPORTING},
    **{(name, "rows_out"): "rows" for name in REPORTING},
    **{
        ("report", "output"): "html",
        ("sample", "save"): "jsonl",
        ("score", "save"): "jsonl",
        ("init", "file"): "yaml",
        ("init", "schema"): "json",
    },
    ("fix", "out"): "jsonl",
}
"""Parameters that name a file that is written, with the form in which it is"""
FOLDERS = {
    ("encode", "out"),
    ("encode", "cache"),
    ("train", "out"),
    ("merge", "out"),
    ("export", "out"),
    ("sample", "looks"),
}
"""Parameters that name a folder that is written"""
NAMED_ONLY = {("init", "out")}
"""Parameters that name a folder which a later command writes"""
HAVE_OWN_TESTS = {("skill", "install")}
"""Parameters that name a folder of other programs' files, to which one of ours is added: tests/assistants"""


def parameters() -> Iterator[tuple[str, click.Parameter]]:
    for name, command in cli.truetune_group.commands.items():
        for param in command.params:
            yield name, param


def test_every_parameter_that_names_a_path_is_known_to_read_or_to_write() -> None:
    known = FILES.keys() | FOLDERS | NAMED_ONLY | HAVE_OWN_TESTS
    for name, param in parameters():
        if isinstance(param, click.Option) and (
            param.is_flag or param.metavar in PLAIN or param.metavar is None
        ):
            continue
        assert ((name, param.name) in known) != (param.name in READS), (
            f"is what {name} {param.name} names written?"
        )
    assert known <= {(name, param.name) for name, param in parameters()}


class World(NamedTuple):
    """A folder with inputs, results of our own, and files that are somebody's."""

    root: Path
    data: Path
    base: Path
    adapter: Path
    run: Path
    encoded: Path
    result: Path


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What every test gets a copy of."""
    root = tmp_path_factory.mktemp("outputs")
    lines = (
        json.dumps({"messages": alternating_chat(f"question {i}", f"answer {i}")}) + "\n"
        for i in range(12)
    )
    (root / "inputs").mkdir()
    (root / "inputs" / "chats.jsonl").write_text("".join(lines), encoding="utf-8")
    answers = (
        json.dumps({"prompt": f"question {i}", "prediction": f"answer {i}"}) + "\n"
        for i in range(12)
    )
    (root / "predictions.jsonl").write_text("".join(answers), encoding="utf-8")
    same = "def same(completions, **kwargs):\n    return [1.0 for _ in completions]\n"
    (root / "rewards.py").write_text(same, encoding="utf-8")
    make.adapter(make.base(root / "base"), root / "adapter")
    truetune.encode(root / "inputs" / "chats.jsonl", TOKENIZER, root / "encoded", jobs=1)
    run = {
        "format": 1,
        "status": "training",
        "key": "0" * 40,
        "inputs": {"rows": 1},
        "settings": {},
        "resumed": [],
    }
    (root / "run").mkdir()
    (root / "run" / "run.json").write_text(json.dumps(run), encoding="utf-8")
    (root / "train.yaml").write_text(f"model: {root.name}\n", encoding="utf-8")
    truetune.check(root / "inputs" / "chats.jsonl", TOKENIZER).save_as(root / "result.json")
    return root


@pytest.fixture
def world(template: Path, tmp_path: Path) -> World:
    root = tmp_path / "world"
    shutil.copytree(template, root, symlinks=True)
    (root / "elsewhere" / "deep").mkdir(parents=True)
    (root / "elsewhere" / "thesis.tex").write_text("years of work")
    (root / "elsewhere" / "deep" / "photo.jpg").write_bytes(bytes(range(256)))
    settings = {
        **{
            "model": str(root / "base"),
            "tokenizer": str(root / "base"),
            "rehearsal": False,
            "max_length": 64,
        },
        **{"data": str(root / "inputs" / "chats.jsonl"), "training": {"max_steps": 1}},
    }
    (root / "train.yaml").write_text(json.dumps(settings), encoding="utf-8")
    parts = (
        root / "inputs" / "chats.jsonl",
        root / "base",
        root / "adapter",
        root / "run",
        root / "encoded",
    )
    return World(root, *parts, root / "result.json")


def tree(folder: Path) -> dict[str, tuple[Any, ...]]:
    """All that is below a folder: kinds, bytes, where links lead, and when files were changed."""
    found: dict[str, tuple[Any, ...]] = {}
    for path in sorted(folder.rglob("*")):
        status = path.lstat()
        kind = stat.S_IFMT(status.st_mode)
        body: Any = None
        if stat.S_ISLNK(status.st_mode):
            body = os.readlink(path)
        elif stat.S_ISREG(status.st_mode):
            body = (path.read_bytes(), status.st_mtime_ns, status.st_ino)
        found[path.relative_to(folder).as_posix()] = (kind, body)
    return found


def truetune_says(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *words: object
) -> tuple[int, str]:
    """(exit code, what the command says on stderr)"""
    monkeypatch.setattr(sys, "argv", ["truetune", *map(str, words)])
    capsys.readouterr()
    code = cli._run_and_return_exit_code()
    return code, capsys.readouterr().err


def call(
    world: World, name: str, param: str, output: object, data: Path | None = None
) -> list[object]:
    """The words of a command that writes to `output` by this parameter; `data` takes the place of its first input."""
    rows = data or world.data
    inputs: dict[str, list[object]] = {
        "check": [rows, "-t", TOKENIZER],
        "diagnose": [data or world.run],
        "doctor": ["--no-imports"],
        "encode": [rows, "-t", TOKENIZER, "-j", 1, "--no-progress"],
        "evaluate": [world.base, "--data", rows],
        "export": [data or world.base, "--no-proof"],
        "fix": [rows, "-t", TOKENIZER, "--no-progress"],
        "ladder": [data or world.adapter],
        "lint": [data or world.root / "inputs"],
        "merge": [data or world.adapter, "--base", world.base, "--no-proof"],
        "movement": [data or world.base, "--base", world.base],
        "plan": [data or world.base],
        "rehearse": ["--", "true", *([data] if data else [])],
        "report": [data or world.result],
        "reward": [f"{world.root / 'rewards.py'}:same", "--data", rows, "--rows", 1],
        "run": ["--", "true", *([data] if data else [])],
        "sample": [world.base, "--data", rows],
        "score": [data or world.root / "predictions.jsonl"],
        "serve-check": [world.base, "--endpoint", "http://127.0.0.1:9", "--data", rows],
        "train": [data or world.root / "train.yaml"],
        "troubleshoot": ["the loss is flat", rows],
        "init": ["--model", world.base, "--data", rows, "--yes"],
    }
    words: list[object] = inputs[name]
    if (name, param) == ("sample", "looks"):
        words = ["--watch", world.run, "--once", "--data", rows]
    option = next(p for p in cli.truetune_group.commands[name].params if p.name == param)
    if name == "export" and param != "out":
        words = [*words, "-o", world.root / "new"]
    if isinstance(option, click.Argument):
        return [name, output, *words]
    long = max(option.opts, key=len)
    before = [long, output]
    return [name, *before, *words] if name in ("run", "rehearse") else [name, *words, *before]


SUFFIX = {
    "html": ".html",
    "text": ".txt",
    "rows": ".jsonl",
    "jsonl": ".jsonl",
    "yaml": ".yaml",
    "json": ".json",
}
LOOKALIKES = {
    "html": '<!doctype html><html><body id="data">all that truetune says</body></html>',
    "text": "notes on truetune 0.1.0\n",
    "jsonl": '{"file": "a", "line": 1, "answer": "mine"}\n',
    "rows": '{"file": "a", "line": 1, "row": 0, "findings": "mine"}\n',
    "yaml": "model: mine\n",
    "json": '{"mine": 1, "schema": "truetune.report/1", "truetune": "0.1.0"}',
}
"""Files of the user's that speak of truetune"""


def a_file(world: World, form: str) -> Path:
    path = world.root / f"mine{SUFFIX[form]}"
    path.write_text(LOOKALIKES[form])
    return path


def a_link(world: World, form: str) -> Path:
    path = world.root / f"link{SUFFIX[form]}"
    path.symlink_to(a_file(world, form))
    return path


def a_hard_link(world: World, form: str) -> Path:
    path = world.root / f"hard{SUFFIX[form]}"
    os.link(a_file(world, form), path)
    return path


def a_folder(world: World, form: str) -> Path:
    path = world.root / f"folder{SUFFIX[form]}"
    shutil.copytree(world.root / "elsewhere", path)
    return path


def an_input(world: World, form: str) -> Path:
    return world.data


def a_link_to_an_input(world: World, form: str) -> Path:
    path = world.root / f"again{SUFFIX[form]}"
    path.symlink_to(world.data)
    return path


def a_name_in_no_folder(world: World, form: str) -> Path:
    return world.root / "nowhere" / f"new{SUFFIX[form]}"


IN_THE_PLACE_OF_A_FILE: tuple[Callable[[World, str], Path], ...] = (
    a_file, a_link, a_hard_link, a_folder, an_input, a_link_to_an_input, a_name_in_no_folder,
)  # fmt: skip


@pytest.mark.parametrize(("name", "param"), sorted(FILES))
def test_no_file_is_written_over(
    name: str,
    param: str,
    world: World,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    form = FILES[name, param]
    monkeypatch.chdir(world.root)
    for place in IN_THE_PLACE_OF_A_FILE:
        if form == "jsonl" and place is an_input:
            continue  # its suffix is another
        output = place(world, form)
        before = tree(world.root)
        code, said = truetune_says(monkeypatch, capsys, *call(world, name, param, output))
        assert tree(world.root) == before, f"{place.__name__}: {said}"
        assert code == 2, f"{place.__name__}: {said}"
        assert output.name in said, place.__name__
        assert said.count("\n") == 1, said


def our_result(world: World, suffix: str) -> Path:
    path = world.root / f"ours{suffix}"
    truetune.check(world.data, TOKENIZER).save_as(path)
    return path


@pytest.mark.parametrize(
    "link", [Path.symlink_to, Path.hardlink_to, None], ids=["symbolic", "hard", "the same"]
)
def test_a_result_that_is_read_is_not_written_over(
    link: Any, world: World, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Though it is a file of ours."""
    output = world.result
    if link is not None:
        output = world.root / "other.json"
        link(output, world.result)
    before = tree(world.root)
    code, said = truetune_says(monkeypatch, capsys, "report", world.result, "-o", output)
    assert (code, tree(world.root)) == (2, before), said
    assert "this command reads it" in said


def test_a_result_of_ours_is_replaced(
    world: World, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for option, name in (
        ("--html", "page.html"),
        ("-o", "r.json"),
        ("-o", "r.sarif"),
        ("-o", "r.txt"),
    ):
        words = ["check", world.data, "-t", TOKENIZER, option, world.root / name]
        for _ in range(2):
            code, said = truetune_says(monkeypatch, capsys, *words)
            assert code == 0, said
        with (world.root / name).open("a") as file:
            file.write("\n")
        assert truetune_says(monkeypatch, capsys, *words)[0] == 0


class Place(NamedTuple):
    """Where a command is told to write, and what its message must name."""

    output: Path
    named: str
    data: Path | None = None
    """In place of the command's first input"""


def full_of_strangers(world: World) -> Place:
    out = world.root / "out"
    shutil.copytree(world.root / "elsewhere", out)
    (out / "data").mkdir()
    (out / "data" / "train.jsonl").write_text("{}")
    (out / "run").mkdir()
    return Place(out, "out")


def only_hidden_strangers(world: World) -> Place:
    out = world.root / "out"
    (out / ".git").mkdir(parents=True)
    (out / ".git" / "HEAD").write_text("ref")
    return Place(out, ".git")


def a_lock_with_contents(world: World) -> Place:
    out = world.root / "out"
    out.mkdir()
    (out / ".lock").write_text("pid 4")
    return Place(out, ".lock")


def a_work_folder_of_others(world: World) -> Place:
    out = world.root / "out"
    shutil.copytree(world.root / "elsewhere", out / ".work")
    (out / ".work" / "key").write_text("mine")
    return Place(out, ".work")


def links_to_elsewhere(world: World) -> Place:
    out = world.root / "out"
    out.mkdir()
    (out / "data").symlink_to(world.root / "elsewhere")
    (out / "manifest.json").symlink_to(world.root / "elsewhere" / "thesis.tex")
    (out / "run.json").symlink_to(world.root / "elsewhere" / "thesis.tex")
    return Place(out, "out")


def the_output_a_link(world: World) -> Place:
    out = world.root / "out"
    out.symlink_to(world.root / "elsewhere")
    return Place(out, "out")


def the_output_a_file(world: World) -> Place:
    return Place(world.root / "elsewhere" / "thesis.tex", "thesis.tex")


def foreign_manifests(world: World) -> Place:
    out = full_of_strangers(world).output
    for name in ("manifest.json", "run.json", "merge.json", "asked.json"):
        (out / name).write_text(
            '{"format": 1, "status": "finished", "key": "mine", "files": {}, "shards": []}'
        )
    return Place(out, "out")


def manifests_of_another_folder(world: World) -> Place:
    out = full_of_strangers(world).output
    shutil.copy(world.encoded / "manifest.json", out)
    shutil.copy(world.run / "run.json", out)
    return Place(out, "out")


def around_the_inputs(world: World) -> Place:
    return Place(world.root, "holds")


def inside_an_input(world: World) -> Place:
    out = world.root / "inputs" / "new"
    return Place(out, "lies inside", world.root / "inputs")


IN_THE_PLACE_OF_A_FOLDER: tuple[Callable[[World], Place], ...] = (
    full_of_strangers, only_hidden_strangers, a_lock_with_contents, a_work_folder_of_others, links_to_elsewhere,
    the_output_a_link, the_output_a_file, foreign_manifests, manifests_of_another_folder, around_the_inputs,
    inside_an_input,
)  # fmt: skip
MODEL_INSIDE = {"train": "base", "merge": "adapter", "export": "base", "sample": "run"}
"""The input of a command that an output is put into, where that is no data"""


@pytest.mark.parametrize("place", IN_THE_PLACE_OF_A_FOLDER, ids=lambda place: place.__name__)
@pytest.mark.parametrize(("name", "param"), sorted(FOLDERS - {("encode", "cache")}))
def test_no_folder_of_others_is_written_into(
    name: str,
    param: str,
    place: Callable[[World], Place],
    world: World,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    made = place(world)
    if place is inside_an_input and name in MODEL_INSIDE:
        made = Place(world.root / MODEL_INSIDE[name] / "new", "lies inside")
    before = tree(world.root)
    code, said = truetune_says(
        monkeypatch, capsys, *call(world, name, param, made.output, made.data)
    )
    assert tree(world.root) == before, said
    assert code == 2, said
    assert made.named in said


def test_no_folder_of_a_cache_is_written_into(
    world: World, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    cache = world.root / "cache"
    words = call(world, "encode", "cache", cache)
    assert truetune_says(monkeypatch, capsys, *words)[0] == 0
    (entry,) = cache.iterdir()
    (shard,) = (entry / "data").iterdir()
    shard.write_bytes(b"mine")
    before = tree(world.root)
    code, said = truetune_says(monkeypatch, capsys, *words)
    assert (code, tree(world.root)) == (2, before), said
    assert shard.name in said


def edited_shard(folder: Path) -> Path:
    (shard,) = (folder / "data").iterdir()
    body = shard.read_bytes()
    shard.write_bytes(body[:-5] + bytes([body[-5] ^ 1]) + body[-4:])
    return shard


def replaced_by_a_link(folder: Path) -> Path:
    (shard,) = (folder / "data").iterdir()
    shard.rename(folder.parent / "moved.parquet")
    shard.symlink_to(folder.parent / "moved.parquet")
    return shard


def edited_list(folder: Path) -> Path:
    (folder / "rejected.jsonl").write_text("what I mean to mend\n")
    return folder / "rejected.jsonl"


def something_more(folder: Path) -> Path:
    (folder / "data" / "notes.txt").write_text("mine")
    return folder / "data" / "notes.txt"


def an_empty_folder(folder: Path) -> Path:
    (folder / "later").mkdir()
    return folder / "later"


def a_manifest_that_lists_what_it_may_not(folder: Path) -> Path:
    """By its size and digest, as if it had been written."""
    mine = folder / "data" / "train.jsonl"
    mine.write_bytes(b"x")
    manifest = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
    digest = hashlib.blake2b(b"x", digest_size=20).hexdigest()
    manifest["files"] |= {"data/train.jsonl": [1, digest], "../elsewhere/thesis.tex": [1, digest]}
    (folder / "manifest.json").write_text(json.dumps(manifest), encoding="utf-8")
    return folder / "manifest.json"


def work_that_is_a_link(folder: Path) -> Path:
    (folder / ".work").symlink_to(folder.parent / "elsewhere")
    return folder / ".work"


def a_link_with_the_name_of_a_part(folder: Path) -> Path:
    path = folder / ".manifest.json.1.00000000.part"
    path.symlink_to(folder.parent / "elsewhere" / "thesis.tex")
    return path


def a_pipe(folder: Path) -> Path:
    os.mkfifo(folder / "data" / "pipe")
    return folder / "data" / "pipe"


def a_file_in_work(folder: Path) -> Path:
    """Of a run that has not ended, under the name of a shard that no record lists."""
    data = folder / ".work" / "data"
    data.mkdir(parents=True)
    (folder / ".work" / "owner.json").write_bytes(_owner_file_bytes("0" * 40))
    (data / "00000.parquet").write_text("mine")
    return data / "00000.parquet"


CHANGES = (
    edited_shard,
    replaced_by_a_link,
    edited_list,
    something_more,
    an_empty_folder,
    a_pipe,
    a_file_in_work,
    a_manifest_that_lists_what_it_may_not,
    work_that_is_a_link,
    a_link_with_the_name_of_a_part,
)


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
@pytest.mark.parametrize("settings", [[], ["--max-length", 100]], ids=["the same", "others"])
def test_what_was_changed_in_our_own_folder_stays(
    change: Callable[[Path], Path],
    settings: list[object],
    world: World,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    changed = change(world.encoded)
    before = tree(world.root)
    code, said = truetune_says(
        monkeypatch, capsys, *call(world, "encode", "out", world.encoded), *settings
    )
    after = {name: entry for name, entry in tree(world.root).items() if name != "encoded/.lock"}
    assert after == {name: entry for name, entry in before.items() if name != "encoded/.lock"}, said
    assert code == 2, said
    assert str(changed) in said


def pairs_of_outputs() -> Iterator[tuple[str, str, str]]:
    """Each command with two parameters that name what it writes."""
    written = [*FILES, *sorted(FOLDERS)]  # in one order in each process of the tests
    for name in cli.truetune_group.commands:
        named = [param for command, param in written if command == name]
        yield from ((name, one, other) for i, one in enumerate(named) for other in named[i + 1 :])


def long_option(name: str, param: str) -> list[str]:
    option = next(p for p in cli.truetune_group.commands[name].params if p.name == param)
    return [] if isinstance(option, click.Argument) else [max(option.opts, key=len)]


def the_same(world: World) -> tuple[Path, Path]:
    return world.root / "both.html", world.root / "inputs" / ".." / "both.html"


def through_a_link(world: World) -> tuple[Path, Path]:
    (world.root / "link.html").symlink_to(world.root / "both.html")
    return world.root / "both.html", world.root / "link.html"


def inside(world: World) -> tuple[Path, Path]:
    (world.root / "new").mkdir()
    return world.root / "new", world.root / "new" / "page.html"


def around(world: World) -> tuple[Path, Path]:
    folder, file = inside(world)
    return file, folder


@pytest.mark.parametrize(
    "places", [the_same, through_a_link, inside, around], ids=lambda places: places.__name__
)
@pytest.mark.parametrize(("name", "one", "other"), list(pairs_of_outputs()))
def test_no_two_outputs_of_a_command_are_one(
    name: str,
    one: str,
    other: str,
    places: Callable[[World], tuple[Path, Path]],
    world: World,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    first, second = places(world)
    words = [name, *long_option(name, one), first, *long_option(name, other), second]
    inputs = {
        "run": ["--", "true"],
        "rehearse": ["--", "true"],
        "init": [],
        "doctor": [],
        "troubleshoot": ["loss is flat", "x"],
        "reward": ["x.py:f", "--data", "x"],
    }.get(name, ["x"])
    if name == "export" and "out" not in (one, other):
        inputs = ["x", "-o", "out"]
    before = tree(world.root)
    code, said = truetune_says(monkeypatch, capsys, *words, *inputs)
    assert (code, tree(world.root)) == (2, before), said
    a_page_in_place_of_a_folder = (
        one == "html" and first.is_dir() and "it is a folder; name a file" in said
    )
    assert a_page_in_place_of_a_folder or "nothing was written: name another one with" in said


def test_devices_take_two_outputs(
    world: World, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("check", world.data, "-t", TOKENIZER, "-o", os.devnull, "--html", os.devnull)
    assert truetune_says(monkeypatch, capsys, *words)[0] == 0


def test_the_page_of_a_run_is_not_in_the_folder_that_its_settings_name(
    world: World, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = json.loads((world.root / "train.yaml").read_text(encoding="utf-8"))
    settings["training"]["output_dir"] = str(world.run)
    (world.root / "train.yaml").write_text(json.dumps(settings), encoding="utf-8")
    before = tree(world.root)
    words = ("train", world.root / "train.yaml", "--html", world.run / "page.html")
    code, said = truetune_says(monkeypatch, capsys, *words)
    assert (code, tree(world.root)) == (2, before), said
    assert f"page.html: lies inside {world.run}, which the run writes" in said


@pytest.mark.parametrize("name", ["truetune.schema.json", "settings", "train.toml"])
def test_settings_go_into_a_yaml_file(
    name: str, world: World, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    before = tree(world.root)
    code, said = truetune_says(monkeypatch, capsys, *call(world, "init", "file", world.root / name))
    assert (code, tree(world.root)) == (2, before), said
    assert "name a file that ends in .yaml or .yml" in said


def test_settings_never_go_through_a_link_into_the_schema(
    world: World, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (world.root / "mine.yaml").symlink_to(world.root / "truetune.schema.json")
    before = tree(world.root)
    code, said = truetune_says(
        monkeypatch, capsys, *call(world, "init", "file", world.root / "mine.yaml"), "--force"
    )
    assert (code, tree(world.root)) == (2, before), said


def a_checkpoint(world: World) -> Path:
    folder = world.root / "another-run" / "checkpoint-4"
    folder.mkdir(parents=True)
    (folder / "weights").write_bytes(b"x")
    digest = hashlib.blake2b(b"x", digest_size=20).hexdigest()
    (folder / "whole.json").write_text(
        json.dumps({"format": 1, "files": {"weights": [1, digest]}}), encoding="utf-8"
    )
    return folder


def encoded_data(world: World) -> Path:
    return world.encoded


def a_folder_of_encoded_data(world: World) -> Path:
    return world.encoded / "data"


@pytest.mark.parametrize(
    "outer", [a_checkpoint, encoded_data, a_folder_of_encoded_data], ids=lambda f: f.__name__
)
@pytest.mark.parametrize(("name", "param"), [*FILES, *sorted(FOLDERS)])
def test_nothing_is_written_inside_encoded_data_or_a_checkpoint(
    name: str,
    param: str,
    outer: Callable[[World], Path],
    world: World,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    folder = outer(world)
    before = tree(world.root)
    suffix = SUFFIX[FILES[name, param]] if (name, param) in FILES else ""
    code, said = truetune_says(
        monkeypatch, capsys, *call(world, name, param, folder / f"new{suffix}")
    )
    assert (code, tree(world.root)) == (2, before), said
    named = world.encoded if "encoded" in outer.__name__ else folder
    assert f"lies inside {named}, " in said


def test_what_comes_while_data_is_published_is_named_with_what_was_done(
    world: World, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A file of the user's comes once manifest.json is gone: the message must not say that nothing was written."""
    mine = world.encoded / "data" / "train-00000-of-00001.parquet"
    real = encoded_folder_on_disk.remove_unchanged_listed_files

    def remove(folder: Path, listed: Any, **options: Any) -> list[str]:
        left = real(folder, listed, **options)
        if (
            folder == world.encoded
            and not (world.encoded / "manifest.json").exists()
            and not mine.exists()
        ):
            mine.parent.mkdir(exist_ok=True)
            mine.write_text("mine")
        return left

    words = [*call(world, "encode", "out", world.encoded), "--max-length", 100]
    with monkeypatch.context() as patched:
        patched.setattr(encoded_folder_on_disk, "remove_unchanged_listed_files", remove)
        code, said = truetune_says(monkeypatch, capsys, *words)
    assert code == 2
    assert "nothing was written" not in said
    assert f"{mine}: has come here while truetune wrote; the old data is removed" in said
    assert not (world.encoded / "manifest.json").exists()
    assert mine.read_text() == "mine"
    mine.unlink()
    assert truetune_says(monkeypatch, capsys, *words)[0] == 0
    assert (world.encoded / "manifest.json").exists()
