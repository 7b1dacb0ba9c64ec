"""settings.py - what the figures share: the instance of Section VI-A, seeds, plans, tables."""
import json
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import script  # noqa: E402
from script import less, mean, settings_of, table  # noqa: E402,F401

CLUSTERS = script.PROJECT / "configs" / "clusters"
SLIMCACHING = CLUSTERS / "slimcaching.toml"
CORES = 2  # places at a time; where times are the result, one

# Names in tables and placement policies. slim_maxconv is the paper's method (Algorithm 3).
PAPERS = [("SlimCaching", "slim_maxconv"), ("greedy", "slim_greedy"), ("LFU", "lfu"),
          ("Random", "random"), ("U-shaped", "ushape")]
OURS = ("joint (ours)", "joint")
STORAGE = "cluster.servers.expert_memory_bytes"
# A larger room may leave a method that looks at single steps worse off by a little.
SLACK = 1.01


class session(script.session):
    """With what the figures of this paper ask of the program."""

    def __init__(self, purpose, seeds=3):
        super().__init__(script.parser(purpose).parse_args())
        self.seeds = 1 if self.quick else seeds
        known = "  joint " in self.call("plugins", "list")
        self.methods = PAPERS + [OURS] if known else PAPERS

    def place(self, about, policies=None, config=SLIMCACHING, plan_file=None):
        """{policy: figures} of one instance; `about`: {section.key: value}"""
        names = policies or [policy for _, policy in self.methods]
        words = ["place", config, "--policies", ",".join(names), "--json", "-"]
        words += ["--out", plan_file] if plan_file else []
        found = json.loads(self.call(*words, *settings_of(about)))
        return {figures["policy"]: figures for figures in found.get("results", [found])}

    def run(self, config, about):
        return json.loads(self.call("run", config, "--json", "-", *settings_of(about)))

    def all_places(self, jobs, cores=CORES):
        """place(**job) of each, in the order of the jobs"""
        return side_by_side(lambda job: self.place(**job), jobs, cores)

    def layers(self, about, config=SLIMCACHING):
        """MoE layers of the mean token. With everything in the cloud, and one message back from it,
        each makes a token wait for the cloud's latency twice."""
        changed = dict(about, **{"cluster.returns_each": "false", "cluster.users.local_experts": 0})
        empty = [self.place(dict(changed, **{"cluster.cloud.latency_s": latency_s}), ["random"],
                            config)["random"]["empty_latency_ms"] for latency_s in (0, 1)]
        return (empty[1] - empty[0]) / 2000



def side_by_side(function, jobs, cores=CORES):
    with ThreadPoolExecutor(cores) as pool:
        return list(pool.map(function, jobs))


def seeded(seed):
    """Positions, each user's models, and which experts are popular, of one draw of them all"""
    drawn = {"cluster.radio.position_seed": seed}
    for number, name in enumerate(("sqa", "vqa")):
        for key in ("model_seed", "draw_seed"):
            drawn[f"cluster.workloads.{name}.{key}"] = 2 * seed - 1 + number
    return drawn




def above_best(found):
    """How far joint is above the best other method, as a share; negative: below it"""
    best = min(figures["latency_ms"] for policy, figures in found.items() if policy != "joint")
    return found["joint"]["latency_ms"] / best - 1


def check(work, place, found):
    """What must hold of every instance, whatever was drawn"""
    for policy, figures in found.items():
        work.require(0 < figures["latency_ms"] <= figures["empty_latency_ms"] * (1 + 1e-9),
                     f"{place}: {policy} is worse than no placement at all")
        work.require(all(server["used"] <= server["capacity"] for server in figures["memory"]),
                     f"{place}: {policy} holds more than fits")
    slim, greedy = found["slim_maxconv"]["latency_ms"], found["slim_greedy"]["latency_ms"]
    work.require(abs(slim / greedy - 1) < 0.06,
                 f"{place}: SlimCaching {slim} ms and greedy {greedy} ms are not nearly the same")
    if "joint" in found:
        ours = found["joint"]["latency_ms"]
        work.require(above_best(found) < 1e-9, f"{place}: joint {ours} ms, another is better")
        bound = 1e3 * found["joint"]["facts"]["bound_s"]
        work.require(bound <= ours * (1 + 1e-9), f"{place}: joint is below its bound")


def figure(work, title, axis, values, steps=(), falls=None, too_large=()):
    """A table of mean latencies: a column for each (label, settings) of `values`.

    steps: further (name, policy) beside the usual ones. falls: latencies must fall from column to
    column. too_large: labels of columns that joint is left out of.
    """
    methods = [*work.methods[:1], *steps, *work.methods[1:]]
    jobs = [{"about": {**seeded(seed), **about},
             "policies": [policy for _, policy in methods
                          if policy != "joint" or label not in too_large]}
            for label, about in values for seed in range(1, work.seeds + 1)]
    done = work.all_places(jobs)
    columns = [done[first:first + work.seeds] for first in range(0, len(done), work.seeds)]
    means = {policy: [mean(result[policy]["latency_ms"] for result in column)
                      if policy in column[0] else None for column in columns]
             for _, policy in methods}
    tell(work, title, axis, [label for label, _ in values], methods, columns, means)
    for (label, _), column in zip(values, columns):
        for seed, found in enumerate(column, 1):
            check(work, f"{axis} {label}, seed {seed}", found)
    for index, (label, _) in enumerate(values):
        work.require(means["slim_maxconv"][index] < means["lfu"][index] < means["random"][index],
                     f"{title}, {label}: SlimCaching, LFU, Random are not in this order")
    for policy in ("slim_maxconv", "slim_greedy", "lfu") if falls else ():
        for previous, current in zip(means[policy], means[policy][1:]):
            work.require(current <= previous * SLACK,
                         f"{title}: {policy} goes from {previous:.2f} to {current:.2f} ms")
    return means, columns


def tell(work, title, axis, labels, methods, columns, means):
    """figure()'s table, and how joint compares with the best other method"""
    def line(name, value_of, unit="", policy="lfu"):
        return [name, *(f"{mean(value_of(result) for result in column):.1f}{unit}" if policy in column[0]
                        else "-" for column in columns)]

    rows = [[name, *("-" if value is None else f"{value:.1f}" for value in means[policy])]
            for name, policy in methods]
    rows += [line("U-shaped, as a chain", lambda result: 1e3 * result["ushape"]["facts"]["ushape_s"]),
             line("nothing placed", lambda result: result["lfu"]["empty_latency_ms"])]
    slim = means["slim_maxconv"]
    for name, policy in PAPERS[1:3]:
        rows.append([f"SlimCaching below {name}", *map(less, slim, means[policy])])
    if "joint" in means:
        rows.append(["joint below SlimCaching", *("-" if value is None else less(value, slim_value)
                                                  for value, slim_value in zip(means["joint"], slim))])
        rows.append(line("joint above its bound",
                         lambda result: 100 * result["joint"]["facts"]["gap"], " %", "joint"))
    table(f"{title},\nms a token, mean of {work.seeds} draws", [axis, *labels], rows)
    shares = [above_best(result) for column in columns for result in column if "joint" in result]
    beaten = [share for share in shares if share > 1e-9]
    if shares:
        print(f"joint is beaten in {len(beaten)} of {len(shares)} instances"
              + (f", by at most {100 * max(beaten):.3f} %" if beaten else "") + "\n", flush=True)
