#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""/metrics of real programs: its format, and what Prometheus makes of it."""

import json
import os
import pathlib
import re
import shutil
import subprocess
import unittest
import urllib.error
import urllib.parse
import urllib.request

from cluster import Process, free_ports
from dashboard_test import WithRun

MONITORING = pathlib.Path(__file__).resolve().parents[2] / "deploy/monitoring"
CACHE = pathlib.Path(os.environ.get("SKERRY_CACHE", pathlib.Path.home() / ".cache/skerry"))


def program(name):
    """Of Debian's package prometheus, installed or unpacked by `./dev setup`."""
    unpacked = CACHE / "prometheus/usr/bin" / name
    return str(unpacked) if unpacked.exists() else shutil.which(name)


def expressions():
    """Every query of the Grafana dashboard and of the alerts."""
    board = json.loads((MONITORING / "grafana.json").read_text())
    queries = [target["expr"] for panel in board["panels"] for target in panel["targets"]]
    queries = [query.replace("$run", ".*") for query in queries]
    rules = (MONITORING / "alerts.yaml").read_text()
    plain = re.findall(r"expr: (\S.*)$", rules, re.M)
    folded = re.findall(r"expr: >\n((?: {10,}.*\n)+)", rules)
    return queries, [e for e in plain if e != ">"] + [" ".join(f.split()) for f in folded]


class Metrics(WithRun):
    def setUp(self):
        super().setUp()
        self.made.daemons["gpu-1"].stop()
        self.made.start_daemon("gpu-1", env={"SKERRY_FAKE_STEP_MS": "20"})
        self.made.create_run("shapes", train={"steps": 100_000})
        self.made.wait_event(kind="committed", run="shapes", expert=0)
        self.page = self.dashboard()

    def text(self):
        return self.made.wait(
            lambda: (text := self.page.get("/metrics").body)
            and "skerry_expert_loss{" in text
            and text,
            "a commit in /metrics",
            self.page.process,
        )

    def test_every_query_names_what_is_there(self):
        names = set(re.findall(r"^# TYPE (\w+) ", self.text(), re.M))
        queries, alerts = expressions()
        self.assertEqual(len(alerts), (MONITORING / "alerts.yaml").read_text().count("- alert:"))
        asked = set(re.findall(r"\bskerry_\w+", " ".join(queries + alerts)))
        self.assertGreater(len(asked), 10)
        self.assertEqual(asked - names, set())
        self.assertEqual(names - asked, set(), "a metric that no panel and no alert uses")

    @unittest.skipUnless(program("promtool"), "promtool is not there: ./dev setup unpacks it")
    def test_promtool_finds_no_fault(self):
        done = subprocess.run(
            [program("promtool"), "check", "metrics"],
            input=self.text(),
            capture_output=True,
            text=True,
        )
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "", ""))
        done = subprocess.run(
            [program("promtool"), "check", "rules", MONITORING / "alerts.yaml"],
            capture_output=True,
            text=True,
        )
        self.assertEqual(done.returncode, 0, done.stderr)

    @unittest.skipUnless(program("prometheus"), "prometheus is not there: ./dev setup unpacks it")
    def test_prometheus_scrapes_it_and_answers_every_query(self):
        folder = self.made.root / "prometheus"
        shutil.copytree(MONITORING, folder)
        config = (folder / "prometheus.yaml").read_text()
        self.assertIn("127.0.0.1:7680", config)
        config = config.replace("7680", str(self.page.port)).replace("15s", "1s")
        (folder / "prometheus.yaml").write_text(config)
        port = free_ports(1)
        server = Process(
            "prometheus",
            [
                program("prometheus"),
                f"--config.file={folder}/prometheus.yaml",
                f"--storage.tsdb.path={folder}/data",
                f"--web.listen-address=127.0.0.1:{port}",
            ],
            folder / "log",
        )
        self.addCleanup(server.kill)

        def answer(path, **words):
            url = f"http://127.0.0.1:{port}{path}?{urllib.parse.urlencode(words)}"
            try:
                with urllib.request.urlopen(url, timeout=60) as got:
                    return json.loads(got.read())
            except urllib.error.HTTPError as error:
                if error.code == 503:  # it starts
                    return None
                self.fail(f"{words}: {error.read().decode()}")
            except OSError:
                return None

        def series(query):
            got = answer("/api/v1/query", query=query)
            return got and got["data"]["result"]

        self.made.wait(lambda: series("skerry_expert_commits_total"), "a scrape", server)
        queries, alerts = expressions()
        for query in queries:  # rates need a second scrape
            self.made.wait(lambda query=query: series(query), query, server)
        for query in alerts:
            self.assertIsNotNone(series(query), query)
        rules = answer("/api/v1/rules")["data"]["groups"][0]["rules"]
        self.made.wait(
            lambda: all(
                rule["health"] == "ok"
                for rule in answer("/api/v1/rules")["data"]["groups"][0]["rules"]
            ),
            "every alert to be evaluated",
            server,
        )
        self.assertEqual(len(rules), len(alerts))
        self.made.coordinator.kill()
        self.made.wait(
            lambda: any(
                alert["labels"]["alertname"] == "SkerryCoordinatorDown"
                for alert in answer("/api/v1/alerts")["data"]["alerts"]
            ),
            "the alert of a coordinator that is gone",
            server,
        )


if __name__ == "__main__":
    unittest.main()
