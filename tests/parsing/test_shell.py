"""Commands of shell scripts, job files and Dockerfiles, as words."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from truetune.parsing.shell_commands import last_option, parse_command_file


def words(text: str, path: str = "run.sh") -> list[tuple[str, ...]]:
    return [command.words for command in parse_command_file(text, path).commands]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a b \\\n  --c 'd e'\n", [("a", "b", "--c", "d e")]),
        ("cd x && a --b; c | d &\n", [("cd", "x"), ("a", "--b"), ("c",), ("d",)]),
        ("# a b\na # b\n", [("a",)]),
        # A comment begins where a word does.
        ("a --d x#500 'y'#7 --e 1 # f\nb;#c\n", [("a", "--d", "x#500", "y#7", "--e", "1"), ("b",)]),
        ("N=4\nrun --n $N --m ${N} --o $M\n", [("run", "--n", "4", "--m", "4", "--o", "$M")]),
        ("N=4\nN=5\nrun $N\n", [("run", "$N")]),
        # Without quotes a variable is as many words as it holds, with them it is one.
        ("X='--a 1 --b'\nrun $X\n", [("run", "--a", "1", "--b")]),
        ("X='--a 1 --b'\nrun \"$X\" '$X'\n", [("run", "--a 1 --b", "--a 1 --b")]),
        ("cat <<EOF > x\nvllm serve m\nEOF\nls\n", [("cat", "<<", "EOF", ">", "x"), ("ls",)]),
        ("A=1 B='2 3' run\n", [("run",)]),
        ("echo 'open\nrun\n", [("run",)]),
        # What a command prints is a word of another, which goes on behind it.
        ("run --a $(b 1) --c 2\n", [("run", "--a", "$(b 1)", "--c", "2"), ("b", "1")]),
        (
            "run --n=$(nvidia-smi -L | wc -l) t.py; ls\n",
            [
                ("run", "--n=$(nvidia-smi -L | wc -l)", "t.py"),
                ("ls",),
                ("nvidia-smi", "-L"),
                ("wc", "-l"),
            ],
        ),
        (
            "run --n $((16 / 2)) --m 3\n",
            [("run", "--n", "$(( 16 / 2 ))", "--m", "3"), ("16", "/", "2")],
        ),
        ("A=$(nproc); run\n", [("run",), ("nproc",)]),
        ("(cd x && run)\n", [("cd", "x"), ("run",)]),
        ("run $(a\nls\n", [("run", "$"), ("a",), ("ls",)]),
        ("A='x --b 1'\n$A y\nrun \"$A\"\n", [("x", "--b", "1", "y"), ("run", "x --b 1")]),
        # The shell does not split what it assigns.
        ("A='x --b 1'\nC=$A\nrun\n", [("run",)]),
    ],
)
def test_a_script(text: str, expected: list[tuple[str, ...]]) -> None:
    assert words(text) == expected


def test_a_dockerfile_starts_its_entry_point_with_the_words_of_cmd() -> None:
    text = (
        'FROM a AS b\nRUN pip install x && echo y\nENTRYPOINT ["vllm", "serve"]\nCMD ["m", "--z"]\n'
    )
    assert words(text, "Dockerfile") == [
        ("pip", "install", "x"),
        ("echo", "y"),
        ("vllm", "serve", "m", "--z"),
    ]


def test_what_a_job_asks_for() -> None:
    text = "#!/bin/bash\n#SBATCH --gres=gpu:a100:4\n#SBATCH -N 2\n#SBATCH -G4\n##SBATCH --mem=1G\n"
    assert parse_command_file(text, "a.sbatch").requests == {
        "--gres": ("gpu:a100:4", 2), "-N": ("2", 3), "-G": ("4", 4),
    }  # fmt: skip


def test_options() -> None:
    given_words = ("x", "--max_num-seqs=1", "--eager", "--dtype", "half", "--dtype", "float32")
    assert last_option(given_words, "--max-num-seqs") == "1"
    assert last_option(given_words, "--eager") == ""
    assert last_option(given_words, "--dtype") == "float32"
    assert last_option(given_words, "--port") is None


@given(
    st.text(alphabet="ab'\"\\$(){}<>&|;#=\n -[]", max_size=60),
    st.sampled_from(["run.sh", "Dockerfile"]),
)
def test_any_text_is_read(text: str, path: str) -> None:
    parse_command_file(f"ENTRYPOINT {text}\n{text}", path)


@pytest.mark.parametrize(
    ("text", "last"),
    [
        ("curl h/v1 -d '{\n  \"model\": \"m\"\n}'\necho done", '{\n  "model": "m"\n}'),
        ("curl h/v1 --data='[\n1\n]'\necho done", "--data=[\n1\n]"),
        ("curl h/v1 -d '{\"a\": 1}'\necho done", '{"a": 1}'),
    ],
)  # fmt: skip
def test_a_body_of_several_lines_is_one_word(text: str, last: str) -> None:
    first, second = parse_command_file(text, "ask.sh").commands
    assert (first.words[-1], first.line) == (last, 1)
    assert second.words == ("echo", "done")


def test_a_body_that_never_closes_takes_a_limited_part_of_the_file() -> None:
    text = "curl h -d '{\n" + "true\n" * 1_000
    assert len(parse_command_file(text, "ask.sh").commands) > 500
