"""settings.py - what the figures share: arguments, models and workloads, runs, tables."""
import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import script  # noqa: E402
from script import less, mean  # noqa: E402,F401

HERE = Path(__file__).resolve().parent
SERVERS = ["one", "two", "three"]


class model:
    """A file of this folder; `specialised`: the workload of each server, `later`: of Figure 7"""

    def __init__(self, title, file, specialised, key=None, trace=None, later=None):
        self.title = title
        self.file = HERE / file
        self.specialised = specialised
        self.key = key
        self.trace = trace
        self.later = later


DEEPSEEK = model("DeepSeek-V2-Lite, real routing", "deepseek.toml", ["intent", "law", "mixed"],
                 "cluster.workloads.trace", "deepseek-v2-lite.intent-law",
                 ["both_then_intent", "both_then_law", "both_then_mixed"])
MIXTRAL = model("Mixtral-8x7B, measured shares", "mixtral.toml", ["mathematics", "morals", "law"],
                "cluster.workloads.frequency", "mixtral-8x7b.mmlu-frequency")
QWEN = model("Qwen1.5-MoE's shape", "qwen.toml", ["prose", "python", "arithmetic"],
             later=["both_then_prose", "both_then_python", "both_then_arithmetic"])
MIXED = ["mixed", "mixed", "mixed"]

# Names in tables and settings. Uniform has 2 or 16 random experts a layer, as Section IV-A says.
METHODS = [
    ("Uniform", {"placement.plugin": "uniform", "placement.order": "random"}),
    ("Redundance", {"placement.plugin": "redundance"}),
    ("SmartMoE", {"placement.plugin": "smartmoe"}),
    ("EPLB", {"placement.plugin": "eplb"}),
    ("EPLB, filled", {"placement.plugin": "eplb", "placement.leftover": "fill"}),
    ("Prism", {"placement.plugin": "prism"}),
]
OURS = ("joint", {"placement.plugin": "joint"})
# With no more of the remote calls that Prism counts than its plan has.
OURS_BOTH = ("joint, both", {"placement.plugin": "joint", "placement.objective": "both"})
STAYS = {"placement.interval_s": 0}


def workload_settings(workloads):
    """Settings that give each server its workload"""
    return {f"cluster.servers.{name}.workload": workload for name, workload in zip(SERVERS, workloads)}


class session(script.session):
    """With what the figures of this paper ask of the program."""

    def __init__(self, purpose):
        super().__init__(script.parser(purpose).parse_args())
        self.reported = set()

    def trace_of(self, model):
        """Settings that name the model's trace, or None, and once a line that it is left out"""
        if model.trace is None:
            return {}
        file = Path(self.arguments.traces).resolve() / f"{model.trace}.safetensors"
        if file.exists():
            return {model.key: file}
        if model.trace not in self.reported:
            self.reported.add(model.trace)
            print(f"left out: {file.name} is not in\n{file.parent};\n--traces names its folder\n")
        return None

    def models(self, *wanted):
        """Those of which there is routing; with --quick what is bundled"""
        if self.quick:
            return [QWEN]
        return [model for model in wanted if self.trace_of(model) is not None]

    def methods(self, ours=(OURS,)):
        """With our own placement where the program has it"""
        known = "  joint " in self.call("plugins", "list")
        return METHODS + list(ours) if known else METHODS

    def cluster(self, model, about):
        """The report's part of a run over a cluster; `about`: {section.key: value}"""
        words = ["run", model.file, "--json", "-"]
        if "cluster.requests" in about:  # and no other end
            about = {**about, "cluster.duration_s": 0}
        words += script.settings_of({**self.trace_of(model), **about})
        report = json.loads(self.call(*words))["cluster"]
        if "cluster.requests" in about:
            for home in report["homes"]:
                self.require(home["requests"] == about["cluster.requests"],
                             f"{model.file.name}: {home['name']} answered {home['requests']} requests")
        return report

    def plan(self, model, about):
        """A file with the plan that a policy makes from other statistics; {} as {key: file}"""
        file = self.new_file(f"plan-{len(list(Path(self.scratch.name).iterdir()))}.json")
        words = ["place", model.file, "--out", file]
        words += script.settings_of({**self.trace_of(model), **about})
        self.call(*words)
        return {"placement.plan": file}



def table(title, heads, rows):
    script.table(title, heads, rows, columns=100)


def mean_s(report):
    return report["latency_ms"]["mean"] / 1e3


def home_s(report):
    return [home["latency_ms"]["mean"] / 1e3 for home in report["homes"]]


def busiest(report, kind):
    """The largest share of time that a device or link is in use, in percent"""
    return 100 * max([entry["utilisation"] for entry in report[kind]], default=0)
