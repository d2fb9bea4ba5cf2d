"""Tests of the skill, the tools and the server for coding assistants."""
