// page.js - draws a report from the JSON that the page carries: plots by uPlot, bars, maps and
// tables as elements. Texts become text nodes, so nothing in the data is ever markup.
(() => {
'use strict';
const carried = JSON.parse(document.getElementById('carried').textContent);
const drawn = document.getElementById('drawn');
const figure = path => {
  if (!carried.figures[path]) throw new Error('no figure ' + path);
  return carried.figures[path];
};

// ---- words and numbers ----
const at = (of, path) => path.split('.').reduce((o, key) => o == null ? undefined : o[key], of);
const three = v => {
  const s = Math.abs(v);
  if (!isFinite(v)) return '-';
  if (s >= 99.95 || s === 0) return v.toFixed(0);
  return v.toFixed(s >= 9.995 ? 1 : s >= 0.9995 ? 2 : Math.min(8, 2 - Math.floor(Math.log10(s))));
};
const scaled = (v, steps) => {
  let [size, unit] = steps[0];
  for (const [next, name] of steps) if (Math.abs(v) >= 0.9995 * next) [size, unit] = [next, name];
  return three(v / size) + ' ' + unit;
};
const sizes = ['B', 'kB', 'MB', 'GB', 'TB', 'PB'].map((name, i) => [1000 ** i, name]);
const times = [[1e-6, 'ns'], [1e-3, 'us'], [1, 'ms'], [1000, 's']];
const as = {
  'ms': v => v === 0 ? '0 ms' : scaled(v, times), 's': v => scaled(1000 * v, times),
  'share of 1': v => (100 * v).toFixed(1) + ' %', 'count': v => v.toLocaleString('en-US'),
  'bytes': v => scaled(v, sizes), 'ratio': v => v.toFixed(2), '1/s': three,
};
const said = (unit, v) => v == null ? '-' : typeof v !== 'number' ? String(v)
  : (as[unit] || three)(v);

// ---- elements ----
const el = (name, attributes, ...children) => {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes || {}))
    if (value != null) made.setAttribute(key, value);
  for (const child of children.flat(Infinity)) if (child != null) made.append(child);
  return made;
};
const chapter = (heading, note, ...body) => {
  body = body.flat(Infinity).filter(x => x != null);
  if (!body.length) return;
  drawn.append(el('section', {}, el('h2', {}, heading), note && el('p', {class: 'note'}, note), body));
};
const grid = (...figures) => {
  const kept = figures.flat().filter(x => x != null);
  return kept.length ? el('div', {class: 'grid'}, kept) : null;
};
const framed = (title, ...body) => el('figure', {}, el('figcaption', {}, title), body);
const facts = pairs => drawn.append(el('dl', {class: 'facts'}, pairs.filter(p => p[1]).map(
  ([name, value]) => [el('dt', {}, name), el('dd', {}, String(value))])));
const choice = (label, options, then) => {
  const box = el('select', {}, options.map((name, i) => el('option', {value: i}, name)));
  box.addEventListener('change', () => then(+box.value));
  return el('label', {}, label, box);
};
const counted = (n, what) => said('count', n) + ' ' + what + (n === 1 ? '' : 's');
const distinct = values => [...new Set(values)];

// columns: [{heading, of(row) -> text or element, title, key, text}]: text wraps; same(a, b): rows of one
// block
const table = (columns, rows, look, same) => {
  if (!rows.length) return null;
  const head = el('thead', {}, el('tr', {}, columns.map(c =>
    el('th', {class: c.key || c.text ? null : 'figure', title: c.title}, c.heading))));
  const bodies = [el('tbody')];
  rows.forEach((row, i) => {
    if (i > 0 && same && !same(rows[i - 1], row)) bodies.push(el('tbody'));
    bodies.at(-1).append(el('tr', {class: look && look(row)}, columns.map(c =>
      el(c.key ? 'th' : 'td', {'data-name': c.heading, class: c.text ? 'text' : null}, c.of(row)))));
  });
  return el('div', {class: 'wide rows'}, el('table', {}, head, bodies));
};
// Where a table is wider than the page, a row becomes a list of its cells.
const fit = () => document.querySelectorAll('.wide.rows').forEach(wide => {
  wide.classList.remove('stacked');
  wide.classList.toggle('stacked', wide.scrollWidth > wide.clientWidth);
});
addEventListener('resize', fit);
// Columns of figures by path; those that no row has are left out.
const columns_of = (paths, rows) => paths.filter(p => rows.some(r => at(r, p) != null)).map(p => ({
  heading: figure(p).label, title: figure(p).meaning,
  of: r => said(figure(p).unit === 'ms' ? '' : figure(p).unit, at(r, p))}));

// ---- plots ----
const css = name => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const dashes = [[], [7, 4], [2, 3], [9, 3, 2, 3]];
// Rows have the colours --c0 to --c7; what stands for no row is ink, what sees the future grey.
const color = look => look.mark ? css('--ink') : look.bound ? css('--bound') : css('--c' + look.number % 8);
const bound_dashes = [[4, 4], [10, 4], [2, 3], [10, 3, 2, 3]];
const dash = look => look.dash || (look.bound ? bound_dashes[look.number % 4]
  : dashes[Math.floor(look.number / 8) % 4]);
const plots = [];
matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () =>
  plots.forEach(p => { p.u.redraw(); p.legend(); }));

// Several axes' worth of points on one x axis. Points of the same x in one series stand apart.
const aligned = series => {
  const points = series.flatMap((s, i) => s.points.map(p => ({x: p[0], y: p[1], i})))
    .filter(p => isFinite(p.x) && isFinite(p.y)).sort((a, b) => a.x - b.x);
  const data = [[], ...series.map(() => [])];
  for (const p of points) {
    let k = data[0].length - 1;
    while (k >= 0 && data[0][k] === p.x && data[p.i + 1][k] != null) --k;
    if (k < 0 || data[0][k] !== p.x) {
      data.forEach((column, c) => column.push(c === 0 ? p.x : null));
      k = data[0].length - 1;
    }
    data[p.i + 1][k] = p.y;
  }
  return data;
};

// series: [{name, look: {number, bound}, points: [[x, y]], dots}]
const lines = (title, x_title, y_title, series, more = {}) => {
  series = series.filter(s => s.points.some(p => isFinite(p[0]) && isFinite(p[1])));
  if (!series.length) return null;
  const holder = el('div'), legend = el('div', {class: 'legend'});
  const frame = framed(title, el('div', {class: 'plot' + (series.length > 3 ? ' beside' : '')},
    holder, legend));
  const log = more.log ? {distr: 3} : {};
  const pad = (lo, hi) => lo === hi ? [lo - 1, hi + 1] : [lo - (hi - lo) * .02, hi + (hi - lo) * .02];
  const axis = label => ({label, labelSize: 22, size: 52, stroke: () => css('--soft'),
    grid: {stroke: () => css('--grid'), width: 1}, ticks: {stroke: () => css('--grid'), width: 1},
    values: (u, ticks) => ticks.map(t => t == null ? '' : log.distr ? three(t) : String(+t.toPrecision(6)))});
  const options = {
    width: 300, height: 330, padding: [10, 18, 0, 0], legend: {show: false},
    focus: {alpha: .2}, cursor: {focus: {prox: 24}, drag: {x: true, y: false}},
    scales: {x: {time: false, ...log, ...(log.distr ? {} : {range: (u, lo, hi) => pad(lo, hi)})},
      y: {...log, ...(log.distr ? {} : {range: (u, lo, hi) => {
        const room = lo === hi ? Math.abs(hi) / 2 || 1 : (hi - lo) * .06;
        return [lo >= 0 ? Math.max(0, lo - room) : lo - room, hi + room];
      }})}},
    axes: [{...axis(x_title), size: 34}, axis(y_title)],
    series: [{}, ...series.map(s => ({label: s.name, spanGaps: true, width: s.dots ? 0 : 2,
      stroke: () => color(s.look), dash: dash(s.look), ...(s.dots ? {paths: () => null} : {}),
      points: {show: s.markers !== false, size: s.ring ? 13 : 7, stroke: () => color(s.look), width: 2,
        fill: () => s.ring ? 'transparent' : color(s.look)}}))],
    hooks: {setCursor: [u => told(u.cursor.idx)], draw: more.draw ? [more.draw] : []},
  };
  const u = new uPlot(options, aligned(series), holder);
  const cells = [];
  const rows = series.map((s, i) => {
    const swatch = el('span', {class: 'swatch' + (s.dots ? ' dot' : '')});
    cells.push({value: el('td'), swatch});
    const row = el('tr', {}, el('th', {}, swatch, s.name), cells[i].value);
    row.addEventListener('mouseenter', () => u.setSeries(i + 1, {focus: true}));
    row.addEventListener('mouseleave', () => u.setSeries(null, {focus: true}));
    row.addEventListener('click', () => {
      u.setSeries(i + 1, {show: !u.series[i + 1].show});
      row.classList.toggle('off', !u.series[i + 1].show);
    });
    return row;
  });
  const paint = () => series.forEach((s, i) => {
    cells[i].swatch.style.borderColor = color(s.look);
    if (s.dots && !s.ring) cells[i].swatch.style.background = color(s.look);
    const [length] = dash(s.look);
    cells[i].swatch.style.borderTopStyle = s.dots || !length ? 'solid' : length < 3 ? 'dotted' : 'dashed';
  });
  const where = el('div', {class: 'hint'});
  const told = k => {
    where.textContent = k == null ? '' : x_title + ': ' + three(u.data[0][k]);
    series.forEach((s, i) => {
      const v = k == null ? null : u.data[i + 1][k];
      cells[i].value.textContent = v == null ? '' : three(v);
    });
  };
  paint();
  legend.append(el('table', {}, el('tbody', {}, rows)), where);
  new ResizeObserver(() => {
    const width = Math.floor(holder.clientWidth);
    if (width > 0 && width !== u.width) u.setSize({width, height: width < 420 ? 250 : 330});
  }).observe(holder);
  plots.push({u, legend: paint});
  return frame;
};

// rows: [{name, value, text, parts: [{share, class, hint}]}]; the bars' end is `whole`, where there is one,
// else a round number above the longest. `told` says a value.
const bars = (title, rows, told, whole) => {
  if (!rows.length) return null;
  const longest = Math.max(...rows.map(r => r.value || 0));
  const power = 10 ** Math.floor(Math.log10(longest || 1));
  const round = power * [1, 1.5, 2, 3, 4, 5, 6, 8, 10].find(step => step * power >= longest * (1 - 1e-9));
  const top = whole >= longest ? whole : round || 1;
  const ruler = el('div', {class: 'ruler'}, el('span', {}, '0'), el('span', {}, told(top)));
  return framed(title, el('div', {class: 'bars'}, [...rows.map(r => {
    const track = el('div', {class: 'track', title: r.hint});
    for (const p of r.parts || [{share: 1, color: r.color || 'var(--c0)'}]) {
      const bit = el('i', {title: p.hint});
      bit.style.width = 100 * p.share * (r.value || 0) / top + '%';
      if (!r.value) bit.style.minWidth = 0;
      bit.style.background = p.color;
      track.append(bit);
    }
    return [el('span', {class: 'name' + (r.part ? ' part' : '')}, r.name), track, el('span', {}, r.text)];
  }), el('span', {class: 'name'}), ruler, el('span')]));
};

// Dark blue over green to yellow: keeps its order in grey and for colour-blind readers.
const anchors = [[68, 1, 84], [59, 82, 139], [33, 145, 140], [94, 201, 98], [253, 231, 37]];
const shade = share => {
  const x = Math.min(1, Math.max(0, share)) * 4, i = Math.min(3, Math.floor(x));
  const mix = k => Math.round(anchors[i][k] + (x - i) * (anchors[i + 1][k] - anchors[i][k]));
  return `rgb(${mix(0)},${mix(1)},${mix(2)})`;
};
// What stands under a map: some ten of its columns' numbers, and whose they are. Those of each model
// begin anew.
const model_at = (column, i) => (column(i).match(/^model \d+/) || [''])[0];
const feet = (row_word, columns, column) => {
  const step = [1, 2, 5, 10, 20, 50, 100, 200, 500].find(s => columns / s <= 12) || 1000;
  const ticks = [], models = [];
  for (let i = 0, next; i < columns; i = next) {
    const model = model_at(column, i);
    for (next = i + 1; next < Math.min(columns, i + step) && model_at(column, next) === model;) ++next;
    ticks.push(el('td', {colspan: next - i, title: column(i)}, column(i).match(/\d+$/)[0]));
    if (models.length && models.at(-1).model === model) models.at(-1).columns += next - i;
    else models.push({model, columns: next - i});
  }
  return el('tfoot', {}, el('tr', {}, el('th', {}, row_word), ticks), el('tr', {}, el('th', {}, models.length > 1
    ? 'layer of' : ''), models.map(m => el('td', {class: 'axis', colspan: m.columns}, m.model || 'layer'))));
};
// rows: [{name, values}]; cells are named by `column(i)`, rows are of what `row_word` says
const heat = (title, rows, unit, row_word, column, low, high) => {
  rows = rows.filter(r => r.values.length);
  if (!rows.length) return null;
  const all = rows.flatMap(r => r.values);
  low = low ?? all.reduce((a, b) => Math.min(a, b));
  high = high ?? Math.max(all.reduce((a, b) => Math.max(a, b)), low + 1e-12);
  const scale = el('span', {class: 'scale'});
  scale.style.background =
    `linear-gradient(90deg,${[0, .25, .5, .75, 1].map(shade).join(',')})`;
  return framed(title, el('div', {class: 'wide'}, el('table', {class: 'heat'}, el('tbody', {},
    rows.map(r => el('tr', {}, el('th', {title: r.name}, r.name), r.values.map((v, i) => {
      const cell = el('td', {title: `${r.name}, ${column(i)}: ${said(unit, v)}`});
      cell.style.background = shade((v - low) / (high - low));
      return cell;
    })))), feet(row_word, Math.max(...rows.map(r => r.values.length)), column))),
  el('p', {class: 'note'}, said(unit, low), scale, said(unit, high)));
};

// ---- causes ----
const cause_words = {compute: 'computing', launch: 'launches', link: 'link wait', disk: 'disk wait',
  cpu: 'CPU wait', network: 'network', away: 'others wait', policy: 'policy wait', host: 'host'};
// Time without requests is no part of what requests wait for.
const parts_of = causes => {
  const all = Object.entries(causes).map(([key, ms]) => [key.replace(/_ms$/, ''), ms])
    .filter(([name]) => name !== 'idle');
  const sum = all.reduce((a, [, ms]) => a + ms, 0);
  return {sum, parts: sum === 0 ? [] : all.filter(([, ms]) => ms > 0).map(([name, ms]) => ({
    share: ms / sum, color: `var(--${name})`,
    hint: `${cause_words[name]}: ${said('share of 1', ms / sum)}, ${said('ms', ms)}`}))};
};
const cause_rows = rows => rows.filter(r => r.causes).flatMap(r => ['prefill', 'decode'].map(phase => {
  const {sum, parts} = parts_of(r.causes[phase]);
  return sum > 0 && {name: r.name + ', ' + phase, value: sum, parts, text: said('ms', sum)};
}).filter(Boolean));
// Of those that occur.
const cause_keys = rows => el('p', {class: 'note keys'}, Object.entries(cause_words).filter(([name]) =>
  rows.some(of => of && Object.values(of).some(phase => phase[name + '_ms'] > 0))).map(
  ([name, words]) => {
    const key = el('i', {class: 'key'});
    key.style.background = `var(--${name})`;
    return el('span', {}, key, words);
  }));

// ---- comparisons ----
const looks = () => {
  const known = new Map(), bound = new Set();
  let next = 0, next_bound = 0;
  return (name, is_bound) => {
    if (is_bound) bound.add(name);
    if (!known.has(name)) known.set(name, is_bound ? next_bound++ : next++);
    return {number: known.get(name), bound: bound.has(name)};
  };
};

// What rows can be drawn against: memory, and each number that differs between them.
const axes_of = rows => {
  const axes = [];
  const known = rows.every(r => r.experts_all > 0);
  const memory = r => known ? 100 * r.slots / r.experts_all : r.slots;
  if (distinct(rows.map(memory)).length > 1)
    axes.push({title: known ? 'experts cached, % of all' : 'experts cached', of: memory, name: r => r.label});
  const devices = r => r.cluster.devices.reduce((a, d) => a + d.bytes, 0) / r.cluster.devices.length / 1e9;
  if (rows.every(r => r.cluster && r.cluster.devices.length) && distinct(rows.map(devices)).length > 1)
    axes.push({title: 'expert memory, GB a device', of: devices, name: r => r.label});
  for (const key of distinct(rows.flatMap(r => Object.keys(r.settings)))) {
    if (/^memory\.(experts|bytes)$|expert_memory_|^hardware\./.test(key)) continue;
    const number = r => { const v = r.settings[key]; return v === '' || v == null ? NaN : Number(v); };
    if (!rows.every(r => isFinite(number(r))) || distinct(rows.map(number)).length < 2) continue;
    const heading = key.split('.').at(-1);
    axes.push({title: key, of: number, name: r => r.columns.filter(([h, v]) => h !== heading && h !== key && v)
      .map(([h, v]) => isFinite(Number(v)) ? h + ' ' + v : v).join(' + ') || 'as configured'});
  }
  return axes;
};
const factor_of = unit => unit === 'share of 1' ? [100, ' %'] : unit === 'bytes' ? [1e-6, ' MB'] : [1, ''];

// One figure of all rows: lines against an axis, or a bar each.
const against = (title, rows, axis, path, look, extra = []) => {
  const unit = figure(path).unit, [factor, suffix] = factor_of(unit);
  const there = rows.filter(r => at(r, path) != null);
  if (!there.length) return null;
  if (!axis) return bars(title, there.map(r => ({name: r.label, value: at(r, path),
    text: said(unit, at(r, path)) + (r.pareto ? ' *' : ''), hint: figure(path).meaning,
    color: r.offline ? 'var(--bound)' : `var(--c${look(r.label).number % 8})`})),
    v => said(unit, v), unit === 'share of 1' ? 1 : undefined);
  const series = new Map();
  for (const r of there) {
    const name = axis.name(r);
    if (!series.has(name)) series.set(name, {name, look: look(name, r.offline), points: []});
    series.get(name).points.push([axis.of(r), factor * at(r, path)]);
  }
  return lines(title, axis.title, figure(path).label + suffix, [...series.values(), ...extra]);
};

const single_paths = ['experts.hit_rate', 'misses_over_optimum', 'per_token.h2d_bytes', 'tpot_ms.mean',
  'tpot_ms.p99', 'ttft_ms.mean', 'tokens_per_s', 'shares.on_cpu', 'shares.wasted', 'shares.late',
  'shares.policies', 'text.perplexity', 'text.nll_change', 'shares.substituted', 'routing.rows_agreement'];
const cluster_paths = ['requests', 'cluster.latency_ms.mean', 'cluster.latency_ms.p99', 'ttft_ms.mean',
  'tpot_ms.mean', 'cluster.experts_ms_per_token', 'cluster.local_ratio', 'cluster.calls',
  'cluster.remote_call_ms', 'bytes.network'];

const results = (rows, paths, more = []) => {
  const keys = (rows[0] ? rows[0].columns : []).map(([heading], i) =>
    ({heading, key: true, of: r => r.columns[i][1]}));
  const look = r => r.misfit ? 'misfit' : r.offline ? 'offline' : r.pareto ? 'best' : null;
  return table([...keys, ...more, ...columns_of(paths, rows)], rows, look, (a, b) => a.group === b.group);
};

const optimum = (rows, axis) => {
  const known = rows.filter(r => r.opt_misses != null);
  const points = new Map(known.map(r => [axis.of(r) + ' ' + r.opt_misses,
    [axis.of(r), 100 * r.opt_misses / r.experts.requested]]));
  return known.length ? [{name: 'optimum', look: {mark: true, dash: [6, 3]}, markers: false,
    points: [...points.values()]}] : [];
};
// What lies undominated in memory, speed and quality, as rings on the lines.
const rings = (rows, axis) => [{name: 'Pareto-optimal', dots: true, ring: true, look: {mark: true, dash: []},
  points: rows.filter(r => r.pareto).map(r => [axis.of(r), r.tpot_ms.mean])}];

const machine_chapters = rows => {
  if (!rows.length) return;
  const look = looks();
  for (const r of rows) look(r.label, r.offline);
  const profiles = distinct(rows.map(r => r.profile));
  const on = profile => rows.filter(r => r.profile === profile);
  chapter('Speed', 'Time per output token. A ring or a star: Pareto-optimal in memory, time and ' +
    'quality among rows of the same work.', grid(profiles.map(p => {
    const axis = axes_of(on(p))[0];
    return against(p || 'no profile', on(p), axis, 'tpot_ms.mean', look, axis ? rings(on(p), axis) : []);
  })));
  of_groups('Where the time goes', 'Hover over a part.', rows.filter(r => r.causes), cause_keys(rows.map(r => r.causes)),
    (shown, group) => bars(group, cause_rows(shown.map(r => ({name: r.label, causes: r.causes}))), v => said('ms', v)));
  help_chapter(rows.filter(r => r.what_if));
  const first = on(profiles[0]), axis = axes_of(first)[0];
  const missed = first.map(r => ({...r, experts: {...r.experts,
    misses: r.experts.requested ? 100 * r.experts.misses / r.experts.requested : 0}}));
  chapter('Cache', axis ? 'Misses in % of the experts asked for, with what the offline optimum would have ' +
    'missed in the same slots.' : 'Misses over those of the offline optimum in the same slots.', grid(
    axis && lines('Misses', axis.title, 'misses, %', [...distinct(missed.map(axis.name)).map(name => ({name,
      look: look(name), points: missed.filter(r => axis.name(r) === name)
        .map(r => [axis.of(r), r.experts.misses])})), ...optimum(first, axis)]),
    against('Distance to the optimum', first, axis, 'misses_over_optimum', look)));
  explorer(rows, look);
  layer_maps(rows);
};

// What more of one resource would save.
const help_chapter = rows => {
  if (!rows.length) return;
  const asked = rows[0].what_if, resources = distinct(rows.flatMap(r => r.what_if.rows.map(w => w.words)));
  const found = (r, words) => r.what_if.rows.find(w => w.words === words && w.saved != null);
  const change = w => (w.saved > 0 ? '-' : '+') + said('share of 1', Math.abs(w.saved));
  const more = +(100 * (asked.factor - 1)).toPrecision(3);
  const note = `${figure(asked.metric + '.mean').label.replace(' ms', '')} with ${more} % more of one resource: ` +
    `the same run, once for each. What takes all of the time saves ${said('share of 1', 1 - 1 / asked.factor)}.`;
  chapter('What would help', note, rows.length === 1
    ? bars(rows[0].profile, asked.rows.filter(w => w.saved != null)
      .sort((a, b) => b.saved - a.saved).map(w => ({name: w.words, value: Math.max(0, w.saved),
        text: change(w) + ', ' + said('ms', w.value)})), v => said('share of 1', v), 1 - 1 / asked.factor)
    : table([{heading: 'run', key: true, of: r => r.label}, ...resources.map(words => ({heading: words,
      of: r => { const w = found(r, words); return w ? change(w) : '-'; }}))], rows));
};

// Any figure against anything that differs.
const explorer = (rows, look) => {
  const axes = [...axes_of(rows), null];
  const paths = [...single_paths, ...cluster_paths].filter((p, i, all) => all.indexOf(p) === i &&
    distinct(rows.map(r => at(r, p)).filter(v => typeof v === 'number')).length > 1);
  if (paths.length < 2) return;
  const body = el('div');
  let [x, y] = [0, 0];
  const redraw = () => body.replaceChildren(...[against(figure(paths[y]).meaning, rows, axes[x], paths[y],
    look)].filter(Boolean));
  redraw();
  chapter('Any figure', null, choice('figure', paths.map(p => figure(p).label), i => { y = i; redraw(); }),
    choice('against', axes.map(a => a ? a.title : 'run by run'), i => { x = i; redraw(); }), body);
};

// Of one profile and size at a time, at first of the middle.
const group_of = r => [r.profile, r.slots ? said('count', r.slots) + ' experts' : ''].filter(Boolean).join(', ');
const of_groups = (heading, note, rows, before, draw) => {
  if (!rows.length) return;
  const groups = distinct(rows.map(group_of)), body = el('div');
  let which = Math.floor((groups.length - 1) / 2);
  const redraw = () => body.replaceChildren(...[draw(rows.filter(r => group_of(r) === groups[which]),
    groups[which])].filter(Boolean));
  const box = choice('of', groups, i => { which = i; redraw(); });
  box.querySelector('select').value = which;
  redraw();
  chapter(heading, note, before, groups.length > 1 ? box : null, body);
  return redraw;
};

const layer_maps = rows => {
  const there = rows.filter(r => r.layers.length);
  const paths = ['hit_rate', 'stall_ms', 'h2d_bytes', 'on_cpu'].filter(p =>
    there.some(r => r.layers.some(l => l[p] > 0)));
  if (!paths.length) return;
  let what = 0, redraw = null;
  const box = choice('figure', paths.map(p => figure('layers.*.' + p).label), i => { what = i; redraw(); });
  redraw = of_groups('Layers', 'From the first layer to the last.', there, box, (shown, group) => {
    const words = figure('layers.*.' + paths[what]);
    return heat(`${words.label}, ${group}`, shown.map(r => ({name: r.label,
      values: r.layers.map(l => l[paths[what]] || 0)})), words.unit, 'run', i => 'layer ' + i,
      ...(words.unit === 'share of 1' ? [0, 1] : []));
  });
};

const guard_chapter = rows => {
  const arms = rows.flatMap(r => (r.guard || []).map(g => ({...g, row: r})));
  chapter('Guard', 'What each run tried to do without, and what was decided.', table([
    {heading: 'run', key: true, of: g => g.row.label}, {heading: 'what', key: true, of: g => g.name},
    {heading: 'phase', key: true, of: g => g.phase}, {heading: 'ms/token with', of: g => said('', g.on_ms)},
    {heading: 'without', of: g => said('', g.off_ms)}, {heading: 'now', of: g => g.on ? 'on' : 'off'},
    {heading: 'trials', of: g => g.trials}, {heading: 'tokens without', of: g => g.off_tokens},
    {heading: 'not tried because', of: g => g.why || ''}], arms));
};

const cluster_chapters = rows => {
  if (!rows.length) return;
  const look = looks(), axis = axes_of(rows)[0], of = r => r.cluster;
  for (const r of rows) look(axis ? axis.name(r) : r.label);
  chapter('Latency', 'Lower is better.', grid(['cluster.latency_ms.mean', 'cluster.experts_ms_per_token']
    .map(p => against(figure(p).meaning, rows, axis, p, look))));
  const middle = axis ? distinct(rows.map(axis.of)).sort((a, b) => a - b) : [];
  const value = middle[Math.floor((middle.length - 1) / 2)];
  const shown = rows.filter(r => !axis || axis.of(r) === value).slice(0, 20);
  const note = (axis ? `Of the runs at ${three(value)} (${axis.title}).` : '') +
    (shown.length < rows.length && !axis ? ` The first ${shown.length} of ${rows.length} runs.` : '');
  const name = r => axis ? axis.name(r) : r.label;
  const times_of = (r, key) => of(r).over_time[key].map((v, i) => [(i + .5) * of(r).over_time.bucket_s, v])
    .filter((p, i) => key !== 'latency_ms' || of(r).over_time.requests[i] > 0);
  const moves = shown.flatMap(r => of(r).migrations.filter(m => m.adopted).map(m => ({...m, look: look(name(r))})));
  const draw = u => { for (const m of moves) {
    const x = u.valToPos(m.at_s, 'x', true);
    u.ctx.save(); u.ctx.strokeStyle = color(m.look); u.ctx.setLineDash([3, 4]); u.ctx.beginPath();
    u.ctx.moveTo(x, u.bbox.top); u.ctx.lineTo(x, u.bbox.top + u.bbox.height); u.ctx.stroke(); u.ctx.restore();
  } };
  const over = (title, key, y, factor) => lines(title, 'time, s', y, shown.map(r => ({name: name(r),
    look: look(name(r)), markers: false, points: times_of(r, key).map(([x, v]) => [x, factor * v])})), {draw});
  chapter('Over time', note + (moves.length ? ' Dotted: a migration begins.' : ''), grid(
    over('Local calls', 'local_ratio', '% of expert calls', 100),
    over('Latency by arrival', 'latency_ms', 'ms a request', 1)));
  chapter('Homes', 'What the time of each went to while it had requests, and how long those took. ' + note,
    cause_keys(shown.flatMap(r => of(r).homes.map(h => h.causes))),
    grid(shown.map(r => bars(name(r), [...of(r).homes].sort((a, b) => b.latency_ms.mean - a.latency_ms.mean)
      .slice(0, 24).map(h => {
        const whole = {};
        for (const phase of Object.values(h.causes || {}))
          for (const [key, ms] of Object.entries(phase)) whole[key] = (whole[key] || 0) + ms;
        const {sum, parts} = parts_of(whole);
        return {name: h.name, value: h.latency_ms.mean, text: `${said('ms', h.latency_ms.mean)}, local ` +
          said('share of 1', h.local_ratio), parts: sum > 0 ? parts : undefined};
      }), v => said('ms', v)))));
  chapter('Links', 'Bytes; the second part of a bar is migration. ' + note, grid(shown.map(r =>
    bars(name(r), [...of(r).links].sort((a, b) => b.activation_bytes + b.migration_bytes -
      a.activation_bytes - a.migration_bytes).slice(0, 24).map(l => {
      const sum = l.activation_bytes + l.migration_bytes;
      return {name: l.from + ' to ' + l.to, value: sum, text: said('bytes', sum) + ', busy ' +
        said('share of 1', l.utilisation), parts: [{share: l.activation_bytes / sum, color: 'var(--c0)',
        hint: 'activations ' + said('bytes', l.activation_bytes)}, {share: l.migration_bytes / sum,
        color: 'var(--c1)', hint: 'migration ' + said('bytes', l.migration_bytes)}]};
    }), v => said('bytes', v)))));
  chapter('Placement', 'Copies of each layer\'s experts that each server holds at the end, over the ' +
    'layer\'s experts. ' + note, shown.filter(r => of(r).servers_layers.length * of(r).layers_experts.length <
    24000).map(r => heat(name(r), of(r).servers_layers.map((held, s) => ({name: server_names(of(r))[s],
    values: held.map((n, l) => n / Math.max(1, of(r).layers_experts[l]))})), 'share of 1',
    'server', layer_names(of(r)), 0, 1)));
};
const server_names = of => {
  const names = distinct(of.devices.map(d => d.name.replace(/\.gpu\d+$/, '')));
  return names.length === of.servers_layers.length ? names : of.servers_layers.map((_, i) => 'server ' + i);
};
const layer_names = of => i => {
  let m = 0;
  while (m + 1 < of.models_layers.length && i >= of.models_layers[m]) i -= of.models_layers[m++];
  return (of.models_layers.length > 1 ? `model ${m} ` : '') + 'layer ' + i;
};

// Where runs were repeated, figures of a row are the means of its repeats, as text has them.
const over = (own, means) => {
  const made = {...own};
  for (const [key, mean] of Object.entries(means || {}))
    made[key] = typeof mean === 'object' ? over(own[key], mean) : mean;
  return made;
};
const repeated = r => r.repeats ? over(r, r.repeats.means) : r;
const interval = rows => rows.some(r => r.repeats)
  ? [{heading: '± ms, 95 %', of: r => r.repeats ? three(r.repeats.half_interval) : '-'}] : [];

const kinds = {};
kinds.comparison = d => {
  const rows = d.results.map(repeated), machines = rows.filter(r => !r.cluster), clusters = rows.filter(r => r.cluster);
  if (!rows.length) return;
  const r = rows[0];
  facts([['trace', d.trace], ['model', d.shape],
    ['work', `${counted(r.tokens, 'token')} of ${counted(r.requests, 'request')}`],
    ['executor', r.executor + (r.virtual_time ? ', virtual time' : '') + ', seed ' + r.seed],
    ['hardware', distinct(rows.map(x => x.profile)).join(', ')]]);
  cluster_chapters(clusters);
  machine_chapters(machines);
  const size = [{heading: 'experts', of: x => said('count', x.slots)},
    {heading: 'share', of: x => x.experts_all ? said('share of 1', x.slots / x.experts_all) : '-'}];
  for (const profile of distinct(machines.map(x => x.profile)))
    chapter('Results, ' + (profile || 'no profile'), 'Bold: Pareto-optimal in memory, time and quality. ' +
      'Italic: sees the future, or does not fit.',
      results(machines.filter(x => x.profile === profile), single_paths, [...size, ...interval(machines)]));
  chapter('Results of clusters', 'Bold: the lowest latency of equal clusters.', results(clusters, cluster_paths, interval(clusters)));
  guard_chapter(rows);
  const texts = new Map();
  for (const x of rows) for (const t of (x.text && x.text.texts) || [])
    texts.set(JSON.stringify(t), [t, [...((texts.get(JSON.stringify(t)) || [])[1] || []), x.label]]);
  chapter('Text', null, [...texts.values()].map(([t, by]) => [
    el('p', {class: 'note'}, by.length === rows.length ? 'every run alike' : 'with ' + by.join('; ')),
    el('blockquote', {}, el('b', {}, t.prompt), t.text)]).flat());
  words([...single_paths.filter(p => machines.some(x => at(x, p) != null)),
    ...cluster_paths.filter(p => clusters.some(x => at(x, p) != null))]);
};
const words = paths => chapter('Words', null, el('dl', {class: 'facts'}, distinct(paths).map(p =>
  [el('dt', {}, figure(p).label), el('dd', {}, figure(p).meaning)])));

// Placements: rows have latency_ms, local_ratio, settings and layer_shares; those refused a reason.
kinds.placement = d => {
  const made = d.results.filter(r => r.latency_ms != null), look = looks();
  facts([['cluster', d.cluster], ['statistics', d.statistics]]);
  for (const r of made) look(r.policy);
  const keys = Object.keys((d.results[0] || {}).settings || {});
  const swept = keys.length === 1 && made.every(r => isFinite(Number(r.settings[keys[0]])));
  const label = r => [r.policy, ...keys.map(k => k.split('.').at(-1) + ' ' + r.settings[k])].join(' + ');
  const draw = (title, y, of, text, whole) => {
    if (!swept) return bars(title, made.map(r => ({name: label(r), value: of(r), text: text(of(r)),
      color: `var(--c${look(r.policy).number % 8})`})), text, whole);
    return lines(title, keys[0], y, distinct(made.map(r => r.policy)).map(name => ({name, look: look(name),
      points: made.filter(r => r.policy === name).map(r => [Number(r.settings[keys[0]]), of(r)])})));
  };
  chapter('Latency', 'What the latency model predicts. Lower is better.', grid(
    draw('Latency', 'ms a token', r => r.latency_ms, v => said('ms', v)),
    draw('Local calls', '% of expert calls', r => 100 * r.local_ratio, v => v.toFixed(1) + ' %', 100)));
  let cells = 0;
  chapter('Placement', 'Which share of each layer\'s experts each server holds.', made.filter(r =>
    (cells += r.layer_shares.length * (r.layer_shares[0] || []).length) <= 24000 || r === made[0]).map(r =>
    heat(label(r), r.layer_shares.map((values, s) => ({name: d.servers[s], values})), 'share of 1',
      'server', layer_names({models_layers: d.models_layers}), 0, 1)));
  chapter('Results', null, table([{heading: 'policy', key: true, of: r => r.policy},
    ...keys.map(k => ({heading: k.split('.').at(-1), key: true, of: r => String(r.settings[k])})),
    {heading: 'latency', of: r => r.latency_ms == null ? (r.failed ? 'FAILED' : 'no plan') : said('ms', r.latency_ms)},
    {heading: 'local', of: r => said('share of 1', r.local_ratio)},
    {heading: 'remote/s', of: r => said('1/s', r.remote_calls_per_s)},
    {heading: 'copies', of: r => said('count', r.copies)}, {heading: 'time', of: r => said('s', r.seconds)},
    {heading: 'said', key: true, of: r => r.refusal || r.failed ||
      Object.entries(r.facts || {}).map(([k, v]) => k + ' ' + three(v)).join(', ')}], d.results));
};

kinds.frontier = d => {
  const x = d.params[0].name, y = d.targets[0].metric, look = looks();
  const others = s => d.params.slice(1).map(p => s.values[p.name]).join(' + ') || y;
  const good = d.samples.filter(s => s.fits && s.figures[y] != null);
  const point = s => [s.values[x], s.figures[y]];
  chapter('Pareto-optimal runs', 'Each point is a run. Values that do not fit are left out.', lines(
    y + ' against ' + x, x, y, [...distinct(good.map(others)).map(name => ({name, look: look(name),
      points: good.filter(s => others(s) === name).map(point)})),
      {name: 'Pareto-optimal', dots: true, ring: true, look: {mark: true, dash: []}, points: d.frontier.map(point)}]));
  chapter('Runs', null, table([...d.params.map(p => ({heading: p.name, key: true, of: s => String(s.values[p.name])})),
    {heading: y, of: s => said('', s.figures[y])}, {heading: 'fits', of: s => s.fits ? 'yes' : 'no'}], d.samples));
};

kinds.validation = d => {
  const there = d.rows.filter(r => r.emulated_ms != null);
  const classes = distinct(there.map(r => r.class)), xs = there.map(r => r.published_ms).sort((a, b) => a - b);
  const ends = [xs[0], xs.at(-1)];
  const side = (name, factor, dash) => ({name, look: {bound: true, dash}, markers: false,
    points: ends.map(v => [v, factor * v])});
  chapter('Published against emulated', 'Times of every row that is emulated; grey: equal, and a quarter ' +
    'more and less.', xs.length ? lines('every row that is emulated', 'published, ms', 'emulated, ms',
    [...classes.map((name, number) => ({name, look: {number}, dots: true, points: there.filter(r =>
      r.class === name).map(r => [r.published_ms, r.emulated_ms])})), side('equal', 1, []),
    side('a quarter more', 1.25, [8, 4]), side('a quarter less', .8, [2, 3])], {log: true}) : null);
  for (const [heading, rows] of d.tables) chapter(heading, null, table(rows[0].map((name, i) =>
    ({heading: name, key: i === 0, text: rows.slice(1).some(r => /^[a-z]/i.test(r[i])),
      of: r => String(r[i])})), rows.slice(1)));
};

kinds[carried.kind](carried.data);
fit();
})();
