"""The command-line program."""

import sys

from dalembert.terminal import adapt_output


def main() -> None:
    """Run the program; says what to install if its extra is missing."""
    adapt_output()
    try:
        from dalembert.commands import app
    except ImportError as error:
        if error.name not in ("typer", "rich"):
            raise
        sys.exit(
            f"The program needs {error.name}: install it with  pip install '.[cli]'  in a copy "
            "of the source."
        )
    app()
