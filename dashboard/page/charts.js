// SPDX-License-Identifier: Apache-2.0
// Charts as SVG. Words reach the page as text nodes alone.

const COLOURS = 10;
export const colour = (index) => ((index % COLOURS) + COLOURS) % COLOURS;

export function svg(name, attributes = {}, ...children) {
  const made = document.createElementNS('http://www.w3.org/2000/svg', name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  for (const child of children) made.append(child);
  return made;
}

const titled = (shape, words) => {
  shape.append(svg('title', {}, words));
  return shape;
};

const clip = (words, most) => (words.length > most ? words.slice(0, most - 1) + '…' : words);

// Marks of an axis: 1, 2 or 5 times a power of ten.
function marks(low, high, wanted) {
  const rough = (high - low) / Math.max(1, wanted) || 1;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((n) => n * power).find((s) => s >= rough);
  const out = [];
  for (let at = Math.ceil(low / step) * step; at <= high + step / 1e6; at += step) out.push(at);
  return out;
}

const TIME_STEPS = [
  1,   2,    5,    10,   15,    30,    60,    120,   300,    600,
  900, 1800, 3600, 7200, 10800, 21600, 43200, 86400, 172800, 604800
];

function timeMarks(from, to, wanted) {
  const rough = (to - from) / 1000 / Math.max(1, wanted);
  const step = 1000 * (TIME_STEPS.find((s) => s >= rough) ?? 604800 * Math.ceil(rough / 604800));
  const zone = new Date(to).getTimezoneOffset() * 60000;
  const out = [];
  for (let at = Math.ceil((from - zone) / step) * step + zone; at <= to; at += step) out.push(at);
  const format = new Intl.DateTimeFormat(
      [],
      step >= 86400000 ? {day: 'numeric', month: 'short'} :
          step < 60000 ? {hour: '2-digit', minute: '2-digit', second: '2-digit', hourCycle: 'h23'} :
                         {hour: '2-digit', minute: '2-digit', hourCycle: 'h23'});
  return out.map((at) => [at, format.format(at)]);
}

export const clock = (ms) =>
    new Intl
        .DateTimeFormat(
            [], {hour: '2-digit', minute: '2-digit', second: '2-digit', hourCycle: 'h23'})
        .format(ms);

// rows: [{label, note, bars, marks}]; a bar is {from, to, colour, words, live,
// takeover}, a mark {at, kind, words}.
export function lanes(place, rows, from, to, label) {
  const width = Math.max(280, place.clientWidth);
  const narrow = width < 560;
  const left = narrow ? 62 : 96, right = narrow ? 8 : 150, top = 4, bottom = 20;
  const high = rows.length > 32 ? 15 : rows.length > 12 ? 20 : 26;
  const height = top + rows.length * high + bottom;
  const span = Math.max(1000, to - from);
  const x = (time) => left + ((width - left - right) * (time - from)) / span;
  const drawn =
      svg('svg', {viewBox: `0 0 ${width} ${height}`, height, role: 'img', 'aria-label': label});
  for (const [at, words] of timeMarks(from, to, narrow ? 3 : 8)) {
    drawn.append(
        svg('line', {class: 'grid', x1: x(at), x2: x(at), y1: top, y2: height - bottom}),
        svg('text', {x: x(at), y: height - 5, 'text-anchor': 'middle'}, words));
  }
  rows.forEach((row, i) => {
    const y = top + i * high, middle = y + high / 2;
    drawn.append(titled(
        svg('text', {class: 'strong', x: left - 8, y: middle + 4, 'text-anchor': 'end'},
            clip(row.label, narrow ? 9 : 14)),
        row.label));
    if (!narrow) {
      drawn.append(
          titled(svg('text', {x: width - right + 8, y: middle + 4}, clip(row.note, 23)), row.note));
    }
    for (const bar of row.bars) {
      const begin = Math.max(left, x(bar.from)), end = Math.min(width - right, x(bar.to));
      if (end < left || begin > width - right) continue;
      drawn.append(titled(
          svg('rect', {
            class: `bar f${colour(bar.colour)}${bar.live ? ' live' : ''}`,
            x: begin,
            y: y + 2,
            width: Math.max(1.5, end - begin),
            height: high - 4,
            rx: 2
          }),
          bar.words));
      if (bar.takeover && x(bar.from) >= left) {
        drawn.append(
            svg('line', {class: 'takeover', x1: begin, x2: begin, y1: y + 1, y2: y + high - 1}));
      }
    }
    for (const mark of row.marks) {
      const at = x(mark.at);
      if (at < left || at > width - right) continue;
      drawn.append(titled(
          svg('path', {
            class: `mark ${mark.kind}`,
            d: mark.kind === 'lost' ? `M${at} ${middle - 6}l6 6-6 6-6-6z` :
                                      `M${at - 6} ${middle - 5}h12l-6 10z`
          }),
          mark.words));
    }
  });
  place.replaceChildren(drawn);
}

// An average over two neighbours on each side smooths the noise of single
// rounds, and does not lag behind.
const smooth = (values) => values.map((_, i) => {
  const reach = Math.min(2, i, values.length - 1 - i);
  const near = values.slice(i - reach, i + reach + 1);
  return near.reduce((a, b) => a + b, 0) / near.length;
});

// curves: [{index, x: […], y: […]}]; `chosen`: the index that stands out, or
// null.
export function curves(place, all, chosen, logarithmic, label) {
  const width = Math.max(280, place.clientWidth), height = 250;
  const left = 48, right = 10, top = 8, bottom = 22;
  const scale = logarithmic ? (v) => Math.log10(Math.max(v, 1e-9)) : (v) => v;
  const values =
      all.flatMap((c) => c.y).filter((v) => Number.isFinite(v) && (!logarithmic || v > 0));
  if (values.length === 0) return false;
  const steps = all.flatMap((c) => c.x);
  const lastStep = steps.reduce((a, b) => Math.max(a, b), 1);
  const sorted = values.map(scale).sort((a, b) => a - b);
  // A first loss far above the rest must not flatten it.
  let low = sorted[0], high = sorted[Math.floor((sorted.length - 1) * 0.99)];
  const room = (high - low || Math.abs(high) || 1) * 0.08;
  low -= room;
  high += room;
  const x = (step) => left + ((width - left - right) * step) / lastStep;
  const y = (v) => top +
      (height - top - bottom) *
          (1 - (Math.min(Math.max(scale(v), low), high) - low) / (high - low));
  const drawn =
      svg('svg', {viewBox: `0 0 ${width} ${height}`, height, role: 'img', 'aria-label': label});
  for (const at of marks(low, high, 5)) {
    const value = logarithmic ? 10 ** at : at;
    drawn.append(
        svg('line', {class: 'grid', x1: left, x2: width - right, y1: y(value), y2: y(value)}),
        svg('text', {x: left - 6, y: y(value) + 4, 'text-anchor': 'end'},
            String(+value.toPrecision(3))));
  }
  const places = marks(0, lastStep, width < 500 ? 4 : 6);
  places.forEach((at, i) => {
    drawn.append(
        svg('text', {
          x: x(at),
          y: height - 6,
          'text-anchor': i === 0 ? 'start' :
              x(at) > width - 40 ? 'end' :
                                   'middle'
        },
            i === 0 ? 'step 0' : at.toLocaleString('en')));
  });
  const path = (xs, ys) =>
      xs.map((step, i) => `${i ? 'L' : 'M'}${x(step).toFixed(1)} ${y(ys[i]).toFixed(1)}`).join('');
  const order = [...all].sort((a, b) => (a.index === chosen) - (b.index === chosen));
  for (const curve of order) {
    if (curve.x.length === 0) continue;
    const dim = chosen !== null && chosen !== curve.index ? ' dim' : '';
    if (all.length <= 8 || curve.index === chosen) {
      drawn.append(
          svg('path', {class: `raw s${colour(curve.index)}${dim}`, d: path(curve.x, curve.y)}));
    }
    drawn.append(titled(
        svg('path',
            {class: `curve s${colour(curve.index)}${dim}`, d: path(curve.x, smooth(curve.y))}),
        curve.name));
  }
  place.replaceChildren(drawn);
  return true;
}
