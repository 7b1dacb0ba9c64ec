"""times.py - running times of the placement policies, for Figures 9 and 10."""
import settings

# Here slim_greedy is lazy; the paper's, of O(N^2 E^2), asks for every gain before every pick.
METHODS = [("SlimCaching", "slim_maxconv"), ("SlimCaching, DP", "slim_dp"),
           ("greedy, lazy", "slim_greedy")]


def figure(work, title, axis, values):
    """ms of each method, the least of all draws: what else the machine does only adds to it."""
    jobs = [{"about": {**settings.seeded(seed), **about},
             "policies": [policy for _, policy in METHODS]}
            for _, about in values for seed in range(1, work.seeds + 1)]
    done = work.all_places(jobs, cores=1)
    columns = [done[first:first + work.seeds] for first in range(0, len(done), work.seeds)]
    rows = []
    for name, policy in METHODS:
        least = [1e3 * min(result[policy]["seconds"] for result in column) for column in columns]
        rows.append([name, *(f"{value:.0f}" for value in least)])
    for name, policy in (("gains asked, SlimCaching", "slim_maxconv"),
                         ("gains asked, greedy", "slim_greedy")):
        gains = [settings.mean(result[policy]["facts"]["marginals"] for result in column)
                 for column in columns]
        rows.append([name, *(f"{value:,.0f}" for value in gains)])
    # (copies placed) x (copies that could be): what the loop of Algorithm 1 asks for.
    experts = [sum(model["layers"] * model["experts"]
                   for model in column[0]["slim_greedy"]["models"]) for column in columns]
    printed = [count * len(column[0]["slim_greedy"]["memory"])
               * settings.mean(result["slim_greedy"]["copies"] for result in column) / 1e6
               for count, column in zip(experts, columns)]
    rows.append(["the same, as printed", *(f"{value:.1f}e6" for value in printed)])
    rows.append(["experts", *(f"{count:,}" for count in experts)])
    settings.table(f"{title}, ms, the least of {work.seeds}", [axis, *(v[0] for v in values)], rows)
    for (label, _), column in zip(values, columns):
        for found in column:
            saved = [found[policy]["facts"]["saved_s"] for policy in ("slim_dp", "slim_maxconv")]
            work.require(abs(saved[0] / saved[1] - 1) < 0.01,
                         f"{axis} {label}: Algorithms 2 and 3 save {saved[0]} and {saved[1]} s")
