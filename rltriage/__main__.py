"""`python -m rltriage` is the command line."""

from rltriage.cli import main

main()
