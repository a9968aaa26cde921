"use strict";
// Draws the figures of the report as SVG: zoom, curves on and off, values under the pointer.
(() => {
  const SVG = "http://www.w3.org/2000/svg"; // a name, not an address: nothing is loaded
  const SHADES = ["#00224e", "#123570", "#3b496c", "#575d6d", "#707173",
                  "#8a8678", "#a59c74", "#c3b369", "#e1cc55", "#fee838"]; // cividis
  const SYMBOLS = { // around the pen, three to each side
    o: "m-3,0a3,3 0 1 0 6,0a3,3 0 1 0 -6,0z", s: "m-3,-3h6v6h-6z", "^": "m0,-3l3,6h-6z",
    v: "m0,3l3,-6h-6z", D: "m0,-4l4,4l-4,4l-4,-4z", X: "m-3,-3l6,6m0,-6l-6,6",
  };
  const clamp = (v, low, high) => Math.min(Math.max(v, low), high);
  const isNumber = (v) => Number.isFinite(v); // false for null
  const extremes = (values) =>
    values.filter(isNumber).reduce(([a, b], v) => [Math.min(a, v), Math.max(b, v)], [Infinity, -Infinity]);

  // --- elements and numbers ---------------------------------------------------------------

  function fill(element, attributes, children) {
    for (const [name, value] of Object.entries(attributes)) {
      if (name.startsWith("--")) element.style.setProperty(name, value);
      else if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
      else element.setAttribute(name, value);
    }
    element.append(...children);
    return element;
  }
  const html = (tag, attributes = {}, ...children) => fill(document.createElement(tag), attributes, children);
  const svg = (tag, attributes = {}, ...children) => fill(document.createElementNS(SVG, tag), attributes, children);

  const power = (n) => "10" + String(n).replace(/./g, (c) => "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"["-0123456789".indexOf(c)]);
  const plain = (v, options) =>
    v.toLocaleString("en", { useGrouping: "min2", ...options }).replaceAll(",", "\u202f").replace("-", "−");

  const isShort = (v) => v === 0 || (Math.abs(v) >= 1e-3 && Math.abs(v) < 1e7);

  function number(v, digits = 5) {
    if (!isNumber(v)) return "–";
    const [mantissa, exponent] = isShort(v) ? [v] : v.toExponential(15).split("e");
    const text = plain(Number(mantissa), { maximumSignificantDigits: clamp(digits, 1, 15) });
    return exponent ? `${text}·${power(Number(exponent))}` : text;
  }

  function ticks(low, high, most) {
    const rough = (high - low) / most;
    const unit = 10 ** Math.floor(Math.log10(rough));
    const step = unit * [1, 2, 5, 10].find((k) => k * unit >= rough * (1 - 1e-9));
    const size = Math.max(Math.abs(low), Math.abs(high));
    const places = -Math.floor(Math.log10(step) + 1e-9);
    const decimals = { minimumFractionDigits: clamp(places, 0, 20), maximumFractionDigits: clamp(places, 0, 20) };
    const text = (v) => isShort(size) ? plain(v, decimals) : number(v, Math.floor(Math.log10(size)) + places + 1);
    const first = Math.ceil(low / step - 1e-9);
    return Array.from({ length: Math.floor(high / step + 1e-9) - first + 1 }, (_, i) => (first + i) * step)
      .map((at) => ({ at, text: at ? text(at) : "0" }));
  }

  /** Ticks of an axis of decades; their places are logarithms. */
  function decades(low, high, most) {
    return high - low < 1.5
      ? ticks(10 ** low, 10 ** high, most).map(({ at, text }) => ({ at: Math.log10(at), text }))
      : ticks(low, high, Math.min(most, high - low)).map(({ at }) => ({ at, text: power(Math.round(at)) }));
  }

  const symbol = (shape, x, y) => (shape ? `M${x},${y}${SYMBOLS[shape]}` : "");
  const ink = (line) => ({
    "--light": line.light, "--dark": line.dark, "stroke-width": line.marker ? 1.8 : 1.3,
    "stroke-dasharray": line.dash.map((d) => d * 1.6).join(" "),
  });
  const marksOf = (line, d) => svg("path", { class: line.variant || line.marker === "X" ? "marks hollow" : "marks", d });

  function shade(share) {
    const at = clamp(share, 0, 1) * (SHADES.length - 1);
    const i = Math.min(Math.floor(at), SHADES.length - 2);
    const [a, b] = [SHADES[i], SHADES[i + 1]].map((hex) => [1, 3, 5].map((k) => parseInt(hex.slice(k, k + 2), 16)));
    return `rgb(${a.map((v, k) => Math.round(v + (b[k] - v) * (at - i))).join(" ")})`;
  }

  // --- one pair of axes -------------------------------------------------------------------

  class Plot {
    constructor(data, name, say) {
      Object.assign(this, { data, say, hidden: new Set(), pointers: new Map(), cursor: null, onread: () => {} });
      this.isLog = data.yscale === "log";
      this.toY = this.isLog ? (y) => (y > 0 ? Math.log10(y) : -400) : (y) => y;
      this.fromY = this.isLog ? (y) => 10 ** y : (y) => y;
      this.view = this.home = this.limits();
      const about = `${name}${data.title ? ", " + data.title : ""}`;
      this.svg = svg("svg", {
        class: "plot", tabindex: 0, role: "application", "aria-roledescription": "interactive figure",
        "aria-label": `${about}: ${data.ylabel} over ${data.xlabel}, ${data.lines.length || "no"} curves. ` +
          "Arrow keys read values, plus and minus zoom, 0 shows everything.",
      });
      this.tip = html("div", { class: "tip", hidden: "" });
      const button = (text, label, onclick) =>
        html("button", { type: "button", title: label, "aria-label": `${label}: ${about}`, onclick }, text);
      this.reset = button("⟲", "Show everything", () => this.show(this.home));
      this.element = html("div", { class: "panel" },
        html("div", { class: "bar" }, html("h4", {}, data.title), html("span", { class: "buttons" },
          button("+", "Zoom in", () => this.zoom(0.5)), button("−", "Zoom out", () => this.zoom(2)), this.reset)),
        html("div", { class: "frame" }, this.svg, this.tip));
      this.listen();
      new ResizeObserver(() => this.element.clientWidth === this.wide || this.draw()).observe(this.element);
    }

    /** What is shown at first; y in decades on a logarithmic axis. */
    limits() {
      const { lines, image, xlim, ylim } = this.data;
      const ends = (v, half) => (this.isLog ? [v > 0 ? v : null] : v === null ? [] : [v - half, v + half]);
      const heights = ({ y, band }) => y.flatMap((v, i) => ends(v, band?.[i] ?? 0));
      const xs = xlim ?? extremes(image?.x ?? lines.flatMap((line) => line.x));
      const ys = (ylim ?? extremes(image?.y ?? lines.flatMap(heights))).map(this.toY);
      const padding = ylim || image ? 0 : 0.04 * (ys[1] - ys[0]);
      const safe = ([a, b]) => (a < b ? [a, b] : isNumber(a) ? [a - 0.5, a + 0.5] : [0, 1]);
      return [...safe(xs), ...safe([ys[0] - padding, ys[1] + padding])];
    }

    show(view) {
      const shares = [0, 2].map((k) => (view[k + 1] - view[k]) / (this.home[k + 1] - this.home[k]));
      if (shares.every((share) => share > 1e-9 && share < 50)) this.view = view;
      this.draw();
    }

    zoom(factor, px = this.left + this.width / 2, py = this.top + this.height / 2) {
      const centre = [this.atX(px), this.atX(px), this.atY(py), this.atY(py)];
      this.show(this.view.map((v, k) => centre[k] + (v - centre[k]) * factor));
    }

    px(x) { return this.left + ((x - this.view[0]) / (this.view[1] - this.view[0])) * this.width; }
    py(y) {
      const share = (this.toY(y) - this.view[2]) / (this.view[3] - this.view[2]);
      return clamp(this.top + (1 - share) * this.height, -1e5, 1e5);
    }
    atX(px) { return this.view[0] + ((px - this.left) / this.width) * (this.view[1] - this.view[0]); }
    atY(py) { return this.view[3] - ((py - this.top) / this.height) * (this.view[3] - this.view[2]); }
    moved(dx, dy) {
      const [x, y] = [this.atX(this.left + dx) - this.view[0], this.atY(this.top + dy) - this.view[3]];
      return this.view.map((v, k) => v + (k < 2 ? x : y));
    }

    draw() {
      const wide = (this.wide = this.element.clientWidth);
      if (!wide) return;
      const high = Math.round(clamp(wide * 0.56, 250, 400));
      const yTicks = (this.isLog ? decades : ticks)(this.view[2], this.view[3], high / 48);
      this.left = 14 + 7.2 * Math.max(...yTicks.map((tick) => tick.text.length), 2);
      this.top = this.data.title ? 26 : 40; // below the buttons
      [this.width, this.height] = [wide - this.left - 24, high - this.top - 42];
      const [right, bottom] = [this.left + this.width, this.top + this.height];
      const axes = svg("g", { class: "axes", "aria-hidden": "true" });
      const label = (text, x, y, anchor, look = "") =>
        axes.append(svg("text", { x, y, "text-anchor": anchor, class: look }, text));
      for (const { at, text } of ticks(this.view[0], this.view[1], this.width / 75)) {
        axes.append(svg("path", { d: `M${this.px(at)},${this.top}V${bottom}` }));
        label(text, this.px(at), bottom + 17, "middle");
      }
      for (const { at, text } of yTicks) {
        const y = this.py(this.fromY(at));
        axes.append(svg("path", { d: `M${this.left},${y}H${right}` }));
        label(text, this.left - 7, y + 4, "end");
      }
      axes.append(svg("path", { class: "spine", d: `M${this.left},${this.top}V${bottom}H${right}` }));
      label(this.data.xlabel, this.left + this.width / 2, high - 6, "middle", "name");
      label(this.data.ylabel, 4, 14, "start", "name");
      // A nested <svg> clips what leaves it.
      const place = { x: this.left, y: this.top, width: this.width, height: this.height };
      this.inside = svg("svg", { ...place, viewBox: Object.values(place).join(" ") });
      if (this.data.image) this.inside.append(this.shades(place));
      const curves = this.visible.map((line) => this.curve(line, this.data.lines.indexOf(line)));
      this.inside.append(...curves.map(([band]) => band), ...curves.map(([, curve]) => curve)); // no band hides a curve
      this.marks = svg("g", { class: "cursor", "aria-hidden": "true" });
      fill(this.svg, { viewBox: `0 0 ${wide} ${high}`, height: high }, []).replaceChildren(axes, this.inside, this.marks);
      this.reset.disabled = this.view.every((v, k) => v === this.home[k]);
      this.element.dataset.view = JSON.stringify(this.view);
      if (this.cursor) this.read(this.cursor.line, this.cursor.index);
    }

    curve(line, order) {
      const { x, y, band } = line;
      const isDrawn = (v) => isNumber(v) && (!this.isLog || v > 0);
      const points = y.map((v, i) => (isDrawn(v) && isNumber(x[i]) ? [this.px(x[i]), this.py(v)] : null));
      const text = ([a, b]) => `${a.toFixed(1)},${b.toFixed(1)}`;
      const at = (i, sign) => text([points[i][0], this.py(y[i] + sign * (band[i] ?? 0))]);
      const area = !band ? [] : runs(points).map((run) =>
        `M${[...run.map((i) => at(i, 1)), ...run.reverse().map((i) => at(i, -1))].join("L")}z`);
      const path = runs(points).map((run) => `M${run.map((i) => text(points[i])).join("L")}`);
      const gap = this.width / 5;
      let next = this.left + (((order % 7) + 0.5) / 7) * gap;
      const marked = points.filter((p) => p && p[0] >= next && (next += gap * Math.ceil((p[0] - next + 1) / gap)));
      const marks = marksOf(line, marked.map((p) => symbol(line.marker, ...p.map(Math.round))).join(""));
      const count = this.visible.filter((other) => other.band).length;
      const opacity = Math.max(0.07, 0.22 / Math.sqrt(count));
      const look = { class: "curve", "data-key": line.key, "--opacity": opacity, ...ink(line) };
      return [svg("g", look, svg("path", { class: "band", d: area.join("") })),
              svg("g", look, svg("path", { class: "line", d: path.join("") }), marks)];
    }

    shades({ x, y, width, height }) {
      const { image } = this.data;
      const sharp = window.devicePixelRatio || 1;
      const canvas = html("canvas", { width: Math.round(width * sharp), height: Math.round(height * sharp) });
      const brush = canvas.getContext("2d");
      const column = (edge) => Math.round((this.px(edge) - x) * sharp);
      const row = (edge) => Math.round((this.py(edge) - y) * sharp);
      const [low, high] = extremes(image.values.flat());
      image.values.forEach((values, i) => values.forEach((value, j) => {
        if (!isNumber(value)) return;
        brush.fillStyle = shade((value - low) / (high - low || 1));
        const [a, b] = [column(image.x[i]), row(image.y[j + 1])];
        brush.fillRect(a, b, column(image.x[i + 1]) - a, row(image.y[j]) - b);
      }));
      return svg("image", { x, y, width, height, href: canvas.toDataURL() });
    }

    // --- reading values ---

    get visible() { return this.data.lines.filter((line) => !this.hidden.has(line.key)); }

    /** The place in a curve that is nearest to a position on the axis, or -1. */
    nearest(line, px) {
      const far = line.x.map((x, i) => (isNumber(line.y[i]) ? Math.abs(this.px(x) - px) : NaN));
      return far.indexOf(extremes(far)[0]);
    }

    /** Curves and their places at a position, the lowest first. */
    across(px) {
      return this.visible.map((line) => ({ line, index: this.nearest(line, px) }))
        .filter(({ index }) => index >= 0).sort((a, b) => a.line.y[a.index] - b.line.y[b.index]);
    }

    point(px, py, aloud) {
      if (this.data.image) {
        const find = (edges, v) => clamp(edges.findLastIndex((edge) => edge <= v), 0, edges.length - 2);
        const { x, y } = this.data.image;
        return this.read(null, [find(x, this.atX(px)), find(y, this.fromY(this.atY(py)))], aloud);
      }
      const far = ({ line, index }) => Math.hypot(this.py(line.y[index]) - py, this.px(line.x[index]) - px);
      const best = this.across(px).reduce((a, b) => (a && far(a) <= far(b) ? a : b), null);
      return best ? this.read(best.line, best.index, aloud) : this.forget();
    }

    /** Show one value in full, and those of the other curves in the legend. */
    read(line, index, aloud = false) {
      const { data } = this;
      const { image } = data;
      const middle = (edges, i) => (edges[i] + edges[i + 1]) / 2;
      const [x, y] = line ? [line.x[index], line.y[index]] : [middle(image.x, index[0]), middle(image.y, index[1])];
      const half = line?.band?.[index];
      const lines = line
        ? [line.label, `${data.ylabel} = ${number(y, 6)}${isNumber(half) ? ` ± ${number(half, 2)}` : ""}`]
        : [`${image.label} = ${number(image.values[index[0]][index[1]], 4)}`, `${data.ylabel} = ${number(y)}`];
      lines.push(`${data.xlabel} = ${number(x, 6)}`);
      const [px, py] = [this.px(x), this.py(y)];
      this.cursor = { line, index, px, py };
      this.tip.hidden = px < this.left - 1 || px > this.left + this.width + 1;
      this.tip.replaceChildren(...lines.map((text) => html("span", {}, text)));
      this.marks.replaceChildren();
      if (!this.tip.hidden) this.marks.append(svg("path", { d: `M${px},${this.top}v${this.height}` }));
      if (!this.tip.hidden && py >= this.top && py <= this.top + this.height)
        this.marks.append(svg("circle", { cx: px, cy: py, r: 5, ...(line && ink({ ...line, dash: [] })) }));
      const { offsetWidth: wide, offsetHeight: high } = this.tip;
      const left = px + wide + 14 > this.element.clientWidth ? Math.max(0, px - wide - 14) : px + 14;
      fill(this.tip, { "--left": `${left}px`, "--top": `${clamp(py - high - 10, 0, this.top + this.height - high)}px` }, []);
      this.onread(new Map(this.across(px).map((other) => [other.line.key, other.line.y[other.index]])));
      if (aloud) this.say(lines.join(", "));
    }

    forget() {
      this.cursor = null;
      this.tip.hidden = true;
      this.marks?.replaceChildren();
      this.onread(new Map());
    }

    key(event) {
      const jump = event.shiftKey ? 10 : 1;
      const keys = {
        ArrowLeft: () => this.move(-jump, 0), ArrowRight: () => this.move(jump, 0),
        ArrowUp: () => this.move(0, 1), ArrowDown: () => this.move(0, -1),
        Home: () => this.move(-1e9, 0), End: () => this.move(1e9, 0), Escape: () => this.forget(),
        "+": () => this.zoom(0.5, this.cursor?.px, this.cursor?.py), "=": () => keys["+"](),
        "-": () => this.zoom(2, this.cursor?.px, this.cursor?.py), 0: () => this.show(this.home),
      };
      if (!(event.key in keys) || event.ctrlKey || event.metaKey || event.altKey) return;
      event.preventDefault();
      keys[event.key]();
    }

    /** Go on along a curve, or to the next one above or below; in an image to the next cell. */
    move(dx, dy) {
      if (!this.cursor) return this.point(this.left + this.width / 2, this.top + this.height / 2, true);
      const { line, index, px } = this.cursor;
      const step = (list, at, by) => list[clamp(list.indexOf(at) + by, 0, list.length - 1)];
      if (!line) {
        const { values } = this.data.image;
        this.read(null, [clamp(index[0] + dx, 0, values.length - 1), clamp(index[1] + dy, 0, values[0].length - 1)], true);
      } else if (dy) {
        const here = this.across(px);
        const next = step(here, here.find((other) => other.line === line), dy);
        this.read(next.line, next.index, true);
      } else {
        this.read(line, step([...line.x.keys()].filter((i) => isNumber(line.y[i])), index, dx), true);
      }
      const beyond = (v, low, size) => v - clamp(v, low - 1, low + size + 1);
      this.show(this.moved(beyond(this.cursor.px, this.left, this.width), beyond(this.cursor.py, this.top, this.height)));
    }

    // --- pointers ---

    at(event) {
      const box = this.svg.getBoundingClientRect();
      return [event.clientX - box.left, event.clientY - box.top];
    }

    listen() {
      const on = (name, action, options) => this.svg.addEventListener(name, action, options);
      const begin = (pan) =>
        (this.start = this.pointers.size ? { view: this.view, points: [...this.pointers.values()], pan } : null);
      on("keydown", (event) => this.key(event));
      on("dblclick", () => this.show(this.home));
      on("blur", () => this.forget());
      on("pointerdown", (event) => {
        if (event.button) return;
        this.isArmed = true;
        this.pointers.set(event.pointerId, this.at(event));
        begin(event.shiftKey || this.pointers.size > 1);
        if (event.pointerType === "mouse") this.svg.setPointerCapture(event.pointerId);
        else this.point(...this.at(event));
      });
      on("pointermove", (event) => {
        const here = this.at(event);
        const isDown = this.pointers.has(event.pointerId);
        if (isDown) this.pointers.set(event.pointerId, here);
        if (isDown && this.start.pan) this.drag();
        else if (isDown && event.pointerType === "mouse") this.select(this.start.points[0], here);
        else this.point(...here);
      });
      const end = (event) => {
        this.pointers.delete(event.pointerId);
        begin(true);
        const corners = this.box?.isConnected && event.type === "pointerup" && this.corners;
        this.box?.remove();
        if (corners) this.show([this.atX(corners[0]), this.atX(corners[1]), this.atY(corners[3]), this.atY(corners[2])]);
      };
      on("pointerup", end);
      on("pointercancel", (event) => (end(event), this.forget()));
      on("pointerleave", (event) => {
        this.isArmed = false;
        if (event.pointerType === "mouse" && !this.start && document.activeElement !== this.svg) this.forget();
      });
      // The wheel belongs to the page, unless a key or a click gave it to the figure.
      on("wheel", (event) => {
        if (!event.ctrlKey && !event.metaKey && !this.isArmed) return;
        event.preventDefault();
        this.zoom(Math.exp(clamp(event.deltaY, -100, 100) * 0.004), ...this.at(event));
      }, { passive: false });
    }

    /** Moves with one pointer; moves and enlarges with two. */
    drag() {
      const { view, points } = this.start;
      const now = [...this.pointers.values()];
      const middle = (list, k) => list.reduce((sum, p) => sum + p[k], 0) / list.length;
      const spread = ([a, b]) => (b ? Math.max(1, Math.hypot(a[0] - b[0], a[1] - b[1])) : 1);
      this.view = view;
      this.view = this.moved(middle(points, 0) - middle(now, 0), middle(points, 1) - middle(now, 1));
      this.zoom(spread(points) / spread(now), middle(now, 0), middle(now, 1));
    }

    /** A box to be enlarged; one that is flat means a stretch of one axis. */
    select(from, to) {
      if (Math.hypot(to[0] - from[0], to[1] - from[1]) < 6) return;
      const ends = [[this.left, this.left + this.width], [this.top, this.top + this.height]];
      const sides = ends.map(([low, high], k) => extremes([from[k], to[k]]).map((v) => clamp(v, low, high)));
      const [[a, b], [c, d]] = sides.map((side, k) => (side[1] - side[0] < 12 ? ends[k] : side));
      this.corners = [a, b, c, d];
      this.forget();
      this.box ??= svg("rect", { class: "box" });
      this.svg.append(fill(this.box, { x: a, y: c, width: b - a, height: d - c }, []));
    }
  }

  /** The places of neighbours that are there, a list for each run of them. */
  function runs(points) {
    const found = [];
    points.forEach((p, i) => {
      if (p && points[i - 1]) found.at(-1).push(i);
      else if (p) found.push([i]);
    });
    return found;
  }

  // --- legends and figures ----------------------------------------------------------------

  function legend(plots) {
    const lines = new Map(plots.flatMap((plot) => plot.data.lines.map((line) => [line.key, line])));
    const entries = new Map();
    const pressAll = () => press([...lines.keys()], all.textContent === "Show all");
    const all = html("button", { type: "button", class: "all", onclick: pressAll }, "Hide all");
    const press = (keys, isOn) => {
      keys.forEach((key) => entries.get(key).setAttribute("aria-pressed", isOn));
      for (const plot of plots) {
        keys.forEach((key) => plot.hidden[isOn ? "delete" : "add"](key));
        plot.forget();
        plot.draw();
      }
      all.textContent = plots.some((plot) => plot.visible.length) ? "Hide all" : "Show all";
    };
    const emphasise = (key) => plots.forEach((plot) => plot.inside.querySelectorAll(".curve").forEach((curve) =>
      curve.classList.toggle("faint", key !== null && curve.dataset.key !== key)));
    for (const [key, line] of lines) {
      const sample = svg("svg", { class: "sample curve", viewBox: "0 0 40 12", "aria-hidden": "true", ...ink(line) },
        svg("path", { class: "line", d: "M1,6H39" }), marksOf(line, symbol(line.marker, 20, 6)));
      entries.set(key, html("button", {
        type: "button", class: "entry", "aria-pressed": true,
        onclick: () => press([key], plots[0].hidden.has(key)),
        onpointerenter: () => emphasise(key), onpointerleave: () => emphasise(null),
        onfocus: () => emphasise(key), onblur: () => emphasise(null),
      }, sample, html("span", {}, line.label), html("output")));
    }
    plots.forEach((plot) => (plot.onread = (values) => entries.forEach((entry, key) =>
      (entry.lastChild.textContent = values.has(key) ? number(values.get(key)) : ""))));
    all.hidden = lines.size < 3;
    return html("div", { class: "legend", role: "group", "aria-label": "Curves" }, ...entries.values(), all);
  }

  /** All numbers of a figure as a table: a row for every point of a curve or cell of an image. */
  function csv(data) {
    const cell = (v) => (typeof v === "string" ? `"${v.replaceAll('"', '""')}"` : v ?? "");
    const middles = (edges) => edges.slice(1).map((v, i) => (v + edges[i]) / 2);
    const rows = data.panels.flatMap(({ title, xlabel, ylabel, lines, image }, k) => {
      const name = title || `${k + 1}: ${ylabel} over ${xlabel}`;
      const points = lines.flatMap((line) =>
        line.x.map((x, i) => [name, line.label, x, line.y[i], line.band?.[i]]));
      const cells = image ? middles(image.x).flatMap((x, i) =>
        middles(image.y).map((y, j) => [name, image.label, x, y, image.values[i][j]])) : [];
      return [...points, ...cells];
    });
    return [["panel", "curve", "x", "y", "band or value"], ...rows].map((row) => row.map(cell).join()).join("\r\n");
  }

  function build(figure, data) {
    const file = html("a", { href: "", download: `${data.name}.csv` }, "CSV");
    file.addEventListener("click", () => (file.href = URL.createObjectURL(new Blob([csv(data)], { type: "text/csv" }))));
    figure.querySelector(".files").append(file);
    const live = html("div", { class: "unseen", "aria-live": "polite" });
    data.panels.flatMap((panel) => panel.lines)
      .forEach((line) => (line.key = `${line.label} (${line.light} ${line.variant})`));
    const plots = data.panels.map((panel) => new Plot(panel, data.title, (text) => (live.textContent = text)));
    const keys = plots.map((plot) => plot.data.lines.map((line) => line.key));
    const most = keys.reduce((a, b) => (b.length > a.length ? b : a), []);
    const isShared = keys.every((some) => some.every((key) => most.includes(key)));
    plots.forEach((plot) => {
      const { image } = plot.data;
      const [low, high] = extremes(image?.values.flat() ?? []).map((v) => number(v, 3));
      const ramp = html("i", { "--ramp": SHADES.join(", ") });
      if (image) plot.element.append(html("div", { class: "scale" }, low, ramp, high, ` ${image.label}`));
      if (!isShared && plot.data.lines.length) plot.element.append(legend([plot]));
    });
    const grid = html("div", { class: "grid", "--columns": data.columns }, ...plots.map((plot) => plot.element));
    const body = figure.querySelector(".plots");
    body.replaceChildren(grid, ...(isShared && most.length ? [legend(plots)] : []), live);
    body.classList.toggle("beside", isShared && most.length > 0 && data.columns === 1);
    plots.forEach((plot) => plot.draw());
  }

  const figures = JSON.parse(document.getElementById("figures").textContent);
  document.querySelectorAll("figure[data-figure]").forEach((figure) => build(figure, figures[figure.dataset.figure]));
})();
