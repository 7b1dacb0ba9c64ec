"""runs.py - what the scripts share: arguments, models and machines, runs of moorage, tables."""
import json
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import script  # noqa: E402

HERE = Path(__file__).resolve().parent
PROJECT = script.PROJECT
SYSTEMS = PROJECT / "configs" / "systems"

# Name in tables, configuration. The paper's baselines, then MoEpic.
BASELINES = [
    ("Pre-gated MoE", SYSTEMS / "pregated.toml"),
    ("Mixtral-offloading", SYSTEMS / "mixtral_offloading.toml"),
    ("AdapMoE", SYSTEMS / "adapmoe.toml"),
    ("MoE-Infinity", SYSTEMS / "moe_infinity.toml"),
]
MOEPIC = HERE / "moepic.toml"

# The A6000 as a lean engine uses it, and as slow as the paper says that its engine is.
MACHINES = {
    "lean": ("rtx_a6000", "pcie4_x16"),
    "eager": (HERE / "rtx_a6000_eager.toml", HERE / "pcie4_x16_eager.toml"),
}
LINK_BYTES_PER_S = {"lean": 25.5e9, "eager": 10.07e9}

# Sizes of a published model, a trace of its shape, and the paper's default budget in experts.
QWEN = dict(name="Qwen1.5-MoE", trace="qwen15moe-shape.long", shape="qwen1_5_moe_a2_7b", layers=24,
            per_layer=60, top_k=4, experts=240, expert_bytes=17_301_504,
            non_expert_bytes=3_716_808_704, budgets=[160, 240, 320, 400, 480])
MIXTRAL = dict(name="Mixtral-8x7B, HQQ", trace="mixtral-shape.long",
               shape=HERE / "mixtral_8x7b_hqq.toml", layers=32, per_layer=8, top_k=2, experts=96,
               expert_bytes=44_040_192, non_expert_bytes=1_197_473_792,
               budgets=[64, 96, 128, 160, 192])
# `moorage trace synth`: with the hit rates of the paper's Table 1, and without any preference.
MADE_UP = {"as in Table 1": ["--a", 0.3, "--reuse", 0.02, "--drift", 0.02],
           "uniform": ["--a", 0]}


def arguments(purpose):
    """Of the command line."""
    parser = script.parser(purpose)
    parser.add_argument("--machine", choices=[*MACHINES, "both"], default="both",
                        help="lean: the A6000 by its data sheet; eager: as slow as the paper's "
                             "engine; default: both")
    return parser.parse_args()


class session:
    """One run of a script: the program, a folder for traces that are made, checks that failed."""

    def __init__(self, arguments):
        self.arguments = arguments
        self.program = script.program(arguments)
        self.folder = tempfile.TemporaryDirectory()
        self.machines = list(MACHINES) if arguments.machine == "both" else [arguments.machine]
        self.wrong = []
        self.until_idle = 0  # tokens: how long a configuration that is due may have to wait

    def tokens(self, wanted, quick=2_000):
        return min(wanted, quick) if self.arguments.quick else wanted

    def first_tokens(self):
        """Before MoEpic's first configuration, and not part of what is reported."""
        return 1_000 if self.arguments.quick else 5_000

    def trace(self, name):
        """The file of a trace, or None where it is not to be had. The bundled one is cut: it is
        long enough for --quick alone."""
        further, bundled = Path(self.arguments.traces), PROJECT / "configs" / "traces"
        for folder in [bundled] if self.arguments.quick else [further]:
            file = folder / f"{name}.safetensors"
            if file.exists():
                return file
        print(f"{name}: not in {self.arguments.traces}, left out", file=sys.stderr)
        return None

    def models(self):
        """Qwen1.5-MoE and Mixtral, if their traces are there; with --quick the bundled one."""
        found = []
        for model in [QWEN] if self.arguments.quick else [QWEN, MIXTRAL]:
            if file := self.trace(model["trace"]):
                found.append(dict(model, trace=file))
        return found

    def made_up(self, kind, accuracy, tokens):
        """Qwen1.5-MoE on a trace of which the share `accuracy` is predicted."""
        file = Path(self.folder.name) / f"{kind}_{accuracy}_{tokens}.safetensors"
        if not file.exists():
            self.run(["trace", "synth", "--out", file, "--layers", 24, "--experts", 60, "--top-k", 4,
                      "--tokens", tokens, "--requests", 100, "--predictions", 12,
                      "--prediction-accuracy", accuracy, *MADE_UP[kind]])
        return dict(QWEN, name=f"Qwen1.5-MoE, made up {kind}, {100 * accuracy:.0f} % predicted", trace=file)

    def run(self, words):
        done = subprocess.run([self.program, *map(str, words)], text=True, check=False,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        if done.returncode != 0:
            sys.exit(f"moorage {words[0]}: {done.stderr.strip()}")
        return done.stdout

    def compare(self, configs, settings, sweeps=()):
        """Reports of every config under every combination of the sweeps, the last one fastest."""
        words = ["compare", *configs, "--no-optimum", "--json", "-"]
        for key, value in settings.items():
            words += ["--set", f"{key}={value}"]
        for key, values in sweeps:
            words += ["--sweep", f"{key}={','.join(map(str, values))}"]
        return json.loads(self.run(words))["results"]

    def served(self, configs, settings, sweeps=()):
        """Mean TPOT and TTFT of the tokens that follow the first ones, and the whole report.

        A run is the same up to wherever it is cut, so two of them tell what came between.
        """
        first = dict(settings, **{"run.tokens": self.first_tokens() + self.until_idle})
        found = []
        for early, whole in zip(self.compare(configs, first, sweeps),
                                self.compare(configs, settings, sweeps)):
            prefill = settings["run.prefill"]
            counts = [report["tokens"] - prefill * report["requests"] for report in (early, whole)]
            result = dict(report=whole, tpot=between(tpot(early), tpot(whole), *counts), ttft=None)
            if prefill:
                result["ttft"] = between(ttft(early), ttft(whole), early["requests"],
                                         whole["requests"])
            found.append(result)
        return found

    def moepic(self, settings, sweeps=(), **changed):
        """MoEpic, served, with some settings changed."""
        chosen = dict(settings, **{key.replace("__", "."): value for key, value in changed.items()})
        if chosen.get("budget.plugin", "moepic") == "moepic":
            chosen.setdefault("budget.tau", self.first_tokens())
        return self.served([MOEPIC], chosen, sweeps)

    def settings(self, model, machine, tokens=20_000, **changed):
        """What all systems have in common (section 4.1)."""
        profile, link = MACHINES[machine]
        chosen = {
            "hardware.profile": profile,
            "hardware.link": link,
            "source.trace": model["trace"],
            "source.shape": model["shape"],
            "memory.experts": model["experts"],
            "memory.buffer_experts": model["top_k"],
            "run.tokens": self.tokens(tokens),
            "run.prefill": 64,
        }
        chosen.update({key.replace("__", "."): value for key, value in changed.items()})
        return chosen

    def check(self, holds, message):
        if not holds:
            self.wrong.append(message)

    def end(self):
        for message in self.wrong:
            print(f"wrong: {message}", file=sys.stderr)
        sys.exit(1 if self.wrong else 0)


def tpot(report):
    return report["tpot_ms"]["mean"]


def ttft(report):
    return report["ttft_ms"]["mean"]


def between(early, whole, early_count, whole_count):
    """The mean of what is in `whole` and not in `early`."""
    return (whole * whole_count - early * early_count) / (whole_count - early_count)


def percent(share):
    return f"{100 * share:.1f} %"


def below(value, reference):
    """How far `value` is below `reference`."""
    return percent(1 - value / reference)


def table(title, heads, rows):
    """Columns as wide as their content, the first one to the left; at most 80 columns."""
    cells = [[str(cell) for cell in row] for row in [heads, *rows]]
    widths = [max(len(row[i]) for row in cells) for i in range(len(heads))]
    print(f"\n{title}")
    for row in cells:
        print("  " + row[0].ljust(widths[0]) +
              "".join("  " + cell.rjust(width) for cell, width in zip(row[1:], widths[1:])))
