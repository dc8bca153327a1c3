"""`python -m dvip` is `dvip`."""

from dvip.cli import main

if __name__ == "__main__":
    main()
