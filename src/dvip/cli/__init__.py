"""The command line: parses, calls, prints."""

from dvip.cli.app import app

__all__ = ["app"]
