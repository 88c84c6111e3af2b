#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What the dashboard sends to the outside, over real programs and a webhook on loopback."""

import http.server
import json
import threading
import unittest

from dashboard_test import WithRun


class Webhook:
    """Records what is posted. `answer` is a status, or a function that gets the handler."""

    def __init__(self):
        self.answer, self.got, self.asked = 200, [], 0
        webhook = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                webhook.asked += 1
                body = self.rfile.read(int(self.headers["Content-Length"]))
                answer = webhook.answer
                if callable(answer):
                    answer(self)
                    return
                if answer == 200:
                    webhook.got.append(json.loads(body))
                self.send_response(answer)
                self.send_header("Content-Length", "0")
                self.end_headers()

            do_GET = do_POST

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_port}/hook?key=SECRET"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def kinds(self):
        return [notice["notice"] for notice in self.got]


class Notify(WithRun):
    def setUp(self):
        super().setUp()
        self.webhook = Webhook()
        self.addCleanup(self.webhook.server.server_close)
        self.addCleanup(self.webhook.server.shutdown)
        self.cursor = self.made.root / "cursor"

    def config(self, **keys):
        path = self.made.root / "notify.toml"
        keys = {"cursor": self.cursor, **keys}
        path.write_text("[notify]\n" + "".join(f'{k} = "{v}"\n' for k, v in keys.items()))
        return path

    def start(self, name="dashboard", **keys):
        page = self.dashboard("--config", self.config(**keys), name=name)
        self.made.wait(self.cursor.exists, "the first look at events", page.process)
        return page

    def arrives(self, *kinds):
        self.made.wait(lambda: self.webhook.kinds() == list(kinds), f"{kinds} at the webhook")

    def test_sends_each_once_through_failures_and_restarts(self):
        self.trained("before")
        page = self.start(url=self.webhook.url)
        self.webhook.answer = 500
        self.made.daemons["gpu-1"].kill()
        self.made.wait(lambda: self.webhook.asked >= 2, "a retry", page.process)
        self.assertIn("trying again", page.process.log_text())
        self.webhook.answer = 200
        self.arrives("node_lost")
        (lost,) = self.webhook.got
        self.assertEqual((lost["node"], lost["api_version"]), ("gpu-1", "skerry/v1"))
        number = str(lost["number"])
        self.made.wait(lambda: self.cursor.read_text().strip() == number, "the cursor to be kept")
        page.close()
        self.made.start_daemon("gpu-1")
        self.trained("meanwhile")
        self.start(name="again", url=self.webhook.url)
        self.arrives("node_lost", "expert_done", "expert_done", "run_done")
        self.assertEqual(self.webhook.got[-1]["run"], "meanwhile")
        self.assertNotIn("SECRET", page.process.log_text())

    def test_follows_no_redirect_and_waits_for_no_hanging_server(self):
        def redirect(handler):
            handler.send_response(302)
            handler.send_header("Location", self.webhook.url + "&redirected")
            handler.send_header("Content-Length", "0")
            handler.end_headers()

        page = self.start(url=self.webhook.url)
        self.webhook.answer = redirect
        self.made.daemons["gpu-1"].kill()
        self.made.wait(
            lambda: "a redirect, which is not followed" in page.process.log_text(),
            "the redirect to be refused",
            page.process,
        )
        released = threading.Event()
        self.addCleanup(released.set)
        before = self.webhook.asked
        self.webhook.answer = lambda handler: released.wait(600)
        self.made.wait(lambda: self.webhook.asked > before, "a request that hangs", page.process)
        self.made.start_daemon("gpu-1")
        self.made.wait(
            lambda: '"ready"' in page.get("/api/v1/nodes").body, "the page to go on", page.process
        )
        self.webhook.answer = 200
        self.arrives("node_lost")

    def test_never_goes_to_a_metadata_server(self):
        page = self.start(url="http://169.254.169.254/latest/meta-data")
        self.made.daemons["gpu-1"].kill()
        self.made.wait(
            lambda: "link-local address, which is refused" in page.process.log_text(),
            "the refusal",
            page.process,
        )

    def test_runs_a_command(self):
        told = self.made.root / "told"
        program = self.made.root / "tell"
        program.write_text(f'#!/bin/sh\necho "$SKERRY_NOTICE" >>{told}\n')
        program.chmod(0o755)
        self.start(command=program)
        self.trained()
        self.made.wait(
            lambda: told.exists() and "run_done" in told.read_text(), "the command to run"
        )
        notices = [json.loads(line) for line in told.read_text().splitlines()]
        self.assertEqual(
            [notice["notice"] for notice in notices], ["expert_done", "expert_done", "run_done"]
        )

    def test_refuses_a_config_that_cannot_work(self):
        bad = self.made.root / "bad-cursor"
        bad.write_text("many\n")
        for keys, expected in (
            ({"url": "file:///etc/passwd"}, "expects https:// or http://"),
            ({"address": "x"}, "expects url, command and cursor"),
            ({"url": "http://localhost", "cursor": ""}, "notify.cursor is missing"),
            ({"url": "http://localhost", "cursor": bad}, "expected the number of an event"),
        ):
            done = self.made.run(
                "dashboard", "--no-open", "--port", 0, "--config", self.config(**keys), check=False
            )
            self.assertIn(expected, done.stderr)
            self.assertEqual(done.returncode, 1 if "cursor" in keys and "bad" in str(keys) else 2)


if __name__ == "__main__":
    unittest.main()
