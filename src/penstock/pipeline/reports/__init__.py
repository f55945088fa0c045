"""Reports for people: one HTML file that needs nothing else, neither a network nor a script.

    html.py      the page: headline numbers, grids of plots, tables; and figures as a person reads them
    plots.py     plots as inline SVG: lines, stacked areas, bars
    folder.py    a folder of results that is there as a whole or not at all, and its CSV files

```
from penstock.pipeline.reports import html, plots

plot = plots.lines("Depth", times, [plots.Series("live", depths)], unit="")
text = html.page("Golden signals", lead="…", sections=[html.Section("orders", [html.grid([plot])])])
```

Everything given is text of strangers: it is escaped where it is put in, once.
"""
