// SPDX-License-Identifier: Apache-2.0 OR MIT
// The timeline as a picture that can be moved: draws the arrays that stand beside it on a canvas.
// Not here: what they hold (timeline/page.rs).
(() => {
  'use strict';
  const root = document.currentScript.closest('.timeline');
  const data = JSON.parse(root.querySelector('script[type="application/json"]').textContent);
  const raw = text => Uint8Array.from(atob(text), c => c.charCodeAt(0)).buffer;
  const times = text => new Float64Array(raw(text));
  const whole = text => new Uint32Array(raw(text));
  const marks = { at: times(data.marks.at), lane: whole(data.marks.lane), j: whole(data.marks.j) };
  const ivs = {
    from: times(data.ivs.from), to: times(data.ivs.to), lane: whole(data.ivs.lane),
    name: whole(data.ivs.name), j: whole(data.ivs.j), row: whole(data.ivs.row),
  };
  const bands = {
    from: times(data.bands.from), to: times(data.bands.to), lane: whole(data.bands.lane),
  };
  const counts = {
    at: times(data.counts.at), lane: whole(data.counts.lane), value: whole(data.counts.value),
  };
  const steps = { at: times(data.steps.at), lane: whole(data.steps.lane) };
  const { lanes, hosts, names, flows } = data;
  const LEFT = 190, AXIS = 26, ROW = 11, MOST_ROWS = 4, HEAD = 19;

  // Where each line is drawn. A station's name stands above its lines.
  let height = AXIS;
  const heads = [];
  let group = '';
  for (const lane of lanes) {
    const key = lane.h + '/' + lane.s;
    if (key !== group) {
      group = key;
      const bound = hosts[lane.h].b ? ' (clock ±' + span(hosts[lane.h].b) + ')' : '';
      const name = hosts[lane.h].n + (lane.s && lane.s !== hosts[lane.h].n ? ' / ' + lane.s : '');
      heads.push({ y: height, text: name + bound });
      height += HEAD;
    }
    lane.y = height;
    lane.rows = Math.max(1, Math.min(lane.r, MOST_ROWS));
    lane.height = lane.rows * ROW + 4;
    height += lane.height;
  }
  height += 6;
  const station = new Map();
  lanes.forEach(lane => {
    const key = lane.h + '/' + lane.s;
    const seen = station.get(key) || { top: lane.y, bottom: 0 };
    seen.bottom = lane.y + lane.height;
    station.set(key, seen);
  });
  let longest = 0, widest = 0;
  for (let i = 0; i < ivs.from.length; i++) longest = Math.max(longest, ivs.to[i] - ivs.from[i]);
  for (let i = 0; i < bands.from.length; i++) {
    widest = Math.max(widest, bands.to[i] - bands.from[i]);
  }
  const most = new Map();
  for (let i = 0; i < counts.at.length; i++) {
    most.set(counts.lane[i], Math.max(most.get(counts.lane[i]) || 1, counts.value[i]));
  }

  const view = { from: data.view[0], to: data.view[1] };
  let chosen = data.chosen;
  const canvas = root.querySelector('canvas');
  const said = root.querySelector('.said');
  const context = canvas.getContext('2d');
  let colours = {};
  let width = 0;

  function span(ns) {
    const size = Math.abs(ns);
    if (size < 1e3) return Math.round(ns) + ' ns';
    if (size < 1e6) return (ns / 1e3).toFixed(size < 1e4 ? 2 : 1) + ' µs';
    if (size < 1e9) return (ns / 1e6).toFixed(size < 1e7 ? 2 : 1) + ' ms';
    return (ns / 1e9).toFixed(3) + ' s';
  }

  // A time on the axis: all in one unit, with as many digits as tell one from the next.
  function label(ns, step) {
    const size = Math.max(Math.abs(view.from), Math.abs(view.to));
    const units = [[1e9, ' s'], [1e6, ' ms'], [1e3, ' µs']];
    const [unit, name] = units.find(([unit]) => size >= unit) || [1, ' ns'];
    const digits = Math.max(0, Math.ceil(Math.log10(unit / step) - 1e-9));
    return (ns / unit).toFixed(Math.min(digits, 9)) + name;
  }

  // The first index whose value is at least the wanted one.
  function find(array, wanted) {
    let low = 0, high = array.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (array[middle] < wanted) low = middle + 1; else high = middle;
    }
    return low;
  }

  const x = at => LEFT + (at - view.from) / (view.to - view.from) * (width - LEFT);
  const at = px => view.from + (px - LEFT) / (width - LEFT) * (view.to - view.from);

  function readColours() {
    const style = getComputedStyle(root);
    const one = name => style.getPropertyValue(name).trim();
    colours = {
      ground: one('--ground'), raised: one('--raised'), text: one('--text'), dim: one('--dim'),
      grid: one('--grid'), axis: one('--axis'), bad: one('--bad'), band: one('--good'),
      set: ['--s1', '--s2', '--s3', '--s4', '--s5', '--s6'].map(one),
    };
  }

  function resize() {
    const ratio = window.devicePixelRatio || 1;
    width = Math.max(320, root.clientWidth);
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(height * ratio);
    canvas.style.height = height + 'px';
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    draw();
  }

  function tick(room) {
    const wanted = room / Math.max(2, (width - LEFT) / 110);
    const power = Math.pow(10, Math.floor(Math.log10(wanted)));
    return [1, 2, 5, 10].map(n => n * power).find(step => step >= wanted);
  }

  function draw() {
    context.fillStyle = colours.ground;
    context.fillRect(0, 0, width, height);
    context.save();
    context.beginPath();
    context.rect(LEFT, 0, width - LEFT, height);
    context.clip();
    drawBands();
    drawGrid();
    drawCounts();
    drawIntervals();
    drawMarks();
    drawChosen();
    context.restore();
    drawNames();
  }

  function drawGrid() {
    const step = tick(view.to - view.from);
    context.fillStyle = colours.dim;
    context.strokeStyle = colours.grid;
    context.font = '11px system-ui, sans-serif';
    context.textAlign = 'center';
    context.beginPath();
    for (let n = Math.ceil(view.from / step); n * step <= view.to; n++) {
      const px = Math.round(x(n * step)) + 0.5;
      context.moveTo(px, AXIS - 6);
      context.lineTo(px, height);
      context.fillText(label(n * step, step), px, 13);
    }
    context.stroke();
  }

  function drawBands() {
    for (let i = find(bands.from, view.from - widest); i < bands.from.length; i++) {
      if (bands.from[i] > view.to) break;
      const lane = lanes[bands.lane[i]];
      const place = station.get(lane.h + '/' + lane.s);
      const left = x(bands.from[i]), wide = Math.max(0.5, x(bands.to[i]) - left);
      context.fillStyle = colours.band;
      context.globalAlpha = 0.09;
      context.fillRect(left, place.top, wide, place.bottom - place.top);
      context.globalAlpha = 0.8;
      context.fillRect(left, lane.y + 3, wide, lane.height - 6);
      context.globalAlpha = 1;
    }
  }

  function drawCounts() {
    context.fillStyle = colours.set[4];
    context.globalAlpha = 0.6;
    const last = new Map();
    const bar = (lane, from, to, value) => {
      const room = lanes[lane].height - 3;
      const high = value / most.get(lane) * room;
      context.fillRect(x(from), lanes[lane].y + 2 + room - high, x(to) - x(from), high);
    };
    for (let i = 0; i < counts.at.length && counts.at[i] <= view.to; i++) {
      const lane = counts.lane[i], before = last.get(lane);
      if (before && counts.at[i] >= view.from) bar(lane, before.at, counts.at[i], before.value);
      last.set(lane, { at: counts.at[i], value: counts.value[i] });
    }
    context.globalAlpha = 1;
  }

  function drawIntervals() {
    const drawn = new Map();
    for (let i = find(ivs.from, view.from - longest); i < ivs.from.length; i++) {
      if (ivs.from[i] > view.to) break;
      if (ivs.to[i] < view.from) continue;
      const lane = lanes[ivs.lane[i]];
      const row = ivs.row[i] % lane.rows;
      const left = x(ivs.from[i]), wide = Math.max(1, x(ivs.to[i]) - left);
      // What would cover the same pixel is drawn once.
      const place = ivs.lane[i] * MOST_ROWS + row, right = Math.round(left + wide);
      if (wide <= 1 && drawn.get(place) === right) continue;
      drawn.set(place, right);
      const mine = chosen >= 0 && ivs.j[i] === chosen + 1;
      context.globalAlpha = chosen < 0 || mine ? 0.9 : 0.45;
      context.fillStyle = colours.set[ivs.name[i] % 6];
      context.fillRect(left, lane.y + 2 + row * ROW, wide, ROW - 1);
      if (mine) {
        context.globalAlpha = 1;
        context.strokeStyle = colours.text;
        context.strokeRect(left + 0.5, lane.y + 2.5 + row * ROW, wide - 1, ROW - 2);
      }
      const name = names[ivs.name[i]];
      if (wide > name.length * 6 + 6) {
        context.globalAlpha = 1;
        context.fillStyle = colours.ground;
        context.font = '10px system-ui, sans-serif';
        context.textAlign = 'left';
        context.fillText(name, Math.max(left, LEFT) + 3, lane.y + 10 + row * ROW);
      }
    }
    context.globalAlpha = 1;
  }

  function drawMarks() {
    const drawn = new Map();
    for (let i = find(marks.at, view.from); i < marks.at.length; i++) {
      if (marks.at[i] > view.to) break;
      const px = Math.round(x(marks.at[i])), lane = lanes[marks.lane[i]];
      const mine = chosen >= 0 && marks.j[i] === chosen + 1;
      if (!mine && drawn.get(marks.lane[i]) === px) continue;
      drawn.set(marks.lane[i], px);
      context.fillStyle = lane.n === 'drop' ? colours.bad : mine ? colours.text : colours.axis;
      context.fillRect(px - (mine ? 1 : 0), lane.y + 2, mine ? 3 : 1, lane.height - 4);
    }
  }

  // The journey that was chosen: from event to event, an arrow where it goes to another station,
  // and how far each instant may be from right.
  function drawChosen() {
    const flow = flows[chosen];
    if (!flow) return;
    const middle = lane => lanes[lane].y + lanes[lane].height / 2;
    context.strokeStyle = context.fillStyle = colours.bad;
    context.lineWidth = 1.4;
    for (let i = flow.a; i < flow.a + flow.c; i++) {
      const px = x(steps.at[i]), py = middle(steps.lane[i]);
      const lane = lanes[steps.lane[i]], bound = hosts[lane.h].b;
      if (bound) {
        const half = x(steps.at[i] + bound) - px;
        context.globalAlpha = 0.3;
        context.fillRect(px - half, py - 2.5, 2 * half, 5);
        context.globalAlpha = 1;
      }
      context.beginPath();
      context.arc(px, py, 2.5, 0, 7);
      context.fill();
      if (i === flow.a) continue;
      const ox = x(steps.at[i - 1]), oy = middle(steps.lane[i - 1]);
      const before = lanes[steps.lane[i - 1]];
      context.beginPath();
      context.moveTo(ox, oy);
      context.lineTo(px, py);
      context.stroke();
      if (before.h !== lane.h || before.s !== lane.s) {
        const angle = Math.atan2(py - oy, px - ox);
        context.beginPath();
        context.moveTo(px, py);
        context.lineTo(px - 10 * Math.cos(angle - 0.35), py - 10 * Math.sin(angle - 0.35));
        context.lineTo(px - 10 * Math.cos(angle + 0.35), py - 10 * Math.sin(angle + 0.35));
        context.fill();
      }
    }
    context.lineWidth = 1;
  }

  function drawNames() {
    context.textAlign = 'left';
    context.fillStyle = colours.text;
    context.font = '600 12px system-ui, sans-serif';
    for (const head of heads) {
      context.fillText(head.text, 2, head.y + 14);
      context.fillStyle = colours.axis;
      context.fillRect(0, head.y + 0.5, width, 0.5);
      context.fillStyle = colours.text;
    }
    context.font = '11px system-ui, sans-serif';
    context.fillStyle = colours.dim;
    for (const lane of lanes) {
      let name = lane.n;
      while (name.length > 4 && context.measureText(name).width > LEFT - 16) {
        name = name.slice(0, -2).replace(/…?$/, '…');
      }
      context.fillText(name, 10, lane.y + 11);
    }
  }

  function show(from, to) {
    const least = 10, room = Math.max(least, Math.min(to - from, (data.to - data.from) * 1.2));
    const middle = (from + to) / 2;
    const low = data.from - room * 0.5, high = data.to + room * 0.5;
    const centre = Math.min(Math.max(middle, low), high);
    view.from = centre - room / 2;
    view.to = centre + room / 2;
    draw();
  }

  function zoom(factor, around = (view.from + view.to) / 2) {
    show(around - (around - view.from) * factor, around + (view.to - around) * factor);
  }

  function pan(share) {
    const by = (view.to - view.from) * share;
    show(view.from + by, view.to + by);
  }

  const all = () => show(data.from, data.to);

  function frame() {
    const flow = flows[chosen];
    if (!flow) return;
    const from = steps.at[flow.a], to = steps.at[flow.a + flow.c - 1];
    const margin = Math.max((to - from) * 0.15, 50);
    show(from - margin, to + margin);
  }

  function choose(index, framed) {
    chosen = index >= 0 && index < flows.length ? index : -1;
    const flow = flows[chosen];
    root.dataset.chosen = flow ? flow.i : '';
    const bound = flow && flow.b ? ' ±' + span(flow.b) : '';
    said.textContent = flow
      ? 'Journey ' + flow.i + ' of ' + flow.f + ', ' + flow.s + ': ' + span(flow.t) + bound
        + (flow.w ? '. ' + flow.w : '')
      : 'No journey is chosen.';
    if (framed) frame(); else draw();
  }

  const next = by => choose(chosen < 0 ? 0 : (chosen + by + flows.length) % flows.length, true);
  const acts = {
    ArrowLeft: () => pan(-0.2), ArrowRight: () => pan(0.2), '+': () => zoom(0.6),
    '=': () => zoom(0.6), '-': () => zoom(1 / 0.6), Home: all, ArrowDown: () => next(1),
    ArrowUp: () => next(-1), f: frame, w: () => choose(data.worst, true),
    Escape: () => choose(-1, false),
  };
  canvas.addEventListener('keydown', event => {
    if (event.ctrlKey || event.metaKey || event.altKey || !acts[event.key]) return;
    event.preventDefault();
    acts[event.key]();
  });
  root.querySelectorAll('button[data-key]').forEach(button => {
    button.addEventListener('click', () => acts[button.dataset.key]());
  });
  root.querySelectorAll('button[data-journey]').forEach(button => {
    button.addEventListener('click', () => {
      choose(Number(button.dataset.journey), true);
      canvas.focus();
    });
  });
  canvas.addEventListener('wheel', event => {
    // Without focus the wheel scrolls the page.
    if (document.activeElement !== canvas && !event.ctrlKey) return;
    event.preventDefault();
    const sideways = event.shiftKey ? event.deltaY : event.deltaX;
    if (sideways) return pan(Math.sign(sideways) * 0.1);
    zoom(event.deltaY > 0 ? 1.25 : 0.8, at(event.offsetX));
  }, { passive: false });

  let grip = null;
  canvas.addEventListener('pointerdown', event => {
    grip = { px: event.offsetX, from: view.from, to: view.to, moved: false };
    canvas.setPointerCapture(event.pointerId);
  });
  canvas.addEventListener('pointermove', event => {
    if (!grip) return hint(event.offsetX, event.offsetY);
    const by = (grip.px - event.offsetX) / (width - LEFT) * (grip.to - grip.from);
    if (Math.abs(grip.px - event.offsetX) > 3) grip.moved = true;
    if (grip.moved) show(grip.from + by, grip.to + by);
  });
  canvas.addEventListener('pointerup', event => {
    const clicked = grip && !grip.moved;
    grip = null;
    if (!clicked) return;
    const found = hit(event.offsetX, event.offsetY);
    choose(found && found.j ? found.j - 1 : -1, false);
  });
  canvas.addEventListener('pointercancel', () => { grip = null; });
  canvas.addEventListener('dblclick', event => zoom(0.4, at(event.offsetX)));

  // What is drawn at a place: an interval, or the nearest event within four pixels.
  function hit(px, py) {
    const lane = lanes.findIndex(one => py >= one.y && py < one.y + one.height);
    if (lane < 0 || px < LEFT) return null;
    const row = Math.min(lanes[lane].rows - 1, Math.floor((py - lanes[lane].y - 2) / ROW));
    const time = at(px), slack = at(px + 4) - time;
    for (let i = find(ivs.from, time - longest - slack); i < ivs.from.length; i++) {
      if (ivs.from[i] > time + slack) break;
      const inside = ivs.to[i] >= time - slack && ivs.lane[i] === lane;
      if (inside && ivs.row[i] % lanes[lane].rows === Math.max(0, row)) {
        const text = names[ivs.name[i]] + ', ' + span(ivs.to[i] - ivs.from[i]);
        return { j: ivs.j[i], text: text + ' from ' + span(ivs.from[i]) };
      }
    }
    let best = null;
    for (let i = find(marks.at, time - slack); i < marks.at.length; i++) {
      if (marks.at[i] > time + slack) break;
      const apart = Math.abs(marks.at[i] - time);
      if (marks.lane[i] === lane && (!best || apart < best.apart)) {
        best = { apart, j: marks.j[i], text: lanes[lane].n + ' at ' + span(marks.at[i]) };
      }
    }
    return best;
  }

  function hint(px, py) {
    const found = hit(px, py);
    canvas.title = found ? found.text + (found.j ? ', journey ' + flows[found.j - 1].i : '') : '';
  }

  root.classList.add('live');
  readColours();
  const dark = matchMedia('(prefers-color-scheme: dark)');
  dark.addEventListener('change', () => { readColours(); draw(); });
  addEventListener('resize', resize);
  resize();
  choose(chosen, false);
})();
