#!/usr/bin/env python3
"""Table 3: MoEpic without its prefetch, its cache policy and its configuration."""
from runs import arguments, session, table

VARIANTS = [
    ("MoEpic", {}),
    ("w/o SP", {"prefetch__plugin": "random"}),
    ("w/o LCP", {"cache__plugin": "random"}),
    ("w/o CCA", {"budget__plugin": "uniform", "memory__split": 0.5}),
    # Beyond the paper: which part of the configuration it is, and what prefetch is worth at all.
    ("uniform, unsplit", {"budget__plugin": "uniform", "memory__split": 1}),
    ("no prefetch", {"prefetch__plugin": "none"}),
]
PAPER = {"MoEpic": (720, 132), "w/o SP": (753, 174), "w/o LCP": (782, 157), "w/o CCA": (864, 193)}


def main():
    run = session(arguments(__doc__))
    for model in run.models():
        for machine in run.machines:
            shared = run.settings(model, machine)
            rows, first = [], None
            for name, changed in VARIANTS:
                result = run.moepic(shared, **changed)[0]
                first = first or result
                run.check(result["report"]["experts"]["requested"] ==
                          first["report"]["experts"]["requested"],
                          f"{name} was asked for other experts")
                paper = PAPER.get(name)
                rows.append([name, f"{result['ttft']:.0f}", f"{result['ttft'] / first['ttft']:.2f}",
                             f"{paper[0] / 720:.2f}" if paper else "", f"{result['tpot']:.1f}",
                             f"{result['tpot'] / first['tpot']:.2f}",
                             f"{paper[1] / 132:.2f}" if paper else ""])
            table(f"{model['name']}, {machine}, {model['experts']} experts; paper: Mixtral-8x7B",
                  ["", "TTFT, ms", "x", "paper", "TPOT, ms", "x", "paper"], rows)
    run.end()


main()
