"""Probes: small conversations that show what a chat template does, before the first row is rendered.

No template is recognised by its text or its model's name. What ends a turn, for one, is seen by rendering an answer and
looking at what stands behind it. The trade-off: a template that treats short chats otherwise than real ones misleads
the probe; rows are judged by their own renderings all the same.
"""

from __future__ import annotations

import datetime
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from truetune.data.conversation import Conversation, Message, Origin
from truetune.errors import SpecError, TemplateError
from truetune.render.inference_contract import StopPatterns, make_stop_patterns
from truetune.render.renderer import Renderer
from truetune.render.rendering import Rendering
from truetune.render.stop_tokens import find_stop_tokens
from truetune.render.template import Template
from truetune.render.tokenizer import SpecialToken, StopToken, Tokenizer, load_tokenizer
from truetune.render.traced_string import plain_text
from truetune.settings.run_spec import RunSpec
from truetune.settings.suggest_spelling import did_you_mean, did_you_mean_path

# Texts that no template has in it, and that no template would treat in a special way.
QUESTION = "Where is the lighthouse?"
ANSWER = "On the northern cliff."


class Terminator(NamedTuple):
    """What the template writes after an assistant's last answer."""

    text: str
    """The stop token, or where there is none all the text that follows the answer."""
    token: SpecialToken | None
    """None where the template writes no control token."""


@dataclass(frozen=True)
class Probes:
    """A tokenizer's chat template under the settings of a run."""

    tokenizer: Tokenizer
    spec: RunSpec
    template: Template | None
    """None where the tokenizer has none"""
    tool_template: Template | None
    only_reference: bool = False
    """Are rows rendered and encoded without shortcuts?"""

    @cached_property
    def terminator(self) -> Terminator | None:
        """The terminator that the template writes after an answer. None where there is no template, or none of
        the probes renders.
        """
        tail = self._text_after_last_answer
        if tail is None:
            return None
        token = self._first_control_token_in_text(tail)
        return Terminator(token.token if token else tail, token)

    @cached_property
    def control_ids_after_last_answer(self) -> tuple[int, ...]:
        """The ids of all control tokens that the template itself writes after the last answer, in order."""
        pattern = make_stop_patterns((), self._id_by_control_token).control
        tail = self._text_after_last_answer
        if pattern is None or tail is None:
            return ()
        return tuple(self._id_by_control_token[match[0]] for match in pattern.finditer(tail))

    @cached_property
    def _text_after_last_answer(self) -> str | None:
        """What the template writes after an answer that ends the chat. None where no probe renders."""
        # Some templates refuse a chat without a system message, others one with it.
        for messages in (
            alternating_chat(QUESTION, ANSWER),
            [{"role": "system", "content": "Be brief."}, *alternating_chat(QUESTION, ANSWER)],
        ):
            text = self.text(messages)
            if text is not None and ANSWER in text:
                return text[text.rindex(ANSWER) + len(ANSWER) :]
        return None

    @cached_property
    def stops(self) -> tuple[StopToken, ...]:
        """All tokens that end a turn, and who says so."""
        return find_stop_tokens(self.tokenizer, self.terminator.token if self.terminator else None)

    @cached_property
    def stop_patterns(self) -> StopPatterns:
        """How turns end as text, for the inference contract."""
        return make_stop_patterns([stop.token for stop in self.stops], self._id_by_control_token)

    @cached_property
    def _id_by_control_token(self) -> dict[str, int]:
        """The id of each control token of the tokenizer, by its text."""
        decoder = self.tokenizer.backend.get_added_tokens_decoder()
        return {token.content: id for id, token in decoder.items() if id in self.tokenizer.control}

    def _first_control_token_in_text(self, text: str) -> SpecialToken | None:
        """The first control token in a text; None where it holds none."""
        pattern = make_stop_patterns((), self._id_by_control_token).control
        match = pattern.search(text) if pattern else None
        return SpecialToken(match[0], self._id_by_control_token[match[0]]) if match else None

    def template_for(self, *, has_tools: bool) -> Template | None:
        """The template that renders a conversation, as transformers chooses it: `tool_use` for one with tools.

        None where the tokenizer has none."""
        return (self.tool_template if has_tools else None) or self.template

    def renderer(self, **changes: Any) -> Renderer:
        """A renderer for this run, with some settings of the spec changed."""
        spec = self.spec.model_copy(update=changes)
        special = self.tokenizer.special
        bos = special["bos"].token if self.tokenizer.adds_bos and "bos" in special else None
        eos = (
            special["eos"].token
            if (self.tokenizer.adds_eos or spec.append_eos) and "eos" in special
            else None
        )
        return Renderer(
            self.template,
            spec,
            self.stop_patterns,
            tool_template=self.tool_template,
            bos=bos,
            eos=eos,
            only_reference=self.only_reference,
            eos_once=not self.tokenizer.adds_eos,
        )

    def text(
        self, messages: list[Message], *, add_generation_prompt: bool = False, **variables: Any
    ) -> str | None:
        """The text of a conversation, its plain rendering; None where there is no template or it raises."""
        if self.template is None:
            return None
        variables = {**self.spec.template_kwargs, **variables}
        try:
            text = self.template.render(
                messages, add_generation_prompt=add_generation_prompt, **variables
            )
        except TemplateError:
            return None
        return plain_text(text)

    def renderings(
        self, messages: list[Message], tools: list[Any] | None = None, **changes: Any
    ) -> list[Rendering]:
        """The training examples of a conversation. Raises TemplateError."""
        row = Conversation(Origin("probe", 1, 0), "messages", messages, tools=tools)
        return self.renderer(**changes).render_by_template_with_offsets(row)

    def at(self, moment: datetime.datetime) -> Probes:
        """The same probes at a moment: their template with another clock."""
        if self.template is None or self.template.refused:
            return self
        template = Template(
            self.template.source, self.template.special, name=self.template.name, now=lambda: moment
        )
        return replace(self, template=template)


def tokenizer_name_of_run(spec: RunSpec) -> str:
    """The tokenizer of a run: the model's where none is named. Raises SpecError where there is neither."""
    if (name := spec.tokenizer or spec.model) is None:
        raise SpecError(
            "no tokenizer is named; give its folder with --tokenizer, or `tokenizer:` in the"
            " settings"
        )
    return name


def load_tokenizer_and_template_of_run(spec: RunSpec) -> Probes:
    """Load the tokenizer of a run and compile its template. Raises SpecError, TokenizerError or TemplateError."""
    name = tokenizer_name_of_run(spec)
    if spec.mask_by == "response-marker" and not spec.response_marker:
        raise SpecError(
            "mask_by is response-marker and no response_marker is given; add --response-marker TEXT"
        )
    return make_probes(load_tokenizer(name, model=spec.model), spec)


def make_probes(tokenizer: Tokenizer, spec: RunSpec) -> Probes:
    """The probes of a run. Raises TemplateError for a template that is not valid, SpecError for one not there."""
    special = {f"{name}_token": token.token for name, token in tokenizer.special.items()}
    templates = tokenizer.templates
    if spec.template is None:
        source, tools = templates.get("default"), templates.get("tool_use")
        if source is None and templates:
            names = ", ".join(sorted(templates))
            raise SpecError(
                f"{tokenizer.folder}: the chat templates are {names}; choose one with --template"
            )
    elif spec.template in templates:
        source, tools = templates[spec.template], None
    elif Path(spec.template).is_file():
        source, tools = Path(spec.template).read_text(encoding="utf-8"), None
    else:
        names = ", ".join(sorted(templates)) or "none"
        hint = did_you_mean(spec.template, templates) or did_you_mean_path(spec.template)
        raise SpecError(
            f"--template {spec.template}: no such file, and no template of {tokenizer.folder}"
            f" ({names}){hint}"
        )
    return Probes(
        tokenizer,
        spec,
        Template(source, special, name=spec.template or "default") if source is not None else None,
        Template(tools, special, name="tool_use") if tools is not None else None,
    )


def alternating_chat(*contents: str) -> list[Message]:
    """A conversation of user and assistant in turn."""
    return [
        {"role": ("user", "assistant")[i % 2], "content": content}
        for i, content in enumerate(contents)
    ]
