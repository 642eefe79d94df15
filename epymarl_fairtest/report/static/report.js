"use strict";
// The page without this script is complete; it only adds players and the sorting of the table. It asks nobody.
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const root = document.documentElement;
  root.classList.add("js");
  const make = (name, className, text) => {
    const element = document.createElement(name);
    if (className) element.className = className;
    if (text !== undefined) element.textContent = text;
    return element;
  };
  const shown = (value) => {
    const text = Math.abs(value) >= 100 ? value.toFixed(0) : Math.abs(value) >= 10 ? value.toFixed(1) : value.toFixed(2);
    return text.replace("-", "\u2212");
  };
  const textOn = (colour) => { // dark on light colours, so that numbers on agents can be read
    const [r, g, b] = [1, 3, 5].map((at) => parseInt(colour.slice(at, at + 2), 16) / 255).map((c) => (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b > 0.18 ? "#14161b" : "#fff";
  };
  const inkOf = (name) => getComputedStyle(root).getPropertyValue(name).trim();

  // --- the field ----------------------------------------------------------------------------------------

  class Field {
    constructor(canvas, scene) {
      this.canvas = canvas;
      this.scene = scene;
      this.agents = scene.bodies.filter((body) => body.shape === "agent");
      const spans = [scene.high[0] - scene.low[0], scene.high[1] - scene.low[1]];
      if (scene.kind !== "none") canvas.style.aspectRatio = `${spans[0]} / ${spans[1]}`;
      this.spans = spans;
    }

    draw(moment) {
      const step = Math.min(moment, this.scene.received.length - 1); // it may be over sooner than the one beside it
      const wide = this.canvas.clientWidth, high = this.canvas.clientHeight, fine = window.devicePixelRatio || 1;
      if (!wide || !high) return;
      if (this.canvas.width !== Math.round(wide * fine) || this.canvas.height !== Math.round(high * fine)) {
        this.canvas.width = Math.round(wide * fine);
        this.canvas.height = Math.round(high * fine);
      }
      const pen = this.pen = this.canvas.getContext("2d");
      pen.setTransform(fine, 0, 0, fine, 0, 0);
      pen.clearRect(0, 0, wide, high);
      this.ink = { paper: inkOf("--paper"), ink: inkOf("--ink"), quiet: inkOf("--quiet"), grid: inkOf("--line"), gold: inkOf("--gold") };
      this.edge = this.scene.kind === "grid" ? 1 : 7; // room for the ring around an agent
      this.scale = Math.min((wide - 2 * this.edge) / this.spans[0], (high - 2 * this.edge) / this.spans[1]);
      if (this.scene.kind === "none") this.curves(step, wide, high);
      else this.places(step);
    }

    at(place) {
      const { low, high } = this.scene;
      return [this.edge + (place[0] - low[0]) * this.scale, this.edge + (high[1] - place[1]) * this.scale];
    }

    line(points, colour, width) {
      if (points.length < 2) return;
      const pen = this.pen;
      pen.beginPath();
      points.forEach(([x, y], n) => (n ? pen.lineTo(x, y) : pen.moveTo(x, y)));
      pen.strokeStyle = colour;
      pen.lineWidth = width;
      pen.lineJoin = pen.lineCap = "round";
      pen.stroke();
    }

    disc([x, y], radius, fill, edge, width) {
      const pen = this.pen;
      pen.beginPath();
      pen.arc(x, y, radius, 0, 2 * Math.PI);
      if (fill) { pen.fillStyle = fill; pen.fill(); }
      if (edge) { pen.strokeStyle = edge; pen.lineWidth = width; pen.stroke(); }
    }

    text([x, y], words, colour, size) {
      const pen = this.pen;
      pen.font = `600 ${size}px system-ui, sans-serif`;
      pen.textAlign = "center";
      pen.textBaseline = "middle";
      pen.fillStyle = colour;
      pen.fillText(words, x, y + 0.5);
    }

    places(step) {
      const { scene, ink } = this;
      const [x0, y0] = scene.low, [x1, y1] = scene.high;
      if (scene.kind === "grid") {
        for (let x = x0; x <= x1 + 1e-6; x++) this.line([this.at([x, y0]), this.at([x, y1])], ink.grid, 1);
        for (let y = y0; y <= y1 + 1e-6; y++) this.line([this.at([x0, y]), this.at([x1, y])], ink.grid, 1);
      } else if (scene.kind === "plane") {
        const corners = [[-1, -1], [1, -1], [1, 1], [-1, 1], [-1, -1]];
        this.line(corners.map((corner) => this.at(corner)), ink.grid, 1);
      }
      for (const body of scene.bodies) if (body.shape !== "agent") this.thing(body, step);
      this.agents.forEach((body, n) => { if (body.trail) this.trail(body, n, step); });
      if (scene.changed && step >= scene.start) for (const body of this.agents) this.changed(this.at(body.at[scene.start]));
      const made = scene.decision;
      if (made && step >= made.step) this.decided(this.at(this.agents[made.agent].at[made.step]));
      this.agents.forEach((body, n) => { if (!scene.worse[n]) this.agent(body, n, step); });
      this.agents.forEach((body, n) => { if (scene.worse[n]) this.agent(body, n, step); }); // the worse off on top
    }

    thing(body, step) {
      const { ink } = this, place = this.at(body.at[step]);
      if (body.trail) this.line(body.at.slice(0, step + 1).map((past) => this.at(past)), ink.grid, 1.5);
      if (body.present && !body.present[step]) this.cross(place, 4, ink.quiet, 1.2);
      else (this.shapes.get(body.shape) || this.shapes.get("disc"))(place, body.radius * this.scale, body.label);
    }

    shapes = new Map([
      ["disc", (place, radius, label) => {
        this.pen.globalAlpha = 0.35;
        this.disc(place, radius, this.ink.quiet);
        this.pen.globalAlpha = 1;
        this.disc(place, radius, null, this.ink.quiet, 1);
        this.text(place, label, this.ink.ink, 12);
      }],
      ["square", (place, radius, label) => {
        this.polygon(this.square(place, radius), this.ink.gold, this.ink.ink);
        this.text(place, label, "#22272B", 13);
      }],
      ["diamond", ([x, y], radius) => {
        const half = Math.max(radius, 8);
        this.polygon([[x, y - half], [x + half, y], [x, y + half], [x - half, y]], this.ink.gold, this.ink.ink);
      }],
      ["target", ([x, y], radius) => {
        this.polygon(this.square([x, y], Math.max(3.2 * radius, 11)), null, this.ink.ink); // seen around who covers it
        this.line([[x - 4, y], [x + 4, y]], this.ink.ink, 1.3);
        this.line([[x, y - 4], [x, y + 4]], this.ink.ink, 1.3);
      }],
    ]);

    cross([x, y], reach, colour, width) {
      this.line([[x - reach, y - reach], [x + reach, y + reach]], colour, width);
      this.line([[x - reach, y + reach], [x + reach, y - reach]], colour, width);
    }

    square([x, y], half) {
      return [[x - half, y - half], [x + half, y - half], [x + half, y + half], [x - half, y + half]];
    }

    polygon(corners, fill, edge) {
      const pen = this.pen;
      pen.beginPath();
      corners.forEach(([x, y], n) => (n ? pen.lineTo(x, y) : pen.moveTo(x, y)));
      pen.closePath();
      if (fill) { pen.fillStyle = fill; pen.fill(); }
      pen.strokeStyle = edge;
      pen.lineWidth = 1.2;
      pen.stroke();
    }

    trail(body, n, step) {
      const { scene, pen } = this;
      const beside = scene.kind === "grid" ? 3 * (n - (this.agents.length - 1) / 2) : 0;
      const points = body.at.slice(0, step + 1).map((place) => this.at(place)).map(([x, y]) => [x + beside, y + beside]);
      const colour = data.colours[n % data.colours.length];
      const kept = Math.min(scene.start, step);
      pen.globalAlpha = 0.7;
      pen.setLineDash([2, 4]);
      this.line(points.slice(0, kept + 1), colour, 1.6); // the parent's part
      pen.setLineDash([]);
      this.line(points.slice(kept), colour, 2.6);
      pen.globalAlpha = 1;
      if (points.length) this.disc(points[0], 2.6, this.ink.paper, colour, 1.4);
    }

    decided([x, y]) {
      this.polygon([[x, y - 8], [x + 8, y], [x, y + 8], [x - 8, y]], this.ink.gold, this.ink.ink);
    }

    changed(place) {
      this.disc(place, 5.5, this.ink.paper, this.ink.ink, 1.4);
      this.cross(place, 3.6, this.ink.ink, 1.4);
    }

    agent(body, n, step) {
      const place = this.at(body.at[step]), radius = Math.max(body.radius * this.scale, 9);
      if (this.scene.worse[n]) this.disc(place, radius + 3.5, null, this.ink.ink, 2);
      this.disc(place, radius, data.colours[n % data.colours.length], this.ink.paper, 1);
      this.text(place, body.label, textOn(data.colours[n % data.colours.length]), 12);
      if (body.level !== undefined) {
        const corner = [place[0] + radius - 2, place[1] + radius - 2];
        this.disc(corner, 6.5, this.ink.paper, this.ink.ink, 1);
        this.text(corner, String(body.level), this.ink.ink, 10);
      }
      const gained = this.scene.received[step][n] - this.scene.received[Math.max(step - 1, 0)][n];
      if (this.scene.kind === "grid" && gained > 0) this.text([place[0], place[1] - radius - 8], `+${gained.toFixed(2)}`, this.ink.ink, 12);
    }

    curves(step, wide, high) { // where nothing is known of places: what was received over time
      const { scene, ink } = this, steps = scene.received.length - 1, values = scene.received.flat();
      const low = Math.min(0, ...values), top = Math.max(0, ...values), span = top - low || 1;
      const at = (t, value) => [18 + (wide - 48) * t / Math.max(steps, 1), high - 20 - (high - 40) * (value - low) / span];
      this.line([at(0, 0), at(steps, 0)], ink.quiet, 1);
      if (scene.changed) this.line([at(scene.start, low), at(scene.start, top)], ink.quiet, 1);
      scene.received[0].forEach((_, n) => {
        const colour = data.colours[n % data.colours.length];
        const points = scene.received.slice(0, step + 1).map((row, t) => at(t, row[n]));
        this.line(points, colour, 2.6);
        const end = points[points.length - 1];
        this.disc(end, 9, colour, scene.worse[n] ? ink.ink : ink.paper, 2);
        this.text(end, String(n + 1), textOn(colour), 11);
      });
    }
  }

  // --- the player -----------------------------------------------------------------------------------------

  class Player {
    constructor(article, scene) {
      this.article = article;
      this.scene = scene;
      this.timer = null;
      const scenes = [scene, ...(scene.instead ? [scene.instead] : [])]; // what happened, and what would have
      this.steps = Math.max(...scenes.map((one) => one.received.length)) - 1;
      const values = scenes.flatMap((one) => one.received.flat());
      this.low = Math.min(0, ...values);
      this.span = Math.max(0, ...values) - this.low || 1;
      const places = [...article.querySelectorAll(".side")];
      this.sides = scenes.map((one, n) => ({
        scene: one, field: new Field(places[n].querySelector("canvas"), one), bars: this.makeBars(places[n].querySelector(".bars"), one),
        name: scenes.length > 1 ? places[n].querySelector(".which").textContent.split(" \u00b7 ")[0] : "",
      }));
      this.makeControls(article.querySelector(".controls"));
      this.makeChoices(article.querySelector(".controls"), this.sides.filter((side) => side.scene.choices));
      article.tabIndex = 0;
      article.addEventListener("keydown", (event) => this.key(event));
      this.show(this.steps);
    }

    makeBars(place, scene) {
      return scene.received[0].map((_, n) => {
        const row = make("div", "bar"), who = make("span", scene.worse[n] ? "who worse" : "who", String(n + 1));
        const track = make("span", "track"), fill = make("i"), value = make("span", "value");
        who.style.background = fill.style.background = data.colours[n % data.colours.length];
        who.style.color = textOn(data.colours[n % data.colours.length]);
        track.append(fill);
        row.append(who, track, value);
        place.append(row);
        return { fill, value };
      });
    }

    makeControls(place) {
      const { scene } = this;
      this.button = make("button", "play", "Play");
      this.button.type = "button";
      this.button.addEventListener("click", () => this.toggle());
      const slider = make("div", "slider");
      this.slider = make("input");
      Object.assign(this.slider, { type: "range", min: 0, max: this.steps, step: 1 });
      this.slider.setAttribute("aria-label", `Step of failure ${scene.id}`);
      this.slider.addEventListener("input", () => { this.pause(); this.show(Number(this.slider.value)); });
      slider.append(this.slider);
      if (scene.changed) {
        const mark = make("span", "mark"), part = scene.start / Math.max(this.steps, 1);
        mark.title = scene.happened;
        mark.style.left = `calc(8px + (100% - 16px) * ${part})`;
        slider.append(mark);
      }
      for (const { step, kind, words } of scene.marks || []) {
        const mark = make("span", `mark ${kind}`);
        mark.title = `step ${step}: ${words}`;
        mark.style.left = `calc(8px + (100% - 16px) * ${Math.min(step / Math.max(this.steps, 1), 1)})`;
        slider.append(mark);
      }
      if (scene.course) slider.append(this.makeCourse(scene));
      this.speed = make("select");
      this.speed.setAttribute("aria-label", "Speed");
      for (const factor of [0.5, 1, 2, 4]) this.speed.append(new Option(`${factor}\u00d7`, factor, factor === 1, factor === 1));
      this.speed.addEventListener("change", () => { if (this.timer) { this.pause(); this.play(); } });
      const step = make("div", "step");
      this.now = make("span", "now");
      const gif = this.article.querySelector("img.gif");
      step.append(this.now);
      if (gif) {
        const link = make("a", "download", "Download as GIF");
        link.href = gif.src;
        link.download = `failure-${scene.id}.gif`;
        step.append(link);
      }
      place.append(this.button, slider, this.speed, step);
    }

    makeChoices(place, sides) { // what each agent thought of its actions, on either side
      this.thoughts = [];
      if (!sides.length) return;
      const part = make("details", "choices");
      this.thought = make("summary");
      part.append(this.thought);
      for (const { scene: { choices }, name } of sides) {
        const head = make("tr"), table = make("table"), frame = make("div", "scroll"), rows = make("tbody"), heads = make("thead");
        head.append(make("td"), ...choices.actions.map((action) => { const cell = make("th", "", action); cell.scope = "col"; return cell; }));
        const cells = choices.scores[0].map((scores, n) => {
          const row = make("tr"), who = make("th", "", `agent ${n + 1}`), values = scores.map(() => make("td"));
          who.scope = "row";
          row.append(who, ...values);
          rows.append(row);
          return values;
        });
        heads.append(head);
        if (name) table.append(make("caption", "", name));
        table.append(heads, rows);
        const label = `Scores of the actions of failure ${this.scene.id}${name ? `, ${name.toLowerCase()}` : ""}`;
        Object.assign(frame, { tabIndex: 0, role: "region", ariaLabel: label });
        frame.append(table);
        part.append(frame);
        this.thoughts.push({ choices, cells });
      }
      place.append(part);
    }

    showChoices() { // after the last step those that led to it
      const last = Math.max(...this.thoughts.map(({ choices }) => choices.scores.length)) - 1;
      this.thought.textContent = `${this.thoughts[0].choices.what} at step ${Math.min(this.step, last)}, the taken action framed`;
      for (const { choices: { scores, taken }, cells } of this.thoughts) {
        const step = Math.min(this.step, scores.length - 1);
        cells.forEach((values, n) => values.forEach((cell, action) => {
          const score = scores[step][n][action];
          cell.textContent = score === null ? "\u2013" : shown(score);
          cell.className = taken[step][n] === action ? "taken" : "";
        }));
      }
    }

    makeCourse(scene) { // how likely it is to end unfair from each step on
      const strip = make("div", "course"), last = Math.max(this.steps, 1);
      scene.course.forEach(([step, p], n) => {
        const part = make("i"), until = n + 1 < scene.course.length ? scene.course[n + 1][0] : scene.received.length - 1;
        part.style.left = `${100 * step / last}%`;
        part.style.width = `${100 * (until - step) / last}%`;
        part.style.opacity = 0.08 + 0.92 * p;
        part.title = `from step ${step}: unfair in ${Math.round(100 * p)}%`;
        strip.append(part);
      });
      strip.title = "how often it ends unfair, continued from each step";
      return strip;
    }

    show(step) {
      this.step = Math.max(0, Math.min(this.steps, step));
      this.article.dataset.step = this.step;
      for (const side of this.sides) side.field.draw(this.step);
      const part = this.scene.changed ? (this.step < this.scene.start ? ", kept from the parent" : `, ${this.scene.happened}`) : "";
      const here = (this.scene.marks || []).filter((mark) => mark.step === this.step).map((mark) => `, ${mark.words}`).join("");
      this.now.textContent = `step ${this.step} of ${this.steps}${part}${here}`;
      this.slider.value = this.step;
      this.slider.setAttribute("aria-valuetext", this.now.textContent);
      if (this.thoughts.length) this.showChoices();
      for (const { scene, bars } of this.sides) scene.received[Math.min(this.step, scene.received.length - 1)].forEach((value, n) => {
        const { fill, value: text } = bars[n], zero = -this.low / this.span, end = (value - this.low) / this.span;
        fill.style.left = `${100 * Math.min(zero, end)}%`;
        fill.style.width = `${100 * Math.abs(end - zero)}%`;
        text.textContent = shown(value);
      });
    }

    play() {
      if (this.step >= this.steps) this.show(0);
      this.button.textContent = "Pause";
      this.timer = setInterval(() => {
        this.show(this.step + 1);
        if (this.step >= this.steps) this.pause();
      }, 160 / Number(this.speed.value));
    }

    pause() {
      clearInterval(this.timer);
      this.timer = null;
      this.button.textContent = "Play";
    }

    toggle() { if (this.timer) this.pause(); else this.play(); }

    key(event) {
      if (event.target !== this.article || event.ctrlKey || event.altKey || event.metaKey) return;
      const to = { ArrowLeft: this.step - 1, ArrowRight: this.step + 1, Home: 0, End: this.steps }[event.key];
      if (event.key === " ") this.toggle();
      else if (to !== undefined) { this.pause(); this.show(to); }
      else return;
      event.preventDefault();
    }
  }

  const players = [...document.querySelectorAll(".player")].map((article) => new Player(article, data.scenes[Number(article.dataset.scene)]));
  const redraw = () => players.filter((player) => player.article.isConnected).forEach((player) => player.sides.forEach((side) => side.field.draw(player.step)));
  let waiting = 0;
  window.addEventListener("resize", () => { cancelAnimationFrame(waiting); waiting = requestAnimationFrame(redraw); });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);

  // --- commands to copy -----------------------------------------------------------------------------------

  function copied(text) { // a page that was opened as a file may not use the clipboard itself
    const area = make("textarea");
    area.value = text;
    area.setAttribute("aria-hidden", "true");
    document.body.append(area);
    area.select();
    const done = document.execCommand("copy");
    area.remove();
    return done;
  }

  document.addEventListener("click", (event) => {
    const button = event.target.closest("button.copy");
    if (!button) return;
    button.textContent = copied(button.dataset.copy) ? "Copied" : "Select it by hand";
    button.focus();
    setTimeout(() => { button.textContent = "Copy"; }, 2000);
  });

  // --- the table of failures ------------------------------------------------------------------------------

  const table = document.getElementById("failures");
  if (!table) return;
  const bytesOf = (text) => Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
  const ARRAYS = {
    i1: Int8Array, u1: Uint8Array, i2: Int16Array, u2: Uint16Array, i4: Int32Array, u4: Uint32Array,
    i8: BigInt64Array, u8: BigUint64Array, f4: Float32Array, f8: Float64Array,
  };

  class Table { // the way back from packed_table (report/packed.py)
    constructor({ rows, columns, names, operators }) {
      this.rows = rows;
      this.names = names;
      this.operators = operators;
      this.columns = {};
      for (const [name, [type, text]] of Object.entries(columns)) this.columns[name] = new ARRAYS[type](bytesOf(text).buffer);
      this.agents = rows ? this.columns.received.length / rows : 0;
    }

    received(row) { return this.columns.received.subarray(row * this.agents, (row + 1) * this.agents); }

    value(column, row) {
      if (column.startsWith("received")) return this.received(row)[Number(column.slice(8))];
      const value = this.columns[column][row];
      return column in this.names ? this.names[column][value] : value;
    }

    text(column, row) {
      const value = this.value(column, row);
      if (column === "index") return value.toFixed(4);
      if (column.startsWith("received")) return shown(value);
      return column === "parent" && value < 0 ? "\u2013" : String(value);
    }

    least(column, row) { return column.startsWith("received") && this.value(column, row) === Math.min(...this.received(row)); }
  }

  const failures = new Table(data.table), body = table.tBodies[0], PAGE = 25;
  const replayed = new Set(data.scenes.map((scene) => scene.id));
  const columns = [...table.tHead.rows[0].cells].map((cell) => cell.dataset.column);
  const all = [...Array(failures.rows).keys()];
  let words = null; // of each row, once something is looked for
  const wordsOf = (row) => ["id", "operator", "root_seed", "parent", "status"].map((name) => failures.value(name, row)).join(" ").toLowerCase();
  const form = document.getElementById("filters"), count = document.getElementById("count");
  const before = document.getElementById("before"), after = document.getElementById("after");
  let sorted = { column: "index", up: true }, page = 0;

  function chosen() {
    const wanted = form.elements.text.value.trim().toLowerCase().split(/\s+/).filter(Boolean);
    const operator = form.elements.operator.value, index = failures.columns.index;
    if (wanted.length) words ||= all.map(wordsOf);
    const low = form.elements.low.value === "" ? -Infinity : Number(form.elements.low.value);
    const high = form.elements.high.value === "" ? Infinity : Number(form.elements.high.value);
    return all.filter((row) => (!operator || failures.value("operator", row) === operator) && index[row] >= low
      && index[row] <= high && wanted.every((word) => words[row].includes(word)));
  }

  // --- a failure of the table -----------------------------------------------------------------------------

  class Block { // the way back from _block (report/packed.py)
    constructor(bytes) {
      const end = bytes.indexOf(0);
      Object.assign(this, JSON.parse(new TextDecoder().decode(bytes.subarray(0, end))));
      this.planes = bytes.subarray(end + 1);
      this.count = this.planes.length / 4;
    }

    number(place) {
      const { planes, count } = this;
      const folded = (planes[place] | planes[place + count] << 8 | planes[place + 2 * count] << 16 | planes[place + 3 * count] << 24) >>> 0;
      return folded & 1 ? -(folded + 1) / 2 : folded / 2;
    }

    size(scene) { // in numbers
      const [cast, steps, , worse] = scene, rows = steps + 1;
      const ofBody = (body) => 2 * (body.rests ? 1 : rows) + (body.leaves ? rows : 0);
      return 4 + this.casts[cast][1].reduce((sum, one) => sum + ofBody(one), 0) + worse.length * rows;
    }

    scene(number) {
      const [cast, steps, unit, worse] = this.scenes[number], [kind, bodies] = this.casts[cast], rows = steps + 1;
      let place = this.scenes.slice(0, number).reduce((sum, one) => sum + this.size(one), 0);
      const plain = (count) => Array.from({ length: count }, () => this.number(place++));
      const sums = (values) => { let sum = 0; return values.map((value) => (sum += value)); };
      const corners = plain(4).map((value) => value / FINE);
      const moved = bodies.map((one) => {
        const [x, y] = [0, 1].map(() => sums(plain(one.rests ? 1 : rows)));
        const present = one.leaves ? plain(rows) : undefined;
        return { ...one, present, at: Array.from({ length: rows }, (_, t) => [x[one.rests ? 0 : t] / FINE, y[one.rests ? 0 : t] / FINE]) };
      });
      const paid = [...worse].map(() => sums(sums(plain(rows))));
      const received = Array.from({ length: rows }, (_, t) => paid.map((column) => column[t] * unit));
      return { kind, low: corners.slice(0, 2), high: corners.slice(2), bodies: moved, received, worse: [...worse].map(Number) };
    }
  }

  const { fine: FINE, block: BLOCK } = data.table;
  const blocks = [...document.querySelectorAll("script.packed")].map((script) => ({ script, opened: null }));
  async function inflated(text) {
    const stream = new Blob([bytesOf(text)]).stream().pipeThrough(new DecompressionStream("deflate"));
    return new Block(new Uint8Array(await new Response(stream).arrayBuffer()));
  }

  async function sceneOf(row) { // nothing where the page was full, or the browser is too old
    const block = blocks[Math.floor(row / BLOCK)];
    if (!block || !window.DecompressionStream) return null;
    block.opened ||= inflated(block.script.textContent);
    const operator = failures.operators[failures.columns.operator[row]], start = failures.columns.start_step[row];
    const told = { changed: operator.changes, happened: operator.caption.replace("{step}", start), start };
    const known = { id: failures.value("id", row), index: failures.value("index", row), seed: failures.value("root_seed", row) };
    return { ...(await block.opened).scene(row % BLOCK), ...told, ...known };
  }

  function playerOf(scene) {
    const article = make("article", "player"), screen = make("div", "screen"), side = make("div", "side");
    const canvas = make("canvas"), bars = make("div", "bars");
    article.setAttribute("role", "group");
    article.setAttribute("aria-label", `Failure ${scene.id}, index ${scene.index}`);
    canvas.setAttribute("aria-hidden", "true");
    bars.append(make("p", "paid", "received so far; ring: worse off"));
    side.append(canvas, bars);
    screen.append(side);
    article.append(make("h4", "", `Failure ${scene.id} \u00b7 index ${scene.index.toFixed(3)}`),
      make("p", "how", `${scene.happened} \u00b7 start seed ${scene.seed}`), screen, make("div", "controls"));
    return article;
  }

  async function open(line, button, row) { // the failure itself, and the commands that replay and explain it
    const id = failures.value("id", row);
    const shows = button.getAttribute("aria-expanded") !== "true";
    button.setAttribute("aria-expanded", String(shows));
    if (!shows) { line.nextElementSibling.remove(); return; }
    const below = make("tr", "opened"), cell = make("td", "text"), list = make("ul", "commands");
    cell.colSpan = columns.length;
    for (const [label, text] of [["Replay it", `fairtest replay ${data.run} ${id} --gif`], ["Ask why", `fairtest explain ${data.run} ${id}`]]) {
      const item = make("li"), copy = make("button", "copy", "Copy");
      copy.type = "button";
      copy.dataset.copy = text;
      copy.setAttribute("aria-label", `Copy: ${label}, failure ${id}`);
      item.append(make("span", "", label), make("code", "", text), copy);
      list.append(item);
    }
    cell.append(list);
    below.append(cell);
    line.after(below);
    const scene = await sceneOf(row);
    if (!below.isConnected) return;
    if (!scene) { cell.prepend(make("p", "absent", "Its steps are not part of this page. The first command plays them.")); return; }
    const article = playerOf(scene);
    cell.prepend(article);
    players.push(new Player(article, scene));
  }

  document.addEventListener("click", (event) => { // a failure without a player is opened in the table
    const link = event.target.closest("a[data-failure]");
    if (!link) return;
    event.preventDefault();
    for (const field of form.elements) if (field.name) field.value = "";
    sorted = { column: "id", up: true };
    page = Math.floor(failures.columns.id.filter((id) => id < Number(link.dataset.failure)).length / PAGE);
    fill();
    const button = [...body.querySelectorAll(".opens")].find((one) => one.textContent === link.dataset.failure);
    button.click();
    button.focus({ preventScroll: true });
    button.scrollIntoView();
  });

  function fill() {
    const rows = chosen(), sign = sorted.up ? 1 : -1;
    rows.sort((a, b) => {
      const x = failures.value(sorted.column, a), y = failures.value(sorted.column, b);
      return sign * (x < y ? -1 : x > y ? 1 : 0) || a - b;
    });
    const pages = Math.max(Math.ceil(rows.length / PAGE), 1);
    page = Math.max(0, Math.min(page, pages - 1));
    const lines = rows.slice(page * PAGE, (page + 1) * PAGE).map((row) => {
      const line = make("tr");
      for (const column of columns) {
        const cell = make("td", column === "operator" || column === "status" ? "text" : "");
        const text = failures.text(column, row);
        if (column === "id" && replayed.has(failures.value("id", row))) {
          const link = make("a", "", text);
          link.href = `#failure-${text}`;
          cell.append(link);
        } else if (column === "id") {
          const button = make("button", "opens", text);
          button.type = "button";
          button.setAttribute("aria-expanded", "false");
          button.addEventListener("click", () => open(line, button, row));
          cell.append(button);
        } else cell.textContent = text;
        if (failures.least(column, row)) cell.classList.add("least");
        line.append(cell);
      }
      return line;
    });
    body.replaceChildren(...lines);
    for (const cell of table.tHead.rows[0].cells) {
      if (cell.dataset.column === sorted.column) cell.setAttribute("aria-sort", sorted.up ? "ascending" : "descending");
      else cell.removeAttribute("aria-sort");
    }
    const first = rows.length ? page * PAGE + 1 : 0;
    count.textContent = `${first}\u2013${Math.min((page + 1) * PAGE, rows.length)} of ${rows.length.toLocaleString("en")}`
      + (rows.length < all.length ? ` (filtered from ${all.length.toLocaleString("en")})` : "");
    before.disabled = page === 0;
    after.disabled = page === pages - 1;
  }

  for (const cell of table.tHead.rows[0].cells) {
    cell.querySelector("button").addEventListener("click", () => {
      const column = cell.dataset.column;
      sorted = { column, up: sorted.column === column ? !sorted.up : true };
      page = 0;
      fill();
    });
  }
  form.addEventListener("submit", (event) => event.preventDefault());
  for (const kind of ["input", "change"]) form.addEventListener(kind, () => { page = 0; fill(); });
  form.addEventListener("reset", () => setTimeout(() => { page = 0; fill(); }));
  before.addEventListener("click", () => { page -= 1; fill(); });
  after.addEventListener("click", () => { page += 1; fill(); });
  fill();
})();
