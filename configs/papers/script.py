"""script.py - what the scripts of all papers share: their options, and where the program is."""

import argparse
import os
import shutil
import sys
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[2]
FURTHER_TRACES = PROJECT.parent / "shared" / "data" / "traces"


def parser(purpose):
    """For the command line; a paper adds what only its scripts know."""
    made = argparse.ArgumentParser(description=purpose)
    made.add_argument("--quick", action="store_true",
                      help="a reduced form, from bundled and synthetic routing only")
    made.add_argument("--traces", default=os.environ.get("MOORAGE_TRACES", FURTHER_TRACES),
                      metavar="DIR", type=Path,
                      help="where further traces are, default: $MOORAGE_TRACES, else "
                           "../shared/data/traces beside the project; what is neither there nor "
                           "in configs/traces is left out")
    made.add_argument("--moorage", default=os.environ.get("MOORAGE"), metavar="FILE",
                      help="the program; default: $MOORAGE, else build/release/bin/moorage, else "
                           "the one in PATH")
    return made


def program(given):
    """The program that a script runs; ends it when there is none."""
    built = PROJECT / "build" / "release" / "bin" / "moorage"
    found = given.moorage or (str(built) if built.exists() else shutil.which("moorage"))
    if not found:
        sys.exit("no moorage was found: build it (tools/quickstart) or name it with --moorage")
    return found
