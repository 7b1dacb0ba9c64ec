"""compositions.py - runs configurations on traces and profiles, for the tables of this folder."""

import atexit
import json
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import script  # noqa: E402

CONFIGS = pathlib.Path(__file__).resolve().parents[2]
PROJECT = script.PROJECT
PROFILES = ["rtx_a6000", "rtx_4060_ti_16gb", "h200_sxm"]


class Trace:
    """A routing trace, the published model whose sizes it takes, and half of its experts. Of one
    that is bundled `whole` asks for the longer one of further traces, where that is there."""

    def __init__(self, name, file, shape, half, bundled=False, whole=False):
        self.name, self.shape, self.half = name, shape, half
        self.file, self.bundled, self.whole = file, bundled, whole

    def path(self, folder):
        further = folder / self.file
        if not self.bundled or (self.whole and further.exists()):
            return further
        return CONFIGS / "traces" / self.file


def add_busy_link(parser):
    parser.add_argument("--busy-link", type=float, metavar="SHARE",
                        help="what a GPU computes takes 1 + SHARE times as long beside a copy "
                             "(decision 0049); default: as device files have it, 0.21")


def device(arguments, profile):
    """The name of the profile, or a file of it with another price of a busy link."""
    if arguments.busy_link is None:
        return profile
    if not hasattr(arguments, "devices"):
        arguments.devices = pathlib.Path(tempfile.mkdtemp())
        atexit.register(shutil.rmtree, arguments.devices)
    file = arguments.devices / f"{profile}.toml"
    if not file.exists():
        text = (PROJECT / "hw_profiles" / "device" / file.name).read_text(encoding="utf-8")
        text, found = re.subn(r"^busy_link_slowdown = [0-9.]+$",
                              f"busy_link_slowdown = {arguments.busy_link}", text, flags=re.M)
        if found != 1:
            sys.exit(f"--busy-link: {profile}.toml has no busy_link_slowdown to replace")
        file.write_text(text, encoding="utf-8")
    return file


def options(text):
    parser = script.parser(text)
    add_busy_link(parser)
    parser.add_argument("--tokens", type=int, default=3000, help="of each trace; default: 3,000")
    arguments = parser.parse_args()
    arguments.moorage = script.program(arguments)
    arguments.profiles = PROFILES[:1] if arguments.quick else PROFILES
    if arguments.quick:
        arguments.tokens, arguments.traces = 200, CONFIGS / "traces"
    return arguments


def present(traces, arguments):
    """Those whose file is there; says which are not. With --quick the one that is bundled."""
    if arguments.quick:
        return [trace for trace in traces if trace.bundled]
    available = [trace for trace in traces if trace.path(arguments.traces).exists()]
    for trace in traces:
        if trace not in available:
            print(f"left out: {trace.name} ({trace.file} is not in {arguments.traces})")
    return available


def run(arguments, config, trace, profile, extra_settings=()):
    """The report of a run, or None where a policy needs what the trace does not hold."""
    settings = [f"source.trace={trace.path(arguments.traces)}", f"source.shape={trace.shape}",
                f"hardware.profile={device(arguments, profile)}", f"memory.experts={trace.half}",
                f"run.tokens={arguments.tokens}", *extra_settings]
    return report_of(arguments, config, settings)


def run_text(arguments, config, text, extra_settings=()):
    """The report of scoring a text by the demo model, token by token, half its experts resident."""
    return report_of(arguments, config, [
        f"source.model={CONFIGS / 'demo'}", f"source.text={text}", "run.prefill=0",
        "memory.experts=96", "hardware.profile=rtx_4060_ti_16gb",
        f"run.tokens={arguments.tokens // 2}", *extra_settings])


def report_of(arguments, config, settings):
    command = [arguments.moorage, "run", str(CONFIGS / config), "--json", "-"]
    for setting in settings:
        command += ["--set", setting]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode == 0:
        return json.loads(done.stdout[done.stdout.index("{"):])
    if "needs the tensor" in done.stderr:
        return None
    sys.exit(done.stderr.strip() or f"{command[0]} ended with {done.returncode}")
