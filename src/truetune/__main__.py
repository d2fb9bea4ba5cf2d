"""`python -m truetune`."""

from truetune.cli import main

main()
