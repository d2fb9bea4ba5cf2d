"""Blocks that set up a run, as for rules on batches; the one law of the rule is measured."""

from tests.checks.pages.batch import findings as findings
