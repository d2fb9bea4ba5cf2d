"""The guard before parsers."""
