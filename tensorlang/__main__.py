"""`python -m tensorlang` is the command `tensorlang`."""

import sys


def main() -> None:
    """Run the command line; Ctrl-C ends it in a word also while it is being imported."""
    try:
        from tensorlang.cli.main import main as run
    except KeyboardInterrupt:
        sys.stderr.write("error: stopped\n")
        sys.exit(130)
    run()


if __name__ == "__main__":
    main()
