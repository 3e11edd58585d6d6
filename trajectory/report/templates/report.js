"use strict";
// The table of all iterations: sorted, filtered and opened here. Texts of proposers are data: they
// become text nodes and nothing else; the page's policy (trusted types) forbids markup from strings.
(() => {
  const STEP = 200; // rows added at a time
  const CHUNK = 100; // iterations in a packed block
  const PRINTED = 1000;
  const data = JSON.parse(document.getElementById("table").textContent);
  const blocks = [...document.querySelectorAll("script.details")];
  const unpacked = new Map();
  const table = document.getElementById("iterations");
  const body = table.tBodies[0];
  const more = document.getElementById("more");
  const outcomeNames = { keep: "kept", discard: "discarded", failed: "failed", pruned: "pruned", refused: "refused" };
  const absent = (name) => data[name].every((value) => value === null || value === "");
  const hidden = new Set(["seconds", "wh", "delta"].filter(absent));
  if (data.kinds.every((kind) => kind === "")) hidden.add("kind");
  const place = new Map(data.iter.map((iter, i) => [iter, i]));
  let order = data.iter.map((_, i) => i);
  let drawn = 0;
  let sorting = { column: "iter", down: false };
  const titles = new Map([...table.tHead.rows[0].cells].map((head) => [head.dataset.column, head.textContent]));
  const heads = new Map(); // the button that sorts by a column, and its cell

  function element(tag, text, name) {
    const made = document.createElement(tag);
    if (text !== undefined && text !== null) made.textContent = text;
    if (name) made.className = name;
    return made;
  }

  const number = (value, digits) =>
    value === null || value === undefined ? "–" : value.toFixed(digits).replace("-", "−");
  const digits = data.digits ?? 4;
  const signed = (value) => (value > 0 ? "+" : "") + number(value, digits);

  const quantity = (value, digits, unit) => (value === null ? "–" : `${number(value, digits)} ${unit}`);

  function measured(text, error, shown) {
    const cell = element("td", text, "n");
    if (error !== null && error !== undefined) cell.append(" ", element("small", shown(number(error, digits))));
    return cell;
  }

  function row(i) {
    const made = element("tr", null, "row");
    made.id = `i${data.iter[i]}`;
    made.dataset.index = i;
    const first = element("td", null, "n");
    const button = element("button", data.iter[i]);
    button.setAttribute("aria-expanded", "false");
    button.setAttribute("aria-label", `iteration ${data.iter[i]}`);
    first.append(button);
    const outcome = data.outcomes[data.outcome[i]];
    const outcomeCell = element("td");
    outcomeCell.append(element("span", outcomeNames[outcome], `outcome ${outcome}`));
    const cells = {
      iter: first,
      kind: element("td", data.kinds[data.kind[i]]),
      outcome: outcomeCell,
      bpb: measured(number(data.bpb[i], digits), data.half[data.n[i]], (half) => `± ${half}`),
      n: element("td", data.n[i] ?? "–", "n"),
      delta: measured(data.delta[i] === null ? "–" : signed(data.delta[i]), data.stderr[i], (error) => `(se ${error})`),
      changes: element("td", data.changes[i], "code"),
      seconds: element("td", quantity(data.seconds[i], 1, "s"), "n"),
      wh: element("td", quantity(data.wh[i], 3, "Wh"), "n"),
    };
    for (const [name, cell] of Object.entries(cells)) {
      if (hidden.has(name)) continue;
      cell.dataset.head = titles.get(name); // names the value where a row is a card
      made.append(cell);
    }
    return made;
  }

  function draw(upTo) {
    const end = Math.min(upTo, order.length);
    const rows = document.createDocumentFragment();
    for (; drawn < end; drawn++) rows.append(row(order[drawn]));
    body.append(rows);
    more.replaceChildren();
    if (drawn < order.length) {
      const button = element("button", `show more (${order.length - drawn} left)`);
      button.addEventListener("click", () => draw(drawn + STEP));
      more.append(button);
    }
  }

  function redraw() {
    body.replaceChildren();
    drawn = 0;
    draw(STEP);
    document.getElementById("shown").textContent = `${order.length} of ${data.iter.length}`;
  }

  function key(i) {
    if (sorting.column === "kind") return data.kinds[data.kind[i]];
    if (sorting.column === "outcome") return data.outcomes[data.outcome[i]];
    return data[sorting.column][i];
  }

  function compare(a, b) {
    const [x, y] = [key(a), key(b)];
    if (x === y) return a - b;
    if (x === null) return 1; // what has no value is last, whichever way
    if (y === null) return -1;
    return (x < y ? -1 : 1) * (sorting.down ? -1 : 1);
  }

  function select() {
    const outcome = document.getElementById("outcome").value;
    const words = document.getElementById("words").value.toLowerCase().split(/\s+/).filter(Boolean);
    order = data.iter
      .map((_, i) => i)
      .filter((i) => !outcome || data.outcomes[data.outcome[i]] === outcome)
      .filter((i) => {
        const text = `${data.changes[i]} ${data.kinds[data.kind[i]]}`.toLowerCase();
        return words.every((word) => text.includes(word));
      })
      .sort(compare);
    redraw();
  }

  // --- what a row opens to ---------------------------------------------------------------------

  async function unpack(index) {
    const block = Math.floor(index / CHUNK);
    if (!unpacked.has(block)) {
      const packed = Uint8Array.from(atob(blocks[block].textContent), (c) => c.charCodeAt(0));
      const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate"));
      unpacked.set(block, new Response(stream).json());
    }
    return (await unpacked.get(block))[index % CHUNK];
  }

  function part(card, title, ...content) {
    const made = element("div");
    made.append(element("h4", title), ...content);
    card.append(made);
  }

  function grid(heads, rows) {
    const made = element("table");
    const head = element("tr");
    head.append(...heads.map((text) => element("th", text)));
    made.append(head);
    for (const cells of rows) {
      const line = element("tr");
      line.append(...cells.map((text) => element("td", text)));
      made.append(line);
    }
    return made;
  }

  const said = (text) => element("p", text, "foreign");
  const joined = (...texts) => texts.filter(Boolean).join(" · ");

  function card(detail) {
    const made = element("div", null, "card");
    if (detail.reason) part(made, "Reason, in the proposer's words", said(detail.reason));
    if (detail.verdict) part(made, "Verdict", said(detail.verdict));
    if (detail.decision) part(made, "Decision", said(detail.decision));
    if (detail.changes.length) {
      const rows = detail.changes.map((change) => [change.name, change.before, change.after]);
      part(made, "Config, against its reference", grid(["field", "reference", "proposed"], rows));
    }
    if (detail.trials.length) part(made, "Trials", trials(detail.trials));
    const origin = joined(detail.proposer, detail.at);
    part(made, detail.proposer ? "Proposer" : "Record", said(origin), ...detail.notes.map(said));
    detail.replies.forEach((one, i) => part(made, `Reply ${i + 1}, raw`, ...reply(one)));
    if (detail.config) part(made, "Config's hash (its beginning), or its name", element("p", detail.config, "code"));
    return made;
  }

  function trials(found) {
    const rows = found.map((trial) => [
      trial.id,
      trial.role,
      trial.seed,
      trial.status,
      trial.result,
      `${trial.wall_s} s`,
      peakMemory(trial),
    ]);
    return grid(["trial", "role", "seed", "status", "score, or why none", "time", "peak memory"], rows);
  }

  function peakMemory(trial) {
    if (trial.peak_gpu_mem_gib !== null) return `${trial.peak_gpu_mem_gib} GiB of the GPU`;
    return trial.peak_mem_gib === null ? "–" : `${trial.peak_mem_gib} GiB`;
  }

  function reply(one) {
    const [sent, received] = [one.prompt_tokens, one.completion_tokens];
    const known = sent !== null || received !== null;
    const tokens = known ? `${sent ?? "?"} tokens in, ${received ?? "?"} out` : "";
    const head = joined(one.mode, one.finish, `${one.latency_s} s`, tokens);
    const notes = joined(one.error, one.verdict, one.truncated ? "cut short in the record" : "");
    return [said(head), ...(notes ? [said(notes)] : []), element("pre", one.raw, "foreign")];
  }

  async function toggle(line, open) {
    const button = line.querySelector("button");
    const isOpen = button.getAttribute("aria-expanded") === "true";
    if (open === isOpen) return;
    button.setAttribute("aria-expanded", String(!isOpen));
    if (isOpen) {
      line.nextElementSibling.remove();
      return;
    }
    const below = element("tr", null, "open");
    const cell = element("td", "…");
    cell.colSpan = table.tHead.rows[0].cells.length;
    below.append(cell);
    line.after(below);
    cell.replaceChildren(card(await unpack(Number(line.dataset.index))));
  }

  function visit() {
    const match = /^#i(\d+)$/.exec(location.hash);
    if (!match || !place.has(Number(match[1]))) return;
    const index = place.get(Number(match[1]));
    if (!order.includes(index)) {
      document.querySelector("form.filters").reset();
      select();
    }
    draw(order.indexOf(index) + 1);
    const line = document.getElementById(match[0].slice(1));
    toggle(line, true);
    line.scrollIntoView({ block: "center" });
  }

  // On paper: what it was measured with, the head of the table on each sheet (Chromium repeats none
  // that holds buttons), and of very many rows a word on those that are missing.
  function beforePrint() {
    draw(PRINTED);
    document.querySelector("details.scoring").open = true;
    for (const [button, head] of heads) head.replaceChildren(button.textContent);
    const unprinted = document.getElementById("unprinted");
    unprinted.hidden = drawn >= order.length;
    unprinted.textContent = `The first ${drawn} of ${order.length} rows; the page itself has them all.`;
  }

  function afterPrint() {
    for (const [button, head] of heads) head.replaceChildren(button);
    document.getElementById("unprinted").hidden = true;
  }

  for (const head of [...table.tHead.rows[0].cells]) {
    if (hidden.has(head.dataset.column)) {
      head.remove();
      continue;
    }
    const button = element("button", head.textContent);
    head.replaceChildren(button);
    heads.set(button, head);
    button.addEventListener("click", () => {
      const column = head.dataset.column;
      sorting = { column, down: sorting.column === column && !sorting.down };
      for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
      head.setAttribute("aria-sort", sorting.down ? "descending" : "ascending");
      select();
    });
  }
  body.addEventListener("click", (event) => {
    const line = event.target.closest("tr.row");
    if (line && !String(getSelection())) toggle(line);
  });
  document.querySelector("form.filters").hidden = false;
  document.querySelector("form.filters").addEventListener("submit", (event) => event.preventDefault());
  document.getElementById("outcome").addEventListener("change", select);
  document.getElementById("words").addEventListener("input", select);
  addEventListener("hashchange", visit);
  addEventListener("beforeprint", beforePrint);
  addEventListener("afterprint", afterPrint);
  redraw();
  visit();
})();
