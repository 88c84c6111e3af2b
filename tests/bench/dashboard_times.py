# SPDX-License-Identifier: Apache-2.0
"""The first picture of the page, and a commit's way to it. `./dev bench dashboard` runs it."""

import datetime
import pathlib
import statistics
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent / "end_to_end"))
from cluster import Cluster  # noqa: E402
from dashboard_test import Dashboard, browser  # noqa: E402

OPENS = 11
COMMITS = 40

# When each commit of expert 0 first stood in the chart's words.
WATCH = """
window.seen = {};
new MutationObserver(() => {
  for (const title of document.querySelectorAll('#lanes rect title')) {
    const step = title.textContent.match(/^expert 0 on .* up to step (\\d+)$/)?.[1];
    if (step) window.seen[step] ??= Date.now();
  }
}).observe(document.getElementById('lanes'), {childList: true, subtree: true});
"""
# Milliseconds from the navigation until the chart stands.
DRAWN = """
const done = arguments[arguments.length - 1];
const look = () => document.querySelector('#lanes rect') && document.querySelector('#loss path')
  ? done(performance.now()) : requestAnimationFrame(look);
look();
"""


def measure(args):
    chromium = browser()
    if chromium is None:
        sys.exit("chromium, chromium-driver or python3-selenium is missing: ./dev setup")
    chromium.set_script_timeout(60)
    programs = pathlib.Path(args.bin)
    with Cluster(programs, engine=programs / "skerry-fake-engine") as made:
        made.start_coordinator()
        for name in ("a", "b"):
            made.start_daemon(name, env={"SKERRY_FAKE_STEP_MS": "50"})
        made.add_dataset()
        made.create_run("shapes", train={"steps": 1_000_000})
        made.wait_event(kind="committed", run="shapes", expert=0)
        page = Dashboard(made, "shapes")
        try:
            first = []
            for _ in range(OPENS):
                chromium.get("about:blank")
                chromium.get(page.base)
                first.append(chromium.execute_async_script(DRAWN))
            print("first pictures, ms:", ", ".join(str(round(each)) for each in first), flush=True)
            chromium.execute_script(WATCH)
            made.wait(
                lambda: len(chromium.execute_script("return Object.keys(seen)")) >= COMMITS,
                "commits on the page",
                page.process,
            )
            seen = chromium.execute_script("return seen")
        finally:
            page.close()
            chromium.quit()
        committed = {
            point["step"]: 1000 * datetime.datetime.fromisoformat(point["time"][:-1] + "+00:00")
            .timestamp()
            for point in made.items("run", "history", "shapes", "--expert", "0")
        }
    late = sorted(when - committed[int(step)] for step, when in seen.items())
    return {
        "first_picture_median_ms": round(statistics.median(first)),
        "first_picture_longest_ms": round(max(first)),
        "commits": len(late),
        "update_median_ms": round(statistics.median(late)),
        "update_longest_ms": round(late[-1]),
    }
