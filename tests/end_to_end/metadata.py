# SPDX-License-Identifier: Apache-2.0
"""Metadata servers of clouds, on loopback, for the tests of spot notices."""

import http.server
import json
import threading
import time
import urllib.parse

AWS = "/latest/meta-data"
GCP = "/computeMetadata/v1/instance/preempted"
AZURE = "/metadata"
OWN_NAME = "gpu-1"


def utc(form, seconds):
    """The time in so many seconds."""
    return time.strftime(form, time.gmtime(time.time() + seconds))


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def handle_one_request(self):
        try:
            super().handle_one_request()
        except ConnectionError:
            self.close_connection = True

    def answer(self, status, body="", **headers):
        data = body.encode()
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def do_PUT(self):
        cloud, path = self.server.cloud, urllib.parse.urlparse(self.path).path
        ttl = self.headers.get("X-aws-ec2-metadata-token-ttl-seconds")
        if cloud.name != "aws" or path != "/latest/api/token":
            return self.answer(404)
        if ttl != "21600":
            return self.answer(400)
        cloud.tokens += 1
        self.answer(200, f"token-{cloud.tokens}")

    def do_GET(self):
        cloud, url = self.server.cloud, urllib.parse.urlparse(self.path)
        cloud.asked += 1
        if cloud.hostile and cloud.hostile(self):
            return None
        query = dict(urllib.parse.parse_qsl(url.query))
        if cloud.name == "aws" and url.path.startswith(AWS):
            return self.aws(cloud, url.path)
        if cloud.name == "gcp" and url.path == GCP:
            return self.gcp(cloud, query)
        if cloud.name == "azure" and url.path.startswith(AZURE):
            return self.azure(cloud, url.path)
        return self.answer(404)

    def aws(self, cloud, path):
        if self.headers.get("X-aws-ec2-metadata-token") != f"token-{cloud.tokens}":
            return self.answer(401)
        if not cloud.refreshed:  # a token may end early
            cloud.refreshed, cloud.tokens = True, cloud.tokens + 1
        if path == f"{AWS}/spot/instance-action" and cloud.notice:
            return self.answer(200, cloud.serve())
        if path == f"{AWS}/events/recommendations/rebalance" and cloud.advice:
            return self.answer(200, json.dumps({"noticeTime": utc("%Y-%m-%dT%H:%M:%SZ", 0)}))
        return self.answer(404)

    def gcp(self, cloud, query):
        if self.headers.get("Metadata-Flavor") != "Google":
            return self.answer(403)
        tag = lambda: "b" if cloud.notice else "a"  # noqa: E731
        if query.get("wait_for_change") == "true":
            with cloud.changed:
                cloud.changed.wait_for(
                    lambda: query.get("last_etag") != tag(), float(query["timeout_sec"])
                )
        body = cloud.serve() if cloud.notice else "FALSE"
        return self.answer(200, body, ETag=tag(), Metadata_Flavor="Google")

    def azure(self, cloud, path):
        if self.headers.get("Metadata") != "true":
            return self.answer(400)
        if path == f"{AZURE}/instance/compute/name":
            return self.answer(200, OWN_NAME)
        events = {"DocumentIncarnation": 1, "Events": []}
        return self.answer(200, cloud.serve() if cloud.notice else json.dumps(events))

    def do_POST(self):
        cloud = self.server.cloud
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        cloud.posts.append((time.time(), json.loads(body)))
        self.answer(200)


class Cloud:
    """aws, gcp or azure. `hostile(handler)` may answer in its place, and then returns true."""

    def __init__(self, name):
        self.name = name
        self.notice = None  # the body that announces the end
        self.advice = False
        self.hostile = None
        self.served = None  # when the notice was first asked for
        self.asked = 0  # GETs
        self.tokens, self.refreshed = 0, False
        self.posts = []
        self.changed = threading.Condition()
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads, self.server.block_on_close = True, False
        self.server.cloud = self
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server.server_address[1]}"

    def serve(self):
        self.served = self.served or time.time()
        return self.notice

    def announce(self, seconds):
        """The machine ends in so many seconds."""
        bodies = {
            "aws": json.dumps(
                {"action": "terminate", "time": utc("%Y-%m-%dT%H:%M:%SZ", seconds)}
            ),
            "gcp": "TRUE",
            "azure": json.dumps(
                {
                    "DocumentIncarnation": 2,
                    "Events": [
                        {
                            "EventId": f"of-{machine}",
                            "EventStatus": "Scheduled",
                            "EventType": "Preempt",
                            "ResourceType": "VirtualMachine",
                            "Resources": [machine],
                            "NotBefore": utc("%a, %d %b %Y %H:%M:%S GMT", seconds + later),
                        }
                        for machine, later in [("somebody-else", -5), (OWN_NAME, 0)]
                    ],
                }
            ),
        }
        with self.changed:
            self.notice = bodies[self.name]
            self.changed.notify_all()

    def close(self):
        self.server.shutdown()
        self.server.server_close()
