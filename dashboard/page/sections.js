// SPDX-License-Identifier: Apache-2.0
// The parts of the page. Every word of a document reaches it as a text node.
import {clock, colour, curves, lanes, svg} from '/charts.js';

export const at = (id) => document.getElementById(id);

// What is shown, and what it is drawn from.
export const view = {
  documents: new Map(),  // path -> what was read last
  run: '',               // its name
  rows: 'expert',        // of the chart: expert or node
  chosen: null,          // the expert whose loss stands out
  silentSince: null,     // since when the program that serves this is gone
};

function make(name, properties = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(properties)) {
    if (key.includes('-') || key === 'scope')
      made.setAttribute(key, value);
    else
      made[key] = value;
  }
  made.append(...children.filter((child) => child !== null));
  return made;
}

const items = (path) => view.documents.get(path)?.items ?? [];
export const shownRun = () => view.documents.get(`/api/v1/run/${view.run}`);
const number = (value, digits = 0) =>
    value.toLocaleString('en', {minimumFractionDigits: digits, maximumFractionDigits: digits});

function duration(seconds) {
  if (seconds < 60) return `${Math.max(0, Math.round(seconds))} s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min`;
  if (seconds < 86400)
    return `${Math.floor(seconds / 3600)} h ${Math.floor((seconds % 3600) / 60)} min`;
  return `${Math.floor(seconds / 86400)} d ${Math.floor((seconds % 86400) / 3600)} h`;
}
const ago = (time) => (time ? `${duration((Date.now() - Date.parse(time)) / 1000)} ago` : '–');

const TONES = {
  good: ['running', 'ready', 'training', 'done', 'committing'],
  bad: [
    'failed', 'lost', 'revoked', 'orphan', 'refused', 'fenced', 'engine_failed', 'node_lost',
    'lease_lost', 'object_damaged', 'disk_full'
  ],
  warning: ['paused', 'stopped', 'draining', 'cordoned', 'waiting', 'notice', 'budget', 'left'],
};
const tone = (word) => Object.keys(TONES).find((key) => TONES[key].includes(word)) ?? '';
const pill = (word) => make('span', {className: `pill ${tone(word)}`}, word ?? '–');

// ---- Sections

export function drawStatus() {
  const status = view.documents.get('/api/v1/status');
  const link = at('link'), away = at('away');
  let words = '';
  if (view.silentSince !== null) {
    words = `The dashboard's own program does not answer since ${
        clock(view.silentSince)}. What stands here is from before.`;
  } else if (status && !status.reachable) {
    words = `The coordinator does not answer since ${
        clock(Date.parse(
            status.away_since))}. Nodes go on training; this page shows what it said last.`;
  }
  away.hidden = words === '';
  if (away.textContent !== words) away.textContent = words;
  link.className = `link ${words ? 'bad' : 'good'}`;
  const said = view.silentSince !== null ? 'dashboard gone' :
      !status                            ? 'connecting' :
      status.reachable                   ? 'live' :
                                           'coordinator away';
  if (link.textContent !== said) link.textContent = said;
  if (status)
    at('foot').textContent = `${status.dashboard} · coordinator ${status.coordinator ?? 'unknown'}`;
}

export function drawMatters() {
  const found = items('/api/v1/attention');
  at('matters').replaceChildren(
      ...(found.length === 0 ?
              [make('li', {className: 'calm'}, 'Nothing needs you.')] :
              found.map(
                  (matter) => make(
                      'li', {className: matter.level}, make('b', {}, matter.what),
                      matter.reason || matter.do ?
                          make(
                              'p', {}, matter.reason ?? '', matter.reason && matter.do ? ' · ' : '',
                              matter.do ? make('code', {}, matter.do) : '') :
                          null))));
}

export function drawPicker(choose) {
  const runs = items('/api/v1/runs');
  if (!runs.some((each) => each.name === view.run || each.id === view.run)) {
    const newest = [...runs].sort(
        (a, b) => (b.state === 'running') - (a.state === 'running') ||
            Date.parse(b.created_at) - Date.parse(a.created_at))[0];
    if (newest) choose(newest.name);
  } else {
    view.run = runs.find((each) => each.name === view.run || each.id === view.run).name;
  }
  const picker = at('picker');
  const words = runs.map((each) => `${each.name} · ${each.state}`);
  if ([...picker.options].map((o) => o.textContent).join('\n') !== words.join('\n')) {
    picker.replaceChildren(...runs.map((each, i) => make('option', {value: each.name}, words[i])));
  }
  picker.value = view.run;
  picker.hidden = runs.length === 0;
}

function tile(term, value, note, bar = null) {
  return make(
      'div', {}, make('dt', {}, term),
      make(
          'dd', {}, value, make('small', {}, note),
          bar === null ? null : make('progress', {max: 1, value: bar, 'aria-label': term})));
}

export function drawRun() {
  const shown = shownRun();
  at('run-name').textContent = shown ? shown.name : 'No run yet';
  at('run-state').hidden = !shown;
  if (!shown) {
    at('run-note').textContent = 'skerry run create starts one';
    at('tiles').replaceChildren();
    return;
  }
  document.title = `${shown.name} · Skerry`;
  at('run-state').replaceWith(Object.assign(pill(shown.state), {id: 'run-state'}));
  const model = shown.spec.model.preset ?? `width ${shown.spec.model.width}`;
  at('run-note').textContent =
      `${shown.dataset} · ${model}${shown.reason ? ` · ${shown.reason}` : ''}`;
  const done = shown.steps_target > 0 ? shown.steps_done / shown.steps_target : 0;
  const budget = shown.spec.budget;
  const experts = shown.experts.filter((each) => !each.router);
  const busy = experts.filter((each) => each.node !== null).length;
  at('tiles').replaceChildren(
      tile(
          'Committed', `${number(100 * done, done < 0.1 ? 1 : 0)} %`,
          `${number(shown.steps_done)} of ${number(shown.steps_target)} steps`, done),
      tile(
          'Time left', shown.eta_seconds === null ? '–' : duration(shown.eta_seconds),
          shown.eta_seconds === null ?
              'not known' :
              `about ${new Date(Date.now() + 1000 * shown.eta_seconds).toLocaleString([], {
                weekday: 'short',
                hour: '2-digit',
                minute: '2-digit',
                hourCycle: 'h23'
              })}`),
      tile(
          'Speed', shown.samples_per_second > 0 ? number(shown.samples_per_second) : '–',
          'samples a second'),
      tile(
          'Experts at work', `${busy} of ${experts.length}`,
          `${experts.filter((each) => each.phase === 'done').length} done`),
      tile(
          'Goodput', shown.goodput === null ? '–' : `${number(100 * shown.goodput, 1)} %`,
          `${number(shown.lost_steps)} steps trained and lost`),
      tile(
          'Spent', `$${number(shown.dollars, 2)}`,
          `${budget.dollars > 0 ? `of $${number(budget.dollars, 2)} · ` : ''}$${
              number(shown.dollars_per_hour, 2)} an hour`,
          budget.dollars > 0 ? shown.dollars / budget.dollars : null));
}

const MARKS = {
  lease_lost: 'lost',
  node_lost: 'lost',
  lease_returned: 'drain',
  evicted: 'lost'
};

function marksOf(fits) {
  return items('/api/v1/events')
      .filter((event) => MARKS[event.kind] && fits(event))
      .map((event) => ({
             at: Date.parse(event.time),
             kind: MARKS[event.kind],
             words: `${clock(Date.parse(event.time))} ${event.kind.replaceAll('_', ' ')}${
                 event.node ? ` on ${event.node}` : ''}${event.reason ? `: ${event.reason}` : ''}`
           }));
}

// One bar for each lease that committed; a takeover is a lease of another node.
const barsOf = (expert) =>
    expert.leases.map((lease, i) => ({
                        ...lease,
                        expert: expert.index,
                        takeover: i > 0 && lease.node !== expert.leases[i - 1].node
                      }));

// What a node has trained since its last commit, or since it got the lease.
function openBar(expert, leases, names, to) {
  const node = names.indexOf(expert.node);
  const last = leases?.at(-1);
  const granted = items('/api/v1/events')
                      .findLast(
                          (event) => event.kind === 'granted' && event.run === shownRun().name &&
                              event.expert === expert.index);
  const from = last?.epoch === expert.epoch ? last.to : granted ? Date.parse(granted.time) : to;
  return {
    expert: expert.index,
    node,
    from,
    to,
    live: true,
    step: expert.live_step,
    takeover: last !== undefined && last.epoch !== expert.epoch && last.node !== node
  };
}

export function drawLanes() {
  const shown = shownRun(), history = view.documents.get(`/api/v1/run/${view.run}/history`);
  const place = at('lanes');
  const bars = history && shown ? history.experts.flatMap(barsOf) : [];
  if (bars.length === 0) {
    place.replaceChildren(make('p', {className: 'empty'}, 'No commit yet.'));
    at('lanes-key').replaceChildren();
    return;
  }
  const names = history.nodes, live = !['done', 'failed', 'stopped'].includes(shown.state);
  const last = Math.max(...bars.map((bar) => bar.to));
  const to = live ? Math.max(Date.now(), last) : last;
  const first = Math.min(...bars.map((bar) => bar.from)), span = Number(at('span').value) * 1000;
  const from = span > 0 ? Math.max(first, to - span) : first;
  const label = (index) => (shown.experts[index]?.router ? 'router' : `expert ${index}`);
  const open = shown.experts.filter((each) => each.node !== null && live)
                   .map((each) => openBar(each, history.experts[each.index]?.leases, names, to))
                   .filter((bar) => bar.node >= 0);
  const all = [...bars, ...open].map(
      (bar) => ({
        ...bar,
        words:
            `${label(bar.expert)} on ${names[bar.node]}, ${clock(bar.from)} to ${clock(bar.to)}, ${
                bar.live ? `at step ${bar.step}, not committed` : `up to step ${bar.step}`}`
      }));
  let lines;
  if (view.rows === 'expert') {
    lines = shown.experts.map(
        (each) => ({
          label: label(each.index),
          note: each.node ? `${each.node} · ${number(each.step)}` :
                            `${each.phase ?? ''} · ${number(each.step)}`,
          bars: all.filter((bar) => bar.expert === each.index)
                    .map((bar) => ({...bar, colour: bar.node})),
          marks: marksOf((event) => event.run === shown.name && event.expert === each.index)
        }));
  } else {
    lines = names.map((name, i) => {
      const now =
          shown.experts.filter((each) => each.node === name).map((each) => label(each.index));
      return {
        label: name,
        note: now.join(', ') || 'not at work here',
        bars: all.filter((bar) => bar.node === i)
                  .map((bar) => ({...bar, colour: bar.expert, takeover: false})),
        marks: marksOf((event) => event.node === name)
      };
    });
  }
  const takeovers = all.filter((bar) => bar.takeover).length;
  lanes(
      place, lines, from, to,
      `${lines.length} rows from ${clock(from)} to ${clock(to)}: which node trained which expert. ${
          takeovers} takeovers. The tables below say who trains now.`);
  const keys = view.rows === 'expert' ?
      names.map((name, i) => [name, i]) :
      shown.experts.map((each) => [label(each.index), each.index]);
  const shape = (attributes) =>
      svg('svg', {viewBox: '0 0 12 12', 'aria-hidden': 'true'}, svg('path', attributes));
  at('lanes-key')
      .replaceChildren(
          ...keys.map(
              ([name, i]) =>
                  make('li', {}, shape({class: `f${colour(i)}`, d: 'M1 1h10v10h-10z'}), name)),
          make('li', {}, shape({class: 'takeover', d: 'M6 0v12'}), 'takeover'),
          make('li', {}, shape({class: 'mark lost', d: 'M6 0l6 6-6 6-6-6z'}), 'lost'),
          make('li', {}, shape({class: 'mark drain', d: 'M0 1h12l-6 10z'}), 'given back'),
          make('li', {}, shape({class: 'live f9', d: 'M1 1h10v10h-10z'}), 'not committed'));
}

export function drawLoss() {
  const shown = shownRun(), history = view.documents.get(`/api/v1/run/${view.run}/history`);
  const all =
      (history?.experts ?? [])
          .filter((each) => !shown?.experts[each.index]?.router)
          .map(
              (each) =>
                  ({index: each.index, name: `expert ${each.index}`, x: each.step, y: each.loss}));
  const ends =
      all.filter((c) => c.y.length > 0).map((c) => `${c.name} ${c.y.at(-1).toPrecision(3)}`);
  const drawn = curves(
      at('loss'), all, view.chosen, at('log-scale').checked,
      `Loss by step. Last: ${ends.slice(0, 8).join(', ')}`);
  if (!drawn) at('loss').replaceChildren(make('p', {className: 'empty'}, 'No commit yet.'));
  const key = at('loss-key');
  if (key.childElementCount !== all.length ||
      [...key.children].some((b, i) => b.value !== String(all[i].index))) {
    key.replaceChildren(...all.map(
        (curve) => make(
            'button', {type: 'button', value: curve.index},
            svg('svg', {viewBox: '0 0 12 12', 'aria-hidden': 'true'},
                svg('path', {class: `f${colour(curve.index)}`, d: 'M1 4h10v4h-10z'})),
            curve.name)));
  }
  for (const button of key.children)
    button.setAttribute('aria-pressed', String(Number(button.value) === view.chosen));
}

const cell = (words, className = '') => make('td', {className}, words ?? '–');

export function drawExperts() {
  at('experts').replaceChildren(
      ...(shownRun()?.experts ?? [])
          .map(
              (each) => make(
                  'tr', {}, cell(each.router ? 'router' : String(each.index)),
                  cell(pill(each.phase)),
                  cell(`${number(Math.max(each.step, each.live_step))} of ${
                      number(each.steps_target)}`),
                  cell(each.loss === null ? null : each.loss.toPrecision(4)),
                  cell(each.node, 'words'), cell(each.checkpoint ? String(each.copies) : null),
                  cell(ago(each.committed_at)))));
}

function cardsOf(node) {
  const counts = new Map();
  for (const slot of node.slots) counts.set(slot.device, (counts.get(slot.device) ?? 0) + 1);
  return [...counts]
      .map(([device, count]) => (count > 1 ? `${count} × ${device}` : device))
      .join(', ');
}

export function drawFleet() {
  const nodes = items('/api/v1/nodes').filter((node) => node.role === 'node');
  const here = nodes.filter((node) => !['left', 'lost', 'revoked'].includes(node.state));
  const hourly = here.reduce((sum, node) => sum + (node.price ?? 0), 0);
  at('fleet-note').textContent = `${here.length} here${
      here.length < nodes.length ? `, ${nodes.length - here.length} away` :
                                   ''}${hourly > 0 ? ` · $${number(hourly, 2)} an hour` : ''}`;
  const order = [...here, ...nodes.filter((node) => !here.includes(node))];
  at('fleet').replaceChildren(...order.map((node) => {
    const work = node.slots.filter((slot) => slot.run_name)
                     .map((slot) => `${slot.run_name}/${slot.expert} ${slot.phase}`);
    return make(
        'tr', {}, cell(node.name ?? node.id.slice(0, 12), 'words'), cell(pill(node.state)),
        cell(cardsOf(node), 'words'), cell(work.join(', ') || null, 'words'),
        cell(node.price === null ? null : `$${number(node.price, 2)}/h`),
        cell(here.includes(node) ? 'now' : ago(node.last_seen)));
  }));
}

export function drawEvents() {
  const every = at('all-events').checked;
  const events = items('/api/v1/events')
                     .filter((event) => every || event.run === null || event.run === view.run);
  at('events').replaceChildren(...events.slice(-120).reverse().map(
      (event) => make(
          'li', {},
          make('time', {dateTime: event.time, title: event.time}, clock(Date.parse(event.time))),
          make(
              'p', {}, pill(event.kind),
              ` ${
                      [every ? event.run : null,
                       event.expert === null ? null : `expert ${event.expert}`,
                       event.node ? `on ${event.node}` : null]
                          .filter(Boolean)
                          .join(' ')}${event.reason ? ` – ${event.reason}` : ''}`))));
}
