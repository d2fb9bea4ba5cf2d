"""Helpers of several rules on settings: places of settings, steps, models, columns. No rule stands here."""
