"""The report's folder as a whole: its texts, its links, and what it must not contain."""

import csv
import html
import io
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from shutil import copytree
from types import SimpleNamespace
from typing import Any
from urllib.parse import unquote

import pytest
import yaml
from rich.console import Console

from consoles import printed
from posenc.config.errors import ConfigError, RunError
from posenc.report.page import Page, write_page
from posenc.report.write_report import write_report
from posenc.runs.run_directory import RunDirectory
from posenc.runs.trusted_code import record_trusted

FIGURES = (
    "perplexity_by_length",
    "perplexity_relative",
    "loss_by_position",
    "loss_by_position_heat",
)
FILES = {
    "index.html",
    "runs.csv",
    "extrapolation.csv",
    "extrapolation.md",
    "extrapolation.tex",
    *(f"{stem}.{kind}" for stem in FIGURES for kind in ("csv", "png", "svg")),
}


def test_all_files_are_written_and_nothing_else(trial_report: SimpleNamespace) -> None:
    assert trial_report.index == trial_report.folder / "report" / "index.html"
    assert {path.name for path in trial_report.index.parent.iterdir()} == FILES


def test_the_page_loads_nothing_and_every_link_resolves(
    trial_report: SimpleNamespace, read_html: Any
) -> None:
    page = read_html(trial_report.index.read_text())
    assert page.loads
    assert all(target.startswith("data:") for target in page.loads)
    assert broken_links(trial_report.index, page) == []
    assert {unquote(link) for link in page.links} >= FILES - {"index.html"}


def test_a_copy_of_the_folder_has_no_broken_link(
    trial_report: SimpleNamespace, tmp_path: Path, read_html: Any
) -> None:
    index = copytree(trial_report.index.parent, tmp_path / "results") / "index.html"
    assert broken_links(index, read_html(index.read_text())) == []


def test_every_link_in_docs_results_resolves(read_html: Any) -> None:
    folder = Path(__file__).parents[2] / "docs" / "results"
    links = re.findall(r"\]\(([^)#:]+)\)", (folder / "README.md").read_text())
    assert links
    assert [link for link in links if not (folder / link).exists()] == []
    for index in folder.glob("*/index.html"):
        assert broken_links(index, read_html(index.read_text())) == []


def broken_links(index: Path, page: Any) -> list[str]:
    """Return the links of a page to files or fragments that do not exist."""
    links = [link for link in page.links if not re.match("https?://", link)]
    files, fragments = zip(*(link.partition("#")[::2] for link in links), strict=True)
    missing = [file for file in files if not (index.parent / unquote(file)).exists()]
    return [*missing, *(f"#{name}" for name in fragments if name and name not in page.ids)]


def test_the_page_begins_with_its_finding_then_the_main_table_and_figure(
    three_seed_report: SimpleNamespace, read_html: Any
) -> None:
    text = three_seed_report.index.read_text()
    page = read_html(text)
    assert "Finding: L = 64: perplexity is lowest for rope at 64 tokens" in page.text
    parts = ("Finding:", "<h2", "<table>", 'id="perplexity_by_length"', 'id="conclusions"')
    indices = [text.index(part) for part in parts]
    assert indices == sorted(indices)


def test_a_page_is_small(three_seed_report: SimpleNamespace) -> None:
    assert three_seed_report.index.stat().st_size < 1_000_000


def test_tables_figures_and_sections_have_names_for_screen_readers(
    trial_report: SimpleNamespace, read_html: Any
) -> None:
    text = trial_report.index.read_text()
    page = read_html(text)
    assert {"header", "nav", "main"} <= set(page.tags)
    assert page.tables and all(table.caption for table in page.tables)
    assert page.tags.count("figure") == len(re.findall('<img class="still" alt="[^"]+"', text))
    labels = re.findall('aria-labelledby="([^"]+)"', text)
    assert len(labels) == page.tags.count("section") and set(labels) <= page.ids


def test_the_terminal_has_a_short_table_for_each_training_length(
    folder: Path, console: Console
) -> None:
    write_report(folder, console)
    lines = printed(console).splitlines()
    assert sum(line.startswith("Perplexity, trained at L") for line in lines) == 2
    assert sum(line.startswith("sinusoidal") for line in lines) == 2
    assert "±" not in printed(console) and "Limitations" not in printed(console)
    assert any(line.startswith("2 of 16 runs missing") for line in lines)
    assert len(lines) < 40


def test_a_narrow_terminal_has_fewer_lengths(folder: Path) -> None:
    console = Console(file=io.StringIO(), width=45)
    write_report(folder, console)
    header = next(line for line in printed(console).splitlines() if line.split()[:1] == ["64"])
    assert header.split()[-1] == "1024" and len(header.split()) < 5


def test_the_same_runs_give_identical_files(
    trial_report: SimpleNamespace, folder: Path, console: Console
) -> None:
    first = {path.name: path.read_bytes() for path in trial_report.index.parent.iterdir()}
    again = write_report(folder, console).parent
    assert {path.name: path.read_bytes() for path in again.iterdir()} == first


def test_the_page_has_the_experimental_setup(trial_report: SimpleNamespace, read_html: Any) -> None:
    text = read_html(trial_report.index.read_text()).text
    for item in (
        "1,048,576 parameters",
        "1,500,000 tokens per run",
        "python_stdlib (data f00dfeed)",
        "bpe (vocab_size 2048)",
        "81,920 tokens scored per length",
        "float32",
        "device cpu, threads 1",
        "rope: causal (requested)",
        "2025-10-09 to 2025-10-10",
        "posenc train name=trial encoding=sinusoidal,rope,alibi,nope seed=1,2",
    ):
        assert item in text, item


def test_conclusions_and_limitations_are_computed_from_the_runs(
    trial_report: SimpleNamespace,
) -> None:
    text = " ".join(trial_report.printed.split())
    # from 64 to 1024 tokens, there are four doublings: e^(4 x slope)
    assert "alibi 0.92, rope 1.62, nope 2.23, sinusoidal 3.32" in text
    assert "rope at 64 tokens (35.34)" in text and "alibi at 1024 tokens (34.30)" in text
    assert "early-token curse" in text
    assert "windows of 64 tokens, half of all tokens" in text and "at most 32 tokens" in text
    assert "windows of 1024" in text and "3.1%" in text
    assert "not confidence intervals" in text
    assert "full windows" not in text  # 81920 / 1024 = 80 windows are enough


def test_one_seed_and_few_windows_are_limitations(
    tmp_path: Path, fabricate: SimpleNamespace, console: Console
) -> None:
    rows = [fabricate.row(64, 3.0), fabricate.row(16_000, 3.1)]
    rows += [fabricate.row(64, 3.0, protocol="last_k", stride=512, count=512 * 29)]
    fabricate.run(tmp_path / "one", fabricate.config("alibi", 64, 1), rows)
    write_report(tmp_path / "one", console, full=True)
    text = " ".join(printed(console).split())
    assert "single seed" in text and "no interval" in text
    assert "at 16000 tokens and above, fewer than 30 full windows" in text
    assert "5 windows of 16000 tokens" in text
    assert "29 windows of 64 tokens" in text  # each scores 512 targets


def test_the_finding_compares_encodings_at_the_longest_length_that_all_have(
    tmp_path: Path, fabricate: SimpleNamespace, console: Console
) -> None:
    for encoding, lengths in (("alibi", (64, 128, 256)), ("rope", (64, 128))):
        losses = {64: 3.0, 128: 2.9 if encoding == "rope" else 3.1, 256: 2.0}
        rows = [fabricate.row(length, losses[length]) for length in lengths]
        rows.append(fabricate.row(128, 2.5, swap="yarn"))
        fabricate.run(tmp_path / "one", fabricate.config(encoding, 64, 1), rows)
    write_report(tmp_path / "one", console)
    first = " ".join(printed(console).split("Perplexity, trained")[0].split())
    assert "for rope at 128 tokens" in first
    assert "256" not in first and "yarn" not in first


def test_a_diverged_model_has_a_row_and_a_curve(
    tmp_path: Path, fabricate: SimpleNamespace, console: Console
) -> None:
    """The perplexity of 900 nats does not fit into a float; `evaluate` saves null for it."""
    for encoding, loss in (("alibi", 900.0), ("rope", 3.1)):
        for seed in (1, 2, 3):
            row = fabricate.row(128, 3.1) | {"loss": loss + seed}
            row |= {"sum": row["loss"] * row["count"]}
            row |= {key: None for key in row if key.startswith("perplexity")}
            rows = [fabricate.row(64, 3.0), row]
            fabricate.run(tmp_path / "one", fabricate.config(encoding, 64, seed), rows)
    index = write_report(tmp_path / "one", console, full=True)
    assert "> 1e+99" in printed(console)
    text = index.with_name("perplexity_by_length.csv").read_text()
    curve = [row for row in csv.DictReader(io.StringIO(text)) if row["encoding"] == "alibi"]
    assert [(row["length"], float(row["loss"])) for row in curve] == [("64", 3.0), ("128", 902.0)]


def test_each_run_with_a_corrupt_file_is_named_and_the_others_are_reported(
    tmp_path: Path, fabricate: SimpleNamespace, console: Console
) -> None:
    paths = {}
    for seed in range(1, 8):
        rows = [fabricate.row(64, 3.0), fabricate.row(128, 3.1)]
        paths[seed] = fabricate.run(tmp_path / "one", fabricate.config("alibi", 64, seed), rows)
    contents = json.loads((paths[2] / "evaluation.json").read_text())
    del contents["rows"][0]["count"]
    (paths[2] / "evaluation.json").write_text(json.dumps(contents))
    (paths[3] / "timing.jsonl").write_text('{"tokens_per_second": [], "memory_mb": "1"}\n')
    (paths[4] / "ngrams.json").write_text('{"rows": [1]}')
    (paths[5] / "loss_by_block.npz").write_bytes(b"PK")
    (paths[6] / "mirror.json").mkdir()  # which reports do not read
    os.mkfifo(paths[7] / "diff.patch")
    write_report(tmp_path / "one", console, full=True)
    text = " ".join(printed(console).split())
    assert "5 of 7 runs missing" in text and "missing or invalid: count" in text
    names = ("evaluation.json", "timing.jsonl", "ngrams.json", "loss_by_block.npz", "diff.patch")
    assert all(f"/{name} is " in text for name in names)


@pytest.mark.parametrize("arguments", [["report", "name=one"], ["status", "name=one"]])
def test_a_closed_pipe_ends_the_command_without_a_message(
    tmp_path: Path, fabricate: SimpleNamespace, arguments: list[str]
) -> None:
    fabricate.run(tmp_path / "one", fabricate.config("alibi", 64, 1), [fabricate.row(64, 3.0)])
    command = [sys.executable, "-m", "posenc", *arguments, f"outputs_dir={tmp_path}"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None and process.stderr is not None
    process.stdout.close()
    assert (process.stderr.read(), process.wait()) == ("", 141)
    process.stderr.close()


def test_runs_that_were_scored_on_different_tokens_are_a_limitation(
    tmp_path: Path, fabricate: SimpleNamespace, console: Console
) -> None:
    for seed, tokens in ((1, "a" * 12), (2, "b" * 12)):
        rows = [fabricate.row(64, 3.0), fabricate.row(128, 3.1, tokens_hash=tokens)]
        fabricate.run(tmp_path / "two", fabricate.config("alibi", 64, seed), rows)
    write_report(tmp_path / "two", console, full=True)
    text = " ".join(printed(console).split())
    assert "At 128 tokens, the runs were not all scored on the same tokens" in text


def test_runs_of_different_versions_of_the_source_are_a_limitation(
    tmp_path: Path, fabricate: SimpleNamespace, console: Console
) -> None:
    for seed in (1, 2):
        config, rows = fabricate.config("alibi", 64, seed), [fabricate.row(64, 3.0)]
        run = RunDirectory(fabricate.run(tmp_path / "two", config, rows))
        status = run.status()
        status.replace(resolved={**status.resolved, "code": f"{seed:012d}"}).write(run.status_file)
    write_report(tmp_path / "two", console, full=True)
    assert "2 versions of posenc's source files" in " ".join(printed(console).split())


def test_different_tokens_at_different_training_lengths_are_no_limitation(
    tmp_path: Path, fabricate: SimpleNamespace, console: Console
) -> None:
    for train_length, tokens in ((64, "a" * 12), (128, "b" * 12)):
        rows = [fabricate.row(128, 3.0), fabricate.row(256, 3.1, tokens_hash=tokens)]
        fabricate.run(tmp_path / "two", fabricate.config("alibi", train_length, 1), rows)
    write_report(tmp_path / "two", console, full=True)
    assert "not all scored on the same tokens" not in " ".join(printed(console).split())


def test_unfinished_runs_are_listed_in_the_terminal_the_page_and_markdown(
    trial_report: SimpleNamespace, read_html: Any
) -> None:
    failed, pending = (
        next(trial_report.folder.glob(f"nope-L128-s{seed}-*")).name for seed in (1, 2)
    )
    lines = ("2 of 16 runs missing", f"{failed}: failed: loss is NaN", f"{pending}: pending")
    markdown = (trial_report.index.parent / "extrapolation.md").read_text()
    for text in (trial_report.printed, read_html(trial_report.index.read_text()).text, markdown):
        for line in lines:
            assert line in text


def test_rows_of_a_run_that_is_still_training_are_left_out(
    folder: Path, fabricate: SimpleNamespace, console: Console
) -> None:
    config = fabricate.config("t5", 64, 1)
    rows = [fabricate.row(64, 1.0)]
    fabricate.run(folder, config, rows, state="interrupted", tokens=9, total_tokens=10)
    index = write_report(folder, console, full=True)
    assert "2.72" not in (index.parent / "extrapolation.csv").read_text()
    assert f"{config['planned']['run']}: interrupted" in printed(console)


def test_files_of_an_earlier_report_are_removed(folder: Path, console: Console) -> None:
    plan = folder / "plan.json"
    without_claims = plan.read_text()
    claim = """
- statement: ALiBi is better than RoPE
  left: {perplexity: {encoding: alibi, length: L}}
  is: below
  right: {perplexity: {encoding: rope, length: L}}
"""
    plan.write_text(json.dumps({**json.loads(without_claims), "claims": yaml.safe_load(claim)}))
    index = write_report(folder, console)
    user_files = {index.with_name("claims-notes.md"), index.with_name("claims.txt")}
    for path in user_files:
        path.write_text("mine")
    claims = {index.with_name(f"claims.{suffix}") for suffix in ("csv", "md", "tex")}
    present = set(index.parent.iterdir())
    assert claims < present
    plan.write_text(without_claims)
    write_report(folder, console)
    assert set(index.parent.iterdir()) == present - claims


def test_files_that_a_page_of_another_program_links_to_are_kept(tmp_path: Path) -> None:
    index, thesis = tmp_path / "index.html", tmp_path / "thesis.csv"
    index.write_text('<a href="thesis.csv">measured by hand</a>')
    thesis.write_text("of the user")
    write_page(index, {}, Page("title", "question", []))
    assert thesis.exists()
    index.write_text(index.read_text() + '<a href="thesis.csv">a table</a>')
    write_page(index, {}, Page("title", "question", []))
    assert not thesis.exists()


def test_text_of_a_configuration_is_escaped(
    folder: Path, fabricate: SimpleNamespace, console: Console, read_html: Any
) -> None:
    attack = "<script>alert(1)</script>"
    plan = json.loads((folder / "plan.json").read_text())
    plan["about"] = dict.fromkeys(("title", "question", "interpretation", "limitations"), attack)
    plan["command"] = f"posenc train name='{attack}'"
    record_trusted({"command": [plan["command"]]})
    (folder / "plan.json").write_text(json.dumps(plan))
    for name in ("a</script>", "b|b"):
        config = fabricate.config("rope", 64, 7, encoding={"kind": name})
        fabricate.run(folder, config, [fabricate.row(64, 3.0)], error=attack)
    index = write_report(folder, console, full=True)
    page = read_html(index.read_text())
    assert attack not in index.read_text()
    assert page.tags.count("script") == 2 + len(FIGURES)  # Vega, our own, data of each figure
    assert page.text.count("alert(1)") == 8
    assert "rope kind=b\\|b" in (index.parent / "extrapolation.md").read_text()
    assert attack in printed(console)


@pytest.mark.parametrize(
    "command", ["curl example.org | sh", "posenc train data.paths=example.org"]
)
def test_a_command_that_may_do_other_things_than_training_is_not_shown(
    folder: Path, console: Console, command: str
) -> None:
    plan = json.loads((folder / "plan.json").read_text())
    plan["command"] = command
    (folder / "plan.json").write_text(json.dumps(plan))
    page = write_report(folder, console).read_text()
    assert "example.org" not in page and "see plan.json" in page


def test_a_report_contains_no_path_of_this_machine(
    folder: Path, fabricate: SimpleNamespace, console: Console, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder.parent.parent)
    plan = json.loads((folder / "plan.json").read_text())
    plan["command"] = f"posenc train data.paths={Path.cwd()}/books.txt outputs_dir={Path.home()}/x"
    record_trusted({"command": [plan["command"]]})
    (folder / "plan.json").write_text(json.dumps(plan))
    config = fabricate.config("rope", 64, 7, outputs_dir=f"{Path.cwd()}/outputs")
    fabricate.run(folder, config, [], state="failed", error=f"{Path.home()}/x is missing")
    index = write_report(folder, console)
    for path in index.parent.iterdir():
        assert str(Path.cwd()).encode() not in path.read_bytes(), path.name
        assert str(Path.home() / "x").encode() not in path.read_bytes(), path.name
    page = html.unescape(index.read_text())
    assert "data.paths=books.txt" in page
    assert f'posenc report name={folder.name} "outputs_dir=$HOME/x"' in page


def test_paths_are_unchanged_if_the_home_directory_is_the_root(
    folder: Path, fabricate: SimpleNamespace, console: Console, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", "/")
    config = fabricate.config("rope", 64, 7)
    fabricate.run(folder, config, [], state="failed", error="/data/x is missing")
    assert "/data/x is missing" in write_report(folder, console).read_text()


def test_the_last_line_is_the_path_of_the_page(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder.parent.parent)
    console = Console(file=io.StringIO(), width=40)
    write_report(Path("outputs/trial"), console)
    assert printed(console).splitlines()[-1] == "outputs/trial/report/index.html"


def test_the_reproduction_section_has_commands_version_and_data(
    three_seed_report: SimpleNamespace, read_html: Any
) -> None:
    text = read_html(three_seed_report.index.read_text()).text
    for words in ("posenc train name=various", "posenc report name=various", "posenc 0.2.0"):
        assert words in text
    assert "f00dfeed0123" in text


def test_runs_csv_has_every_measurement_once_and_every_run(trial_report: SimpleNamespace) -> None:
    lines = (trial_report.folder / "report/runs.csv").read_text().splitlines()
    files = trial_report.folder.glob("*/evaluation.json")
    measured = [
        (file, row["length"], row["loss"])
        for file in files
        for row in json.loads(file.read_text())["rows"]
    ]
    assert len(measured) == 2 * len(set(measured))  # by_position has the same windows
    # a header, and a line for each of two runs without rows
    assert len(lines) == 1 + len(set(measured)) + 2
    assert any(re.match(r"nope-L128-s1-\w+,failed,nope,128,1,1500000,tiny,-", n) for n in lines)


def test_runs_csv_has_a_column_for_every_swept_setting(
    tmp_path: Path, fabricate: SimpleNamespace, console: Console
) -> None:
    def write(choice: str, seed: int, **changes: Any) -> None:
        config = fabricate.config(choice, 64, seed, **changes)
        rows = [fabricate.row(64, 3.0), fabricate.row(64, 3.5, protocol="by_position")]
        fabricate.run(tmp_path / "swept", config, rows)

    for base in (100, 10000):
        write("rope", 1, encoding={"layout": "half", "spectrum": {"base": base}})
        write("rope", 2, encoding={"layout": "half", "spectrum": {"base": base}}, tokens=3_000_000)
    write("alibi", 1, batch_tokens=8192)
    write_report(tmp_path / "swept", console)
    text = (tmp_path / "swept/report/runs.csv").read_text()
    rows = [row for row in csv.DictReader(io.StringIO(text)) if row["protocol"] == "nonoverlapping"]
    columns = ("tokens", "model", "encoding.spectrum.base", "batch_tokens")
    values = sorted(tuple(row[name] for name in columns) for row in rows)
    assert values == [
        ("1500000", "tiny", "-", "8192"),
        ("1500000", "tiny", "100", "4096"),
        ("1500000", "tiny", "10000", "4096"),
        ("3000000", "tiny", "100", "4096"),
        ("3000000", "tiny", "10000", "4096"),
    ]
    assert not {"encoding.layout", "optimizer.learning_rate", "data.fingerprint"} & rows[0].keys()
    # rows by position have a different loss here, so they are kept as separate measurements
    assert text.count("by_position") == 5


def test_a_page_without_losses_by_position_names_the_setting_that_adds_them(
    tmp_path: Path, fabricate: SimpleNamespace, console: Console, read_html: Any
) -> None:
    rows = [fabricate.row(64, 3.0)]
    fabricate.run(tmp_path / "short", fabricate.config("alibi", 64, 1), rows)
    index = write_report(tmp_path / "short", console)
    assert "evaluation.protocols=" in read_html(index.read_text()).text
    assert not list(index.parent.glob("loss_by_position*"))


def test_the_table_uses_rows_by_position_if_there_are_no_others(
    tmp_path: Path, fabricate: SimpleNamespace, console: Console
) -> None:
    rows = [fabricate.row(64, 3.0, protocol="by_position")]
    fabricate.run(tmp_path / "only", fabricate.config("alibi", 64, 1), rows)
    write_report(tmp_path / "only", console)
    assert "20.09" in (tmp_path / "only/report/extrapolation.md").read_text()


def test_the_error_for_a_missing_folder_lists_the_available_ones(
    folder: Path, console: Console
) -> None:
    with pytest.raises(ConfigError, match=r"trail .*available: trial.*did you mean trial"):
        write_report(folder.with_name("trail"), console)


def test_the_error_for_an_empty_folder_has_the_command_that_creates_runs(
    tmp_path: Path, console: Console
) -> None:
    folder = tmp_path / "outputs" / "empty"
    folder.mkdir(parents=True)
    with pytest.raises(ConfigError, match="`posenc train`"):
        write_report(folder, console)


def test_the_error_for_a_folder_without_evaluations_has_the_command_that_shows_its_runs(
    tmp_path: Path, fabricate: SimpleNamespace, console: Console
) -> None:
    fabricate.run(tmp_path / "new", fabricate.config("rope", 64, 1), [], state="failed", tokens=1)
    with pytest.raises(RunError, match=r"1 failed.*posenc status name=new"):
        write_report(tmp_path / "new", console)
    assert not (tmp_path / "new" / "report").exists()
