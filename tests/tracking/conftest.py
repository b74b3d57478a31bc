"""Run directories, a reader of offline run files, and a stub of the W&B server."""

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

from compositions import OTHER_SETTINGS
from posenc.config.identity import identity, run_name, short_hash
from posenc.runs.run_directory import RunDirectory

API_KEY = "0123456789abcdef" * 2 + "01234567"
CONFIG: dict[str, Any] = {
    **OTHER_SETTINGS,
    "name": "scratch",
    "train_length": 64,
    "seed": 1,
    "tokens": 20000,
    "batch_tokens": 256,
    "precision": "float32",
    "kernel": "auto",
    "gradient_clip": 1.0,
    "optimizer": {"_target_": "posenc.training.optimizer.adamw"},
    "schedule": {"_target_": "posenc.training.schedule.cosine"},
    "logger": {"_target_": "posenc.tracking.wandb_tracker.WandbTracker"},
    "model": {"width": 128},
    "data": {"_target_": "posenc.data.text.TextCorpus"},
    "tokenizer": {"_target_": "posenc.data.tokenizers.byte.ByteTokenizer"},
    "choices": {"encoding": "rope", "model": "tiny", "data": "text"},
    "encoding": {"_target_": "posenc.encodings.rope.Rope", "spectrum": {"base": 10000.0}},
    "evaluation": {**OTHER_SETTINGS["evaluation"], "lengths": [64, 256]},
    "planned": {
        "fingerprint": "f00d",
        "parameters": 830_000,
        "lengths": [64, 256],
        "posenc_version": "0.2.0",
    },
}


class OfflineRunFile:
    """A `.wandb` file as `wandb leet inspect` prints it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.records = [json.loads(line) for line in _leet(path, "--json").splitlines()]

    @property
    def summary(self) -> dict[str, Any]:
        return json.loads(_leet(self.path, "--summary", "--json"))

    def history(self) -> list[dict[str, Any]]:
        rows = [record["history"]["item"] for record in self.find_records("history")]
        return [
            {k: v for k, v in row.items() if k not in ("_runtime", "_timestamp")} for row in rows
        ]

    def find_records(self, kind: str) -> list[dict[str, Any]]:
        return [record for record in self.records if record["type"] == kind]

    @property
    def run(self) -> dict[str, Any]:
        return self.find_records("run")[0]["run"]

    @property
    def config(self) -> dict[str, Any]:
        return {k: v for k, v in self.run["config"]["update"].items() if k != "_wandb"}


@pytest.fixture(autouse=True)
def wandb_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty home directory for wandb, without WANDB_ variables from outside the test."""
    for name in [name for name in os.environ if name.startswith("WANDB_")]:
        monkeypatch.delenv(name)
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    return home


@pytest.fixture
def config() -> DictConfig:
    return with_hash(OmegaConf.create(CONFIG))


def with_hash(config: DictConfig) -> DictConfig:
    """Set the hash of a planned configuration, and return the configuration."""
    config.planned.hash = short_hash(identity(config, config.planned.fingerprint))
    return config


@pytest.fixture
def save_config() -> Callable[[Path, DictConfig], RunDirectory]:
    """Writes the configuration of a planned run, with its hash, to a directory named after it."""

    def save(folder: Path, config: DictConfig) -> RunDirectory:
        name = run_name(with_hash(config), config.planned.hash)
        run = RunDirectory(folder / name)
        run.path.mkdir(parents=True, exist_ok=True)
        OmegaConf.save(OmegaConf.merge(config, {"planned": {"run": name}}), run.config_file)
        return run

    return save


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "outputs" / "alibi-laptop"


@pytest.fixture
def run(
    folder: Path, config: DictConfig, save_config: Callable[[Path, DictConfig], RunDirectory]
) -> RunDirectory:
    return save_config(folder, config)


@pytest.fixture
def read_offline() -> Callable[[Path], list[OfflineRunFile]]:
    """Reads all offline run files in an experiment's folder, oldest first."""

    def read(folder: Path) -> list[OfflineRunFile]:
        return [OfflineRunFile(path) for path in sorted(folder.glob("wandb/*run-*/run-*.wandb"))]

    return read


def _leet(path: Path, *options: str) -> str:
    command = [str(Path(sys.executable).with_name("wandb")), "leet", "inspect", str(path), *options]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


@pytest.fixture
def rows() -> Callable[..., list[dict[str, Any]]]:
    """Makes rows of a training log for steps `first` to `last`, of 256 tokens each."""

    def make(first: int, last: int) -> list[dict[str, Any]]:
        return [
            {"step": s, "tokens": 256 * s, "loss": 7.0 / s, "learning_rate": 1e-3 * s}
            for s in range(first, last + 1)
        ]

    return make


@pytest.fixture
def evaluation_row() -> Callable[..., dict[str, Any]]:
    """Makes a row of `evaluation.json`."""

    def make(length: int, perplexity: float, **changes: Any) -> dict[str, Any]:
        row = {
            "data": "f00d",
            "data_name": "text",
            "split": "validation",
            "protocol": "nonoverlapping",
            "length": length,
            "stride": None,
            "swap": None,
            "count": 1000,
            "loss": perplexity / 100,
            "perplexity": perplexity,
        }
        return {**row, **changes}

    return make


class Server(ThreadingHTTPServer):
    """A stub of the W&B server, with what clients need for runs, files, artifacts and views.

    Keeps what it receives: `runs` by id, `views` by name. If `failure` is set, it answers with
    that HTTP status or, for "hang", not at all.
    """

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.failure: str | int | None = None
        self.released = threading.Event()
        self.runs: dict[str, dict] = {}
        self.views: dict[str, dict] = {}
        self.artifacts: list[tuple[str, str, str]] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def handle_error(self, request, client_address) -> None:
        """Print nothing when a client disconnects."""

    def answer(self, path: str, body: bytes) -> dict:
        if path.startswith("/upload/"):
            _, _, run, name = path.split("/", 3)
            self.runs[run]["uploads"][name] = body
            return {}
        if path.endswith("/file_stream"):
            return self.stream(self.runs[path.split("/")[-2]], json.loads(body))
        if path != "/graphql":
            return {}
        request = json.loads(body)
        operation = re.search(r"(?:query|mutation)\s+(\w+)", request["query"])
        handler = getattr(self, operation[1], None) if operation else None
        return {"data": handler(request.get("variables") or {}) if handler else {}}

    def Viewer(self, variables: dict) -> dict:
        return {"viewer": {"id": "u", "entity": "lab", "username": "lab", "flags": "{}"}}

    def GetDefaultEntity(self, variables: dict) -> dict:
        return self.Viewer(variables)

    def RunResumeStatus(self, variables: dict) -> dict:
        name = variables["name"]
        bucket = self.bucket(name) if name in self.runs else None
        return {"model": {"id": "p", "name": "posenc", "bucket": bucket}}

    def UpsertBucket(self, variables: dict) -> dict:
        new_run = {"files": {}, "uploads": {}, "artifacts": [], "used": []}
        run = self.runs.setdefault(variables["name"], new_run)
        fields = {"group": "groupName", "job_type": "jobType", "name": "displayName"}
        fields |= {"tags": "tags", "project": "project", "sweep": "sweep"}
        run |= {k: variables[v] for k, v in fields.items() if variables.get(v) is not None}
        if variables.get("config"):
            run["config"] = {k: v["value"] for k, v in json.loads(variables["config"]).items()}
        return {"upsertBucket": {"bucket": self.bucket(variables["name"]), "inserted": True}}

    def CreateRunFiles(self, variables: dict) -> dict:
        url = f"{self.url}/upload/{variables['run']}"
        files = [{"name": name, "uploadUrl": f"{url}/{name}"} for name in variables["files"]]
        return {"createRunFiles": {"runID": "b", "uploadHeaders": [], "files": files}}

    def ArtifactType(self, variables: dict) -> dict:
        return {"project": {"artifact": None}}

    def CreateArtifact(self, variables: dict) -> dict:
        fields = variables.get("input") or variables
        names = fields.get("artifactCollectionNames") or [fields.get("artifactCollectionName")]
        artifact = (fields["artifactTypeName"], names[0], fields["digest"])
        if producer := fields.get("runName") or fields.get("runID"):
            self.runs[producer]["artifacts"].append(artifact)
        self.artifacts.append(artifact)
        sequence = {"id": "s", "latestArtifact": None}
        number = str(len(self.artifacts) - 1)
        fields = {"id": number, "state": "COMMITTED", "artifactSequence": sequence}
        return {"createArtifact": {"artifact": fields}}

    def UseArtifact(self, variables: dict) -> dict:
        fields = variables.get("input") or variables
        used = self.artifacts[int(fields["artifactID"])]
        self.runs[fields["runName"]]["used"].append(used)
        return {"useArtifact": {"artifact": {"id": fields["artifactID"]}}}

    def View(self, variables: dict) -> dict:
        """The views of a type, or only the view with a given name if the client asks for one."""
        views = [
            {"user": {"username": "lab"}, "createdAt": "", "updatedAt": "", **view}
            for view in self.views.values()
            if view["type"] == variables.get("viewType", "runs")
            if variables.get("viewName") in (None, view["name"])
        ]
        page = {"endCursor": None, "hasNextPage": False}
        edges = [{"node": view, "cursor": "c"} for view in views]
        return {"project": {"allViews": {"edges": edges, "pageInfo": page}}}

    ProjectViews = View

    def GetProjects(self, variables: dict) -> dict:
        node = {"id": "p", "name": "posenc", "entityName": "lab", "createdAt": "", "user": None}
        node |= {"isBenchmark": False}
        page = {"endCursor": None, "hasNextPage": False}
        return {"models": {"edges": [{"node": node, "cursor": "c"}], "pageInfo": page}}

    def ProjectInternalId(self, variables: dict) -> dict:
        return {"project": {"id": "p", "internalId": "cA=="}}

    def upsertView(self, variables: dict) -> dict:
        (old,) = [v for v in self.views.values() if v["id"] == variables.get("id")] or [None]
        name = old["name"] if old else variables["name"]
        view = self.views.setdefault(name, {"id": f"view{len(self.views)}", "name": name})
        view |= {key: variables[key] for key in ("type", "displayName", "description", "spec")}
        view["project"] = {"id": "p", "name": variables["projectName"], "entityName": "lab"}
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
        """A run's history rows, without W&B's own fields except `_step`."""
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
        if server.failure == "hang":
            server.released.wait()
            return
        failing = isinstance(server.failure, int)
        reply = json.dumps({} if failing else server.answer(self.path, body)).encode()
        self.send_response(server.failure if isinstance(server.failure, int) else 200)
        self.send_header("content-length", str(len(reply)))
        self.end_headers()
        self.wfile.write(reply)

    do_PUT = do_POST

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def new_server(monkeypatch) -> Generator[Callable[[], Server]]:
    """Starts an empty server and makes it the one that clients use."""
    with ExitStack() as stack:

        def start() -> Server:
            server = stack.enter_context(Server())
            thread = threading.Thread(target=server.serve_forever, args=(0.05,))
            thread.start()
            for stop in (thread.join, server.shutdown, server.released.set):
                stack.callback(stop)
            monkeypatch.setenv("WANDB_BASE_URL", server.url)
            monkeypatch.setenv("WANDB_API_KEY", API_KEY)
            return server

        yield start


@pytest.fixture
def server(new_server) -> Server:
    return new_server()
