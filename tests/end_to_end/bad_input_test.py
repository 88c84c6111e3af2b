#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Bad input gets a clear error and loses nothing, with the real programs."""

import json
import os
import pathlib
import shutil
import signal
import subprocess
import tempfile
import unittest

from case import BIN, FAKE_ENGINE, EndToEnd, needs_engine
from cluster import without_report, write_idx

# Exit codes of `skerry`.
USAGE_OR_ERROR, NOT_FOUND, UNREACHABLE, AUTH, CONFLICT = (1, 2), 3, 4, 5, 6
BAD_CONFIGURATION = 78


def leave(command, limit=60, **arguments):
    """Runs a program that is expected to refuse by itself."""
    return without_report(
        subprocess.run(
            [str(c) for c in command],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=limit,
            **arguments,
        )
    )


@needs_engine
class Data(EndToEnd):
    @classmethod
    def setUpClass(cls):
        cls.engine = BIN / "skerry-engine"

    def ingest(self, path, out, *args):
        return leave([self.engine, "ingest", path, "--out", out, *args])

    def folder(self):
        made = pathlib.Path(tempfile.mkdtemp(prefix="skerry-bad-"))
        self.addCleanup(shutil.rmtree, made, ignore_errors=True)
        return made

    def test_empty_folder(self):
        top = self.folder()
        (top / "images").mkdir()
        done = self.ingest(top / "images", top / "out", "--partitions", 2)
        self.assertNotEqual(done.returncode, 0)
        self.assertRegex(done.stderr, "(?i)empty|no image|nothing")
        self.assertFalse((top / "out").exists())

    def test_unknown_format(self):
        top = self.folder()
        (top / "notes.xyz").write_text("not an image")
        done = self.ingest(top / "notes.xyz", top / "out", "--partitions", 2)
        self.assertNotEqual(done.returncode, 0)
        self.assertRegex(done.stderr, "(?i)format|expected|understood")

    def test_more_partitions_than_images(self):
        top = self.folder()
        write_idx(top / "images", 20)
        done = self.ingest(top / "images", top / "out", "--partitions", 64)
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("64", done.stderr)

    def test_truncated_idx(self):
        top = self.folder()
        write_idx(top / "images", 200)
        images = top / "images/train-images-idx3-ubyte"
        images.write_bytes(images.read_bytes()[:-1000])
        done = self.ingest(top / "images", top / "out", "--partitions", 2)
        self.assertNotEqual(done.returncode, 0)
        self.assertRegex(done.stderr, "(?i)bytes|truncated|short|end")

    def test_corrupt_image_is_skipped_counted_and_named(self):
        from demo import generated_images

        top = self.folder()
        generated_images(top / "images", per_class=30)
        (top / "images/disc/broken.png").write_bytes(b"\x89PNG\r\n\x1a\nnonsense")
        done = self.ingest(top / "images", top / "out", "--partitions", 2)
        self.assertEqual(done.returncode, 0, done.stderr)
        index = json.loads((top / "out/dataset.json").read_text())
        self.assertEqual(index["skipped"], 1)
        self.assertIn("broken.png", index["skipped_examples"][0]["path"])
        self.assertIn("broken.png", done.stderr)


class Administration(EndToEnd):
    """One cluster without daemons for all of these: none of them may harm it."""

    def setUp(self):
        self.it = self.cluster()
        self.it.start_coordinator()

    def refused(self, *args, code=None):
        done = self.it.run(*args, check=False)
        self.assertNotEqual(done.returncode, 0, f"{args} was accepted: {done.stdout}")
        if code is not None:
            self.assertIn(
                done.returncode, code if isinstance(code, tuple) else (code,), done.stderr
            )
        self.assertTrue(done.stderr.strip(), "an error is said")
        return done.stderr

    def run_file(self, text):
        path = self.it.root / "bad.toml"
        path.write_text(text)
        return path

    def test_run_files(self):
        message = self.refused(
            "run",
            "create",
            "-f",
            self.run_file('name = "x"\ndataset = "y"\n[train]\nsteps = = 3\n'),
        )
        self.assertIn("bad.toml:4", message)
        message = self.refused(
            "run", "create", "-f", self.run_file('name = "x"\ndataset = "y"\n[train]\nstep = 3\n')
        )
        self.assertIn("bad.toml:4", message)
        self.assertIn("steps", message)
        message = self.refused(
            "run",
            "create",
            "-f",
            self.run_file('name = "x"\ndataset = "y"\n[train]\nsteps = "many"\n'),
        )
        self.assertIn("bad.toml:4", message)
        message = self.refused("run", "create", "-f", self.it.root / "absent.toml")
        self.assertIn("absent.toml", message)
        self.refused(
            "run",
            "create",
            "-f",
            self.run_file('name = "x"\ndataset = "absent"\n[train]\nsteps = 3\n'),
            code=NOT_FOUND,
        )

    def test_names_that_are_not_there(self):
        for args in (
            ("run", "show", "absent"),
            ("node", "show", "absent"),
            ("dataset", "show", "absent"),
            ("ensemble", "fetch", "absent", "-o", self.it.root / "e"),
        ):
            self.refused(*args, code=NOT_FOUND)

    def test_log_of_a_stopped_node(self):
        daemon = self.it.start_daemon("still")
        daemon.signal(signal.SIGSTOP)
        self.addCleanup(daemon.signal, signal.SIGCONT)
        self.assertIn("still is silent", self.refused("node", "logs", "still", code=UNREACHABLE))

    def test_tokens(self):
        token = self.it.json("token", "create", "--role", "node", "--uses", 1)["token"]

        def join(text, name):
            return leave(
                [
                    BIN / "skerryd",
                    "join",
                    text,
                    "--data",
                    self.it.root / name,
                    "--name",
                    name,
                    "--engine",
                    self.it.engine,
                ]
            )

        garbled = join(token[:40] + ("a" if token[40] != "a" else "b") + token[41:], "garbled")
        self.assertEqual(garbled.returncode, BAD_CONFIGURATION, garbled.stderr)
        self.assertRegex(garbled.stderr, "(?i)garbled|damaged|copied")
        self.it.start_daemon("first")  # with a token of its own
        spent = self.it.json("token", "create", "--role", "node", "--uses", 1)["token"]
        one = self.it.join(spent, "one")
        self.addCleanup(one.kill)
        self.it.wait(
            lambda: any(n["name"] == "one" for n in self.it.items("node", "list")),
            "one to join",
            one,
        )
        two = join(spent, "two")
        self.assertEqual(two.returncode, BAD_CONFIGURATION, two.stderr)
        self.assertRegex(two.stderr, "(?i)used|spent")

        other = self.cluster()
        other.start_coordinator()
        foreign = join(other.json("token", "create", "--role", "node")["token"], "first")
        self.assertEqual(foreign.returncode, BAD_CONFIGURATION, foreign.stderr)
        self.assertRegex(foreign.stderr, "another skerryd is running")
        self.it.daemons["first"].stop()
        foreign = join(other.json("token", "create", "--role", "node")["token"], "first")
        self.assertEqual(foreign.returncode, BAD_CONFIGURATION, foreign.stderr)
        self.assertRegex(foreign.stderr, "belongs to another coordinator.*fresh --data")
        revoked = self.it.json("token", "create", "--role", "node")
        self.it.run("token", "revoke", revoked["id"])
        gone = join(revoked["token"], "gone")
        self.assertEqual(gone.returncode, BAD_CONFIGURATION, gone.stderr)
        self.assertRegex(gone.stderr, "(?i)revoked")

    def test_roles(self):
        token = self.it.json("token", "create", "--role", "viewer")["token"]
        env = {**os.environ, "XDG_CONFIG_HOME": str(self.it.root / "config"), "NO_COLOR": "1"}
        env.pop("SKERRY_CONTEXT", None)
        done = leave([BIN / "skerry", "login", token], env=env)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(leave([BIN / "skerry", "node", "list"], env=env).returncode, 0)
        done = leave([BIN / "skerry", "token", "create", "--role", "admin"], env=env)
        self.assertEqual(done.returncode, AUTH, done.stderr)
        self.assertIn("viewer", done.stderr)

    def test_port_in_use(self):
        done = leave(
            [
                BIN / "skerry-coordinator",
                "--data",
                self.it.root / "second",
                "--listen",
                f"127.0.0.1:{self.it.port}",
            ]
        )
        self.assertNotEqual(done.returncode, 0)
        self.assertIn(str(self.it.port), done.stderr)

    def test_addresses(self):
        for flag, value, said in (
            ("--listen", "127.0.0.1:65535", "65533 at most"),
            ("--listen", "127.0.0.1:65536", "ports up to 65535"),
            ("--advertise", "host:1,2", "HOST:ENROL,CONTROL,BLOB"),
            ("--advertise", "host:1,2,x", "HOST:ENROL,CONTROL,BLOB"),
            ("--advertise", "host:1,2,3,4", "HOST:ENROL,CONTROL,BLOB"),
            ("--advertise", "host:1,2,0", "port 0 cannot be dialled"),
        ):
            listen = [] if flag == "--listen" else ["--listen", "127.0.0.1:0"]
            done = leave(
                [
                    BIN / "skerry-coordinator",
                    "--data",
                    self.it.root / "addresses",
                    *listen,
                    flag,
                    value,
                ]
            )
            self.assertEqual(done.returncode, BAD_CONFIGURATION, (flag, value, done.stderr))
            self.assertIn(flag + ": ", done.stderr)
            self.assertIn(said, done.stderr)

    def test_an_interrupted_command(self):
        follow = subprocess.Popen(
            [BIN / "skerry", "event", "list", "--follow", "-o", "json"],
            stdout=subprocess.PIPE,
            env={**os.environ, "SKERRY_CONTEXT": str(self.it.root / "coordinator/admin.toml")},
        )
        follow.stdout.readline()  # it follows
        follow.send_signal(signal.SIGINT)
        self.assertEqual(follow.wait(60), 130)
        follow.stdout.close()

    def test_folder_in_use(self):
        done = leave(
            [
                BIN / "skerry-coordinator",
                "--data",
                self.it.root / "coordinator",
                "--listen",
                "127.0.0.1:0",
            ]
        )
        self.assertNotEqual(done.returncode, 0)
        self.assertRegex(done.stderr, "(?i)another|in use|lock")

    def test_nobody_there(self):
        self.it.coordinator.kill()
        done = self.it.run("node", "list", check=False)
        self.assertEqual(done.returncode, UNREACHABLE, done.stderr)
        self.assertIn(str(self.it.port), done.stderr)


class Start(EndToEnd):
    """What a rented machine may lack: a last line that says what to do, and status 78."""

    def refused(self, *words, **environment):
        done = leave(
            [BIN / "skerryd", *words, "--engine", FAKE_ENGINE],
            env={**os.environ, **environment},
        )
        self.assertEqual(done.returncode, BAD_CONFIGURATION, done.stderr)
        lines = [line for line in done.stderr.splitlines() if " info skerryd " not in line]
        self.assertEqual(len(lines), 1, done.stderr)
        return lines[0]

    def folder(self):
        made = pathlib.Path(tempfile.mkdtemp(prefix="skerry-start-"))
        self.addCleanup(shutil.rmtree, made, ignore_errors=True)
        return made

    def test_no_token(self):
        folder = self.folder() / "data"
        words = self.refused("--data", folder)
        self.assertRegex(words, "run skerryd join TOKEN --data .*, or set SKERRY_TOKEN")

    def test_a_data_folder_that_cannot_be_written(self):
        folder = self.folder()
        mount = ["mount", "-t", "tmpfs", "-o", "ro", "tmpfs", folder]
        if subprocess.run(mount, capture_output=True, check=False).returncode:
            self.skipTest("cannot mount a read-only tmpfs here")
        self.addCleanup(subprocess.run, ["umount", "-l", folder], check=False)
        for data in (folder, folder / "data"):
            words = self.refused("join", "token", "--data", data)
            self.assertRegex(words, "Read-only.*mount a writable volume.*--data")
        done = leave([BIN / "skerry-coordinator", "--data", folder / "c", "--listen", "a:1"])
        self.assertEqual(done.returncode, BAD_CONFIGURATION, done.stderr)
        self.assertRegex(done.stderr, "Read-only.*mount a writable volume.*--data")

    def test_a_port_that_is_no_number(self):
        for port in ("x", "65536", "-1", ""):
            words = self.refused(
                "join", "t", "--data", self.folder(), SKERRY_PEER_LISTEN=f"127.0.0.1:{port}"
            )
            self.assertRegex(words, "--peer-listen: .*expected HOST:PORT")

    @unittest.skipIf(os.environ.get("SKERRY_SANITIZE"), "a sanitizer must be loaded first")
    def test_a_clock_that_is_20_minutes_off(self):
        it = self.cluster()
        it.start_coordinator()
        it.add_dataset(partitions=1)
        for name, seconds in (("ahead", 1200), ("behind", -1200)):
            off = {"LD_PRELOAD": os.environ["SKERRY_FAKE_CLOCK"], "SKERRY_FAKE_CLOCK_AT": seconds}
            off = {key: str(value) for key, value in off.items()}
            token = it.json("token", "create", "--role", "node", "--ttl", "10m")["token"]
            if name == "ahead":  # the token is valid, and looks expired
                words = self.refused("join", token, "--data", it.root / "short", **off)
                self.assertRegex(words, "expired at .*, and here it is .*set this machine's clock")
            it.start_daemon(name, env=off)
            it.create_run(name)
            it.wait_run(name)
            it.daemons[name].stop()
            done = leave(
                [BIN / "skerry", "doctor", "-o", "json"],
                env={**os.environ, **it.cli_env(), "SKERRY_ENGINE": str(it.engine), **off},
            )
            clock = next(c for c in json.loads(done.stdout)["items"] if c["name"] == "clock")
            self.assertEqual(clock["status"], "warning")
            self.assertRegex(clock["todo"], "NTP")
        self.assertEqual(it.events(kind="lease_lost"), [])


class Disk(EndToEnd):
    def tmpfs(self, size):
        where = pathlib.Path(tempfile.mkdtemp(prefix="skerry-disk-"))
        if subprocess.run(
            ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", where], capture_output=True
        ).returncode:
            where.rmdir()
            self.skipTest("cannot mount a small tmpfs here")

        def release():
            subprocess.run(["umount", "-l", where], check=False)
            where.rmdir()

        self.addCleanup(release)
        return where

    def test_full_disk_of_a_daemon_resumes_by_itself(self):
        cluster = self.cluster()
        cluster.start_coordinator()
        cluster.add_dataset(partitions=1)
        disk = self.tmpfs("96m")
        filler = disk / "filler"
        token = cluster.json("token", "create", "--role", "node")["token"]
        process = cluster.join(
            token, "small", data=disk / "data", env={"SKERRY_FAKE_STEP_MS": "20"}
        )
        cluster.create_run("run", train={"steps": 400})
        cluster.wait_event(kind="committed", run="run")
        with open(
            filler, "wb", buffering=0
        ) as out:  # a buffer would be written again at the end, to the full disk
            try:
                while True:
                    out.write(bytes(1 << 16))
            except OSError:
                pass
        cluster.wait(
            lambda: "full" in process.log_text()
            or "No space" in process.log_text()
            or "room" in process.log_text(),
            "the daemon to say that its disk is full",
        )
        filler.unlink()
        cluster.wait_run("run")
        process.stop()

    @needs_engine
    def test_corrupt_shard_is_fetched_again(self):
        cluster = self.cluster(fake=False)
        cluster.start_coordinator()
        cluster.add_dataset(partitions=1)
        cluster.start_daemon("one")
        cluster.create_run("run", train={"steps": 20})
        cluster.wait_run("run")
        cluster.daemons["one"].stop()
        shards = [
            p for p in (cluster.root / "one/objects").iterdir() if p.stat().st_size > 100000
        ]  # and a checkpoint
        self.assertTrue(shards, "the daemon keeps its shards")
        for path in shards:
            with open(path, "r+b") as f:
                f.seek(path.stat().st_size // 2)
                byte = f.read(1)
                f.seek(-1, os.SEEK_CUR)
                f.write(bytes([byte[0] ^ 1]))
        cluster.start_daemon("one")
        cluster.create_run("again", train={"steps": 20})
        cluster.wait_run("again")
        a, b = (cluster.experts(run)[0] for run in ("run", "again"))
        self.assertEqual(a["step"], b["step"])

    @needs_engine
    def test_shard_damaged_on_the_coordinator_is_told_and_mended(self):
        cluster = self.cluster()
        cluster.start_coordinator()
        write_idx(cluster.root / "shapes-images", 400)
        cluster.run("dataset", "add", "shapes", cluster.root / "shapes-images", "--partitions", 1)
        shard = max(
            (cluster.root / "coordinator/objects").iterdir(), key=lambda path: path.stat().st_size
        )
        with open(shard, "r+b") as file:
            file.seek(-1, os.SEEK_END)
            byte = file.read(1)
            file.seek(-1, os.SEEK_END)
            file.write(bytes([byte[0] ^ 1]))
        cluster.start_daemon("one")
        cluster.create_run("run", train={"steps": 20})
        told = cluster.wait_event(kind="object_damaged")
        self.assertEqual((told["run"], told["expert"]), ("run", 0))
        self.assertIn("shapes", told["reason"])
        why = cluster.run("run", "why", "run").stdout
        self.assertIn("dataset add shapes", why)
        self.assertEqual(cluster.json("dataset", "show", "shapes")["state"], "damaged")
        cluster.coordinator.kill()
        cluster.start_coordinator()  # it knows it still, and starts
        cluster.wait_event(kind="object_damaged", count=2)
        cluster.run("dataset", "add", "shapes", cluster.root / "shapes-images", "--partitions", 1)
        cluster.wait_run("run")
        self.assertEqual(len(cluster.events(kind="object_mended")), 1)
        self.assertNotIn("damaged", cluster.run("run", "why", "run").stdout)

    @needs_engine
    def test_ensemble_folder_that_exists(self):
        cluster = self.cluster(fake=False)
        cluster.start_coordinator()
        cluster.add_dataset(partitions=1)
        cluster.start_daemon("one")
        cluster.create_run("run", train={"steps": 20})
        cluster.wait_run("run")
        out = cluster.root / "ensemble"
        cluster.run("ensemble", "fetch", "run", "-o", out)
        mark = (out / "ensemble.json").read_bytes()
        done = cluster.run("ensemble", "fetch", "run", "-o", out, check=False)
        self.assertEqual(done.returncode, CONFLICT, done.stderr)
        self.assertEqual((out / "ensemble.json").read_bytes(), mark)
        self.assertEqual(
            leave(["sha256sum", "--check", "--quiet", "SHA256SUMS"], cwd=out).returncode, 0
        )


if __name__ == "__main__":
    unittest.main()
