#!/usr/bin/env python3
"""fig12.py - Figure 12: share of the experts asked for that are in the GPU's memory."""
import settings


def main():
    work = settings.session(settings.arguments("Figure 12: GPU cache ratio of the systems"))
    # DeepSpeed brings whole layers and keeps none: the paper leaves it out, too.
    methods = [method for method in settings.METHODS if method[0] != "DeepSpeed"]
    for kind in work.kinds:
        for batch in (1, 3):
            columns = {}
            for setting in settings.SETTINGS:
                loads = settings.workloads(work, setting, kind)
                if not loads:
                    continue
                columns[setting["name"]] = [
                    settings.hit_rate([settings.run(work, config, setting, load, batch, about)
                                       for load in loads]) for _, config, about in methods]
            if not columns:
                continue
            rows = [[method[0], *(f"{column[index]:.1f} %" for column in columns.values())]
                    for index, method in enumerate(methods)]
            gains = [100 * (column[-2] / max(column[:-2]) - 1) for column in columns.values()]
            rows.append(["SMoE over the best", *(f"{value:+.1f} %" for value in gains)])
            rows.append(["the paper's", *("> 65 %" for _ in columns)])
            shares = [f"{100 * settings.room(s):.1f} %" for s in settings.SETTINGS
                      if s["name"] in columns]
            rows.append(["share of the experts that fit", *shares])
            settings.table(f"GPU cache ratio, batch {batch}, {kind} routing", ["", *columns], rows)
            for name, column in columns.items():
                work.require(column[-2] > column[1],
                             f"{kind}, {name}: SMoE hits less than a static cache")
    work.end()


if __name__ == "__main__":
    main()
