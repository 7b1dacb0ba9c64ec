"""compositions.py - runs configurations on traces and profiles, for the tables of this folder."""

import json
import pathlib
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import script  # noqa: E402

CONFIGS = pathlib.Path(__file__).resolve().parents[2]
PROJECT = script.PROJECT
PROFILES = ["rtx_a6000", "rtx_4060_ti_16gb", "h200_sxm"]


class Trace:
    """A routing trace, the published model whose sizes it takes, and half of its experts."""

    def __init__(self, name, file, shape, half, bundled=False):
        self.name, self.shape, self.half = name, shape, half
        self.file, self.bundled = file, bundled

    def path(self, folder):
        return (CONFIGS / "traces" if self.bundled else folder) / self.file


def options(text):
    parser = script.parser(text)
    parser.add_argument("--tokens", type=int, default=3000, help="of each trace; default: 3,000")
    given = parser.parse_args()
    given.moorage = script.program(given)
    given.profiles = PROFILES[:1] if given.quick else PROFILES
    if given.quick:
        given.tokens = 200
    return given


def present(traces, given):
    """Those whose file is there; says which are not. With --quick the one that is bundled."""
    if given.quick:
        return [one for one in traces if one.bundled]
    there = [one for one in traces if one.path(given.traces).exists()]
    for one in traces:
        if one not in there:
            print(f"left out: {one.name} ({one.file} is not in {given.traces})")
    return there


def run(given, config, trace, profile, more=()):
    """The report of a run, or None where a policy needs what the trace does not hold."""
    settings = [f"source.trace={trace.path(given.traces)}", f"source.shape={trace.shape}",
                f"hardware.profile={profile}", f"memory.experts={trace.half}",
                f"run.tokens={given.tokens}", *more]
    return report_of(given, config, settings)


def run_text(given, config, text, more=()):
    """The report of scoring a text by the demo model, token by token, half its experts resident."""
    return report_of(given, config, [
        f"source.model={CONFIGS / 'demo'}", f"source.text={text}", "run.prefill=0",
        "memory.experts=96", "hardware.profile=rtx_4060_ti_16gb",
        f"run.tokens={given.tokens // 2}", *more])


def report_of(given, config, settings):
    command = [given.moorage, "run", str(CONFIGS / config), "--json", "-"]
    for setting in settings:
        command += ["--set", setting]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode == 0:
        return json.loads(done.stdout[done.stdout.index("{"):])
    if "needs the tensor" in done.stderr:
        return None
    sys.exit(done.stderr.strip() or f"{command[0]} ended with {done.returncode}")
