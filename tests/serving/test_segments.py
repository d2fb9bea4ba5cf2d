"""A chat template taken apart writes the same prompts as the template."""

from __future__ import annotations

from pathlib import Path

import pytest

from truetune.demo import TOKENIZER
from truetune.errors import UsageError
from truetune.render.template_probes import Probes, load_tokenizer_and_template_of_run
from truetune.serving.split_template_around_contents import split_template_into_segments
from truetune.settings.run_spec import RunSpec

TALK = [
    {"role": "user", "content": "Wo ist der Leuchtturm?\n\n(bitte kurz)"},
    {"role": "assistant", "content": "Auf der Klippe. 🙂"},
    {"role": "user", "content": "{{ danke }} <b>&amp;</b>"},
]


def probes_of(folder: Path, template: str | None = None) -> Probes:
    return load_tokenizer_and_template_of_run(RunSpec(tokenizer=str(folder), template=template))


def test_published_templates(family: Path) -> None:
    probes = probes_of(family)
    if probes.template is None:
        with pytest.raises(UsageError, match="no chat template"):
            split_template_into_segments(probes)
        return
    made = split_template_into_segments(probes)
    assert made.render(TALK) == probes.text(TALK, add_generation_prompt=True)
    if made.system is not None:
        talk = [{"role": "system", "content": "Be brief."}, *TALK]
        assert made.render(talk) == probes.text(talk, add_generation_prompt=True)


@pytest.mark.parametrize(
    "body",
    [
        "{{ m.content | upper }}\n",
        "{{ loop.index }}: {{ m.content }}\n",
        "{% if loop.last or m.role == 'user' %}{{ m.content }}\n{% endif %}",
        "{{ m.content }}{% if loop.index > 4 %}!{% endif %}\n",
    ],
    ids=["changes contents", "counts", "leaves out answers", "changes later"],
)
def test_a_template_that_does_more(body: str, tmp_path: Path) -> None:
    path = tmp_path / "more.jinja"
    path.write_text("{% for m in messages %}" + body + "{% endfor %}A:", encoding="utf-8")
    with pytest.raises(UsageError, match="more than to write texts around contents"):
        split_template_into_segments(probes_of(TOKENIZER, str(path)))


def test_what_is_lost_is_said(tmp_path: Path) -> None:
    path = tmp_path / "trims.jinja"
    body = "{% for m in messages %}{{ m.role }}: {{ m.content | trim }}\n{% endfor %}assistant:"
    path.write_text("{{ strftime_now('%Y') }}\n" + body, encoding="utf-8")
    made = split_template_into_segments(probes_of(TOKENIZER, str(path)))
    assert len(made.notes) == 2
    assert "trims" in made.notes[0]
    assert "date" in made.notes[1]
