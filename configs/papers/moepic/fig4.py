#!/usr/bin/env python3
"""Fig. 4(b): TPOT against the split ratio, the same for all layers, at 288 experts."""
from runs import MOEPIC, arguments, session, table, tpot

# 1,408 rows are divided in parts of 192 (core/decisions/0014).
SPLITS = [0.136, 0.273, 0.409, 0.545, 0.682, 0.818, 0.955]


def main():
    run = session(arguments(__doc__))
    tokens = run.tokens(8_000)
    cases = [(run.models()[0], 288), (run.made_up("as in Table 1", 0.7, tokens), 288),
             (run.made_up("uniform", 0.7, tokens), 720), (run.made_up("uniform", 1.0, tokens), 720)]
    for model, experts in cases[:2] if run.arguments.quick else cases:
        for machine in run.machines:
            shared = run.settings(model, machine, tokens=tokens, memory__experts=experts)
            splits = SPLITS[3:5] if run.arguments.quick else SPLITS
            uniform = dict(shared, **{"budget.plugin": "uniform"})
            uncached = dict(uniform, **{"memory.split": 1, "cache.plugin": "static",
                                        "cache.which": "nothing"})
            whole = dict(uniform, **{"memory.split": 1})
            columns = [
                ("prefetch only", run.compare([MOEPIC], uncached)[0]),
                *zip(splits, run.compare([MOEPIC], uniform, [("memory.split", splits)])),
                ("1", run.compare([MOEPIC], whole)[0]),
                ("cache only",
                 run.compare([MOEPIC], dict(whole, **{"prefetch.plugin": "none"}))[0]),
            ]
            rows = [[name, f"{tpot(report):.1f}",
                     f"{report['bytes']['h2d'] / report['tokens'] / 1e9:.3f}",
                     f"{100 * report['experts']['hit_rate']:.1f}",
                     f"{100 * report['experts']['partial_hits'] / report['experts']['requested']:.1f}"]
                    for name, report in columns]
            table(f"{model['name']}, {machine}, {experts} experts",
                  ["split", "TPOT, ms", "GB a token", "whole hits, %", "partial, %"], rows)
            run.check(columns[0][1]["bytes"]["h2d"] > columns[-1][1]["bytes"]["h2d"],
                      "a cache does not save bytes")
    run.end()


main()
