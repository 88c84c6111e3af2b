# SPDX-License-Identifier: Apache-2.0
"""An S3-compatible store on loopback, stricter than most.

It holds each signature to botocore's of the same request, and refuses one that has run out. It
fails when it is told to: see Faults.
"""

import calendar
import collections
import http.server
import threading
import time
import urllib.parse
import xml.sax.saxutils

import botocore.auth
import botocore.awsrequest
import botocore.credentials

NAMESPACE = "http://s3.amazonaws.com/doc/2006-03-01/"
PAGE = 7  # keys of one list: small, so that lists go over several


class Faults:
    """What goes wrong, until it is set back."""

    def __init__(self):
        self.status = None  # every request is refused with (status, code)
        self.one_in = 0  # one request of so many is answered with 503
        self.truncated = 0  # so many answers to GET end early
        self.room = None  # bytes that the store takes, in all


class _Server(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_):
        """A client was killed."""


class S3Double:
    def __init__(self, bucket="models", key_id="AKIDEXAMPLE", secret="wJalr/EXAMPLE+KEY"):
        self.bucket, self.key_id, self.secret, self.region = bucket, key_id, secret, "eu-west-7"
        self.objects, self.faults = {}, Faults()
        self.lock = threading.Lock()
        self.counts = collections.Counter()  # requests by method, and "refused"
        double = self

        class Handler(_Handler):
            store = double

        self.server = _Server(("127.0.0.1", 0), Handler)
        self.endpoint = f"http://127.0.0.1:{self.server.server_address[1]}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def close(self):
        self.server.shutdown()
        self.server.server_close()

    @property
    def environment(self):
        return {"AWS_ACCESS_KEY_ID": self.key_id, "AWS_SECRET_ACCESS_KEY": self.secret}

    def arguments(self, prefix="fleet"):
        return [
            "--store",
            f"s3://{self.bucket}/{prefix}",
            "--store-endpoint",
            self.endpoint,
            "--store-region",
            self.region,
        ]

    def keys(self, prefix=""):
        with self.lock:
            return sorted(key for key in self.objects if key.startswith(prefix))

    def bytes(self):
        with self.lock:
            return sum(map(len, self.objects.values()))

    def signature_error(self, method, path, query):
        """Why the request is not signed as botocore signs it; None if it is."""
        given = dict(query)
        try:
            signature, when = given.pop("X-Amz-Signature"), given["X-Amz-Date"]
            valid = int(given["X-Amz-Expires"])
        except (KeyError, ValueError):
            return "AccessDenied"
        signed_at = calendar.timegm(time.strptime(when, "%Y%m%dT%H%M%SZ"))
        if abs(time.time() - signed_at) > 900:
            return "RequestTimeTooSkewed"
        if time.time() > signed_at + valid:
            return "AccessDenied"
        plain = {k: v for k, v in given.items() if not k.startswith("X-Amz-")}
        request = botocore.awsrequest.AWSRequest(
            method=method,
            url=self.endpoint + urllib.parse.quote(path, safe="/-._~"),
            params=plain,
            headers={"host": self.endpoint.removeprefix("http://")},
        )
        request.context["timestamp"] = when
        auth = botocore.auth.S3SigV4QueryAuth(
            botocore.credentials.Credentials(self.key_id, self.secret), "s3", self.region, valid
        )
        request.url += "?" + "&".join(
            f"{urllib.parse.quote(k, safe='-._~')}={urllib.parse.quote(v, safe='-._~')}"
            for k, v in sorted({**plain, **_of_auth(auth, when)}.items())
        )
        request.params = {}
        canonical = auth.canonical_request(request)
        expected = auth.signature(auth.string_to_sign(request, canonical), request)
        return None if expected == signature else "SignatureDoesNotMatch"


def _of_auth(auth, when):
    return {
        "X-Amz-Algorithm": "AWS4-HMAC-SHA256",
        "X-Amz-Credential": f"{auth.credentials.access_key}/{when[:8]}/{auth._region_name}/s3/"
        "aws4_request",
        "X-Amz-Date": when,
        "X-Amz-Expires": str(auth._expires),
        "X-Amz-SignedHeaders": "host",
    }


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    store = None

    def log_message(self, *_):
        pass

    def answer(self, status, body=b"", declared=None):
        self.send_response(status)
        self.send_header("Content-Length", str(len(body) if declared is None else declared))
        self.end_headers()
        self.wfile.write(body)
        if declared is not None:
            self.close_connection = True

    def refuse(self, status, code):
        self.store.counts["refused"] += 1
        self.answer(
            status,
            f"<?xml version='1.0'?><Error><Code>{code}</Code><Message>as the test asks"
            "</Message></Error>".encode(),
        )

    def handle_request(self):
        store, faults = self.store, self.store.faults
        length = int(self.headers.get("Content-Length") or 0)
        body = self.rfile.read(length)
        if len(body) < length:
            return
        parts = urllib.parse.urlsplit(self.path)
        path = urllib.parse.unquote(parts.path)
        query = urllib.parse.parse_qsl(parts.query, keep_blank_values=True)
        with store.lock:
            store.counts[self.command] += 1
            number = sum(store.counts[method] for method in ("GET", "PUT", "DELETE"))
        error = store.signature_error(self.command, path, query)
        if error:
            return self.refuse(403, error)
        if faults.status:
            return self.refuse(*faults.status)
        if faults.one_in and number % faults.one_in == 0:
            return self.refuse(503, "SlowDown")
        bucket, _, key = path.lstrip("/").partition("/")
        if bucket != store.bucket:
            return self.refuse(404, "NoSuchBucket")
        with store.lock:
            self.of_key(key, dict(query), body)

    def of_key(self, key, query, body):
        store, faults = self.store, self.store.faults
        if not key:
            return self.answer(200, self.page(query))
        if self.command == "PUT":
            there = sum(map(len, store.objects.values()))
            if faults.room is not None and there + len(body) > faults.room:
                return self.refuse(507, "XMinioStorageFull")
            store.objects[key] = body
            return self.answer(200)
        if self.command == "DELETE":
            store.objects.pop(key, None)
            return self.answer(204)
        if key not in store.objects:
            return self.refuse(404, "NoSuchKey")
        found = store.objects[key]
        if faults.truncated > 0:
            faults.truncated -= 1
            return self.answer(200, found[: len(found) // 2], declared=len(found))
        return self.answer(200, found)

    def page(self, query):
        keys = sorted(k for k in self.store.objects if k.startswith(query.get("prefix", "")))
        begin = int(query.get("continuation-token", "0/+=").partition("/")[0])
        shown = keys[begin : begin + PAGE]
        rows = "".join(
            f"<Contents><Key>{xml.sax.saxutils.escape(k)}</Key>"
            f"<Size>{len(self.store.objects[k])}</Size></Contents>"
            for k in shown
        )
        more = begin + PAGE < len(keys)
        token = f"<NextContinuationToken>{begin + PAGE}/+=</NextContinuationToken>" if more else ""
        return (
            f'<?xml version="1.0"?><ListBucketResult xmlns="{NAMESPACE}">'
            f"<IsTruncated>{str(more).lower()}</IsTruncated>{token}{rows}</ListBucketResult>"
        ).encode()

    do_GET = do_PUT = do_DELETE = handle_request
