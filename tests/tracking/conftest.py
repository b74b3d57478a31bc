"""Run directories, W&B's own reader of what its client left, and as much server as it needs."""

import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Generator
from contextlib import ExitStack
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from omegaconf import DictConfig, OmegaConf

from posenc.runs.run_directory import RunDirectory

KEY = "0123456789abcdef" * 2 + "01234567"
CONFIG = {
    "name": "scratch",
    "train_length": 64,
    "seed": 1,
    "tokens": 20000,
    "batch_tokens": 256,
    "precision": "float32",
    "kernel": "auto",
    "modules": [],
    "logger": {"_target_": "posenc.tracking.wandb_run.Wandb"},
    "model": {"width": 128},
    "choices": {"encoding": "rope", "model": "tiny", "data": "text"},
    "encoding": {"_target_": "posenc.encodings.rope.Rope", "spectrum": {"base": 10000.0}},
    "evaluation": {"lengths": [64, 256], "split": "validation"},
    "frozen": {
        "hash": "00000000",
        "fingerprint": "f00d",
        "parameters": 830_000,
        "lengths": [64, 256],
        "posenc": "0.1.0",
    },
}


class Fragment:
    """One `.wandb` file as `wandb leet inspect` prints it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.records = [json.loads(line) for line in _leet(path, "--json").splitlines()]

    @property
    def summary(self) -> dict[str, Any]:
        return json.loads(_leet(self.path, "--summary", "--json"))

    def history(self) -> list[dict[str, Any]]:
        rows = [record["history"]["item"] for record in self.of("history")]
        return [
            {k: v for k, v in row.items() if k not in ("_runtime", "_timestamp")} for row in rows
        ]

    def of(self, kind: str) -> list[dict[str, Any]]:
        return [record for record in self.records if record["type"] == kind]

    @property
    def run(self) -> dict[str, Any]:
        return self.of("run")[0]["run"]

    @property
    def config(self) -> dict[str, Any]:
        return {k: v for k, v in self.run["config"]["update"].items() if k != "_wandb"}


@pytest.fixture(autouse=True)
def wandb_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home of its own for wandb, and none of the caller's settings."""
    for name in [name for name in os.environ if name.startswith("WANDB_")]:
        monkeypatch.delenv(name)
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    return home


@pytest.fixture
def config() -> DictConfig:
    return OmegaConf.create(CONFIG)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "outputs" / "alibi-laptop"


@pytest.fixture
def run(folder: Path, config: DictConfig) -> RunDirectory:
    path = folder / "rope-L64-s1-3f9c2a1b"
    path.mkdir(parents=True)
    OmegaConf.save(config, path / "config.yaml")
    return RunDirectory(path)


@pytest.fixture
def inspect() -> Callable[[Path], list[Fragment]]:
    """All W&B fragments below an experiment's folder, oldest first."""

    def read(folder: Path) -> list[Fragment]:
        return [Fragment(path) for path in sorted(folder.glob("wandb/*run-*/run-*.wandb"))]

    return read


def _leet(path: Path, *options: str) -> str:
    command = [str(Path(sys.executable).with_name("wandb")), "leet", "inspect", str(path), *options]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


@pytest.fixture
def rows() -> Callable[..., list[dict[str, Any]]]:
    """Rows of a training log for steps `first` to `last`, of 256 tokens each."""

    def make(first: int, last: int) -> list[dict[str, Any]]:
        return [
            {"step": s, "tokens": 256 * s, "loss": 7.0 / s, "learning_rate": 1e-3 * s}
            for s in range(first, last + 1)
        ]

    return make


@pytest.fixture
def measured() -> Callable[..., dict[str, Any]]:
    """A row of `evaluation.json`."""

    def make(length: int, perplexity: float, **changes: Any) -> dict[str, Any]:
        row = {
            "data": "f00d",
            "data_name": "text",
            "split": "validation",
            "protocol": "nonoverlapping",
            "length": length,
            "stride": None,
            "swap": None,
            "loss": perplexity / 100,
            "perplexity": perplexity,
        }
        return {**row, **changes}

    return make


class Server(ThreadingHTTPServer):
    """As much of a W&B server as clients need for runs, their files, artifacts and views.

    `trouble` makes it answer with that HTTP status or, with "hang", not at all. Keeps what it was
    sent: `runs` by id, `views` by name.
    """

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.trouble: str | int | None = None
        self.released = threading.Event()
        self.runs: dict[str, dict] = {}
        self.views: dict[str, dict] = {}

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def handle_error(self, request, client_address) -> None:
        """A client that has given up is no news here."""

    def answer(self, path: str, body: bytes) -> dict:
        if path.startswith("/upload/"):
            _, _, run, name = path.split("/", 3)
            self.runs[run]["uploads"][name] = body
            return {}
        if path.endswith("/file_stream"):
            return self.stream(self.runs[path.split("/")[-2]], json.loads(body))
        if path != "/graphql":
            return {}
        asked = json.loads(body)
        operation = re.search(r"(?:query|mutation)\s+(\w+)", asked["query"])
        reply = getattr(self, operation[1], None) if operation else None
        return {"data": reply(asked.get("variables") or {}) if reply else {}}

    def Viewer(self, given: dict) -> dict:
        return {"viewer": {"id": "u", "entity": "lab", "username": "lab", "flags": "{}"}}

    def GetDefaultEntity(self, given: dict) -> dict:
        return self.Viewer(given)

    def RunResumeStatus(self, given: dict) -> dict:
        bucket = self.bucket(given["name"]) if given["name"] in self.runs else None
        return {"model": {"id": "p", "name": "posenc", "bucket": bucket}}

    def UpsertBucket(self, given: dict) -> dict:
        run = self.runs.setdefault(given["name"], {"files": {}, "uploads": {}, "artifacts": []})
        told = {"group": "groupName", "job_type": "jobType", "name": "displayName", "tags": "tags"}
        told |= {"project": "project", "sweep": "sweep"}
        run |= {key: given[sent] for key, sent in told.items() if given.get(sent) is not None}
        if given.get("config"):
            run["config"] = {k: v["value"] for k, v in json.loads(given["config"]).items()}
        return {"upsertBucket": {"bucket": self.bucket(given["name"]), "inserted": True}}

    def CreateRunFiles(self, given: dict) -> dict:
        at = f"{self.url}/upload/{given['run']}"
        files = [{"name": name, "uploadUrl": f"{at}/{name}"} for name in given["files"]]
        return {"createRunFiles": {"runID": "b", "uploadHeaders": [], "files": files}}

    def ArtifactType(self, given: dict) -> dict:
        return {"project": {"artifact": None}}

    def CreateArtifact(self, given: dict) -> dict:
        said = given.get("input") or given
        names = said.get("artifactCollectionNames") or [said.get("artifactCollectionName")]
        run = self.runs[said.get("runName") or said["runID"]]
        run["artifacts"].append((said["artifactTypeName"], names[0], said["digest"]))
        sequence = {"id": "s", "latestArtifact": None}
        artifact = {"id": "a", "state": "COMMITTED", "artifactSequence": sequence}
        return {"createArtifact": {"artifact": artifact}}

    def View(self, given: dict) -> dict:
        """The views of a kind, those of a name if one is given."""
        found = [
            {"user": {"username": "lab"}, "createdAt": "", "updatedAt": "", **view}
            for view in self.views.values()
            if view["type"] == given.get("viewType", "runs")
            if given.get("viewName") in (None, view["name"])
        ]
        page = {"endCursor": None, "hasNextPage": False}
        edges = [{"node": view, "cursor": "c"} for view in found]
        return {"project": {"allViews": {"edges": edges, "pageInfo": page}}}

    ProjectViews = View

    def GetProjects(self, given: dict) -> dict:
        node = {"id": "p", "name": "posenc", "entityName": "lab", "createdAt": "", "user": None}
        node |= {"isBenchmark": False}
        page = {"endCursor": None, "hasNextPage": False}
        return {"models": {"edges": [{"node": node, "cursor": "c"}], "pageInfo": page}}

    def ProjectInternalId(self, given: dict) -> dict:
        return {"project": {"id": "p", "internalId": "cA=="}}

    def upsertView(self, given: dict) -> dict:
        (old,) = [v for v in self.views.values() if v["id"] == given.get("id")] or [None]
        name = old["name"] if old else given["name"]
        view = self.views.setdefault(name, {"id": f"view{len(self.views)}", "name": name})
        view |= {key: given[key] for key in ("type", "displayName", "description", "spec")}
        view["project"] = {"id": "p", "name": given["projectName"], "entityName": "lab"}
        return {"upsertView": {"view": view, "inserted": old is None}}

    UpsertView2 = upsertView

    def stream(self, run: dict, body: dict) -> dict:
        for name, part in body.get("files", {}).items():
            run["files"].setdefault(name, [])[part["offset"] :] = part["content"]
        run["exit_code"] = body.get("exitcode")
        return {"exitcode": None, "limits": {}}

    def bucket(self, name: str) -> dict:
        files = self.runs[name]["files"]
        history = files.get("wandb-history.jsonl", [])
        return {
            "id": "b",
            "name": name,
            "displayName": self.runs[name].get("name"),
            "project": {"id": "p", "name": "posenc", "entity": {"id": "e", "name": "lab"}},
            "historyLineCount": len(history),
            "historyTail": json.dumps(history[-1:]),
            "eventsLineCount": len(files.get("wandb-events.jsonl", [])),
            "eventsTail": "[]",
            "logLineCount": 0,
            "summaryMetrics": files.get("wandb-summary.json", ["{}"])[-1],
            "config": "{}",
            "tags": [],
            "wandbConfig": '{"t": 1}',
        }

    def history(self, name: str) -> list[dict]:
        """The rows of a run without what W&B adds to them but the step."""
        rows = [json.loads(line) for line in self.runs[name]["files"]["wandb-history.jsonl"]]
        return [{k: v for k, v in r.items() if k not in ("_runtime", "_timestamp")} for r in rows]

    def summary(self, name: str) -> dict:
        return json.loads(self.runs[name]["files"]["wandb-summary.json"][-1])


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        server = self.server
        assert isinstance(server, Server)
        body = self.rfile.read(int(self.headers["content-length"] or 0))
        if server.trouble == "hang":
            server.released.wait()
            return
        failing = isinstance(server.trouble, int)
        reply = json.dumps({} if failing else server.answer(self.path, body)).encode()
        self.send_response(server.trouble if isinstance(server.trouble, int) else 200)
        self.send_header("content-length", str(len(reply)))
        self.end_headers()
        self.wfile.write(reply)

    do_PUT = do_POST

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def new_server(monkeypatch) -> Generator[Callable[[], Server]]:
    """Starts a server that knows nothing, and points clients at it."""
    with ExitStack() as started:

        def start() -> Server:
            server = started.enter_context(Server())
            thread = threading.Thread(target=server.serve_forever, args=(0.05,))
            thread.start()
            for end in (thread.join, server.shutdown, server.released.set):
                started.callback(end)
            monkeypatch.setenv("WANDB_BASE_URL", server.url)
            monkeypatch.setenv("WANDB_API_KEY", KEY)
            return server

        yield start


@pytest.fixture
def server(new_server) -> Server:
    return new_server()
