"use strict";
/* The numbers of the page: matrices by checkpoint, layer and head, their parts, and what belongs to a cell. */
const Weights = (() => {
  const content = Page.json(document.getElementById("explorer-data"));
  const { width, layers, heads, bits, group, tokens, names, starts, checkpoints, coefficients } = content;
  const count = width * width;
  const exact = !bits && group === 1;
  const perHead = (m) => m === "Q" || m === "P";

  /* The channel of every cell of a row or column. */
  const channelOf = [];
  starts.forEach((start, i) => { for (let k = start; k < (starts[i + 1] ?? width); k++) channelOf.push(i); });
  const sizes = tokens.map(([, size]) => size);

  function unpacked(text, scale) {
    const source = Heat.bytes(text), out = new Float64Array(count);
    const half = 2 ** (bits - 1) - 1, mask = 2 ** bits - 1;
    for (let i = 0; i < count; i++) {
      const at = i * bits, k = at >> 3;
      let code = ((source[k] | (source[k + 1] << 8) | (source[k + 2] << 16)) >>> (at & 7)) & mask;
      if (code > half) code -= mask + 1;
      out[i] = code === half ? Infinity : code === -half ? -Infinity : code < -half ? NaN : code * scale;
    }
    return out;
  }

  const decoded = new Map();
  function remembered(key, make) {
    if (!decoded.has(key)) {
      if (decoded.size > 64) decoded.delete(decoded.keys().next().value);
      decoded.set(key, make());
    }
    return decoded.get(key);
  }

  /* As in the file. */
  function stored(index, m, layer, head) {
    const k = perHead(m) ? layer * heads + head : layer;
    return remembered(`${index} ${m} ${k}`, () => {
      const { data, scale, size } = checkpoints[index].weights[m];
      return bits ? unpacked(data[k], scale[k]) : Heat.floats(data[k], size);
    });
  }

  /* Which head of the file stands at this place, and the k of P -> kP, Q -> Q/k. */
  function placed(index, layer, head, part, aligned) {
    const at = ({ order, factor }, h) => ({ head: order[layer][h], k: factor[layer][h] });
    if (!aligned || index === 0) return part === "gauge" ? at(checkpoints[index].canonical, head) : { head, k: 1 };
    const first = placed(0, layer, head, part, false);
    const own = at(checkpoints[index].toFirst, first.head);
    return { head: own.head, k: own.k * first.k };
  }

  /* Multiples of the identity in every block; null where a block is not square. */
  function multiples(index, m, layer, place) {
    const factor = m === "P" ? place.k : 1 / place.k;
    return checkpoints[index].scalars[m][layer][place.head].map((v) => (v === null ? null : place.k === 1 ? v : v * factor));
  }

  function blockScalar(scalars) {
    const out = new Float64Array(count);
    for (let r = 0; r < width; r++) {
      for (let c = 0; c < width; c++) {
        const a = channelOf[r], b = channelOf[c], scalar = scalars[a * tokens.length + b];
        if (sizes[a] === sizes[b] && r - starts[a] === c - starts[b]) out[r * width + c] = scalar ?? NaN;
      }
    }
    return out;
  }

  function one(index, m, layer, head, part, aligned) {
    if (!perHead(m)) return { values: stored(index, m, layer, 0), place: null };
    const place = placed(index, layer, head, part, aligned);
    const factor = m === "P" ? place.k : 1 / place.k;
    const file = stored(index, m, layer, place.head);
    let values = place.k === 1 ? file : file.map((v) => (m === "P" ? v * place.k : v / place.k));
    if (part === "scalar" || part === "rest") {
      const scalar = blockScalar(multiples(index, m, layer, place));
      values = part === "scalar" ? scalar : values.map((v, i) => v - scalar[i]);
    }
    return { values, place, file, factor };
  }

  /* What a state shows: values, and where they come from. */
  function shown({ m, part, view, layer, head, index }) {
    if (view === "diff") {
      const a = one(0, m, layer, head, part, true), b = one(index, m, layer, head, part, true);
      return { values: b.values.map((v, i) => v - a.values[i]), a, b };
    }
    return one(view === "a" ? 0 : index, m, layer, head, part, view === "aligned");
  }

  const tops = new Map();
  function largestAnywhere({ m, part, view }) {
    const key = `${m} ${part} ${view}`;
    if (!tops.has(key)) {
      let top = 0;
      const indices = view === "a" ? [0] : checkpoints.map((_, i) => i).slice(content.kind === "pair" ? 1 : 0);
      for (const index of indices) {
        for (let layer = 0; layer < layers; layer++) {
          for (let head = 0; head < (perHead(m) ? heads : 1); head++) {
            top = Math.max(top, Heat.largest(shown({ m, part, view, layer, head, index }).values));
          }
        }
      }
      tops.set(key, top);
    }
    return tops.get(key);
  }

  const flag = (source, i) => (source[i >> 3] >> (i & 7)) & 1;

  /* 1 where no prediction depends on the cell. */
  function dead(index, m, layer) {
    return remembered(`${index} dead ${m} ${layer}`, () => {
      const maps = remembered(`${index} maps`, () => Heat.bytes(checkpoints[index].live.maps));
      const channels = remembered(`${index} channels`, () => Heat.bytes(checkpoints[index].live.channels));
      const T = (a, e) => flag(maps, (layer * width + a) * width + e), G = (b) => flag(channels, layer * width + b);
      const every = Array.from({ length: width }, (_, i) => i);
      const writes = every.map((a) => every.some((e) => T(a, e))), reads = every.map((e) => every.some((a) => T(a, e)));
      const alive = {
        Q: (r, c) => reads[r] && G(c), P: (r, c) => writes[r] && G(c),
        copy: (r, c) => T(r, c) && G(r) && G(c), trace: (r, c) => T(r, r) && G(c), left: (r, c) => T(r, c),
      }[m];
      return Uint8Array.from({ length: count }, (_, i) => (alive(Math.floor(i / width), i % width) ? 0 : 1));
    });
  }

  function deadShown({ m, view, layer, index }) {
    if (view === "a") return dead(0, m, layer);
    if (view !== "diff") return dead(index, m, layer);
    const before = dead(0, m, layer);
    return dead(index, m, layer).map((v, i) => v & before[i]);
  }

  /* Singular values of what is shown, or why there are none. */
  function spectrum({ m, part, view, layer, head, index }) {
    const full = content.fullWidth;
    const read = (table, key, at) => {
      const values = Heat.floats(table[key], 4).subarray(at * full, (at + 1) * full);
      return values.some((v) => !Number.isFinite(v)) ? { why: "the matrix holds numbers that are not finite" } : { values };
    };
    if (part === "scalar" && perHead(m)) return { why: "a block-scalar matrix has one for every channel, each as often as the channel is wide" };
    if (view === "diff") {
      if (part === "rest" && perHead(m)) return { why: "it is not computed for the rest of a difference" };
      if (index === 0) return { why: "a difference of a checkpoint with itself is zero" };
      if (!perHead(m)) return read(checkpoints[index].differenceSpectra, m, layer);
      const first = placed(0, layer, head, part, false);
      const found = read(checkpoints[index].differenceSpectra, m, layer * heads + first.head);
      return found.values ? { values: found.values.map((v) => v * Math.abs(m === "P" ? first.k : 1 / first.k)) } : found;
    }
    const which = view === "a" ? 0 : index;
    if (!perHead(m)) return read(checkpoints[which].spectra, m, layer);
    const place = placed(which, layer, head, part, view === "aligned");
    const found = read(checkpoints[which].spectra, part === "rest" ? `${m}.rest` : m, layer * heads + place.head);
    return found.values ? { values: found.values.map((v) => v * Math.abs(m === "P" ? place.k : 1 / place.k)) } : found;
  }

  /* Indices of the coefficients that a cell of a block belongs to. */
  function belonging(m, rowChannel, columnChannel) {
    const fits = {
      Q: (c) => c.column === rowChannel && c.keyColumn === columnChannel,
      P: (c) => c.row === rowChannel && c.keyRow === columnChannel,
      copy: (c) => !c.trace && c.row === rowChannel && c.column === columnChannel && c.keyRow === c.row && c.keyColumn === c.column,
      trace: (c) => (c.trace ? c.row === rowChannel && c.keyRow === columnChannel : rowChannel === columnChannel && [c.row, c.column, c.keyRow, c.keyColumn].every((k) => k === rowChannel)),
      left: (c) => c.row === rowChannel && c.column === columnChannel,
    }[m];
    return coefficients.map((c, i) => (fits(c) ? i : -1)).filter((i) => i >= 0);
  }

  return { ...content, exact, perHead, channelOf, shown, one, largestAnywhere, deadShown, spectrum, belonging, placed, multiples };
})();
