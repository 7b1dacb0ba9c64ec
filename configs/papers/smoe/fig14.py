#!/usr/bin/env python3
"""fig14.py - Figure 14: TPOT and cache ratio as SMoE's parts come in one by one, batch 1."""
import settings

STATIC = {"cache.plugin": "static", "cache.which": "first_layers"}
MODEL_CHOICE = {"router.plugin": "topk"}
NO_PREFETCH = {"prefetch.plugin": "none"}
LOADS = {"dispatch.plugin": "load_all"}

# The paper's baseline "keeps some experts" on the GPU, like llama.cpp, and has no cache policy.
# Whether it computes the others on the CPU or brings them, and whether what it brings stays, is not
# said: three readings stand here, and the first step is taken from the last of them.
STEPS = [
    ("static, rest on CPU", {**STATIC, **MODEL_CHOICE, **NO_PREFETCH, "dispatch.plugin": "cpu_all",
                             "dispatch.fill": "false"}),
    ("static, rest loaded", {**STATIC, **MODEL_CHOICE, **NO_PREFETCH, **LOADS}),
    ("LRU, rest loaded", {"cache.plugin": "lru", **MODEL_CHOICE, **NO_PREFETCH, **LOADS}),
    ("+CE cache score", {**MODEL_CHOICE, **NO_PREFETCH, **LOADS}),
    ("+CR router", {**NO_PREFETCH, **LOADS}),
    ("+Pre prefetch", LOADS),
    ("+BA balance", {}),
    ("+BA, optimum", {"dispatch.exact": "true"}),
]
FIRST = 2  # the step that later ones are compared with
BALANCED = 6
PAPER = {3: ("-8", "+11"), 4: ("-20", "+60"), 5: ("-14", "+12"), 6: ("-34", "-3")}


def change(values, previous):
    """Mean over the settings of the relative change from step to step, as text"""
    return f"{100 * settings.mean(b / a - 1 for a, b in zip(previous, values)):+.0f} %"


def main():
    work = settings.session(settings.arguments("Figure 14: SMoE's parts one by one"))
    for kind in work.kinds:
        tpot, hits, names, cpu = [[] for _ in STEPS], [[] for _ in STEPS], [], []
        for setting in settings.SETTINGS:
            loads = settings.workloads(work, setting, kind)
            if not loads:
                continue
            names.append(setting["name"])
            for step, (_, about) in enumerate(STEPS):
                reports = [settings.run(work, settings.SMOE, setting, load, 1, about)
                           for load in loads]
                tpot[step].append(settings.mean_tpot(reports))
                hits[step].append(settings.hit_rate(reports))
                if step == BALANCED:
                    spent = [sum(report["time_ms"][resource] for report in reports)
                             for resource in ("cpu", "transfer")]
                    cpu.append(f"{spent[0] / spent[1]:.2f}")
        if not names:
            continue
        for title, values, digits, column in (("TPOT, ms", tpot, 1, 0), ("cache ratio, %", hits, 0, 1)):
            rows = []
            for step, (name, _) in enumerate(STEPS):
                previous = values[5] if step == 7 else values[step - 1]
                rows.append([name, *(f"{value:.{digits}f}" for value in values[step]),
                             change(values[step], previous) if step > FIRST else "",
                             f"{PAPER[step][column]} %" if step in PAPER else ""])
            settings.table(f"{title}, batch 1, {kind} routing",
                           ["", *names, "step", "paper"], rows)
        print(f"  +BA: the CPU's time over the link's: {', '.join(cpu)} (Figure 18, S3: a third)\n")
        for index, name in enumerate(names):
            work.require(hits[3][index] > hits[1][index], f"{kind}, {name}: +CE lowers the cache ratio")
            work.require(hits[4][index] > hits[3][index], f"{kind}, {name}: +CR lowers the cache ratio")
            work.require(tpot[4][index] < tpot[3][index], f"{kind}, {name}: +CR raises TPOT")
    work.end()


if __name__ == "__main__":
    main()
