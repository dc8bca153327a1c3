"""The command line: parses, calls, prints."""

from dvip.cli.app import app, main

__all__ = ["app", "main"]
