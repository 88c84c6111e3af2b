#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The dashboard over real programs: its answers, whom it refuses, and its page in Chromium."""

import json
import pathlib
import re
import resource
import shutil
import socket
import ssl
import subprocess
import unittest
import urllib.error
import urllib.request

from case import EndToEnd, Failure

HANG = 120  # seconds: a hang limit, not an expectation

# Timers of the page go on, so a name that ran as a script is seen.
EVIL = "<script>document.title='owned'</script><img src=x onerror=\"document.title='owned'\">"


class Answer:
    def __init__(self, status, headers, body):
        self.status, self.headers, self.body = status, headers, body

    def json(self):
        return json.loads(self.body)


class Dashboard:
    """A dashboard process, and requests to it over loopback."""

    def __init__(self, cluster, *args, name="dashboard"):
        self.cluster = cluster
        self.process = cluster.follow(
            name, "dashboard", "--no-open", "--port", "0", *map(str, args)
        )
        url = cluster.wait(
            lambda: re.search(r"^(https?)://\S+", self.process.log_text(), re.M),
            "the dashboard to print its URL",
            self.process,
        )
        self.url = url[0]
        listening = subprocess.run(
            ["ss", "-Hltnp"], check=True, capture_output=True, text=True
        ).stdout
        line = next(text for text in listening.splitlines() if f"pid={self.process.pid}," in text)
        self.port = int(line.split()[3].rsplit(":", 1)[1])

    @property
    def base(self):
        return f"http://127.0.0.1:{self.port}"

    def get(self, path, method="GET", context=None, base=None, **headers):
        request = urllib.request.Request(
            (base or self.base) + path,
            method=method,
            headers={key.replace("_", "-"): value for key, value in headers.items()},
        )
        try:
            with urllib.request.urlopen(request, timeout=HANG, context=context) as answer:
                return Answer(answer.status, answer.headers, answer.read().decode())
        except urllib.error.HTTPError as error:
            return Answer(error.code, error.headers, error.read().decode())

    def connect(self):
        return socket.create_connection(("127.0.0.1", self.port), timeout=HANG)

    def follow(self):
        """A stream of changes, past its first message."""
        stream = self.connect()
        stream.sendall(b"GET /api/events HTTP/1.1\r\nHost: localhost\r\n\r\n")
        file = stream.makefile("rb")
        read_until(file, b"data: ")
        return stream, file

    def close(self):
        self.process.kill()


def read_until(file, begin):
    for line in file:
        if line.startswith(begin):
            return line
    raise Failure(f"the stream ended before {begin}")


class WithRun(EndToEnd):
    """A cluster whose run has trained some rounds and waits for nothing."""

    def setUp(self):
        self.made = self.cluster()
        self.made.start_coordinator()
        self.made.start_daemon("gpu-1", args=["--price", "0.5"])
        self.made.add_dataset()

    def trained(self, name="shapes", **sections):
        self.made.create_run(name, **sections)
        self.made.wait_run(name)

    def dashboard(self, *args, **named):
        made = Dashboard(self.made, *args, **named)
        self.addCleanup(made.close)
        return made


class Answers(WithRun):
    def test_are_those_of_the_commands(self):
        self.trained()
        self.made.daemons["gpu-1"].stop()
        page = self.dashboard("shapes")
        self.assertTrue(page.url.endswith("/#shapes"), page.url)

        def same(path, *command):
            self.made.wait(
                lambda: page.get(path).body == self.made.run(*command, "-o", "json").stdout,
                f"{path} to be what {command} prints",
                page.process,
            )

        same("/api/v1/runs", "run", "list")
        same("/api/v1/run/shapes", "run", "show", "shapes")
        same("/api/v1/nodes", "node", "list")
        run_id = self.made.json("run", "show", "shapes")["id"]
        self.assertEqual(
            page.get(f"/api/v1/run/{run_id}").body, page.get("/api/v1/run/shapes").body
        )
        told = page.get("/api/v1/events").json()["items"]
        self.assertEqual(
            told,
            [
                event
                for event in self.made.items("event", "list")
                if event["kind"] not in ("committed", "transfer")
            ],
        )
        drawn = page.get("/api/v1/run/shapes/history").json()
        points = self.made.items("run", "history", "shapes", "--expert", "1")
        self.assertEqual(drawn["experts"][1]["step"], [point["step"] for point in points])
        self.assertEqual(drawn["nodes"], ["gpu-1"])

    def test_refuses_with_words(self):
        page = self.dashboard()
        for status, words, path, asked in (
            (404, "there is no such run", "/api/v1/run/nope", {}),
            (404, "nothing at this path", "/etc/passwd", {}),
            (404, "nothing at this path", "/../main.cc", {}),
            (421, "--host", "/api/v1/runs", {"Host": "evil.example:80"}),
            (421, "--host", "/", {"Host": "localhost.evil.example"}),
            (405, "GET or HEAD", "/api/v1/runs", {"method": "POST"}),
            (405, "GET or HEAD", "/api/v1/runs", {"method": "DELETE"}),
            (403, "no session is needed", "/login?key=0", {}),
        ):
            answer = page.get(path, **asked)
            self.assertEqual(answer.status, status, path)
            self.assertIn(words, answer.json()["error"])
        head = page.get("/api/v1/runs", method="HEAD")
        self.assertEqual((head.status, head.body), (200, ""))
        tag = head.headers["ETag"]
        self.assertEqual(page.get("/api/v1/runs", If_None_Match=tag).status, 304)
        policy = page.get("/").headers["Content-Security-Policy"]
        self.assertIn("default-src 'self'", policy)
        self.assertNotIn("unsafe", policy)

    def test_a_body_is_not_read(self):
        page = self.dashboard()
        with page.connect() as client:
            client.sendall(
                b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000000\r\n\r\n"
            )
            self.assertIn(b" 405 ", client.recv(4096))

    def test_bears_huge_headers_and_idle_sockets(self):
        page = self.dashboard()
        with page.connect() as client:
            try:
                client.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\nX: ")
                for _ in range(1024):
                    client.sendall(b"a" * 1024)
                client.sendall(b"\r\n\r\n")
                answer = client.recv(64)
            except OSError:  # it closes before all has come
                answer = b""
            self.assertNotIn(b" 200 ", answer)
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(4096, hard), hard))
        self.addCleanup(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))
        idle = []
        try:
            for _ in range(1000):
                idle.append(page.connect())
            self.assertEqual(page.get("/api/v1/runs").status, 200)
            self.assertTrue(page.process.alive())
        finally:
            for client in idle:
                client.close()

    def test_every_viewer_gets_every_change(self):
        page = self.dashboard()
        streams = [page.follow() for _ in range(100)]
        try:
            self.made.create_run("shapes")
            for _, file in streams:
                while b"/api/v1/run/shapes" not in read_until(file, b"data: "):
                    pass
        finally:
            for stream, _ in streams:
                stream.close()

    def test_says_since_when_the_coordinator_is_gone(self):
        self.trained()
        page = self.dashboard()
        self.assertTrue(page.get("/api/v1/status").json()["reachable"])
        self.made.coordinator.kill()

        def status(reachable):
            said = page.get("/api/v1/status").json()
            return said if said["reachable"] == reachable else None

        gone = self.made.wait(lambda: status(False), "the page to know", page.process)
        self.assertIsNotNone(gone["away_since"])
        self.assertEqual(page.get("/api/v1/run/shapes").json()["state"], "done")
        self.assertIn("skerry_coordinator_up 0\n", page.get("/metrics").body)
        self.assertIn("does not answer", page.get("/api/v1/attention").body)
        self.made.start_coordinator()
        back = self.made.wait(lambda: status(True), "the page to be back", page.process)
        self.assertIsNone(back["away_since"])


class Sessions(WithRun):
    def login_paths(self, page):
        return re.findall(r"(/login\?key=\w+)", page.process.log_text())

    def test_others_need_a_session(self):
        page = self.dashboard("--behind-proxy", "--host", "runs.example.org")
        self.assertTrue(page.url.startswith("https://runs.example.org/login?key="), page.url)
        (path,) = self.login_paths(page)
        for asked in ("/", "/api/v1/runs", "/api/events", "/metrics"):
            self.assertEqual(page.get(asked).status, 401, asked)
        self.assertEqual(page.get("/login?key=" + 64 * "0").status, 403)
        self.assertEqual(page.get(path, method="HEAD").status, 401)
        first = page.get(path, Host="runs.example.org")
        self.assertEqual(first.status, 200)
        cookie = first.headers["Set-Cookie"]
        for attribute in ("HttpOnly", "SameSite=Strict", "Secure"):
            self.assertIn(attribute, cookie)
        session = cookie.split(";")[0]
        self.assertEqual(page.get("/api/v1/runs", Cookie=session).status, 200)
        self.assertEqual(page.get("/api/v1/runs", Cookie=session + "0").status, 401)
        again = page.get(path)
        self.assertEqual(again.status, 403)
        self.assertIn("used before", again.json()["error"])
        self.made.wait(lambda: len(self.login_paths(page)) == 2, "the next key", page.process)
        self.assertEqual(page.get(self.login_paths(page)[1]).status, 200)

    def test_serves_tls(self):
        folder = self.made.root
        subprocess.run(
            ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"]
            + ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"]
            + ["-keyout", folder / "key.pem", "-out", folder / "cert.pem"],
            check=True,
            capture_output=True,
        )
        page = self.dashboard(
            *("--listen", "0.0.0.0", "--host", "localhost"),
            *("--tls-cert", folder / "cert.pem", "--tls-key", folder / "key.pem"),
        )
        trust = ssl.create_default_context(cafile=str(folder / "cert.pem"))
        base = f"https://localhost:{page.port}"
        self.assertEqual(page.url.split("/login")[0], base)
        cookie = page.get(page.url[len(base) :], base=base, context=trust).headers["Set-Cookie"]
        answer = page.get(
            "/api/v1/runs", base=base, context=trust, Cookie=cookie.split(";")[0]
        )
        self.assertEqual(answer.json()["items"], [])

    def test_refuses_what_cannot_work(self):
        wrong = pathlib.Path(self.made.root / "wrong.pem")
        wrong.write_text("no certificate\n")
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
            for words, status, expected in (
                (["--listen", "0.0.0.0"], 2, "--tls-cert and --tls-key, or --behind-proxy"),
                (["--listen", "here", "--behind-proxy"], 2, "expects an IPv4 or IPv6 address"),
                (["--tls-cert", wrong], 2, "--tls-key"),
                (["--tls-cert", wrong, "--tls-key", wrong], 2, "in PEM"),
                (["--tls-cert", "/none", "--tls-key", wrong], 3, "/none"),
                (["--port", port], 4, "choose another with --port"),
                (["nope", "--port", 0], 3, "there is no run nope"),
                (["--port", "a"], 2, "--port"),
            ):
                done = self.made.run("dashboard", "--no-open", *words, check=False)
                self.assertEqual(done.returncode, status, done.stderr)
                self.assertIn(expected, done.stderr)


def browser():
    """A headless Chromium; None where it, its driver or selenium is not installed."""
    driver = shutil.which("chromedriver")
    chromium = shutil.which("chromium")
    try:
        from selenium import webdriver
        from selenium.webdriver.chrome.service import Service
    except ImportError:
        return None
    if not driver or not chromium:
        return None
    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    for word in ("headless=new", "no-sandbox", "disable-gpu", "disable-dev-shm-usage"):
        options.add_argument(f"--{word}")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    return webdriver.Chrome(service=Service(driver), options=options)


class Page(WithRun):
    def setUp(self):
        super().setUp()
        self.chromium = browser()
        if self.chromium is None:
            self.skipTest("chromium, chromium-driver and python3-selenium are not installed")
        self.addCleanup(self.chromium.quit)

    def texts(self, selector):
        return self.chromium.execute_script(
            "return [...document.querySelectorAll(arguments[0])].map((each) => each.textContent)",
            selector,
        )

    def shows(self, selector, words):
        self.made.wait(
            lambda: any(words in text for text in self.texts(selector)),
            f"'{words}' in {selector}",
        )

    def loud(self):
        """What the console said, and requests to anywhere but the dashboard."""
        said = [entry["message"] for entry in self.chromium.get_log("browser")]
        for entry in self.chromium.get_log("performance"):
            event = json.loads(entry["message"])["message"]
            if event["method"] == "Network.requestWillBeSent":
                url = event["params"]["request"]["url"]
                if not url.startswith((self.base, "data:", "about:", "chrome")):
                    said.append(url)
        return said

    def open(self, page, fragment=""):
        self.base = page.base
        self.chromium.get(f"{page.base}/{fragment}")

    def test_shows_the_run_and_follows_its_commits(self):
        self.made.daemons["gpu-1"].stop()
        self.made.start_daemon("gpu-1", env={"SKERRY_FAKE_STEP_MS": "20"})
        self.made.create_run("shapes", train={"steps": 100_000})
        self.made.wait_event(kind="committed", run="shapes", expert=0)
        page = self.dashboard("shapes")
        self.open(page, "#shapes")
        self.shows("#run-name", "shapes")
        self.shows("#run-state", "running")
        self.shows("#fleet tr", "gpu-1")
        self.shows("#fleet tr", "shapes/0")
        self.shows("#lanes text", "expert 0")
        self.shows("#lanes rect title", "expert 0 on gpu-1")
        self.shows("#matters", "Nothing needs you.")
        self.shows("#link", "live")
        committed = self.made.experts("shapes")[0]["step"]

        def drawn():
            found = re.findall(r"expert 0 on gpu-1, .* up to step (\d+)",
                               "\n".join(self.texts("#lanes rect title")))
            return found and int(found[0]) > committed

        self.made.wait(drawn, "a later commit on the page", page.process)
        self.assertGreater(len(self.texts("#loss path.curve")), 0)
        self.made.run("run", "pause", "shapes")
        self.shows("#run-state", "paused")
        self.shows("#matters li b", "Run shapes is paused")
        self.made.run("run", "stop", "shapes", "--yes")
        self.shows("#run-state", "stopped")
        self.assertEqual(self.loud(), [])

    def test_says_that_the_coordinator_or_the_program_is_gone(self):
        self.trained()
        page = self.dashboard("shapes")
        self.open(page)
        self.shows("#run-state", "done")
        self.made.coordinator.kill()
        self.shows("#away", "The coordinator does not answer since")
        self.shows("#run-state", "done")
        self.made.start_coordinator()
        self.shows("#link", "live")
        self.assertEqual(self.loud(), [])
        page.close()
        self.shows("#away", "own program does not answer since")

    def test_names_are_words_and_never_markup(self):
        self.trained()
        page = self.dashboard("shapes")
        # What the coordinator would refuse as a name stands in the documents.
        self.chromium.execute_cdp_cmd(
            "Page.addScriptToEvaluateOnNewDocument",
            {
                "source": """
          const real = window.fetch;
          window.fetch = async (...asked) => {
            const answer = await real(...asked);
            const evil = %s;
            const words = (await answer.text()).replaceAll('"gpu-1"', JSON.stringify(evil))
              .replaceAll('"name": "shapes"', '"name": ' + JSON.stringify(evil));
            return new Response(words, { status: answer.status });
          };"""
                % json.dumps(EVIL)
            },
        )
        self.open(page)
        self.shows("#fleet td", EVIL)
        self.shows("#picker option", EVIL)
        self.shows("#events p", EVIL)
        self.assertEqual(self.texts("main script, main img, header select img"), [])
        self.assertNotEqual(self.chromium.title, "owned")

    def test_ten_tabs_share_one_stream(self):
        page = self.dashboard()
        self.base = page.base
        self.open(page)
        for _ in range(9):  # a browser has six connections for all of them
            self.chromium.switch_to.new_window("tab")
            self.chromium.get(page.base)
        self.trained()
        for tab in self.chromium.window_handles:
            self.chromium.switch_to.window(tab)
            self.shows("#run-state", "done")
        self.chromium.switch_to.window(self.chromium.window_handles[0])
        self.chromium.close()  # the one with the stream
        self.made.create_run("second", train={"steps": 20})
        for tab in self.chromium.window_handles:
            self.chromium.switch_to.window(tab)
            self.shows("#picker option", "second")

    def test_no_run_and_unknown_run(self):
        page = self.dashboard()
        self.open(page, "#nope")
        self.shows("#run-name", "No run yet")
        self.trained()
        self.shows("#run-name", "shapes")
        self.shows("#run-state", "done")

    def test_works_by_keyboard_and_on_a_phone(self):
        from selenium.webdriver.common.keys import Keys

        self.trained()
        page = self.dashboard()
        self.chromium.execute_cdp_cmd(
            "Emulation.setDeviceMetricsOverride",
            {"width": 360, "height": 740, "deviceScaleFactor": 1, "mobile": True},
        )
        self.open(page)
        self.shows("#loss-key button", "expert 1")
        width = self.chromium.execute_script("return document.documentElement.scrollWidth")
        self.assertEqual(width, 360)
        self.shows("#events p", "granted")
        reached = set()
        for _ in range(40):
            self.chromium.switch_to.active_element.send_keys(Keys.TAB)
            reached.add(self.chromium.switch_to.active_element.get_attribute("id"))
        self.assertLessEqual({"picker", "by-expert", "by-node", "span", "log-scale"}, reached)
        self.chromium.find_element("id", "by-node").send_keys(Keys.ENTER)
        self.shows("#lanes text", "gpu-1")
        unnamed = self.chromium.execute_script(
            "return [...document.querySelectorAll('button, select, input, svg[role=img]')]"
            ".filter((each) => !(each.getAttribute('aria-label') || each.textContent.trim()"
            " || each.labels?.length)).map((each) => each.outerHTML)"
        )
        self.assertEqual(unnamed, [])


if __name__ == "__main__":
    unittest.main()
