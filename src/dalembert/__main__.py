"""`python -m dalembert`: the command-line program."""

from dalembert.cli import main

main()
