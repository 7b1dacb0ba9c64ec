#!/usr/bin/env python3
"""table_lossless.py - time of a token, lossless systems and best_lossless, half the experts resident.

The last column but one is the time with all experts resident and nothing else changed: no
composition that computes on the GPU what is resident comes far below it.
"""

import sys

import compositions as c

SYSTEMS = ["hybrimoe", "freetoken", "fiddler", "llama_cpp_static", "llama_cpp_cache",
           "moe_infinity", "adapmoe", "mixtral_offloading", "moepic"]
TRACES = [
    c.Trace("qwen shape", "qwen15moe-shape.long.safetensors", "qwen1_5_moe_a2_7b", 720, True),
    c.Trace("mixtral shape", "mixtral-shape.long.safetensors", "mixtral_8x7b", 128),
    c.Trace("deepseek real", "deepseek-v2-lite.intent-law.safetensors", "deepseek_v2_lite", 832),
    c.Trace("gpt-oss real", "gpt-oss-20b.a.safetensors", "gpt_oss_20b", 384),
]


def main():
    arguments = c.options(__doc__.splitlines()[0])
    traces = c.present(TRACES, arguments)
    print(f"TPOT in ms, mean of {arguments.tokens:,} tokens, batch 1, half the experts resident")
    print(f"{'profile':17} {'trace':14} {'best published':>26} {'ours':>8} {'gain':>7} "
          f"{'all there':>9}")
    good = True
    for profile in arguments.profiles:
        for trace in traces:
            seen = []
            for system in SYSTEMS:
                report = c.run(arguments, f"systems/{system}.toml", trace, profile)
                if report:
                    seen.append((report["tpot_ms"]["mean"], system))
            best, name = min(seen)
            ours = c.run(arguments, "best_lossless.toml", trace, profile)["tpot_ms"]["mean"]
            everything = [f"memory.experts={2 * trace.half}", "cache.plugin=static",
                          "cache.which=first_layers", "prefetch.plugin=none"]
            floor = c.run(arguments, "best_lossless.toml", trace, profile, everything)
            floor = floor["tpot_ms"]["mean"]
            gain = 1 - ours / best
            good = good and floor <= ours * 1.02
            print(f"{profile:17} {trace.name:14} {name:>18} {best:7.2f} {ours:8.2f} "
                  f"{100 * gain:6.1f}% {floor:9.2f}", flush=True)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
