// Explorers look up what JAX and its compilers answered, in HTML that _ext/explorer_NAME.py
// wrote into explorers/NAME.js; only the calculator of costs computes, a sum.
//
//   first      the choices at first
//   menus      [the choices that a menu depends on, {their values: its HTML}]; null: all above
//   answers    {the values of all menus: [HTML of cards, HTML of the answer to each card]}
//   missing    the same, where these values have no answer
//   source     HTML below each answer
//   pictures   where HTML has {3} stands picture 3
//   variants   what a place with such a class has in place of these
//
// The choices stand in the address behind `?NAME=`, so that a link leads to an answer.

const PARTS = `<div class="asks"></div><p class="foot" aria-hidden="true"></p><div class="gets">
  <div class="shown"></div><div class="answer" aria-live="polite"></div></div>`;

class Explorer {
  constructor(place, data) {
    const query = new URLSearchParams(location.search).get(data.name);
    const chosen = { ...data.first, ...Object.fromEntries(new URLSearchParams(query ?? "")) };
    const form = element("form", { innerHTML: PARTS, className: "begun" }); // of player.js
    form.addEventListener("submit", (event) => event.preventDefault());
    form.addEventListener("input", ({ target }) => target.validity.valid && this.choose(target));
    form.addEventListener("click", ({ target }) => target.name === "copy" && copyCode(target));
    Object.assign(this, { data, chosen, form });
    for (const part of ["asks", "shown", "answer", "foot"]) this[part] = form.querySelector(`.${part}`);
    this.asks.append(...data.menus.map(() => element("div")));
    this.show();
    place.prepend(form); // the tables stay, for paper
  }

  choose() {
    this.read();
    this.show();
    finder.setAddress(this.data.name, String(new URLSearchParams(this.chosen))); // of find.js
  }

  read() {
    Object.assign(this.chosen, Object.fromEntries(new FormData(this.form)));
  }

  show() {
    this.data.menus.forEach(([names, menus], n) => this.fill(this.asks.children[n], menus[this.key(names)]));
    const [cards, ...answers] = this.look();
    this.fill(this.shown, cards);
    this.fill(this.answer, (answers[this.chosen.machine] ?? answers[0]) + (this.data.source ?? ""));
    this.foot.textContent = this.answer.querySelector(".result, .type, .refused")?.textContent ?? "";
  }

  look() {
    return this.data.answers[this.key()] ?? this.data.missing;
  }

  key(names) {
    const all = this.asks.querySelectorAll(":checked, [type=hidden]");
    return (names?.map((name) => this.chosen[name]) ?? [...all].map((input) => input.value)).join("|");
  }

  // What stays the same keeps the focus. A menu that does not have what is chosen keeps its own choice.
  fill(part, html = "") {
    if (part.html === html) return;
    part.html = html;
    part.innerHTML = html.replace(/\{(\d+)\}/g, (_, n) => this.data.pictures[n]);
    for (const input of part.querySelectorAll("[type=radio]")) input.checked ||= input.value === this.chosen[input.name];
    const field = part.querySelector("[type=number]");
    if (field) field.value = this.chosen[field.name];
    if (field?.validity.valid === false) field.value = field.defaultValue;
    this.read();
  }
}

const copyCode = (button) => {
  const code = button.previousElementSibling;
  getSelection().selectAllChildren(code); // where a browser forbids more, it can be copied by hand
  navigator.clipboard?.writeText(code.textContent).then(() => { button.textContent = "Copied"; }, () => {});
};

// ----------------------------------------------------------------------------- costs

// Where the counts of steps and loads are looked up, and a time is a sum.
class Costs extends Explorer {
  // The slider has the power of two that is nearest to the field.
  choose(input) {
    const { bytes } = this.form.elements;
    if (input.type === "range") bytes.value = 2 ** input.value;
    else if (!bytes.validity.valid) bytes.value = this.chosen.bytes;
    super.choose();
  }

  look() {
    const { kind, network, devices, bytes } = this.chosen;
    const slider = this.form.querySelector("[type=range]");
    slider.value = Math.round(Math.log2(Math.max(bytes, 1)));
    slider.setAttribute("aria-valuetext", amount(bytes));
    const { alpha, beta, source } = this.data.networks[network];
    const [steps, load, far, needed, where] = this.data.counts[this.key()];
    const [sent, received] = [bytes * load, bytes * needed];
    const [latency, bandwidth] = [steps * alpha, sent / beta];
    const [seconds, terms] = [latency + bandwidth, Object.entries({ latency, bandwidth })];
    const bound = seconds ? `bound by ${latency > bandwidth ? "latency" : "bandwidth"}` : "nothing is sent";
    const bars = terms.map(([term, part]) => `<i class="${term}" style="flex-grow: ${seconds && part / seconds}"></i>`);
    const words = terms.map(([term, part]) => `<dt class="${term}">${term}</dt><dd>${time(part)}</dd>`);
    const exact = sent.toLocaleString("en", { maximumFractionDigits: 1 });
    const least = time(Math.max(far * alpha, received / beta));
    return [
      `<p class="price"><strong>${time(seconds)}</strong> ${bound}</p><div class="terms">${bars.join("")}</div><dl>${words.join("")}</dl>`,
      `<p class="result">${time(seconds)} for ${kind.startsWith("a") ? "an" : "a"} ${kind} of ${amount(bytes)} on ${devices} devices (${where}): ${steps} steps, ${amount(sent)} over the busiest link.</p>
      <p class="formula"><span>t = k α + s / β</span><span>= ${steps} × ${time(alpha)} + ${exact} B / ${scale(beta, ["B", "kB", "MB", "GB"], 1000)}/s</span>
        <span>= ${time(latency)} + ${time(bandwidth)} = ${time(seconds)}</span></p>
      <p>While no switch adds or copies, no algorithm takes less than ${least}: the farthest device is ${far} ${far === 1 ? "step" : "steps"} away, and a device must get ${amount(received)} over each of its links.</p>${source}`,
    ];
  }
}

const scale = (number, units, base) => {
  const place = Math.max(units.findLastIndex((_, power) => number >= base ** power), 0);
  return `${Number((number / base ** place).toPrecision(3)).toLocaleString("en")} ${units[place]}`;
};
const amount = (bytes) => scale(bytes, ["B", "KiB", "MiB", "GiB", "TiB"], 1024);
const time = (seconds) => scale(seconds * 1e6, ["µs", "ms", "s"], 1000);

// ------------------------------------------------------------------------- beginning

const begin = async (place) => {
  place.classList.add("live"); // its tables are hidden from now on: nothing jumps later
  const [, name] = place.className.match(/explorer-(\w+)/);
  try {
    await finder.script(`_static/explorers/${name}.js`); // a page that was opened as a file may read nothing else
  } catch {
    place.classList.remove("live"); // the tables are shown again
    return;
  }
  const { variants = {}, ...data } = window.shardbook[name];
  const variant = [...place.classList].find((word) => word in variants);
  new (name === "costs" ? Costs : Explorer)(place, { name, ...data, ...variants[variant] });
};

// Only now is find.js there, too.
addEventListener("DOMContentLoaded", () => document.querySelectorAll(".explorer").forEach(begin));
