// html_style.cpp - the style sheet: one set of variables for light, one for dark, print like light.
#include "core/report/html_style.h"

namespace moorage::core {

std::string html_style() {
    return R"css(:root {
  color-scheme: light dark;
  --page: #ffffff; --card: #f7f8fa; --ink: #1c2430; --soft: #5b6675; --rule: #d9dee5;
  --grid: #e6e9ee; --accent: #0072b2; --warn: #8a4b00; --warn-back: #fff4e0;
  --c0: #0072b2; --c1: #d55e00; --c2: #009e73; --c3: #b8509a; --c4: #c98a00; --c5: #3d9fd6;
  --c6: #6a51a3; --c7: #7a4f2b; --bound: #8b94a1;
  --compute: #0072b2; --launch: #8cb8d9; --link: #e69f00;
  --disk: #d55e00; --cpu: #009e73; --away: #cc79a7; --host: #cfd5dd;
}
@media (prefers-color-scheme: dark) { :root {
  --page: #12161c; --card: #1a2029; --ink: #e4e8ee; --soft: #9aa5b4; --rule: #333c49;
  --grid: #29313c; --accent: #58b4f0; --warn: #ffc46b; --warn-back: #33270f;
  --c0: #4aa8e8; --c1: #ff8a42; --c2: #2fc79b; --c3: #e48cc4; --c4: #f0b93a; --c5: #9ad7ff;
  --c6: #b19df0; --c7: #c79a72; --bound: #8b94a1;
  --compute: #4aa8e8; --launch: #2f5f86; --link: #d9962a;
  --disk: #e0703a; --cpu: #2fb893; --away: #c486ab; --host: #3d4754;
} }
* { box-sizing: border-box; }
body { margin: 0; background: var(--page); color: var(--ink);
  font: 15px/1.5 system-ui, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif; }
main { max-width: 1180px; margin: 0 auto; padding: 28px 24px 60px; }
h1 { font-size: 26px; line-height: 1.25; margin: 0 0 16px; }
h2 { font-size: 19px; margin: 38px 0 4px; padding-top: 14px; border-top: 1px solid var(--rule); }
h3 { font-size: 15px; margin: 22px 0 6px; }
.note { color: var(--soft); margin: 0 0 12px; }
.facts { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(420px, 100%), 1fr));
  gap: 4px 28px; margin: 0 0 14px; }
.facts div { display: grid; grid-template-columns: 92px 1fr; }
dt { color: var(--soft); }
dd { margin: 0; overflow-wrap: anywhere; }
.words { display: grid; grid-template-columns: max-content 1fr; gap: 4px 20px; }
pre { background: var(--card); border: 1px solid var(--rule); border-radius: 6px; padding: 9px 12px;
  margin: 0; font: 13px/1.45 ui-monospace, "DejaVu Sans Mono", Menlo, monospace;
  white-space: pre-wrap; overflow-wrap: anywhere; }
blockquote { margin: 0 0 12px; max-width: 105ch; white-space: pre-wrap; overflow-wrap: anywhere; }
ul { margin: 6px 0 0; padding-left: 20px; }
li { margin: 4px 0; max-width: 105ch; }
li.warning { background: var(--warn-back); color: var(--warn); padding: 4px 10px;
  border-radius: 4px; list-style: none; margin-left: -20px; }
.grid { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(480px, 100%), 1fr));
  gap: 20px; align-items: start; }
figure { margin: 0; background: var(--card); border: 1px solid var(--rule); border-radius: 8px;
  padding: 12px 14px 8px; }
figcaption { font-weight: 600; margin-bottom: 6px; }
figure.map { margin: 12px 0; }
svg { display: block; width: 100%; height: auto; }
svg.scale { width: 274px; }
svg.time { width: 130px; height: 11px; border-radius: 2px; }
svg text { font: 12px system-ui, "Segoe UI", Roboto, Arial, sans-serif; fill: var(--ink); }
svg text.tick { fill: var(--soft); font-size: 11.5px; }
.axis { stroke: var(--soft); stroke-width: 1; }
.grid line.grid, svg line.grid { stroke: var(--grid); stroke-width: 1; }
.leader, .rail { stroke: var(--bound); stroke-width: 1; opacity: .55; }
.line { fill: none; stroke: var(--c); stroke-width: 2; stroke-linejoin: round; }
g circle, g polygon { fill: var(--c); stroke: var(--card); stroke-width: 1; }
.mark { stroke: var(--c); stroke-width: 1; stroke-dasharray: 2 3; opacity: .7; }
g rect.bar { fill: var(--c); }
g rect.pale { fill: var(--c); opacity: .45; }
.reach, g circle.reach { fill: transparent; stroke: none; }
.dot circle { fill-opacity: .8; }
.c0 { --c: var(--c0); } .c1 { --c: var(--c1); } .c2 { --c: var(--c2); } .c3 { --c: var(--c3); }
.c4 { --c: var(--c4); } .c5 { --c: var(--c5); } .c6 { --c: var(--c6); } .c7 { --c: var(--c7); }
.bound, .plain { --c: var(--bound); }
.compute { fill: var(--compute); background: var(--compute); }
.launch { fill: var(--launch); background: var(--launch); }
.link { fill: var(--link); background: var(--link); }
.disk { fill: var(--disk); background: var(--disk); }
.cpu { fill: var(--cpu); background: var(--cpu); }
.away { fill: var(--away); background: var(--away); }
.host { fill: var(--host); background: var(--host); }
.key { display: inline-block; width: 11px; height: 11px; border-radius: 2px; margin-left: 10px; }
.key:first-child { margin-left: 0; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-size: 13.5px; font-variant-numeric: tabular-nums; }
th, td { padding: 3px 10px; text-align: right; white-space: nowrap; }
th { text-align: left; font-weight: 400; }
thead th { color: var(--soft); border-bottom: 1px solid var(--soft); }
thead th.figure { text-align: right; }
tbody { border-bottom: 1px solid var(--rule); }
tbody tr:hover { background: var(--card); }
tr.best, tr.best th { font-weight: 650; }
tr.offline, tr.offline th { font-style: italic; color: var(--soft); }
@media print {
  :root { --page: #ffffff; --card: #ffffff; --ink: #000000; --soft: #444444; --rule: #cccccc;
    --grid: #e2e2e2; --c0: #0072b2; --c1: #d55e00; --c2: #009e73; --c3: #b8509a; --c4: #c98a00;
    --c5: #3d9fd6; --c6: #6a51a3; --c7: #7a4f2b; --bound: #777777; --compute: #0072b2;
    --launch: #8cb8d9; --link: #e69f00; --disk: #d55e00; --cpu: #009e73; --away: #cc79a7;
    --host: #cfd5dd; --warn: #5a3000; --warn-back: #ffffff; }
  body { font-size: 12px; print-color-adjust: exact; -webkit-print-color-adjust: exact; }
  main { max-width: none; padding: 0; }
  figure, tbody, li, pre { break-inside: avoid; }
  h2, h3 { break-after: avoid; }
  .wide { overflow: visible; }
}
)css";
}

}  // namespace moorage::core
