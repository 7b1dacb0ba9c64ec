#!/usr/bin/env python3
"""Fig. 9: MoEpic's TPOT under other rho and omega, and other zeta."""
from runs import arguments, session, table

# The paper varies both without saying by how much.
PRIORITIES = [(0.25, 128), (0.25, 32), (0.25, 512), (0.1, 128), (0.5, 128)]
ZETAS = [0.01, 0.02, 0.03, 0.04, 0.05]


def main():
    run = session(arguments(__doc__))
    for model in run.models():
        for machine in run.machines:
            shared = run.settings(model, machine)
            times = []
            for rho, omega in PRIORITIES[:2] if run.arguments.quick else PRIORITIES:
                changed = {f"{stage}__{key}": value for stage in ("cache", "budget")
                           for key, value in (("rho", rho), ("omega", omega))}
                times.append(run.moepic(shared, **changed)[0]["tpot"])
            name = f"{model['name']}, {machine}, {model['experts']} experts"
            table(f"{name}: rho, omega",
                  ["", *(f"{rho}, {omega}" for rho, omega in PRIORITIES[:len(times)])],
                  [["TPOT, ms", *(f"{ms:.1f}" for ms in times)]])
            by_zeta = run.moepic(shared, [("budget.zeta", ZETAS)])
            table(f"{name}: zeta", ["", *ZETAS],
                  [["TPOT, ms", *(f"{result['tpot']:.1f}" for result in by_zeta)]])
            run.check(by_zeta[0]["tpot"] == times[0], "the default does not equal itself")
    run.end()


main()
