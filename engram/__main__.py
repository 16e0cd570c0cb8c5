"""``python -m engram`` and ``engram``: the command line, which may be stopped while it is still being loaded."""

import sys


def main() -> None:
    try:
        from engram.cli import main as run

        run()
    except KeyboardInterrupt:
        print("engram: stopped", file=sys.stderr)
        sys.exit(130)


if __name__ == "__main__":
    main()
