"""The length limit cuts the tokens of pictures.

## What it does
Computes how many tokens each picture takes, from its size and the settings of the model's processor
(preprocessor_config.json beside the tokenizer), and counts the examples in which such tokens are after `max_length`.

## Why it is bad
The cut takes tokens away, and the picture itself stays whole: the model has more features of pictures than places for
them. TRL and transformers stop with "Image features and image tokens do not match". Trainers that drop the picture
instead train the answer without it.

## Example
```yaml
spec: {max_length: 16}
files:
  tokenizer_config.json: {added_tokens_decoder: {"2000": {content: <image>, special: true}}}
  processor_config.json: {processor_class: LlavaProcessor, patch_size: 14}
  preprocessor_config.json: {crop_size: {height: 56, width: 56}}
data:
  - images: [{picture: [4, 4]}]
    messages: [{role: user, content: "<image>What is it?"}, {role: assistant, content: It is black.}]
```

## Use instead
```yaml
spec: {max_length: 64}
files:
  tokenizer_config.json: {added_tokens_decoder: {"2000": {content: <image>, special: true}}}
  processor_config.json: {processor_class: LlavaProcessor, patch_size: 14}
  preprocessor_config.json: {crop_size: {height: 56, width: 56}}
data:
  - images: [{picture: [4, 4]}]
    messages: [{role: user, content: "<image>What is it?"}, {role: assistant, content: It is black.}]
```

## Fix safety
A higher limit (`max_length=None` in TRL) needs more memory. A lower `max_pixels` makes pictures smaller: check that
what matters can still be read.

## References
- huggingface/trl#4289, huggingface/trl#5927, hiyouga/LLaMA-Factory#8226, hiyouga/LLaMA-Factory#9119
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from truetune.checks.faults import Fault
from truetune.checks.findings import Case, Finding
from truetune.checks.judgement import Unmet
from truetune.checks.make_cases_at_tokens_and_turns import case_in_example
from truetune.checks.measurement_without_findings import Measurement, make_count_measurement
from truetune.checks.reasons_data_rules_cannot_judge import NO_LIMIT, explain_uncounted_tokens
from truetune.checks.rule import MAX_CASES, DataRule, Setup
from truetune.checks.severity_by_trainer import CUT_ACTIONS
from truetune.data.count_media import Media
from truetune.encoding.batch import Batch
from truetune.render.rendering import Source


class TruncationCutsPictures(DataRule):
    code = "LEN011"
    fault = Fault.PICTURES_REACH_MODEL_WRONGLY
    severity = "error"
    judges_cut = True
    by_trainer = (CUT_ACTIONS,)

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self.examples = self.cut = self.most = 0
        self.media = Media()
        self.cases: list[Case] = []

    def add_batch(self, batch: Batch) -> None:
        """Count the examples with tokens of pictures, and those of which the limit cuts some."""
        self.media += batch.media
        limit = self.spec.max_length
        is_picture = batch.source == Source.IMAGE
        if limit is None or not is_picture.any():
            return
        counts = batch.count_true_per_example(is_picture)
        self.examples += int((counts > 0).sum())
        for i in np.flatnonzero((counts > 0) & (batch.lengths > limit)).tolist():
            part = slice(int(batch.offsets[i]) + limit, int(batch.offsets[i + 1]))
            lost = int(is_picture[part].sum())
            if not lost:
                continue
            self.cut += 1
            self.most = max(self.most, int(batch.lengths[i]))
            if len(self.cases) < MAX_CASES:
                text = f"{batch.lengths[i]:,} tokens; {lost:,} of the {counts[i]:,} of its pictures are cut"
                self.cases.append(case_in_example(batch, i, limit, text))

    def unmet(self) -> Unmet | None:
        """Unmet where no max_length is set, or the tokens of no picture are known."""
        if self.spec.max_length is None:
            return NO_LIMIT
        if self.examples:
            return None
        uncounted = explain_uncounted_tokens(self.media, is_named=True)
        return uncounted or Unmet("it is about rows with pictures, and there are none")

    def measurement_if_clean(self) -> Measurement:
        """How many examples lose tokens of pictures at max_length."""
        what = f"examples that lose tokens of pictures at {self.spec.max_length:,} tokens"
        return make_count_measurement(what, 0, self.examples)

    def findings(self) -> Iterator[Finding]:
        if self.cut:
            yield self.finding(
                f"{self.cut:,} of {self.examples:,} examples with pictures lose tokens of these at"
                f" {self.spec.max_length:,} tokens",
                f"raise max_length (the longest of them has {self.most:,} tokens), make the pictures smaller"
                " (max_pixels of the processor), or leave these rows out",
                cases=self.cases,
                count=self.cut,
                total=self.examples,
            )
