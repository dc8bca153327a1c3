"""The program `dvip`, also as `python -m dvip`: the everyday commands, and those of the paper."""

from dvip.cli.app import app
from dvip.cli.prior import commands as looking
from dvip.paper.commands import commands

__all__ = ["app", "main"]

app.add_typer(looking)
app.add_typer(commands)


def main() -> None:
    """The program `dvip`."""
    app()


if __name__ == "__main__":
    main()
