"""`python -m bench`: measures, and shows the report."""

from __future__ import annotations

from pathlib import Path

import click

from bench import picture, render
from bench.experiments import EXPERIMENTS
from bench.figures import BenchReport
from bench.run import measure
from semel.cli.output import Output
from tools import readme_figures

_FILE = click.Path(dir_okay=False, path_type=Path)


@click.command()
@click.option("--quick", is_flag=True, help="Only show that everything works: the figures mean nothing.")
@click.option("--rows", metavar="NAME,…", help="Only these rows; a wrong name lists what there is.")
@click.option(
    "--dir", "directory", type=click.Path(exists=True, file_okay=False), help="Where files are made."
)
@click.option(
    "--from",
    "earlier",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    multiple=True,
    help="Measure nothing: show what was answered with --json and kept in this file, or in several.",
)
@click.option("--picture", "picture_file", type=_FILE, help="Draw the ratios into this file, as SVG.")
@click.option("--markdown", "as_markdown", is_flag=True, help="The tables of docs/figures.md.")
@click.option(
    "--write", is_flag=True, help="Make docs/figures.md, its picture and the README's rows of this report."
)
@click.option("--json", "as_json", is_flag=True, help="Answer with JSON.")
def main(
    quick: bool,
    rows: str | None,
    directory: str | None,
    earlier: tuple[Path, ...],
    picture_file: Path | None,
    as_markdown: bool,
    write: bool,
    as_json: bool,
) -> None:
    """The figures, side by side with their yardsticks, measured here."""
    if write and (quick or rows):
        raise click.UsageError(
            "--write makes the whole page: measure everything, or join several runs with --from."
        )
    out = Output(as_json)
    if earlier:
        every_row = (row for one in EXPERIMENTS for row in one.rows)
        report = render.from_json([path.read_bytes() for path in earlier], every_row)
    else:
        report = _measured(out, rows, quick, directory)
    if picture_file is not None:
        picture_file.write_text(picture.drawn(report), encoding="utf-8")
    if write:
        _write(report)
    if as_json:
        out.data(render.data(report))
    elif as_markdown:
        click.echo(render.markdown(report, picture_file.name if picture_file else None))
    else:
        out.either(render.table(report), render.plain(report))


def _write(report: BenchReport) -> None:
    try:
        readme_figures.publish(
            render.markdown(report, readme_figures.PICTURE.name).rstrip(), picture.drawn(report)
        )
    except KeyError as absent:
        raise click.ClickException(
            f"Nothing was written: the README shows {absent}, which is not in this report."
        ) from None


def _measured(out: Output, rows: str | None, quick: bool, directory: str | None) -> BenchReport:
    chosen = [name.strip() for name in rows.split(",")] if rows else None
    try:
        with out.steps("Measuring") as progress:
            return measure(chosen, quick, directory, progress)
    except ValueError as wrong:
        raise click.BadParameter(str(wrong), param_hint="--rows") from None


if __name__ == "__main__":
    main(prog_name="python -m bench")
