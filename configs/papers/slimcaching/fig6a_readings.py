#!/usr/bin/env python3
"""fig6a_readings.py - Figure 6(a) at 2.5 GB under other readings of what the paper leaves open."""
import re

import settings

TRACE = "llamamoe-shape.long.safetensors"
CORNERS = [(250, 250), (750, 250), (250, 750), (750, 750)]


def in_quarters(work):
    """slimcaching.toml with its servers in the middles of the four quarters"""
    text = settings.SLIMCACHING.read_text()
    entry = re.search(r"\[\[cluster\.servers\]\]\n(?:.+\n)+", text)[0]
    one_by_one = "".join(
        entry.replace('"edge"', f'"edge{number}"').replace("count = 4\n", "")
        + f"position = [{x}, {y}]\n\n" for number, (x, y) in enumerate(CORNERS))
    file = work.new_file("quarters.toml")
    file.write_text(text.replace(entry, one_by_one))
    return file


def readings(work):
    """(name, settings, file)"""
    workloads = "cluster.workloads"
    found = [("as in slimcaching.toml", {}),
             ("experts all as popular", {f"{workloads}.zipf": 0}),
             ("experts by Zipf 0.5", {f"{workloads}.zipf": 0.5}),
             ("experts by Zipf 1.5", {f"{workloads}.zipf": 1.5}),
             ("each user its own experts", {f"{workloads}.per_user": "true"}),
             ("models by Zipf 1.5", {f"{workloads}.model_zipf": 1.5}),
             ("weights of 32 bits", {settings.STORAGE: 1.25e9}),
             ("Switch states of 16 bits", {"cluster.models.value_bits": 16}),
             ("cloud 10 ms there and back", {"cluster.cloud.latency_s": 0.005}),
             ("one message back a server", {"cluster.returns_each": "false"}),
             ("6 ST-b-32, 1 LLaMA-MoE", {"cluster.models.switch32.count": 6,
                                         "cluster.models.llava_phi2.count": 1,
                                         "cluster.models.llama_moe.count": 1})]
    if work.quick:
        found = found[:2]
    found = [(name, about, settings.SLIMCACHING) for name, about in found]
    found.append(("servers in the quarters", {}, in_quarters(work)))
    trace = work.arguments.traces / TRACE
    if trace.exists() and not work.quick:
        traced = {f"{workloads}.trace": trace.resolve(), f"{workloads}.request_step": 2,
                  f"{workloads}.vqa.request_first": 1}
        found.insert(4, ("LLaMA-MoE from a trace", traced, settings.SLIMCACHING))
    elif not work.quick:
        print(f"left out: {TRACE} is not in\n{work.arguments.traces};\n--traces names its folder\n")
    return found


def main():
    work = settings.session("Figure 6(a) at 2.5 GB, read in other ways")
    draws = range(1, work.seeds + 1)
    policies = ["slim_maxconv", "slim_greedy", "lfu", "random", "ushape"]
    rows, layers_of = [], {}
    for name, about, config in readings(work):
        jobs = [{"about": {settings.STORAGE: 2.5e9, **settings.seeded(seed), **about},
                 "config": config, "policies": policies} for seed in draws]
        found = work.all_places(jobs)
        by_gain = work.all_places([{**job, "policies": ["slim_greedy"], "about": {
            **job["about"], "placement.per_byte": "false"}} for job in jobs])
        # Only what says which models are asked for changes how many layers a token has.
        mix = tuple((key, str(value)) for key, value in about.items() if "model" in key)
        if mix not in layers_of:
            layers_of[mix] = settings.mean(work.layers(job["about"], config) for job in jobs)
        layers = layers_of[mix]
        means = {policy: settings.mean(result[policy]["latency_ms"] for result in found)
                 for policy in policies}
        seconds = settings.mean(result["slim_greedy"]["latency_ms"] for result in by_gain)
        chain = 1e3 * settings.mean(result["ushape"]["facts"]["ushape_s"] for result in found)
        slim = means["slim_maxconv"]
        rows.append([name, f"{slim:.1f}", f"{slim / layers:.2f}", f"{chain:.1f}",
                     settings.less(slim, means["slim_greedy"]), settings.less(slim, seconds),
                     settings.less(slim, means["lfu"])])
        for result in found:
            settings.check(work, name, result)
        work.require(slim < means["lfu"] < means["random"],
                     f"{name}: SlimCaching, LFU, Random are not in this order")
    rows.append(["the paper's", "10.34", "", "", "16.7 %", "", "19.5 %"])
    settings.table(
        f"SlimCaching at 2.5 GB, mean of {work.seeds} draws: ms a token, ms a layer, ms of the "
        "U-shaped\nchain, and how far it is below greedy (Algorithm 1), greedy by gain alone, "
        "and LFU",
        ["", "token", "layer", "chain", "greedy", "by gain", "LFU"], rows)
    work.end()


if __name__ == "__main__":
    main()
