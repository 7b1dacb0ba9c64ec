#!/usr/bin/env python3
"""Fig. 8: memory that each system needs for a target TPOT."""
from runs import BASELINES, arguments, below, session, table

# As in the paper, for its engine.
PAPER_TARGETS = {"Qwen1.5-MoE": [80, 100, 120, 140, 160],
                 "Mixtral-8x7B": [100, 130, 160, 190, 220]}
# And over what a token takes with all experts in memory: the scale of a lean engine is another.
RELATIVE = [1.25, 1.5, 2, 2.5, 3]


def footprint_gb(model, experts):
    """Everything but cache and KV cache is the same for all: weights and the buffer."""
    held = experts + model["top_k"]
    return (model["non_expert_bytes"] + held * model["expert_bytes"]) / 1e9


def needed(times, target):
    """Experts by linear interpolation between the sizes that were run; None: more than all."""
    previous = None
    for experts, ms in times:
        if ms <= target:
            if previous is None:
                return experts
            share = (previous[1] - target) / (previous[1] - ms)
            return previous[0] + share * (experts - previous[0])
        previous = (experts, ms)
    return None


def show(run, model, machine):
    steps = 3 if run.arguments.quick else 12
    everything = model["layers"] * model["per_layer"]
    sizes = [round(everything * (i + 1) / steps) for i in range(steps)]
    sizes[0] = max(sizes[0], model["layers"])
    sweep = [("memory.experts", sizes)]
    shared = run.settings(model, machine, tokens=9_000)
    systems = BASELINES[1:]  # Pre-gated MoE does not use the memory
    found = run.served([config for _, config in systems], shared, sweep) + run.moepic(shared, sweep)
    rich = found[-1]["tpot"]  # MoEpic fills its cache before the first request
    times = {name: [(size, result["tpot"]) for size, result in zip(sizes, found[i * steps:])]
             for i, name in enumerate([*(name for name, _ in systems), "MoEpic"])}
    targets = PAPER_TARGETS[model["name"].split(",")[0]] if machine == "eager" else [rich * x for x in RELATIVE]
    rows, best = [], []
    for name, sizes_ms in times.items():
        experts = [needed(sizes_ms, target) for target in targets]
        gb = [None if count is None else footprint_gb(model, count) for count in experts]
        rows.append([name, *("-" if size is None else f"{size:.2f}" for size in gb)])
        best.append(gb)
        run.check(all(ms >= rich * 0.99 for _, ms in sizes_ms), f"{name} is faster than all in memory")
    least = [min([size for size in column[:-1] if size] or [0]) for column in zip(*best)]
    rows.append(["MoEpic below the best",
                 *("-" if not (a and b) else below(a, b) for a, b in zip(best[-1], least))])
    table(f"{model['name']}, {machine}: GB for a target TPOT (all in memory: {rich:.1f} ms and "
          f"{footprint_gb(model, everything):.1f} GB)",
          ["target, ms", *(f"{target:.0f}" if machine == "eager" else f"{target:.1f}"
                           for target in targets)], rows)


def main():
    run = session(arguments(__doc__))
    for model in run.models():
        for machine in run.machines:
            show(run, model, machine)
    if "eager" in run.machines and not run.arguments.quick:
        show(run, run.made_up("as in Table 1", 0.7, 9_000), "eager")
    run.end()


main()
