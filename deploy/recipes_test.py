#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The recipes in deploy/: they parse, and name only what images and programs have.

usage: recipes_test.py BIN   (the folder of the programs)

Of compose, Kubernetes and SkyPilot it checks the rules that these files use.
Their own schemas are applied where a Python package brings them
(kubernetes-validate, skypilot).
"""

import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

try:
    import yaml
except ImportError:
    print("skipped: python3-yaml is not installed")
    sys.exit(77)

HERE = pathlib.Path(__file__).resolve().parent
BIN = pathlib.Path(sys.argv.pop(1)).resolve()
PROGRAMS = {"node": "skerryd", "coordinator": "skerry-coordinator"}
IMAGES = {"node": "skerry-node", "coordinator": "skerry-small"}
PORTS = {"node": {7610}, "coordinator": {7600, 7601, 7602}}
DRAIN_DEFAULT = 20


def documents(name):
    return list(yaml.safe_load_all((HERE / name).read_text()))


def offered(role):
    """The SKERRY_ variables that the program's --help or the entry point names."""
    texts = [
        subprocess.run(command, capture_output=True, text=True, check=True).stdout
        for command in ([BIN / PROGRAMS[role], "--help"], [HERE / "image/entry", "--help"])
    ]
    return set(re.findall(r"\bSKERRY_[A-Z_]+\b", "".join(texts)))


class Recipes(unittest.TestCase):
    def check(self, role, image, command, env, grace):
        self.assertRegex(image, rf"/{IMAGES[role]}:")
        self.assertEqual(command, [role])
        self.assertLessEqual({name for name in env if name.startswith("SKERRY_")}, offered(role))
        for value in env.values():
            self.assertIsInstance(value, (str, dict))  # a number would lose its form
        if role == "node":
            drain = int(env.get("SKERRY_DRAIN_SECONDS", DRAIN_DEFAULT))
            self.assertGreater(grace, drain + 5)

    def test_compose(self):
        (file,) = documents("compose.yaml")
        self.assertEqual(set(file["services"]), set(PROGRAMS))
        volumes = set(file["volumes"])
        for role, service in file["services"].items():
            image = re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", service["image"])
            grace = int(service["stop_grace_period"].rstrip("s"))
            self.check(role, image, service["command"], service["environment"], grace)
            for published in service["ports"]:
                outside, inside = (
                    {int(each) for each in part.split("-")} for part in published.split(":")
                )
                self.assertEqual(outside, inside)
                self.assertLessEqual(inside, PORTS[role])
            for volume in service["volumes"]:
                name, path = volume.split(":")
                self.assertIn(name, volumes)
                self.assertEqual(path, "/workspace")

    def test_kubernetes(self):
        for role in PROGRAMS:
            service, pods = documents(f"kubernetes/{role}.yaml")
            self.assertEqual((service["kind"], service["apiVersion"]), ("Service", "v1"))
            self.assertEqual((pods["kind"], pods["apiVersion"]), ("StatefulSet", "apps/v1"))
            spec = pods["spec"]
            template = spec["template"]
            self.assertEqual(spec["serviceName"], service["metadata"]["name"])
            for chosen in (service["spec"]["selector"], spec["selector"]["matchLabels"]):
                self.assertEqual(chosen, template["metadata"]["labels"])
            (container,) = template["spec"]["containers"]
            env = {each["name"]: each.get("value", {}) for each in container["env"]}
            grace = template["spec"]["terminationGracePeriodSeconds"]
            self.check(role, container["image"], container["args"], env, grace)
            for ports, key in (
                (container["ports"], "containerPort"),
                (service["spec"]["ports"], "port"),
            ):
                self.assertEqual({each[key] for each in ports}, PORTS[role])
            claims = {each["metadata"]["name"] for each in spec["volumeClaimTemplates"]}
            self.assertEqual({each["name"] for each in container["volumeMounts"]}, claims)

    def test_kubernetes_by_its_schema(self):
        try:
            import kubernetes_validate
        except ImportError:
            self.skipTest("kubernetes-validate is not installed")
        for role in PROGRAMS:
            for document in documents(f"kubernetes/{role}.yaml"):
                kubernetes_validate.validate(document, "1.32", strict=True)

    def test_skypilot(self):
        (file,) = documents("skypilot.yaml")
        self.assertLessEqual(
            set(file), {"name", "resources", "envs", "secrets", "run", "setup", "num_nodes"}
        )
        command = file["run"].split()
        self.assertEqual(command[:2], ["exec", "/usr/libexec/skerry/entry"])
        env = {**file["envs"], **{name: "secret" for name in file["secrets"]}}
        image = file["resources"]["image_id"]
        self.assertTrue(image.startswith("docker:"))
        self.check("node", image, command[2:], env, 120)
        self.assertIsNone(file["secrets"]["SKERRY_TOKEN"])  # never in the file

    def test_skypilot_by_its_schema(self):
        try:
            import jsonschema
            from sky.utils import schemas
        except ImportError:
            self.skipTest("skypilot is not installed")
        jsonschema.validate(documents("skypilot.yaml")[0], schemas.get_task_schema())

    def test_each_says_how_to_give_the_machine_back(self):
        rents = [p for p in HERE.rglob("*.yaml") if p.parent.name != "monitoring"]
        found = [*rents, HERE / "runpod.sh", HERE / "vast.sh"]
        self.assertGreaterEqual(len(found), 6)
        for path in found:
            self.assertRegex(path.read_text(), r"(?i)give\S* (the machine |it |them )?back", path)


class Scripts(unittest.TestCase):
    """The hosts' programs are stubs that keep what they were asked."""

    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.root = pathlib.Path(temporary.name)
        for name in ("curl", "vastai", "skerry"):
            stub = self.root / name
            stub.write_text(f"""#!/bin/bash
printf '%s\\0' {name} "$@" >>{self.root}/asked
printf '\\n' >>{self.root}/asked
for word in "$@"; do case $word in @/dev/*) ;; @*) cat "${{word#@}}" >{self.root}/body ;; esac; done
""")
            stub.chmod(0o755)

    def run_it(self, script, *words, **env):
        path = f"{self.root}:{os.environ['PATH']}"
        done = subprocess.run(
            [HERE / script, *words],
            env={"PATH": path, **env},
            capture_output=True,
            text=True,
            check=False,
        )
        asked = self.root / "asked"
        calls = asked.read_text().splitlines() if asked.exists() else []
        return done, [call.split("\0")[:-1] for call in calls]

    def test_runpod_rents(self):
        done, calls = self.run_it(
            "runpod.sh",
            "rent",
            RUNPOD_API_KEY="key",
            SKERRY_TOKEN='to"ken',
            SKERRY_IMAGE="here/skerry-node:1",
        )
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("https://rest.runpod.io/v1/pods", calls[0])
        self.assertNotIn("key", " ".join(calls[0]))
        body = json.loads((self.root / "body").read_text())
        self.assertEqual(body["env"], {"SKERRY_TOKEN": 'to"ken'})
        self.assertEqual(body["imageName"], "here/skerry-node:1")
        self.assertEqual(body["dockerStartCmd"], ["node"])
        self.assertEqual(body["volumeMountPath"], "/workspace")
        self.assertIn("7610/tcp", body["ports"])

    def test_runpod_drains_before_it_deletes(self):
        _, calls = self.run_it("runpod.sh", "give-back", "pod1", "gpu-1", RUNPOD_API_KEY="key")
        self.assertEqual(calls[0], ["skerry", "node", "drain", "gpu-1"])
        self.assertIn("DELETE", calls[1])
        self.assertIn("https://rest.runpod.io/v1/pods/pod1", calls[1])

    def test_vast_rents(self):
        done, calls = self.run_it(
            "vast.sh", "rent", "384826", SKERRY_TOKEN="token", SKERRY_IMAGE="here/skerry-node:1"
        )
        self.assertEqual(done.returncode, 0, done.stderr)
        (call,) = calls
        self.assertEqual(call[:4], ["vastai", "create", "instance", "384826"])
        self.assertEqual(call[-2:], ["--args", "node"])  # --args must be the last
        self.assertIn("-p 7610:7610", call[call.index("--env") + 1])

    def test_vast_drains_before_it_destroys(self):
        _, calls = self.run_it("vast.sh", "give-back", "7835610", "gpu-1")
        self.assertEqual(calls[0], ["skerry", "node", "drain", "gpu-1"])
        self.assertEqual(calls[1][:4], ["vastai", "destroy", "instance", "7835610"])

    def test_what_is_missing_is_named(self):
        for words, name in (
            (("runpod.sh", "rent"), "RUNPOD_API_KEY"),
            (("vast.sh", "rent", "1"), "SKERRY_TOKEN"),
            (("vast.sh", "give-back", "x"), "instance"),
        ):
            done, calls = self.run_it(*words)
            self.assertEqual((done.returncode, done.stderr.count("\n"), calls), (78, 1, []))
            self.assertIn(name, done.stderr)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], "-v"])
