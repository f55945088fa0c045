"""`penstock pipeline`: the jobs on Spark, one module for each."""

import typer

from penstock.cli.pipeline import archive, audit, load, package, replay, signals, skew, triage, whatif

app = typer.Typer(no_args_is_help=True, rich_markup_mode="rich")


@app.callback()
def pipeline() -> None:
    """Archive, analyse, triage, replay, load and audit, on Spark.

    Every job runs on this machine by default, and unchanged on a cluster: say
    --master spark://host:7077, or use spark-submit. It needs penstock\\[spark] and Java 17.

    [bold]Try:[/]

    penstock pipeline archive http://127.0.0.1:8080 ./archive     settled messages become Parquet
    penstock pipeline signals ./archive --out ./report            how it went, as tables and plots
    penstock pipeline triage ./archive --out ./triage             why messages failed, grouped
    """


app.command("archive")(archive.archive)
app.command("audit")(audit.audit_command)
app.command("load")(load.load)
app.command("package")(package.package)
app.command("replay")(replay.replay)
app.command("signals")(signals.signals_command)
app.command("skew")(skew.skew_command)
app.command("triage")(triage.triage)
app.command("whatif")(whatif.whatif)
