#!/usr/bin/env python3
"""Fig. 7: TTFT and TPOT of five systems against the memory for experts."""
from runs import BASELINES, arguments, below, session, table


def show(run, model, machine):
    budgets = [model["experts"]] if run.arguments.quick else model["budgets"]
    count = len(budgets)
    sweep = [("memory.experts", budgets)]
    shared = run.settings(model, machine)
    found = run.served([config for _, config in BASELINES], shared, sweep)
    by_name = {name: found[i * count:(i + 1) * count] for i, (name, _) in enumerate(BASELINES)}
    by_name["MoEpic"] = run.moepic(shared, sweep)
    by_name["MoEpic, unsplit"] = run.moepic(shared, sweep, budget__plugin="uniform",
                                            memory__split=1)
    for quantity, key, digits in (("TTFT, ms", "ttft", 0), ("TPOT, ms", "tpot", 1)):
        rows = [[name, *(f"{result[key]:.{digits}f}" for result in results)]
                for name, results in by_name.items()]
        best = [min(by_name[name][i][key] for name, _ in BASELINES) for i in range(count)]
        rows.append(["MoEpic below the best",
                     *(below(result[key], lowest) for result, lowest in zip(by_name["MoEpic"], best))])
        table(f"{model['name']}, {machine}: {quantity}, by experts of memory", ["", *budgets], rows)
    for name, results in by_name.items():
        for result in results:
            run.check(result["tpot"] > 0 and result["ttft"] > result["tpot"],
                      f"{name}: a prompt takes less than a token")
        if name != "Pre-gated MoE" and not run.arguments.quick:
            run.check(results[-1]["tpot"] < results[0]["tpot"], f"{name} does not gain by memory")
    at_default = budgets.index(model["experts"])
    show_transports(run, model, machine, {name: results[at_default]["tpot"]
                                          for name, results in by_name.items()})


def show_transports(run, model, machine, as_set):
    """What ending a transfer midway is worth: the baselines do not, MoEpic does (section 3.2)."""
    shared = run.settings(model, machine)
    names = [name for name, _ in BASELINES]
    chunked = run.served([config for _, config in BASELINES],
                         dict(shared, **{"transport.plugin": "chunked"}))
    direct = run.moepic(shared, transport__plugin="direct")[0]["tpot"]
    columns = [[as_set[name] for name in [*names, "MoEpic"]],
               [*(result["tpot"] for result in chunked), as_set["MoEpic"]],
               [*(as_set[name] for name in names), direct]]
    rows = [[name, *(f"{column[i]:.1f}" for column in columns)]
            for i, name in enumerate([*names, "MoEpic"])]
    rows.append(["MoEpic below the best",
                 *(below(column[-1], min(column[:-1])) for column in columns)])
    table(f"{model['name']}, {machine}, {model['experts']} experts: TPOT, ms, by transport",
          ["", "as above", "all chunked", "all direct"], rows)


def main():
    run = session(arguments(__doc__))
    for model in run.models():
        for machine in run.machines:
            show(run, model, machine)
    if "eager" in run.machines and not run.arguments.quick:
        show(run, run.made_up("as in Table 1", 0.7, 20_000), "eager")
    run.end()


main()
