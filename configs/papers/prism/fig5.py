#!/usr/bin/env python3
"""fig5.py - Figure 5: time of a layer against the share of its experts that other servers have."""
import json

import settings

SHARES = [0, 0.125, 0.25, 0.375, 0.5, 0.625, 0.75, 0.875, 1]  # of the experts of each layer
TOKENS = [1, 16, 64, 256]  # that pass a layer together
REQUESTS = 60
SIZES = {settings.DEEPSEEK: (26, 64, "deepseek_v2_lite"), settings.QWEN: (24, 60, None)}


def plan_with(work, of, about, share):
    """A plan with so many experts of each layer elsewhere, which servers take in turn"""
    layers, experts, _ = SIZES[of]
    made = json.loads(work.plan(LAYER[of], about)["placement.plan"].read_text())
    away = round(share * experts)
    made["placement"] = [[1 + expert % 2 if expert < away else 0, 0, layer, expert]
                         for layer in range(layers) for expert in range(experts)]
    out = work.new_file(f"share-{share}.json")
    out.write_text(json.dumps(made))
    return {"placement.plan": out}


LAYER = {one: settings.model(one.title, "fig5.toml", None, one.key, one.trace) for one in SIZES}


def main():
    work = settings.session("Figure 5: time of a layer against the share of remote experts")
    for of in work.models(settings.DEEPSEEK):
        layers, _, shape = SIZES[of]
        about = {"cluster.models.shape": shape} if shape else {}
        shares, tokens = (SHARES[::4], TOKENS[:2]) if work.quick else (SHARES, TOKENS)
        rows, before = [], [0] * len(tokens)
        for share in shares:
            plan, now, local = plan_with(work, of, about, share), [], None
            for together in tokens:
                found = work.cluster(LAYER[of], {
                    **about, **plan, "cluster.workloads.input_tokens": together,
                    "cluster.requests": 10 if work.quick else REQUESTS})
                now.append(found["latency_ms"]["mean"] / layers)
                local = found["local_ratio"]
            rows.append([f"{100 * share:.1f} %", f"{100 * (1 - local):.1f} %",
                         *(f"{value:.3f}" for value in now)])
            work.require(all(a < b for a, b in zip(before, now)),
                         f"{of.title}: a layer is not slower with {share} of its experts remote")
            before = now
        settings.table(f"{of.title}: ms a layer, by tokens that pass it together",
                       ["experts remote", "calls remote", *map(str, tokens)], rows)
    work.end()


if __name__ == "__main__":
    main()
