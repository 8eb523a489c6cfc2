"""`python -m kip33`: the same as the command `kip33`."""

from kip33.cli.main import main

if __name__ == "__main__":
    main()
