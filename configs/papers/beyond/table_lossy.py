#!/usr/bin/env python3
"""table_lossy.py - time of a token with substitution: SMoE and best_lossy at the same alpha.

On the demo model also what substitution does to the perplexity of a text, with half the experts
resident.
"""

import compositions as c

TRACES = [
    c.Trace("qwen code", "qwen15moe-shape.code.safetensors", "qwen1_5_moe_a2_7b", 720, True),
    c.Trace("qwen arithmetic", "qwen15moe-shape.arith.safetensors", "qwen1_5_moe_a2_7b", 720),
    c.Trace("mixtral prose", "mixtral-shape.prose.safetensors", "mixtral_8x7b", 128),
    c.Trace("demo prose", "demo.prose.safetensors", "demo", 96),
]
TEXT = "LICENSE"  # of this project: a text that the demo model has not seen


def shares(report):
    experts = report["experts"]
    return 100 * experts["substituted"] / experts["requested"]


def quality(arguments):
    """Perplexity of a text by the demo model, with substitution and by its own routing."""
    print()
    print("demo model on RTX 4060 Ti, a text scored token by token")
    print(f"{'':12} {'alpha':>5} {'TPOT ms':>8} {'substituted':>12} {'perplexity':>11} {'own':>9} "
          f"{'change':>9}")
    for config in ("systems/smoe.toml", "best_lossy.toml"):
        for alpha in (0.3,) if arguments.quick else (0.15, 0.3, 0.6):
            settings = [f"router.alpha={alpha}"]
            if config == "systems/smoe.toml":
                settings.append(f"prefetch.alpha={alpha}")
            report = c.run_text(arguments, config, c.PROJECT / TEXT, settings)
            text = report["text"]
            own_perplexity, perplexity = text["own_routing"]["perplexity"], text["perplexity"]
            name = config.split("/")[-1].split(".")[0]
            print(f"{name:12} {alpha:5.2f} {report['tpot_ms']['mean']:8.3f} {shares(report):11.2f}% "
                  f"{perplexity:11.4f} {own_perplexity:9.4f} "
                  f"{100 * (perplexity / own_perplexity - 1):+8.2f}%", flush=True)


def main():
    arguments = c.options(__doc__.splitlines()[0])
    traces = c.present(TRACES, arguments)
    print(f"TPOT in ms, mean of {arguments.tokens:,} tokens, batch 1, half the experts resident,")
    print("alpha 0.3; in brackets the per cent of choices that were substituted")
    print(f"{'profile':17} {'trace':16} {'smoe':>16} {'best_lossy':>16} {'gain':>7}")
    for profile in arguments.profiles:
        for trace in traces:
            smoe = c.run(arguments, "systems/smoe.toml", trace, profile)
            ours = c.run(arguments, "best_lossy.toml", trace, profile)
            a, b = smoe["tpot_ms"]["mean"], ours["tpot_ms"]["mean"]
            print(f"{profile:17} {trace.name:16} {a:8.2f} ({shares(smoe):4.1f}) "
                  f"{b:9.2f} ({shares(ours):4.1f}) {100 * (1 - b / a):6.1f}%", flush=True)
    quality(arguments)


if __name__ == "__main__":
    main()
