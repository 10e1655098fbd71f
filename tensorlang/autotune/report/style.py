"""The style of the report page: light and dark, wide and narrow, on paper."""

PICTURE_STYLE = """
svg { font: 11.5px system-ui, "Segoe UI", Roboto, "DejaVu Sans", sans-serif; }
svg text { fill: var(--soft); }
svg .heading { fill: var(--ink); font-size: 13.5px; font-weight: 600; }
svg .middle { text-anchor: middle; }
svg .end { text-anchor: end; }
svg .grid { stroke: var(--grid); }
svg .rule { stroke: var(--soft); }
svg .dots { fill: none; stroke: var(--dots); stroke-width: 4; stroke-linecap: round; stroke-opacity: 0.75; }
svg .best { fill: none; stroke: var(--best); stroke-width: 2; stroke-linejoin: round; }
svg .marked { fill: var(--best); }
svg .level { stroke: var(--level); stroke-dasharray: 5 4; stroke-width: 1.4; }
svg .levelname { fill: var(--level); }
svg .bars { fill: var(--dots); }
"""

STYLE = (
    """
:root {
  color-scheme: light dark;
  --page: #f6f7f9; --card: #ffffff; --ink: #1b2430; --soft: #5b6776; --line: #dfe3e8; --grid: #eceff2;
  --dots: #3a78c3; --best: #c2410c; --level: #0f766e; --good: #15803d; --bad: #b91c1c; --code: #f3f5f7;
}
@media (prefers-color-scheme: dark) {
  :root {
    --page: #11151a; --card: #191f26; --ink: #e4e9ef; --soft: #9aa7b5; --line: #2d3640; --grid: #252d36;
    --dots: #79aae4; --best: #fb923c; --level: #2dd4bf; --good: #4ade80; --bad: #f87171; --code: #12171d;
  }
}
* { box-sizing: border-box; }
body {
  margin: 0; background: var(--page); color: var(--ink);
  font: 15px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", "DejaVu Sans", sans-serif;
}
main { max-width: 1180px; margin: 0 auto; padding: 28px 20px 60px; }
h1 { font-size: 25px; margin: 0 0 4px; letter-spacing: -0.01em; }
h2 { font-size: 19px; margin: 0 0 2px; overflow-wrap: anywhere; }
h3 { font-size: 13px; margin: 26px 0 8px; color: var(--soft); font-weight: 600; }
a { color: inherit; }
p { margin: 4px 0; }
.soft { color: var(--soft); overflow-wrap: anywhere; }
.warn { color: var(--bad); overflow-wrap: anywhere; }
section {
  background: var(--card); border: 1px solid var(--line); border-radius: 12px; padding: 22px 24px; margin-top: 22px;
}
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(138px, 1fr)); gap: 12px; margin-top: 16px; }
.tile { border: 1px solid var(--line); border-radius: 9px; padding: 10px 14px; min-width: 0; }
.tile b { display: block; font-size: 21px; font-weight: 650; line-height: 1.25; font-variant-numeric: tabular-nums; }
.tile b { white-space: nowrap; }
.tile small { font-size: 14px; font-weight: 600; }
.tile span { color: var(--soft); font-size: 12.5px; }
.tile i { display: block; height: 4px; border-radius: 2px; margin-top: 7px; background: var(--line); overflow: hidden; }
.tile i i { margin: 0; background: var(--best); }
.charts { display: grid; grid-template-columns: repeat(2, minmax(0, 1fr)); gap: 18px 26px; margin-top: 20px; }
svg { width: 100%; height: auto; display: block; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-size: 14px; }
th { text-align: left; color: var(--soft); font-weight: 600; font-size: 12.5px; white-space: nowrap; }
th, td { padding: 6px 14px 6px 0; border-bottom: 1px solid var(--line); vertical-align: top; }
tr:last-child td { border-bottom: 0; }
.target { white-space: nowrap; }
.number { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
td.message { font: 12.5px/1.45 ui-monospace, "SF Mono", Menlo, Consolas, "DejaVu Sans Mono", monospace; }
td.message { white-space: pre-wrap; overflow-wrap: anywhere; width: 80%; }
details { margin-top: 12px; border: 1px solid var(--line); border-radius: 9px; }
summary { cursor: pointer; padding: 9px 14px; font-weight: 600; font-size: 14px; }
pre {
  margin: 0; padding: 12px 16px; overflow: auto; max-height: 560px; background: var(--code); tab-size: 4;
  border-top: 1px solid var(--line); border-radius: 0 0 9px 9px;
  font: 12.5px/1.5 ui-monospace, "SF Mono", Menlo, Consolas, "DejaVu Sans Mono", monospace;
}
details > p { padding: 0 14px 10px; }
dl { display: grid; grid-template-columns: max-content minmax(0, 1fr); gap: 4px 18px; margin: 0; font-size: 14px; }
dt { color: var(--soft); }
dd { margin: 0; overflow-wrap: anywhere; }
footer { color: var(--soft); font-size: 13px; margin-top: 22px; }
@media (max-width: 900px) {
  main { padding: 18px 10px 40px; }
  section { padding: 16px 14px; }
  .charts { grid-template-columns: minmax(0, 1fr); }
  dl { grid-template-columns: minmax(0, 1fr); gap: 0; }
  dd { margin-bottom: 8px; }
}
@media print {
  body { background: none; }
  section { break-inside: avoid; border: 0; padding: 0; }
  pre { max-height: none; white-space: pre-wrap; }
}
"""
    + PICTURE_STYLE
)
