"""script.py - what the scripts of all papers share: their options, and where the program is."""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[2]
FURTHER_TRACES = PROJECT.parent / "shared" / "data" / "traces"


def parser(purpose):
    """For the command line; a paper adds what only its scripts know."""
    parser = argparse.ArgumentParser(description=purpose)
    parser.add_argument("--quick", action="store_true",
                        help="a reduced form, from bundled and synthetic routing only")
    parser.add_argument("--traces", default=os.environ.get("MOORAGE_TRACES", FURTHER_TRACES),
                        metavar="DIR", type=Path,
                        help="where further traces are, default: $MOORAGE_TRACES, else "
                             "../shared/data/traces beside the project; what is neither there nor "
                             "in configs/traces is left out")
    parser.add_argument("--moorage", default=os.environ.get("MOORAGE"), metavar="FILE",
                        help="the program; default: $MOORAGE, else build/release/bin/moorage, else "
                             "the one in PATH")
    return parser


def program(arguments):
    """The program that a script runs; ends it when there is none."""
    built = PROJECT / "build" / "release" / "bin" / "moorage"
    found = arguments.moorage or (str(built) if built.exists() else shutil.which("moorage"))
    if not found:
        sys.exit("no moorage was found: build it (tools/quickstart) or name it with --moorage")
    return found


class session:
    """One run of a script: the program, a folder of its own, what was wrong."""

    def __init__(self, arguments):
        self.arguments = arguments
        self.quick = arguments.quick
        self.program = program(arguments)
        self.scratch = tempfile.TemporaryDirectory()
        self.wrong = []

    def call(self, *words):
        """What the program writes; ends the script where it fails."""
        try:
            done = subprocess.run([self.program, *map(str, words)], capture_output=True, text=True)
        except OSError as wrong:
            sys.exit(f"{self.program}: {wrong.strerror}; --moorage names the program")
        if done.returncode != 0:
            sys.exit(f"moorage {' '.join(map(str, words))}\n{done.stderr.strip()}")
        return done.stdout

    def new_file(self, name):
        return Path(self.scratch.name) / name

    def require(self, holds, otherwise):
        if not holds:
            self.wrong.append(otherwise)

    def end(self):
        self.scratch.cleanup()
        for message in self.wrong:
            print(f"wrong: {message}", file=sys.stderr)
        sys.exit(1 if self.wrong else 0)


def settings_of(about):
    """Words of a command line; `about`: {section.key: value}"""
    return [word for key, value in about.items() for word in ("--set", f"{key}={value}")]


def mean(values):
    values = list(values)
    return sum(values) / len(values)


def less(value, baseline):
    return f"{100 * (1 - value / baseline):.1f} %"


def table(title, heads, rows, columns=80):
    """As wide as its content, and `columns` at most; the first one to the left."""
    cells = [[str(cell) for cell in row] for row in [heads, *rows]]
    widths = [max(len(row[i]) for row in cells) for i in range(len(heads))]
    print(title)
    for row in cells:
        line = "  " + row[0].ljust(widths[0])
        line += "".join("  " + cell.rjust(width) for cell, width in zip(row[1:], widths[1:]))
        assert len(line) <= columns, line
        print(line.rstrip())
    print(flush=True)
