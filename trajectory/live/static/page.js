// The live page. Whatever comes from a campaign is text: it is set with textContent, never as markup.

const ROWS_A_PAGE = 5000;
const SHOWN_STEP = 100;
const POLL_MS = 2000;
const CHART_PX = { trajectory: 330, curve: 220, device: 220 };

const byId = (id) => document.getElementById(id);
const campaigns = new Map(); // name -> { summary, briefs, running, points, trial, device }
let selected = fragment();
let shown = SHOWN_STEP;
let opened = new Set();
let refusal = null; // why the pause file could not be changed

// --- talking to the server -----------------------------------------------------------------------

async function ask(path, options) {
  const response = await fetch(path, options);
  if (response.status === 401) location.href = "login";
  if (!response.ok) {
    const body = await response.json().catch(() => ({}));
    throw new Error(body.detail || `the server answered ${response.status}`);
  }
  return response.json();
}

// The campaign that the address names; a mangled one names none.
function fragment() {
  try {
    return decodeURIComponent(location.hash.slice(1)) || null;
  } catch {
    return null;
  }
}

const place = (name) => `api/campaigns/${encodeURIComponent(name)}`;

async function syncBoard() {
  const summaries = await ask("api/campaigns");
  const names = new Set(summaries.map((one) => one.name));
  for (const name of campaigns.keys()) if (!names.has(name)) campaigns.delete(name);
  for (const summary of summaries) {
    const known = campaigns.get(summary.name);
    if (known) {
      known.summary = summary;
      if (known.briefs.length > summary.status.iterations) known.briefs = []; // another campaign of that name
    } else campaigns.set(summary.name, { summary, briefs: [], running: null, points: [], trial: "", device: [] });
  }
  if (!campaigns.has(selected)) selected = summaries.length ? newest(summaries).name : null;
  const behind = [...campaigns].filter(([, { summary, briefs }]) => briefs.length < summary.status.iterations);
  await Promise.all(behind.map(([name]) => syncRows(name)));
  if (selected) await syncNow();
  drawChanged();
}

// Draw unless all is as it was drawn last; how long nothing happened counts in steps of ten seconds.
let lastDrawn = "";
function drawChanged() {
  const seen = [...campaigns.values()].map(({ summary, briefs, points, device, lanes, queue }) => {
    const status = { ...summary.status, silent_s: Math.floor(summary.status.silent_s / 10) };
    return [{ ...summary, status }, briefs.length, points.length, device.at(-1)?.at, lanes, queue];
  });
  const now = JSON.stringify([selected, seen]);
  if (now === lastDrawn) return;
  lastDrawn = now;
  drawAll();
}

const newest = (summaries) =>
  summaries.reduce((best, one) => (one.status.silent_s < best.status.silent_s ? one : best));

async function syncRows(name) {
  const campaign = campaigns.get(name);
  for (;;) {
    const more = await ask(`${place(name)}/iterations?after=${latest(campaign)}`);
    take(campaign, more);
    if (more.length < ROWS_A_PAGE) return;
  }
}

// An imported journal may lack iterations, so their number is no count of them.
const latest = (campaign) => campaign.briefs.at(-1)?.iter ?? 0;

// With several lanes iterations land in the order in which they ended, not in that of their numbers.
function take(campaign, briefs) {
  if (campaign.known?.of !== campaign.briefs) {
    campaign.known = { of: campaign.briefs, numbers: new Set(campaign.briefs.map((one) => one.iter)) };
  }
  for (const brief of briefs) {
    if (campaign.known.numbers.has(brief.iter)) continue;
    campaign.known.numbers.add(brief.iter);
    campaign.briefs.push(brief);
  }
}

async function syncNow() {
  const campaign = campaigns.get(selected);
  const seen = campaign.device.length ? campaign.device[campaign.device.length - 1].at : "";
  const step = campaign.points.length ? campaign.points[campaign.points.length - 1].step : 0;
  const query = new URLSearchParams({ trial: campaign.trial, step, device_after: seen });
  const here = place(selected);
  const [now, queue] = await Promise.all([ask(`${here}/now?${query}`), ask(`${here}/queue`)]);
  campaign.summary = now.summary;
  campaign.device = campaign.device.concat(now.device).slice(-1800);
  campaign.queue = queue;
  campaign.running = now.running;
  campaign.lanes = now.lanes;
  if (now.running) {
    if (now.running.trial_id !== campaign.trial) campaign.points = [];
    campaign.trial = now.running.trial_id;
    campaign.points = campaign.points.concat(now.running.points);
  }
}

// Ask again every other second, as long as somebody can see the page.
async function follow() {
  if (document.visibilityState === "visible") {
    try {
      await syncBoard();
      say("live", "live");
    } catch (error) {
      say(error instanceof TypeError ? "the server does not answer; trying again" : error.message, "lost");
    }
  }
  setTimeout(follow, POLL_MS);
}

function say(text, kind) {
  byId("link").textContent = text;
  byId("link").className = `link ${kind}`;
}

function trouble(error) {
  byId("trouble").textContent = error ? error.message : "";
  byId("trouble").hidden = !error;
}

// --- words and numbers -----------------------------------------------------------------------------

// What a campaign's journal counts is always to fall: a score that is to grow is turned back here.
const grows = (status) => status.direction === "maximise";
const scored = (value, status) => (grows(status) ? 0 - value : value);
const score = (value, status) => (value == null ? "" : scored(value, status).toFixed(status.digits));
const size = (value, status) => value.toFixed(status.digits);
function signed(value, status) {
  if (value == null) return "";
  const turned = scored(value, status);
  return (turned < 0 ? "−" : "+") + Math.abs(turned).toFixed(status.digits);
}
const ends = (low, high, status, word) => (grows(status) ? [high, low] : [low, high]).map((one) => word(one, status)).join(" … ");
const plain = (value) =>
  typeof value === "number" && !Number.isInteger(value) ? String(Number(value.toPrecision(4))) : String(value);
const changesText = (changes) =>
  Object.entries(changes).filter(([, value]) => value !== null).map(([knob, value]) => `${knob}=${plain(value)}`).join(" ");

function duration(seconds) {
  if (seconds == null) return "";
  if (seconds < 99.5) return `${seconds.toFixed(seconds < 9.95 ? 1 : 0)} s`;
  const minutes = Math.round(seconds / 60);
  return minutes < 60 ? `${minutes} min` : `${Math.floor(minutes / 60)} h ${String(minutes % 60).padStart(2, "0")} min`;
}

// What is invisible in a text is spelled out, as in the report: it could show another than was received.
const INVISIBLE = /(?![\n\t\u200c\u200d])[\p{Cc}\p{Cf}\p{Cs}\p{Co}\p{Cn}\p{Zl}\p{Zp}]/gu;
const visible = (text) =>
  String(text).replace(INVISIBLE, (one) => `⟨U+${one.codePointAt(0).toString(16).toUpperCase().padStart(4, "0")}⟩`);

function peakMemory(result) {
  if (result.peak_gpu_mem_gib != null) return `, ${result.peak_gpu_mem_gib.toFixed(2)} GiB of the GPU`;
  return result.peak_mem_gib == null ? "" : `, ${result.peak_mem_gib.toFixed(2)} GiB`;
}

function element(tag, text, className) {
  const made = document.createElement(tag);
  if (text != null) made.textContent = visible(text);
  if (className) made.className = className;
  return made;
}

// --- the board ---------------------------------------------------------------------------------------

function drawBoard() {
  const cards = [...campaigns.values()].map(({ summary }) => {
    const { status, name } = summary;
    const card = element("button");
    card.type = "button";
    card.dataset.name = name;
    card.setAttribute("aria-current", String(name === selected));
    card.append(element("strong", name), element("span", stateText(status)));
    const { headline } = status;
    if (fromFresh(headline) && headline.delta != null) card.append(element("span", `${signed(headline.delta, status)} ${status.unit} ${headline.verdict}`, verdictClass(headline)));
    card.append(element("span", status.believed_objective == null ? "no result yet" : `incumbent ${score(status.believed_objective, status)} ${status.unit} (estimated)`));
    if (status.until) {
      const bar = element("progress");
      bar.max = status.until;
      bar.value = status.iterations;
      card.append(bar);
    }
    card.addEventListener("click", () => select(name));
    return card;
  });
  const board = byId("board");
  const focused = document.activeElement?.dataset?.name;
  board.replaceChildren(...cards);
  cards.find((card) => card.dataset.name === focused)?.focus();
}

function stateText(status) {
  const count = status.until ? `${status.iterations} of ${status.until}` : `${status.iterations} iterations`;
  if (status.state === "done" && fromFresh(status.headline)) return `${count}, done, ${status.headline.verdict}`;
  if (status.state === "silent") return `${count}, silent for ${duration(status.silent_s)}`;
  return `${count}, ${status.state}`;
}

function select(name) {
  history.replaceState(null, "", `#${encodeURIComponent(name)}`);
  if (name === selected) return;
  selected = name;
  shown = SHOWN_STEP;
  opened = new Set();
  refusal = null;
  syncNow().then(drawAll).catch(trouble);
}

// --- one campaign --------------------------------------------------------------------------------------

function drawAll() {
  drawBoard();
  const campaign = campaigns.get(selected);
  byId("campaign").hidden = !campaign;
  byId("empty").hidden = campaigns.size > 0;
  if (!campaign) return;
  drawHead(campaign);
  drawTrajectory(campaign);
  drawDevice(campaign); // first: the curve has the whole width where there is no device
  drawCurve(campaign);
  drawLanes(campaign);
  drawQueue(campaign);
  drawChoice();
  drawRows(campaign);
  drawTop(campaign);
}

function drawHead({ summary }) {
  const { status } = summary;
  document.title = `${status.headline.title} · ${summary.name} · autoresearch`;
  byId("finding").textContent = visible(status.headline.title);
  byId("name").textContent = visible(summary.name);
  byId("state").textContent = `${stateText(status)}${summary.menu ? ` · menu ${visible(summary.menu)}` : ""}`;
  byId("counted").textContent = status.unit === "bpb" ? "Bits per byte" : visible(status.unit);
  byId("in-unit").textContent = status.unit === "bpb" ? "bits per byte" : visible(status.unit);
  byId("better").textContent = grows(status) ? "higher" : "lower";
  byId("unit").textContent = visible(status.unit);
  byId("report").href = `${place(summary.name)}/report`;
  byId("pause").hidden = ["silent", "done"].includes(status.state); // nothing is there to read the file
  byId("pause").textContent = status.state === "paused" ? "Resume" : "Pause before the next iteration";
  const why = summary.error ?? (refusal ? null : summary.trouble);
  trouble(why ? new Error(why) : refusal);
  const { pruned, ...failures } = status.failures; // stopped early because they were far behind
  const failed = Object.entries(failures).map(([what, n]) => `${n} ${what}`).join(", ");
  const confirmed = confirmedCell(status);
  const cells = [
    ...(fromFresh(status.headline) ? [confirmed] : []),
    ["incumbent, estimated", status.believed_objective == null ? "–" : `${score(status.believed_objective, status)} ${visible(status.unit)}`, status.incumbent ? `${status.incumbent.iter ? `iteration ${status.incumbent.iter}` : "the baseline"}, n=${status.incumbent.n}${fromFresh(status.headline) || !status.headline.sizes ? "" : `, ${status.headline.sizes}`}` : ""],
    ["claimed gain", status.gain == null ? "–" : signed(status.gain, status), status.gain_lo == null ? "" : `${visible(status.unit)}, 95 % interval ${ends(status.gain_lo, status.gain_hi, status, signed)}`],
    ...(fromFresh(status.headline) ? [] : [confirmed]),
    ["noise", status.sigma == null ? "–" : `${size(status.sigma, status)} ${visible(status.unit)}`, "standard deviation of one run"],
    ["kept", String(status.keeps), `of ${status.iterations}`],
    ["failed trials", failed || "none", pruned ? `and ${pruned} pruned` : ""],
    ["time per iteration", duration(status.pace_s) || "–", status.eta_s ? `${duration(status.eta_s)} left` : ""],
    ...(status.lanes ? [["lanes", String(status.lanes), `${Math.round(100 * (status.lanes_in_use ?? 0))} % in use`]] : []),
    ...(status.energy_wh == null ? [] : [["energy", `${(status.energy_wh / 1000).toFixed(3)} kWh`, "GPU"]]),
  ];
  byId("figures").replaceChildren(
    ...cells.map(([term, value, note, kind]) => {
      const cell = element("div");
      const data = element("dd", value, kind);
      data.append(element("small", note));
      cell.append(element("dt", term), data);
      return cell;
    }),
  );
}

// The campaign's result by fresh runs: the term, the value, a note and a class.
function confirmedCell(status) {
  const { headline } = status;
  if (!fromFresh(headline)) return ["confirmed gain", "not yet", "run autoresearch confirm"];
  const term = headline.verdict === "confirmed" ? "confirmed gain" : "not confirmed";
  if (headline.delta == null) return [term, "–", visible(headline.line), "failed"];
  return [term, signed(headline.delta, status), `${visible(status.unit)}, 95 % interval ${ends(headline.lo, headline.hi, status, signed)}, iteration ${headline.iter}${headline.sizes ? `, ${headline.sizes}` : ""}`, verdictClass(headline)];
}

function fromFresh(headline) {
  return ["confirmed", "not confirmed"].includes(headline.verdict);
}

function verdictClass(headline) {
  return headline.verdict === "confirmed" ? "keep" : "failed";
}

function freshText(config, status) {
  const gain = freshGain(config);
  return gain ? `${signed(gain.delta, status)} ± ${size(gain.hi - gain.delta, status)}` : config ? "no" : "–";
}

function freshGain(config) {
  return config?.gains.length ? config.gains[Math.min(1, config.gains.length - 1)] : null;
}

byId("pause").addEventListener("click", async () => {
  const paused = campaigns.get(selected).summary.status.state !== "paused";
  try {
    await ask(`${place(selected)}/pause`, {
      method: "PUT",
      headers: { "Content-Type": "application/json" },
      body: JSON.stringify({ paused }),
    });
    refusal = null;
    await syncNow();
    drawAll();
  } catch (error) {
    refusal = error;
    trouble(error);
  }
});

// --- the queue -----------------------------------------------------------------------------------------

function drawQueue({ queue }) {
  byId("queue").tBodies[0].replaceChildren(
    ...(queue ?? []).map((one) => {
      const button = element("button", "Withdraw");
      button.disabled = one.state !== "waiting";
      button.addEventListener("click", () => change(`/${encodeURIComponent(one.id)}`, { method: "DELETE" }, "withdrawn"));
      const last = element("td");
      last.append(button);
      const row = element("tr");
      row.append(element("td", visible(one.author)), element("td", one.state), element("td", changesText(one.changes), "changes"), element("td", visible(one.reason)), last);
      return row;
    }),
  );
}

// Change the queue, and say what came of it.
async function change(what, options, done) {
  try {
    await ask(`${place(selected)}/queue${what}`, options);
    byId("proposed").textContent = done;
    await syncNow();
    drawAll();
    return true;
  } catch (error) {
    byId("proposed").textContent = error.message;
    return false;
  }
}

// A value that is no JSON is text, as for the command.
function read(text) {
  try {
    return JSON.parse(text);
  } catch {
    return text;
  }
}

byId("propose").addEventListener("submit", async (event) => {
  event.preventDefault();
  const form = event.target;
  const pairs = form.changes.value.trim().split(/\s+/).map((pair) => [pair.split("=", 1)[0], read(pair.slice(pair.indexOf("=") + 1))]);
  const body = { changes: Object.fromEntries(pairs), reason: form.reason.value, author: form.author.value || null };
  const options = { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) };
  if (await change("", options, "queued")) form.changes.value = form.reason.value = "";
});

// --- two campaigns ---------------------------------------------------------------------------------------

function drawChoice() {
  const others = [...campaigns.keys()].filter((name) => name !== selected);
  const choice = byId("other");
  byId("compare-section").hidden = !others.length;
  const names = JSON.stringify([selected, others]);
  if (choice.dataset.names === names) return;
  choice.dataset.names = names;
  choice.replaceChildren(new Option("…", ""), ...others.map((name) => new Option(visible(name), name)));
  byId("differences").tBodies[0].replaceChildren();
}

byId("other").addEventListener("change", async (event) => {
  const chosen = event.target.value;
  const facts = await ask(`${place(selected)}/diff/${encodeURIComponent(chosen)}`).catch((error) => [["", error.message]]);
  if (event.target.value !== chosen) return;
  byId("differences").tBodies[0].replaceChildren(
    ...(chosen ? facts : []).map(([label, text]) => {
      const row = element("tr");
      row.append(element("th", label), element("td", text));
      return row;
    }),
  );
});

// --- charts ----------------------------------------------------------------------------------------------

const charts = new Map();
const WHOLE = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000, 20000, 50000, 100000];
const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();

function axis(extra) {
  return { stroke: colour("faint"), grid: { stroke: colour("line"), width: 1 }, ticks: { stroke: colour("line"), width: 1 }, ...extra };
}

function draw(id, options, data) {
  const holder = byId(id);
  const size = { width: Math.max(200, holder.clientWidth - 18), height: CHART_PX[id] };
  const key = JSON.stringify([options.key, size.width, colour("ink")]);
  const kept = charts.get(id);
  if (kept?.key === key) {
    kept.chart.setData(data);
    return;
  }
  kept?.chart.destroy();
  holder.replaceChildren();
  const chart = new uPlot({ ...size, cursor: { y: false }, ...options.make() }, data, holder);
  charts.set(id, { key, chart });
}

function clear(id, why) {
  charts.get(id)?.chart.destroy();
  charts.delete(id);
  byId(id).replaceChildren(element("p", why, "nothing"));
}

// The incumbent's estimated score by now.
const held = ({ status }, iter) => status.incumbents.findLast((one) => one.iter <= iter)?.objective ?? null;

function drawTrajectory(campaign) {
  const { summary } = campaign;
  const { status } = summary;
  const briefs = campaign.briefs.toSorted((one, other) => one.iter - other.iter);
  if (!briefs.length) return clear("trajectory", status.baseline_objective == null ? "The baseline is measured before anything is proposed." : "Nothing has been proposed yet.");
  if (status.baseline_objective == null && briefs.every((one) => one.objective == null)) return clear("trajectory", "Nothing has been measured yet.");
  // The baseline is iteration 0: the first step begins there.
  const at = (value) => [null, ...briefs.map(value)];
  const of = (action) => at((one) => (one.action === action ? one.objective : null));
  const steps = [held(summary, 0), ...briefs.map((one) => held(summary, one.iter))];
  const unmeasured = briefs.filter((one) => one.objective == null).length;
  const beyond = briefs.filter((one) => one.objective > status.scale[1]).length;
  const named = [ // what marks() and baselineBand() draw
    [unmeasured, `failed, pruned or refused (${unmeasured})`, "fail", "fail"],
    [beyond, `${grows(status) ? "below" : "above"} the scale (${beyond})`, "faint", "faint"],
    [status.run_half != null, "95 % interval of a mean", "faint", "band"],
  ].filter(([there]) => there);
  const fills = [null, "transparent", colour("discard"), colour("keep"), "transparent", ...named.map((one) => colour(one[3]))];
  const data = [[0, ...briefs.map((one) => one.iter)], steps.map(() => status.baseline_objective), of("discard"), of("keep"), steps, ...named.map(() => at(() => null))];
  draw("trajectory", {
    key: [summary.name, status.baseline_objective, status.run_half, status.direction, unmeasured, beyond],
    make: () => ({
      legend: { live: false, markers: { fill: (u, i) => fills[i] } },
      scales: { x: { time: false, range: (u, low, high) => [-0.05 - 0.03 * high, 0.05 + 1.03 * high] }, y: { dir: grows(status) ? -1 : 1, range: () => campaign.summary.status.scale } },
      axes: [axis({ label: "iteration", incrs: WHOLE, labelSize: 20, size: 32 }), axis({ size: 60, ...(grows(status) && { values: turnedTicks }) })],
      series: [
        { label: "iteration" },
        { label: "baseline", stroke: colour("accent"), width: 1, dash: [6, 4], points: { show: false } },
        { label: "discarded", stroke: colour("discard"), paths: () => null, points: { show: true, size: 5, fill: colour("discard") } },
        { label: "kept", stroke: colour("keep"), paths: () => null, points: { show: true, size: 9, fill: colour("keep") } },
        { label: "incumbent, estimate now", stroke: colour("keep"), width: 2, paths: uPlot.paths.stepped({ align: 1 }), points: { show: false } },
        ...named.map(([, label, stroke]) => ({ label, stroke: colour(stroke), points: { show: false } })),
      ],
      hooks: { drawClear: [(u) => baselineBand(u, campaign)], draw: [(u) => marks(u, campaign)] },
    }),
  }, data);
}

// As uPlot writes them by itself, of the scores themselves.
const turnedTicks = (u, splits) => splits.map((one) => (one == null ? one : String(Number((0 - one).toPrecision(8)))));

// Half the 95 % interval of an iteration's mean.
const halfBar = ({ summary }, one) => (summary.status.run_half ?? 0) / Math.sqrt(one.n);

function clipped(u, paint) {
  u.ctx.save();
  u.ctx.beginPath();
  u.ctx.rect(u.bbox.left, u.bbox.top, u.bbox.width, u.bbox.height);
  u.ctx.clip();
  paint(u.ctx);
  u.ctx.restore();
}

function baselineBand(u, campaign) {
  const { baseline_lo: low, baseline_hi: high } = campaign.summary.status;
  if (high == null) return;
  const [top, bottom] = [high, low].map((value) => u.valToPos(value, "y", true));
  clipped(u, (ctx) => {
    ctx.fillStyle = colour("band");
    ctx.fillRect(u.bbox.left, Math.min(top, bottom), u.bbox.width, Math.abs(bottom - top));
  });
}

// Bars on what was measured, a tick at the foot for what was not, and one at the edge for what is off the scale.
function marks(u, campaign) {
  const worst = campaign.summary.status.scale[1];
  const [foot, edge] = [u.bbox.top + u.bbox.height, u.valToPos(worst, "y", true)];
  const tick = 8 * devicePixelRatio;
  clipped(u, (ctx) => {
    ctx.lineWidth = devicePixelRatio;
    for (const one of campaign.briefs) {
      const mean = one.objective;
      const half = halfBar(campaign, one);
      const ends = mean == null ? [foot, foot - tick]
        : mean > worst ? [edge, edge + (edge < foot - tick ? tick : -tick)]
        : [mean - half, mean + half].map((end) => u.valToPos(end, "y", true));
      ctx.strokeStyle = colour(mean == null ? "fail" : mean > worst ? "faint" : one.action === "keep" ? "keep" : "discard");
      const x = u.valToPos(one.iter, "x", true);
      ctx.beginPath();
      ctx.moveTo(x, ends[0]);
      ctx.lineTo(x, ends[1]);
      ctx.stroke();
    }
  });
}

function ideaText(idea) {
  return idea ? `iteration ${idea.iter}, ${changesText(idea.changes)}: ${visible(idea.reason)} · ` : "";
}

function drawCurve({ summary, running, points, trial }) {
  const left = summary.status.state === "silent" ? "left unfinished: " : "";
  byId("trial").textContent = running
    ? `${left}${ideaText(running.idea)}${trial}, seed ${running.seed}${points.length ? `, step ${points[points.length - 1].step}` : ", starting"}${running.steps ? ` of ${running.steps}` : ""}`
    : points.length ? `${trial} has ended` : "none";
  byId("curve").parentElement.hidden = summary.status.state === "done" && !points.length;
  if (!points.length) return clear("curve", running ? "It is starting." : "No trial is running.");
  draw("curve", {
    key: running?.steps,
    make: () => ({
      legend: { show: false },
      scales: { x: { time: false, range: (u, low, high) => [1, running?.steps ?? Math.max(high, 2)] } },
      axes: [axis({ label: "step", incrs: WHOLE, labelSize: 20, size: 32 }), axis({ size: 50, label: summary.status.unit === "bpb" ? "nats per token" : "loss, as printed", labelSize: 20 })],
      series: [{ label: "step" }, { label: "training loss", stroke: colour("accent"), width: 1.5, points: { show: false } }],
    }),
  }, [points.map((one) => one.step), points.map((one) => one.loss)]);
}

// What runs on each lane now, and how much of their time they are in use.
function drawLanes({ summary, lanes = [] }) {
  byId("lanes-section").hidden = !lanes.length;
  const { status } = summary;
  const use = (share, when) => (share == null ? [] : [`${Math.round(100 * share)} % in use ${when}`]);
  byId("lanes-now").textContent = [
    ...use(status.lanes_in_use_of_hour, "over the last hour"),
    ...use(status.lanes_in_use, "in all"),
  ].join(", ");
  byId("lanes").tBodies[0].replaceChildren(...lanes.map(laneRow));
}

function laneRow(one) {
  const row = element("tr");
  const at = one.points.at(-1)?.step;
  const step = at == null ? "starting" : `${at}${one.steps ? ` of ${one.steps}` : ""}`;
  for (const text of [visible(one.lane), `${ideaText(one.idea)}${one.trial_id}`, one.seed, step]) row.append(element("td", String(text)));
  const bar = element("td");
  if (one.steps) {
    const progress = element("progress");
    progress.max = one.steps;
    progress.value = at ?? 0;
    bar.append(progress);
  }
  row.append(bar);
  return row;
}

function drawDevice({ summary, device }) {
  byId("device-section").hidden = !device.length;
  if (!device.length) return clear("device", "");
  const last = device[device.length - 1];
  const parts = [[last.gpu_util_pct, "%"], [last.power_w, "W"], [last.temperature_c, "°C"], [last.mem_used_gib, "GiB"]];
  const stale = summary.status.state === "silent" ? "at the last: " : "";
  byId("device-now").textContent = stale + parts.filter(([value]) => value != null).map(([value, unit]) => `${value.toFixed(0)} ${unit}`).join(" · ");
  draw("device", {
    key: "device",
    make: () => ({
      legend: { live: false },
      scales: { x: { time: true } },
      axes: [axis({ size: 32 }), axis({ size: 50 })],
      series: [
        {},
        { label: "utilisation %", stroke: colour("accent"), points: { show: false } },
        { label: "power W", stroke: colour("warm"), points: { show: false } },
        { label: "temperature °C", stroke: colour("fail"), points: { show: false } },
      ],
    }),
  }, [device.map((one) => Date.parse(one.at) / 1000), device.map((one) => one.gpu_util_pct), device.map((one) => one.power_w), device.map((one) => one.temperature_c)]);
}

// --- tables ------------------------------------------------------------------------------------------------

const drawn = { briefs: null, from: 0, to: 0 }; // which of the briefs have a row

// New rows go on top of those that are there and older ones below: what somebody reads stays.
function drawRows({ briefs, summary }) {
  const body = byId("rows").tBodies[0];
  const [from, to] = [Math.max(0, briefs.length - shown), briefs.length];
  if (drawn.briefs !== briefs) {
    body.replaceChildren();
    opened = new Set();
    Object.assign(drawn, { briefs, from: to, to });
  }
  for (; drawn.to < to; drawn.to++) body.prepend(rowOf(briefs[drawn.to], summary.status));
  while (drawn.from > from) body.append(rowOf(briefs[--drawn.from], summary.status));
  for (; drawn.from < from; drawn.from++) forget(briefs[drawn.from].iter);
  byId("shown").textContent = from ? `the latest ${to - from} of ${to}` : `${to}`;
  byId("older").hidden = !from;
}

function forget(iter) {
  opened.delete(iter);
  for (const row of byId("rows").querySelectorAll(`tr[data-iter="${iter}"]`)) row.remove();
}

// A narrow window shows a row as a card, whose values are named by the heads of their columns.
function append(row, table, cells) {
  const heads = byId(table).tHead.rows[0].cells;
  cells.forEach((cell, index) => (cell.dataset.head = heads[index].textContent));
  row.append(...cells);
  return row;
}

function rowOf(brief, status) {
  const row = element("tr", null, "row");
  row.tabIndex = 0;
  row.dataset.iter = brief.iter;
  const decision = element("td", brief.failed ?? brief.action, brief.failed && brief.failed !== "pruned" ? "failed" : brief.action);
  const difference = brief.delta == null ? "" : `${signed(brief.delta, status)}${brief.stderr == null ? "" : ` (se ${size(brief.stderr, status)})`}`;
  append(row, "rows", [
    element("td", String(brief.iter)), element("td", brief.proposer, "proposer"), decision, element("td", score(brief.objective, status)),
    element("td", difference), element("td", changesText(brief.changes), "changes"), element("td", duration(brief.wall_s)),
  ]);
  const toggle = () => open(row, brief.iter, status).catch(trouble);
  row.addEventListener("click", toggle);
  row.addEventListener("keydown", (event) => event.key === "Enter" && toggle());
  return row;
}

async function open(row, iter, status) {
  if (opened.delete(iter)) {
    if (row.nextElementSibling?.className === "more") row.nextElementSibling.remove();
    return;
  }
  opened.add(iter);
  const whole = await ask(`${place(selected)}/iterations/${iter}`).catch((error) => {
    opened.delete(iter);
    throw error;
  });
  if (!opened.has(iter)) return; // closed again meanwhile
  const more = element("tr", null, "more");
  more.dataset.iter = iter;
  const cell = element("td");
  cell.colSpan = 7;
  const add = (title, text) => {
    if (text) cell.append(element("h4", title), element("pre", text));
  };
  add("reason", whole.proposal?.reason);
  add("verdict", whole.verdict.allowed ? "" : `${whole.verdict.rail}: ${whole.verdict.why}`);
  add("decision", whole.decision.explanation);
  add("trials", whole.trials.map((one) => `${one.trial_id} ${one.role} seed ${one.seed}: ${one.result.status === "scored" ? `${one.result.score.toFixed(status.digits)}${peakMemory(one.result)}` : one.result.status === "ok" ? `${score(one.result.val_bpb, status)} bpb, ${one.result.peak_mem_gib.toFixed(2)} GiB, ${Math.round(one.result.tokens_per_s)} tokens/s` : `${one.result.status}, ${one.result.message}`}`).join("\n"));
  const code = Object.keys(whole.proposal?.changes ?? {}).some((knob) => knob.startsWith("code.")) ? await ask(`${place(selected)}/iterations/${iter}/code`) : {};
  Object.entries(code).forEach(([knob, diff]) => add(knob, diff));
  add("config", whole.config ? changesText(whole.config.values ?? whole.config) : "");
  whole.proposer.attempts.forEach((one, index) => add(`reply ${index + 1}${one.error ? `: ${one.error}` : ""}`, one.raw));
  more.append(cell);
  row.after(more);
}

byId("older").addEventListener("click", () => {
  shown += 10 * SHOWN_STEP;
  drawAll();
});

const ranked = { briefs: null, count: -1 };

async function drawTop({ summary, briefs }) {
  const { status } = summary;
  const count = briefs.length + (fromFresh(status.headline) ? 1 : 0); // which lands without an iteration
  if (ranked.briefs === briefs && ranked.count === count) return;
  Object.assign(ranked, { briefs, count });
  const best = await ask(`${place(summary.name)}/top?k=10`).catch((error) => (trouble(error), []));
  if (ranked.briefs !== briefs || ranked.count !== count) return; // others were asked for meanwhile
  byId("top").tBodies[0].replaceChildren(
    ...best.map((one, index) => {
      const row = element("tr");
      const interval = one.objective_lo == null ? "" : ends(one.objective_lo, one.objective_hi, status, score);
      const against = one.delta_vs_baseline == null ? "" : `${signed(one.delta_vs_baseline, status)}${one.delta_hi == null ? "" : ` ± ${size(one.delta_hi - one.delta_vs_baseline, status)}`}${one.beats_baseline ? " *" : ""}`;
      const differs = index ? changesText(one.from_best) : changesText(one.difference);
      return append(row, "top", [
        element("td", String(index + 1)), element("td", one.iter ? String(one.iter) : "baseline"), element("td", String(one.n)),
        element("td", score(one.objective, status)), element("td", interval), element("td", against), element("td", freshText(one.confirmed, status), one.confirmed && freshGain(one.confirmed)?.hi < 0 ? "keep" : null), element("td", differs || "–", "changes"), element("td", one.footprint, "size"),
      ]);
    }),
  );
}

// --- begin ---------------------------------------------------------------------------------------------------

addEventListener("hashchange", () => campaigns.has(fragment()) && select(fragment()));
let resized = null;
addEventListener("resize", () => {
  clearTimeout(resized);
  resized = setTimeout(drawAll, 150);
});
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", drawAll);
follow();
