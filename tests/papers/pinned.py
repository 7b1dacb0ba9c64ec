#!/usr/bin/env python3
"""pinned.py - runs a paper's script in its reduced form and holds what it prints to what it printed
when it was last looked at.

    pinned.py FIGURES.txt SCRIPT [WORDS]          # exit code 1: the script failed, or a figure is off
    pinned.py --write FIGURES.txt SCRIPT [WORDS]  # after a change that is meant: read the difference

The emulator is deterministic, so words must be equal and a number within 3 % of its pin, a percentage
within 2 points, or one unit of its last digit: enough for a tie that falls otherwise, far below what a
policy that has lost its cache or its prefetch does. `*` in the file stands for a number that a
clock measured. A script that has nothing to say without further traces ends with 77, which ctest shows
as Skipped."""
import re
import subprocess
import sys
from pathlib import Path

NUMBER = re.compile(r"[-+]?\d[\d,]*(?:\.\d+)?(?:e\d+)?")
PIN = re.compile(NUMBER.pattern + r"|\*")
SHARE, POINTS = 0.03, 2.0
SKIPPED = 77


def value(text):
    return float(text.replace(",", ""))


def digit(text):
    """One unit of the last digit."""
    mantissa, _, exponent = text.partition("e")
    decimals = len(mantissa.partition(".")[2])
    return 10.0 ** (int(exponent or 0) - decimals)


def words(line, numbers):
    """What is not a number; spaces align columns and say nothing."""
    return " ".join(numbers.sub(" # ", line).split())


def off(pinned, found):
    """Why the line is not the pinned one; empty: it is."""
    if words(pinned, PIN) != words(found, NUMBER):
        return "the words differ"
    for pin, number in zip(PIN.finditer(pinned), NUMBER.finditer(found)):
        if pin.group() == "*":
            continue
        want, printed = value(pin.group()), value(number.group())
        slack = max(SHARE * abs(want), 1.001 * digit(pin.group()))
        if pinned[pin.end():pin.end() + 2].strip().startswith("%"):
            slack = max(slack, POINTS)
        if abs(printed - want) > slack:
            return f"{number.group()} is not {pin.group()}"
    return ""


def masked(old, new):
    """`new` with the stars of `old`, where the lines are of one form."""
    if words(old, PIN) != words(new, NUMBER):
        return new
    stars = [pin.group() == "*" for pin in PIN.finditer(old)]
    remaining = iter(stars)
    return NUMBER.sub(lambda found: "*" if next(remaining) else found.group(), new)


def main():
    write = sys.argv[1] == "--write"
    file, *script = sys.argv[2 if write else 1:]
    file = Path(file)
    done = subprocess.run([sys.executable, *script, "--quick"], capture_output=True, text=True)
    print(done.stdout, end="")
    print(done.stderr, end="", file=sys.stderr)
    if done.returncode != 0:
        return done.returncode
    lines = [line.rstrip() for line in done.stdout.splitlines()]
    if not lines:
        print("skipped: nothing to say without further traces")
        return SKIPPED
    pinned = file.read_text().splitlines() if file.exists() else []
    if write:
        pinned += [""] * (len(lines) - len(pinned))
        file.write_text("\n".join(map(masked, pinned, lines)) + "\n")
        return 0
    wrong = [(index, reason) for index, reason in enumerate(map(off, pinned, lines)) if reason]
    for index, reason in wrong:
        print(f"{file.name}:{index + 1}: {reason}\n  pinned {pinned[index]}\n  now    {lines[index]}",
              file=sys.stderr)
    if len(pinned) != len(lines):
        print(f"{file.name}: {len(pinned)} lines are pinned, {len(lines)} printed", file=sys.stderr)
    return 1 if wrong or len(pinned) != len(lines) else 0


sys.exit(main())
