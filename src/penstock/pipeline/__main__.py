"""`python -m penstock.pipeline archive …` is `penstock pipeline archive …`, also for spark-submit.

The command line is imported here by its name, and only when it runs: the pipeline itself does not import it.
"""

import importlib
import sys


def main() -> None:
    """Run `penstock pipeline` with the arguments of this process. It ends the process."""
    sys.argv[1:1] = ["pipeline"]
    importlib.import_module("penstock.cli").main()


if __name__ == "__main__":
    main()
