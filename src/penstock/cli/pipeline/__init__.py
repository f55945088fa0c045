"""`penstock pipeline`: the jobs on Spark, one module for each."""

import typer

from penstock.cli.pipeline import archive, package, reports, send_jobs, service, upkeep

app = typer.Typer(no_args_is_help=True, rich_markup_mode="rich")


@app.callback()
def pipeline() -> None:
    """Archive, analyse, triage, replay, load and audit, on Spark.

    Every job runs on this machine by default, and unchanged on a cluster: say
    --master spark://host:7077, or use spark-submit. It needs penstock\\[spark] and Java 17.

    [bold]Try:[/]

    penstock pipeline archive http://127.0.0.1:8080 ./archive     settled messages become a table
    penstock pipeline signals ./archive --out ./report            how it went, as tables and plots
    penstock pipeline triage ./archive --out ./triage             why messages failed, grouped
    penstock pipeline run pipeline.toml                           all of that, by itself
    """


RUN, REMEMBER, UNDERSTAND, SEND, SHIP = "Run", "Remember", "Understand", "Send", "Clusters"

app.command("run", rich_help_panel=RUN)(service.run_command)
app.command("archive", rich_help_panel=REMEMBER)(archive.archive)
app.command("archive-compact", rich_help_panel=REMEMBER)(upkeep.compact)
app.command("archive-vacuum", rich_help_panel=REMEMBER)(upkeep.vacuum)
app.command("archive-expire", rich_help_panel=REMEMBER)(upkeep.expire)
app.command("archive-delete", rich_help_panel=REMEMBER)(upkeep.delete)
app.command("audit", rich_help_panel=REMEMBER)(reports.audit_command)
app.command("signals", rich_help_panel=UNDERSTAND)(reports.signals_command)
app.command("triage", rich_help_panel=UNDERSTAND)(reports.triage_command)
app.command("skew", rich_help_panel=UNDERSTAND)(reports.skew_command)
app.command("whatif", rich_help_panel=UNDERSTAND)(reports.whatif_command)
app.command("replay", rich_help_panel=SEND)(send_jobs.replay)
app.command("load", rich_help_panel=SEND)(send_jobs.load)
app.command("package", rich_help_panel=SHIP)(package.package)
app.command("prepare", rich_help_panel=RUN)(package.prepare)
