"""Verdicts in every format of the report, published curves in its tables, and `--strict`."""

import csv
import io
import json
import re
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from posenc.cli import main
from posenc.config.errors import RunError
from posenc.report.table import escape_latex
from posenc.report.write_report import write_report

ATTACK = "100% of A_B & <b>C</b> ~ {x} \\input | #1"


def perplexity(encoding: str, length: str) -> dict[str, Any]:
    return {"perplexity": {"encoding": encoding, "length": length}}


HOLDS = {
    "statement": "alibi falls",
    "left": perplexity("alibi", "2L"),
    "is": "below",
    "right": perplexity("alibi", "L"),
    "published": "18.73 against 19.73",
}
FAILS = {
    **HOLDS,
    "statement": "rope falls",
    "left": perplexity("rope", "2L"),
    "right": perplexity("rope", "L"),
}
BOTH = {
    "statement": ATTACK,
    "all": [{key: claim[key] for key in ("left", "is", "right")} for claim in (HOLDS, FAILS)],
}
UNMEASURED = {
    **HOLDS,
    "statement": "t5 falls",
    "where": {"train_length": 64},
    "left": perplexity("t5", "2L"),
}
TRIGRAM = {
    "statement": "alibi is below the trigram",
    "left": perplexity("alibi", "L"),
    "is": "below",
    "right": {"ngram": 3},
}
NGRAM_KEYS = ("data", "split", "count")
CURVE = {"train_length": 64, "unit": "perplexity", "source": "Some & Others 2022, Table 9"}
CURVES = [
    {**CURVE, "encoding": "alibi", "values": {"64": 19.73, "128": 18.81, "129": 18.8}},
    {**CURVE, "encoding": "rope", "values": {"129": 20.0}},
    {**CURVE, "encoding": "nope", "train_length": 32, "values": {"64": 21.0}},
]


def write_claims(
    folder: Path,
    fabricate: SimpleNamespace,
    *claims: dict[str, Any],
    premises: tuple[dict[str, Any], ...] = (),
) -> Path:
    """Write runs of two encodings with three seeds and trigram models, and claims about them."""
    for encoding in ("alibi", "rope"):
        for seed in (1, 2, 3):
            config = fabricate.config(encoding, 64, seed, evaluation={"split": "validation"})
            rise = -0.02 if encoding == "alibi" else 0.12
            rows = [fabricate.row(64 * n, 3.6 + 0.01 * seed + rise * (n - 1)) for n in (1, 2)]
            path = fabricate.run(folder, config, rows)
            ngram = {"order": 3, "loss": 3.7, **{key: rows[0][key] for key in NGRAM_KEYS}}
            (path / "ngrams.json").write_text(json.dumps({"rows": [ngram]}))
    plan = {
        "premises": premises,
        "claims": claims,
        "published": CURVES,
        "command": "posenc train name=trial",
    }
    (folder / "plan.json").write_text(json.dumps(plan))
    return folder


@pytest.fixture(scope="module")
def claim_report(
    tmp_path_factory: pytest.TempPathFactory, fabricate: SimpleNamespace
) -> SimpleNamespace:
    """A report on claims that hold, fail and were not measured (`folder`, `files`, `printed`)."""
    folder = tmp_path_factory.mktemp("claim_report") / "trial"
    write_claims(folder, fabricate, HOLDS, FAILS, BOTH, UNMEASURED)
    console = Console(file=(printed := io.StringIO()), width=100)
    index = write_report(folder, console, full=True)
    files = {file.name: file for file in index.parent.iterdir()}
    return SimpleNamespace(folder=folder, files=files, printed=printed.getvalue())


def test_every_format_has_the_verdicts(claim_report: SimpleNamespace, read_html: Any) -> None:
    page = read_html(claim_report.files["index.html"].read_text())
    assert "Verdicts: 1 holds, 2 fail, 1 not measured" in page.headings
    outcomes = [cell.text for cell, *_ in page.table("Claims").rows[1:]]
    parts = ["✓ holds", "✗ fails"]
    assert outcomes == ["✓ holds", "✗ fails", "✗ fails", *parts, "? not measured"]
    assert "1 holds, 2 fail, 1 not measured" in claim_report.printed.splitlines()[0]
    assert re.findall(r"^[✓✗?] \w+(?: \w+)*", claim_report.printed, re.M) == outcomes
    markdown = claim_report.files["claims.md"].read_text().splitlines()
    rows = [line for line in markdown if line.startswith("|")][2:]
    assert [line.split(" | ")[0][2:] for line in rows] == [outcome[2:] for outcome in outcomes]
    latex = claim_report.files["claims.tex"].read_text()
    in_latex = re.findall(r"^(holds|fails|not measured) & ", latex, re.M)
    assert in_latex == [outcome[2:] for outcome in outcomes]
    records = csv.DictReader(io.StringIO(claim_report.files["claims.csv"].read_text()))
    assert [(record["verdict"], record["outcome"]) for record in records] == [
        ("holds", "holds"),
        ("fails", "fails"),
        ("fails", "holds"),  # the clauses of the third claim
        ("fails", "fails"),
        ("not measured", "not measured"),
    ]


def test_claims_have_the_numbers_of_the_runs(claim_report: SimpleNamespace) -> None:
    """ALiBi falls by 0.02 nats per doubling in each seed: e^-0.02 - 1; seeds average 3.62."""
    (first, *_) = csv.DictReader(io.StringIO(claim_report.files["claims.csv"].read_text()))
    assert (first["verdict"], first["train_length"], first["seeds"]) == ("holds", "64", "1 2 3")
    assert float(first["difference"]) == pytest.approx(2.718281828**-0.02 - 1)
    assert float(first["right"]) == pytest.approx(2.718281828**3.62)
    assert float(first["low"]) == pytest.approx(float(first["high"]))
    for name in ("claims.md", "index.html"):
        assert "-1.98% (-1.98% to -1.98%)" in claim_report.files[name].read_text(), name
    assert "36.60 vs. 37.34" in claim_report.printed.replace("\n", " ")
    assert "18.73 against 19.73" in claim_report.printed


def test_a_claim_that_was_not_measured_has_the_command_that_trains_the_missing_runs(
    claim_report: SimpleNamespace,
) -> None:
    command = "posenc train name=trial encoding=t5 train_length=64 seed=1,2,3"
    assert command in " ".join(claim_report.printed.split())
    assert command in claim_report.files["index.html"].read_text()


def test_a_reason_that_all_clauses_share_is_shown_once(
    tmp_path: Path, fabricate: SimpleNamespace
) -> None:
    clause = {key: UNMEASURED[key] for key in ("left", "is", "right")}
    clauses = [clause, {**clause, "is": "above"}]
    shared = {"statement": "t5 changes", "where": UNMEASURED["where"], "all": clauses}
    folder = write_claims(tmp_path / "trial", fabricate, shared)
    index = write_report(folder, Console(file=io.StringIO()), full=True)
    assert index.with_name("claims.md").read_text().count("posenc train") == 1


def test_a_published_curve_has_a_row_if_it_shares_a_length_with_its_runs(
    claim_report: SimpleNamespace,
) -> None:
    markdown = claim_report.files["extrapolation.md"].read_text()
    assert "| alibi, published | - | 19.73 | 18.81 | 0.95 |" in markdown
    assert "rope, published" not in markdown and "nope, published" not in markdown
    assert "Some & Others 2022, Table 9" in markdown
    for name in ("index.html", "extrapolation.csv", "extrapolation.tex"):
        assert "alibi, published" in claim_report.files[name].read_text(), name
    assert "alibi, published" in claim_report.printed


def test_claims_are_escaped(claim_report: SimpleNamespace) -> None:
    assert "<b>C</b>" not in claim_report.files["index.html"].read_text()
    assert "A_B & \\<b>C" in claim_report.files["claims.md"].read_text()
    assert ATTACK in claim_report.printed


def test_latex_is_balanced_and_escaped(claim_report: SimpleNamespace) -> None:
    for name in ("claims.tex", "extrapolation.tex"):
        text = claim_report.files[name].read_text()
        bare = re.sub(r"\\[{}\\%&$#_]", "", text.replace("\\\\\n", "\n"))
        depth = [bare[:i].count("{") - bare[:i].count("}") for i in range(len(bare) + 1)]
        assert min(depth) == 0 and depth[-1] == 0
        assert not re.search(r"[%#$_]", bare.replace("$L$", "")), name
        assert text.count("\\begin{") == text.count("\\end{")
        rows = re.findall(r"\\midrule\n(.*?)\\bottomrule", bare, re.DOTALL)
        assert len({line.count("&") for line in "".join(rows).splitlines()}) == 1, name
    assert escape_latex(ATTACK) in claim_report.files["claims.tex"].read_text()


@pytest.fixture(scope="module")
def premise_report(
    tmp_path_factory: pytest.TempPathFactory, fabricate: SimpleNamespace
) -> SimpleNamespace:
    """A report with a premise that holds and one that fails (`files`, `printed`)."""
    folder = tmp_path_factory.mktemp("premise_report") / "trial"
    write_claims(folder, fabricate, HOLDS, BOTH, premises=(TRIGRAM, FAILS))
    console = Console(file=(printed := io.StringIO()), width=100)
    index = write_report(folder, console, full=True)
    files = {file.name: file for file in index.parent.iterdir()}
    return SimpleNamespace(files=files, printed=printed.getvalue())


def test_every_format_states_the_premises_first(
    premise_report: SimpleNamespace, read_html: Any
) -> None:
    page = read_html(premise_report.files["index.html"].read_text())
    assert page.headings[1:3] == [
        "Premises: 1 holds, 1 fails",
        "Verdicts: 2 with a premise not met",
    ]
    tables = (page.table("Premises"), page.table("Claims"))
    premises, claims = ([cell.text for cell, *_ in table.rows[1:]] for table in tables)
    assert premises == ["✓ holds", "✗ fails"]
    assert claims == ["? premise not met"] * 4  # two claims, the second with two clauses
    for text in (
        premise_report.printed,
        *(premise_report.files[f"claims.{kind}"].read_text() for kind in FORMATS),
    ):
        first, second = text.index("alibi is below the trigram"), text.index("alibi falls")
        assert first < second
    finding = "1 of 2 premises are not met (fails): “rope falls”. 2 claims: 2 with a premise"
    assert premise_report.printed.startswith(finding) and finding in page.text


def test_with_too_few_seeds_the_finding_begins_with_results_instead_of_counts_of_claims(
    fabricate: SimpleNamespace, tmp_path: Path
) -> None:
    folder = write_claims(tmp_path / "trial", fabricate, HOLDS, BOTH)
    for run in folder.glob("*-s[23]-*"):
        shutil.rmtree(run)
    write_report(folder, Console(file=(printed := io.StringIO()), width=300))
    first = printed.getvalue().splitlines()[0]
    assert first.index("alibi") < first.index("Judging the 2 claims requires at least 3 seeds.")


FORMATS = ("csv", "md", "tex")


def test_a_claim_whose_premise_is_not_met_has_its_statement_and_numbers(
    premise_report: SimpleNamespace, read_html: Any
) -> None:
    """RoPE rises by 0.12 nats: e^0.12 - 1 = 12.75%."""
    page = read_html(premise_report.files["index.html"].read_text())
    (alibi_falls,) = [row for row in page.table("Claims").rows if row[2].text == "alibi falls"]
    assert "rope falls" in alibi_falls[2].details and "+12.75%" in alibi_falls[2].details
    printed = " ".join(premise_report.printed.split())
    assert "rope falls" in printed and "+12.75%" in printed
    rows = list(csv.DictReader(io.StringIO(premise_report.files["claims.csv"].read_text())))
    assert [row["kind"] for row in rows] == ["premise"] * 2 + ["claim"] * 3
    for row in rows[2:]:
        assert row["verdict"] == row["outcome"] == "premise not met"
        assert "rope falls" in row["reason"] and "+12.75%" in row["reason"]
    trigram = rows[0]
    assert float(trigram["right"]) == pytest.approx(2.718281828**3.7)
    assert float(trigram["left"]) == pytest.approx(2.718281828**3.62)


@pytest.mark.parametrize("premise", [FAILS, UNMEASURED])
def test_strict_needs_every_premise_to_hold(
    tmp_path: Path, fabricate: SimpleNamespace, premise: dict[str, Any]
) -> None:
    console = Console(file=io.StringIO())
    folder = write_claims(tmp_path / "met", fabricate, HOLDS, premises=(TRIGRAM,))
    write_report(folder, console, strict=True)
    folder = write_claims(tmp_path / "unmet", fabricate, HOLDS, premises=(TRIGRAM, premise))
    with pytest.raises(RunError, match="premises: 1 holds, 1 "):
        write_report(folder, console, strict=True)


@pytest.mark.slow
@pytest.mark.parametrize(("claims", "code"), [((HOLDS, UNMEASURED), 0), ((HOLDS, FAILS), 1)])
def test_strict_sets_the_exit_code_after_the_report_is_written(
    tmp_path: Path,
    fabricate: SimpleNamespace,
    capsys: pytest.CaptureFixture[str],
    claims: tuple[dict[str, Any], ...],
    code: int,
) -> None:
    folder = write_claims(tmp_path / "outputs" / "trial", fabricate, *claims)
    arguments = ["report", "name=trial", f"outputs_dir={tmp_path}/outputs"]
    assert main([*arguments, "--strict"]) == code
    error = capsys.readouterr().err
    assert ("1 holds, 1 fails" in error) == bool(code)
    assert (folder / "report" / "index.html").exists()
    assert main(arguments) == 0


def test_an_experiment_without_claims_has_no_verdicts_section(
    trial_report: SimpleNamespace,
) -> None:
    text = trial_report.index.read_text()
    assert 'id="verdicts"' not in text and 'href="#verdicts"' not in text
    assert not list(trial_report.index.parent.glob("claims.*"))
    assert "Claims" not in trial_report.printed
