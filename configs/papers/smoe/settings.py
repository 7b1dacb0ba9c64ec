"""settings.py - what the figures share: arguments, the paper's settings, routing, runs, tables."""
import json
import re
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import script  # noqa: E402
from script import mean, table  # noqa: E402,F401

import routing

HERE = Path(__file__).resolve().parent
PROJECT = script.PROJECT
SYSTEMS = PROJECT / "configs" / "systems"
SMOE = HERE / "smoe.toml"

# Names in tables, the configuration of each, and what differs from it. The paper's four baselines,
# SMoE, and SMoE with the optimum of its Equation 4 in the place of Algorithm 2.
METHODS = [
    ("MoE-Infinity", SYSTEMS / "moe_infinity.toml", {}),
    ("llama.cpp", SYSTEMS / "llama_cpp_static.toml", {}),
    ("DeepSpeed", SYSTEMS / "deepspeed_stream.toml", {}),
    ("HybriMoE", SYSTEMS / "hybrimoe.toml", {}),
    ("SMoE", SMOE, {}),
    ("SMoE, optimum", SMOE, {"dispatch.exact": "true"}),
]
BASELINES = 4

# Table III, and alpha of Section VI-B. All on a host of 8 cores, as Figure 8 says of the A6000's.
SETTINGS = [
    dict(name="S1", shape="deepseek_moe_16b", profile="rtx_3080_ti", alpha=0.35),
    dict(name="S2", shape="xverse_moe_a4_2b", profile="rtx_4060_ti_16gb", alpha=0.3),
    dict(name="S3", shape="qwen2_57b_a14b", profile="rtx_a6000", alpha=0.25),
]
NODE = "ddr5_desktop"

# Traces with gate scores of every expert, of a model trained in Qwen1.5-MoE's shape: 24 layers of
# 60 experts. Of their ten requests of 200 tokens nine are decoded: batches of three are full.
SHAPE_TRACES = ["qwen15moe-shape.code", "qwen15moe-shape.arith"]
SHAPE_TOKENS = 1800

# Draws with the layers, experts and top-k of each model. a, b and reuse were chosen once, so that
# table1.py shows the skew, the reuse and the low-score share of DeepSeek-V2-Lite; predictions are
# as good as those of the shape traces.
SYNTHETIC = ["--a", 0.75, "--b", 1, "--reuse", 0.16, "--domains", 2, "--gate-scores",
             "--predictions", 16, "--prediction-accuracy", 0.86]

# The demo model's experts have 74 kB. By so much link and CPU are slowed for it, so that a load
# takes about two layers and an expert on the CPU one, as in S1; else all that is prefetched arrives
# at once.
DEMO_SLOWER = 50

CONTEXT_TOKENS = 3 * 256  # for which there is a KV cache: the most that a run needs


def arguments(purpose, further=()):
    """Of the command line; `further`: (option, default, help) of a script's own."""
    parser = script.parser(purpose)
    for option, default, text in further:
        parser.add_argument(option, default=default, help=text)
    return parser.parse_args()


class session(script.session):
    """With what the figures of this paper ask of the program."""

    def __init__(self, arguments):
        super().__init__(arguments)
        self.folders = [] if arguments.quick else [Path(arguments.traces)]
        self.folders.append(PROJECT / "configs" / "traces")
        self.kinds = ["synthetic"] if arguments.quick else ["shape", "synthetic"]
        self.reported = set()

    def find(self, name):
        """The trace of this name, or None, and once a line that it is left out."""
        for folder in self.folders:
            file = folder / f"{name}.safetensors"
            if file.exists():
                return file
        if name not in self.reported and not self.arguments.quick:
            self.reported.add(name)
            print(f"left out: {name}.safetensors is not in\n{self.folders[0]};\n"
                  "--traces names its folder\n")
        return None

    def report(self, config, about):
        """The report of a run; `about`: {section.key: value}"""
        return json.loads(self.call("run", config, "--json", "-", *script.settings_of(about)))



def read_toml(file):
    """{key or section.key: number or text} of the plain lines of a file (Python 3.9 has no TOML)"""
    found, section = {}, ""
    for line in Path(file).read_text().splitlines():
        if opened := re.match(r"\[(\w+)\]", line):
            section = opened[1] + "."
        elif match := re.match(r'(\w+) = (?:"([^"]*)"|([\d_.]+(?:e\d+)?))\s*(?:#|$)', line):
            text = match[2] if match[3] is None else match[3]
            found[section + match[1]] = text if match[3] is None else float(text)
    return found


def model_of(shape):
    """Of configs/models; counts and bytes as whole numbers"""
    found = read_toml(PROJECT / "configs" / "models" / f"{shape}.toml")
    return {key: int(value) if isinstance(value, float) else value
            for key, value in found.items()}


def device_of(setting):
    return read_toml(PROJECT / "hw_profiles" / "device" / f"{setting['profile']}.toml")


def room(setting):
    """Experts that fit on the setting's GPU beside all else, as a share of all."""
    model = model_of(setting["shape"])
    device = device_of(setting)
    context = model["layers"] * model["kv_token_layer_bytes"] * CONTEXT_TOKENS
    free = (device["memory_bytes"] - device["reserved_bytes"] - model["non_expert_bytes"] - context)
    return free / model["expert_bytes"] / (model["moe_layers"] * model["experts"])


def scaled_shape(work, setting, layers, experts):
    """The setting's model with another number of layers and experts: the bytes of an expert stay,
    and of all else those of a layer, so that a layer takes as long as the model's."""
    model = model_of(setting["shape"])
    file = work.new_file(f"{setting['shape']}-{layers}x{experts}.toml")
    embedding = model["vocabulary"] * model["hidden"] * model["weight_bytes"]
    rest = (model["dense_bytes"] - embedding) * layers // model["moe_layers"]
    wanted = dict(name=f"{model['name']}, {layers} layers of {experts} experts", aliases=[],
                  layers=layers + model["layers"] - model["moe_layers"], moe_layers=layers,
                  experts=experts, non_expert_bytes=2 * embedding + rest,
                  dense_bytes=embedding + rest)
    keys = ["kind", "name", "aliases", "layers", "moe_layers", "experts", "top_k", "hidden",
            "moe_intermediate", "matrices", "weight_bytes", "expert_bytes", "non_expert_bytes",
            "dense_bytes", "kv_token_layer_bytes", "vocabulary"]
    lines = [f"{key} = {json.dumps(wanted[key] if key in wanted else model[key])}" for key in keys]
    lines += ["[sources]", f'geometry = "[D] {setting["shape"]}, cut to a trace"',
              'sizes = "[D] per layer"']
    file.write_text("\n".join(lines) + "\n")
    return file


def workloads(work, setting, kind):
    """(trace, shape, tokens) of each; kind: "shape" or "synthetic". Written once a session."""
    model = model_of(setting["shape"])
    if kind == "synthetic":
        tokens = 300 if work.arguments.quick else SHAPE_TOKENS
        trace = work.new_file(f"synthetic-{setting['shape']}.safetensors")
        if not trace.exists():
            work.call("trace", "synth", "--out", trace, "--layers", model["moe_layers"], "--experts",
                      model["experts"], "--top-k", model["top_k"], "--tokens", tokens,
                      "--requests", 3 if work.arguments.quick else 9, *SYNTHETIC)
        return [(trace, setting["shape"], tokens)]
    found = []
    for name in SHAPE_TRACES:
        source = work.find(name)
        if source is None:
            continue
        trace = work.new_file(f"{name}-top{model['top_k']}.safetensors")
        if not trace.exists():
            routing.with_top_k(source, trace, model["top_k"])
        _, layers, experts, _, _ = routing.sizes_of(trace)
        found.append((trace, scaled_shape(work, setting, layers, experts), SHAPE_TOKENS))
    return found


def common(setting, workload, batch):
    """What all methods of a run have in common."""
    trace, shape, tokens = workload
    return {"hardware.profile": setting["profile"], "hardware.node": NODE, "source.trace": trace,
            "source.shape": shape, "run.tokens": tokens, "run.batch": batch}


def run(work, config, setting, workload, batch, about=()):
    """One run with as many experts as fit: the buffer's are taken from the cache's."""
    _, layers, experts, top_k, _ = routing.sizes_of(workload[0])
    fit = int(room(setting) * layers * experts)
    configured = read_toml(config)
    buffer_experts = int(configured.get("memory.buffer_experts", 0))
    if config == SMOE:
        buffer_experts = top_k
    if configured.get("prefetch.plugin") == "deepspeed_stream":
        buffer_experts = 2 * experts
    chosen = common(setting, workload, batch)
    chosen.update({"memory.experts": fit - buffer_experts, "memory.buffer_experts": buffer_experts})
    chosen.update(about)
    if config == SMOE:
        for stage in ("router", "prefetch"):
            if chosen.get(f"{stage}.plugin", "smoe") == "smoe":
                chosen.setdefault(f"{stage}.alpha", setting["alpha"])
    return work.report(config, chosen)


def host_file(work, kind, name, change):
    """A copy of a file of hw_profiles with `change(key, rate)` in the place of each rate"""
    text = (PROJECT / "hw_profiles" / kind / f"{name}.toml").read_text()
    file = work.new_file(f"{kind}-{name}.toml")

    def changed(found):
        return f"{found[1]} = {change(found[1], float(found[2])):g}"

    file.write_text(re.sub(r"(?m)^(\w+_bytes_per_s) = (\d\S*)$", changed, text))
    return file


def demo_config(work, setting, slots, alpha, from_resident):
    """A configuration that decodes with the demo model, token by token, as SMoE does."""
    link = host_file(work, "link", device_of(setting)["link"], lambda _, rate: rate / DEMO_SLOWER)
    node = host_file(work, "node", NODE, lambda _, rate: rate / DEMO_SLOWER)
    file = work.new_file("demo.toml")
    file.write_text(f"""\
[run]
executor = "emulator"
prefill = 0

[hardware]
profile = "{setting['profile']}"
link = "{link}"
node = "{node}"

[source]
model = "{PROJECT / 'configs' / 'demo'}"

[memory]
experts = {slots}
buffer_experts = 4

[router]
plugin = "smoe"
alpha = {alpha}

[cache]
plugin = "score"

[prefetch]
plugin = "smoe"
alpha = {alpha}
from_resident = {from_resident}

[dispatch]
plugin = "balance"
""")
    return file


def mean_tpot(reports):
    return mean(report["tpot_ms"]["mean"] for report in reports)


def hit_rate(reports):
    """Of all experts asked for, in percent; a prefetched one that arrived in time is a hit."""
    hits = sum(report["experts"]["hits"] for report in reports)
    return 100 * hits / sum(report["experts"]["requested"] for report in reports)
