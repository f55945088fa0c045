"""Reports for people: one HTML file that needs nothing else, neither a network nor a script.

    figures.py   numbers, shares and spans of time as a person reads them
    plots.py     plots as inline SVG: lines, stacked areas, bars
    page.py      the page around them: headline numbers, grids of plots, tables
    folder.py    a folder of results that is there as a whole or not at all

```
from penstock.pipeline.reports import page, plots

plot = plots.lines("Depth", times, [plots.Series("live", depths)], unit="")
text = page.page("Golden signals", lead="…", sections=[page.Section("orders", [page.grid([plot])])])
```

Everything given is text of strangers: it is escaped where it is put in, once.
"""
