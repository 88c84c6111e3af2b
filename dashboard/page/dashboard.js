// SPDX-License-Identifier: Apache-2.0
// Reads the documents that changed, and has their parts of the page drawn.
// /api/events says which changed.
import * as draws from '/sections.js';
import {at, shownRun, view} from '/sections.js';

const due = new Set();  // paths to read
view.run = decodeURIComponent(location.hash.slice(1));

const DRAW = [
  ['/api/v1/status', draws.drawStatus], ['/api/v1/attention', draws.drawMatters],
  ['/api/v1/runs', () => draws.drawPicker(choose)], ['/api/v1/run', draws.drawRun],
  ['/api/v1/run', draws.drawLanes], ['/api/v1/run', draws.drawLoss],
  ['/api/v1/run', draws.drawExperts], ['/api/v1/nodes', draws.drawFleet],
  ['/api/v1/events', draws.drawEvents], ['/api/v1/events', draws.drawLanes]
];

function draw(changed) {
  const done = new Set();
  for (const [prefix, drawIt] of DRAW) {
    if (done.has(drawIt) || ![...changed].some((path) => path.startsWith(prefix))) continue;
    done.add(drawIt);
    drawIt();
  }
}
const drawAll = () => draw([
  '/api/v1/status', '/api/v1/attention', '/api/v1/runs', '/api/v1/run', '/api/v1/nodes',
  '/api/v1/events'
]);

// ---- Reading

const isShown = (path) => !path.startsWith('/api/v1/run/') || path === `/api/v1/run/${view.run}` ||
    path === `/api/v1/run/${view.run}/history`;

// A large document is read less often, so that a phone can follow.
const notBefore = new Map();
let reading = false;
let again = false;  // more became due meanwhile

async function readDue() {
  if (reading) {
    again = true;
    return;
  }
  reading = true;
  again = false;
  const changed = new Set();
  const now = performance.now();
  for (const path of [...due].filter(isShown)) {
    if ((notBefore.get(path) ?? 0) > now) continue;
    due.delete(path);
    try {
      const answer = await fetch(path, {cache: 'no-cache'});
      const words = await answer.text();
      if (!answer.ok) continue;
      notBefore.set(path, performance.now() + words.length / 50);
      view.documents.set(path, JSON.parse(words));
      changed.add(path);
    } catch {  // the stream says when the program is back
      due.add(path);
      break;
    }
  }
  reading = false;
  draw(changed);
  if (again) await readDue();
}

function choose(name) {
  view.run = name;
  view.chosen = null;
  history.replaceState(null, '', `#${encodeURIComponent(name)}`);
  draws.drawEvents();
  due.add(`/api/v1/run/${name}`).add(`/api/v1/run/${name}/history`);
  readDue();
}

// What the stream said, or since when it is silent.
function hear({paths, silentSince}) {
  view.silentSince = silentSince;
  for (const path of paths) due.add(path);
  readDue().then(draws.drawStatus);
}

// A browser has six connections for all tabs of a host. One tab holds the
// stream and tells the others; when it closes, the next one does.
const tabs = new BroadcastChannel('skerry');
tabs.onmessage = (message) => hear(message.data);
navigator.locks.request('skerry-stream', () => new Promise(() => {
                                           const stream = new EventSource('/api/events');
                                           let silentSince = null;
                                           const tell = (paths) => {
                                             hear({paths, silentSince});
                                             tabs.postMessage({paths, silentSince});
                                           };
                                           stream.onmessage = (message) => {
                                             silentSince = null;
                                             tell(Object.keys(JSON.parse(message.data)));
                                           };
                                           stream.onopen = () => {
                                             silentSince = null;
                                             tell([]);
                                           };
                                           stream.onerror = () => {
                                             silentSince ??= Date.now();
                                             tell([]);
                                           };
                                         }));
hear({
  paths: ['status', 'attention', 'runs', 'nodes', 'events'].map((name) => `/api/v1/${name}`),
  silentSince: null
});
if (view.run) choose(view.run);

at('picker').onchange = (event) => {
  choose(event.target.value);
  drawAll();
};
window.onhashchange = () => {
  choose(decodeURIComponent(location.hash.slice(1)));
  drawAll();
};
at('by-expert').onclick = () => setRows('expert');
at('by-node').onclick = () => setRows('node');
function setRows(value) {
  view.rows = value;
  at('by-expert').setAttribute('aria-pressed', String(value === 'expert'));
  at('by-node').setAttribute('aria-pressed', String(value === 'node'));
  draws.drawLanes();
}
at('span').onchange = draws.drawLanes;
at('log-scale').onchange = draws.drawLoss;
at('all-events').onchange = draws.drawEvents;
at('loss-key').onclick = (event) => {
  const button = event.target.closest('button');
  if (!button) return;
  view.chosen = view.chosen === Number(button.value) ? null : Number(button.value);
  draws.drawLoss();
};
let resized = 0;
window.onresize = () => {
  clearTimeout(resized);
  resized = setTimeout(() => {
    draws.drawLanes();
    draws.drawLoss();
  }, 100);
};
setInterval(() => {
  readDue();
  draws.drawExperts();
  draws.drawFleet();
  if (shownRun()?.state === 'running') draws.drawLanes();
}, 1000);
