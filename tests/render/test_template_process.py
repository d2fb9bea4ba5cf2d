"""The template process: it is one, it is bounded, it comes back, and it goes when its parent goes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import pytest

from truetune.errors import TemplateError
from truetune.render.template import Template
from truetune.render.template_process import LimitError, shared_process
from truetune.render.template_protocol import CompileRequest
from truetune.render.template_worker import Worker

CHAT = [{"role": "user", "content": "x"}]
ENDLESS = "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}"
HUGE = "{{ 'a' * 10 ** 10 }}"


def process_id() -> int:
    process = shared_process()._process
    assert process is not None
    return process.pid


def status_of(pid: int) -> dict[str, str]:
    lines = Path(f"/proc/{pid}/status").read_text(encoding="utf-8").splitlines()
    return dict(line.split(":", 1) for line in lines)


def wait_until_gone(pid: int, seconds: float) -> bool:
    """Whether the process ends in so many seconds."""
    deadline = time.monotonic() + seconds
    while Path(f"/proc/{pid}").exists() and status_of(pid).get("State", " Z").split()[0] != "Z":
        if time.monotonic() > deadline:
            return False
        os.sched_yield()
    return True


def test_templates_share_one_process() -> None:
    first = Template("{{ messages[0].content }}")
    number = process_id()
    second = Template("{{ messages[0].role }}")
    assert [first.render(CHAT), second.render(CHAT), first.render(CHAT)] == ["x", "user", "x"]
    assert process_id() == number


@pytest.mark.parametrize(
    ("source", "message"), [(ENDLESS, "ran for more than 1 s"), (HUGE, "256 MiB|MemoryError")]
)
def test_a_template_past_a_limit_leaves_the_others_alone(source: str, message: str) -> None:
    good, bad = Template("{{ messages[0].content }}"), Template(source)
    with pytest.raises(TemplateError, match=message):
        bad.render(CHAT)
    assert good.render(CHAT) == "x"


def test_a_template_that_broke_a_limit_is_not_run_again() -> None:
    bad = Template(ENDLESS)
    with pytest.raises(LimitError):
        bad.render(CHAT)
    started = time.process_time()
    with pytest.raises(LimitError):
        bad.render(CHAT)
    assert time.process_time() - started < 0.5


def test_the_process_comes_back_after_it_was_killed() -> None:
    template = Template("{{ messages[0].content }}")
    os.kill(process_id(), signal.SIGKILL)
    with pytest.raises(TemplateError, match="SIGKILL"):
        template.render(CHAT)
    assert Template("{{ messages[0].content }}").render(CHAT) == "x"


def test_more_templates_than_are_kept_compiled() -> None:
    templates = [Template(f"{i} {{{{ messages[0].content }}}}") for i in range(70)]
    assert [template.render(CHAT) for template in templates] == [f"{i} x" for i in range(70)]


def test_a_source_is_compiled_once_for_all_its_templates() -> None:
    worker = Worker()
    for number, source in enumerate(
        ("{{ messages[0].content }}", "x", "{{ messages[0].content }}")
    ):
        assert worker.answer(CompileRequest(number, source)) == {}
    assert worker.templates[0] is worker.templates[2]
    assert worker.templates[0] is not worker.templates[1]


def test_many_threads() -> None:
    template = Template("{{ messages[0].content }}")
    texts: dict[int, str] = {}

    def render(number: int) -> None:
        texts[number] = str(template.render([{"role": "user", "content": str(number)}]))

    threads = [threading.Thread(target=render, args=(i,)) for i in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert texts == {i: str(i) for i in range(20)}


@pytest.mark.skipif(
    not Path("/proc/self/limits").exists(), reason="the limits of a process are read from /proc"
)
def test_the_process_can_open_and_start_nothing() -> None:
    Template("x")
    limits = Path(f"/proc/{process_id()}/limits").read_text(encoding="utf-8")
    found = {line[:25].strip(): line[25:].split()[:2] for line in limits.splitlines()[1:]}
    assert found["Max open files"] == ["0", "0"]
    assert found["Max file size"] == ["0", "0"]
    assert found["Max address space"] == [str(256 << 20)] * 2


def test_a_fork_has_a_process_of_its_own() -> None:
    """In a process of its own: pytest's workers have threads."""
    code = """
        import os
        from truetune.render.template import Template
        template = Template("{{ messages[0].content }}")
        child = os.fork()
        text = template.render([{"role": "user", "content": "child" if child == 0 else "parent"}])
        assert text == ("child" if child == 0 else "parent"), text
        if child == 0:
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        assert template.render([{"role": "user", "content": "again"}]) == "again"
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="processes are looked up in /proc")
def test_it_does_not_outlive_a_parent_that_is_killed() -> None:
    code = """
        import time
        from truetune.render.template import Template
        from truetune.render.template_process import shared_process
        Template("x")
        print(shared_process()._process.pid, flush=True)
        time.sleep(600)
    """
    with subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code)], stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdout is not None
        number = int(parent.stdout.readline())
        assert Path(f"/proc/{number}").exists()
        parent.kill()
    assert wait_until_gone(number, 5.0)


def test_strange_texts_come_back_as_they_are() -> None:
    content = "a\ud800b\x00c\u2028\U0001f600\r\n\"\\'"
    assert (
        Template("[{{ messages[0].content }}]").render([{"role": "user", "content": content}])
        == f"[{content}]"
    )
