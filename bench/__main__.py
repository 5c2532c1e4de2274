"""`python -m bench`: measures, and shows the report."""

from __future__ import annotations

import click

from bench import render
from bench.run import measure
from semel.cli.output import Output


@click.command()
@click.option("--quick", is_flag=True, help="Only show that everything works: the figures mean nothing.")
@click.option("--rows", metavar="NAME,…", help="Only these rows; a wrong name lists what there is.")
@click.option(
    "--dir", "directory", type=click.Path(exists=True, file_okay=False), help="Where files are made."
)
@click.option("--markdown", "as_markdown", is_flag=True, help="The table of docs/figures.md.")
@click.option("--json", "as_json", is_flag=True, help="Answer with JSON.")
def main(quick: bool, rows: str | None, directory: str | None, as_markdown: bool, as_json: bool) -> None:
    """The figures, side by side with raw store operations, measured here."""
    out = Output(as_json)
    chosen = [name.strip() for name in rows.split(",")] if rows else None
    try:
        with out.steps("Measuring") as progress:
            report = measure(chosen, quick, directory, progress)
    except ValueError as wrong:
        raise click.BadParameter(str(wrong), param_hint="--rows") from None
    if as_json:
        out.data(render.data(report))
    elif as_markdown:
        click.echo(render.markdown(report))
    else:
        out.either(render.table(report), render.plain(report))


if __name__ == "__main__":
    main(prog_name="python -m bench")
