#!/usr/bin/env python3
"""fig11.py - Figure 11: TPOT of five systems in S1 to S3 at batch 1 and 3."""
import settings

# The paper's mean reduction against the best baseline, at batch 1 and 3, and of single settings.
PAPER = {1: 24, 3: 35}
PAPER_OF = {("S1", 1): 20, ("S1", 3): 27, ("S3", 1): 34, ("S3", 3): 48}

# Routing of published models without scores of all experts: neither the router nor the prefetch of
# SMoE can run, its cache and its balance can.
REAL = [
    (dict(name="V2-Lite, 3080 Ti", shape="deepseek_v2_lite", profile="rtx_3080_ti"),
     "deepseek-v2-lite.intent-law"),
    (dict(name="V2-Lite, 4060 Ti", shape="deepseek_v2_lite", profile="rtx_4060_ti_16gb"),
     "deepseek-v2-lite.intent-law"),
    (dict(name="gpt-oss, 4060 Ti", shape="gpt_oss_20b", profile="rtx_4060_ti_16gb"),
     "gpt-oss-20b.a"),
]
REAL_TOKENS = 3000
WITHOUT_SCORES = {"router.plugin": "topk", "cache.plugin": "score_chosen",
                  "prefetch.plugin": "none"}


def tpot_of_all(work, setting, workloads, batch, of_smoe=None, about_all=None,
                methods=settings.METHODS):
    """TPOT of every method, mean of the workloads; `about`: settings, of SMoE and of all."""
    found = []
    for _, config, about in methods:
        about = {**about, **(about_all or {})}
        if config == settings.SMOE:
            about.update(of_smoe or {})
        found.append(settings.mean_tpot(
            settings.run(work, config, setting, load, batch, about) for load in workloads))
    return found


def below_best(tpot, method):
    return 100 * (1 - tpot[method] / min(tpot[:settings.BASELINES]))


def compare(work, kind, batch):
    tpots = {}
    for setting in settings.SETTINGS:
        loads = settings.workloads(work, setting, kind)
        if not loads:
            return
        tpots[setting["name"]] = tpot_of_all(work, setting, loads, batch)
    rows = [[method[0], *(f"{tpot[index]:.1f}" for tpot in tpots.values()), ""]
            for index, method in enumerate(settings.METHODS)]
    for index in range(settings.BASELINES, len(settings.METHODS)):
        below = [below_best(tpot, index) for tpot in tpots.values()]
        rows.append([f"{settings.METHODS[index][0]}: below the best",
                     *(f"{value:.1f} %" for value in below), f"{settings.mean(below):.1f} %"])
    paper = [PAPER_OF.get((name, batch)) for name in tpots]
    rows.append(["the paper's", *(f"{value} %" if value else "-" for value in paper),
                 f"{PAPER[batch]} %"])
    settings.table(f"TPOT, ms, batch {batch}, {kind} routing", ["", *tpots, "mean"], rows)
    for name, tpot in tpots.items():
        work.require(tpot[4] < tpot[2], f"{kind}, {name}: SMoE is slower than whole layers")
        work.require(tpot[4] < tpot[0], f"{kind}, {name}: SMoE is slower than MoE-Infinity")


def real(work, batch):
    columns, heads = [], [""]
    for setting, name in REAL:
        trace = work.find(name)
        if trace is not None:
            heads.append(setting["name"])
            load = (trace, setting["shape"], REAL_TOKENS)
            columns.append(tpot_of_all(work, setting, [load], batch, WITHOUT_SCORES))
    if not columns:
        return
    rows = [[method[0], *(f"{column[index]:.1f}" for column in columns)]
            for index, method in enumerate(settings.METHODS)]
    settings.table(f"TPOT, ms, batch {batch}, real routing; SMoE without router and prefetch",
                   heads, rows)


def main():
    work = settings.session(settings.arguments("Figure 11: TPOT of five systems"))
    for batch in (1, 3):
        for kind in work.kinds:
            compare(work, kind, batch)
        if not work.arguments.quick:
            real(work, batch)
    work.end()


if __name__ == "__main__":
    main()
